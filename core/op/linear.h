/* linear: what ops share whose kernel is one matrix product over rows: linear, its gradients, and
 * their fusions with gelu_tanh.
 *
 * cpu/product.h computes the products; each is prepared once per node. Rows without a common stride
 * are copied to or from the workspace. Licence: Apache-2.0 */
#ifndef MR_LINEAR_H
#define MR_LINEAR_H

#include "cpu/product.h"
#include "op/define.h"

#define PRODUCT_TOL .tol_f32 = 5e-6, .tol_reason = "f32 sums over k in the library's order"

/* ---- rows of a matrix ---- */

/* A tensor [..., C] as a matrix of rows x C. */
typedef struct product_rows {
    int64_t n, c, step; /* number of rows, their length, their stride in elements */
    bool split;         /* rows have no common stride: gather or scatter them */
} product_rows;

MR_OP_FN product_rows product_rows_of(const mr_desc *d)
{
    product_rows r = {1, d->rank ? d->dim[d->rank - 1] : 1, 0, false};
    for (int i = 0; i < d->rank - 1; i++) {
        if (d->dim[i] != 1 && r.n > 1 && r.step != d->stride[i] * d->dim[i])
            r.split = true;
        if (d->dim[i] != 1)
            r.step = d->stride[i];
        r.n *= d->dim[i];
    }
    // the stride of a single row does not matter; repeated rows (stride 0) are gathered
    if (r.n <= 1)
        r.step = r.c;
    if (r.step < r.c)
        r.split = true;
    if (r.split)
        r.step = r.c;
    return r;
}

/* The offset of row i from the first row, in elements. */
MR_OP_FN int64_t product_row_at(const mr_desc *d, int64_t i)
{
    int64_t at = 0, rest = i;
    for (int k = d->rank - 2; k >= 0; k--)
        at += rest % d->dim[k] * d->stride[k], rest /= d->dim[k];
    return at;
}

/* ---- preparation ---- */

/* The product of a call, as its shapes determine it. */
typedef struct product_shape {
    mr_product_spec spec;
    product_rows in[2], out;
    size_t at[3], bytes; /* offsets in the workspace of gathered in[0], in[1] and out, then of the
                          * product's own */
} product_shape;
typedef product_shape product_shape_fn(const mr_call *call);

/* Bytes of dense rows, rounded up to a multiple of 64. */
MR_OP_FN size_t product_dense_bytes(int64_t elements, mr_dtype t)
{
    return ((size_t)elements * mr_dtype_bytes(t) + 63) & ~(size_t)63;
}

/* Reserve workspace for rows that are split. */
MR_OP_FN void product_aside(product_shape *s, const product_rows *r, mr_dtype t, int which)
{
    s->at[which] = s->bytes;
    s->bytes += r->split ? product_dense_bytes(r->n * r->c, t) : 0;
}

/* y [..., C] = rows of in[0] times a weight in[1], transposed or not; the row itself takes
 * the first `taken` bytes of the workspace. */
MR_OP_FN product_shape product_shape_of(const mr_call *call, const mr_desc *y, bool transposed,
                                        bool bias, size_t taken)
{
    const mr_desc *x = &call->in[0].desc, *w = &call->in[1].desc;
    product_shape s = {.in = {product_rows_of(x)}, .out = product_rows_of(y), .bytes = taken};
    product_aside(&s, &s.in[0], x->dtype, 0);
    product_aside(&s, &s.out, y->dtype, 2);
    int64_t ld = w->dim[1];
    s.spec = (mr_product_spec){.batch = 1,
                               .m = s.in[0].n,
                               .k = s.in[0].c,
                               .n = s.out.c,
                               .a_row = s.in[0].step,
                               .a_col = 1,
                               .b_row = transposed ? 1 : ld,
                               .b_col = transposed ? ld : 1,
                               .c_row = s.out.step,
                               .in = x->dtype,
                               .out = y->dtype,
                               .bias = bias};
    return s;
}

/* The state of a node; product_release frees it. */
typedef struct product_state {
    product_shape shape;
    mr_product *product;
} product_state;

MR_OP_FN mr_status product_prepare(product_shape_fn *shape_of, const mr_call *call,
                                   const mr_facts *facts, void **out)
{
    product_state *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    s->shape = shape_of(call);
    mr_status st = mr_product_new(&s->shape.spec, facts, &s->product);
    if (st != MR_OK) {
        mr_free(s);
        return st;
    }
    *out = s;
    return MR_OK;
}

MR_OP_FN void product_release(void *state)
{
    product_state *s = state;
    if (s)
        mr_product_free(s->product);
    mr_free(s);
}

MR_OP_FN size_t product_workspace(product_shape_fn *shape_of, const mr_call *call,
                                  const mr_facts *facts)
{
    product_shape s = shape_of(call);
    return s.bytes + mr_product_workspace(&s.spec, facts);
}

MR_OP_FN const char *product_way(product_shape_fn *shape_of, const mr_call *call,
                                 const mr_facts *facts)
{
    product_shape s = shape_of(call);
    return mr_product_way(&s.spec, facts);
}

// the cost is the operations of the product
MR_OP_FN void product_cost(product_shape_fn *shape_of, const mr_call *call, mr_cost *cost)
{
    product_shape s = shape_of(call);
    cost->flop = 2.0 * (double)(s.spec.m * s.spec.k) * (double)s.spec.n;
}

/* PRODUCT_BEFORE(id): defines prepare, workspace, way and cost of the op `id` from the shape that
 * id_shape(call) returns. PRODUCT_CPU(id): lists these and its kernel, for the definition. */
#define PRODUCT_BEFORE(id)                                                                         \
    static mr_status id##_prepare(const mr_call *call, const mr_facts *facts, void **state)        \
    {                                                                                              \
        return product_prepare(id##_shape, call, facts, state);                                    \
    }                                                                                              \
    static size_t id##_workspace(const mr_call *call, const mr_facts *facts)                       \
    {                                                                                              \
        return product_workspace(id##_shape, call, facts);                                         \
    }                                                                                              \
    static const char *id##_way(const mr_call *call, const mr_facts *facts)                        \
    {                                                                                              \
        return product_way(id##_shape, call, facts);                                               \
    }                                                                                              \
    static void id##_cost(const mr_call *call, mr_cost *cost)                                      \
    {                                                                                              \
        product_cost(id##_shape, call, cost);                                                      \
    }
#define PRODUCT_CPU(id)                                                                            \
    {                                                                                              \
        .run = MR_CPU(id), .prepare = id##_prepare, .release = product_release,                    \
        .workspace = id##_workspace, .way = id##_way                                               \
    }

/* ---- execution ---- */

typedef struct product_mover {
    char *dense;
    const mr_view *view;
    int64_t row_bytes;
    bool in;
} product_mover;

MR_OP_FN void product_move_part(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const product_mover *m = user;
    const mr_desc *d = &m->view->desc;
    for (int64_t i = begin; i < end; i++) {
        char *there =
                 (char *)m->view->data + product_row_at(d, i) * (int64_t)mr_dtype_bytes(d->dtype),
             *here = m->dense + i * m->row_bytes;
        memcpy(m->in ? here : there, m->in ? there : here, (size_t)m->row_bytes);
    }
}

/* Copy rows between a view and dense memory. */
MR_OP_FN void product_move(const product_rows *r, char *dense, const mr_view *v, bool in,
                           int threads)
{
    product_mover m = {dense, v, r->c * (int64_t)mr_dtype_bytes(v->desc.dtype), in};
    mr_cpu_for(r->n, MR_MAX(1, 65536 / MR_MAX(m.row_bytes, 1)), threads, product_move_part, &m);
}

/* Input `which` as the product reads it: gathered if it is split. */
MR_OP_FN void *product_gather(const mr_call *call, const product_shape *s, int which)
{
    if (!s->in[which].split)
        return call->in[which].data;
    char *dense = (char *)call->workspace + s->at[which];
    product_move(&s->in[which], dense, &call->in[which], true, call->threads);
    return dense;
}

/* Compute y = rows of in[0] times the weight in[1], by the shape in the state. */
MR_OP_FN mr_status product_run(const mr_call *call, const void *bias, const mr_view *y)
{
    const product_state *own = call->state;
    const product_shape *s = &own->shape;
    char *work = call->workspace, *dense = work + s->at[2];
    MR_TRY(mr_product_run(own->product, product_gather(call, s, 0), call->in[1].data, bias,
                          s->out.split ? dense : y->data, work + s->bytes));
    if (s->out.split)
        product_move(&s->out, dense, y, false, call->threads);
    return MR_OK;
}

#endif
