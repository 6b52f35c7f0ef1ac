/* exp: y = e^x; dx = dy y. Licence: Apache-2.0 */
#include "op/define.h"

MR_ELEMENTWISE(exp, 1, formula_exp(x[0]), exp(x[0]))

static mr_status grad(mr_grad *ctx)
{
    return mr_grad_node(ctx, 0, "mul", ctx->dout[0], ctx->out[0]);
}

MR_OP(exp) = {
    .name = "exp",
    .doc = "e to the power x, elementwise.",
    .in = {{"x", "[...] f32|bf16", MR_ANY, 0}},
    .out = {{"y", "like x", 1, false, MR_ANY}},
    .infer = mr_infer_like,
    .grad = grad,
    .naive = exp_naive,
    .cpu = {.run = MR_CPU(exp)},
    .cases = MR_CASES("x=[3,5,17] f32 -3..3", "x=[2,4001] f32 -80..80", "x=[4,65]/any bf16 -3..3",
                      "x=[3,333] f32 -300..300"),
};
