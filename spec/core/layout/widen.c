/* layout/widen: on random graphs over random queues, two tensors share bytes only if all uses of
 * one end before the first use of the other begins, by the waits alone; on one queue no lifetime is
 * longer than before. */
#include "queuecase.h"

static size_t *workspace_of(const mr_graph *g)
{
    int n = mr_graph_nodes(g);
    size_t *workspace = mr_calloc((size_t)n, sizeof *workspace);
    for (int i = 0; i < n; i++)
        workspace[i] = (size_t)(i % 3) * 1000;
    return workspace;
}

static bool uses(const mr_graph *g, const mr_schedule_step *t, const mr_layout_entry *e)
{
    if (t->node < 0)
        return mr_graph_value(g, mr_graph_output_at(g, t->output, NULL))->storage == e->storage;
    if (e->storage < 0)
        return t->node == e->node;
    const mr_node *node = mr_graph_node(g, t->node);
    for (int k = 0; k < node->n_in; k++)
        if (node->in[k] != MR_NONE && mr_graph_value(g, node->in[k])->storage == e->storage)
            return true;
    for (int k = 0; k < node->n_out; k++)
        if (node->out[k] != MR_NONE && mr_graph_value(g, node->out[k])->storage == e->storage)
            return true;
    return false;
}

static int shared, wrong, longer;

/* Are all users of `a` over before any of `b` begins? */
static bool passes(const mr_graph *g, const mr_schedule *s, const bool *before,
                   const mr_layout_entry *a, const mr_layout_entry *b)
{
    int n = mr_schedule_steps(s);
    for (int i = 0; i < n; i++)
        for (int k = 0; uses(g, mr_schedule_at(s, i), a) && k < n; k++)
            if (uses(g, mr_schedule_at(s, k), b) && !before[i * n + k])
                return false;
    return true;
}

static void hands(uint64_t seed, int side)
{
    mr_graph *g = queue_graph(NULL, seed, side, seed % 3 == 0);
    size_t *workspace = workspace_of(g);
    mr_layout *l = NULL;
    CHECK_OK(mr_layout_new(g, &(mr_layout_options){.workspace = workspace}, &l));
    const mr_schedule *s = mr_layout_schedule(l);
    bool *before = queue_order(s, -1, 0);
    for (int i = 0; i < mr_layout_entries(l); i++) {
        const mr_layout_entry *a = mr_layout_at(l, i);
        CHECK(a->first <= a->node && a->node <= a->last);
        longer += a->storage < 0 && a->last > a->first;
        for (int k = 0; k < i; k++) {
            const mr_layout_entry *b = mr_layout_at(l, k);
            if (a->offset >= b->offset + b->bytes || b->offset >= a->offset + a->bytes)
                continue;
            shared++;
            wrong += !passes(g, s, before, a, b) && !passes(g, s, before, b, a);
        }
    }
    mr_free(before);
    mr_free(workspace);
    mr_layout_free(l);
    mr_graph_free(g);
}

/* A copy to the host that compute does not wait for keeps its source until another node waits for
 * it. */
static void offload(bool waited)
{
    mr_graph *g = NULL;
    mr_layout *l = NULL;
    mr_ref x, kept, y;
    CHECK_OK(mr_graph_new(NULL, NULL, &g));
    CHECK_OK(mr_graph_input(g, "x", MR_F32, 1, (int64_t[]){16}, &x));
    CHECK_OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &x));
    CHECK_OK(mr_graph_set_queue(g, MR_Q_D2H, NULL));
    CHECK_OK(mr_graph_add(g, "copy", MR_NO_ATTRS, &x, 1, &kept));
    CHECK_OK(mr_graph_set_queue(g, MR_Q_COMPUTE, NULL));
    y = x;
    for (int i = 2; i < 10; i++)
        CHECK_OK(i == 5 && waited ? mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){y, kept}, 2, &y)
                                  : mr_graph_add(g, "exp", MR_NO_ATTRS, &y, 1, &y));
    CHECK_OK(mr_graph_output(g, "y", y));
    CHECK_OK(mr_graph_output(g, "kept", kept));
    CHECK_OK(mr_graph_finish(g));
    CHECK_OK(mr_layout_new(g, NULL, &l));
    const mr_layout_entry *e = mr_layout_at(l, 0), *copy = mr_layout_at(l, 1);
    CHECK_INT(e->node, 0);
    CHECK_INT(e->first, 0);
    CHECK_INT(e->last, waited ? 4 : 9);
    CHECK_INT(copy->node, 1);
    CHECK_INT(copy->first, 1);
    CHECK_INT(copy->last, 9);
    mr_layout_free(l);
    mr_graph_free(g);
}

/* A copy from the host that waits for no node may be written before its place in the list. */
static void prefetch(void)
{
    mr_graph *g = NULL;
    mr_layout *l = NULL;
    mr_ref x, z, y;
    CHECK_OK(mr_graph_new(NULL, NULL, &g));
    CHECK_OK(mr_graph_input(g, "x", MR_F32, 1, (int64_t[]){16}, &x));
    CHECK_OK(mr_graph_input(g, "z", MR_F32, 1, (int64_t[]){16}, &z));
    y = x;
    for (int i = 0; i < 4; i++)
        CHECK_OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){y, y}, 2, &y));
    CHECK_OK(mr_graph_set_queue(g, MR_Q_H2D, NULL));
    CHECK_OK(mr_graph_add(g, "copy", MR_NO_ATTRS, &z, 1, &z));
    CHECK_OK(mr_graph_set_queue(g, MR_Q_COMPUTE, NULL));
    CHECK_OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){y, z}, 2, &y));
    CHECK_OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &y, 1, &y));
    CHECK_OK(mr_graph_output(g, "y", y));
    CHECK_OK(mr_graph_finish(g));
    CHECK_OK(mr_layout_new(g, NULL, &l));
    for (int i = 0; i < mr_layout_entries(l); i++) {
        const mr_layout_entry *e = mr_layout_at(l, i);
        if (e->node != 4)
            continue;
        CHECK_INT(e->first, 0);
        CHECK_INT(e->last, 5);
    }
    mr_layout_free(l);
    mr_graph_free(g);
}

static void running_out(void)
{
    mr_graph *g = queue_graph(NULL, 1, 50, false);
    mr_layout *l = NULL;
    int failures = 0;
    for (int64_t n = 1; n < 60; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_layout_new(g, NULL, &l);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
        failures++;
    }
    CHECK(failures > 8 && failures < 59);
    mr_layout_free(l);
    mr_graph_free(g);
}

int main(void)
{
    offload(true);
    offload(false);
    prefetch();
    for (uint64_t seed = 1; seed <= 20; seed++)
        hands(seed, 0);
    CHECK_INT(longer, 0); // on one queue a workspace is alive at its node
    for (uint64_t seed = 1; seed <= 60; seed++)
        hands(seed, seed % 2 ? 50 : 20);
    printf("%d pairs of ranges share bytes, %d workspaces live longer\n", shared, longer);
    CHECK_INT(wrong, 0);
    CHECK(shared > 10000 && longer > 100);
    running_out();
    return check_done();
}
