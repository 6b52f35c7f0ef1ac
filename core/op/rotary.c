/* rotary: rotates pairs of each head by the angle of their position.
 *
 *   x [B, G, N, h, d], any strides; y dense in the order of x's strides    cos, sin [N, d/2] f32
 *
 *   (a, b) becomes (a cos - b sin, b cos + a sin) with the k-th angle of the position; the k-th
 *   pair is (x[2k], x[2k+1]), or with `halves` (x[k], x[k + d/2])
 *
 * The gradient is the inverse rotation (attribute inverse). Reads and writes 2 elements per
 * element. */
#include "cpu/rows.h"
#include "op/norm.h"

typedef struct attr {
    bool inverse, halves;
} attr;

static mr_status infer(mr_infer *c)
{
    const mr_desc *x = c->in[0];
    if (x->rank != 5 || x->dim[4] % 2 || x->dim[4] > MR_ROTARY_MAX)
        return mr_fail(MR_E_SHAPE, "expected x [B, G, N, h, d] with d even and at most %d",
                       MR_ROTARY_MAX);
    for (int i = 1; i < 3; i++)
        if (c->in[i]->rank != 2 || c->in[i]->dim[0] != x->dim[2] ||
            c->in[i]->dim[1] * 2 != x->dim[4])
            return mr_fail(MR_E_SHAPE, "expected cos and sin [N, d/2] with N and d of x");
    c->out[0] = *x;
    mr_desc_dense_like(x, &c->out[0]);
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    const attr *a = g->attr;
    return mr_grad_op(g, "rotary",
                      MR_ATTRS({"inverse", .i = !a->inverse}, {"halves", .i = a->halves}),
                      (mr_ref[]){g->dout[0], g->in[1], g->in[2]}, 3, &g->din[0]);
}

static void cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 3, 2);
}

static mr_status naive(const mr_call *c)
{
    const attr *at = c->attr;
    const int64_t *n = c->in[0].desc.dim;
    for (int64_t i = 0; i < n[0] * n[1] * n[2] * n[3]; i++) {
        int64_t h = i % n[3], p = i / n[3] % n[2], g = i / n[3] / n[2] % n[1],
                b = i / n[3] / n[2] / n[1];
        int64_t step = at->halves ? n[4] / 2 : 1;
        for (int64_t k = 0; k < n[4] / 2; k++) {
            int64_t first = at->halves ? k : 2 * k;
            double co = *mr_el(&c->in[1], p, k, 0, 0, 0),
                   si = *mr_el(&c->in[2], p, k, 0, 0, 0) * (at->inverse ? -1 : 1);
            double x = *mr_el(&c->in[0], b, g, p, h, first),
                   y = *mr_el(&c->in[0], b, g, p, h, first + step);
            *mr_el(&c->out[0], b, g, p, h, first) = x * co - y * si;
            *mr_el(&c->out[0], b, g, p, h, first + step) = y * co + x * si;
        }
    }
    return MR_OK;
}

// one head whose pairs are half a head apart; `angles` is the offset of its angles
VF_INLINE void turn_halves(const mr_call *c, int64_t from, int64_t to, int64_t angles, mr_dtype t)
{
    const attr *a = c->attr;
    int64_t half = c->in[0].desc.dim[4] / 2, sx = c->in[0].desc.stride[4],
            sy = c->out[0].desc.stride[4];
    vf sign = vf_set(a->inverse ? -1.0f : 1.0f);
    for (int64_t k = 0; k < half; k += VF_LANES) {
        int64_t m = MR_MIN(half - k, (int64_t)VF_LANES);
        vf co = vf_ldx(c->in[1].data, angles + k, 1, m, MR_F32),
           si = vf_ldx(c->in[2].data, angles + k, 1, m, MR_F32) * sign;
        vf x = vf_ldx(c->in[0].data, from + k * sx, sx, m, t),
           y = vf_ldx(c->in[0].data, from + (half + k) * sx, sx, m, t);
        vf_stx(c->out[0].data, to + k * sy, sy, formula_turn_first(x, y, co, si), m, t);
        vf_stx(c->out[0].data, to + (half + k) * sy, sy, formula_turn_second(x, y, co, si), m, t);
    }
}

VF_INLINE void turn_rows(const mr_call *c, int64_t begin, int64_t end, mr_dtype t)
{
    const attr *a = c->attr;
    const mr_desc *x = &c->in[0].desc;
    int64_t d = x->dim[4], sx = x->stride[4], sy = c->out[0].desc.stride[4], angles = -1;
    // the table of angles as a view with the shape of x: only N has a stride
    mr_desc table = *x;
    for (int k = 0; k < 5; k++)
        table.stride[k] = k == 2 ? d / 2 : 0;
    mr_turn turn;
    mr_rows rows;
    mr_rows_pos p;
    mr_rows_init(&rows, (const mr_desc *[]){&c->out[0].desc, x, &table}, 3);
    mr_rows_seek(&rows, begin, &p);
    for (int64_t i = begin; i < end; i++, mr_rows_next(&rows, &p)) {
        if (a->halves) {
            turn_halves(c, p.at[1], p.at[0], p.at[2], t);
            continue;
        }
        if (p.at[2] != angles) {
            angles = p.at[2];
            mr_turn_set(&turn, (const float *)c->in[1].data + angles,
                        (const float *)c->in[2].data + angles, d / 2, a->inverse);
        }
        for (int64_t k = 0; k < d; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES);
            vf v = vf_ldx(c->in[0].data, p.at[1] + k * sx, sx, m, t);
            vf y = vf_fma(v, vf_ldx(turn.c, k, 1, m, MR_F32),
                          vf_swap(v) * vf_ldx(turn.s, k, 1, m, MR_F32));
            vf_stx(c->out[0].data, p.at[0] + k * sy, sy, y, m, t);
        }
    }
}

static void part(void *user, int64_t begin, int64_t end, int worker)
{
    const mr_call *c = user;
    (void)worker;
    if (c->in[0].desc.dtype == MR_BF16)
        turn_rows(c, begin, end, MR_BF16);
    else
        turn_rows(c, begin, end, MR_F32);
}

MR_KERNEL(rotary)
{
    int64_t d = call->in[0].desc.dim[4];
    if (d > 0)
        mr_cpu_for(mr_desc_count(&call->in[0].desc) / d, MR_MAX(16384 / d, 1), call->threads, part,
                   (void *)call);
    return MR_OK;
}

MR_OP(rotary) = {
    .name = "rotary",
    .doc = "Rotary position embedding on pairs of each head: neighbours, or elements half a head "
           "apart.",
    .ref = "Su et al. 2021, arXiv:2104.09864",
    .in = {{"x", "[B, G, N, h, d] f32|bf16", MR_ANY, 0},
           {"cos", "[N, d/2] f32", MR_CONTIG, MR_NO_GRAD},
           {"sin", "[N, d/2] f32", MR_CONTIG, MR_NO_GRAD}},
    .out = {{"y", "like x", 0, false, MR_ANY}},
    .attr = {{"inverse", MR_ATTR_BOOL, offsetof(attr, inverse), .doc = "turn back"},
             {"halves", MR_ATTR_BOOL, offsetof(attr, halves),
              .doc = "pairs are half a head apart, not neighbours"}},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(rotary)},
    .cheap = true,
    .cases = MR_CASES("x=[2,3,5,2,16] f32 cos=[5,8] f32 sin=[5,8] f32",
                      "x=[1,4,3,2,18]/any f32 cos=[3,9] f32 sin=[3,9] f32 inverse=true",
                      "x=[2,2,3,2,72]/any bf16 cos=[3,36] f32 sin=[3,36] f32",
                      "x=[2,3,5,2,16] f32 cos=[5,8] f32 sin=[5,8] f32 halves=true",
                      "x=[1,4,3,2,18]/any f32 cos=[3,9] f32 sin=[3,9] f32 halves=true inverse=true",
                      "x=[2,2,3,2,72]/any bf16 cos=[3,36] f32 sin=[3,36] f32 halves=true"),
};
