/* attention, backward, sm_90a, of many short problems: a block takes a problem, one head of one
 * sequence, whole, and walks its keys in tiles of 128 and for each of them all queries. Formulas as
 * in backward.cuh, steps of a block as in backward_sm90a.cuh.
 *
 * Between two tiles of keys dq lies in f32 in a slice of memory that this block alone uses, each
 * number read and written by one thread: nobody waits for a turn, and sums run over keys in order.
 * Blocks take problems one after the other, so that slices stay few.
 *
 * Counted on an H100, for 128 queries by 128 keys of 80 columns, in cycles of a processor: products
 * 4920 (2048 a cycle, of which 0.65 are reached), shared memory 3330 (128 bytes a cycle), L2 4900
 * (120 KB at some 25 bytes a cycle; 40 KB without slices). So slices have to stay in the L2, and
 * groups.h bounds them; a problem of one tile of keys needs none. Few problems leave processors
 * idle: those, and long ones, go by backward_turns_sm90a.cuh, where a few queries would pass on
 * turns faster than blocks can. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_BACKWARD_WHOLE_SM90A_CUH
#define MOONREEL_CUDA_ATTENTION_BACKWARD_WHOLE_SM90A_CUH

#include "cuda/attention/backward_sm90a.cuh"

// slices: of each block, for 64 queries after the other, piece by piece those of all threads
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
    p.counted = p.M;
    int group = mr_group_number(), t = 0, tiles = 0;
    GroupStages<D> stages;
    stages.begin(memory, 256);
    if (group == 0) {
        mr_registers_fewer<F::COPYING>();
        int problems = p.B * p.G * p.h, halves = (p.N + 63) / 64;
        for (int problem = blockIdx.x; problem < problems && threadIdx.x < 32;
             problem += gridDim.x) {
            Place at = place_at(p, problem, 0);
            for (int first = 0; first < at.keys; first += GROUP_ROWS, tiles++) {
                mr_mbarrier_wait(stages.released, tiles % 2 ^ 1);
                stages.hold_keys(k, v, p, at, first);
                for (int i = 0; i < halves * F::STEPS; i++, t++)
                    stages.walk_queries(q, dy, p, at, t, i * F::WALK, lse, dots, dlse);
            }
        }
        return;
    }

    mr_registers_more<F::WORKING>();
    int problems = p.B * p.G * p.h, halves = (p.N + 63) / 64, me = group - 1;
    int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const float ones[2] = {1, 1}, factor[2] = {p.scale, p.scale};
    slices += blockIdx.x * halves * F::SLICE + threadIdx.x % 128 * 4;
    for (int problem = blockIdx.x; problem < problems; problem += gridDim.x) {
        Place at = place_at(p, problem, 0);
        GroupOutput<F::COLUMNS> sum;
        GroupKeys<D> keys;
        // tiles without keys have nothing to walk, and their gradients are 0
        for (int first = 0; first < p.M; first += GROUP_ROWS) {
            int key = first + me * 64 + row;
            keys.clear();
            if (first < at.keys)
                mr_mbarrier_wait(stages.held, tiles % 2);
            for (int half = 0; half < halves && first < at.keys; half += 2) {
                unsigned char *buffer =
                    keys.walk(stages, t, half, halves, me, at.keys - key, p.scale * LOG2E);
                if (half + me >= halves)
                    continue;
                int query = (half + me) * 64 + row;
                mr_bf16 *out = dq.of(at.b, at.g, at.h) + query * dq.n;
                float *slice = slices + (half + me) * F::SLICE;
#pragma unroll 1
                for (int column = 0; column < D; column += F::COLUMNS) {
                    group_queries<D>(sum, memory, buffer, me, column);
                    if (first > 0)
                        group_pieces(sum, [&](float *x, int i) {
                            float before[4];
                            mr_load(slice + column * 64 + i * 512, before);
                            for (int e = 0; e < 4; e++)
                                x[e] += before[e];
                        });
                    if (first + GROUP_ROWS >= at.keys)
                        group_store<F::COLUMNS>(sum, factor, out + column, dq.n, p.N - query,
                                                p.d - column);
                    else
                        group_pieces(sum, [&](float *x, int i) {
                            const float now[4] = {x[0], x[1], x[2], x[3]};
                            mr_store(slice + column * 64 + i * 512, now);
                        });
                }
            }
            if (first < at.keys) {
                mr_mbarrier_arrive(stages.released);
                tiles++;
            }
            group_store<D>(keys.dk, factor, dk.of(at.b, at.g, at.h) + key * dk.n, dk.n, p.M - key,
                           p.d);
            group_store<D>(keys.dv, ones, dv.of(at.b, at.g, at.h) + key * dv.n, dv.n, p.M - key,
                           p.e);
        }
        // who sees no key has no gradient
        for (int query = me * 64 + row; query < p.N && at.keys == 0; query += 128) {
            keys.dk.clear();
            group_store<D>(keys.dk, factor, dq.of(at.b, at.g, at.h) + query * dq.n, dq.n,
                           p.N - query, p.d);
        }
    }
}

#endif
