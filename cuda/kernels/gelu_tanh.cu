/* gelu_tanh: y = x s, s = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3), and its gradient
 * dx = dy (s + 2 x s (1 - s) u').
 *
 * Forms, strides and bytes as elementwise.cuh says: every element is read and written once. */
#include "cuda/kernels/elementwise.cuh"

#define ROOT 0.7978845608028654
#define CUBE 0.044715

// s; x^3 of a large x is infinite, and s then 0 or 1
MR_DEVICE float gate(float x)
{
    return 1 / (1 + expf(-x * ((float)(2 * ROOT * CUBE) * x * x + (float)(2 * ROOT))));
}

struct Gelu {
    MR_MEMBER float operator()(const float (&x)[1]) const
    {
        return x[0] * gate(x[0]);
    }
};

struct GeluGrad {
    MR_MEMBER float operator()(const float (&x)[2]) const
    {
        float s = gate(x[0]), du2 = (float)(6 * ROOT * CUBE) * x[0] * x[0] + (float)(2 * ROOT);
        return x[1] * (x[0] * s * (1 - s) * du2 + s);
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
