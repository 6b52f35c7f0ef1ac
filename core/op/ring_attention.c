/* attention_merge, ring_attention: attention to keys that are distributed over several ranks.
 *
 *   o [B, G, N, h, e] f32, lse [B, G, h, N]          of the keys so far
 *   part [B, G, N, h, e] f32|bf16, part_lse          of other keys
 * attention_merge computes o and lse of all these keys:
 *   lse' = log(exp(lse) + exp(part_lse))     o' = exp(lse - lse') o + exp(part_lse - lse') part
 * in f32, relative to the larger of the two, so that nothing overflows. lse = -inf is a row without
 * keys, with o = 0. NaN stays NaN.
 *
 * ring_attention follows the last merge and returns o in the dtype of q. It computes the gradients
 * of q and of this rank's k and v. For that, the blocks of keys and values go around the ring once
 * more. Each rank computes the share of each block by attention_grad, with the final o and lse. dq
 * stays; dk and dv travel with their block and return to its owner. They are added in f32 in the
 * order of visits, which differs by rank but never changes.
 *
 * `mesh` = {group, ranks, at} of the inner ring, then of the outer ring. For each turn of the outer
 * ring, the blocks of a host go around the inner ring. The `length` keys are shared between outer
 * indices first, then between inner ones (share.h). Rank (i, j) visits the block of (a, b) in turn
 * i - a, step j - b. Empty blocks go around like others. `len` and `text` hide keys as in
 * attention.c, counted over all blocks.
 * Ref: parallelism 6; Liu et al. 2023, arXiv:2310.01889. */
#include "cpu/rows.h"
#include "op/share.h"

/* ---- attention_merge ---- */

static mr_status check_lse(const mr_desc *o, const mr_desc *lse, const char *name)
{
    MR_TRY(mr_infer_rank(o, "o", 5));
    if (lse->rank != 4 || lse->dim[0] != o->dim[0] || lse->dim[1] != o->dim[1] ||
        lse->dim[2] != o->dim[3] || lse->dim[3] != o->dim[2])
        return mr_fail(MR_E_SHAPE, "expected %s [B, G, h, N] for o [B, G, N, h, e]", name);
    return MR_OK;
}

static mr_status merge_infer(mr_infer *c)
{
    MR_TRY(check_lse(c->in[0], c->in[1], "lse"));
    MR_TRY(mr_infer_same_shape(c->in[0], "o", c->in[2], "part"));
    MR_TRY(mr_infer_same(c->in[1], "lse", c->in[3], "part_lse"));
    c->out[0] = *c->in[0];
    mr_desc_dense_like(c->in[0], &c->out[0]);
    mr_infer_out_like(c, 1, c->in[1]);
    return MR_OK;
}

static mr_status merge_naive(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    for (int64_t row = 0; row < n[0] * n[1] * n[3] * n[2]; row++) {
        int64_t i = row % n[2], h = row / n[2] % n[3], g = row / n[2] / n[3] % n[1],
                b = row / n[2] / n[3] / n[1];
        double l = *mr_el(&c->in[1], b, g, h, i, 0), m = *mr_el(&c->in[3], b, g, h, i, 0),
               top = l > m || isnan(l) ? l : m;
        double sum = top != -INFINITY ? top + log(exp(l - top) + exp(m - top)) : -INFINITY;
        for (int64_t e = 0; e < n[4]; e++)
            *mr_el(&c->out[0], b, g, i, h, e) =
                sum != -INFINITY ? exp(l - sum) * *mr_el(&c->in[0], b, g, i, h, e) +
                                       exp(m - sum) * *mr_el(&c->in[2], b, g, i, h, e)
                                 : 0;
        *mr_el(&c->out[1], b, g, h, i, 0) = sum;
    }
    return MR_OK;
}

VF_INLINE int64_t row_at(const mr_view *v, int64_t b, int64_t g, int64_t i, int64_t h)
{
    const int64_t *s = v->desc.stride;
    return b * s[0] + g * s[1] + i * s[2] + h * s[3];
}

// merge rows begin .. end of [B, G, h, N]
VF_INLINE void merge_rows(const mr_call *c, int64_t begin, int64_t end, mr_dtype t)
{
    const mr_view *o = &c->in[0], *part = &c->in[2], *out = &c->out[0];
    const int64_t *n = o->desc.dim, so = o->desc.stride[4], sp = part->desc.stride[4],
                  sy = out->desc.stride[4];
    for (int64_t row = begin; row < end; row++) {
        int64_t i = row % n[2], h = row / n[2] % n[3], g = row / n[2] / n[3] % n[1],
                b = row / n[2] / n[3] / n[1];
        float l = ((const float *)c->in[1].data)[row], m = ((const float *)c->in[3].data)[row],
              top = l > m || isnan(l) ? l : m;
        bool any = top != -INFINITY;
        float sum = any ? top + logf(expf(l - top) + expf(m - top)) : -INFINITY;
        vf one = vf_set(any ? expf(l - sum) : 0), other = vf_set(any ? expf(m - sum) : 0);
        ((float *)c->out[1].data)[row] = sum;
        int64_t ao = row_at(o, b, g, i, h), ap = row_at(part, b, g, i, h),
                ay = row_at(out, b, g, i, h);
        for (int64_t e = 0; e < n[4]; e += VF_LANES) {
            int64_t k = MR_MIN(n[4] - e, (int64_t)VF_LANES);
            vf y = vf_fma(one, vf_ldx(o->data, ao + e * so, so, k, MR_F32),
                          other * vf_ldx(part->data, ap + e * sp, sp, k, t));
            vf_stx(out->data, ay + e * sy, sy, y, k, MR_F32);
        }
    }
}

MR_CHUNK(merge_part, merge_rows, 2)

MR_KERNEL(attention_merge)
{
    const int64_t *n = call->in[0].desc.dim;
    mr_cpu_for(n[0] * n[1] * n[3] * n[2], MR_MAX(16384 / MR_MAX(n[4], 1), 1), call->threads,
               merge_part, (void *)call);
    return MR_OK;
}

/* ---- ring_attention ---- */

typedef struct ring_attr {
    double scale;
    int64_t length, text;
    mr_ints mesh;
} ring_attr;

/* One ring of ranks. */
typedef struct circle {
    int64_t group, ranks, at;
    mr_queue queue;
} circle;

static void circles(const ring_attr *a, circle *inner, circle *outer)
{
    const int64_t *m = a->mesh.v;
    *inner = (circle){m[0], m[1], m[2], MR_Q_COMM_INTRA};
    *outer = (circle){m[3], m[4], m[5], MR_Q_COMM_INTER};
}

/* A range of all keys. */
typedef struct block {
    int64_t before, keys;
} block;

// the block of the rank that is `back` ranks before this one in the inner ring, `out` in the outer
// one
static block block_of(const ring_attr *a, int64_t out, int64_t back)
{
    circle inner, outer;
    circles(a, &inner, &outer);
    int64_t node = (outer.at + outer.ranks - out % outer.ranks) % outer.ranks,
            place = (inner.at + inner.ranks - back % inner.ranks) % inner.ranks,
            all = share_of(a->length, outer.ranks, node);
    return (block){share_start(a->length, outer.ranks, node) + share_start(all, inner.ranks, place),
                   share_of(all, inner.ranks, place)};
}
static int64_t block_keys(const ring_attr *a, int64_t out, int64_t back)
{
    return block_of(a, out, back).keys;
}

static mr_status ring_infer(mr_infer *c)
{
    const ring_attr *a = c->attr;
    const mr_desc *q = c->in[0], *k = c->in[1], *v = c->in[2], *o = c->in[3];
    if (a->mesh.n != 6)
        return mr_fail(MR_E_USAGE,
                       "mesh has %lld numbers; expected {group, ranks, at} of the inner ring and "
                       "of the outer one",
                       (long long)a->mesh.n);
    for (int i = 1; i < 6; i += 3)
        if (a->mesh.v[i] < 1 || a->mesh.v[i + 1] < 0 || a->mesh.v[i + 1] >= a->mesh.v[i])
            return mr_fail(MR_E_USAGE,
                           "mesh: at is %lld; expected 0 or more and less than ranks, %lld",
                           (long long)a->mesh.v[i + 1], (long long)a->mesh.v[i]);
    MR_TRY(check_lse(o, c->in[4], "lse"));
    MR_TRY(mr_infer_rank(q, "q", 5));
    MR_TRY(mr_infer_rank(k, "k", 5));
    MR_TRY(mr_infer_rank(v, "v", 5));
    for (int i = 0; i < 4; i++)
        if (o->dim[i] != q->dim[i] || k->dim[i] != v->dim[i] || (i != 2 && q->dim[i] != k->dim[i]))
            return mr_fail(MR_E_SHAPE, "expected q [B, G, N, h, d], k [B, G, n, h, d], v [B, G, n, "
                                       "h, e] and o [B, G, N, h, e]");
    if (q->dim[4] != k->dim[4] || v->dim[4] != o->dim[4] || q->dtype != k->dtype ||
        k->dtype != v->dtype)
        return mr_fail(
            MR_E_SHAPE,
            "expected equal widths of q and k, and of v and o, and one dtype of q, k and v");
    if (c->in[5] && (c->in[5]->rank != 1 || c->in[5]->dim[0] != q->dim[0]))
        return mr_fail(MR_E_SHAPE, "expected len [B] with B of q");
    if (a->text > a->length)
        return mr_fail(MR_E_SHAPE, "text is %lld; expected at most the number of keys, %lld",
                       (long long)a->text, (long long)a->length);
    if (k->dim[2] != block_keys(a, 0, 0))
        return mr_fail(MR_E_SHAPE, "k has %lld keys of %lld; expected this rank's share, %lld",
                       (long long)k->dim[2], (long long)a->length, (long long)block_keys(a, 0, 0));
    c->out[0] = *o;
    c->out[0].dtype = q->dtype;
    mr_desc_dense_like(o, &c->out[0]);
    return MR_OK;
}

static mr_status ring_naive(const mr_call *c)
{
    return mr_view_copy(&c->out[0], &c->in[3]);
}
MR_KERNEL(ring_attention)
{
    return ring_naive(call);
}

// pass *x along a ring; `keys`: those of the block that is received
static mr_status pass(mr_grad *g, const circle *c, int64_t keys, mr_ref *x)
{
    mr_queue before;
    MR_TRY(mr_graph_set_queue(g->graph, c->queue, &before));
    mr_status st = mr_grad_op(g, "shift",
                              MR_ATTRS({"group", .i = c->group}, {"axis", .i = 2},
                                       {"length", .i = keys}, {"hops", .i = 1}),
                              x, 1, x);
    mr_status back = mr_graph_set_queue(g->graph, before, NULL);
    return st != MR_OK ? st : back;
}

// *sum += x, in f32; *sum is MR_NONE at first
static mr_status add(mr_grad *g, mr_ref x, mr_ref *sum)
{
    if (mr_grad_desc(g, x)->dtype == MR_BF16)
        MR_TRY(mr_grad_op(g, "cast", MR_ATTRS({"dtype", .i = MR_F32}), &x, 1, &x));
    if (*sum == MR_NONE)
        *sum = x;
    else
        MR_TRY(mr_grad_op(g, "add", MR_NO_ATTRS, (mr_ref[]){*sum, x}, 2, sum));
    return MR_OK;
}

// add the gradients of the block kv at `at` to dq and dkv; even an empty block, so that every rank
// has the same nodes
static mr_status add_block(mr_grad *g, block at, mr_ref kv, mr_ref *dq, mr_ref *dkv)
{
    const ring_attr *a = g->attr;
    const int64_t text = MR_MIN(a->text, at.before + at.keys);
    const int64_t d = mr_grad_desc(g, g->in[0])->dim[4], all = mr_grad_desc(g, kv)->dim[4];
    mr_ref part[2], out[4], both;
    MR_TRY(mr_graph_slice(g->graph, kv, 4, 0, d, &part[0]));
    MR_TRY(mr_graph_slice(g->graph, kv, 4, d, all, &part[1]));
    MR_TRY(mr_grad_op(
        g, "attention_grad",
        MR_ATTRS({"scale", .f = a->scale}, {"part", .i = true}, {"text", .i = text},
                 {"before", .i = at.before}),
        (mr_ref[]){g->in[0], part[0], part[1], g->in[5], g->out[0], g->in[4], g->dout[0]}, 7, out));
    MR_TRY(add(g, out[0], dq));
    MR_TRY(mr_graph_concat(g->graph, &out[1], 2, 4, &both));
    return add(g, both, dkv);
}

static mr_status ring_grad(mr_grad *g)
{
    const ring_attr *a = g->attr;
    circle inner, outer;
    circles(a, &inner, &outer);
    mr_ref node, dnode = MR_NONE, dq = MR_NONE;
    MR_TRY(mr_graph_concat(g->graph, &g->in[1], 2, 4, &node));
    for (int64_t turn = 0; turn < outer.ranks; turn++) {
        mr_ref kv = node, dkv = dnode, next = kv;
        // the block of the next host travels while those of this host go around
        if (turn + 1 < outer.ranks)
            MR_TRY(pass(g, &outer, block_keys(a, turn + 1, 0), &node));
        for (int64_t step = 0; step < inner.ranks; step++, kv = next) {
            if (step + 1 < inner.ranks)
                MR_TRY(pass(g, &inner, block_keys(a, turn, step + 1), &next));
            MR_TRY(add_block(g, block_of(a, turn, step), kv, &dq, &dkv));
            if (inner.ranks > 1)
                MR_TRY(pass(g, &inner, block_keys(a, turn, step + 1), &dkv));
        }
        if (outer.ranks > 1)
            MR_TRY(pass(g, &outer, block_keys(a, turn + 1, 0), &dkv));
        dnode = dkv;
    }
    const int64_t d = mr_grad_desc(g, g->in[0])->dim[4];
    g->din[0] = dq;
    MR_TRY(mr_graph_slice(g->graph, dnode, 4, 0, d, &g->din[1]));
    return mr_graph_slice(g->graph, dnode, 4, d, mr_grad_desc(g, dnode)->dim[4], &g->din[2]);
}

MR_OP(attention_merge) = {
    .name = "attention_merge",
    .doc = "Merge attention to some keys with attention to others.",
    .ref = "Liu et al. 2023, arXiv:2310.01889",
    .in = {{"o", "[B, G, N, h, e] f32", MR_ANY, MR_NO_GRAD},
           {"lse", "[B, G, h, N] f32", MR_CONTIG, MR_NO_GRAD},
           {"part", "[B, G, N, h, e] f32|bf16", MR_ANY, MR_NO_GRAD},
           {"part_lse", "[B, G, h, N] f32", MR_CONTIG, MR_NO_GRAD}},
    .out = {{"o", "like o", 1, false, MR_ANY}, {"lse", "like lse", 2, false, MR_CONTIG}},
    .infer = merge_infer,
    .naive = merge_naive,
    .cpu = {.run = MR_CPU(attention_merge)},
    .hidden = true,
    .cases = MR_CASES("o=[2,3,5,2,16] f32 lse=[2,3,2,5] f32 -2..2 part=[2,3,5,2,16] f32 "
                      "part_lse=[2,3,2,5] f32 -2..2",
                      "o=[2,1,7,3,19]/any f32 lse=[2,1,3,7] f32 5..9 part=[2,1,7,3,19]/any bf16 "
                      "part_lse=[2,1,3,7] f32 5..9",
                      // differences beyond the range of exp
                      "o=[1,2,40,1,72] f32 lse=[1,2,1,40] f32 -300..300 part=[1,2,40,1,72] f32 "
                      "part_lse=[1,2,1,40] f32 -300..300 rtol=1e-4",
                      // one side without keys, and both
                      "o=[1,1,3,2,5] f32 lse=[1,1,2,3] f32 -inf..-inf part=[1,1,3,2,5] f32 "
                      "part_lse=[1,1,2,3] f32",
                      "o=[1,1,3,2,5] f32 lse=[1,1,2,3] f32 -inf..-inf part=[1,1,3,2,5] f32 "
                      "part_lse=[1,1,2,3] f32 -inf..-inf",
                      // sums of values without elements
                      "o=[1,1,3,2,0] f32 lse=[1,1,2,3] f32 part=[1,1,3,2,0] f32 "
                      "part_lse=[1,1,2,3] f32",
                      // NaN on either side
                      "o=[1,1,3,2,5] f32 lse=[1,1,2,3] f32 nan..nan part=[1,1,3,2,5] f32 "
                      "part_lse=[1,1,2,3] f32",
                      "o=[1,1,3,2,5] f32 lse=[1,1,2,3] f32 part=[1,1,3,2,5] f32 "
                      "part_lse=[1,1,2,3] f32 nan..nan",
                      "o=[1,1,3,2,5] f32 lse=[1,1,2,3] f32 nan..nan part=[1,1,3,2,5] f32 "
                      "part_lse=[1,1,2,3] f32 -inf..-inf"),
};
MR_OP(ring_attention) = {
    .name = "ring_attention",
    .doc = "Attention to the keys of all ranks, after the merges; its gradient passes keys around "
           "the ring.",
    .ref = "Liu et al. 2023, arXiv:2310.01889",
    .in = {{"q", "[B, G, N, h, d] f32|bf16", MR_ANY, 0},
           {"k", "[B, G, n, h, d] like q", MR_ANY, 0},
           {"v", "[B, G, n, h, e] like q", MR_ANY, 0},
           {"o", "[B, G, N, h, e] f32", MR_ANY, MR_NO_GRAD},
           {"lse", "[B, G, h, N] f32", MR_CONTIG, MR_NO_GRAD},
           {"len", "[B] i32", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD}},
    .out = {{"y", "[B, G, N, h, e] like q", 0, false, MR_ANY}},
    .attr = {{"scale", MR_ATTR_F64, offsetof(ring_attr, scale),
              .doc = "factor of the scores; 0: d^-0.5"},
             {"length", MR_ATTR_I64, offsetof(ring_attr, length), .min = 0, .max = 1ll << 40,
              .required = true, .doc = "number of keys of all ranks"},
             {"text", MR_ATTR_I64, offsetof(ring_attr, text), .min = 0, .max = 1 << 30,
              .doc = "keys at the beginning to which len applies; 0: all"},
             {"mesh", MR_ATTR_INTS, offsetof(ring_attr, mesh),
              .doc = "{group, ranks, at} of the inner ring, then of the outer one"}},
    .infer = ring_infer,
    .grad = ring_grad,
    .naive = ring_naive,
    .cpu = {.run = MR_CPU(ring_attention)},
    .hidden = true,
    .cases = MR_CASES("q=[2,1,5,2,16] f32 k=[2,1,5,2,16] f32 v=[2,1,5,2,16] f32 o=[2,1,5,2,16] f32 "
                      "lse=[2,1,2,5] f32 length=5 mesh={0,1,0,0,1,0} grad=elsewhere",
                      "q=[1,2,9,1,24] bf16 k=[1,2,4,1,24] bf16 v=[1,2,4,1,17] bf16 "
                      "o=[1,2,9,1,17]/any f32 lse=[1,2,1,9] f32 length=7 mesh={0,2,0,0,1,0} "
                      "grad=elsewhere"),
};
