/* cuda/comm: communicators of groups, and the messages that steps send through them.
 * Licence: Apache-2.0 */
#include "cuda/comm/ranks.h"

#include "cuda/rt/driver.h"
#include "moonreel/comm.h"

#include <stdatomic.h>
#include <time.h>

typedef struct mr_cuda_ranks {
    struct mr_cuda_ranks *next;
    int64_t number;
    mr_group group;
    void *comm; /* NULL: closed */
    /* the call that a stream is executing, and its start */
    _Atomic(const mr_carried *) under_way;
    _Atomic double since_s;
} mr_cuda_ranks;

static mr_cuda_ranks *all;
static unsigned left; /* number of closed communicators so far */
static mr_cuda_speaker *devices;
static const mr_cuda_transport *const transport = &mr_cuda_ranks_transport;

// ---- communicators ----

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

// wait until the transport reports that the last operation is complete
static mr_status wait_for(mr_cuda_ranks *r, const char *doing)
{
    const double began = mr_now_s();
    for (bool over = false;;) {
        MR_TRY(transport->state(r->comm, &over));
        if (over)
            return MR_OK;
        MR_TRY(mr_interrupt_check());
        MR_TRY(r->group.look(r->group.user, mr_now_s() - began));
        if (mr_now_s() - began > r->group.deadline_s)
            return mr_fail(
                MR_E_NODE,
                "%s: %s of %d ranks has not ended after %g s; try: the logs of the other ranks",
                transport->name, doing, r->group.size, r->group.deadline_s);
        pause_ms(1);
    }
}

static mr_status join(mr_cuda_ranks *r)
{
    char id[MR_CUDA_TRANSPORT_ID] = {0};
    MR_TRY(transport->ready());
    if (r->group.rank == 0)
        MR_TRY(transport->id(r->group.size, id));
    MR_TRY(r->group.broadcast(r->group.user, id, sizeof id));
    MR_TRY(transport->join(id, r->group.rank, r->group.size, &r->comm));
    return wait_for(r, "joining a communicator");
}

static mr_status ranks_of(int64_t number, mr_cuda_ranks **out)
{
    mr_group group;
    MR_TRY(mr_collective_group(number, &group));
    for (mr_cuda_ranks *r = all; r; r = r->next)
        if (r->number == number) {
            *out = r;
            return r->comm ? MR_OK
                           : mr_fail(MR_E_NODE, "%s: its communicator is closed", transport->name);
        }
    mr_cuda_ranks *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(sizeof *r);
    r->number = number, r->group = group;
    mr_status st = join(r);
    if (st == MR_OK) {
        r->next = all, all = r;
        *out = r;
        return MR_OK;
    }
    // tell the other ranks, which wait for this one
    group.give_up(group.user, st);
    if (r->comm)
        transport->leave(r->comm, true);
    mr_free(r);
    return st;
}

static void leave(mr_cuda_ranks *r, bool abort)
{
    if (r->comm)
        transport->leave(r->comm, abort), left++;
    r->comm = NULL;
}

// called when the group with this number is freed
static void gone(int64_t number)
{
    for (mr_cuda_ranks *r = all; r; r = r->next)
        if (r->number == number && r->comm) {
            for (mr_cuda_speaker *d = devices; d; d = d->next)
                d->settle(d->user);
            leave(r, false);
        }
}

void mr_cuda_ranks_start(mr_cuda_speaker *device)
{
    device->next = devices, devices = device;
    mr_collective_watch(gone);
}

unsigned mr_cuda_ranks_left(void)
{
    return left;
}

bool mr_cuda_ranks_open(void)
{
    for (mr_cuda_ranks *r = all; r; r = r->next)
        if (r->comm)
            return true;
    return false;
}

mr_status mr_cuda_ranks_give_up(mr_status st)
{
    mr_error *first = mr_error_copy(mr_error_last());
    for (mr_cuda_ranks *r = all; r; r = r->next) {
        if (!r->comm)
            continue;
        r->group.give_up(r->group.user, st);
        leave(r, true);
    }
    if (first)
        mr_error_adopt(first);
    mr_error_free(first);
    return st;
}

static mr_status look(mr_cuda_ranks *r)
{
    bool over;
    const mr_carried *call = atomic_load(&r->under_way);
    const double waited = call ? mr_now_s() - atomic_load(&r->since_s) : 0;
    MR_TRY(r->group.look(r->group.user, waited));
    MR_TRY(transport->state(r->comm, &over));
    if (call && waited > r->group.deadline_s)
        return mr_fail(
            MR_E_NODE,
            "%s of %d ranks on the GPU has not ended after %g s; try: the logs of the other "
            "ranks",
            mr_comm_op_name(call->op), r->group.size, r->group.deadline_s);
    return MR_OK;
}

mr_status mr_cuda_ranks_look(void)
{
    for (mr_cuda_ranks *r = all; r; r = r->next)
        if (r->comm) {
            mr_status st = look(r);
            if (st != MR_OK)
                return mr_cuda_ranks_give_up(st);
        }
    return MR_OK;
}

void mr_cuda_ranks_close(mr_cuda_speaker *device)
{
    mr_cuda_speaker **at = &devices;
    while (*at != device)
        at = &(*at)->next;
    *at = device->next;
    if (devices)
        return;
    mr_collective_watch(NULL);
    while (all) {
        mr_cuda_ranks *r = all;
        all = r->next;
        leave(r, false);
        mr_free(r);
    }
}

// ---- communication of steps ----

mr_status mr_cuda_talk_new(int64_t group, mr_comm_op op, mr_dtype dtype, mr_cuda_talk **out)
{
    mr_cuda_ranks *r = NULL;
    MR_TRY(ranks_of(group, &r));
    const size_t bytes = 2 * (size_t)r->group.size * sizeof(mr_cuda_message);
    mr_cuda_talk *t = mr_calloc(1, sizeof *t + bytes);
    if (!t)
        return mr_fail_memory(sizeof *t + bytes);
    t->ranks = r, t->rank = r->group.rank, t->size = r->group.size;
    t->call.op = op, t->call.dtype = dtype;
    t->messages = (mr_cuda_message *)(void *)(t + 1);
    *out = t;
    return MR_OK;
}

void mr_cuda_talk_free(void *talk)
{
    mr_free(talk);
}

// runs on a driver thread when the stream reaches it
static void begins(void *talk)
{
    mr_cuda_talk *t = talk;
    t->ranks->group.begins(t->ranks->group.user, &t->call);
    atomic_store(&t->ranks->since_s, mr_now_s());
    atomic_store(&t->ranks->under_way, &t->call);
}

static void ends(void *talk)
{
    mr_cuda_talk *t = talk;
    atomic_store(&t->ranks->under_way, NULL);
    t->ranks->group.ends(t->ranks->group.user, &t->call);
}

static mr_status on_host(mr_cuda_talk *t, void (*fn)(void *), void *stream)
{
    int error = mr_cuda.call(fn, t, stream);
    return error ? mr_fail(MR_E_NODE, "a call on the host: %s (CUDA error %d)", mr_cuda.text(error),
                           error)
                 : MR_OK;
}

mr_status mr_cuda_talk_begins(mr_cuda_talk *t, void *stream)
{
    if (!t->ranks->comm)
        return mr_fail(MR_E_NODE, "%s: its communicator is closed", transport->name);
    // a failed call may have left some
    t->n_messages = 0;
    return on_host(t, begins, stream);
}

mr_status mr_cuda_talk_ends(mr_cuda_talk *t, void *stream)
{
    return on_host(t, ends, stream);
}

static void add(mr_cuda_talk *t, int rank, bool receives, void *data, size_t bytes)
{
    if (bytes)
        t->messages[t->n_messages++] = (mr_cuda_message){rank, receives, data, bytes};
}

void mr_cuda_talk_send(mr_cuda_talk *t, int rank, const void *data, size_t bytes)
{
    add(t, rank, false, (void *)(uintptr_t)data, bytes);
}

void mr_cuda_talk_receive(mr_cuda_talk *t, int rank, void *data, size_t bytes)
{
    add(t, rank, true, data, bytes);
}

mr_status mr_cuda_talk_exchange(mr_cuda_talk *t, void *stream)
{
    const int n = t->n_messages;
    t->n_messages = 0;
    if (!n)
        return MR_OK;
    MR_TRY(transport->exchange(t->ranks->comm, t->messages, n, stream));
    return wait_for(t->ranks, mr_comm_op_name(t->call.op));
}

mr_status mr_cuda_talk_gather(mr_cuda_talk *t, void *all_ranks, size_t bytes, void *stream)
{
    if (!bytes)
        return MR_OK;
    MR_TRY(transport->gather(t->ranks->comm, all_ranks, t->rank, bytes, stream));
    return wait_for(t->ranks, mr_comm_op_name(t->call.op));
}
