/* points: grouped convolutions with kernels of 1 x 1 x 1: at each position, the channels of a group
 * are multiplied by the matrix of the group. The gradient of x is such a convolution, too.
 *
 * Each run first packs the matrices into panels of columns. Then each worker takes ROWS positions
 * at a time and multiplies their rows in place. Rows are copied to its buffer first if they are
 * bf16 for f32 products, the last of all, or not a whole number of steps of pairs. Each element is
 * summed in the order of the channels, so the bits do not depend on the number of threads. Reads
 * and writes each element of x and y once.
 *
 * [4, 16, 32, 1536] in 48 groups on two cores of a Zen 5: 0.49 ms in f32, 0.27 ms in bf16, where
 * products at their peak would take 0.39 and 0.20 ms, and memory 0.38 and 0.19.
 * Licence: Apache-2.0 */
#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
#include "cpu/dots.h"
#define HAS_PAIRS 1
#else
#define HAS_PAIRS 0
#endif
#include "cpu/cpu.h"
#include "cpu/points.h"
#include "cpu/tile.h"

enum { ROWS = MR_POINTS_ROWS };

typedef struct job {
    mr_points_plan p;
    const mr_points_call *call;
    char *weights, *own; /* own: per worker */
} job;

/* The number of elements of an input row, and of an output row. */
static int64_t read_row(const mr_points_plan *p)
{
    return p->groups * p->channels;
}
static int64_t written_row(const mr_points_plan *p)
{
    return p->groups * p->filters;
}

/* ---- f32 products ---- */

static int64_t panels_of(const mr_points_plan *p)
{
    return (p->filters + TILE_COLUMNS - 1) / TILE_COLUMNS;
}

/* Pack weights to [groups][panels][channels][TILE_COLUMNS], padded with zeros behind the last
 * filter. */
static void pack_panels(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    const mr_points_plan *p = &j->p;
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i / panels_of(p), first = i % panels_of(p) * TILE_COLUMNS,
                at = group * p->filters * p->channels + first * p->w_filter;
        float *to = (float *)(void *)j->weights + i * p->channels * TILE_COLUMNS;
        for (int64_t c = 0; c < p->channels; c++, at += p->w_channel)
            for (int64_t v = 0; v < TILE_COLUMNS; v += VF_LANES, to += VF_LANES) {
                int64_t n = MR_MIN(p->filters - first - v, (int64_t)VF_LANES);
                vf_store(to, n > 0
                                 ? vf_ldx(j->call->w, at + v * p->w_filter, p->w_filter, n, p->type)
                                 : vf_zero());
            }
    }
}

/* Store a whole tile of f32 to rows of y from element `at` on, directly from registers. */
VF_INLINE void store_tile(const job *j, vf (*sum)[2], int64_t at, int64_t channel)
{
    const float *bias = j->call->bias;
    float *to = (float *)j->call->to + at;
    vf low = bias ? vf_load(bias + channel) : vf_zero(),
       high = bias ? vf_load(bias + channel + VF_LANES) : vf_zero();
#pragma GCC unroll 12
    for (int i = 0; i < TILE_ROWS; i++, to += written_row(&j->p)) {
        vf_store(to, sum[i][0] + low);
        vf_store(to + VF_LANES, sum[i][1] + high);
    }
}

/* Compute `rows` <= TILE_ROWS rows of a tile, from row `row` and filter `filter` of a group on. Out
 * of line: inlined into its loops, the sums would be spilled from registers. */
static __attribute__((noinline)) void tile(const job *j, const tile_operands *o, int64_t a_row,
                                           int64_t row, int64_t rows, int64_t group, int64_t filter)
{
    const mr_points_plan *p = &j->p;
    vf sum[TILE_ROWS][2];
    tile_sums(sum, o, a_row, 1, TILE_UNROLL * TILE_COLUMNS);
    int64_t channel = group * p->filters + filter;
    if (p->type == MR_F32 && rows >= TILE_ROWS && filter + TILE_COLUMNS <= p->filters) {
        store_tile(j, sum, row * written_row(p) + channel, channel);
        return;
    }
    for (int v = 0; v < 2; v++, filter += VF_LANES) {
        int64_t n = MR_MIN(p->filters - filter, (int64_t)VF_LANES),
                at = group * p->filters + filter;
        if (n <= 0)
            return;
        vf bias = j->call->bias ? vf_ldx(j->call->bias, at, 1, n, p->type) : vf_zero();
        for (int i = 0; i < TILE_ROWS; i++)
            if (i < rows)
                vf_stx(j->call->to, (row + i) * written_row(p) + at, 1, sum[i][v] + bias, n,
                       p->type);
    }
}

/* The f32 input rows of positions begin .. end: in place, or copied to `own`, which has room for
 * ROWS. */
static const float *rows_of(const job *j, int64_t begin, int64_t end, float *own)
{
    int64_t row = read_row(&j->p), first = begin * row, n = (end - begin) * row, i = 0;
    if (j->p.type == MR_F32 && end - begin == ROWS)
        return (const float *)j->call->from + first;
    for (; i < n; i += VF_LANES)
        vf_store(own + i,
                 vf_ldx(j->call->from, first + i, 1, MR_MIN(n - i, (int64_t)VF_LANES), j->p.type));
    return own;
}

static void some_places(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const mr_points_plan *p = &j->p;
    const float *rows = rows_of(j, begin, end, (float *)(void *)(j->own + worker * p->own_bytes));
    int64_t size = p->channels * TILE_COLUMNS;
    // rows past the last position are garbage: multiplied, but not written
    for (int64_t row = begin; row < end; row += TILE_ROWS)
        for (int64_t i = 0; i < p->groups * panels_of(p); i++) {
            int64_t group = i / panels_of(p), filter = i % panels_of(p) * TILE_COLUMNS;
            const float *panel = (const float *)(const void *)j->weights + i * size;
            tile_operands o = {.a = rows + (row - begin) * read_row(p) + group * p->channels,
                               .b = panel,
                               .next = panel + size,
                               .depth = p->channels};
            tile(j, &o, read_row(p), row, end - row, group, filter);
        }
}

/* ---- products of bf16 pairs ---- */

#if HAS_PAIRS
enum { STEP = 32, COLUMNS = 32, TILE = STEP * COLUMNS / 2 };

static int64_t strips_of(const mr_points_plan *p)
{
    return (p->filters + COLUMNS - 1) / COLUMNS;
}

/* Pack weights to [groups][strips][steps][2][16 pairs][16 columns][2], padded with zeros behind the
 * last filter and channel. */
static void pack_strips(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    const mr_points_plan *p = &j->p;
    uint16_t *to = (uint16_t *)(void *)j->weights + begin * p->wide * COLUMNS;
    for (int64_t i = begin; i < end; i++) {
        int64_t filter = i % strips_of(p) * COLUMNS, columns = MR_MIN(p->filters - filter, COLUMNS);
        const uint16_t *w = (const uint16_t *)j->call->w +
                            i / strips_of(p) * p->filters * p->channels + filter * p->w_filter;
        memset(to, 0, (size_t)(p->wide * COLUMNS) * sizeof *to);
        for (int64_t step = 0; step < p->channels; step += STEP, to += 2 * TILE)
            for (int64_t column = 0; column < columns; column++) {
                const uint16_t *from = w + column * p->w_filter + step * p->w_channel;
                uint16_t *at = to + column / 16 * TILE + column % 16 * 2;
                int64_t n = MR_MIN(p->channels - step, (int64_t)STEP);
                for (int64_t c = 0; c < n; c++)
                    at[c / 2 * 32 + c % 2] = from[c * p->w_channel];
            }
    }
}

/* The bf16 input rows, padded to whole steps: in place, or copied to `own`. */
static const uint16_t *rows_of_pairs(const job *j, int64_t begin, int64_t end, uint16_t *own)
{
    const mr_points_plan *p = &j->p;
    const uint16_t *from = (const uint16_t *)j->call->from + begin * read_row(p);
    if (end - begin == ROWS && p->wide == p->channels)
        return from;
    for (int64_t i = 0; i < (end - begin) * p->groups; i++) {
        memcpy(own + i * p->wide, from + i * p->channels, (size_t)p->channels * sizeof *own);
        memset(own + i * p->wide + p->channels, 0, (size_t)(p->wide - p->channels) * sizeof *own);
    }
    return own;
}

/* Compute DOTS_ROWS x COLUMNS outputs of a group; only `rows` rows exist. */
AMX_FN void strip(const job *j, const uint16_t *a, const uint16_t *b, int64_t row, int64_t rows,
                  int64_t group, int64_t filter)
{
    const mr_points_plan *p = &j->p;
    int64_t columns = MR_MIN(p->filters - filter, (int64_t)COLUMNS);
    __mmask16 low = vf_mask(MR_MIN(columns, (int64_t)VF_LANES)),
              high = vf_mask(MR_MAX(columns - VF_LANES, (int64_t)0));
    float c[DOTS_ROWS * COLUMNS];
    dots_rows(true, p->wide / STEP, a, p->groups * p->wide, b, 2, 1, c, COLUMNS, false);
    int64_t at = group * p->filters + filter;
    const uint16_t *bias = (const uint16_t *)j->call->bias + at;
    vf first = vf_zero(), second = vf_zero();
    if (j->call->bias) {
        first = vf_from_bits(_mm256_maskz_loadu_epi16(low, bias));
        second = vf_from_bits(_mm256_maskz_loadu_epi16(high, bias + VF_LANES));
    }
    uint16_t *to = (uint16_t *)j->call->to + row * written_row(p) + at;
    for (int64_t i = 0; i < MR_MIN(rows, (int64_t)DOTS_ROWS); i++, to += written_row(p))
        _mm512_mask_storeu_epi16(
            to, (__mmask32)low | (__mmask32)high << VF_LANES,
            (__m512i)_mm512_cvtne2ps_pbh(vf_load(c + i * COLUMNS + VF_LANES) + second,
                                         vf_load(c + i * COLUMNS) + first));
}

AMX_FN void some_places_of_pairs(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const mr_points_plan *p = &j->p;
    const uint16_t *rows = rows_of_pairs(j, begin, end,
                                         (uint16_t *)(void *)(j->own + worker * p->own_bytes)),
                   *b = (const uint16_t *)(const void *)j->weights;
    for (int64_t row = begin; row < end; row += DOTS_ROWS)
        for (int64_t i = 0; i < p->groups * strips_of(p); i++) {
            int64_t group = i / strips_of(p), filter = i % strips_of(p) * COLUMNS;
            strip(j, rows + ((row - begin) * p->groups + group) * p->wide,
                  b + i * p->wide * COLUMNS, row, end - row, group, filter);
        }
}
#endif

/* ---- run ---- */

void MR_CAT3(mr_points, _, MR_ISA)(const mr_points_plan *p, const mr_points_call *call)
{
    job j = {.p = *p, .call = call, .weights = call->workspace};
    j.own = j.weights + p->weight_bytes;
#if HAS_PAIRS
    if (p->pairs) {
        mr_cpu_for(p->groups * strips_of(p), 8, p->threads, pack_strips, &j);
        mr_cpu_for(p->places, ROWS, p->threads, some_places_of_pairs, &j);
        return;
    }
#endif
    mr_cpu_for(p->groups * panels_of(p), 8, p->threads, pack_panels, &j);
    mr_cpu_for(p->places, ROWS, p->threads, some_places, &j);
}
