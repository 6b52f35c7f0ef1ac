/* cast: the same values in another dtype. Lost bits are rounded to nearest even; floats become
 * integers by dropping the fraction. f32 and bf16 are vectorised, other pairs convert one element
 * at a time.
 * Licence: Apache-2.0 */
#include "op/define.h"

typedef struct cast {
    int64_t dtype;
} cast;

VF_INLINE void run(const mr_call *call, const int64_t *at, int64_t n, const int64_t *step,
                   mr_dtype to, mr_dtype from)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        int64_t m = MR_MIN((int64_t)VF_LANES, n - i);
        vf_stx(call->out[0].data, at[0] + i * step[0], step[0],
               vf_ldx(call->in[0].data, at[1] + i * step[1], step[1], m, from), m, to);
    }
}

static void part(void *user, const int64_t *at, int64_t n, const int64_t *step)
{
    static const int64_t ones[] = {1, 1};
    const mr_call *call = user;
    bool plain = step[0] == 1 && step[1] == 1;
    if (call->out[0].desc.dtype == MR_BF16)
        run(call, at, n, plain ? ones : step, MR_BF16, MR_F32);
    else
        run(call, at, n, plain ? ones : step, MR_F32, MR_BF16);
}

MR_KERNEL(cast)
{
    mr_dtype to = call->out[0].desc.dtype, from = call->in[0].desc.dtype;
    if (!(to == MR_BF16 && from == MR_F32) && !(to == MR_F32 && from == MR_BF16))
        return mr_view_copy(&call->out[0], &call->in[0]);
    mr_loop_call(call, 0, 1, part);
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    const cast *a = c->attr;
    mr_infer_out(c, 0, (mr_dtype)a->dtype, c->in[0]->rank, c->in[0]->dim);
    return MR_OK;
}
static mr_status grad(mr_grad *ctx)
{
    return mr_grad_op(ctx, "cast", MR_ATTRS({"dtype", .i = mr_grad_desc(ctx, ctx->in[0])->dtype}),
                      &ctx->dout[0], 1, &ctx->din[0]);
}
static mr_status naive(const mr_call *call)
{
    return mr_view_copy(&call->out[0], &call->in[0]);
}

MR_OP(cast) = {
    .name = "cast",
    .doc = "The same values in another dtype.",
    .in = {{"x", "[...] any dtype", MR_ANY, 0}},
    .out = {{"y", "[...] of the asked dtype", 0, false, MR_ANY}},
    .attr = {{"dtype", MR_ATTR_I64, offsetof(cast, dtype), .min = 0, .max = MR_DTYPE_COUNT - 1,
              .required = true, .doc = "dtype code"}},
    .infer = infer,
    .grad = grad,
    .naive = naive,
    .cpu = {.run = MR_CPU(cast)},
    .cases = MR_CASES("x=[3,5,17]/any f32 dtype=bf16", "x=[3,40003] bf16 dtype=f32",
                      "x=[7,9] i32 dtype=f32", "x=[7,9] f32 0..9 dtype=i32",
                      "x=[4,6] bool dtype=f32", "x=[5] f32 dtype=f64",
                      // rtol: half a step of a mantissa of three bits
                      "x=[9,7]/any f32 -440..440 dtype=f8_e4m3 rtol=0.0625 grad=elsewhere",
                      "x=[3,70] f8_e5m2 -600..600 dtype=bf16"),
};
