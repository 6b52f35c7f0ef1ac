/* graph: adds copies of values to another memory and back. Licence: Apache-2.0 */
#include "graph/room.h"

/* Make x dense for a copy to another memory, which copies bytes unchanged. */
static mr_status as_bytes(mr_graph *g, mr_ref *x)
{
    if (mr_desc_is_dense(&g->values.at[*x].pub.desc))
        return MR_OK;
    if (graph_space_of(g, *x) != MR_SPACE_DEVICE)
        return mr_fail(MR_E_USAGE, "move: a strided view in host memory; try: move all of it");
    return graph_dense_copy(g, *x, x);
}

mr_status mr_graph_move(mr_graph *g, mr_ref x, mr_space space, mr_ref after, mr_ref *out)
{
    MR_TRY(graph_check_open(g, "move"));
    MR_TRY(graph_check_ref(g, x, "move"));
    if (after != MR_NONE)
        MR_TRY(graph_check_ref(g, after, "move"));
    const value *v = &g->values.at[x];
    mr_class kind = g->storages.at[v->pub.storage].kind;
    if (graph_space_of(g, x) == space || v->setup || kind == MR_CONST)
        return mr_fail(MR_E_USAGE, "move: the value %s",
                       graph_space_of(g, x) == space ? "is there already" : "is constant");
    MR_TRY(as_bytes(g, &x));
    MR_TRY(graph_dense_copy(g, x, out));
    g->storages.at[g->values.at[*out].pub.storage].space = space;
    g->values.at[*out].pub.save = true;
    g->nodes.at[g->values.at[*out].pub.node].after = after;
    return MR_OK;
}

mr_status mr_graph_put(mr_graph *g, mr_ref x, mr_ref to, mr_ref *out)
{
    MR_TRY(graph_check_open(g, "put"));
    MR_TRY(graph_check_ref(g, x, "put"));
    MR_TRY(graph_check_ref(g, to, "put"));
    const mr_value *into = &g->values.at[to].pub, *from = &g->values.at[x].pub;
    bool region = g->storages.at[into->storage].kind == MR_REGION;
    if (!region || graph_space_of(g, x) == graph_space_of(g, to))
        return mr_fail(MR_E_USAGE,
                       "put: the place %s; expected a range of a region in the other memory",
                       region ? "is in the value's own memory" : "is not in a region");
    if (from->desc.dtype != into->desc.dtype || !mr_desc_same_shape(&from->desc, &into->desc) ||
        !mr_desc_is_dense(&into->desc)) {
        char a[128], b[128];
        return mr_fail(
            MR_E_SHAPE, "put: the value is %s, its place %s; expected equal shapes and dtypes",
            mr_desc_text(&from->desc, a, sizeof a), mr_desc_text(&into->desc, b, sizeof b));
    }
    int storage = into->storage;
    int64_t offset = into->offset;
    MR_TRY(as_bytes(g, &x));
    MR_TRY(graph_dense_copy(g, x, out));
    mr_value *v = &g->values.at[*out].pub;
    v->storage = storage, v->offset = offset, v->alias = v->save = true;
    return MR_OK;
}

mr_status mr_graph_offload(mr_graph *g, mr_ref x)
{
    MR_TRY(graph_check_open(g, "offload"));
    MR_TRY(graph_check_ref(g, x, "offload"));
    mr_ref root = g->values.at[x].root, away;
    if (g->values.at[root].away != MR_NONE)
        return MR_OK;
    mr_queue before = g->queue;
    g->queue = MR_Q_D2H;
    mr_status st = mr_graph_move(g, root, MR_SPACE_PINNED, MR_NONE, &away);
    g->queue = before;
    MR_TRY(st);
    g->values.at[root].away = away;
    // copies at the start of a block form one group: compute waits for the group before
    if (!g->sending)
        g->sent_due = g->sent;
    g->sent = away, g->sending = true;
    return MR_OK;
}
