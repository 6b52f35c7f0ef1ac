/* exp: y = e^x. Forms, strides and bytes: elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"
#include "cuda/kernels/formula.cuh"

struct Exp {
    MR_MEMBER float operator()(const float (&x)[1]) const
    {
        return formula_exp(x[0]);
    }
};

MR_CUDA_KERNEL(exp)
{
    return elementwise_like<Exp, 1>(Exp(), call, stream);
}
