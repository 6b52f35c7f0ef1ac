/* div: y = a / b. Forms, strides and bytes: elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"

struct Div {
    MR_MEMBER float operator()(const float (&x)[2]) const
    {
        return x[0] / x[1];
    }
};

MR_CUDA_KERNEL(div)
{
    return elementwise_like<Div, 2>(Div(), call, stream);
}
