/* div: y = a / b; da = dy / b, db = -da y. Licence: Apache-2.0 */
#include "op/define.h"

MR_ELEMENTWISE(div, 2, x[0] / x[1], x[0] / x[1])

static mr_status grad(mr_grad *ctx)
{
    mr_ref da, prod;
    MR_TRY(mr_grad_op(ctx, "div", MR_NO_ATTRS, (mr_ref[]){ctx->dout[0], ctx->in[1]}, 2, &da));
    ctx->din[0] = da;
    if (!ctx->need[1])
        return MR_OK;
    MR_TRY(mr_grad_op(ctx, "mul", MR_NO_ATTRS, (mr_ref[]){da, ctx->out[0]}, 2, &prod));
    return mr_grad_op(ctx, "affine", MR_ATTRS({"scale", .f = -1}), &prod, 1, &ctx->din[1]);
}

MR_OP(div) = {
    .name = "div",
    .doc = "a / b, elementwise over equal shapes.",
    .in = {{"a", "[...] f32|bf16", MR_ANY, 0}, {"b", "like a", MR_ANY, 0}},
    .out = {{"y", "like a", 1, false, MR_ANY}},
    .infer = mr_infer_like,
    .grad = grad,
    .naive = div_naive,
    .cpu = {.run = MR_CPU(div)},
    .cases = MR_CASES("a=[3,5,17] f32 b=[3,5,17]/any f32 0.5..2",
                      "a=[4,65] bf16 b=[4,65] bf16 1..3"),
};
