/* comm: reductions and gathers in two hops, within nodes and between nodes. Each hop keeps a
 * contiguous part: within a node, local rank l of L gets part l of the whole; between nodes, node n
 * gets part n of that. Ref: parallelism 9. Licence: Apache-2.0 */
#include "comm/room.h"

#include <string.h>

struct mr_torus {
    mr_comm *within, *between; /* the ranks of this host; the ranks with this local index on all
                                * hosts */
    int64_t *counts;           /* [larger of both sizes] equal chunks of a hop */
    char *partial;             /* sums of this host */
    size_t partial_bytes;
};

mr_status mr_torus_new(mr_comm *c, int local, mr_torus **out)
{
    *out = NULL;
    const int size = mr_comm_size(c), rank = mr_comm_rank(c);
    if (local < 1 || size % local)
        return mr_fail(MR_E_USAGE, "two hops over %d ranks, %d per node: expected a divisor of %d",
                       size, local, size);
    mr_torus *t = mr_calloc(1, sizeof *t);
    if (!t)
        return comm_break(c, mr_fail_memory(sizeof *t));
    t->counts = mr_calloc((size_t)size, sizeof *t->counts);
    mr_status st = t->counts ? MR_OK : comm_break(c, mr_fail_memory(sizeof *t->counts));
    if (st == MR_OK)
        st = mr_comm_split(c, rank / local, rank, 0, &t->within);
    // on lane 1: hop 2 of a bucket runs in parallel with hop 1 of the next one
    if (st == MR_OK)
        st = mr_comm_split(c, rank % local, rank, 1, &t->between);
    if (st != MR_OK) {
        mr_torus_free(t);
        return st;
    }
    *out = t;
    return MR_OK;
}

void mr_torus_free(mr_torus *t)
{
    if (!t)
        return;
    mr_comm_free(t->between);
    mr_comm_free(t->within);
    mr_free(t->counts);
    mr_free(t->partial);
    mr_free(t);
}

int mr_torus_chunk(const mr_torus *t)
{
    return mr_comm_rank(t->within) * mr_comm_size(t->between) + mr_comm_rank(t->between);
}

// equal chunks for the ranks of a hop
static const int64_t *equal(mr_torus *t, const mr_comm *hop, int64_t count)
{
    for (int i = 0; i < mr_comm_size(hop); i++)
        t->counts[i] = count;
    return t->counts;
}

mr_status mr_torus_reduce_scatter(mr_torus *t, mr_comm_kind kind, mr_dtype dtype, const void *in,
                                  int64_t chunk, mr_dtype to, void *out)
{
    MR_TRY(comm_can_sum(dtype, to));
    const mr_dtype sums = dtype == MR_BF16 ? MR_F32 : dtype;
    const int64_t count = chunk * mr_comm_size(t->between);
    const size_t bytes = (size_t)count * mr_dtype_bytes(sums);
    if (bytes > t->partial_bytes) {
        mr_free(t->partial);
        t->partial_bytes = 0;
        t->partial = mr_alloc(bytes);
        if (!t->partial)
            return comm_break(t->within, mr_fail_memory(bytes));
        t->partial_bytes = bytes;
    }
    MR_TRY(mr_comm_reduce_scatter(t->within, kind, dtype, in, equal(t, t->within, count), sums,
                                  t->partial));
    return mr_comm_reduce_scatter(t->between, kind, sums, t->partial, equal(t, t->between, chunk),
                                  to, out);
}

mr_status mr_torus_all_gather(mr_torus *t, mr_dtype dtype, const void *in, int64_t chunk, void *out)
{
    const int64_t count = chunk * mr_comm_size(t->between);
    char *node =
        (char *)out + (size_t)mr_comm_rank(t->within) * (size_t)count * mr_dtype_bytes(dtype);
    MR_TRY(mr_comm_all_gather(t->between, dtype, in, equal(t, t->between, chunk), node));
    return mr_comm_all_gather(t->within, dtype, node, equal(t, t->within, count), out);
}
