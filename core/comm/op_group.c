/* comm: the interface of a group for op kernels. A value has equal chunks, and rank r of the group
 * owns chunk r. Parts that ranks exchange can have any size. Licence: Apache-2.0 */
#include "comm/room.h"

#include <string.h>

static mr_status run(void *user, mr_collective what, mr_dtype dtype, void *x, int64_t count)
{
    mr_comm *c = user;
    mr_life_set_where("a node of a graph");
    if (what == MR_COLLECTIVE_ALL_REDUCE)
        return mr_comm_all_reduce(c, MR_COMM_SUM, dtype, x, count);
    if (count % c->size)
        return mr_fail(MR_E_SHAPE, "%lld elements do not divide into equal chunks for %d ranks",
                       (long long)count, c->size);
    const int64_t chunk = count / c->size;
    const size_t bytes = (size_t)chunk * mr_dtype_bytes(dtype), mine = (size_t)c->rank * bytes;
    char *own = (char *)x + mine;
    int64_t *counts = c->equal;
    for (int i = 0; i < c->size; i++)
        counts[i] = chunk;
    if (what == MR_COLLECTIVE_ALL_GATHER)
        return mr_comm_all_gather(c, dtype, own, counts, x);
    MR_TRY(mr_comm_reduce_scatter(c, MR_COMM_SUM, dtype, x, counts, dtype, own));
    memset(x, 0, mine);
    memset(own + bytes, 0, (size_t)count * mr_dtype_bytes(dtype) - mine - bytes);
    return MR_OK;
}

static mr_status exchange(void *user, const mr_exchange *e)
{
    mr_comm *c = user;
    if (e->hops)
        return mr_comm_shift(c, e->hops, e->dtype, e->in, e->sends[0], e->out, e->receives[0]);
    if (!e->sends)
        return mr_comm_all_gather(c, e->dtype, e->in, e->receives, e->out);
    return mr_comm_all_to_all(c, e->dtype, e->in, e->sends, e->out, e->receives);
}

mr_status mr_comm_op_group(mr_comm *c, int64_t *group)
{
    if (!c->equal && !(c->equal = mr_calloc((size_t)c->size, sizeof *c->equal)))
        return mr_fail_memory((size_t)c->size * sizeof *c->equal);
    if (!c->op_group)
        MR_TRY(mr_collective_add(&(mr_group){.user = c,
                                             .rank = c->rank,
                                             .size = c->size,
                                             .deadline_s = c->world->options.deadline_s,
                                             .run = run,
                                             .exchange = exchange,
                                             .broadcast = comm_carried_broadcast,
                                             .look = comm_carried_look,
                                             .give_up = comm_carried_give_up,
                                             .begins = comm_carried_begins,
                                             .ends = comm_carried_ends},
                                 &c->op_group));
    *group = c->op_group;
    return MR_OK;
}
