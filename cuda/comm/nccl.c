/* cuda/comm: loads NCCL when the first group of ranks communicates through a GPU, so that neither
 * the program nor its CUDA plug-in links against it. NCCL's declarations are repeated here, and
 * compared with nccl.h if it is found at build time. MOONREEL_NCCL names another file than
 * libnccl.so.2.
 *
 * Communicators are non-blocking: a call may return before it has joined or enqueued, and `state`
 * reports the progress. NCCL moves bytes and never sums them, because moonreel fixes the order of
 * sums. Ref: parallelism 10, 15.
 * Licence: Apache-2.0 */
#include "cuda/comm/transport.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- the part of NCCL that is used ----

enum { SUCCESS = 0, IN_PROGRESS = 7, A_BYTE = 1, LEAST = 21800, MAGIC = 0xcafebeef };
typedef struct unique_id {
    char bytes[MR_CUDA_TRANSPORT_ID];
} unique_id;
// layout as of 2.18; newer versions read `size` and `version`
typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking, group_blocks, least_blocks, most_blocks;
    const char *network;
    int split_share;
} config;

#if defined __has_include
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
_Static_assert(sizeof(ncclUniqueId) == sizeof(unique_id), "ncclUniqueId");
_Static_assert(offsetof(ncclConfig_t, blocking) == offsetof(config, blocking), "blocking");
_Static_assert(offsetof(ncclConfig_t, netName) == offsetof(config, network), "netName");
_Static_assert(offsetof(ncclConfig_t, splitShare) == offsetof(config, split_share), "splitShare");
_Static_assert((int)ncclSuccess == SUCCESS && (int)ncclInProgress == IN_PROGRESS, "ncclResult_t");
_Static_assert((int)ncclUint8 == A_BYTE, "ncclDataType_t");
_Static_assert(NCCL_VERSION(2, 18, 0) == LEAST, "NCCL_VERSION");
#endif
#endif

// symbol in NCCL, field here, result, arguments
#define FUNCTIONS(X)                                                                               \
    X("ncclGetVersion", version, int, (int *))                                                     \
    X("ncclGetUniqueId", id, int, (unique_id *))                                                   \
    X("ncclCommInitRankConfig", join, int, (void **, int, unique_id, int, config *))               \
    X("ncclCommGetAsyncError", state, int, (void *, int *))                                        \
    X("ncclCommFinalize", finish, int, (void *))                                                   \
    X("ncclCommDestroy", destroy, int, (void *))                                                   \
    X("ncclCommAbort", abort, int, (void *))                                                       \
    X("ncclGroupStart", group_start, int, (void))                                                  \
    X("ncclGroupEnd", group_end, int, (void))                                                      \
    X("ncclSend", send, int, (const void *, size_t, int, int, void *, void *))                     \
    X("ncclRecv", receive, int, (void *, size_t, int, int, void *, void *))                        \
    X("ncclAllGather", gather, int, (const void *, void *, size_t, int, void *, void *))           \
    X("ncclGetErrorString", text, const char *, (int))                                             \
    X("ncclGetLastError", last, const char *, (void *))

static struct nccl {
    void *so; // NULL: not loaded yet
    int number;
#define X(symbol, field, result, args) result(*field) args;
    FUNCTIONS(X)
#undef X
} nccl;

// ---- opening ----

static mr_status open_library(struct nccl *n)
{
    const char *set = getenv("MOONREEL_NCCL"), *path = set && *set ? set : "libnccl.so.2";
    // communicators that run at the same time must not wait for each other's kernels on the GPU
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    n->so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!n->so)
        return mr_fail(MR_E_UNSUPPORTED,
                       "ranks on GPUs need NCCL: %s; try: install libnccl2 of NVIDIA's "
                       "repository, or MOONREEL_NCCL=FILE",
                       dlerror());
#define X(symbol, field, result, args)                                                             \
    {                                                                                              \
        void *at = dlsym(n->so, symbol);                                                           \
        memcpy(&n->field, &at, sizeof at);                                                         \
        if (!at)                                                                                   \
            return mr_fail(MR_E_UNSUPPORTED, "%s: has no %s; try: NCCL 2.18 or newer", path,       \
                           symbol);                                                                \
    }
    FUNCTIONS(X)
#undef X
    if (n->version(&n->number) != SUCCESS || n->number < LEAST)
        return mr_fail(MR_E_UNSUPPORTED,
                       "%s: is NCCL %d.%d.%d, expected 2.18 or newer; try: a newer libnccl2, or "
                       "MOONREEL_NCCL=FILE",
                       path, n->number / 10000, n->number / 100 % 100, n->number % 100);
    return MR_OK;
}

static mr_status ready(void)
{
    struct nccl n = {0};
    if (nccl.so)
        return MR_OK;
    mr_status st = open_library(&n);
    if (st == MR_OK)
        nccl = n;
    else if (n.so)
        dlclose(n.so);
    return st;
}

// ---- communicators ----

static mr_status check(void *comm, int code, const char *doing)
{
    if (code == SUCCESS || code == IN_PROGRESS)
        return MR_OK;
    const char *more = nccl.last(comm);
    return mr_fail(MR_E_NODE, "NCCL: %s: %s (%d)%s%s; try: NCCL_DEBUG=INFO shows more", doing,
                   nccl.text(code), code, more && *more ? ": " : "", more ? more : "");
}

static mr_status id(int size, char out[MR_CUDA_TRANSPORT_ID])
{
    unique_id made;
    (void)size;
    MR_TRY(check(NULL, nccl.id(&made), "an id for a communicator"));
    memcpy(out, made.bytes, sizeof made.bytes);
    return MR_OK;
}

static mr_status join(const char id[MR_CUDA_TRANSPORT_ID], int rank, int size, void **comm)
{
    unique_id given;
    config c = {sizeof c, MAGIC, LEAST, 0, INT_MIN, INT_MIN, INT_MIN, NULL, INT_MIN};
    memcpy(given.bytes, id, sizeof given.bytes);
    return check(NULL, nccl.join(comm, size, given, rank, &c), "a communicator");
}

static mr_status state(void *comm, bool *over)
{
    int code = SUCCESS;
    MR_TRY(check(comm, nccl.state(comm, &code), "a communicator"));
    // a failed communicator has not finished: it cannot be closed gracefully
    MR_TRY(check(comm, code, "the state of a communicator"));
    *over = code != IN_PROGRESS;
    return MR_OK;
}

static void leave(void *comm, bool abort)
{
    enum { MOMENTS = 10000 }; // of a millisecond, because the other ranks must leave too
    bool over = false;
    if (!abort && check(comm, nccl.finish(comm), "closing a communicator") == MR_OK)
        for (int i = 0; i < MOMENTS && state(comm, &over) == MR_OK && !over; i++)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (over)
        nccl.destroy(comm);
    else
        nccl.abort(comm);
}

// ---- calls ----

static mr_status message(void *comm, const mr_cuda_message *m, void *stream)
{
    if (m->receives)
        return check(comm, nccl.receive(m->data, m->bytes, A_BYTE, m->peer, comm, stream),
                     "receiving a message");
    return check(comm, nccl.send(m->data, m->bytes, A_BYTE, m->peer, comm, stream),
                 "sending a message");
}

static mr_status exchange(void *comm, const mr_cuda_message *messages, int n, void *stream)
{
    MR_TRY(check(comm, nccl.group_start(), "messages of a call"));
    mr_status st = MR_OK;
    for (int i = 0; i < n && st == MR_OK; i++)
        st = message(comm, &messages[i], stream);
    // always end the group, even after an error
    const int code = nccl.group_end();
    return st == MR_OK ? check(comm, code, "messages of a call") : st;
}

static mr_status gather(void *comm, void *all, int rank, size_t bytes, void *stream)
{
    return check(
        comm,
        nccl.gather((const char *)all + (size_t)rank * bytes, all, bytes, A_BYTE, comm, stream),
        "chunks of all ranks");
}

const mr_cuda_transport mr_cuda_ranks_transport = {
    .name = "NCCL",
    .ready = ready,
    .id = id,
    .join = join,
    .state = state,
    .leave = leave,
    .exchange = exchange,
    .gather = gather,
};
