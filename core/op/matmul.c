/* matmul: y = op(a) op(b) over equal leading dimensions; op transposes the last two if asked.
 * cpu/product.h computes one batched product if the leading dimensions have a common stride, else
 * one product per matrix. Licence: Apache-2.0 */
#include "cpu/product.h"
#include "op/define.h"

typedef struct matmul {
    bool ta, tb;
} matmul;

typedef struct state {
    mr_product *product;
    int64_t loops; /* number of products to run: 1, or one per matrix */
} state;

/* Merge the leading dimensions of d into one with a common stride (0 for a single matrix). False if
 * they have none. */
static bool joined(const mr_desc *d, int64_t *n, int64_t *step)
{
    *n = 1, *step = 0;
    for (int i = 0; i < d->rank - 2; i++) {
        if (d->dim[i] == 1)
            continue;
        if (*n > 1 && *step != d->stride[i] * d->dim[i])
            return false;
        *n *= d->dim[i], *step = d->stride[i];
    }
    return true;
}

/* The product of a call, and the number of times that it runs. */
static mr_product_spec spec_of(const mr_call *call, int64_t *loops)
{
    const matmul *at = call->attr;
    const mr_desc *a = &call->in[0].desc, *b = &call->in[1].desc, *y = &call->out[0].desc;
    int ra = a->rank, rb = b->rank;
    mr_product_spec spec = {.m = y->dim[y->rank - 2],
                            .n = y->dim[y->rank - 1],
                            .k = a->dim[at->ta ? ra - 2 : ra - 1],
                            .a_row = a->stride[at->ta ? ra - 1 : ra - 2],
                            .a_col = a->stride[at->ta ? ra - 2 : ra - 1],
                            .b_row = b->stride[at->tb ? rb - 1 : rb - 2],
                            .b_col = b->stride[at->tb ? rb - 2 : rb - 1],
                            .c_row = y->stride[y->rank - 2],
                            .in = a->dtype,
                            .out = y->dtype,
                            .batch = 1};
    int64_t n, m;
    *loops = 1;
    if (joined(a, &n, &spec.a_batch) && joined(b, &m, &spec.b_batch) && n == m)
        spec.batch = n;
    else
        *loops = mr_desc_count(y) / MR_MAX(spec.m * spec.n, 1);
    spec.c_batch = spec.m * spec.n;
    return spec;
}

static mr_status prepare(const mr_call *call, const mr_facts *facts, void **out)
{
    state *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    mr_product_spec spec = spec_of(call, &s->loops);
    mr_status st = mr_product_new(&spec, facts, &s->product);
    if (st != MR_OK)
        mr_free(s);
    else
        *out = s;
    return st;
}
static void release(void *state_of)
{
    state *s = state_of;
    if (s)
        mr_product_free(s->product);
    mr_free(s);
}
static size_t workspace(const mr_call *call, const mr_facts *facts)
{
    int64_t loops;
    mr_product_spec spec = spec_of(call, &loops);
    return mr_product_workspace(&spec, facts);
}
static const char *way(const mr_call *call, const mr_facts *facts)
{
    int64_t loops;
    mr_product_spec spec = spec_of(call, &loops);
    return mr_product_way(&spec, facts);
}

/* The address of matrix i. */
static char *matrix(const mr_view *v, int64_t i)
{
    int64_t at = 0;
    for (int k = v->desc.rank - 3; k >= 0; k--)
        at += i % v->desc.dim[k] * v->desc.stride[k], i /= v->desc.dim[k];
    return (char *)v->data + at * (int64_t)mr_dtype_bytes(v->desc.dtype);
}
MR_KERNEL(matmul)
{
    state *s = call->state;
    for (int64_t i = 0; i < s->loops; i++)
        MR_TRY(mr_product_run(s->product, matrix(&call->in[0], i), matrix(&call->in[1], i), NULL,
                              matrix(&call->out[0], i), call->workspace));
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    char ta[128], tb[128];
    const matmul *at = c->attr;
    const mr_desc *a = c->in[0], *b = c->in[1];
    bool ok = a->rank >= 2 && a->rank == b->rank && a->dtype == b->dtype;
    for (int i = 0; ok && i < a->rank - 2; i++)
        ok = a->dim[i] == b->dim[i];
    int r = a->rank;
    ok = ok && a->dim[at->ta ? r - 2 : r - 1] == b->dim[at->tb ? r - 1 : r - 2];
    if (!ok)
        return mr_fail(MR_E_SHAPE,
                       "a is %s%s, b is %s%s; expected [..., M, K] and [..., K, N] of one dtype",
                       mr_desc_text(a, ta, sizeof ta), at->ta ? " transposed" : "",
                       mr_desc_text(b, tb, sizeof tb), at->tb ? " transposed" : "");
    mr_desc y = *a;
    y.dim[r - 2] = a->dim[at->ta ? r - 1 : r - 2], y.dim[r - 1] = b->dim[at->tb ? r - 2 : r - 1];
    mr_infer_out_like(c, 0, &y);
    return MR_OK;
}

/* With A = op(a), B = op(b): dA = dy B^T, dB = A^T dy; each is transposed if its input was. */
static mr_status grad(mr_grad *ctx)
{
    const matmul *at = ctx->attr;
    mr_ref a = ctx->in[0], b = ctx->in[1], dy = ctx->dout[0];
    if (ctx->need[0])
        MR_TRY(at->ta ? mr_grad_op(ctx, "matmul", MR_ATTRS({"ta", .i = at->tb}, {"tb", .i = 1}),
                                   (mr_ref[]){b, dy}, 2, &ctx->din[0])
                      : mr_grad_op(ctx, "matmul", MR_ATTRS({"tb", .i = !at->tb}), (mr_ref[]){dy, b},
                                   2, &ctx->din[0]));
    if (ctx->need[1])
        MR_TRY(at->tb ? mr_grad_op(ctx, "matmul", MR_ATTRS({"ta", .i = 1}, {"tb", .i = at->ta}),
                                   (mr_ref[]){dy, a}, 2, &ctx->din[1])
                      : mr_grad_op(ctx, "matmul", MR_ATTRS({"ta", .i = !at->ta}), (mr_ref[]){a, dy},
                                   2, &ctx->din[1]));
    return MR_OK;
}

static mr_status naive(const mr_call *call)
{
    const matmul *at = call->attr;
    const mr_desc *y = &call->out[0].desc, *a = &call->in[0].desc;
    int64_t m = y->dim[y->rank - 2], n = y->dim[y->rank - 1],
            k = a->dim[at->ta ? a->rank - 2 : a->rank - 1];
    int64_t batch = m > 0 && n > 0 ? mr_desc_count(y) / (m * n) : 0;
    for (int64_t i = 0; i < batch; i++) {
        const double *x = (const double *)call->in[0].data + i * m * k,
                     *w = (const double *)call->in[1].data + i * k * n;
        double *to = (double *)call->out[0].data + i * m * n;
        for (int64_t r = 0; r < m; r++)
            for (int64_t c = 0; c < n; c++) {
                double total = 0;
                for (int64_t p = 0; p < k; p++)
                    total += x[at->ta ? p * m + r : r * k + p] * w[at->tb ? c * k + p : p * n + c];
                to[r * n + c] = total;
            }
    }
    return MR_OK;
}
static void cost(const mr_call *call, mr_cost *cost)
{
    const mr_desc *a = &call->in[0].desc;
    const matmul *at = call->attr;
    cost->flop = 2.0 * (double)mr_desc_count(&call->out[0].desc) *
                 (double)a->dim[at->ta ? a->rank - 2 : a->rank - 1];
}

MR_OP(matmul) = {
    .name = "matmul",
    .doc = "Matrix product over the last two dimensions; leading dimensions must be equal.",
    .in = {{"a", "[..., M, K] f32|bf16", MR_ANY, 0}, {"b", "[..., K, N] like a", MR_ANY, 0}},
    .out = {{"y", "[..., M, N] like a", 0, false, MR_CONTIG}},
    .attr = {{"ta", MR_ATTR_BOOL, offsetof(matmul, ta), .doc = "a is stored [..., K, M]"},
             {"tb", MR_ATTR_BOOL, offsetof(matmul, tb), .doc = "b is stored [..., N, K]"}},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(matmul),
            .prepare = prepare,
            .release = release,
            .workspace = workspace,
            .way = way},
    .tol_f32 = 5e-6,
    .tol_reason = "f32 sums over k in the library's order",
    .cases = MR_CASES("a=[5,7] f32 b=[7,9] f32", "a=[3,5,7] f32 b=[3,7,9]/any f32",
                      "a=[3,7,5] f32 b=[3,7,9] f32 ta=true",
                      "a=[2,3,5,7]/rows f32 b=[2,3,9,7] f32 tb=true",
                      "a=[2,7,5] f32 b=[2,9,7] f32 ta=true tb=true",
                      "a=[100,130] bf16 b=[130,90] bf16", "a=[1,4] f32 b=[4,1] f32",
                      "a=[3,5,0] f32 b=[3,0,2] f32"),
};
