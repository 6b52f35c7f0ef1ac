/* graph: two nodes that become one, where their rows say that a third row does both.
 *
 * The one node takes the place of the second: what it reads is there by then, and whoever else
 * reads the first's result comes later. Licence: Apache-2.0 */
#include "graph/room.h"

#include <string.h>

/* Does node `id` write over a region that node `of` reads? */
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

static bool reads(const mr_graph *g, int id, int storage)
{
    const mr_node *node = &g->nodes.at[id];
    for (int k = 0; k < node->n_in; k++)
        if (node->in[k] != MR_NONE && g->values.at[node->in[k]].pub.storage == storage)
            return true;
    return false;
}

static bool is_output(const mr_graph *g, int storage)
{
    for (int i = 0; i < g->outputs.n; i++)
        if (g->values.at[g->outputs.at[i].value].pub.storage == storage)
            return true;
    return false;
}

/* The node whose result the second one waits for, where the two may become one; -1: none. */
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

/* Does anything but the second node read the first's result? */
static bool kept(const mr_graph *g, const bool *live, int second, int storage)
{
    for (int i = second + 1; i < g->nodes.n; i++)
        if (live[i] && reads(g, i, storage))
            return true;
    return is_output(g, storage);
}

/* Who waited for a value that is not made any more waits for what is made instead. */
static void forget(mr_graph *g, mr_ref gone, mr_ref instead)
{
    g->values.at[gone].pub.node = -1;
    for (int i = 0; i < g->nodes.n; i++)
        if (g->nodes.at[i].after == gone)
            g->nodes.at[i].after = instead;
}

static mr_status join(mr_graph *g, int first, int second, bool keep)
{
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
    if (keep)
        g->values.at[made->out[0]].pub.node = second;
    else
        forget(g, made->out[0], node->out[0]);
    g->nodes.at[second] = both;
    for (int i = 0; i < g->nodes.n; i++)
        if (g->nodes.at[i].recompute_of == first)
            g->nodes.at[i].recompute_of = second;
    return MR_OK;
}

mr_status graph_fuse(mr_graph *g, bool *live)
{
    for (int i = 0; i < g->nodes.n; i++) {
        int first = live[i] ? first_of(g, live, i) : -1;
        if (first < 0)
            continue;
        const mr_op *to = mr_op_find(g->nodes.at[i].op->fusion.to);
        bool keep = kept(g, live, i, g->values.at[g->nodes.at[first].out[0]].pub.storage);
        if (keep && mr_op_n_out(to) == 1)
            continue;
        MR_TRY(join(g, first, i, keep));
        live[first] = false;
    }
    return MR_OK;
}
