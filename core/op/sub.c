/* sub: y = a - b. Licence: Apache-2.0 */
#include "op/define.h"

MR_ELEMENTWISE(sub, 2, x[0] - x[1], x[0] - x[1])

static mr_status grad(mr_grad *ctx)
{
    ctx->din[0] = ctx->dout[0];
    if (!ctx->need[1])
        return MR_OK;
    return mr_grad_op(ctx, "affine", MR_ATTRS({"scale", .f = -1}), &ctx->dout[0], 1, &ctx->din[1]);
}

MR_OP(sub) = {
    .name = "sub",
    .doc = "a - b, elementwise over equal shapes.",
    .in = {{"a", "[...] f32|bf16", MR_ANY, 0}, {"b", "like a", MR_ANY, 0}},
    .out = {{"y", "like a", 1, false, MR_ANY}},
    .infer = mr_infer_like,
    .grad = grad,
    .naive = sub_naive,
    .cpu = {.run = MR_CPU(sub)},
    .cases = MR_CASES("a=[3,5,17] f32 b=[3,5,17]/any f32", "a=[4,65] bf16 b=[4,65] bf16"),
};
