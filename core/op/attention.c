/* attention: o = softmax(scale q k^T + bias) v per sample, group and head, over the keys that a
 * query sees.
 *
 *   q [B, G, N, h, d]    k [B, G, M, h, d]    v [B, G, M, h, e]    any strides
 *   o [B, G, N, h, e]    in the order of q's strides
 *   len [B] i32             keys at or past len[b] do not exist; a query that sees none has o = 0,
 *                           lse = -inf and zero gradients
 *   bias [h, N, M]          added to the scores, equal for all samples and groups; -inf hides a key
 *   lse [B, G, h, N] f32    the log of the sum of exp(scale q k + bias) of a row
 *   scale                   0 means d^-0.5
 *   frame                   tokens of a frame: a query sees the keys of its own and of earlier
 *                           frames, 1 is plainly causal, 0 sees all
 *   text                    len counts among the first `text` keys and all after them exist: text
 *                           before an image in one sequence. 0: len counts among all
 *   before                  keys of the sequence that come before the first one here: len and text
 *                           count them too
 *
 * Backward, with D = rowsum(do o) - dlse:
 *   p  = exp(scale q k^T + bias - lse)
 *   ds = p (do v^T - D)
 *   dv = p^T do    dq = scale ds k    dk = scale ds^T q    dbias = ds summed over samples, groups
 * Where a query sees one key, its weight is 1 whatever the scores: D is do v - dlse there, so that
 * what reaches the scores is exactly what dlse gives them. With `part` o and lse are of more keys
 * than those given here, of which each such part gives its own gradients and adds to dq.
 *
 * There are three forms: attention_lanes.c for short sequences, attention_amx.c for bf16 where the
 * processor has AMX, attention_tile.c for all else. A task is one head of one sequence (in the
 * forward pass a range of its queries, in the backward pass a range of its keys where heads are
 * few), or a vector of short ones. Nothing of size N x M is kept.
 * A row's result does not depend on the tasks, key ranges follow from the shapes, and sums over
 * tiles of queries, key ranges and samples are formed in order, so bits do not depend on the team.
 * Ref: Dao et al. 2022, arXiv:2205.14135. */
#include "op/attention_job.h"

static mr_status check_bias(const mr_desc *q, const mr_desc *k, const mr_desc *bias)
{
    if (bias && (bias->rank != 3 || bias->dim[0] != q->dim[3] || bias->dim[1] != q->dim[2] ||
                 bias->dim[2] != k->dim[2]))
        return mr_fail(MR_E_SHAPE, "bias must be [h, N, M] of q's h and N and k's M");
    return MR_OK;
}

static mr_status check(const mr_infer *c, const mr_desc *bias)
{
    const mr_desc *q = c->in[0], *k = c->in[1], *v = c->in[2], *len = c->in[3];
    const attention_attr *a = c->attr;
    if (q->rank != 5 || k->rank != 5 || v->rank != 5 || q->dim[4] < 1)
        return mr_fail(MR_E_SHAPE,
                       "q must be [B, G, N, h, d], k [B, G, M, h, d] and v [B, G, M, h, e]");
    for (int i = 0; i < 5; i++) {
        if (i != 2 && q->dim[i] != k->dim[i])
            return mr_fail(MR_E_SHAPE,
                           "q [B, G, N, h, d] and k [B, G, M, h, d] differ in more than N and M");
        if (i != 4 && k->dim[i] != v->dim[i])
            return mr_fail(MR_E_SHAPE,
                           "k [B, G, M, h, d] and v [B, G, M, h, e] differ in more than d and e");
    }
    if (v->dim[4] < 1 || q->dtype != k->dtype || k->dtype != v->dtype)
        return mr_fail(MR_E_SHAPE, "q, k and v must share one dtype, and v must not be empty");
    if (len && (len->rank != 1 || len->dim[0] != q->dim[0]))
        return mr_fail(MR_E_SHAPE, "len must be [B] of q's B");
    if (a->text > a->before + k->dim[2])
        return mr_fail(MR_E_SHAPE, "text is %lld, but k has only %lld keys", (long long)a->text,
                       (long long)(a->before + k->dim[2]));
    if (a->text && a->frame)
        return mr_fail(MR_E_SHAPE, "text and frame do not go together: text has no frames");
    if (a->before && a->frame)
        return mr_fail(MR_E_SHAPE, "before and frame do not go together: frames count from k's "
                                   "first key");
    return check_bias(q, k, bias);
}

// o and its gradient: like q, as wide as v
static mr_desc out_desc(const mr_desc *q, const mr_desc *v)
{
    mr_desc o = *q;
    o.dim[4] = v->dim[4];
    mr_desc_dense_like(q, &o);
    return o;
}

static mr_status infer(mr_infer *c)
{
    MR_TRY(check(c, c->in[4]));
    const mr_desc *q = c->in[0];
    c->out[0] = out_desc(q, c->in[2]);
    mr_row_out(c, 1, q->dtype == MR_F64 ? MR_F64 : MR_F32, 4,
               (const int64_t[]){q->dim[0], q->dim[1], q->dim[3], q->dim[2]});
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    const attention_attr *a = g->attr;
    mr_ref out[4], dy = g->dout[0], acc = MR_NONE;
    if (dy == MR_NONE) {
        const mr_desc *o = mr_grad_desc(g, g->out[0]);
        mr_ints dims = {.n = 5};
        memcpy(dims.v, o->dim, 5 * sizeof dims.v[0]);
        MR_TRY(mr_grad_op(g, "zeros", MR_ATTRS({"dtype", .i = o->dtype}, {"dims", .ints = &dims}),
                          NULL, 0, &dy));
    }
    if (g->need[4])
        MR_TRY(mr_grad_acc(g, 4, &acc));
    MR_TRY(mr_grad_op(g, "attention_grad",
                      MR_ATTRS({"scale", .f = a->scale}, {"frame", .i = a->frame},
                               {"text", .i = a->text}, {"before", .i = a->before}),
                      (mr_ref[]){g->in[0], g->in[1], g->in[2], g->in[3], g->out[0], g->out[1], dy,
                                 g->dout[1], g->in[4], acc},
                      10, out));
    for (int i = 0; i < 3; i++)
        g->din[i] = out[i];
    g->din[4] = out[3];
    return MR_OK;
}

static void cost_of(const mr_call *c, double narrow, double wide, double tensors,
                    const mr_view *bias, mr_cost *cost)
{
    const int64_t *q = c->in[0].desc.dim;
    double heads = (double)(q[0] * q[1] * q[3]), N = (double)q[2], M = (double)c->in[1].desc.dim[2],
           d = (double)q[4], e = (double)c->in[2].desc.dim[4];
    *cost = (mr_cost){2 * heads * N * M * (narrow * d + wide * e),
                      heads * tensors * (N + M) * (d + e) / 2 *
                              (double)mr_dtype_bytes(c->in[0].desc.dtype) +
                          4 * heads * N};
    if (mr_given(bias))
        cost->bytes +=
            (double)mr_desc_count(&bias->desc) * (double)mr_dtype_bytes(bias->desc.dtype);
}
static void cost(const mr_call *c, mr_cost *cost)
{
    cost_of(c, 1, 1, 2, &c->in[4], cost);
}
static void grad_cost(const mr_call *c, mr_cost *cost)
{
    cost_of(c, 3, 2, 4, &c->in[8], cost);
}

static double dot(const mr_view *x, int64_t i, const mr_view *y, int64_t j, int64_t b, int64_t g,
                  int64_t h)
{
    double sum = 0;
    for (int64_t k = 0; k < x->desc.dim[4]; k++)
        sum += *mr_el(x, b, g, i, h, k) * *mr_el(y, b, g, j, h, k);
    return sum;
}

// Whether query i sees the key in row j; written apart from attention_job.h.
static bool sees(const mr_call *c, int64_t b, int64_t i, int64_t j)
{
    const attention_attr *a = c->attr;
    int64_t at = a->before + j, counted = a->text ? a->text : a->before + c->in[1].desc.dim[2];
    if (mr_given(&c->in[3]) && at < counted && at >= ((const int32_t *)c->in[3].data)[b])
        return false;
    return !a->frame || j / a->frame <= i / a->frame;
}

// scale q k + bias, or -inf
static double score(const mr_call *c, const mr_view *bias, int64_t b, int64_t g, int64_t h,
                    int64_t i, int64_t j)
{
    if (!sees(c, b, i, j))
        return -INFINITY;
    return attention_scale(c) * dot(&c->in[0], i, &c->in[1], j, b, g, h) +
           (mr_given(bias) ? *mr_el(bias, h, i, j, 0, 0) : 0);
}

static mr_status naive(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim, M = c->in[1].desc.dim[2], e = c->in[2].desc.dim[4];
    for (int64_t u = 0; u < n[0] * n[1] * n[3] * n[2]; u++) {
        int64_t i = u % n[2], h = u / n[2] % n[3], g = u / n[2] / n[3] % n[1],
                b = u / n[2] / n[3] / n[1];
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < M; j++)
            max = fmax(max, score(c, &c->in[4], b, g, h, i, j));
        for (int64_t k = 0; k < e; k++)
            *mr_el(&c->out[0], b, g, i, h, k) = 0;
        for (int64_t j = 0; max > -INFINITY && j < M; j++) {
            double p = exp(score(c, &c->in[4], b, g, h, i, j) - max);
            sum += p;
            for (int64_t k = 0; p > 0 && k < e; k++)
                *mr_el(&c->out[0], b, g, i, h, k) += p * *mr_el(&c->in[2], b, g, j, h, k);
        }
        for (int64_t k = 0; sum > 0 && k < e; k++)
            *mr_el(&c->out[0], b, g, i, h, k) /= sum;
        *mr_el(&c->out[1], b, g, h, i, 0) = sum > 0 ? max + log(sum) : -INFINITY;
    }
    return MR_OK;
}

static mr_status grad_infer(mr_infer *c)
{
    const mr_desc *q = c->in[0], *lse = c->in[5], *acc = c->in[9];
    MR_TRY(check(c, c->in[8]));
    mr_desc o = out_desc(q, c->in[2]);
    MR_TRY(mr_row_same(&o, "o of q and v", c->in[4], "o"));
    MR_TRY(mr_row_same(&o, "o of q and v", c->in[6], "do"));
    MR_TRY(mr_row_rank(lse, "lse", 4));
    if (c->in[7])
        MR_TRY(mr_row_same(lse, "lse", c->in[7], "dlse"));
    if (acc && !c->in[8])
        return mr_fail(MR_E_SHAPE, "acc is the gradient of a bias, and there is none");
    MR_TRY(check_bias(q, c->in[1], acc));
    for (int i = 0; i < 3; i++) {
        c->out[i] = *c->in[i];
        mr_desc_dense_like(c->in[i], &c->out[i]);
    }
    if (acc)
        c->out[3] = *acc;
    return MR_OK;
}

static mr_status grad_naive(const mr_call *c)
{
    const mr_view *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *o = &c->in[4], *lse = &c->in[5],
                  *dy = &c->in[6], *acc = &c->in[9];
    const int64_t *n = q->desc.dim, M = k->desc.dim[2], e = v->desc.dim[4];
    double scale = attention_scale(c), *dbias = c->out[3].data;
    if (dbias)
        memmove(dbias, acc->data, (size_t)mr_desc_count(&acc->desc) * sizeof *dbias);
    for (int64_t u = 0; u < n[0] * n[1] * n[3]; u++) {
        int64_t h = u % n[3], g = u / n[3] % n[1], b = u / n[3] / n[1];
        for (int64_t j = 0; j < M; j++) {
            for (int64_t t = 0; t < n[4]; t++)
                *mr_el(&c->out[1], b, g, j, h, t) = 0;
            for (int64_t t = 0; t < e; t++)
                *mr_el(&c->out[2], b, g, j, h, t) = 0;
        }
        for (int64_t i = 0; i < n[2]; i++) {
            double L = *mr_el(lse, b, g, h, i, 0), D = dot(dy, i, o, i, b, g, h);
            int64_t only = -1, seen = 0;
            for (int64_t j = 0; j < M; j++)
                if (sees(c, b, i, j))
                    only = j, seen++;
            if (seen == 1 && !((const attention_attr *)c->attr)->part)
                D = dot(dy, i, v, only, b, g, h);
            if (mr_given(&c->in[7]))
                D -= *mr_el(&c->in[7], b, g, h, i, 0);
            for (int64_t t = 0; t < n[4]; t++)
                *mr_el(&c->out[0], b, g, i, h, t) = 0;
            for (int64_t j = 0; j < M; j++) {
                double p = L > -INFINITY ? exp(score(c, &c->in[8], b, g, h, i, j) - L) : 0;
                if (p == 0)
                    continue;
                double ds = p * (dot(dy, i, v, j, b, g, h) - D);
                if (dbias)
                    dbias[(h * n[2] + i) * M + j] += ds;
                for (int64_t t = 0; t < n[4]; t++) {
                    *mr_el(&c->out[0], b, g, i, h, t) += scale * ds * *mr_el(k, b, g, j, h, t);
                    *mr_el(&c->out[1], b, g, j, h, t) += scale * ds * *mr_el(q, b, g, i, h, t);
                }
                for (int64_t t = 0; t < e; t++)
                    *mr_el(&c->out[2], b, g, j, h, t) += p * *mr_el(dy, b, g, i, h, t);
            }
        }
    }
    return MR_OK;
}

// ---- kernels ----

typedef enum form { TILES, LANES, AMX } form;

// backward: as many tasks as this where heads alone are fewer
enum { TASKS = 16 };

// `state` marks calls that prepare() found fit for AMX; the other forms follow from the shapes
static char amx_mark;
static form form_of(const mr_call *c, const mr_view *bias)
{
    if (lanes_fit(c, bias))
        return LANES;
    return c->state ? AMX : TILES;
}

static bool amx_fits(const mr_call *c, const mr_facts *facts)
{
    bool fits = facts->amx && c->in[0].desc.dtype == MR_BF16 && c->in[0].desc.dim[4] % 2 == 0 &&
                c->in[2].desc.dim[4] % 2 == 0;
    // the head dimension lies dense everywhere
    for (int i = 0; i < c->n_in; i++)
        fits = fits && (c->in[i].desc.rank != 5 || c->in[i].desc.stride[4] == 1);
    for (int i = 0; i < c->n_out; i++)
        fits = fits && (c->out[i].desc.rank != 5 || c->out[i].desc.stride[4] == 1);
    return fits;
}

static mr_status prepare(const mr_call *c, const mr_facts *facts, void **state)
{
    *state = amx_fits(c, facts) ? &amx_mark : NULL;
    return MR_OK;
}
// score gradients in f32 exist in the tile form alone: it takes the gradient of a bias
static bool amx_fits_grad(const mr_call *c, const mr_facts *facts)
{
    return !mr_given(&c->in[9]) && amx_fits(c, facts);
}
static mr_status grad_prepare(const mr_call *c, const mr_facts *facts, void **state)
{
    *state = amx_fits_grad(c, facts) ? &amx_mark : NULL;
    return MR_OK;
}

static int64_t units_of(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    return n[0] * n[1] * n[3];
}

/* Everything that follows from the shapes. Memory is laid out before the instruction set is chosen,
 * so the form that needs most decides on the scratch. */
static attention_job job_of(const mr_call *c, bool backward, bool amx)
{
    const int64_t N = c->in[0].desc.dim[2], M = c->in[1].desc.dim[2];
    attention_job jb = {.call = c,
                        .bias = &c->in[backward ? 8 : 4],
                        .scale = (float)attention_scale(c),
                        .splits = 1,
                        .split_rows = MR_MAX(N, 1),
                        .ranges = 1,
                        .range_keys = MR_MAX(M, 1)};
    bool lanes = lanes_fit(c, jb.bias);
    if (backward && c->out[3].desc.rank == 3)
        jb.dbias = c->out[3].data;
    if (backward && !lanes && M > KEYS) {
        // the gradient of a bias is a sum over samples, so a task is a head of all of them
        int64_t tasks = MR_MAX(c->out[3].desc.rank == 3 ? c->in[0].desc.dim[3] : units_of(c), 1),
                wanted = MR_MAX(MR_MIN((TASKS + tasks - 1) / tasks, M / KEYS), 1);
        jb.range_keys = attention_pad((M + wanted - 1) / wanted, KEYS);
        jb.ranges = (M + jb.range_keys - 1) / jb.range_keys;
    }
    size_t bytes = lanes ? (size_t)lanes_scratch(c, backward) * 4
                         : (size_t)tile_scratch(c, backward).worker * 4;
    if (!lanes && amx)
        bytes = MR_MAX(bytes, (size_t)amx_scratch(c, jb.range_keys, backward).bytes);
    jb.worker_bytes = (bytes + 63) / 64 * 64;
    return jb;
}

static size_t workspace(const mr_call *c, const mr_facts *facts)
{
    return job_of(c, false, amx_fits(c, facts)).worker_bytes * (size_t)facts->threads;
}
static size_t grad_workspace(const mr_call *c, const mr_facts *facts)
{
    const int64_t *n = c->in[0].desc.dim;
    attention_job jb = job_of(c, true, amx_fits_grad(c, facts));
    size_t parts =
        jb.ranges == 1
            ? 0
            : (size_t)(units_of(c) * jb.ranges * n[2] * attention_pad(n[4], 16)) * sizeof(float);
    return jb.worker_bytes * (size_t)facts->threads + parts;
}

// Heads per chunk: short sequences are handed out many at a time, since handing out costs too.
static int64_t grain_of(const mr_call *c, bool lanes)
{
    const int64_t *n = c->in[0].desc.dim;
    double flop = 2.0 * (double)(n[2] * c->in[1].desc.dim[2] * (n[4] + c->in[2].desc.dim[4]));
    return attention_pad((int64_t)MR_MAX(1.0, 4e6 / MR_MAX(flop, 1.0)), lanes ? 16 : 1);
}

static void forward_part(void *user, int64_t begin, int64_t end, int worker)
{
    const attention_job *jb = user;
    const int64_t *n = jb->call->in[0].desc.dim;
    void *at = (char *)jb->call->workspace + (size_t)worker * jb->worker_bytes;
    form form = form_of(jb->call, jb->bias);
    for (int64_t i = begin, count; i < end; i += count) {
        int64_t u = i / jb->splits, first = i % jb->splits * jb->split_rows,
                last = MR_MIN(first + jb->split_rows, n[2]);
        int64_t b = u / n[3] / n[1], g = u / n[3] % n[1], h = u % n[3];
        count = form == LANES ? MR_MIN(end - i, (int64_t)VF_LANES) : 1;
        if (form == LANES)
            lanes_forward(jb, i, count, at);
        else if (form == TILES)
            tile_forward(jb, b, g, h, first, last, at);
#if defined(ATTENTION_AMX)
        else
            mr_attention_amx_forward(jb, b, g, h, first, last, at);
#endif
    }
}

MR_KERNEL(attention)
{
    int64_t units = units_of(call), N = call->in[0].desc.dim[2];
    attention_job jb = job_of(call, false, call->state);
    form form = form_of(call, jb.bias);
    // long sequences are cut to what shares a tile of keys; where they are few, for the team
    if (form == TILES)
        jb.split_rows = MR_MIN(jb.split_rows, SPAN);
    if (form != LANES && units > 0 && units < 4 * call->threads && N > 2 * QUERIES) {
        int64_t splits = MR_MIN((4 * call->threads + units - 1) / units, N / QUERIES);
        jb.split_rows = MR_MIN(jb.split_rows, attention_pad((N + splits - 1) / splits, QUERIES));
    }
    jb.splits = (N + jb.split_rows - 1) / jb.split_rows;
    if (N > 0)
        mr_cpu_for(units * jb.splits, jb.splits > 1 ? 1 : grain_of(call, form == LANES),
                   call->threads, forward_part, &jb);
    return MR_OK;
}

// One key range of one head of one sample, or of all samples where they share a gradient.
static void backward_task(const attention_job *jb, form form, int64_t task, void *at)
{
    const int64_t *n = jb->call->in[0].desc.dim;
    int64_t range = task % jb->ranges, lead = task / jb->ranges,
            times = jb->dbias ? n[0] * n[1] : 1;
    for (int64_t t = 0; t < times; t++) {
        int64_t u = jb->dbias ? t * n[3] + lead : lead;
        int64_t b = u / n[3] / n[1], g = u / n[3] % n[1], h = u % n[3];
        if (form == TILES)
            tile_backward(jb, b, g, h, range, at);
#if defined(ATTENTION_AMX)
        else
            mr_attention_amx_backward(jb, b, g, h, range, at);
#endif
    }
}

static void backward_part(void *user, int64_t begin, int64_t end, int worker)
{
    const attention_job *jb = user;
    void *at = (char *)jb->call->workspace + (size_t)worker * jb->worker_bytes;
    form form = form_of(jb->call, jb->bias);
    for (int64_t u = begin, count; u < end; u += count) {
        count = form == LANES ? MR_MIN(end - u, (int64_t)VF_LANES) : 1;
        if (form == LANES)
            lanes_backward(jb, u, count, at);
        else
            backward_task(jb, form, u, at);
    }
}

// dq of rows begin .. end of [B, G, h, N]: what the key ranges add to it, in their order. The tile
// form leaves the scale to this sum.
static void add_parts(void *user, int64_t begin, int64_t end, int worker)
{
    const attention_job *jb = user;
    const mr_view *dq = &jb->call->out[0];
    const int64_t *n = dq->desc.dim, *s = dq->desc.stride, width = attention_pad(n[4], 16);
    vf scale = vf_set(form_of(jb->call, jb->bias) == TILES ? jb->scale : 1);
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        int64_t i = row % n[2], u = row / n[2], h = u % n[3], g = u / n[3] % n[1],
                b = u / n[3] / n[1];
        int64_t at = b * s[0] + g * s[1] + i * s[2] + h * s[3];
        for (int64_t e = 0; e < n[4]; e += VF_LANES) {
            vf sum = vf_zero();
            for (int64_t r = 0; r < jb->ranges; r++)
                sum = sum + vf_load(attention_parts(jb, b, g, h, r) + i * width + e);
            vf_stx(dq->data, at + e * s[4], s[4], sum * scale, MR_MIN(n[4] - e, (int64_t)VF_LANES),
                   dq->desc.dtype);
        }
    }
}

MR_KERNEL(attention_grad)
{
    attention_job jb = job_of(call, true, call->state);
    const int64_t *n = call->in[0].desc.dim, units = units_of(call),
                  tasks = (jb.dbias ? n[3] : units) * jb.ranges;
    jb.parts = (float *)(void *)((char *)call->workspace + jb.worker_bytes * (size_t)call->threads);
    bool whole = jb.dbias || jb.ranges > 1;
    mr_cpu_for(tasks, whole ? 1 : grain_of(call, form_of(call, jb.bias) == LANES), call->threads,
               backward_part, &jb);
    if (jb.ranges > 1)
        mr_cpu_for(units * n[2], QUERIES, call->threads, add_parts, &jb);
    return MR_OK;
}

#define ATTRS                                                                                      \
    {"scale", MR_ATTR_F64, offsetof(attention_attr, scale),                                        \
     .doc = "factor on the scores; 0: d^-0.5"},                                                    \
        {"frame",                                                                                  \
         MR_ATTR_I64,                                                                              \
         offsetof(attention_attr, frame),                                                          \
         .min = 0,                                                                                 \
         .max = 1 << 30,                                                                           \
         .doc = "tokens of a frame: later frames are not seen; 1: causal, 0: all is seen"},        \
        {"text",   MR_ATTR_I64,    offsetof(attention_attr, text),                                 \
         .min = 0, .max = 1 << 30, .doc = "keys at the beginning to which len applies; 0: all"},   \
    {                                                                                              \
        "before", MR_ATTR_I64, offsetof(attention_attr, before),                                   \
            .min = 0, .max = 1 << 30, .doc = "keys in front of these, which len and text count"    \
    }
MR_OP(attention) = {
    .name = "attention",
    .doc =
        "Softmax attention per sample, group and head, with a bias, key counts and causal frames.",
    .ref = "Vaswani et al. 2017, arXiv:1706.03762; Dao et al. 2022, arXiv:2205.14135",
    .in = {{"q", "[B, G, N, h, d] f32|bf16", MR_ANY, 0},
           {"k", "[B, G, M, h, d] like q", MR_ANY, 0},
           {"v", "[B, G, M, h, e] like q", MR_ANY, 0},
           {"len", "[B] i32", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD},
           {"bias", "[h, N, M] f32|bf16", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"o", "[B, G, N, h, e] like q", 0, false, MR_ANY},
            {"lse", "[B, G, h, N] f32", 0, false, MR_CONTIG}},
    .attr = {ATTRS},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(attention), .prepare = prepare, .workspace = workspace},
    .cases = MR_CASES(
        "q=[2,3,5,2,16] f32 k=[2,3,5,2,16] f32 v=[2,3,5,2,16] f32",
        "q=[2,1,7,2,24]/any f32 k=[2,1,9,2,24]/any f32 v=[2,1,9,2,24]/any f32 len=[2] i32 1..9",
        "q=[1,2,70,2,72] f32 k=[1,2,67,2,72] f32 v=[1,2,67,2,72] f32 scale=0.3",
        "q=[1,1,67,1,128] f32 -3..3 k=[1,1,600,1,128] f32 -3..3 v=[1,1,600,1,128] f32",
        "q=[3,1,1,1,17] f32 k=[3,1,1,1,17] f32 v=[3,1,1,1,17] f32",
        "q=[2,2,6,2,72]/any bf16 k=[2,2,5,2,72] bf16 v=[2,2,5,2,72] bf16 len=[2] i32 1..5",
        "q=[1,2,70,2,72] bf16 k=[1,2,67,2,72] bf16 v=[1,2,67,2,72] bf16",
        "q=[2,1,130,1,40] bf16 -3..3 k=[2,1,300,1,40] bf16 -3..3 v=[2,1,300,1,40] bf16 len=[2] i32 "
        "1..300 scale=0.5",
        "q=[1,1,40,2,128] bf16 k=[1,1,33,2,128] bf16 v=[1,1,33,2,128] bf16",
        // several tiles of keys, every one whole but the last
        "q=[1,1,70,2,40] bf16 -3..3 k=[1,1,300,2,40] bf16 -3..3 v=[1,1,300,2,40] bf16",
        "q=[1,2,35,1,72] bf16 -3..3 k=[1,2,600,1,72] bf16 -3..3 v=[1,2,600,1,72] bf16",
        // scores beyond the range of exp, in every form; f32 scores of 1000 are off by 3e-5 each
        "q=[2,1,9,2,16] f32 -20..20 k=[2,1,9,2,16] f32 -20..20 v=[2,1,9,2,16] f32 scale=1 "
        "rtol=2e-4",
        "q=[2,1,9,2,16] bf16 -20..20 k=[2,1,9,2,16] bf16 -20..20 v=[2,1,9,2,16] bf16 scale=1",
        "q=[1,1,66,2,40] f32 -20..20 k=[1,1,600,2,40] f32 -20..20 v=[1,1,600,2,40] f32 scale=1 "
        "rtol=2e-4",
        "q=[1,1,66,2,40] bf16 -20..20 k=[1,1,600,2,40] bf16 -20..20 v=[1,1,600,2,40] bf16 "
        "scale=1",
        // frames, plainly causal, and values of another width, in short and in long sequences
        "q=[2,3,7,2,16] f32 k=[2,3,9,2,16] f32 v=[2,3,9,2,24] f32 frame=2",
        "q=[2,1,8,2,40] bf16 k=[2,1,8,2,40] bf16 v=[2,1,8,2,17] bf16 frame=1",
        "q=[2,1,70,2,24]/any f32 k=[2,1,67,2,24]/any f32 v=[2,1,67,2,40]/any f32 len=[2] i32 1..67 "
        "frame=1",
        "q=[1,1,300,1,24] f32 -3..3 k=[1,1,600,1,24] f32 -3..3 v=[1,1,600,1,24] f32 frame=70",
        "q=[2,1,130,1,40] bf16 k=[2,1,300,1,40] bf16 v=[2,1,300,1,24] bf16 frame=33",
        // text before an image, with as many tokens as len says
        "q=[3,1,40,2,24] f32 k=[3,1,50,2,24] f32 v=[3,1,50,2,24] f32 len=[3] i32 0..20 text=20",
        "q=[2,1,70,1,40] bf16 k=[2,1,600,1,40] bf16 v=[2,1,600,1,40] bf16 len=[2] i32 1..299 "
        "text=300",
        // a later piece of the keys, of which len and text see some, all or none
        "q=[3,1,9,2,24] f32 k=[3,1,12,2,24] f32 v=[3,1,12,2,24] f32 len=[3] i32 5..25 before=10",
        "q=[3,1,40,2,24] f32 k=[3,1,50,2,24] f32 v=[3,1,50,2,24] f32 len=[3] i32 20..60 text=50 "
        "before=30",
        "q=[2,1,70,1,40] bf16 k=[2,1,300,1,40] bf16 v=[2,1,300,1,40] bf16 len=[2] i32 1..99 "
        "text=100 before=100",
        // a bias, and all at once; one wide head
        "q=[2,2,20,2,16] f32 k=[2,2,23,2,16] f32 v=[2,2,23,2,16] f32 bias=[2,20,23] f32 -2..2",
        "q=[2,1,35,2,24] bf16 k=[2,1,70,2,24] bf16 v=[2,1,70,2,18] bf16 len=[2] i32 0..30 text=30 "
        "bias=[2,35,70] bf16 -2..2",
        "q=[1,1,66,2,24] f32 k=[1,1,300,2,24] f32 v=[1,1,300,2,24] f32 bias=[2,66,300] f32 -9..9 "
        "frame=5",
        "q=[1,1,21,1,512] f32 k=[1,1,70,1,512] f32 v=[1,1,70,1,512] f32 frame=3"),
};
MR_OP(attention_grad) = {
    .name = "attention_grad",
    .doc =
        "Gradients of attention with respect to q, k and v, from its output and log-sum; adds that "
        "of the bias to acc.",
    .in = {{"q", "[B, G, N, h, d] f32|bf16", MR_ANY, 0},
           {"k", "[B, G, M, h, d] like q", MR_ANY, 0},
           {"v", "[B, G, M, h, e] like q", MR_ANY, 0},
           {"len", "[B] i32", MR_CONTIG, MR_OPTIONAL},
           {"o", "[B, G, N, h, e] like q", MR_ANY, 0},
           {"lse", "[B, G, h, N] f32", MR_CONTIG, 0},
           {"do", "like o", MR_ANY, 0},
           {"dlse", "like lse", MR_CONTIG, MR_OPTIONAL},
           {"bias", "[h, N, M] f32|bf16", MR_CONTIG, MR_OPTIONAL},
           {"acc", "[h, N, M] f32", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"dq", "like q", 0, false, MR_ANY},
            {"dk", "like k", 0, false, MR_ANY},
            {"dv", "like v", 0, false, MR_ANY},
            {"acc", "[h, N, M] f32", 10, true, MR_CONTIG}},
    .attr = {ATTRS,
             {"part", MR_ATTR_BOOL, offsetof(attention_attr, part),
              .doc = "o and lse are of more keys than these"}},
    .infer = grad_infer,
    .cost = grad_cost,
    .naive = grad_naive,
    .cpu = {.run = MR_CPU(attention_grad), .prepare = grad_prepare, .workspace = grad_workspace},
    .hidden = true,
    .cases = MR_CASES(
        "q=[2,3,5,2,16] f32 k=[2,3,5,2,16] f32 v=[2,3,5,2,16] f32 o=[2,3,5,2,16] f32 "
        "lse=[2,3,2,5] f32 2..3 do=[2,3,5,2,16] f32 dlse=[2,3,2,5] f32",
        "q=[2,1,7,2,24]/any f32 k=[2,1,9,2,24]/any f32 v=[2,1,9,2,24]/any f32 len=[2] i32 "
        "0..9 o=[2,1,7,2,24] f32 lse=[2,1,2,7] f32 2..3 do=[2,1,7,2,24]/any f32",
        "q=[1,2,70,2,72] f32 k=[1,2,67,2,72] f32 v=[1,2,67,2,72] f32 o=[1,2,70,2,72] f32 "
        "lse=[1,2,2,70] f32 4..5 do=[1,2,70,2,72] f32",
        "q=[1,1,67,1,128] f32 k=[1,1,600,1,128] f32 v=[1,1,600,1,128] f32 "
        "o=[1,1,67,1,128] f32 lse=[1,1,1,67] f32 6..7 do=[1,1,67,1,128] f32",
        "q=[2,2,6,2,72]/any bf16 k=[2,2,5,2,72] bf16 v=[2,2,5,2,72] bf16 o=[2,2,6,2,72] "
        "bf16 lse=[2,2,2,6] f32 2..3 do=[2,2,6,2,72] bf16",
        "q=[1,2,70,2,72] bf16 k=[1,2,67,2,72] bf16 v=[1,2,67,2,72] bf16 o=[1,2,70,2,72] "
        "bf16 lse=[1,2,2,70] f32 4..5 do=[1,2,70,2,72] bf16 dlse=[1,2,2,70] f32",
        "q=[2,1,130,1,40] bf16 k=[2,1,300,1,40] bf16 v=[2,1,300,1,40] bf16 len=[2] i32 "
        "0..300 o=[2,1,130,1,40] bf16 lse=[2,1,1,130] f32 5..6 do=[2,1,130,1,40] bf16",
        "q=[1,1,40,2,128] bf16 k=[1,1,33,2,128] bf16 v=[1,1,33,2,128] bf16 "
        "o=[1,1,40,2,128] bf16 lse=[1,1,2,40] f32 4..5 do=[1,1,40,2,128] bf16",
        "q=[1,1,70,2,40] bf16 -3..3 k=[1,1,300,2,40] bf16 -3..3 v=[1,1,300,2,40] bf16 "
        "o=[1,1,70,2,40] bf16 lse=[1,1,2,70] f32 6..7 do=[1,1,70,2,40] bf16",
        "q=[1,2,35,1,72] bf16 k=[1,2,600,1,72] bf16 v=[1,2,600,1,72] bf16 "
        "o=[1,2,35,1,72] bf16 lse=[1,2,1,35] f32 6..7 do=[1,2,35,1,72] bf16 "
        "dlse=[1,2,1,35] f32",
        // frames, plainly causal, and values of another width
        "q=[2,3,7,2,16] f32 k=[2,3,9,2,16] f32 v=[2,3,9,2,24] f32 o=[2,3,7,2,24] f32 lse=[2,3,2,7] "
        "f32 2..3 do=[2,3,7,2,24] f32 frame=2",
        "q=[2,1,8,2,40] bf16 k=[2,1,8,2,40] bf16 v=[2,1,8,2,17] bf16 o=[2,1,8,2,17] bf16 "
        "lse=[2,1,2,8] f32 2..3 do=[2,1,8,2,17] bf16 frame=1",
        "q=[2,1,70,2,24]/any f32 k=[2,1,67,2,24]/any f32 v=[2,1,67,2,40]/any f32 o=[2,1,70,2,40] "
        "f32 lse=[2,1,2,70] f32 3..4 do=[2,1,70,2,40] f32 len=[2] i32 1..67 frame=1",
        "q=[2,1,130,1,40] bf16 k=[2,1,300,1,40] bf16 v=[2,1,300,1,24] bf16 o=[2,1,130,1,24] bf16 "
        "lse=[2,1,1,130] f32 3..4 do=[2,1,130,1,24] bf16 frame=33",
        // key ranges: their shares of dq are added up
        "q=[1,1,300,1,24] f32 k=[1,1,600,1,24] f32 v=[1,1,600,1,40] f32 o=[1,1,300,1,40] f32 "
        "lse=[1,1,1,300] f32 5..6 do=[1,1,300,1,40] f32 frame=70",
        "q=[2,1,70,1,40] bf16 k=[2,1,800,1,40] bf16 v=[2,1,800,1,40] bf16 o=[2,1,70,1,40] bf16 "
        "lse=[2,1,1,70] f32 5..6 do=[2,1,70,1,40] bf16 len=[2] i32 0..800",
        // text before an image, a bias and its gradient, one wide head
        "q=[3,1,40,2,24] f32 k=[3,1,50,2,24] f32 v=[3,1,50,2,24] f32 o=[3,1,40,2,24] f32 "
        "lse=[3,1,2,40] f32 3..4 do=[3,1,40,2,24] f32 len=[3] i32 0..20 text=20",
        "q=[2,1,70,1,40] bf16 k=[2,1,600,1,40] bf16 v=[2,1,600,1,40] bf16 o=[2,1,70,1,40] bf16 "
        "lse=[2,1,1,70] f32 5..6 do=[2,1,70,1,40] bf16 len=[2] i32 1..299 text=300",
        "q=[2,2,20,2,16] f32 k=[2,2,23,2,16] f32 v=[2,2,23,2,16] f32 o=[2,2,20,2,16] f32 "
        "lse=[2,2,2,20] f32 3..4 do=[2,2,20,2,16] f32 bias=[2,20,23] f32 -2..2 acc=[2,20,23] f32",
        "q=[2,1,35,2,24] bf16 k=[2,1,70,2,24] bf16 v=[2,1,70,2,18] bf16 o=[2,1,35,2,18] bf16 "
        "lse=[2,1,2,35] f32 3..4 do=[2,1,35,2,18] bf16 len=[2] i32 0..30 text=30 bias=[2,35,70] "
        "bf16 -2..2 acc=[2,35,70] f32",
        "q=[1,1,66,2,24] f32 k=[1,1,600,2,24] f32 v=[1,1,600,2,24] f32 o=[1,1,66,2,24] f32 "
        "lse=[1,1,2,66] f32 5..6 do=[1,1,66,2,24] f32 bias=[2,66,600] f32 -2..2 frame=5 "
        "acc=[2,66,600] f32",
        "q=[1,1,66,2,24] f32 k=[1,1,300,2,24] f32 v=[1,1,300,2,24] f32 o=[1,1,66,2,24] f32 "
        "lse=[1,1,2,66] f32 3..4 do=[1,1,66,2,24] f32 bias=[2,66,300] f32 -2..2",
        "q=[1,1,21,1,512] f32 k=[1,1,70,1,512] f32 v=[1,1,70,1,512] f32 o=[1,1,21,1,512] f32 "
        "lse=[1,1,1,21] f32 3..4 do=[1,1,21,1,512] f32 frame=3",
        // one key of many
        "q=[2,1,5,2,16] f32 k=[2,1,1,2,16] f32 v=[2,1,1,2,16] f32 o=[2,1,5,2,16] f32 "
        "lse=[2,1,2,5] f32 2..3 do=[2,1,5,2,16] f32 part=1",
        "q=[1,1,70,2,40] bf16 k=[1,1,1,2,40] bf16 v=[1,1,1,2,40] bf16 o=[1,1,70,2,40] bf16 "
        "lse=[1,1,2,70] f32 2..3 do=[1,1,70,2,40] bf16 part=1"),
};
