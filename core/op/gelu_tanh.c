/* gelu_tanh: y = x / 2 (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3). With s = 1 / (1 + e^-2u)
 * this is x s, and dx = dy (s + 2 x s (1 - s) u'). These forms are exact, and s keeps its relative
 * precision for very negative x. Memory-bound: reads and writes each element once.
 * Licence: Apache-2.0 */
#include "op/define.h"

enum { FLOP = 30 };
MR_OP_FN double value_naive(double x)
{
    return 0.5 * x * (1 + tanh(FORMULA_GELU_ROOT * (x + FORMULA_GELU_CUBE * x * x * x)));
}
MR_OP_FN double slope_naive(double x)
{
    double t = tanh(FORMULA_GELU_ROOT * (x + FORMULA_GELU_CUBE * x * x * x));
    return 0.5 * (1 + t) +
           0.5 * x * (1 - t * t) * FORMULA_GELU_ROOT * (1 + 3 * FORMULA_GELU_CUBE * x * x);
}
MR_ELEMENTWISE(gelu_tanh, 1, formula_gelu(x[0]), value_naive(x[0]))
MR_ELEMENTWISE(gelu_tanh_grad, 2, formula_gelu_slope(x[0]) * x[1], slope_naive(x[0]) * x[1])

static mr_status grad(mr_grad *ctx)
{
    return mr_grad_node(ctx, 0, "gelu_tanh_grad", ctx->in[0], ctx->dout[0]);
}
static void cost(const mr_call *call, mr_cost *cost)
{
    (void)call;
    cost->flop *= FLOP;
}

MR_OP(gelu_tanh) = {
    .name = "gelu_tanh",
    .doc = "Gaussian error linear unit, tanh form, elementwise.",
    .ref = "Hendrycks & Gimpel 2016, arXiv:1606.08415; torch 2.2 GELU(approximate='tanh')",
    .in = {{"x", "[...] f32|bf16", MR_ANY, 0}},
    .out = {{"y", "like x", 1, false, MR_ANY}},
    .infer = mr_infer_like,
    .grad = grad,
    .cost = cost,
    .naive = gelu_tanh_naive,
    .cpu = {.run = MR_CPU(gelu_tanh)},
    .fusion = {"linear", "linear_gelu", 0},
    .cheap = true,
    .cases = MR_CASES("x=[2,7,64] f32 -4..4", "x=[3,30001] f32 -20..20", "x=[5,33]/any f32",
                      "x=[2,7,65] bf16 -4..4", "x=[3,333] f32 -300..300",
                      "x=[3,333] bf16 -300..300"),
};
MR_OP(gelu_tanh_grad) = {
    .name = "gelu_tanh_grad",
    .doc = "Gradient of gelu_tanh: dy * gelu_tanh'(x).",
    .in = {{"x", "[...] f32|bf16", MR_ANY, 0}, {"dy", "like x", MR_ANY, 0}},
    .out = {{"dx", "like x", 2, false, MR_ANY}},
    .infer = mr_infer_like,
    .cost = cost,
    .naive = gelu_tanh_grad_naive,
    .cpu = {.run = MR_CPU(gelu_tanh_grad)},
    .fusion = {"linear_dx", "linear_dx_gelu", 1},
    .hidden = true,
    .cases = MR_CASES("x=[2,7,64] f32 -6..6 dy=[2,7,64] f32", "x=[5,33]/any f32 dy=[5,33] f32",
                      "x=[2,7,65] bf16 -4..4 dy=[2,7,65] bf16",
                      "x=[3,333] f32 -300..300 dy=[3,333] f32"),
};
