/* mul: y = a b. Forms, strides and bytes: elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"

struct Mul {
    MR_MEMBER float operator()(const float (&x)[2]) const
    {
        return x[0] * x[1];
    }
};

MR_CUDA_KERNEL(mul)
{
    return elementwise_like<Mul, 2>(Mul(), call, stream);
}
