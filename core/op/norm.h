/* norm: what the norm ops share: the attribute eps, moments of a row of f32 or bf16, sums over
 * rows. A row is the last dimension of the first input. Licence: Apache-2.0 */
#ifndef MR_NORM_H
#define MR_NORM_H

#include "op/define.h"

/* The cost of a call; flop and moved are operations and elements per element of the first input. */
MR_OP_FN mr_cost mr_norm_cost(const mr_call *c, double flop, double moved)
{
    double n = (double)mr_desc_count(&c->in[0].desc);
    return (mr_cost){flop * n, moved * n * (double)mr_dtype_bytes(c->in[0].desc.dtype)};
}

typedef struct mr_norm_attr {
    double eps;
} mr_norm_attr;
#define MR_NORM_EPS(value, to)                                                                     \
    {                                                                                              \
        "eps", MR_ATTR_F64, offsetof(mr_norm_attr, eps), .def = (value), .min = 0, .max = 1,       \
                                                         .doc = "added to " to                     \
    }

/* ---- rms: y in the order of x; one op for the gradients of x and of the weight ---- */

MR_OP_FN void mr_norm_infer_rms(mr_infer *c)
{
    c->out[0] = *c->in[0];
    mr_desc_dense_like(c->in[0], &c->out[0]);
}

/* infer of the gradient: dx like x, in the order of x. acc [d] f32; absent if w needs no
 * gradient. */
MR_OP_FN mr_status mr_norm_grad_infer(mr_infer *c, const mr_desc *dy, const mr_desc *acc)
{
    const mr_desc *x = c->in[0];
    MR_TRY(mr_infer_same(x, "x", dy, "dy"));
    if (acc && (acc->rank != 1 || acc->dim[0] != x->dim[x->rank - 1]))
        return mr_fail(MR_E_SHAPE, "expected acc [d] f32");
    mr_norm_infer_rms(c);
    if (acc)
        c->out[1] = *acc;
    return MR_OK;
}

/* The gradient by `op`, whose inputs are the n inputs, dy and, if needed, the gradient of the
 * weight. The weight is input 1. */
MR_OP_FN mr_status mr_norm_grad_rms(mr_grad *g, const char *op, int n)
{
    const mr_norm_attr *a = g->attr;
    mr_ref in[MR_MAX_IN], out[2];
    memcpy(in, g->in, (size_t)n * sizeof *in);
    in[n] = g->dout[0], in[n + 1] = MR_NONE;
    if (g->need[1])
        MR_TRY(mr_grad_acc(g, 1, &in[n + 1]));
    MR_TRY(mr_grad_op(g, op, MR_ATTRS({"eps", .f = a->eps}), in, n + 2, out));
    g->din[0] = out[0], g->din[1] = out[1];
    return MR_OK;
}

/* ---- rows ---- */

MR_OP_FN int64_t mr_norm_width(const mr_call *c)
{
    return c->in[0].desc.dim[c->in[0].desc.rank - 1];
}
MR_OP_FN int64_t mr_norm_rows(const mr_call *c)
{
    return mr_norm_width(c) ? mr_desc_count(&c->in[0].desc) / mr_norm_width(c) : 0;
}

/* Run `part` over all rows, which are independent. */
MR_OP_FN void mr_norm_each(const mr_call *c, mr_cpu_body *part)
{
    if (mr_norm_width(c) > 0)
        mr_cpu_for(mr_norm_rows(c), MR_MAX(16384 / mr_norm_width(c), 1), c->threads, part,
                   (void *)c);
}

/* Sums over rows are f32, in MR_NORM_PIECES fixed pieces of rows that are added in order, so the
 * bits do not depend on the number of threads. */
enum { MR_NORM_PIECES = 64 };
MR_OP_FN size_t mr_norm_workspace(const mr_call *c, const mr_facts *facts)
{
    (void)facts;
    return (size_t)(MR_NORM_PIECES * mr_norm_width(c)) * 4;
}
MR_OP_FN int64_t mr_norm_per_piece(const mr_call *c)
{
    return MR_MAX((mr_norm_rows(c) + MR_NORM_PIECES - 1) / MR_NORM_PIECES, 1);
}

/* The sum of the piece that starts at a row, zeroed. */
MR_OP_FN float *mr_norm_piece(const mr_call *c, int64_t begin)
{
    int64_t d = mr_norm_width(c);
    return memset((float *)c->workspace + begin / mr_norm_per_piece(c) * d, 0, (size_t)d * 4);
}

/* x with lanes >= n set to zero. */
VF_INLINE vf vf_keep(vf x, int64_t n)
{
    float t[VF_LANES];
    vf_store(t, x);
    return vf_loadn(t, n);
}

/* Mean and 1 / sqrt(var + eps) of row[at .. at + n), by the sum and the centred second moment. */
VF_INLINE void mr_row_moments(const void *row, int64_t at, int64_t n, float eps, mr_dtype t,
                              float *mean, float *rstd)
{
    int64_t pair = n - n % (2 * VF_LANES);
    vf a = vf_zero(), b = vf_zero();
    for (int64_t k = 0; k < pair; k += 2 * VF_LANES) {
        a = a + vf_ld(row, at + k, t);
        b = b + vf_ld(row, at + k + VF_LANES, t);
    }
    for (int64_t k = pair; k < n; k += VF_LANES)
        a = a + vf_ldx(row, at + k, 1, MR_MIN(n - k, (int64_t)VF_LANES), t);
    *mean = vf_sum(a + b) / (float)n;
    vf m = vf_set(*mean);
    a = b = vf_zero();
    for (int64_t k = 0; k < pair; k += 2 * VF_LANES) {
        vf x = vf_ld(row, at + k, t) - m, y = vf_ld(row, at + k + VF_LANES, t) - m;
        a = vf_fma(x, x, a);
        b = vf_fma(y, y, b);
    }
    for (int64_t k = pair; k < n; k += VF_LANES) {
        int64_t left = MR_MIN(n - k, (int64_t)VF_LANES);
        vf x = vf_keep(vf_ldx(row, at + k, 1, left, t) - m, left);
        a = vf_fma(x, x, a);
    }
    *rstd = 1.0f / sqrtf(vf_sum(a + b) / (float)n + eps);
}

/* 1 / sqrt(mean(x^2) + eps) of n elements with the stride `step`. */
VF_INLINE float mr_row_rms(const void *row, int64_t at, int64_t step, int64_t n, float eps,
                           mr_dtype t)
{
    int64_t whole = n - n % VF_LANES;
    vf a = vf_zero();
    for (int64_t k = 0; k < whole; k += VF_LANES) {
        vf x = vf_ldx(row, at + k * step, step, VF_LANES, t);
        a = vf_fma(x, x, a);
    }
    if (whole < n) {
        vf x = vf_ldx(row, at + whole * step, step, n - whole, t);
        a = vf_fma(x, x, a);
    }
    return 1.0f / sqrtf(vf_sum(a) / (float)n + eps);
}

/* x, rounded to dtype t. */
VF_INLINE vf vf_round(vf x, mr_dtype t)
{
    return t == MR_BF16 ? vf_second(vf_pair(x, x)) : x;
}

/* Swap the lanes of each pair (a, b). */
VF_INLINE vf vf_swap(vf x)
{
#if defined(__AVX512F__)
    return _mm512_permute_ps(x, 0xB1);
#elif defined(__AVX2__) && defined(__FMA__)
    return _mm256_permute_ps(x, 0xB1);
#else
    return (vf){x[1], x[0], x[3], x[2]};
#endif
}

/* One row of angles, duplicated for pairs: the rotation of x is x * c + vf_swap(x) * s, the inverse
 * has -s. */
enum { MR_ROTARY_MAX = 512 };
typedef struct mr_turn {
    float c[MR_ROTARY_MAX], s[MR_ROTARY_MAX];
} mr_turn;
VF_INLINE void mr_turn_set(mr_turn *t, const float *cos, const float *sin, int64_t half,
                           bool inverse)
{
    for (int64_t k = 0; k < half; k++) {
        float s = inverse ? -sin[k] : sin[k];
        t->c[2 * k] = t->c[2 * k + 1] = cos[k];
        t->s[2 * k] = -s, t->s[2 * k + 1] = s;
    }
}

/* out[k] = (add ? add[k] : 0) + sum over p < pieces of part[p * stride + k], in order, stored as
 * t. */
VF_INLINE void mr_add_pieces(const float *part, int64_t pieces, int64_t stride, int64_t n,
                             const float *add, void *out, int64_t at, mr_dtype t)
{
    for (int64_t k = 0; k < n; k += VF_LANES) {
        int64_t left = MR_MIN(n - k, (int64_t)VF_LANES);
        vf sum = add ? vf_ldx(add, k, 1, left, MR_F32) : vf_zero();
        for (int64_t p = 0; p < pieces; p++)
            sum = sum + vf_ldx(part, p * stride + k, 1, left, MR_F32);
        vf_stx(out, at + k, 1, sum, left, t);
    }
}

/* Run `part` over the pieces; then output `out`, if needed, = input `acc` + the sums in the
 * workspace. */
MR_OP_FN void mr_norm_sum(const mr_call *c, mr_cpu_body *part, int acc, int out)
{
    int64_t per = mr_norm_per_piece(c), rows = mr_norm_rows(c), d = mr_norm_width(c);
    mr_cpu_for(rows, per, c->threads, part, (void *)c);
    if (c->out[out].data)
        mr_add_pieces(c->workspace, (rows + per - 1) / per, d, d, c->in[acc].data, c->out[out].data,
                      0, MR_F32);
}

#endif
