/* attention, forward, sm_90a: products of warp groups and tensor copies.
 *
 *   o = softmax(scale q k^T) v, lse = log of the sum of exp(scale q k), keys at or past len hidden
 * A block takes 128 queries of one head. Warp group 0 copies: q once, then tiles of 128 keys and
 * values, two stages of each. Groups 1 and 2 work on 64 queries each, in turns: one starts its
 * products while the other forms its softmax, and within a group the product of the last tile's
 * probabilities with v is in flight under the softmax of this one.
 *
 * Heads of D columns lie as blocks of 64 columns with the 128-byte swizzle, and a rest of 16 with
 * that of 32 bytes: 72 columns are 80, those past the head are filled with zeros by the copy. Sums
 * run over tiles in order: the bits do not depend on the order of blocks. q, k and v of a block are
 * read once, o and lse written once. groups.h says what takes another form. Ref: Shah et al. 2024,
 * arXiv:2407.08608.
 *
 * Two things that ptxas (13.0) does, and that this order of lines avoids: it serialises products
 * (C7513, C7518) whose operands are packed before a wait or that stand under a branch on data, so
 * the first tile is peeled off and probabilities are packed after wait<0>; and it lifts a wait
 * above the softmax in silence unless a basic block ends in front of it, here by the loop that
 * waits for the next keys. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_FORWARD_SM90A_CUH
#define MOONREEL_CUDA_ATTENTION_FORWARD_SM90A_CUH

#include "cuda/attention/groups.h"
#include "cuda/prim/sm90a.cuh"

enum { GROUP_THREADS = 384, GROUP_ROWS = 128, GROUP_KEYS = 128, STAGES = 2 };

// one of q, k, v as boxes of tokens by 64 or 16 columns; dimensions d, h, tokens, G, B
struct HeadMaps {
    mr_tensor_map wide, rest;
};

template <int D> struct GroupForward {
    static constexpr int WIDE = D / 64, REST = D % 64, COLUMNS = WIDE * 64 + REST;
    static_assert(REST == 0 || REST == 16, "columns are blocks of 64 and a rest of 16");
    static constexpr int BLOCK = GROUP_ROWS * 128, TILE = GROUP_ROWS * COLUMNS * 2; // bytes
    static constexpr int SHARED = (1 + 2 * STAGES) * TILE + 1024;
};

// the accumulators of 64 queries by D columns
template <int D> struct GroupOutput {
    float wide[32 * (D / 64)], rest[8];

    MR_MEMBER void scale(const float (&factor)[2])
    {
#pragma unroll
        for (int i = 0; i < 32 * (D / 64); i++)
            wide[i] *= factor[i / 2 % 2];
        if (D % 64)
#pragma unroll
            for (int i = 0; i < 8; i++)
                rest[i] *= factor[i / 2 % 2];
    }
};

/* Store the thread's two rows, times factor[0] and factor[1], to `row` and 8 rows below; `rows` of
 * them exist. */
template <int D>
MR_DEVICE void group_store(const GroupOutput<D> &acc, const float (&factor)[2], mr_bf16 *row,
                           int64_t step, int rows, int columns)
{
    typedef GroupForward<D> F;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int n = 0; n < F::COLUMNS / 8; n++) {
            bool wide = n < 8 * F::WIDE;
            int i = wide ? n : n - 8 * F::WIDE;
            float low = wide ? acc.wide[4 * i + 2 * r] : acc.rest[4 * i + 2 * r],
                  high = wide ? acc.wide[4 * i + 2 * r + 1] : acc.rest[4 * i + 2 * r + 1];
            if (r * 8 < rows && n * 8 < columns)
                *(uint32_t *)(row + r * 8 * step + n * 8 + threadIdx.x % 4 * 2) =
                    mr_pack(low * factor[r], high * factor[r]);
        }
}

// s = q k^T; rows of a block of columns lie 128 bytes apart, those of the rest 32
template <int D>
MR_DEVICE void group_scores(float (&s)[64], uint32_t q, uint32_t q_rest, uint32_t k)
{
    typedef GroupForward<D> F;
#pragma unroll
    for (int block = 0; block < F::WIDE; block++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t at = block * F::BLOCK + i * 32;
            mr_group_product128<0>(s, mr_operand<MR_SWIZZLE_128>(q + at, 16, 1024),
                                   mr_operand<MR_SWIZZLE_128>(k + at, 16, 1024), block + i > 0);
        }
    if constexpr (F::REST > 0)
        mr_group_product128<0>(s, mr_operand<MR_SWIZZLE_32>(q_rest, 16, 256),
                               mr_operand<MR_SWIZZLE_32>(k + F::WIDE * F::BLOCK, 16, 256), 1);
}

// o += p v, p the packed probabilities of 128 keys
template <int D> MR_DEVICE void group_values(GroupOutput<D> &o, const uint32_t (&p)[32], uint32_t v)
{
    typedef GroupForward<D> F;
#pragma unroll
    for (int i = 0; i < 8; i++) { // 16 keys
        const uint32_t x[4] = {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
        uint64_t right = mr_operand<MR_SWIZZLE_128>(v + i * 2048, F::BLOCK, 1024);
        if constexpr (F::WIDE == 2)
            mr_group_product128<1>(o.wide, x, right, 1);
        else
            mr_group_product64<1>(o.wide, x, right, 1);
        if constexpr (F::REST > 0)
            mr_group_product16<1>(
                o.rest, x, mr_operand<MR_SWIZZLE_32>(v + F::WIDE * F::BLOCK + i * 512, 16, 256), 1);
    }
}

// running maximum and sum of the thread's two rows
struct GroupSoftmax {
    float most[2], sum[2];
};

/* One tile: s becomes probabilities, fade rescales what came before. Keys from `keep` on are
 * hidden, by a comparison and no branch. The first key of a tile always exists. */
MR_DEVICE void group_softmax(float (&s)[64], GroupSoftmax &x, float (&fade)[2], float scale2,
                             int keep)
{
    keep -= threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 64; i++)
        s[i] = i / 4 * 8 + i % 2 >= keep ? -INFINITY : s[i];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = x.most[r], sum = 0;
#pragma unroll
        for (int n = 0; n < 16; n++)
            most = fmaxf(most, fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        fade[r] = mr_exp2((x.most[r] - most) * scale2);
        x.most[r] = most;
        float shift = most * scale2;
#pragma unroll
        for (int n = 0; n < 16; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &p = s[4 * n + 2 * r + e];
                p = mr_exp2(p * scale2 - shift);
                sum += p;
            }
        x.sum[r] = x.sum[r] * fade[r] + sum;
    }
}

MR_DEVICE void group_pack(uint32_t (&p)[32], const float (&s)[64])
{
#pragma unroll
    for (int i = 0; i < 32; i++)
        p[i] = mr_pack(s[2 * i], s[2 * i + 1]);
}

template <int D>
MR_DEVICE void group_copy(unsigned char *tile, const HeadMaps &maps, uint64_t *full,
                          const Place &at, int row)
{
    typedef GroupForward<D> F;
    mr_mbarrier_expect(full, F::TILE);
#pragma unroll
    for (int block = 0; block < F::WIDE; block++)
        mr_tensor_copy5(tile + block * F::BLOCK, &maps.wide, full, block * 64, at.h, row, at.g,
                        at.b);
    if (F::REST > 0)
        mr_tensor_copy5(tile + F::WIDE * F::BLOCK, &maps.rest, full, F::WIDE * 64, at.h, row, at.g,
                        at.b);
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
             *empty_k = full_k + STAGES, *full_v = empty_k + STAGES, *empty_v = full_v + STAGES;
    Place at = place_of(p, (p.N + GROUP_ROWS - 1) / GROUP_ROWS);
    int group = threadIdx.x / 128, first = at.tile * GROUP_ROWS;
    int tiles = (at.keys + GROUP_KEYS - 1) / GROUP_KEYS;
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
        if (threadIdx.x == 0) {
            group_copy<D>(tile_q, q, full_q, at, first);
            for (int t = 0; t < tiles; t++) {
                int i = t % STAGES, parity = t / STAGES % 2;
                mr_mbarrier_wait(empty_k + i, parity ^ 1);
                group_copy<D>(tiles_k + i * F::TILE, k, full_k + i, at, t * GROUP_KEYS);
                mr_mbarrier_wait(empty_v + i, parity ^ 1);
                group_copy<D>(tiles_v + i * F::TILE, v, full_v + i, at, t * GROUP_KEYS);
            }
        }
        return;
    }

    mr_registers_more<240>();
    int me = group - 1, lane = threadIdx.x % 32, strip = threadIdx.x / 32 % 4 * 16 + lane / 4;
    const int everything = 1 << 30;
    float s[64], fade[2], scale2 = p.scale * LOG2E;
    uint32_t probabilities[32];
    GroupSoftmax x = {{-INFINITY, -INFINITY}, {0, 0}};
    GroupOutput<D> acc = {};
    uint32_t my_q = mr_shared_address(tile_q) + me * 64 * 128,
             my_rest = mr_shared_address(tile_q) + F::WIDE * F::BLOCK + me * 64 * 32;
    // barriers 1 and 2: the turns of the two groups; the first may start
    if (me == 1)
        mr_barrier_arrive(1, 256);
    mr_mbarrier_wait(full_q, 0);
    if (tiles > 0) {
        mr_mbarrier_wait(full_k, 0);
        mr_barrier_sync(1 + me, 256);
        mr_group_fence();
        group_scores<D>(s, my_q, my_rest, mr_shared_address(tiles_k));
        mr_group_commit();
        mr_barrier_arrive(2 - me, 256);
        mr_group_wait<0>();
        mr_mbarrier_arrive(empty_k);
        group_softmax(s, x, fade, scale2, tiles == 1 ? at.keys : everything);
        group_pack(probabilities, s);
    }
    for (int t = 1; t < tiles; t++) {
        int i = t % STAGES, before = (t - 1) % STAGES;
        mr_mbarrier_wait(full_k + i, t / STAGES % 2);
        mr_barrier_sync(1 + me, 256);
        mr_group_fence();
        group_scores<D>(s, my_q, my_rest, mr_shared_address(tiles_k + i * F::TILE));
        mr_group_commit();
        mr_mbarrier_wait(full_v + before, (t - 1) / STAGES % 2);
        group_values<D>(acc, probabilities, mr_shared_address(tiles_v + before * F::TILE));
        mr_group_commit();
        mr_barrier_arrive(2 - me, 256);
        mr_group_wait<1>();
        mr_mbarrier_arrive(empty_k + i);
        group_softmax(s, x, fade, scale2, t == tiles - 1 ? at.keys - t * GROUP_KEYS : everything);
        // ends a basic block: the wait below stays behind the softmax
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
    // pairs the last arrival
    if (me == 0)
        mr_barrier_sync(1, 256);

    float inverse[2];
    const float most[2] = {x.most[0] * scale2, x.most[1] * scale2};
    softmax_end(most, x.sum, first + me * 64 + strip, p.N, lse + at.row, inverse);
    group_store<D>(acc, inverse, o.of(at.b, at.g, at.h) + (first + me * 64 + strip) * o.n, o.n,
                   p.N - first - me * 64 - strip, p.e);
}

#endif
