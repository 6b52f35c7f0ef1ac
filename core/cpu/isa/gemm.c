/* gemm: the own product, C = A B, for builds without oneDNN and for strides it does not like.
 *
 * B is packed once into panels [k][NR] of f32 (team), then blocks of MC rows go to the team: each packs
 * its rows into panels [k][MR], multiplies panel by panel in registers (MR x 2 vectors) and writes its
 * finished rows: bias, accumulation and rounding at the end. Sums run over k in blocks of KC, always in
 * the same order, so the bits do not depend on the team. Licence: Apache-2.0 */
#include "cpu/cpu.h"
#include "cpu/product.h"
#include "cpu/vec.h"

#if defined(__AVX512F__)
enum { MR = 12 };
#elif defined(__AVX2__)
enum { MR = 6 };
#else
enum { MR = 4 };
#endif
enum { NR = 2 * VF_LANES, MC = 72, KC = 384, NR_MAX = 32 };

static int64_t up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

typedef struct job {
    const mr_gemm *g;
    float *b;                    /* [panels][k][NR] */
    float *own;                  /* per worker: tile [MC][n], then A block [MC][KC] */
    int64_t n_up, own_size;
} job;

VF_INLINE void pack_b(const mr_gemm *g, float *dst, int64_t panel, mr_dtype t)
{
    int64_t first = panel * NR, cols = MR_MIN(g->n - first, (int64_t)NR);
    dst += panel * g->k * NR;
    if (g->b_col == 1 && cols == NR) {
        for (int64_t p = 0; p < g->k; p++) {
            vf_store(dst + p * NR, vf_ld(g->b, p * g->b_row + first, t));
            vf_store(dst + p * NR + VF_LANES, vf_ld(g->b, p * g->b_row + first + VF_LANES, t));
        }
        return;
    }
    for (int64_t j = 0; j < NR; j++)
        for (int64_t p = 0; p < g->k; p++)
            dst[p * NR + j] = j < cols ? vf_get(g->b, p * g->b_row + (first + j) * g->b_col, t) : 0.0f;
}

static void pack_b_part(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    for (int64_t i = begin; i < end; i++)
        if (j->g->in == MR_BF16) pack_b(j->g, j->b, i, MR_BF16);
        else pack_b(j->g, j->b, i, MR_F32);
}

/* Rows [row, row + rows) and k in [p0, p0 + kc) as panels [kc][MR], zero rows at the end. */
VF_INLINE void pack_a(const mr_gemm *g, float *dst, int64_t row, int64_t rows, int64_t p0, int64_t kc, mr_dtype t)
{
    for (int64_t i = 0; i < rows; i += MR, dst += kc * MR)
        for (int64_t r = 0; r < MR; r++)
            for (int64_t p = 0; p < kc; p++)
                dst[p * MR + r] = i + r < rows ? vf_get(g->a, (row + i + r) * g->a_row + (p0 + p) * g->a_col, t) : 0.0f;
}

/* tile[MR][NR] (+)= A panel x B panel */
VF_INLINE void micro(const float *a, const float *b, int64_t kc, float *tile, int64_t ld, bool add)
{
    vf acc[MR][2];
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < 2; v++) acc[i][v] = add ? vf_load(tile + i * ld + v * VF_LANES) : vf_zero();
    for (int64_t p = 0; p < kc; p++, a += MR, b += NR) {
        vf b0 = vf_load(b), b1 = vf_load(b + VF_LANES);
#pragma GCC unroll 12
        for (int i = 0; i < MR; i++) {
            vf x = vf_set(a[i]);
            acc[i][0] = vf_fma(x, b0, acc[i][0]);
            acc[i][1] = vf_fma(x, b1, acc[i][1]);
        }
    }
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < 2; v++) vf_store(tile + i * ld + v * VF_LANES, acc[i][v]);
}

VF_INLINE void finish(const mr_gemm *g, const float *tile, int64_t ld, int64_t row, int64_t rows, mr_dtype in, mr_dtype out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < g->n; j += VF_LANES) {
            int64_t n = MR_MIN((int64_t)VF_LANES, g->n - j), at = (row + i) * g->c_row + j;
            vf x = vf_load(tile + i * ld + j);
            if (g->bias) x += vf_ldx(g->bias, j, 1, n, in);
            if (g->accumulate) x += vf_ldx(g->c, at, 1, n, out);
            vf_stx(g->c, at, 1, x, n, out);
        }
}

static void rows_part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const mr_gemm *g = j->g;
    float *tile = j->own + worker * j->own_size, *block = tile + MC * j->n_up;
    int64_t rows = end - begin;
    for (int64_t p = 0; p < g->k; p += KC) {
        int64_t kc = MR_MIN((int64_t)KC, g->k - p);
        if (g->in == MR_BF16) pack_a(g, block, begin, rows, p, kc, MR_BF16);
        else pack_a(g, block, begin, rows, p, kc, MR_F32);
        for (int64_t q = 0; q < j->n_up; q += NR)
            for (int64_t i = 0; i < rows; i += MR)
                micro(block + i * kc, j->b + q * g->k + p * NR, kc, tile + i * j->n_up + q, j->n_up, p > 0);
    }
    if (g->k == 0) memset(tile, 0, (size_t)(MC * j->n_up) * sizeof *tile);
    if (g->in == MR_BF16) {
        if (g->out == MR_BF16) finish(g, tile, j->n_up, begin, rows, MR_BF16, MR_BF16);
        else finish(g, tile, j->n_up, begin, rows, MR_BF16, MR_F32);
    } else {
        finish(g, tile, j->n_up, begin, rows, MR_F32, MR_F32);
    }
}

void MR_CAT3(mr_gemm, _, MR_ISA)(const mr_gemm *g)
{
    job j = {.g = g, .b = g->workspace, .n_up = up(g->n, NR)};
    j.own = j.b + j.n_up * g->k;
    j.own_size = MC * (up(g->n, NR_MAX) + KC);
    int64_t flop = 2 * g->m * g->n * g->k;
    int threads = flop < 1000000 ? 1 : g->threads;
    mr_cpu_for(j.n_up / NR, 4, threads, pack_b_part, &j);
    mr_cpu_for(g->m, MC, threads, rows_part, &j);
}

#ifdef MR_ISA_base
size_t mr_gemm_workspace(int64_t m, int64_t n, int64_t k, int threads)
{
    int64_t team = MR_MIN((int64_t)threads, (m + MC - 1) / MC), n_up = up(n, NR_MAX);
    return (size_t)(n_up * k + MR_MAX(team, 1) * MC * (n_up + KC)) * sizeof(float);
}
#endif
