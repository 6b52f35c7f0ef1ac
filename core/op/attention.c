/* attention: o = softmax(scale q k^T + bias) v per sample, group and head, over the keys that a
 * query sees.
 *
 *   q [B, G, N, h, d]    k [B, G, M, h, d]    v [B, G, M, h, e]    any strides
 *   o [B, G, N, h, e]    in the order of q's strides
 *   len [B] i32             keys at or past len[b] do not exist; a query without keys has o = 0,
 *                           lse = -inf and zero gradients
 *   bias [h, N, M]          added to the scores, equal for all samples and groups; -inf hides a key
 *   lse [B, G, h, N] f32    the log of the sum of exp(scale q k + bias) of a row
 *   scale                   0 means d^-0.5
 *   frame                   tokens per frame: a query sees the keys of its own and of earlier
 *                           frames. 1: causal; 0: a query sees all keys
 *   text                    for text before an image in one sequence: len counts the first `text`
 *                           keys only, and all keys after them exist. 0: len counts all keys
 *   before                  number of keys of the sequence before the first one here; len and text
 *                           count them too
 *
 * Backward, with D = rowsum(do o) - dlse:
 *   p  = exp(scale q k^T + bias - lse)
 *   ds = p (do v^T - D)
 *   dv = p^T do    dq = scale ds k    dk = scale ds^T q    dbias = ds summed over samples, groups
 * If a query sees one key, its weight is 1 whatever its score. D is do v - dlse then, so that the
 * score gets exactly the gradient that comes through dlse. With `part`, o and lse belong to more
 * keys than those of this call: the call computes the gradients of its keys and their share of dq.
 *
 * attention_naive.c computes this in f64. attention_tasks.c chooses the form of the kernel:
 * attention_lanes.c for short sequences, attention_amx.c for bf16 on a processor with AMX,
 * attention_dots.c on one that has fast AVX-512 BF16 but no AMX, attention_tile.c otherwise. No
 * form stores an N x M matrix.
 * Ref: Dao et al. 2022, arXiv:2205.14135. */
#include "op/attention_job.h"

static mr_status check_bias(const mr_desc *q, const mr_desc *k, const mr_desc *bias)
{
    if (bias && (bias->rank != 3 || bias->dim[0] != q->dim[3] || bias->dim[1] != q->dim[2] ||
                 bias->dim[2] != k->dim[2]))
        return mr_fail(MR_E_SHAPE, "expected bias [h, N, M] with h and N of q and M of k");
    return MR_OK;
}

static mr_status check(const mr_infer *c, const mr_desc *bias)
{
    const mr_desc *q = c->in[0], *k = c->in[1], *v = c->in[2], *len = c->in[3];
    const attention_attr *a = c->attr;
    if (q->rank != 5 || k->rank != 5 || v->rank != 5 || q->dim[4] < 1)
        return mr_fail(MR_E_SHAPE,
                       "expected q [B, G, N, h, d], k [B, G, M, h, d] and v [B, G, M, h, e]");
    for (int i = 0; i < 5; i++) {
        if (i != 2 && q->dim[i] != k->dim[i])
            return mr_fail(
                MR_E_SHAPE,
                "expected q [B, G, N, h, d] and k [B, G, M, h, d] with equal B, G, h and d");
        if (i != 4 && k->dim[i] != v->dim[i])
            return mr_fail(
                MR_E_SHAPE,
                "expected k [B, G, M, h, d] and v [B, G, M, h, e] with equal B, G, M and h");
    }
    if (v->dim[4] < 1 || q->dtype != k->dtype || k->dtype != v->dtype)
        return mr_fail(
            MR_E_SHAPE,
            "expected one dtype for q, k and v, and v with at least one element per head");
    if (len && (len->rank != 1 || len->dim[0] != q->dim[0]))
        return mr_fail(MR_E_SHAPE, "expected len [B] with B of q");
    if (a->text > a->before + k->dim[2])
        return mr_fail(MR_E_SHAPE, "text is %lld, but k has %lld keys; expected text no larger",
                       (long long)a->text, (long long)(a->before + k->dim[2]));
    if (a->text && a->frame)
        return mr_fail(MR_E_SHAPE,
                       "text and frame are both set; expected one of them: text has no frames");
    if (a->before && a->frame)
        return mr_fail(MR_E_SHAPE, "before and frame are both set; expected one of them: frames "
                                   "start at the first key of k");
    return check_bias(q, k, bias);
}

// the shape of o and its gradient: that of q, with the width of v
static mr_desc out_desc(const mr_desc *q, const mr_desc *v)
{
    mr_desc o = *q;
    o.dim[4] = v->dim[4];
    mr_desc_dense_like(q, &o);
    return o;
}

static mr_desc lse_desc(const mr_desc *q)
{
    return mr_desc_dense(q->dtype == MR_F64 ? MR_F64 : MR_F32, 4,
                         (const int64_t[]){q->dim[0], q->dim[1], q->dim[3], q->dim[2]});
}

static mr_status infer(mr_infer *c)
{
    MR_TRY(check(c, c->in[4]));
    c->out[0] = out_desc(c->in[0], c->in[2]);
    c->out[1] = lse_desc(c->in[0]);
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

static mr_status grad_infer(mr_infer *c)
{
    const mr_desc *q = c->in[0], *lse = c->in[5], *acc = c->in[9];
    MR_TRY(check(c, c->in[8]));
    mr_desc o = out_desc(q, c->in[2]), rows = lse_desc(q);
    MR_TRY(mr_infer_same(&o, "o of q and v", c->in[4], "o"));
    MR_TRY(mr_infer_same(&o, "o of q and v", c->in[6], "do"));
    MR_TRY(mr_infer_same(&rows, "lse of q", lse, "lse"));
    if (c->in[7])
        MR_TRY(mr_infer_same(lse, "lse", c->in[7], "dlse"));
    if (acc && !c->in[8])
        return mr_fail(MR_E_SHAPE, "acc is given without bias; expected both");
    MR_TRY(check_bias(q, c->in[1], acc));
    for (int i = 0; i < 3; i++) {
        c->out[i] = *c->in[i];
        mr_desc_dense_like(c->in[i], &c->out[i]);
    }
    if (acc)
        c->out[3] = *acc;
    return MR_OK;
}

MR_KERNEL(attention)
{
    attention_forward(call);
    return MR_OK;
}
MR_KERNEL(attention_grad)
{
    attention_backward(call);
    return MR_OK;
}

/* Name the form, for measurements: that of short sequences has a speed of its own. */
static const char *way(const mr_call *c, const mr_facts *facts)
{
    (void)facts;
    return lanes_fit(c, &c->in[4]) ? "lanes" : NULL;
}
static const char *grad_way(const mr_call *c, const mr_facts *facts)
{
    (void)facts;
    return lanes_fit(c, &c->in[8]) ? "lanes" : NULL;
}

#define ATTRS                                                                                      \
    {"scale", MR_ATTR_F64, offsetof(attention_attr, scale),                                        \
     .doc = "factor of the scores; 0: d^-0.5"},                                                    \
        {"frame",                                                                                  \
         MR_ATTR_I64,                                                                              \
         offsetof(attention_attr, frame),                                                          \
         .min = 0,                                                                                 \
         .max = 1 << 30,                                                                           \
         .doc = "tokens of a frame: a query sees no later frame; 1: causal, 0: it sees all"},      \
        {"text",   MR_ATTR_I64,    offsetof(attention_attr, text),                                 \
         .min = 0, .max = 1 << 30, .doc = "keys at the beginning to which len applies; 0: all"},   \
    {                                                                                              \
        "before", MR_ATTR_I64, offsetof(attention_attr, before),                                   \
            .min = 0, .max = 1 << 30,                                                              \
            .doc = "keys before the first one here; len and text count them"                       \
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
    .naive = mr_attention_naive,
    .cpu = {.run = MR_CPU(attention),
            .prepare = mr_attention_prepare,
            .workspace = mr_attention_workspace,
            .way = way},
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
        // several tiles of keys; all but the last are full
        "q=[1,1,70,2,40] bf16 -3..3 k=[1,1,300,2,40] bf16 -3..3 v=[1,1,300,2,40] bf16",
        "q=[1,2,35,1,72] bf16 -3..3 k=[1,2,600,1,72] bf16 -3..3 v=[1,2,600,1,72] bf16",
        // scores beyond the range of exp, in every form; f32 scores of 1000 have an error of 3e-5
        "q=[2,1,9,2,16] f32 -20..20 k=[2,1,9,2,16] f32 -20..20 v=[2,1,9,2,16] f32 scale=1 "
        "rtol=2e-4",
        "q=[2,1,9,2,16] bf16 -20..20 k=[2,1,9,2,16] bf16 -20..20 v=[2,1,9,2,16] bf16 scale=1",
        "q=[1,1,66,2,40] f32 -20..20 k=[1,1,600,2,40] f32 -20..20 v=[1,1,600,2,40] f32 scale=1 "
        "rtol=2e-4",
        "q=[1,1,66,2,40] bf16 -20..20 k=[1,1,600,2,40] bf16 -20..20 v=[1,1,600,2,40] bf16 "
        "scale=1",
        // frames, causal masks, and values of another width, in short and in long sequences
        "q=[2,3,7,2,16] f32 k=[2,3,9,2,16] f32 v=[2,3,9,2,24] f32 frame=2",
        "q=[2,1,8,2,40] bf16 k=[2,1,8,2,40] bf16 v=[2,1,8,2,17] bf16 frame=1",
        "q=[2,1,70,2,24]/any f32 k=[2,1,67,2,24]/any f32 v=[2,1,67,2,40]/any f32 len=[2] i32 1..67 "
        "frame=1",
        "q=[1,1,300,1,24] f32 -3..3 k=[1,1,600,1,24] f32 -3..3 v=[1,1,600,1,24] f32 frame=70",
        "q=[2,1,130,1,40] bf16 k=[2,1,300,1,40] bf16 v=[2,1,300,1,24] bf16 frame=33",
        // text before an image; len tokens of it exist
        "q=[3,1,40,2,24] f32 k=[3,1,50,2,24] f32 v=[3,1,50,2,24] f32 len=[3] i32 0..20 text=20",
        "q=[2,1,70,1,40] bf16 k=[2,1,600,1,40] bf16 v=[2,1,600,1,40] bf16 len=[2] i32 1..299 "
        "text=300",
        // a later part of the keys, in which some, all or none are hidden by len and text
        "q=[3,1,9,2,24] f32 k=[3,1,12,2,24] f32 v=[3,1,12,2,24] f32 len=[3] i32 5..25 before=10",
        "q=[3,1,40,2,24] f32 k=[3,1,50,2,24] f32 v=[3,1,50,2,24] f32 len=[3] i32 20..60 text=50 "
        "before=30",
        "q=[2,1,70,1,40] bf16 k=[2,1,300,1,40] bf16 v=[2,1,300,1,40] bf16 len=[2] i32 1..99 "
        "text=100 before=100",
        // a bias alone and with all other options; one wide head
        "q=[2,2,20,2,16] f32 k=[2,2,23,2,16] f32 v=[2,2,23,2,16] f32 bias=[2,20,23] f32 -2..2",
        "q=[2,1,35,2,24] bf16 k=[2,1,70,2,24] bf16 v=[2,1,70,2,18] bf16 len=[2] i32 0..30 text=30 "
        "bias=[2,35,70] bf16 -2..2",
        "q=[1,1,66,2,24] f32 k=[1,1,300,2,24] f32 v=[1,1,300,2,24] f32 bias=[2,66,300] f32 -9..9 "
        "frame=5",
        "q=[1,1,21,1,512] f32 k=[1,1,70,1,512] f32 v=[1,1,70,1,512] f32 frame=3"),
};
MR_OP(attention_grad) = {
    .name = "attention_grad",
    .doc = "Gradients of attention with respect to q, k and v, from its output and log-sum; adds "
           "the gradient of the bias to acc.",
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
              .doc = "o and lse belong to more keys than these"}},
    .infer = grad_infer,
    .cost = grad_cost,
    .naive = mr_attention_grad_naive,
    .cpu = {.run = MR_CPU(attention_grad),
            .prepare = mr_attention_grad_prepare,
            .workspace = mr_attention_grad_workspace,
            .way = grad_way},
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
        // frames, causal masks, and values of another width
        "q=[2,3,7,2,16] f32 k=[2,3,9,2,16] f32 v=[2,3,9,2,24] f32 o=[2,3,7,2,24] f32 lse=[2,3,2,7] "
        "f32 2..3 do=[2,3,7,2,24] f32 frame=2",
        "q=[2,1,8,2,40] bf16 k=[2,1,8,2,40] bf16 v=[2,1,8,2,17] bf16 o=[2,1,8,2,17] bf16 "
        "lse=[2,1,2,8] f32 2..3 do=[2,1,8,2,17] bf16 frame=1",
        "q=[2,1,70,2,24]/any f32 k=[2,1,67,2,24]/any f32 v=[2,1,67,2,40]/any f32 o=[2,1,70,2,40] "
        "f32 lse=[2,1,2,70] f32 3..4 do=[2,1,70,2,40] f32 len=[2] i32 1..67 frame=1",
        "q=[2,1,130,1,40] bf16 k=[2,1,300,1,40] bf16 v=[2,1,300,1,24] bf16 o=[2,1,130,1,24] bf16 "
        "lse=[2,1,1,130] f32 3..4 do=[2,1,130,1,24] bf16 frame=33",
        // several key ranges, whose shares of dq are added
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
