/* amx_gemm: products of bf16 on AMX tiles, C = A B (+ C) (+ bias).
 *
 * First the team packs B into panels of tiles, 32 columns wide, in blocks of KB along the sum. Then
 * each thread takes blocks of rows of C. It packs its rows of A and computes 32 x 32 elements of C
 * at a time, two by two tiles, over one block of the sum. Partial sums are stored in C if it is
 * f32, else, if there are several blocks, in an f32 block of the worker. Sums run over k in blocks
 * of KB, always in the same order, so the bits do not depend on the number of threads. Compared
 * with oneDNN 2.6 in the same minute, on one core: [2560, 4608] by [4608, 1152] 1.06 and 0.77
 * TFLOP/s; with a transposed A, accumulating, 0.91 and 0.68. Licence: Apache-2.0 */
#include "cpu/cpu.h"
#include "cpu/product.h"

#if defined(MR_ISA_avx512) && defined(__x86_64__) && defined(__linux__)
#include "cpu/amx.h"
#include "cpu/transpose.h"
#endif

enum { KB = 1152, NC = 1152, MB = 256, TILE = 512 /* elements */ };
__attribute__((unused)) static int64_t up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

#if defined(MR_ISA_base)
/* Rows per task; fewer if the team would have too few tasks. */
static int64_t rows_per_task(int64_t m, int threads)
{
    return MR_MAX(32, MR_MIN((int64_t)MB, up((m + 2 * threads - 1) / (2 * threads), 32)));
}

static size_t own_bytes(int64_t rows, int64_t n, int64_t k)
{
    // packed rows of A; one chunk of columns in f32; one block of C
    return (size_t)(rows * up(k, 32) * 2 + rows * up(MR_MIN(n, (int64_t)NC), 32) * 4 + 32 * 32 * 4);
}

bool mr_gemm_amx_fits(const mr_product_spec *s)
{
#ifdef MR_HAVE_ONEDNN
    // for small products, packing costs more than it saves; oneDNN reads them unpacked
    const double least = 1e9;
#else
    const double least = 2e7;
#endif
    double flop = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    return s->in == MR_BF16 && s->batch == 1 && (s->a_col == 1 || s->a_row == 1) &&
           (s->b_col == 1 || s->b_row == 1) && s->m >= 32 && s->n >= 32 && s->k >= 32 &&
           flop >= least;
}

mr_gemm_amx_sizes mr_gemm_amx_needs(int64_t m, int64_t n, int64_t k, int threads)
{
    mr_gemm_amx_sizes z = {.rows = rows_per_task(m, threads),
                           .b_bytes = (size_t)(up(k, 32) * up(n, 32)) * 2};
    z.own_bytes = own_bytes(z.rows, n, k);
    return z;
}
#elif defined(MR_ISA_avx512) && defined(__x86_64__) && defined(__linux__)

typedef struct job {
    const mr_gemm *g;
    mr_gemm_amx_sizes size;
    uint16_t *b;
    int64_t np; /* columns of B, padded */
} job;

/* Transpose 16 x 16 words (pairs of elements); row l starts at at + l * step. Only `rows` rows and
 * `elements` elements exist. */
VF_INLINE void turn_tile(const uint16_t *at, int64_t step, int64_t rows, int64_t elements,
                         uint16_t *dst)
{
    __mmask32 mask = elements >= 32 ? 0xffffffffu : (1u << MR_MAX(elements, 0)) - 1;
    vf r[16];
    for (int64_t l = 0; l < 16; l++)
        r[l] = l < rows ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, at + l * step))
                        : vf_zero();
    vf_transpose(r);
    for (int l = 0; l < 16; l++)
        vf_store((float *)(void *)dst + 16 * l, r[l]);
}

/* Interleave rows 2r and 2r + 1 to words of pairs, for 16 columns; only `rows` rows and the columns
 * of `mask` exist. */
VF_INLINE __m512i pair_row(const uint16_t *at, int64_t step, int64_t r, int64_t rows,
                           __mmask16 mask)
{
    __m512i lo = _mm512_setzero_si512(), hi = lo;
    if (2 * r < rows)
        lo = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, at + 2 * r * step));
    if (2 * r + 1 < rows)
        hi = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, at + (2 * r + 1) * step));
    return _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16));
}
static __mmask16 columns_mask(int64_t cols)
{
    return cols >= 16 ? 0xffff : (__mmask16)((1u << MR_MAX(cols, 0)) - 1);
}

/* Pack panels of 32 columns. Order: blocks of the sum, steps, two tiles of 16 columns. */
static void pack_b_part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const mr_gemm *g = j->g;
    (void)worker;
    for (int64_t k0 = 0; k0 < g->k; k0 += KB) {
        int64_t kb = up(MR_MIN(g->k - k0, (int64_t)KB), 32), steps = kb / 32, panels = end - begin;
        // the inner loop follows memory: along the sum if that is dense, else across the panels
        for (int64_t i = 0; i < steps * panels; i++) {
            int64_t step = g->b_row == 1 ? i % steps : i / panels,
                    panel = begin + (g->b_row == 1 ? i / steps : i % panels);
            int64_t k = k0 + 32 * step;
            uint16_t *dst = j->b + k0 * j->np + panel * 32 * kb + step * 2 * TILE;
            for (int64_t n = panel * 32; n < panel * 32 + 32; n += 16, dst += TILE) {
                const uint16_t *at = (const uint16_t *)g->b + k * g->b_row + n * g->b_col;
                if (g->b_row == 1) {
                    turn_tile(at, g->b_col, g->n - n, g->k - k, dst);
                    continue;
                }
                __mmask16 mask = columns_mask(g->n - n);
                for (int64_t r = 0; r < 16; r++)
                    _mm512_storeu_si512(dst + 32 * r, pair_row(at, g->b_row, r, g->k - k, mask));
            }
        }
    }
}

/* Pack one tile of A: rows from m on, 32 elements of the sum from k on. */
VF_INLINE void pack_a_tile(const mr_gemm *g, int64_t m, int64_t k, uint16_t *dst)
{
    const uint16_t *at = (const uint16_t *)g->a + m * g->a_row + k * g->a_col;
    int64_t left = g->k - k;
    if (g->a_col == 1) {
        __mmask32 mask = left >= 32 ? 0xffffffffu : (1u << left) - 1;
        for (int64_t r = 0; r < 16; r++)
            _mm512_storeu_si512(dst + 32 * r,
                                m + r < g->m ? _mm512_maskz_loadu_epi16(mask, at + r * g->a_row)
                                             : _mm512_setzero_si512());
        return;
    }
    // interleave pairs along the sum, then transpose them to rows of pairs
    __mmask16 mask = columns_mask(g->m - m);
    vf r[16];
    for (int64_t l = 0; l < 16; l++)
        r[l] = _mm512_castsi512_ps(pair_row(at, g->a_col, l, left, mask));
    vf_transpose(r);
    for (int l = 0; l < 16; l++)
        vf_store((float *)(void *)dst + 16 * l, r[l]);
}

/* Pack rows row .. row + rows of A. Order: blocks of the sum, groups of 32 rows, steps, two tiles
 * of 16 rows. */
static void pack_a(const mr_gemm *g, int64_t row, int64_t rows, uint16_t *to)
{
    for (int64_t k0 = 0; k0 < g->k; k0 += KB) {
        int64_t kb = up(MR_MIN(g->k - k0, (int64_t)KB), 32), steps = kb / 32, strips = rows / 32;
        for (int64_t i = 0; i < steps * strips; i++) {
            int64_t step = g->a_col == 1 ? i % steps : i / strips,
                    strip = g->a_col == 1 ? i / steps : i % strips;
            uint16_t *dst = to + k0 * rows + strip * 32 * kb + step * 2 * TILE;
            pack_a_tile(g, row + strip * 32, k0 + 32 * step, dst);
            pack_a_tile(g, row + strip * 32 + 16, k0 + 32 * step, dst + TILE);
        }
    }
}

/* c[32, 32] (+)= a b over `steps` of 32; both operands are packed. */
AMX_FN void block(int64_t steps, const uint16_t *a, const uint16_t *b, float *c, int64_t ldc,
                  bool add)
{
    float *low = c + 16 * ldc;
    if (add) {
        AMX_LOAD(0, c, ldc * 4);
        AMX_LOAD(1, c + 16, ldc * 4);
        AMX_LOAD(2, low, ldc * 4);
        AMX_LOAD(3, low + 16, ldc * 4);
    } else {
        AMX_CLEAR(0);
        AMX_CLEAR(1);
        AMX_CLEAR(2);
        AMX_CLEAR(3);
    }
    for (int64_t s = 0; s < steps; s++, a += 2 * TILE, b += 2 * TILE) {
        AMX_LOAD(6, b, 64);
        AMX_LOAD(4, a, 64);
        AMX_DOT(0, 4, 6);
        AMX_LOAD(7, b + TILE, 64);
        AMX_DOT(1, 4, 7);
        AMX_LOAD(5, a + TILE, 64);
        AMX_DOT(2, 5, 6);
        AMX_DOT(3, 5, 7);
    }
    AMX_STORE(0, c, ldc * 4);
    AMX_STORE(1, c + 16, ldc * 4);
    AMX_STORE(2, low, ldc * 4);
    AMX_STORE(3, low + 16, ldc * 4);
}

/* C[row + r, col + i] = src[r, i] (+ C) (+ bias), for rows x cols elements. */
static void finish(const mr_gemm *g, int64_t row, int64_t col, int64_t rows, int64_t cols,
                   const float *src, int64_t ld, bool add, bool bias)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < cols; i += VF_LANES) {
            int64_t n = MR_MIN(cols - i, (int64_t)VF_LANES), at = (row + r) * g->c_row + col + i;
            vf x = vf_loadn(src + r * ld + i, n);
            if (add)
                x = x + vf_loadn((const float *)g->c + at, n);
            if (bias)
                x = x + vf_ldn(g->bias, col + i, n, g->in);
            vf_stn(g->c, at, x, n, g->out);
        }
}

static void rows_part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const mr_gemm *g = j->g;
    char *own = (char *)g->workspace + j->size.b_bytes + (size_t)worker * j->size.own_bytes;
    int64_t rows = up(end - begin, 32), ld = up(MR_MIN(g->n, (int64_t)NC), 32);
    uint16_t *a = (uint16_t *)(void *)own;
    float *wide = (float *)(void *)(own + j->size.rows * up(g->k, 32) * 2),
          *one = wide + j->size.rows * ld;
    // several blocks of the sum accumulate in `wide`, so that C is not read and written for each
    bool apart = g->k > KB;
    amx_begin();
    pack_a(g, begin, rows, a);
    for (int64_t n0 = 0; n0 < g->n; n0 += NC) {
        int64_t n1 = MR_MIN(n0 + NC, g->n);
        for (int64_t k0 = 0; k0 < g->k && !mr_interrupt_get(); k0 += KB) {
            int64_t kb = up(MR_MIN(g->k - k0, (int64_t)KB), 32);
            bool last = k0 + KB >= g->k, add = k0 > 0 || g->accumulate;
            for (int64_t n = n0; n < n1; n += 32)
                for (int64_t i = 0; i < rows; i += 32) {
                    const uint16_t *ai = a + k0 * rows + i * kb, *bn = j->b + k0 * j->np + n * kb;
                    int64_t m = begin + i, r = MR_MIN(end - m, 32), c = MR_MIN(g->n - n, 32);
                    if (apart) {
                        block(kb / 32, ai, bn, wide + i * ld + n - n0, ld, k0 > 0);
                    } else if (g->out == MR_F32 && r == 32 && c == 32 && !(last && g->bias)) {
                        block(kb / 32, ai, bn, (float *)g->c + m * g->c_row + n, g->c_row, add);
                    } else {
                        block(kb / 32, ai, bn, one, 32, false);
                        finish(g, m, n, r, c, one, 32, add, last && g->bias);
                    }
                }
        }
        if (apart)
            finish(g, begin, n0, end - begin, n1 - n0, wide, ld, g->accumulate, g->bias != NULL);
    }
    amx_end();
}

void mr_gemm_amx(const mr_gemm *g)
{
    job j = {.g = g,
             .size = mr_gemm_amx_needs(g->m, g->n, g->k, g->threads),
             .b = g->workspace,
             .np = up(g->n, 32)};
    mr_cpu_for(j.np / 32, 4, g->threads, pack_b_part, &j);
    if (!g->packs_only)
        mr_cpu_for(g->m, j.size.rows, g->threads, rows_part, &j);
}
#endif
