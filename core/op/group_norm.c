/* group_norm: y = f((x - mean) rstd w + b), mean and rstd = 1 / sqrt(var + eps) over all positions
 * of a sample and the channels of one group; f is the identity or SiLU. Channels come last.
 *
 *   x [B, ..., C]   w, b [C]   y like x   stats [B, groups, 2] f32: mean, rstd
 *   moments [B, groups, 3] f32: mean, sum of squares around it, number of elements
 *
 * A sample in several parts is normalised in two passes. First group_moments combines the moments
 * of each part with those of the parts before; then group_norm_by normalises each part by the
 * moments of all.
 *
 * Backward, with n = (x - mean) rstd and g = dy f'(n w + b), sums over the N elements of a group:
 *   dx = rstd (g w - (sum(g w) - dmean / rstd) / N - n (sum(g w n) + drstd rstd) / N)
 *   dw += sum of g n    db += sum of g
 *
 * Statistics are computed in pieces that fit the cache, first the mean, then the squares around it,
 * and combined in double by Chan's formula. The shape alone determines the pieces, and they are
 * combined in order, so the bits do not depend on the number of threads. Reads and writes 3
 * elements per element forward, 5 backward. Licence: Apache-2.0 */
#include "op/group_norm.h"

static mr_status check_groups(const group_attr *a, const mr_desc *x)
{
    char text[128];
    if (x->rank < 2)
        return mr_fail(MR_E_SHAPE, "x is %s, expected [B, ..., C]",
                       mr_desc_text(x, text, sizeof text));
    int64_t channels = x->dim[x->rank - 1];
    if (channels % a->groups)
        return mr_fail(
            MR_E_SHAPE,
            "x is %s, expected a number of channels (%lld) that is a multiple of groups, %lld",
            mr_desc_text(x, text, sizeof text), (long long)channels, (long long)a->groups);
    return MR_OK;
}

static mr_status check(const group_attr *a, const mr_desc *x, const mr_desc *w, const mr_desc *b)
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

static mr_desc stats_desc(const group_attr *a, const mr_desc *x)
{
    int64_t dim[] = {x->dim[0], a->groups, 2};
    return mr_desc_dense(x->dtype == MR_F64 ? MR_F64 : MR_F32, 3, dim);
}

static mr_status infer(mr_infer *c)
{
    MR_TRY(check(c->attr, c->in[0], c->in[1], c->in[2]));
    mr_infer_out_like(c, 0, c->in[0]);
    c->out[1] = stats_desc(c->attr, c->in[0]);
    return MR_OK;
}

static mr_status grad_infer(mr_infer *c)
{
    char text[128];
    const mr_desc *x = c->in[0];
    MR_TRY(check(c->attr, x, c->in[1], c->in[2]));
    mr_desc stats = stats_desc(c->attr, x);
    MR_TRY(mr_infer_same_shape(&stats, "the shape for x", c->in[3], "stats"));
    MR_TRY(mr_infer_same(x, "x", c->in[4], "dy"));
    if (c->in[5])
        MR_TRY(mr_infer_same_shape(c->in[3], "stats", c->in[5], "dstats"));
    for (int i = 6; i < 8; i++)
        if (c->in[i] && (c->in[i]->rank != 1 || c->in[i]->dim[0] != x->dim[x->rank - 1]))
            return mr_fail(MR_E_SHAPE, "%s is %s, expected [%lld]", i == 6 ? "dw" : "db",
                           mr_desc_text(c->in[i], text, sizeof text),
                           (long long)x->dim[x->rank - 1]);
    mr_infer_out_like(c, 0, x);
    for (int i = 6; i < 8; i++)
        if (c->in[i])
            mr_infer_out_like(c, i - 5, c->in[i]);
    return MR_OK;
}

static mr_desc moments_desc(const group_attr *a, const mr_desc *x)
{
    int64_t dim[] = {x->dim[0], a->groups, 3};
    return mr_desc_dense(x->dtype == MR_F64 ? MR_F64 : MR_F32, 3, dim);
}

static mr_status moments_infer(mr_infer *c)
{
    MR_TRY(check_groups(c->attr, c->in[0]));
    c->out[0] = moments_desc(c->attr, c->in[0]);
    if (c->in[1])
        MR_TRY(mr_infer_same_shape(&c->out[0], "the shape for x", c->in[1], "before"));
    return MR_OK;
}

static mr_status by_infer(mr_infer *c)
{
    MR_TRY(check(c->attr, c->in[0], c->in[1], c->in[2]));
    mr_desc moments = moments_desc(c->attr, c->in[0]);
    MR_TRY(mr_infer_same_shape(&moments, "the shape for x", c->in[3], "moments"));
    mr_infer_out_like(c, 0, c->in[0]);
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    const group_attr *a = g->attr;
    mr_ref acc[2] = {MR_NONE, MR_NONE}, out[3], dy = g->dout[0];
    const mr_desc *x = mr_grad_desc(g, g->in[0]);
    // y is not used: only the statistics have a gradient
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
    const group_attr *a = c->attr;
    *cost = mr_norm_cost(c, a->silu ? 28 : 8, 3);
}
static void by_cost(const mr_call *c, mr_cost *cost)
{
    const group_attr *a = c->attr;
    *cost = mr_norm_cost(c, a->silu ? 24 : 4, 2);
}
static void moments_cost(const mr_call *c, mr_cost *cost)
{
    *cost = mr_norm_cost(c, 4, 1);
}
static void grad_cost(const mr_call *c, mr_cost *cost)
{
    const group_attr *a = c->attr;
    *cost = mr_norm_cost(c, a->silu ? 54 : 14, 5);
}

static size_t workspace(const mr_call *c, const mr_facts *facts)
{
    group_shape s = group_shape_of(c, false);
    return group_room_of(&s, false, facts->threads, NULL).bytes;
}
static size_t grad_workspace(const mr_call *c, const mr_facts *facts)
{
    group_shape s = group_shape_of(c, true);
    return group_room_of(&s, true, facts->threads, NULL).bytes;
}

#define GROUPS                                                                                     \
    {                                                                                              \
        "groups", MR_ATTR_I64, offsetof(group_attr, groups), .def = 32, .min = 1, .max = 65536,    \
                                                             .doc = "number of groups of channels" \
    }
#define NORM_ATTRS                                                                                 \
    GROUPS, {"eps",    MR_ATTR_F64, offsetof(group_attr, eps),     .def = 1e-6,                    \
             .min = 0, .max = 1,    .doc = "added to the variance"},                               \
    {                                                                                              \
        "silu", MR_ATTR_BOOL, offsetof(group_attr, silu), .doc = "apply SiLU to the result"        \
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
    .naive = mr_group_norm_naive,
    .cpu = {.run = MR_CPU(group_norm), .workspace = workspace},
    .cases = MR_CASES("x=[2,5,7,8] f32 w=[8] f32 b=[8] f32 groups=4",
                      "x=[1,3,300,33] f32 2..3 w=[33] f32 b=[33] f32 groups=11 eps=1e-5 silu=1",
                      "x=[3,900,40] bf16 w=[40] bf16 b=[40] bf16 groups=2 silu=1",
                      "x=[2,1,64] f32 -0.005..0.005 w=[64] f32 b=[64] f32 groups=32",
                      "x=[1,2,2,600] f32 w=[600] f32 b=[600] f32 groups=1 silu=1",
                      // no positions, no channels, no samples
                      "x=[2,0,8] f32 w=[8] f32 b=[8] f32 groups=2 eps=1e-4",
                      "x=[3,5,0] bf16 w=[0] bf16 b=[0] bf16 groups=2",
                      "x=[0,5,8] f32 w=[8] f32 b=[8] f32 groups=2"),
};
MR_OP(group_moments) = {
    .name = "group_moments",
    .doc = "Moments of groups of channels: mean, sum of squares around it, and count, over all "
           "positions of a sample, combined with the moments `before`.",
    .ref = "Chan, Golub & LeVeque 1979",
    .in = {{"x", "[B, ..., C] f32|bf16", MR_CONTIG, 0},
           {"before", "[B, groups, 3] f32", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"moments", "[B, groups, 3] f32", 0, false, MR_CONTIG}},
    .attr = {GROUPS},
    .infer = moments_infer,
    .cost = moments_cost,
    .naive = mr_group_moments_naive,
    .cpu = {.run = MR_CPU(group_moments), .workspace = workspace},
    .cases = MR_CASES("x=[2,5,7,8] f32 groups=4",
                      "x=[2,3,300,33] f32 2..3 before=[2,11,3] f32 2..4 groups=11",
                      "x=[3,900,40] bf16 before=[3,2,3] f32 1..9 groups=2",
                      "x=[2,0,8] f32 before=[2,2,3] f32 1..3 groups=2"),
};
MR_OP(group_norm_by) = {
    .name = "group_norm_by",
    .doc = "Normalise groups of channels by the given moments, scale, shift, then SiLU.",
    .ref = "Wu & He 2018, arXiv:1803.08494",
    .in = {{"x", "[B, ..., C] f32|bf16", MR_CONTIG, 0},
           {"w", "[C] like x", MR_CONTIG, 0},
           {"b", "[C] like x", MR_CONTIG, 0},
           {"moments", "[B, groups, 3] f32", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_ROWS}},
    .attr = {NORM_ATTRS},
    .infer = by_infer,
    .cost = by_cost,
    .naive = mr_group_norm_by_naive,
    .cpu = {.run = MR_CPU(group_norm_by), .workspace = workspace},
    .cases = MR_CASES(
        "x=[2,5,7,8] f32 w=[8] f32 b=[8] f32 moments=[2,4,3] f32 1..3 groups=4",
        "x=[1,3,300,33] f32 2..3 w=[33] f32 b=[33] f32 moments=[1,11,3] f32 1..9 groups=11 silu=1",
        "x=[3,900,40] bf16 w=[40] bf16 b=[40] bf16 moments=[3,2,3] f32 1..2 groups=2 silu=1",
        "x=[2,0,8] f32 w=[8] f32 b=[8] f32 moments=[2,2,3] f32 1..2 groups=2"),
};
MR_OP(group_norm_grad) = {
    .name = "group_norm_grad",
    .doc = "Gradient of group_norm with respect to x; adds the gradients of w and b to dw and db.",
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
    .naive = mr_group_norm_grad_naive,
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
