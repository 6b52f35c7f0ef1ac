/* where: y = mask ? a : b; the mask has one byte per element. Forms, strides and bytes:
 * elementwise.cuh. */
#include "cuda/kernels/elementwise.cuh"

struct Where {
    MR_MEMBER float operator()(const float (&x)[3]) const
    {
        return x[0] != 0 ? x[1] : x[2];
    }
};

MR_CUDA_KERNEL(where)
{
    if (call->out[0].desc.dtype == MR_BF16)
        return elementwise<Where, mr_bf16, uint8_t, mr_bf16, mr_bf16>(Where(), call, stream);
    return elementwise<Where, float, uint8_t, float, float>(Where(), call, stream);
}
