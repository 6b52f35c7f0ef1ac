/* attention, backward, sm_90a, of many short problems: a block takes a problem, one head of one
 * sequence, whole, and walks its keys in tiles of 128 and for each of them all queries. Formulas as
 * in backward.cuh, steps of a block as in backward_sm90a.cuh.
 *
 * Between two tiles of keys dq lies in f32 in a slice of memory that this block alone uses. To
 * each number of it one thread adds, tile after tile: so no block waits for another, and every sum
 * runs over the keys in order. A block takes one problem after the other with the same slice: there
 * are as many slices as blocks.
 *
 * Counted on an H100, for 128 queries by 128 keys of 80 columns, in cycles of a processor: products
 * 4920 (2048 a cycle, of which 0.65 are reached), shared memory 3380 (128 bytes a cycle), L2 3280
 * (80 KB at some 25 bytes a cycle; 40 KB without slices). So slices have to stay in the L2, and
 * groups.h bounds them; a problem of one tile of keys needs none. Few problems leave processors
 * idle: those, and long ones, go by backward_turns_sm90a.cuh, where a few queries would pass on
 * turns faster than blocks can. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_BACKWARD_WHOLE_SM90A_CUH
#define MOONREEL_CUDA_ATTENTION_BACKWARD_WHOLE_SM90A_CUH

#include "cuda/attention/backward_sm90a.cuh"

static_assert(sizeof(KeyWork) <= 56, "shared memory has room for the work (WORK_AT)");

// slices: one for each block
template <int D>
__global__ void __launch_bounds__(GROUP_THREADS, 1)
    attention_whole_groups(const __grid_constant__ HeadMaps q, const __grid_constant__ HeadMaps k,
                           const __grid_constant__ HeadMaps v, const __grid_constant__ HeadMaps dy,
                           const float *lse, const float *dots, const float *dlse, float *slices,
                           Heads dq, Heads dk, Heads dv, Attention p)
{
    typedef GroupBackward<D> F;
    MR_SHARED(memory);
    // nothing else comes here (mr_attention_groups_fit)
    p.frame = 0;
    int group = mr_group_number();
    KeyWork *work = (KeyWork *)(memory + F::WORK_AT);
    GroupStages<D> stages;
    stages.begin(memory, 256);
    if (group > 0) {
        mr_registers_more<F::WORKING>();
        group_gradients<D, false>(stages, work, slices, dq, dk, dv, p, group - 1);
        return;
    }
    mr_registers_fewer<F::COPYING>();
    int tiles = (p.M + GROUP_ROWS - 1) / GROUP_ROWS, t = 0;
    for (int i = 0; threadIdx.x < 32; i++) {
        int head = blockIdx.x + i / tiles * gridDim.x;
        bool there = head < p.B * p.G * p.h;
        mr_mbarrier_wait(stages.released, i % 2 ^ 1);
        __syncwarp();
        if (threadIdx.x == 0) {
            *work = key_work(p, there ? head : 0, i % tiles, blockIdx.x);
            work->over = !there;
            work->some &= there;
        }
        __syncwarp();
        stages.copy_work(*work, q, k, v, dy, p, lse, dots, dlse, t);
        if (work->over)
            return;
    }
}

#endif
