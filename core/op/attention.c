/* attention: o = softmax(scale q k^T) v per sample, group and head. Keys at or past len[b] do not
 * exist.
 *
 *   q, o [B, G, N, h, d]    k, v [B, G, M, h, d]    any strides; o in the order of q's
 *   len [B] i32             len 0 gives o = 0, lse = -inf and zero gradients
 *   lse [B, G, h, N] f32    the log of the sum of exp(scale q k) of a row
 *   scale                   0 means d^-0.5
 *
 * Backward, with D = rowsum(do o) - dlse:
 *   p  = exp(scale q k^T - lse)
 *   ds = p (do v^T - D)
 *   dv = p^T do    dq = scale ds k    dk = scale ds^T q
 *
 * There are three forms: attention_lanes.c for short sequences, attention_amx.c for bf16 where the
 * processor has AMX, attention_tile.c for all else. A task is one head of one sequence (in the
 * forward pass a range of its queries), or a vector of short ones. Nothing of size N x M is kept.
 * A row's result does not depend on the tasks, and dk and dv are summed over tiles of queries in
 * order, so bits do not depend on the team.
 * Ref: Dao et al. 2022, arXiv:2205.14135. */
#include "op/attention_job.h"

static mr_status check(const mr_desc *q, const mr_desc *k, const mr_desc *v, const mr_desc *len)
{
    if (q->rank != 5 || k->rank != 5 || q->dim[4] < 1)
        return mr_fail(MR_E_SHAPE, "q must be [B, G, N, h, d] and k [B, G, M, h, d]");
    MR_TRY(mr_row_same(k, "k", v, "v"));
    for (int i = 0; i < 5; i++)
        if (i != 2 && q->dim[i] != k->dim[i])
            return mr_fail(MR_E_SHAPE,
                           "q [B, G, N, h, d] and k [B, G, M, h, d] differ in more than N and M");
    if (q->dtype != k->dtype)
        return mr_fail(MR_E_SHAPE, "q, k and v must share one dtype");
    if (len && (len->rank != 1 || len->dim[0] != q->dim[0]))
        return mr_fail(MR_E_SHAPE, "len must be [B] of q's B");
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    const mr_desc *q = c->in[0];
    MR_TRY(check(q, c->in[1], c->in[2], c->in[3]));
    c->out[0] = *q;
    mr_desc_dense_like(q, &c->out[0]);
    mr_row_out(c, 1, q->dtype == MR_F64 ? MR_F64 : MR_F32, 4,
               (const int64_t[]){q->dim[0], q->dim[1], q->dim[3], q->dim[2]});
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    const attention_attr *a = g->attr;
    mr_ref out[3], dy = g->dout[0];
    if (dy == MR_NONE) {
        const mr_desc *q = mr_grad_desc(g, g->in[0]);
        mr_ints dims = {.n = 5};
        memcpy(dims.v, q->dim, 5 * sizeof dims.v[0]);
        MR_TRY(mr_grad_op(g, "zeros", MR_ATTRS({"dtype", .i = q->dtype}, {"dims", .ints = &dims}),
                          NULL, 0, &dy));
    }
    MR_TRY(mr_grad_op(
        g, "attention_grad", MR_ATTRS({"scale", .f = a->scale}),
        (mr_ref[]){g->in[0], g->in[1], g->in[2], g->in[3], g->out[0], g->out[1], dy, g->dout[1]}, 8,
        out));
    for (int i = 0; i < 3; i++)
        g->din[i] = out[i];
    return MR_OK;
}

static void cost_of(const mr_call *c, double products, double tensors, mr_cost *cost)
{
    const int64_t *q = c->in[0].desc.dim;
    double heads = (double)(q[0] * q[1] * q[3]), N = (double)q[2], M = (double)c->in[1].desc.dim[2],
           d = (double)q[4];
    *cost = (mr_cost){2 * products * heads * N * M * d,
                      heads * tensors * (N + M) * d * (double)mr_dtype_bytes(c->in[0].desc.dtype) +
                          4 * heads * N};
}
static void cost(const mr_call *c, mr_cost *cost)
{
    cost_of(c, 2, 2, cost);
}
static void grad_cost(const mr_call *c, mr_cost *cost)
{
    cost_of(c, 5, 4, cost);
}

static double dot(const mr_view *x, int64_t i, const mr_view *y, int64_t j, int64_t b, int64_t g,
                  int64_t h)
{
    double sum = 0;
    for (int64_t k = 0; k < x->desc.dim[4]; k++)
        sum += *mr_el(x, b, g, i, h, k) * *mr_el(y, b, g, j, h, k);
    return sum;
}

static mr_status naive(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    double scale = attention_scale(c);
    for (int64_t i = 0; i < n[0] * n[1] * n[3] * n[2]; i++) {
        int64_t row = i % n[2], h = i / n[2] % n[3], g = i / n[2] / n[3] % n[1],
                b = i / n[2] / n[3] / n[1], keys = attention_keys(c, b);
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < keys; j++)
            max = fmax(max, scale * dot(&c->in[0], row, &c->in[1], j, b, g, h));
        for (int64_t k = 0; k < n[4]; k++)
            *mr_el(&c->out[0], b, g, row, h, k) = 0;
        for (int64_t j = 0; j < keys; j++) {
            double p = exp(scale * dot(&c->in[0], row, &c->in[1], j, b, g, h) - max);
            sum += p;
            for (int64_t k = 0; k < n[4]; k++)
                *mr_el(&c->out[0], b, g, row, h, k) += p * *mr_el(&c->in[2], b, g, j, h, k);
        }
        for (int64_t k = 0; keys > 0 && k < n[4]; k++)
            *mr_el(&c->out[0], b, g, row, h, k) /= sum;
        *mr_el(&c->out[1], b, g, h, row, 0) = keys > 0 ? max + log(sum) : -INFINITY;
    }
    return MR_OK;
}

static mr_status grad_infer(mr_infer *c)
{
    const mr_desc *q = c->in[0], *lse = c->in[5];
    MR_TRY(check(q, c->in[1], c->in[2], c->in[3]));
    MR_TRY(mr_row_same(q, "q", c->in[4], "o"));
    MR_TRY(mr_row_same(q, "q", c->in[6], "do"));
    MR_TRY(mr_row_rank(lse, "lse", 4));
    if (c->in[7])
        MR_TRY(mr_row_same(lse, "lse", c->in[7], "dlse"));
    for (int i = 0; i < 3; i++) {
        c->out[i] = *c->in[i];
        mr_desc_dense_like(c->in[i], &c->out[i]);
    }
    return MR_OK;
}

static mr_status grad_naive(const mr_call *c)
{
    const mr_view *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *o = &c->in[4], *lse = &c->in[5],
                  *dy = &c->in[6];
    const int64_t *n = q->desc.dim, M = k->desc.dim[2];
    double scale = attention_scale(c);
    for (int64_t u = 0; u < n[0] * n[1] * n[3]; u++) {
        int64_t h = u % n[3], g = u / n[3] % n[1], b = u / n[3] / n[1], keys = attention_keys(c, b);
        for (int64_t j = 0; j < M; j++)
            for (int64_t e = 0; e < n[4]; e++)
                *mr_el(&c->out[1], b, g, j, h, e) = *mr_el(&c->out[2], b, g, j, h, e) = 0;
        for (int64_t i = 0; i < n[2]; i++) {
            double D = dot(dy, i, o, i, b, g, h) -
                       (mr_given(&c->in[7]) ? *mr_el(&c->in[7], b, g, h, i, 0) : 0);
            for (int64_t e = 0; e < n[4]; e++)
                *mr_el(&c->out[0], b, g, i, h, e) = 0;
            for (int64_t j = 0; j < keys; j++) {
                double p = exp(scale * dot(q, i, k, j, b, g, h) - *mr_el(lse, b, g, h, i, 0));
                double ds = p * (dot(dy, i, v, j, b, g, h) - D);
                for (int64_t e = 0; e < n[4]; e++) {
                    *mr_el(&c->out[0], b, g, i, h, e) += scale * ds * *mr_el(k, b, g, j, h, e);
                    *mr_el(&c->out[1], b, g, j, h, e) += scale * ds * *mr_el(q, b, g, i, h, e);
                    *mr_el(&c->out[2], b, g, j, h, e) += p * *mr_el(dy, b, g, i, h, e);
                }
            }
        }
    }
    return MR_OK;
}

// ---- kernels ----

typedef enum form { TILES, LANES, AMX } form;

// `state` marks calls that prepare() found fit for AMX; the other forms follow from the shapes
static char amx_mark;
static form form_of(const mr_call *c)
{
    if (lanes_fit(c))
        return LANES;
#if defined(ATTENTION_AMX)
    if (c->state)
        return AMX;
#endif
    return TILES;
}

static bool amx_fits(const mr_call *c, const mr_facts *facts)
{
    bool fit = facts->amx && c->in[0].desc.dtype == MR_BF16 && c->in[0].desc.dim[4] % 2 == 0;
    // the head dimension lies dense everywhere
    for (int i = 0; i < c->n_in; i++)
        fit = fit && (c->in[i].desc.rank != 5 || c->in[i].desc.stride[4] == 1);
    for (int i = 0; i < c->n_out; i++)
        fit = fit && (c->out[i].desc.rank != 5 || c->out[i].desc.stride[4] == 1);
    return fit;
}
static mr_status prepare(const mr_call *c, const mr_facts *facts, void **state)
{
    *state = amx_fits(c, facts) ? &amx_mark : NULL;
    return MR_OK;
}

// Bytes of one worker's scratch. Memory is laid out before the instruction set is chosen, so the
// form that needs most decides.
static size_t scratch_bytes(const mr_call *c, bool backward, bool amx)
{
    size_t bytes = lanes_fit(c) ? (size_t)lanes_scratch(c, backward) * 4
                                : (size_t)tile_scratch(c, backward).worker * 4;
    if (!lanes_fit(c) && amx)
        bytes = MR_MAX(bytes, (size_t)amx_scratch(c, backward).bytes);
    return (bytes + 63) / 64 * 64;
}
static size_t workspace(const mr_call *c, const mr_facts *facts)
{
    return scratch_bytes(c, false, amx_fits(c, facts)) * (size_t)facts->threads;
}
static size_t grad_workspace(const mr_call *c, const mr_facts *facts)
{
    return scratch_bytes(c, true, amx_fits(c, facts)) * (size_t)facts->threads;
}

static attention_job job_of(const mr_call *c, bool backward)
{
    return (attention_job){.call = c,
                           .scale = (float)attention_scale(c),
                           .splits = 1,
                           .split_rows = MR_MAX(c->in[0].desc.dim[2], 1),
                           .worker_bytes = scratch_bytes(c, backward, c->state != NULL)};
}

static int64_t units_of(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    return n[0] * n[1] * n[3];
}

// Heads per chunk: short sequences are handed out many at a time, since handing out costs too.
static int64_t grain_of(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    double flop = 4.0 * (double)(n[2] * c->in[1].desc.dim[2] * n[4]);
    return attention_pad((int64_t)MR_MAX(1.0, 4e6 / MR_MAX(flop, 1.0)), lanes_fit(c) ? 16 : 1);
}

static void forward_part(void *user, int64_t begin, int64_t end, int worker)
{
    const attention_job *jb = user;
    const int64_t *n = jb->call->in[0].desc.dim;
    void *at = (char *)jb->call->workspace + (size_t)worker * jb->worker_bytes;
    form form = form_of(jb->call);
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
    attention_job jb = job_of(call, false);
    // where sequences are few and long, their queries are shared out too
    if (units > 0 && units < 4 * call->threads && N > 2 * QUERIES) {
        jb.splits = MR_MIN((4 * call->threads + units - 1) / units, N / QUERIES);
        jb.split_rows = attention_pad((N + jb.splits - 1) / jb.splits, QUERIES);
        jb.splits = (N + jb.split_rows - 1) / jb.split_rows;
    }
    if (N > 0)
        mr_cpu_for(units * jb.splits, jb.splits > 1 ? 1 : grain_of(call), call->threads,
                   forward_part, &jb);
    return MR_OK;
}

static void backward_part(void *user, int64_t begin, int64_t end, int worker)
{
    const attention_job *jb = user;
    const int64_t *n = jb->call->in[0].desc.dim;
    void *at = (char *)jb->call->workspace + (size_t)worker * jb->worker_bytes;
    form form = form_of(jb->call);
    for (int64_t u = begin, count; u < end; u += count) {
        int64_t b = u / n[3] / n[1], g = u / n[3] % n[1], h = u % n[3];
        count = form == LANES ? MR_MIN(end - u, (int64_t)VF_LANES) : 1;
        if (form == LANES)
            lanes_backward(jb, u, count, at);
        else if (form == TILES)
            tile_backward(jb, b, g, h, at);
#if defined(ATTENTION_AMX)
        else
            mr_attention_amx_backward(jb, b, g, h, at);
#endif
    }
}

MR_KERNEL(attention_grad)
{
    attention_job jb = job_of(call, true);
    mr_cpu_for(units_of(call), grain_of(call), call->threads, backward_part, &jb);
    return MR_OK;
}

#define SCALE                                                                                      \
    {                                                                                              \
        "scale", MR_ATTR_F64, offsetof(attention_attr, scale),                                     \
            .doc = "factor on the scores; 0: d^-0.5"                                               \
    }
MR_OP(attention) = {
    .name = "attention",
    .doc = "Softmax attention per sample, group and head, with a key count per sample.",
    .ref = "Vaswani et al. 2017, arXiv:1706.03762; Dao et al. 2022, arXiv:2205.14135",
    .in = {{"q", "[B, G, N, h, d] f32|bf16", MR_ANY, 0},
           {"k", "[B, G, M, h, d] like q", MR_ANY, 0},
           {"v", "like k", MR_ANY, 0},
           {"len", "[B] i32", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD}},
    .out = {{"o", "like q", 0, false, MR_ANY}, {"lse", "[B, G, h, N] f32", 0, false, MR_CONTIG}},
    .attr = {SCALE},
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
        "scale=1"),
};
MR_OP(attention_grad) = {
    .name = "attention_grad",
    .doc = "Gradients of attention with respect to q, k and v, from its output and log-sum.",
    .in = {{"q", "[B, G, N, h, d] f32|bf16", MR_ANY, 0},
           {"k", "[B, G, M, h, d] like q", MR_ANY, 0},
           {"v", "like k", MR_ANY, 0},
           {"len", "[B] i32", MR_CONTIG, MR_OPTIONAL},
           {"o", "like q", MR_ANY, 0},
           {"lse", "[B, G, h, N] f32", MR_CONTIG, 0},
           {"do", "like q", MR_ANY, 0},
           {"dlse", "like lse", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"dq", "like q", 0, false, MR_ANY},
            {"dk", "like k", 0, false, MR_ANY},
            {"dv", "like k", 0, false, MR_ANY}},
    .attr = {SCALE},
    .infer = grad_infer,
    .cost = grad_cost,
    .naive = grad_naive,
    .cpu = {.run = MR_CPU(attention_grad), .prepare = prepare, .workspace = grad_workspace},
    .hidden = true,
    .cases =
        MR_CASES("q=[2,3,5,2,16] f32 k=[2,3,5,2,16] f32 v=[2,3,5,2,16] f32 o=[2,3,5,2,16] f32 "
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
                 "dlse=[1,2,1,35] f32"),
};
