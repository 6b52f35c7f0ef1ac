/* normalise_u8: y = x 2 / 255 - 1, maps pixels of a clip to -1..1 as bf16 or f32 in one pass. A
 * bf16 result reads eight pixels per access. Forms, strides and bytes: elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"
#include "cuda/kernels/formula.cuh"

struct Normalise {
    MR_MEMBER float operator()(const float (&x)[1]) const
    {
        return formula_pixel(x[0]);
    }
};

MR_CUDA_KERNEL(normalise_u8)
{
    return call->out[0].desc.dtype == MR_BF16
               ? elementwise<Normalise, mr_bf16, uint8_t>(Normalise(), call, stream)
               : elementwise<Normalise, float, uint8_t>(Normalise(), call, stream);
}
