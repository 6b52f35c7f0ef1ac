/* depthwise: convolutions in which every channel has one filter of its own, and both gradients.
 *
 *   out[p, c] = bias[c] + sum over taps k of w[c, k] in[p stride - before + k, c]
 *   dw[c, k] += sum over p of dy[p, c] in[p stride - before + k, c]
 *
 * A member of the team takes BLOCK channels of a sample (of all samples for dw) at a time and walks
 * along time. Its own memory holds as many frames as the kernel has, in f32, with the zeros around
 * them: so each element is read from the tensor once, and no tap tests whether it lies inside. Each
 * product takes one load; moves 2 elements per element of out, 3 with weights' gradients. Sums are
 * f32 in an order of their own that does not depend on the team. Licence: Apache-2.0 */
#include "cpu/cpu.h"
#include "cpu/depthwise.h"
#include "cpu/vec.h"

enum {
    BLOCK = MR_DEPTHWISE_BLOCK,
    VECTORS = BLOCK / VF_LANES, // of a block
    PLACES = VF_LANES == 16  ? 8
             : VF_LANES == 8 ? 4
                             : 2 // outputs that a product is taken for
};

typedef struct job {
    mr_depthwise_plan p;
    const mr_depthwise_call *call;
    float *weights; /* [blocks][taps][BLOCK] */
    float *own;     /* per worker */
} job;

static int64_t taps_of(const mr_depthwise_plan *p)
{
    return p->kernel[0] * p->kernel[1] * p->kernel[2];
}

/* Lanes of vector v of the block that begins at channel c. */
static int64_t lanes(const mr_depthwise_plan *p, int64_t c, int64_t v)
{
    return MR_MAX(MR_MIN(p->channels - c - v * VF_LANES, (int64_t)VF_LANES), 0);
}

VF_INLINE vf load(const void *from, int64_t at, int64_t step, int64_t n, mr_dtype t)
{
    return n > 0 ? vf_ldx(from, at, step, n, t) : vf_zero();
}

/* ---- what is read ---- */

/* BLOCK channels of a frame, with zeros around; a frame outside is zeros. */
VF_INLINE void fill_frame(const job *j, int64_t b, int64_t frame, int64_t c, float *to, mr_dtype t)
{
    const mr_depthwise_plan *p = &j->p;
    for (int64_t h = 0; h < p->height; h++)
        for (int64_t w = 0; w < p->width; w++, to += BLOCK) {
            int64_t at_h = h - p->before[1], at_w = w - p->before[2];
            bool inside = frame >= 0 && frame < p->in[0] && at_h >= 0 && at_h < p->in[1] &&
                          at_w >= 0 && at_w < p->in[2];
            int64_t place = ((b * p->in[0] + frame) * p->in[1] + at_h) * p->in[2] + at_w;
            for (int64_t v = 0; v < VECTORS; v++)
                vf_store(to + v * VF_LANES,
                         inside ? load(j->call->from, place * p->channels + c + v * VF_LANES, 1,
                                       lanes(p, c, v), t)
                                : vf_zero());
        }
}

/* A ring of the input's frames that one frame of the output needs. For the output's next frame the
 * worker reads the new input frames into the places of those that it needs no more. */
typedef struct window {
    int64_t next; /* the first frame that has not been read */
    float *frame; /* [kernel[0]][height][width][BLOCK], frame f at f modulo kernel[0] */
} window;

static float *frame_at(const mr_depthwise_plan *p, const window *w, int64_t frame)
{
    int64_t n = p->kernel[0], at = (frame % n + n) % n;
    return w->frame + at * p->height * p->width * BLOCK;
}

VF_INLINE void move_window(const job *j, window *w, int64_t b, int64_t c, int64_t t, mr_dtype type)
{
    const mr_depthwise_plan *p = &j->p;
    int64_t first = t * p->stride[0] - p->before[0];
    for (int64_t f = MR_MAX(w->next, first); f < first + p->kernel[0]; f++)
        fill_frame(j, b, f, c, frame_at(p, w, f), type);
    w->next = first + p->kernel[0];
}

/* What tap (kt, kh, 0) of the output at (t, h, 0) reads. */
static const float *line_at(const mr_depthwise_plan *p, const window *w, int64_t t, int64_t h,
                            int64_t kt, int64_t kh)
{
    const float *frame = frame_at(p, w, t * p->stride[0] - p->before[0] + kt);
    return frame + (h * p->stride[1] + kh) * p->width * BLOCK;
}

/* ---- outputs ---- */

/* `n` outputs of a line from w on; n is a constant. */
VF_INLINE void places(const job *j, const window *win, const float *weights, const vf *bias,
                      const int64_t *at, int64_t c, int n, mr_dtype type)
{
    const mr_depthwise_plan *p = &j->p;
    int64_t t = at[1], h = at[2], w = at[3], step = p->stride[2] * BLOCK;
    vf sum[PLACES * VECTORS];
    for (int i = 0; i < n * VECTORS; i++)
        sum[i] = bias[i % VECTORS];
    for (int64_t kt = 0; kt < p->kernel[0]; kt++)
        for (int64_t kh = 0; kh < p->kernel[1]; kh++) {
            const float *line = line_at(p, win, t, h, kt, kh) + w * step;
            for (int64_t kw = 0; kw < p->kernel[2]; kw++, line += BLOCK, weights += BLOCK)
                for (int v = 0; v < VECTORS; v++) {
                    vf weight = vf_load(weights + v * VF_LANES);
                    for (int i = 0; i < n; i++)
                        sum[i * VECTORS + v] = vf_fma(
                            weight, vf_load(line + i * step + v * VF_LANES), sum[i * VECTORS + v]);
                }
        }
    int64_t place = ((at[0] * p->out[0] + t) * p->out[1] + h) * p->out[2] + w;
    for (int i = 0; i < n; i++)
        for (int v = 0; v < VECTORS; v++) {
            int64_t m = lanes(p, c, v), to = (place + i) * p->channels + c + v * VF_LANES;
            if (m > 0)
                vf_stx(j->call->to, to, 1, sum[i * VECTORS + v], m, type);
        }
}

VF_INLINE void block_outputs(const job *j, int64_t item, float *own, mr_dtype type)
{
    const mr_depthwise_plan *p = &j->p;
    int64_t blocks = (p->channels + BLOCK - 1) / BLOCK, b = item / blocks, block = item % blocks,
            c = block * BLOCK;
    const float *weights = j->weights + block * taps_of(p) * BLOCK;
    window win = {.next = INT64_MIN, .frame = own};
    vf bias[VECTORS];
    for (int64_t v = 0; v < VECTORS; v++)
        bias[v] = j->call->bias ? load(j->call->bias, c + v * VF_LANES, 1, lanes(p, c, v), type)
                                : vf_zero();
    for (int64_t t = 0; t < p->out[0]; t++) {
        move_window(j, &win, b, c, t, type);
        for (int64_t h = 0; h < p->out[1]; h++) {
            int64_t at[4] = {b, t, h, 0};
            for (; at[3] + PLACES <= p->out[2]; at[3] += PLACES)
                places(j, &win, weights, bias, at, c, PLACES, type);
            for (; at[3] < p->out[2]; at[3]++)
                places(j, &win, weights, bias, at, c, 1, type);
        }
    }
}

/* ---- gradient of the weights ---- */

/* Adds what a line of dy brings to the sums of a tap. */
VF_INLINE void add_line(const mr_depthwise_plan *p, const float *dy, const float *line, float *sums)
{
    int64_t step = p->stride[2] * BLOCK, n = p->out[2];
    for (int v = 0; v < VECTORS; v++, dy += VF_LANES, line += VF_LANES) {
        // four sums, so that none waits for the one before
        vf sum[4] = {vf_load(sums + v * VF_LANES), vf_zero(), vf_zero(), vf_zero()};
        int64_t w = 0;
        for (; w + 4 <= n; w += 4)
            for (int i = 0; i < 4; i++)
                sum[i] =
                    vf_fma(vf_load(dy + (w + i) * BLOCK), vf_load(line + (w + i) * step), sum[i]);
        for (; w < n; w++)
            sum[0] = vf_fma(vf_load(dy + w * BLOCK), vf_load(line + w * step), sum[0]);
        vf_store(sums + v * VF_LANES, sum[0] + sum[1] + (sum[2] + sum[3]));
    }
}

VF_INLINE void block_weights(const job *j, int64_t block, float *own, mr_dtype type)
{
    const mr_depthwise_plan *p = &j->p;
    int64_t c = block * BLOCK, taps = taps_of(p);
    float *dy = own + p->kernel[0] * p->height * p->width * BLOCK, *sums = dy + p->out[2] * BLOCK;
    memset(sums, 0, (size_t)(taps * BLOCK) * sizeof *sums);
    for (int64_t b = 0; b < p->batch; b++) {
        window win = {.next = INT64_MIN, .frame = own};
        for (int64_t t = 0; t < p->out[0]; t++) {
            move_window(j, &win, b, c, t, type);
            for (int64_t h = 0; h < p->out[1]; h++) {
                int64_t place = ((b * p->out[0] + t) * p->out[1] + h) * p->out[2];
                for (int64_t i = 0; i < p->out[2] * VECTORS; i++)
                    vf_store(dy + i * VF_LANES,
                             load(j->call->w,
                                  (place + i / VECTORS) * p->channels + c + i % VECTORS * VF_LANES,
                                  1, lanes(p, c, i % VECTORS), type));
                for (int64_t k = 0; k < taps; k++) {
                    int64_t kw = k % p->kernel[2], kh = k / p->kernel[2] % p->kernel[1];
                    const float *line =
                        line_at(p, &win, t, h, k / (p->kernel[1] * p->kernel[2]), kh);
                    add_line(p, dy, line + kw * BLOCK, sums + k * BLOCK);
                }
            }
        }
    }
    float *to = j->call->to;
    for (int64_t i = 0; i < MR_MIN(p->channels - c, (int64_t)BLOCK); i++)
        for (int64_t k = 0; k < taps; k++)
            to[(c + i) * taps + k] += sums[k * BLOCK + i];
}

/* ---- one run ---- */

static void turn_weights(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    const mr_depthwise_plan *p = &j->p;
    int64_t taps = taps_of(p);
    for (int64_t block = begin; block < end; block++)
        for (int64_t k = 0; k < taps; k++)
            for (int64_t v = 0; v < VECTORS; v++) {
                int64_t c = block * BLOCK, at = (c + v * VF_LANES) * taps;
                at += p->turned ? taps - 1 - k : k;
                vf_store(j->weights + (block * taps + k) * BLOCK + v * VF_LANES,
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
    int64_t blocks = (p->channels + BLOCK - 1) / BLOCK;
    j.own = j.weights + p->weight_floats;
    if (!p->weights)
        mr_cpu_for(blocks, 8, p->threads, turn_weights, &j);
    mr_cpu_for(p->weights ? blocks : p->batch * blocks, 1, p->threads, some_blocks, &j);
}
