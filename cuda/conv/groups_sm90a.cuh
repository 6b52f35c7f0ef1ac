/* conv3d and its gradients, sm_90a: implicit products of warp groups, channels last.
 *
 *   y[p, o] = bias[o] + sum over taps k and channels c of x[place that p meets by k, c] w[k, o, c]
 * A block takes 128 places and 128 channels of the result, a warp group 64 of the places, and walks
 * taps and pieces of 64 channels of the source. No column is formed in memory: threads copy 16
 * bytes at a time (cp.async) to where the 128-byte swizzle has them, zeros for places beside the
 * ends (Phase leaves out taps that no place of a block meets), and products read both operands from
 * there. Four stages: while the product of one is in flight, the copies of the next two are.
 * Weights lie by tap, [groups, taps, rows, K], as conv_pack leaves them. Sums run over steps in
 * order: the bits do not depend on the order of blocks. Channels of a group are multiples of 8 on
 * both sides; all addresses of 16 bytes.
 *
 * conv3d_dw walks a range of places, 64 at a time, for 128 filters and 128 channels of one tap:
 * both operands lie place by place and are read transposed. Its sums go to partials, one a range,
 * which conv_dw_add adds in order.
 *
 * cp.async writes as threads do, so a fence stands between its wait and the products.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_CONV_GROUPS_SM90A_CUH
#define MOONREEL_CUDA_CONV_GROUPS_SM90A_CUH

#include "cuda/conv/geometry.cuh"
#include "cuda/prim/sm90a.cuh"

enum {
    CONV_THREADS = 256,
    CONV_ROWS = 128, // places, and columns of the result
    CONV_STAGES = 4,
    CONV_TILE = CONV_ROWS * 128, // bytes: 64 channels a row
    CONV_SHARED = CONV_STAGES * 2 * CONV_TILE
};

// where 16-byte piece `piece` of row `row` of a tile lies
MR_DEVICE unsigned conv_place(int row, int piece)
{
    return (unsigned)(row * 128 + (piece ^ row % 8) * 16);
}

// what a thread copies in every step: one piece of four rows of each tile
template <bool ADJOINT> struct ConvCopy {
    static constexpr int MINE = CONV_ROWS * 8 / CONV_THREADS;
    Place3 place[MINE];
    int piece, row;

    MR_MEMBER void begin(const Conv &c, const Phase<ADJOINT> &phase, int64_t first)
    {
        piece = threadIdx.x % 8;
        row = threadIdx.x / 8;
#pragma unroll
        for (int i = 0; i < MINE; i++)
            place[i] = phase.place(c, first + row + i * (CONV_THREADS / 8));
    }

    // channels k to k + 7 of this thread's rows, of the group whose weights begin at `rows` [N, K]
    MR_MEMBER void start(unsigned char *stage, const Conv &c, const mr_bf16 *from, int width,
                         const mr_bf16 *rows, int tap, int k, int K, int column, int N) const
    {
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            int r = row + i * (CONV_THREADS / 8), n = column + r;
            int64_t at = k < K ? meets<ADJOINT>(c, place[i], tap) : -1;
            bool there = k < K && n < N;
            unsigned char *to = stage + conv_place(r, piece);
            mr_copy16(to, at >= 0 ? from + at * width + k : from, at >= 0 ? 16 : 0);
            mr_copy16(to + CONV_TILE, there ? rows + (int64_t)n * K + k : rows, there ? 16 : 0);
        }
    }
};

// grid (tiles of places, tiles of columns, groups of each phase)
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
    int chunks = (K + 63) / 64, steps = phase.all_taps() * chunks;
    ConvCopy<ADJOINT> mine;
    mine.begin(c, phase, first);
    auto start = [&](int step) {
        if (step < steps) {
            int tap = phase.tap_at(c, step / chunks);
            mine.start(memory + step % CONV_STAGES * 2 * CONV_TILE, c, from + g * K, from_width,
                       packed + ((int64_t)g * c.taps + tap) * N * K, tap,
                       step % chunks * 64 + mine.piece * 8, K, column, N);
        }
        mr_copy_commit();
    };
    start(0);
    start(1);

    float acc[64] = {0};
    int me = threadIdx.x / 128, lane = threadIdx.x % 32;
    uint32_t base = mr_shared_address(memory);
    for (int step = 0; step < steps; step++) {
        mr_copy_wait<1>();
        mr_proxy_fence();
        // everybody's copies are there, and the product before the last one is over
        __syncthreads();
        uint32_t left = base + step % CONV_STAGES * 2 * CONV_TILE + me * 64 * 128,
                 right = base + (step % CONV_STAGES * 2 + 1) * CONV_TILE;
        mr_group_fence();
#pragma unroll
        for (int i = 0; i < 4; i++)
            mr_group_product<0>(acc, mr_operand<MR_SWIZZLE_128>(left + i * 32, 16, 1024),
                                mr_operand<MR_SWIZZLE_128>(right + i * 32, 16, 1024), 1);
        mr_group_commit();
        // into the stage of the product before the last one
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

enum { DW_PLACES = 64, DW_BLOCK = DW_PLACES * 128 }; // bytes: 64 channels a row

/* grid (tiles of filters by tiles of channels, taps, groups by ranges of places). partials [ranges,
 * groups, taps, O / groups, C / groups] */
static __global__ void __launch_bounds__(CONV_THREADS, 1)
    conv_dw_groups(const mr_bf16 *dy, const mr_bf16 *x, float *partials, int range, Conv c)
{
    MR_SHARED(memory);
    int Og = c.O / c.groups, Cg = c.C / c.groups, g = blockIdx.z % c.groups, tap = blockIdx.y;
    int wide = (Cg + CONV_ROWS - 1) / CONV_ROWS;
    int o0 = blockIdx.x / wide * CONV_ROWS, c0 = blockIdx.x % wide * CONV_ROWS;
    int64_t places = c.out_places(), begin = (int64_t)(blockIdx.z / c.groups) * range;
    int64_t end = begin + range < places ? begin + range : places;
    int steps = (int)((end - begin + DW_PLACES - 1) / DW_PLACES);
    auto start = [&](int step) {
        unsigned char *stage = memory + step % CONV_STAGES * 2 * CONV_TILE;
        int piece = threadIdx.x % 8;
#pragma unroll
        for (int row = threadIdx.x / 8; step < steps && row < DW_PLACES; row += CONV_THREADS / 8) {
            int64_t i = begin + (int64_t)step * DW_PLACES + row;
            int64_t at = i < end ? meets<false>(c, place3(i, c.out), tap) : -1;
#pragma unroll
            for (int block = 0; block < 2; block++) {
                int o = o0 + block * 64 + piece * 8, channel = c0 + block * 64 + piece * 8;
                bool up = i < end && o < Og, there = at >= 0 && channel < Cg;
                unsigned char *to = stage + block * DW_BLOCK + conv_place(row, piece);
                mr_copy16(to, up ? dy + i * c.O + g * Og + o : dy, up ? 16 : 0);
                mr_copy16(to + CONV_TILE, there ? x + at * c.C + g * Cg + channel : x,
                          there ? 16 : 0);
            }
        }
        mr_copy_commit();
    };
    start(0);
    start(1);

    float acc[64] = {0};
    mr_group_pin(acc);
    int me = threadIdx.x / 128, lane = threadIdx.x % 32;
    uint32_t base = mr_shared_address(memory);
    for (int step = 0; step < steps; step++) {
        mr_copy_wait<1>();
        mr_proxy_fence();
        // everybody's copies are there, and the product before the last one is over
        __syncthreads();
        uint32_t left = base + step % CONV_STAGES * 2 * CONV_TILE + me * DW_BLOCK,
                 right = base + (step % CONV_STAGES * 2 + 1) * CONV_TILE;
        mr_group_fence();
#pragma unroll
        for (int i = 0; i < DW_PLACES / 16; i++)
            mr_group_product<1, 1>(acc, mr_operand<MR_SWIZZLE_128>(left + i * 2048, DW_BLOCK, 1024),
                                   mr_operand<MR_SWIZZLE_128>(right + i * 2048, DW_BLOCK, 1024), 1);
        mr_group_commit();
        // into the stage of the product before the last one
        start(step + 2);
        mr_group_wait<1>();
    }
    mr_group_wait<0>();
    mr_copy_wait<0>();

    float *to = partials + ((int64_t)blockIdx.z * c.taps + tap) * Og * Cg;
    int strip = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int n = 0; n < 16; n++) {
            int o = o0 + me * 64 + strip + r * 8, channel = c0 + n * 8 + lane % 4 * 2;
            if (o < Og && channel < Cg)
                mr_store8(to + (int64_t)o * Cg + channel,
                          {mr_bits_of(acc[4 * n + 2 * r]), mr_bits_of(acc[4 * n + 2 * r + 1])});
        }
}

#endif
