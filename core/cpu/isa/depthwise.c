/* depthwise: convolutions in which each channel has its own filter, and both gradients.
 *
 *   out[p, c] = bias[c] + sum over taps k of w[c, k] in[p stride - before + k, c]
 *   dw[c, k] += sum over p of dy[p, c] in[p stride - before + k, c]
 *
 * A worker takes a block of channels of a sample (of all samples for dw) at a time and goes along
 * time. Its buffers have as many input frames as the kernel, and one output frame, in f32, with one
 * plane per vector of channels. So tensors are read and written in runs of a block's channels, each
 * element once. Rows in the buffers are padded with zeros, so taps need no bounds check; frames and
 * rows outside of the input are skipped. If the stride along the width is 1 and the kernel is 3 or
 * 5 wide, a loaded element is used for all taps of a row. Reads and writes 2 elements per element
 * of out, 3 for the gradient of the weights. Sums are f32, in an order that does not depend on the
 * number of threads.
 *
 * [4, 16, 32, 1536] by 5 x 5 x 5 on two cores of a Zen 5: 2.2 ms in f32, 1.6 ms in bf16, 0.68 and
 * 0.47 of the product peak. Licence: Apache-2.0 */
#include "cpu/cpu.h"
#include "cpu/depthwise.h"
#include "cpu/vec.h"

enum {
    // outputs computed at a time: their sums, a row of taps and an element fit the registers
    PLACES = VF_LANES == 16 ? 16 : 8,
    SOME = 4,  // outputs at a time at the end of a line
    WIDEST = 5 // most taps along the width in registers
};

typedef struct job {
    mr_depthwise_plan p;
    const mr_depthwise_call *call;
    float *weights; /* [blocks][vectors][taps][VF_LANES] */
    float *own;     /* per worker */
} job;

/* The number of vectors of a block. */
static int64_t vectors_of(const mr_depthwise_plan *p)
{
    return p->block / VF_LANES;
}

static int64_t blocks_of(const mr_depthwise_plan *p)
{
    return (p->channels + p->block - 1) / p->block;
}

static int64_t taps_of(const mr_depthwise_plan *p)
{
    return p->kernel[0] * p->kernel[1] * p->kernel[2];
}

/* The number of existing channels in vector v of the block at channel c. */
static int64_t lanes(const mr_depthwise_plan *p, int64_t c, int64_t v)
{
    return MR_MAX(MR_MIN(p->channels - c - v * VF_LANES, (int64_t)VF_LANES), 0);
}

VF_INLINE vf load(const void *from, int64_t at, int64_t step, int64_t n, mr_dtype t)
{
    return n > 0 ? vf_ldx(from, at, step, n, t) : vf_zero();
}

/* ---- inputs ---- */

static int64_t plane_of(const mr_depthwise_plan *p)
{
    return p->height * p->width * VF_LANES;
}

/* One vector more than an output frame: planes with a power of two as stride would share cache
 * sets. */
static int64_t out_plane_of(const mr_depthwise_plan *p)
{
    return (p->out[1] * p->out[2] + 1) * VF_LANES;
}

/* Copy the channels of a block at one position, `from` elements from the start, to one position of
 * each plane. */
VF_INLINE void fill_place(const job *j, int64_t from, int64_t c, float *to, mr_dtype t)
{
    enum { WHOLE = MR_DEPTHWISE_BLOCK / VF_LANES };
    const mr_depthwise_plan *p = &j->p;
    int64_t plane = plane_of(p), n = MR_MIN(p->channels - c, p->block);
    vf x[WHOLE];
    if (n == MR_DEPTHWISE_BLOCK) {
#pragma GCC unroll 8
        for (int v = 0; v < WHOLE; v++)
            x[v] = vf_ld(j->call->from, from + v * VF_LANES, t);
#pragma GCC unroll 8
        for (int v = 0; v < WHOLE; v++)
            vf_store(to + v * plane, x[v]);
        return;
    }
    for (int64_t v = 0; v * VF_LANES < n; v++)
        vf_store(to + v * plane, vf_ldx(j->call->from, from + v * VF_LANES, 1,
                                        MR_MIN(n - v * VF_LANES, (int64_t)VF_LANES), t));
}

/* Zero one position of each plane. */
VF_INLINE void clear_place(const mr_depthwise_plan *p, float *to)
{
    for (int64_t v = 0; v < vectors_of(p); v++)
        vf_store(to + v * plane_of(p), vf_zero());
}

/* Copy the channels of a block of one input frame, with padding; rows that no tap reads are
 * skipped. */
VF_INLINE void fill_frame(const job *j, int64_t b, int64_t frame, int64_t c, float *to, mr_dtype t)
{
    const mr_depthwise_plan *p = &j->p;
    for (int64_t h = 0; h < p->in[1]; h++) {
        int64_t row = h + p->before[1], at = ((b * p->in[0] + frame) * p->in[1] + h) * p->in[2];
        if (row < 0 || row >= p->height)
            continue;
        float *line = to + row * p->width * VF_LANES;
        for (int64_t w = 0; w < p->width; w++, line += VF_LANES) {
            int64_t at_w = w - p->before[2];
            if (at_w >= 0 && at_w < p->in[2])
                fill_place(j, (at + at_w) * p->channels + c, c, line, t);
            else
                clear_place(p, line);
        }
    }
}

/* The taps first .. last of an axis that read existing input for the output at `at`. */
typedef struct span {
    int64_t first, last;
} span;

static span inside(const mr_depthwise_plan *p, int axis, int64_t at)
{
    int64_t from = at * p->stride[axis] - p->before[axis];
    return (span){MR_MAX(-from, (int64_t)0), MR_MIN(p->kernel[axis], p->in[axis] - from)};
}

/* A ring buffer of the input frames that one output frame needs. For the next output frame, new
 * input frames overwrite those that are no longer needed. */
typedef struct window {
    int64_t next; /* the first frame that is not read yet */
    float *frame; /* [kernel[0]][vectors][height][width][VF_LANES], frame f at f modulo kernel[0] */
} window;

static float *frame_at(const mr_depthwise_plan *p, const window *w, int64_t frame)
{
    return w->frame + frame % p->kernel[0] * vectors_of(p) * plane_of(p);
}

VF_INLINE void move_window(const job *j, window *w, int64_t b, int64_t c, int64_t t, mr_dtype type)
{
    const mr_depthwise_plan *p = &j->p;
    span taps = inside(p, 0, t);
    int64_t first = t * p->stride[0] - p->before[0];
    for (int64_t f = MR_MAX(w->next, first + taps.first); f < first + taps.last; f++)
        fill_frame(j, b, f, c, frame_at(p, w, f), type);
    w->next = MR_MAX(w->next, first + taps.last);
}

/* ---- outputs ---- */

/* Add a row of `wide` taps to the sums of n adjacent outputs; both are compile-time constants. */
VF_INLINE void add_row(vf *sum, const float *line, const float *weights, int n, int wide)
{
    vf weight[WIDEST];
#pragma GCC unroll 5
    for (int k = 0; k < wide; k++)
        weight[k] = vf_load(weights + k * VF_LANES);
#pragma GCC unroll 20
    for (int j = 0; j < n + wide - 1; j++) {
        vf x = vf_load(line + j * VF_LANES);
#pragma GCC unroll 5
        for (int k = 0; k < wide; k++)
            if (j >= k && j - k < n)
                sum[j - k] = vf_fma(weight[k], x, sum[j - k]);
    }
}

/* The same for any number of taps, and outputs whose inputs are `step` floats apart. */
VF_INLINE void add_taps(vf *sum, const float *line, const float *weights, int n, int64_t taps,
                        int64_t step)
{
    for (int64_t k = 0; k < taps; k++, line += VF_LANES, weights += VF_LANES)
        for (int i = 0; i < n; i++)
            sum[i] = vf_fma(vf_load(weights), vf_load(line + i * step), sum[i]);
}

/* A line of the output, and the taps that read existing input. */
typedef struct line {
    const window *win;
    int64_t b, t, h, block;
    span kt, kh;
    float *to; /* an output frame: [vectors] planes */
} line;

static line line_of(const mr_depthwise_plan *p, const window *win, int64_t b, int64_t t, int64_t h,
                    int64_t block, float *to)
{
    return (line){win, b, t, h, block, inside(p, 0, t), inside(p, 1, h), to};
}

/* The input that the tap (kt, 0, 0) of a line reads, for one vector of channels. */
static const float *read_by(const mr_depthwise_plan *p, const line *l, int64_t kt, int64_t v)
{
    const float *frame = frame_at(p, l->win, l->t * p->stride[0] - p->before[0] + kt);
    return frame + v * plane_of(p) + l->h * p->stride[1] * p->width * VF_LANES;
}

/* Compute `n` outputs from w on, for one vector of channels. n and `wide` are compile-time
 * constants; wide 0: any kernel and stride. */
VF_INLINE void places(const job *j, const line *l, int64_t v, int64_t w, int n, int wide,
                      mr_dtype type)
{
    const mr_depthwise_plan *p = &j->p;
    int64_t step = p->stride[2] * VF_LANES, row = p->width * VF_LANES,
            taps = p->kernel[2] * VF_LANES, c = l->block * p->block, m = lanes(p, c, v);
    const float *weights = j->weights + (l->block * vectors_of(p) + v) * taps_of(p) * VF_LANES;
    vf sum[PLACES],
        bias = j->call->bias ? load(j->call->bias, c + v * VF_LANES, 1, m, type) : vf_zero();
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
        sum[i] = bias;
    for (int64_t kt = l->kt.first; kt < l->kt.last; kt++) {
        const float *from = read_by(p, l, kt, v) + l->kh.first * row + w * step,
                    *weight = weights + (kt * p->kernel[1] + l->kh.first) * taps;
        for (int64_t kh = l->kh.first; kh < l->kh.last; kh++, from += row, weight += taps)
            if (wide)
                add_row(sum, from, weight, n, wide);
            else
                add_taps(sum, from, weight, n, p->kernel[2], step);
    }
    float *to = l->to + v * out_plane_of(p) + (l->h * p->out[2] + w) * VF_LANES;
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
        vf_store(to + i * VF_LANES, sum[i]);
}

VF_INLINE void whole_line(const job *j, const line *l, int64_t v, int wide, mr_dtype type)
{
    const mr_depthwise_plan *p = &j->p;
    int64_t w = 0, n = p->out[2];
    for (; w + PLACES <= n; w += PLACES)
        places(j, l, v, w, PLACES, wide, type);
    for (; w + SOME <= n; w += SOME)
        places(j, l, v, w, SOME, wide, type);
    for (; w < n; w++)
        places(j, l, v, w, 1, wide, type);
}

/* One function per width of the kernel: in a common function the sums would be spilled from
 * registers. */
#define LINE(name, wide)                                                                           \
    static __attribute__((noinline)) void name(const job *j, const line *l, int64_t v)             \
    {                                                                                              \
        if (j->p.type == MR_BF16)                                                                  \
            whole_line(j, l, v, wide, MR_BF16);                                                    \
        else                                                                                       \
            whole_line(j, l, v, wide, MR_F32);                                                     \
    }
LINE(line_of_3, 3)
LINE(line_of_5, 5)
LINE(line_of_any, 0)

static void one_line(const job *j, const line *l, int64_t v)
{
    int64_t wide = j->p.stride[2] == 1 ? j->p.kernel[2] : 0;
    if (wide == 3)
        line_of_3(j, l, v);
    else if (wide == 5)
        line_of_5(j, l, v);
    else
        line_of_any(j, l, v);
}

/* Write the channels of a block of one output frame, from the planes. */
VF_INLINE void empty_frame(const job *j, int64_t b, int64_t t, int64_t c, const float *from,
                           mr_dtype type)
{
    enum { WHOLE = MR_DEPTHWISE_BLOCK / VF_LANES };
    const mr_depthwise_plan *p = &j->p;
    int64_t places = p->out[1] * p->out[2], plane = out_plane_of(p),
            n = MR_MIN(p->channels - c, p->block),
            to = (b * p->out[0] + t) * places * p->channels + c;
    for (int64_t i = 0; i < places; i++, from += VF_LANES, to += p->channels) {
        if (n == MR_DEPTHWISE_BLOCK) {
#pragma GCC unroll 8
            for (int v = 0; v < WHOLE; v++)
                vf_st(j->call->to, to + v * VF_LANES, vf_load(from + v * plane), type);
            continue;
        }
        for (int64_t v = 0; v * VF_LANES < n; v++)
            vf_stx(j->call->to, to + v * VF_LANES, 1, vf_load(from + v * plane),
                   MR_MIN(n - v * VF_LANES, (int64_t)VF_LANES), type);
    }
}

VF_INLINE void block_outputs(const job *j, int64_t item, float *own, mr_dtype type)
{
    const mr_depthwise_plan *p = &j->p;
    int64_t b = item / blocks_of(p), block = item % blocks_of(p),
            channels = MR_MIN(p->channels - block * p->block, p->block);
    window win = {.frame = own};
    for (int64_t t = 0; t < p->out[0]; t++) {
        move_window(j, &win, b, block * p->block, t, type);
        float *to = own + p->kernel[0] * vectors_of(p) * plane_of(p);
        for (int64_t v = 0; v * VF_LANES < channels; v++)
            for (int64_t h = 0; h < p->out[1]; h++) {
                line l = line_of(p, &win, b, t, h, block, to);
                one_line(j, &l, v);
            }
        empty_frame(j, b, t, block * p->block, to, type);
    }
}

/* ---- gradient of the weights ---- */

/* Add the products of a line of dy to the sums of one tap, for one vector of channels. */
VF_INLINE void add_line(const mr_depthwise_plan *p, const float *dy, const float *line, float *sums)
{
    int64_t step = p->stride[2] * VF_LANES, n = p->out[2], w = 0;
    // four independent sums, so that additions overlap
    vf sum[4] = {vf_load(sums), vf_zero(), vf_zero(), vf_zero()};
    for (; w + 4 <= n; w += 4)
        for (int i = 0; i < 4; i++)
            sum[i] =
                vf_fma(vf_load(dy + (w + i) * VF_LANES), vf_load(line + (w + i) * step), sum[i]);
    for (; w < n; w++)
        sum[0] = vf_fma(vf_load(dy + w * VF_LANES), vf_load(line + w * step), sum[0]);
    vf_store(sums, sum[0] + sum[1] + (sum[2] + sum[3]));
}

/* Add the products of a line of dy to the sums of all taps, for one vector of channels. */
static void add_taps_of_line(const mr_depthwise_plan *p, const line *l, const float *dy, int64_t v,
                             float *sums)
{
    for (int64_t kt = l->kt.first; kt < l->kt.last; kt++)
        for (int64_t kh = l->kh.first; kh < l->kh.last; kh++)
            for (int64_t kw = 0; kw < p->kernel[2]; kw++) {
                int64_t k = (kt * p->kernel[1] + kh) * p->kernel[2] + kw;
                add_line(p, dy, read_by(p, l, kt, v) + (kh * p->width + kw) * VF_LANES,
                         sums + k * VF_LANES);
            }
}

VF_INLINE void block_weights(const job *j, int64_t block, float *own, mr_dtype type)
{
    const mr_depthwise_plan *p = &j->p;
    int64_t c = block * p->block, taps = taps_of(p), vectors = vectors_of(p);
    float *dy = own + p->kernel[0] * vectors * plane_of(p), *sums = dy + p->out[2] * VF_LANES;
    memset(sums, 0, (size_t)(taps * p->block) * sizeof *sums);
    for (int64_t b = 0; b < p->batch; b++) {
        window win = {.frame = own};
        for (int64_t t = 0; t < p->out[0]; t++) {
            move_window(j, &win, b, c, t, type);
            for (int64_t i = 0; i < p->out[1] * vectors; i++) {
                int64_t h = i / vectors, v = i % vectors,
                        place = ((b * p->out[0] + t) * p->out[1] + h) * p->out[2];
                for (int64_t w = 0; w < p->out[2]; w++)
                    vf_store(dy + w * VF_LANES,
                             load(j->call->w, (place + w) * p->channels + c + v * VF_LANES, 1,
                                  lanes(p, c, v), type));
                line l = line_of(p, &win, b, t, h, block, NULL);
                add_taps_of_line(p, &l, dy, v, sums + v * taps * VF_LANES);
            }
        }
    }
    float *to = j->call->to;
    for (int64_t i = 0; i < MR_MIN(p->channels - c, p->block); i++)
        for (int64_t k = 0; k < taps; k++)
            to[(c + i) * taps + k] += sums[(i / VF_LANES * taps + k) * VF_LANES + i % VF_LANES];
}

/* ---- run ---- */

static void turn_weights(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    const mr_depthwise_plan *p = &j->p;
    int64_t taps = taps_of(p), vectors = vectors_of(p);
    for (int64_t block = begin; block < end; block++)
        for (int64_t v = 0; v < vectors; v++)
            for (int64_t k = 0; k < taps; k++) {
                int64_t c = block * p->block, at = (c + v * VF_LANES) * taps;
                at += p->turned ? taps - 1 - k : k;
                vf_store(j->weights + ((block * vectors + v) * taps + k) * VF_LANES,
                         load(j->call->w, at, taps, lanes(p, c, v), p->type));
            }
}

static void some_blocks(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    float *own = j->own + worker * j->p.own_floats;
    for (int64_t i = begin; i < end; i++)
        if (j->p.weights && j->p.type == MR_BF16)
            block_weights(j, i, own, MR_BF16);
        else if (j->p.weights)
            block_weights(j, i, own, MR_F32);
        else if (j->p.type == MR_BF16)
            block_outputs(j, i, own, MR_BF16);
        else
            block_outputs(j, i, own, MR_F32);
}

void MR_CAT3(mr_depthwise, _, MR_ISA)(const mr_depthwise_plan *p, const mr_depthwise_call *call)
{
    job j = {.p = *p, .call = call, .weights = call->workspace};
    int64_t blocks = blocks_of(p);
    j.own = j.weights + p->weight_floats;
    if (!p->weights)
        mr_cpu_for(blocks, 8, p->threads, turn_weights, &j);
    mr_cpu_for(p->weights ? blocks : p->batch * blocks, 1, p->threads, some_blocks, &j);
}
