/* silu: y = x s, s = 1 / (1 + e^-x), and its gradient dx = dy s (1 + x (1 - s)).
 *
 * Forms, strides and bytes as elementwise.cuh says: every element is read and written once. */
#include "cuda/kernels/elementwise.cuh"

MR_DEVICE float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

struct Silu {
    MR_MEMBER float operator()(const float (&x)[1]) const
    {
        return x[0] * sigmoid(x[0]);
    }
};

struct SiluGrad {
    MR_MEMBER float operator()(const float (&x)[2]) const
    {
        float s = sigmoid(x[0]);
        return x[1] * s * (1 + x[0] * (1 - s));
    }
};

MR_CUDA_KERNEL(silu)
{
    return elementwise_like<Silu, 1>(Silu(), call, stream);
}

MR_CUDA_KERNEL(silu_grad)
{
    return elementwise_like<SiluGrad, 2>(SiluGrad(), call, stream);
}
