/* conv3d: convolution of channels-last volumes, y[b, p, o] = bias[o] + sum over taps k and channels
 * c of w[o, c, k] x[b, p * stride - before + k, c], and its gradients with respect to x and w. The
 * gradient of the bias is linear_db.
 *
 *   x [B, T, H, W, C]     w [O, C / groups, kt, kh, kw]     y [B, T', H', W', O]
 *
 * `pad` is the number of zeros before and behind time, height and width; with `edge` the padding
 * repeats the nearest position. A causal convolution has pad = {kt - 1, 0, ...}, a 2-D convolution
 * kt = 1. T' = (T + before + behind - kt) / stride + 1.
 *
 * cpu/conv.h chooses the algorithm. None of its algorithms supports `edge`, which the naive kernel
 * computes. So layers on a CPU add copies of the edges around x, and the op that computes x writes
 * between them (nn/volume.lua).
 * Licence: Apache-2.0 */
#include "cpu/conv.h"
#include "op/define.h"

typedef struct attr {
    mr_ints stride, pad, dims;
    int64_t groups;
    bool edge;
} attr;

/* ---- shapes ---- */

static mr_status check_list(const char *name, const mr_ints *list, int64_t n, int64_t least)
{
    if (list->n != 0 && list->n != n)
        return mr_fail(MR_E_USAGE, "%s has %lld entries, expected %lld: %s", name,
                       (long long)list->n, (long long)n,
                       n == 3 ? "time, height, width" : "before and behind of time, height, width");
    for (int64_t i = 0; i < list->n; i++)
        if (list->v[i] < least || list->v[i] > 1 << 20)
            return mr_fail(MR_E_USAGE, "%s: entry %lld is %lld, expected %lld to %d", name,
                           (long long)i, (long long)list->v[i], (long long)least, 1 << 20);
    return MR_OK;
}

/* Compute the geometry of a convolution of x by w; out[] are the lengths of y. */
static mr_status spec_of(const attr *a, const mr_desc *x, const mr_desc *w, mr_conv_spec *s)
{
    char tx[128], tw[128];
    MR_TRY(check_list("stride", &a->stride, 3, 1));
    MR_TRY(check_list("pad", &a->pad, 6, 0));
    MR_TRY(mr_infer_rank(x, "x", 5));
    MR_TRY(mr_infer_rank(w, "w", 5));
    if (w->dim[0] % a->groups || w->dim[1] * a->groups != x->dim[4])
        return mr_fail(
            MR_E_SHAPE,
            "x is %s, w is %s; expected w [O, C / groups, ...] with C the last dimension "
            "of x, %lld groups, and O a multiple of them",
            mr_desc_text(x, tx, sizeof tx), mr_desc_text(w, tw, sizeof tw), (long long)a->groups);
    *s = (mr_conv_spec){.batch = x->dim[0],
                        .channels = x->dim[4],
                        .filters = w->dim[0],
                        .groups = a->groups,
                        .type = x->dtype};
    for (int i = 0; i < 3; i++) {
        s->in[i] = x->dim[1 + i], s->kernel[i] = w->dim[2 + i];
        s->stride[i] = a->stride.n ? a->stride.v[i] : 1;
        s->before[i] = a->pad.n ? a->pad.v[2 * i] : 0;
        s->after[i] = a->pad.n ? a->pad.v[2 * i + 1] : 0;
        int64_t length = s->in[i] + s->before[i] + s->after[i];
        if (s->kernel[i] < 1 || length < s->kernel[i])
            return mr_fail(MR_E_SHAPE,
                           "x is %s with %lld and %lld positions of padding, w is %s; expected a "
                           "kernel no longer than the padded axis %d",
                           mr_desc_text(x, tx, sizeof tx), (long long)s->before[i],
                           (long long)s->after[i], mr_desc_text(w, tw, sizeof tw), i);
        s->out[i] = (length - s->kernel[i]) / s->stride[i] + 1;
        if (a->edge && s->in[i] == 0)
            return mr_fail(
                MR_E_SHAPE,
                "x is %s; expected at least one position on axis %d, since edge repeats it",
                mr_desc_text(x, tx, sizeof tx), i + 1);
    }
    return MR_OK;
}

static void dims_of_y(const mr_conv_spec *s, int64_t *dim)
{
    dim[0] = s->batch, dim[4] = s->filters;
    memcpy(dim + 1, s->out, sizeof s->out);
}

static mr_status infer(mr_infer *c)
{
    char text[128];
    mr_conv_spec s;
    int64_t dim[5];
    MR_TRY(spec_of(c->attr, c->in[0], c->in[1], &s));
    if (c->in[2] && (c->in[2]->rank != 1 || c->in[2]->dim[0] != s.filters))
        return mr_fail(MR_E_SHAPE, "bias is %s, expected [%lld]",
                       mr_desc_text(c->in[2], text, sizeof text), (long long)s.filters);
    dims_of_y(&s, dim);
    mr_infer_out(c, 0, c->in[0]->dtype, 5, dim);
    return MR_OK;
}

static mr_status check_dy(const mr_conv_spec *s, const mr_desc *dy)
{
    char text[128], expected[128];
    int64_t dim[5];
    dims_of_y(s, dim);
    mr_desc y = mr_desc_dense(s->type, 5, dim);
    if (mr_desc_same_shape(dy, &y))
        return MR_OK;
    return mr_fail(MR_E_SHAPE, "dy is %s, expected %s", mr_desc_text(dy, text, sizeof text),
                   mr_desc_text(&y, expected, sizeof expected));
}

/* The shape of the gradient of x. Its lengths are an attribute: with strides, dy does not determine
 * them. */
static mr_desc desc_of_x(const attr *a, const mr_desc *dy, const mr_desc *w)
{
    int64_t dim[5] = {dy->dim[0], a->dims.v[0], a->dims.v[1], a->dims.v[2], w->dim[1] * a->groups};
    return mr_desc_dense(dy->dtype, 5, dim);
}

static mr_status dx_infer(mr_infer *c)
{
    const attr *a = c->attr;
    mr_conv_spec s;
    MR_TRY(check_list("dims", &a->dims, 3, 0));
    MR_TRY(mr_infer_rank(c->in[0], "dy", 5));
    MR_TRY(mr_infer_rank(c->in[1], "w", 5));
    mr_desc x = desc_of_x(a, c->in[0], c->in[1]);
    MR_TRY(spec_of(a, &x, c->in[1], &s));
    MR_TRY(check_dy(&s, c->in[0]));
    mr_infer_out_like(c, 0, &x);
    return MR_OK;
}

static mr_status dw_infer(mr_infer *c)
{
    mr_conv_spec s;
    MR_TRY(spec_of(c->attr, c->in[1], c->in[2], &s));
    MR_TRY(check_dy(&s, c->in[0]));
    mr_infer_out_like(c, 0, c->in[2]);
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    const attr *a = g->attr;
    const mr_desc *x = mr_grad_desc(g, g->in[0]);
    mr_ints dims = {3, {x->dim[1], x->dim[2], x->dim[3]}};
    const mr_attr list[] = {{"stride", .ints = &a->stride},
                            {"pad", .ints = &a->pad},
                            {"groups", .i = a->groups},
                            {"edge", .i = a->edge},
                            {"dims", .ints = &dims}};
    mr_ref acc;
    if (g->need[0])
        MR_TRY(
            mr_grad_op(g, "conv3d_dx", list, 5, (mr_ref[]){g->dout[0], g->in[1]}, 2, &g->din[0]));
    if (g->need[1]) {
        MR_TRY(mr_grad_acc(g, 1, &acc));
        MR_TRY(mr_grad_op(g, "conv3d_dw", list, 4, (mr_ref[]){g->dout[0], g->in[0], acc}, 3,
                          &g->din[1]));
    }
    if (g->need[2]) {
        MR_TRY(mr_grad_acc(g, 2, &acc));
        MR_TRY(mr_grad_node(g, 2, "linear_db", g->dout[0], acc));
    }
    return MR_OK;
}

/* ---- the geometry of a call that infer has checked ---- */

static mr_conv_spec forward_spec(const mr_call *c)
{
    mr_conv_spec s;
    spec_of(c->attr, &c->in[0].desc, &c->in[1].desc, &s);
    s.kind = MR_CONV_FORWARD, s.bias = c->in[2].desc.rank >= 0;
    return s;
}
static mr_conv_spec dx_spec(const mr_call *c)
{
    mr_conv_spec s;
    spec_of(c->attr, &c->out[0].desc, &c->in[1].desc, &s);
    s.kind = MR_CONV_DATA;
    return s;
}
static mr_conv_spec dw_spec(const mr_call *c)
{
    mr_conv_spec s;
    spec_of(c->attr, &c->in[1].desc, &c->in[2].desc, &s);
    s.kind = MR_CONV_WEIGHTS;
    return s;
}

static bool has_edge(const mr_call *c)
{
    const attr *a = c->attr;
    return a->edge;
}

/* ---- reference ---- */

typedef void visit_fn(void *user, int64_t x, int64_t w, int64_t y);

/* Call `at` for every product of the sum, with the indices of its elements of x, w and y. */
static void visit(const mr_conv_spec *s, bool edge, visit_fn *at, void *user)
{
    int64_t c_group = s->channels / s->groups, o_group = s->filters / s->groups;
    int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    int64_t positions = s->out[0] * s->out[1] * s->out[2];
    for (int64_t p = 0; p < s->batch * positions; p++)
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t from[3], rest = p % positions, k = tap;
            bool inside = true;
            for (int i = 2; i >= 0; i--) {
                from[i] = rest % s->out[i] * s->stride[i] - s->before[i] + k % s->kernel[i];
                rest /= s->out[i], k /= s->kernel[i];
                if (edge)
                    from[i] = MR_MIN(MR_MAX(from[i], 0), s->in[i] - 1);
                inside &= from[i] >= 0 && from[i] < s->in[i];
            }
            if (!inside)
                continue;
            int64_t cell =
                ((p / positions * s->in[0] + from[0]) * s->in[1] + from[1]) * s->in[2] + from[2];
            for (int64_t o = 0; o < s->filters; o++)
                for (int64_t c = 0; c < c_group; c++)
                    at(user, cell * s->channels + o / o_group * c_group + c,
                       (o * c_group + c) * taps + tap, p * s->filters + o);
        }
}

typedef struct naive_operands {
    const double *x, *w, *y;
    double *out;
} naive_operands;

static void visit_y(void *user, int64_t x, int64_t w, int64_t y)
{
    naive_operands *t = user;
    t->out[y] += t->x[x] * t->w[w];
}
static void visit_x(void *user, int64_t x, int64_t w, int64_t y)
{
    naive_operands *t = user;
    t->out[x] += t->y[y] * t->w[w];
}
static void visit_w(void *user, int64_t x, int64_t w, int64_t y)
{
    naive_operands *t = user;
    t->out[w] += t->x[x] * t->y[y];
}

static mr_status naive(const mr_call *c)
{
    mr_conv_spec s = forward_spec(c);
    naive_operands t = {.x = c->in[0].data, .w = c->in[1].data, .out = c->out[0].data};
    const double *bias = c->in[2].data;
    for (int64_t i = 0, n = mr_desc_count(&c->out[0].desc); i < n; i++)
        t.out[i] = bias ? bias[i % s.filters] : 0;
    visit(&s, has_edge(c), visit_y, &t);
    return MR_OK;
}
static mr_status dx_naive(const mr_call *c)
{
    mr_conv_spec s = dx_spec(c);
    naive_operands t = {.y = c->in[0].data, .w = c->in[1].data, .out = c->out[0].data};
    memset(t.out, 0, (size_t)mr_desc_count(&c->out[0].desc) * sizeof *t.out);
    visit(&s, has_edge(c), visit_x, &t);
    return MR_OK;
}
static mr_status dw_naive(const mr_call *c)
{
    mr_conv_spec s = dw_spec(c);
    naive_operands t = {.y = c->in[0].data, .x = c->in[1].data, .out = c->out[0].data};
    memcpy(t.out, c->in[2].data, (size_t)mr_desc_count(&c->out[0].desc) * sizeof *t.out);
    visit(&s, has_edge(c), visit_w, &t);
    return MR_OK;
}

/* ---- cost, kernels ---- */

static double flop_of(mr_conv_spec s)
{
    return 2.0 * (double)(s.batch * s.out[0] * s.out[1] * s.out[2]) * (double)s.filters *
           (double)(s.channels / s.groups * s.kernel[0] * s.kernel[1] * s.kernel[2]);
}

#define CONV_KERNEL(id, of, x, w, b, y)                                                            \
    static mr_status id##_prepare(const mr_call *c, const mr_facts *facts, void **state)           \
    {                                                                                              \
        mr_conv_spec s = of(c);                                                                    \
        return mr_conv_new(&s, facts, (mr_conv **)state);                                          \
    }                                                                                              \
    static size_t id##_workspace(const mr_call *c, const mr_facts *facts)                          \
    {                                                                                              \
        mr_conv_spec s = of(c);                                                                    \
        return has_edge(c) ? MR_NO_KERNEL : mr_conv_workspace(&s, facts);                          \
    }                                                                                              \
    static const char *id##_way(const mr_call *c, const mr_facts *facts)                           \
    {                                                                                              \
        mr_conv_spec s = of(c);                                                                    \
        return mr_conv_way(&s, facts);                                                             \
    }                                                                                              \
    static void id##_cost(const mr_call *c, mr_cost *cost)                                         \
    {                                                                                              \
        cost->flop = flop_of(of(c));                                                               \
    }                                                                                              \
    MR_KERNEL(id)                                                                                  \
    {                                                                                              \
        return mr_conv_run(call->state, x, w, b, y, call->out[0].data, call->workspace);           \
    }
CONV_KERNEL(conv3d, forward_spec, call->in[0].data, call->in[1].data, call->in[2].data, NULL)
CONV_KERNEL(conv3d_dx, dx_spec, NULL, call->in[1].data, NULL, call->in[0].data)
CONV_KERNEL(conv3d_dw, dw_spec, call->in[1].data, NULL, NULL, call->in[0].data)

static void release(void *state)
{
    mr_conv_free(state);
}

#define LIST(field, text)                                                                          \
    {                                                                                              \
#field, MR_ATTR_INTS, offsetof(attr, field), .doc = text                                   \
    }
#define CONV_ATTRS                                                                                 \
    LIST(stride, "positions between outputs: time, height, width; default 1"),                     \
        LIST(pad, "positions of padding before and behind time, height and width; default 0"),     \
        {"groups",                                                                                 \
         MR_ATTR_I64,                                                                              \
         offsetof(attr, groups),                                                                   \
         .def = 1,                                                                                 \
         .min = 1,                                                                                 \
         .max = 1 << 20,                                                                           \
         .doc = "number of groups of channels"},                                                   \
    {                                                                                              \
        "edge", MR_ATTR_BOOL, offsetof(attr, edge),                                                \
            .doc = "padding repeats the nearest position of x instead of zeros"                    \
    }
#define CONV_CPU(id)                                                                               \
    {                                                                                              \
        .run = MR_CPU(id), .prepare = id##_prepare, .release = release,                            \
        .workspace = id##_workspace, .way = id##_way                                               \
    }

MR_OP(conv3d) = {
    .name = "conv3d",
    .doc = "Convolution of channels-last volumes with strides, groups, and padding per axis and "
           "side by zeros or edges.",
    .ref = "cross-correlation as in PyTorch 2 conv3d",
    .in = {{"x", "[B, T, H, W, C] f32|bf16", MR_CONTIG, 0},
           {"w", "[O, C/groups, kt, kh, kw] like x", MR_CONTIG, 0},
           {"bias", "[O] like x", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"y", "[B, T', H', W', O] like x", 0, false, MR_CONTIG}},
    .attr = {CONV_ATTRS},
    .infer = infer,
    .grad = grad,
    .cost = conv3d_cost,
    .naive = naive,
    .cpu = CONV_CPU(conv3d),
    .cases = MR_CASES("x=[2,1,7,5,3] f32 w=[4,3,1,3,3] f32 bias=[4] f32 pad={0,0,1,1,1,1}",
                      "x=[1,5,6,7,8] f32 w=[16,8,3,3,3] f32 pad={2,0,1,1,1,1}",
                      "x=[1,5,9,8,16] f32 w=[33,16,3,3,3] f32 bias=[33] f32 stride={2,2,2} "
                      "pad={1,0,0,1,0,1}",
                      "x=[3,1,20,17,32] bf16 w=[64,32,1,3,3] bf16 bias=[64] bf16 pad={0,0,1,1,1,1}",
                      "x=[2,4,5,6,12] f32 w=[8,3,2,3,1] f32 bias=[8] f32 groups=4 stride={1,2,3} "
                      "pad={0,0,2,0,0,0}",
                      "x=[1,3,4,5,40] bf16 w=[24,40,1,1,1] bf16",
                      "x=[1,2,3,2,5] f32 w=[1,5,2,5,4] f32 pad={1,3,4,1,3,2}",
                      "x=[1,1,70,71,2] f32 w=[3,2,1,3,3] f32 pad={0,0,1,1,1,1}",
                      "x=[1,3,2,3,64] f32 w=[80,64,2,3,3] f32 bias=[80] f32 pad={1,0,1,1,1,1}",
                      "x=[1,2,3,2,64] bf16 w=[64,64,1,3,3] bf16 pad={0,0,2,0,1,1}",
                      // each channel is a group
                      "x=[2,5,6,11,33] f32 w=[33,1,5,3,3] f32 bias=[33] f32 groups=33 "
                      "pad={2,2,1,1,1,1}",
                      "x=[1,7,5,9,40] bf16 w=[40,1,3,3,3] bf16 groups=40 stride={2,1,2} "
                      "pad={1,1,0,1,2,0}",
                      // edges: causal, wider than x, with strides, of one position
                      "x=[1,3,4,5,8] f32 w=[6,8,3,3,3] f32 bias=[6] f32 pad={2,0,1,1,1,1} edge=1",
                      "x=[2,2,3,1,6] f32 w=[4,3,2,3,5] f32 groups=2 stride={1,2,1} "
                      "pad={1,2,3,1,2,4} edge=1",
                      "x=[1,3,6,5,24] bf16 w=[40,24,3,3,3] bf16 bias=[40] bf16 stride={2,2,2} "
                      "pad={2,0,1,1,1,1} edge=1",
                      "x=[1,2,4,6,16] bf16 w=[16,1,3,3,3] bf16 groups=16 pad={2,0,1,1,1,1} "
                      "edge=1"),
};
MR_OP(conv3d_dx) = {
    .name = "conv3d_dx",
    .doc = "Gradient of conv3d with respect to x, whose lengths are dims.",
    .in = {{"dy", "[B, T', H', W', O] f32|bf16", MR_CONTIG, 0},
           {"w", "[O, C/groups, kt, kh, kw] like dy", MR_CONTIG, 0}},
    .out = {{"dx", "[B, T, H, W, C] like dy", 0, false, MR_CONTIG}},
    .attr = {CONV_ATTRS,
             {"dims", MR_ATTR_INTS, offsetof(attr, dims), .required = true, .doc = "T, H, W of x"}},
    .infer = dx_infer,
    .cost = conv3d_dx_cost,
    .naive = dx_naive,
    .cpu = CONV_CPU(conv3d_dx),
    .hidden = true,
    .cases =
        MR_CASES("dy=[2,1,7,5,4] f32 w=[4,3,1,3,3] f32 pad={0,0,1,1,1,1} dims={1,7,5}",
                 "dy=[1,5,6,7,16] f32 w=[16,8,3,3,3] f32 pad={2,0,1,1,1,1} dims={5,6,7}",
                 "dy=[1,2,4,4,33] f32 w=[33,16,3,3,3] f32 stride={2,2,2} pad={1,0,0,1,0,1} "
                 "dims={5,9,8}",
                 "dy=[3,1,20,17,64] bf16 w=[64,32,1,3,3] bf16 pad={0,0,1,1,1,1} dims={1,20,17}",
                 "dy=[2,3,3,2,8] f32 w=[8,3,2,3,1] f32 groups=4 stride={1,2,3} pad={0,0,2,0,0,0} "
                 "dims={4,5,6}",
                 "dy=[1,1,70,71,3] f32 w=[3,2,1,3,3] f32 pad={0,0,1,1,1,1} dims={1,70,71}",
                 "dy=[1,2,2,3,80] f32 w=[80,64,2,3,3] f32 pad={1,0,1,1,1,1} dims={2,2,3}",
                 "dy=[1,1,3,2,64] bf16 w=[64,64,1,3,3] bf16 pad={0,0,2,0,1,1} dims={1,3,2}",
                 "dy=[2,3,5,8,20] f32 w=[20,1,4,3,2] f32 groups=20 pad={1,1,0,1,2,0} dims={4,6,7}",
                 "dy=[1,2,3,4,33] bf16 w=[33,1,3,3,3] bf16 groups=33 stride={2,1,2} "
                 "pad={1,0,1,1,1,0} dims={4,3,8}",
                 "dy=[1,3,4,5,6] f32 w=[6,8,3,3,3] f32 pad={2,0,1,1,1,1} edge=1 dims={3,4,5}",
                 "dy=[2,4,3,3,4] f32 w=[4,3,2,3,5] f32 groups=2 stride={1,2,1} pad={1,2,3,1,2,4} "
                 "edge=1 dims={2,3,1}",
                 "dy=[1,2,3,3,40] bf16 w=[40,24,3,3,3] bf16 stride={2,2,2} pad={2,0,1,1,1,1} "
                 "edge=1 dims={3,6,5}",
                 "dy=[1,2,4,6,16] bf16 w=[16,1,3,3,3] bf16 groups=16 pad={2,0,1,1,1,1} edge=1 "
                 "dims={2,4,6}"),
};
MR_OP(conv3d_dw) = {
    .name = "conv3d_dw",
    .doc = "Adds the gradient of conv3d with respect to w to acc.",
    .in = {{"dy", "[B, T', H', W', O] f32|bf16", MR_CONTIG, 0},
           {"x", "[B, T, H, W, C] like dy", MR_CONTIG, 0},
           {"acc", "[O, C/groups, kt, kh, kw] f32", MR_CONTIG, 0}},
    .out = {{"acc", "[O, C/groups, kt, kh, kw] f32", 3, true, MR_CONTIG}},
    .attr = {CONV_ATTRS},
    .infer = dw_infer,
    .cost = conv3d_dw_cost,
    .naive = dw_naive,
    .cpu = CONV_CPU(conv3d_dw),
    .hidden = true,
    .cases = MR_CASES(
        "dy=[2,1,7,5,4] f32 x=[2,1,7,5,3] f32 acc=[4,3,1,3,3] f32 pad={0,0,1,1,1,1}",
        "dy=[1,5,6,7,16] f32 x=[1,5,6,7,8] f32 acc=[16,8,3,3,3] f32 pad={2,0,1,1,1,1}",
        "dy=[1,2,4,4,33] f32 x=[1,5,9,8,16] f32 acc=[33,16,3,3,3] f32 stride={2,2,2} "
        "pad={1,0,0,1,0,1}",
        "dy=[3,1,20,17,64] bf16 x=[3,1,20,17,32] bf16 acc=[64,32,1,3,3] f32 pad={0,0,1,1,1,1}",
        "dy=[2,3,3,2,8] f32 x=[2,4,5,6,12] f32 acc=[8,3,2,3,1] f32 groups=4 "
        "stride={1,2,3} pad={0,0,2,0,0,0}",
        "dy=[1,1,70,71,3] f32 x=[1,1,70,71,2] f32 acc=[3,2,1,3,3] f32 pad={0,0,1,1,1,1}",
        // shapes that oneDNN's sums do not cover all
        "dy=[1,2,4,7,16] bf16 x=[1,3,8,7,16] bf16 acc=[16,16,3,2,2] f32 stride={2,2,1} "
        "pad={1,1,0,0,0,1}",
        "dy=[2,3,5,8,20] f32 x=[2,4,6,7,20] f32 acc=[20,1,4,3,2] f32 groups=20 pad={1,1,0,1,2,0}",
        "dy=[1,4,4,5,40] bf16 x=[1,7,5,9,40] bf16 acc=[40,1,3,3,3] f32 groups=40 stride={2,1,2} "
        "pad={1,1,0,1,2,1}",
        "dy=[1,3,4,5,6] f32 x=[1,3,4,5,8] f32 acc=[6,8,3,3,3] f32 pad={2,0,1,1,1,1} edge=1",
        "dy=[2,4,3,3,4] f32 x=[2,2,3,1,6] f32 acc=[4,3,2,3,5] f32 groups=2 stride={1,2,1} "
        "pad={1,2,3,1,2,4} edge=1",
        "dy=[1,2,3,3,40] bf16 x=[1,3,6,5,24] bf16 acc=[40,24,3,3,3] f32 stride={2,2,2} "
        "pad={2,0,1,1,1,1} edge=1"),
};
