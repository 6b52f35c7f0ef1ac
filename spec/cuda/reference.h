/* The reference of a kernel: a case of an op with values, and the results of the op's naive f64
 * kernel. */
#ifndef MR_TRUTH_H
#define MR_TRUTH_H
#include "opcase.h"

typedef struct reference {
    const op_case *c;
    double *in[MR_MAX_IN], *out[MR_MAX_OUT];
    mr_desc out_desc[MR_MAX_OUT];
    unsigned char attr[MR_ATTR_BYTES] __attribute__((aligned(16)));
} reference;

static mr_status infer(const mr_op *op, const mr_desc *const *in, const void *attr, mr_infer *ctx)
{
    *ctx = (mr_infer){.n_in = mr_op_n_in(op), .attr = attr};
    for (int i = 0; i < ctx->n_in; i++)
        ctx->in[i] = in[i];
    for (int k = 0; k < MR_MAX_OUT; k++)
        ctx->out[k].rank = -1;
    MR_TRY(mr_op_check_dtypes(op, ctx));
    return op->infer(ctx);
}

static double *doubles(const mr_desc *d)
{
    return malloc(sizeof(double) * (size_t)MR_MAX(mr_desc_count(d), 1));
}

// run the naive kernel on dense arguments: floats as doubles, integers unchanged
static mr_status naive(reference *t)
{
    const mr_op *op = t->c->op;
    mr_call call = {
        .n_in = mr_op_n_in(op), .n_out = mr_op_n_out(op), .attr = t->attr, .threads = 1};
    buf in[MR_MAX_IN] = {0}, out[MR_MAX_OUT] = {0};
    for (int i = 0; i < call.n_in + call.n_out; i++) {
        bool input = i < call.n_in;
        int k = input ? i : i - call.n_in;
        mr_view *view = input ? &call.in[k] : &call.out[k];
        const mr_desc *d = input ? &t->c->in[k].desc : &t->out_desc[k];
        view->desc.rank = -1;
        if (input ? !t->c->in[k].given : d->rank < 0)
            continue;
        mr_desc wide =
            mr_desc_dense(mr_dtype_is_float(d->dtype) ? MR_F64 : d->dtype, d->rank, d->dim);
        buf *b = input ? &in[k] : &out[k];
        *b = buf_new(&wide, LAY_DENSE, 0);
        *view = b->view;
        mr_view values = input ? dense_f64(d, t->in[k]) : b->view;
        if (input)
            mr_view_copy(&b->view, &values);
    }
    size_t bytes = mr_op_naive_workspace(op, &call);
    call.workspace = bytes ? aligned_alloc(64, (bytes + 63) & ~(size_t)63) : NULL;
    mr_status st = mr_op_run_naive(op, &call);
    for (int k = 0; k < call.n_out; k++)
        if (t->out[k]) {
            mr_view to = dense_f64(&t->out_desc[k], t->out[k]);
            mr_view_copy(&to, &out[k].view);
            // a value beyond f32 is infinite there
            for (int64_t i = 0, n = mr_desc_count(&t->out_desc[k]); i < n; i++)
                if (t->out_desc[k].dtype != MR_F64 && fabs(t->out[k][i]) > 3.4028235e38)
                    t->out[k][i] = copysign(INFINITY, t->out[k][i]);
            buf_free(&out[k]);
        }
    for (int i = 0; i < call.n_in; i++)
        buf_free(&in[i]);
    free(call.workspace);
    return st;
}

// a case as text: attributes and shapes, without values
static mr_status reference_of(const op_case *c, reference *t)
{
    *t = (reference){.c = c};
    MR_TRY(mr_op_attrs(c->op, c->attr, c->n_attr, t->attr));
    const mr_desc *in[MR_MAX_IN] = {0};
    for (int i = 0; i < mr_op_n_in(c->op); i++)
        in[i] = c->in[i].given ? &c->in[i].desc : NULL;
    mr_infer ctx;
    MR_TRY(infer(c->op, in, t->attr, &ctx));
    memcpy(t->out_desc, ctx.out, sizeof t->out_desc);
    return MR_OK;
}

static mr_status reference_new(const op_case *c, reference *t)
{
    MR_TRY(reference_of(c, t));
    for (int i = 0; i < mr_op_n_in(c->op); i++)
        t->in[i] = c->in[i].given ? case_values(&c->in[i]) : NULL;
    for (int k = 0; k < mr_op_n_out(c->op); k++)
        t->out[k] = t->out_desc[k].rank >= 0 ? doubles(&t->out_desc[k]) : NULL;
    return naive(t);
}

static void reference_free(reference *t)
{
    for (int i = 0; i < MR_MAX_IN; i++)
        free(t->in[i]);
    for (int k = 0; k < MR_MAX_OUT; k++)
        free(t->out[k]);
}

#endif
