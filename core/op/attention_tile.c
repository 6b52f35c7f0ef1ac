/* attention_tile: tiled attention in f32, one head at a time: the general form.
 *
 * Existing keys and values are gathered into tiles of KEYS keys. For each tile of QUERIES queries,
 * an online softmax runs over the tiles of keys. The file has a product with a broadcast left
 * operand, a gather of strided heads into tiles, and a scatter back. Tiles are row-major f32;
 * widths that products write or stream (`n` of tile_product) are multiples of VF_LANES, padded with
 * zeros. Licence: Apache-2.0 */
#include "cpu/transpose.h"
#include "op/attention_job.h"

#if defined(__AVX512F__)
enum { TILE_MR = 8, TILE_NV = 3 };
#else
enum { TILE_MR = 4, TILE_NV = 3 };
#endif

/* c[mr, nv vectors] (+)= sum over k of a[i * rs + k * cs] * b[k * ldb + ...]; mr and nv are
 * compile-time constants. */
VF_INLINE void tile_block(int mr, int nv, int64_t k, const float *a, int64_t rs, int64_t cs,
                          const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
    vf acc[TILE_MR][TILE_NV];
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++)
            acc[i][j] = vf_zero();
    for (int64_t p = 0; p < k; p++) {
        vf y[TILE_NV];
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++)
            y[j] = vf_load(b + p * ldb + j * VF_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            vf x = vf_set(a[i * rs + p * cs]);
#pragma GCC unroll 3
            for (int j = 0; j < nv; j++)
                acc[i][j] = vf_fma(x, y[j], acc[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++) {
            float *to = c + i * ldc + j * VF_LANES;
            vf_store(to, acc[i][j] + (add ? vf_load(to) : vf_zero()));
        }
}

/* c for all m rows and nv vectors of columns */
VF_INLINE void tile_columns(int nv, int64_t m, int64_t k, const float *a, int64_t rs, int64_t cs,
                            const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
    int64_t i = 0;
    for (; i + TILE_MR <= m; i += TILE_MR)
        tile_block(TILE_MR, nv, k, a + i * rs, rs, cs, b, ldb, c + i * ldc, ldc, add);
    if (TILE_MR > 4 && i + 4 <= m)
        tile_block(4, nv, k, a + i * rs, rs, cs, b, ldb, c + i * ldc, ldc, add), i += 4;
    if (i + 2 <= m)
        tile_block(2, nv, k, a + i * rs, rs, cs, b, ldb, c + i * ldc, ldc, add), i += 2;
    if (i < m)
        tile_block(1, nv, k, a + i * rs, rs, cs, b, ldb, c + i * ldc, ldc, add);
}

/* c[m, n] (+)= a[m, k] b[k, n]. a has the strides rs and cs, so that it can be transposed for
 * free. */
static __attribute__((noinline, noclone, unused)) void tile_product(int64_t m, int64_t n, int64_t k,
                                                                    const float *a, int64_t rs,
                                                                    int64_t cs, const float *b,
                                                                    int64_t ldb, float *c,
                                                                    int64_t ldc, bool add)
{
    int64_t j = 0, wide = TILE_NV * VF_LANES;
    // the last four vectors are faster as two and two than as three and one
    for (; j + wide <= n && j + wide + VF_LANES != n; j += wide)
        tile_columns(TILE_NV, m, k, a, rs, cs, b + j, ldb, c + j, ldc, add);
    for (; j + 2 * VF_LANES <= n; j += 2 * VF_LANES)
        tile_columns(2, m, k, a, rs, cs, b + j, ldb, c + j, ldc, add);
    if (j < n)
        tile_columns(1, m, k, a, rs, cs, b + j, ldb, c + j, ldc, add);
}

/* One head of a strided argument. Element (row, k) is at + row * row_step + k * step; rows from
 * `first` on are `gap` rows further, since missing keys are skipped. */
typedef struct tile_head {
    void *data;
    int64_t at, row_step, step, first, gap;
    mr_dtype dtype;
} tile_head;

MR_OP_FN tile_head tile_head_of(const mr_view *v, int64_t b, int64_t g, int64_t h,
                                const attention_keys *keys)
{
    const int64_t *s = v->desc.stride;
    return (tile_head){.data = v->data,
                       .at = b * s[0] + g * s[1] + h * s[3],
                       .row_step = s[2],
                       .step = s[4],
                       .first = keys ? keys->first : 0,
                       .gap = keys ? keys->gap : 0,
                       .dtype = v->desc.dtype};
}
MR_OP_FN int64_t tile_row_at(const tile_head *h, int64_t row)
{
    return h->at + (row < h->first ? row : row + h->gap) * h->row_step;
}

VF_INLINE void tile_gather_as(const tile_head *h, int64_t first, int64_t rows, int64_t d,
                              float scale, float *dst, int64_t ld, mr_dtype t)
{
    vf s = vf_set(scale);
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = tile_row_at(h, first + r);
        for (int64_t k = 0; k < ld; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES);
            vf x = vf_zero();
            if (m > 0)
                x = vf_ldx(h->data, at + k * h->step, h->step, m, t) * s;
            vf_store(dst + r * ld + k, x);
        }
    }
}
/* dst[rows, ld] = scale * head[first .. first + rows, d], zeros up to ld (a multiple of
 * VF_LANES). */
static __attribute__((noinline, unused)) void tile_gather(const tile_head *h, int64_t first,
                                                          int64_t rows, int64_t d, float scale,
                                                          float *dst, int64_t ld)
{
    if (h->dtype == MR_BF16)
        tile_gather_as(h, first, rows, d, scale, dst, ld, MR_BF16);
    else
        tile_gather_as(h, first, rows, d, scale, dst, ld, MR_F32);
}

VF_INLINE void tile_scatter_as(const tile_head *h, int64_t first, int64_t rows, int64_t d,
                               float scale, const float *src, int64_t ld, mr_dtype t)
{
    vf s = vf_set(scale);
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = tile_row_at(h, first + r);
        for (int64_t k = 0; k < d; k += VF_LANES)
            vf_stx(h->data, at + k * h->step, h->step, vf_load(src + r * ld + k) * s,
                   MR_MIN(d - k, (int64_t)VF_LANES), t);
    }
}
/* head[first .. first + rows, d] = scale * src[rows, ld]. */
static __attribute__((noinline, unused)) void tile_scatter(const tile_head *h, int64_t first,
                                                           int64_t rows, int64_t d, float scale,
                                                           const float *src, int64_t ld)
{
    if (h->dtype == MR_BF16)
        tile_scatter_as(h, first, rows, d, scale, src, ld, MR_BF16);
    else
        tile_scatter_as(h, first, rows, d, scale, src, ld, MR_F32);
}

/* Zero the rows of keys that do not exist; `row` is a buffer for one row. */
MR_OP_FN void tile_clear(const tile_head *h, int64_t d, float *row)
{
    tile_head absent = *h;
    absent.first = 0, absent.gap = h->first;
    for (int64_t i = 0; i < h->gap; i++) {
        memset(row, 0, (size_t)attention_pad(d, VF_LANES) * 4);
        tile_scatter(&absent, i, 1, d, 1, row, 0);
    }
}

/* dst[d, ld] = transpose of src[rows, src_ld]; both widths multiples of VF_LANES, columns rows ..
 * ld are zero. */
static __attribute__((noinline, unused)) void tile_transpose(const float *src, int64_t src_ld,
                                                             int64_t rows, int64_t d, float *dst,
                                                             int64_t ld)
{
    for (int64_t r0 = 0; r0 < ld; r0 += VF_LANES)
        for (int64_t k0 = 0; k0 < d; k0 += VF_LANES) {
            vf r[VF_LANES];
            for (int l = 0; l < VF_LANES; l++)
                r[l] = r0 + l < rows ? vf_load(src + (r0 + l) * src_ld + k0) : vf_zero();
            vf_transpose(r);
            for (int l = 0; l < VF_LANES && k0 + l < d; l++)
                vf_store(dst + (k0 + l) * ld + r0, r[l]);
        }
}

// Replace a row of scores x by e^(x - max), and its padding after n by 0. Returns the sum.
VF_INLINE float tile_exp(float *s, int64_t n, int64_t padded, float max)
{
    vf m = vf_set(max), sum = vf_zero();
    int64_t j = 0;
    for (; j + VF_LANES <= n; j += VF_LANES) {
        vf p = formula_weight(vf_load(s + j), m);
        sum = sum + p;
        vf_store(s + j, p);
    }
    if (j < n) {
        vf p = formula_weight(vf_loadn(s + j, n - j), m);
        vf_store(s + j, p);
        for (int64_t r = n; r < j + VF_LANES; r++)
            s[r] = 0;
        sum = sum + vf_load(s + j);
        j += VF_LANES;
    }
    for (; j < padded; j += VF_LANES)
        vf_store(s + j, vf_zero());
    return vf_sum(sum);
}

VF_INLINE float tile_max(const float *s, int64_t n)
{
    vf m = vf_set(-INFINITY);
    int64_t j = 0;
    for (; j + VF_LANES <= n; j += VF_LANES)
        m = vf_max(m, vf_load(s + j));
    float max = vf_hmax(m);
    for (; j < n; j++)
        max = s[j] > max ? s[j] : max;
    return max;
}

void tile_forward(const attention_job *jb, int64_t b, int64_t g, int64_t h, int64_t first,
                  int64_t last, float *at)
{
    const mr_call *c = jb->call;
    const int64_t d = c->in[0].desc.dim[4], dv = c->in[2].desc.dim[4], queries = last - first,
                  ld = attention_pad(d, VF_LANES), lv = attention_pad(dv, VF_LANES);
    attention_keys keys = attention_keys_of(c, b);
    tile_head q = tile_head_of(&c->in[0], b, g, h, NULL),
              k = tile_head_of(&c->in[1], b, g, h, &keys),
              v = tile_head_of(&c->in[2], b, g, h, &keys),
              o = tile_head_of(&c->out[0], b, g, h, NULL);
    float *lse = (float *)c->out[1].data + attention_stat(c, b, g, h) + first;
    tile_sizes size = tile_scratch(c, false);
    float *kr = at, *kt = kr + size.tile * size.width, *vr = kt + size.tile * size.width,
          *qt = vr + size.tile * size.value, *ot = qt + size.span * size.width;
    float *max = ot + size.span * size.value, *sum = max + size.span, *s = sum + size.span;
    tile_gather(&q, first, queries, d, jb->scale, qt, ld);
    for (int64_t r = 0; r < queries; r++)
        max[r] = -INFINITY, sum[r] = 0;
    int64_t most = attention_seen(&keys, last - 1);
    if (most == 0)
        memset(ot, 0, (size_t)(queries * lv) * 4);
    for (int64_t j = 0; j < most; j += KEYS) {
        int64_t m = MR_MIN(most - j, KEYS), mp = attention_pad(m, VF_LANES);
        tile_gather(&k, j, m, d, 1, kr, ld);
        tile_transpose(kr, ld, m, d, kt, mp);
        tile_gather(&v, j, m, dv, 1, vr, lv);
        for (int64_t i = 0; i < queries; i += QUERIES) {
            int64_t rows = MR_MIN(queries - i, QUERIES);
            if (attention_seen(&keys, first + i + rows - 1) <= j)
                continue;
            tile_product(rows, mp, d, qt + i * ld, ld, 1, kt, mp, s, mp, false);
            for (int64_t r = 0; r < rows; r++) {
                float *row = s + r * mp, *out = ot + (i + r) * lv, old = max[i + r];
                int64_t n = attention_seen_of(&keys, first + i + r, j, m);
                if (mr_given(jb->bias))
                    attention_add_bias(jb, h, first + i + r, &keys, j, n, 1, row);
                float top = MR_MAX(old, tile_max(row, n));
                // while all keys so far have a bias of -inf, any maximum gives weights of 0
                float under = top > -INFINITY ? top : 0, fade = j ? expf(old - under) : 0;
                max[i + r] = top;
                sum[i + r] = sum[i + r] * fade + tile_exp(row, n, mp, under);
                for (int64_t e = 0; j && fade != 1 && e < lv; e += VF_LANES)
                    vf_store(out + e, vf_load(out + e) * vf_set(fade));
            }
            // sum CHAIN keys on their own first: if many equal small values were added to a large
            // sum one by one, all would round in the same direction
            for (int64_t p = 0; p < m; p += CHAIN)
                tile_product(rows, lv, MR_MIN(m - p, (int64_t)CHAIN), s + p, mp, 1, vr + p * lv, lv,
                             ot + i * lv, lv, j + p > 0);
        }
    }
    for (int64_t r = 0; r < queries; r++) {
        lse[r] = sum[r] > 0 ? max[r] + logf(sum[r]) : -INFINITY;
        tile_scatter(&o, first + r, 1, dv, sum[r] > 0 ? 1 / sum[r] : 0, ot + r * lv, lv);
    }
}

/* D = rowsum(do o) - dlse of all queries of a head. `yt` and `ot` are buffers for tiles of
 * queries. */
static __attribute__((noinline)) void tile_sums(const mr_call *c, int64_t b, int64_t g, int64_t h,
                                                float *yt, float *ot, float *D)
{
    const int64_t N = c->in[0].desc.dim[2], dv = c->in[2].desc.dim[4],
                  lv = attention_pad(dv, VF_LANES);
    tile_head o = tile_head_of(&c->in[4], b, g, h, NULL),
              dy = tile_head_of(&c->in[6], b, g, h, NULL);
    const float *dlse =
        c->in[7].data ? (const float *)c->in[7].data + attention_stat(c, b, g, h) : NULL;
    for (int64_t i = 0; i < N; i += QUERIES) {
        int64_t rows = MR_MIN(N - i, QUERIES);
        tile_gather(&dy, i, rows, dv, 1, yt, lv);
        tile_gather(&o, i, rows, dv, 1, ot, lv);
        for (int64_t r = 0; r < rows; r++) {
            vf sum = vf_zero();
            for (int64_t e = 0; e < lv; e += VF_LANES)
                sum = vf_fma(vf_load(yt + r * lv + e), vf_load(ot + r * lv + e), sum);
            D[i + r] = vf_sum(sum) - (dlse ? dlse[i + r] : 0);
        }
    }
}

/* ds = p (dp - D) for `rows` queries from i on and m keys from j on; ds contains dp before. */
static __attribute__((noinline)) void tile_slopes(const attention_job *jb, int64_t b, int64_t g,
                                                  int64_t h, const attention_keys *keys, int64_t i,
                                                  int64_t rows, int64_t j, int64_t m,
                                                  const float *D, const float *p, float *ds)
{
    const mr_call *c = jb->call;
    const float *dlse =
        c->in[7].data ? (const float *)c->in[7].data + attention_stat(c, b, g, h) : NULL;
    int64_t mp = attention_pad(m, VF_LANES);
    for (int64_t r = 0; r < rows; r++) {
        float *row = ds + r * mp, d = D[i + r];
        // a single key has the weight 1 whatever its score: the gradient of the score is exactly
        // zero
        if (j == 0 && !((const attention_attr *)c->attr)->part && attention_seen(keys, i + r) == 1)
            d = row[0] - (dlse ? dlse[i + r] : 0);
        for (int64_t e = 0; e < mp; e += VF_LANES)
            vf_store(row + e,
                     formula_score_grad(vf_load(p + r * mp + e), vf_load(row + e), vf_set(d)));
        if (jb->dbias)
            attention_add_dbias(jb, h, i + r, keys, j, m, row);
    }
}

void tile_backward(const attention_job *jb, int64_t b, int64_t g, int64_t h, int64_t range,
                   float *at)
{
    const mr_call *c = jb->call;
    const int64_t N = c->in[0].desc.dim[2], d = c->in[0].desc.dim[4], dv = c->in[2].desc.dim[4],
                  ld = attention_pad(d, VF_LANES), lv = attention_pad(dv, VF_LANES);
    attention_keys keys = attention_keys_of(c, b);
    tile_head q = tile_head_of(&c->in[0], b, g, h, NULL),
              k = tile_head_of(&c->in[1], b, g, h, &keys),
              v = tile_head_of(&c->in[2], b, g, h, &keys),
              dy = tile_head_of(&c->in[6], b, g, h, NULL);
    tile_head dq = tile_head_of(&c->out[0], b, g, h, NULL),
              dk = tile_head_of(&c->out[1], b, g, h, &keys),
              dw = tile_head_of(&c->out[2], b, g, h, &keys);
    const float *lse = (const float *)c->in[5].data + attention_stat(c, b, g, h);
    tile_sizes size = tile_scratch(c, true);
    int64_t area = size.tile * size.width, strip = size.rows * size.width;
    float *kr = at, *kt = kr + area, *gk = kt + area, *vt = gk + area,
          *gv = vt + size.tile * size.value;
    float *qt = gv + size.tile * size.value, *yt = qt + strip, *ot = yt + size.rows * size.value,
          *p = ot + size.rows * size.value, *ds = p + size.rows * size.tile;
    float *D = ds + size.rows * size.tile, *own = D + attention_pad(N, 16);
    // rows of a part have the step `width` in every instruction set: add_parts reads them
    float *gq = jb->ranges > 1 ? attention_parts(jb, b, g, h, range) : own;
    int64_t from = range * jb->range_keys, to = MR_MIN(keys.all, from + jb->range_keys);
    tile_sums(c, b, g, h, yt, ot, D);
    memset(gq, 0, (size_t)(N * size.width) * 4);
    if (range == 0)
        tile_clear(&dk, d, gk), tile_clear(&dw, dv, gv);
    for (int64_t j = from; j < to; j += KEYS) {
        int64_t m = MR_MIN(to - j, KEYS), mp = attention_pad(m, VF_LANES);
        tile_gather(&k, j, m, d, 1, kr, ld);
        tile_transpose(kr, ld, m, d, kt, mp);
        // gv is unused so far: it is the buffer for the rows of v before they are transposed
        tile_gather(&v, j, m, dv, 1, gv, lv);
        tile_transpose(gv, lv, m, dv, vt, mp);
        memset(gk, 0, (size_t)(m * ld) * 4);
        memset(gv, 0, (size_t)(m * lv) * 4);
        for (int64_t i = 0; i < N; i += QUERIES) {
            int64_t rows = MR_MIN(N - i, QUERIES);
            if (attention_seen(&keys, i + rows - 1) <= j)
                continue;
            tile_gather(&q, i, rows, d, jb->scale, qt, ld);
            tile_gather(&dy, i, rows, dv, 1, yt, lv);
            tile_product(rows, mp, d, qt, ld, 1, kt, mp, p, mp, false);
            for (int64_t r = 0; r < rows; r++) {
                // a query whose keys all have a bias of -inf sees no key
                int64_t n = lse[i + r] > -INFINITY ? attention_seen_of(&keys, i + r, j, m) : 0;
                if (mr_given(jb->bias))
                    attention_add_bias(jb, h, i + r, &keys, j, n, 1, p + r * mp);
                tile_exp(p + r * mp, n, mp, lse[i + r]);
            }
            tile_product(m, lv, rows, p, 1, mp, yt, lv, gv, lv, true);
            tile_product(rows, mp, dv, yt, lv, 1, vt, mp, ds, mp, false);
            tile_slopes(jb, b, g, h, &keys, i, rows, j, m, D, p, ds);
            tile_product(rows, ld, m, ds, mp, 1, kr, ld, gq + i * size.width, size.width, true);
            tile_product(m, ld, rows, ds, 1, mp, qt, ld, gk, ld, true);
        }
        tile_scatter(&dk, j, m, d, 1, gk, ld);
        tile_scatter(&dw, j, m, dv, 1, gv, lv);
    }
    if (jb->ranges == 1)
        tile_scatter(&dq, 0, N, d, jb->scale, gq, size.width);
}
