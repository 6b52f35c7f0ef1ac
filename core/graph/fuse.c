/* graph: fuses two nodes into one if a third op computes both.
 *
 * The fused node replaces the second node: all its inputs exist then, and other readers of the
 * first node's result come later. Licence: Apache-2.0 */
#include "graph/room.h"

#include <string.h>

/* Whether node `id` overwrites a region that node `of` reads. */
static bool writes_over(const mr_graph *g, int id, int of)
{
    const mr_node *node = &g->nodes.at[id], *reader = &g->nodes.at[of];
    for (int o = 0; o < node->n_out; o++) {
        if (node->out[o] == MR_NONE)
            continue;
        const mr_storage *to = &g->storages.at[g->values.at[node->out[o]].pub.storage];
        for (int k = 0; to->kind == MR_REGION && k < reader->n_in; k++) {
            if (reader->in[k] == MR_NONE)
                continue;
            const mr_storage *s = &g->storages.at[g->values.at[reader->in[k]].pub.storage];
            if (s->kind == MR_REGION && strcmp(s->region, to->region) == 0)
                return true;
        }
    }
    return false;
}

/* Tables for all pairs, so that the graph is walked once and not once per pair. */
typedef struct pass {
    mr_graph *g;
    bool *live;
    int *last_read;   /* per storage: last node that reads it; INT32_MAX for outputs */
    int *made_by;     /* per node: the node that replaces it, or itself */
    mr_ref *made_for; /* per value: the value that replaces it, or itself */
} pass;

static bool reads(const mr_graph *g, int id, int storage)
{
    const mr_node *node = &g->nodes.at[id];
    for (int k = 0; k < node->n_in; k++)
        if (node->in[k] != MR_NONE && g->values.at[node->in[k]].pub.storage == storage)
            return true;
    return false;
}

/* The first node of a pair that can be fused, whose result the second one reads; -1: none. */
static int first_of(const mr_graph *g, const bool *live, int second)
{
    const mr_node *node = &g->nodes.at[second];
    const mr_fusion *f = &node->op->fusion;
    mr_ref x = f->with ? node->in[f->in] : MR_NONE;
    int first = x == MR_NONE ? -1 : g->values.at[x].pub.node;
    if (first < 0 || !live[first])
        return -1;
    const mr_node *made = &g->nodes.at[first];
    bool alike = made->queue == node->queue && made->block == node->block &&
                 made->backward == node->backward && made->setup == node->setup;
    if (strcmp(made->op->name, f->with) || made->out[0] != x || !alike || node->after != MR_NONE)
        return -1;
    for (int i = first + 1; i < second; i++)
        if (live[i] && (reads(g, i, g->values.at[x].pub.storage) || writes_over(g, i, first)))
            return -1;
    return first;
}

static mr_status begin(pass *p)
{
    const mr_graph *g = p->g;
    size_t storages = (size_t)g->storages.n, nodes = (size_t)g->nodes.n,
           values = (size_t)g->values.n, bytes = (storages + nodes + values + 1) * sizeof(int);
    p->last_read = mr_alloc(bytes);
    if (!p->last_read)
        return mr_fail_memory(bytes);
    p->made_by = p->last_read + storages, p->made_for = p->made_by + nodes;
    for (int s = 0; s < g->storages.n; s++)
        p->last_read[s] = -1;
    for (int x = 0; x < g->values.n; x++)
        p->made_for[x] = x;
    for (int i = 0; i < g->nodes.n; i++) {
        p->made_by[i] = i;
        const mr_node *node = &g->nodes.at[i];
        for (int k = 0; p->live[i] && k < node->n_in; k++)
            if (node->in[k] != MR_NONE)
                p->last_read[g->values.at[node->in[k]].pub.storage] = i;
    }
    for (int i = 0; i < g->outputs.n; i++)
        p->last_read[g->values.at[g->outputs.at[i].value].pub.storage] = INT32_MAX;
    return MR_OK;
}

static mr_status join(pass *p, int first, int second, bool keep)
{
    mr_graph *g = p->g;
    const mr_node *made = &g->nodes.at[first], *node = &g->nodes.at[second];
    const mr_fusion *f = &node->op->fusion;
    mr_node both = *made;
    both.op = mr_op_find(f->to);
    both.n_in = mr_op_n_in(made->op);
    for (int k = 0; k < node->n_in; k++)
        if (k != f->in)
            both.in[both.n_in++] = node->in[k];
    both.n_out = mr_op_n_out(both.op);
    both.out[0] = node->out[0];
    if (both.n_out > 1)
        both.out[1] = keep ? made->out[0] : MR_NONE;
    const mr_attr attr = {"keep", .i = keep};
    MR_TRY(mr_op_attrs(both.op, &attr, both.n_out > 1, both.attr));
    g->values.at[made->out[0]].pub.node = keep ? second : -1;
    if (!keep)
        p->made_for[made->out[0]] = node->out[0];
    g->nodes.at[second] = both;
    p->made_by[first] = second, p->live[first] = false;
    return MR_OK;
}

/* Update waits for replaced values. */
static void follow(pass *p)
{
    for (int i = 0; i < p->g->nodes.n; i++) {
        mr_node *node = &p->g->nodes.at[i];
        while (node->after != MR_NONE && p->made_for[node->after] != node->after)
            node->after = p->made_for[node->after];
        while (node->recompute_of >= 0 && p->made_by[node->recompute_of] != node->recompute_of)
            node->recompute_of = p->made_by[node->recompute_of];
    }
}

mr_status graph_fuse(mr_graph *g, bool *live)
{
    pass p = {.g = g, .live = live};
    mr_status st = MR_OK;
    MR_TRY_GOTO(begin(&p));
    for (int i = 0; i < g->nodes.n; i++) {
        int first = live[i] ? first_of(g, live, i) : -1;
        if (first < 0)
            continue;
        const mr_op *to = mr_op_find(g->nodes.at[i].op->fusion.to);
        // another node reads the result of the first, but after the second
        bool keep = p.last_read[g->values.at[g->nodes.at[first].out[0]].pub.storage] > i;
        if (keep && mr_op_n_out(to) == 1)
            continue;
        MR_TRY_GOTO(join(&p, first, i, keep));
    }
    follow(&p);
out:
    mr_free(p.last_read);
    return st;
}
