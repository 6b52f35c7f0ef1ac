/* silu: y = x s, s = 1 / (1 + e^-x), and its gradient dx = dy s (1 + x (1 - s)).
 *
 * Forms, strides and bytes: elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"
#include "cuda/kernels/formula.cuh"

struct Silu {
    MR_MEMBER float operator()(const float (&x)[1]) const
    {
        return formula_silu(x[0]);
    }
};

struct SiluGrad {
    MR_MEMBER float operator()(const float (&x)[2]) const
    {
        return formula_silu_slope(x[0]) * x[1];
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
