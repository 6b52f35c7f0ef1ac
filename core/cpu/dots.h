/* dots: implements the functions of amx.h by vector products of bf16 pairs (AVX-512 BF16), for
 * processors without tiles. A file written for tiles is compiled a second time with this header as
 * the first one. It also defines amx_block (AMX_VECTORS). Licence: Apache-2.0 */
#ifndef MR_AMX_H
#define MR_AMX_H

#include "cpu/vec.h"

#define AMX_VECTORS 1
#define AMX_FN      __attribute__((target("avx512bf16"), unused)) static
#define AMX_ENTRY   __attribute__((target("avx512bf16")))
#define AMX_INLINE  __attribute__((target("avx512bf16"), always_inline, unused)) static inline

AMX_FN void amx_begin(void) {}
AMX_FN void amx_end(void) {}

/* Rows of c whose sums stay in registers, with one or two vectors of columns. */
enum { DOTS_ROWS = 8 };

/* c[DOTS_ROWS, 16 or 32] (+)= a b over `steps` of 32. a: row-major, lda; b: tile (s, n) of 16 rows
 * of pairs at s * bs + n * bn tiles. */
AMX_INLINE void dots_rows(bool c2, int64_t steps, const uint16_t *a, int64_t lda, const uint16_t *b,
                          int64_t bs, int64_t bn, float *c, int64_t ldc, bool add)
{
    enum { TILE = 512, PAIRS = 16 };
    const int columns = c2 ? 2 : 1;
    vf sum[DOTS_ROWS][2];
    for (int i = 0; i < DOTS_ROWS; i++)
        for (int n = 0; n < columns; n++)
            sum[i][n] = add ? vf_load(c + i * ldc + n * VF_LANES) : vf_zero();
    for (int64_t s = 0; s < steps; s++, a += 2 * PAIRS, b += bs * TILE)
        for (int64_t p = 0; p < PAIRS; p++) {
            __m512bh y[2];
            for (int n = 0; n < columns; n++)
                y[n] = (__m512bh)_mm512_loadu_si512(b + n * bn * TILE + 2 * PAIRS * p);
#pragma GCC unroll 8
            for (int i = 0; i < DOTS_ROWS; i++) {
                int32_t pair;
                memcpy(&pair, a + i * lda + 2 * p, sizeof pair);
                __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
                for (int n = 0; n < columns; n++)
                    sum[i][n] = _mm512_dpbf16_ps(sum[i][n], x, y[n]);
            }
        }
    for (int i = 0; i < DOTS_ROWS; i++)
        for (int n = 0; n < columns; n++)
            vf_store(c + i * ldc + n * VF_LANES, sum[i][n]);
}

/* The same for 16 or 32 rows of c. */
AMX_INLINE void amx_block(bool r2, bool c2, int64_t steps, const uint16_t *a, int64_t lda,
                          const uint16_t *b, int64_t bs, int64_t bn, float *c, int64_t ldc,
                          bool add)
{
    for (int64_t i = 0; i < (r2 ? 32 : 16); i += DOTS_ROWS)
        dots_rows(c2, steps, a + i * lda, lda, b, bs, bn, c + i * ldc, ldc, add);
}

#endif
