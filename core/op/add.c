/* add: y = a + b. Licence: Apache-2.0 */
#include "op/define.h"

MR_ELEMENTWISE(add, 2, x[0] + x[1], x[0] + x[1])

static mr_status grad(mr_grad *ctx)
{
    ctx->din[0] = ctx->din[1] = ctx->dout[0];
    return MR_OK;
}

MR_OP(add) = {
    .name = "add",
    .doc = "a + b, elementwise over equal shapes.",
    .in = {{"a", "[...] f32|bf16", MR_ANY, 0}, {"b", "like a", MR_ANY, 0}},
    .out = {{"y", "like a", 1, false, MR_ANY}},
    .infer = mr_infer_like,
    .grad = grad,
    .naive = add_naive,
    .cpu = {.run = MR_CPU(add)},
    .cases = MR_CASES("a=[3,5,17] f32 b=[3,5,17] f32", "a=[3,40000] f32 b=[3,40000]/any f32",
                      "a=[] f32 b=[] f32", "a=[4,65]/any bf16 b=[4,65] bf16"),
};
