/* layout: extends the lifetimes of storages that several queues use.
 *
 * Two entries can share bytes if all users of one end before the first user of the other begins. On
 * one queue, disjoint lifetimes in the order of the node list guarantee that. An entry that a side
 * queue uses gets a longer lifetime: from the first step that can still run when the entry is
 * written, to the last compute step that can begin before its users end. Then disjoint lifetimes
 * are safe: between two such entries because of the start of the later one, and between such an
 * entry and one of compute only because of its start or end. Licence: Apache-2.0 */
#include "layout/room.h"

enum { QUEUES = MR_QUEUE_COUNT };

/* Per entry: the newest step of each queue that ends before all users, and the newest user. */
typedef struct reach {
    bool side; /* a user is on a side queue */
    int before[QUEUES], last[QUEUES];
} reach;

typedef struct order {
    const mr_layout *layout;
    const mr_schedule *schedule;
    reach *reach;                 /* per entry */
    int first[QUEUES], *follower; /* per queue its first step, per step the next on its queue; -1:
                              * none */
    int *compute, n_compute;      /* the steps on compute */
} order;

static void add_user(reach *r, const mr_schedule_step *t, int step)
{
    r->side |= t->queue != MR_Q_COMPUTE;
    for (int q = 0; q < QUEUES; q++)
        r->before[q] = MR_MIN(r->before[q], t->before[q]);
    r->last[t->queue] = step;
}

static void add_value(const order *o, mr_ref x, const mr_schedule_step *t, int step)
{
    const mr_layout *l = o->layout;
    int e = x == MR_NONE ? -1 : l->of_storage[mr_graph_value(l->graph, x)->storage];
    if (e >= 0)
        add_user(&o->reach[e], t, step);
}

static void read_schedule(order *o)
{
    const mr_layout *l = o->layout;
    int newest[QUEUES];
    for (int q = 0; q < QUEUES; q++)
        newest[q] = o->first[q] = -1;
    for (int i = 0; i < mr_schedule_steps(o->schedule); i++) {
        const mr_schedule_step *t = mr_schedule_at(o->schedule, i);
        *(newest[t->queue] < 0 ? &o->first[t->queue] : &o->follower[newest[t->queue]]) = i;
        newest[t->queue] = i, o->follower[i] = -1;
        if (t->node < 0)
            continue; // a copy of a result: outputs live to the end
        if (t->queue == MR_Q_COMPUTE)
            o->compute[o->n_compute++] = i;
        const mr_node *node = mr_graph_node(l->graph, t->node);
        for (int k = 0; k < node->n_in; k++)
            add_value(o, node->in[k], t, i);
        for (int k = 0; k < node->n_out; k++)
            add_value(o, node->out[k], t, i);
        if (l->of_node[t->node] >= 0)
            add_user(&o->reach[l->of_node[t->node]], t, i);
    }
}

static bool all_over(const reach *r, const mr_schedule_step *t)
{
    for (int q = 0; q < QUEUES; q++)
        if (t->before[q] < r->last[q])
            return false;
    return true;
}

static void widen(const order *o, const reach *r, mr_layout_entry *e)
{
    for (int q = 0; q < QUEUES; q++) {
        int i = r->before[q] < 0 ? o->first[q] : o->follower[r->before[q]];
        int node = i < 0 ? -1 : mr_schedule_at(o->schedule, i)->node;
        if (node >= 0)
            e->first = MR_MIN(e->first, node);
    }
    // the first compute step after all users: binary search, since a step that ends before one step
    // ends before the next
    int lo = 0, hi = o->n_compute;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (all_over(r, mr_schedule_at(o->schedule, o->compute[mid])))
            hi = mid;
        else
            lo = mid + 1;
    }
    if (lo > 0)
        e->last = MR_MAX(e->last, mr_schedule_at(o->schedule, o->compute[lo - 1])->node);
}

static bool one_queue(const mr_schedule *s)
{
    for (int i = 0; i < mr_schedule_steps(s); i++)
        if (mr_schedule_at(s, i)->node >= 0 && mr_schedule_at(s, i)->queue != MR_Q_COMPUTE)
            return false;
    return true;
}

mr_status layout_widen(mr_layout *l)
{
    if (one_queue(l->schedule))
        return MR_OK;
    int steps = mr_schedule_steps(l->schedule);
    order o = {.layout = l, .schedule = l->schedule};
    mr_status st = MR_OK;
    o.reach = mr_calloc((size_t)l->n, sizeof *o.reach);
    o.follower = mr_alloc((size_t)steps * sizeof *o.follower);
    o.compute = mr_alloc((size_t)steps * sizeof *o.compute);
    if (!o.reach || !o.follower || !o.compute) {
        st = mr_fail_memory((size_t)l->n * sizeof *o.reach);
        goto out;
    }
    for (int i = 0; i < l->n; i++)
        for (int q = 0; q < QUEUES; q++)
            o.reach[i].before[q] = steps, o.reach[i].last[q] = -1;
    read_schedule(&o);
    for (int i = 0; i < l->n; i++)
        if (o.reach[i].side)
            widen(&o, &o.reach[i], &l->entry[i]);
out:
    mr_free(o.reach), mr_free(o.follower), mr_free(o.compute);
    return st;
}
