/* graph: finishes a graph: removes dead nodes, replaces concatenations by placement, chooses
 * in-place outputs.
 * Licence: Apache-2.0 */
#include "graph/room.h"

#include <string.h>

typedef struct pass {
    mr_graph *g;
    bool *live; /* per node */
    /* per storage: last node that reads a value on it; INT32_MAX for outputs */
    int *last_read;
    unsigned *read_on; /* per storage: bit q: a node of queue q reads a value on it */
    mr_ref *on;        /* per storage: a value on it; `sibling` links to the others */
    /* per value that existed before the joins: its last use; `earlier` links to the others. A use
     * is node * MR_MAX_IN + input. */
    int *use, *earlier, n_used;
} pass;

/* Whether a node has an effect: it changes a persistent region, or other ranks wait for it. */
static bool has_effect(const mr_graph *g, const mr_node *node)
{
    if (graph_tells(node))
        return true;
    for (int i = 0; i < node->n_out; i++) {
        if (node->out[i] == MR_NONE)
            continue;
        if (g->storages.at[g->values.at[node->out[i]].pub.storage].kind == MR_REGION)
            return true;
    }
    return false;
}

static mr_status mark_live(pass *p)
{
    mr_graph *g = p->g;
    bool *wanted = mr_calloc((size_t)g->storages.n + 1, 1); // storages that a later node reads
    if (!wanted)
        return mr_fail_memory((size_t)g->storages.n);
    for (int i = 0; i < g->outputs.n; i++)
        wanted[g->values.at[g->outputs.at[i].value].pub.storage] = true;
    for (int i = g->nodes.n - 1; i >= 0; i--) {
        const mr_node *node = &g->nodes.at[i];
        p->live[i] = has_effect(g, node);
        for (int k = 0; k < node->n_out; k++)
            p->live[i] = p->live[i] || (node->out[k] != MR_NONE &&
                                        wanted[g->values.at[node->out[k]].pub.storage]);
        if (!p->live[i])
            continue;
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k] != MR_NONE)
                wanted[g->values.at[node->in[k]].pub.storage] = true;
    }
    mr_free(wanted);
    return MR_OK;
}

/* Remove dead nodes and renumber the others. */
static mr_status compact(pass *p)
{
    mr_graph *g = p->g;
    int *to = mr_alloc(sizeof *to * (size_t)(g->nodes.n + 1)), n = 0;
    if (!to)
        return mr_fail_memory(sizeof *to * (size_t)g->nodes.n);
    for (int i = 0; i < g->nodes.n; i++) {
        to[i] = p->live[i] ? n : -1;
        if (p->live[i])
            g->nodes.at[n++] = g->nodes.at[i];
    }
    for (int i = 0; i < n; i++) {
        int of = g->nodes.at[i].recompute_of;
        g->nodes.at[i].recompute_of = of < 0 ? -1 : to[of];
    }
    for (int i = 0; i < g->values.n; i++) {
        int node = g->values.at[i].pub.node;
        if (node >= 0)
            g->values.at[i].pub.node = to[node];
    }
    g->nodes.n = n;
    mr_free(to);
    return MR_OK;
}

static void count_reads(pass *p)
{
    mr_graph *g = p->g;
    for (int i = 0; i < g->storages.n; i++)
        p->last_read[i] = -1, p->read_on[i] = 0;
    for (int i = 0; i < g->nodes.n; i++)
        for (int k = 0; k < g->nodes.at[i].n_in; k++) {
            mr_ref x = g->nodes.at[i].in[k];
            if (x == MR_NONE)
                continue;
            int s = g->values.at[x].pub.storage;
            p->last_read[s] = i;
            p->read_on[s] |= 1u << g->nodes.at[i].queue;
        }
    for (int i = 0; i < g->outputs.n; i++)
        p->last_read[g->values.at[g->outputs.at[i].value].pub.storage] = INT32_MAX;
}

/* ---- the values of a storage, the readers of a value ---- */

static void put_on(pass *p, mr_ref x, int storage)
{
    value *v = &p->g->values.at[x];
    v->pub.storage = storage, v->sibling = p->on[storage];
    p->on[storage] = x;
}

static mr_status index_values(pass *p)
{
    mr_graph *g = p->g;
    size_t storages = (size_t)g->storages.n, values = (size_t)g->values.n,
           uses = (size_t)g->nodes.n * MR_MAX_IN;
    p->on = mr_alloc((storages + values + uses + 1) * sizeof *p->on);
    if (!p->on)
        return mr_fail_memory((storages + values + uses) * sizeof *p->on);
    p->use = p->on + storages, p->earlier = p->use + values, p->n_used = g->values.n;
    for (int i = 0; i < g->storages.n; i++)
        p->on[i] = MR_NONE;
    for (int i = 0; i < g->values.n; i++) {
        put_on(p, i, g->values.at[i].pub.storage);
        p->use[i] = -1;
    }
    for (int i = 0; i < g->nodes.n; i++)
        for (int k = 0; k < g->nodes.at[i].n_in; k++) {
            mr_ref x = g->nodes.at[i].in[k];
            if (x == MR_NONE)
                continue;
            int use = i * MR_MAX_IN + k;
            p->earlier[use] = p->use[x];
            p->use[x] = use;
        }
    return MR_OK;
}

/* ---- joins ---- */

/* `part` covers its storage densely, with its axes in any order. Returns the axis along which
 * another value of that storage has `stride`, or -1. */
static int axis_of(const mr_desc *part, int64_t stride)
{
    for (int i = 0; i < part->rank; i++)
        if (part->dim[i] != 1 && stride >= part->stride[i] &&
            stride < part->stride[i] * part->dim[i] && stride % part->stride[i] == 0)
            return i;
    return -1;
}

/* Compute the view of value `x` after the part moves. `slot` has the dims of the part with the
 * strides of its place in the joined buffer; `offset` is in bytes from there. False if no strides
 * describe it. */
static bool moved_to(const value *x, const mr_desc *part, const mr_desc *slot, mr_desc *moved,
                     int64_t *offset)
{
    const int64_t width = (int64_t)mr_dtype_bytes(part->dtype), at = x->pub.offset / width;
    int64_t end[MR_MAX_RANK], first = 0; // the last position along each axis
    for (int i = 0; i < part->rank; i++) {
        // a part without elements has zero strides
        end[i] = part->dim[i] > 1 && part->stride[i] ? at / part->stride[i] % part->dim[i] : 0;
        first += end[i] * slot->stride[i];
    }
    *moved = x->pub.desc, *offset = first * width;
    for (int k = 0; k < moved->rank; k++) {
        int64_t stride = moved->stride[k];
        if (stride == 0 || moved->dim[k] == 1) {
            moved->stride[k] = stride != 0;
            continue;
        }
        int i = axis_of(part, stride);
        if (i < 0)
            return false;
        int64_t step = stride / part->stride[i];
        end[i] += (moved->dim[k] - 1) * step;
        if (end[i] >= part->dim[i])
            return false;
        moved->stride[k] = step * slot->stride[i];
    }
    return true;
}

static bool covers(const mr_desc *d, size_t storage_bytes)
{
    return mr_desc_span_bytes(d) == storage_bytes &&
           (size_t)mr_desc_count(d) * mr_dtype_bytes(d->dtype) == storage_bytes;
}

/* Whether strides fit the access that the op definition declares. Copies between spaces accept
 * dense bytes only. */
static bool fits(const mr_graph *g, const mr_node *node, mr_access access, const mr_desc *d)
{
    return graph_strides_fit(mr_graph_crosses(g, node) ? MR_CONTIG : access, d);
}

/* Whether value x can have these strides: its producer can write them, and all its readers can read
 * them. */
static bool may_have(const pass *p, mr_ref x, const mr_desc *d)
{
    const mr_graph *g = p->g;
    int maker = g->values.at[x].pub.node;
    for (int k = 0; maker >= 0 && k < g->nodes.at[maker].n_out; k++) {
        const mr_node *node = &g->nodes.at[maker];
        const mr_out_def *def = &node->op->out[k];
        if (node->out[k] == x && (def->must || !fits(g, node, def->access, d)))
            return false;
    }
    for (int use = x < p->n_used ? p->use[x] : -1; use >= 0; use = p->earlier[use]) {
        const mr_node *node = &g->nodes.at[use / MR_MAX_IN];
        if (strcmp(node->op->name, "concat") &&
            !fits(g, node, node->op->in[use % MR_MAX_IN].access, d))
            return false;
    }
    return true;
}

/* Whether the part would keep the joined buffer of one pass alive for the other pass. That happens
 * in a block that recomputes but keeps the result of attention: the backward pass reads that part,
 * and joins again. */
static bool outlives(const pass *p, mr_ref part, const mr_node *join)
{
    const mr_graph *g = p->g;
    const value *x = &g->values.at[part];
    int last = p->last_read[x->pub.storage];
    int end = p->last_read[g->values.at[join->out[0]].pub.storage];
    if (join->backward)
        return x->pub.node >= 0 && !g->nodes.at[x->pub.node].backward;
    if (last < 0 || last == INT32_MAX || end < 0 || end == INT32_MAX)
        return false;
    return g->nodes.at[last].backward && !g->nodes.at[end].backward;
}

/* If every value of the part's storage can move into the slot, move them all. */
static bool place_part(pass *p, mr_ref x, int target, int64_t slot_offset, const mr_desc *slot)
{
    mr_graph *g = p->g;
    int s = g->values.at[x].pub.storage;
    const mr_desc part = g->values.at[x].pub.desc;
    mr_desc moved;
    int64_t offset;
    if (g->storages.at[s].kind != MR_ARENA || g->values.at[x].pub.offset ||
        !covers(&part, g->storages.at[s].bytes))
        return false;
    if (p->last_read[s] == INT32_MAX)
        return false;
    for (mr_ref i = p->on[s]; i != MR_NONE; i = g->values.at[i].sibling)
        if (!moved_to(&g->values.at[i], &part, slot, &moved, &offset) || !may_have(p, i, &moved))
            return false;
    for (mr_ref i = p->on[s], next; i != MR_NONE; i = next) {
        value *v = &g->values.at[i];
        next = v->sibling;
        moved_to(v, &part, slot, &moved, &offset);
        v->pub.desc = moved, v->pub.offset = slot_offset + offset;
        put_on(p, i, target);
    }
    p->on[s] = MR_NONE;
    return true;
}

/* A copy of a part that could not be placed, to its slot in join node `at`. */
typedef struct slot_copy {
    int at;
    mr_node node;
} slot_copy;
typedef VEC(slot_copy) slot_copies;

static mr_status place_join(pass *p, int id, slot_copies *copies)
{
    mr_graph *g = p->g;
    mr_node join = g->nodes.at[id];
    int64_t axis, at = 0;
    memcpy(&axis, join.attr + join.op->attr[0].at, sizeof axis);
    const value whole = g->values.at[join.out[0]];
    g->values.at[join.out[0]].pub.node = -1; // from now on, the parts write the joined value
    for (int i = 0; i < join.n_in && join.in[i] != MR_NONE; i++) {
        mr_desc slot = whole.pub.desc;
        slot.dim[axis] = g->values.at[join.in[i]].pub.desc.dim[axis];
        int64_t offset =
            whole.pub.offset + at * slot.stride[axis] * (int64_t)mr_dtype_bytes(slot.dtype);
        at += slot.dim[axis];
        // a part that occurs twice is in a slot already, so it is not a whole storage: copy it
        if (!outlives(p, join.in[i], &join) &&
            place_part(p, join.in[i], whole.pub.storage, offset, &slot))
            continue;
        slot_copy c = {.at = id, .node = join};
        c.node.op = mr_op_find("copy"), c.node.n_in = c.node.n_out = 1;
        memset(c.node.attr, 0, sizeof c.node.attr);
        for (int k = 1; k < MR_MAX_IN; k++)
            c.node.in[k] = MR_NONE;
        c.node.in[0] = join.in[i];
        value v = {.pub = whole.pub, .parent = MR_NONE, .setup = whole.setup};
        v.pub.desc = slot, v.pub.offset = offset, v.pub.alias = true;
        MR_TRY(graph_new_value(g, &v, &c.node.out[0]));
        put_on(p, c.node.out[0], v.pub.storage);
        MR_TRY(VEC_PUSH(*copies, c));
    }
    return MR_OK;
}

/* Replace each concat by placement: its parts are written to their slots directly, or copied
 * there. */
static mr_status place_joins(pass *p)
{
    mr_graph *g = p->g;
    slot_copies copies = {0};
    mr_status st = MR_OK;
    mr_node *nodes = NULL;
    int *to = NULL, n = 0;
    for (int id = 0; id < g->nodes.n; id++)
        if (strcmp(g->nodes.at[id].op->name, "concat") == 0)
            MR_TRY_GOTO(place_join(p, id, &copies));
    // rebuild the node list: a join becomes its copies, or nothing
    int cap = g->nodes.n + copies.n + 1;
    nodes = mr_alloc(sizeof *nodes * (size_t)cap), to = mr_alloc(sizeof *to * (size_t)cap);
    if (!nodes || !to) {
        st = mr_fail_memory(sizeof *nodes * (size_t)cap);
        goto out;
    }
    for (int id = 0, c = 0; id < g->nodes.n; id++) {
        to[id] = n;
        if (strcmp(g->nodes.at[id].op->name, "concat"))
            nodes[n++] = g->nodes.at[id];
        for (; c < copies.n && copies.at[c].at == id; c++) {
            g->values.at[copies.at[c].node.out[0]].pub.node = id;
            nodes[n++] = copies.at[c].node;
        }
    }
    for (int i = 0; i < n; i++)
        if (nodes[i].recompute_of >= 0)
            nodes[i].recompute_of = to[nodes[i].recompute_of];
    for (int i = 0; i < g->values.n; i++)
        if (g->values.at[i].pub.node >= 0)
            g->values.at[i].pub.node = to[g->values.at[i].pub.node];
    mr_free(g->nodes.at);
    g->nodes.at = nodes, g->nodes.n = n, g->nodes.cap = cap;
    nodes = NULL;
out:
    mr_free(nodes), mr_free(to), mr_free(copies.at);
    return st;
}

/* ---- in place ---- */

static void move_values(pass *p, int from, int to)
{
    for (mr_ref x = p->on[from], next; x != MR_NONE; x = next) {
        next = p->g->values.at[x].sibling;
        put_on(p, x, to);
    }
    p->on[from] = MR_NONE;
}

static void take_places(pass *p)
{
    mr_graph *g = p->g;
    for (int id = 0; id < g->nodes.n; id++) {
        const mr_node *node = &g->nodes.at[id];
        for (int o = 0; o < node->n_out; o++) {
            int i = node->op->out[o].inplace - 1;
            if (i < 0 || node->op->out[o].must || node->out[o] == MR_NONE || node->in[i] == MR_NONE)
                continue;
            const value *x = &g->values.at[node->in[i]], *y = &g->values.at[node->out[o]];
            const mr_storage *sx = &g->storages.at[x->pub.storage],
                             *sy = &g->storages.at[y->pub.storage];
            if (sx->kind != MR_ARENA || sy->kind != MR_ARENA || sx->bytes != sy->bytes ||
                x->pub.storage == y->pub.storage)
                continue;
            if (x->pub.offset || y->pub.offset || p->last_read[x->pub.storage] != id)
                continue;
            if (!mr_desc_same_shape(&x->pub.desc, &y->pub.desc) ||
                !mr_desc_is_dense(&x->pub.desc) || !mr_desc_is_dense(&y->pub.desc))
                continue;
            // a reader on another queue can be late; an output elsewhere need not wait for it
            if (p->read_on[x->pub.storage] & ~(1u << node->queue))
                continue;
            // no other input of this node can be on that storage
            int uses = 0;
            for (int k = 0; k < node->n_in; k++)
                uses += node->in[k] != MR_NONE &&
                        g->values.at[node->in[k]].pub.storage == x->pub.storage;
            if (uses > 1)
                continue;
            int from = y->pub.storage, to = x->pub.storage;
            p->last_read[to] = p->last_read[from];
            p->read_on[to] |= p->read_on[from];
            g->values.at[node->out[o]].pub.alias = true;
            move_values(p, from, to);
        }
    }
}

/* Values of setup nodes are valid for all runs: no value of a run can overwrite them. */
static void keep_setup(mr_graph *g)
{
    for (int i = 0; i < g->nodes.n; i++) {
        const mr_node *node = &g->nodes.at[i];
        for (int k = 0; node->setup && k < node->n_out; k++)
            if (node->out[k] != MR_NONE)
                g->storages.at[g->values.at[node->out[k]].pub.storage].kind = MR_CONST;
    }
}

mr_status mr_graph_finish(mr_graph *g)
{
    if (g->finished)
        return MR_OK;
    if (g->open_block >= 0)
        return mr_fail(MR_E_USAGE, "finish: block '%s' is still open",
                       g->blocks.at[g->open_block].name);
    pass p = {.g = g};
    mr_status st = MR_OK;
    p.live = mr_calloc((size_t)g->nodes.n + 1, 1);
    p.last_read = mr_alloc(sizeof *p.last_read * (size_t)(g->storages.n + 1));
    p.read_on = mr_alloc(sizeof *p.read_on * (size_t)(g->storages.n + 1));
    if (!p.live || !p.last_read || !p.read_on) {
        st = mr_fail_memory((size_t)g->nodes.n);
        goto out;
    }
    MR_TRY_GOTO(mark_live(&p));
    if (!g->options.no_fuse)
        MR_TRY_GOTO(graph_fuse(g, p.live));
    MR_TRY_GOTO(compact(&p));
    keep_setup(g);
    count_reads(&p);
    MR_TRY_GOTO(index_values(&p));
    MR_TRY_GOTO(place_joins(&p));
    count_reads(&p);
    if (!g->options.no_inplace)
        take_places(&p);
    g->finished = true;
out:
    mr_free(p.live), mr_free(p.last_read), mr_free(p.read_on), mr_free(p.on);
    return st;
}
