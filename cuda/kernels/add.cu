/* add: y = a + b. Forms, strides and bytes: elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"

struct Add {
    MR_MEMBER float operator()(const float (&x)[2]) const
    {
        return x[0] + x[1];
    }
};

MR_CUDA_KERNEL(add)
{
    return elementwise_like<Add, 2>(Add(), call, stream);
}
