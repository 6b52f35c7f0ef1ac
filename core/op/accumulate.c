/* accumulate: acc += x, acc in f32. It adds a gradient to that of a parameter if the op that
 * computes it cannot add.
 * Licence: Apache-2.0 */
#include "op/define.h"

VF_INLINE void run(const mr_call *call, const int64_t *at, int64_t n, const int64_t *step,
                   mr_dtype t)
{
    float *acc = call->out[0].data;
    for (int64_t i = 0; i < n; i += VF_LANES) {
        int64_t m = MR_MIN((int64_t)VF_LANES, n - i), k = at[0] + i * step[0];
        vf_stx(acc, k, step[0],
               vf_ldx(acc, k, step[0], m, MR_F32) +
                   vf_ldx(call->in[1].data, at[1] + i * step[1], step[1], m, t),
               m, MR_F32);
    }
}

static void part(void *user, const int64_t *at, int64_t n, const int64_t *step)
{
    static const int64_t ones[] = {1, 1};
    const mr_call *call = user;
    const int64_t *s = step[0] == 1 && step[1] == 1 ? ones : step;
    if (call->in[1].desc.dtype == MR_BF16)
        run(call, at, n, s, MR_BF16);
    else
        run(call, at, n, s, MR_F32);
}

MR_KERNEL(accumulate)
{
    mr_loop_call(call, 1, 1, part);
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    MR_TRY(mr_infer_same_shape(c->in[0], "acc", c->in[1], "x"));
    mr_infer_out_like(c, 0, c->in[0]);
    return MR_OK;
}
static mr_status naive(const mr_call *call)
{
    const double *acc = call->in[0].data, *x = call->in[1].data;
    double *y = call->out[0].data;
    for (int64_t i = 0, n = mr_desc_count(&call->out[0].desc); i < n; i++)
        y[i] = acc[i] + x[i];
    return MR_OK;
}

MR_OP(accumulate) = {
    .name = "accumulate",
    .doc = "acc + x, stored in acc (f32).",
    .in = {{"acc", "[...] f32", MR_CONTIG, 0}, {"x", "[...] f32|bf16", MR_ANY, 0}},
    .out = {{"acc", "like acc", 1, true, MR_CONTIG}},
    .infer = infer,
    .naive = naive,
    .cpu = {.run = MR_CPU(accumulate)},
    .hidden = true,
    .cases = MR_CASES("acc=[3,5,17] f32 x=[3,5,17]/any f32", "acc=[7,4099] f32 x=[7,4099] bf16"),
};
