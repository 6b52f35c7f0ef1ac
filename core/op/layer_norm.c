/* layer_norm: y = (x - mean) * rsqrt(var + eps) * w + b over the last dimension.
 *
 *   x, y [..., C]   w, b [C], each may be absent
 *
 * Backward, with n the normalised x and g = dy * w:
 *   dx  = rsqrt(var + eps) * (g - mean(g) - n * mean(g n))
 *   dw += sum over rows of dy n, by the op layer_norm_dw
 *   db += sum over rows of dy, by the op linear_db */
#include "cpu/rows.h"
#include "op/norm.h"

static mr_status check_weight(const mr_desc *x, const mr_desc *w, const char *name)
{
    if (x->rank < 1)
        return mr_fail(MR_E_SHAPE, "expected x [..., C]");
    if (w && (w->rank != 1 || w->dim[0] != x->dim[x->rank - 1] || w->dtype != x->dtype))
        return mr_fail(MR_E_SHAPE, "expected %s [C] with the last dimension and the dtype of x",
                       name);
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    MR_TRY(check_weight(c->in[0], c->in[1], "w"));
    MR_TRY(check_weight(c->in[0], c->in[2], "b"));
    c->out[0] = *c->in[0];
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    const mr_norm_attr *a = g->attr;
    if (g->need[0])
        MR_TRY(mr_grad_op(g, "layer_norm_grad", MR_ATTRS({"eps", .f = a->eps}),
                          (mr_ref[]){g->in[0], g->in[1], g->dout[0]}, 3, &g->din[0]));
    for (int i = 1; i < 3; i++) {
        if (g->in[i] == MR_NONE || !g->need[i])
            continue;
        mr_ref acc;
        MR_TRY(mr_grad_acc(g, i, &acc));
        if (i == 1)
            MR_TRY(mr_grad_op(g, "layer_norm_dw", MR_ATTRS({"eps", .f = a->eps}),
                              (mr_ref[]){g->in[0], g->dout[0], acc}, 3, &g->din[1]));
        else
            MR_TRY(mr_grad_op(g, "linear_db", MR_NO_ATTRS, (mr_ref[]){g->dout[0], acc}, 2,
                              &g->din[2]));
    }
    return MR_OK;
}

static void cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 8, 2);
}

// compute mean and 1 / standard deviation of a row of doubles
static void stats(const double *x, int64_t C, double eps, double *mean, double *rstd)
{
    double sum = 0, var = 0;
    for (int64_t k = 0; k < C; k++)
        sum += x[k];
    *mean = sum / (double)C;
    for (int64_t k = 0; k < C; k++)
        var += (x[k] - *mean) * (x[k] - *mean);
    *rstd = 1 / sqrt(var / (double)C + eps);
}

static mr_status naive(const mr_call *c)
{
    const mr_norm_attr *at = c->attr;
    const double *w = mr_given(&c->in[1]) ? c->in[1].data : NULL,
                 *b = mr_given(&c->in[2]) ? c->in[2].data : NULL;
    int64_t C = mr_norm_width(c);
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){&c->out[0].desc, &c->in[0].desc}, 2);
    mr_rows_seek(&rows, 0, &p);
    for (int64_t i = 0; i < rows.count; i++, mr_rows_next(&rows, &p)) {
        double *y = (double *)c->out[0].data + p.at[0], mean, rstd;
        const double *x = (const double *)c->in[0].data + p.at[1];
        stats(x, C, at->eps, &mean, &rstd);
        for (int64_t k = 0; k < C; k++)
            y[k] = (x[k] - mean) * rstd * (w ? w[k] : 1) + (b ? b[k] : 0);
    }
    return MR_OK;
}

static mr_status grad_infer(mr_infer *c)
{
    MR_TRY(check_weight(c->in[0], c->in[1], "w"));
    MR_TRY(mr_infer_same(c->in[0], "x", c->in[2], "dy"));
    c->out[0] = *c->in[0];
    return MR_OK;
}

static void grad_cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 14, 3);
}

static mr_status grad_naive(const mr_call *c)
{
    const mr_norm_attr *at = c->attr;
    const double *w = mr_given(&c->in[1]) ? c->in[1].data : NULL;
    int64_t C = mr_norm_width(c);
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){&c->out[0].desc, &c->in[0].desc, &c->in[2].desc}, 3);
    mr_rows_seek(&rows, 0, &p);
    for (int64_t i = 0; i < rows.count; i++, mr_rows_next(&rows, &p)) {
        double *dx = (double *)c->out[0].data + p.at[0], mean, rstd, g1 = 0, gn = 0;
        const double *x = (const double *)c->in[0].data + p.at[1],
                     *dy = (const double *)c->in[2].data + p.at[2];
        stats(x, C, at->eps, &mean, &rstd);
        for (int64_t k = 0; k < C; k++) {
            double g = dy[k] * (w ? w[k] : 1);
            g1 += g / (double)C, gn += g * (x[k] - mean) * rstd / (double)C;
        }
        for (int64_t k = 0; k < C; k++)
            dx[k] = rstd * (dy[k] * (w ? w[k] : 1) - g1 - (x[k] - mean) * rstd * gn);
    }
    return MR_OK;
}

static mr_status dw_infer(mr_infer *c)
{
    const mr_desc *x = c->in[0], *acc = c->in[2];
    MR_TRY(check_weight(x, NULL, ""));
    MR_TRY(mr_infer_same(x, "x", c->in[1], "dy"));
    if (acc->rank != 1 || acc->dim[0] != x->dim[x->rank - 1] ||
        !(acc->dtype == MR_F32 || acc->dtype == MR_F64))
        return mr_fail(MR_E_SHAPE, "expected acc [C] f32");
    c->out[0] = *acc;
    return MR_OK;
}

static void dw_cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 8, 2);
}

static mr_status dw_naive(const mr_call *c)
{
    const mr_norm_attr *at = c->attr;
    int64_t C = mr_norm_width(c);
    double *dw = c->out[0].data;
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){&c->in[0].desc, &c->in[1].desc}, 2);
    mr_rows_seek(&rows, 0, &p);
    for (int64_t k = 0; k < C; k++)
        dw[k] = ((const double *)c->in[2].data)[k];
    for (int64_t i = 0; i < rows.count; i++, mr_rows_next(&rows, &p)) {
        const double *x = (const double *)c->in[0].data + p.at[0],
                     *dy = (const double *)c->in[1].data + p.at[1];
        double mean, rstd;
        stats(x, C, at->eps, &mean, &rstd);
        for (int64_t k = 0; k < C; k++)
            dw[k] += dy[k] * (x[k] - mean) * rstd;
    }
    return MR_OK;
}

// compute rows begin .. end; w and b can be NULL
VF_INLINE void forward_rows(const mr_call *c, int64_t begin, int64_t end, mr_dtype t)
{
    const mr_norm_attr *a = c->attr;
    int64_t C = mr_norm_width(c);
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){&c->out[0].desc, &c->in[0].desc}, 2);
    mr_rows_seek(&rows, begin, &p);
    for (int64_t i = begin; i < end; i++, mr_rows_next(&rows, &p)) {
        float mean, rstd;
        mr_row_moments(c->in[0].data, p.at[1], C, (float)a->eps, t, &mean, &rstd);
        for (int64_t k = 0; k < C; k += VF_LANES) {
            int64_t m = MR_MIN(C - k, (int64_t)VF_LANES);
            vf y = (vf_ldx(c->in[0].data, p.at[1] + k, 1, m, t) - vf_set(mean)) * vf_set(rstd);
            if (c->in[1].data)
                y = y * vf_ldx(c->in[1].data, k, 1, m, t);
            if (c->in[2].data)
                y = y + vf_ldx(c->in[2].data, k, 1, m, t);
            vf_stx(c->out[0].data, p.at[0] + k, 1, y, m, t);
        }
    }
}

MR_CHUNK(forward_part, forward_rows, 0)

MR_KERNEL(layer_norm)
{
    mr_norm_each(call, forward_part);
    return MR_OK;
}

VF_INLINE void grad_rows(const mr_call *c, int64_t begin, int64_t end, mr_dtype t)
{
    const mr_norm_attr *a = c->attr;
    const void *x = c->in[0].data, *w = c->in[1].data, *dy = c->in[2].data;
    int64_t C = mr_norm_width(c);
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){&c->out[0].desc, &c->in[0].desc, &c->in[2].desc}, 3);
    mr_rows_seek(&rows, begin, &p);
    for (int64_t i = begin; i < end; i++, mr_rows_next(&rows, &p)) {
        float mean, rstd;
        mr_row_moments(x, p.at[1], C, (float)a->eps, t, &mean, &rstd);
        vf vm = vf_set(mean), vr = vf_set(rstd), g1 = vf_zero(), gn = vf_zero();
        for (int64_t k = 0; k < C; k += VF_LANES) {
            int64_t m = MR_MIN(C - k, (int64_t)VF_LANES);
            vf g = vf_ldx(dy, p.at[2] + k, 1, m, t);
            if (w)
                g = g * vf_ldx(w, k, 1, m, t);
            g1 = g1 + g, gn = vf_fma(g, (vf_ldx(x, p.at[1] + k, 1, m, t) - vm) * vr, gn);
        }
        vf v1 = vf_set(vf_sum(g1) / (float)C), vn = vf_set(vf_sum(gn) / (float)C);
        for (int64_t k = 0; k < C; k += VF_LANES) {
            int64_t m = MR_MIN(C - k, (int64_t)VF_LANES);
            vf g = vf_ldx(dy, p.at[2] + k, 1, m, t),
               norm = (vf_ldx(x, p.at[1] + k, 1, m, t) - vm) * vr;
            if (w)
                g = g * vf_ldx(w, k, 1, m, t);
            vf_stx(c->out[0].data, p.at[0] + k, 1, vr * (g - v1 - norm * vn), m, t);
        }
    }
}

MR_CHUNK(grad_part, grad_rows, 0)

MR_KERNEL(layer_norm_grad)
{
    mr_norm_each(call, grad_part);
    return MR_OK;
}

// sum dy * normalised x over one piece
VF_INLINE void dw_rows(const mr_call *c, int64_t begin, int64_t end, mr_dtype t)
{
    const mr_norm_attr *a = c->attr;
    int64_t C = mr_norm_width(c);
    float *part = mr_norm_piece(c, begin);
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){&c->in[0].desc, &c->in[1].desc}, 2);
    mr_rows_seek(&rows, begin, &p);
    for (int64_t i = begin; i < end; i++, mr_rows_next(&rows, &p)) {
        float mean, rstd;
        mr_row_moments(c->in[0].data, p.at[0], C, (float)a->eps, t, &mean, &rstd);
        for (int64_t k = 0; k < C; k += VF_LANES) {
            int64_t m = MR_MIN(C - k, (int64_t)VF_LANES);
            vf norm = (vf_ldx(c->in[0].data, p.at[0] + k, 1, m, t) - vf_set(mean)) * vf_set(rstd);
            vf sum = vf_fma(vf_ldx(c->in[1].data, p.at[1] + k, 1, m, t), norm,
                            vf_ldx(part, k, 1, m, MR_F32));
            vf_stx(part, k, 1, sum, m, MR_F32);
        }
    }
}

MR_CHUNK(dw_part, dw_rows, 0)

MR_KERNEL(layer_norm_dw)
{
    mr_norm_sum(call, dw_part, 2, 0);
    return MR_OK;
}

#define EPS MR_NORM_EPS(1e-5, "the variance")
MR_OP(layer_norm) = {
    .name = "layer_norm",
    .doc = "Normalise each row to zero mean and unit variance, then scale by w and add b.",
    .ref = "Ba et al. 2016, arXiv:1607.06450",
    .in = {{"x", "[..., C] f32|bf16", MR_ROWS, 0},
           {"w", "[C] like x", MR_CONTIG, MR_OPTIONAL},
           {"b", "[C] like x", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"y", "like x", 1, false, MR_ROWS}},
    .attr = {EPS},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(layer_norm)},
    .cheap = true,
    .cases = MR_CASES("x=[2,5,7] f32", "x=[3,64] f32 w=[64] f32 b=[64] f32 eps=1e-6",
                      "x=[3,4,33]/rows f32 2..3 w=[33] f32",
                      "x=[2,9,72] bf16 w=[72] bf16 b=[72] bf16",
                      "x=[2,9,33] f32 -0.005..0.005 w=[33] f32 b=[33] f32"),
};
MR_OP(layer_norm_grad) = {
    .name = "layer_norm_grad",
    .doc = "Gradient of layer_norm with respect to x.",
    .in = {{"x", "[..., C] f32|bf16", MR_ROWS, 0},
           {"w", "[C] like x", MR_CONTIG, MR_OPTIONAL},
           {"dy", "like x", MR_ROWS, 0}},
    .out = {{"dx", "like x", 3, false, MR_ROWS}},
    .attr = {EPS},
    .infer = grad_infer,
    .cost = grad_cost,
    .naive = grad_naive,
    .cpu = {.run = MR_CPU(layer_norm_grad)},
    .hidden = true,
    .cases = MR_CASES("x=[2,5,7] f32 dy=[2,5,7] f32",
                      "x=[3,4,33]/rows f32 w=[33] f32 dy=[3,4,33] f32",
                      "x=[2,9,72] bf16 w=[72] bf16 dy=[2,9,72] bf16",
                      "x=[2,9,33] f32 -0.005..0.005 w=[33] f32 dy=[2,9,33] f32"),
};
MR_OP(layer_norm_dw) = {
    .name = "layer_norm_dw",
    .doc = "Add the gradient of layer_norm's weight to acc.",
    .in = {{"x", "[..., C] f32|bf16", MR_ROWS, 0},
           {"dy", "like x", MR_ROWS, 0},
           {"acc", "[C] f32", MR_CONTIG, 0}},
    .out = {{"acc", "[C] f32", 3, true, MR_CONTIG}},
    .attr = {EPS},
    .infer = dw_infer,
    .cost = dw_cost,
    .naive = dw_naive,
    .cpu = {.run = MR_CPU(layer_norm_dw), .workspace = mr_norm_workspace},
    .hidden = true,
    .cases = MR_CASES("x=[2,5,7] f32 dy=[2,5,7] f32 acc=[7] f32",
                      "x=[100,4,33]/rows f32 dy=[100,4,33] f32 acc=[33] f32",
                      "x=[2,9,72] bf16 dy=[2,9,72] bf16 acc=[72] f32",
                      "x=[2,9,33] f32 -0.005..0.005 dy=[2,9,33] f32 acc=[33] f32",
                      "x=[1300,40] bf16 dy=[1300,40] bf16 acc=[40] f32"),
};
