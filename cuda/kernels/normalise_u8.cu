/* normalise_u8: y = x 2 / 255 - 1, pixels of a clip as bf16 or f32 of -1..1 in one pass.
 *
 * Forms, strides and bytes as elementwise.cuh says: every element is read and written once, eight
 * pixels by one access where bf16 is asked for. */
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
