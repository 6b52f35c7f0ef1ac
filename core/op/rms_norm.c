/* rms_norm: y = round(x * rsqrt(mean(x^2) + eps)) * w over the last dimension (the T5 and Llama
 * form: normalise in f32, round to the storage dtype, then multiply).
 *
 *   x [..., d], any strides; y dense in the order of x's strides    w [d]
 *
 * Backward, with r the reciprocal root, n = x r and g = dy w:
 *   dx = r (g - n mean(g n))    dw += sum over rows of dy n
 *
 * Reads and writes 2 elements per element forward, 3 backward. */
#include "cpu/rows.h"
#include "op/norm.h"

static mr_status check(const mr_desc *x, const mr_desc *w)
{
    if (x->rank < 1)
        return mr_fail(MR_E_SHAPE, "expected x [..., d]");
    if (w->rank != 1 || w->dim[0] != x->dim[x->rank - 1] || w->dtype != x->dtype)
        return mr_fail(MR_E_SHAPE, "expected w [d] with the last dimension and the dtype of x");
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    MR_TRY(check(c->in[0], c->in[1]));
    mr_norm_infer_rms(c);
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    return mr_norm_grad_rms(g, "rms_norm_grad", 2);
}

static void cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 4, 2);
}

static mr_status naive(const mr_call *c)
{
    const mr_norm_attr *at = c->attr;
    const mr_desc *x = &c->in[0].desc, *y = &c->out[0].desc;
    int64_t d = x->dim[x->rank - 1], sx = x->stride[x->rank - 1], sy = y->stride[y->rank - 1];
    const double *w = c->in[1].data;
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){y, x}, 2);
    mr_rows_seek(&rows, 0, &p);
    for (int64_t i = 0; i < rows.count; i++, mr_rows_next(&rows, &p)) {
        const double *in = (const double *)c->in[0].data + p.at[1];
        double *out = (double *)c->out[0].data + p.at[0], ss = 0;
        for (int64_t k = 0; k < d; k++)
            ss += in[k * sx] * in[k * sx];
        for (int64_t k = 0; k < d; k++)
            out[k * sy] = in[k * sx] / sqrt(ss / (double)d + at->eps) * w[k];
    }
    return MR_OK;
}

static mr_status grad_infer(mr_infer *c)
{
    MR_TRY(check(c->in[0], c->in[1]));
    return mr_norm_grad_infer(c, c->in[2], c->in[3]);
}

static void grad_cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 12, 3);
}

static mr_status grad_naive(const mr_call *c)
{
    const mr_norm_attr *at = c->attr;
    const mr_desc *x = &c->in[0].desc, *g = &c->in[2].desc, *o = &c->out[0].desc;
    int last = x->rank - 1;
    int64_t d = x->dim[last], sx = x->stride[last], sg = g->stride[last], so = o->stride[last];
    const double *w = c->in[1].data;
    double *dw = c->out[1].data;
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){o, x, g}, 3);
    mr_rows_seek(&rows, 0, &p);
    for (int64_t k = 0; dw && k < d; k++)
        dw[k] = ((const double *)c->in[3].data)[k];
    for (int64_t i = 0; i < rows.count; i++, mr_rows_next(&rows, &p)) {
        const double *in = (const double *)c->in[0].data + p.at[1],
                     *dy = (const double *)c->in[2].data + p.at[2];
        double *dx = (double *)c->out[0].data + p.at[0], ss = 0, gn = 0;
        for (int64_t k = 0; k < d; k++)
            ss += in[k * sx] * in[k * sx];
        double r = 1 / sqrt(ss / (double)d + at->eps);
        for (int64_t k = 0; k < d; k++)
            gn += dy[k * sg] * w[k] * in[k * sx] * r / (double)d;
        for (int64_t k = 0; k < d; k++) {
            if (dw)
                dw[k] += dy[k * sg] * in[k * sx] * r;
            dx[k * so] = r * (dy[k * sg] * w[k] - in[k * sx] * r * gn);
        }
    }
    return MR_OK;
}

static int64_t last_step(const mr_view *v)
{
    return v->desc.stride[v->desc.rank - 1];
}

VF_INLINE void forward_rows(const mr_call *c, int64_t begin, int64_t end, mr_dtype t)
{
    const mr_norm_attr *a = c->attr;
    int64_t d = mr_norm_width(c), sx = last_step(&c->in[0]), sy = last_step(&c->out[0]);
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){&c->out[0].desc, &c->in[0].desc}, 2);
    mr_rows_seek(&rows, begin, &p);
    for (int64_t i = begin; i < end; i++, mr_rows_next(&rows, &p)) {
        vf r = vf_set(mr_row_rms(c->in[0].data, p.at[1], sx, d, (float)a->eps, t));
        for (int64_t k = 0; k < d; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES);
            vf norm = vf_round(vf_ldx(c->in[0].data, p.at[1] + k * sx, sx, m, t) * r, t);
            vf_stx(c->out[0].data, p.at[0] + k * sy, sy, norm * vf_ldx(c->in[1].data, k, 1, m, t),
                   m, t);
        }
    }
}

MR_CHUNK(forward_part, forward_rows, 0)

MR_KERNEL(rms_norm)
{
    mr_norm_each(call, forward_part);
    return MR_OK;
}

VF_INLINE void grad_rows(const mr_call *c, int64_t begin, int64_t end, mr_dtype t)
{
    const mr_norm_attr *a = c->attr;
    const void *x = c->in[0].data, *w = c->in[1].data, *dy = c->in[2].data;
    int64_t d = mr_norm_width(c), sx = last_step(&c->in[0]), sg = last_step(&c->in[2]),
            so = last_step(&c->out[0]);
    float *part = c->out[1].data ? mr_norm_piece(c, begin) : NULL;
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){&c->out[0].desc, &c->in[0].desc, &c->in[2].desc}, 3);
    mr_rows_seek(&rows, begin, &p);
    for (int64_t i = begin; i < end; i++, mr_rows_next(&rows, &p)) {
        vf r = vf_set(mr_row_rms(x, p.at[1], sx, d, (float)a->eps, t)), gn = vf_zero();
        for (int64_t k = 0; k < d; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES);
            vf g = vf_ldx(dy, p.at[2] + k * sg, sg, m, t),
               gx = g * vf_ldx(x, p.at[1] + k * sx, sx, m, t) * r;
            gn = vf_fma(gx, vf_ldx(w, k, 1, m, t), gn);
            if (part)
                vf_stx(part, k, 1, vf_ldx(part, k, 1, m, MR_F32) + gx, m, MR_F32);
        }
        vf mean = vf_set(vf_sum(gn) / (float)d);
        for (int64_t k = 0; k < d; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES);
            vf g = vf_ldx(dy, p.at[2] + k * sg, sg, m, t) * vf_ldx(w, k, 1, m, t);
            vf norm = vf_ldx(x, p.at[1] + k * sx, sx, m, t) * r;
            vf_stx(c->out[0].data, p.at[0] + k * so, so, r * (g - norm * mean), m, t);
        }
    }
}

MR_CHUNK(grad_part, grad_rows, 0)

MR_KERNEL(rms_norm_grad)
{
    mr_norm_sum(call, grad_part, 3, 1);
    return MR_OK;
}

#define EPS MR_NORM_EPS(1e-6, "the mean square")
MR_OP(rms_norm) = {
    .name = "rms_norm",
    .doc = "Scale each row of x to unit root mean square, then multiply by w.",
    .ref = "Zhang & Sennrich 2019, arXiv:1910.07467; T5 layer norm",
    .in = {{"x", "[..., d] f32|bf16", MR_ANY, 0}, {"w", "[d] like x", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_ANY}},
    .attr = {EPS},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(rms_norm)},
    .cheap = true,
    .cases = MR_CASES("x=[2,7,64] f32 w=[64] f32", "x=[3,5,33]/any f32 w=[33] f32 eps=1e-5",
                      "x=[1152] f32 w=[1152] f32", "x=[2,7,72]/any bf16 w=[72] bf16",
                      "x=[2,7,33] f32 -0.002..0.002 w=[33] f32"),
};
MR_OP(rms_norm_grad) = {
    .name = "rms_norm_grad",
    .doc = "Gradient of rms_norm with respect to x; adds the gradient of w to acc.",
    .in = {{"x", "[..., d] f32|bf16", MR_ANY, 0},
           {"w", "[d] like x", MR_CONTIG, 0},
           {"dy", "like x", MR_ANY, 0},
           {"acc", "[d] f32", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"dx", "like x", 0, false, MR_ANY}, {"acc", "[d] f32", 4, true, MR_CONTIG}},
    .attr = {EPS},
    .infer = grad_infer,
    .cost = grad_cost,
    .naive = grad_naive,
    .cpu = {.run = MR_CPU(rms_norm_grad), .workspace = mr_norm_workspace},
    .hidden = true,
    .cases = MR_CASES("x=[2,7,64] f32 w=[64] f32 dy=[2,7,64] f32 acc=[64] f32",
                      "x=[5,33] f32 w=[33] f32 dy=[5,33]/any f32",
                      "x=[30,5,33]/any f32 w=[33] f32 dy=[30,5,33]/any f32 acc=[33] f32 eps=1e-5",
                      "x=[2,7,72]/any bf16 w=[72] bf16 dy=[2,7,72] bf16 acc=[72] f32",
                      "x=[2,7,33] f32 -0.002..0.002 w=[33] f32 dy=[2,7,33] f32 acc=[33] f32",
                      "x=[1300,40] bf16 w=[40] bf16 dy=[1300,40] bf16 acc=[40] f32"),
};
