/* graph: computes the waits between the steps of a run, and a start time for each step.
 *
 * Each step has a vector clock: the newest step of each queue that has ended when it begins. A step
 * starts with the clock of the previous step on its queue, and waits for further steps if its bytes
 * require it. Each wait merges the clock of the awaited step. Ref: Lamport 1978, Time, Clocks, and
 * the Ordering of Events. Licence: Apache-2.0 */
#include "graph/room.h"

#include "base/text.h"

#include <string.h>

enum { QUEUES = MR_QUEUE_COUNT };

struct mr_schedule {
    const mr_graph *graph;
    mr_schedule_step *step;
    int n;
};

/* Bytes [lo, hi) of a space that a step reads or writes. `older`: the previous access to the space
 * by the same queue; -1: none. */
typedef struct access {
    int step, older;
    int64_t lo, hi;
    bool write;
} access;

typedef struct builder {
    const mr_graph *g;
    mr_schedule *s;
    const char *const *shared; /* regions that share the memory of "w" */
    int n_shared;
    /* Spaces do not overlap. A space is a storage, or a region with all storages in it; -1: never
     * written in a run. */
    int *space;
    int *newest; /* [space][queue] index of `accesses`; -1: none */
    VEC(access) accesses;
    int last[QUEUES]; /* newest step so far */
    int *step_of;     /* per node; -1: a setup node */
} builder;

/* ---- spaces ---- */

/* The region whose memory a region name refers to. */
static const char *memory_of(const builder *b, const char *region)
{
    for (int i = 0; i < b->n_shared; i++)
        if (strcmp(region, b->shared[i]) == 0)
            return "w";
    return region;
}

static mr_status find_spaces(builder *b)
{
    const mr_graph *g = b->g;
    VEC(int) regions = {0}; // the first storage in each region
    mr_status st = MR_OK;
    for (int i = 0; i < g->storages.n; i++) {
        const mr_storage *s = &g->storages.at[i];
        b->space[i] = s->kind == MR_CONST ? -1 : i;
        if (s->kind != MR_REGION)
            continue;
        int k = 0;
        while (k < regions.n && strcmp(memory_of(b, g->storages.at[regions.at[k]].region),
                                       memory_of(b, s->region)) != 0)
            k++;
        if (k == regions.n)
            MR_TRY_GOTO(VEC_PUSH(regions, i));
        b->space[i] = regions.at[k];
    }
out:
    mr_free(regions.at);
    return st;
}

/* ---- waits ---- */

static bool access_of(const builder *b, mr_ref x, access *a)
{
    if (x == MR_NONE)
        return false;
    const mr_value *v = &b->g->values.at[x].pub;
    const mr_storage *s = &b->g->storages.at[v->storage];
    a->lo = v->offset + (s->kind == MR_REGION ? s->region_offset : 0);
    a->hi = a->lo + (int64_t)mr_desc_span_bytes(&v->desc);
    return b->space[v->storage] >= 0 && a->hi > a->lo;
}

/* Raise after[q] to the newest step of queue q that must end before this access. */
static void find_clashes(const builder *b, int space, const access *a, const mr_schedule_step *t,
                         int *after)
{
    for (int q = 0; q < QUEUES; q++) {
        int i = q == (int)t->queue ? -1 : b->newest[space * QUEUES + q];
        for (; i >= 0; i = b->accesses.at[i].older) {
            const access *old = &b->accesses.at[i];
            if (old->step <= MR_MAX(after[q], t->before[q]))
                break;
            if ((!a->write && !old->write) || a->lo >= old->hi || old->lo >= a->hi)
                continue;
            after[q] = old->step;
            break;
        }
    }
}

static mr_status touch(builder *b, int step, mr_ref x, bool write, int *after)
{
    access a = {.step = step, .write = write};
    if (!access_of(b, x, &a))
        return MR_OK;
    int space = b->space[b->g->values.at[x].pub.storage];
    const mr_schedule_step *t = &b->s->step[step];
    find_clashes(b, space, &a, t, after);
    int *newest = &b->newest[space * QUEUES + t->queue];
    a.older = *newest;
    *newest = b->accesses.n;
    return VEC_PUSH(b->accesses, a);
}

/* Wait for the steps after[], the newest first, since it can include the others. */
static void wait_for(const mr_schedule *s, mr_schedule_step *t, const int *after)
{
    for (;;) {
        int newest = -1;
        for (int q = 0; q < QUEUES; q++)
            if (after[q] > t->before[q])
                newest = MR_MAX(newest, after[q]);
        if (newest < 0)
            return;
        const mr_schedule_step *of = &s->step[newest];
        t->wait[t->wait_n++] = newest;
        for (int q = 0; q < QUEUES; q++)
            t->before[q] = MR_MAX(t->before[q], of->before[q]);
        t->before[of->queue] = newest;
    }
}

/* The step that computes the value that a node names in `after`; -1: it was removed. */
static int step_before(const builder *b, int node)
{
    mr_ref x = node < 0 ? MR_NONE : b->g->nodes.at[node].after;
    int maker = x == MR_NONE ? -1 : b->g->values.at[x].pub.node;
    return maker < 0 || maker > node ? -1 : b->step_of[maker];
}

static mr_status add_step(builder *b, mr_schedule_step t, const mr_ref *in, int n_in,
                          const mr_ref *out, int n_out)
{
    mr_schedule *s = b->s;
    int i = s->n++, last = b->last[t.queue], after[QUEUES];
    for (int q = 0; q < QUEUES; q++) {
        t.before[q] = last < 0 ? -1 : s->step[last].before[q];
        after[q] = -1;
    }
    t.before[t.queue] = last;
    s->step[i] = t;
    b->last[t.queue] = i;
    for (int k = 0; k < n_in; k++)
        MR_TRY(touch(b, i, in[k], false, after));
    for (int k = 0; k < n_out; k++)
        MR_TRY(touch(b, i, out[k], true, after));
    int named = step_before(b, t.node);
    if (named >= 0 && s->step[named].queue != t.queue)
        after[s->step[named].queue] = MR_MAX(after[s->step[named].queue], named);
    wait_for(s, &s->step[i], after);
    return MR_OK;
}

static mr_status add_steps(builder *b)
{
    const mr_graph *g = b->g;
    for (int i = 0; i < g->nodes.n; i++) {
        const mr_node *node = &g->nodes.at[i];
        b->step_of[i] = node->setup ? -1 : b->s->n;
        if (!node->setup)
            MR_TRY(add_step(b, (mr_schedule_step){.queue = node->queue, .node = i, .output = -1},
                            node->in, node->n_in, node->out, node->n_out));
    }
    for (int i = 0; i < g->outputs.n; i++) {
        mr_ref x = g->outputs.at[i].value;
        if (g->storages.at[g->values.at[x].pub.storage].kind == MR_ARENA)
            MR_TRY(add_step(b, (mr_schedule_step){.queue = MR_Q_D2H, .node = -1, .output = i}, &x,
                            1, NULL, 0));
    }
    return MR_OK;
}

mr_status mr_schedule_new(const mr_graph *g, const char *const *shared, int n_shared,
                          mr_schedule **out)
{
    if (!g->finished)
        return mr_fail(MR_E_USAGE, "schedule: the graph is not finished; try: finish it first");
    mr_schedule *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    mr_status st = MR_OK;
    size_t storages = (size_t)g->storages.n, steps = (size_t)(g->nodes.n + g->outputs.n);
    builder b = {.g = g, .s = s, .shared = shared, .n_shared = n_shared};
    for (int q = 0; q < QUEUES; q++)
        b.last[q] = -1;
    s->graph = g;
    s->step = mr_alloc(steps * sizeof *s->step);
    b.space = mr_alloc(storages * sizeof *b.space);
    b.newest = mr_alloc(storages * QUEUES * sizeof *b.newest);
    b.step_of = mr_alloc((size_t)g->nodes.n * sizeof *b.step_of);
    if (!s->step || !b.space || !b.newest || !b.step_of) {
        st = mr_fail_memory(steps * sizeof *s->step);
        goto out;
    }
    memset(b.newest, 0xff, storages * QUEUES * sizeof *b.newest); // -1
    MR_TRY_GOTO(find_spaces(&b));
    MR_TRY_GOTO(add_steps(&b));
out:
    mr_free(b.space), mr_free(b.newest), mr_free(b.accesses.at), mr_free(b.step_of);
    if (st != MR_OK)
        mr_schedule_free(s);
    else
        *out = s;
    return st;
}

void mr_schedule_free(mr_schedule *s)
{
    if (!s)
        return;
    mr_free(s->step);
    mr_free(s);
}

/* ---- reading ---- */

int mr_schedule_steps(const mr_schedule *s)
{
    return s->n;
}
const mr_schedule_step *mr_schedule_at(const mr_schedule *s, int i)
{
    return &s->step[i];
}

bool mr_schedule_before(const mr_schedule *s, int a, int b)
{
    return s->step[b].before[s->step[a].queue] >= a;
}

double mr_schedule_play(const mr_schedule *s, const double *seconds, double *start)
{
    double idle[QUEUES] = {0}, end = 0; // when each queue becomes idle
    for (int i = 0; i < s->n; i++) {
        const mr_schedule_step *t = &s->step[i];
        start[i] = idle[t->queue];
        for (int k = 0; k < t->wait_n; k++)
            start[i] = MR_MAX(start[i], start[t->wait[k]] + seconds[t->wait[k]]);
        idle[t->queue] = start[i] + seconds[i];
        end = MR_MAX(end, idle[t->queue]);
    }
    return end;
}

/* Write the steps of queue q that can run in parallel with step i. */
static void put_parallel(mr_text *t, const mr_schedule *s, int i, int q, bool *any)
{
    int first = -1, last = -1;
    for (int k = s->step[i].before[q] + 1; k < s->n; k++) {
        if ((int)s->step[k].queue != q)
            continue;
        if (mr_schedule_before(s, i, k))
            break;
        first = first < 0 ? k : first, last = k;
    }
    if (first < 0)
        return;
    mr_text_add(t, "%s%s %d", *any ? ", " : "  overlaps ", mr_queue_name((mr_queue)q), first);
    if (last > first)
        mr_text_add(t, " to %d", last);
    *any = true;
}

mr_status mr_schedule_print(const mr_schedule *s, char **text)
{
    mr_text t = {0};
    int count[QUEUES] = {0}, queues = 0;
    for (int i = 0; i < s->n; i++)
        queues += !count[s->step[i].queue]++;
    mr_text_add(&t, "schedule: %d steps on %d queues\n", s->n, queues);
    for (int i = 0; i < s->n; i++) {
        const mr_schedule_step *step = &s->step[i];
        const mr_node *node = step->node < 0 ? NULL : &s->graph->nodes.at[step->node];
        mr_text_add(&t, "%5d %-10s  %s '%s'", i, mr_queue_name(step->queue),
                    node ? node->op->name : "copy out",
                    node ? node->name : s->graph->outputs.at[step->output].name);
        for (int k = 0; k < step->wait_n; k++)
            mr_text_add(&t, "%s%d", k ? ", " : "  waits for ", step->wait[k]);
        bool any = false;
        for (int q = 0; q < QUEUES && step->queue != MR_Q_COMPUTE; q++)
            if (q != (int)step->queue)
                put_parallel(&t, s, i, q, &any);
        mr_text_add(&t, "\n");
    }
    return mr_text_end(&t, text);
}
