/* clamp: y = min(max(x, low), high), NaN stays NaN; dx = dy if low <= x <= high, else 0.
 * Memory-bound. Licence: Apache-2.0 */
#include "op/define.h"

typedef struct limits {
    double low, high;
} limits;

/* the nearest number within the limits; NaN stays NaN because vf_max returns its second argument
 * then */
VF_INLINE vf within(const limits *a, vf x)
{
    return vf_min(vf_set((float)a->high), vf_max(vf_set((float)a->low), x));
}

/* 1 if x is within the limits, else 0: two factors of 2^100 make any distance from the limits
 * larger than 1 */
VF_INLINE vf inside(const limits *a, vf x)
{
    vf far = vf_set(0x1p100f), d = x - within(a, x), one = vf_set(1.0f);
    return one - vf_min(one, vf_max(d, vf_set(0.0f) - d) * far * far);
}

// within() in f64, by comparisons, which keep a NaN
static double held(const limits *a, double x)
{
    if (x < a->low)
        return a->low;
    return x > a->high ? a->high : x;
}

MR_ELEMENTWISE(clamp, 1, within(attr, x[0]), held(attr, x[0]))
MR_ELEMENTWISE(clamp_grad, 2, inside(attr, x[0]) * x[1],
               x[0] >= ((const limits *)attr)->low && x[0] <= ((const limits *)attr)->high ? x[1]
                                                                                           : 0)

static mr_status infer(mr_infer *c)
{
    const limits *a = c->attr;
    if (!(a->low <= a->high))
        return mr_fail(MR_E_USAGE, "low is %g, high is %g; expected low <= high", a->low, a->high);
    return mr_infer_like(c);
}

static mr_status grad(mr_grad *ctx)
{
    const limits *a = ctx->attr;
    return mr_grad_op(ctx, "clamp_grad", MR_ATTRS({"low", .f = a->low}, {"high", .f = a->high}),
                      (mr_ref[]){ctx->in[0], ctx->dout[0]}, 2, &ctx->din[0]);
}

#define LIMITS                                                                                     \
    {"low", MR_ATTR_F64, offsetof(limits, low), .required = true, .doc = "least value"},           \
    {                                                                                              \
        "high", MR_ATTR_F64, offsetof(limits, high), .required = true, .doc = "greatest value"     \
    }
MR_OP(clamp) = {
    .name = "clamp",
    .doc = "The nearest value from low to high, elementwise.",
    .in = {{"x", "[...] f32|bf16", MR_ANY, 0}},
    .out = {{"y", "like x", 1, false, MR_ANY}},
    .attr = {LIMITS},
    .infer = infer,
    .grad = grad,
    .naive = clamp_naive,
    .cpu = {.run = MR_CPU(clamp)},
    .cheap = true,
    .cases = MR_CASES("x=[2,7,65] f32 -4..4 low=-1.5 high=2.25",
                      "x=[5,33]/any bf16 -4..4 low=0 high=3 rtol=1e-9",
                      "x=[3,333] f32 -1..1 low=-30 high=20"),
};
MR_OP(clamp_grad) = {
    .name = "clamp_grad",
    .doc = "Gradient of clamp: dy where x lies from low to high, else 0.",
    .in = {{"x", "[...] f32|bf16", MR_ANY, 0}, {"dy", "like x", MR_ANY, 0}},
    .out = {{"dx", "like x", 2, false, MR_ANY}},
    .attr = {LIMITS},
    .infer = infer,
    .naive = clamp_grad_naive,
    .cpu = {.run = MR_CPU(clamp_grad)},
    .hidden = true,
    .cases = MR_CASES("x=[2,7,65] f32 -4..4 dy=[2,7,65] f32 low=-1.5 high=2.25",
                      "x=[5,33]/any bf16 -4..4 dy=[5,33] bf16 low=0 high=3 rtol=1e-9"),
};
