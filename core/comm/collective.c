/* comm: collectives as schedules of messages. No rank forwards partial sums: each rank sends its
 * contributions to the owner of a chunk, which adds them in rank order. Ref: parallelism 1, 10.
 * Licence: Apache-2.0 */
#include "comm/room.h"

#include <string.h>

enum {
    ONE_HOP_BYTES = 4096,    /* up to this size latency matters, not bandwidth */
    SCRATCH_BYTES = 1 << 20, /* for contributions that wait to be summed */
    PIECE_LEAST = 4096       /* elements */
};

static int64_t total_of(const mr_comm *c, const int64_t *counts)
{
    int64_t total = 0;
    for (int i = 0; i < c->size; i++)
        total += counts[i];
    return total;
}

/* Check counts that are not sizes of messages. Errors: MR_E_USAGE */
static mr_status check_counts(const mr_comm *c, const int64_t *counts, mr_dtype dtype)
{
    int64_t left = (int64_t)(MR_BYTES_MAX / mr_dtype_bytes(dtype));
    for (int i = 0; i < c->size; i++) {
        if (counts[i] < 0 || counts[i] > left)
            return mr_fail(MR_E_USAGE, "%lld elements for rank %d: expected 0 to %lld",
                           (long long)counts[i], i, (long long)left);
        left -= counts[i];
    }
    return MR_OK;
}

static mr_status check_count(int64_t count, mr_dtype dtype)
{
    int64_t most = (int64_t)(MR_BYTES_MAX / mr_dtype_bytes(dtype));
    return count >= 0 && count <= most ? MR_OK
                                       : mr_fail(MR_E_USAGE, "%lld elements: expected 0 to %lld",
                                                 (long long)count, (long long)most);
}

static mr_status check_peer(const mr_comm *c, const char *who, int rank)
{
    return rank >= 0 && rank < c->size
               ? MR_OK
               : mr_fail(MR_E_USAGE, "%s: rank %d: expected 0 to %d", who, rank, c->size - 1);
}

// the d-th rank to send to; before(): the rank that sends to us then
static int after(const mr_comm *c, int d)
{
    return (c->rank + d) % c->size;
}
static int before(const mr_comm *c, int d)
{
    return (c->rank + c->size - d) % c->size;
}

/* ---- barrier, broadcast, single messages ---- */

mr_status mr_comm_barrier(mr_comm *c, double deadline_s)
{
    mr_comm_head call;
    MR_TRY(comm_begin(c, MR_COMM_BARRIER, MR_U8, 0, 0, &call));
    // after round k, each rank knows that 2^k ranks have arrived
    for (int d = 1; d < c->size; d *= 2, call.part++) {
        comm_send(c, &call, after(c, d), NULL, 0);
        comm_receive(c, &call, before(c, d), NULL, 0);
        MR_TRY(comm_complete(c, &call, deadline_s));
    }
    return MR_OK;
}

mr_status mr_comm_broadcast(mr_comm *c, int root, mr_dtype dtype, void *x, int64_t count)
{
    mr_comm_head call;
    MR_TRY(check_peer(c, "broadcast", root));
    MR_TRY(check_count(count, dtype));
    MR_TRY(comm_begin(c, MR_COMM_BROADCAST, dtype, count, (unsigned)root, &call));
    const size_t bytes = (size_t)count * mr_dtype_bytes(dtype);
    // a binary tree of ranks, counted from the root: a rank receives in the round of its lowest set
    // bit
    const int place = (c->rank + c->size - root) % c->size;
    int d = 1;
    while (d <= place)
        d *= 2;
    if (place) {
        comm_receive(c, &call, (place - d / 2 + root) % c->size, x, bytes);
        MR_TRY(comm_complete(c, &call, 0));
    }
    for (; place + d < c->size; d *= 2)
        comm_send(c, &call, (place + d + root) % c->size, x, bytes);
    return comm_complete(c, &call, 0);
}

static mr_status single(mr_comm *c, const char *who, int peer, mr_dtype dtype, int64_t count,
                        uint32_t *numbers, mr_comm_head *call)
{
    MR_TRY(check_peer(c, who, peer));
    MR_TRY(check_count(count, dtype));
    if (peer == c->rank)
        return mr_fail(MR_E_USAGE, "%s: rank %d is this one", who, peer);
    if (c->world->broken)
        return mr_fail(c->world->broken, "the world of ranks has ended: %.900s", c->world->why);
    *call = (mr_comm_head){.op = MR_COMM_SEND,
                           .dtype = (uint8_t)dtype,
                           .count = (uint64_t)count,
                           .group = c->id,
                           .seq = numbers[peer]++};
    c->world->counted[MR_COMM_SEND].calls++;
    return MR_OK;
}

mr_status mr_comm_send(mr_comm *c, int to, mr_dtype dtype, const void *x, int64_t count)
{
    mr_comm_head call;
    MR_TRY(single(c, "send", to, dtype, count, c->sent, &call));
    comm_send(c, &call, to, x, (size_t)count * mr_dtype_bytes(dtype));
    return comm_complete(c, &call, 0);
}

mr_status mr_comm_receive(mr_comm *c, int from, mr_dtype dtype, void *x, int64_t count)
{
    mr_comm_head call;
    MR_TRY(single(c, "receive", from, dtype, count, c->got, &call));
    comm_receive(c, &call, from, x, (size_t)count * mr_dtype_bytes(dtype));
    return comm_complete(c, &call, 0);
}

/* ---- gathers and all-to-all ---- */

static mr_status gather(mr_comm *c, const mr_comm_head *call, size_t width, const void *in,
                        const int64_t *counts, char *out)
{
    // `at` is the offset of the peer's part in out
    size_t mine = 0;
    for (int i = 0; i < c->rank; i++)
        mine += (size_t)counts[i] * width;
    const size_t bytes = (size_t)counts[c->rank] * width;
    if (bytes)
        memmove(out + mine, in, bytes);
    size_t at = mine + bytes;
    for (int d = 1; d < c->size; d++) {
        int from = after(c, d);
        at = from == 0 ? 0 : at;
        // send even no elements: the other rank checks the count
        comm_send(c, call, before(c, d), out + mine, bytes);
        comm_receive(c, call, from, out + at, (size_t)counts[from] * width);
        at += (size_t)counts[from] * width;
    }
    return comm_complete(c, call, 0);
}

mr_status mr_comm_all_gather(mr_comm *c, mr_dtype dtype, const void *in, const int64_t *counts,
                             void *out)
{
    mr_comm_head call;
    MR_TRY(check_counts(c, counts, dtype));
    MR_TRY(comm_begin(c, MR_COMM_ALL_GATHER, dtype, total_of(c, counts), 0, &call));
    return gather(c, &call, mr_dtype_bytes(dtype), in, counts, out);
}

mr_status mr_comm_all_to_all(mr_comm *c, mr_dtype dtype, const void *in, const int64_t *sends,
                             void *out, const int64_t *receives)
{
    mr_comm_head call;
    const size_t width = mr_dtype_bytes(dtype);
    MR_TRY(check_counts(c, sends, dtype));
    MR_TRY(check_counts(c, receives, dtype));
    if (sends[c->rank] != receives[c->rank])
        return mr_fail(MR_E_SHAPE,
                       "all_to_all: rank %d sends itself %lld elements and expects %lld", c->rank,
                       (long long)sends[c->rank], (long long)receives[c->rank]);
    MR_TRY(comm_begin(c, MR_COMM_ALL_TO_ALL, dtype, 0, 0, &call));
    const char *from = in;
    char *to = out;
    for (int i = 0; i < c->size; i++) {
        size_t give = (size_t)sends[i] * width, get = (size_t)receives[i] * width;
        if (i == c->rank && give)
            memcpy(to, from, give);
        // send even no elements: the other rank checks the count
        if (i != c->rank) {
            comm_send(c, &call, i, from, give);
            comm_receive(c, &call, i, to, get);
        }
        from += give, to += get;
    }
    return comm_complete(c, &call, 0);
}

mr_status mr_comm_shift(mr_comm *c, int hops, mr_dtype dtype, const void *in, int64_t count,
                        void *out, int64_t out_count)
{
    mr_comm_head call;
    const size_t width = mr_dtype_bytes(dtype);
    const int d = (hops % c->size + c->size) % c->size;
    MR_TRY(check_count(count, dtype));
    MR_TRY(check_count(out_count, dtype));
    if (d == 0 && count != out_count)
        return mr_fail(MR_E_SHAPE, "shift: rank %d keeps %lld elements and expects %lld", c->rank,
                       (long long)count, (long long)out_count);
    MR_TRY(comm_begin(c, MR_COMM_SHIFT, dtype, 0, (unsigned)d, &call));
    if (d == 0) {
        if (count)
            memcpy(out, in, (size_t)count * width);
        return MR_OK;
    }
    comm_send(c, &call, after(c, d), in, (size_t)count * width);
    comm_receive(c, &call, before(c, d), out, (size_t)out_count * width);
    return comm_complete(c, &call, 0);
}

/* ---- reductions ---- */

/* The sum of all contributions to elements [at, at + count) of this rank's chunk, in out. */
typedef struct chunk {
    const char *in; /* the whole input */
    const int64_t *counts;
    mr_comm_kind kind;
    mr_dtype dtype, to;
    char *out;
} chunk;

static mr_status reduce_piece(mr_comm *c, const mr_comm_head *call, const chunk *k, int64_t at,
                              int64_t piece)
{
    const size_t width = mr_dtype_bytes(k->dtype);
    const int64_t own = MR_MIN(k->counts[c->rank] - at, piece);
    size_t offset = 0;
    char *waiting = c->scratch;
    for (int i = 0; i < c->size; i++) {
        const char *theirs = k->in + (offset + (size_t)at) * width;
        int64_t some = MR_MIN(k->counts[i] - at, piece);
        offset += (size_t)k->counts[i];
        c->parts[i] = theirs;
        if (i == c->rank)
            continue;
        // send the first piece even without elements: the other rank checks the count
        if (some > 0 || at == 0)
            comm_send(c, call, i, theirs, (size_t)some * width);
        if (own <= 0 && at > 0)
            continue;
        comm_receive(c, call, i, waiting, (size_t)own * width);
        c->parts[i] = waiting, waiting += (size_t)own * width;
    }
    MR_TRY(comm_complete(c, call, 0));
    if (own > 0)
        comm_sum(k->kind, k->dtype, c->parts, c->size, own, k->to,
                 k->out + (size_t)at * mr_dtype_bytes(k->to));
    return MR_OK;
}

static mr_status reduce(mr_comm *c, mr_comm_head *call, const chunk *k)
{
    const size_t width = mr_dtype_bytes(k->dtype);
    int64_t most = 0, piece = SCRATCH_BYTES / (int64_t)width / c->size;
    piece = MR_MAX(piece, (int64_t)PIECE_LEAST);
    for (int i = 0; i < c->size; i++)
        most = MR_MAX(most, k->counts[i]);
    piece = MR_MIN(piece, MR_MAX(most, 1));
    MR_TRY(comm_scratch(c, (size_t)(c->size - 1) * (size_t)piece * width));
    for (int64_t at = 0; at < most; at += piece, call->part++)
        MR_TRY(reduce_piece(c, call, k, at, piece));
    return MR_OK;
}

mr_status mr_comm_reduce_scatter(mr_comm *c, mr_comm_kind kind, mr_dtype dtype, const void *in,
                                 const int64_t *counts, mr_dtype to, void *out)
{
    mr_comm_head call;
    MR_TRY(comm_can_sum(dtype, to));
    MR_TRY(check_counts(c, counts, dtype));
    MR_TRY(comm_begin(c, MR_COMM_REDUCE_SCATTER, dtype, total_of(c, counts), kind, &call));
    return reduce(c, &call, &(chunk){in, counts, kind, dtype, to, out});
}

/* For few bytes: each rank receives all contributions and sums them, in the same order. */
static mr_status reduce_in_one_hop(mr_comm *c, mr_comm_head *call, mr_comm_kind kind, void *x,
                                   int64_t count)
{
    const size_t bytes = (size_t)count * mr_dtype_bytes((mr_dtype)call->dtype);
    MR_TRY(comm_everyone(c, call, x, bytes));
    for (int i = 0; i < c->size; i++)
        c->parts[i] = c->scratch + (size_t)i * bytes;
    comm_sum(kind, (mr_dtype)call->dtype, c->parts, c->size, count, (mr_dtype)call->dtype, x);
    return MR_OK;
}

mr_status mr_comm_all_reduce(mr_comm *c, mr_comm_kind kind, mr_dtype dtype, void *x, int64_t count)
{
    mr_comm_head call;
    MR_TRY(comm_can_sum(dtype, dtype));
    MR_TRY(check_count(count, dtype));
    MR_TRY(comm_begin(c, MR_COMM_ALL_REDUCE, dtype, count, kind, &call));
    const size_t width = mr_dtype_bytes(dtype);
    if (c->size == 1)
        return MR_OK;
    if ((size_t)count * width <= ONE_HOP_BYTES)
        return reduce_in_one_hop(c, &call, kind, x, count);
    size_t mine = 0;
    for (int i = 0; i < c->size; i++) {
        c->even[i] = count / c->size + (i < count % c->size);
        mine += i < c->rank ? (size_t)c->even[i] : 0;
    }
    char *own = (char *)x + mine * width;
    MR_TRY(reduce(c, &call, &(chunk){x, c->even, kind, dtype, dtype, own}));
    return gather(c, &call, width, own, c->even, x);
}

mr_status comm_carried_broadcast(void *user, void *data, size_t bytes)
{
    return mr_comm_broadcast(user, 0, MR_U8, data, (int64_t)bytes);
}
