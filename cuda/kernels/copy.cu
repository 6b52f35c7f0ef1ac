// copy: the same values in a dense layout. Every byte is read and written once, see copy.cuh.
#include "cuda/kernels/copy.cuh"

MR_CUDA_KERNEL(copy)
{
    return copy_view(&call->out[0], &call->in[0], stream);
}
