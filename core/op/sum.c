/* sum, mean: over the listed axes (an empty list means all). Accumulates in f32.
 *
 * The reduced elements are split into at most 64 pieces, whose size depends on the shape only.
 * Partial results [pieces, kept] are stored in the workspace and added in order, in double, so the
 * bits do not depend on the number of threads. Vectors run along the last kept axis if it is dense,
 * else along the innermost reduced one. x is read once. Licence: Apache-2.0 */
#include "op/define.h"

typedef struct sum {
    mr_ints axes;
    bool keep;
} sum;
enum { PIECES = 64, PIECE_MIN = 1024, COLUMNS = 4 * VF_LANES };

/* The kept and the reduced dimensions of x, merged; each list has at least one. */
typedef struct reduction {
    int n_kept, n_red;
    int64_t kept[MR_MAX_RANK], kept_stride[MR_MAX_RANK], red[MR_MAX_RANK], red_stride[MR_MAX_RANK];
    int64_t k, r, piece, pieces; /* kept and reduced elements; reduced elements per piece */
    bool columns;                /* vectors run along the last kept dimension */
    /* kept elements per unit of work (columns: within one row), units per piece */
    int64_t width, units;
    float scale;
    const void *x;
    void *y;
    float *partial;
    mr_dtype t;
} reduction;

static void push(int *n, int64_t *dim, int64_t *stride, int64_t d, int64_t s)
{
    if (d == 1)
        return;
    if (*n && stride[*n - 1] == s * d)
        dim[*n - 1] *= d, stride[*n - 1] = s;
    else
        dim[*n] = d, stride[*n] = s, ++*n;
}

static bool reduced(const sum *a, int axis)
{
    for (int i = 0; i < a->axes.n; i++)
        if (a->axes.v[i] == axis)
            return true;
    return a->axes.n == 0;
}

static reduction reduction_of(const mr_call *call, bool mean)
{
    const mr_desc *d = &call->in[0].desc;
    reduction p = {.x = call->in[0].data,
                   .y = call->out[0].data,
                   .partial = call->workspace,
                   .t = d->dtype,
                   .k = 1,
                   .r = 1};
    for (int i = 0; i < d->rank; i++) {
        if (reduced(call->attr, i))
            push(&p.n_red, p.red, p.red_stride, d->dim[i], d->stride[i]), p.r *= d->dim[i];
        else
            push(&p.n_kept, p.kept, p.kept_stride, d->dim[i], d->stride[i]), p.k *= d->dim[i];
    }
    if (!p.n_kept)
        p.kept[0] = 1, p.kept_stride[0] = 0, p.n_kept = 1;
    if (!p.n_red)
        p.red[0] = 1, p.red_stride[0] = 1, p.n_red = 1;
    p.scale = mean && p.r ? (float)(1.0 / (double)p.r) : 1.0f;
    p.columns = p.kept_stride[p.n_kept - 1] == 1;
    p.piece = MR_MAX((p.r + PIECES - 1) / PIECES, p.columns ? PIECE_MIN / 8 : PIECE_MIN);
    p.pieces = MR_MAX((p.r + p.piece - 1) / p.piece, 1);
    int64_t inner = p.kept[p.n_kept - 1];
    p.width = p.columns ? COLUMNS : 1;
    p.units = p.columns ? (p.k / MR_MAX(inner, 1)) * ((inner + COLUMNS - 1) / COLUMNS) : p.k;
    return p;
}

/* The offset of flat index i over dims; index[] becomes its position. */
VF_INLINE int64_t locate(int n, const int64_t *dim, const int64_t *stride, int64_t i,
                         int64_t *index)
{
    int64_t at = 0;
    for (int d = n - 1; d >= 0; d--)
        index[d] = i % dim[d], at += index[d] * stride[d], i /= dim[d];
    return at;
}

/* Sum one piece for n <= COLUMNS adjacent kept elements. */
VF_INLINE void run_columns(const reduction *p, int64_t at, int64_t begin, int64_t end, int64_t n,
                           float *out, mr_dtype t)
{
    int64_t index[MR_MAX_RANK], off = at + locate(p->n_red, p->red, p->red_stride, begin, index);
    vf acc[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (int64_t r = begin; r < end; r++) {
        if (n == COLUMNS)
            for (int v = 0; v < 4; v++)
                acc[v] += vf_ld(p->x, off + v * VF_LANES, t);
        else
            for (int64_t v = 0; v * VF_LANES < n; v++)
                acc[v] += vf_ldx(p->x, off + v * VF_LANES, 1,
                                 MR_MIN((int64_t)VF_LANES, n - v * VF_LANES), t);
        for (int d = p->n_red - 1; d >= 0; d--) {
            off += p->red_stride[d];
            if (++index[d] < p->red[d])
                break;
            off -= p->red[d] * p->red_stride[d], index[d] = 0;
        }
    }
    for (int v = 0; v < 4; v++)
        vf_store(out + v * VF_LANES, acc[v]);
}

/* Sum one piece for one kept element, along the innermost reduced dimension. */
VF_INLINE float run_row(const reduction *p, int64_t at, int64_t begin, int64_t end, mr_dtype t)
{
    int in = p->n_red - 1;
    int64_t index[MR_MAX_RANK], off = at + locate(p->n_red, p->red, p->red_stride, begin, index),
                                step = p->red_stride[in];
    vf acc[2] = {vf_zero(), vf_zero()};
    for (int64_t r = begin; r < end;) {
        int64_t n = MR_MIN(p->red[in] - index[in], end - r), i = 0;
        for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES)
            for (int v = 0; v < 2; v++)
                acc[v] += vf_ldx(p->x, off + (i + v * VF_LANES) * step, step, VF_LANES, t);
        for (; i < n; i += VF_LANES)
            acc[0] += vf_ldx(p->x, off + i * step, step, MR_MIN((int64_t)VF_LANES, n - i), t);
        r += n;
        off = at + locate(p->n_red, p->red, p->red_stride, r, index);
    }
    return vf_sum(acc[0] + acc[1]);
}

static void part(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const reduction *p = user;
    int64_t inner = p->kept[p->n_kept - 1], blocks = (inner + COLUMNS - 1) / COLUMNS,
            index[MR_MAX_RANK];
    for (int64_t i = begin; i < end; i++) {
        int64_t piece = i / p->units, unit = i % p->units, first = piece * p->piece,
                last = MR_MIN(p->r, first + p->piece);
        int64_t k = p->columns ? unit / blocks * inner + unit % blocks * COLUMNS : unit, n = 1;
        int64_t at = locate(p->n_kept, p->kept, p->kept_stride, k, index);
        float got[COLUMNS] = {0};
        if (p->columns)
            n = MR_MIN((int64_t)COLUMNS, inner - unit % blocks * COLUMNS);
        if (first == last) {
            // the sum of no elements is 0
        } else if (p->columns) {
            if (p->t == MR_BF16)
                run_columns(p, at, first, last, n, got, MR_BF16);
            else
                run_columns(p, at, first, last, n, got, MR_F32);
        } else {
            got[0] = p->t == MR_BF16 ? run_row(p, at, first, last, MR_BF16)
                                     : run_row(p, at, first, last, MR_F32);
        }
        for (int64_t j = 0; j < n; j++)
            if (p->pieces == 1)
                vf_put(p->y, k + j, got[j] * p->scale, p->t);
            else
                p->partial[piece * p->k + k + j] = got[j];
    }
}

static void join(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const reduction *p = user;
    for (int64_t k = begin; k < end; k++) {
        double total = 0;
        for (int64_t i = 0; i < p->pieces; i++)
            total += (double)p->partial[i * p->k + k];
        vf_put(p->y, k, (float)(total * (double)p->scale), p->t);
    }
}

static void reduce(const mr_call *call, bool mean)
{
    reduction p = reduction_of(call, mean);
    if (p.k == 0)
        return;
    mr_cpu_for(p.pieces * p.units,
               MR_MAX(1, MR_LOOP_PIECE / (MR_MIN(p.piece, MR_MAX(p.r, 1)) * p.width)),
               call->threads, part, &p);
    if (p.pieces > 1)
        mr_cpu_for(p.k, 2048, call->threads, join, &p);
}

MR_KERNEL(sum)
{
    reduce(call, false);
    return MR_OK;
}
MR_KERNEL(mean)
{
    reduce(call, true);
    return MR_OK;
}

/* COLUMNS differs between instruction sets, but the pieces and so the size are the same. */
static size_t workspace(const mr_call *call, const mr_facts *facts)
{
    (void)facts;
    reduction p = reduction_of(call, false);
    return p.pieces > 1 ? (size_t)(p.pieces * p.k) * sizeof(float) : 0;
}

static mr_status infer(mr_infer *c)
{
    const sum *a = c->attr;
    const mr_desc *x = c->in[0];
    int64_t dim[MR_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < a->axes.n; i++)
        if (a->axes.v[i] < 0 || a->axes.v[i] >= x->rank)
            return mr_fail(MR_E_SHAPE,
                           "axes has %lld, x has rank %d; expected axes from 0 to rank - 1",
                           (long long)a->axes.v[i], x->rank);
    for (int i = 0; i < x->rank; i++) {
        if (!reduced(a, i))
            dim[rank++] = x->dim[i];
        else if (a->keep)
            dim[rank++] = 1;
    }
    mr_infer_out(c, 0, x->dtype, rank, dim);
    return MR_OK;
}

/* dx is a view of dy, repeated over the reduced axes. */
static mr_status spread(mr_grad *ctx, mr_ref dy)
{
    const sum *a = ctx->attr;
    mr_desc x = *mr_grad_desc(ctx, ctx->in[0]), kept = x;
    for (int i = 0; i < x.rank; i++)
        if (reduced(a, i))
            kept.dim[i] = 1;
    MR_TRY(mr_graph_reshape(ctx->graph, dy, kept.rank, kept.dim, &dy));
    return mr_graph_expand(ctx->graph, dy, x.rank, x.dim, &ctx->din[0]);
}
static mr_status sum_grad(mr_grad *ctx)
{
    return spread(ctx, ctx->dout[0]);
}
static mr_status mean_grad(mr_grad *ctx)
{
    double n = (double)mr_desc_count(mr_grad_desc(ctx, ctx->in[0])) /
               (double)mr_desc_count(mr_grad_desc(ctx, ctx->out[0]));
    mr_ref part_of;
    MR_TRY(mr_grad_op(ctx, "affine", MR_ATTRS({"scale", .f = 1 / n}), &ctx->dout[0], 1, &part_of));
    return spread(ctx, part_of);
}

static mr_status naive(const mr_call *call, bool mean)
{
    const mr_desc *d = &call->in[0].desc;
    const double *x = call->in[0].data;
    double *y = call->out[0].data;
    int64_t k = mr_desc_count(&call->out[0].desc), n = mr_desc_count(d);
    memset(y, 0, (size_t)k * sizeof *y);
    for (int64_t i = 0; i < n; i++) {
        int64_t to = 0, step = 1, rest = i;
        for (int axis = d->rank - 1; axis >= 0; axis--) {
            int64_t index = rest % d->dim[axis];
            rest /= d->dim[axis];
            if (!reduced(call->attr, axis))
                to += index * step, step *= d->dim[axis];
        }
        y[to] += x[i];
    }
    for (int64_t i = 0; mean && i < k; i++)
        y[i] /= (double)n / (double)k;
    return MR_OK;
}
MR_OP_FN mr_status sum_naive(const mr_call *call)
{
    return naive(call, false);
}
MR_OP_FN mr_status mean_naive(const mr_call *call)
{
    return naive(call, true);
}

static void cost(const mr_call *call, mr_cost *cost)
{
    cost->flop = (double)mr_desc_count(&call->in[0].desc);
}

#define AXES                                                                                       \
    {                                                                                              \
        {"axes", MR_ATTR_INTS, offsetof(sum, axes), .doc = "axes to reduce; empty for all"},       \
        {                                                                                          \
            "keep", MR_ATTR_BOOL, offsetof(sum, keep), .doc = "keep reduced axes with length 1"    \
        }                                                                                          \
    }

MR_OP(sum) = {
    .name = "sum",
    .doc = "Sum over the listed axes.",
    .in = {{"x", "[...] f32|bf16", MR_ANY, 0}},
    .out = {{"y", "like x, without the axes", 0, false, MR_CONTIG}},
    .attr = AXES,
    .infer = infer,
    .grad = sum_grad,
    .cost = cost,
    .naive = sum_naive,
    .cpu = {.run = MR_CPU(sum), .workspace = workspace},
    .tol_f32 = 1e-5,
    .tol_reason = "sums of values of both signs cancel",
    .cases = MR_CASES("x=[3,5,17] f32 axes={1}", "x=[3,5,17]/any f32 axes={0,2} keep=1",
                      "x=[700,130] f32 axes={0}", "x=[130,700] bf16 axes={1}",
                      "x=[3,41000] f32 0..1", "x=[2,3,4,5,6]/any f32 axes={0,2,4}",
                      "x=[2500,65] bf16 axes={0}", "x=[] f32", "x=[3,0,2] f32 axes={1}",
                      "x=[4,5] f32 axes={0,1}"),
};
MR_OP(mean) = {
    .name = "mean",
    .doc = "Mean over the listed axes.",
    .in = {{"x", "[...] f32|bf16", MR_ANY, 0}},
    .out = {{"y", "like x, without the axes", 0, false, MR_CONTIG}},
    .attr = AXES,
    .infer = infer,
    .grad = mean_grad,
    .cost = cost,
    .naive = mean_naive,
    .cpu = {.run = MR_CPU(mean), .workspace = workspace},
    .tol_f32 = 1e-5,
    .tol_reason = "sums of values of both signs cancel",
    .cases = MR_CASES("x=[3,5,17] f32 axes={1}", "x=[9,4100] f32 0..1",
                      "x=[13,70] bf16 axes={0} keep=1"),
};
