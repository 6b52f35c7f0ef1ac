/* affine: y = scale x + shift, scale and shift constant. Licence: Apache-2.0 */
#include "op/define.h"

typedef struct affine {
    double scale, shift;
} affine;

MR_ELEMENTWISE(affine, 1,
               vf_fma(x[0], vf_set((float)((const struct affine *)attr)->scale),
                      vf_set((float)((const struct affine *)attr)->shift)),
               x[0] * ((const struct affine *)attr)->scale + ((const struct affine *)attr)->shift)

static mr_status grad(mr_grad *ctx)
{
    const affine *a = ctx->attr;
    return mr_grad_op(ctx, "affine", MR_ATTRS({"scale", .f = a->scale}), &ctx->dout[0], 1,
                      &ctx->din[0]);
}

MR_OP(affine) = {
    .name = "affine",
    .doc = "scale * x + shift, elementwise.",
    .in = {{"x", "[...] f32|bf16", MR_ANY, 0}},
    .out = {{"y", "like x", 1, false, MR_ANY}},
    .attr = {{"scale", MR_ATTR_F64, offsetof(affine, scale), .def = 1, .doc = "factor"},
             {"shift", MR_ATTR_F64, offsetof(affine, shift), .def = 0, .doc = "summand"}},
    .infer = mr_infer_like,
    .grad = grad,
    .naive = affine_naive,
    .cpu = {.run = MR_CPU(affine)},
    .cases = MR_CASES("x=[3,5,17]/any f32 scale=-2.5 shift=0.75", "x=[4,65] bf16 shift=1"),
};
