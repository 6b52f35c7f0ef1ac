/* attention, forward, sm_90a: warp-group products (wgmma) and TMA copies.
 *
 *   o = softmax(scale q k^T) v, lse = log of the sum of exp(scale q k), keys at or past len masked
 *
 * A block processes 128 queries of one head. Warp group 0 is the producer: it copies q once, then
 * tiles of 128 keys and values through two pipeline stages each. Groups 1 and 2 are the consumers
 * with 64 queries each. They alternate: one starts its products while the other computes its
 * softmax. Within a group, the product of the previous tile's probabilities with v is in flight
 * during the softmax of the current tile.
 *
 * A head of D columns is stored as blocks of 64 columns with the 128-byte swizzle, and a rest of 16
 * with the 32-byte swizzle: 72 columns are padded to 80, and TMA fills the padding with zeros. Each
 * sum runs over tiles in one fixed order, so the bits do not depend on the order of blocks. A block
 * reads its q, k and v once and writes o and lse once. groups.h says which calls use this kernel.
 *
 * The last tile, which may contain keys that do not exist, comes first. So the loop masks keys only
 * in a tile where text before an image ends. Tiles without any key are skipped.
 * Ref: Shah et al. 2024, arXiv:2407.08608.
 *
 * The order of statements avoids two problems of ptxas 13.0. First, it serialises products (C7513,
 * C7518) whose operands are packed before a wait, or that are under a data-dependent branch. So the
 * first tile is peeled off the loop, and probabilities are packed after wait<0>. Second, it moves a
 * wait above the softmax, without a warning, unless a basic block ends before the wait. Here the
 * loop that waits for the next keys ends it. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_FORWARD_SM90A_CUH
#define MOONREEL_CUDA_ATTENTION_FORWARD_SM90A_CUH

#include "cuda/attention/group_tile.cuh"

enum { STAGES = 2 };

template <int D> struct GroupForward {
    static constexpr int TILE = GroupTile<D, GROUP_ROWS>::BYTES;
    static constexpr int SHARED = (1 + 2 * STAGES) * TILE + 1024;
};

// running maximum and sum of the thread's two rows
struct GroupSoftmax {
    float most[2], sum[2];
};

// does the tile contain keys between the end of the text and the end of its reserved space?
MR_DEVICE bool group_has_gap(const Attention &p, const Place &at, int tile)
{
    int first = tile * GROUP_ROWS;
    return at.len < p.counted && at.len < first + GROUP_ROWS && first < p.counted;
}

// set scores of keys that do not exist to -INFINITY
MR_DEVICE void group_hide(float (&s)[64], const Attention &p, const Place &at, int tile)
{
    // relative to the thread's first key: start of the gap, and end of all keys
    int first = tile * GROUP_ROWS + threadIdx.x % 4 * 2, from = at.len - first, end = p.M - first;
    unsigned gap = p.counted - at.len;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        int key = i / 4 * 8 + i % 2;
        s[i] = ((unsigned)(key - from) < gap) | (key >= end) ? -INFINITY : s[i];
    }
}

/* Softmax of one tile: s becomes probabilities, and `fade` rescales earlier sums. At least one key
 * of the first tile must exist. */
template <int N>
MR_DEVICE void group_softmax(float (&s)[N], GroupSoftmax &x, float (&fade)[2], float scale2)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = x.most[r], sum = 0;
#pragma unroll
        for (int n = 0; n < N / 4; n++)
            most = fmaxf(most, fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        fade[r] = mr_exp2((x.most[r] - most) * scale2);
        x.most[r] = most;
        float shift = most * scale2;
#pragma unroll
        for (int n = 0; n < N / 4; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &p = s[4 * n + 2 * r + e];
                p = mr_exp2(p * scale2 - shift);
                sum += p;
            }
        x.sum[r] = x.sum[r] * fade[r] + sum;
    }
}

template <int D>
__global__ void __launch_bounds__(GROUP_THREADS, 1)
    attention_forward_groups(const __grid_constant__ HeadMaps q, const __grid_constant__ HeadMaps k,
                             const __grid_constant__ HeadMaps v, Heads o, float *lse, Attention p)
{
    typedef GroupForward<D> F;
    MR_SHARED(memory);
    unsigned char *tile_q = memory, *tiles_k = memory + F::TILE,
                  *tiles_v = tiles_k + STAGES * F::TILE;
    uint64_t *full_q = (uint64_t *)(tiles_v + STAGES * F::TILE), *full_k = full_q + 1,
             *empty_k = full_k + STAGES, *full_v = empty_k + STAGES, *empty_v = full_v + STAGES,
             *landed = empty_v + STAGES;
    Place at = place_of(p, (p.N + GROUP_ROWS - 1) / GROUP_ROWS);
    int group = mr_group_number(), first = at.tile * GROUP_ROWS;
    const KeyTiles keys = key_tiles(p, at);
    const int tiles = keys.count;
    if (threadIdx.x == 0) {
        mr_mbarrier_init(full_q, 1);
        mr_mbarrier_init(landed, 1);
        for (int i = 0; i < STAGES; i++) {
            mr_mbarrier_init(full_k + i, 1);
            mr_mbarrier_init(full_v + i, 1);
            mr_mbarrier_init(empty_k + i, 256);
            mr_mbarrier_init(empty_v + i, 256);
        }
        mr_proxy_fence();
    }
    __syncthreads();

    if (group == 0) {
        mr_registers_fewer<24>();
        int turn = 0;
        if (threadIdx.x == 0) {
            mr_mbarrier_expect(full_q, F::TILE);
            group_copy<D, GROUP_ROWS>(tile_q, q, full_q, at, first);
        }
        for (int t = 0; t < tiles && threadIdx.x < 32; t++) {
            int i = t % STAGES, parity = t / STAGES % 2;
            int first_key = keys.at(t ? t - 1 : tiles - 1) * GROUP_ROWS;
            mr_mbarrier_wait(empty_k + i, parity ^ 1);
            if (threadIdx.x == 0) {
                mr_mbarrier_expect(full_k + i, F::TILE);
                group_copy<D, GROUP_ROWS>(tiles_k + i * F::TILE, k, full_k + i, at, first_key);
            }
            mr_mbarrier_wait(empty_v + i, parity ^ 1);
            group_copy_keys<D, GROUP_ROWS>(tiles_v + i * F::TILE, v, NULL, full_v + i, landed, turn,
                                           p, at, first_key);
        }
        return;
    }

    mr_registers_more<240>();
    int me = group - 1, lane = threadIdx.x % 32, strip = threadIdx.x / 32 % 4 * 16 + lane / 4;
    float s[64], fade[2], scale2 = p.scale * LOG2E;
    uint32_t probabilities[32];
    GroupSoftmax x = {{-INFINITY, -INFINITY}, {0, 0}};
    GroupOutput<D> acc = {};
    uint32_t my_q = mr_shared_address(tile_q);
    // barriers 1 and 2 alternate the two groups; the first group may start
    if (me == 1)
        mr_barrier_arrive(1, 256);
    mr_mbarrier_wait(full_q, 0);
    if (tiles > 0) {
        mr_mbarrier_wait(full_k, 0);
        mr_barrier_sync(1 + me, 256);
        mr_group_fence();
        group_scores<D>(s, my_q, me, mr_shared_address(tiles_k));
        mr_group_commit();
        mr_barrier_arrive(2 - me, 256);
        mr_group_wait<0>();
        mr_mbarrier_arrive(empty_k);
        group_hide(s, p, at, keys.at(tiles - 1));
        group_softmax(s, x, fade, scale2);
        group_pack(probabilities, s);
    }
    for (int t = 1; t < tiles; t++) {
        int i = t % STAGES, before = (t - 1) % STAGES;
        mr_mbarrier_wait(full_k + i, t / STAGES % 2);
        mr_barrier_sync(1 + me, 256);
        mr_group_fence();
        group_scores<D>(s, my_q, me, mr_shared_address(tiles_k + i * F::TILE));
        mr_group_commit();
        mr_mbarrier_wait(full_v + before, (t - 1) / STAGES % 2);
        mr_group_fence();
        group_values<D>(acc, probabilities, mr_shared_address(tiles_v + before * F::TILE));
        mr_group_commit();
        mr_barrier_arrive(2 - me, 256);
        mr_group_wait<1>();
        mr_mbarrier_arrive(empty_k + i);
        if (group_has_gap(p, at, keys.at(t - 1)))
            group_hide(s, p, at, keys.at(t - 1));
        group_softmax(s, x, fade, scale2);
        // end a basic block here, so that the wait below stays after the softmax
        if (t + 1 < tiles)
            mr_mbarrier_wait(full_k + before, (t + 1) / STAGES % 2);
        mr_group_wait<0>();
        mr_mbarrier_arrive(empty_v + before);
        acc.scale(fade);
        group_pack(probabilities, s);
    }
    if (tiles > 0) {
        int i = (tiles - 1) % STAGES;
        mr_mbarrier_wait(full_v + i, (tiles - 1) / STAGES % 2);
        mr_group_fence();
        group_values<D>(acc, probabilities, mr_shared_address(tiles_v + i * F::TILE));
        mr_group_commit();
        mr_group_wait<0>();
    }
    // pairs with the last arrive
    if (me == 0)
        mr_barrier_sync(1, 256);

    float inverse[2];
    const float most[2] = {x.most[0] * scale2, x.most[1] * scale2};
    softmax_end(most, x.sum, first + me * 64 + strip, p.N, lse + at.row, inverse);
    group_store<D>(acc, inverse, o.of(at.b, at.g, at.h) + (first + me * 64 + strip) * o.n, o.n,
                   p.N - first - me * 64 - strip, p.e);
}

#endif
