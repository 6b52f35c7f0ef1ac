/* linear_f8: y = x w^T + b of 8-bit operands (quantise_f8), each with one scale. linear_dw_f8: acc
 * += dy^T x, of operands that are transposed already.
 *
 *   y    = (x_scale w_scale) sum over k of x[., k] w[., k], + b
 *   dx   = linear_f8 of dy and w_t            dw = linear_dw_f8 of dy_t and x_t
 *
 * All three sum over the innermost dimension of both operands. cuBLASLt supports only this order
 * ("TN") for 8 bits on sm_89 and sm_90, with lengths that are multiples of 16, and not two e5m2
 * operands. The forward pass uses e4m3, gradients e5m2, as in arXiv:2209.05433 and torchao's
 * tensorwise recipe. x_of and w_of are the tensors before quantisation. They are not read; they get
 * the gradients, as if nothing had been rounded.
 *
 * A CPU converts the operands to f32 and multiplies them by cpu/product.h, which is slow and exact.
 * Licence: Apache-2.0 */
#include "cpu/rows.h"
#include "op/linear.h"

enum { X, X_SCALE, W, W_SCALE, B, X_T, W_T, X_OF, W_OF };
typedef struct attr {
    int64_t dtype;
} attr;

/* ---- checks of the operands of both ops ---- */

/* Check two operands whose last dimensions are summed over. */
static mr_status operands_fit(const mr_desc *a, const char *a_name, const mr_desc *b,
                              const char *b_name)
{
    char ta[128], tb[128];
    mr_desc_text(a, ta, sizeof ta), mr_desc_text(b, tb, sizeof tb);
    int64_t k = a->rank ? a->dim[a->rank - 1] : -1;
    if (b->rank != 2 || b->dim[1] != k)
        return mr_fail(MR_E_SHAPE, "%s is %s, %s is %s; expected [..., K] and [N, K]", a_name, ta,
                       b_name, tb);
    if (k % 16 || b->dim[0] % 16)
        return mr_fail(MR_E_SHAPE,
                       "%s is %s, %s is %s; expected K and N to be multiples of 16, which 8-bit "
                       "products need; try: linear",
                       a_name, ta, b_name, tb);
    if (a->dtype == MR_F8_E5M2 && b->dtype == MR_F8_E5M2)
        return mr_fail(MR_E_SHAPE,
                       "%s is %s, %s is %s; expected one of them in f8_e4m3: libraries do not "
                       "multiply two f8_e5m2",
                       a_name, ta, b_name, tb);
    return MR_OK;
}
static mr_status scale_fits(const mr_desc *scale, const char *name)
{
    char text[128];
    if (mr_desc_count(scale) == 1)
        return MR_OK;
    return mr_fail(MR_E_SHAPE, "%s is %s, expected [1] f32", name,
                   mr_desc_text(scale, text, sizeof text));
}

/* ---- the product on a CPU ---- */

/* Operands are converted to f32 in pieces, so that the workspace stays small: plans for an absent
 * GPU use this size for the workspace of its library. A piece is a range of rows of x, or of the
 * rows over which dy and x are summed; the last piece is padded with zeros. */
enum { PIECE = 256 };
typedef struct shape {
    int64_t m, n, k;      /* of all pieces together */
    mr_product_spec spec; /* of a piece, in f32 */
    size_t a_at, b_at, bias_at, sums_at, product_at;
} shape;

static size_t place(size_t *at, int64_t floats)
{
    size_t here = *at;
    *at += ((size_t)floats * sizeof(float) + 63) & ~(size_t)63;
    return here;
}
static shape shape_of(int64_t m, int64_t n, int64_t k, bool bias, bool accumulate)
{
    int64_t piece = MR_MIN(accumulate ? k : m, (int64_t)PIECE);
    shape s = {.m = m, .n = n, .k = k};
    s.spec = (mr_product_spec){.batch = 1,
                               .m = accumulate ? m : piece,
                               .n = n,
                               .k = accumulate ? piece : k,
                               .a_col = 1,
                               .b_row = 1,
                               .c_row = n,
                               .in = MR_F32,
                               .out = MR_F32,
                               .bias = bias,
                               .accumulate = accumulate};
    s.spec.a_row = s.spec.b_col = s.spec.k;
    size_t at = 0;
    s.a_at = place(&at, s.spec.m * s.spec.k), s.b_at = place(&at, n * s.spec.k);
    s.bias_at = place(&at, bias ? n : 0);
    s.sums_at = place(&at, accumulate ? 0 : s.spec.m * n), s.product_at = at;
    return s;
}
static shape linear_shape(const mr_call *call)
{
    const mr_desc *w = &call->in[W].desc;
    int64_t m = mr_desc_count(&call->out[0].desc) / MR_MAX(w->dim[0], 1);
    return shape_of(m, w->dim[0], w->dim[1], mr_given(&call->in[B]), false);
}
static shape dw_shape(const mr_call *call)
{
    const mr_desc *dy = &call->in[0].desc, *x = &call->in[2].desc;
    return shape_of(dy->dim[0], x->dim[0], dy->dim[1], false, true);
}

/* Convert codes to f32, times their scale: rows from `row` on, columns `column` to `column` +
 * `columns`, padded with zeros. */
typedef struct widened {
    const uint8_t *codes;
    int64_t all_rows, all_columns, row, column, columns;
    float *to, value[256];
} widened;
static void widen_part(void *user, int64_t begin, int64_t end, int worker)
{
    const widened *w = user;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float *to = w->to + i * w->columns;
        int64_t n = w->row + i < w->all_rows ? MR_MIN(w->columns, w->all_columns - w->column) : 0;
        const uint8_t *codes = w->codes + (w->row + i) * w->all_columns + w->column;
        for (int64_t j = 0; j < n; j++)
            to[j] = w->value[codes[j]];
        memset(to + n, 0, (size_t)(w->columns - n) * sizeof *to);
    }
}
static widened widen_begin(const mr_call *call, int in, size_t at, int64_t columns)
{
    const mr_view *v = &call->in[in];
    const float scale = *(const float *)call->in[in + 1].data;
    widened w = {.codes = v->data, .columns = columns};
    w.to = (float *)((char *)call->workspace + at);
    w.all_columns = v->desc.dim[v->desc.rank - 1];
    w.all_rows = mr_desc_count(&v->desc) / MR_MAX(w.all_columns, 1);
    for (int i = 0; i < 256; i++)
        w.value[i] = mr_f8_to_f32(v->desc.dtype, (uint8_t)i) * scale;
    return w;
}
static void widen(widened *w, int64_t row, int64_t column, int64_t rows, int threads)
{
    w->row = row, w->column = column;
    mr_cpu_for(rows, 65536 / MR_MAX(w->columns, 1) + 1, threads, widen_part, w);
}

static mr_status prepare(const shape *s, const mr_facts *facts, void **state)
{
    mr_product *product;
    MR_TRY(mr_product_new(&s->spec, facts, &product));
    *state = product;
    return MR_OK;
}
static void release(void *state)
{
    mr_product_free(state);
}

/* ---- linear_f8 ---- */

static mr_status linear_infer(mr_infer *c)
{
    const attr *a = c->attr;
    const mr_desc *w = c->in[W], *b = c->in[B];
    const mr_dtype out = (mr_dtype)a->dtype;
    char text[128];
    MR_TRY(operands_fit(c->in[X], "x", w, "w"));
    MR_TRY(scale_fits(c->in[X_SCALE], "x_scale"));
    MR_TRY(scale_fits(c->in[W_SCALE], "w_scale"));
    if (out != MR_F32 && out != MR_BF16)
        return mr_fail(MR_E_SHAPE, "dtype is %s, expected f32 or bf16", mr_dtype_name(out));
    if (b && (b->rank != 1 || b->dim[0] != w->dim[0]))
        return mr_fail(MR_E_SHAPE, "b is %s, expected [%lld] bf16",
                       mr_desc_text(b, text, sizeof text), (long long)w->dim[0]);
    if (c->in[X_OF])
        MR_TRY(mr_infer_same_shape(c->in[X], "x", c->in[X_OF], "x_of"));
    if (c->in[W_OF])
        MR_TRY(mr_infer_same_shape(w, "w", c->in[W_OF], "w_of"));
    mr_desc y = *c->in[X];
    y.dim[y.rank - 1] = w->dim[0];
    mr_infer_out(c, 0, out, y.rank, y.dim);
    return MR_OK;
}

static mr_status linear_prepare(const mr_call *call, const mr_facts *facts, void **state)
{
    shape s = linear_shape(call);
    return prepare(&s, facts, state);
}
static size_t linear_workspace(const mr_call *call, const mr_facts *facts)
{
    shape s = linear_shape(call);
    return s.product_at + mr_product_workspace(&s.spec, facts);
}

MR_KERNEL(linear_f8)
{
    const shape s = linear_shape(call);
    char *work = call->workspace;
    const mr_view *y = &call->out[0];
    const uint16_t *b = call->in[B].data;
    float *bias = b ? (float *)(work + s.bias_at) : NULL, *sums = (float *)(work + s.sums_at);
    widened x = widen_begin(call, X, s.a_at, s.k), w = widen_begin(call, W, s.b_at, s.k);
    widen(&w, 0, 0, s.n, call->threads);
    for (int64_t j = 0; b && j < s.n; j++)
        bias[j] = mr_bf16_to_f32(b[j]);
    for (int64_t at = 0; at < s.m; at += s.spec.m) {
        int64_t count = MR_MIN(s.spec.m, s.m - at) * s.n;
        widen(&x, at, 0, s.spec.m, call->threads);
        MR_TRY(mr_product_run(call->state, x.to, w.to, bias, sums, work + s.product_at));
        mr_view from = {sums, mr_desc_dense(MR_F32, 1, &count)},
                to = {(char *)y->data + at * s.n * (int64_t)mr_dtype_bytes(y->desc.dtype),
                      mr_desc_dense(y->desc.dtype, 1, &count)};
        MR_TRY(mr_view_copy(&to, &from));
    }
    return MR_OK;
}

static mr_status needs(const mr_grad *ctx, int in, const char *name)
{
    if (ctx->in[in] != MR_NONE)
        return MR_OK;
    return mr_fail(MR_E_USAGE,
                   "its gradient reads %s, which is missing; try: quantise_f8 with transposed = "
                   "true, and its third output",
                   name);
}

static mr_status linear_grad(mr_grad *ctx)
{
    // quantise dy, and transpose it if the gradient of the weight sums over its rows
    mr_ref dy = ctx->dout[0], q[MR_MAX_OUT], acc;
    if (ctx->need[X_OF] || ctx->need[W_OF])
        MR_TRY(mr_grad_op(
            ctx, "quantise_f8",
            MR_ATTRS({"dtype", .i = MR_F8_E5M2}, {"transposed", .i = ctx->need[W_OF]}), &dy, 1, q));
    if (ctx->need[X_OF]) {
        MR_TRY(needs(ctx, W_T, "w_t"));
        MR_TRY(mr_grad_op(ctx, "linear_f8", MR_ATTRS({"dtype", .i = mr_grad_desc(ctx, dy)->dtype}),
                          (mr_ref[]){q[0], q[1], ctx->in[W_T], ctx->in[W_SCALE]}, 4,
                          &ctx->din[X_OF]));
    }
    if (ctx->need[W_OF]) {
        MR_TRY(needs(ctx, X_T, "x_t"));
        MR_TRY(mr_grad_acc(ctx, W_OF, &acc));
        MR_TRY(mr_grad_node(ctx, W_OF, "linear_dw_f8", q[2], q[1], ctx->in[X_T], ctx->in[X_SCALE],
                            acc));
    }
    if (ctx->need[B]) {
        MR_TRY(mr_grad_acc(ctx, B, &acc));
        MR_TRY(mr_grad_node(ctx, B, "linear_db", dy, acc));
    }
    return MR_OK;
}

/* sum over k of a[i, k] b[j, k], in f64 */
static double dot(const double *a, const double *b, int64_t k)
{
    double total = 0;
    for (int64_t p = 0; p < k; p++)
        total += a[p] * b[p];
    return total;
}

static mr_status linear_naive(const mr_call *call)
{
    const double *x = call->in[X].data, *w = call->in[W].data, *b = call->in[B].data,
                 scale = *(const double *)call->in[X_SCALE].data *
                         *(const double *)call->in[W_SCALE].data;
    double *y = call->out[0].data;
    const shape s = linear_shape(call);
    int64_t n = s.n, k = s.k;
    for (int64_t i = 0; i < s.m * n; i++)
        y[i] = scale * dot(x + i / n * k, w + i % n * k, k) + (b ? b[i % n] : 0);
    return MR_OK;
}

/* Bytes that are read and written; x_of and w_of are not read. */
static double moved(const mr_call *call, int from, int n)
{
    double bytes = 0;
    for (int i = from; i < n; i++)
        if (mr_given(&call->in[i]))
            bytes += (double)mr_desc_count(&call->in[i].desc) *
                     (double)mr_dtype_bytes(call->in[i].desc.dtype);
    const mr_desc *out = &call->out[0].desc;
    return bytes + (double)mr_desc_count(out) * (double)mr_dtype_bytes(out->dtype);
}
static double flop_of(const shape *s)
{
    return 2 * (double)s->m * (double)s->n * (double)s->k;
}
static void linear_cost(const mr_call *call, mr_cost *cost)
{
    shape s = linear_shape(call);
    *cost = (mr_cost){flop_of(&s), moved(call, X, B + 1)};
}

/* ---- linear_dw_f8 ---- */

static mr_status dw_infer(mr_infer *c)
{
    char text[128];
    const mr_desc *dy = c->in[0], *x = c->in[2], *acc = c->in[4];
    MR_TRY(mr_infer_rank(dy, "dy_t", 2));
    MR_TRY(operands_fit(dy, "dy_t", x, "x_t"));
    MR_TRY(scale_fits(c->in[1], "dy_scale"));
    MR_TRY(scale_fits(c->in[3], "x_scale"));
    if (dy->dim[0] % 16 || acc->rank != 2 || acc->dim[0] != dy->dim[0] || acc->dim[1] != x->dim[0])
        return mr_fail(MR_E_SHAPE, "acc is %s, expected [%lld, %lld] f32, multiples of 16",
                       mr_desc_text(acc, text, sizeof text), (long long)dy->dim[0],
                       (long long)x->dim[0]);
    mr_infer_out_like(c, 0, acc);
    return MR_OK;
}
static mr_status dw_prepare(const mr_call *call, const mr_facts *facts, void **state)
{
    shape s = dw_shape(call);
    return prepare(&s, facts, state);
}
static size_t dw_workspace(const mr_call *call, const mr_facts *facts)
{
    shape s = dw_shape(call);
    return s.product_at + mr_product_workspace(&s.spec, facts);
}
MR_KERNEL(linear_dw_f8)
{
    const shape s = dw_shape(call);
    char *work = call->workspace;
    widened dy = widen_begin(call, 0, s.a_at, s.spec.k), x = widen_begin(call, 2, s.b_at, s.spec.k);
    for (int64_t at = 0; at < s.k; at += s.spec.k) {
        widen(&dy, 0, at, s.m, call->threads);
        widen(&x, 0, at, s.n, call->threads);
        MR_TRY(
            mr_product_run(call->state, dy.to, x.to, NULL, call->out[0].data, work + s.product_at));
    }
    return MR_OK;
}
static mr_status dw_naive(const mr_call *call)
{
    const double *dy = call->in[0].data, *x = call->in[2].data, *acc = call->in[4].data,
                 scale = *(const double *)call->in[1].data * *(const double *)call->in[3].data;
    double *dw = call->out[0].data;
    const shape s = dw_shape(call);
    int64_t n = s.n, k = s.k;
    for (int64_t i = 0; i < s.m * n; i++)
        dw[i] = acc[i] + scale * dot(dy + i / n * k, x + i % n * k, k);
    return MR_OK;
}
static void dw_cost(const mr_call *call, mr_cost *cost)
{
    shape s = dw_shape(call);
    *cost = (mr_cost){flop_of(&s), moved(call, 0, 5)};
}

/* ---- definitions ---- */

#define F8 "f8_e4m3|f8_e5m2"

MR_OP(linear_f8) = {
    .name = "linear_f8",
    .doc =
        "y = x w^T + b of 8-bit operands, each times its scale; x_of and w_of get the gradients.",
    .ref = "torchao v0.9, float8: tensorwise recipe; cuBLAS, cublasLtMatmul: FP8 kernels",
    .in = {{"x", "[..., K] " F8, MR_CONTIG, MR_NO_GRAD},
           {"x_scale", "[1] f32", MR_CONTIG, MR_NO_GRAD},
           {"w", "[N, K] " F8, MR_CONTIG, MR_NO_GRAD},
           {"w_scale", "[1] f32", MR_CONTIG, MR_NO_GRAD},
           {"b", "[N] bf16", MR_CONTIG, MR_OPTIONAL},
           {"x_t", "[K, rows] " F8, MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD},
           {"w_t", "[K, N] " F8, MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD},
           {"x_of", "[..., K] f32|bf16", MR_ANY, MR_OPTIONAL},
           {"w_of", "[N, K] f32|bf16", MR_ANY, MR_OPTIONAL}},
    .out = {{"y", "[..., N] f32|bf16", 0, false, MR_CONTIG}},
    .attr = {{"dtype", MR_ATTR_I64, offsetof(attr, dtype), .def = MR_BF16, .min = 0,
              .max = MR_DTYPE_COUNT - 1, .doc = "dtype code of y"}},
    .infer = linear_infer,
    .grad = linear_grad,
    .cost = linear_cost,
    .naive = linear_naive,
    .cpu = {.run = MR_CPU(linear_f8),
            .prepare = linear_prepare,
            .release = release,
            .workspace = linear_workspace},
    PRODUCT_TOL,
    .cases = MR_CASES(
        "x=[3,7,32] f8_e4m3 x_scale=[1] f32 0.5..2 w=[48,32] f8_e4m3 w_scale=[1] f32 0.5..2 "
        "b=[48] bf16 dtype=f32 grad=elsewhere",
        "x=[70,64] f8_e4m3 -9..9 x_scale=[1] f32 0.01..2 w=[80,64] f8_e4m3 w_scale=[1] f32 1..2 "
        "b=[80] bf16 grad=elsewhere",
        "x=[33,48] f8_e5m2 x_scale=[1] f32 1..2 w=[16,48] f8_e4m3 w_scale=[1] f32 1..2 "
        "grad=elsewhere",
        "x=[16] f8_e4m3 x_scale=[1] f32 1..2 w=[16,16] f8_e5m2 w_scale=[1] f32 1..2 dtype=f32 "
        "grad=elsewhere",
        // pieces of 256 rows, the last one of 44
        "x=[3,100,32] f8_e4m3 -9..9 x_scale=[1] f32 1..2 w=[32,32] f8_e4m3 w_scale=[1] f32 1..2 "
        "dtype=f32 grad=elsewhere",
        "x=[0,16] f8_e4m3 x_scale=[1] f32 1..2 w=[32,16] f8_e4m3 w_scale=[1] f32 1..2 "
        "grad=elsewhere"),
};

MR_OP(linear_dw_f8) = {
    .name = "linear_dw_f8",
    .doc = "Gradient of linear_f8 with respect to w_of, added to acc.",
    .in = {{"dy_t", "[N, rows] " F8, MR_CONTIG, 0},
           {"dy_scale", "[1] f32", MR_CONTIG, 0},
           {"x_t", "[K, rows] " F8, MR_CONTIG, 0},
           {"x_scale", "[1] f32", MR_CONTIG, 0},
           {"acc", "[N, K] f32", MR_CONTIG, 0}},
    .out = {{"dw", "[N, K] f32", 5, true, MR_CONTIG}},
    .infer = dw_infer,
    .cost = dw_cost,
    .naive = dw_naive,
    .cpu = {.run = MR_CPU(linear_dw_f8),
            .prepare = dw_prepare,
            .release = release,
            .workspace = dw_workspace},
    .hidden = true,
    PRODUCT_TOL,
    .cases = MR_CASES(
        "dy_t=[48,32] f8_e5m2 dy_scale=[1] f32 0.5..2 x_t=[32,32] f8_e4m3 x_scale=[1] f32 0.5..2 "
        "acc=[48,32] f32",
        "dy_t=[16,160] f8_e5m2 -9..9 dy_scale=[1] f32 0.01..2 x_t=[80,160] f8_e4m3 "
        "x_scale=[1] f32 1..2 acc=[16,80] f32",
        "dy_t=[16,304] f8_e5m2 dy_scale=[1] f32 1..2 x_t=[32,304] f8_e4m3 x_scale=[1] f32 1..2 "
        "acc=[16,32] f32",
        "dy_t=[16,0] f8_e4m3 dy_scale=[1] f32 1..2 x_t=[16,0] f8_e4m3 x_scale=[1] f32 1..2 "
        "acc=[16,16] f32"),
};
