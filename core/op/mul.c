/* mul: y = a b; da = dy b, db = dy a. Licence: Apache-2.0 */
#include "op/define.h"

MR_ELEMENTWISE(mul, 2, x[0] * x[1], x[0] * x[1])

static mr_status grad(mr_grad *ctx)
{
    if (ctx->need[0])
        MR_TRY(mr_grad_node(ctx, 0, "mul", ctx->dout[0], ctx->in[1]));
    if (ctx->need[1])
        MR_TRY(mr_grad_node(ctx, 1, "mul", ctx->dout[0], ctx->in[0]));
    return MR_OK;
}

MR_OP(mul) = {
    .name = "mul",
    .doc = "a * b, elementwise over equal shapes.",
    .in = {{"a", "[...] f32|bf16", MR_ANY, 0}, {"b", "like a", MR_ANY, 0}},
    .out = {{"y", "like a", 1, false, MR_ANY}},
    .infer = mr_infer_like,
    .grad = grad,
    .naive = mul_naive,
    .cpu = {.run = MR_CPU(mul)},
    .cases = MR_CASES("a=[3,5,17] f32 b=[3,5,17]/any f32", "a=[4,65] bf16 b=[4,65] bf16"),
};
