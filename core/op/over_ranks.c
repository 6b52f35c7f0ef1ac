/* Collectives over the ranks of a group. reduce_scatter and all_gather work in place on one value,
 * gather collects a value from each rank, and total sums a few elements.
 *
 *   x [n], in W equal chunks of which each rank owns one
 *   reduce_scatter   own chunk = its sum over ranks, in their order; others = 0
 *   all_gather       each chunk = that of its owner
 *   gather           x [n] -> y [W n]: each chunk of y = x of its owner, this rank's the `at`-th
 *   total            x [n] f64 -> y [1] f64, the sum of x over its elements, then over ranks
 *
 * `group` is a group number of moonreel/collective.h; 0 means this rank alone, and x does not
 * change. In training graphs they run on the communication queues, where only program steps that
 * read or write the same bytes wait for them.
 * Ref: parallelism 1, 3. Licence: Apache-2.0 */
#include "moonreel/collective.h"
#include "op/define.h"

#include <string.h>

typedef struct attr {
    int64_t group;
} attr;

static mr_status infer(mr_infer *c)
{
    if (c->in[0]->rank != 1)
        return mr_fail(MR_E_SHAPE, "expected x [n]");
    mr_infer_out_like(c, 0, c->in[0]);
    return MR_OK;
}

static void cost(const mr_call *c, mr_cost *cost)
{
    *cost = (mr_cost){0, 2 * (double)mr_desc_span_bytes(&c->in[0].desc)};
}

static mr_status infer_total(mr_infer *c)
{
    MR_TRY(infer(c));
    c->out[0].dim[0] = 1;
    return MR_OK;
}

// one rank
static mr_status naive_total(const mr_call *c)
{
    double sum = 0;
    for (int64_t i = 0; i < c->in[0].desc.dim[0]; i++)
        sum += ((const double *)c->in[0].data)[i];
    *(double *)c->out[0].data = sum;
    return MR_OK;
}
static mr_status naive(const mr_call *c)
{
    if (((const attr *)c->attr)->group)
        return mr_fail(MR_E_UNSUPPORTED,
                       "ranks do not exchange f64 tensors; expected one rank, or f32 or bf16");
    return mr_view_copy(&c->out[0], &c->in[0]);
}

static mr_status run(const mr_call *c, mr_collective what)
{
    const mr_view *x = &c->out[0];
    return mr_collective_run(((const attr *)c->attr)->group, what, x->desc.dtype, x->data,
                             mr_desc_count(&x->desc));
}
MR_KERNEL(reduce_scatter)
{
    return run(call, MR_COLLECTIVE_REDUCE_SCATTER);
}
MR_KERNEL(all_gather)
{
    return run(call, MR_COLLECTIVE_ALL_GATHER);
}
MR_KERNEL(total)
{
    MR_TRY(naive_total(call));
    return run(call, MR_COLLECTIVE_ALL_REDUCE);
}

/* ---- gather ---- */

typedef struct gather_attr {
    int64_t group, ranks, at;
} gather_attr;

static mr_status infer_gather(mr_infer *c)
{
    const gather_attr *a = c->attr;
    MR_TRY(infer(c));
    if (a->at >= a->ranks)
        return mr_fail(MR_E_USAGE, "at is %lld; expected 0 to %lld, the index of a rank",
                       (long long)a->at, (long long)a->ranks - 1);
    c->out[0].dim[0] *= a->ranks;
    return MR_OK;
}

// one rank: copy x to its chunk, and zero all others
static mr_status naive_gather(const mr_call *c)
{
    const gather_attr *a = c->attr;
    const size_t bytes = mr_desc_span_bytes(&c->in[0].desc);
    char *own = (char *)c->out[0].data + (size_t)a->at * bytes;
    memset(c->out[0].data, 0, mr_desc_span_bytes(&c->out[0].desc));
    memcpy(own, c->in[0].data, bytes);
    return MR_OK;
}

MR_KERNEL(gather)
{
    const gather_attr *a = call->attr;
    const size_t bytes = mr_desc_span_bytes(&call->in[0].desc);
    if (!a->group)
        return naive_gather(call);
    MR_TRY(mr_collective_ranks(a->group, a->ranks, a->at));
    memcpy((char *)call->out[0].data + (size_t)a->at * bytes, call->in[0].data, bytes);
    return run(call, MR_COLLECTIVE_ALL_GATHER);
}

#define GROUP                                                                                      \
    {                                                                                              \
        {                                                                                          \
            "group", MR_ATTR_I64, offsetof(attr, group), 0, 0, 1 << 30, false,                     \
                "group number; 0: this rank alone"                                                 \
        }                                                                                          \
    }
#define OVER_RANKS(id, text, types)                                                                \
    MR_OP(id) = {                                                                                  \
        .name = #id,                                                                               \
        .doc = text,                                                                               \
        .in = {{"x", types, MR_CONTIG, MR_NO_GRAD}},                                               \
        .out = {{"x", "like x", 1, true, MR_CONTIG}},                                              \
        .attr = GROUP,                                                                             \
        .infer = infer,                                                                            \
        .cost = cost,                                                                              \
        .naive = naive,                                                                            \
        .cpu = {.run = MR_CPU(id)},                                                                \
        .hidden = true,                                                                            \
        .cases = MR_CASES("x=[1] f32", "x=[4099] f32"),                                            \
    }

OVER_RANKS(reduce_scatter, "The sum over ranks of this rank's chunk; zeros in all other chunks.",
           "[n] f32");
OVER_RANKS(all_gather, "Each chunk from the rank that owns it.", "[n] f32|bf16");

MR_OP(total) = {
    .name = "total",
    .doc = "The sum over elements, then over ranks.",
    .in = {{"x", "[n] f64", MR_CONTIG, MR_NO_GRAD}},
    .out = {{"y", "[1] f64", 0, false, MR_CONTIG}},
    .attr = GROUP,
    .infer = infer_total,
    .naive = naive_total,
    .cpu = {.run = MR_CPU(total)},
    .hidden = true,
    .cases = MR_CASES("x=[1] f64", "x=[5] f64"),
};

MR_OP(gather) = {
    .name = "gather",
    .doc = "The values of all ranks, one after another.",
    .in = {{"x", "[n] f32|bf16", MR_CONTIG, MR_NO_GRAD}},
    .out = {{"y", "[ranks n] like x", 0, false, MR_CONTIG}},
    .attr = {{"group", MR_ATTR_I64, offsetof(gather_attr, group), 0, 0, 1 << 30, false,
              "group number; 0: this rank alone"},
             {"ranks", MR_ATTR_I64, offsetof(gather_attr, ranks), 1, 1, 1 << 20, false,
              "number of ranks"},
             {"at", MR_ATTR_I64, offsetof(gather_attr, at), 0, 0, 1 << 20, false,
              "index of this rank, from 0"}},
    .infer = infer_gather,
    .cost = cost,
    .naive = naive_gather,
    .cpu = {.run = MR_CPU(gather)},
    .hidden = true,
    .cases = MR_CASES("x=[1] f32", "x=[515] bf16 ranks=3 at=1", "x=[64] f32 ranks=2"),
};
