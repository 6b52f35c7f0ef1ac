/* Sums over a block in a fixed order, in double.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_BLOCK_SUM_CUH
#define MOONREEL_CUDA_KERNELS_BLOCK_SUM_CUH

#include "cuda/prim/kernel.cuh"

// the sum over THREADS threads, a power of two, in thread 0; sums: THREADS doubles of shared memory
template <int THREADS> MR_DEVICE double mr_block_sum(double v, double *sums)
{
    sums[threadIdx.x] = v;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    return sums[0];
}

// N sums over THREADS threads to out[0] .. out[N - 1], N at most THREADS / 32; one warp adds each.
// sums: N * THREADS doubles of shared memory. All threads of the block must call this.
template <int THREADS, int N>
MR_DEVICE void mr_block_sums(const double (&v)[N], double *sums, double *out)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int k = 0; k < N; k++)
        sums[k * THREADS + threadIdx.x] = v[k];
    __syncthreads();
    // each lane adds every 32nd value, then lane 0 adds the sums of the lanes
    if (warp < N) {
        double sum = 0;
        for (int i = lane; i < THREADS; i += 32)
            sum += sums[warp * THREADS + i];
        sums[warp * THREADS + lane] = sum;
    }
    __syncthreads();
    if (warp < N && lane == 0) {
        double total = 0;
        for (int i = 0; i < 32; i++)
            total += sums[warp * THREADS + i];
        out[warp] = total;
    }
}

#endif
