/* dynamic8: encodes numbers as 8-bit codes with one scale per block, and decodes them. Optimizers
 * store their moments this way.
 *
 *   scale [b] = largest |x| of block b                (f32; at most FLT_MAX)
 *   codes [i] = the code whose value is nearest to x[i] / scale
 *   x[i]      = value of codes[i] times scale         (values: op/dynamic8.h)
 *
 * With `root` codes and scale encode square roots. So second moments cover as many decades as first
 * ones, and fewer numbers that change by a hundredth per step round back to their old code.
 *
 * A block whose codes already represent its numbers is not written: a step that changes no number
 * changes no bit. Near the largest magnitude, neighbouring values differ by at most 1 %; with each
 * decade below, they are 10 times coarser (spec/core/op/dynamic8.c checks the bounds). Encoding
 * reads 4 bytes per number and its old code, and writes 1 byte; decoding reads 1 and writes 4. The
 * last block can be short. There are no sums, so the bits do not depend on the team.
 * Licence: Apache-2.0 */
#include "cpu/rows.h"
#include "op/define.h"

#include "op/dynamic8.h"

#include <float.h>

enum { CHUNK = 64, PIECE = 8192 };
typedef struct attr {
    bool has_sign, root;
    int64_t block;
} attr;

static int64_t blocks_of(const mr_call *c)
{
    const attr *a = c->attr;
    return (mr_desc_count(&c->in[0].desc) + a->block - 1) / a->block;
}

static mr_status check(const mr_infer *c, const mr_desc *all, const mr_desc *scale)
{
    const attr *a = c->attr;
    MR_TRY(mr_infer_rank(all, "the first argument", 1));
    MR_TRY(mr_infer_rank(scale, "scale", 1));
    int64_t blocks = (all->dim[0] + a->block - 1) / a->block;
    if (scale->dim[0] != blocks)
        return mr_fail(
            MR_E_SHAPE,
            "scale has %lld numbers, expected %lld: one per block of %lld of %lld numbers",
            (long long)scale->dim[0], (long long)blocks, (long long)a->block,
            (long long)all->dim[0]);
    return MR_OK;
}

/* ---- kernels ---- */

typedef struct job {
    const mr_call *call;
    float value[DYNAMIC8_CODES], border[DYNAMIC8_CODES];
    int64_t block;
    bool has_sign, root;
} job;

static job job_of(const mr_call *c)
{
    const attr *a = c->attr;
    job j = {.call = c, .block = a->block, .has_sign = a->has_sign, .root = a->root};
    for (int k = 0; k < DYNAMIC8_CODES; k++) {
        j.value[k] = dynamic8_value(a->has_sign, k);
        j.border[k] = dynamic8_border(a->has_sign, k);
    }
    return j;
}

/* dynamic8_code of n <= CHUNK numbers, with borders from the table of the job. */
VF_INLINE void nearest(const job *j, const float *x, int64_t n, float scale, uint8_t *codes,
                       bool has_sign)
{
    const float by = scale > 0 ? scale : 1;
    float share[CHUNK];
    int32_t at[CHUNK];
    for (int64_t k = 0; k < n; k++)
        share[k] = dynamic8_kept(j->root, x[k]) / by;
    for (int64_t k = 0; k < n; k++)
        at[k] = dynamic8_part(has_sign, share[k]);
    for (int64_t k = 0; k < n; k++) {
        int down = at[k] > 0 && !(j->border[MR_MAX(at[k] - 1, 0)] < share[k]);
        int up = j->border[at[k]] < share[k];
        codes[k] = (uint8_t)(at[k] - down + up);
    }
}

VF_INLINE bool stands(const job *j, const float *x, int64_t n, float scale, const uint8_t *codes)
{
    for (int64_t k = 0; k < n; k++)
        if (dynamic8_number(j->root, j->value[codes[k]] * scale) != x[k])
            return false;
    return true;
}

VF_INLINE float largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t k = 0; k < n; k++)
        most = fabsf(x[k]) > most ? fabsf(x[k]) : most;
    return most < FLT_MAX ? most : FLT_MAX;
}

static void encode_part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const mr_call *c = j->call;
    (void)worker;
    for (int64_t b = begin; b < end; b++) {
        int64_t from = b * j->block, n = MR_MIN(j->block, c->in[0].desc.dim[0] - from);
        const float *x = (const float *)c->in[0].data + from;
        uint8_t *codes = (uint8_t *)c->out[0].data + from;
        float *scale = (float *)c->out[1].data + b;
        if (stands(j, x, n, *scale, codes))
            continue;
        *scale = dynamic8_kept(j->root, largest(x, n));
        for (int64_t k = 0; k < n; k += CHUNK) {
            int64_t m = MR_MIN(n - k, (int64_t)CHUNK);
            if (j->has_sign)
                nearest(j, x + k, m, *scale, codes + k, true);
            else
                nearest(j, x + k, m, *scale, codes + k, false);
        }
    }
}

MR_KERNEL(encode_dynamic8)
{
    job j = job_of(call);
    mr_cpu_for(blocks_of(call), MR_MAX(PIECE / j.block, (int64_t)1), call->threads, encode_part,
               &j);
    return MR_OK;
}

static void decode_part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const mr_call *c = j->call;
    (void)worker;
    for (int64_t b = begin; b < end; b++) {
        int64_t from = b * j->block, n = MR_MIN(j->block, c->in[0].desc.dim[0] - from);
        const uint8_t *codes = (const uint8_t *)c->in[0].data + from;
        float scale = ((const float *)c->in[1].data)[b], *x = (float *)c->out[0].data + from;
        for (int64_t k = 0; k < n; k++)
            x[k] = dynamic8_number(j->root, j->value[codes[k]] * scale);
    }
}

MR_KERNEL(decode_dynamic8)
{
    job j = job_of(call);
    mr_cpu_for(blocks_of(call), MR_MAX(PIECE / j.block, (int64_t)1), call->threads, decode_part,
               &j);
    return MR_OK;
}

/* ---- naive ---- */

// the code with the nearest value, by trying all; of two equally near ones the lower
static int naive_code(bool has_sign, float share)
{
    int best = 0;
    double want = fmin((double)share, 1);
    for (int k = 1; k < DYNAMIC8_CODES; k++)
        if (fabs(want - (double)dynamic8_value(has_sign, k)) <
            fabs(want - (double)dynamic8_value(has_sign, best)))
            best = k;
    return best;
}

static mr_status naive_encode(const mr_call *c)
{
    const attr *a = c->attr;
    const double *x = c->in[0].data, *old_scale = c->in[2].data;
    const uint8_t *old = c->in[1].data;
    uint8_t *codes = c->out[0].data;
    double *scale = c->out[1].data;
    int64_t n = c->in[0].desc.dim[0];
    for (int64_t b = 0; b * a->block < n; b++) {
        int64_t from = b * a->block, to = MR_MIN(from + a->block, n);
        bool same = true;
        double most = 0;
        for (int64_t i = from; i < to; i++) {
            float kept = dynamic8_value(a->has_sign, old[i]) * (float)old_scale[b];
            same &= dynamic8_number(a->root, kept) == (float)x[i];
            most = fmin(fmax(most, fabs(x[i])), (double)FLT_MAX);
        }
        float largest_kept = dynamic8_kept(a->root, (float)most);
        scale[b] = same ? old_scale[b] : (double)largest_kept;
        for (int64_t i = from; i < to; i++) {
            float kept = dynamic8_kept(a->root, (float)x[i]);
            codes[i] = same
                           ? old[i]
                           : (uint8_t)naive_code(a->has_sign, kept / (most > 0 ? largest_kept : 1));
        }
    }
    return MR_OK;
}

static mr_status naive_decode(const mr_call *c)
{
    const attr *a = c->attr;
    const uint8_t *codes = c->in[0].data;
    const double *scale = c->in[1].data;
    double *x = c->out[0].data;
    for (int64_t i = 0; i < c->in[0].desc.dim[0]; i++) {
        double kept = (double)dynamic8_value(a->has_sign, codes[i]) * scale[i / a->block];
        x[i] = a->root ? kept * kept : kept;
    }
    return MR_OK;
}

/* ---- definitions ---- */

static mr_status infer_encode(mr_infer *c)
{
    MR_TRY(check(c, c->in[0], c->in[2]));
    if (!mr_desc_same_shape(c->in[0], c->in[1]))
        return mr_fail(MR_E_SHAPE, "expected codes [n] with n of x");
    c->out[0] = *c->in[1];
    c->out[1] = *c->in[2];
    return MR_OK;
}

static mr_status infer_decode(mr_infer *c)
{
    MR_TRY(check(c, c->in[0], c->in[1]));
    mr_infer_out(c, 0, MR_F32, 1, c->in[0]->dim);
    return MR_OK;
}

static void cost_encode(const mr_call *c, mr_cost *cost)
{
    double n = (double)mr_desc_count(&c->in[0].desc), b = (double)blocks_of(c);
    *cost = (mr_cost){20 * n, 6 * n + 8 * b};
}

static void cost_decode(const mr_call *c, mr_cost *cost)
{
    double n = (double)mr_desc_count(&c->in[0].desc), b = (double)blocks_of(c);
    *cost = (mr_cost){n, 5 * n + 4 * b};
}

#define SIGNED                                                                                     \
    {                                                                                              \
        "signed", MR_ATTR_BOOL, offsetof(attr, has_sign), .doc = "numbers can be negative"         \
    }
#define ROOT                                                                                       \
    {                                                                                              \
        "root", MR_ATTR_BOOL, offsetof(attr, root), .doc = "codes encode square roots"             \
    }
#define BLOCK                                                                                      \
    {                                                                                              \
        "block", MR_ATTR_I64, offsetof(attr, block), .def = 64, .min = 1, .max = 1 << 20,          \
                                                     .doc = "numbers per block"                    \
    }

MR_OP(encode_dynamic8) = {
    .name = "encode_dynamic8",
    .doc = "Encode numbers as 8-bit codes of the nearest of 256 values over seven decades, "
           "relative to the largest magnitude of each block.",
    .ref = "Dettmers 2015, arXiv:1511.04561; Dettmers et al. 2021, arXiv:2110.02861",
    .in = {{"x", "[n] f32", MR_CONTIG, MR_NO_GRAD},
           {"codes", "[n] u8", MR_CONTIG, MR_NO_GRAD},
           {"scale", "[blocks] f32", MR_CONTIG, MR_NO_GRAD}},
    .out = {{"codes", "[n] u8", 2, true, MR_CONTIG}, {"scale", "[blocks] f32", 3, true, MR_CONTIG}},
    .attr = {SIGNED, ROOT, BLOCK},
    .infer = infer_encode,
    .cost = cost_encode,
    .naive = naive_encode,
    .cpu = {.run = MR_CPU(encode_dynamic8)},
    .hidden = true,
    .cases = MR_CASES("x=[64] f32 -2..3 codes=[64] u8 0..255 scale=[1] f32 signed=1",
                      "x=[9001] f32 0..1 codes=[9001] u8 0..255 scale=[141] f32 0..1",
                      "x=[1000] f32 -1e-3..1e-3 codes=[1000] u8 0..255 scale=[4] f32 0..1 "
                      "block=256 signed=1",
                      "x=[70] f32 -9..3 codes=[70] u8 0..255 scale=[10] f32 block=7 signed=1",
                      "x=[190] f32 0..1e-9 codes=[190] u8 0..255 scale=[3] f32 root=1",
                      // zeros, as in a first step: over codes that fit, and over other codes
                      "x=[70] f32 0..0 codes=[70] u8 0..0 scale=[2] f32 0..0 signed=1",
                      "x=[70] f32 0..0 codes=[70] u8 3..9 scale=[2] f32 1..2",
                      // numbers whose squares underflow or overflow f32
                      "x=[90] f32 -1e-38..1e-38 codes=[90] u8 0..255 scale=[2] f32 signed=1",
                      "x=[90] f32 -3e38..3e38 codes=[90] u8 0..255 scale=[2] f32 signed=1",
                      "x=[90] f32 inf..inf codes=[90] u8 0..255 scale=[2] f32"),
};

MR_OP(decode_dynamic8) = {
    .name = "decode_dynamic8",
    .doc = "Decode 8-bit codes to numbers.",
    .ref = "Dettmers et al. 2021, arXiv:2110.02861",
    .in = {{"codes", "[n] u8", MR_CONTIG, MR_NO_GRAD},
           {"scale", "[blocks] f32", MR_CONTIG, MR_NO_GRAD}},
    .out = {{"x", "[n] f32", 0, false, MR_CONTIG}},
    .attr = {SIGNED, ROOT, BLOCK},
    .infer = infer_decode,
    .cost = cost_decode,
    .naive = naive_decode,
    .cpu = {.run = MR_CPU(decode_dynamic8)},
    .hidden = true,
    .cases = MR_CASES("codes=[64] u8 0..255 scale=[1] f32 0..2 signed=1",
                      "codes=[9001] u8 0..255 scale=[141] f32 0..1",
                      "codes=[70] u8 0..255 scale=[10] f32 0..1 block=7 signed=1",
                      "codes=[70] u8 0..255 scale=[2] f32 0..2 root=1",
                      "codes=[70] u8 0..9 scale=[2] f32 0..0"),
};
