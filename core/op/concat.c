/* concat: joins tensors along one axis. In a graph it never runs: finish() makes ops write the
 * parts into the result directly. Eager calls run it. Any dtype; copies bytes.
 * Licence: Apache-2.0 */
#include "op/define.h"

typedef struct attrs {
    int64_t axis;
} attrs;

/* A view of part i of the output. */
static mr_view slot(const mr_call *call, int64_t axis, int i, int64_t *at)
{
    mr_view v = call->out[0];
    v.desc.dim[axis] = call->in[i].desc.dim[axis];
    v.data = (char *)v.data + *at * v.desc.stride[axis] * (int64_t)mr_dtype_bytes(v.desc.dtype);
    *at += v.desc.dim[axis];
    return v;
}

static mr_status naive(const mr_call *call)
{
    const attrs *a = call->attr;
    int64_t at = 0;
    for (int i = 0; i < call->n_in && call->in[i].desc.rank >= 0; i++) {
        mr_view to = slot(call, a->axis, i, &at);
        MR_TRY(mr_view_copy(&to, &call->in[i]));
    }
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    const attrs *a = c->attr;
    const mr_desc *first = c->in[0];
    char ta[128], tb[128];
    if (a->axis >= first->rank)
        return mr_fail(MR_E_SHAPE, "axis is %lld, x0 is %s; expected axis 0..%d",
                       (long long)a->axis, mr_desc_text(first, ta, sizeof ta), first->rank - 1);
    mr_infer_out_like(c, 0, first);
    for (int i = 1; i < c->n_in && c->in[i]; i++) {
        mr_desc like = *c->in[i];
        if (like.rank == first->rank)
            like.dim[a->axis] = first->dim[a->axis];
        if (!mr_desc_same_shape(&like, first) || like.dtype != first->dtype)
            return mr_fail(MR_E_SHAPE,
                           "part %d is %s, part 0 is %s; expected equal dtypes and dimensions "
                           "except along axis %lld",
                           i, mr_desc_text(c->in[i], ta, sizeof ta),
                           mr_desc_text(first, tb, sizeof tb), (long long)a->axis);
        c->out[0].dim[a->axis] += c->in[i]->dim[a->axis];
    }
    c->out[0] = mr_desc_dense(first->dtype, first->rank, c->out[0].dim);
    return MR_OK;
}

static mr_status grad(mr_grad *ctx)
{
    const attrs *a = ctx->attr;
    int64_t at = 0;
    for (int i = 0; i < ctx->n_in && ctx->in[i] != MR_NONE; i++) {
        int64_t n = mr_grad_desc(ctx, ctx->in[i])->dim[a->axis];
        if (ctx->need[i])
            MR_TRY(
                mr_graph_slice(ctx->graph, ctx->dout[0], (int)a->axis, at, at + n, &ctx->din[i]));
        at += n;
    }
    return MR_OK;
}

static void cost(const mr_call *call, mr_cost *cost)
{
    (void)call;
    cost->flop = 0;
}

#define PART(n)                                                                                    \
    {                                                                                              \
        "x" #n, "[...] like x0 except along the axis", MR_ANY, MR_OPTIONAL                         \
    }
MR_OP(concat) = {
    .name = "concat",
    .doc = "Tensors joined along one axis.",
    .in = {{"x0", "[...] any dtype", MR_ANY, 0},
           PART(1),
           PART(2),
           PART(3),
           PART(4),
           PART(5),
           PART(6),
           PART(7),
           PART(8),
           PART(9),
           PART(10),
           PART(11)},
    .out = {{"y", "like x0, longer along the axis", 0, false, MR_ANY}},
    .attr = {{"axis", MR_ATTR_I64, offsetof(attrs, axis), 0, 0, MR_MAX_RANK - 1, true,
              "axis that grows, from 0"}},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cases = MR_CASES("x0=[3,2,5] f32 x1=[3,4,5] f32 x2=[3,1,5]/any f32 axis=1",
                      "x0=[2,3]/rows bf16 x1=[5,3] bf16 axis=0 rtol=1e-9", "x0=[4] f32 axis=0"),
};
