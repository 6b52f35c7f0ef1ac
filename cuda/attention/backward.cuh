/* attention, backward, sm_80: the readable reference for the kernels of newer GPUs.
 *
 *   D = rowsum(do o) - dlse    p = exp(scale q k^T + bias - lse)    ds = p (do v^T - D)
 *   dv = p^T do    dq = scale ds k    dk = scale ds^T q
 *
 * If a query sees only one key, p is 1 for any score, and ds = dlse. This case is exact, so that no
 * rounding error of do v - D reaches the scores.
 *
 * Three kernels. attention_dots computes D of each query. attention_dq: a block takes 64 queries
 * and loops over the keys. attention_dkv: a block takes 64 keys and loops over the queries. It
 * computes the transposed scores k q^T, whose accumulators are the operands of the next products.
 * Scores are computed twice, seven products instead of five, so that no block adds to the output of
 * another. Sums run over tiles in order, so the bits do not depend on the order of blocks. p and ds
 * are rounded to bf16 for the products. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_BACKWARD_CUH
#define MOONREEL_CUDA_ATTENTION_BACKWARD_CUH

#include "cuda/attention/tile.cuh"

template <int D> struct Backward {
    // rows of the streamed tiles; with wide accumulators few registers remain for scores
    static constexpr int WALK = D > 80 ? 16 : 32;
    static constexpr int HELD = Tile<D>::bytes(ROWS), WALKED = Tile<D>::bytes(WALK);
    // two resident tiles, two stages of two streamed tiles, three floats per row of a stage
    static constexpr int SHARED = 2 * HELD + 4 * WALKED + 6 * WALK * 4;
};

// ---- D of each query ----

enum { DOT_LANES = 8 };

/* 8 lanes compute one row; neighbouring rows are heads of one position. Also clears `n_words`
 * words, at most one per thread: the turn words of backward_turns_sm90a.cuh. */
static __global__ void __launch_bounds__(ATTENTION_THREADS)
    attention_dots(Heads o, Heads dy, const float *dlse, float *dots, uint32_t *words, int n_words,
                   Attention p)
{
    int64_t thread = (int64_t)blockIdx.x * ATTENTION_THREADS + threadIdx.x;
    if (thread < n_words)
        words[thread] = 0;
    int64_t row = thread / DOT_LANES;
    int64_t rows = (int64_t)p.B * p.G * p.N * p.h;
    bool inside = row < rows;
    int h = (int)(row % p.h), n = (int)(row / p.h % p.N), g = (int)(row / p.h / p.N % p.G),
        b = (int)(row / p.h / p.N / p.G);
    float sum = 0;
    for (int c = threadIdx.x % DOT_LANES * 8; inside && c < p.e; c += DOT_LANES * 8) {
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
__global__ void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_dq(Heads q, Heads k, Heads v, Heads dy, const float *lse, const float *dots,
                 const float *dlse, Heads dq, Attention p)
{
    typedef Backward<D> F;
    constexpr int WALK = F::WALK;
    MR_SHARED(memory);
    unsigned char *tile_q = memory, *tile_dy = memory + F::HELD, *stages = memory + 2 * F::HELD;
    Place at = place_of(p, (p.N + ROWS - 1) / ROWS);
    int lane = threadIdx.x % 32, strip = threadIdx.x / 32 * STRIP, first = at.tile * ROWS;
    int most_seen = keys_seen(p, at, first + ROWS < p.N ? first + ROWS - 1 : p.N - 1);
    int tiles = (most_seen + WALK - 1) / WALK;
    auto start = [&](int tile) {
        unsigned char *stage = stages + tile % 2 * 2 * F::WALKED;
        int from = tile * WALK;
        tile_copy_keys<D, WALK>(stage, k, p, at, from, p.d);
        tile_copy_keys<D, WALK>(stage + F::WALKED, v, p, at, from, p.e);
    };
    tile_copy<D, ROWS>(tile_q, q.of(at.b, at.g, at.h) + first * q.n, q.n, p.N - first, p.d);
    tile_copy<D, ROWS>(tile_dy, dy.of(at.b, at.g, at.h) + first * dy.n, dy.n, p.N - first, p.e);
    if (tiles > 0)
        start(0);
    mr_copy_commit();

    float acc[D / 8][4];
    int query = first + strip + lane / 4;
    const int last[2] = {keys_seen(p, at, query), keys_seen(p, at, query + 8)};
    Statistics row[2];
    clear<D>(acc);
#pragma unroll
    for (int r = 0; r < 2; r++)
        row[r] = statistics(p, at, query + r * 8, lse, dots, dlse);
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
                const Statistics &x = row[e / 2];
                int key = t * WALK + n * 8 + lane % 4 * 2 + e % 2;
                bool seen = key < last[e / 2] && key_exists(p, at, key);
                float score = masked(p, at, seen, query + e / 2 * 8, key, s[n][e]);
                s[n][e] = mr_exp2(score - x.log_sum) * (x.weight * dp[n][e] - x.dot);
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

// computes only dk or only dv if the accumulators of both do not fit into registers
template <int D, bool DK, bool DV>
__global__ void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_dkv(Heads q, Heads k, Heads v, Heads dy, const float *lse, const float *dots,
                  const float *dlse, Heads dk, Heads dv, Attention p)
{
    typedef Backward<D> F;
    constexpr int WALK = F::WALK;
    MR_SHARED(memory);
    unsigned char *tile_k = memory, *tile_v = memory + F::HELD, *stages = memory + 2 * F::HELD;
    float *rows = (float *)(stages + 4 * F::WALKED); // per stage: log_sum, dot, weight
    Place at = place_of(p, (p.M + ROWS - 1) / ROWS);
    int lane = threadIdx.x % 32, strip = threadIdx.x / 32 * STRIP, first = at.tile * ROWS;
    const mr_bf16 *queries = q.of(at.b, at.g, at.h), *ups = dy.of(at.b, at.g, at.h);
    // queries of earlier frames do not see this tile; without keys the loop is empty
    int begin = p.frame ? first / p.frame * p.frame / WALK : 0;
    int end = first < at.keys ? (p.N + WALK - 1) / WALK : begin;
    auto start = [&](int tile) {
        unsigned char *stage = stages + tile % 2 * 2 * F::WALKED;
        int from = tile * WALK, i = threadIdx.x;
        tile_copy<D, WALK>(stage, queries + from * q.n, q.n, p.N - from, p.d);
        tile_copy<D, WALK>(stage + F::WALKED, ups + from * dy.n, dy.n, p.N - from, p.e);
        // the barrier at the end of this stage's last use freed these floats
        if (i < WALK) {
            Statistics x = statistics(p, at, from + i, lse, dots, dlse);
            float *to = rows + tile % 2 * 3 * WALK + i;
            to[0] = x.log_sum;
            to[WALK] = x.dot;
            to[2 * WALK] = x.weight;
        }
    };
    if (begin < end) {
        tile_copy_keys<D, ROWS>(tile_k, k, p, at, first, p.d);
        tile_copy_keys<D, ROWS>(tile_v, v, p, at, first, p.e);
        start(begin);
    }
    mr_copy_commit();

    float acc_k[D / 8][4], acc_v[D / 8][4];
    // the first query that sees a key
    int key = first + strip + lane / 4, opens[2];
    for (int r = 0; r < 2; r++)
        opens[r] = !key_exists(p, at, key + r * 8) ? p.N
                   : p.frame                       ? (key + r * 8) / p.frame * p.frame
                                                   : 0;
    clear<D>(acc_k);
    clear<D>(acc_v);
    for (int t = begin; t < end; t++) {
        if (t + 1 < end)
            start(t + 1);
        mr_copy_commit();
        mr_copy_wait<1>();
        __syncthreads();
        const unsigned char *stage = stages + t % 2 * 2 * F::WALKED;
        const float *log_sum = rows + t % 2 * 3 * WALK, *dot = log_sum + WALK, *weight = dot + WALK;
        // transposed: rows are keys, columns are queries
        float s[WALK / 8][4];
        scores<D, WALK>(s, tile_k + strip * Tile<D>::PITCH, stage);
#pragma unroll
        for (int n = 0; n < WALK / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int column = n * 8 + lane % 4 * 2 + e % 2;
                int query = t * WALK + column;
                bool seen = query >= opens[e / 2] && query < p.N;
                float score = masked(p, at, seen, query, key + e / 2 * 8, s[n][e]);
                s[n][e] = mr_exp2(score - log_sum[column]);
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
                    s[n][e] *= weight[column] * dp[n][e] - dot[column];
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
                       dv.of(at.b, at.g, at.h) + from * dv.n, dv.n, count, p.e);
}

#endif
