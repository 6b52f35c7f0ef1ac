/* comm: creates worlds, splits them into groups, and checks ranks at the start of every call.
 * Licence: Apache-2.0 */
#include "comm/room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double DEADLINE_S = 600, FAREWELL_S = 30;

/* ---- groups ---- */

static mr_status group_new(world *w, int size, mr_comm **out)
{
    size_t n = (size_t)size;
    mr_comm *c = mr_calloc(1, sizeof *c);
    *out = c;
    if (!c)
        return mr_fail_memory(sizeof *c);
    c->world = w, c->size = size;
    w->groups++;
    c->world_rank = mr_calloc(n, sizeof *c->world_rank);
    c->sent = mr_calloc(n, sizeof *c->sent), c->got = mr_calloc(n, sizeof *c->got);
    c->sends = mr_calloc(n, sizeof *c->sends), c->receives = mr_calloc(n, sizeof *c->receives);
    c->parts = mr_calloc(n, sizeof *c->parts), c->even = mr_calloc(n, sizeof *c->even);
    if (c->world_rank && c->sent && c->got && c->sends && c->receives && c->parts && c->even)
        return MR_OK;
    return mr_fail_memory(n * sizeof *c->sends);
}

static void group_free(mr_comm *c)
{
    if (--c->world->groups == 0)
        mr_free(c->world);
    mr_free(c->world_rank);
    mr_free(c->sent), mr_free(c->got);
    mr_free(c->sends), mr_free(c->receives);
    mr_free((void *)c->parts), mr_free(c->even);
    mr_free(c->scratch), mr_free(c->equal);
    mr_free(c);
}

mr_status comm_scratch(mr_comm *c, size_t bytes)
{
    if (bytes <= c->scratch_bytes)
        return MR_OK;
    mr_free(c->scratch);
    c->scratch_bytes = 0;
    c->scratch = mr_alloc(bytes);
    if (!c->scratch)
        return comm_break(c, mr_fail_memory(bytes));
    c->scratch_bytes = bytes;
    return MR_OK;
}

int mr_comm_rank(const mr_comm *c)
{
    return c->rank;
}
int mr_comm_size(const mr_comm *c)
{
    return c->size;
}
int mr_comm_world_rank(const mr_comm *c, int rank)
{
    return c->world_rank[rank];
}
mr_comm_count mr_comm_counted(const mr_comm *c, mr_comm_op op)
{
    mr_comm_count n = c->world->counted[op], by_devices = comm_carried_counted(c, op);
    return (mr_comm_count){n.calls + by_devices.calls, n.bytes + by_devices.bytes};
}
void mr_comm_count_reset(mr_comm *c)
{
    memset(c->world->counted, 0, sizeof c->world->counted);
    memset(c->world->carried, 0, sizeof c->world->carried);
}

/* ---- calls ---- */

mr_status comm_everyone(mr_comm *c, mr_comm_head *call, const void *in, size_t bytes)
{
    const size_t n = (size_t)c->size, rank = (size_t)c->rank;
    MR_TRY(comm_scratch(c, 2 * n * bytes + 1));
    // from_here has the parts of the ranks from this one on; each round doubles their number. Ref:
    // Bruck et al. 1997, "Efficient algorithms for all-to-all communications"
    char *from_here = c->scratch + n * bytes;
    memcpy(from_here, in, bytes);
    for (size_t d = 1; d < n; d *= 2, call->part++) {
        size_t some = MR_MIN(d, n - d) * bytes;
        comm_send(c, call, (int)((rank + n - d) % n), from_here, some);
        comm_receive(c, call, (int)((rank + d) % n), from_here + d * bytes, some);
        MR_TRY(comm_complete(c, call, 0));
    }
    memcpy(c->scratch + rank * bytes, from_here, (n - rank) * bytes);
    memcpy(c->scratch, from_here + (n - rank) * bytes, rank * bytes);
    return MR_OK;
}

/* Find the most frequent of the words of all ranks; *usual is a rank that has it. `text` lists the
 * ranks with another word. Returns their number. */
static int odd_ones(const mr_comm *c, const uint64_t *words, size_t stride, char *text, size_t cap,
                    int *usual)
{
    int most = 0, odd = 0;
    // nearly always all are equal
    while (odd < c->size && words[(size_t)odd * stride] == words[0])
        odd++;
    if (odd == c->size)
        return 0;
    odd = 0;
    for (int i = 0; i < c->size; i++) {
        int equal = 0;
        for (int j = 0; j < c->size; j++)
            equal += words[(size_t)j * stride] == words[(size_t)i * stride];
        if (equal > most)
            most = equal, *usual = i;
    }
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < c->size; i++) {
        if (words[(size_t)i * stride] == words[(size_t)*usual * stride])
            continue;
        if (odd++ < 8)
            n += (size_t)snprintf(text + n, cap - n, odd > 1 ? ", %d" : "%d", c->world_rank[i]);
    }
    return odd;
}

/* The call that a rank is about to make, as it sends it to the others. */
typedef struct record {
    uint64_t hash;
    mr_comm_head call;
} record;

static mr_status cross_check(mr_comm *c, const mr_comm_head *call)
{
    mr_comm_head check = {.op = MR_COMM_CHECK, .group = c->id, .seq = call->seq};
    record mine = {mr_hash64(call, sizeof *call), *call};
    char ranks[96], theirs[96], ours[96];
    int usual = 0, odd = 0;
    c->world->counted[MR_COMM_CHECK].calls++;
    MR_TRY(comm_everyone(c, &check, &mine, sizeof mine));
    const record *all = (const record *)(const void *)c->scratch;
    if (!odd_ones(c, &all[0].hash, sizeof *all / sizeof(uint64_t), ranks, sizeof ranks, &usual))
        return MR_OK;
    while (all[odd].hash == all[usual].hash)
        odd++;
    comm_call_text(&all[odd].call, theirs, sizeof theirs);
    comm_call_text(&all[usual].call, ours, sizeof ours);
    return comm_break(c, mr_fail(MR_E_NODE,
                                 "rank %s makes the call %s, while rank %d and most others make "
                                 "%s; try: the same calls in the same order on all ranks",
                                 ranks, theirs, c->world_rank[usual], ours));
}

mr_status comm_begin(mr_comm *c, mr_comm_op op, mr_dtype dtype, int64_t count, unsigned detail,
                     mr_comm_head *call)
{
    world *w = c->world;
    if (w->broken)
        return mr_fail(w->broken, "the world of ranks has ended: %.900s", w->why);
    *call = (mr_comm_head){.op = (uint8_t)op,
                           .dtype = (uint8_t)dtype,
                           .count = (uint64_t)count,
                           .detail = (uint16_t)detail,
                           .group = c->id,
                           .seq = c->seq++};
    w->counted[op].calls++;
    comm_record(c, call);
    return w->options.check && c->size > 1 ? cross_check(c, call) : MR_OK;
}

/* ---- worlds ---- */

static mr_status hello(mr_comm *c)
{
    mr_comm_head call = {.op = MR_COMM_HELLO};
    char ranks[96];
    int usual = 0;
    comm_record(c, &call);
    MR_TRY(comm_everyone(c, &call, &c->world->options.program, sizeof c->world->options.program));
    const uint64_t *all = (const uint64_t *)(const void *)c->scratch;
    if (!odd_ones(c, all, 1, ranks, sizeof ranks, &usual))
        return MR_OK;
    return comm_break(c, mr_fail(MR_E_NODE,
                                 "rank %s runs another program than rank %d and most others; try: "
                                 "the same build of moonreel on all hosts",
                                 ranks, usual));
}

mr_status mr_comm_world(mr_transport *transport, const mr_comm_options *options, mr_comm **out)
{
    *out = NULL;
    mr_comm *c = NULL;
    world *w = mr_calloc(1, sizeof *w);
    if (!w)
        return mr_fail_memory(sizeof *w);
    mr_status st = group_new(w, transport ? transport->size : 1, &c);
    if (st != MR_OK) {
        if (transport)
            transport->ops->close(transport, false);
        if (c)
            group_free(c);
        else
            mr_free(w);
        return st;
    }
    w->transport = transport;
    w->options = options ? *options : (mr_comm_options){0};
    if (!(w->options.deadline_s > 0))
        w->options.deadline_s = DEADLINE_S;
    c->owns_world = true, c->rank = transport ? transport->rank : 0;
    for (int i = 0; i < c->size; i++)
        c->world_rank[i] = i;
    st = hello(c);
    if (st != MR_OK) {
        mr_comm_free(c);
        return st;
    }
    *out = c;
    return MR_OK;
}

/* Agree with all ranks to leave. False if one does not answer. */
static bool farewell(mr_comm *c)
{
    mr_comm_head call;
    world *w = c->world;
    w->options.check = false;
    if (!w->transport->ops->farewell)
        return !w->broken;
    if (comm_begin(c, MR_COMM_LEAVE, MR_U8, 0, 0, &call) != MR_OK)
        return false;
    for (int i = 0; i < c->size; i++) {
        if (i == c->rank)
            continue;
        comm_send(c, &call, i, NULL, 0);
        comm_receive(c, &call, i, NULL, 0);
    }
    return comm_complete(c, &call, MR_MIN(FAREWELL_S, w->options.deadline_s)) == MR_OK;
}

static void close_world(mr_comm *c)
{
    world *w = c->world;
    if (w->transport)
        w->transport->ops->close(w->transport, farewell(c));
    // remaining groups of this world get an error
    w->transport = NULL;
    if (!w->broken)
        w->broken = MR_E_USAGE, snprintf(w->why, sizeof w->why, "it was closed");
}

void mr_comm_free(mr_comm *c)
{
    if (!c)
        return;
    mr_collective_remove(c->op_group);
    if (c->owns_world)
        close_world(c);
    group_free(c);
}

/* ---- splits ---- */

typedef struct member {
    int32_t color, key, rank; /* rank in the group that is split */
} member;

static int by_key(const void *a, const void *b)
{
    const member *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Create the group of the ranks of all[size] that have the color of this one, ordered by key. */
static mr_status group_of(mr_comm *of, member *all, int lane, uint32_t seq, mr_comm **out)
{
    const int color = all[of->rank].color;
    int n = 0;
    for (int i = 0; i < of->size; i++)
        if (all[i].color == color)
            all[n++] = all[i];
    qsort(all, (size_t)n, sizeof *all, by_key);
    mr_status st = group_new(of->world, n, out);
    if (st != MR_OK) {
        if (*out)
            group_free(*out);
        *out = NULL;
        return st;
    }
    mr_comm *c = *out;
    c->lane = lane;
    c->id = (uint32_t)MR_MIX(of->id, seq, (uint64_t)color);
    for (int i = 0; i < n; i++) {
        c->world_rank[i] = of->world_rank[all[i].rank];
        if (all[i].rank == of->rank)
            c->rank = i;
    }
    return MR_OK;
}

mr_status mr_comm_split(mr_comm *of, int color, int key, int lane, mr_comm **out)
{
    *out = NULL;
    if (lane < 0 || lane >= MR_TRANSPORT_LANES)
        return mr_fail(MR_E_USAGE, "split: lane is %d; expected 0 to %d", lane,
                       MR_TRANSPORT_LANES - 1);
    mr_comm_head call;
    MR_TRY(comm_begin(of, MR_COMM_SPLIT, MR_I32, 0, (unsigned)lane, &call));
    member mine = {color, key, of->rank};
    MR_TRY(comm_everyone(of, &call, &mine, sizeof mine));
    if (color < 0)
        return MR_OK;
    mr_status st = group_of(of, (member *)(void *)of->scratch, lane, call.seq, out);
    return st == MR_OK ? MR_OK : comm_break(of, st);
}
