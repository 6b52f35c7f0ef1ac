/* zeros: sets all bytes to zero, each once: 16 at a time, the remaining bytes one by one. */
#include "cuda/kernels/kernel_call.h"

enum { THREADS = 256, PER = 4 };

// y begins at a multiple of 16 bytes
__global__ void __launch_bounds__(THREADS) zero_bytes(unsigned char *y, int64_t bytes)
{
    int64_t pieces = bytes / 16, first = (int64_t)blockIdx.x * (THREADS * PER) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < PER; k++)
        if (first + k * THREADS < pieces)
            mr_store16(y + (first + k * THREADS) * 16, {0, 0, 0, 0});
    if (first < bytes % 16)
        y[pieces * 16 + first] = 0;
}

MR_CUDA_KERNEL(zeros)
{
    const mr_view *y = &call->out[0];
    int64_t bytes = (int64_t)mr_desc_span_bytes(&y->desc);
    if (!mr_cuda_aligned(y->data, 16))
        return mr_fail(MR_E_UNSUPPORTED, "y begins at %p, expected a multiple of 16", y->data);
    if (bytes > 0)
        MR_LAUNCH(zero_bytes, dim3((unsigned)mr_cuda_ceil(bytes, 16 * THREADS * PER)),
                  dim3(THREADS), 0, stream, (unsigned char *)y->data, bytes);
    return MR_OK;
}
