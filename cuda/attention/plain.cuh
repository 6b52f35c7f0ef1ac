/* attention without tensor cores: f32, and bf16 with any strides and widths. It is the reference
 * for comparisons, and runs the calls that the tiles of forward.cuh and backward.cuh do not
 * support. It uses the same formulas, statistics and order as they do.
 *
 * A warp takes a query (in attention_plain_dkv a key) and loops over 32 keys (queries) at a time.
 * Each lane computes the score of one of them and shares its weight through shared memory. Then
 * each lane sums its columns; a block has CHUNK columns. A load reads E elements: 4 if rows are
 * dense and divide into such pieces, otherwise 1. All sums are f32 and run in order, so the bits do
 * not depend on the order of blocks. A row with weight 0 is not read, so the memory past len may
 * have any contents.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_PLAIN_CUH
#define MOONREEL_CUDA_ATTENTION_PLAIN_CUH

#include "cuda/attention/backward.cuh"
#include "cuda/kernels/pieces.cuh"

enum { PLAIN_WARPS = ATTENTION_THREADS / 32, CHUNK = 256, PLAIN_SHARED = PLAIN_WARPS * 64 * 4 };

// heads [B, G, N, h, d] with strides in elements
template <class T> struct PlainHeads {
    T *data;
    int64_t b, g, n, h, c;

    MR_MEMBER T *row(const Place &at, int i) const
    {
        return data + at.b * b + at.g * g + at.h * h + i * n;
    }
};

template <int E, class T> MR_DEVICE void plain_load(const T *p, float (&x)[E])
{
    if constexpr (E == 1)
        x[0] = mr_load1(p);
    else
        mr_load(p, x);
}

// dot product of two rows of `columns` columns
template <int E, class T>
MR_DEVICE float plain_dot(const T *x, int64_t step_x, const T *y, int64_t step_y, int columns)
{
    float sum = 0, a[E], b[E];
    for (int i = 0; i < columns; i += E) {
        plain_load(x + i * step_x, a);
        plain_load(y + i * step_y, b);
#pragma unroll
        for (int e = 0; e < E; e++)
            sum = fmaf(a[e], b[e], sum);
    }
    return sum;
}

// the lane's part of a chunk of columns
template <int E> struct PlainSum {
    static constexpr int PIECES = CHUNK / 32 / E;
    float at[PIECES][E];

    // the lane's first column
    static MR_MEMBER int begin()
    {
        return blockIdx.y * CHUNK + threadIdx.x % 32 * E;
    }

    // add weights[i] times row first + i, for those of 32 rows whose `used` is not 0
    template <class T>
    MR_MEMBER void add(const float *weights, const float *used, const PlainHeads<T> &x,
                       const Place &place, int first, int columns)
    {
        for (int i = 0; i < 32; i++) {
            if (used[i] == 0)
                continue;
            const T *row = x.row(place, first + i);
            float weight = weights[i], v[E];
#pragma unroll
            for (int t = 0; t < PIECES; t++) {
                int column = begin() + t * 32 * E;
                if (column >= columns)
                    continue;
                plain_load(row + column * x.c, v);
#pragma unroll
                for (int e = 0; e < E; e++)
                    at[t][e] = fmaf(weight, v[e], at[t][e]);
            }
        }
    }

    MR_MEMBER void scale(float factor)
    {
#pragma unroll
        for (int t = 0; t < PIECES; t++)
#pragma unroll
            for (int e = 0; e < E; e++)
                at[t][e] *= factor;
    }

    template <class T>
    MR_MEMBER void store(const PlainHeads<T> &x, const Place &place, int i, int columns) const
    {
#pragma unroll
        for (int t = 0; t < PIECES; t++) {
            int column = begin() + t * 32 * E;
            T *to = x.row(place, i) + column * x.c;
            if (column >= columns)
                continue;
            if constexpr (E == 1)
                mr_store1(to, at[t][0]);
            else
                mr_store(to, at[t]);
        }
    }
};

// grid: (one warp per query of any sequence, chunks of columns)
template <class T, int E>
__global__ void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_plain(PlainHeads<T> q, PlainHeads<T> k, PlainHeads<T> v, PlainHeads<T> o, float *lse,
                    Attention p)
{
    MR_SHARED(memory);
    float *weights = (float *)memory + threadIdx.x / 32 * 32;
    int64_t row = (int64_t)blockIdx.x * PLAIN_WARPS + threadIdx.x / 32;
    if (row >= (int64_t)p.B * p.G * p.h * p.N)
        return;
    int lane = threadIdx.x % 32, query = (int)(row % p.N);
    Place at = place_at(p, (int)(row / p.N), 0);
    int end = keys_seen(p, at, query);
    float most = -INFINITY, sum = 0;
    PlainSum<E> acc = {};
    for (int first = 0; first < end; first += 32) {
        int key = first + lane;
        bool seen = key < end && key_exists(p, at, key);
        float s = seen ? plain_dot<E>(q.row(at, query), q.c, k.row(at, key), k.c, p.d) : 0;
        s = masked(p, at, seen, query, key, s);
        // update the running maximum and rescale earlier sums
        float higher = s;
#pragma unroll
        for (int lanes = 16; lanes; lanes /= 2)
            higher = fmaxf(higher, __shfl_xor_sync(~0u, higher, lanes));
        higher = fmaxf(higher, most);
        float fade = higher == -INFINITY ? 0 : mr_exp2(most - higher);
        most = higher;
        s = s == -INFINITY ? 0 : mr_exp2(s - most);
        sum = sum * fade + s;
        acc.scale(fade);
        weights[lane] = s;
        __syncwarp();
        acc.add(weights, weights, v, at, first, p.e);
        __syncwarp();
    }
    sum = mr_warp_sum(sum);
    // a NaN sum stays NaN
    acc.scale(sum == 0 ? 0 : 1 / sum);
    acc.store(o, at, query, p.e);
    if (lane == 0 && blockIdx.y == 0)
        lse[row] = sum == 0 ? -INFINITY : most / LOG2E + logf(sum);
}

// D of each query, one thread per query
template <class T, int E>
__global__ void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_plain_dots(PlainHeads<T> o, PlainHeads<T> dy, const float *dlse, float *dots,
                         Attention p)
{
    int64_t row = (int64_t)blockIdx.x * ATTENTION_THREADS + threadIdx.x;
    if (row >= (int64_t)p.B * p.G * p.h * p.N)
        return;
    int query = (int)(row % p.N);
    Place at = place_at(p, (int)(row / p.N), 0);
    float sum = plain_dot<E>(o.row(at, query), o.c, dy.row(at, query), dy.c, p.e);
    dots[row] = sum - (dlse ? dlse[row] : 0);
}

// inputs of the gradient
template <class T, int E> struct PlainBackward {
    PlainHeads<T> q, k, v, dy;
    const float *lse, *dots, *dlse;

    // p and ds of a query and a key
    MR_MEMBER void form(const Attention &a, const Place &at, int query, int key, float *weight,
                        float *ds) const
    {
        *weight = *ds = 0;
        if (key >= keys_seen(a, at, query) || !key_exists(a, at, key))
            return;
        Statistics x = statistics(a, at, query, lse, dots, dlse);
        float s = plain_dot<E>(q.row(at, query), q.c, k.row(at, key), k.c, a.d);
        *weight = mr_exp2(masked(a, at, true, query, key, s) - x.log_sum);
        if (*weight > 0)
            *ds = *weight *
                  (x.weight * plain_dot<E>(dy.row(at, query), dy.c, v.row(at, key), v.c, a.e) -
                   x.dot);
    }
};

template <class T, int E>
__global__ void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_plain_dq(PlainBackward<T, E> x, PlainHeads<T> dq, Attention p)
{
    MR_SHARED(memory);
    float *weights = (float *)memory + threadIdx.x / 32 * 32;
    int64_t row = (int64_t)blockIdx.x * PLAIN_WARPS + threadIdx.x / 32;
    if (row >= (int64_t)p.B * p.G * p.h * p.N)
        return;
    int query = (int)(row % p.N);
    Place at = place_at(p, (int)(row / p.N), 0);
    int end = keys_seen(p, at, query);
    PlainSum<E> acc = {};
    for (int first = 0; first < end; first += 32) {
        float weight, ds;
        x.form(p, at, query, first + threadIdx.x % 32, &weight, &ds);
        weights[threadIdx.x % 32] = ds;
        __syncwarp();
        acc.add(weights, weights, x.k, at, first, p.d);
        __syncwarp();
    }
    acc.scale(p.scale);
    acc.store(dq, at, query, p.d);
}

template <class T, int E>
__global__ void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_plain_dkv(PlainBackward<T, E> x, PlainHeads<T> dk, PlainHeads<T> dv, Attention p)
{
    MR_SHARED(memory);
    float *weights = (float *)memory + threadIdx.x / 32 * 64, *slopes = weights + 32;
    int64_t row = (int64_t)blockIdx.x * PLAIN_WARPS + threadIdx.x / 32;
    if (row >= (int64_t)p.B * p.G * p.h * p.M)
        return;
    int lane = threadIdx.x % 32, key = (int)(row % p.M);
    Place at = place_at(p, (int)(row / p.M), 0);
    PlainSum<E> acc_k = {}, acc_v = {};
    for (int first = 0; first < p.N; first += 32) {
        float weight, ds;
        x.form(p, at, first + lane, key, &weight, &ds);
        weights[lane] = weight;
        slopes[lane] = ds;
        __syncwarp();
        acc_k.add(slopes, weights, x.q, at, first, p.d);
        acc_v.add(weights, weights, x.dy, at, first, p.e);
        __syncwarp();
    }
    acc_k.scale(p.scale);
    acc_k.store(dk, at, key, p.d);
    acc_v.store(dv, at, key, p.e);
}

// dbias [h, N, M] += ds of all samples and groups, in order; one thread per element
template <class T, int E>
__global__ void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_plain_dbias(PlainBackward<T, E> x, float *dbias, Attention p)
{
    int64_t i = (int64_t)blockIdx.x * ATTENTION_THREADS + threadIdx.x;
    if (i >= (int64_t)p.h * p.N * p.M)
        return;
    float sum = dbias[i];
    for (int sample = 0; sample < p.B * p.G; sample++) {
        Place at = place_at(p, sample * p.h + (int)(i / p.M / p.N), 0);
        float weight, ds;
        x.form(p, at, (int)(i / p.M % p.N), (int)(i % p.M), &weight, &ds);
        sum += ds;
    }
    dbias[i] = sum;
}

#endif
