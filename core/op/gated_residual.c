/* gated_residual: y = x + gate * a, with one gate per (sample, frame, channel).
 *
 *   x, a, y [B, T, S, C]   gate [B, T, C], often with stride 0 over T
 * Backward: dx = dy; da = gate * dy; dgate = sum over S of dy * a. Reads and writes 3 elements per
 * element, forward and backward. y can overwrite x, and da can overwrite a. */
#include "op/frame.h"

static mr_status infer(mr_infer *c)
{
    const mr_desc *x = c->in[0], *g = c->in[1], *a = c->in[2];
    if (x->rank != 4 || g->rank != 3 || g->dim[0] != x->dim[0] || g->dim[1] != x->dim[1] ||
        g->dim[2] != x->dim[3])
        return mr_fail(MR_E_SHAPE,
                       "expected x [B, T, S, C] and gate [B, T, C] with the same B, T and C");
    if (!mr_desc_same_shape(x, a))
        return mr_fail(MR_E_SHAPE, "expected a with the shape of x");
    if (x->dtype != g->dtype || x->dtype != a->dtype)
        return mr_fail(MR_E_SHAPE, "expected x, gate and a of one dtype");
    c->out[0] = *x;
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    mr_ref out[2];
    g->din[0] = g->dout[0];
    if (!g->need[1] && !g->need[2])
        return MR_OK;
    MR_TRY(mr_grad_op(g, "gated_residual_grad", MR_NO_ATTRS,
                      (mr_ref[]){g->in[1], g->in[2], g->dout[0]}, 3, out));
    g->din[2] = out[0], g->din[1] = out[1];
    return MR_OK;
}

static void cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 2, 3);
}

static mr_status naive(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t t = 0; t < n[1]; t++)
            for (int64_t s = 0; s < n[2]; s++)
                for (int64_t k = 0; k < n[3]; k++)
                    *mr_el(&c->out[0], b, t, s, k, 0) =
                        *mr_el(&c->in[0], b, t, s, k, 0) +
                        *mr_el(&c->in[1], b, t, k, 0, 0) * *mr_el(&c->in[2], b, t, s, k, 0);
    return MR_OK;
}

static mr_status grad_infer(mr_infer *c)
{
    const mr_desc *g = c->in[0], *a = c->in[1];
    if (a->rank != 4 || !mr_desc_same_shape(a, c->in[2]))
        return mr_fail(MR_E_SHAPE, "expected a and dy [B, T, S, C]");
    if (g->rank != 3 || g->dim[0] != a->dim[0] || g->dim[1] != a->dim[1] || g->dim[2] != a->dim[3])
        return mr_fail(MR_E_SHAPE, "expected gate [B, T, C] with B, T and C of a");
    c->out[0] = *a;
    c->out[1] = mr_desc_dense(a->dtype, 3, g->dim);
    return MR_OK;
}

static void grad_cost(const mr_call *c, mr_cost *cost)
{
    double n = (double)mr_desc_count(&c->in[1].desc),
           e = (double)mr_dtype_bytes(c->in[1].desc.dtype);
    *cost = (mr_cost){3 * n, 3 * n * e};
}

static mr_status grad_naive(const mr_call *c)
{
    const int64_t *n = c->in[1].desc.dim;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t t = 0; t < n[1]; t++)
            for (int64_t k = 0; k < n[3]; k++) {
                double sum = 0, gate = *mr_el(&c->in[0], b, t, k, 0, 0);
                for (int64_t s = 0; s < n[2]; s++) {
                    double dy = *mr_el(&c->in[2], b, t, s, k, 0),
                           a = *mr_el(&c->in[1], b, t, s, k, 0);
                    sum += dy * a;
                    *mr_el(&c->out[0], b, t, s, k, 0) = gate * dy;
                }
                *mr_el(&c->out[1], b, t, k, 0, 0) = sum;
            }
    return MR_OK;
}

// compute rows begin .. end of [B * T * S]
VF_INLINE void forward_rows(const mr_call *c, int64_t begin, int64_t end, mr_dtype t)
{
    const mr_desc *g = &c->in[1].desc;
    const int64_t *n = c->in[0].desc.dim, C = n[3], step = g->stride[2];
    for (int64_t i = begin; i < end; i++) {
        int64_t gate = frame_at(g, i / n[2], n[1]), at = i * C;
        for (int64_t k = 0; k < C; k += VF_LANES) {
            int64_t m = MR_MIN(C - k, (int64_t)VF_LANES);
            vf y = vf_fma(vf_ldx(c->in[1].data, gate + k * step, step, m, t),
                          vf_ldx(c->in[2].data, at + k, 1, m, t),
                          vf_ldx(c->in[0].data, at + k, 1, m, t));
            vf_stx(c->out[0].data, at + k, 1, y, m, t);
        }
    }
}

MR_CHUNK(forward_part, forward_rows, 0)

MR_KERNEL(gated_residual)
{
    mr_norm_each(call, forward_part);
    return MR_OK;
}

// compute da of a piece of a frame, and its share of dgate
VF_INLINE void backward_piece(const mr_call *c, int64_t i, mr_dtype t)
{
    const mr_desc *g = &c->in[0].desc;
    const int64_t *n = c->in[1].desc.dim, C = n[3], step = g->stride[2];
    mr_piece p = frame_piece(&c->in[1].desc, i);
    int64_t gate = frame_at(g, p.bt, n[1]);
    float *part = (float *)c->workspace + i * C;
    memset(part, 0, (size_t)C * 4);
    for (int64_t s = p.first; s < p.last; s++) {
        int64_t at = (p.bt * n[2] + s) * C;
        for (int64_t k = 0; k < C; k += VF_LANES) {
            int64_t m = MR_MIN(C - k, (int64_t)VF_LANES);
            vf dy = vf_ldx(c->in[2].data, at + k, 1, m, t),
               a = vf_ldx(c->in[1].data, at + k, 1, m, t);
            vf_stx(part, k, 1, vf_fma(dy, a, vf_ldx(part, k, 1, m, MR_F32)), m, MR_F32);
            vf_stx(c->out[0].data, at + k, 1,
                   dy * vf_ldx(c->in[0].data, gate + k * step, step, m, t), m, t);
        }
    }
}

VF_INLINE void backward_pieces(const mr_call *c, int64_t begin, int64_t end, mr_dtype t)
{
    for (int64_t i = begin; i < end; i++)
        backward_piece(c, i, t);
}

MR_CHUNK(backward_part, backward_pieces, 1)

MR_KERNEL(gated_residual_grad)
{
    frame_sums(call, &call->in[1].desc, 1, backward_part);
    return MR_OK;
}

static size_t grad_workspace(const mr_call *c, const mr_facts *facts)
{
    (void)facts;
    return frame_workspace(&c->in[1].desc, 1);
}

MR_OP(gated_residual) = {
    .name = "gated_residual",
    .doc = "Add a branch to the residual stream, scaled by a gate per sample, frame and channel.",
    .ref = "Peebles & Xie 2022, arXiv:2212.09748 (adaLN-Zero); Open-Sora 1.2 STDiT3 block",
    .in = {{"x", "[B, T, S, C] f32|bf16", MR_CONTIG, 0},
           {"gate", "[B, T, C] like x", MR_ANY, 0},
           {"a", "[B, T, S, C] like x", MR_CONTIG, 0}},
    .out = {{"y", "like x", 1, false, MR_CONTIG}},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(gated_residual)},
    .cheap = true,
    .cases = MR_CASES("x=[2,3,5,7] f32 gate=[2,3,7] f32 a=[2,3,5,7] f32",
                      "x=[1,2,3,64] f32 gate=[1,2,64]/any f32 a=[1,2,3,64] f32",
                      "x=[2,1,130,33] f32 gate=[2,1,33] f32 a=[2,1,130,33] f32",
                      "x=[2,2,9,72] bf16 gate=[2,2,72] bf16 a=[2,2,9,72] bf16"),
};
MR_OP(gated_residual_grad) = {
    .name = "gated_residual_grad",
    .doc = "Gradients of the branch and the gate of gated_residual.",
    .in = {{"gate", "[B, T, C] like a", MR_ANY, 0},
           {"a", "[B, T, S, C] f32|bf16", MR_CONTIG, 0},
           {"dy", "like a", MR_CONTIG, 0}},
    .out = {{"da", "like a", 2, false, MR_CONTIG},
            {"dgate", "[B, T, C] like a", 0, false, MR_CONTIG}},
    .infer = grad_infer,
    .cost = grad_cost,
    .naive = grad_naive,
    .cpu = {.run = MR_CPU(gated_residual_grad), .workspace = grad_workspace},
    .hidden = true,
    .cases = MR_CASES("gate=[2,3,7] f32 a=[2,3,5,7] f32 dy=[2,3,5,7] f32",
                      "gate=[1,2,64]/any f32 a=[1,2,3,64] f32 dy=[1,2,3,64] f32",
                      "gate=[2,1,33] f32 a=[2,1,260,33] f32 dy=[2,1,260,33] f32",
                      "gate=[2,2,72] bf16 a=[2,2,9,72] bf16 dy=[2,2,9,72] bf16",
                      "gate=[1,2,24] f32 a=[1,2,1100,24] f32 dy=[1,2,1100,24] f32",
                      "gate=[1,2,24] bf16 a=[1,2,1100,24] bf16 dy=[1,2,1100,24] bf16"),
};
