/* Products over rows of [..., C]. Operands that cuBLASLt cannot read are first copied to the
 * workspace. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_PRODUCT_ROWS_CUH
#define MOONREEL_CUDA_KERNELS_PRODUCT_ROWS_CUH

#include "cuda/kernels/gather.cuh"
#include "cuda/kernels/rows.cuh"

/* The product of a call, and the operands that must be copied to the workspace first. To compute
 * only the workspace size, addresses may be NULL. */
struct Plan {
    mr_product_spec spec;
    mr_view in[2], out, copy[3]; // copies of in[0], in[1], out; rank -1: not copied
    const void *bias;
    size_t bytes;
};

static inline mr_view rows_aside(const mr_view *v, Aside *aside, mr_view *copy)
{
    copy->desc.rank = -1;
    if (row_step(&v->desc))
        return *v;
    *copy = aside->dense(v);
    return *copy;
}

static inline int64_t columns(const mr_view *v)
{
    return v->desc.dim[v->desc.rank - 1];
}

// y = rows of in[0] times a weight, which is transposed for linear
static inline Plan rows_plan(const mr_call *call, bool transposed)
{
    Aside aside = {(char *)call->workspace, 0};
    const mr_view *w = &call->in[1];
    int64_t ld = w->desc.dim[1];
    Plan p = {};
    p.in[0] = rows_aside(&call->in[0], &aside, &p.copy[0]);
    p.in[1] = *w;
    p.out = rows_aside(&call->out[0], &aside, &p.copy[2]);
    p.copy[1].desc.rank = -1;
    p.bytes = aside.bytes;
    mr_product_spec &s = p.spec;
    s.batch = 1;
    s.k = columns(&p.in[0]);
    s.n = columns(&p.out);
    s.m = row_count(&p.out.desc);
    s.a_row = row_step(&p.in[0].desc);
    s.a_col = 1;
    s.b_row = transposed ? 1 : ld;
    s.b_col = transposed ? ld : 1;
    s.c_row = row_step(&p.out.desc);
    s.in = call->in[0].desc.dtype;
    s.out = call->out[0].desc.dtype;
    s.bias = transposed && call->in[2].desc.rank >= 0;
    p.bias = s.bias ? call->in[2].data : NULL;
    return p;
}

static inline size_t workspace_of(const Plan &p)
{
    return p.bytes + mr_cuda_product_workspace(&p.spec);
}

static inline mr_status run_plan(const Plan &p, const mr_call *call,
                                 const mr_product_ending *ending, cudaStream_t stream)
{
    for (int i = 0; i < 2; i++)
        if (p.copy[i].desc.rank >= 0)
            MR_TRY(copy_view(&p.copy[i], &call->in[i], stream));
    MR_TRY(mr_cuda_product_run(&p.spec, ending, p.in[0].data, p.in[1].data, p.bias, p.out.data,
                               (char *)call->workspace + p.bytes, stream));
    return p.copy[2].desc.rank >= 0 ? copy_view(&call->out[0], &p.copy[2], stream) : MR_OK;
}

// run with an epilogue if cuBLASLt supports it; otherwise *done is false
static inline mr_status run_ended(const Plan &p, const mr_call *call,
                                  const mr_product_ending *ending, cudaStream_t stream, bool *done)
{
    mr_status st = run_plan(p, call, ending, stream);
    *done = st != MR_E_UNSUPPORTED;
    if (*done)
        return st;
    mr_error_clear();
    return MR_OK;
}

#endif
