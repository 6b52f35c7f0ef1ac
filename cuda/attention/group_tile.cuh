/* Shared by the sm_90a attention kernels: tiles of heads as TMA writes them, and warp-group
 * products on these tiles.
 *
 * A tile has ROWS rows of D columns: blocks of 64 columns with the 128-byte swizzle, then at most
 * one rest of 16 columns with the 32-byte swizzle. So 72 columns are padded to 80, and TMA fills
 * the columns past the head with zeros. A warp group processes 64 rows. Of each 8 columns, a thread
 * has columns lane % 4 * 2 and the next, in rows lane / 4 and lane / 4 + 8 of the 16 rows of its
 * warp.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_GROUP_TILE_CUH
#define MOONREEL_CUDA_ATTENTION_GROUP_TILE_CUH

#include "cuda/attention/groups.h"
#include "cuda/prim/sm90a.cuh"

// a producer group that copies, and two consumer groups with 64 rows each
enum { GROUP_THREADS = 384, GROUP_ROWS = 128 };

// TMA maps with boxes of tokens by 64 or 16 columns; dimensions d, h, tokens, G, B
struct HeadMaps {
    mr_tensor_map wide, rest;
};

/* The tiles of 128 keys with at least one existing key, in order: the first `before` tiles, then
 * those after a gap of `gap` tiles. Text before an image leaves this gap if it is shorter than its
 * maximum. */
struct KeyTiles {
    int count, before, gap;

    MR_MEMBER int at(int i) const
    {
        return i < before ? i : i + gap;
    }
    MR_MEMBER bool has(int tile) const
    {
        return tile < before || (tile >= before + gap && tile < count + gap);
    }
};

MR_DEVICE KeyTiles key_tiles(const Attention &p, const Place &at)
{
    int before = (at.len + GROUP_ROWS - 1) / GROUP_ROWS,
        end = (at.keys + GROUP_ROWS - 1) / GROUP_ROWS,
        after = p.counted < p.M ? p.counted / GROUP_ROWS : end;
    int gap = after < before ? 0 : after - before;
    return {end - gap, before, gap};
}

template <int D, int ROWS> struct GroupTile {
    static constexpr int WIDE = D / 64, REST = D % 64, COLUMNS = WIDE * 64 + REST;
    static_assert(REST == 0 || REST == 16, "columns are blocks of 64 and a rest of 16");
    static constexpr int BLOCK = ROWS * 128, BYTES = ROWS * COLUMNS * 2;
};

// start TMA copies of ROWS tokens from `row` and D columns from `column` on; barrier `full` must
// expect their bytes
template <int D, int ROWS>
MR_DEVICE void group_copy(unsigned char *tile, const HeadMaps &maps, uint64_t *full,
                          const Place &at, int row, int column = 0)
{
    typedef GroupTile<D, ROWS> T;
#pragma unroll
    for (int i = 0; i < T::WIDE; i++)
        mr_tensor_copy5(tile + i * T::BLOCK, &maps.wide, full, column + i * 64, at.h, row, at.g,
                        at.b);
    if (T::REST > 0)
        mr_tensor_copy5(tile + T::WIDE * T::BLOCK, &maps.rest, full, column + T::WIDE * 64, at.h,
                        row, at.g, at.b);
}

// the first warp sets rows `from` to `to` of a tile to 0
template <int D, int ROWS> MR_DEVICE void group_erase(unsigned char *tile, int from, int to)
{
    typedef GroupTile<D, ROWS> T;
    // clear rows of one column block; a swizzle only permutes bytes inside a row
    auto erase = [&](unsigned char *block, int bytes) {
        for (int i = from * bytes + threadIdx.x * 16; i < to * bytes; i += 32 * 16)
            mr_store16(block + i, {0, 0, 0, 0});
    };
#pragma unroll
    for (int i = 0; i < T::WIDE; i++)
        erase(tile + i * T::BLOCK, 128);
    if (T::REST > 0)
        erase(tile + T::WIDE * T::BLOCK, 32);
}

/* The first warp copies ROWS keys from `row` on to `tile`; with `two`, also from a second tensor,
 * to the next tile. Barrier `full`, with one arrival, completes when they are ready. Keys that do
 * not exist must become 0, because their memory may contain NaN, and 0 times NaN is NaN. So a tile
 * with such keys first completes on barrier `landed`, whose phases `turn` counts, and is then
 * cleared. */
template <int D, int ROWS>
MR_DEVICE void group_copy_keys(unsigned char *tile, const HeadMaps &one, const HeadMaps *two,
                               uint64_t *full, uint64_t *landed, int &turn, const Attention &p,
                               const Place &at, int row)
{
    constexpr int BYTES = GroupTile<D, ROWS>::BYTES;
    // past the last key TMA itself fills in zeros
    int from = at.len - row, to = p.counted - row;
    from = from < 0 ? 0 : from;
    to = to < ROWS ? to : ROWS;
    bool all = from >= to;
    uint64_t *barrier = all ? full : landed;
    if (threadIdx.x == 0) {
        mr_mbarrier_expect(barrier, two ? 2 * BYTES : BYTES);
        group_copy<D, ROWS>(tile, one, barrier, at, row);
        if (two)
            group_copy<D, ROWS>(tile + BYTES, *two, barrier, at, row);
    }
    if (all)
        return;
    mr_mbarrier_wait(landed, turn++ % 2);
    group_erase<D, ROWS>(tile, from, to);
    if (two)
        group_erase<D, ROWS>(tile + BYTES, from, to);
    mr_proxy_fence();
    __syncwarp();
    if (threadIdx.x == 0)
        mr_mbarrier_arrive(full);
}

// accumulators of 64 rows by D columns
template <int D> struct GroupOutput {
    float wide[32 * (D / 64)], rest[8];

    MR_MEMBER void clear()
    {
#pragma unroll
        for (int i = 0; i < 32 * (D / 64); i++)
            wide[i] = 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            rest[i] = 0;
        mr_group_pin(wide);
        if (D % 64)
            mr_group_pin(rest);
    }
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

/* The first KEPT x 16 columns of a group's half of a tile, as operands in registers. Repeated
 * products then read less shared memory. */
template <int D, int KEPT> struct GroupKept {
    typedef GroupTile<D, GROUP_ROWS> T;
    uint32_t at[KEPT > 0 ? KEPT : 1][4];

    MR_MEMBER void load(const unsigned char *tile, int me)
    {
        // each lane passes the address of a row of four 8 x 8 matrices: two below each other, then
        // the two to their right
        int lane = threadIdx.x % 32, row = me * 64 + threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
        for (int i = 0; i < KEPT; i++) {
            bool wide = i < 4 * T::WIDE;
            int piece = i % 4 * 2 + lane / 16;
            const unsigned char *from =
                wide ? tile + i / 4 * T::BLOCK + row * 128 + (piece ^ row % 8) * 16
                     : tile + T::WIDE * T::BLOCK + row * 32 + (lane / 16 ^ row / 4 % 2) * 16;
            mr_load_matrix4<false>(at[i], from);
        }
    }
};

// s [64, 2 N] = rows of half `me` of tile a times the 2 N rows of tile b, transposed; the first
// columns of a come from `kept`; a thread has N accumulators
template <int D, int N, int KEPT>
MR_DEVICE void group_scores(float (&s)[N], const GroupKept<D, KEPT> &kept, uint32_t a, int me,
                            uint32_t b)
{
    typedef GroupTile<D, GROUP_ROWS> A;
    typedef GroupTile<D, 2 * N> B;
    uint64_t left = mr_operand<MR_SWIZZLE_128>(a + me * 64 * 128, 16, 1024),
             right = mr_operand<MR_SWIZZLE_128>(b, 16, 1024);
#pragma unroll
    for (int i = 0; i < 4 * A::WIDE; i++) {
        uint64_t columns = mr_operand_behind(right, i / 4 * B::BLOCK + i % 4 * 32);
        if (i < KEPT)
            mr_group_product<0>(s, kept.at[i], columns, i > 0);
        else
            mr_group_product<0>(s, mr_operand_behind(left, i / 4 * A::BLOCK + i % 4 * 32), columns,
                                i > 0);
    }
    if constexpr (A::REST > 0) {
        uint64_t columns = mr_operand<MR_SWIZZLE_32>(b + B::WIDE * B::BLOCK, 16, 256);
        if (KEPT > 4 * A::WIDE)
            mr_group_product<0>(s, kept.at[KEPT - 1], columns, 1);
        else
            mr_group_product<0>(
                s, mr_operand<MR_SWIZZLE_32>(a + A::WIDE * A::BLOCK + me * 64 * 32, 16, 256),
                columns, 1);
    }
}

template <int D, int N> MR_DEVICE void group_scores(float (&s)[N], uint32_t a, int me, uint32_t b)
{
    group_scores<D, N, 0>(s, {}, a, me, b);
}

// acc += p times tile b; p [64, 4 N] as bf16 pairs, N / 4 products of depth 16
template <int D, int N>
MR_DEVICE void group_values(GroupOutput<D> &acc, const uint32_t (&p)[N], uint32_t b)
{
    typedef GroupTile<D, 4 * N> T;
    uint64_t wide = mr_operand<MR_SWIZZLE_128>(b, T::BLOCK, 1024),
             rest = mr_operand<MR_SWIZZLE_32>(b + T::WIDE * T::BLOCK, 16, 256);
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const uint32_t x[4] = {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
        mr_group_product<1>(acc.wide, x, mr_operand_behind(wide, i * 2048), 1);
        if constexpr (T::REST > 0)
            mr_group_product<1>(acc.rest, x, mr_operand_behind(rest, i * 512), 1);
    }
}

// convert accumulators to an operand
template <int N> MR_DEVICE void group_pack(uint32_t (&p)[N / 2], const float (&s)[N])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        p[i] = mr_pack(s[2 * i], s[2 * i + 1]);
}

/* Store the thread's two rows, times factor[0] and factor[1], at `row` and 8 rows below. `rows`
 * rows exist from `row` on. */
template <int D>
MR_DEVICE void group_store(const GroupOutput<D> &acc, const float (&factor)[2], mr_bf16 *row,
                           int64_t step, int rows, int columns)
{
    typedef GroupTile<D, GROUP_ROWS> T;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int n = 0; n < T::COLUMNS / 8; n++) {
            bool wide = n < 8 * T::WIDE;
            int i = 4 * (wide ? n : n - 8 * T::WIDE) + 2 * r;
            float low = wide ? acc.wide[i] : acc.rest[i],
                  high = wide ? acc.wide[i + 1] : acc.rest[i + 1];
            if (r * 8 < rows && n * 8 < columns)
                *(uint32_t *)(row + r * 8 * step + n * 8 + threadIdx.x % 4 * 2) =
                    mr_pack(low * factor[r], high * factor[r]);
        }
}

#endif
