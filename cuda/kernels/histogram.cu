/* histogram: counts elements by magnitude. Bins as in core/op/histogram.c.
 *
 *   x [n] f32, scale [1] f64 -> y [500] f64
 *
 * Reads 4 bytes per element, once. A block counts a range in shared memory, in floats, which are
 * exact up to 2^24. Then one thread per number adds the ranges. Counts do not depend on any order;
 * sums are added in a fixed order. */
#include "cuda/kernels/block_sum.cuh"
#include "cuda/kernels/kernel_call.h"

enum { THREADS = 256, RANGE = 1 << 16, SIDE = 248, BINS = 2 * SIDE + 1, ALL = BINS + 3 };
enum { FIRST = (127 - 46) * 4 };

MR_DEVICE int bin_of(float x)
{
    if (x != x)
        return BINS;
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    int key = (int)(bits << 1 >> 22) - FIRST;
    if (key < 0)
        return SIDE;
    key = key < SIDE - 1 ? key : SIDE - 1;
    return bits >> 31 ? SIDE - 1 - key : SIDE + 1 + key;
}

__global__ void __launch_bounds__(THREADS)
    count_range(const float *x, int64_t n, const double *scale, double *out)
{
    MR_SHARED(memory);
    double *sums = (double *)memory;
    float *counts = (float *)(sums + 2 * THREADS), by = (float)*scale;
    int64_t first = (int64_t)blockIdx.x * RANGE, last = first + RANGE < n ? first + RANGE : n;
    for (int k = threadIdx.x; k <= BINS; k += THREADS)
        counts[k] = 0;
    __syncthreads();
    double s[2] = {0, 0};
    for (int64_t i = first + threadIdx.x; i < last; i += THREADS) {
        float v = x[i] * by;
        atomicAdd(counts + bin_of(v), 1.0f);
        double z = isfinite(v) ? v : 0;
        s[0] += z;
        s[1] += z * z;
    }
    mr_block_sums<THREADS>(s, sums, out + (int64_t)blockIdx.x * ALL + BINS + 1);
    __syncthreads();
    for (int k = threadIdx.x; k <= BINS; k += THREADS)
        out[(int64_t)blockIdx.x * ALL + k] = counts[k];
}

// one thread per number
__global__ void __launch_bounds__(THREADS)
    add_ranges(const double *parts, int64_t ranges, double *out)
{
    int k = blockIdx.x * THREADS + threadIdx.x;
    if (k >= ALL)
        return;
    double sum = 0;
    for (int64_t r = 0; r < ranges; r++)
        sum += parts[r * ALL + k];
    out[k] = sum;
}

static size_t workspace(const mr_call *call, const mr_facts *)
{
    return (size_t)mr_cuda_ceil(call->in[0].desc.dim[0], RANGE) * ALL * sizeof(double);
}

MR_CUDA_KERNEL(histogram, workspace)
{
    int64_t n = call->in[0].desc.dim[0], ranges = mr_cuda_ceil(n, RANGE);
    double *parts = (double *)call->workspace;
    if (ranges > 0)
        MR_LAUNCH(count_range, dim3((unsigned)ranges), dim3(THREADS),
                  2 * THREADS * sizeof(double) + (BINS + 1) * sizeof(float), stream,
                  (const float *)call->in[0].data, n, (const double *)call->in[1].data, parts);
    MR_LAUNCH(add_ranges, dim3((ALL + THREADS - 1) / THREADS), dim3(THREADS), 0, stream, parts,
              ranges, (double *)call->out[0].data);
    return MR_OK;
}
