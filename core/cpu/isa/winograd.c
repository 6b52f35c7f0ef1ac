/* winograd: convolutions with a 3 x 3 kernel in the last two axes. A square of 2 x 2 outputs needs
 * 16 products instead of 36: F(2 x 2, 3 x 3) of Lavin and Gray, "Fast algorithms for convolutional
 * neural networks" (2015). The gradient of x is such a convolution, too: of y, with reversed taps.
 * With stride 2 x 2 (forward only), a square of 3 x 3 outputs needs 49 products instead of 81:
 * along an axis, even inputs are multiplied by the outer taps by F(3, 2), odd inputs by the middle
 * tap. Along time, a pair of frames needs 4 rounds of products instead of 6 for three taps, by F(2,
 * 3), if that is less than the taps that read existing frames; else each tap is a round.
 *
 * Each run first transforms the weights into matrices per round, [16 or 25][C][filters]. Then each
 * worker takes `tiles` squares at a time. It transforms their 4 x 4 or 7 x 7 inputs into as many
 * rows of channels, multiplies these by the matrices, round after round, and transforms the sums
 * into outputs. All of that stays in the worker's cache, and the bits do not depend on the number
 * of threads. Sums are f32; the error is about twice that of the plain sum, with pairs of frames
 * three times.
 * Licence: Apache-2.0 */
#include "cpu/cpu.h"
#include "cpu/tile.h"
#include "cpu/winograd.h"

enum { MOST = 7, FETCH = TILE_FETCH(MR_WINOGRAD_SQUARES) };

typedef struct job {
    mr_winograd_plan p;
    const mr_winograd_call *call;
    float *weights;  /* [rounds][matrices][panels][C][TILE_COLUMNS] */
    float *own;      /* per worker: inputs, then sums */
    int64_t columns; /* filters, padded to whole panels */
} job;

/* The strides of rows and of matrices in a worker's memory, in floats. They have gaps, since rows
 * with a power of two as stride would share cache sets. */
static int64_t row_of(int64_t n)
{
    return n + MR_WINOGRAD_GAP;
}
static int64_t matrix_of(const mr_winograd_plan *p, int64_t n)
{
    return p->rows * row_of(n) + 5 * MR_WINOGRAD_GAP;
}

/* ---- weights: G w G' ---- */

/* Per side of a square: the number of points, which is that of inputs; the number of outputs. */
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

/* The number of weight matrices along a side; all odd points use that of the middle tap. */
VF_INLINE int along_of(bool strided)
{
    return strided ? 5 : 4;
}
static int64_t matrices_of(const mr_winograd_plan *p)
{
    return (int64_t)along_of(p->strided) * along_of(p->strided);
}
/* The weight matrix of a point. */
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

/* Load the 3 x 3 taps of one tap of time, for a vector of filters from `filter` on. */
VF_INLINE void load_taps(const job *j, vf *w, int64_t filter, int64_t c, int64_t tap, mr_dtype t)
{
    const mr_winograd_plan *p = &j->p;
    int64_t n = MR_MIN(p->filters - filter, (int64_t)VF_LANES),
            at = filter * p->w_filter + c * p->w_channel;
    for (int64_t k = 0; k < 9; k++) {
        int64_t plain = tap * 9 + k, place = p->turned ? p->taps * 9 - 1 - plain : plain;
        w[k] = n > 0 ? vf_ldx(j->call->w, at + place, p->w_filter, n, t) : vf_zero();
    }
}

/* Transform the 3 x 3 taps of a round to matrices from `to` on. */
VF_INLINE void turn_picture(const job *j, const vf *w, float *to, bool strided)
{
    const int along = along_of(strided);
    vf half[15], u[25];
    for (int i = 0; i < 3; i++)
        turn_taps(w[i], w[3 + i], w[6 + i], half + i, 3, strided);
    for (int i = 0; i < along; i++)
        turn_taps(half[3 * i], half[3 * i + 1], half[3 * i + 2], u + along * i, 1, strided);
    for (int k = 0; k < along * along; k++)
        vf_store(to + k * j->p.channels * j->columns, u[k]);
}

/* Transform the weights of one panel of filters. */
VF_INLINE void turn_panel(const job *j, int64_t panel, bool strided, mr_dtype t)
{
    const mr_winograd_plan *p = &j->p;
    int64_t round = matrices_of(p) * p->channels * j->columns;
    for (int64_t i = 0; i < p->channels * 2; i++) {
        int64_t c = i / 2, v = i % 2 * VF_LANES, filter = panel * TILE_COLUMNS + v;
        float *to = j->weights + (panel * p->channels + c) * TILE_COLUMNS + v;
        vf w[3 * 9], of_round[4 * 9];
        for (int64_t tap = 0; tap < p->taps; tap++) {
            load_taps(j, p->pairs ? w + tap * 9 : w, filter, c, tap, t);
            if (!p->pairs)
                turn_picture(j, w, to + tap * round, strided);
        }
        for (int k = 0; k < 9 && p->pairs; k++)
            turn_taps(w[k], w[9 + k], w[18 + k], of_round + k, 9, false);
        for (int k = 0; k < 4 && p->pairs; k++)
            turn_picture(j, of_round + 9 * k, to + k * round, strided);
    }
}

static void turn_weights(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    for (int64_t i = begin; i < end; i++)
        if (j->p.strided)
            turn_panel(j, i, true, j->p.type);
        else if (j->p.type == MR_BF16)
            turn_panel(j, i, false, MR_BF16);
        else
            turn_panel(j, i, false, MR_F32);
}

/* ---- inputs: B' x B ---- */

VF_INLINE void turn4(vf a, vf b, vf c, vf d, vf *out, int step)
{
    out[0] = a - c, out[step] = b + c, out[2 * step] = c - b, out[3 * step] = b - d;
}

/* Transform a line of inputs with the stride `step` to its points, in place. */
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

/* A square of outputs: its sample, its frame (the first of a pair), its first row and column. */
typedef struct square {
    int64_t batch, t, h, w;
} square;

static int64_t ceil_of(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}

/* The number of output frames that are computed together. */
static int64_t together(const mr_winograd_plan *p)
{
    return p->pairs ? 2 : 1;
}

static square square_of(const mr_winograd_plan *p, int64_t i)
{
    int64_t outs = outs_of(p->strided), across = ceil_of(p->out[2], outs),
            frame = across * ceil_of(p->out[1], outs), along = ceil_of(p->out[0], together(p));
    return (square){.w = i % across * outs,
                    .h = i % frame / across * outs,
                    .t = i / frame % along * together(p),
                    .batch = i / (frame * along)};
}

/* A round of products reads input frame `plus` and, if `other` >= 0, adds `sign` times frame
 * `other`; both count from the first frame that the kernel reads. Its sums are added to each output
 * frame with the factor in `add`. */
typedef struct round_spec {
    int plus, other;
    float sign, add[2];
} round_spec;

static round_spec round_of(const mr_winograd_plan *p, int64_t i)
{
    static const round_spec of_pair[] = {
        {0, 2, -1, {1, 0}}, {1, 2, 1, {1, 1}}, {2, 1, -1, {1, -1}}, {1, 3, -1, {0, -1}}};
    return p->pairs ? of_pair[i] : (round_spec){(int)i, -1, 0, {1, 0}};
}

static int64_t rounds_of(const mr_winograd_plan *p)
{
    return p->pairs ? 4 : p->taps;
}

/* The i-th input frame that a square reads; -1 if it is outside of the input. */
static int64_t frame_of(const mr_winograd_plan *p, square q, int i)
{
    int64_t t = q.t * p->step - p->before[0] + i;
    return i >= 0 && t >= 0 && t < p->in[0] ? t : -1;
}

/* Whether any of the squares begin .. end reads existing input in a round. */
static bool reads(const mr_winograd_plan *p, int64_t begin, int64_t end, const round_spec *r)
{
    for (int64_t i = begin; i < end; i++) {
        square q = square_of(p, i);
        if (frame_of(p, q, r->plus) >= 0 || frame_of(p, q, r->other) >= 0)
            return true;
    }
    return false;
}

/* Transform the inputs of a square in a round to one row of a matrix per point. */
VF_INLINE void turn_inputs(const job *j, float *to, square q, const round_spec *r, bool strided,
                           mr_dtype type)
{
    const mr_winograd_plan *p = &j->p;
    const int side = side_of(strided), step = strided ? 2 : 1;
    int64_t C = p->channels, size = matrix_of(p, C), plus = frame_of(p, q, r->plus),
            other = frame_of(p, q, r->other), h = q.h * step - p->before[1],
            w = q.w * step - p->before[2], frame = p->in[1] * p->in[2] * C,
            at = q.batch * p->in[0] * frame + (h * p->in[2] + w) * C;
    bool inside = h >= 0 && h + side <= p->in[1] && w >= 0 && w + side <= p->in[2];
    vf sign = vf_set(r->sign);
    for (int64_t c = 0; c < C; c += VF_LANES) {
        vf x[MOST * MOST];
        for (int64_t k = 0; k < side * side; k++) {
            int64_t row = k / side, column = k % side,
                    from = at + (row * p->in[2] + column) * C + c;
            bool there = inside || (h + row >= 0 && h + row < p->in[1] && w + column >= 0 &&
                                    w + column < p->in[2]);
            x[k] = there && plus >= 0 ? vf_ld(j->call->from, from + plus * frame, type) : vf_zero();
            if (there && other >= 0)
                x[k] = vf_fma(sign, vf_ld(j->call->from, from + other * frame, type), x[k]);
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

/* The sums of an output frame, to which `sign` times a product is added; it overwrites them if they
 * have not begun. NULL: no frame. */
typedef struct target {
    float *sums, sign;
    bool begun;
} target;

/* Add a product of TILE_ROWS x TILE_COLUMNS at `at` of two targets; the row stride of A is a_row,
 * that of sums `row`. Out of line: inlined into its loops, the sums would be spilled from
 * registers. */
static __attribute__((noinline)) void multiply(const tile_operands *o, int64_t a_row,
                                               const target *add, int64_t at, int64_t row)
{
    vf sum[TILE_ROWS][2];
    // if there are many sums, they are in memory: prefetch them
    for (const target *t = add; t < add + 2; t++)
        for (int i = 0; i < TILE_ROWS && t->sums; i++)
            for (int v = 0; v < 2; v++)
                __builtin_prefetch(t->sums + at + i * row + v * VF_LANES, 1);
    tile_sums(sum, o, a_row, 1, FETCH);
    for (const target *t = add; t < add + 2; t++)
        for (int i = 0; i < TILE_ROWS && t->sums; i++)
            for (int v = 0; v < 2; v++) {
                float *to = t->sums + at + i * row + v * VF_LANES;
                vf_store(to,
                         vf_fma(vf_set(t->sign), sum[i][v], t->begun ? vf_load(to) : vf_zero()));
            }
}

/* Multiply rows of `inputs` by one weight matrix, panel by panel, and add to `at` of the
 * targets. */
static void products(const job *j, const float *inputs, const float *weights, const target *add,
                     int64_t at, int64_t rows)
{
    int64_t C = j->p.channels, a_row = row_of(C), c_row = row_of(j->columns);
    for (int64_t q = 0; q < j->columns; q += TILE_COLUMNS, weights += C * TILE_COLUMNS) {
        tile_operands o = {.b = weights, .next = weights + C * TILE_COLUMNS, .depth = C};
        // rows past the last square are garbage: multiplied, but not read
        for (int64_t i = 0; i < rows; i += TILE_ROWS, o.next += C / TILE_UNROLL * FETCH) {
            o.a = inputs + i * a_row;
            multiply(&o, a_row, add, at + i * c_row + q, c_row);
        }
    }
}

/* ---- outputs: A' m A + bias ---- */

/* Transform a line of sums with the stride `step` to outputs. */
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

/* Transform the sums of a square in frame t to outputs. */
VF_INLINE void turn_outputs(const job *j, const float *sums, square q, int64_t t, bool strided,
                            mr_dtype type)
{
    const mr_winograd_plan *p = &j->p;
    const int side = side_of(strided), outs = outs_of(strided);
    int64_t size = matrix_of(p, j->columns), K = p->filters,
            at = (((q.batch * p->out[0] + t) * p->out[1] + q.h) * p->out[2] + q.w) * K;
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

/* ---- run ---- */

/* Compute squares begin .. end, at most p.tiles of them. `type` is a compile-time constant. */
VF_INLINE void squares(const job *j, int64_t begin, int64_t end, float *inputs, bool strided,
                       mr_dtype type)
{
    const mr_winograd_plan *p = &j->p;
    int64_t from = matrix_of(p, p->channels), to = matrix_of(p, j->columns), n = end - begin,
            matrix = p->channels * j->columns, points = points_of(p), rounds = rounds_of(p);
    float *sums[] = {inputs + points * from, inputs + points * (from + to)};
    bool begun[2] = {false};
    for (int64_t i = 0; i < rounds; i++) {
        round_spec r = round_of(p, i);
        // skip a round that reads no existing frame, unless the sums of an output frame would never
        // begin
        bool needed = !begun[0] && i == rounds - 1 - p->pairs;
        needed |= !begun[1] && p->pairs && i == rounds - 1;
        if (!needed && !reads(p, begin, end, &r))
            continue;
        for (int64_t k = 0; k < n; k++)
            turn_inputs(j, inputs + k * row_of(p->channels), square_of(p, begin + k), &r, strided,
                        type);
        target add[2];
        for (int k = 0; k < 2; k++) {
            add[k] = (target){r.add[k] != 0 ? sums[k] : NULL, r.add[k], begun[k]};
            begun[k] |= r.add[k] != 0;
        }
        for (int64_t k = 0; k < points; k++)
            products(j, inputs + k * from,
                     j->weights + (i * matrices_of(p) + matrix_at(p, k)) * matrix, add, k * to, n);
    }
    for (int64_t i = 0; i < n; i++) {
        square q = square_of(p, begin + i);
        for (int64_t k = 0; k < together(p) && q.t + k < p->out[0]; k++)
            turn_outputs(j, sums[k] + i * row_of(j->columns), q, q.t + k, strided, type);
    }
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

/* The number of squares of all samples. */
static int64_t squares_of(const mr_winograd_plan *p)
{
    int64_t outs = outs_of(p->strided);
    return p->batch * ceil_of(p->out[0], together(p)) * ceil_of(p->out[1], outs) *
           ceil_of(p->out[2], outs);
}

/* Compute parts begin .. end; each group of squares has p->parts of them. */
static void some_parts(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const mr_winograd_plan *p = &j->p;
    float *own = j->own + worker * p->own_floats;
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i / p->parts * p->group, first = group + i % p->parts * p->tiles,
                last = MR_MIN(MR_MIN(first + p->tiles, group + p->group), squares_of(p));
        (p->strided ? squares_of_3 : squares_of_2)(j, first, last, own);
    }
}

void MR_CAT3(mr_winograd, _, MR_ISA)(const mr_winograd_plan *p, const mr_winograd_call *call)
{
    job j = {.p = *p, .call = call, .weights = call->workspace};
    int64_t panels = ceil_of(p->filters, TILE_COLUMNS);
    j.columns = panels * TILE_COLUMNS;
    j.own = j.weights + p->weight_floats;
    mr_cpu_for(panels, 1, p->threads, turn_weights, &j);
    mr_cpu_for(ceil_of(squares_of(p), p->group) * p->parts, 1, p->threads, some_parts, &j);
}
