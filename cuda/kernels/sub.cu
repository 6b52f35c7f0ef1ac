/* sub: y = a - b. Forms, strides and bytes: elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"

struct Sub {
    MR_MEMBER float operator()(const float (&x)[2]) const
    {
        return x[0] - x[1];
    }
};

MR_CUDA_KERNEL(sub)
{
    return elementwise_like<Sub, 2>(Sub(), call, stream);
}
