/* op: runs the naive kernel of an op on arguments of any dtype and strides. The kernel gets every
 * floating-point argument as dense f64, and every other argument dense. Licence: Apache-2.0 */
#include "moonreel/op.h"

static size_t round64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static bool replaced(const mr_desc *d)
{
    if (d->rank < 0)
        return false;
    return !mr_desc_is_dense(d) || (mr_dtype_is_float(d->dtype) && d->dtype != MR_F64);
}

static mr_desc stand_in(const mr_desc *d)
{
    return mr_desc_dense(mr_dtype_is_float(d->dtype) ? MR_F64 : d->dtype, d->rank, d->dim);
}

static size_t stand_in_bytes(const mr_desc *d)
{
    if (!replaced(d))
        return 0;
    mr_desc s = stand_in(d);
    return round64((size_t)mr_desc_count(&s) * mr_dtype_bytes(s.dtype));
}

size_t mr_op_naive_workspace(const mr_op *op, const mr_call *call)
{
    (void)op;
    size_t bytes = 0;
    for (int i = 0; i < call->n_in; i++)
        bytes += stand_in_bytes(&call->in[i].desc);
    for (int i = 0; i < call->n_out; i++)
        bytes += stand_in_bytes(&call->out[i].desc);
    return bytes;
}

mr_status mr_op_run_naive(const mr_op *op, const mr_call *call)
{
    if (!op->naive)
        return mr_fail(MR_E_UNSUPPORTED, "op '%s' has no naive kernel; try: f32 or bf16 inputs",
                       op->name);
    mr_call wide = *call;
    size_t used = 0;
#define PLACE(d) (stand_in_bytes(d) ? (char *)call->workspace + used : NULL)
    for (int i = 0; i < call->n_in; i++) {
        const mr_view *v = &call->in[i];
        if (!replaced(&v->desc))
            continue;
        wide.in[i] = (mr_view){PLACE(&v->desc), stand_in(&v->desc)};
        used += stand_in_bytes(&v->desc);
        MR_TRY(mr_view_copy(&wide.in[i], v));
    }
    for (int i = 0; i < call->n_out; i++) {
        const mr_view *v = &call->out[i];
        if (!replaced(&v->desc))
            continue;
        wide.out[i] = (mr_view){PLACE(&v->desc), stand_in(&v->desc)};
        used += stand_in_bytes(&v->desc);
    }
#undef PLACE
    wide.workspace = NULL, wide.state = NULL;
    MR_TRY(op->naive(&wide));
    for (int i = 0; i < call->n_out; i++)
        if (wide.out[i].data != call->out[i].data)
            MR_TRY(mr_view_copy(&call->out[i], &wide.out[i]));
    return MR_OK;
}
