/* cuda/comm: transports bytes between emulated GPUs, for specs. Each communicator uses the
 * shared-memory transport of core/comm, with its own segment. A call is tried whenever its stream
 * could continue, so any other work may run before it, and it reads and writes as late as possible.
 *
 * MOONREEL_CUDAEMU selects a fault: transport=none (no library), transport=old, transport=N (from
 * the N-th call on communicators of the last rank fail). Ranks are processes of one user on one
 * host.
 * Licence: Apache-2.0 */
#include "cuda/comm/transport.h"
#include "cuda/emu/emu.h"
#include "moonreel/comm.h"
#include <fcntl.h>
#include <memory>
#include <stdio.h>
#include <unistd.h>

namespace
{

enum { POISON = 0xA5 };

mr_segment *made; // made by the first rank, until it joins
long calls;       // calls so far

struct Comm {
    int rank, size;
    mr_segment *segment = NULL; // only in the first rank
    mr_transport *transport = NULL;
    std::vector<uint32_t> sent, got; // number of messages to and from each rank
    // the previous call, enqueued and captured: calls of a communicator run in this order
    emu::Event *last[2] = {emu::event_new(), emu::event_new()};
    bool aborted = false;
    std::string failed;
    ~Comm()
    {
        for (emu::Event *e : last)
            emu::event_free(e);
        mr_segment_free(segment);
    }
};
typedef std::shared_ptr<Comm> Handle;

Handle &handle(void *comm)
{
    return *(Handle *)comm;
}

// the value of transport=..., or NULL
const char *wrong()
{
    const char *env = getenv("MOONREEL_CUDAEMU"), *at = env ? strstr(env, "transport=") : NULL;
    return at ? at + 10 : NULL;
}

mr_status ready()
{
    const char *w = wrong();
    if (w && strncmp(w, "none", 4) == 0)
        return mr_fail(MR_E_UNSUPPORTED, "no library carries bytes between emulated GPUs");
    if (w && strncmp(w, "old", 3) == 0)
        return mr_fail(MR_E_UNSUPPORTED, "the library between emulated GPUs is too old");
    return MR_OK;
}

mr_status id(int size, char out[MR_CUDA_TRANSPORT_ID])
{
    mr_segment_free(made);
    made = NULL;
    MR_TRY(mr_segment_new(size, &made));
    snprintf(out, MR_CUDA_TRANSPORT_ID, "/proc/%ld/fd/%d", (long)getpid(), mr_segment_fd(made));
    return MR_OK;
}

mr_status join_segment(Comm *c, const char *path)
{
    if (c->rank == 0) {
        c->segment = made;
        made = NULL;
        return mr_segment_transport(c->segment, 0, &c->transport);
    }
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return mr_fail(MR_E_NODE, "%s: cannot open the memory of the first rank", path);
    mr_status st = mr_segment_join(fd, c->rank, c->size, &c->transport);
    close(fd);
    return st;
}

mr_status join(const char id[MR_CUDA_TRANSPORT_ID], int rank, int size, void **comm)
{
    auto c = std::make_shared<Comm>();
    c->rank = rank;
    c->size = size;
    c->sent.resize((size_t)size);
    c->got.resize((size_t)size);
    MR_TRY(join_segment(c.get(), id));
    *comm = new Handle(c);
    return MR_OK;
}

mr_status state(void *comm, bool *over)
{
    *over = true;
    const Comm &c = *handle(comm);
    return c.failed.empty() ? MR_OK : mr_fail(MR_E_NODE, "emulated GPUs: %s", c.failed.c_str());
}

void leave(void *comm, bool abort)
{
    Comm &c = *handle(comm);
    c.aborted = true;
    c.transport->ops->close(c.transport, !abort);
    c.transport = NULL;
    mr_segment_free(c.segment);
    c.segment = NULL;
    // enqueued calls still hold a reference to the rest
    delete (Handle *)comm;
}

// ---- calls ----

struct Call {
    Handle comm;
    std::vector<mr_cuda_message> messages;
    bool begun = false;
    std::vector<mr_parcel> parcels;
    std::vector<uint32_t> number; // sequence number of each message between its two ranks
};

bool fail(Comm &c, const char *what, int peer)
{
    c.failed =
        "rank " + std::to_string(c.rank) + ", with rank " + std::to_string(peer) + ": " + what;
    return true;
}

void begin(Call &call)
{
    call.begun = true;
    call.parcels.clear();
    call.number.clear();
    for (const mr_cuda_message &m : call.messages) {
        mr_parcel p = {};
        p.peer = m.peer;
        call.number.push_back((m.receives ? call.comm->got : call.comm->sent)[(size_t)m.peer]++);
        p.head.op = MR_COMM_SEND;
        p.head.seq = call.number.back();
        p.head.bytes = m.bytes;
        p.data = m.data;
        p.bytes = m.bytes;
        call.parcels.push_back(p);
        if (m.receives)
            memset(m.data, POISON, m.bytes);
        else if (!emu::all_written(m.data, m.bytes))
            emu::report("a message of %zu bytes to rank %d is unwritten", m.bytes, m.peer);
    }
    if (const char *w = wrong())
        if (w[0] >= '0' && w[0] <= '9' && calls++ >= atol(w) &&
            call.comm->rank == call.comm->size - 1)
            fail(*call.comm, "unhandled system error", call.messages[0].peer);
}

// true: the call is complete, or never will be
bool attempt(Call &call)
{
    Comm &c = *call.comm;
    if (c.aborted)
        return true;
    if (!call.begun)
        begin(call);
    if (!c.failed.empty())
        return false; // until the host reads the state
    bool over = true;
    for (size_t i = 0; i < call.parcels.size(); i++) {
        mr_parcel &p = call.parcels[i];
        const mr_cuda_message &m = call.messages[i];
        if (p.done)
            continue;
        mr_status st = m.receives ? c.transport->ops->receive(c.transport, &p)
                                  : c.transport->ops->send(c.transport, &p);
        if (st != MR_OK)
            return fail(c, mr_error_last()->text, m.peer), false;
        if (m.receives && p.headed && (p.head.bytes != m.bytes || p.head.seq != call.number[i]))
            return fail(c, "the peer is in another call, or the sizes differ", m.peer), false;
        over = over && p.done;
    }
    if (!over)
        return false;
    for (const mr_cuda_message &m : call.messages)
        if (m.receives)
            emu::host_wrote(m.data, m.bytes);
    call.begun = false;
    return true;
}

mr_status exchange(void *comm, const mr_cuda_message *messages, int n, void *stream)
{
    auto call = std::make_shared<Call>();
    call->comm = handle(comm);
    call->messages.assign(messages, messages + n);
    auto s = (cudaStream_t)stream;
    emu::Event *last = call->comm->last[emu::capturing()];
    emu::event_wait(last, s);
    emu::enqueue_attempts(s, [call] { return attempt(*call); });
    emu::event_record(last, s);
    return MR_OK;
}

mr_status gather(void *comm, void *all, int rank, size_t bytes, void *stream)
{
    std::vector<mr_cuda_message> messages;
    for (int i = 0; i < handle(comm)->size; i++)
        if (i != rank) {
            messages.push_back({i, false, (char *)all + (size_t)rank * bytes, bytes});
            messages.push_back({i, true, (char *)all + (size_t)i * bytes, bytes});
        }
    return exchange(comm, messages.data(), (int)messages.size(), stream);
}

} // namespace

extern const mr_cuda_transport mr_cuda_ranks_transport = {
    "the transport between emulated GPUs", ready, id, join, state, leave, exchange, gather,
};
