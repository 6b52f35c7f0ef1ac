/* Sums over a block in a fixed order, in double.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_BLOCK_SUM_CUH
#define MOONREEL_CUDA_KERNELS_BLOCK_SUM_CUH

#include "cuda/prim/kernel.cuh"

// the sum over THREADS, a power of two, in thread 0; sums: THREADS doubles of shared memory
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

#endif
