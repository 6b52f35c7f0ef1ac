/* attention, backward, sm_80: the readable truth beside the forms for newer processors.
 *
 *   D = rowsum(do o) - dlse    p = exp(scale q k^T - lse)    ds = p (do v^T - D)
 *   dv = p^T do    dq = scale ds k    dk = scale ds^T q
 *
 * Three kernels. attention_dots: D of each row. attention_dq: a block takes 64 queries and walks
 * the keys. attention_dkv: a block takes 64 keys and walks the queries; it forms the transposed
 * scores k q^T, whose accumulators are the operands of the products that follow. Scores are formed
 * twice, seven products instead of five, so that no block adds to what another wrote: sums run over
 * tiles in order, and the bits do not depend on the order of blocks. p and ds are rounded to bf16
 * for the products. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_BACKWARD_CUH
#define MOONREEL_CUDA_ATTENTION_BACKWARD_CUH

#include "cuda/attention/tile.cuh"

enum { WALK = 32 }; // rows of the tiles that are walked

template <int D> struct Backward {
    static constexpr int HELD = Tile<D>::bytes(ROWS), WALKED = Tile<D>::bytes(WALK);
    // two tiles that stay, two stages of two tiles that are walked, lse and D of each stage
    static constexpr int SHARED = 2 * HELD + 4 * WALKED + 4 * WALK * 4;
};

// ---- D of each row ----

enum { DOT_LANES = 8 };

// a row for each 8 lanes; neighbouring rows are heads of one position
static __global__ void __launch_bounds__(ATTENTION_THREADS)
    attention_dots(Heads o, Heads dy, const float *dlse, float *dots, Attention p)
{
    int64_t row = ((int64_t)blockIdx.x * ATTENTION_THREADS + threadIdx.x) / DOT_LANES;
    int64_t rows = (int64_t)p.B * p.G * p.N * p.h;
    bool inside = row < rows;
    int h = (int)(row % p.h), n = (int)(row / p.h % p.N), g = (int)(row / p.h / p.N % p.G),
        b = (int)(row / p.h / p.N / p.G);
    float sum = 0;
    for (int c = threadIdx.x % DOT_LANES * 8; inside && c < p.d; c += DOT_LANES * 8) {
        uint4 x = mr_load16(o.of(b, g, h) + n * o.n + c),
              y = mr_load16(dy.of(b, g, h) + n * dy.n + c);
        const uint32_t left[4] = {x.x, x.y, x.z, x.w}, right[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum = fmaf(mr_low(left[i]), mr_low(right[i]), sum);
            sum = fmaf(mr_high(left[i]), mr_high(right[i]), sum);
        }
    }
    sum = mr_warp_sum<DOT_LANES>(sum);
    int64_t to = (((int64_t)b * p.G + g) * p.h + h) * p.N + n;
    if (inside && threadIdx.x % DOT_LANES == 0)
        dots[to] = sum - (dlse ? dlse[to] : 0);
}

// ---- dq ----

template <int D>
__global__ void __launch_bounds__(ATTENTION_THREADS)
    attention_dq(Heads q, Heads k, Heads v, Heads dy, const float *lse, const float *dots, Heads dq,
                 Attention p)
{
    typedef Backward<D> F;
    MR_SHARED(memory);
    unsigned char *tile_q = memory, *tile_dy = memory + F::HELD, *stages = memory + 2 * F::HELD;
    Place at = place_of(p, (p.N + ROWS - 1) / ROWS);
    int lane = threadIdx.x % 32, strip = threadIdx.x / 32 * STRIP, first = at.tile * ROWS;
    const mr_bf16 *keys = k.of(at.b, at.g, at.h), *values = v.of(at.b, at.g, at.h);
    int tiles = (at.keys + WALK - 1) / WALK;
    auto start = [&](int tile) {
        unsigned char *stage = stages + tile % 2 * 2 * F::WALKED;
        int from = tile * WALK;
        tile_copy<D, WALK>(stage, keys + from * k.n, k.n, at.keys - from, p.d);
        tile_copy<D, WALK>(stage + F::WALKED, values + from * v.n, v.n, at.keys - from, p.d);
    };
    tile_copy<D, ROWS>(tile_q, q.of(at.b, at.g, at.h) + first * q.n, q.n, p.N - first, p.d);
    tile_copy<D, ROWS>(tile_dy, dy.of(at.b, at.g, at.h) + first * dy.n, dy.n, p.N - first, p.d);
    if (tiles > 0)
        start(0);
    mr_copy_commit();

    float acc[D / 8][4], scale2 = p.scale * LOG2E, log_sum[2] = {0, 0}, dot[2] = {0, 0};
    clear<D>(acc);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = first + strip + lane / 4 + r * 8;
        if (row < p.N && tiles > 0) {
            log_sum[r] = lse[at.row + row] * LOG2E;
            dot[r] = dots[at.row + row];
        }
    }
    for (int t = 0; t < tiles; t++) {
        if (t + 1 < tiles)
            start(t + 1);
        mr_copy_commit();
        mr_copy_wait<1>();
        __syncthreads();
        const unsigned char *stage = stages + t % 2 * 2 * F::WALKED;
        float s[WALK / 8][4], dp[WALK / 8][4];
        scores<D, WALK>(s, tile_q + strip * Tile<D>::PITCH, stage);
        scores<D, WALK>(dp, tile_dy + strip * Tile<D>::PITCH, stage + F::WALKED);
#pragma unroll
        for (int n = 0; n < WALK / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                bool exists = t * WALK + n * 8 + lane % 4 * 2 + e % 2 < at.keys;
                float prob = exists ? mr_exp2(s[n][e] * scale2 - log_sum[e / 2]) : 0;
                s[n][e] = prob * (dp[n][e] - dot[e / 2]);
            }
        add_product<D, WALK>(acc, s, stage);
        __syncthreads();
    }
    mr_copy_wait<0>();
    __syncthreads();
    const float factor[2] = {p.scale, p.scale};
    int from = first + strip;
    store_strip<D>(acc, factor, tile_q + strip * Tile<D>::PITCH,
                   dq.of(at.b, at.g, at.h) + from * dq.n, dq.n, p.N - from, p.d);
}

// ---- dk and dv ----

// one of the two, where the accumulators of both do not fit into registers
template <int D, bool DK, bool DV>
__global__ void __launch_bounds__(ATTENTION_THREADS)
    attention_dkv(Heads q, Heads k, Heads v, Heads dy, const float *lse, const float *dots,
                  Heads dk, Heads dv, Attention p)
{
    typedef Backward<D> F;
    MR_SHARED(memory);
    unsigned char *tile_k = memory, *tile_v = memory + F::HELD, *stages = memory + 2 * F::HELD;
    float *rows = (float *)(stages + 4 * F::WALKED); // of each stage lse, then D
    Place at = place_of(p, (p.M + ROWS - 1) / ROWS);
    int lane = threadIdx.x % 32, strip = threadIdx.x / 32 * STRIP, first = at.tile * ROWS;
    const mr_bf16 *queries = q.of(at.b, at.g, at.h), *ups = dy.of(at.b, at.g, at.h);
    // no key of this tile exists: nothing to walk
    int tiles = first < at.keys ? (p.N + WALK - 1) / WALK : 0;
    auto start = [&](int tile) {
        unsigned char *stage = stages + tile % 2 * 2 * F::WALKED;
        int from = tile * WALK, i = threadIdx.x;
        tile_copy<D, WALK>(stage, queries + from * q.n, q.n, p.N - from, p.d);
        tile_copy<D, WALK>(stage + F::WALKED, ups + from * dy.n, dy.n, p.N - from, p.d);
        // the rows of a stage are free since the barrier at the end of its last turn
        if (i < WALK) {
            bool exists = from + i < p.N;
            rows[tile % 2 * 2 * WALK + i] = exists ? lse[at.row + from + i] * LOG2E : 0;
            rows[tile % 2 * 2 * WALK + WALK + i] = exists ? dots[at.row + from + i] : 0;
        }
    };
    if (tiles > 0) {
        tile_copy<D, ROWS>(tile_k, k.of(at.b, at.g, at.h) + first * k.n, k.n, at.keys - first, p.d);
        tile_copy<D, ROWS>(tile_v, v.of(at.b, at.g, at.h) + first * v.n, v.n, at.keys - first, p.d);
        start(0);
    }
    mr_copy_commit();

    float acc_k[D / 8][4], acc_v[D / 8][4], scale2 = p.scale * LOG2E;
    clear<D>(acc_k);
    clear<D>(acc_v);
    for (int t = 0; t < tiles; t++) {
        if (t + 1 < tiles)
            start(t + 1);
        mr_copy_commit();
        mr_copy_wait<1>();
        __syncthreads();
        const unsigned char *stage = stages + t % 2 * 2 * F::WALKED;
        const float *log_sum = rows + t % 2 * 2 * WALK, *dot = log_sum + WALK;
        // transposed: rows are keys, columns queries
        float s[WALK / 8][4];
        scores<D, WALK>(s, tile_k + strip * Tile<D>::PITCH, stage);
#pragma unroll
        for (int n = 0; n < WALK / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int column = n * 8 + lane % 4 * 2 + e % 2;
                bool exists =
                    t * WALK + column < p.N && first + strip + lane / 4 + e / 2 * 8 < at.keys;
                float prob = mr_exp2(s[n][e] * scale2 - log_sum[column]);
                s[n][e] = exists ? prob : 0;
            }
        if (DV)
            add_product<D, WALK>(acc_v, s, stage + F::WALKED);
        if (DK) {
            float dp[WALK / 8][4];
            scores<D, WALK>(dp, tile_v + strip * Tile<D>::PITCH, stage + F::WALKED);
#pragma unroll
            for (int n = 0; n < WALK / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int column = n * 8 + lane % 4 * 2 + e % 2;
                    s[n][e] *= dp[n][e] - dot[column];
                }
            add_product<D, WALK>(acc_k, s, stage);
        }
        __syncthreads();
    }
    mr_copy_wait<0>();
    __syncthreads();
    int from = first + strip, count = p.M - from;
    const float ones[2] = {1, 1}, factor[2] = {p.scale, p.scale};
    if (DK)
        store_strip<D>(acc_k, factor, tile_k + strip * Tile<D>::PITCH,
                       dk.of(at.b, at.g, at.h) + from * dk.n, dk.n, count, p.d);
    if (DV)
        store_strip<D>(acc_v, ones, tile_v + strip * Tile<D>::PITCH,
                       dv.of(at.b, at.g, at.h) + from * dv.n, dv.n, count, p.d);
}

#endif
