/* attention_tile: the small dense pieces of tiled attention in f32: a product with a broadcast left
 * side, gathering of strided heads into tiles, and their scattering back.
 *
 * Tiles are row-major f32; widths that products write or stream (`n` of tile_product) are multiples of
 * VF_LANES, padded with zeros. Licence: Apache-2.0 */
#ifndef MR_ATTENTION_TILE_H
#define MR_ATTENTION_TILE_H

#include "op/row.h"

#if defined(__AVX512F__)
enum { TILE_MR = 8, TILE_NV = 3 };
#else
enum { TILE_MR = 4, TILE_NV = 3 };
#endif

static inline int64_t tile_pad(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* c[mr, nv vectors] (+)= sum over k of a[i * rs + k * cs] * b[k * ldb + ...]; mr and nv are constants. */
VF_INLINE void tile_block(int mr, int nv, int64_t k, const float *a, int64_t rs, int64_t cs, const float *b, int64_t ldb,
                          float *c, int64_t ldc, bool add)
{
    vf acc[TILE_MR][TILE_NV];
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++) acc[i][j] = add ? vf_load(c + i * ldc + j * VF_LANES) : vf_zero();
    for (int64_t p = 0; p < k; p++) {
        vf y[TILE_NV];
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++) y[j] = vf_load(b + p * ldb + j * VF_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            vf x = vf_set(a[i * rs + p * cs]);
#pragma GCC unroll 3
            for (int j = 0; j < nv; j++) acc[i][j] = vf_fma(x, y[j], acc[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++) vf_store(c + i * ldc + j * VF_LANES, acc[i][j]);
}

/* all rows of nv vectors of columns */
VF_INLINE void tile_columns(int nv, int64_t m, int64_t k, const float *a, int64_t rs, int64_t cs, const float *b, int64_t ldb,
                            float *c, int64_t ldc, bool add)
{
    int64_t i = 0;
    for (; i + TILE_MR <= m; i += TILE_MR) tile_block(TILE_MR, nv, k, a + i * rs, rs, cs, b, ldb, c + i * ldc, ldc, add);
    if (TILE_MR > 4 && i + 4 <= m) tile_block(4, nv, k, a + i * rs, rs, cs, b, ldb, c + i * ldc, ldc, add), i += 4;
    if (i + 2 <= m) tile_block(2, nv, k, a + i * rs, rs, cs, b, ldb, c + i * ldc, ldc, add), i += 2;
    if (i < m) tile_block(1, nv, k, a + i * rs, rs, cs, b, ldb, c + i * ldc, ldc, add);
}

/* c[m, n] (+)= a[m, k] b[k, n]; a has strides rs, cs (so that its transpose costs nothing). */
static __attribute__((noinline, unused)) void tile_product(int64_t m, int64_t n, int64_t k, const float *a, int64_t rs, int64_t cs,
                                                           const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
    int64_t j = 0, wide = TILE_NV * VF_LANES;
    for (; j + wide <= n; j += wide) tile_columns(TILE_NV, m, k, a, rs, cs, b + j, ldb, c + j, ldc, add);
    if (j + 2 * VF_LANES <= n) tile_columns(2, m, k, a, rs, cs, b + j, ldb, c + j, ldc, add), j += 2 * VF_LANES;
    if (j < n) tile_columns(1, m, k, a, rs, cs, b + j, ldb, c + j, ldc, add);
}

/* One head of a strided argument: element (row, k) is at + row * row_step + k * step. */
typedef struct tile_head { void *data; int64_t at, row_step, step; mr_dtype dtype; } tile_head;

VF_INLINE void tile_gather_as(const tile_head *h, int64_t first, int64_t rows, int64_t d, float scale, float *dst, int64_t ld, mr_dtype t)
{
    vf s = vf_set(scale);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < ld; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES), at = h->at + (first + r) * h->row_step + k * h->step;
            vf x = vf_zero();
            if (m > 0) x = vf_ldx(h->data, at, h->step, m, t) * s;
            vf_store(dst + r * ld + k, x);
        }
}
/* dst[rows, ld] = scale * head[first .. first + rows, d], zeros up to ld (a multiple of VF_LANES). */
static inline __attribute__((unused)) void tile_gather(const tile_head *h, int64_t first, int64_t rows, int64_t d, float scale, float *dst, int64_t ld)
{
    if (h->dtype == MR_BF16) tile_gather_as(h, first, rows, d, scale, dst, ld, MR_BF16);
    else tile_gather_as(h, first, rows, d, scale, dst, ld, MR_F32);
}

VF_INLINE void tile_scatter_as(const tile_head *h, int64_t first, int64_t rows, int64_t d, float scale, const float *src, int64_t ld, mr_dtype t)
{
    vf s = vf_set(scale);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < d; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES), at = h->at + (first + r) * h->row_step + k * h->step;
            vf_stx(h->data, at, h->step, vf_load(src + r * ld + k) * s, m, t);
        }
}
/* head[first .. first + rows, d] = scale * src[rows, ld]. */
static inline __attribute__((unused)) void tile_scatter(const tile_head *h, int64_t first, int64_t rows, int64_t d, float scale, const float *src, int64_t ld)
{
    if (h->dtype == MR_BF16) tile_scatter_as(h, first, rows, d, scale, src, ld, MR_BF16);
    else tile_scatter_as(h, first, rows, d, scale, src, ld, MR_F32);
}

/* dst[d, ld] = transpose of src[rows, src_ld]; columns rows .. ld are zero. */
static inline __attribute__((unused)) void tile_transpose(const float *src, int64_t src_ld, int64_t rows, int64_t d, float *dst, int64_t ld)
{
    for (int64_t k0 = 0; k0 < d; k0 += 8)
        for (int64_t r0 = 0; r0 < rows; r0 += 8)
            for (int64_t k = k0; k < MR_MIN(k0 + 8, d); k++)
                for (int64_t r = r0; r < MR_MIN(r0 + 8, rows); r++) dst[k * ld + r] = src[r * src_ld + k];
    if (rows < ld)
        for (int64_t k = 0; k < d; k++) memset(dst + k * ld + rows, 0, (size_t)(ld - rows) * 4);
}

#endif
