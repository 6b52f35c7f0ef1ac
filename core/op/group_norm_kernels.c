/* group_norm_kernels: the kernels of group_norm, its moments and its gradient, over pieces of the
 * samples.
 * Licence: Apache-2.0 */
#include "op/group_norm.h"

typedef struct job {
    const mr_call *c;
    group_shape s;
    group_room r;
    mr_rows rows; /* of x and y, whose rows can have a step */
} job;

/* GROUP_PARTS(id, each): defines id, a body of mr_cpu_for over the pieces of all samples. It calls
 * the inline function each(job, i, worker, dtype), which is compiled once per dtype of x. */
#define GROUP_PARTS(id, each)                                                                      \
    static void id(void *user, int64_t begin, int64_t end, int worker)                             \
    {                                                                                              \
        const job *j = user;                                                                       \
        for (int64_t i = begin; i < end; i++)                                                      \
            if (j->c->in[0].desc.dtype == MR_BF16)                                                 \
                each(j, i, worker, MR_BF16);                                                       \
            else                                                                                   \
                each(j, i, worker, MR_F32);                                                        \
    }

static bool does_silu(const job *j)
{
    return ((const group_attr *)j->c->attr)->silu;
}

static int64_t piece_rows(const group_shape *s, int64_t piece)
{
    return MR_MIN(s->length, s->places - piece * s->length);
}

/* ---- forward ---- */

/* Per channel, the sum of n rows from element `at` on; with `mean`, the sum of squares around
 * it. */
VF_INLINE void column_sums(const void *x, int64_t at, int64_t n, int64_t channels,
                           const float *mean, float *out, mr_dtype t)
{
    for (int64_t k = 0; k < channels; k += VF_LANES) {
        int64_t m = MR_MIN(channels - k, (int64_t)VF_LANES);
        vf a = vf_zero(), b = vf_zero(), middle = mean ? vf_loadn(mean + k, m) : vf_zero();
        for (int64_t p = 0; p < n; p++) {
            vf v = vf_ldx(x, at + p * channels + k, 1, m, t) - middle;
            if (mean)
                v = v * v;
            if (p & 1)
                b = b + v;
            else
                a = a + v;
        }
        vf_storen(out + k, a + b, m);
    }
}

VF_INLINE void moments(const job *j, int64_t i, int worker, mr_dtype t)
{
    const group_shape *s = &j->s;
    int64_t n = piece_rows(s, i % s->pieces),
            at = (i / s->pieces * s->places + i % s->pieces * s->length) * s->channels;
    float *sums = j->r.own + worker * 2 * s->channels, *mean = sums + s->channels,
          *out = j->r.pieces + i * 2 * s->groups, count = (float)(n * s->wide);
    const void *x = j->c->in[0].data;
    column_sums(x, at, n, s->channels, NULL, sums, t);
    for (int64_t g = 0; g < s->groups; g++) {
        float sum = 0;
        for (int64_t k = g * s->wide; k < (g + 1) * s->wide; k++)
            sum += sums[k];
        out[2 * g] = sum / count;
        for (int64_t k = g * s->wide; k < (g + 1) * s->wide; k++)
            mean[k] = out[2 * g];
    }
    column_sums(x, at, n, s->channels, mean, sums, t);
    for (int64_t g = 0; g < s->groups; g++) {
        out[2 * g + 1] = 0;
        for (int64_t k = g * s->wide; k < (g + 1) * s->wide; k++)
            out[2 * g + 1] += sums[k];
    }
}

GROUP_PARTS(moments_part, moments)

/* The combined moments of one group. Ref: Chan, Golub & LeVeque 1979. */
typedef struct joined {
    double mean, squares, n;
} joined;

static void join(joined *to, double mean, double squares, double n)
{
    double off = mean - to->mean, all = to->n + n;
    if (n == 0)
        return;
    to->squares += squares + off * off * to->n * n / all;
    to->mean += off * n / all, to->n = all;
}

/* Combine *to with the moments of all pieces of group i (of all samples), in order. */
static void join_pieces(const job *j, int64_t i, joined *to)
{
    const group_shape *s = &j->s;
    for (int64_t p = 0; p < s->pieces; p++) {
        const float *of =
            j->r.pieces + ((i / s->groups * s->pieces + p) * s->groups + i % s->groups) * 2;
        join(to, of[0], of[1], (double)(piece_rows(s, p) * s->wide));
    }
}

static void set_stats(const job *j, const joined *from, float *stats)
{
    const group_attr *a = j->c->attr;
    stats[0] = (float)from->mean;
    stats[1] = (float)(1 / sqrt(from->squares / MR_MAX(from->n, 1.0) + a->eps));
}

/* Write the rows that the passes over elements read, per sample: mean, rstd, w, b. */
VF_INLINE void channel_rows(const job *j, const float *stats, mr_dtype t)
{
    const group_shape *s = &j->s;
    for (int64_t i = 0; i < s->batch; i++) {
        float *row = j->r.rows + i * GROUP_ROWS * s->channels;
        for (int64_t k = 0; k < s->channels; k++) {
            const float *of = stats + (i * s->groups + k / s->wide) * 2;
            row[k] = of[0], row[s->channels + k] = of[1];
        }
        for (int64_t k = 0; k < s->channels; k += VF_LANES) {
            int64_t m = MR_MIN(s->channels - k, (int64_t)VF_LANES);
            vf_storen(row + 2 * s->channels + k, vf_ldx(j->c->in[1].data, k, 1, m, t), m);
            vf_storen(row + 3 * s->channels + k, vf_ldx(j->c->in[2].data, k, 1, m, t), m);
        }
    }
}

VF_INLINE void normalise(const job *j, int64_t i, int worker, mr_dtype t)
{
    (void)worker;
    const group_shape *s = &j->s;
    bool silu = does_silu(j);
    int64_t c = s->channels, n = piece_rows(s, i % s->pieces);
    const float *row = j->r.rows + i / s->pieces * GROUP_ROWS * c;
    mr_rows_pos first;
    mr_rows_seek(&j->rows, i / s->pieces * s->places + i % s->pieces * s->length, &first);
    for (int64_t k = 0; k < c; k += VF_LANES) {
        int64_t m = MR_MIN(c - k, (int64_t)VF_LANES);
        vf mean = vf_loadn(row + k, m), scale = vf_loadn(row + c + k, m),
           w = vf_loadn(row + 2 * c + k, m), b = vf_loadn(row + 3 * c + k, m);
        scale = scale * w;
        mr_rows_pos at = first;
        for (int64_t p = 0; p < n; p++, mr_rows_next(&j->rows, &at)) {
            vf u = vf_fma(vf_ldx(j->c->in[0].data, at.at[0] + k, 1, m, t) - mean, scale, b);
            if (silu)
                u = formula_silu(u);
            vf_stx(j->c->out[0].data, at.at[1] + k, 1, u, m, t);
        }
    }
}

GROUP_PARTS(normalise_part, normalise)

static void set_rows(const job *j, const float *stats)
{
    if (j->c->in[0].desc.dtype == MR_BF16)
        channel_rows(j, stats, MR_BF16);
    else
        channel_rows(j, stats, MR_F32);
}

/* Compute y from the statistics. */
static void normalise_all(job *j, const float *stats)
{
    const mr_desc *views[] = {&j->c->in[0].desc, &j->c->out[0].desc};
    mr_rows_init(&j->rows, views, 2);
    set_rows(j, stats);
    mr_cpu_for(j->s.batch * j->s.pieces, 1, j->c->threads, normalise_part, j);
}

MR_KERNEL(group_norm)
{
    job j = {.c = call, .s = group_shape_of(call, false)};
    j.r = group_room_of(&j.s, false, call->threads, call->workspace);
    float *stats = call->out[1].data;
    mr_cpu_for(j.s.batch * j.s.pieces, 1, call->threads, moments_part, &j);
    for (int64_t i = 0; i < j.s.batch * j.s.groups; i++) {
        joined all = {0};
        join_pieces(&j, i, &all);
        set_stats(&j, &all, stats + 2 * i);
    }
    normalise_all(&j, stats);
    return MR_OK;
}

MR_KERNEL(group_moments)
{
    job j = {.c = call, .s = group_shape_of(call, false)};
    j.r = group_room_of(&j.s, false, call->threads, call->workspace);
    const float *before = call->in[1].data;
    float *moments = call->out[0].data;
    mr_cpu_for(j.s.batch * j.s.pieces, 1, call->threads, moments_part, &j);
    for (int64_t i = 0; i < j.s.batch * j.s.groups; i++) {
        joined all = {0};
        if (before)
            join(&all, before[3 * i], before[3 * i + 1], before[3 * i + 2]);
        join_pieces(&j, i, &all);
        moments[3 * i] = (float)all.mean, moments[3 * i + 1] = (float)all.squares;
        moments[3 * i + 2] = (float)all.n;
    }
    return MR_OK;
}

MR_KERNEL(group_norm_by)
{
    job j = {.c = call, .s = group_shape_of(call, false)};
    j.r = group_room_of(&j.s, false, call->threads, call->workspace);
    if (j.s.pieces == 0)
        return MR_OK;
    const float *m = call->in[3].data;
    // this op has no moments of pieces: mean and rstd use their space in the workspace
    for (int64_t i = 0; i < j.s.batch * j.s.groups; i++)
        set_stats(&j, &(joined){m[3 * i], m[3 * i + 1], m[3 * i + 2]}, j.r.pieces + 2 * i);
    normalise_all(&j, j.r.pieces);
    return MR_OK;
}

/* ---- backward ---- */

/* One vector of n and g = dy f'(n w + b). */
typedef struct terms {
    vf n, g;
} terms;

VF_INLINE terms terms_at(const job *j, int64_t at, const vf *row, int64_t m, bool silu, mr_dtype t)
{
    terms r = {.n = (vf_ldx(j->c->in[0].data, at, 1, m, t) - row[0]) * row[1],
               .g = vf_ldx(j->c->in[4].data, at, 1, m, t)};
    if (silu)
        r.g = r.g * formula_silu_slope(vf_fma(r.n, row[2], row[3]));
    return r;
}

VF_INLINE void row_at(const job *j, int64_t sample, int64_t k, int64_t m, vf *row)
{
    const float *from = j->r.rows + sample * GROUP_ROWS * j->s.channels + k;
    for (int i = 0; i < GROUP_ROWS; i++)
        row[i] = vf_loadn(from + i * j->s.channels, m);
}

VF_INLINE void sums(const job *j, int64_t i, int worker, mr_dtype t)
{
    (void)worker;
    const group_shape *s = &j->s;
    bool silu = does_silu(j);
    int64_t c = s->channels, n = piece_rows(s, i % s->pieces),
            at = (i / s->pieces * s->places + i % s->pieces * s->length) * c;
    float *out = j->r.pieces + i * 2 * c;
    for (int64_t k = 0; k < c; k += VF_LANES) {
        int64_t m = MR_MIN(c - k, (int64_t)VF_LANES);
        vf row[GROUP_ROWS], gn = vf_zero(), g = vf_zero();
        row_at(j, i / s->pieces, k, m, row);
        for (int64_t p = 0; p < n; p++) {
            terms e = terms_at(j, at + p * c + k, row, m, silu, t);
            gn = vf_fma(e.g, e.n, gn), g = g + e.g;
        }
        vf_storen(out + k, gn, m), vf_storen(out + c + k, g, m);
    }
}

GROUP_PARTS(sums_part, sums)

/* Sum the pieces of each sample into its first piece; then add the samples to dw and db. */
static void join_sums(const job *j)
{
    const group_shape *s = &j->s;
    int64_t c = s->channels;
    for (int64_t i = 0; i < s->batch * (s->pieces ? 1 : 0); i++) {
        float *first = j->r.pieces + i * s->pieces * 2 * c;
        for (int64_t k = 0; k < 2 * c; k++) {
            double sum = 0;
            for (int64_t p = 0; p < s->pieces; p++)
                sum += first[p * 2 * c + k];
            first[k] = (float)sum;
            float *out = j->c->out[1 + k / c].data;
            if (out)
                out[k % c] += first[k];
        }
    }
}

VF_INLINE void gradient(const job *j, int64_t i, int worker, mr_dtype t)
{
    (void)worker;
    const group_shape *s = &j->s;
    bool silu = does_silu(j);
    int64_t c = s->channels, sample = i / s->pieces, n = piece_rows(s, i % s->pieces),
            at = (sample * s->places + i % s->pieces * s->length) * c;
    const float *mean = j->r.pieces + sample * s->pieces * 2 * c; // means of g w n and of g w, per
                                                                  // channel
    for (int64_t k = 0; k < c; k += VF_LANES) {
        int64_t m = MR_MIN(c - k, (int64_t)VF_LANES);
        vf row[GROUP_ROWS], two = vf_loadn(mean + k, m), one = vf_loadn(mean + c + k, m);
        row_at(j, sample, k, m, row);
        for (int64_t p = 0; p < n; p++) {
            terms e = terms_at(j, at + p * c + k, row, m, silu, t);
            vf_stx(j->c->out[0].data, at + p * c + k, 1, row[1] * (e.g * row[2] - one - e.n * two),
                   m, t);
        }
    }
}

GROUP_PARTS(gradient_part, gradient)

/* Replace the sums of a sample's channels by means over their groups, weighted by w. Add the
 * gradients that come through the statistics. */
static void group_means(const job *j)
{
    const group_shape *s = &j->s;
    int64_t c = s->channels;
    double n = (double)(s->places * s->wide);
    for (int64_t i = 0; i < s->batch * (s->pieces ? 1 : 0); i++) {
        float *of = j->r.pieces + i * s->pieces * 2 * c;
        const float *w = j->r.rows + (i * GROUP_ROWS + 2) * c;
        for (int64_t g = 0; g < 2 * s->groups; g++) {
            float *at = of + g / s->groups * c;
            int64_t first = g % s->groups * s->wide, which = (i * s->groups + g % s->groups) * 2;
            const float *rstd = (const float *)j->c->in[3].data + which + 1,
                        *more = j->c->in[5].data;
            double sum = 0;
            // g < groups: sums of g n; else: sums of g
            if (more)
                sum =
                    g < s->groups ? (double)more[which + 1] * *rstd : -(double)more[which] / *rstd;
            for (int64_t k = first; k < first + s->wide; k++)
                sum += (double)at[k] * w[k];
            for (int64_t k = first; k < first + s->wide; k++)
                at[k] = (float)(sum / n);
        }
    }
}

MR_KERNEL(group_norm_grad)
{
    job j = {.c = call, .s = group_shape_of(call, true)};
    j.r = group_room_of(&j.s, true, call->threads, call->workspace);
    set_rows(&j, call->in[3].data);
    mr_cpu_for(j.s.batch * j.s.pieces, 1, call->threads, sums_part, &j);
    join_sums(&j);
    group_means(&j);
    mr_cpu_for(j.s.batch * j.s.pieces, 1, call->threads, gradient_part, &j);
    return MR_OK;
}
