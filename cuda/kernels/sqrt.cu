/* sqrt: y = square root of x. Forms, strides and bytes: elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"

struct Sqrt {
    MR_MEMBER float operator()(const float (&x)[1]) const
    {
        return sqrtf(x[0]);
    }
};

MR_CUDA_KERNEL(sqrt)
{
    return elementwise_like<Sqrt, 1>(Sqrt(), call, stream);
}
