/* conv3d: y[b, p, o] = bias[o] + sum over taps k and channels c of w[o, c, k] x[b, p s - before +
 * k, c], and its gradients
 *
 *   conv3d_dx   dx[b, i, c] = sum over taps and filters of w[o, c, k] dy[b, (i + before - k) / s,
 * o], where s divides                       conv3d_dw   acc += sum over b, p of dy x
 *
 *   x [B, T, H, W, C]   w [O, C / groups, kt, kh, kw]   y [B, T', H', W', O], channels last, dense
 * Implicit products by mma.sync (sm_80): no column is ever formed in memory. A block takes 64
 * places and 64 channels of the result and walks taps and pieces of 64 channels of the source; rows
 * of the source that a tap does not meet, beside the ends, are zeros of the copy. Places of dx are
 * taken by their remainder by the stride, since each remainder meets taps of its own (Phase).
 * Weights are laid out by tap first.
 * conv3d_dw walks places, in ranges that follow from the shape; partial sums are added in order.
 * Sums are f32, and the bits do not depend on the order of blocks.
 *
 * bf16 whose channels of a group are multiples of 8 on both sides go this way, those of many
 * channels on sm_90a by warp groups (cuda/conv). All others take the plain form, a thread an
 * element: right, and slow. */
#include "cuda/attention/tile.cuh"
#include "cuda/conv/groups.h"
#include "cuda/kernels/kernel_call.h"
#include "cuda/kernels/pieces.cuh"

enum { THREADS = ATTENTION_THREADS, PLACES = ROWS, COLUMNS = 64, TILE = Tile<64>::bytes(64) };

struct attr { // as in core/op/conv3d.c
    mr_ints stride, pad, dims;
    int64_t groups;
};

// ---- weights by tap: packed [groups, taps, rows, K], K the channels that are summed ----

template <bool ADJOINT>
__global__ void __launch_bounds__(THREADS) conv_pack(const mr_bf16 *w, mr_bf16 *packed, Conv c)
{
    int Og = c.O / c.groups, Cg = c.C / c.groups;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (int64_t)c.O * Cg * c.taps)
        return;
    int K = ADJOINT ? Og : Cg, rows = ADJOINT ? Cg : Og;
    int k = (int)(i % K), row = (int)(i / K % rows), tap = (int)(i / K / rows % c.taps);
    int g = (int)(i / K / rows / c.taps), o = g * Og + (ADJOINT ? k : row);
    packed[i] = w[((int64_t)o * Cg + (ADJOINT ? row : k)) * c.taps + tap];
}

// ---- y and dx ----

// grid (tiles of places, tiles of columns, groups of each phase)
template <bool ADJOINT>
__global__ void __launch_bounds__(THREADS)
    conv_tiles(const mr_bf16 *from, const mr_bf16 *packed, const mr_bf16 *bias, mr_bf16 *to, Conv c)
{
    MR_SHARED(memory);
    unsigned char *stages = memory;
    int Og = c.O / c.groups, Cg = c.C / c.groups, g = blockIdx.z % c.groups;
    int K = ADJOINT ? Og : Cg, N = ADJOINT ? Cg : Og, first = blockIdx.y * COLUMNS;
    int from_width = ADJOINT ? c.O : c.C, to_width = ADJOINT ? c.C : c.O;
    const Phase<ADJOINT> phase(c, blockIdx.z / c.groups);
    int64_t row0 = (int64_t)blockIdx.x * PLACES;
    if (row0 >= phase.places(c))
        return;
    int lane = threadIdx.x % 32, strip = threadIdx.x / 32 * STRIP;
    // a thread copies the same piece of the same rows in every step
    constexpr int MINE = PLACES * 8 / THREADS;
    int piece = threadIdx.x % 8;
    Place3 mine[MINE];
#pragma unroll
    for (int i = 0; i < MINE; i++)
        mine[i] = phase.place(c, row0 + threadIdx.x / 8 + i * (THREADS / 8));
    int chunks = (K + 63) / 64, steps = phase.all_taps() * chunks;
    auto copies = [&](int step) {
        unsigned char *stage = stages + step % 2 * 2 * TILE;
        int tap = phase.tap_at(c, step / chunks), k = step % chunks * 64 + piece * 8;
        const mr_bf16 *rows = packed + ((int64_t)g * c.taps + tap) * N * K;
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            int row = threadIdx.x / 8 + i * (THREADS / 8), n = first + row;
            int64_t at = k < K ? meets<ADJOINT>(c, mine[i], tap) : -1;
            bool there = k < K && n < N;
            unsigned char *place = stage + row * Tile<64>::PITCH + piece * 16;
            mr_copy16(place, at >= 0 ? from + at * from_width + g * K + k : from, at >= 0 ? 16 : 0);
            mr_copy16(place + TILE, there ? rows + (int64_t)n * K + k : packed, there ? 16 : 0);
        }
    };
    auto start = [&](int step) {
        if (step < steps)
            copies(step);
        mr_copy_commit();
    };
    float acc[COLUMNS / 8][4];
    clear<COLUMNS>(acc);
    start(0);
    for (int step = 0; step < steps; step++) {
        start(step + 1);
        mr_copy_wait<1>();
        __syncthreads();
        const unsigned char *stage = stages + step % 2 * 2 * TILE;
        add_scores<64, COLUMNS>(acc, stage + strip * Tile<64>::PITCH, stage + TILE);
        // the stage is free for the step after the next
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
    const float ones[2] = {1, 1};
    auto row_of = [&](int r) {
        Place3 p = phase.place(c, row0 + strip + r);
        return p.b < 0 ? NULL : to + phase.index(c, p) * to_width + g * N + first;
    };
    store_strip_rows<COLUMNS>(acc, ones, stages + strip * Tile<64>::PITCH, row_of, N - first);
}

// ---- the gradient of w ----

// acc [16, 64] += the columns of a strip of a, transposed, by b: both 64 places [places, columns]
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

/* grid (tiles of filters by tiles of channels, taps, groups by ranges of places). partials [ranges,
 * groups, taps, O / groups, C / groups] */
static __global__ void __launch_bounds__(THREADS)
    conv_dw_tiles(const mr_bf16 *dy, const mr_bf16 *x, float *partials, int range, Conv c)
{
    MR_SHARED(memory);
    int Og = c.O / c.groups, Cg = c.C / c.groups, g = blockIdx.z % c.groups, tap = blockIdx.y;
    int wide = (Cg + 63) / 64, o0 = blockIdx.x / wide * 64, c0 = blockIdx.x % wide * 64;
    int64_t places = c.out_places(), begin = (int64_t)(blockIdx.z / c.groups) * range;
    int64_t end = begin + range < places ? begin + range : places;
    int lane = threadIdx.x % 32, strip = threadIdx.x / 32 * STRIP, piece = threadIdx.x % 8;
    int steps = (int)((end - begin + PLACES - 1) / PLACES);
    auto start = [&](int step) {
        unsigned char *stage = memory + step % 2 * 2 * TILE;
        int o = o0 + piece * 8, channel = c0 + piece * 8;
#pragma unroll
        for (int row = threadIdx.x / 8; row < PLACES; row += THREADS / 8) {
            int64_t i = begin + (int64_t)step * PLACES + row;
            bool up = i < end && o < Og;
            int64_t at = i < end && channel < Cg ? meets<false>(c, place3(i, c.out), tap) : -1;
            unsigned char *place = stage + row * Tile<64>::PITCH + piece * 16;
            mr_copy16(place, up ? dy + i * c.O + g * Og + o : dy, up ? 16 : 0);
            mr_copy16(place + TILE, at >= 0 ? x + at * c.C + g * Cg + channel : x,
                      at >= 0 ? 16 : 0);
        }
    };
    float acc[8][4];
    clear<64>(acc);
    start(0);
    mr_copy_commit();
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps)
            start(step + 1);
        mr_copy_commit();
        mr_copy_wait<1>();
        __syncthreads();
        const unsigned char *stage = memory + step % 2 * 2 * TILE;
        add_outer(acc, stage + strip * 2, stage + TILE);
        __syncthreads();
    }
    mr_copy_wait<0>();
    float *to = partials + ((int64_t)blockIdx.z * c.taps + tap) * Og * Cg;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int o = o0 + strip + lane / 4 + r * 8, channel = c0 + n * 8 + lane % 4 * 2;
            if (o < Og && channel < Cg)
                mr_store8(to + (int64_t)o * Cg + channel,
                          {mr_bits_of(acc[n][2 * r]), mr_bits_of(acc[n][2 * r + 1])});
        }
}

// a thread an element of acc: the ranges in order
static __global__ void __launch_bounds__(THREADS)
    conv_dw_add(const float *partials, float *acc, int ranges, Conv c)
{
    int Og = c.O / c.groups, Cg = c.C / c.groups;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, all = (int64_t)c.O * Cg * c.taps;
    if (i >= all)
        return;
    int tap = (int)(i % c.taps), channel = (int)(i / c.taps % Cg), o = (int)(i / c.taps / Cg);
    int64_t at = (((int64_t)(o / Og) * c.taps + tap) * Og + o % Og) * Cg + channel;
    float sum = acc[i];
    for (int r = 0; r < ranges; r++)
        sum += partials[r * all + at];
    acc[i] = sum;
}

// ---- the plain form: a thread an element of y, of dx or of acc ----

template <typename T>
__global__ void __launch_bounds__(THREADS)
    conv_plain(const T *x, const T *w, const T *bias, T *y, Conv c)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= c.out_places() * c.O)
        return;
    int o = (int)(i % c.O), Cg = c.C / c.groups, g = o / (c.O / c.groups);
    Place3 p = place3(i / c.O, c.out);
    float sum = bias ? mr_load1(bias + o) : 0;
    for (int tap = 0; tap < c.taps; tap++) {
        int64_t at = meets<false>(c, p, tap);
        for (int k = 0; at >= 0 && k < Cg; k++)
            sum += mr_load1(x + at * c.C + g * Cg + k) *
                   mr_load1(w + ((int64_t)o * Cg + k) * c.taps + tap);
    }
    mr_store1(y + i, sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) conv_dx_plain(const T *dy, const T *w, T *dx, Conv c)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= c.in_places() * c.C)
        return;
    int Cg = c.C / c.groups, Og = c.O / c.groups, g = (int)(i % c.C) / Cg;
    Place3 p = place3(i / c.C, c.in);
    float sum = 0;
    for (int tap = 0; tap < c.taps; tap++) {
        int64_t at = meets<true>(c, p, tap);
        for (int o = g * Og; at >= 0 && o < (g + 1) * Og; o++)
            sum += mr_load1(dy + at * c.O + o) *
                   mr_load1(w + ((int64_t)o * Cg + i % c.C % Cg) * c.taps + tap);
    }
    mr_store1(dx + i, sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    conv_dw_plain(const T *dy, const T *x, float *acc, Conv c)
{
    int Cg = c.C / c.groups, Og = c.O / c.groups;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (int64_t)c.O * Cg * c.taps)
        return;
    int tap = (int)(i % c.taps), channel = (int)(i / c.taps % Cg), o = (int)(i / c.taps / Cg);
    float sum = 0;
    for (int64_t p = 0; p < c.out_places(); p++) {
        int64_t at = meets<false>(c, place3(p, c.out), tap);
        if (at >= 0)
            sum += mr_load1(dy + p * c.O + o) * mr_load1(x + at * c.C + o / Og * Cg + channel);
    }
    acc[i] += sum;
}

// ---- host ----

enum { SHARED = 4 * TILE, RANGE_LEAST = 4096, RANGES_MOST = 32 };
static const int64_t PARTIALS_MOST = 64 << 20; // bytes

static mr_status conv_of(const attr *a, const mr_desc *x, const mr_desc *w, const mr_desc *y,
                         Conv *c)
{
    const int64_t *d = w->dim;
    if (mr_desc_count(x) > INT32_MAX || mr_desc_count(y) > INT32_MAX ||
        mr_desc_count(w) > INT32_MAX)
        return mr_fail(MR_E_UNSUPPORTED, "%lld and %lld elements, expected fewer than 2^31",
                       (long long)mr_desc_count(x), (long long)mr_desc_count(y));
    *c = {};
    c->B = (int)x->dim[0];
    c->C = (int)x->dim[4];
    c->O = (int)d[0];
    c->groups = (int)a->groups;
    c->taps = (int)(d[2] * d[3] * d[4]);
    for (int i = 0; i < 3; i++) {
        c->in[i] = (int)x->dim[1 + i];
        c->out[i] = (int)y->dim[1 + i];
        c->kernel[i] = (int)d[2 + i];
        c->stride[i] = (int)(a->stride.n ? a->stride.v[i] : 1);
        c->before[i] = (int)(a->pad.n ? a->pad.v[2 * i] : 0);
    }
    return MR_OK;
}

// by products? planned without addresses, which are NULL then
static bool in_tiles(const Conv &c, mr_dtype type, const void *one, const void *two)
{
    return type == MR_BF16 && c.C > 0 && c.C / c.groups % 8 == 0 && c.O > 0 &&
           c.O / c.groups % 8 == 0 &&
           (int64_t)c.groups * c.stride[0] * c.stride[1] * c.stride[2] <= 65535 &&
           mr_cuda_aligned(one, 16) && mr_cuda_aligned(two, 16);
}

static dim3 threads_for(int64_t elements)
{
    return dim3((unsigned)mr_cuda_ceil(elements, THREADS));
}

static size_t packed_bytes(const Conv &c)
{
    return (size_t)((int64_t)c.O * (c.C / c.groups) * c.taps) * sizeof(mr_bf16);
}

template <bool ADJOINT>
static void launch_tiles(const Conv &c, bool groups, const void *from, const void *w,
                         const void *bias, void *to, void *workspace, cudaStream_t stream)
{
    mr_bf16 *packed = (mr_bf16 *)workspace;
    int phases, N = (ADJOINT ? c.C : c.O) / c.groups;
    int64_t tiles = phase_tiles<ADJOINT>(c, PLACES, &phases);
    dim3 grid((unsigned)tiles, (unsigned)mr_cuda_ceil(N, COLUMNS), (unsigned)(phases * c.groups));
    MR_LAUNCH((conv_pack<ADJOINT>), threads_for((int64_t)c.O * (c.C / c.groups) * c.taps),
              dim3(THREADS), 0, stream, (const mr_bf16 *)w, packed, c);
    if (groups && mr_conv_groups_fit(N)) {
        mr_conv_groups(c, ADJOINT, (const mr_bf16 *)from, packed, (const mr_bf16 *)bias,
                       (mr_bf16 *)to, stream);
        return;
    }
    MR_LAUNCH((conv_tiles<ADJOINT>), grid, dim3(THREADS), SHARED, stream, (const mr_bf16 *)from,
              (const mr_bf16 *)packed, (const mr_bf16 *)bias, (mr_bf16 *)to, c);
}

static mr_status forward_of(const mr_call *call, Conv *c)
{
    return conv_of((const attr *)call->attr, &call->in[0].desc, &call->in[1].desc,
                   &call->out[0].desc, c);
}

static mr_status dx_of(const mr_call *call, Conv *c)
{
    return conv_of((const attr *)call->attr, &call->out[0].desc, &call->in[1].desc,
                   &call->in[0].desc, c);
}

static mr_status dw_of(const mr_call *call, Conv *c)
{
    return conv_of((const attr *)call->attr, &call->in[1].desc, &call->in[2].desc,
                   &call->in[0].desc, c);
}

static size_t pack_workspace(mr_status st, const Conv &c, const mr_call *call)
{
    if (st != MR_OK)
        return MR_NO_KERNEL;
    return in_tiles(c, call->in[0].desc.dtype, NULL, NULL) ? packed_bytes(c) : 0;
}

static size_t forward_workspace(const mr_call *call, const mr_facts *)
{
    Conv c;
    return pack_workspace(forward_of(call, &c), c, call);
}

template <typename T>
static void forward_plain(const Conv &c, const mr_call *call, cudaStream_t stream)
{
    MR_LAUNCH((conv_plain<T>), threads_for(mr_desc_count(&call->out[0].desc)), dim3(THREADS), 0,
              stream, (const T *)call->in[0].data, (const T *)call->in[1].data,
              (const T *)call->in[2].data, (T *)call->out[0].data, c);
}

static mr_status forward(const mr_call *call, bool groups)
{
    cudaStream_t stream = (cudaStream_t)call->stream;
    Conv c;
    MR_TRY(forward_of(call, &c));
    if (mr_desc_count(&call->out[0].desc) == 0)
        return MR_OK;
    if (in_tiles(c, call->in[0].desc.dtype, call->in[0].data, call->out[0].data))
        launch_tiles<false>(c, groups, call->in[0].data, call->in[1].data, call->in[2].data,
                            call->out[0].data, call->workspace, stream);
    else if (call->in[0].desc.dtype == MR_BF16)
        forward_plain<mr_bf16>(c, call, stream);
    else
        forward_plain<float>(c, call, stream);
    return MR_OK;
}

static mr_status forward_sm90a(const mr_call *call)
{
    return forward(call, true);
}

MR_CUDA_KERNEL(conv3d, forward_workspace, NULL, NULL, NULL, forward_sm90a)
{
    (void)stream;
    return forward(call, false);
}

static size_t dx_workspace(const mr_call *call, const mr_facts *)
{
    Conv c;
    return pack_workspace(dx_of(call, &c), c, call);
}

template <typename T> static void dx_plain(const Conv &c, const mr_call *call, cudaStream_t stream)
{
    MR_LAUNCH((conv_dx_plain<T>), threads_for(mr_desc_count(&call->out[0].desc)), dim3(THREADS), 0,
              stream, (const T *)call->in[0].data, (const T *)call->in[1].data,
              (T *)call->out[0].data, c);
}

static mr_status dx(const mr_call *call, bool groups)
{
    cudaStream_t stream = (cudaStream_t)call->stream;
    Conv c;
    MR_TRY(dx_of(call, &c));
    if (mr_desc_count(&call->out[0].desc) == 0)
        return MR_OK;
    if (in_tiles(c, call->in[0].desc.dtype, call->in[0].data, call->out[0].data))
        launch_tiles<true>(c, groups, call->in[0].data, call->in[1].data, NULL, call->out[0].data,
                           call->workspace, stream);
    else if (call->in[0].desc.dtype == MR_BF16)
        dx_plain<mr_bf16>(c, call, stream);
    else
        dx_plain<float>(c, call, stream);
    return MR_OK;
}

static mr_status dx_sm90a(const mr_call *call)
{
    return dx(call, true);
}

MR_CUDA_KERNEL(conv3d_dx, dx_workspace, NULL, NULL, NULL, dx_sm90a)
{
    (void)stream;
    return dx(call, false);
}

// places of a range, and how many ranges there are
static int ranges_of(const Conv &c, int *range)
{
    int64_t places = (int64_t)c.B * c.out[0] * c.out[1] * c.out[2];
    int64_t bytes = (int64_t)c.O * (c.C / c.groups) * c.taps * (int64_t)sizeof(float);
    int64_t n = mr_cuda_ceil(places, RANGE_LEAST), most = PARTIALS_MOST / (bytes ? bytes : 1);
    n = n < RANGES_MOST ? n : (int64_t)RANGES_MOST;
    n = n < most ? n : most;
    n = n < 1 ? 1 : n;
    int64_t each = mr_cuda_ceil(places, n);
    *range = (int)(mr_cuda_ceil(each, PLACES) * PLACES);
    return *range ? (int)mr_cuda_ceil(places, *range) : 0;
}

static size_t dw_workspace(const mr_call *call, const mr_facts *)
{
    Conv c;
    int range;
    if (dw_of(call, &c) != MR_OK)
        return MR_NO_KERNEL;
    if (!in_tiles(c, call->in[0].desc.dtype, NULL, NULL))
        return 0;
    return (size_t)ranges_of(c, &range) * c.O * (c.C / c.groups) * c.taps * sizeof(float);
}

template <typename T> static void dw_plain(const Conv &c, const mr_call *call, cudaStream_t stream)
{
    MR_LAUNCH((conv_dw_plain<T>), threads_for(mr_desc_count(&call->out[0].desc)), dim3(THREADS), 0,
              stream, (const T *)call->in[0].data, (const T *)call->in[1].data,
              (float *)call->out[0].data, c);
}

static void dw_tiles(const Conv &c, bool groups, const mr_call *call, cudaStream_t stream)
{
    int range, ranges = ranges_of(c, &range), Og = c.O / c.groups, Cg = c.C / c.groups;
    float *partials = (float *)call->workspace, *acc = (float *)call->out[0].data;
    dim3 grid((unsigned)(mr_cuda_ceil(Og, 64) * mr_cuda_ceil(Cg, 64)), (unsigned)c.taps,
              (unsigned)(c.groups * ranges));
    const mr_bf16 *dy = (const mr_bf16 *)call->in[0].data, *x = (const mr_bf16 *)call->in[1].data;
    if (groups && mr_conv_groups_fit(Og) && mr_conv_groups_fit(Cg))
        mr_conv_dw_groups(c, dy, x, partials, range, ranges, stream);
    else
        MR_LAUNCH(conv_dw_tiles, grid, dim3(THREADS), SHARED, stream, dy, x, partials, range, c);
    MR_LAUNCH(conv_dw_add, threads_for(mr_desc_count(&call->out[0].desc)), dim3(THREADS), 0, stream,
              (const float *)partials, acc, ranges, c);
}

static mr_status dw(const mr_call *call, bool groups)
{
    cudaStream_t stream = (cudaStream_t)call->stream;
    Conv c;
    MR_TRY(dw_of(call, &c));
    if (mr_desc_count(&call->in[0].desc) == 0 || mr_desc_count(&call->out[0].desc) == 0)
        return MR_OK;
    // grids are as narrow as 65535 in y and z
    bool tiles = in_tiles(c, call->in[0].desc.dtype, call->in[0].data, call->in[1].data) &&
                 c.taps <= 65535 && c.groups * RANGES_MOST <= 65535;
    if (tiles)
        dw_tiles(c, groups, call, stream);
    else if (call->in[0].desc.dtype == MR_BF16)
        dw_plain<mr_bf16>(c, call, stream);
    else
        dw_plain<float>(c, call, stream);
    return MR_OK;
}

static mr_status dw_sm90a(const mr_call *call)
{
    return dw(call, true);
}

MR_CUDA_KERNEL(conv3d_dw, dw_workspace, NULL, NULL, NULL, dw_sm90a)
{
    (void)stream;
    return dw(call, false);
}
