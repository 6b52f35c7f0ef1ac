/* sqrt: y = square root of x; dx = dy / (2 y). Licence: Apache-2.0 */
#include "op/define.h"

MR_ELEMENTWISE(sqrt, 1, vf_sqrt(x[0]), sqrt(x[0]))

static mr_status grad(mr_grad *ctx)
{
    mr_ref twice;
    MR_TRY(mr_grad_op(ctx, "affine", MR_ATTRS({"scale", .f = 2}), &ctx->out[0], 1, &twice));
    return mr_grad_node(ctx, 0, "div", ctx->dout[0], twice);
}

MR_OP(sqrt) = {
    .name = "sqrt",
    .doc = "Square root, elementwise.",
    .in = {{"x", "[...] f32|bf16", MR_ANY, 0}},
    .out = {{"y", "like x", 1, false, MR_ANY}},
    .infer = mr_infer_like,
    .grad = grad,
    .naive = sqrt_naive,
    .cpu = {.run = MR_CPU(sqrt)},
    .cases = MR_CASES("x=[3,5,17] f32 0.5..9", "x=[4,65]/any bf16 0.25..3"),
};
