/* linear_f8: y = (x_scale w_scale) x w^T + b, and linear_dw_f8: acc += (dy_scale x_scale) dy_t
 * x_t^T
 *
 *   x [..., K], w [N, K], dy_t [N, rows], x_t [K, rows] in 8 bits, dense   b [N] bf16
 *   y [..., N] bf16 or f32   acc [N, K] f32
 *
 * These are products of cuda/gemm. Sums keep 14 bits; those of gradients go to f32 every 128
 * elements. One algorithm per shape makes runs reproducible. x_t, w_t, x_of and w_of of linear_f8
 * are not read. */
#include "cuda/gemm/product.h"
#include "cuda/kernels/kernel_call.h"

// C = product of the inputs `a` and `b`; the scale of each is the next input
static mr_product_f8 product_of(const mr_call *call, int a, int b, bool accumulate)
{
    const mr_view *A = &call->in[a], *B = &call->in[b];
    mr_product_f8 p = {};
    p.n = B->desc.dim[0];
    p.k = B->desc.dim[1];
    p.m = mr_desc_count(&call->out[0].desc) / MR_MAX(p.n, (int64_t)1);
    p.a_type = A->desc.dtype;
    p.b_type = B->desc.dtype;
    p.out = call->out[0].desc.dtype;
    p.accumulate = accumulate;
    p.a = A->data;
    p.b = B->data;
    p.a_scale = (const float *)call->in[a + 1].data;
    p.b_scale = (const float *)call->in[b + 1].data;
    return p;
}

static size_t linear_workspace(const mr_call *call, const mr_facts *)
{
    const mr_product_f8 p = product_of(call, 0, 2, false);
    return mr_cuda_product_f8_workspace(&p);
}

MR_CUDA_KERNEL(linear_f8, linear_workspace)
{
    const mr_product_f8 p = product_of(call, 0, 2, false);
    return mr_cuda_product_f8_run(&p, call->in[4].data, call->out[0].data, call->workspace, stream);
}

static size_t dw_workspace(const mr_call *call, const mr_facts *)
{
    const mr_product_f8 p = product_of(call, 0, 2, true);
    return mr_cuda_product_f8_workspace(&p);
}

MR_CUDA_KERNEL(linear_dw_f8, dw_workspace)
{
    const mr_product_f8 p = product_of(call, 0, 2, true);
    return mr_cuda_product_f8_run(&p, NULL, call->out[0].data, call->workspace, stream);
}
