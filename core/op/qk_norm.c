/* qk_norm: rms_norm of each head, then rotary if cos and sin are given, in one pass over q or k.
 *
 *   x [B, G, N, h, d], any strides; y dense in the order of x's strides
 *   w [d]    cos, sin [N, d/2] f32
 *
 *   r = rsqrt(mean(x^2) + eps)    n = round(x r)    y = turn(n w)
 * Backward, with z = dy, rotated back:
 *   dw += sum over rows of z n    dx = r (z w - n mean(z w n))
 *
 * Reads and writes 2 elements per element forward, 3 backward. The gradient prefetches its rows: in
 * a step of the demo it takes 0.67 (avx512, bf16) or 0.46 (avx2, f32) of the time without. */
#include "cpu/rows.h"
#include "op/norm.h"

static mr_status check(const mr_desc *const *in)
{
    const mr_desc *x = in[0], *w = in[1];
    if (x->rank != 5 || x->dim[4] > MR_ROTARY_MAX)
        return mr_fail(MR_E_SHAPE, "expected x [B, G, N, h, d] with d at most %d", MR_ROTARY_MAX);
    if (w->rank != 1 || w->dim[0] != x->dim[4] || w->dtype != x->dtype)
        return mr_fail(MR_E_SHAPE, "expected w [d] with d and the dtype of x");
    if (!in[2] != !in[3])
        return mr_fail(MR_E_SHAPE, "one of cos and sin is given; expected both or neither");
    for (int i = 2; in[2] && i < 4; i++)
        if (in[i]->rank != 2 || in[i]->dim[0] != x->dim[2] || in[i]->dim[1] * 2 != x->dim[4])
            return mr_fail(MR_E_SHAPE, "expected cos and sin [N, d/2] with N and d of x");
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    MR_TRY(check(c->in));
    mr_norm_infer_rms(c);
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    return mr_norm_grad_rms(g, "qk_norm_grad", 4);
}

static void cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 7, 2);
}

// Element k of x, rotated by the angle of position p, or back if sign < 0. `step` is the stride of
// x.
static double turned(const mr_call *c, const double *x, int64_t step, int64_t p, int64_t k,
                     double sign)
{
    if (!mr_given(&c->in[2]))
        return x[k * step];
    double co = *mr_el(&c->in[2], p, k / 2, 0, 0, 0),
           si = sign * *mr_el(&c->in[3], p, k / 2, 0, 0, 0);
    return k % 2 ? x[k * step] * co + x[(k - 1) * step] * si
                 : x[k * step] * co - x[(k + 1) * step] * si;
}

static double rms(const double *x, int64_t step, int64_t d, double eps)
{
    double ss = 0;
    for (int64_t k = 0; k < d; k++)
        ss += x[k * step] * x[k * step];
    return 1 / sqrt(ss / (double)d + eps);
}

static mr_status naive(const mr_call *c)
{
    const mr_norm_attr *at = c->attr;
    const int64_t *n = c->in[0].desc.dim, sx = c->in[0].desc.stride[4];
    const double *w = c->in[1].data;
    double z[MR_ROTARY_MAX];
    for (int64_t i = 0; i < n[0] * n[1] * n[2] * n[3]; i++) {
        int64_t h = i % n[3], p = i / n[3] % n[2], g = i / n[3] / n[2] % n[1],
                b = i / n[3] / n[2] / n[1];
        const double *x = mr_el(&c->in[0], b, g, p, h, 0);
        double r = rms(x, sx, n[4], at->eps);
        for (int64_t k = 0; k < n[4]; k++)
            z[k] = x[k * sx] * r * w[k];
        for (int64_t k = 0; k < n[4]; k++)
            *mr_el(&c->out[0], b, g, p, h, k) = turned(c, z, 1, p, k, 1);
    }
    return MR_OK;
}

static mr_status grad_infer(mr_infer *c)
{
    MR_TRY(check(c->in));
    return mr_norm_grad_infer(c, c->in[4], c->in[5]);
}

static void grad_cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 16, 3);
}

static mr_status grad_naive(const mr_call *c)
{
    const mr_norm_attr *at = c->attr;
    const int64_t *n = c->in[0].desc.dim, sx = c->in[0].desc.stride[4],
                  sg = c->in[4].desc.stride[4];
    const double *w = c->in[1].data;
    double *dw = c->out[1].data;
    for (int64_t k = 0; dw && k < n[4]; k++)
        dw[k] = ((const double *)c->in[5].data)[k];
    for (int64_t i = 0; i < n[0] * n[1] * n[2] * n[3]; i++) {
        int64_t h = i % n[3], p = i / n[3] % n[2], g = i / n[3] / n[2] % n[1],
                b = i / n[3] / n[2] / n[1];
        const double *x = mr_el(&c->in[0], b, g, p, h, 0), *dy = mr_el(&c->in[4], b, g, p, h, 0);
        double r = rms(x, sx, n[4], at->eps), mean = 0;
        for (int64_t k = 0; k < n[4]; k++) {
            double z = turned(c, dy, sg, p, k, -1);
            mean += z * w[k] * x[k * sx] * r / (double)n[4];
            if (dw)
                dw[k] += z * x[k * sx] * r;
        }
        for (int64_t k = 0; k < n[4]; k++)
            *mr_el(&c->out[0], b, g, p, h, k) =
                r * (turned(c, dy, sg, p, k, -1) * w[k] - x[k * sx] * r * mean);
    }
    return MR_OK;
}

// The table of angles as a view with the shape of x: only N has a stride.
static mr_desc table_desc(const mr_desc *x)
{
    mr_desc t = *x;
    for (int k = 0; k < 5; k++)
        t.stride[k] = k == 2 ? x->dim[4] / 2 : 0;
    return t;
}

// compute `m` columns from k on; `t` is a compile-time constant
VF_INLINE void forward_at(const mr_call *c, const mr_rows_pos *p, const mr_turn *turn, vf r,
                          int64_t k, int64_t m, int64_t sx, int64_t sy, mr_dtype t)
{
    vf y = vf_round(vf_ldx(c->in[0].data, p->at[1] + k * sx, sx, m, t) * r, t) *
           vf_ldx(c->in[1].data, k, 1, m, t);
    if (turn)
        y = vf_fma(y, vf_ldx(turn->c, k, 1, m, MR_F32),
                   vf_swap(y) * vf_ldx(turn->s, k, 1, m, MR_F32));
    vf_stx(c->out[0].data, p->at[0] + k * sy, sy, y, m, t);
}

VF_INLINE void forward_rows(const mr_call *c, int64_t begin, int64_t end, bool dense, mr_dtype t)
{
    const mr_norm_attr *a = c->attr;
    const mr_desc *x = &c->in[0].desc, table = table_desc(x);
    int64_t d = x->dim[4], whole = d - d % VF_LANES, angles = -1, sx = dense ? 1 : x->stride[4],
            sy = dense ? 1 : c->out[0].desc.stride[4];
    mr_turn angle, *turn = c->in[2].data ? &angle : NULL;
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){&c->out[0].desc, x, &table}, 3);
    mr_rows_seek(&rows, begin, &p);
    for (int64_t i = begin; i < end; i++, mr_rows_next(&rows, &p)) {
        if (turn && p.at[2] != angles) {
            angles = p.at[2];
            mr_turn_set(turn, (const float *)c->in[2].data + angles,
                        (const float *)c->in[3].data + angles, d / 2, false);
        }
        vf r = vf_set(mr_row_rms(c->in[0].data, p.at[1], sx, d, (float)a->eps, t));
        for (int64_t k = 0; k < whole; k += VF_LANES)
            forward_at(c, &p, turn, r, k, VF_LANES, sx, sy, t);
        if (whole < d)
            forward_at(c, &p, turn, r, whole, d - whole, sx, sy, t);
    }
}

static void forward_part(void *user, int64_t begin, int64_t end, int worker)
{
    const mr_call *c = user;
    (void)worker;
    bool dense = c->in[0].desc.stride[4] == 1 && c->out[0].desc.stride[4] == 1;
    if (c->in[0].desc.dtype == MR_BF16)
        dense ? forward_rows(c, begin, end, true, MR_BF16)
              : forward_rows(c, begin, end, false, MR_BF16);
    else
        dense ? forward_rows(c, begin, end, true, MR_F32)
              : forward_rows(c, begin, end, false, MR_F32);
}

MR_KERNEL(qk_norm)
{
    mr_cpu_for(mr_norm_rows(call), 256, call->threads, forward_part, (void *)call);
    return MR_OK;
}

/* One row of the gradient, computed in steps of `m` columns from k on. */
typedef struct grad_row {
    const void *x, *dy, *w;
    void *dx;
    float *part;         /* of dw, or NULL */
    const mr_turn *turn; /* or NULL */
    int64_t at_x, at_dy, at_dx, sx, sdy, sdx;
    vf squares, dot, r, mean; /* sums of x^2 and z w x; then 1 / rms and the mean */
    float *z;                 /* dy, rotated back */
} grad_row;

VF_INLINE void grad_sums(grad_row *g, int64_t k, int64_t m, mr_dtype t)
{
    vf z = vf_ldx(g->dy, g->at_dy + k * g->sdy, g->sdy, m, t),
       x = vf_ldx(g->x, g->at_x + k * g->sx, g->sx, m, t);
    if (g->turn)
        z = vf_fma(z, vf_ldx(g->turn->c, k, 1, m, MR_F32),
                   vf_swap(z) * vf_ldx(g->turn->s, k, 1, m, MR_F32));
    vf_store(g->z + k, z);
    g->squares = vf_fma(x, x, g->squares);
    g->dot = vf_fma(z * vf_ldx(g->w, k, 1, m, t), x, g->dot);
}

VF_INLINE void grad_put(grad_row *g, int64_t k, int64_t m, mr_dtype t)
{
    vf z = vf_load(g->z + k), n = vf_ldx(g->x, g->at_x + k * g->sx, g->sx, m, t) * g->r;
    if (g->part)
        vf_stx(g->part, k, 1, vf_fma(z, n, vf_ldx(g->part, k, 1, m, MR_F32)), m, MR_F32);
    vf dx = g->r * (z * vf_ldx(g->w, k, 1, m, t) - n * g->mean);
    vf_stx(g->dx, g->at_dx + k * g->sdx, g->sdx, dx, m, t);
}

VF_INLINE void grad_rows(const mr_call *c, int64_t begin, int64_t end, bool dense, mr_dtype t)
{
    const mr_norm_attr *a = c->attr;
    const mr_desc *x = &c->in[0].desc, *dy = &c->in[4].desc, table = table_desc(x);
    int64_t d = x->dim[4], whole = d - d % VF_LANES, angles = -1;
    float z[MR_ROTARY_MAX + VF_LANES];
    mr_turn angle;
    mr_rows rows, cold;
    mr_rows_pos p, ahead;
    grad_row g = {.x = c->in[0].data,
                  .dy = c->in[4].data,
                  .w = c->in[1].data,
                  .dx = c->out[0].data,
                  .sx = dense ? 1 : x->stride[4],
                  .sdy = dense ? 1 : dy->stride[4],
                  .sdx = dense ? 1 : c->out[0].desc.stride[4],
                  .part = c->out[1].data ? mr_norm_piece(c, begin) : NULL,
                  .turn = c->in[2].data ? &angle : NULL,
                  .z = z};
    mr_rows_init(&rows, (const mr_desc *[]){&c->out[0].desc, x, dy, &table}, 4);
    mr_rows_seek(&rows, begin, &p);
    // prefetch x, which was written long ago, and dx, which is new; dy is in the cache
    mr_rows_init(&cold, (const mr_desc *[]){&c->out[0].desc, x}, 2);
    mr_rows_seek(&cold, begin + MR_ROWS_AHEAD, &ahead);
    for (int64_t i = begin; i < end; i++, mr_rows_next(&rows, &p), mr_rows_next(&cold, &ahead)) {
        if (dense) {
            mr_fetch(&c->out[0], ahead.at[0], d, true);
            mr_fetch(&c->in[0], ahead.at[1], d, false);
        }
        if (g.turn && p.at[3] != angles) {
            angles = p.at[3];
            mr_turn_set(&angle, (const float *)c->in[2].data + angles,
                        (const float *)c->in[3].data + angles, d / 2, true);
        }
        g.at_dx = p.at[0], g.at_x = p.at[1], g.at_dy = p.at[2];
        g.squares = g.dot = vf_zero();
        for (int64_t k = 0; k < whole; k += VF_LANES)
            grad_sums(&g, k, VF_LANES, t);
        if (whole < d)
            grad_sums(&g, whole, d - whole, t);
        float r = 1.0f / sqrtf(vf_sum(g.squares) / (float)d + (float)a->eps);
        g.r = vf_set(r), g.mean = vf_set(vf_sum(g.dot) * r / (float)d);
        for (int64_t k = 0; k < whole; k += VF_LANES)
            grad_put(&g, k, VF_LANES, t);
        if (whole < d)
            grad_put(&g, whole, d - whole, t);
    }
}

static void grad_part(void *user, int64_t begin, int64_t end, int worker)
{
    const mr_call *c = user;
    (void)worker;
    bool dense = c->in[0].desc.stride[4] == 1 && c->in[4].desc.stride[4] == 1 &&
                 c->out[0].desc.stride[4] == 1;
    if (c->in[0].desc.dtype == MR_BF16)
        dense ? grad_rows(c, begin, end, true, MR_BF16) : grad_rows(c, begin, end, false, MR_BF16);
    else
        dense ? grad_rows(c, begin, end, true, MR_F32) : grad_rows(c, begin, end, false, MR_F32);
}

MR_KERNEL(qk_norm_grad)
{
    mr_norm_sum(call, grad_part, 5, 1);
    return MR_OK;
}

#define EPS MR_NORM_EPS(1e-6, "the mean square")
MR_OP(qk_norm) = {
    .name = "qk_norm",
    .doc = "RMS norm of each head of q or k, then the rotary embedding if cos and sin are given.",
    .ref = "Henry et al. 2020, arXiv:2010.04245; Open-Sora 1.2 STDiT3 attention",
    .in = {{"x", "[B, G, N, h, d] f32|bf16", MR_ANY, 0},
           {"w", "[d] like x", MR_CONTIG, 0},
           {"cos", "[N, d/2] f32", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD},
           {"sin", "[N, d/2] f32", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD}},
    .out = {{"y", "like x", 0, false, MR_ANY}},
    .attr = {EPS},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(qk_norm)},
    .cheap = true,
    .cases = MR_CASES("x=[2,3,5,2,16] f32 w=[16] f32",
                      "x=[1,4,3,2,18]/any f32 w=[18] f32 cos=[3,9] f32 sin=[3,9] f32",
                      "x=[2,2,3,2,72]/any f32 w=[72] f32 cos=[3,36] f32 sin=[3,36] f32 eps=1e-5",
                      "x=[2,2,3,2,72]/any bf16 w=[72] bf16 cos=[3,36] f32 sin=[3,36] f32",
                      "x=[2,2,3,2,18] f32 -0.002..0.002 w=[18] f32 cos=[3,9] f32 sin=[3,9] f32"),
};
MR_OP(qk_norm_grad) = {
    .name = "qk_norm_grad",
    .doc = "Gradient of qk_norm with respect to x; adds the gradient of w to acc.",
    .in = {{"x", "[B, G, N, h, d] f32|bf16", MR_ANY, 0},
           {"w", "[d] like x", MR_CONTIG, 0},
           {"cos", "[N, d/2] f32", MR_CONTIG, MR_OPTIONAL},
           {"sin", "[N, d/2] f32", MR_CONTIG, MR_OPTIONAL},
           {"dy", "like x", MR_ANY, 0},
           {"acc", "[d] f32", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"dx", "like x", 0, false, MR_ANY}, {"acc", "[d] f32", 6, true, MR_CONTIG}},
    .attr = {EPS},
    .infer = grad_infer,
    .cost = grad_cost,
    .naive = grad_naive,
    .cpu = {.run = MR_CPU(qk_norm_grad), .workspace = mr_norm_workspace},
    .hidden = true,
    .cases = MR_CASES("x=[2,3,5,2,16] f32 w=[16] f32 dy=[2,3,5,2,16] f32 acc=[16] f32",
                      "x=[2,2,3,2,18]/any f32 w=[18] f32 cos=[3,9] f32 sin=[3,9] f32 "
                      "dy=[2,2,3,2,18] f32",
                      "x=[1,4,30,2,18]/any f32 w=[18] f32 cos=[30,9] f32 sin=[30,9] f32 "
                      "dy=[1,4,30,2,18]/any f32 acc=[18] f32",
                      "x=[2,2,3,2,72]/any bf16 w=[72] bf16 cos=[3,36] f32 sin=[3,36] f32 "
                      "dy=[2,2,3,2,72] bf16 acc=[72] f32",
                      "x=[2,2,3,2,18] f32 -0.002..0.002 w=[18] f32 cos=[3,9] f32 sin=[3,9] f32 "
                      "dy=[2,2,3,2,18] f32 acc=[18] f32",
                      "x=[2,5,70,2,18] bf16 w=[18] bf16 cos=[70,9] f32 sin=[70,9] f32 "
                      "dy=[2,5,70,2,18] bf16 acc=[18] f32"),
};
