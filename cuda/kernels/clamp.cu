/* clamp: y = min(max(x, low), high), NaN stays NaN. Its gradient: dx = dy if low <= x <= high, else
 * 0. Forms, strides and bytes: elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"

struct attr { // as in core/op/clamp.c
    double low, high;
};

struct Clamp {
    float low, high;
    MR_MEMBER float operator()(const float (&x)[1]) const
    {
        return x[0] < low ? low : x[0] > high ? high : x[0];
    }
};

struct ClampGrad {
    float low, high;
    MR_MEMBER float operator()(const float (&x)[2]) const
    {
        return x[0] >= low && x[0] <= high ? x[1] : 0;
    }
};

MR_CUDA_KERNEL(clamp)
{
    const attr *a = (const attr *)call->attr;
    return elementwise_like<Clamp, 1>({(float)a->low, (float)a->high}, call, stream);
}

MR_CUDA_KERNEL(clamp_grad)
{
    const attr *a = (const attr *)call->attr;
    return elementwise_like<ClampGrad, 2>({(float)a->low, (float)a->high}, call, stream);
}
