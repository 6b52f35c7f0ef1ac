/* winograd: convolutions whose last two axes have a kernel of 3 x 3 and steps of 1, with 16
 * products in place of 36 for each square of 2 x 2 outputs: F(2 x 2, 3 x 3) of Lavin and Gray,
 * "Fast algorithms for convolutional neural networks" (2015). The gradient of x is such a
 * convolution too, of y with the kernel turned round.
 *
 * Per run the weights become 16 matrices for each tap of time, [16][C][filters]. Then each member
 * of the team takes `tiles` squares at a time: their 4 x 4 inputs become 16 rows of channels, these
 * are multiplied with the matrices, tap after tap of time, and the 16 sums become 2 x 2 outputs.
 * All of that stays in the member's cache; nothing of it depends on the team. Sums are f32; the
 * error is about twice that of the plain sum. Licence: Apache-2.0 */
#include "cpu/cpu.h"
#include "cpu/tile.h"
#include "cpu/winograd.h"

enum { POINTS = 16, FETCH = TILE_FETCH(MR_WINOGRAD_SQUARES) };

typedef struct job {
    mr_winograd_plan p;
    const mr_winograd_call *call;
    float *weights;  /* [frames of the kernel][POINTS][panels][C][TILE_COLUMNS] */
    float *own;      /* per worker: inputs, then sums */
    int64_t columns; /* filters, filled up to whole panels */
} job;

/* Floats between the rows and between the matrices of a worker: a little more than they hold, since
 * rows a power of two apart would fight for the same places of a cache. */
static int64_t row_of(int64_t n)
{
    return n + MR_WINOGRAD_GAP;
}
static int64_t matrix_of(const mr_winograd_plan *p, int64_t n)
{
    return p->rows * row_of(n) + 5 * MR_WINOGRAD_GAP;
}

/* ---- weights: G w G' ---- */

VF_INLINE void turn3(vf a, vf b, vf c, vf *out, int step)
{
    vf half = vf_set(0.5f), ends = (a + c) * half, mid = b * half;
    out[0] = a, out[step] = ends + mid, out[2 * step] = ends - mid, out[3 * step] = c;
}

/* One panel of filters at one tap of time. */
VF_INLINE void turn_panel(const job *j, int64_t tap, int64_t panel, mr_dtype t)
{
    const mr_winograd_plan *p = &j->p;
    int64_t size = p->channels * j->columns;
    float *to = j->weights + tap * POINTS * size + panel * p->channels * TILE_COLUMNS;
    for (int64_t c = 0; c < p->channels; c++)
        for (int64_t v = 0; v < TILE_COLUMNS; v += VF_LANES) {
            int64_t filter = panel * TILE_COLUMNS + v;
            int64_t n = MR_MIN(p->filters - filter, (int64_t)VF_LANES);
            int64_t at = filter * p->w_filter + c * p->w_channel;
            vf w[9], half[12], u[POINTS];
            for (int64_t k = 0; k < 9; k++) {
                int64_t plain = tap * 9 + k, place = p->turned ? p->taps * 9 - 1 - plain : plain;
                w[k] = n > 0 ? vf_ldx(j->call->w, at + place, p->w_filter, n, t) : vf_zero();
            }
            for (int i = 0; i < 3; i++)
                turn3(w[i], w[3 + i], w[6 + i], half + i, 3);
            for (int i = 0; i < 4; i++)
                turn3(half[3 * i], half[3 * i + 1], half[3 * i + 2], u + 4 * i, 1);
            for (int k = 0; k < POINTS; k++)
                vf_store(to + k * size + c * TILE_COLUMNS + v, u[k]);
        }
}

static void turn_weights(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    for (int64_t i = begin; i < end; i++) {
        int64_t panels = j->columns / TILE_COLUMNS;
        if (j->p.type == MR_BF16)
            turn_panel(j, i / panels, i % panels, MR_BF16);
        else
            turn_panel(j, i / panels, i % panels, MR_F32);
    }
}

/* ---- inputs: B' x B ---- */

VF_INLINE void turn4(vf a, vf b, vf c, vf d, vf *out, int step)
{
    out[0] = a - c, out[step] = b + c, out[2 * step] = c - b, out[3 * step] = b - d;
}

/* A square of outputs: which picture and frame, and its first row and column. */
typedef struct square {
    int64_t batch, t, h, w;
} square;

static square square_of(const mr_winograd_plan *p, int64_t i)
{
    int64_t across = (p->out[2] + 1) / 2, down = (p->out[1] + 1) / 2;
    return (square){.w = i % across * 2,
                    .h = i / across % down * 2,
                    .t = i / (across * down) % p->out[0],
                    .batch = i / (across * down * p->out[0])};
}

/* Whether one of some squares has inputs at a tap of time. */
static bool reads(const mr_winograd_plan *p, int64_t begin, int64_t end, int64_t tap)
{
    for (int64_t i = begin; i < end; i++) {
        int64_t t = square_of(p, i).t - p->before[0] + tap;
        if (t >= 0 && t < p->in[0])
            return true;
    }
    return false;
}

/* The inputs of square `i` at a tap of time, as row `i` of 16 matrices. */
VF_INLINE void turn_inputs(const job *j, float *to, square q, int64_t tap, mr_dtype type)
{
    const mr_winograd_plan *p = &j->p;
    int64_t C = p->channels, size = matrix_of(p, C), t = q.t - p->before[0] + tap,
            h = q.h - p->before[1], w = q.w - p->before[2];
    if (t < 0 || t >= p->in[0]) {
        for (int64_t k = 0; k < POINTS; k++)
            memset(to + k * size, 0, (size_t)C * sizeof *to);
        return;
    }
    bool inside = h >= 0 && h + 4 <= p->in[1] && w >= 0 && w + 4 <= p->in[2];
    int64_t at = (((q.batch * p->in[0] + t) * p->in[1] + h) * p->in[2] + w) * C;
    for (int64_t c = 0; c < C; c += VF_LANES) {
        vf x[POINTS], half[POINTS], v[POINTS];
        for (int64_t k = 0; k < POINTS; k++) {
            int64_t row = k / 4, column = k % 4;
            bool there = inside || (h + row >= 0 && h + row < p->in[1] && w + column >= 0 &&
                                    w + column < p->in[2]);
            x[k] = there ? vf_ld(j->call->from, at + (row * p->in[2] + column) * C + c, type)
                         : vf_zero();
        }
        for (int i = 0; i < 4; i++)
            turn4(x[i], x[4 + i], x[8 + i], x[12 + i], half + i, 4);
        for (int i = 0; i < 4; i++)
            turn4(half[4 * i], half[4 * i + 1], half[4 * i + 2], half[4 * i + 3], v + 4 * i, 1);
        for (int64_t k = 0; k < POINTS; k++)
            vf_store(to + k * size + c, v[k]);
    }
}

/* ---- the 16 products ---- */

/* c[TILE_ROWS][TILE_COLUMNS] = the product, + c if `add`; rows of A are a_row apart, those of c
 * c_row. Out of line: among the values of the loops around it the sums would not stay in registers.
 */
static __attribute__((noinline)) void multiply(const tile_operands *o, int64_t a_row, float *c,
                                               int64_t c_row, bool add)
{
    vf sum[TILE_ROWS][2];
    tile_sums(sum, o, a_row, 1, FETCH);
    for (int i = 0; i < TILE_ROWS; i++)
        for (int v = 0; v < 2; v++) {
            float *to = c + i * c_row + v * VF_LANES;
            vf_store(to, sum[i][v] + (add ? vf_load(to) : vf_zero()));
        }
}

/* Rows of `inputs` times one matrix of weights, panel by panel. */
static void products(const job *j, const float *inputs, const float *weights, float *sums,
                     int64_t rows, bool add)
{
    int64_t C = j->p.channels, a_row = row_of(C), c_row = row_of(j->columns);
    for (int64_t q = 0; q < j->columns; q += TILE_COLUMNS, weights += C * TILE_COLUMNS) {
        tile_operands o = {.b = weights, .next = weights + C * TILE_COLUMNS, .depth = C};
        // rows past the last square are rubbish, multiplied and not read
        for (int64_t i = 0; i < rows; i += TILE_ROWS, o.next += C / TILE_UNROLL * FETCH) {
            o.a = inputs + i * a_row;
            multiply(&o, a_row, sums + i * c_row + q, c_row, add);
        }
    }
}

/* ---- outputs: A' m A + bias ---- */

VF_INLINE void turn_outputs(const job *j, const float *sums, square q, mr_dtype type)
{
    const mr_winograd_plan *p = &j->p;
    int64_t size = matrix_of(p, j->columns), K = p->filters;
    int64_t at = (((q.batch * p->out[0] + q.t) * p->out[1] + q.h) * p->out[2] + q.w) * K;
    bool low = q.h + 1 < p->out[1], right = q.w + 1 < p->out[2];
    for (int64_t f = 0; f < K; f += VF_LANES) {
        int64_t n = MR_MIN(K - f, (int64_t)VF_LANES);
        vf m[POINTS], half[8];
        vf bias = j->call->bias ? vf_ldx(j->call->bias, f, 1, n, type) : vf_zero();
        for (int64_t k = 0; k < POINTS; k++)
            m[k] = vf_load(sums + k * size + f);
        for (int i = 0; i < 4; i++) {
            half[i] = m[i] + m[4 + i] + m[8 + i];
            half[4 + i] = m[4 + i] - m[8 + i] - m[12 + i];
        }
        for (int i = 0; i < 2; i++) {
            const vf *r = half + 4 * i;
            int64_t to = at + i * p->out[2] * K + f;
            if (i && !low)
                break;
            vf_stx(j->call->to, to, 1, r[0] + r[1] + r[2] + bias, n, type);
            if (right)
                vf_stx(j->call->to, to + K, 1, r[1] - r[2] - r[3] + bias, n, type);
        }
    }
}

/* ---- one run ---- */

/* Squares begin .. end, at most p.tiles of them. `type` is a constant of each variant. */
VF_INLINE void squares(const job *j, int64_t begin, int64_t end, float *inputs, mr_dtype type)
{
    const mr_winograd_plan *p = &j->p;
    int64_t from = matrix_of(p, p->channels), to = matrix_of(p, j->columns), n = end - begin,
            matrix = p->channels * j->columns;
    float *sums = inputs + POINTS * from;
    bool begun = false;
    for (int64_t tap = 0; tap < p->taps; tap++) {
        // frames before the first and behind the last add nothing, unless there is nothing else
        if (!reads(p, begin, end, tap) && (begun || tap < p->taps - 1))
            continue;
        for (int64_t i = 0; i < n; i++)
            turn_inputs(j, inputs + i * row_of(p->channels), square_of(p, begin + i), tap, type);
        for (int64_t k = 0; k < POINTS; k++)
            products(j, inputs + k * from, j->weights + (tap * POINTS + k) * matrix, sums + k * to,
                     n, begun);
        begun = true;
    }
    for (int64_t i = 0; i < n; i++)
        turn_outputs(j, sums + i * row_of(j->columns), square_of(p, begin + i), type);
}

static void some_squares(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    float *own = j->own + worker * j->p.own_floats;
    if (j->p.type == MR_BF16)
        squares(j, begin, end, own, MR_BF16);
    else
        squares(j, begin, end, own, MR_F32);
}

void MR_CAT3(mr_winograd, _, MR_ISA)(const mr_winograd_plan *p, const mr_winograd_call *call)
{
    job j = {.p = *p, .call = call, .weights = call->workspace};
    int64_t panels = (p->filters + TILE_COLUMNS - 1) / TILE_COLUMNS;
    j.columns = panels * TILE_COLUMNS;
    j.own = j.weights + p->weight_floats;
    mr_cpu_for(p->taps * panels, 1, p->threads, turn_weights, &j);
    int64_t all = p->batch * p->out[0] * ((p->out[1] + 1) / 2) * ((p->out[2] + 1) / 2);
    mr_cpu_for(all, p->tiles, p->threads, some_squares, &j);
}
