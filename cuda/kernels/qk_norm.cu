// qk_norm: rms_norm of each head, then rotation by the angles of its position. Kernels:
// rms_norm.cu.
#include "cuda/kernels/rms.h"

struct attr { // as in core/op/qk_norm.c
    double eps;
};

MR_CUDA_KERNEL(qk_norm)
{
    return mr_cuda_rms(&call->in[0], &call->in[1], &call->in[2], &call->in[3], &call->out[0],
                       ((const attr *)call->attr)->eps, stream);
}

static size_t grad_workspace(const mr_call *call, const mr_facts *)
{
    return mr_cuda_rms_workspace(&call->in[0], &call->in[5]);
}

MR_CUDA_KERNEL(qk_norm_grad, grad_workspace)
{
    return mr_cuda_rms_grad(&call->in[0], &call->in[1], &call->in[2], &call->in[3], &call->in[4],
                            &call->out[0], &call->out[1], ((const attr *)call->attr)->eps,
                            call->workspace, stream);
}
