/* attention over at most 16 queries and keys, sm_80: the temporal attention of a video model.
 *
 * A warp processes one whole sequence of one head. Its q, k, v (and do) are in private tiles of 16
 * rows. The scores are one product: there is no loop over tiles, and no warp waits for another.
 * Neighbouring warps process neighbouring heads, which are adjacent in memory. Formulas, statistics
 * and rounding are those of forward.cuh and backward.cuh. Every tensor is read once and written
 * once. */
#ifndef MOONREEL_CUDA_ATTENTION_SHORT_CUH
#define MOONREEL_CUDA_ATTENTION_SHORT_CUH

#include "cuda/attention/backward.cuh"

enum { SHORT = 16, SHORT_WARPS = ATTENTION_THREADS / 32 };

template <int D> struct Short {
    static constexpr int TILE = Tile<D>::bytes(SHORT);
    static constexpr int FORWARD = SHORT_WARPS * 3 * TILE, BACKWARD = SHORT_WARPS * 4 * TILE;
};

template <int D>
__global__ void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_short(Heads q, Heads k, Heads v, Heads o, float *lse, Attention p)
{
    constexpr int TILE = Short<D>::TILE;
    MR_SHARED(memory);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int sequence = blockIdx.x * SHORT_WARPS + warp;
    if (sequence >= p.B * p.G * p.h)
        return;
    Place at = place_at(p, sequence, 0);
    unsigned char *tile_q = memory + warp * 3 * TILE, *tile_k = tile_q + TILE,
                  *tile_v = tile_k + TILE;
    tile_copy<D, SHORT, 32>(tile_q, q.of(at.b, at.g, at.h), q.n, p.N, p.d);
    tile_copy_keys<D, SHORT, 32>(tile_k, k, p, at, 0, p.d);
    tile_copy_keys<D, SHORT, 32>(tile_v, v, p, at, 0, p.e);
    mr_copy_commit();
    mr_copy_wait<0>();
    __syncwarp();

    float s[SHORT / 8][4], acc[D / 8][4], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    const int end[2] = {keys_seen(p, at, lane / 4), keys_seen(p, at, lane / 4 + 8)};
    scores<D, SHORT>(s, tile_q, tile_k);
#pragma unroll
    for (int n = 0; n < SHORT / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int key = n * 8 + lane % 4 * 2 + e % 2;
            bool seen = key < end[e / 2] && key_exists(p, at, key);
            s[n][e] = masked(p, at, seen, lane / 4 + e / 2 * 8, key, s[n][e]);
            most[e / 2] = fmaxf(most[e / 2], s[n][e]);
        }
    most[0] = row_max4(most[0]);
    most[1] = row_max4(most[1]);
#pragma unroll
    for (int n = 0; n < SHORT / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[n][e] = s[n][e] == -INFINITY ? 0 : mr_exp2(s[n][e] - most[e / 2]);
            sum[e / 2] += s[n][e];
        }
    clear<D>(acc);
    add_product<D, SHORT>(acc, s, tile_v);

    float inverse[2];
    softmax_end(most, sum, lane / 4, p.N, lse + at.row, inverse);
    __syncwarp();
    store_strip<D>(acc, inverse, tile_q, o.of(at.b, at.g, at.h), o.n, p.N, p.e);
}

// p [16, 16] and ds of the warp: rows are queries, or keys if TRANSPOSED
template <int D, bool TRANSPOSED>
MR_DEVICE void short_gradients(float (&prob)[SHORT / 8][4], float (&ds)[SHORT / 8][4],
                               const unsigned char *tile_q, const unsigned char *tile_k,
                               const unsigned char *tile_v, const unsigned char *tile_dy,
                               const float *lse, const float *dots, const float *dlse,
                               const Attention &p, const Place &at)
{
    int lane = threadIdx.x % 32;
    scores<D, SHORT>(prob, TRANSPOSED ? tile_k : tile_q, TRANSPOSED ? tile_q : tile_k);
    scores<D, SHORT>(ds, TRANSPOSED ? tile_v : tile_dy, TRANSPOSED ? tile_dy : tile_v);
#pragma unroll
    for (int n = 0; n < SHORT / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = lane / 4 + e / 2 * 8, column = n * 8 + lane % 4 * 2 + e % 2;
            int query = TRANSPOSED ? column : row, key = TRANSPOSED ? row : column;
            bool seen = key < keys_seen(p, at, query) && key_exists(p, at, key);
            Statistics x = statistics(p, at, query, lse, dots, dlse);
            float score = masked(p, at, seen, query, key, prob[n][e]);
            prob[n][e] = mr_exp2(score - x.log_sum);
            ds[n][e] = prob[n][e] * (x.weight * ds[n][e] - x.dot);
        }
}

template <int D>
__global__ void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_short_grad(Heads q, Heads k, Heads v, Heads dy, const float *lse, const float *dots,
                         const float *dlse, Heads dq, Heads dk, Heads dv, Attention p)
{
    constexpr int TILE = Short<D>::TILE;
    MR_SHARED(memory);
    int warp = threadIdx.x / 32, sequence = blockIdx.x * SHORT_WARPS + warp;
    if (sequence >= p.B * p.G * p.h)
        return;
    Place at = place_at(p, sequence, 0);
    unsigned char *tile_q = memory + warp * 4 * TILE, *tile_k = tile_q + TILE,
                  *tile_v = tile_k + TILE, *tile_dy = tile_v + TILE;
    tile_copy<D, SHORT, 32>(tile_q, q.of(at.b, at.g, at.h), q.n, p.N, p.d);
    tile_copy_keys<D, SHORT, 32>(tile_k, k, p, at, 0, p.d);
    tile_copy_keys<D, SHORT, 32>(tile_v, v, p, at, 0, p.e);
    tile_copy<D, SHORT, 32>(tile_dy, dy.of(at.b, at.g, at.h), dy.n, p.N, p.e);
    mr_copy_commit();
    mr_copy_wait<0>();
    __syncwarp();

    const float ones[2] = {1, 1}, factor[2] = {p.scale, p.scale};
    float prob[SHORT / 8][4], ds[SHORT / 8][4], ds_rows[SHORT / 8][4], acc[D / 8][4];
    short_gradients<D, false>(prob, ds_rows, tile_q, tile_k, tile_v, tile_dy, lse, dots, dlse, p,
                              at);
    short_gradients<D, true>(prob, ds, tile_q, tile_k, tile_v, tile_dy, lse, dots, dlse, p, at);
    // stage each result in a tile that is no longer needed
    clear<D>(acc);
    add_product<D, SHORT>(acc, prob, tile_dy);
    __syncwarp();
    store_strip<D>(acc, ones, tile_v, dv.of(at.b, at.g, at.h), dv.n, p.M, p.e);
    clear<D>(acc);
    add_product<D, SHORT>(acc, ds, tile_q);
    store_strip<D>(acc, factor, tile_dy, dk.of(at.b, at.g, at.h), dk.n, p.M, p.d);
    clear<D>(acc);
    add_product<D, SHORT>(acc, ds_rows, tile_k);
    __syncwarp();
    store_strip<D>(acc, factor, tile_q, dq.of(at.b, at.g, at.h), dq.n, p.N, p.d);
}

#endif
