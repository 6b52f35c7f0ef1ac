/* Bitwise copies of views with any strides and dtype.
 *
 * A thread moves units of 16 bytes if the dense rows, strides and addresses of both views allow
 * this, otherwise the largest possible unit of 8, 4, 2 or 1 bytes. Every byte is read and written
 * once.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_COPY_CUH
#define MOONREEL_CUDA_KERNELS_COPY_CUH

#include "cuda/kernels/walk.cuh"

enum { COPY_THREADS = 256, COPY_PER = 4 };

MR_DEVICE void copy_unit(uint4 *to, const uint4 *from)
{
    mr_store16(to, mr_load16(from));
}

MR_DEVICE void copy_unit(uint2 *to, const uint2 *from)
{
    mr_store8(to, mr_load8(from));
}

template <typename U> MR_DEVICE void copy_unit(U *to, const U *from)
{
    *to = *from;
}

template <typename U>
__global__ void __launch_bounds__(COPY_THREADS)
    copy_units(const __grid_constant__ Walk<2> walk, uint32_t count, U *y, const U *x)
{
    uint32_t first = blockIdx.x * (COPY_THREADS * COPY_PER) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < COPY_PER; k++) {
        uint32_t i = first + k * COPY_THREADS;
        if (i >= count)
            break;
        int64_t at[2];
        walk.at(i, at);
        copy_unit(y + at[0], x + at[1]);
    }
}

template <typename U>
static mr_status copy_launch(const Walk<2> &w, int64_t count, void *y, const void *x,
                             cudaStream_t stream)
{
    MR_LAUNCH((copy_units<U>), dim3((unsigned)mr_cuda_ceil(count, COPY_THREADS * COPY_PER)),
              dim3(COPY_THREADS), 0, stream, w, (uint32_t)count, (U *)y, (const U *)x);
    return MR_OK;
}

// y and x have the same shape and dtype
static inline mr_status copy_view(const mr_view *y, const mr_view *x, cudaStream_t stream)
{
    const mr_desc *views[2] = {&y->desc, &x->desc};
    const int64_t bytes = (int64_t)mr_dtype_bytes(y->desc.dtype);
    Walk<2> w;
    int64_t count;
    if (!walk_of(views, y->desc.rank, &w, &count))
        return walk_too_large(count);
    if (count == 0)
        return MR_OK;
    // the largest unit that divides all sizes and addresses; without dense rows, one element
    int last = w.rank - 1;
    int64_t unit = bytes;
    if (w.stride[0][last] == 1 && w.stride[1][last] == 1) {
        int64_t joint = (int64_t)(w.dim[last] * bytes) | (int64_t)(uintptr_t)y->data |
                        (int64_t)(uintptr_t)x->data | 16;
        for (int d = 0; d < last; d++)
            joint |= w.stride[0][d] * bytes | w.stride[1][d] * bytes;
        unit = joint & -joint;
        for (int v = 0; v < 2; v++)
            for (int d = 0; d < last; d++)
                w.stride[v][d] = w.stride[v][d] * bytes / unit;
        count = count * bytes / unit;
        w.dim[last] = (uint32_t)(w.dim[last] * bytes / unit);
    }
    if (unit == 16)
        return copy_launch<uint4>(w, count, y->data, x->data, stream);
    if (unit == 8)
        return copy_launch<uint2>(w, count, y->data, x->data, stream);
    if (unit == 4)
        return copy_launch<uint32_t>(w, count, y->data, x->data, stream);
    if (unit == 2)
        return copy_launch<uint16_t>(w, count, y->data, x->data, stream);
    return copy_launch<uint8_t>(w, count, y->data, x->data, stream);
}

#endif
