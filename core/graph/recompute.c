/* graph: chooses the forward values that the backward pass recomputes instead of keeping.
 *
 * A value inside a recompute block, or of a cheap op, is computed again by a clone of its producer,
 * at its first reader in the backward pass. Clones are ordinary nodes with the same attributes,
 * keys and origin.
 * Licence: Apache-2.0 */
#include "graph/room.h"

/* Mark the values that leave a recompute block, which are inputs of the next one, and the outputs
 * for the host as kept. */
void graph_save_results(mr_graph *g)
{
    for (int i = 0; i < g->nodes.n; i++)
        for (int k = 0; k < g->nodes.at[i].n_in; k++) {
            if (g->nodes.at[i].in[k] == MR_NONE)
                continue;
            value *root = &g->values.at[g->values.at[g->nodes.at[i].in[k]].root];
            int block = root->pub.node < 0 ? -1 : g->nodes.at[root->pub.node].block;
            if (block >= 0 && g->blocks.at[block].recompute && block != g->nodes.at[i].block)
                root->pub.save = true;
        }
    for (int i = 0; i < g->outputs.n; i++)
        g->values.at[g->values.at[g->outputs.at[i].value].root].pub.save = true;
}

/* Whether root value r can be computed again instead of kept. */
static bool repeats(const mr_graph *g, const value *r)
{
    if (!r->forward || r->pub.node < 0 || r->setup || r->pub.save || r->pub.node >= g->n_forward)
        return false;
    if (r->gathered)
        return true;
    const mr_node *node = &g->nodes.at[r->pub.node];
    if (node->block >= 0 && g->blocks.at[node->block].recompute)
        return true;
    return node->op->cheap && !g->options.no_cheap;
}

/* Apply the view x to another root. */
static mr_status same_view(mr_graph *g, mr_ref x, mr_ref new_root, mr_ref *out)
{
    value v = g->values.at[x];
    const value *root = &g->values.at[v.root], *to = &g->values.at[new_root];
    v.pub.storage = to->pub.storage;
    v.pub.offset = v.pub.offset - root->pub.offset + to->pub.offset;
    v.pub.node = to->pub.node, v.pub.alias = true, v.pub.save = false;
    v.root = new_root, v.parent = new_root, v.setup = to->setup;
    // the view path does not matter: a recomputed value gets no gradient
    v.view = VIEW_RESHAPE;
    return graph_new_value(g, &v, out);
}

/* The value to read instead of x, whose root is kept in host memory: a copy back, made once. */
static mr_status bring_back(mr_graph *g, mr_ref x, mr_ref *out)
{
    mr_ref root = g->values.at[x].root, back = g->values.at[root].back;
    if (back == MR_NONE) {
        mr_queue before = g->queue;
        g->queue = MR_Q_H2D;
        mr_status st =
            mr_graph_move(g, g->values.at[root].away, MR_SPACE_DEVICE, g->fetch_at, &back);
        g->queue = before;
        MR_TRY(st);
        g->values.at[root].back = back;
        g->fetch_at = g->newest;
    }
    *out = back;
    return x == root ? MR_OK : same_view(g, x, back, out);
}

mr_status graph_available(mr_graph *g, mr_ref x, mr_ref *out)
{
    *out = x;
    mr_ref root = g->values.at[x].root;
    if (g->values.at[root].away != MR_NONE)
        return bring_back(g, x, out);
    if (!repeats(g, &g->values.at[root]))
        return MR_OK;
    int id = g->values.at[root].pub.node, which = 0;
    if (g->clones[id] < 0) {
        mr_node copy = g->nodes.at[id];
        for (int i = 0; i < copy.n_in; i++)
            if (copy.in[i] != MR_NONE)
                MR_TRY(graph_available(g, copy.in[i], &copy.in[i]));
        copy.recompute_of = id, copy.backward = true;
        MR_TRY(graph_gather_again(g, id, &copy.after));
        mr_ref outs[MR_MAX_OUT];
        MR_TRY(graph_append(g, &copy, outs));
        g->clones[id] = g->nodes.n - 1;
    }
    while (g->nodes.at[id].out[which] != root)
        which++;
    mr_ref made = g->nodes.at[g->clones[id]].out[which];
    if (x == root) {
        *out = made;
        return MR_OK;
    }
    return same_view(g, x, made, out);
}
