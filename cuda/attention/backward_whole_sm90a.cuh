/* attention, backward, sm_90a, of many short problems: a block takes a problem, one head of one
 * sequence, whole, and walks its keys in tiles of 128 and for each of them all queries. Formulas as
 * in backward.cuh, D of each row by attention_dots before.
 *
 * Five products: s and dp are formed once, as in attention_dkv_groups, whose steps these are. ds of
 * 128 queries goes through shared memory, two buffers of it, and each group forms dq of 64 of them
 * over the keys of both. Between two tiles of keys dq lies in f32 in a slice of memory that this
 * block alone uses, each number read and written by one thread: nobody waits for a turn, and sums
 * run over keys in order. Blocks take problems in turns, so that slices stay few.
 *
 * Counted on an H100, for 128 queries by 128 keys of 80 columns, in cycles of a processor (products
 * 2048 a cycle, shared memory 128 bytes, L2 some 25 bytes):
 *                     products   shared memory   from and to L2
 *     five                3200            3330   120 KB: 4900, 40 KB without slices
 *     seven               4480            4160    80 KB: 3280
 * Real products reach some 0.65 of that rate (five 4900, seven 6900), so that five gain 1.4 times
 * while slices stay in the L2, and lose where they go to memory: groups.h bounds a slice. A problem
 * of one tile of keys needs none. Few problems leave processors idle, and one long sequence shared
 * by blocks waits for turns at each tile of dq: those go by backward_sm90a.cuh.
 *
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_BACKWARD_WHOLE_SM90A_CUH
#define MOONREEL_CUDA_ATTENTION_BACKWARD_WHOLE_SM90A_CUH

#include "cuda/attention/backward_sm90a.cuh"
#include "cuda/kernels/pieces.cuh"

// ds of 128 keys by 128 queries in two blocks of 64 queries, behind what attention_dkv_groups has
template <int D> struct GroupWhole {
    static constexpr int WALK = DKV_WALK<D>, STEPS = 64 / WALK; // for 64 queries
    static constexpr int BLOCK = GROUP_ROWS * 128, BUFFER = 2 * BLOCK;
    static constexpr int DS_AT = (GroupBackward<D, WALK>::SHARED + 1023) / 1024 * 1024;
    static constexpr int SHARED = DS_AT + 2 * BUFFER;
    static constexpr int SLICE = 64 * GroupTile<D, 64>::COLUMNS; // numbers for 64 queries
    // columns of dq that are formed at a time: what registers are left for
    static constexpr int COLUMNS = D > 80 ? 64 : D;
    // registers of the group that copies and of those that work
    static constexpr int COPYING = D > 80 ? 32 : 40, WORKING = D > 80 ? 240 : 232;
};

// pieces of the thread's numbers, as they follow each other in accumulators
template <int D, class Visit> MR_DEVICE void group_pieces(GroupOutput<D> &acc, Visit visit)
{
#pragma unroll
    for (int i = 0; i < 8 * (D / 64); i++)
        visit(&acc.wide[4 * i], i);
#pragma unroll
    for (int i = 0; i < D % 64 / 8; i++)
        visit(&acc.rest[4 * i], 8 * (D / 64) + i);
}

// store ds of the group's keys and of the step's queries as rows of keys
template <int D>
MR_DEVICE void group_slopes(const GroupKeys<D> &keys, unsigned char *buffer, int me, int step)
{
    typedef GroupWhole<D> F;
    int lane = threadIdx.x % 32, key = me * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
    unsigned char *to = buffer + step / F::STEPS * F::BLOCK + key * 128 + lane % 4 * 4;
#pragma unroll
    for (int n = 0; n < F::WALK / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int piece = (step % F::STEPS * (F::WALK / 8) + n) ^ lane / 4;
            *(uint32_t *)(to + r * 8 * 128 + piece * 16) = keys.ds[2 * n + r];
        }
}

// acc = ds of half `me` of the queries, transposed, by COLUMNS columns of the keys
template <int D>
MR_DEVICE void group_queries(GroupOutput<GroupWhole<D>::COLUMNS> &acc, uint32_t buffer, int me,
                             uint32_t keys)
{
    typedef GroupWhole<D> F;
    typedef GroupTile<D, GROUP_ROWS> T;
#pragma unroll
    for (int i = 0; i < GROUP_ROWS / 16; i++) {
        uint64_t ds = mr_operand<MR_SWIZZLE_128>(buffer + me * F::BLOCK + i * 2048, F::BLOCK, 1024);
        mr_group_product<1, 1>(acc.wide, ds,
                               mr_operand<MR_SWIZZLE_128>(keys + i * 2048, T::BLOCK, 1024), i > 0);
        if constexpr (T::REST > 0)
            mr_group_product<1, 1>(
                acc.rest, ds,
                mr_operand<MR_SWIZZLE_32>(keys + T::WIDE * T::BLOCK + i * 512, 16, 256), i > 0);
    }
}

// slices: of each block, for 64 queries after the other, piece by piece those of all threads
template <int D>
__global__ void __launch_bounds__(GROUP_THREADS, 1)
    attention_whole_groups(const __grid_constant__ HeadMaps q, const __grid_constant__ HeadMaps k,
                           const __grid_constant__ HeadMaps v, const __grid_constant__ HeadMaps dy,
                           const float *lse, const float *dots, const float *dlse, float *slices,
                           Heads dq, Heads dk, Heads dv, Attention p)
{
    typedef GroupWhole<D> F;
    MR_SHARED(memory);
    // nothing else comes here (mr_attention_groups_fit)
    p.frame = 0;
    p.counted = p.M;
    int group = threadIdx.x / 128, t = 0, tiles = 0;
    GroupStages<D, F::WALK> stages;
    stages.begin(memory, 1 + 32);
    if (group == 0) {
        mr_registers_fewer<F::COPYING>();
        int problems = p.B * p.G * p.h, halves = (p.N + 63) / 64;
        for (int problem = blockIdx.x; problem < problems && threadIdx.x < 32;
             problem += gridDim.x) {
            Place at = place_at(p, problem, 0);
            for (int first = 0; first < at.keys; first += GROUP_ROWS, tiles++) {
                mr_mbarrier_wait(stages.released, tiles % 2 ^ 1);
                group_copy_keys<D, GROUP_ROWS>(memory, k, &v, stages.held, stages.landed,
                                               stages.turn, p, at, first);
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
            const bool exists[2] = {key < at.keys, key + 8 < at.keys};
            keys.clear();
            if (first < at.keys)
                mr_mbarrier_wait(stages.held, tiles % 2);
            for (int half = 0; half < halves && first < at.keys; half += 2) {
                unsigned char *buffer = memory + F::DS_AT + half / 2 % 2 * F::BUFFER;
                int steps = (half + 1 < halves ? 2 : 1) * F::STEPS;
#pragma unroll 1
                for (int i = 0; i < steps; i++, t++) {
                    keys.step(stages, t, me, exists, p.scale * LOG2E);
                    group_slopes(keys, buffer, me, i);
                }
                mr_group_wait<0>();
                mr_proxy_fence();
                // both groups' ds is there; the other buffer is read by nobody any more
                mr_barrier_sync(1, 256);
                if (half + me >= halves)
                    continue;
                int query = (half + me) * 64 + row;
                mr_bf16 *out = dq.of(at.b, at.g, at.h) + query * dq.n;
                float *slice = slices + (half + me) * F::SLICE;
#pragma unroll 1
                for (int column = 0; column < D; column += F::COLUMNS) {
                    mr_group_fence();
                    group_queries<D>(sum, mr_shared_address(buffer), me,
                                     mr_shared_address(memory) + column * GROUP_ROWS * 2);
                    mr_group_commit();
                    mr_group_wait<0>();
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
