/* attention, backward, sm_90a, for many short problems. A problem is one head of one sequence. A
 * block processes a whole problem: it loops over tiles of 128 keys and, for each tile, over all
 * queries. Formulas are in backward.cuh, the steps of a block in backward_sm90a.cuh.
 *
 * Between two tiles of keys, dq is stored in f32 in a slice of global memory that only this block
 * uses. One thread adds to each element, tile after tile, so no block waits for another, and every
 * sum runs over the keys in order. A block reuses its slice for its next problem: there is one
 * slice per block.
 *
 * Counts on an H100, for 128 queries by 128 keys of 80 columns, in cycles of a multiprocessor:
 * products 4920 (2048 a cycle, of which 0.65 are reached), shared memory 3380 (128 bytes a cycle),
 * L2 3280 (80 KB at about 25 bytes a cycle; 40 KB without slices). So slices must stay in the L2,
 * and groups.h limits them; a problem with one tile of keys needs no slice. Few problems would
 * leave multiprocessors idle: these, and long problems, use backward_turns_sm90a.cuh. For short
 * problems turns would not work well: with few queries, turns would have to pass faster than blocks
 * can. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_BACKWARD_WHOLE_SM90A_CUH
#define MOONREEL_CUDA_ATTENTION_BACKWARD_WHOLE_SM90A_CUH

#include "cuda/attention/backward_sm90a.cuh"

static_assert(sizeof(KeyWork) <= 56, "shared memory has room for the work (WORK_AT)");

// slices: one per block
template <int D>
__global__ void __launch_bounds__(GROUP_THREADS, 1)
    attention_whole_groups(const __grid_constant__ HeadMaps q, const __grid_constant__ HeadMaps k,
                           const __grid_constant__ HeadMaps v, const __grid_constant__ HeadMaps dy,
                           const float *lse, const float *dots, const float *dlse, float *slices,
                           Heads dq, Heads dk, Heads dv, Attention p)
{
    typedef GroupBackward<D> F;
    MR_SHARED(memory);
    // calls with frames never use this kernel (mr_attention_groups_fit); this removes code for them
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
