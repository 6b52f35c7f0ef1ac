/* conv3d and its gradients, sm_90a: implicit matrix products by warp groups, channels last.
 *
 *   y[p, o] = bias[o] + sum over taps k and channels c of x[q, c] w[k, o, c]
 *
 * where q is the position of x that p meets by tap k.
 *
 * A block computes 128 positions by 128 channels of the result, a warp group 64 of the positions.
 * It loops over the channels of all taps of the source, 64 at a time. No im2col buffer exists: each
 * thread copies 16-byte pieces (cp.async) to their 128-byte-swizzled addresses, and the products
 * read both operands from there. A position outside the source gives zeros or, with `edge`, the
 * nearest position. Phase skips taps that no position of the block meets. There are four pipeline
 * stages: the copies of the next two stages are in flight during the product of one. Weights have
 * the layout of conv_pack, [groups, rows, taps, K]. Sums run over steps in order, so the bits do
 * not depend on the order of blocks. The channels per group are multiples of 8 on both sides, and
 * all addresses are multiples of 16 bytes.
 *
 * conv3d_dw loops over a range of positions, 64 at a time, for 128 filters and 128 channels (of
 * several taps if one tap has fewer). Both operands are stored position by position and read
 * transposed. Each range writes its sums to partials, which conv_dw_add adds in order.
 *
 * cp.async writes through the generic proxy, so a fence is needed between its wait and the
 * products. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_CONV_GROUPS_SM90A_CUH
#define MOONREEL_CUDA_CONV_GROUPS_SM90A_CUH

#include "cuda/conv/geometry.cuh"
#include "cuda/prim/sm90a.cuh"

enum {
    CONV_THREADS = 256,
    CONV_ROWS = 128, // positions, and columns of the result
    CONV_STAGES = 4,
    CONV_TILE = CONV_ROWS * 128, // bytes: 64 channels per row
    CONV_SHARED = CONV_STAGES * 2 * CONV_TILE
};

// offset of 16-byte piece `piece` of row `row` of a tile
MR_DEVICE unsigned conv_place(int row, int piece)
{
    return (unsigned)(row * 128 + (piece ^ row % 8) * 16);
}

// grid: (tiles of positions, tiles of columns, groups of each phase)
template <bool ADJOINT>
__global__ void __launch_bounds__(CONV_THREADS, 1)
    conv_groups(const mr_bf16 *from, const mr_bf16 *packed, const mr_bf16 *bias, mr_bf16 *to,
                Conv c)
{
    MR_SHARED(memory);
    int Og = c.O / c.groups, Cg = c.C / c.groups, g = blockIdx.z % c.groups;
    int K = ADJOINT ? Og : Cg, N = ADJOINT ? Cg : Og, column = blockIdx.y * CONV_ROWS;
    int from_width = ADJOINT ? c.O : c.C, to_width = ADJOINT ? c.C : c.O;
    const Phase<ADJOINT> phase(c, blockIdx.z / c.groups);
    int64_t first = (int64_t)blockIdx.x * CONV_ROWS;
    if (first >= phase.places(c))
        return;
    int me = mr_group_number(), lane = threadIdx.x % 32;
    // in every step, a thread copies the same piece of the same rows of both tiles
    constexpr int APART = CONV_THREADS / 8;
    int row = threadIdx.x / 8, piece = threadIdx.x % 8;
    Source<ADJOINT> mine[CONV_ROWS / APART];
    uint32_t weights[CONV_ROWS / APART];
#pragma unroll
    for (int i = 0; i < CONV_ROWS / APART; i++) {
        int r = row + i * APART;
        mine[i] = Source<ADJOINT>(c, phase, phase.place(c, first + r), from_width);
        weights[i] = (uint32_t)((g * N + column + r) * c.taps * K);
    }
    Walk<ADJOINT> at(phase, K, piece * 8);
    int steps = (phase.all_taps() * K + 63) / 64;
    auto start = [&](int step) {
        unsigned char *stage = memory + step % CONV_STAGES * 2 * CONV_TILE + conv_place(row, piece);
        bool there = step < steps && at.exists(phase);
        uint32_t k = g * K + at.k + Source<ADJOINT>::behind(c, at.tap, from_width),
                 weight = (uint32_t)at.weight(c, phase, K);
#pragma unroll
        for (int i = 0; step < steps && i < CONV_ROWS / APART; i++) {
            uint32_t element = k;
            bool meets = there && mine[i].meets(c, at.tap, from_width, element),
                 exists = there && column + row + i * APART < N;
            unsigned char *to = stage + i * APART * 128;
            mr_copy16(to, from + (meets ? element : 0), meets ? 16 : 0);
            mr_copy16(to + CONV_TILE, packed + (exists ? weights[i] + weight : 0), exists ? 16 : 0);
        }
        at.move(phase, K, 64);
        mr_copy_commit();
    };
    start(0);
    start(1);

    float acc[64] = {0};
    mr_group_pin(acc);
    uint32_t base = mr_shared_address(memory);
    for (int step = 0; step < steps; step++) {
        mr_copy_wait<1>();
        mr_proxy_fence();
        // all threads' copies have arrived, and the product before the last has ended
        __syncthreads();
        uint32_t stage = base + step % CONV_STAGES * 2 * CONV_TILE;
        uint64_t left = mr_operand<MR_SWIZZLE_128>(stage + me * 64 * 128, 16, 1024),
                 right = mr_operand<MR_SWIZZLE_128>(stage + CONV_TILE, 16, 1024);
        mr_group_fence();
#pragma unroll
        for (int i = 0; i < 4; i++)
            mr_group_product<0>(acc, mr_operand_behind(left, i * 32),
                                mr_operand_behind(right, i * 32), 1);
        mr_group_commit();
        // this stage was read by the product before the last
        start(step + 2);
        mr_group_wait<1>();
    }
    mr_group_wait<0>();
    mr_copy_wait<0>();

    int strip = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        Place3 p = phase.place(c, first + me * 64 + strip + r * 8);
        mr_bf16 *out = to + phase.index(c, p) * to_width + g * N;
#pragma unroll
        for (int n = 0; n < 16; n++) {
            int o = column + n * 8 + lane % 4 * 2;
            if (p.b < 0 || o >= N)
                continue;
            float low = bias ? mr_f32(bias[g * N + o]) : 0,
                  high = bias ? mr_f32(bias[g * N + o + 1]) : 0;
            *(uint32_t *)(out + o) =
                mr_pack(acc[4 * n + 2 * r] + low, acc[4 * n + 2 * r + 1] + high);
        }
    }
}

// ---- the gradient of w ----

enum { DW_PLACES = 64, DW_BLOCK = DW_PLACES * 128 }; // bytes: 64 channels per row

/* grid: (tiles of filters x tiles of the channels of all taps, groups x ranges of positions).
 * partials [ranges, groups, O / groups, taps, C / groups] */
static __global__ void __launch_bounds__(CONV_THREADS, 1)
    conv_dw_groups(const mr_bf16 *dy, const mr_bf16 *x, float *partials, int range, Conv c)
{
    MR_SHARED(memory);
    int Og = c.O / c.groups, Cg = c.C / c.groups, g = blockIdx.y % c.groups, length = c.taps * Cg;
    int wide = (length + CONV_ROWS - 1) / CONV_ROWS;
    int o0 = blockIdx.x / wide * CONV_ROWS, k0 = blockIdx.x % wide * CONV_ROWS;
    int64_t begin = (int64_t)(blockIdx.y / c.groups) * range, left = c.out_places() - begin;
    int places = left < range ? (int)left : range, steps = (places + DW_PLACES - 1) / DW_PLACES;
    int me = mr_group_number(), lane = threadIdx.x % 32;
    constexpr int APART = CONV_THREADS / 8;
    int row = threadIdx.x / 8, piece = threadIdx.x % 8;
    const Phase<false> phase(c, 0);
    const Place3 far = place3(DW_PLACES, c.out);
    Place3 mine[DW_PLACES / APART];
#pragma unroll
    for (int i = 0; i < DW_PLACES / APART; i++)
        mine[i] = place3(begin + row + i * APART, c.out);
    // two pieces of filters, and two of channels
    const Walk<false> at[2] = {Walk<false>(phase, Cg, k0 + piece * 8),
                               Walk<false>(phase, Cg, k0 + 64 + piece * 8)};
    uint32_t o[2], k[2];
#pragma unroll
    for (int block = 0; block < 2; block++) {
        o[block] = o0 + block * 64 + piece * 8;
        k[block] = g * Cg + at[block].k + Source<false>::behind(c, at[block].tap, c.C);
    }
    auto start = [&](int step) {
        unsigned char *stage = memory + step % CONV_STAGES * 2 * CONV_TILE + conv_place(row, piece);
#pragma unroll
        for (int i = 0; step < steps && i < DW_PLACES / APART; i++) {
            int p = step * DW_PLACES + row + i * APART;
            uint32_t up = (uint32_t)((begin + p) * c.O + g * Og);
            const Source<false> source(c, phase, mine[i], c.C);
#pragma unroll
            for (int block = 0; block < 2; block++) {
                uint32_t element = k[block];
                bool exists = p < places && o[block] < (uint32_t)Og,
                     meets = p < places && at[block].exists(phase) &&
                             source.meets(c, at[block].tap, c.C, element);
                unsigned char *to = stage + block * DW_BLOCK + i * APART * 128;
                mr_copy16(to, dy + (exists ? up + o[block] : 0), exists ? 16 : 0);
                mr_copy16(to + CONV_TILE, x + (meets ? element : 0), meets ? 16 : 0);
            }
            place3_move(mine[i], far, c.out);
        }
        mr_copy_commit();
    };
    start(0);
    start(1);

    float acc[64] = {0};
    mr_group_pin(acc);
    uint32_t base = mr_shared_address(memory);
    for (int step = 0; step < steps; step++) {
        mr_copy_wait<1>();
        mr_proxy_fence();
        // all threads' copies have arrived, and the product before the last has ended
        __syncthreads();
        uint32_t stage = base + step % CONV_STAGES * 2 * CONV_TILE;
        uint64_t left = mr_operand<MR_SWIZZLE_128>(stage + me * DW_BLOCK, DW_BLOCK, 1024),
                 right = mr_operand<MR_SWIZZLE_128>(stage + CONV_TILE, DW_BLOCK, 1024);
        mr_group_fence();
#pragma unroll
        for (int i = 0; i < DW_PLACES / 16; i++)
            mr_group_product<1, 1>(acc, mr_operand_behind(left, i * 2048),
                                   mr_operand_behind(right, i * 2048), 1);
        mr_group_commit();
        // this stage was read by the product before the last
        start(step + 2);
        mr_group_wait<1>();
    }
    mr_group_wait<0>();
    mr_copy_wait<0>();

    float *to = partials + (int64_t)blockIdx.y * Og * length;
    int strip = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int n = 0; n < 16; n++) {
            int o = o0 + me * 64 + strip + r * 8, k = k0 + n * 8 + lane % 4 * 2;
            if (o < Og && k < length)
                mr_store8(to + (int64_t)o * length + k,
                          {mr_bits_of(acc[4 * n + 2 * r]), mr_bits_of(acc[4 * n + 2 * r + 1])});
        }
}

#endif
