/* accumulate: acc += x, acc in f32. acc is read and written once, x read once. Forms and strides:
 * elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"

struct Accumulate {
    MR_MEMBER float operator()(const float (&x)[2]) const
    {
        return x[0] + x[1];
    }
};

MR_CUDA_KERNEL(accumulate)
{
    if (call->in[1].desc.dtype == MR_BF16)
        return elementwise<Accumulate, float, float, mr_bf16>(Accumulate(), call, stream);
    return elementwise<Accumulate, float, float, float>(Accumulate(), call, stream);
}
