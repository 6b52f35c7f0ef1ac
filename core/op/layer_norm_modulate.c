/* layer_norm_modulate: y = LayerNorm(x) * (1 + scale) + shift; LayerNorm has no weight and no bias
 * here.
 *
 *   x, y [B, T, S, C]   shift, scale [B, T, C], often with stride 0 over T
 *   mean, var over C (biased), n = (x - mean) * rsqrt(var + eps)
 * Backward, with g = dy * (1 + scale):
 *   dx = rsqrt(var + eps) * (g - mean(g) - n * mean(g n)); dshift = sum_S dy; dscale = sum_S dy n
 * Reads and writes 2 elements per element forward, 3 backward; a row stays in the L1 cache between
 * its passes. */
#include "op/frame.h"

static mr_status check(const mr_desc *x, const mr_desc *m, const char *name)
{
    if (x->rank != 4)
        return mr_fail(MR_E_SHAPE, "expected x [B, T, S, C], got rank %d", x->rank);
    if (m->rank != 3 || m->dim[0] != x->dim[0] || m->dim[1] != x->dim[1] || m->dim[2] != x->dim[3])
        return mr_fail(MR_E_SHAPE, "expected %s [B, T, C] with B, T and C of x", name);
    if (m->dtype != x->dtype)
        return mr_fail(MR_E_SHAPE, "expected %s with the dtype of x", name);
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    MR_TRY(check(c->in[0], c->in[1], "shift"));
    MR_TRY(check(c->in[0], c->in[2], "scale"));
    c->out[0] = *c->in[0];
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    const mr_norm_attr *a = g->attr;
    mr_ref out[3];
    MR_TRY(mr_grad_op(g, "layer_norm_modulate_grad", MR_ATTRS({"eps", .f = a->eps}),
                      (mr_ref[]){g->in[0], g->in[2], g->dout[0]}, 3, out));
    for (int i = 0; i < 3; i++)
        g->din[i] = out[i];
    return MR_OK;
}

static void cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 8, 2);
}

// compute mean and 1 / standard deviation of a row of doubles
static void stats(const mr_view *x, int64_t b, int64_t t, int64_t s, double eps, double *mean,
                  double *rstd)
{
    int64_t C = x->desc.dim[3];
    double sum = 0, var = 0;
    for (int64_t k = 0; k < C; k++)
        sum += *mr_el(x, b, t, s, k, 0);
    *mean = sum / (double)C;
    for (int64_t k = 0; k < C; k++) {
        double d = *mr_el(x, b, t, s, k, 0) - *mean;
        var += d * d;
    }
    *rstd = 1 / sqrt(var / (double)C + eps);
}

static mr_status naive(const mr_call *c)
{
    const mr_norm_attr *at = c->attr;
    const int64_t *n = c->in[0].desc.dim;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t t = 0; t < n[1]; t++)
            for (int64_t s = 0; s < n[2]; s++) {
                double mean, rstd;
                stats(&c->in[0], b, t, s, at->eps, &mean, &rstd);
                for (int64_t k = 0; k < n[3]; k++)
                    *mr_el(&c->out[0], b, t, s, k, 0) = (*mr_el(&c->in[0], b, t, s, k, 0) - mean) *
                                                            rstd *
                                                            (1 + *mr_el(&c->in[2], b, t, k, 0, 0)) +
                                                        *mr_el(&c->in[1], b, t, k, 0, 0);
            }
    return MR_OK;
}

static mr_status grad_infer(mr_infer *c)
{
    const mr_desc *x = c->in[0];
    MR_TRY(check(x, c->in[1], "scale"));
    MR_TRY(mr_infer_same(x, "x", c->in[2], "dy"));
    c->out[0] = *x;
    c->out[1] = c->out[2] = mr_desc_dense(x->dtype, 3, c->in[1]->dim);
    return MR_OK;
}

static void grad_cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 16, 3);
}

static mr_status grad_naive(const mr_call *c)
{
    const mr_norm_attr *at = c->attr;
    const mr_view *x = &c->in[0], *scale = &c->in[1], *dy = &c->in[2];
    const int64_t *n = x->desc.dim;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t t = 0; t < n[1]; t++) {
            for (int64_t k = 0; k < n[3]; k++)
                *mr_el(&c->out[1], b, t, k, 0, 0) = *mr_el(&c->out[2], b, t, k, 0, 0) = 0;
            for (int64_t s = 0; s < n[2]; s++) {
                double mean, rstd, g1 = 0, gn = 0;
                stats(x, b, t, s, at->eps, &mean, &rstd);
                for (int64_t k = 0; k < n[3]; k++) {
                    double norm = (*mr_el(x, b, t, s, k, 0) - mean) * rstd,
                           d = *mr_el(dy, b, t, s, k, 0);
                    double g = d * (1 + *mr_el(scale, b, t, k, 0, 0));
                    g1 += g / (double)n[3], gn += g * norm / (double)n[3];
                    *mr_el(&c->out[1], b, t, k, 0, 0) += d;
                    *mr_el(&c->out[2], b, t, k, 0, 0) += d * norm;
                }
                for (int64_t k = 0; k < n[3]; k++) {
                    double norm = (*mr_el(x, b, t, s, k, 0) - mean) * rstd;
                    double g = *mr_el(dy, b, t, s, k, 0) * (1 + *mr_el(scale, b, t, k, 0, 0));
                    *mr_el(&c->out[0], b, t, s, k, 0) = rstd * (g - g1 - norm * gn);
                }
            }
        }
    return MR_OK;
}

// compute rows begin .. end of [B * T * S]
VF_INLINE void forward_rows(const mr_call *c, int64_t begin, int64_t end, mr_dtype t)
{
    const mr_norm_attr *a = c->attr;
    const mr_desc *sh = &c->in[1].desc, *sc = &c->in[2].desc;
    const int64_t *n = c->in[0].desc.dim, C = n[3];
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * C, shift = frame_at(sh, i / n[2], n[1]),
                scale = frame_at(sc, i / n[2], n[1]);
        float mean, rstd;
        mr_row_moments(c->in[0].data, at, C, (float)a->eps, t, &mean, &rstd);
        for (int64_t k = 0; k < C; k += VF_LANES) {
            int64_t m = MR_MIN(C - k, (int64_t)VF_LANES);
            vf norm = (vf_ldx(c->in[0].data, at + k, 1, m, t) - vf_set(mean)) * vf_set(rstd);
            vf s = vf_ldx(c->in[2].data, scale + k * sc->stride[2], sc->stride[2], m, t);
            vf b = vf_ldx(c->in[1].data, shift + k * sh->stride[2], sh->stride[2], m, t);
            vf_stx(c->out[0].data, at + k, 1, vf_fma(norm, vf_set(1.0f) + s, b), m, t);
        }
    }
}

MR_CHUNK(forward_part, forward_rows, 0)

MR_KERNEL(layer_norm_modulate)
{
    mr_norm_each(call, forward_part);
    return MR_OK;
}

// compute dx of a piece of a frame, and its share of dshift and dscale
VF_INLINE void backward_piece(const mr_call *c, int64_t i, mr_dtype t)
{
    const mr_norm_attr *a = c->attr;
    const void *x = c->in[0].data, *dy = c->in[2].data;
    const mr_desc *sc = &c->in[1].desc;
    const int64_t *n = c->in[0].desc.dim, C = n[3], step = sc->stride[2];
    mr_piece p = frame_piece(&c->in[0].desc, i);
    int64_t scale = frame_at(sc, p.bt, n[1]);
    float *dshift = (float *)c->workspace + i * 2 * C, *dscale = dshift + C;
    memset(dshift, 0, (size_t)C * 8);
    for (int64_t s = p.first; s < p.last; s++) {
        int64_t at = (p.bt * n[2] + s) * C;
        float mean, rstd;
        mr_row_moments(x, at, C, (float)a->eps, t, &mean, &rstd);
        vf vm = vf_set(mean), vr = vf_set(rstd), one = vf_set(1.0f), g1 = vf_zero(), gn = vf_zero();
        for (int64_t k = 0; k < C; k += VF_LANES) {
            int64_t m = MR_MIN(C - k, (int64_t)VF_LANES);
            vf d = vf_ldx(dy, at + k, 1, m, t), norm = (vf_ldx(x, at + k, 1, m, t) - vm) * vr;
            vf g = d * (one + vf_ldx(c->in[1].data, scale + k * step, step, m, t));
            g1 = g1 + g, gn = vf_fma(g, norm, gn);
            vf_stx(dshift, k, 1, vf_ldx(dshift, k, 1, m, MR_F32) + d, m, MR_F32);
            vf_stx(dscale, k, 1, vf_fma(d, norm, vf_ldx(dscale, k, 1, m, MR_F32)), m, MR_F32);
        }
        // lanes past the end of the row have d = 0 and add nothing to the sums
        vf v1 = vf_set(vf_sum(g1) / (float)C), vn = vf_set(vf_sum(gn) / (float)C);
        for (int64_t k = 0; k < C; k += VF_LANES) {
            int64_t m = MR_MIN(C - k, (int64_t)VF_LANES);
            vf norm = (vf_ldx(x, at + k, 1, m, t) - vm) * vr;
            vf g = vf_ldx(dy, at + k, 1, m, t) *
                   (one + vf_ldx(c->in[1].data, scale + k * step, step, m, t));
            vf_stx(c->out[0].data, at + k, 1, vr * (g - v1 - norm * vn), m, t);
        }
    }
}

VF_INLINE void backward_pieces(const mr_call *c, int64_t begin, int64_t end, mr_dtype t)
{
    for (int64_t i = begin; i < end; i++)
        backward_piece(c, i, t);
}

MR_CHUNK(backward_part, backward_pieces, 0)

MR_KERNEL(layer_norm_modulate_grad)
{
    frame_sums(call, &call->in[0].desc, 2, backward_part);
    return MR_OK;
}

static size_t grad_workspace(const mr_call *c, const mr_facts *facts)
{
    (void)facts;
    return frame_workspace(&c->in[0].desc, 2);
}

#define EPS MR_NORM_EPS(1e-6, "the variance")
MR_OP(layer_norm_modulate) = {
    .name = "layer_norm_modulate",
    .doc = "Layer norm without affine, then scale and shift per sample, frame and channel.",
    .ref = "Peebles & Xie 2022, arXiv:2212.09748 (adaLN); Open-Sora 1.2 STDiT3 block",
    .in = {{"x", "[B, T, S, C] f32|bf16", MR_CONTIG, 0},
           {"shift", "[B, T, C] like x", MR_ANY, 0},
           {"scale", "[B, T, C] like x", MR_ANY, 0}},
    .out = {{"y", "like x", 0, false, MR_CONTIG}},
    .attr = {EPS},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(layer_norm_modulate)},
    .cheap = true,
    .cases = MR_CASES("x=[2,3,5,7] f32 shift=[2,3,7] f32 scale=[2,3,7] f32",
                      "x=[1,2,3,64] f32 shift=[1,2,64]/any f32 scale=[1,2,64]/any f32",
                      "x=[2,1,130,33] f32 3..5 shift=[2,1,33] f32 scale=[2,1,33] f32 eps=1e-5",
                      "x=[1,1,2,1152] f32 shift=[1,1,1152] f32 scale=[1,1,1152] f32",
                      "x=[2,2,9,72] bf16 shift=[2,2,72] bf16 scale=[2,2,72] bf16",
                      "x=[1,2,9,33] f32 -0.002..0.002 shift=[1,2,33] f32 scale=[1,2,33] f32"),
};
MR_OP(layer_norm_modulate_grad) = {
    .name = "layer_norm_modulate_grad",
    .doc = "Gradients of x, shift and scale of layer_norm_modulate.",
    .in = {{"x", "[B, T, S, C] f32|bf16", MR_CONTIG, 0},
           {"scale", "[B, T, C] like x", MR_ANY, 0},
           {"dy", "like x", MR_CONTIG, 0}},
    .out = {{"dx", "like x", 3, false, MR_CONTIG},
            {"dshift", "[B, T, C] like x", 0, false, MR_CONTIG},
            {"dscale", "[B, T, C] like x", 0, false, MR_CONTIG}},
    .attr = {EPS},
    .infer = grad_infer,
    .cost = grad_cost,
    .naive = grad_naive,
    .cpu = {.run = MR_CPU(layer_norm_modulate_grad), .workspace = grad_workspace},
    .hidden = true,
    .cases = MR_CASES("x=[2,3,5,7] f32 scale=[2,3,7] f32 dy=[2,3,5,7] f32",
                      "x=[1,2,3,64] f32 scale=[1,2,64]/any f32 dy=[1,2,3,64] f32",
                      "x=[2,1,260,33] f32 3..5 scale=[2,1,33] f32 dy=[2,1,260,33] f32 eps=1e-5",
                      "x=[2,2,9,72] bf16 scale=[2,2,72] bf16 dy=[2,2,9,72] bf16",
                      "x=[1,2,9,33] f32 -0.002..0.002 scale=[1,2,33] f32 dy=[1,2,9,33] f32",
                      "x=[1,2,1100,24] bf16 scale=[1,2,24] bf16 dy=[1,2,1100,24] bf16",
                      "x=[1,1,1100,24] f32 scale=[1,1,24] f32 dy=[1,1,1100,24] f32"),
};
