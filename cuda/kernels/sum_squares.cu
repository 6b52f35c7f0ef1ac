/* sum_squares: the sum of x^2 in double, for the gradient norm of the optimizer.
 *
 *   x [n] f32 -> sum [1] f64
 *
 * Reads 4 bytes per element, once, 16 bytes at a time. Each block sums a range whose length depends
 * only on n. Then one block adds these sums. The bits do not depend on the order of blocks. */
#include "cuda/kernels/block_sum.cuh"
#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/kernel_call.h"

enum { THREADS = 256, RANGE_MIN = 4096, RANGES_MAX = 1024 };

// x and the ranges begin at multiples of 16 bytes
__global__ void __launch_bounds__(THREADS)
    squares_of_range(const float *x, int64_t n, int64_t range, double *sums)
{
    MR_SHARED(memory);
    int64_t first = blockIdx.x * range, last = first + range < n ? first + range : n;
    double sum = 0;
    for (int64_t i = first + threadIdx.x * 4; i < last; i += THREADS * 4) {
        if (i + 4 <= last) {
            float v[4];
            mr_load(x + i, v);
#pragma unroll
            for (int e = 0; e < 4; e++)
                sum += (double)v[e] * (double)v[e];
        } else {
            for (int64_t k = i; k < last; k++)
                sum += (double)x[k] * (double)x[k];
        }
    }
    double total = mr_block_sum<THREADS>(sum, (double *)memory);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = total;
}

__global__ void __launch_bounds__(THREADS) add_ranges(const double *sums, int ranges, double *out)
{
    MR_SHARED(memory);
    double sum = 0;
    for (int i = threadIdx.x; i < ranges; i += THREADS)
        sum += sums[i];
    double total = mr_block_sum<THREADS>(sum, (double *)memory);
    if (threadIdx.x == 0)
        *out = total;
}

static int64_t range_of(int64_t n)
{
    int64_t each = mr_cuda_ceil(n, RANGES_MAX);
    return each < RANGE_MIN ? (int64_t)RANGE_MIN : mr_cuda_ceil(each, RANGE_MIN) * RANGE_MIN;
}

static size_t workspace(const mr_call *call, const mr_facts *)
{
    int64_t n = call->in[0].desc.dim[0];
    return (size_t)mr_cuda_ceil(n, range_of(n)) * sizeof(double);
}

MR_CUDA_KERNEL(sum_squares, workspace)
{
    const mr_view *x = &call->in[0];
    int64_t n = x->desc.dim[0], range = range_of(n);
    int ranges = (int)mr_cuda_ceil(n, range);
    double *sums = (double *)call->workspace;
    if (!mr_cuda_aligned(x->data, 16))
        return mr_fail(MR_E_UNSUPPORTED, "x begins at %p, expected a multiple of 16", x->data);
    if (ranges > 0)
        MR_LAUNCH(squares_of_range, dim3(ranges), dim3(THREADS), THREADS * sizeof(double), stream,
                  (const float *)x->data, n, range, sums);
    MR_LAUNCH(add_ranges, dim3(1), dim3(THREADS), THREADS * sizeof(double), stream, sums, ranges,
              (double *)call->out[0].data);
    return MR_OK;
}
