/* normalise_u8: y = x 2 / 255 - 1: converts the pixels of a clip to -1..1 in one pass. The bits
 * equal those of a cast to f32, one fused multiply-add, and a cast to the dtype of y. Memory-bound.
 * Licence: Apache-2.0 */
#include "op/define.h"

typedef struct normalise {
    int64_t dtype;
} normalise;

VF_INLINE void run(const mr_call *call, const int64_t *at, int64_t n, const int64_t *step,
                   mr_dtype to)
{
    const uint8_t *x = (const uint8_t *)call->in[0].data + at[1];
    for (int64_t i = 0; i < n; i += VF_LANES) {
        int64_t m = MR_MIN((int64_t)VF_LANES, n - i);
        float wide[VF_LANES] = {0};
        for (int64_t k = 0; k < m; k++)
            wide[k] = x[(i + k) * step[1]];
        vf_stx(call->out[0].data, at[0] + i * step[0], step[0], formula_pixel(vf_load(wide)), m,
               to);
    }
}

static void part(void *user, const int64_t *at, int64_t n, const int64_t *step)
{
    static const int64_t ones[] = {1, 1};
    const mr_call *call = user;
    bool plain = step[0] == 1 && step[1] == 1;
    if (call->out[0].desc.dtype == MR_BF16)
        run(call, at, n, plain ? ones : step, MR_BF16);
    else
        run(call, at, n, plain ? ones : step, MR_F32);
}

MR_KERNEL(normalise_u8)
{
    mr_loop_call(call, 0, 1, part);
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    const normalise *a = c->attr;
    if (a->dtype != MR_F32 && a->dtype != MR_BF16)
        return mr_fail(MR_E_SHAPE, "dtype is %s, expected f32 or bf16",
                       mr_dtype_name((mr_dtype)a->dtype));
    mr_infer_out(c, 0, (mr_dtype)a->dtype, c->in[0]->rank, c->in[0]->dim);
    return MR_OK;
}

static mr_status naive(const mr_call *call)
{
    const uint8_t *x = call->in[0].data;
    double *y = call->out[0].data;
    for (int64_t i = 0, end = mr_desc_count(&call->out[0].desc); i < end; i++)
        y[i] = x[i] * 2.0 / 255 - 1;
    return MR_OK;
}

MR_OP(normalise_u8) = {
    .name = "normalise_u8",
    .doc = "Pixels 0..255 as floats -1..1, in f32 or bf16.",
    .in = {{"x", "[...] u8", MR_ANY, MR_NO_GRAD}},
    .out = {{"y", "[...] f32|bf16", 0, false, MR_ANY}},
    .attr = {{"dtype", MR_ATTR_I64, offsetof(normalise, dtype), .def = MR_BF16, .min = 0,
              .max = MR_DTYPE_COUNT - 1, .doc = "dtype code"}},
    .infer = infer,
    .naive = naive,
    .cpu = {.run = MR_CPU(normalise_u8)},
    .cases = MR_CASES("x=[3,5,17]/any u8 0..255 dtype=bf16", "x=[4,3,65] u8 0..255 dtype=f32",
                      "x=[2,3,40003] u8 0..255"),
};
