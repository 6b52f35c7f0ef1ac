/* attention, forward, sm_80: the readable reference for the kernels of newer GPUs.
 *
 *   o = softmax(scale q k^T + bias) v, lse = log of the sum of exp(scale q k + bias)
 *
 * A block processes 64 queries of one head, a warp 16 of them, and loops over tiles of KEYS keys.
 * Copies of the next tile are in flight while the block computes on the current one. Softmax uses a
 * running maximum and sum in f32. Probabilities are rounded to bf16 for the product with v. Each
 * row sums over tiles in order, so the bits do not depend on the order of blocks. A block reads its
 * q, k and v once and writes o and lse once. Ref: Dao 2023, arXiv:2307.08691.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_FORWARD_CUH
#define MOONREEL_CUDA_ATTENTION_FORWARD_CUH

#include "cuda/attention/tile.cuh"

template <int D> struct Forward {
    static constexpr int KEYS = D > 128 ? 32 : 64;
    static constexpr int Q = Tile<D>::bytes(ROWS), K = Tile<D>::bytes(KEYS);
    static constexpr int SHARED = Q + 4 * K; // q, two stages of k and v
};

template <int D>
__global__ void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_forward(Heads q, Heads k, Heads v, Heads o, float *lse, Attention p)
{
    typedef Forward<D> F;
    constexpr int KEYS = F::KEYS;
    MR_SHARED(memory);
    unsigned char *tile_q = memory, *stages = memory + F::Q;
    Place at = place_of(p, (p.N + ROWS - 1) / ROWS);
    int lane = threadIdx.x % 32, strip = threadIdx.x / 32 * STRIP, first = at.tile * ROWS;
    // the last query of the tile sees the most keys
    int most_seen = keys_seen(p, at, first + ROWS < p.N ? first + ROWS - 1 : p.N - 1);
    int tiles = (most_seen + KEYS - 1) / KEYS;

    // a stage has a tile of k and a tile of v
    auto start = [&](int tile) {
        unsigned char *stage = stages + tile % 2 * 2 * F::K;
        int from = tile * KEYS;
        tile_copy_keys<D, KEYS>(stage, k, p, at, from, p.d);
        tile_copy_keys<D, KEYS>(stage + F::K, v, p, at, from, p.e);
    };
    tile_copy<D, ROWS>(tile_q, q.of(at.b, at.g, at.h) + first * q.n, q.n, p.N - first, p.d);
    if (tiles > 0)
        start(0);
    mr_copy_commit();

    float acc[D / 8][4], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    int query = first + strip + lane / 4;
    const int end[2] = {keys_seen(p, at, query), keys_seen(p, at, query + 8)};
    clear<D>(acc);
    for (int t = 0; t < tiles; t++) {
        if (t + 1 < tiles)
            start(t + 1);
        mr_copy_commit();
        mr_copy_wait<1>();
        __syncthreads();
        const unsigned char *stage = stages + t % 2 * 2 * F::K;
        float s[KEYS / 8][4];
        scores<D, KEYS>(s, tile_q + strip * Tile<D>::PITCH, stage);

        // update the running maximum and rescale earlier sums
        float higher[2] = {most[0], most[1]};
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int key = t * KEYS + n * 8 + lane % 4 * 2 + e % 2;
                bool seen = key < end[e / 2] && key_exists(p, at, key);
                s[n][e] = masked(p, at, seen, query + e / 2 * 8, key, s[n][e]);
                higher[e / 2] = fmaxf(higher[e / 2], s[n][e]);
            }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            higher[r] = row_max4(higher[r]);
            // a row that has seen no key yet stays at 0
            float fade = higher[r] == -INFINITY ? 0 : mr_exp2(most[r] - higher[r]);
            most[r] = higher[r];
            sum[r] *= fade;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                acc[n][2 * r] *= fade;
                acc[n][2 * r + 1] *= fade;
            }
        }
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[n][e] = s[n][e] == -INFINITY ? 0 : mr_exp2(s[n][e] - most[e / 2]);
                sum[e / 2] += s[n][e];
            }
        add_product<D, KEYS>(acc, s, stage + F::K);
        // all warps have read the stage; the tile after the next may overwrite it
        __syncthreads();
    }
    mr_copy_wait<0>();
    __syncthreads();

    float inverse[2];
    softmax_end(most, sum, query, p.N, lse + at.row, inverse);
    int from = first + strip;
    store_strip<D>(acc, inverse, tile_q + strip * Tile<D>::PITCH,
                   o.of(at.b, at.g, at.h) + from * o.n, o.n, p.N - from, p.e);
}

#endif
