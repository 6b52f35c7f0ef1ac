/* encode_dynamic8, decode_dynamic8: floats as 8-bit codes with one scale per block of elements.
 * Formulas as in core/op/dynamic8.c, values of codes from core/op/dynamic8.h.
 *
 *   x [n] f32 -> codes [n] u8, scale [blocks] f32, and back
 *
 * A warp processes a block; each lane takes every 32nd element. If blocks are multiples of 32,
 * accesses are whole sectors. Encoding reads a block twice, the second time from the cache. Codes
 * and values are computed, because random reads of tables in shared memory would cause bank
 * conflicts. There are no sums, so the bits are fixed. */
#include "cuda/kernels/formula.cuh"
#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/kernel_call.h"

#include "op/dynamic8.h"

#include <float.h>

enum { THREADS = 256, WARPS = THREADS / 32, GRID_MAX = 4096 };

struct attr { // as in core/op/dynamic8.c
    bool has_sign, root;
    int64_t block;
};

// parameters of both kernels
struct Blocks {
    int64_t n, blocks, block;
    bool has_sign, root;

    MR_MEMBER int64_t count(int64_t b) const
    {
        return MR_MIN(block, n - b * block);
    }
};

__global__ void __launch_bounds__(THREADS)
    encode_blocks(Blocks all, const float *x, uint8_t *codes, float *scale)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int64_t b = (int64_t)blockIdx.x * WARPS + warp; b < all.blocks;
         b += (int64_t)gridDim.x * WARPS) {
        const int64_t from = b * all.block, to = from + all.count(b);
        const float was = scale[b];
        float most = 0;
        bool other = false;
        for (int64_t i = from + lane; i < to; i += 32) {
            float kept = dynamic8_value(all.has_sign, codes[i]) * was;
            other = dynamic8_number(all.root, kept) != x[i] || other;
            most = fmaxf(most, fabsf(x[i]));
        }
        // if all codes already represent their elements, change nothing
        if (__ballot_sync(~0u, other) == 0)
            continue;
#pragma unroll
        for (int lanes = 16; lanes; lanes /= 2)
            most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
        most = dynamic8_kept(all.root, fminf(most, FLT_MAX));
        __syncwarp();
        for (int64_t i = from + lane; i < to; i += 32)
            codes[i] = (uint8_t)dynamic8_code(all.has_sign, dynamic8_kept(all.root, x[i]) /
                                                                (most > 0 ? most : 1));
        if (lane == 0)
            scale[b] = most;
    }
}

__global__ void __launch_bounds__(THREADS)
    decode_blocks(Blocks all, const uint8_t *codes, const float *scale, float *x)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int64_t b = (int64_t)blockIdx.x * WARPS + warp; b < all.blocks;
         b += (int64_t)gridDim.x * WARPS) {
        const int64_t from = b * all.block, to = from + all.count(b);
        const float by = scale[b];
        for (int64_t i = from + lane; i < to; i += 32)
            x[i] = dynamic8_number(all.root, dynamic8_value(all.has_sign, codes[i]) * by);
    }
}

static Blocks blocks_of(const mr_call *call)
{
    const attr *a = (const attr *)call->attr;
    const int64_t n = call->in[0].desc.dim[0];
    return {n, mr_cuda_ceil(n, a->block), a->block, a->has_sign, a->root};
}

static dim3 grid_of(const Blocks &all)
{
    return dim3((unsigned)MR_MIN(mr_cuda_ceil(all.blocks, WARPS), (int64_t)GRID_MAX));
}

MR_CUDA_KERNEL(encode_dynamic8)
{
    Blocks all = blocks_of(call);
    if (all.n > 0)
        MR_LAUNCH(encode_blocks, grid_of(all), dim3(THREADS), 0, stream, all,
                  (const float *)call->in[0].data, (uint8_t *)call->out[0].data,
                  (float *)call->out[1].data);
    return MR_OK;
}

MR_CUDA_KERNEL(decode_dynamic8)
{
    Blocks all = blocks_of(call);
    if (all.n > 0)
        MR_LAUNCH(decode_blocks, grid_of(all), dim3(THREADS), 0, stream, all,
                  (const uint8_t *)call->in[0].data, (const float *)call->in[1].data,
                  (float *)call->out[0].data);
    return MR_OK;
}
