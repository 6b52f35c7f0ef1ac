/* muon_amx: the rounds of muon.c on AMX tiles, for blocks of bf16.
 *
 * Left operands are row-major. Right operands are packed in tiles: 16 rows of pairs along the
 * summed dimension, 16 columns. Of a symmetric matrix, blocks on and above the diagonal are
 * computed, and each is stored twice.
 * Licence: Apache-2.0 */
#include "cpu/amx.h"
#include "cpu/amx_block.h"
#include "cpu/transpose.h"
#include "op/muon.h"

#ifdef MUON_AMX
enum { SIDE = 32, HALF = 16 };

/* Pack x^T of x [n, k] as right operand: tile (step, i) at i * k / 32 + step. */
static void pack_turned(const uint16_t *x, int64_t n, int64_t k, uint16_t *dst)
{
    for (int64_t i = 0; i < n; i += HALF)
        for (int64_t p = 0; p < k; p += SIDE, dst += AMX_TILE) {
            vf r[HALF];
            for (int l = 0; l < HALF; l++)
                r[l] = vf_load((const float *)(const void *)(x + (i + l) * k + p));
            vf_transpose(r);
            for (int l = 0; l < HALF; l++)
                vf_store((float *)(void *)dst + HALF * l, r[l]);
        }
}

VF_INLINE __m512i words(const uint16_t *x)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

/* Pack x [k, n] as right operand in the same way. */
static void pack_rows(const uint16_t *x, int64_t k, int64_t n, uint16_t *dst)
{
    for (int64_t i = 0; i < n; i += HALF)
        for (int64_t p = 0; p < k; p += 2, dst += SIDE) {
            const uint16_t *at = x + p * n + i;
            __m512i high = _mm512_slli_epi32(words(at + n), 16);
            _mm512_storeu_si512(dst, _mm512_or_si512(words(at), high));
        }
}

/* Store a block of 32 x 32 as bf16 at y, with row stride ld. */
AMX_INLINE void store(const float *c, uint16_t *y, int64_t ld)
{
    for (int64_t r = 0; r < SIDE; r++, c += SIDE)
        _mm512_storeu_si512(y + r * ld,
                            (__m512i)_mm512_cvtne2ps_pbh(vf_load(c + HALF), vf_load(c)));
}
AMX_INLINE void store_turned(const float *c, uint16_t *y, int64_t ld)
{
    for (int64_t i = 0; i < SIDE; i += HALF)
        for (int64_t j = 0; j < SIDE; j += HALF) {
            vf r[HALF];
            for (int l = 0; l < HALF; l++)
                r[l] = vf_load(c + (i + l) * SIDE + j);
            vf_transpose(r);
            for (int l = 0; l < HALF; l++)
                _mm256_storeu_si256((__m256i *)(void *)(y + (j + l) * ld + i),
                                    (__m256i)_mm512_cvtneps_pbh(r[l]));
        }
}

/* y [m, n] = a b, summed over k; a [m, k], b packed. symmetric: y = y^T. */
AMX_FN void product(const uint16_t *a, const uint16_t *b, uint16_t *y, int64_t m, int64_t n,
                    int64_t k, bool symmetric)
{
    const int64_t steps = k / SIDE;
    float c[SIDE * SIDE];
    for (int64_t j = 0; j < n; j += SIDE)
        for (int64_t i = 0; i < (symmetric ? j + SIDE : m); i += SIDE) {
            amx_block(true, true, steps, a + i * k, k, b + j / HALF * steps * AMX_TILE, 1, steps, c,
                      SIDE, false);
            store(c, y + i * n + j, n);
            if (symmetric && i < j)
                store_turned(c, y + j * n + i, n);
        }
}

static void add_to_diagonal(uint16_t *x, int64_t s, float add)
{
    for (int64_t i = 0; i < s; i++)
        x[i * (s + 1)] = mr_f32_to_bf16(mr_bf16_to_f32(x[i * (s + 1)]) + add);
}

AMX_ENTRY void mr_muon_amx_rounds(muon_places *at, int64_t s, int64_t l)
{
    uint16_t *y = (void *)at->y, *next = (void *)at->next, *gram = (void *)at->gram,
             *mixed = (void *)at->mixed, *right = (void *)at->own;
    amx_begin();
    for (int k = 0; k < MUON_ROUNDS; k++) {
        pack_turned(y, s, l, right);
        product(y, right, gram, s, s, l, true);
        pack_turned(gram, s, s, right);
        add_to_diagonal(gram, s, muon_gram_shift());
        product(gram, right, mixed, s, s, s, true);
        add_to_diagonal(mixed, s, (float)MUON_A);
        pack_rows(y, s, l, right);
        product(mixed, right, next, s, l, s, false);
        uint16_t *was = y;
        y = next, next = was;
    }
    amx_end();
    at->y = (char *)y, at->next = (char *)next;
}
#endif
