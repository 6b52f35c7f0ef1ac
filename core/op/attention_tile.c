/* attention_tile: tiled attention in f32, one head at a time: the general form.
 *
 * Keys and values are gathered into tiles of KEYS keys once, queries pass in tiles of QUERIES with
 * an online softmax. The pieces: a product with a broadcast left side, gathering of strided heads
 * into tiles, scattering back.
 * Tiles are row-major f32; widths that products write or stream (`n` of tile_product) are multiples
 * of VF_LANES, padded with zeros. Licence: Apache-2.0 */
#include "cpu/transpose.h"
#include "op/attention_job.h"

#if defined(__AVX512F__)
enum { TILE_MR = 8, TILE_NV = 3 };
#else
enum { TILE_MR = 4, TILE_NV = 3 };
#endif

/* c[mr, nv vectors] (+)= sum over k of a[i * rs + k * cs] * b[k * ldb + ...]; mr and nv are
 * constants. */
VF_INLINE void tile_block(int mr, int nv, int64_t k, const float *a, int64_t rs, int64_t cs,
                          const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
    vf acc[TILE_MR][TILE_NV];
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++)
            acc[i][j] = add ? vf_load(c + i * ldc + j * VF_LANES) : vf_zero();
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
        for (int j = 0; j < nv; j++)
            vf_store(c + i * ldc + j * VF_LANES, acc[i][j]);
}

/* all rows of nv vectors of columns */
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

/* c[m, n] (+)= a[m, k] b[k, n]; a has strides rs, cs (so that its transpose costs nothing). */
static __attribute__((noinline, noclone, unused)) void tile_product(int64_t m, int64_t n, int64_t k,
                                                                    const float *a, int64_t rs,
                                                                    int64_t cs, const float *b,
                                                                    int64_t ldb, float *c,
                                                                    int64_t ldc, bool add)
{
    int64_t j = 0, wide = TILE_NV * VF_LANES;
    // where four vectors are left, two and two are faster than three and one
    for (; j + wide <= n && j + wide + VF_LANES != n; j += wide)
        tile_columns(TILE_NV, m, k, a, rs, cs, b + j, ldb, c + j, ldc, add);
    for (; j + 2 * VF_LANES <= n; j += 2 * VF_LANES)
        tile_columns(2, m, k, a, rs, cs, b + j, ldb, c + j, ldc, add);
    if (j < n)
        tile_columns(1, m, k, a, rs, cs, b + j, ldb, c + j, ldc, add);
}

/* One head of a strided argument: element (row, k) is at + row * row_step + k * step. */
typedef struct tile_head {
    void *data;
    int64_t at, row_step, step;
    mr_dtype dtype;
} tile_head;

MR_ROW_FN tile_head tile_head_of(const mr_view *v, int64_t b, int64_t g, int64_t h)
{
    const int64_t *s = v->desc.stride;
    return (tile_head){v->data, b * s[0] + g * s[1] + h * s[3], s[2], s[4], v->desc.dtype};
}

VF_INLINE void tile_gather_as(const tile_head *h, int64_t first, int64_t rows, int64_t d,
                              float scale, float *dst, int64_t ld, mr_dtype t)
{
    vf s = vf_set(scale);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < ld; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES),
                    at = h->at + (first + r) * h->row_step + k * h->step;
            vf x = vf_zero();
            if (m > 0)
                x = vf_ldx(h->data, at, h->step, m, t) * s;
            vf_store(dst + r * ld + k, x);
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
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < d; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES),
                    at = h->at + (first + r) * h->row_step + k * h->step;
            vf_stx(h->data, at, h->step, vf_load(src + r * ld + k) * s, m, t);
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

// Replace a row of scores by its exponentials under the maximum `max`, and what pads it after n by
// 0. Returns their sum.
VF_INLINE float tile_exp(float *s, int64_t n, int64_t padded, float max)
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

// keys, transposed per tile of KEYS, and values of one head
static __attribute__((noinline, unused)) void tile_keys(const tile_head *src, int64_t keys,
                                                        int64_t d, int64_t ld, float *rows,
                                                        float *transposed)
{
    for (int64_t j = 0; j < keys; j += KEYS) {
        int64_t n = MR_MIN(keys - j, KEYS);
        tile_gather(src, j, n, d, 1, rows + j * ld, ld);
        tile_transpose(rows + j * ld, ld, n, d, transposed + j * ld, attention_pad(n, VF_LANES));
    }
}

void tile_forward(const attention_job *jb, int64_t b, int64_t g, int64_t h, int64_t first,
                  int64_t last, float *at)
{
    const mr_call *c = jb->call;
    const int64_t *n = c->in[0].desc.dim, d = n[4], keys = attention_keys(c, b),
                  ld = attention_pad(d, VF_LANES);
    tile_head q = tile_head_of(&c->in[0], b, g, h), k = tile_head_of(&c->in[1], b, g, h),
              v = tile_head_of(&c->in[2], b, g, h), o = tile_head_of(&c->out[0], b, g, h);
    float *lse = (float *)c->out[1].data + attention_stat(c, b, g, h);
    tile_sizes size = tile_scratch(c, false);
    float *kt = at, *vr = kt + size.area, *kr = vr + size.area, *qt = kr + size.area,
          *ot = qt + size.rows * size.width;
    float *s = ot + size.rows * size.width, *max = s + size.rows * size.tile,
          *sum = max + size.rows;
    tile_keys(&k, keys, d, ld, kr, kt);
    tile_gather(&v, 0, keys, d, 1, vr, ld);
    for (int64_t i = first; i < last; i += QUERIES) {
        int64_t rows = MR_MIN(last - i, QUERIES);
        tile_gather(&q, i, rows, d, jb->scale, qt, ld);
        for (int64_t r = 0; r < rows; r++)
            max[r] = -INFINITY, sum[r] = 0;
        if (keys == 0)
            memset(ot, 0, (size_t)(rows * ld) * 4);
        for (int64_t j = 0; j < keys; j += KEYS) {
            int64_t m = MR_MIN(keys - j, KEYS), mp = attention_pad(m, VF_LANES);
            tile_product(rows, mp, d, qt, ld, 1, kt + j * ld, mp, s, mp, false);
            for (int64_t r = 0; r < rows; r++) {
                float old = max[r];
                max[r] = MR_MAX(old, tile_max(s + r * mp, m));
                float fade = j ? expf(old - max[r]) : 0;
                sum[r] = sum[r] * fade + tile_exp(s + r * mp, m, mp, max[r]);
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

void tile_backward(const attention_job *jb, int64_t b, int64_t g, int64_t h, float *at)
{
    const mr_call *c = jb->call;
    const int64_t *n = c->in[0].desc.dim, d = n[4], M = c->in[1].desc.dim[2],
                  keys = attention_keys(c, b), ld = attention_pad(d, VF_LANES);
    tile_head q = tile_head_of(&c->in[0], b, g, h), k = tile_head_of(&c->in[1], b, g, h),
              v = tile_head_of(&c->in[2], b, g, h);
    tile_head o = tile_head_of(&c->in[4], b, g, h), dy = tile_head_of(&c->in[6], b, g, h);
    tile_head dq = tile_head_of(&c->out[0], b, g, h), dk = tile_head_of(&c->out[1], b, g, h),
              dv = tile_head_of(&c->out[2], b, g, h);
    const float *lse = (const float *)c->in[5].data + attention_stat(c, b, g, h);
    const float *dlse =
        c->in[7].data ? (const float *)c->in[7].data + attention_stat(c, b, g, h) : NULL;
    tile_sizes size = tile_scratch(c, true);
    int64_t area = size.area, strip = size.rows * size.width;
    float *kr = at, *kt = kr + area, *vt = kt + area, *gk = vt + area, *gv = gk + area;
    float *qt = gv + area, *yt = qt + strip, *ot = yt + strip, *gq = ot + strip;
    float *p = gq + strip, *ds = p + size.rows * size.tile, *D = ds + size.rows * size.tile;
    // gk is not needed yet: it holds the rows of v until they are transposed
    tile_keys(&v, keys, d, ld, gk, vt);
    tile_keys(&k, keys, d, ld, kr, kt);
    memset(gk, 0, (size_t)(attention_pad(M, 16) * ld) * 4);
    memset(gv, 0, (size_t)(attention_pad(M, 16) * ld) * 4);
    for (int64_t i = 0; i < n[2]; i += QUERIES) {
        int64_t rows = MR_MIN(n[2] - i, QUERIES);
        tile_gather(&q, i, rows, d, jb->scale, qt, ld);
        tile_gather(&dy, i, rows, d, 1, yt, ld);
        tile_gather(&o, i, rows, d, 1, ot, ld);
        for (int64_t r = 0; r < rows; r++) {
            vf sum = vf_zero();
            for (int64_t e = 0; e < ld; e += VF_LANES)
                sum = vf_fma(vf_load(yt + r * ld + e), vf_load(ot + r * ld + e), sum);
            D[r] = vf_sum(sum) - (dlse ? dlse[i + r] : 0);
        }
        if (keys == 0)
            memset(gq, 0, (size_t)(rows * ld) * 4);
        for (int64_t j = 0; j < keys; j += KEYS) {
            int64_t m = MR_MIN(keys - j, KEYS), mp = attention_pad(m, VF_LANES);
            tile_product(rows, mp, d, qt, ld, 1, kt + j * ld, mp, p, mp, false);
            for (int64_t r = 0; r < rows; r++)
                tile_exp(p + r * mp, m, mp, lse[i + r]);
            tile_product(m, ld, rows, p, 1, mp, yt, ld, gv + j * ld, ld, true);
            tile_product(rows, mp, d, yt, ld, 1, vt + j * ld, mp, ds, mp, false);
            for (int64_t r = 0; r < rows; r++) {
                // one key has the weight 1 whatever the scores: its gradient is exactly zero
                vf Dr = vf_set(keys > 1 ? D[r] : ds[r * mp] - (dlse ? dlse[i + r] : 0));
                for (int64_t e = r * mp; e < (r + 1) * mp; e += VF_LANES)
                    vf_store(ds + e, vf_load(p + e) * (vf_load(ds + e) - Dr));
            }
            tile_product(rows, ld, m, ds, mp, 1, kr + j * ld, ld, gq, ld, j > 0);
            tile_product(m, ld, rows, ds, 1, mp, qt, ld, gk + j * ld, ld, true);
        }
        tile_scatter(&dq, i, rows, d, jb->scale, gq, ld);
    }
    tile_scatter(&dk, 0, M, d, 1, gk, ld);
    tile_scatter(&dv, 0, M, d, 1, gv, ld);
}
