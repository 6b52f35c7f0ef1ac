/* layout: computes the lifetimes of a finished graph's storages and workspaces.
 * Licence: Apache-2.0 */
#include "layout/room.h"

static void touch(mr_layout *l, mr_ref x, int node)
{
    if (x == MR_NONE)
        return;
    int s = mr_graph_value(l->graph, x)->storage;
    if (mr_graph_storage(l->graph, s)->kind != MR_ARENA)
        return;
    if (l->of_storage[s] < 0) {
        l->of_storage[s] = l->n;
        l->entry[l->n++] = (mr_layout_entry){.storage = s,
                                             .node = node,
                                             .space = mr_graph_storage(l->graph, s)->space,
                                             .first = node,
                                             .bytes = mr_graph_storage(l->graph, s)->bytes};
    }
    l->entry[l->of_storage[s]].last = node;
}

/* Compute the entries, in the order of their first node, and their lifetimes, in the order of the
 * node list. */
static void lifetimes(mr_layout *l, const size_t *workspace)
{
    int nodes = mr_graph_nodes(l->graph);
    for (int i = 0; i < nodes; i++) {
        const mr_node *node = mr_graph_node(l->graph, i);
        for (int k = 0; k < node->n_in; k++)
            touch(l, node->in[k], i);
        for (int k = 0; k < node->n_out; k++)
            touch(l, node->out[k], i);
        if (!workspace || !workspace[i] || node->setup)
            continue;
        l->of_node[i] = l->n;
        l->entry[l->n++] = (mr_layout_entry){
            .storage = -1, .node = i, .first = i, .last = i, .bytes = workspace[i]};
    }
    for (int i = 0; i < mr_graph_outputs(l->graph); i++)
        touch(l, mr_graph_output_at(l->graph, i, NULL), nodes ? nodes - 1 : 0);
}

/* Give every entry its own range; the bound is still that of the lifetimes. */
static void spread(mr_layout *l)
{
    for (int i = 0; i < MR_SPACE_COUNT; i++)
        l->peak[i] = 0;
    if (l->hold != MR_HOLD_NOTHING)
        l->peak[MR_SPACE_DEVICE] = l->transient;
    for (int i = 0; i < l->n; i++) {
        if (l->entry[i].fixed)
            continue;
        size_t *peak = &l->peak[l->entry[i].space];
        l->entry[i].offset = *peak;
        *peak += l->entry[i].bytes;
    }
}

/* Choose the offsets in one space; `some` has room for all entries. */
static mr_status place_space(mr_layout *l, mr_space space, mr_layout_entry *some)
{
    bool device = space == MR_SPACE_DEVICE;
    int n = 0;
    for (int i = 0; i < l->n; i++)
        if (l->entry[i].space == space)
            some[n++] = l->entry[i];
    MR_TRY(mr_layout_place(some, n, &l->peak[space], device ? &l->bound : NULL,
                           device ? &l->bound_at : NULL));
    for (int i = l->n; i-- > 0;)
        if (l->entry[i].space == space)
            l->entry[i] = some[--n];
    return MR_OK;
}

static mr_status place(mr_layout *l)
{
    mr_layout_entry *some = mr_alloc((size_t)l->n * sizeof *some);
    if (!some)
        return mr_fail_memory((size_t)l->n * sizeof *some);
    mr_status st = MR_OK;
    for (int i = 0; i < MR_SPACE_COUNT && st == MR_OK; i++)
        st = place_space(l, (mr_space)i, some);
    mr_free(some);
    return st;
}

mr_status mr_layout_new(const mr_graph *g, const mr_layout_options *options, mr_layout **out)
{
    static const mr_layout_options none;
    if (!options)
        options = &none;
    mr_status st = MR_OK;
    int nodes = mr_graph_nodes(g), storages = mr_graph_storages(g);
    mr_layout *l;
    if (!MR_NEW(l))
        return mr_fail_memory(sizeof *l);
    l->graph = g;
    l->entry = mr_calloc((size_t)(nodes + storages), sizeof *l->entry);
    l->of_storage = mr_alloc((size_t)storages * sizeof *l->of_storage);
    l->of_node = mr_alloc((size_t)nodes * sizeof *l->of_node);
    if (!l->entry || !l->of_storage || !l->of_node) {
        st = mr_fail_memory((size_t)(nodes + storages) * sizeof *l->entry);
        goto out;
    }
    for (int i = 0; i < storages; i++)
        l->of_storage[i] = -1;
    for (int i = 0; i < nodes; i++)
        l->of_node[i] = -1;
    MR_TRY_GOTO(mr_schedule_new(g, options->shared, options->n_shared, &l->schedule));
    lifetimes(l, options->workspace);
    l->transient = options->transient_bytes;
    if (options->transient)
        MR_TRY_GOTO(layout_region(l, options->transient));
    MR_TRY_GOTO(layout_widen(l));
    MR_TRY_GOTO(place(l));
    if (options->no_reuse)
        spread(l);
    // setup nodes can use the whole arena, except for the region that runs have written
    for (int i = 0; options->workspace && i < nodes; i++)
        if (mr_graph_node(g, i)->setup && options->workspace[i])
            l->peak[MR_SPACE_DEVICE] =
                MR_MAX(l->peak[MR_SPACE_DEVICE], l->transient + mr_granules(options->workspace[i]));
    *out = l;
    return MR_OK;
out:
    mr_layout_free(l);
    return st;
}

void mr_layout_free(mr_layout *l)
{
    if (!l)
        return;
    mr_schedule_free(l->schedule);
    mr_free(l->entry);
    mr_free(l->of_storage);
    mr_free(l->of_node);
    mr_free(l);
}

size_t mr_layout_peak(const mr_layout *l)
{
    return l->peak[MR_SPACE_DEVICE];
}
size_t mr_layout_peak_in(const mr_layout *l, mr_space space)
{
    return l->peak[space];
}
size_t mr_layout_bound(const mr_layout *l)
{
    return l->bound;
}
mr_hold mr_layout_hold(const mr_layout *l)
{
    return l->hold;
}
const mr_schedule *mr_layout_schedule(const mr_layout *l)
{
    return l->schedule;
}
int mr_layout_entries(const mr_layout *l)
{
    return l->n;
}
const mr_layout_entry *mr_layout_at(const mr_layout *l, int i)
{
    return &l->entry[i];
}

size_t mr_layout_offset(const mr_layout *l, int storage)
{
    return l->of_storage[storage] < 0 ? 0 : l->entry[l->of_storage[storage]].offset;
}

int mr_layout_storage_entry(const mr_layout *l, int storage)
{
    return l->of_storage[storage];
}

int mr_layout_workspace_entry(const mr_layout *l, int node)
{
    return l->of_node[node];
}

size_t mr_layout_workspace(const mr_layout *l, int node)
{
    return l->of_node[node] < 0 ? l->transient : l->entry[l->of_node[node]].offset;
}
