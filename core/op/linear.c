/* linear: y = x w^T + b, and its three gradients
 *
 *   linear_dx   dx = dy w                       linear_dw   acc += dy^T x   (f32, also from bf16)
 *   linear_db   acc += sum of the rows of dy    linear_dw computes it, too, if both are needed
 *
 * Sums are f32. Licence: Apache-2.0 */
#include "cpu/rows.h"
#include "op/linear.h"

/* ---- linear ---- */

static mr_status weight_fits(const mr_desc *x, const char *name, const mr_desc *w, int axis)
{
    char tx[128], tw[128];
    MR_TRY(mr_infer_rank(w, "w", 2));
    if (x->rank >= 1 && x->dim[x->rank - 1] == w->dim[axis] && x->dtype == w->dtype)
        return MR_OK;
    return mr_fail(MR_E_SHAPE,
                   "%s is %s, w is %s; expected the last dimension of %s to be dimension %d of w, "
                   "and equal dtypes",
                   name, mr_desc_text(x, tx, sizeof tx), mr_desc_text(w, tw, sizeof tw), name,
                   axis);
}

static mr_status linear_infer(mr_infer *c)
{
    char tb[128];
    const mr_desc *x = c->in[0], *w = c->in[1], *b = c->in[2];
    MR_TRY(weight_fits(x, "x", w, 1));
    if (b && (b->rank != 1 || b->dim[0] != w->dim[0] || b->dtype != w->dtype))
        return mr_fail(MR_E_SHAPE, "b is %s, expected [%lld] %s", mr_desc_text(b, tb, sizeof tb),
                       (long long)w->dim[0], mr_dtype_name(w->dtype));
    mr_desc y = *x;
    y.dim[y.rank - 1] = w->dim[0];
    mr_infer_out_like(c, 0, &y);
    return MR_OK;
}

static product_shape linear_shape(const mr_call *call)
{
    return product_shape_of(call, &call->out[0].desc, true, call->in[2].desc.rank >= 0, 0);
}
PRODUCT_BEFORE(linear)
MR_KERNEL(linear)
{
    return product_run(call, call->in[2].data, &call->out[0]);
}

static mr_status linear_grad(mr_grad *ctx)
{
    mr_ref dy = ctx->dout[0], dw = MR_NONE, db = MR_NONE;
    if (ctx->need[0])
        MR_TRY(mr_grad_node(ctx, 0, "linear_dx", dy, ctx->in[1]));
    if (ctx->need[1])
        MR_TRY(mr_grad_acc(ctx, 1, &dw));
    if (ctx->need[2])
        MR_TRY(mr_grad_acc(ctx, 2, &db));
    if (dw == MR_NONE)
        return db == MR_NONE ? MR_OK : mr_grad_node(ctx, 2, "linear_db", dy, db);
    mr_ref in[] = {dy, ctx->in[0], dw, db}, out[2];
    MR_TRY(mr_grad_op(ctx, "linear_dw", MR_NO_ATTRS, in, 4, out));
    ctx->din[1] = out[0], ctx->din[2] = out[1];
    return MR_OK;
}

static mr_status linear_naive(const mr_call *call)
{
    const double *x = call->in[0].data, *w = call->in[1].data, *b = call->in[2].data;
    double *y = call->out[0].data;
    int64_t n = call->in[1].desc.dim[0], k = call->in[1].desc.dim[1],
            m = mr_desc_count(&call->out[0].desc) / MR_MAX(n, 1);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double total = b ? b[j] : 0;
            for (int64_t p = 0; p < k; p++)
                total += x[i * k + p] * w[j * k + p];
            y[i * n + j] = total;
        }
    return MR_OK;
}

/* ---- linear_dx ---- */

static mr_status dx_infer(mr_infer *c)
{
    MR_TRY(weight_fits(c->in[0], "dy", c->in[1], 0));
    mr_desc dx = *c->in[0];
    dx.dim[dx.rank - 1] = c->in[1]->dim[1];
    mr_infer_out_like(c, 0, &dx);
    return MR_OK;
}
static product_shape linear_dx_shape(const mr_call *call)
{
    return product_shape_of(call, &call->out[0].desc, false, false, 0);
}
PRODUCT_BEFORE(linear_dx)
MR_KERNEL(linear_dx)
{
    return product_run(call, NULL, &call->out[0]);
}

static mr_status dx_naive(const mr_call *call)
{
    const double *dy = call->in[0].data, *w = call->in[1].data;
    double *dx = call->out[0].data;
    int64_t n = call->in[1].desc.dim[0], k = call->in[1].desc.dim[1],
            m = mr_desc_count(&call->in[0].desc) / MR_MAX(n, 1);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t p = 0; p < k; p++)
            dx[i * k + p] = 0;
        for (int64_t j = 0; j < n; j++)
            for (int64_t p = 0; p < k; p++)
                dx[i * k + p] += dy[i * n + j] * w[j * k + p];
    }
    return MR_OK;
}

/* ---- linear_db ---- */

/* The rows are split into at most 64 pieces, by the shape alone; partial sums [pieces, N] are added
 * in order. */
typedef struct db {
    const mr_call *call;
    product_rows dy;
    int64_t piece, pieces;
    float *partial;
} db;

static db db_of(const mr_call *call)
{
    db d = {call, product_rows_of(&call->in[0].desc), 0, 0, call->workspace};
    d.piece = MR_MAX((d.dy.n + 63) / 64, 64);
    d.pieces = (d.dy.n + d.piece - 1) / d.piece;
    return d;
}
VF_INLINE void db_rows(const db *d, int64_t piece, mr_dtype t)
{
    const mr_view *dy = &d->call->in[0];
    float *to = d->partial + piece * d->dy.c;
    int64_t first = piece * d->piece, end = MR_MIN(d->dy.n, first + d->piece);
    enum { WIDE = 4 * VF_LANES };
    for (int64_t j = 0; j < d->dy.c; j += WIDE) {
        vf acc[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        int64_t n = MR_MIN((int64_t)WIDE, d->dy.c - j);
        for (int64_t i = first; i < end; i++) {
            int64_t at = d->dy.split ? product_row_at(&dy->desc, i) : i * d->dy.step;
            if (n == WIDE)
                for (int v = 0; v < 4; v++)
                    acc[v] += vf_ld(dy->data, at + j + v * VF_LANES, t);
            else
                for (int64_t v = 0; v * VF_LANES < n; v++)
                    acc[v] += vf_ldx(dy->data, at + j + v * VF_LANES, 1,
                                     MR_MIN((int64_t)VF_LANES, n - v * VF_LANES), t);
        }
        for (int64_t v = 0; v * VF_LANES < n; v++)
            vf_storen(to + j + v * VF_LANES, acc[v], MR_MIN((int64_t)VF_LANES, n - v * VF_LANES));
    }
}
static void db_part(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const db *d = user;
    for (int64_t i = begin; i < end; i++)
        if (d->call->in[0].desc.dtype == MR_BF16)
            db_rows(d, i, MR_BF16);
        else
            db_rows(d, i, MR_F32);
}
/* Add the rows of in[0] to acc, with partial sums at the start of the workspace. */
static void db_add(const mr_call *call, float *acc)
{
    db d = db_of(call);
    mr_cpu_for(d.pieces, MR_MAX(1, 8192 / MR_MAX(d.piece * d.dy.c, 1)), call->threads, db_part, &d);
    for (int64_t i = 0; i < d.pieces; i++)
        for (int64_t j = 0; j < d.dy.c; j++)
            acc[j] += d.partial[i * d.dy.c + j];
}
static size_t db_bytes(const mr_call *call)
{
    db d = db_of(call);
    return (size_t)(d.pieces * d.dy.c) * sizeof(float);
}
static mr_status db_fits(const mr_desc *dy, const mr_desc *acc, const char *name)
{
    char td[128], ta[128];
    if (dy->rank >= 1 && acc->rank == 1 && acc->dim[0] == dy->dim[dy->rank - 1])
        return MR_OK;
    return mr_fail(MR_E_SHAPE, "dy is %s, %s is %s; expected [..., N] and [N]",
                   mr_desc_text(dy, td, sizeof td), name, mr_desc_text(acc, ta, sizeof ta));
}
/* Reference: out [n] = acc plus the m rows of dy. */
static void db_truth(const double *dy, const double *acc, double *out, int64_t m, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        double total = acc[j];
        for (int64_t i = 0; i < m; i++)
            total += dy[i * n + j];
        out[j] = total;
    }
}

MR_KERNEL(linear_db)
{
    db_add(call, call->out[0].data);
    return MR_OK;
}
static size_t db_workspace(const mr_call *call, const mr_facts *facts)
{
    (void)facts;
    return db_bytes(call);
}
static mr_status db_infer(mr_infer *c)
{
    MR_TRY(db_fits(c->in[0], c->in[1], "acc"));
    mr_infer_out_like(c, 0, c->in[1]);
    return MR_OK;
}
static mr_status db_naive(const mr_call *call)
{
    int64_t n = call->out[0].desc.dim[0], m = mr_desc_count(&call->in[0].desc) / MR_MAX(n, 1);
    db_truth(call->in[0].data, call->in[1].data, call->out[0].data, m, n);
    return MR_OK;
}
static void db_cost(const mr_call *call, mr_cost *cost)
{
    cost->flop = (double)mr_desc_count(&call->in[0].desc);
}

/* ---- linear_dw ---- */

static mr_status dw_infer(mr_infer *c)
{
    char tx[128], td[128], ta[128];
    const mr_desc *dy = c->in[0], *x = c->in[1], *acc = c->in[2];
    bool ok = dy->rank >= 1 && dy->rank == x->rank && dy->dtype == x->dtype && acc->rank == 2;
    for (int i = 0; ok && i < x->rank - 1; i++)
        ok = dy->dim[i] == x->dim[i];
    ok = ok && acc->dim[0] == dy->dim[dy->rank - 1] && acc->dim[1] == x->dim[x->rank - 1];
    if (!ok)
        return mr_fail(MR_E_SHAPE,
                       "dy is %s, x is %s, acc is %s; expected [..., N], [..., K] and [N, K]",
                       mr_desc_text(dy, td, sizeof td), mr_desc_text(x, tx, sizeof tx),
                       mr_desc_text(acc, ta, sizeof ta));
    mr_infer_out_like(c, 0, acc);
    if (!c->in[3])
        return MR_OK;
    MR_TRY(db_fits(dy, c->in[3], "db"));
    mr_infer_out_like(c, 1, c->in[3]);
    return MR_OK;
}

static product_shape linear_dw_shape(const mr_call *call)
{
    const mr_desc *dy = &call->in[0].desc, *x = &call->in[1].desc;
    product_shape s = {.in = {product_rows_of(dy), product_rows_of(x)}};
    if (mr_given(&call->in[3]))
        s.bytes = (db_bytes(call) + 63) & ~(size_t)63;
    for (int i = 0; i < 2; i++)
        product_aside(&s, &s.in[i], call->in[i].desc.dtype, i);
    s.spec = (mr_product_spec){.batch = 1,
                               .m = s.in[0].c,
                               .n = s.in[1].c,
                               .k = s.in[0].n,
                               .a_row = 1,
                               .a_col = s.in[0].step,
                               .b_row = s.in[1].step,
                               .b_col = 1,
                               .c_row = x->dim[x->rank - 1],
                               .in = dy->dtype,
                               .out = MR_F32,
                               .accumulate = true};
    return s;
}
PRODUCT_BEFORE(linear_dw)
MR_KERNEL(linear_dw)
{
    const product_state *own = call->state;
    const product_shape *s = &own->shape;
    MR_TRY(mr_product_run(own->product, product_gather(call, s, 0), product_gather(call, s, 1),
                          NULL, call->out[0].data, (char *)call->workspace + s->bytes));
    if (mr_given(&call->in[3]))
        db_add(call, call->out[1].data);
    return MR_OK;
}

static mr_status dw_naive(const mr_call *call)
{
    const double *dy = call->in[0].data, *x = call->in[1].data, *acc = call->in[2].data;
    double *dw = call->out[0].data;
    int64_t n = call->out[0].desc.dim[0], k = call->out[0].desc.dim[1],
            m = mr_desc_count(&call->in[0].desc) / MR_MAX(n, 1);
    for (int64_t e = 0; e < n * k; e++)
        dw[e] = acc[e];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t p = 0; p < k; p++)
                dw[j * k + p] += dy[i * n + j] * x[i * k + p];
    if (mr_given(&call->in[3]))
        db_truth(dy, call->in[3].data, call->out[1].data, m, n);
    return MR_OK;
}

/* ---- definitions ---- */

MR_OP(linear) = {
    .name = "linear",
    .doc = "x times the transpose of w, plus b.",
    .in = {{"x", "[..., K] f32|bf16", MR_ROWS, 0},
           {"w", "[N, K] like x", MR_CONTIG, 0},
           {"b", "[N] like x", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"y", "[..., N] like x", 0, false, MR_ROWS}},
    .infer = linear_infer,
    .grad = linear_grad,
    .cost = linear_cost,
    .naive = linear_naive,
    .cpu = PRODUCT_CPU(linear),
    PRODUCT_TOL,
    .cases = MR_CASES("x=[3,7,33]/rows f32 w=[20,33] f32 b=[20] f32",
                      "x=[150,64] f32 w=[48,64] f32",
                      "x=[2,3,4,16]/rows f32 w=[8,16] f32 b=[8] f32", "x=[1,5] f32 w=[3,5] f32",
                      "x=[7] f32 0..1 w=[1,7] f32 0..1 b=[1] f32 0..1", "x=[0,8] f32 w=[4,8] f32",
                      "x=[130,96] bf16 w=[72,96] bf16 b=[72] bf16",
                      "x=[3,9,40]/rows bf16 w=[24,40] bf16",
                      "x=[512,1952] bf16 w=[256,1952] bf16 b=[256] bf16"),
};
MR_OP(linear_dx) = {
    .name = "linear_dx",
    .doc = "Gradient of linear with respect to x: dy times w.",
    .in = {{"dy", "[..., N] f32|bf16", MR_ROWS, 0}, {"w", "[N, K] like dy", MR_CONTIG, 0}},
    .out = {{"dx", "[..., K] like dy", 0, false, MR_ROWS}},
    .infer = dx_infer,
    .cost = linear_dx_cost,
    .naive = dx_naive,
    .cpu = PRODUCT_CPU(linear_dx),
    .hidden = true,
    PRODUCT_TOL,
    .cases = MR_CASES("dy=[3,7,20]/rows f32 w=[20,33] f32", "dy=[150,48] f32 w=[48,64] f32",
                      "dy=[130,72]/rows bf16 w=[72,96] bf16",
                      "dy=[513,1990] bf16 w=[1990,260] bf16"),
};
MR_OP(linear_dw) = {
    .name = "linear_dw",
    .doc = "Gradient of linear with respect to w: adds the transpose of dy times x to acc, in f32, "
           "and, if db is given, the rows of dy to db.",
    .in = {{"dy", "[..., N] f32|bf16", MR_ROWS, 0},
           {"x", "[..., K] like dy", MR_ROWS, 0},
           {"acc", "[N, K] f32", MR_CONTIG, 0},
           {"db", "[N] f32", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"acc", "like acc", 3, true, MR_CONTIG}, {"db", "[N] f32", 4, true, MR_CONTIG}},
    .infer = dw_infer,
    .cost = linear_dw_cost,
    .naive = dw_naive,
    .cpu = PRODUCT_CPU(linear_dw),
    .hidden = true,
    PRODUCT_TOL,
    .cases = MR_CASES("dy=[3,7,20]/rows f32 x=[3,7,33]/rows f32 acc=[20,33] f32",
                      "dy=[3,7,20]/rows f32 x=[3,7,33]/rows f32 acc=[20,33] f32 db=[20] f32",
                      "dy=[150,48] f32 x=[150,64] f32 acc=[48,64] f32",
                      "dy=[0,48] f32 x=[0,64] f32 acc=[48,64] f32 db=[48] f32",
                      "dy=[130,72]/rows bf16 x=[130,96] bf16 acc=[72,96] f32 db=[72] f32",
                      "dy=[1100,512] bf16 x=[1100,260] bf16 acc=[512,260] f32",
                      "dy=[40,512] bf16 x=[40,2304] bf16 acc=[512,2304] f32",
                      "dy=[2,650,40]/rows bf16 x=[2,650,24]/rows bf16 acc=[40,24] f32"),
};
MR_OP(linear_db) = {
    .name = "linear_db",
    .doc = "Gradient of linear with respect to b: adds the rows of dy to acc, in f32.",
    .in = {{"dy", "[..., N] f32|bf16", MR_ROWS, 0}, {"acc", "[N] f32", MR_CONTIG, 0}},
    .out = {{"acc", "like acc", 2, true, MR_CONTIG}},
    .infer = db_infer,
    .cost = db_cost,
    .naive = db_naive,
    .cpu = {.run = MR_CPU(linear_db), .workspace = db_workspace},
    .hidden = true,
    .tol_f32 = 1e-5,
    .tol_reason = "sums of values of both signs cancel",
    .cases = MR_CASES("dy=[3,7,20]/rows f32 acc=[20] f32", "dy=[2600,129] f32 acc=[129] f32",
                      "dy=[700,72]/rows bf16 acc=[72] f32",
                      "dy=[3,5,500,33]/rows bf16 acc=[33] f32"),
};
