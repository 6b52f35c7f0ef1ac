/* gemm: the product C = A B (+ C) (+ bias) of f32 and bf16 with any strides.
 *
 * It has three levels, from the outermost:
 *   pass    PASS_COLUMNS columns of C. The team packs the columns of B that it needs, as f32, into
 *           panels of TILE_COLUMNS columns: [panel][k][TILE_COLUMNS].
 *   block   at most BLOCK_ROWS rows of C within a pass, by one member of the team. It walks the sum
 *           in steps of STEP elements, for which A is packed into panels of TILE_ROWS rows:
 *           [panel][STEP][TILE_ROWS]. Also dense rows: read in place they are TILE_ROWS
 *           streams on as many pages, which costs more than packing does.
 *   tile    TILE_ROWS x TILE_COLUMNS of C, whose sums over one step stay in registers.
 *
 * Between the steps, a block of C is stored in C if that is f32, else in scratch memory of the
 * worker. Each element is summed in the order of k, so the bits do not depend on the number of
 * threads.
 * Licence: Apache-2.0 */
#include "cpu/cpu.h"
#include "cpu/product.h"
#include "cpu/tile.h"
#include "cpu/transpose.h"

enum {
    BLOCK_ROWS = 72,
    PASS_COLUMNS = 1152,
    STEP = 384,
    // of the widest instruction set, since the workspace is planned before one is chosen
    WIDEST_TILE_ROWS = 12,
    WIDEST_TILE_COLUMNS = 32,
    WIDEST_LANES = 16,
    // elements of the next panel of B to prefetch per turn: all tiles of a block use the same
    // panel, and each of them prefetches a share of the next one
    FETCH = TILE_FETCH(BLOCK_ROWS),
    // floats of a block's packed A; a vector of garbage can follow each of its panels
    PACKED_A = (BLOCK_ROWS + TILE_ROWS) * STEP + (BLOCK_ROWS / TILE_ROWS + 1) * VF_LANES
};

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

typedef struct job {
    const mr_gemm *g;
    float *b;            /* packed: [panels][k][TILE_COLUMNS] */
    float *own;          /* per worker: packed A, then a block of C unless C is f32 */
    int64_t own_size;    /* floats per worker */
    int64_t block_rows;  /* at most BLOCK_ROWS; equal shares for the team */
    int64_t first, last; /* columns of this pass */
} job;

/* ---- packing ---- */

/* Load a vector from element `at` of x on, of which `n` elements exist (n can be 0 or negative). */
VF_INLINE vf load_existing(const void *x, int64_t at, int64_t n, mr_dtype t)
{
    if (n >= VF_LANES)
        return vf_ld(x, at, t);
    return n > 0 ? vf_ldn(x, at, n, t) : vf_zero();
}

/* A matrix to pack: element (i, p) is at `at` + i * row + p * col. i runs along the width of the
 * panels and p along the sum. Only `valid` values of i exist; the others are packed as zeros. */
typedef struct source {
    const void *x;
    int64_t at, row, col, valid;
} source;

/* Pack a matrix that is dense along i: copy vectors in order. */
VF_INLINE void pack_rows(float *dst, int64_t width, int64_t panel, const source *s, int64_t count,
                         int64_t n, mr_dtype t)
{
    // far from the edge, all vectors exist, even those beyond the last panel
    bool inside = s->valid >= count + width + VF_LANES;
    for (int64_t p = 0; p < n; p++) {
        int64_t at = s->at + p * s->col;
        float *to = dst + p * width;
        for (int64_t i = 0; i < count; i += width, to += panel)
            for (int64_t v = 0; v < width; v += VF_LANES)
                vf_store(to + v, inside ? vf_ld(s->x, at + i + v, t)
                                        : load_existing(s->x, at + i + v, s->valid - i - v, t));
    }
}

/* Pack any other matrix. If it is dense along p, squares of VF_LANES x VF_LANES are transposed in
 * registers. */
VF_INLINE void pack_columns(float *dst, int64_t width, int64_t panel, const source *s,
                            int64_t count, int64_t n, mr_dtype t)
{
    for (int64_t i = 0; i < count; i += width, dst += panel)
        for (int64_t v = 0; v < width; v += VF_LANES) {
            int64_t from = s->at + (i + v) * s->row, p = 0,
                    lanes = MR_MIN(s->valid - i - v, (int64_t)VF_LANES);
            for (; s->col == 1 && p + VF_LANES <= n; p += VF_LANES) {
                vf r[VF_LANES];
                for (int l = 0; l < VF_LANES; l++)
                    r[l] = l < lanes ? vf_ld(s->x, from + l * s->row + p, t) : vf_zero();
                vf_transpose(r);
                for (int l = 0; l < VF_LANES; l++)
                    vf_store(dst + (p + l) * width + v, r[l]);
            }
            for (; p < n; p++)
                vf_store(dst + p * width + v,
                         lanes > 0 ? vf_ldx(s->x, from + p * s->col, s->row, lanes, t) : vf_zero());
        }
}

/* Pack `count` values of i and `n` of p into panels [n][width] with the stride `panel` in floats. A
 * vector of garbage can follow each panel. */
VF_INLINE void pack(float *dst, int64_t width, int64_t panel, const source *s, int64_t count,
                    int64_t n, mr_dtype t)
{
    if (s->row == 1)
        pack_rows(dst, width, panel, s, count, n, t);
    else
        pack_columns(dst, width, panel, s, count, n, t);
}

/* Pack panels begin .. end of B of this pass. */
static void pack_b(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    const mr_gemm *g = j->g;
    for (int64_t i = begin; i < end; i++) {
        int64_t column = j->first + i * TILE_COLUMNS;
        source s = {g->b, column * g->b_col, g->b_col, g->b_row, g->n - column};
        float *dst = j->b + i * TILE_COLUMNS * g->k;
        if (g->in == MR_BF16)
            pack(dst, TILE_COLUMNS, 0, &s, TILE_COLUMNS, g->k, MR_BF16);
        else
            pack(dst, TILE_COLUMNS, 0, &s, TILE_COLUMNS, g->k, MR_F32);
    }
}

/* ---- one tile ---- */

/* c[TILE_ROWS][TILE_COLUMNS], with row stride `ld`, = the product, + c if `add`, else + bias if
 * given. Out of line: inlined into its loops, the sums would be spilled from registers. */
static __attribute__((noinline)) void multiply(const tile_operands *o, float *c, int64_t ld,
                                               bool add, const float *bias)
{
    vf sum[TILE_ROWS][2];
    tile_sums(sum, o, 1, TILE_ROWS, FETCH);
    for (int v = 0; v < 2; v++) {
        vf start = bias ? vf_load(bias + v * VF_LANES) : vf_zero();
        for (int i = 0; i < TILE_ROWS; i++) {
            float *to = c + i * ld + v * VF_LANES;
            vf_store(to, sum[i][v] + (add ? vf_load(to) : start));
        }
    }
}

/* Store the existing rows x columns of a tile: c = sum, + c if `add`, else + the bias from element
 * `column` on. */
VF_INLINE void store_part(const mr_gemm *g, const float *sum, float *c, int64_t ld, bool add,
                          int64_t rows, int64_t columns, int64_t column, mr_dtype in)
{
    for (int64_t v = 0; v < columns; v += VF_LANES) {
        int64_t n = MR_MIN(columns - v, (int64_t)VF_LANES);
        vf start = !add && g->bias ? vf_ldx(g->bias, column + v, 1, n, in) : vf_zero();
        for (int64_t i = 0; i < rows; i++) {
            float *to = c + i * ld + v;
            vf_storen(to, vf_load(sum + i * TILE_COLUMNS + v) + (add ? vf_loadn(to, n) : start), n);
        }
    }
}

/* Compute rows x columns of C from `column` on, at most a tile, to c. */
VF_INLINE void tile(const mr_gemm *g, const tile_operands *o, float *c, int64_t ld, bool add,
                    int64_t rows, int64_t columns, int64_t column, mr_dtype in)
{
    for (int64_t r = 0; r < rows; r++) {
        __builtin_prefetch(c + r * ld, 1);
        __builtin_prefetch(c + r * ld + columns - 1, 1);
    }
    const float *bias = add ? NULL : g->bias;
    // multiply() stores only whole tiles, and reads only an f32 bias
    bool direct = rows == TILE_ROWS && columns == TILE_COLUMNS && (in == MR_F32 || !bias);
    float sum[TILE_ROWS * TILE_COLUMNS], *to = direct ? c : sum;
    int64_t to_ld = direct ? ld : TILE_COLUMNS;
    multiply(o, to, to_ld, direct && add, direct && bias ? bias + column : NULL);
    if (!direct)
        store_part(g, sum, c, ld, add, rows, columns, column, in);
}

/* ---- a block of rows ---- */

/* Multiply rows row .. row + rows over the step of the sum that begins at p, to c. `in` is a
 * compile-time constant. */
VF_INLINE void block_step(const job *j, float *packed, float *c, int64_t ld, int64_t row,
                          int64_t rows, int64_t p, mr_dtype in)
{
    const mr_gemm *g = j->g;
    tile_operands o = {.depth = MR_MIN(g->k - p, (int64_t)STEP)};
    int64_t panel = o.depth * TILE_ROWS + VF_LANES;
    bool add = p > 0 || g->accumulate;
    source s = {g->a, row * g->a_row + p * g->a_col, g->a_row, g->a_col, g->m - row};
    pack(packed, TILE_ROWS, panel, &s, rows, o.depth, in);
    for (int64_t q = 0; q < j->last - j->first; q += TILE_COLUMNS)
        for (int64_t i = 0; i < rows; i += TILE_ROWS) {
            int64_t columns = MR_MIN(j->last - j->first - q, (int64_t)TILE_COLUMNS);
            o.b = j->b + q * g->k + p * TILE_COLUMNS;
            o.next = o.b + TILE_COLUMNS * g->k + i / TILE_ROWS * (o.depth / TILE_UNROLL * FETCH);
            o.a = packed + i / TILE_ROWS * panel;
            tile(g, &o, c + i * ld + q, ld, add, MR_MIN(rows - i, (int64_t)TILE_ROWS), columns,
                 j->first + q, in);
        }
}

/* Compute rows begin .. end of C in this pass. */
static void block(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const mr_gemm *g = j->g;
    float *packed = j->own + worker * j->own_size;
    // bf16 sums accumulate in scratch memory: in C they would be rounded at every step
    bool in_place = g->out == MR_F32;
    float *c = in_place ? (float *)g->c + begin * g->c_row + j->first : packed + PACKED_A;
    int64_t ld = in_place ? g->c_row : PASS_COLUMNS, rows = end - begin, p = 0;
    // once even if k is 0: C = bias, or 0. A step takes a few milliseconds; Ctrl-C is checked after
    // each
    do {
        if (g->in == MR_BF16)
            block_step(j, packed, c, ld, begin, rows, p, MR_BF16);
        else
            block_step(j, packed, c, ld, begin, rows, p, MR_F32);
        p += STEP;
    } while (p < g->k && !mr_interrupt_get());
    if (in_place)
        return;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t q = j->first; q < j->last; q += VF_LANES)
            vf_stx(g->c, (begin + r) * g->c_row + q, 1, vf_load(c + r * ld + q - j->first),
                   MR_MIN(j->last - q, (int64_t)VF_LANES), MR_BF16);
}

/* ---- the product ---- */

void MR_CAT3(mr_gemm, _, MR_ISA)(const mr_gemm *g)
{
    // a number of row blocks that the team shares evenly
    int64_t blocks = round_up((g->m + BLOCK_ROWS - 1) / BLOCK_ROWS, MR_MAX(g->threads, 1));
    int64_t rows = (g->m + blocks - 1) / MR_MAX(blocks, 1);
    job j = {.g = g,
             .b = g->workspace,
             .own_size = PACKED_A + (g->out == MR_F32 ? 0 : BLOCK_ROWS * PASS_COLUMNS),
             .block_rows = MR_MAX(round_up(rows, TILE_ROWS), TILE_ROWS)};
    int64_t packed_columns = round_up(MR_MIN(g->n, (int64_t)PASS_COLUMNS), WIDEST_TILE_COLUMNS);
    j.own = j.b + packed_columns * g->k;
    for (; j.first < g->n; j.first = j.last) {
        j.last = MR_MIN(g->n, j.first + PASS_COLUMNS);
        int64_t panels = round_up(j.last - j.first, TILE_COLUMNS) / TILE_COLUMNS;
        mr_cpu_for(panels, 4, g->threads, pack_b, &j);
        if (!g->packs_only)
            mr_cpu_for(g->m, j.block_rows, g->threads, block, &j);
    }
}

#ifdef MR_ISA_base
size_t mr_gemm_workspace(const mr_product_spec *s, int threads)
{
    // packed B once, and `own` per worker: with the sizes of the widest instruction set, but the
    // number of panels of the narrowest, which has the most
    int64_t team = MR_MAX(MR_MIN((int64_t)threads, (s->m + TILE_ROWS - 1) / TILE_ROWS), 1);
    int64_t b = round_up(MR_MIN(s->n, (int64_t)PASS_COLUMNS), WIDEST_TILE_COLUMNS) * s->k;
    int64_t own = (BLOCK_ROWS + WIDEST_TILE_ROWS) * STEP +
                  (BLOCK_ROWS / TILE_ROWS + 1) * WIDEST_LANES +
                  (s->out == MR_F32 ? 0 : BLOCK_ROWS * PASS_COLUMNS);
    return (size_t)(b + team * own) * sizeof(float);
}
#endif
