/* graph: appends storages, values, leaves and inferred nodes to a graph.
 * Licence: Apache-2.0 */
#include "base/text.h"
#include "graph/room.h"

#include <string.h>

mr_status vec_room(void **at, int *cap, int n, size_t size)
{
    if (n < *cap)
        return MR_OK;
    int bigger = *cap ? *cap * 2 : 64;
    void *p = mr_realloc(*at, size * (size_t)bigger);
    if (!p)
        return mr_fail_memory(size * (size_t)bigger);
    *at = p, *cap = bigger;
    return MR_OK;
}

bool graph_strides_fit(mr_access access, const mr_desc *d)
{
    return access == MR_ANY || (access == MR_ROWS ? mr_desc_is_rows(d) : mr_desc_is_dense(d));
}

bool mr_graph_crosses(const mr_graph *g, const mr_node *node)
{
    if (node->n_in != 1 || node->n_out != 1 || node->in[0] == MR_NONE || node->out[0] == MR_NONE)
        return false;
    return g->storages.at[g->values.at[node->in[0]].pub.storage].space !=
           g->storages.at[g->values.at[node->out[0]].pub.storage].space;
}

bool graph_is_leaf(const value *v)
{
    return v->view == VIEW_NONE || v->view == VIEW_WINDOW || v->view == VIEW_DETACHED;
}

mr_status graph_check_open(const mr_graph *g, const char *what)
{
    return g->finished ? mr_fail(MR_E_USAGE, "%s: the graph is finished; build a new one", what)
                       : MR_OK;
}

mr_status graph_check_ref(const mr_graph *g, mr_ref x, const char *what)
{
    return x >= 0 && x < g->values.n
               ? MR_OK
               : mr_fail(MR_E_USAGE, "%s: value %d is not of this graph", what, (int)x);
}

mr_status graph_new_storage(mr_graph *g, mr_class kind, size_t bytes, int *out)
{
    mr_storage s = {.kind = kind, .bytes = bytes};
    MR_TRY(VEC_PUSH(g->storages, s));
    *out = g->storages.n - 1;
    return MR_OK;
}

mr_status graph_new_value(mr_graph *g, const value *v, mr_ref *out)
{
    MR_TRY(VEC_PUSH(g->values, *v));
    *out = g->values.n - 1;
    value *added = &g->values.at[*out];
    added->forward = !g->backward, added->away = added->back = MR_NONE;
    if (added->view == VIEW_NONE)
        added->root = *out;
    return MR_OK;
}

mr_status graph_new_leaf(mr_graph *g, const mr_storage *storage, const mr_desc *desc, int param,
                         mr_ref *out)
{
    MR_TRY(VEC_PUSH(g->storages, *storage));
    value v = {.pub = {.storage = g->storages.n - 1, .desc = *desc, .node = -1, .param = param},
               .parent = MR_NONE,
               .setup = storage->kind == MR_CONST};
    MR_TRY(graph_new_value(g, &v, out));
    return VEC_PUSH(g->tape, ((tape_entry){-1, *out}));
}

// add the shapes of all inputs to an error of infer
static void name_shapes(const mr_op *op, const mr_infer *c)
{
    const mr_error e = *mr_error_last();
    char text[128];
    mr_text list = {0};
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] && !strstr(e.text, mr_desc_text(c->in[i], text, sizeof text)))
            mr_text_add(&list, "%s %s is %s", list.used ? "," : ";", op->in[i].name, text);
    if (list.used)
        mr_fail_at(e.code, e.file, e.line, "%s%s", e.text, list.data);
    mr_free(list.data);
}

/* Check the inputs that an op overwrites. Computed values, regions and input slots, which the host
 * sets again, are allowed; constants are not, since they are valid for all runs. */
static mr_status check_overwrites(const mr_graph *g, const mr_node *node)
{
    for (int i = 0; i < mr_op_n_out(node->op); i++) {
        const mr_out_def *def = &node->op->out[i];
        mr_ref over = def->must ? node->in[def->inplace - 1] : MR_NONE;
        if (over == MR_NONE)
            continue;
        const value *v = &g->values.at[over];
        if (v->setup)
            return mr_fail(
                MR_E_USAGE,
                "'%s' is written over '%s', which is constant; try: an input or a region",
                def->name, node->op->in[def->inplace - 1].name);
    }
    return MR_OK;
}

/* Make the next compute node wait for the last but one group of offload copies. */
static void plan_wait(mr_graph *g, mr_node *made)
{
    if (made->setup || made->queue != MR_Q_COMPUTE)
        return;
    made->after = g->sent_due, g->sent_due = MR_NONE, g->sending = false;
    for (int i = 0; i < made->n_out; i++)
        if (made->out[i] != MR_NONE)
            g->newest = made->out[i];
}

mr_status graph_append(mr_graph *g, const mr_node *node, mr_ref *outs)
{
    mr_infer ctx = {.n_in = node->n_in, .attr = node->attr};
    bool setup = true;
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i] == MR_NONE)
            continue;
        ctx.in[i] = &g->values.at[node->in[i]].pub.desc;
        setup = setup && g->values.at[node->in[i]].setup;
    }
    for (int i = 0; i < MR_MAX_OUT; i++)
        ctx.out[i].rank = -1;
    mr_status st = mr_op_check_dtypes(node->op, &ctx);
    if (st == MR_OK)
        st = node->op->infer(&ctx);
    if (st == MR_E_SHAPE)
        name_shapes(node->op, &ctx);
    for (int i = 0; st == MR_OK && i < mr_op_n_out(node->op); i++)
        if (ctx.out[i].rank >= 0)
            st = mr_desc_check(ctx.out[i].dtype, ctx.out[i].rank, ctx.out[i].dim);
    if (st == MR_OK)
        st = check_overwrites(g, node);
    if (st != MR_OK) {
        mr_fail_where(node->op->name, node->name, node->origin);
        return st;
    }
    mr_node made = *node;
    made.n_out = mr_op_n_out(node->op);
    int id = g->nodes.n;
    for (int i = 0; i < made.n_out; i++) {
        mr_desc desc = ctx.out[i];
        if (desc.rank < 0) {
            made.out[i] = MR_NONE;
            continue;
        }
        // strides that infer did not set are dense
        bool strided = false;
        for (int k = 0; k < desc.rank; k++)
            strided = strided || desc.stride[k];
        if (!strided)
            desc = mr_desc_dense(desc.dtype, desc.rank, desc.dim);
        value v = {.pub = {.desc = desc, .node = id, .param = -1}, .parent = MR_NONE};
        const mr_out_def *def = &node->op->out[i];
        if (def->must && node->in[def->inplace - 1] != MR_NONE) {
            const value *over = &g->values.at[node->in[def->inplace - 1]];
            v.pub.storage = over->pub.storage, v.pub.offset = over->pub.offset, v.pub.alias = true;
            v.pub.desc = over->pub.desc;
            setup = false;
        } else if (def->must) {
            made.out[i] = MR_NONE;
            continue;
        } else {
            MR_TRY(graph_new_storage(g, MR_ARENA, mr_desc_span_bytes(&desc), &v.pub.storage));
        }
        MR_TRY(graph_new_value(g, &v, &made.out[i]));
    }
    made.setup = setup && node->n_in > 0 && !g->backward;
    if (made.setup)
        made.queue = MR_Q_COMPUTE;
    plan_wait(g, &made);
    for (int i = 0; i < made.n_out; i++)
        if (made.out[i] != MR_NONE)
            g->values.at[made.out[i]].setup = made.setup;
    MR_TRY(VEC_PUSH(g->nodes, made));
    MR_TRY(VEC_PUSH(g->tape, ((tape_entry){id, MR_NONE})));
    for (int i = 0; i < made.n_out; i++)
        outs[i] = made.out[i];
    return MR_OK;
}

static const char *node_name(mr_graph *g, const char *op)
{
    char text[256];
    const char *in = g->open_block >= 0 ? g->blocks.at[g->open_block].name : "";
    snprintf(text, sizeof text, "%s%s%s#%d", in, *in ? "/" : "", op, g->nodes.n);
    return mr_arena_strdup(&g->arena, text);
}

mr_status graph_append_op(mr_graph *g, const mr_op *op, const mr_attr *attrs, int n_attrs,
                          const mr_ref *in, int n_in, mr_ref *outs)
{
    mr_node node = {.op = op,
                    .n_in = n_in,
                    .origin = g->origin,
                    .block = g->open_block,
                    .queue = g->queue,
                    .recompute_of = -1,
                    .after = MR_NONE,
                    .backward = g->backward,
                    .name = node_name(g, op->name)};
    if (!node.name)
        return mr_fail_memory(64);
    for (int i = 0; i < MR_MAX_IN; i++)
        node.in[i] = i < n_in ? in[i] : MR_NONE;
    mr_status st = mr_op_attrs(op, attrs, n_attrs, node.attr);
    if (st != MR_OK) {
        mr_fail_where(op->name, node.name, node.origin);
        return st;
    }
    return graph_append(g, &node, outs);
}

mr_status graph_dense_copy(mr_graph *g, mr_ref x, mr_ref *out)
{
    const mr_op *copy = mr_op_find("copy");
    if (!copy)
        return mr_fail(MR_E_INTERNAL, "the op table lacks 'copy'");
    return graph_append_op(g, copy, MR_NO_ATTRS, &x, 1, out);
}
