/* winograd: convolutions whose last two axes have a kernel of 3 x 3, with 16 products in place of
 * 36 for each square of 2 x 2 outputs: F(2 x 2, 3 x 3) of Lavin and Gray, "Fast algorithms for
 * convolutional neural networks" (2015). The gradient of x is such a convolution too, of y with the
 * kernel turned round. Forward steps of 2 x 2 take 49 products in place of 81 for a square of 3 x 3
 * outputs: along an axis the even inputs meet the outer taps by F(3, 2), the odd ones the middle
 * tap.
 *
 * Per run the weights become matrices for each tap of time, [16 or 25][C][filters]. Then each
 * member of the team takes `tiles` squares at a time: their 4 x 4 or 7 x 7 inputs become as many
 * rows of channels, these are multiplied with the matrices, tap after tap of time, and the sums
 * become outputs. All of that stays in the member's cache; nothing of it depends on the team. Sums
 * are f32; the error is about twice that of the plain sum. Licence: Apache-2.0 */
#include "cpu/cpu.h"
#include "cpu/tile.h"
#include "cpu/winograd.h"

enum { MOST = 7, FETCH = TILE_FETCH(MR_WINOGRAD_SQUARES) };

typedef struct job {
    mr_winograd_plan p;
    const mr_winograd_call *call;
    float *weights;  /* [frames of the kernel][matrices][panels][C][TILE_COLUMNS] */
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

/* Points of a side of a square, as many as its inputs; outputs of a side. */
VF_INLINE int side_of(bool strided)
{
    return strided ? MOST : 4;
}
VF_INLINE int outs_of(bool strided)
{
    return strided ? 3 : 2;
}
static int64_t points_of(const mr_winograd_plan *p)
{
    return p->strided ? MOST * MOST : 16;
}

/* Matrices of weights along a side: the middle tap is that of all odd points. */
VF_INLINE int along_of(bool strided)
{
    return strided ? 5 : 4;
}
static int64_t matrices_of(const mr_winograd_plan *p)
{
    return (int64_t)along_of(p->strided) * along_of(p->strided);
}
/* The matrix of a point. */
static int64_t matrix_at(const mr_winograd_plan *p, int64_t point)
{
    int64_t side = side_of(p->strided), along = along_of(p->strided);
    return MR_MIN(point / side, along - 1) * along + MR_MIN(point % side, along - 1);
}

VF_INLINE void turn_taps(vf a, vf b, vf c, vf *out, int step, bool strided)
{
    vf half = vf_set(0.5f), ends = (a + c) * half, mid = b * half;
    out[0] = a, out[3 * step] = c;
    if (!strided) {
        out[step] = ends + mid, out[2 * step] = ends - mid;
        return;
    }
    out[step] = ends, out[2 * step] = (a - c) * half, out[4 * step] = b;
}

/* One panel of filters at one tap of time. */
VF_INLINE void turn_panel(const job *j, int64_t tap, int64_t panel, bool strided, mr_dtype t)
{
    const mr_winograd_plan *p = &j->p;
    int64_t size = p->channels * j->columns;
    const int along = along_of(strided);
    float *to = j->weights + tap * along * along * size + panel * p->channels * TILE_COLUMNS;
    for (int64_t c = 0; c < p->channels; c++)
        for (int64_t v = 0; v < TILE_COLUMNS; v += VF_LANES) {
            int64_t filter = panel * TILE_COLUMNS + v;
            int64_t n = MR_MIN(p->filters - filter, (int64_t)VF_LANES);
            int64_t at = filter * p->w_filter + c * p->w_channel;
            vf w[9], half[15], u[25];
            for (int64_t k = 0; k < 9; k++) {
                int64_t plain = tap * 9 + k, place = p->turned ? p->taps * 9 - 1 - plain : plain;
                w[k] = n > 0 ? vf_ldx(j->call->w, at + place, p->w_filter, n, t) : vf_zero();
            }
            for (int i = 0; i < 3; i++)
                turn_taps(w[i], w[3 + i], w[6 + i], half + i, 3, strided);
            for (int i = 0; i < along; i++)
                turn_taps(half[3 * i], half[3 * i + 1], half[3 * i + 2], u + along * i, 1, strided);
            for (int k = 0; k < along * along; k++)
                vf_store(to + k * size + c * TILE_COLUMNS + v, u[k]);
        }
}

static void turn_weights(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    for (int64_t i = begin; i < end; i++) {
        int64_t panels = j->columns / TILE_COLUMNS;
        if (j->p.strided)
            turn_panel(j, i / panels, i % panels, true, j->p.type);
        else if (j->p.type == MR_BF16)
            turn_panel(j, i / panels, i % panels, false, MR_BF16);
        else
            turn_panel(j, i / panels, i % panels, false, MR_F32);
    }
}

/* ---- inputs: B' x B ---- */

VF_INLINE void turn4(vf a, vf b, vf c, vf d, vf *out, int step)
{
    out[0] = a - c, out[step] = b + c, out[2 * step] = c - b, out[3 * step] = b - d;
}

/* A line of inputs, `step` apart, in place of which its points come. */
VF_INLINE void turn_line(vf *x, int step, bool strided)
{
    if (!strided) {
        turn4(x[0], x[step], x[2 * step], x[3 * step], x, step);
        return;
    }
    vf one = x[step], three = x[3 * step], five = x[5 * step];
    turn4(x[0], x[2 * step], x[4 * step], x[6 * step], x, step);
    x[4 * step] = one, x[5 * step] = three, x[6 * step] = five;
}

/* A square of outputs: which picture and frame, and its first row and column. */
typedef struct square {
    int64_t batch, t, h, w;
} square;

static square square_of(const mr_winograd_plan *p, int64_t i)
{
    int64_t outs = outs_of(p->strided), across = (p->out[2] + outs - 1) / outs,
            down = (p->out[1] + outs - 1) / outs;
    return (square){.w = i % across * outs,
                    .h = i / across % down * outs,
                    .t = i / (across * down) % p->out[0],
                    .batch = i / (across * down * p->out[0])};
}

/* The frame of the input that a square reads at a tap of time. */
static int64_t frame_of(const mr_winograd_plan *p, square q, int64_t tap)
{
    return q.t * p->step - p->before[0] + tap;
}

/* Whether one of some squares has inputs at a tap of time. */
static bool reads(const mr_winograd_plan *p, int64_t begin, int64_t end, int64_t tap)
{
    for (int64_t i = begin; i < end; i++) {
        int64_t t = frame_of(p, square_of(p, i), tap);
        if (t >= 0 && t < p->in[0])
            return true;
    }
    return false;
}

/* The inputs of square `i` at a tap of time, as row `i` of a matrix for each point. */
VF_INLINE void turn_inputs(const job *j, float *to, square q, int64_t tap, bool strided,
                           mr_dtype type)
{
    const mr_winograd_plan *p = &j->p;
    const int side = side_of(strided), step = strided ? 2 : 1;
    int64_t C = p->channels, size = matrix_of(p, C), t = frame_of(p, q, tap),
            h = q.h * step - p->before[1], w = q.w * step - p->before[2];
    if (t < 0 || t >= p->in[0]) {
        for (int64_t k = 0; k < side * side; k++)
            memset(to + k * size, 0, (size_t)C * sizeof *to);
        return;
    }
    bool inside = h >= 0 && h + side <= p->in[1] && w >= 0 && w + side <= p->in[2];
    int64_t at = (((q.batch * p->in[0] + t) * p->in[1] + h) * p->in[2] + w) * C;
    for (int64_t c = 0; c < C; c += VF_LANES) {
        vf x[MOST * MOST];
        for (int64_t k = 0; k < side * side; k++) {
            int64_t row = k / side, column = k % side;
            bool there = inside || (h + row >= 0 && h + row < p->in[1] && w + column >= 0 &&
                                    w + column < p->in[2]);
            x[k] = there ? vf_ld(j->call->from, at + (row * p->in[2] + column) * C + c, type)
                         : vf_zero();
        }
        for (int i = 0; i < side; i++)
            turn_line(x + i, side, strided);
        for (int i = 0; i < side; i++)
            turn_line(x + side * i, 1, strided);
        for (int64_t k = 0; k < side * side; k++)
            vf_store(to + k * size + c, x[k]);
    }
}

/* ---- the products ---- */

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

/* The outputs of a line of sums, `step` apart. */
VF_INLINE void sum_line(const vf *m, int step, vf *out, int out_step, bool strided)
{
    if (!strided) {
        out[0] = m[0] + m[step] + m[2 * step];
        out[out_step] = m[step] - m[2 * step] - m[3 * step];
        return;
    }
    vf both = m[step] + m[2 * step];
    out[0] = m[0] + both + m[4 * step];
    out[out_step] = m[step] - m[2 * step] + m[5 * step];
    out[2 * out_step] = both - m[3 * step] + m[6 * step];
}

VF_INLINE void turn_outputs(const job *j, const float *sums, square q, bool strided, mr_dtype type)
{
    const mr_winograd_plan *p = &j->p;
    const int side = side_of(strided), outs = outs_of(strided);
    int64_t size = matrix_of(p, j->columns), K = p->filters;
    int64_t at = (((q.batch * p->out[0] + q.t) * p->out[1] + q.h) * p->out[2] + q.w) * K;
    for (int64_t f = 0; f < K; f += VF_LANES) {
        int64_t n = MR_MIN(K - f, (int64_t)VF_LANES);
        vf m[MOST * MOST], half[3 * MOST], y[3];
        vf bias = j->call->bias ? vf_ldx(j->call->bias, f, 1, n, type) : vf_zero();
        for (int64_t k = 0; k < side * side; k++)
            m[k] = vf_load(sums + k * size + f);
        for (int i = 0; i < side; i++)
            sum_line(m + i, side, half + i, side, strided);
        for (int i = 0; i < outs && q.h + i < p->out[1]; i++) {
            sum_line(half + side * i, 1, y, 1, strided);
            for (int k = 0; k < outs && q.w + k < p->out[2]; k++)
                vf_stx(j->call->to, at + (i * p->out[2] + k) * K + f, 1, y[k] + bias, n, type);
        }
    }
}

/* ---- one run ---- */

/* Squares begin .. end, at most p.tiles of them. `type` is a constant of each variant. */
VF_INLINE void squares(const job *j, int64_t begin, int64_t end, float *inputs, bool strided,
                       mr_dtype type)
{
    const mr_winograd_plan *p = &j->p;
    int64_t from = matrix_of(p, p->channels), to = matrix_of(p, j->columns), n = end - begin,
            matrix = p->channels * j->columns, points = points_of(p);
    float *sums = inputs + points * from;
    bool begun = false;
    for (int64_t tap = 0; tap < p->taps; tap++) {
        // frames before the first and behind the last add nothing, unless there is nothing else
        if (!reads(p, begin, end, tap) && (begun || tap < p->taps - 1))
            continue;
        for (int64_t i = 0; i < n; i++)
            turn_inputs(j, inputs + i * row_of(p->channels), square_of(p, begin + i), tap, strided,
                        type);
        for (int64_t k = 0; k < points; k++)
            products(j, inputs + k * from,
                     j->weights + (tap * matrices_of(p) + matrix_at(p, k)) * matrix, sums + k * to,
                     n, begun);
        begun = true;
    }
    for (int64_t i = 0; i < n; i++)
        turn_outputs(j, sums + i * row_of(j->columns), square_of(p, begin + i), strided, type);
}

#define SQUARES(name, strided)                                                                     \
    static __attribute__((noinline)) void name(const job *j, int64_t begin, int64_t end,           \
                                               float *own)                                         \
    {                                                                                              \
        if (j->p.type == MR_BF16)                                                                  \
            squares(j, begin, end, own, strided, MR_BF16);                                         \
        else                                                                                       \
            squares(j, begin, end, own, strided, MR_F32);                                          \
    }
SQUARES(squares_of_2, false)
SQUARES(squares_of_3, true)

static void some_squares(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    float *own = j->own + worker * j->p.own_floats;
    if (j->p.strided)
        squares_of_3(j, begin, end, own);
    else
        squares_of_2(j, begin, end, own);
}

void MR_CAT3(mr_winograd, _, MR_ISA)(const mr_winograd_plan *p, const mr_winograd_call *call)
{
    job j = {.p = *p, .call = call, .weights = call->workspace};
    int64_t panels = (p->filters + TILE_COLUMNS - 1) / TILE_COLUMNS;
    j.columns = panels * TILE_COLUMNS;
    j.own = j.weights + p->weight_floats;
    mr_cpu_for(p->taps * panels, 1, p->threads, turn_weights, &j);
    int64_t outs = outs_of(p->strided), all = p->batch * p->out[0] *
                                              ((p->out[1] + outs - 1) / outs) *
                                              ((p->out[2] + outs - 1) / outs);
    mr_cpu_for(all, p->tiles, p->threads, some_squares, &j);
}
