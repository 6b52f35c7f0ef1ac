/* attention: o = softmax(scale q k^T) v per sample, group and head; keys at or past len[b] do not exist.
 *
 *   q, o [B, G, N, h, d]   k, v [B, G, M, h, d]   len [B] i32   lse [B, G, h, N] f32, the log of the sum
 *   of exp(scale q k) of a row; any strides, o in the order of q's
 * len 0 gives o = 0, lse = -inf and zero gradients. scale 0 means d^-0.5. Backward, with D = rowsum(do o) - dlse:
 *   p = exp(scale q k^T - lse); dv = p^T do; ds = p (do v^T - D); dq = scale ds k; dk = scale ds^T q
 * A task is one head of one sequence (forward: a range of its queries): keys and values are gathered
 * into f32 tiles of KEYS keys once, queries pass in tiles of QUERIES with an online softmax; nothing
 * of size N x M is kept. A row's result does not depend on the tasks, dk and dv are summed over query
 * tiles in order: bits are independent of threads. Ref: Dao et al. 2022, arXiv:2205.14135. */
#include "cpu/rows.h"
#include "op/attention_tile.h"

enum { QUERIES = 64, KEYS = 256 };
typedef struct attr { double scale; } attr;

static mr_status check(const mr_desc *q, const mr_desc *k, const mr_desc *v, const mr_desc *len)
{
    if (q->rank != 5 || k->rank != 5 || q->dim[4] < 1) return mr_fail(MR_E_SHAPE, "q must be [B, G, N, h, d] and k [B, G, M, h, d]");
    MR_TRY(mr_row_same(k, "k", v, "v"));
    for (int i = 0; i < 5; i++)
        if (i != 2 && q->dim[i] != k->dim[i]) return mr_fail(MR_E_SHAPE, "q [B, G, N, h, d] and k [B, G, M, h, d] differ in more than N and M");
    if (q->dtype != k->dtype) return mr_fail(MR_E_SHAPE, "q, k and v must share one dtype");
    if (len && (len->rank != 1 || len->dim[0] != q->dim[0])) return mr_fail(MR_E_SHAPE, "len must be [B] of q's B");
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    const mr_desc *q = c->in[0];
    MR_TRY(check(q, c->in[1], c->in[2], c->in[3]));
    c->out[0] = *q;
    mr_desc_dense_like(q, &c->out[0]);
    mr_row_out(c, 1, q->dtype == MR_F64 ? MR_F64 : MR_F32, 4, (const int64_t[]){q->dim[0], q->dim[1], q->dim[3], q->dim[2]});
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    const attr *a = g->attr;
    mr_ref out[3], dy = g->dout[0];
    if (dy == MR_NONE) {
        const mr_desc *q = mr_grad_desc(g, g->in[0]);
        mr_ints dims = {.n = 5};
        memcpy(dims.v, q->dim, 5 * sizeof dims.v[0]);
        MR_TRY(mr_grad_op(g, "zeros", MR_ATTRS({"dtype", .i = q->dtype}, {"dims", .ints = &dims}), NULL, 0, &dy));
    }
    MR_TRY(mr_grad_op(g, "attention_grad", MR_ATTRS({"scale", .f = a->scale}),
                      (mr_ref[]){g->in[0], g->in[1], g->in[2], g->in[3], g->out[0], g->out[1], dy, g->dout[1]}, 8, out));
    for (int i = 0; i < 3; i++) g->din[i] = out[i];
    return MR_OK;
}

static void cost_of(const mr_call *c, double products, double tensors, mr_cost *cost)
{
    const int64_t *q = c->in[0].desc.dim;
    double heads = (double)(q[0] * q[1] * q[3]), N = (double)q[2], M = (double)c->in[1].desc.dim[2], d = (double)q[4];
    *cost = (mr_cost){2 * products * heads * N * M * d,
                      heads * tensors * (N + M) * d * (double)mr_dtype_bytes(c->in[0].desc.dtype) + 4 * heads * N};
}
static void cost(const mr_call *c, mr_cost *cost) { cost_of(c, 2, 2, cost); }
static void grad_cost(const mr_call *c, mr_cost *cost) { cost_of(c, 5, 4, cost); }

static int64_t keys_of(const mr_call *c, int64_t b)
{
    int64_t M = c->in[1].desc.dim[2];
    if (!mr_given(&c->in[3])) return M;
    int64_t len = ((const int32_t *)c->in[3].data)[b];
    return MR_MAX(0, MR_MIN(len, M));
}

static double scale_of(const mr_call *c)
{
    const attr *a = c->attr;
    return a->scale != 0 ? a->scale : 1 / sqrt((double)c->in[0].desc.dim[4]);
}

static double dot(const mr_view *x, int64_t i, const mr_view *y, int64_t j, int64_t b, int64_t g, int64_t h)
{
    double sum = 0;
    for (int64_t k = 0; k < x->desc.dim[4]; k++) sum += *mr_el(x, b, g, i, h, k) * *mr_el(y, b, g, j, h, k);
    return sum;
}

static mr_status naive(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    double scale = scale_of(c);
    for (int64_t i = 0; i < n[0] * n[1] * n[3] * n[2]; i++) {
        int64_t row = i % n[2], h = i / n[2] % n[3], g = i / n[2] / n[3] % n[1], b = i / n[2] / n[3] / n[1], keys = keys_of(c, b);
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < keys; j++) max = fmax(max, scale * dot(&c->in[0], row, &c->in[1], j, b, g, h));
        for (int64_t k = 0; k < n[4]; k++) *mr_el(&c->out[0], b, g, row, h, k) = 0;
        for (int64_t j = 0; j < keys; j++) {
            double p = exp(scale * dot(&c->in[0], row, &c->in[1], j, b, g, h) - max);
            sum += p;
            for (int64_t k = 0; k < n[4]; k++) *mr_el(&c->out[0], b, g, row, h, k) += p * *mr_el(&c->in[2], b, g, j, h, k);
        }
        for (int64_t k = 0; keys > 0 && k < n[4]; k++) *mr_el(&c->out[0], b, g, row, h, k) /= sum;
        *mr_el(&c->out[1], b, g, h, row, 0) = keys > 0 ? max + log(sum) : -INFINITY;
    }
    return MR_OK;
}

static mr_status grad_infer(mr_infer *c)
{
    const mr_desc *q = c->in[0], *lse = c->in[5];
    MR_TRY(check(q, c->in[1], c->in[2], c->in[3]));
    MR_TRY(mr_row_same(q, "q", c->in[4], "o"));
    MR_TRY(mr_row_same(q, "q", c->in[6], "do"));
    MR_TRY(mr_row_rank(lse, "lse", 4));
    if (c->in[7]) MR_TRY(mr_row_same(lse, "lse", c->in[7], "dlse"));
    for (int i = 0; i < 3; i++) {
        c->out[i] = *c->in[i];
        mr_desc_dense_like(c->in[i], &c->out[i]);
    }
    return MR_OK;
}

static mr_status grad_naive(const mr_call *c)
{
    const mr_view *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *o = &c->in[4], *lse = &c->in[5], *dy = &c->in[6];
    const int64_t *n = q->desc.dim, M = k->desc.dim[2];
    double scale = scale_of(c);
    for (int64_t u = 0; u < n[0] * n[1] * n[3]; u++) {
        int64_t h = u % n[3], g = u / n[3] % n[1], b = u / n[3] / n[1], keys = keys_of(c, b);
        for (int64_t j = 0; j < M; j++)
            for (int64_t e = 0; e < n[4]; e++) *mr_el(&c->out[1], b, g, j, h, e) = *mr_el(&c->out[2], b, g, j, h, e) = 0;
        for (int64_t i = 0; i < n[2]; i++) {
            double D = dot(dy, i, o, i, b, g, h) - (mr_given(&c->in[7]) ? *mr_el(&c->in[7], b, g, h, i, 0) : 0);
            for (int64_t e = 0; e < n[4]; e++) *mr_el(&c->out[0], b, g, i, h, e) = 0;
            for (int64_t j = 0; j < keys; j++) {
                double p = exp(scale * dot(q, i, k, j, b, g, h) - *mr_el(lse, b, g, h, i, 0));
                double ds = p * (dot(dy, i, v, j, b, g, h) - D);
                for (int64_t e = 0; e < n[4]; e++) {
                    *mr_el(&c->out[0], b, g, i, h, e) += scale * ds * *mr_el(k, b, g, j, h, e);
                    *mr_el(&c->out[1], b, g, j, h, e) += scale * ds * *mr_el(q, b, g, i, h, e);
                    *mr_el(&c->out[2], b, g, j, h, e) += p * *mr_el(dy, b, g, i, h, e);
                }
            }
        }
    }
    return MR_OK;
}

// ---- kernels ---------------------------------------------------------------------------------

static tile_head head_of(const mr_view *v, int64_t b, int64_t g, int64_t h)
{
    const int64_t *s = v->desc.stride;
    return (tile_head){v->data, b * s[0] + g * s[1] + h * s[3], s[2], s[4], v->desc.dtype};
}

// sizes of one worker's scratch, in floats; widths are rounded for the widest instruction set
typedef struct sizes { int64_t dp, mp, worker; } sizes;
static sizes scratch(const mr_call *c, bool backward)
{
    sizes s = {.dp = tile_pad(c->in[0].desc.dim[4], 16), .mp = tile_pad(c->in[1].desc.dim[2], KEYS)};
    s.mp = MR_MIN(s.mp, tile_pad(c->in[1].desc.dim[2], 16));
    int64_t rows = MR_MIN(QUERIES, tile_pad(c->in[0].desc.dim[2], 16)), tile = MR_MIN(KEYS, s.mp);
    // keys and values, then what a tile of queries needs
    s.worker = backward ? 5 * s.mp * s.dp + rows * (4 * s.dp + 2 * tile + 2) : 3 * s.mp * s.dp + rows * (2 * s.dp + tile + 2);
    return s;
}

typedef struct job {
    const mr_call *call;
    sizes size;
    int64_t splits, split_rows;      // forward: query ranges per head
    float scale;
} job;

// exponentials of a row of scores under the maximum `max`; pads beyond n become 0; returns their sum
VF_INLINE float row_exp(float *s, int64_t n, int64_t padded, float max)
{
    vf m = vf_set(max), sum = vf_zero();
    int64_t j = 0;
    for (; j + VF_LANES <= n; j += VF_LANES) {
        vf p = vf_exp(vf_load(s + j) - m);
        sum = sum + p;
        vf_store(s + j, p);
    }
    if (j < n) {
        vf p = vf_exp(vf_loadn(s + j, n - j) - m);
        vf_store(s + j, p);
        for (int64_t r = n; r < j + VF_LANES; r++) s[r] = 0;
        sum = sum + vf_load(s + j);
        j += VF_LANES;
    }
    for (; j < padded; j += VF_LANES) vf_store(s + j, vf_zero());
    return vf_sum(sum);
}

VF_INLINE float row_max(const float *s, int64_t n)
{
    vf m = vf_set(-INFINITY);
    int64_t j = 0;
    for (; j + VF_LANES <= n; j += VF_LANES) m = vf_max(m, vf_load(s + j));
    float max = vf_hmax(m);
    for (; j < n; j++) max = s[j] > max ? s[j] : max;
    return max;
}

// keys, transposed per tile of KEYS, and values of one head
static void gather_keys(const tile_head *src, int64_t keys, int64_t d, int64_t ld, float *rows, float *transposed)
{
    for (int64_t j = 0; j < keys; j += KEYS) {
        int64_t n = MR_MIN(keys - j, KEYS);
        tile_gather(src, j, n, d, 1, rows + j * ld, ld);
        tile_transpose(rows + j * ld, ld, n, d, transposed + j * ld, tile_pad(n, VF_LANES));
    }
}

static void forward_head(const job *jb, int64_t b, int64_t g, int64_t h, int64_t first, int64_t last, float *at)
{
    const mr_call *c = jb->call;
    const int64_t *n = c->in[0].desc.dim, d = n[4], keys = keys_of(c, b), ld = tile_pad(d, VF_LANES);
    tile_head q = head_of(&c->in[0], b, g, h), k = head_of(&c->in[1], b, g, h), v = head_of(&c->in[2], b, g, h), o = head_of(&c->out[0], b, g, h);
    float *lse = (float *)c->out[1].data + ((b * n[1] + g) * n[3] + h) * n[2];
    float *kt = at, *vr = kt + jb->size.mp * jb->size.dp, *kr = vr + jb->size.mp * jb->size.dp;
    int64_t tile_rows = MR_MIN(QUERIES, tile_pad(n[2], 16)), tile = MR_MIN(KEYS, jb->size.mp);
    float *qt = kr + jb->size.mp * jb->size.dp, *ot = qt + tile_rows * jb->size.dp, *s = ot + tile_rows * jb->size.dp;
    float *max = s + tile_rows * tile, *sum = max + tile_rows;
    gather_keys(&k, keys, d, ld, kr, kt);
    tile_gather(&v, 0, keys, d, 1, vr, ld);
    for (int64_t i = first; i < last; i += QUERIES) {
        int64_t rows = MR_MIN(last - i, QUERIES);
        tile_gather(&q, i, rows, d, jb->scale, qt, ld);
        for (int64_t r = 0; r < rows; r++) max[r] = -INFINITY, sum[r] = 0;
        if (keys == 0) memset(ot, 0, (size_t)(rows * ld) * 4);
        for (int64_t j = 0; j < keys; j += KEYS) {
            int64_t m = MR_MIN(keys - j, KEYS), mp = tile_pad(m, VF_LANES);
            tile_product(rows, mp, d, qt, ld, 1, kt + j * ld, mp, s, mp, false);
            for (int64_t r = 0; r < rows; r++) {
                float old = max[r];
                max[r] = MR_MAX(old, row_max(s + r * mp, m));
                float fade = j ? expf(old - max[r]) : 0;
                sum[r] = sum[r] * fade + row_exp(s + r * mp, m, mp, max[r]);
                for (int64_t e = 0; j && fade != 1 && e < ld; e += VF_LANES)
                    vf_store(ot + r * ld + e, vf_load(ot + r * ld + e) * vf_set(fade));
            }
            tile_product(rows, ld, m, s, mp, 1, vr + j * ld, ld, ot, ld, j > 0);
        }
        for (int64_t r = 0; r < rows; r++) {
            lse[i + r] = keys ? max[r] + logf(sum[r]) : -INFINITY;
            tile_scatter(&o, i + r, 1, d, keys ? 1 / sum[r] : 0, ot + r * ld, ld);
        }
    }
}

static void forward_part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *jb = user;
    const int64_t *n = jb->call->in[0].desc.dim;
    float *at = (float *)jb->call->workspace + worker * jb->size.worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t u = i / jb->splits, first = i % jb->splits * jb->split_rows;
        forward_head(jb, u / n[3] / n[1], u / n[3] % n[1], u % n[3], first, MR_MIN(first + jb->split_rows, n[2]), at);
    }
}

// heads per chunk, so that short sequences do not pay for handing out work
static int64_t grain_of(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    double flop = 4.0 * (double)(n[2] * c->in[1].desc.dim[2] * n[4]);
    return (int64_t)MR_MAX(1.0, 4e6 / MR_MAX(flop, 1.0));
}

MR_KERNEL(attention)
{
    const int64_t *n = call->in[0].desc.dim, units = n[0] * n[1] * n[3];
    job jb = {.call = call, .size = scratch(call, false), .splits = 1, .split_rows = MR_MAX(n[2], 1), .scale = (float)scale_of(call)};
    // few long sequences: share their queries out too
    if (units > 0 && units < 4 * call->threads && n[2] > 2 * QUERIES) {
        jb.splits = MR_MIN((4 * call->threads + units - 1) / units, n[2] / QUERIES);
        jb.split_rows = tile_pad((n[2] + jb.splits - 1) / jb.splits, QUERIES);
        jb.splits = (n[2] + jb.split_rows - 1) / jb.split_rows;
    }
    if (n[2] > 0) mr_cpu_for(units * jb.splits, jb.splits > 1 ? 1 : grain_of(call), call->threads, forward_part, &jb);
    return MR_OK;
}

static void backward_head(const job *jb, int64_t b, int64_t g, int64_t h, float *at)
{
    const mr_call *c = jb->call;
    const int64_t *n = c->in[0].desc.dim, d = n[4], M = c->in[1].desc.dim[2], keys = keys_of(c, b), ld = tile_pad(d, VF_LANES);
    tile_head q = head_of(&c->in[0], b, g, h), k = head_of(&c->in[1], b, g, h), v = head_of(&c->in[2], b, g, h);
    tile_head o = head_of(&c->in[4], b, g, h), dy = head_of(&c->in[6], b, g, h);
    tile_head dq = head_of(&c->out[0], b, g, h), dk = head_of(&c->out[1], b, g, h), dv = head_of(&c->out[2], b, g, h);
    const float *lse = (const float *)c->in[5].data + ((b * n[1] + g) * n[3] + h) * n[2];
    const float *dlse = c->in[7].data ? (const float *)c->in[7].data + ((b * n[1] + g) * n[3] + h) * n[2] : NULL;
    int64_t tile_rows = MR_MIN(QUERIES, tile_pad(n[2], 16)), tile = MR_MIN(KEYS, jb->size.mp), area = jb->size.mp * jb->size.dp;
    float *kr = at, *kt = kr + area, *vt = kt + area, *gk = vt + area, *gv = gk + area;
    float *qt = gv + area, *yt = qt + tile_rows * jb->size.dp, *ot = yt + tile_rows * jb->size.dp, *gq = ot + tile_rows * jb->size.dp;
    float *p = gq + tile_rows * jb->size.dp, *ds = p + tile_rows * tile, *D = ds + tile_rows * tile;
    // values pass through gk, which is cleared afterwards
    gather_keys(&v, keys, d, ld, gk, vt);
    gather_keys(&k, keys, d, ld, kr, kt);
    memset(gk, 0, (size_t)(tile_pad(M, 16) * ld) * 4);
    memset(gv, 0, (size_t)(tile_pad(M, 16) * ld) * 4);
    for (int64_t i = 0; i < n[2]; i += QUERIES) {
        int64_t rows = MR_MIN(n[2] - i, QUERIES);
        tile_gather(&q, i, rows, d, jb->scale, qt, ld);
        tile_gather(&dy, i, rows, d, 1, yt, ld);
        tile_gather(&o, i, rows, d, 1, ot, ld);
        for (int64_t r = 0; r < rows; r++) {
            vf sum = vf_zero();
            for (int64_t e = 0; e < ld; e += VF_LANES) sum = vf_fma(vf_load(yt + r * ld + e), vf_load(ot + r * ld + e), sum);
            D[r] = vf_sum(sum) - (dlse ? dlse[i + r] : 0);
        }
        if (keys == 0) memset(gq, 0, (size_t)(rows * ld) * 4);
        for (int64_t j = 0; j < keys; j += KEYS) {
            int64_t m = MR_MIN(keys - j, KEYS), mp = tile_pad(m, VF_LANES);
            tile_product(rows, mp, d, qt, ld, 1, kt + j * ld, mp, p, mp, false);
            for (int64_t r = 0; r < rows; r++) row_exp(p + r * mp, m, mp, lse[i + r]);
            tile_product(m, ld, rows, p, 1, mp, yt, ld, gv + j * ld, ld, true);
            tile_product(rows, mp, d, yt, ld, 1, vt + j * ld, mp, ds, mp, false);
            for (int64_t r = 0; r < rows; r++) {
                vf Dr = vf_set(D[r]);
                for (int64_t e = r * mp; e < (r + 1) * mp; e += VF_LANES) vf_store(ds + e, vf_load(p + e) * (vf_load(ds + e) - Dr));
            }
            tile_product(rows, ld, m, ds, mp, 1, kr + j * ld, ld, gq, ld, j > 0);
            tile_product(m, ld, rows, ds, 1, mp, qt, ld, gk + j * ld, ld, true);
        }
        tile_scatter(&dq, i, rows, d, jb->scale, gq, ld);
    }
    tile_scatter(&dk, 0, M, d, 1, gk, ld);
    tile_scatter(&dv, 0, M, d, 1, gv, ld);
}

static void backward_part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *jb = user;
    const int64_t *n = jb->call->in[0].desc.dim;
    float *at = (float *)jb->call->workspace + worker * jb->size.worker;
    for (int64_t u = begin; u < end; u++) backward_head(jb, u / n[3] / n[1], u / n[3] % n[1], u % n[3], at);
}

MR_KERNEL(attention_grad)
{
    const int64_t *n = call->in[0].desc.dim;
    job jb = {.call = call, .size = scratch(call, true), .scale = (float)scale_of(call)};
    mr_cpu_for(n[0] * n[1] * n[3], grain_of(call), call->threads, backward_part, &jb);
    return MR_OK;
}

static size_t workspace(const mr_call *c, const mr_facts *facts) { return (size_t)(scratch(c, false).worker * facts->threads) * 4; }
static size_t grad_workspace(const mr_call *c, const mr_facts *facts) { return (size_t)(scratch(c, true).worker * facts->threads) * 4; }

#define SCALE {"scale", MR_ATTR_F64, offsetof(attr, scale), .doc = "factor on the scores; 0: d^-0.5"}
MR_OP(attention) = {
    .name = "attention",
    .doc = "Softmax attention per sample, group and head, with a key count per sample.",
    .ref = "Vaswani et al. 2017, arXiv:1706.03762; Dao et al. 2022, arXiv:2205.14135",
    .in = {{"q", "[B, G, N, h, d] f32|bf16", MR_ANY, 0}, {"k", "[B, G, M, h, d] like q", MR_ANY, 0}, {"v", "like k", MR_ANY, 0},
           {"len", "[B] i32", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD}},
    .out = {{"o", "like q", 0, false, MR_ANY}, {"lse", "[B, G, h, N] f32", 0, false, MR_CONTIG}},
    .attr = {SCALE},
    .infer = infer, .grad = grad, .cost = cost, .naive = naive,
    .cpu = {.run = MR_CPU(attention), .prepare = mr_row_prepare, .workspace = workspace},
    .cases = MR_CASES("q=[2,3,5,2,16] f32 k=[2,3,5,2,16] f32 v=[2,3,5,2,16] f32",
                      "q=[2,1,7,2,24]/any f32 k=[2,1,9,2,24]/any f32 v=[2,1,9,2,24]/any f32 len=[2] i32 1..9",
                      "q=[1,2,70,2,72] f32 k=[1,2,67,2,72] f32 v=[1,2,67,2,72] f32 scale=0.3",
                      "q=[1,1,67,1,128] f32 -3..3 k=[1,1,600,1,128] f32 -3..3 v=[1,1,600,1,128] f32",
                      "q=[3,1,1,1,17] f32 k=[3,1,1,1,17] f32 v=[3,1,1,1,17] f32",
                      "q=[2,2,6,2,72]/any bf16 k=[2,2,5,2,72] bf16 v=[2,2,5,2,72] bf16 len=[2] i32 1..5"),
};
MR_OP(attention_grad) = {
    .name = "attention_grad",
    .doc = "Gradients of attention with respect to q, k and v, from its output and log-sum.",
    .in = {{"q", "[B, G, N, h, d] f32|bf16", MR_ANY, 0}, {"k", "[B, G, M, h, d] like q", MR_ANY, 0}, {"v", "like k", MR_ANY, 0},
           {"len", "[B] i32", MR_CONTIG, MR_OPTIONAL}, {"o", "like q", MR_ANY, 0}, {"lse", "[B, G, h, N] f32", MR_CONTIG, 0}, {"do", "like q", MR_ANY, 0},
           {"dlse", "like lse", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"dq", "like q", 0, false, MR_ANY}, {"dk", "like k", 0, false, MR_ANY}, {"dv", "like k", 0, false, MR_ANY}},
    .attr = {SCALE},
    .infer = grad_infer, .cost = grad_cost, .naive = grad_naive,
    .cpu = {.run = MR_CPU(attention_grad), .prepare = mr_row_prepare, .workspace = grad_workspace},
    .hidden = true,
    .cases = MR_CASES("q=[2,3,5,2,16] f32 k=[2,3,5,2,16] f32 v=[2,3,5,2,16] f32 o=[2,3,5,2,16] f32 lse=[2,3,2,5] f32 2..3 do=[2,3,5,2,16] f32 dlse=[2,3,2,5] f32",
                      "q=[2,1,7,2,24]/any f32 k=[2,1,9,2,24]/any f32 v=[2,1,9,2,24]/any f32 len=[2] i32 0..9 o=[2,1,7,2,24] f32 lse=[2,1,2,7] f32 2..3 do=[2,1,7,2,24]/any f32",
                      "q=[1,2,70,2,72] f32 k=[1,2,67,2,72] f32 v=[1,2,67,2,72] f32 o=[1,2,70,2,72] f32 lse=[1,2,2,70] f32 4..5 do=[1,2,70,2,72] f32",
                      "q=[1,1,67,1,128] f32 k=[1,1,600,1,128] f32 v=[1,1,600,1,128] f32 o=[1,1,67,1,128] f32 lse=[1,1,1,67] f32 6..7 do=[1,1,67,1,128] f32",
                      "q=[2,2,6,2,72]/any bf16 k=[2,2,5,2,72] bf16 v=[2,2,5,2,72] bf16 o=[2,2,6,2,72] bf16 lse=[2,2,2,6] f32 2..3 do=[2,2,6,2,72] bf16"),
};
