/* comm: group calls whose messages a device library transports itself. The group provides the rest:
 * a broadcast for setup, the check for lost ranks, counts and the log of operations.
 * Licence: Apache-2.0 */
#include "comm/room.h"

#include <pthread.h>
#include <stdio.h>

enum {
    CARRIED = 1
};                                /* mixed into the group id: calls by devices are a group of their
                                   * own */
static const double LEAVES_S = 2; /* a rank that left can have sent all its messages before: wait
                                   * this long */

mr_status comm_carried_look(void *user, double waited_s)
{
    mr_comm *c = user;
    const world *w = c->world;
    int gone = -1;
    if (w->broken)
        return mr_fail(w->broken, "the world of ranks has ended: %.900s", w->why);
    if (!w->transport)
        return MR_OK;
    for (int i = 0; i < c->size && waited_s > LEAVES_S && gone < 0; i++)
        if (i != c->rank && w->transport->ops->left(w->transport, c->world_rank[i]))
            gone = c->world_rank[i];
    const mr_status st = comm_look(w->transport, gone, "");
    return st == MR_OK ? st : comm_break(c, st);
}

mr_status comm_carried_give_up(void *user, mr_status st)
{
    mr_comm *c = user;
    return c->world->broken ? st : comm_break(c, st);
}

/* A device reports calls from its own threads, concurrently with other calls of the world. */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

void comm_carried_begins(void *user, mr_carried *call)
{
    mr_comm *c = user;
    pthread_mutex_lock(&counting);
    const uint32_t seq = c->carried++;
    mr_comm_count *count = &c->world->carried[call->op];
    count->calls++, count->bytes += (int64_t)call->bytes;
    pthread_mutex_unlock(&counting);
    mr_life_op op = {
        .group = (uint32_t)MR_MIX(c->id, CARRIED), .seq = seq, .count = (uint64_t)call->count};
    snprintf(op.kind, sizeof op.kind, "%s", mr_comm_op_name(call->op));
    if (call->count)
        snprintf(op.dtype, sizeof op.dtype, "%s", mr_dtype_name(call->dtype));
    mr_life_set_where("a node of a graph on the GPU");
    call->number = mr_life_op_begin(&op);
    mr_life_op_wait(call->number);
}

void comm_carried_ends(void *user, const mr_carried *call)
{
    (void)user;
    mr_life_op_end(call->number, call->bytes);
}

mr_comm_count comm_carried_counted(const mr_comm *c, mr_comm_op op)
{
    pthread_mutex_lock(&counting);
    mr_comm_count n = c->world->carried[op];
    pthread_mutex_unlock(&counting);
    return n;
}
