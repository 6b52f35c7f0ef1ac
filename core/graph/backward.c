/* graph: builds gradients. It walks the nodes in reverse order of construction.
 *
 * The gradient of a value is complete when the walk reaches the entry that created the value: all
 * its readers are later on the tape. Gradients of slices of one parent are collected and joined
 * once. recompute.c provides the forward values. Licence: Apache-2.0 */
#include "graph/room.h"

#include <string.h>

/* The gradient of a slice, until its parent's gradient is complete. */
typedef struct part {
    mr_ref grad;
    int axis, next; /* next part of the same parent, in order; -1: none */
    int64_t start, stop;
} part;

typedef struct walk {
    mr_graph *g;
    mr_ref *grad; /* per forward value */
    bool *need;   /* per forward value: depends on a trainable parameter or wrt */
    int n;        /* forward values */
    VEC(part) parts;
    int *first_part, *last_part; /* per forward value; -1: none */
    /* per parameter its first leaf, per leaf the next one of that parameter; MR_NONE: none */
    mr_ref *leaf, *next_leaf;
    bool apart; /* gradients of wrt only, before the backward pass: new nodes are forward nodes */
} walk;

/* ---- gradients ---- */

static mr_status add_grad(walk *w, mr_ref x, mr_ref grad)
{
    if (grad == MR_NONE || x == MR_NONE || !w->need[x])
        return MR_OK;
    if (w->grad[x] == MR_NONE) {
        w->grad[x] = grad;
        return MR_OK;
    }
    return mr_graph_add(w->g, "add", MR_NO_ATTRS, (mr_ref[]){w->grad[x], grad}, 2, &w->grad[x]);
}

/* Join disjoint slices of one parent along one axis, with zeros in the gaps. */
static mr_status join_parts(walk *w, mr_ref x, int axis, part *list, int n)
{
    mr_graph *g = w->g;
    mr_desc whole = g->values.at[x].pub.desc;
    VEC(mr_ref) pieces = {0};
    mr_status st = MR_OK;
    int64_t at = 0;
    for (int i = 0; i <= n; i++) {
        int64_t start = i < n ? list[i].start : whole.dim[axis];
        mr_ref gap;
        if (start > at) {
            mr_desc d = whole;
            d.dim[axis] = start - at;
            d.dtype = g->values.at[list[0].grad].pub.desc.dtype;
            MR_TRY_GOTO(graph_zeros(g, d.dtype, d.rank, d.dim, &gap));
            MR_TRY_GOTO(VEC_PUSH(pieces, gap));
        }
        if (i == n)
            break;
        MR_TRY_GOTO(VEC_PUSH(pieces, list[i].grad));
        at = list[i].stop;
    }
    mr_ref joined;
    MR_TRY_GOTO(mr_graph_concat(g, pieces.at, pieces.n, axis, &joined));
    st = add_grad(w, x, joined);
out:
    mr_free(pieces.at);
    return st;
}

/* Add all collected slice gradients of x: in rounds, join those that are disjoint along one
 * axis. */
static mr_status gather_parts(walk *w, mr_ref x)
{
    for (;;) {
        part list[64];
        int n = 0, axis = -1, *at = &w->first_part[x];
        while (*at >= 0) {
            const part *p = &w->parts.at[*at];
            int k = 0;
            while (k < n && list[k].start < p->start)
                k++;
            bool clash =
                (k > 0 && list[k - 1].stop > p->start) || (k < n && p->stop > list[k].start);
            if (clash || (n && p->axis != axis) || n == (int)MR_COUNT(list)) {
                at = &w->parts.at[*at].next;
                continue;
            }
            axis = p->axis;
            memmove(list + k + 1, list + k, sizeof *list * (size_t)(n - k));
            list[k] = *p, n++;
            *at = p->next;
        }
        if (!n)
            return MR_OK;
        MR_TRY(join_parts(w, x, axis, list, n));
    }
}

/* Whether a gradient passes through input i. An op without a gradient function does not silently
 * stop gradients: undo_node reports an error if one reaches it. */
static bool passes(const mr_op *op, int i)
{
    return !op->grad || !(op->in[i].flags & MR_NO_GRAD);
}

static mr_status add_part(walk *w, mr_ref parent, const part *p)
{
    int id = w->parts.n;
    MR_TRY(VEC_PUSH(w->parts, *p));
    if (w->first_part[parent] < 0)
        w->first_part[parent] = id;
    else
        w->parts.at[w->last_part[parent]].next = id;
    w->last_part[parent] = id;
    return MR_OK;
}

/* Add the gradient of view x to its parent. */
static mr_status undo_view(walk *w, mr_ref x)
{
    mr_graph *g = w->g;
    value v = g->values.at[x];
    mr_ref grad = w->grad[x], back = MR_NONE;
    mr_desc parent = g->values.at[v.parent].pub.desc;
    if (grad == MR_NONE || !w->need[v.parent])
        return MR_OK;
    switch (v.view) {
    case VIEW_RESHAPE: MR_TRY(mr_graph_reshape(g, grad, parent.rank, parent.dim, &back)); break;
    case VIEW_PERMUTE: {
        int inverse[MR_MAX_RANK];
        for (int i = 0; i < parent.rank; i++)
            inverse[v.order[i]] = i;
        MR_TRY(mr_graph_permute(g, grad, inverse, &back));
        break;
    }
    case VIEW_EXPAND: {
        mr_ints axes = {0};
        const mr_desc *d = &v.pub.desc;
        int lead = d->rank - parent.rank;
        for (int i = 0; i < d->rank; i++)
            if (i < lead || (parent.dim[i - lead] == 1 && d->dim[i] != 1))
                axes.v[axes.n++] = i;
        back = grad;
        if (axes.n)
            MR_TRY(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &axes}, {"keep", .i = 1}),
                                &grad, 1, &back));
        MR_TRY(mr_graph_reshape(g, back, parent.rank, parent.dim, &back));
        break;
    }
    case VIEW_SLICE: return add_part(w, v.parent, &(part){grad, v.axis, -1, v.start, v.stop});
    case VIEW_NONE:
    case VIEW_DETACHED:
    case VIEW_WINDOW: return MR_OK;
    }
    return add_grad(w, v.parent, back);
}

/* The dtype of the gradient of x: f32, as in region "grad", for a parameter in wrt. */
static mr_dtype grad_dtype(const mr_graph *g, mr_ref x)
{
    const value *v = &g->values.at[x];
    return v->asked ? MR_F32 : v->pub.desc.dtype;
}

/* Add the gradient of a parameter that no op has accumulated itself. */
static mr_status param_grad(walk *w, mr_ref x)
{
    mr_graph *g = w->g;
    mr_ref grad = w->grad[x], acc, outs[MR_MAX_OUT];
    int param = g->values.at[x].pub.param;
    const mr_param *p = mr_params_at(g->params, param);
    if (grad == MR_NONE || p->frozen)
        return MR_OK;
    MR_TRY(graph_grad_place(g, param, 0, &p->desc, &acc));
    return mr_graph_add(g, "accumulate", MR_NO_ATTRS, (mr_ref[]){acc, grad}, 2, outs);
}

static mr_status undo_node(walk *w, int id)
{
    mr_graph *g = w->g;
    mr_node node = g->nodes.at[id];
    mr_grad ctx = {.graph = g, .attr = node.attr, .n_in = node.n_in, .n_out = node.n_out};
    bool flows = false, wanted = false;
    for (int i = 0; i < MR_MAX_OUT; i++) {
        ctx.out[i] = i < node.n_out ? node.out[i] : MR_NONE;
        ctx.dout[i] = ctx.out[i] != MR_NONE ? w->grad[ctx.out[i]] : MR_NONE;
        flows = flows || ctx.dout[i] != MR_NONE;
    }
    for (int i = 0; i < MR_MAX_IN; i++) {
        ctx.in[i] = i < node.n_in ? node.in[i] : MR_NONE;
        ctx.din[i] = MR_NONE;
        ctx.need[i] = ctx.in[i] != MR_NONE && w->need[ctx.in[i]] && passes(node.op, i);
        wanted = wanted || ctx.need[i];
    }
    if (!flows || !wanted)
        return MR_OK;
    g->origin = node.origin;
    g->open_block = w->apart ? -1 : node.block;
    g->queue = node.queue;
    mr_status st = node.op->grad
                       ? node.op->grad(&ctx)
                       : mr_fail(MR_E_USAGE, "op '%s' has no gradient, yet the loss depends on it",
                                 node.op->name);
    g->open_block = -1;
    g->queue = MR_Q_COMPUTE;
    if (st != MR_OK) {
        mr_fail_where(node.op->name, node.name, node.origin);
        return st;
    }
    for (int i = 0; i < node.n_in; i++) {
        if (!ctx.need[i] || ctx.din[i] == MR_NONE || graph_in_grad(g, ctx.din[i]))
            continue;
        mr_dtype want = grad_dtype(g, ctx.in[i]);
        if (g->values.at[ctx.din[i]].pub.desc.dtype != want)
            MR_TRY(mr_graph_add(g, "cast", MR_ATTRS({"dtype", .i = want}), &ctx.din[i], 1,
                                &ctx.din[i]));
        MR_TRY(add_grad(w, ctx.in[i], ctx.din[i]));
    }
    return MR_OK;
}

mr_status mr_grad_op(mr_grad *ctx, const char *op, const mr_attr *attrs, int n_attrs,
                     const mr_ref *in, int n_in, mr_ref *outs)
{
    return mr_graph_add(ctx->graph, op, attrs, n_attrs, in, n_in, outs);
}

const mr_desc *mr_grad_desc(const mr_grad *ctx, mr_ref x)
{
    return &ctx->graph->values.at[x].pub.desc;
}

mr_status mr_grad_acc(mr_grad *ctx, int i, mr_ref *acc)
{
    mr_graph *g = ctx->graph;
    const value *v = &g->values.at[ctx->in[i]];
    mr_desc desc = v->pub.desc;
    const mr_param *p = v->pub.param >= 0 ? mr_params_at(g->params, v->pub.param) : NULL;
    if (!p || p->frozen || v->asked || !mr_desc_is_dense(&desc))
        return graph_zeros(g, MR_F32, desc.rank, desc.dim, acc);
    // the same view of the parameter's gradient
    return graph_grad_place(g, v->pub.param, v->pub.param_at, &desc, acc);
}

/* Mark parameters in wrt: their gradient is the sum over all uses. */
static void mark_asked(walk *w, const mr_ref *wrt, int n_wrt)
{
    mr_graph *g = w->g;
    for (int i = 0; i < n_wrt; i++) {
        int param = g->values.at[wrt[i]].pub.param;
        mr_ref x = param < 0 ? MR_NONE : w->leaf[param];
        for (; x != MR_NONE; x = w->next_leaf[x])
            g->values.at[x].asked = true;
    }
    // views come after their parents
    for (int x = 0; n_wrt && x < w->n; x++)
        if (!graph_is_leaf(&g->values.at[x]) && g->values.at[x].pub.param >= 0)
            g->values.at[x].asked = g->values.at[g->values.at[x].parent].asked;
}

/* The gradient of wrt value x: for a parameter the sum over its uses, else the gradient of x. */
static mr_status result_of(walk *w, mr_ref x, mr_ref *out)
{
    mr_graph *g = w->g;
    int param = graph_is_leaf(&g->values.at[x]) ? g->values.at[x].pub.param : -1;
    *out = w->grad[x];
    for (mr_ref y = param < 0 ? MR_NONE : w->leaf[param]; y != MR_NONE; y = w->next_leaf[y]) {
        if (y == x || w->grad[y] == MR_NONE)
            continue;
        if (*out == MR_NONE)
            *out = w->grad[y];
        else
            MR_TRY(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){*out, w->grad[y]}, 2, out));
    }
    return MR_OK;
}

/* Allocate the tables of a walk, and list the leaves of each parameter in order of creation. */
static mr_status begin(walk *w)
{
    mr_graph *g = w->g;
    int params = g->params ? mr_params_count(g->params) : 0;
    w->n = g->values.n;
    size_t values = (size_t)w->n, words = 4 * values + (size_t)params;
    w->need = mr_calloc(values, 1);
    w->grad = mr_alloc(sizeof *w->grad * words);
    if (!w->grad || !w->need)
        return mr_fail_memory(sizeof *w->grad * words);
    w->first_part = w->grad + values, w->last_part = w->first_part + values;
    w->next_leaf = w->last_part + values, w->leaf = w->next_leaf + values;
    for (size_t i = 0; i < words; i++)
        w->grad[i] = MR_NONE;
    for (mr_ref x = w->n - 1; x >= 0; x--) {
        int param = g->values.at[x].pub.param;
        if (param < 0 || !graph_is_leaf(&g->values.at[x]))
            continue;
        w->next_leaf[x] = w->leaf[param];
        w->leaf[param] = x;
    }
    return MR_OK;
}

/* Compute need[x]: x depends on a trainable parameter or on wrt. */
static void mark_need(walk *w, const mr_ref *wrt, int n_wrt)
{
    mr_graph *g = w->g;
    for (int i = 0; i < n_wrt; i++)
        w->need[wrt[i]] = true;
    for (int t = 0; t < g->tape.n; t++) {
        tape_entry e = g->tape.at[t];
        if (e.node < 0) {
            const value *v = &g->values.at[e.value];
            if (!graph_is_leaf(v))
                w->need[e.value] = w->need[e.value] || w->need[v->parent];
            else if (v->asked || (v->pub.param >= 0 && !w->apart &&
                                  !mr_params_at(g->params, v->pub.param)->frozen))
                w->need[e.value] = true;
            continue;
        }
        const mr_node *node = &g->nodes.at[e.node];
        bool any = false;
        for (int i = 0; i < node->n_in; i++)
            any = any || (node->in[i] != MR_NONE && w->need[node->in[i]] && passes(node->op, i));
        for (int i = 0; i < node->n_out; i++) {
            if (node->out[i] == MR_NONE)
                continue;
            mr_dtype dtype = g->values.at[node->out[i]].pub.desc.dtype;
            w->need[node->out[i]] = w->need[node->out[i]] || (any && mr_dtype_is_float(dtype));
        }
    }
}

/* The gradient of the loss itself: 1, or NaN if the loss is not finite. */
static mr_status seed(mr_graph *g, mr_ref loss, mr_ref *out)
{
    mr_ref zero;
    MR_TRY(mr_graph_add(g, "sub", MR_NO_ATTRS, (mr_ref[]){loss, loss}, 2, &zero));
    return mr_graph_add(g, "affine", MR_ATTRS({"shift", .f = 1}), &zero, 1, out);
}

static mr_status check_call(const mr_graph *g, const char *what, mr_ref loss, const mr_ref *wrt,
                            int n_wrt)
{
    char text[128];
    MR_TRY(graph_check_open(g, what));
    MR_TRY(graph_check_ref(g, loss, what));
    if (g->backward)
        return mr_fail(MR_E_USAGE, "a graph has one backward pass; this one has it already");
    if (g->open_block >= 0)
        return mr_fail(MR_E_USAGE, "%s inside block '%s'", what, g->blocks.at[g->open_block].name);
    const mr_desc *d = &g->values.at[loss].pub.desc;
    if (mr_desc_count(d) != 1 || d->dtype != MR_F32)
        return mr_fail(MR_E_SHAPE, "%s from %s: expected a scalar f32 loss; try mean() or sum()",
                       what, mr_desc_text(d, text, sizeof text));
    for (int i = 0; i < n_wrt; i++)
        MR_TRY(graph_check_ref(g, wrt[i], what));
    return MR_OK;
}

/* Before the walk of the backward pass: mark kept values, and prepare reductions and zeroing. */
static mr_status begin_pass(mr_graph *g)
{
    g->clones = mr_alloc(sizeof *g->clones * (size_t)(g->nodes.n + 1));
    if (!g->clones)
        return mr_fail_memory(sizeof *g->clones * (size_t)(g->nodes.n + 1));
    for (int i = 0; i <= g->nodes.n; i++)
        g->clones[i] = -1;
    graph_save_results(g);
    g->n_forward = g->nodes.n;
    g->backward = true;
    g->fetch_at = MR_NONE;
    MR_TRY(graph_count_leaves(g));
    return graph_begin_fresh(g);
}

static mr_status end_pass(mr_graph *g)
{
    MR_TRY(graph_reduce_complete(g, true));
    return graph_end_fresh(g);
}

/* Pass on the gradient of a leaf or a view. */
static mr_status undo_value(walk *w, mr_ref x)
{
    mr_graph *g = w->g;
    MR_TRY(gather_parts(w, x));
    if (!graph_is_leaf(&g->values.at[x]))
        return undo_view(w, x);
    if (g->values.at[x].pub.param < 0 || w->apart)
        return MR_OK;
    MR_TRY(param_grad(w, x));
    graph_leaf_over(g, g->values.at[x].pub.param);
    return MR_OK;
}

static mr_status undo_entry(walk *w, tape_entry e)
{
    mr_graph *g = w->g;
    if (!w->apart)
        MR_TRY(graph_reduce_complete(g, false));
    if (e.node < 0)
        return undo_value(w, e.value);
    for (int i = 0; i < g->nodes.at[e.node].n_out; i++)
        if (g->nodes.at[e.node].out[i] != MR_NONE)
            MR_TRY(gather_parts(w, g->nodes.at[e.node].out[i]));
    return undo_node(w, e.node);
}

static mr_status go(walk *w, mr_ref loss, const mr_ref *wrt, int n_wrt, mr_ref *dwrt)
{
    mr_graph *g = w->g;
    const char *origin = g->origin;
    mr_queue queue = g->queue;
    mr_status st = MR_OK;
    int last = g->tape.n;
    MR_TRY_GOTO(begin(w));
    mark_asked(w, wrt, n_wrt);
    mark_need(w, wrt, n_wrt);
    g->queue = MR_Q_COMPUTE;
    if (!w->apart)
        MR_TRY_GOTO(begin_pass(g));
    MR_TRY_GOTO(seed(g, loss, &w->grad[loss]));
    w->need[loss] = true;
    for (int t = last - 1; t >= 0; t--)
        MR_TRY_GOTO(undo_entry(w, g->tape.at[t]));
    if (!w->apart)
        MR_TRY_GOTO(end_pass(g));
    for (int i = 0; i < n_wrt; i++)
        MR_TRY_GOTO(result_of(w, wrt[i], &dwrt[i]));
out:
    for (int x = 0; w->apart && x < w->n; x++)
        g->values.at[x].asked = false;
    g->origin = origin, g->queue = queue;
    mr_free(w->grad), mr_free(w->need), mr_free(w->parts.at);
    return st;
}

mr_status mr_graph_backward(mr_graph *g, mr_ref loss, const mr_ref *wrt, int n_wrt, mr_ref *dwrt)
{
    walk w = {.g = g};
    MR_TRY(check_call(g, "backward", loss, wrt, n_wrt));
    return go(&w, loss, wrt, n_wrt, dwrt);
}

mr_status mr_graph_gradients(mr_graph *g, mr_ref loss, const mr_ref *wrt, int n_wrt, mr_ref *dwrt)
{
    walk w = {.g = g, .apart = true};
    MR_TRY(check_call(g, "gradients", loss, wrt, n_wrt));
    return go(&w, loss, wrt, n_wrt, dwrt);
}
