/* all_to_all, gather_shares, shift: send parts of a tensor between ranks. shared: marks a tensor
 * that all ranks have.
 *
 *   all_to_all      x [.., n, .., own m, ..]: all of axis `split`, this rank's share of `join`
 *                   y [.., own n, .., m, ..]: its share of `split`, all of axis `join`
 *   gather_shares   x: this rank's share of axis `axis`      y: all of it
 *   shift           x [.., own, ..]   y [.., length, ..]: x of the rank `hops` before in the circle
 *   shared          y = x, equal on all ranks; each rank computes something else from it
 *
 * share.h defines a share; shares can be uneven or empty. The inverse of an all_to_all swaps its
 * axes; the inverse of a shift has the opposite hops. All ranks must compute the same from gathered
 * shares: the gradient of x is then this rank's share of the gradient of y, and no message is sent.
 * The gradient of a shared x is the sum over ranks of the gradients of y, rounded once: each rank
 * sums its share of `axis`, then the shares are gathered.
 *
 * `group` is a group number of moonreel/collective.h. 0 means this rank alone: nothing is sent, and
 * its share is the whole axis. Every rank of the group runs the node, even with an empty share.
 * Parts are packed and unpacked here, which costs 2 reads and 2 writes in addition to the messages.
 * Ref: parallelism 5, 6. */
#include "moonreel/collective.h"
#include "op/share.h"

#include <string.h>

typedef struct attr {
    int64_t group, ranks, at, split, join, length;
} attr;
// for ops with one axis
typedef struct one_attr {
    int64_t group, ranks, at, axis, length, hops;
} one_attr;

static mr_status check_axis(const mr_desc *x, int64_t axis)
{
    char text[128];
    return axis < x->rank ? MR_OK
                          : mr_fail(MR_E_SHAPE, "x is %s; expected a tensor with axis %lld",
                                    mr_desc_text(x, text, sizeof text), (long long)axis);
}

// check that x has this rank's share of an axis of `length` positions
static mr_status check_share(const mr_desc *x, int64_t axis, int64_t length, int64_t ranks,
                             int64_t at)
{
    char text[128];
    MR_TRY(check_axis(x, axis));
    if (at >= ranks)
        return mr_fail(MR_E_SHAPE, "at is %lld; expected less than ranks, %lld", (long long)at,
                       (long long)ranks);
    if (x->dim[axis] != share_of(length, ranks, at))
        return mr_fail(MR_E_SHAPE,
                       "x is %s; of %lld positions of axis %lld rank %lld of %lld has %lld: "
                       "expected that length",
                       mr_desc_text(x, text, sizeof text), (long long)length, (long long)axis,
                       (long long)at, (long long)ranks, (long long)share_of(length, ranks, at));
    return MR_OK;
}

// bytes that are packed and unpacked, sent and received
static void cost(const mr_call *c, mr_cost *cost)
{
    *cost = (mr_cost){0, 2 * (double)mr_desc_span_bytes(&c->in[0].desc) +
                             2 * (double)mr_desc_span_bytes(&c->out[0].desc)};
}

// one rank
static mr_status naive(const mr_call *c)
{
    if (!mr_desc_same_shape(&c->in[0].desc, &c->out[0].desc))
        return mr_fail(MR_E_UNSUPPORTED,
                       "ranks do not exchange f64 tensors; expected one rank, or f32 or bf16");
    return mr_view_copy(&c->out[0], &c->in[0]);
}

/* ---- parts along an axis ---- */

// bytes of the counts of elements at the start of the workspace
static size_t counts_bytes(int64_t ranks)
{
    return ((size_t)(2 * ranks) * sizeof(int64_t) + 63) / 64 * 64;
}
static size_t dense_bytes(const mr_desc *d)
{
    return ((size_t)mr_desc_count(d) * mr_dtype_bytes(d->dtype) + 63) / 64 * 64;
}

/* Copy between v and `line`, which has the shares of all ranks along an axis of v one after
 * another, each dense. counts[rank] becomes the number of elements. */
static mr_status repack(const mr_view *v, int64_t axis, int64_t ranks, char *line, bool pack,
                        int64_t *counts)
{
    for (int64_t r = 0; r < ranks; r++) {
        const int64_t n = v->desc.dim[axis], first = share_start(n, ranks, r);
        mr_view part, dense;
        int64_t offset = 0;
        MR_TRY(mr_desc_slice(&v->desc, (int)axis, first, first + share_of(n, ranks, r), &part.desc,
                             &offset));
        part.data = (char *)v->data + (size_t)offset * mr_dtype_bytes(v->desc.dtype);
        dense = (mr_view){line, mr_desc_dense(part.desc.dtype, part.desc.rank, part.desc.dim)};
        counts[r] = mr_desc_count(&part.desc);
        if (counts[r])
            MR_TRY(mr_view_copy(pack ? &dense : &part, pack ? &part : &dense));
        line += (size_t)counts[r] * mr_dtype_bytes(v->desc.dtype);
    }
    return MR_OK;
}

/* Compute the same counts without a copy. */
static void count_shares(const mr_desc *d, int64_t axis, int64_t ranks, int64_t *counts)
{
    const int64_t n = d->dim[axis], row = n ? mr_desc_count(d) / n : 0;
    for (int64_t r = 0; r < ranks; r++)
        counts[r] = row * share_of(n, ranks, r);
}

/* ---- all_to_all ---- */

static mr_status infer_all_to_all(mr_infer *c)
{
    const attr *a = c->attr;
    const mr_desc *x = c->in[0];
    MR_TRY(check_share(x, a->join, a->length, a->ranks, a->at));
    MR_TRY(check_axis(x, a->split));
    if (a->split == a->join)
        return mr_fail(MR_E_SHAPE, "split and join are both axis %lld; expected two different axes",
                       (long long)a->join);
    mr_desc y = *x;
    y.dim[a->split] = share_of(x->dim[a->split], a->ranks, a->at);
    y.dim[a->join] = a->length;
    mr_infer_out_like(c, 0, &y);
    return MR_OK;
}

static mr_status grad_all_to_all(mr_grad *g)
{
    const attr *a = g->attr;
    return mr_grad_op(g, "all_to_all",
                      MR_ATTRS({"group", .i = a->group}, {"ranks", .i = a->ranks},
                               {"at", .i = a->at}, {"split", .i = a->join}, {"join", .i = a->split},
                               {"length", .i = mr_grad_desc(g, g->in[0])->dim[a->split]}),
                      &g->dout[0], 1, &g->din[0]);
}

static size_t workspace_all_to_all(const mr_call *c, const mr_facts *facts)
{
    const attr *a = c->attr;
    (void)facts;
    return a->ranks == 1 ? 0
                         : counts_bytes(a->ranks) + dense_bytes(&c->in[0].desc) +
                               dense_bytes(&c->out[0].desc);
}

MR_KERNEL(all_to_all)
{
    const attr *a = call->attr;
    MR_TRY(mr_collective_ranks(a->group, a->ranks, a->at));
    if (a->ranks == 1)
        return naive(call);
    int64_t *sends = call->workspace, *receives = sends + a->ranks;
    char *in = (char *)call->workspace + counts_bytes(a->ranks),
         *out = in + dense_bytes(&call->in[0].desc);
    MR_TRY(repack(&call->in[0], a->split, a->ranks, in, true, sends));
    count_shares(&call->out[0].desc, a->join, a->ranks, receives);
    MR_TRY(mr_collective_exchange(
        a->group, &(mr_exchange){call->in[0].desc.dtype, 0, in, sends, out, receives}));
    return repack(&call->out[0], a->join, a->ranks, out, false, receives);
}

/* ---- gather_shares ---- */

static mr_status infer_gather(mr_infer *c)
{
    const one_attr *a = c->attr;
    MR_TRY(check_share(c->in[0], a->axis, a->length, a->ranks, a->at));
    mr_desc y = *c->in[0];
    y.dim[a->axis] = a->length;
    mr_infer_out_like(c, 0, &y);
    return MR_OK;
}

static mr_status grad_gather(mr_grad *g)
{
    const one_attr *a = g->attr;
    const int64_t first = share_start(a->length, a->ranks, a->at);
    return mr_graph_slice(g->graph, g->dout[0], (int)a->axis, first,
                          first + share_of(a->length, a->ranks, a->at), &g->din[0]);
}

static size_t workspace_gather(const mr_call *c, const mr_facts *facts)
{
    const one_attr *a = c->attr;
    (void)facts;
    return a->ranks == 1 ? 0 : counts_bytes(a->ranks) + dense_bytes(&c->out[0].desc);
}

MR_KERNEL(gather_shares)
{
    const one_attr *a = call->attr;
    MR_TRY(mr_collective_ranks(a->group, a->ranks, a->at));
    if (a->ranks == 1)
        return naive(call);
    int64_t *receives = call->workspace;
    char *out = (char *)call->workspace + counts_bytes(a->ranks);
    count_shares(&call->out[0].desc, a->axis, a->ranks, receives);
    MR_TRY(mr_collective_exchange(a->group, &(mr_exchange){call->in[0].desc.dtype, 0,
                                                           call->in[0].data, NULL, out, receives}));
    return repack(&call->out[0], a->axis, a->ranks, out, false, receives);
}

/* ---- shift ---- */

static mr_status infer_shift(mr_infer *c)
{
    const one_attr *a = c->attr;
    MR_TRY(check_axis(c->in[0], a->axis));
    mr_desc y = *c->in[0];
    y.dim[a->axis] = a->length;
    mr_infer_out_like(c, 0, &y);
    return MR_OK;
}

static mr_status grad_shift(mr_grad *g)
{
    const one_attr *a = g->attr;
    return mr_grad_op(g, "shift",
                      MR_ATTRS({"group", .i = a->group}, {"axis", .i = a->axis},
                               {"length", .i = mr_grad_desc(g, g->in[0])->dim[a->axis]},
                               {"hops", .i = -a->hops}),
                      &g->dout[0], 1, &g->din[0]);
}

static void cost_shift(const mr_call *c, mr_cost *cost)
{
    *cost = (mr_cost){0, (double)mr_desc_span_bytes(&c->in[0].desc) +
                             (double)mr_desc_span_bytes(&c->out[0].desc)};
}

MR_KERNEL(shift)
{
    const one_attr *a = call->attr;
    const mr_view *x = &call->in[0], *y = &call->out[0];
    if (a->hops == 0)
        return naive(call);
    int64_t send = mr_desc_count(&x->desc), receive = mr_desc_count(&y->desc);
    return mr_collective_exchange(
        a->group, &(mr_exchange){x->desc.dtype, (int)a->hops, x->data, &send, y->data, &receive});
}

/* ---- shared ---- */

static mr_status infer_shared(mr_infer *c)
{
    const one_attr *a = c->attr;
    MR_TRY(check_axis(c->in[0], a->axis));
    mr_infer_out_like(c, 0, c->in[0]);
    return MR_OK;
}

/* [1, ..., n, ...] -> [ranks, ..., own n, ...] -> [..., own n, ...] -> [..., n, ...] */
static mr_status grad_shared(mr_grad *g)
{
    const one_attr *a = g->attr;
    const mr_desc x = *mr_grad_desc(g, g->in[0]);
    const mr_ints first = {.n = 1, .v = {0}};
    int64_t dim[MR_MAX_RANK] = {1};
    mr_ref part;
    memcpy(dim + 1, x.dim, sizeof *dim * (size_t)x.rank);
    MR_TRY(mr_graph_reshape(g->graph, g->dout[0], x.rank + 1, dim, &part));
    MR_TRY(mr_grad_op(g, "all_to_all",
                      MR_ATTRS({"group", .i = a->group}, {"ranks", .i = a->ranks},
                               {"at", .i = a->at}, {"split", .i = a->axis + 1}, {"join", .i = 0},
                               {"length", .i = a->ranks}),
                      &part, 1, &part));
    MR_TRY(mr_grad_op(g, "sum", MR_ATTRS({"axes", .ints = &first}), &part, 1, &part));
    return mr_grad_op(g, "gather_shares",
                      MR_ATTRS({"group", .i = a->group}, {"ranks", .i = a->ranks},
                               {"at", .i = a->at}, {"axis", .i = a->axis},
                               {"length", .i = x.dim[a->axis]}),
                      &part, 1, &g->din[0]);
}

MR_KERNEL(shared)
{
    return mr_view_copy(&call->out[0], &call->in[0]);
}

/* ---- definitions ---- */

#define WHOLE(type, field, low, text)                                                              \
    {                                                                                              \
        .name = #field, .kind = MR_ATTR_I64, .at = offsetof(type, field), .def = low, .min = low,  \
        .max = (double)(1ll << 40), .doc = text                                                    \
    }
#define GROUP(type)                                                                                \
    WHOLE(type, group, 0, "group number; 0: this rank alone"),                                     \
        WHOLE(type, ranks, 1, "of the group"),                                                     \
        WHOLE(type, at, 0, "index of this rank in the group")

MR_OP(all_to_all) = {
    .name = "all_to_all",
    .doc = "From all of axis `split` and a share of axis `join` to a share of `split` and all of "
           "`join`.",
    .ref = "Jacobs et al. 2023, arXiv:2309.14509",
    .in = {{"x", "[...] f32|bf16", MR_CONTIG, 0}},
    .out = {{"y", "[...] like x", 0, false, MR_CONTIG}},
    .attr = {GROUP(attr), WHOLE(attr, split, 0, "axis that is split between the ranks"),
             WHOLE(attr, join, 0, "axis along which shares are joined"),
             WHOLE(attr, length, 0, "length of axis `join` over all ranks")},
    .infer = infer_all_to_all,
    .grad = grad_all_to_all,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(all_to_all), .workspace = workspace_all_to_all},
    .hidden = true,
    .cases = MR_CASES("x=[2,3,4] f32 split=2 join=1 length=3",
                      "x=[5,2] bf16 split=0 join=1 length=2"),
};
MR_OP(gather_shares) = {
    .name = "gather_shares",
    .doc = "The shares of all ranks along an axis, in the order of ranks.",
    .in = {{"x", "[...] f32|bf16", MR_CONTIG, 0}},
    .out = {{"y", "[...] like x", 0, false, MR_CONTIG}},
    .attr = {GROUP(one_attr), WHOLE(one_attr, axis, 0, "axis of which ranks have shares"),
             WHOLE(one_attr, length, 0, "length of the axis over all ranks")},
    .infer = infer_gather,
    .grad = grad_gather,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(gather_shares), .workspace = workspace_gather},
    .hidden = true,
    .cases = MR_CASES("x=[2,3,4] f32 axis=1 length=3", "x=[5,2] bf16 axis=0 length=5"),
};
MR_OP(shift) = {
    .name = "shift",
    .doc = "The part of another rank in the ring.",
    .in = {{"x", "[...] f32|bf16", MR_CONTIG, 0}},
    .out = {{"y", "[...] like x", 0, false, MR_CONTIG}},
    .attr = {WHOLE(one_attr, group, 0, "group number; 0: this rank alone"),
             WHOLE(one_attr, axis, 0, "axis along which ranks have parts"),
             WHOLE(one_attr, length, 0, "length of the part that is received"),
             {.name = "hops",
              .kind = MR_ATTR_I64,
              .at = offsetof(one_attr, hops),
              .min = -(1 << 20),
              .max = 1 << 20,
              .doc = "how many ranks before this one in the ring it comes from; negative: after "
                     "this one"}},
    .infer = infer_shift,
    .grad = grad_shift,
    .cost = cost_shift,
    .naive = naive,
    .cpu = {.run = MR_CPU(shift)},
    .hidden = true,
    .cases = MR_CASES("x=[2,3,4] f32 axis=1 length=3", "x=[5] bf16 axis=0 length=5"),
};
MR_OP(shared) = {
    .name = "shared",
    .doc = "The same tensor, which all ranks have; its gradient is the sum over ranks.",
    .ref = "Shoeybi et al. 2019, arXiv:1909.08053, section 3",
    .in = {{"x", "[...] f32|bf16", MR_CONTIG, 0}},
    .out = {{"y", "[...] like x", 0, false, MR_CONTIG}},
    .attr = {GROUP(one_attr), WHOLE(one_attr, axis, 0, "axis whose shares the ranks sum")},
    .infer = infer_shared,
    .grad = grad_shared,
    .cost = cost_shift,
    .naive = naive,
    .cpu = {.run = MR_CPU(shared)},
    .hidden = true,
    .cases = MR_CASES("x=[2,3,4] f32 axis=1", "x=[5,2] bf16 axis=0"),
};
