/* Elementwise ops from one formula: y[i] = f(x0[i], x1[i], ...), views with any strides.
 *
 *     struct Silu { MR_MEMBER float operator()(const float (&x)[1]) const { ... } };
 *     return elementwise<Silu, mr_bf16, mr_bf16>(Silu(), call, stream);
 *
 * Every element is read and written once. If the innermost dimension is dense in all views, a
 * thread processes PER pieces of 16 bytes (of the widest type), otherwise one element. In place is
 * allowed: a thread reads before it writes, and no other thread accesses its elements. There are no
 * sums, so the bits are fixed.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_ELEMENTWISE_CUH
#define MOONREEL_CUDA_KERNELS_ELEMENTWISE_CUH

#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/walk.cuh"

enum { ELEMENT_THREADS = 256 };

// pieces per thread; with three inputs fewer fit into its registers
template <int N> constexpr int PER = N > 2 ? 2 : 4;

template <int N> struct Inputs {
    const void *p[N];
};

// elements per piece: 16 bytes of the widest type
template <typename T, typename... Rest> struct Piece {
    static constexpr int rest = Piece<Rest...>::elements, own = 16 / sizeof(T);
    static constexpr int elements = own < rest ? own : rest;
};
template <typename T> struct Piece<T> {
    static constexpr int elements = 16 / sizeof(T);
};

template <typename F, typename Y, typename... X>
__global__ void __launch_bounds__(ELEMENT_THREADS)
    elementwise_one(F f, const __grid_constant__ Walk<1 + sizeof...(X)> walk, uint32_t first,
                    uint32_t count, Y *y, Inputs<sizeof...(X)> in)
{
    uint32_t i = first + blockIdx.x * ELEMENT_THREADS + threadIdx.x;
    if (i >= count)
        return;
    int64_t at[1 + sizeof...(X)];
    walk.at(i, at);
    int n = 0;
    float x[] = {(n++, mr_load1((const X *)in.p[n - 1] + at[n]))...};
    mr_store1(y + at[0], f(x));
}

template <typename F, typename Y, typename... X>
__global__ void __launch_bounds__(ELEMENT_THREADS)
    elementwise_pieces(F f, const __grid_constant__ Walk<1 + sizeof...(X)> walk, uint32_t pieces,
                       Y *y, Inputs<sizeof...(X)> in)
{
    constexpr int N = sizeof...(X), E = Piece<Y, X...>::elements;
    uint32_t first = blockIdx.x * (ELEMENT_THREADS * PER<N>)+threadIdx.x;
    float x[PER<N>][N][E];
    int64_t at[PER<N>][1 + N];
    // start all loads before the first use
#pragma unroll
    for (int k = 0; k < PER<N>; k++) {
        uint32_t i = first + k * ELEMENT_THREADS;
        if (i >= pieces)
            break;
        walk.at(i, at[k]);
        int n = 0;
        ((mr_load((const X *)in.p[n] + at[k][n + 1], x[k][n]), n++), ...);
    }
#pragma unroll
    for (int k = 0; k < PER<N>; k++) {
        if (first + k * ELEMENT_THREADS >= pieces)
            break;
        float out[E];
#pragma unroll
        for (int e = 0; e < E; e++) {
            float one[N];
#pragma unroll
            for (int n = 0; n < N; n++)
                one[n] = x[k][n][e];
            out[e] = f(one);
        }
        mr_store(y + at[k][0], out);
    }
}

// can the innermost dimension be split into pieces of E elements?
template <int VIEWS>
static bool in_pieces(const Walk<VIEWS> &w, int E, const void *const (&data)[VIEWS],
                      const size_t (&width)[VIEWS])
{
    int last = w.rank - 1;
    for (int v = 0; v < VIEWS; v++) {
        if (w.stride[v][last] != 1 || !mr_cuda_aligned(data[v], width[v] * E))
            return false;
        for (int d = 0; d < last; d++)
            if (w.stride[v][d] % E)
                return false;
    }
    // a fully dense tensor may end with single elements
    return last == 0 || w.dim[last] % E == 0;
}

template <typename F, typename Y, typename... X>
static mr_status elementwise(F f, const mr_call *call, cudaStream_t stream)
{
    constexpr int N = sizeof...(X), E = Piece<Y, X...>::elements;
    const mr_desc *views[1 + N] = {&call->out[0].desc};
    const void *data[1 + N] = {call->out[0].data};
    const size_t width[1 + N] = {sizeof(Y), sizeof(X)...};
    Inputs<N> in;
    for (int n = 0; n < N; n++) {
        views[n + 1] = &call->in[n].desc;
        data[n + 1] = in.p[n] = call->in[n].data;
    }
    Walk<1 + N> walk;
    int64_t count;
    if (!walk_of(views, views[0]->rank, &walk, &count))
        return walk_too_large(count);
    Y *y = (Y *)call->out[0].data;
    uint32_t done = 0;
    if (in_pieces(walk, E, data, width) && count >= E) {
        Walk<1 + N> pieces = walk;
        int last = walk.rank - 1;
        pieces.dim[last] /= E;
        for (int v = 0; v < 1 + N; v++)
            pieces.stride[v][last] = E;
        uint32_t n = (uint32_t)(count / E);
        dim3 grid((unsigned)mr_cuda_ceil(n, ELEMENT_THREADS * PER<N>));
        MR_LAUNCH((elementwise_pieces<F, Y, X...>), grid, dim3(ELEMENT_THREADS), 0, stream, f,
                  pieces, n, y, in);
        done = n * E;
    }
    if (done < count)
        MR_LAUNCH((elementwise_one<F, Y, X...>),
                  dim3((unsigned)mr_cuda_ceil(count - done, ELEMENT_THREADS)),
                  dim3(ELEMENT_THREADS), 0, stream, f, walk, done, (uint32_t)count, y, in);
    return MR_OK;
}

// one formula of one or two arguments, which all have the output's dtype
template <typename F, int N>
static mr_status elementwise_like(F f, const mr_call *call, cudaStream_t stream)
{
    bool half = call->out[0].desc.dtype == MR_BF16;
    if constexpr (N == 1)
        return half ? elementwise<F, mr_bf16, mr_bf16>(f, call, stream)
                    : elementwise<F, float, float>(f, call, stream);
    else
        return half ? elementwise<F, mr_bf16, mr_bf16, mr_bf16>(f, call, stream)
                    : elementwise<F, float, float, float>(f, call, stream);
}

#endif
