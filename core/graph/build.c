/* graph: adds inputs, constants, nodes and views to a graph. Licence: Apache-2.0 */
#include "graph/room.h"

#include <string.h>

mr_status mr_graph_new(mr_params *params, const mr_graph_options *options, mr_graph **out)
{
    mr_graph *g;
    if (!MR_NEW(g))
        return mr_fail_memory(sizeof *g);
    mr_arena_init(&g->arena);
    g->params = params, g->origin = "", g->open_block = -1;
    g->newest = g->sent = g->sent_due = g->fetch_at = g->gather_at = MR_NONE;
    g->reduced[0] = g->reduced[1] = MR_NONE;
    if (options)
        g->options = *options;
    *out = g;
    return MR_OK;
}

void mr_graph_free(mr_graph *g)
{
    if (!g)
        return;
    mr_arena_fini(&g->arena);
    mr_free(g->nodes.at), mr_free(g->values.at), mr_free(g->storages.at), mr_free(g->tape.at);
    mr_free(g->blocks.at), mr_free(g->outputs.at), mr_free(g->clones), mr_free(g->buckets);
    mr_free(g->rank_ops.at), mr_free(g->begun);
    mr_free(g);
}

static const char *keep_text(mr_graph *g, const char *s)
{
    return mr_arena_strdup(&g->arena, s);
}

void mr_graph_set_origin(mr_graph *g, const char *origin)
{
    if (strcmp(origin, g->origin) == 0)
        return;
    const char *copy = keep_text(g, origin);
    if (copy)
        g->origin = copy; // out of memory: keep the old line; only messages are less precise
}

mr_status mr_graph_set_queue(mr_graph *g, mr_queue queue, mr_queue *before)
{
    MR_TRY(graph_check_open(g, "queue"));
    if ((unsigned)queue >= MR_QUEUE_COUNT)
        return mr_fail(MR_E_USAGE, "queue %d: expected 0 (%s) to %d (%s)", (int)queue,
                       mr_queue_name(0), MR_QUEUE_COUNT - 1, mr_queue_name(MR_QUEUE_COUNT - 1));
    if (before)
        *before = g->queue;
    g->queue = queue;
    return MR_OK;
}

static mr_status check_shape(const char *kind, const char *name, mr_dtype dtype, int rank,
                             const int64_t *dim)
{
    return mr_desc_check(dtype, rank, dim) == MR_OK ? MR_OK : mr_fail_note("%s '%s'", kind, name);
}

mr_status mr_graph_input(mr_graph *g, const char *name, mr_dtype dtype, int rank,
                         const int64_t *dim, mr_ref *out)
{
    MR_TRY(graph_check_open(g, name));
    MR_TRY(check_shape("input", name, dtype, rank, dim));
    if (mr_graph_input_find(g, name) != MR_NONE)
        return mr_fail(MR_E_USAGE, "input '%s' exists already; try: another name", name);
    mr_desc desc = mr_desc_dense(dtype, rank, dim);
    mr_storage s = {
        .kind = MR_INPUT, .bytes = mr_desc_span_bytes(&desc), .name = keep_text(g, name)};
    if (!s.name)
        return mr_fail_memory(strlen(name));
    return graph_new_leaf(g, &s, &desc, -1, out);
}

mr_status mr_graph_const(mr_graph *g, const mr_view *data, mr_ref *out)
{
    MR_TRY(graph_check_open(g, "constant"));
    mr_desc desc = mr_desc_dense(data->desc.dtype, data->desc.rank, data->desc.dim);
    size_t bytes = mr_desc_span_bytes(&desc);
    void *copy = mr_arena_alloc(&g->arena, bytes + 1);
    if (!copy)
        return mr_fail_memory(bytes);
    MR_TRY(mr_view_copy(&(mr_view){copy, desc}, data));
    mr_storage s = {.kind = MR_CONST, .bytes = bytes, .data = copy};
    return graph_new_leaf(g, &s, &desc, -1, out);
}

mr_status mr_graph_region(mr_graph *g, const char *region, mr_space space, mr_dtype dtype,
                          int64_t offset, int rank, const int64_t *dim, mr_ref *out)
{
    MR_TRY(graph_check_open(g, region));
    MR_TRY(check_shape("region", region, dtype, rank, dim));
    if (offset < 0 || (uint64_t)offset > MR_BYTES_MAX / mr_dtype_bytes(dtype))
        return mr_fail(MR_E_RANGE, "region '%s': offset %lld is not inside it", region,
                       (long long)offset);
    mr_desc desc = mr_desc_dense(dtype, rank, dim);
    mr_storage s = {.kind = MR_REGION,
                    .space = space,
                    .bytes = mr_desc_span_bytes(&desc),
                    .region = keep_text(g, region),
                    .region_offset = offset * (int64_t)mr_dtype_bytes(dtype)};
    if (!s.region)
        return mr_fail_memory(strlen(region));
    return graph_new_leaf(g, &s, &desc, -1, out);
}

/* ---- nodes ---- */

mr_status mr_graph_add(mr_graph *g, const char *name, const mr_attr *attrs, int n_attrs,
                       const mr_ref *in, int n_in, mr_ref *outs)
{
    MR_TRY(graph_check_open(g, name));
    const mr_op *op = mr_op_find(name);
    if (!op)
        return mr_fail(MR_E_USAGE, "no op '%s'; the nearest is '%s'", name, mr_op_nearest(name));
    int want = mr_op_n_in(op);
    if (n_in > want)
        return mr_fail(MR_E_USAGE, "op '%s' takes %d inputs, got %d", name, want, n_in);
    mr_ref args[MR_MAX_IN];
    for (int i = 0; i < want; i++) {
        args[i] = i < n_in ? in[i] : MR_NONE;
        if (args[i] == MR_NONE) {
            if (!(op->in[i].flags & MR_OPTIONAL))
                return mr_fail(MR_E_USAGE, "op '%s': input '%s' (%s) is missing", name,
                               op->in[i].name, op->in[i].type);
            continue;
        }
        MR_TRY(graph_check_ref(g, args[i], name));
        if (graph_space_of(g, args[i]) != MR_SPACE_DEVICE)
            return mr_fail(MR_E_USAGE, "op '%s': input '%s' is in host memory; try: move it back",
                           name, op->in[i].name);
        if (g->backward)
            MR_TRY(graph_available(g, args[i], &args[i]));
        // an accumulator is written in place, so it must not be copied
        bool written = false;
        for (int o = 0; o < mr_op_n_out(op); o++)
            written = written || (op->out[o].must && op->out[o].inplace == i + 1);
        if (!written && !graph_strides_fit(op->in[i].access, &g->values.at[args[i]].pub.desc))
            MR_TRY(graph_dense_copy(g, args[i], &args[i]));
    }
    return graph_append_op(g, op, attrs, n_attrs, args, want, outs);
}

mr_status graph_zeros(mr_graph *g, mr_dtype dtype, int rank, const int64_t *dim, mr_ref *out)
{
    mr_ints dims = {.n = rank};
    memcpy(dims.v, dim, sizeof *dim * (size_t)rank);
    return mr_graph_add(g, "zeros", MR_ATTRS({"dtype", .i = dtype}, {"dims", .ints = &dims}), NULL,
                        0, out);
}

/* ---- views ---- */

static mr_status add_view(mr_graph *g, mr_ref x, const mr_desc *desc, int64_t elements, value extra,
                          mr_ref *out)
{
    const value *from = &g->values.at[x];
    value v = extra;
    v.pub = from->pub;
    v.pub.desc = *desc, v.pub.alias = true, v.pub.save = false;
    v.pub.offset += elements * (int64_t)mr_dtype_bytes(desc->dtype), v.pub.param_at += elements;
    v.parent = x, v.root = from->root, v.setup = from->setup;
    MR_TRY(graph_new_value(g, &v, out));
    return VEC_PUSH(g->tape, ((tape_entry){-1, *out}));
}

static mr_status view_of(mr_graph *g, const char *what, mr_ref *x)
{
    MR_TRY(graph_check_open(g, what));
    MR_TRY(graph_check_ref(g, *x, what));
    return g->backward ? graph_available(g, *x, x) : MR_OK;
}

static mr_status blame(mr_graph *g, mr_status st, const char *what)
{
    if (st != MR_OK)
        mr_fail_where(what, g->open_block >= 0 ? g->blocks.at[g->open_block].name : "", g->origin);
    return st;
}

mr_status mr_graph_reshape(mr_graph *g, mr_ref x, int rank, const int64_t *dim, mr_ref *out)
{
    mr_desc desc, flat;
    MR_TRY(view_of(g, "reshape", &x));
    const mr_desc *from = &g->values.at[x].pub.desc;
    if (mr_desc_reshape(from, rank, dim, &desc) != MR_OK) {
        // find out whether the shape or only the strides are unsuitable
        flat = mr_desc_dense(from->dtype, from->rank, from->dim);
        MR_TRY(blame(g, mr_desc_reshape(&flat, rank, dim, &desc), "reshape"));
        MR_TRY(graph_dense_copy(g, x, &x));
    }
    return add_view(g, x, &desc, 0, (value){.view = VIEW_RESHAPE}, out);
}

mr_status mr_graph_slice(mr_graph *g, mr_ref x, int axis, int64_t start, int64_t stop, mr_ref *out)
{
    mr_desc desc;
    int64_t at = 0;
    MR_TRY(view_of(g, "slice", &x));
    MR_TRY(
        blame(g, mr_desc_slice(&g->values.at[x].pub.desc, axis, start, stop, &desc, &at), "slice"));
    return add_view(g, x, &desc, at,
                    (value){.view = VIEW_SLICE, .axis = axis, .start = start, .stop = stop}, out);
}

mr_status mr_graph_permute(mr_graph *g, mr_ref x, const int *order, mr_ref *out)
{
    mr_desc desc;
    MR_TRY(view_of(g, "permute", &x));
    MR_TRY(blame(g, mr_desc_permute(&g->values.at[x].pub.desc, order, &desc), "permute"));
    value v = {.view = VIEW_PERMUTE};
    memcpy(v.order, order, sizeof *order * (size_t)desc.rank);
    return add_view(g, x, &desc, 0, v, out);
}

mr_status mr_graph_expand(mr_graph *g, mr_ref x, int rank, const int64_t *dim, mr_ref *out)
{
    mr_desc desc;
    MR_TRY(view_of(g, "expand", &x));
    MR_TRY(blame(g, mr_desc_expand(&g->values.at[x].pub.desc, rank, dim, &desc), "expand"));
    return add_view(g, x, &desc, 0, (value){.view = VIEW_EXPAND}, out);
}

mr_status mr_graph_concat(mr_graph *g, const mr_ref *parts, int n, int axis, mr_ref *out)
{
    if (n < 1)
        return mr_fail(MR_E_USAGE, "concat: expected at least one value, got none");
    // concat takes at most MR_MAX_IN parts: join longer lists in groups
    mr_ref joined[MR_MAX_IN], *list = mr_alloc(sizeof *list * (size_t)n);
    if (!list)
        return mr_fail_memory(sizeof *list * (size_t)n);
    memcpy(list, parts, sizeof *list * (size_t)n);
    mr_status st = MR_OK;
    while (st == MR_OK && n > MR_MAX_IN) {
        int m = 0;
        for (int i = 0; st == MR_OK && i < n; i += MR_MAX_IN) {
            int k = MR_MIN(MR_MAX_IN, n - i);
            st = mr_graph_add(g, "concat", MR_ATTRS({"axis", .i = axis}), list + i, k, joined);
            list[m++] = joined[0];
        }
        n = m;
    }
    if (st == MR_OK)
        st = n == 1 ? (*out = list[0], MR_OK)
                    : mr_graph_add(g, "concat", MR_ATTRS({"axis", .i = axis}), list, n, out);
    mr_free(list);
    return st;
}

mr_status mr_graph_window(mr_graph *g, mr_ref x, int64_t first, int id, mr_ref *out)
{
    char text[128];
    MR_TRY(view_of(g, "window", &x));
    const mr_param *p = g->params ? mr_params_at(g->params, id) : NULL;
    if (!p || p->frozen || !mr_params_sealed(g->params))
        return mr_fail(MR_E_USAGE,
                       "window: parameter %d does not train, or its table is not sealed", id);
    const mr_desc *d = &g->values.at[x].pub.desc;
    if (d->rank != 1 || d->dtype != p->desc.dtype || !mr_desc_is_dense(d))
        return mr_fail(MR_E_SHAPE, "window: parameter '%s' in %s; expected a dense [n] of %s",
                       p->name, mr_desc_text(d, text, sizeof text), mr_dtype_name(p->desc.dtype));
    int64_t at = p->offset - first, n = mr_desc_count(&p->desc);
    if (at < 0 || n > d->dim[0] - at)
        return mr_fail(MR_E_RANGE,
                       "window: parameter '%s' has elements %lld to %lld, gathered are %lld from "
                       "%lld on",
                       p->name, (long long)p->offset, (long long)(p->offset + n),
                       (long long)d->dim[0], (long long)first);
    MR_TRY(add_view(g, x, &p->desc, at, (value){.view = VIEW_WINDOW}, out));
    g->values.at[*out].pub.param = id, g->values.at[*out].pub.param_at = 0;
    return MR_OK;
}

mr_status mr_graph_detach(mr_graph *g, mr_ref x, mr_ref *out)
{
    MR_TRY(view_of(g, "detach", &x));
    mr_desc desc = g->values.at[x].pub.desc;
    MR_TRY(add_view(g, x, &desc, 0, (value){.view = VIEW_DETACHED}, out));
    g->values.at[*out].pub.param = -1;
    return MR_OK;
}

/* ---- outputs and blocks ---- */

mr_status mr_graph_output(mr_graph *g, const char *name, mr_ref x)
{
    MR_TRY(graph_check_open(g, name));
    MR_TRY(graph_check_ref(g, x, name));
    if (mr_graph_output_find(g, name) != MR_NONE)
        return mr_fail(MR_E_USAGE, "output '%s' exists already; try: another name", name);
    // the host reads whole, dense, stored tensors
    const value *v = &g->values.at[x];
    mr_class kind = g->storages.at[v->pub.storage].kind;
    if (graph_space_of(g, x) != MR_SPACE_DEVICE)
        return mr_fail(MR_E_USAGE, "output '%s' is in host memory; try: move it back", name);
    if (!mr_desc_is_dense(&v->pub.desc) || kind == MR_INPUT || kind == MR_CONST || v->setup)
        MR_TRY(graph_dense_copy(g, x, &x));
    output o = {keep_text(g, name), x};
    if (!o.name)
        return mr_fail_memory(strlen(name));
    return VEC_PUSH(g->outputs, o);
}

mr_status mr_graph_block_begin(mr_graph *g, const char *name, bool recompute)
{
    if (g->open_block >= 0)
        return mr_fail(MR_E_USAGE, "block '%s' inside block '%s': blocks do not nest", name,
                       g->blocks.at[g->open_block].name);
    block b = {keep_text(g, name), recompute};
    if (!b.name)
        return mr_fail_memory(strlen(name));
    MR_TRY(VEC_PUSH(g->blocks, b));
    g->open_block = g->blocks.n - 1;
    return MR_OK;
}

mr_status mr_graph_block_end(mr_graph *g)
{
    if (g->open_block < 0)
        return mr_fail(MR_E_USAGE, "end of a block: none is open");
    g->open_block = -1;
    return MR_OK;
}

mr_status mr_graph_save(mr_graph *g, mr_ref x)
{
    MR_TRY(graph_check_ref(g, x, "save"));
    g->values.at[g->values.at[x].root].pub.save = true;
    return MR_OK;
}
