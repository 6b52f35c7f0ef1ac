/* gemm: the own product, C = A B, of f32 and bf16 with any strides.
 *
 * NC columns at a time: B is packed into panels [k][NR] of f32 (team), then the team takes blocks
 * of MC rows of C at most. A block goes through k in steps of KC, panel by panel in registers (MR
 * rows x 2 vectors). Dense rows of f32 are read where they lie, any other A is packed into panels
 * [kc][MR] first. f32 results are added up in C itself, bf16 ones in a scratch. Sums run over k in
 * the same order whatever the team, so bits do not depend on it. Packed B may come from memory
 * rather than a cache, so the next panel is fetched while one is used.
 * Licence: Apache-2.0 */
#include "cpu/cpu.h"
#include "cpu/product.h"
#include "cpu/transpose.h"

#if defined(__AVX512F__)
enum { MR = 12 };
#elif defined(__AVX2__)
enum { MR = 6 };
#else
enum { MR = 4 };
#endif
// UNROLL: a third step would not stay in the registers; AHEAD: of the next panel, per UNROLL steps
enum {
    NR = 2 * VF_LANES,
    MC = 72,
    NC = 1152,
    KC = 384,
    NR_MAX = 32,
    UNROLL = 2,
    AHEAD = UNROLL * NR * MR / MC + 1
};
enum { OWN_A = (MC + MR) * KC + (MC / MR + 1) * VF_LANES };

static int64_t up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

typedef struct job {
    const mr_gemm *g;
    float *b;               /* [panels][k][NR] */
    float *own;             /* per worker: packed A, then a block of C unless it is f32 */
    int64_t own_size, rows; /* of a block */
    int64_t first, last;    /* columns of this pass */
} job;

VF_INLINE vf some(const void *x, int64_t at, int64_t n, mr_dtype t)
{
    return n >= VF_LANES ? vf_ld(x, at, t) : n > 0 ? vf_ldn(x, at, n, t) : vf_zero();
}

/* `count` elements that lie `row` apart, each of `n` along `col`, as panels [n][width] that lie
 * `panel` apart; zeros from element `valid` on. A panel may be followed by VF_LANES elements of
 * rubbish. */
VF_INLINE void pack(float *dst, int64_t width, int64_t panel, const void *x, int64_t at,
                    int64_t row, int64_t col, int64_t count, int64_t valid, int64_t n, mr_dtype t)
{
    if (row == 1) {
        bool whole = valid >= count + width + VF_LANES;
        for (int64_t p = 0; p < n; p++, dst += width, at += col)
            for (int64_t w = 0, to = 0; w < count; w += width, to += panel)
                for (int64_t v = 0; v < width; v += VF_LANES)
                    vf_store(dst + to + v, whole ? vf_ld(x, at + w + v, t)
                                                 : some(x, at + w + v, valid - w - v, t));
        return;
    }
    for (int64_t w = 0; w < count; w += width, dst += panel)
        for (int64_t v = 0; v < width; v += VF_LANES) {
            int64_t from = at + (w + v) * row, lanes = MR_MIN(valid - w - v, (int64_t)VF_LANES),
                    p = 0;
            for (; col == 1 && p + VF_LANES <= n; p += VF_LANES) {
                vf r[VF_LANES];
                for (int i = 0; i < VF_LANES; i++)
                    r[i] = i < lanes ? vf_ld(x, from + i * row + p, t) : vf_zero();
                vf_transpose(r);
                for (int i = 0; i < VF_LANES; i++)
                    vf_store(dst + (p + i) * width + v, r[i]);
            }
            for (; p < n; p++)
                vf_store(dst + p * width + v,
                         lanes > 0 ? vf_ldx(x, from + p * col, row, lanes, t) : vf_zero());
        }
}

static void pack_b(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    const mr_gemm *g = j->g;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = j->first + i * NR;
        float *dst = j->b + i * NR * g->k;
        if (g->in == MR_BF16)
            pack(dst, NR, 0, g->b, first * g->b_col, g->b_col, g->b_row, NR, g->n - first, g->k,
                 MR_BF16);
        else
            pack(dst, NR, 0, g->b, first * g->b_col, g->b_col, g->b_row, NR, g->n - first, g->k,
                 MR_F32);
    }
}

/* c[MR][NR] = c, bias or 0, + A panel x B panel. Row i of A begins at a[i], its elements lie `step`
 * apart. next: what to fetch meanwhile. */
VF_INLINE void multiply(const float *const *a, int64_t step, const float *b, const float *next,
                        int64_t kc, float *c, int64_t ld, bool add, const float *bias)
{
    vf acc[MR][2];
    const float *row[MR];
    for (int i = 0; i < MR; i++)
        acc[i][0] = acc[i][1] = vf_zero(), row[i] = a[i];
    int64_t p = 0;
    for (; p + UNROLL <= kc; b += UNROLL * NR, next += AHEAD) {
        __builtin_prefetch(next, 0, 2);
#pragma GCC unroll 2
        for (int64_t u = 0; u < UNROLL; u++, p++) {
            vf b0 = vf_load(b + u * NR), b1 = vf_load(b + u * NR + VF_LANES);
#pragma GCC unroll 12
            for (int i = 0; i < MR; i++) {
                vf x = vf_set(row[i][p * step]);
                acc[i][0] = vf_fma(x, b0, acc[i][0]);
                acc[i][1] = vf_fma(x, b1, acc[i][1]);
            }
        }
    }
    for (; p < kc; p++, b += NR)
        for (int i = 0; i < MR; i++) {
            vf x = vf_set(row[i][p * step]);
            acc[i][0] = vf_fma(x, vf_load(b), acc[i][0]);
            acc[i][1] = vf_fma(x, vf_load(b + VF_LANES), acc[i][1]);
        }
    for (int v = 0; v < 2; v++) {
        vf base = bias ? vf_load(bias + v * VF_LANES) : vf_zero();
        for (int i = 0; i < MR; i++) {
            float *to = c + i * ld + v * VF_LANES;
            vf_store(to, acc[i][v] + (add ? vf_load(to) : base));
        }
    }
}
// out of line: among the values of the loops around it the sums would not stay in registers
#define MULTIPLY(name, step)                                                                       \
    static __attribute__((noinline)) void name(const float *const *a, const float *b,              \
                                               const float *next, int64_t kc, float *c,            \
                                               int64_t ld, bool add, const float *bias)            \
    {                                                                                              \
        multiply(a, step, b, next, kc, c, ld, add, bias);                                          \
    }
MULTIPLY(multiply_dense, 1)
MULTIPLY(multiply_packed, MR)

/* c[rows][cols] = c or bias, + sum[MR][NR]; bias from element `at` on. */
VF_INLINE void finish(const mr_gemm *g, const float *sum, float *c, int64_t ld, bool add,
                      int64_t rows, int64_t cols, int64_t at, mr_dtype in)
{
    for (int64_t v = 0; v < cols; v += VF_LANES) {
        int64_t n = MR_MIN(cols - v, (int64_t)VF_LANES);
        vf base = !add && g->bias ? vf_ldx(g->bias, at + v, 1, n, in) : vf_zero();
        for (int64_t i = 0; i < rows; i++) {
            float *to = c + i * ld + v;
            vf_storen(to, vf_load(sum + i * NR + v) + (add ? vf_loadn(to, n) : base), n);
        }
    }
}

/* Rows [row, row + rows) of this pass over one step of k; C is at `to`. */
VF_INLINE void block(const job *j, float *packed, float *to, int64_t ld, int64_t row, int64_t rows,
                     int64_t p, bool dense, mr_dtype in)
{
    const mr_gemm *g = j->g;
    int64_t kc = MR_MIN(g->k - p, (int64_t)KC), panel = kc * MR + VF_LANES;
    bool add = p > 0 || g->accumulate;
    if (!dense)
        pack(packed, MR, panel, g->a, row * g->a_row + p * g->a_col, g->a_row, g->a_col, rows,
             g->m - row, kc, in);
    for (int64_t q = 0; q < j->last - j->first; q += NR)
        for (int64_t i = 0; i < rows; i += MR) {
            const float *b = j->b + q * g->k + p * NR,
                        *next = b + NR * g->k + i / MR * (kc / UNROLL * AHEAD), *a[MR];
            for (int64_t r = 0; r < MR; r++)
                a[r] = dense ? (const float *)g->a + (row + MR_MIN(i + r, rows - 1)) * g->a_row + p
                             : packed + i / MR * panel + r;
            int64_t height = MR_MIN(rows - i, (int64_t)MR),
                    width = MR_MIN(j->last - j->first - q, (int64_t)NR);
            bool whole = height == MR && width == NR && (in == MR_F32 || add || !g->bias);
            float sum[MR * NR], *c = to + i * ld + q, *target = whole ? c : sum;
            const float *bias =
                whole && !add && g->bias ? (const float *)g->bias + j->first + q : NULL;
            for (int64_t r = 0; r < height; r++)
                __builtin_prefetch(c + r * ld, 1), __builtin_prefetch(c + r * ld + width - 1, 1);
            if (dense)
                multiply_dense(a, b, next, kc, target, whole ? ld : NR, whole && add, bias);
            else
                multiply_packed(a, b, next, kc, target, whole ? ld : NR, whole && add, bias);
            if (!whole)
                finish(g, sum, c, ld, add, height, width, j->first + q, in);
        }
}

static void block_of_rows(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const mr_gemm *g = j->g;
    float *packed = j->own + worker * j->own_size, *scratch = packed + OWN_A;
    bool place = g->out == MR_F32;
    float *to = place ? (float *)g->c + begin * g->c_row + j->first : scratch;
    int64_t ld = place ? g->c_row : NC, rows = end - begin;
    for (int64_t p = 0; p == 0 || p < g->k; p += KC)
        if (g->in == MR_BF16)
            block(j, packed, to, ld, begin, rows, p, false, MR_BF16);
        else if (g->a_col != 1)
            block(j, packed, to, ld, begin, rows, p, false, MR_F32);
        else
            block(j, packed, to, ld, begin, rows, p, true, MR_F32);
    for (int64_t r = 0; !place && r < rows; r++)
        for (int64_t q = j->first; q < j->last; q += VF_LANES)
            vf_stx(g->c, (begin + r) * g->c_row + q, 1, vf_load(to + r * ld + q - j->first),
                   MR_MIN(j->last - q, (int64_t)VF_LANES), MR_BF16);
}

void MR_CAT3(mr_gemm, _, MR_ISA)(const mr_gemm *g)
{
    // as many blocks of rows as the team takes evenly
    int64_t even = up((g->m + MC - 1) / MC, MR_MAX(g->threads, 1));
    job j = {.g = g,
             .b = g->workspace,
             .own_size = OWN_A + (g->out == MR_F32 ? 0 : MC * NC),
             .rows = MR_MAX(up((g->m + even - 1) / MR_MAX(even, 1), MR), MR)};
    j.own = j.b + up(MR_MIN(g->n, (int64_t)NC), NR_MAX) * g->k;
    for (; j.first < g->n; j.first = j.last) {
        j.last = MR_MIN(g->n, j.first + NC);
        mr_cpu_for(up(j.last - j.first, NR) / NR, 4, g->threads, pack_b, &j);
        mr_cpu_for(g->m, j.rows, g->threads, block_of_rows, &j);
    }
}

#ifdef MR_ISA_base
size_t mr_gemm_workspace(const mr_product_spec *s, int threads)
{
    // with MR and VF_LANES of the widest instruction set
    int64_t team = MR_MAX(MR_MIN((int64_t)threads, (s->m + MR - 1) / MR), 1);
    int64_t own = (MC + 12) * KC + (MC / MR + 1) * 16 + (s->out == MR_F32 ? 0 : MC * NC);
    return (size_t)(up(MR_MIN(s->n, (int64_t)NC), NR_MAX) * s->k + team * own) * sizeof(float);
}
#endif
