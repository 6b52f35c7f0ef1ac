/* gelu_tanh: y = x s, s = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3), and its gradient dx
 * = dy (s + 2 x s (1 - s) u').
 *
 * Forms, strides and bytes: elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"
#include "cuda/kernels/formula.cuh"

struct Gelu {
    MR_MEMBER float operator()(const float (&x)[1]) const
    {
        return formula_gelu(x[0]);
    }
};

struct GeluGrad {
    MR_MEMBER float operator()(const float (&x)[2]) const
    {
        return formula_gelu_slope(x[0]) * x[1];
    }
};

MR_CUDA_KERNEL(gelu_tanh)
{
    return elementwise_like<Gelu, 1>(Gelu(), call, stream);
}

MR_CUDA_KERNEL(gelu_tanh_grad)
{
    return elementwise_like<GeluGrad, 2>(GeluGrad(), call, stream);
}
