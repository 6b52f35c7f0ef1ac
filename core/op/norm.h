/* norm: what the norm rows share: moments of one row of f32 or bf16, and piecewise sums over rows.
 * Licence: Apache-2.0 */
#ifndef MR_NORM_H
#define MR_NORM_H

#include "op/row.h"

/* Cost in operations and moved elements per element of the first input. */
MR_ROW_FN mr_cost mr_norm_cost(const mr_call *c, double flop, double moved)
{
    double n = (double)mr_desc_count(&c->in[0].desc);
    return (mr_cost){flop * n, moved * n * (double)mr_dtype_bytes(c->in[0].desc.dtype)};
}

/* infer of the gradients of rms rows: dx like x in x's order, acc [d] f32 like the given one,
 * absent where the gradient of w is not wanted. */
MR_ROW_FN mr_status mr_norm_grad_infer(mr_infer *c, const mr_desc *dy, const mr_desc *acc)
{
    const mr_desc *x = c->in[0];
    if (!mr_desc_same_shape(x, dy) || dy->dtype != x->dtype)
        return mr_fail(MR_E_SHAPE, "dy must be like x");
    if (acc && (acc->rank != 1 || acc->dim[0] != x->dim[x->rank - 1]))
        return mr_fail(MR_E_SHAPE, "acc must be [d] f32");
    c->out[0] = *x;
    mr_desc_dense_like(x, &c->out[0]);
    if (acc)
        c->out[1] = *acc;
    return MR_OK;
}

/* x with lanes >= n cleared. */
VF_INLINE vf vf_keep(vf x, int64_t n)
{
    float t[VF_LANES];
    vf_store(t, x);
    return vf_loadn(t, n);
}

/* Sum and centred second moment of row[at .. at + n): mean, and 1 / sqrt(var + eps). */
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

/* 1 / sqrt(mean(x^2) + eps) of n elements that lie `step` apart. */
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

/* x as it would come back from memory of dtype t. */
VF_INLINE vf vf_round(vf x, mr_dtype t)
{
    return t == MR_BF16 ? vf_second(vf_pair(x, x)) : x;
}

/* Pairs (a, b) of lanes exchanged. */
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

/* One row of angles, spread to pairs: rotating x is x * c + vf_swap(x) * s, turning back has -s. */
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

#endif
