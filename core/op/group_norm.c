/* group_norm: y = f((x - mean) rstd w + b), mean and rstd = 1 / sqrt(var + eps) over all positions
 * of a sample and the channels of one group; f is the identity or SiLU. Channels come last.
 *
 *   x [B, ..., C]   w, b [C]   y like x   stats [B, groups, 2] f32: mean, rstd
 *   moments [B, groups, 3] f32: mean, sum of squares around it, how many elements
 *
 * A sample that comes in parts takes two sweeps: group_moments joins the moments of each part to
 * those of the parts before, group_norm_by normalises a part by the moments of all.
 *
 * Backward, with n = (x - mean) rstd and g = dy f'(n w + b), sums over the N elements of a group:
 *   dx = rstd (g w - (sum(g w) - dmean / rstd) / N - n (sum(g w n) + drstd rstd) / N)
 *   dw += sum of g n    db += sum of g
 *
 * Statistics are formed in pieces that fit a cache: mean, then squares around it, joined in double
 * by Chan's formula. Pieces are fixed by the shape and joined in order, so bits do not depend on
 * the team. Moves 3 elements per element forward, 5 backward. Licence: Apache-2.0 */
#include "cpu/rows.h"
#include "op/norm.h"

// elements of a piece of the statistics; pieces of a sample in the sums of the gradient
enum { PIECE_ELEMENTS = 16384, PIECES = 64 };
typedef struct attr {
    int64_t groups;
    double eps;
    bool silu;
} attr;

/* ---- shapes ---- */

static mr_status check_groups(const attr *a, const mr_desc *x)
{
    char text[128];
    if (x->rank < 2)
        return mr_fail(MR_E_SHAPE, "x is %s, expected [B, ..., C]",
                       mr_desc_text(x, text, sizeof text));
    int64_t channels = x->dim[x->rank - 1];
    if (channels % a->groups)
        return mr_fail(MR_E_SHAPE, "x is %s: %lld channels do not fall into %lld groups",
                       mr_desc_text(x, text, sizeof text), (long long)channels,
                       (long long)a->groups);
    return MR_OK;
}

static mr_status check(const attr *a, const mr_desc *x, const mr_desc *w, const mr_desc *b)
{
    char tw[128];
    const mr_desc *of[] = {w, b};
    MR_TRY(check_groups(a, x));
    int64_t channels = x->dim[x->rank - 1];
    for (int i = 0; i < 2; i++)
        if (of[i]->rank != 1 || of[i]->dim[0] != channels)
            return mr_fail(MR_E_SHAPE, "%s is %s, expected [%lld]", i ? "b" : "w",
                           mr_desc_text(of[i], tw, sizeof tw), (long long)channels);
    return MR_OK;
}

static mr_desc stats_desc(const attr *a, const mr_desc *x)
{
    int64_t dim[] = {x->dim[0], a->groups, 2};
    return mr_desc_dense(x->dtype == MR_F64 ? MR_F64 : MR_F32, 3, dim);
}

static mr_status infer(mr_infer *c)
{
    MR_TRY(check(c->attr, c->in[0], c->in[1], c->in[2]));
    mr_row_like(c, 0, c->in[0]);
    c->out[1] = stats_desc(c->attr, c->in[0]);
    return MR_OK;
}

static mr_status grad_infer(mr_infer *c)
{
    char text[128];
    const mr_desc *x = c->in[0];
    MR_TRY(check(c->attr, x, c->in[1], c->in[2]));
    mr_desc stats = stats_desc(c->attr, x);
    MR_TRY(mr_row_same_shape(&stats, "what x asks for", c->in[3], "stats"));
    MR_TRY(mr_row_same(x, "x", c->in[4], "dy"));
    if (c->in[5])
        MR_TRY(mr_row_same_shape(c->in[3], "stats", c->in[5], "dstats"));
    for (int i = 6; i < 8; i++)
        if (c->in[i] && (c->in[i]->rank != 1 || c->in[i]->dim[0] != x->dim[x->rank - 1]))
            return mr_fail(MR_E_SHAPE, "%s is %s, expected [%lld]", i == 6 ? "dw" : "db",
                           mr_desc_text(c->in[i], text, sizeof text),
                           (long long)x->dim[x->rank - 1]);
    mr_row_like(c, 0, x);
    for (int i = 6; i < 8; i++)
        if (c->in[i])
            mr_row_like(c, i - 5, c->in[i]);
    return MR_OK;
}

static mr_desc moments_desc(const attr *a, const mr_desc *x)
{
    int64_t dim[] = {x->dim[0], a->groups, 3};
    return mr_desc_dense(x->dtype == MR_F64 ? MR_F64 : MR_F32, 3, dim);
}

static mr_status moments_infer(mr_infer *c)
{
    MR_TRY(check_groups(c->attr, c->in[0]));
    c->out[0] = moments_desc(c->attr, c->in[0]);
    if (c->in[1])
        MR_TRY(mr_row_same_shape(&c->out[0], "what x asks for", c->in[1], "before"));
    return MR_OK;
}

static mr_status by_infer(mr_infer *c)
{
    MR_TRY(check(c->attr, c->in[0], c->in[1], c->in[2]));
    mr_desc moments = moments_desc(c->attr, c->in[0]);
    MR_TRY(mr_row_same_shape(&moments, "what x asks for", c->in[3], "moments"));
    mr_row_like(c, 0, c->in[0]);
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    const attr *a = g->attr;
    mr_ref acc[2] = {MR_NONE, MR_NONE}, out[3], dy = g->dout[0];
    const mr_desc *x = mr_grad_desc(g, g->in[0]);
    // y is not read: the statistics alone have a gradient
    if (dy == MR_NONE) {
        mr_ints dims = {.n = x->rank};
        memcpy(dims.v, x->dim, sizeof dims.v);
        MR_TRY(mr_grad_op(g, "zeros", MR_ATTRS({"dims", .ints = &dims}, {"dtype", .i = x->dtype}),
                          NULL, 0, &dy));
    }
    for (int i = 0; i < 2; i++)
        if (g->need[1 + i])
            MR_TRY(mr_grad_acc(g, 1 + i, &acc[i]));
    MR_TRY(mr_grad_op(
        g, "group_norm_grad",
        MR_ATTRS({"groups", .i = a->groups}, {"eps", .f = a->eps}, {"silu", .i = a->silu}),
        (mr_ref[]){g->in[0], g->in[1], g->in[2], g->out[1], dy, g->dout[1], acc[0], acc[1]}, 8,
        out));
    memcpy(g->din, out, sizeof out);
    return MR_OK;
}

static void cost(const mr_call *c, mr_cost *cost)
{
    const attr *a = c->attr;
    *cost = mr_norm_cost(c, a->silu ? 28 : 8, 3);
}
static void by_cost(const mr_call *c, mr_cost *cost)
{
    const attr *a = c->attr;
    *cost = mr_norm_cost(c, a->silu ? 24 : 4, 2);
}
static void moments_cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 4, 1);
}
static void grad_cost(const mr_call *c, mr_cost *cost)
{
    const attr *a = c->attr;
    *cost = mr_norm_cost(c, a->silu ? 54 : 14, 5);
}

/* ---- the truth ---- */

static double f_slope(double u)
{
    double s = 1 / (1 + exp(-u));
    return s * (1 + u * (1 - s));
}

static mr_status naive(const mr_call *c)
{
    const attr *a = c->attr;
    const mr_desc *d = &c->in[0].desc;
    int64_t batch = d->dim[0], channels = d->dim[d->rank - 1], wide = channels / a->groups,
            places = mr_desc_count(d) / MR_MAX(batch * channels, 1);
    const double *w = c->in[1].data, *b = c->in[2].data;
    double *stats = c->out[1].data;
    for (int64_t i = 0; i < batch * a->groups; i++) {
        int64_t first = i / a->groups * places * channels + i % a->groups * wide;
        const double *x = (const double *)c->in[0].data + first;
        double *y = (double *)c->out[0].data + first, sum = 0, squares = 0;
        double n = (double)MR_MAX(places * wide, 1);
        for (int64_t p = 0; p < places; p++)
            for (int64_t k = 0; k < wide; k++)
                sum += x[p * channels + k];
        double mean = sum / n;
        for (int64_t p = 0; p < places; p++)
            for (int64_t k = 0; k < wide; k++)
                squares += (x[p * channels + k] - mean) * (x[p * channels + k] - mean);
        double r = 1 / sqrt(squares / n + a->eps);
        for (int64_t p = 0; p < places; p++)
            for (int64_t k = 0; k < wide; k++) {
                int64_t channel = i % a->groups * wide + k;
                double u = (x[p * channels + k] - mean) * r * w[channel] + b[channel];
                y[p * channels + k] = a->silu ? u / (1 + exp(-u)) : u;
            }
        stats[2 * i] = mean, stats[2 * i + 1] = r;
    }
    return MR_OK;
}

static mr_status moments_naive(const mr_call *c)
{
    const attr *a = c->attr;
    const mr_desc *d = &c->in[0].desc;
    int64_t batch = d->dim[0], channels = d->dim[d->rank - 1], wide = channels / a->groups,
            places = mr_desc_count(d) / MR_MAX(batch * channels, 1);
    for (int64_t i = 0; i < batch * a->groups; i++) {
        const double *x = (const double *)c->in[0].data + i / a->groups * places * channels +
                          i % a->groups * wide;
        const double *before = c->in[1].data;
        double *m = (double *)c->out[0].data + 3 * i;
        for (int k = 0; k < 3; k++)
            m[k] = before ? before[3 * i + k] : 0;
        // one element more at a time. Ref: Welford 1962
        for (int64_t p = 0; p < places * wide; p++) {
            double off = x[p / wide * channels + p % wide] - m[0];
            m[2]++, m[0] += off / m[2];
            m[1] += off * (x[p / wide * channels + p % wide] - m[0]);
        }
    }
    return MR_OK;
}

static mr_status by_naive(const mr_call *c)
{
    const attr *a = c->attr;
    const mr_desc *d = &c->in[0].desc;
    int64_t channels = d->dim[d->rank - 1], n = mr_desc_count(d), each = n / MR_MAX(d->dim[0], 1);
    const double *x = c->in[0].data, *w = c->in[1].data, *b = c->in[2].data;
    for (int64_t i = 0; i < n; i++) {
        int64_t channel = i % channels, group = channel / (channels / a->groups);
        const double *m = (const double *)c->in[3].data + (i / each * a->groups + group) * 3;
        double u =
            (x[i] - m[0]) / sqrt(m[1] / MR_MAX(m[2], 1.0) + a->eps) * w[channel] + b[channel];
        ((double *)c->out[0].data)[i] = a->silu ? u / (1 + exp(-u)) : u;
    }
    return MR_OK;
}

static mr_status grad_naive(const mr_call *c)
{
    const attr *a = c->attr;
    const mr_desc *d = &c->in[0].desc;
    int64_t batch = d->dim[0], channels = d->dim[d->rank - 1], wide = channels / a->groups,
            places = mr_desc_count(d) / MR_MAX(batch * channels, 1);
    const double *w = c->in[1].data, *b = c->in[2].data, *stats = c->in[3].data;
    double *sums[] = {c->out[1].data, c->out[2].data};
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; sums[i] && k < channels; k++)
            sums[i][k] = ((const double *)c->in[6 + i].data)[k];
    for (int64_t i = 0; i < batch * a->groups; i++) {
        int64_t first = i / a->groups * places * channels + i % a->groups * wide;
        const double *x = (const double *)c->in[0].data + first,
                     *dy = (const double *)c->in[4].data + first;
        double *dx = (double *)c->out[0].data + first, one = 0, two = 0, r = stats[2 * i + 1];
        const double *more = c->in[5].data;
        if (more) {
            one = -more[2 * i] / r / (double)(places * wide);
            two = more[2 * i + 1] * r / (double)(places * wide);
        }
        // the first pass sums over the group, the second writes
        for (int pass = 0; pass < 2; pass++)
            for (int64_t p = 0; p < places; p++)
                for (int64_t k = 0; k < wide; k++) {
                    int64_t channel = i % a->groups * wide + k, at = p * channels + k;
                    double n = (x[at] - stats[2 * i]) * r, u = n * w[channel] + b[channel];
                    double g = dy[at] * (a->silu ? f_slope(u) : 1), count = (double)(places * wide);
                    if (pass == 0) {
                        one += g * w[channel] / count, two += g * w[channel] * n / count;
                        if (sums[0])
                            sums[0][channel] += g * n;
                        if (sums[1])
                            sums[1][channel] += g;
                    } else
                        dx[at] = r * (g * w[channel] - one - n * two);
                }
    }
    return MR_OK;
}

/* ---- geometry of a call ---- */

/* A sample is `places` rows of `channels`; a piece is `length` rows of one sample. */
typedef struct shape {
    int64_t batch, places, channels, groups, wide, length, pieces;
} shape;

static shape shape_of(const mr_call *c, bool gradient)
{
    const attr *a = c->attr;
    const mr_desc *d = &c->in[0].desc;
    shape s = {.batch = d->dim[0], .channels = d->dim[d->rank - 1], .groups = a->groups};
    int64_t row = MR_MAX(s.channels, 1);
    s.places = s.batch ? mr_desc_count(d) / s.batch / row : 0;
    s.wide = s.channels / s.groups;
    s.length = MR_MAX(PIECE_ELEMENTS / row, 1);
    if (gradient)
        s.length = MR_MAX(s.length, (s.places + PIECES - 1) / PIECES);
    s.pieces = (s.places + s.length - 1) / s.length;
    return s;
}

/* Workspace, in floats. Forward: mean and squares of each piece's groups, a row of channels twice
 * per worker. Backward: two sums per piece and channel. Then what each sample's channels are
 * multiplied with and shifted by. */
typedef struct room {
    float *pieces, *own, *rows;
    size_t bytes;
} room;

enum { ROWS = 4 };
static room room_of(const shape *s, bool gradient, int threads, void *workspace)
{
    room r = {.pieces = workspace};
    int64_t pieces = s->batch * s->pieces * 2 * (gradient ? s->channels : s->groups),
            own = gradient ? 0 : threads * 2 * s->channels;
    r.own = r.pieces + pieces, r.rows = r.own + own;
    r.bytes = (size_t)(pieces + own + s->batch * ROWS * s->channels) * sizeof(float);
    return r;
}

typedef struct job {
    const mr_call *c;
    shape s;
    room r;
    mr_rows rows; /* of x and y, whose rows may lie apart */
} job;

static size_t workspace(const mr_call *c, const mr_facts *facts)
{
    shape s = shape_of(c, false);
    return room_of(&s, false, facts->threads, NULL).bytes;
}
static size_t grad_workspace(const mr_call *c, const mr_facts *facts)
{
    shape s = shape_of(c, true);
    return room_of(&s, true, facts->threads, NULL).bytes;
}

static int64_t piece_rows(const shape *s, int64_t piece)
{
    return MR_MIN(s->length, s->places - piece * s->length);
}

/* ---- forward ---- */

/* Per channel: the sum of n rows from element `at` on, or of their squares around `mean`. */
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
    const shape *s = &j->s;
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

static void moments_part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    for (int64_t i = begin; i < end; i++)
        if (j->c->in[0].desc.dtype == MR_BF16)
            moments(j, i, worker, MR_BF16);
        else
            moments(j, i, worker, MR_F32);
}

/* Moments of one group, joined. Ref: Chan, Golub & LeVeque 1979. */
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

/* Joins the moments of all pieces of group i, counted over all samples, to *to, in order. */
static void join_pieces(const job *j, int64_t i, joined *to)
{
    const shape *s = &j->s;
    for (int64_t p = 0; p < s->pieces; p++) {
        const float *of =
            j->r.pieces + ((i / s->groups * s->pieces + p) * s->groups + i % s->groups) * 2;
        join(to, of[0], of[1], (double)(piece_rows(s, p) * s->wide));
    }
}

static void set_stats(const job *j, const joined *from, float *stats)
{
    const attr *a = j->c->attr;
    stats[0] = (float)from->mean;
    stats[1] = (float)(1 / sqrt(from->squares / MR_MAX(from->n, 1.0) + a->eps));
}

/* Rows per sample that passes over elements read: mean, rstd w, b. */
VF_INLINE void channel_rows(const job *j, const float *stats, mr_dtype t)
{
    const shape *s = &j->s;
    for (int64_t i = 0; i < s->batch; i++) {
        float *row = j->r.rows + i * ROWS * s->channels;
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

VF_INLINE void normalise(const job *j, int64_t i, bool silu, mr_dtype t)
{
    const shape *s = &j->s;
    int64_t c = s->channels, n = piece_rows(s, i % s->pieces);
    const float *row = j->r.rows + i / s->pieces * ROWS * c;
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

static void normalise_part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const attr *a = j->c->attr;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        if (j->c->in[0].desc.dtype == MR_BF16)
            normalise(j, i, a->silu, MR_BF16);
        else
            normalise(j, i, a->silu, MR_F32);
}

static void set_rows(const job *j, const float *stats)
{
    if (j->c->in[0].desc.dtype == MR_BF16)
        channel_rows(j, stats, MR_BF16);
    else
        channel_rows(j, stats, MR_F32);
}

/* y from statistics. */
static void normalise_all(job *j, const float *stats)
{
    const mr_desc *views[] = {&j->c->in[0].desc, &j->c->out[0].desc};
    mr_rows_init(&j->rows, views, 2);
    set_rows(j, stats);
    mr_cpu_for(j->s.batch * j->s.pieces, 1, j->c->threads, normalise_part, j);
}

MR_KERNEL(group_norm)
{
    job j = {.c = call, .s = shape_of(call, false)};
    j.r = room_of(&j.s, false, call->threads, call->workspace);
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
    job j = {.c = call, .s = shape_of(call, false)};
    j.r = room_of(&j.s, false, call->threads, call->workspace);
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
    job j = {.c = call, .s = shape_of(call, false)};
    j.r = room_of(&j.s, false, call->threads, call->workspace);
    if (j.s.pieces == 0)
        return MR_OK;
    const float *m = call->in[3].data;
    // this op forms no moments of pieces: their place in the workspace takes mean and rstd
    for (int64_t i = 0; i < j.s.batch * j.s.groups; i++)
        set_stats(&j, &(joined){m[3 * i], m[3 * i + 1], m[3 * i + 2]}, j.r.pieces + 2 * i);
    normalise_all(&j, j.r.pieces);
    return MR_OK;
}

/* ---- backward ---- */

/* One vector of a row: n, and g = dy f'(n w + b). */
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
    const float *from = j->r.rows + sample * ROWS * j->s.channels + k;
    for (int i = 0; i < ROWS; i++)
        row[i] = vf_loadn(from + i * j->s.channels, m);
}

VF_INLINE void sums(const job *j, int64_t i, bool silu, mr_dtype t)
{
    const shape *s = &j->s;
    int64_t c = s->channels, n = piece_rows(s, i % s->pieces),
            at = (i / s->pieces * s->places + i % s->pieces * s->length) * c;
    float *out = j->r.pieces + i * 2 * c;
    for (int64_t k = 0; k < c; k += VF_LANES) {
        int64_t m = MR_MIN(c - k, (int64_t)VF_LANES);
        vf row[ROWS], gn = vf_zero(), g = vf_zero();
        row_at(j, i / s->pieces, k, m, row);
        for (int64_t p = 0; p < n; p++) {
            terms e = terms_at(j, at + p * c + k, row, m, silu, t);
            gn = vf_fma(e.g, e.n, gn), g = g + e.g;
        }
        vf_storen(out + k, gn, m), vf_storen(out + c + k, g, m);
    }
}

static void sums_part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const attr *a = j->c->attr;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        if (j->c->in[0].desc.dtype == MR_BF16)
            sums(j, i, a->silu, MR_BF16);
        else
            sums(j, i, a->silu, MR_F32);
}

/* Sums of the pieces of each sample, left in its first piece; then dw and db over samples. */
static void join_sums(const job *j)
{
    const shape *s = &j->s;
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

VF_INLINE void gradient(const job *j, int64_t i, bool silu, mr_dtype t)
{
    const shape *s = &j->s;
    int64_t c = s->channels, sample = i / s->pieces, n = piece_rows(s, i % s->pieces),
            at = (sample * s->places + i % s->pieces * s->length) * c;
    const float *mean = j->r.pieces + sample * s->pieces * 2 * c; // of g w n and g w, by channel
    for (int64_t k = 0; k < c; k += VF_LANES) {
        int64_t m = MR_MIN(c - k, (int64_t)VF_LANES);
        vf row[ROWS], two = vf_loadn(mean + k, m), one = vf_loadn(mean + c + k, m);
        row_at(j, sample, k, m, row);
        for (int64_t p = 0; p < n; p++) {
            terms e = terms_at(j, at + p * c + k, row, m, silu, t);
            vf_stx(j->c->out[0].data, at + p * c + k, 1, row[1] * (e.g * row[2] - one - e.n * two),
                   m, t);
        }
    }
}

static void gradient_part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const attr *a = j->c->attr;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        if (j->c->in[0].desc.dtype == MR_BF16)
            gradient(j, i, a->silu, MR_BF16);
        else
            gradient(j, i, a->silu, MR_F32);
}

/* The sums of a sample's channels become means over their groups, weighted with w; what flows back
 * into the statistics is added. */
static void group_means(const job *j)
{
    const shape *s = &j->s;
    int64_t c = s->channels;
    double n = (double)(s->places * s->wide);
    for (int64_t i = 0; i < s->batch * (s->pieces ? 1 : 0); i++) {
        float *of = j->r.pieces + i * s->pieces * 2 * c;
        const float *w = j->r.rows + (i * ROWS + 2) * c;
        for (int64_t g = 0; g < 2 * s->groups; g++) {
            float *at = of + g / s->groups * c;
            int64_t first = g % s->groups * s->wide, which = (i * s->groups + g % s->groups) * 2;
            const float *rstd = (const float *)j->c->in[3].data + which + 1,
                        *more = j->c->in[5].data;
            double sum = 0;
            // sums of g n come first, then those of g
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
    job j = {.c = call, .s = shape_of(call, true)};
    j.r = room_of(&j.s, true, call->threads, call->workspace);
    set_rows(&j, call->in[3].data);
    mr_cpu_for(j.s.batch * j.s.pieces, 1, call->threads, sums_part, &j);
    join_sums(&j);
    group_means(&j);
    mr_cpu_for(j.s.batch * j.s.pieces, 1, call->threads, gradient_part, &j);
    return MR_OK;
}

#define GROUPS                                                                                     \
    {                                                                                              \
        "groups", MR_ATTR_I64, offsetof(attr, groups), .def = 32, .min = 1, .max = 65536,          \
                                                       .doc = "parts that channels fall into"      \
    }
#define NORM_ATTRS                                                                                 \
    GROUPS, {"eps",    MR_ATTR_F64, offsetof(attr, eps),           .def = 1e-6,                    \
             .min = 0, .max = 1,    .doc = "added to the variance"},                               \
    {                                                                                              \
        "silu", MR_ATTR_BOOL, offsetof(attr, silu), .doc = "followed by SiLU"                      \
    }
MR_OP(group_norm) = {
    .name = "group_norm",
    .doc = "Normalise groups of channels over all positions of a sample, scale, shift, then SiLU.",
    .ref = "Wu & He 2018, arXiv:1803.08494",
    .in = {{"x", "[B, ..., C] f32|bf16", MR_CONTIG, 0},
           {"w", "[C] like x", MR_CONTIG, 0},
           {"b", "[C] like x", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_ROWS},
            {"stats", "[B, groups, 2] f32", 0, false, MR_CONTIG}},
    .attr = {NORM_ATTRS},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(group_norm), .workspace = workspace},
    .cases = MR_CASES("x=[2,5,7,8] f32 w=[8] f32 b=[8] f32 groups=4",
                      "x=[1,3,300,33] f32 2..3 w=[33] f32 b=[33] f32 groups=11 eps=1e-5 silu=1",
                      "x=[3,900,40] bf16 w=[40] bf16 b=[40] bf16 groups=2 silu=1",
                      "x=[2,1,64] f32 -0.005..0.005 w=[64] f32 b=[64] f32 groups=32",
                      "x=[1,2,2,600] f32 w=[600] f32 b=[600] f32 groups=1 silu=1",
                      // no places, no channels, no samples: statistics are those of nothing
                      "x=[2,0,8] f32 w=[8] f32 b=[8] f32 groups=2 eps=1e-4",
                      "x=[3,5,0] bf16 w=[0] bf16 b=[0] bf16 groups=2",
                      "x=[0,5,8] f32 w=[8] f32 b=[8] f32 groups=2"),
};
MR_OP(group_moments) = {
    .name = "group_moments",
    .doc = "Mean, sum of squares around it and count of groups of channels over all positions of a "
           "sample, joined to those of positions before.",
    .ref = "Chan, Golub & LeVeque 1979",
    .in = {{"x", "[B, ..., C] f32|bf16", MR_CONTIG, 0},
           {"before", "[B, groups, 3] f32", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"moments", "[B, groups, 3] f32", 0, false, MR_CONTIG}},
    .attr = {GROUPS},
    .infer = moments_infer,
    .cost = moments_cost,
    .naive = moments_naive,
    .cpu = {.run = MR_CPU(group_moments), .workspace = workspace},
    .cases = MR_CASES("x=[2,5,7,8] f32 groups=4",
                      "x=[2,3,300,33] f32 2..3 before=[2,11,3] f32 2..4 groups=11",
                      "x=[3,900,40] bf16 before=[3,2,3] f32 1..9 groups=2",
                      "x=[2,0,8] f32 before=[2,2,3] f32 1..3 groups=2"),
};
MR_OP(group_norm_by) = {
    .name = "group_norm_by",
    .doc = "Normalise groups of channels by given moments, scale, shift, then SiLU.",
    .ref = "Wu & He 2018, arXiv:1803.08494",
    .in = {{"x", "[B, ..., C] f32|bf16", MR_CONTIG, 0},
           {"w", "[C] like x", MR_CONTIG, 0},
           {"b", "[C] like x", MR_CONTIG, 0},
           {"moments", "[B, groups, 3] f32", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_ROWS}},
    .attr = {NORM_ATTRS},
    .infer = by_infer,
    .cost = by_cost,
    .naive = by_naive,
    .cpu = {.run = MR_CPU(group_norm_by), .workspace = workspace},
    .cases = MR_CASES(
        "x=[2,5,7,8] f32 w=[8] f32 b=[8] f32 moments=[2,4,3] f32 1..3 groups=4",
        "x=[1,3,300,33] f32 2..3 w=[33] f32 b=[33] f32 moments=[1,11,3] f32 1..9 groups=11 silu=1",
        "x=[3,900,40] bf16 w=[40] bf16 b=[40] bf16 moments=[3,2,3] f32 1..2 groups=2 silu=1",
        "x=[2,0,8] f32 w=[8] f32 b=[8] f32 moments=[2,2,3] f32 1..2 groups=2"),
};
MR_OP(group_norm_grad) = {
    .name = "group_norm_grad",
    .doc = "Gradient of group_norm; adds those of w and b to dw and db.",
    .in = {{"x", "[B, ..., C] f32|bf16", MR_CONTIG, 0},
           {"w", "[C] like x", MR_CONTIG, 0},
           {"b", "[C] like x", MR_CONTIG, 0},
           {"stats", "[B, groups, 2] f32", MR_CONTIG, 0},
           {"dy", "like x", MR_CONTIG, 0},
           {"dstats", "like stats", MR_CONTIG, MR_OPTIONAL},
           {"dw", "[C] f32", MR_CONTIG, MR_OPTIONAL},
           {"db", "[C] f32", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"dx", "like x", 0, false, MR_CONTIG},
            {"dw", "[C] f32", 7, true, MR_CONTIG},
            {"db", "[C] f32", 8, true, MR_CONTIG}},
    .attr = {NORM_ATTRS},
    .infer = grad_infer,
    .cost = grad_cost,
    .naive = grad_naive,
    .cpu = {.run = MR_CPU(group_norm_grad), .workspace = grad_workspace},
    .hidden = true,
    .cases = MR_CASES(
        "x=[2,5,7,8] f32 w=[8] f32 b=[8] f32 stats=[2,4,2] f32 0.5..2 dy=[2,5,7,8] f32 dw=[8] f32 "
        "db=[8] f32 dstats=[2,4,2] f32 groups=4",
        "x=[1,3,900,33] f32 w=[33] f32 b=[33] f32 stats=[1,11,2] f32 0.5..2 dy=[1,3,900,33] f32 "
        "db=[33] f32 groups=11 silu=1",
        "x=[3,900,40] bf16 w=[40] bf16 b=[40] bf16 stats=[3,2,2] f32 0.5..2 dy=[3,900,40] bf16 "
        "dw=[40] f32 db=[40] f32 groups=2 silu=1",
        "x=[2,1,64] f32 w=[64] f32 b=[64] f32 stats=[2,32,2] f32 0.5..2 dy=[2,1,64] f32 groups=32"),
};
