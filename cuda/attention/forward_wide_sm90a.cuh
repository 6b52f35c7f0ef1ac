/* attention, forward, sm_90a, for heads of 264 to 512 columns, as in the middle of an autoencoder;
 * a query sees the keys of its own frame and of earlier frames.
 *
 *   o = softmax(scale q k^T) v, lse = log of the sum of exp(scale q k)
 *
 * The sums of 128 queries by 512 columns would fill all registers. So a block processes 128 queries
 * and 256 columns of v, and the scores are computed once for each half of the columns. Warp group 0
 * copies q once, then tiles of 32 keys and values through two pipeline stages each. Groups 1 and 2
 * process 64 queries each and alternate as in forward_sm90a.cuh, whose notes on ptxas apply here.
 *
 * Counts for a tile of 128 queries and 128 keys (`make cuda`): 3 x 128 x 128 x 256 multiply-adds,
 * of which 2 / 3 are useful; 192 KiB of keys and values from the L2; and q from shared memory once
 * per 32 keys, which is the bottleneck. Keeping more of q in registers makes ptxas 13.0 spill. With
 * blocks of 64 queries whose groups exchange probabilities, the scores would be computed once, but
 * the same work would read 256 KiB. One head of 33 frames of 32 x 32 cells, 264 times 128 queries
 * that see 17 frames on average: 2.5 ms, of which 14e9 bytes of the L2 take 2.4 and 1.8e12
 * operations 1.8.
 *
 * Tiles run from the first key to the last that the block's last query sees. Every query sees a key
 * of the first tile. Blocks with the most keys start first. The bits do not depend on the order of
 * blocks. Both halves compute the same scores; the first writes lse. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_FORWARD_WIDE_SM90A_CUH
#define MOONREEL_CUDA_ATTENTION_FORWARD_WIDE_SM90A_CUH

#include "cuda/attention/forward_sm90a.cuh"

// a thread keeps the first WIDE_KEPT x 16 columns of q in registers, to read less shared memory
enum { WIDE_COLUMNS = 512, WIDE_HALF = 256, WIDE_KEYS = 32, WIDE_KEPT = 3 };

struct GroupWide {
    typedef GroupTile<WIDE_COLUMNS, GROUP_ROWS> Q;
    typedef GroupTile<WIDE_COLUMNS, WIDE_KEYS> K;
    typedef GroupTile<WIDE_HALF, WIDE_KEYS> V;
    static constexpr int SHARED = Q::BYTES + STAGES * (K::BYTES + V::BYTES) + 1024;
};

// sums of 64 queries and half of the columns, as two accumulators
struct WideOutput {
    typedef GroupOutput<WIDE_HALF / 2> Part;
    static constexpr int COLUMNS = WIDE_HALF / 2, BYTES = COLUMNS / 64 * GroupWide::V::BLOCK;
    Part low, high;

    MR_MEMBER void add(const uint32_t (&probabilities)[8], uint32_t tile)
    {
        group_values<COLUMNS>(low, probabilities, tile);
        group_values<COLUMNS>(high, probabilities, tile + BYTES);
    }
    MR_MEMBER void scale(const float (&factor)[2])
    {
        low.scale(factor);
        high.scale(factor);
    }
};

// set scores of keys from `first` on to -INFINITY where the thread's two queries do not see them
MR_DEVICE void wide_hide(float (&s)[16], const int (&end)[2], int first)
{
    int key = first + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 16; i++)
        s[i] = key + i / 4 * 8 + i % 2 < end[i / 2 % 2] ? s[i] : -INFINITY;
}

// queries and column half of the block; queries that see the most keys come first
MR_DEVICE Place wide_place(const Attention &p, int *half)
{
    int halves = (p.e + WIDE_HALF - 1) / WIDE_HALF, tiles = (p.N + GROUP_ROWS - 1) / GROUP_ROWS;
    int work = blockIdx.x / halves;
    *half = blockIdx.x % halves;
    return place_at(p, work / tiles, tiles - 1 - work % tiles);
}

static __global__ void __launch_bounds__(GROUP_THREADS, 1)
    attention_forward_wide(const __grid_constant__ HeadMaps q, const __grid_constant__ HeadMaps k,
                           const __grid_constant__ HeadMaps v, Heads o, float *lse, Attention p)
{
    typedef GroupWide W;
    MR_SHARED(memory);
    unsigned char *tile_q = memory, *tiles_k = memory + W::Q::BYTES,
                  *tiles_v = tiles_k + STAGES * W::K::BYTES;
    uint64_t *full_q = (uint64_t *)(tiles_v + STAGES * W::V::BYTES), *full_k = full_q + 1,
             *empty_k = full_k + STAGES, *full_v = empty_k + STAGES, *empty_v = full_v + STAGES;
    int half;
    Place at = wide_place(p, &half);
    int group = mr_group_number(), first = at.tile * GROUP_ROWS, last = p.N - 1;
    int seen = keys_seen(p, at, first + GROUP_ROWS - 1 < last ? first + GROUP_ROWS - 1 : last);
    const int tiles = (seen + WIDE_KEYS - 1) / WIDE_KEYS;
    if (threadIdx.x == 0) {
        mr_mbarrier_init(full_q, 1);
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
        if (threadIdx.x > 0)
            return;
        mr_mbarrier_expect(full_q, W::Q::BYTES);
        group_copy<WIDE_COLUMNS, GROUP_ROWS>(tile_q, q, full_q, at, first);
        for (int t = 0; t < tiles; t++) {
            int i = t % STAGES, parity = t / STAGES % 2;
            mr_mbarrier_wait(empty_k + i, parity ^ 1);
            mr_mbarrier_expect(full_k + i, W::K::BYTES);
            group_copy<WIDE_COLUMNS, WIDE_KEYS>(tiles_k + i * W::K::BYTES, k, full_k + i, at,
                                                t * WIDE_KEYS);
            mr_mbarrier_wait(empty_v + i, parity ^ 1);
            mr_mbarrier_expect(full_v + i, W::V::BYTES);
            group_copy<WIDE_HALF, WIDE_KEYS>(tiles_v + i * W::V::BYTES, v, full_v + i, at,
                                             t * WIDE_KEYS, half * WIDE_HALF);
        }
        return;
    }

    mr_registers_more<240>();
    int me = group - 1, lane = threadIdx.x % 32, strip = threadIdx.x / 32 % 4 * 16 + lane / 4;
    int row = first + me * 64 + strip, low = first + me * 64 < last ? first + me * 64 : last;
    const int lowest = keys_seen(p, at, low),
              end[2] = {keys_seen(p, at, row < last ? row : last),
                        keys_seen(p, at, row + 8 < last ? row + 8 : last)};
    float s[16], fade[2], scale2 = p.scale * LOG2E;
    uint32_t probabilities[8];
    GroupSoftmax x = {{-INFINITY, -INFINITY}, {0, 0}};
    WideOutput acc = {};
    uint32_t my_q = mr_shared_address(tile_q);
    // barriers 1 and 2 alternate the two groups; the first group may start
    if (me == 1)
        mr_barrier_arrive(1, 256);
    GroupKept<WIDE_COLUMNS, WIDE_KEPT> kept;
    mr_mbarrier_wait(full_q, 0);
    kept.load(tile_q, me);
    mr_mbarrier_wait(full_k, 0);
    mr_barrier_sync(1 + me, 256);
    mr_group_fence();
    group_scores<WIDE_COLUMNS>(s, kept, my_q, me, mr_shared_address(tiles_k));
    mr_group_commit();
    mr_barrier_arrive(2 - me, 256);
    mr_group_wait<0>();
    mr_mbarrier_arrive(empty_k);
    wide_hide(s, end, 0);
    group_softmax(s, x, fade, scale2);
    group_pack(probabilities, s);
    for (int t = 1; t < tiles; t++) {
        int i = t % STAGES, before = (t - 1) % STAGES;
        mr_mbarrier_wait(full_k + i, t / STAGES % 2);
        mr_barrier_sync(1 + me, 256);
        mr_group_fence();
        group_scores<WIDE_COLUMNS>(s, kept, my_q, me, mr_shared_address(tiles_k + i * W::K::BYTES));
        mr_group_commit();
        mr_mbarrier_wait(full_v + before, (t - 1) / STAGES % 2);
        mr_group_fence();
        acc.add(probabilities, mr_shared_address(tiles_v + before * W::V::BYTES));
        mr_group_commit();
        mr_barrier_arrive(2 - me, 256);
        mr_group_wait<1>();
        mr_mbarrier_arrive(empty_k + i);
        if ((t + 1) * WIDE_KEYS > lowest)
            wide_hide(s, end, t * WIDE_KEYS);
        group_softmax(s, x, fade, scale2);
        // end a basic block here, so that the wait below stays after the softmax
        if (t + 1 < tiles)
            mr_mbarrier_wait(full_k + before, (t + 1) / STAGES % 2);
        mr_group_wait<0>();
        mr_mbarrier_arrive(empty_v + before);
        acc.scale(fade);
        group_pack(probabilities, s);
    }
    mr_mbarrier_wait(full_v + (tiles - 1) % STAGES, (tiles - 1) / STAGES % 2);
    mr_group_fence();
    acc.add(probabilities, mr_shared_address(tiles_v + (tiles - 1) % STAGES * W::V::BYTES));
    mr_group_commit();
    mr_group_wait<0>();
    // pairs with the last arrive
    if (me == 0)
        mr_barrier_sync(1, 256);

    float inverse[2];
    const float most[2] = {x.most[0] * scale2, x.most[1] * scale2};
    softmax_end(most, x.sum, row, half ? 0 : p.N, lse + at.row, inverse);
    mr_bf16 *out = o.of(at.b, at.g, at.h) + row * o.n + half * WIDE_HALF;
    int rows = p.N - row, columns = p.e - half * WIDE_HALF;
    group_store<WideOutput::COLUMNS>(acc.low, inverse, out, o.n, rows, columns);
    group_store<WideOutput::COLUMNS>(acc.high, inverse, out + WideOutput::COLUMNS, o.n, rows,
                                     columns - WideOutput::COLUMNS);
}

#endif
