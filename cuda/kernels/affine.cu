/* affine: y = scale x + shift with two constants. Forms, strides and bytes: elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"

struct attr { // as in core/op/affine.c
    double scale, shift;
};

struct Affine {
    float scale, shift;
    MR_MEMBER float operator()(const float (&x)[1]) const
    {
        return fmaf(scale, x[0], shift);
    }
};

MR_CUDA_KERNEL(affine)
{
    const attr *a = (const attr *)call->attr;
    return elementwise_like<Affine, 1>({(float)a->scale, (float)a->shift}, call, stream);
}
