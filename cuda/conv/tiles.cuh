/* conv3d and its gradients, sm_80: implicit matrix products by mma.sync, channels last.
 *
 * A block computes 64 positions by 64 channels of the result, or by 16 if the result has no more.
 * It loops over the channels of all taps of the source, 64 at a time. If a tap meets no source
 * position, beyond the ends, the copy fills in zeros or, with `edge`, reads the nearest position.
 * Positions of dx are grouped by their remainder modulo the stride, because each remainder meets
 * other taps (Phase). Weights are first repacked to channels last. conv3d_dw loops over positions,
 * in ranges that depend only on the shape, and adds the partial sums in order. The channels per
 * group are multiples of 8 on both sides; a result may have any number of channels.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_CONV_TILES_CUH
#define MOONREEL_CUDA_CONV_TILES_CUH

#include "cuda/attention/tile.cuh"
#include "cuda/conv/geometry.cuh"
#include "cuda/kernels/pieces.cuh"

enum { PLACES = ROWS, TILE = Tile<64>::bytes(64) };
static_assert((int)THREADS == (int)ATTENTION_THREADS, "tiles need four warps");

// ---- weights with channels last, operands padded to multiples of 8 channels ----

// packed [groups, rows, taps, K8]; K of the K8 channels are summed, the others are zeros
template <bool ADJOINT>
__global__ void __launch_bounds__(THREADS)
    conv_pack(const mr_bf16 *w, mr_bf16 *packed, int K8, Conv c)
{
    int Og = c.O / c.groups, Cg = c.C / c.groups;
    int K = ADJOINT ? Og : Cg, rows = ADJOINT ? Cg : Og;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (int64_t)c.groups * rows * c.taps * K8)
        return;
    int k = (int)(i % K8), tap = (int)(i / K8 % c.taps), row = (int)(i / K8 / c.taps % rows);
    int g = (int)(i / K8 / c.taps / rows), o = g * Og + (ADJOINT ? k : row);
    packed[i] = k < K ? w[((int64_t)o * Cg + (ADJOINT ? row : k)) * c.taps + tap] : 0;
}

// one thread per 8-channel piece of `to` [positions, K8]; pads the channels of `from` [positions,
// K] with zeros
static __global__ void __launch_bounds__(THREADS)
    conv_fill_up(const mr_bf16 *from, mr_bf16 *to, int64_t pieces, int K, int K8)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= pieces)
        return;
    int k = (int)(i % (K8 / 8)) * 8;
    const mr_bf16 *row = from + i / (K8 / 8) * K;
    float v[8];
#pragma unroll
    for (int e = 0; e < 8; e++)
        v[e] = k + e < K ? mr_f32(row[k + e]) : 0;
    mr_store(to + i * 8, v);
}

// ---- y and dx ----

/* grid: (tiles of positions, tiles of columns, groups of each phase). The number of source channels
 * is a multiple of 8; that of the result too if `whole`. */
template <bool ADJOINT, int COLUMNS>
__global__ void __launch_bounds__(THREADS)
    conv_tiles(const mr_bf16 *from, const mr_bf16 *packed, const mr_bf16 *bias, mr_bf16 *to,
               bool whole, Conv c)
{
    MR_SHARED(memory);
    constexpr int STAGE = TILE + COLUMNS * Tile<64>::PITCH;
    int Og = c.O / c.groups, Cg = c.C / c.groups, g = blockIdx.z % c.groups;
    int K = ADJOINT ? Og : Cg, N = ADJOINT ? Cg : Og, first = blockIdx.y * COLUMNS;
    int from_width = ADJOINT ? c.O : c.C, to_width = ADJOINT ? c.C : c.O;
    const Phase<ADJOINT> phase(c, blockIdx.z / c.groups);
    int64_t row0 = (int64_t)blockIdx.x * PLACES;
    if (row0 >= phase.places(c))
        return;
    int lane = threadIdx.x % 32, strip = threadIdx.x / 32 * STRIP;
    // in every step, a thread copies the same piece of the same rows
    constexpr int APART = THREADS / 8;
    int row = threadIdx.x / 8, piece = threadIdx.x % 8;
    Source<ADJOINT> mine[PLACES / APART];
#pragma unroll
    for (int i = 0; i < PLACES / APART; i++)
        mine[i] = Source<ADJOINT>(c, phase, phase.place(c, row0 + row + i * APART), from_width);
    const mr_bf16 *weights = packed + (int64_t)(g * N + first + row) * c.taps * K;
    Walk<ADJOINT> at(phase, K, piece * 8);
    int steps = (phase.all_taps() * K + 63) / 64;
    auto start = [&](int step) {
        unsigned char *stage = memory + step % 2 * STAGE + row * Tile<64>::PITCH + piece * 16;
        bool there = step < steps && at.exists(phase);
        uint32_t k = g * K + at.k + Source<ADJOINT>::behind(c, at.tap, from_width),
                 weight = (uint32_t)at.weight(c, phase, K);
#pragma unroll
        for (int i = 0; step < steps && i < PLACES / APART; i++) {
            uint32_t element = k;
            bool meets = there && mine[i].meets(c, at.tap, from_width, element);
            mr_copy16(stage + i * APART * Tile<64>::PITCH, from + (meets ? element : 0),
                      meets ? 16 : 0);
        }
#pragma unroll
        for (int i = 0; step < steps && i < COLUMNS / APART; i++) {
            bool exists = there && first + row + i * APART < N;
            mr_copy16(stage + TILE + i * APART * Tile<64>::PITCH,
                      weights + (exists ? i * APART * c.taps * K + weight : 0), exists ? 16 : 0);
        }
        at.move(phase, K, 64);
        mr_copy_commit();
    };
    float acc[COLUMNS / 8][4];
    clear<COLUMNS>(acc);
    start(0);
    for (int step = 0; step < steps; step++) {
        start(step + 1);
        mr_copy_wait<1>();
        __syncthreads();
        const unsigned char *stage = memory + step % 2 * STAGE;
        add_scores<64, COLUMNS>(acc, stage + strip * Tile<64>::PITCH, stage + TILE);
        // all warps have read the stage; the step after the next may overwrite it
        __syncthreads();
    }
    if (bias)
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int column = first + n * 8 + lane % 4 * 2 + e % 2;
                acc[n][e] += column < N ? mr_f32(bias[g * N + column]) : 0;
            }
    mr_copy_wait<0>();
    __syncthreads();
    auto row_of = [&](int r) {
        Place3 p = phase.place(c, row0 + strip + r);
        return p.b < 0 ? NULL : to + phase.index(c, p) * to_width + g * N + first;
    };
    if (whole) {
        const float ones[2] = {1, 1};
        store_strip_rows<COLUMNS>(acc, ones, memory + strip * Tile<64>::PITCH, row_of, N - first);
        return;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        mr_bf16 *out = row_of(lane / 4 + r * 8);
#pragma unroll
        for (int e = 0; e < COLUMNS / 4; e++) {
            int column = e / 2 * 8 + lane % 4 * 2 + e % 2;
            if (out && column < N - first)
                mr_store1(out + column, acc[e / 2][2 * r + e % 2]);
        }
    }
}

// ---- the gradient of w ----

// acc [16, 64] += strip of columns of a, transposed, times b; a and b [positions, columns] have 64
// positions
MR_DEVICE void add_outer(float (&acc)[8][4], const unsigned char *a, const unsigned char *b)
{
    int lane = threadIdx.x % 32;
    const unsigned char *left =
        a + (lane % 8 + lane / 16 * 8) * Tile<64>::PITCH + lane / 8 % 2 * 16;
    const unsigned char *right = b + lane % 16 * Tile<64>::PITCH + lane / 16 * 16;
#pragma unroll
    for (int k = 0; k < PLACES / 16; k++) {
        uint32_t x[4];
        mr_load_matrix4<true>(x, left + k * 16 * Tile<64>::PITCH);
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            uint32_t y[4];
            mr_load_matrix4<true>(y, right + k * 16 * Tile<64>::PITCH + n * 16);
            mr_product16(acc[n], x, y[0], y[1]);
            mr_product16(acc[n + 1], x, y[2], y[3]);
        }
    }
}

/* grid: (tiles of filters x tiles of the channels of all taps, groups x ranges of positions).
 * partials [ranges, groups, O / groups, taps, C / groups]; the channels of both operands are
 * multiples of 8 */
static __global__ void __launch_bounds__(THREADS)
    conv_dw_tiles(const mr_bf16 *dy, const mr_bf16 *x, float *partials, int range, Conv c)
{
    MR_SHARED(memory);
    int Og = c.O / c.groups, Cg = c.C / c.groups, g = blockIdx.y % c.groups;
    int wide = (c.taps * Cg + 63) / 64, o0 = blockIdx.x / wide * 64, k0 = blockIdx.x % wide * 64;
    int64_t begin = (int64_t)(blockIdx.y / c.groups) * range, left = c.out_places() - begin;
    int places = left < range ? (int)left : range, steps = (places + PLACES - 1) / PLACES;
    int lane = threadIdx.x % 32, strip = threadIdx.x / 32 * STRIP;
    constexpr int APART = THREADS / 8;
    int row = threadIdx.x / 8, o = o0 + threadIdx.x % 8 * 8;
    const Phase<false> phase(c, 0);
    const Walk<false> at(phase, Cg, k0 + threadIdx.x % 8 * 8);
    const uint32_t k = g * Cg + at.k + Source<false>::behind(c, at.tap, c.C);
    const Place3 far = place3(PLACES, c.out);
    Place3 mine[PLACES / APART];
#pragma unroll
    for (int i = 0; i < PLACES / APART; i++)
        mine[i] = place3(begin + row + i * APART, c.out);
    auto start = [&](int step) {
        unsigned char *stage =
            memory + step % 2 * 2 * TILE + row * Tile<64>::PITCH + threadIdx.x % 8 * 16;
#pragma unroll
        for (int i = 0; step < steps && i < PLACES / APART; i++) {
            int p = step * PLACES + row + i * APART;
            const Source<false> source(c, phase, mine[i], c.C);
            uint32_t element = k;
            bool exists = p < places && o < Og,
                 meets = p < places && at.exists(phase) && source.meets(c, at.tap, c.C, element);
            mr_copy16(stage + i * APART * Tile<64>::PITCH,
                      exists ? dy + (begin + p) * c.O + g * Og + o : dy, exists ? 16 : 0);
            mr_copy16(stage + TILE + i * APART * Tile<64>::PITCH, x + (meets ? element : 0),
                      meets ? 16 : 0);
            place3_move(mine[i], far, c.out);
        }
        mr_copy_commit();
    };
    float acc[8][4];
    clear<64>(acc);
    start(0);
    for (int step = 0; step < steps; step++) {
        start(step + 1);
        mr_copy_wait<1>();
        __syncthreads();
        const unsigned char *stage = memory + step % 2 * 2 * TILE;
        add_outer(acc, stage + strip * 2, stage + TILE);
        __syncthreads();
    }
    mr_copy_wait<0>();
    int length = c.taps * Cg;
    float *to = partials + (int64_t)blockIdx.y * Og * length;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int filter = o0 + strip + lane / 4 + r * 8, column = k0 + n * 8 + lane % 4 * 2;
            if (filter < Og && column < length)
                mr_store8(to + (int64_t)filter * length + column,
                          {mr_bits_of(acc[n][2 * r]), mr_bits_of(acc[n][2 * r + 1])});
        }
}

/* One thread per element of acc: add the ranges in order. Partials have O8 filters and C8 channels
 * per group; the first of them are those of c. */
static __global__ void __launch_bounds__(THREADS)
    conv_dw_add(const float *partials, float *acc, int ranges, int O8, int C8, Conv c)
{
    int Og = c.O / c.groups, Cg = c.C / c.groups;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (int64_t)c.O * Cg * c.taps)
        return;
    int tap = (int)(i % c.taps), channel = (int)(i / c.taps % Cg), o = (int)(i / c.taps / Cg);
    int64_t at = ((int64_t)(o / Og * O8 + o % Og) * c.taps + tap) * C8 + channel;
    float sum = acc[i];
    for (int r = 0; r < ranges; r++)
        sum += partials[(int64_t)r * c.groups * O8 * c.taps * C8 + at];
    acc[i] = sum;
}

#endif
