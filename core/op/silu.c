/* silu: y = x s(x), s(x) = 1 / (1 + e^-x); dx = dy s (1 + x (1 - s)).
 * Memory-bound: reads and writes every element once. Licence: Apache-2.0 */
#include "op/define.h"

MR_ELEMENTWISE(silu, 1, formula_silu(x[0]), x[0] / (1 + exp(-x[0])))

MR_OP_FN double slope_naive(double x)
{
    double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}
MR_ELEMENTWISE(silu_grad, 2, formula_silu_slope(x[0]) * x[1], slope_naive(x[0]) * x[1])

static mr_status grad(mr_grad *ctx)
{
    return mr_grad_node(ctx, 0, "silu_grad", ctx->in[0], ctx->dout[0]);
}
static void cost(const mr_call *call, mr_cost *cost)
{
    (void)call;
    cost->flop *= 20;
}

MR_OP(silu) = {
    .name = "silu",
    .doc = "x * sigmoid(x), elementwise.",
    .ref = "Elfwing et al. 2017, arXiv:1702.03118; Ramachandran et al. 2017, arXiv:1710.05941",
    .in = {{"x", "[...] f32|bf16", MR_ANY, 0}},
    .out = {{"y", "like x", 1, false, MR_ANY}},
    .infer = mr_infer_like,
    .grad = grad,
    .cost = cost,
    .naive = silu_naive,
    .cpu = {.run = MR_CPU(silu)},
    .cheap = true,
    .cases = MR_CASES("x=[2,7,64] f32 -4..4", "x=[3,50001] f32 -90..90", "x=[5,33]/any f32",
                      "x=[2,7,65] bf16 -4..4", "x=[3,333] f32 -300..300",
                      "x=[3,333] bf16 -300..300"),
};
MR_OP(silu_grad) = {
    .name = "silu_grad",
    .doc = "Gradient of silu: dy * silu'(x).",
    .in = {{"x", "[...] f32|bf16", MR_ANY, 0}, {"dy", "like x", MR_ANY, 0}},
    .out = {{"dx", "like x", 2, false, MR_ANY}},
    .infer = mr_infer_like,
    .cost = cost,
    .naive = silu_grad_naive,
    .cpu = {.run = MR_CPU(silu_grad)},
    .hidden = true,
    .cases = MR_CASES("x=[2,7,64] f32 -4..4 dy=[2,7,64] f32", "x=[5,33]/any f32 dy=[5,33] f32",
                      "x=[2,7,65] bf16 -4..4 dy=[2,7,65] bf16",
                      "x=[3,333] f32 -300..300 dy=[3,333] f32"),
};
