/* conv3d: y[b, p, o] = bias[o] + sum over taps k and channels c of w[o, c, k] x[b, p s - before +
 * k, c], and its gradients
 *
 *   conv3d_dx   dx[b, i, c] = sum over taps and filters of w[o, c, k] dy[b, (i + before - k) / s,
 *               o], where s divides
 *   conv3d_dw   acc += sum over b, p of dy x
 *
 *   x [B, T, H, W, C]   w [O, C / groups, kt, kh, kw]   y [B, T', H', W', O], channels last, dense
 * Implicit products by mma.sync (sm_80): no column is ever formed in memory. A block takes 64
 * places and 64 channels of the result, or 16 where there are no more, and walks the channels of
 * all taps of the source, 64 at a time; rows of the source that a tap does not meet, beside the
 * ends, are zeros of the copy. Places of dx are taken by their remainder by the stride, since each
 * remainder meets taps of its own (Phase). Weights are laid out channels last first.
 * conv3d_dw walks places, in ranges that follow from the shape; partial sums are added in order.
 * Sums are f32, and the bits do not depend on the order of blocks.
 *
 * Copies are pieces of 8 channels: an operand of one group whose channels are no multiple of 8 is
 * filled up with zeros in the workspace first. bf16 of many channels goes by warp groups on sm_90a
 * (cuda/conv); f32, and groups with odd channels, take the plain form, a thread an element: right,
 * and slow. */
#include "cuda/attention/tile.cuh"
#include "cuda/conv/groups.h"
#include "cuda/kernels/kernel_call.h"
#include "cuda/kernels/pieces.cuh"

enum { THREADS = ATTENTION_THREADS, PLACES = ROWS, TILE = Tile<64>::bytes(64) };

struct attr { // as in core/op/conv3d.c
    mr_ints stride, pad, dims;
    int64_t groups;
};

// ---- what products need: weights channels last, whole pieces of channels ----

// packed [groups, rows, taps, K8], K of K8 channels that are summed
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

// a thread a piece of `to` [places, K8]: zeros behind the channels of `from` [places, K]
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

/* grid (tiles of places, tiles of columns, groups of each phase). Channels of the source are
 * multiples of 8, those of the result too where pieces are `whole`. */
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
    // a thread copies the same piece of the same rows in every step
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
            bool meets = there && mine[i].meets(c, at.tap);
            mr_copy16(stage + i * APART * Tile<64>::PITCH, from + (meets ? mine[i].first + k : 0),
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

/* grid (tiles of filters by tiles of the channels of all taps, groups by ranges of places).
 * partials [ranges, groups, O / groups, taps, C / groups]; channels of both are multiples of 8 */
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
            bool exists = p < places && o < Og,
                 meets = p < places && at.exists(phase) && source.meets(c, at.tap);
            mr_copy16(stage + i * APART * Tile<64>::PITCH,
                      exists ? dy + (begin + p) * c.O + g * Og + o : dy, exists ? 16 : 0);
            mr_copy16(stage + TILE + i * APART * Tile<64>::PITCH,
                      x + (meets ? source.first + k : 0), meets ? 16 : 0);
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

/* A thread an element of acc: the ranges in order. Of a group they hold O8 filters and C8 channels,
 * of which those of c are the first. */
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

// ---- the plain form: a thread an element of y, of dx or of acc ----

template <typename T>
__global__ void __launch_bounds__(THREADS)
    conv_plain(const T *x, const T *w, const T *bias, T *y, Conv c)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= c.out_places() * c.O)
        return;
    int o = (int)(i % c.O), Cg = c.C / c.groups, g = o / (c.O / c.groups);
    const Phase<false> phase(c, 0);
    const Source<false> p(c, phase, place3(i / c.O, c.out), c.C);
    float sum = bias ? mr_load1(bias + o) : 0;
    for (Walk<false> at(phase, 1, 0); at.exists(phase); at.move(phase, 1, 1)) {
        if (!p.meets(c, at.tap))
            continue;
        const T *from = x + (uint32_t)(p.first + Source<false>::behind(c, at.tap, c.C) + g * Cg);
        int weight = at.weight(c, phase, 1);
        for (int k = 0; k < Cg; k++)
            sum += mr_load1(from + k) * mr_load1(w + ((int64_t)o * Cg + k) * c.taps + weight);
    }
    mr_store1(y + i, sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) conv_dx_plain(const T *dy, const T *w, T *dx, Conv c)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= c.in_places() * c.C)
        return;
    int Cg = c.C / c.groups, Og = c.O / c.groups, g = (int)(i % c.C) / Cg, which = 0;
    Place3 place = place3(i / c.C, c.in);
#pragma unroll
    for (int k = 0; k < 3; k++)
        which = which * c.stride[k] + place.at[k] % c.stride[k];
    const Phase<true> phase(c, which);
    const Source<true> p(c, phase, place, c.O);
    float sum = 0;
    for (Walk<true> at(phase, 1, 0); at.exists(phase); at.move(phase, 1, 1)) {
        if (!p.meets(c, at.tap))
            continue;
        const T *from = dy + (uint32_t)(p.first + Source<true>::behind(c, at.tap, c.O));
        int weight = (int)(i % c.C % Cg) * c.taps + at.weight(c, phase, 1);
        for (int o = g * Og; o < (g + 1) * Og; o++)
            sum += mr_load1(from + o) * mr_load1(w + (int64_t)o * Cg * c.taps + weight);
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
    int channel = (int)(i / c.taps % Cg), o = (int)(i / c.taps / Cg);
    const Phase<false> phase(c, 0);
    const Walk<false> at(phase, 1, (int)(i % c.taps));
    const uint32_t k = o / Og * Cg + channel + Source<false>::behind(c, at.tap, c.C);
    Place3 place = {};
    const Place3 next = place3(1, c.out);
    float sum = 0;
    for (int64_t p = 0; p < c.out_places(); p++) {
        const Source<false> source(c, phase, place, c.C);
        if (source.meets(c, at.tap))
            sum += mr_load1(dy + p * c.O + o) * mr_load1(x + (uint32_t)(source.first + k));
        place3_move(place, next, c.out);
    }
    acc[i] += sum;
}

// ---- host ----

enum { RANGE_LEAST = 4096, RANGES_MOST = 32 };
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

static int whole(int channels)
{
    return (channels + 7) / 8 * 8;
}

/* By products? Planned without addresses, which are NULL then. Groups of odd channels cannot be
 * filled up in place of each other; offsets are 32 bits wide. */
static bool in_tiles(const Conv &c, mr_dtype type, const void *one, const void *two)
{
    return type == MR_BF16 && c.C > 0 && c.O > 0 && c.C < 1 << 20 && c.O < 1 << 20 &&
           (c.groups == 1 || (c.C / c.groups % 8 == 0 && c.O / c.groups % 8 == 0)) &&
           (int64_t)c.groups * c.stride[0] * c.stride[1] * c.stride[2] <= 65535 &&
           c.in_places() * whole(c.C) <= INT32_MAX && c.out_places() * whole(c.O) <= INT32_MAX &&
           (int64_t)whole(c.C) * whole(c.O) / c.groups * c.taps <= INT32_MAX &&
           mr_cuda_aligned(one, 16) && mr_cuda_aligned(two, 16);
}

static dim3 threads_for(int64_t elements)
{
    return dim3((unsigned)mr_cuda_ceil(elements, THREADS));
}

// what the workspace holds of an operand: nothing where its pieces are whole
static size_t filled_bytes(int64_t places, int channels)
{
    return channels % 8 ? (size_t)places * whole(channels) * sizeof(mr_bf16) : 0;
}

// the operand in whole pieces of channels, filled up in the workspace, which begins behind it then
static const mr_bf16 *filled_up(const void *from, int64_t places, int *channels, char **workspace,
                                cudaStream_t stream)
{
    int K = *channels;
    if (K % 8 == 0)
        return (const mr_bf16 *)from;
    mr_bf16 *to = (mr_bf16 *)*workspace;
    *workspace += filled_bytes(places, K);
    *channels = whole(K);
    int64_t pieces = places * (*channels / 8);
    if (pieces)
        MR_LAUNCH(conv_fill_up, threads_for(pieces), dim3(THREADS), 0, stream,
                  (const mr_bf16 *)from, to, pieces, K, *channels);
    return to;
}

// weights in whole pieces of the channels that are summed
template <bool ADJOINT> static int64_t packed_count(const Conv &c)
{
    int64_t K = whole((ADJOINT ? c.O : c.C) / c.groups);
    return K * (ADJOINT ? c.C : c.O) * c.taps;
}

template <bool ADJOINT> static size_t tiles_workspace(const Conv &c)
{
    return filled_bytes(ADJOINT ? c.out_places() : c.in_places(), ADJOINT ? c.O : c.C) +
           (size_t)packed_count<ADJOINT>(c) * sizeof(mr_bf16);
}

template <bool ADJOINT, int COLUMNS>
static void tiles_of(const Conv &c, const mr_bf16 *from, const mr_bf16 *packed, const mr_bf16 *bias,
                     mr_bf16 *to, cudaStream_t stream)
{
    int phases, N = (ADJOINT ? c.C : c.O) / c.groups;
    int64_t tiles = phase_tiles<ADJOINT>(c, PLACES, &phases);
    dim3 grid((unsigned)tiles, (unsigned)mr_cuda_ceil(N, COLUMNS), (unsigned)(phases * c.groups));
    MR_LAUNCH((conv_tiles<ADJOINT, COLUMNS>), grid, dim3(THREADS),
              2 * (TILE + Tile<64>::bytes(COLUMNS)), stream, from, packed, bias, to, N % 8 == 0, c);
}

template <bool ADJOINT>
static void launch_tiles(Conv c, bool groups, const void *from, const void *w, const void *bias,
                         void *to, void *workspace, cudaStream_t stream)
{
    char *room = (char *)workspace;
    int K8 = whole((ADJOINT ? c.O : c.C) / c.groups), N = (ADJOINT ? c.C : c.O) / c.groups;
    int64_t places = ADJOINT ? c.out_places() : c.in_places(), count = packed_count<ADJOINT>(c);
    Conv filled = c;
    const mr_bf16 *source = filled_up(from, places, ADJOINT ? &filled.O : &filled.C, &room, stream);
    mr_bf16 *packed = (mr_bf16 *)room;
    MR_LAUNCH((conv_pack<ADJOINT>), threads_for(count), dim3(THREADS), 0, stream,
              (const mr_bf16 *)w, packed, K8, c);
    auto run = groups && mr_conv_groups_fit(N) ? mr_conv_groups<ADJOINT>
               : N <= 16                       ? tiles_of<ADJOINT, 16>
                                               : tiles_of<ADJOINT, 64>;
    run(filled, source, packed, (const mr_bf16 *)bias, (mr_bf16 *)to, stream);
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

static size_t forward_workspace(const mr_call *call, const mr_facts *)
{
    Conv c;
    if (forward_of(call, &c) != MR_OK)
        return MR_NO_KERNEL;
    return in_tiles(c, call->in[0].desc.dtype, NULL, NULL) ? tiles_workspace<false>(c) : 0;
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
    if (dx_of(call, &c) != MR_OK)
        return MR_NO_KERNEL;
    return in_tiles(c, call->in[0].desc.dtype, NULL, NULL) ? tiles_workspace<true>(c) : 0;
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

static int64_t partial_count(const Conv &c)
{
    return (int64_t)c.groups * whole(c.O / c.groups) * whole(c.C / c.groups) * c.taps;
}

// places of a range, and how many ranges there are
static int ranges_of(const Conv &c, int *range)
{
    int64_t places = c.out_places(), bytes = partial_count(c) * (int64_t)sizeof(float);
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
    return filled_bytes(c.out_places(), c.O) + filled_bytes(c.in_places(), c.C) +
           (size_t)(ranges_of(c, &range) * partial_count(c)) * sizeof(float);
}

template <typename T> static void dw_plain(const Conv &c, const mr_call *call, cudaStream_t stream)
{
    MR_LAUNCH((conv_dw_plain<T>), threads_for(mr_desc_count(&call->out[0].desc)), dim3(THREADS), 0,
              stream, (const T *)call->in[0].data, (const T *)call->in[1].data,
              (float *)call->out[0].data, c);
}

static void dw_tiles(const Conv &c, bool groups, const mr_call *call, cudaStream_t stream)
{
    char *room = (char *)call->workspace;
    Conv filled = c;
    const mr_bf16 *dy = filled_up(call->in[0].data, c.out_places(), &filled.O, &room, stream);
    const mr_bf16 *x = filled_up(call->in[1].data, c.in_places(), &filled.C, &room, stream);
    int range, ranges = ranges_of(c, &range), Og = filled.O / c.groups, Cg = filled.C / c.groups;
    float *partials = (float *)room;
    dim3 grid((unsigned)(mr_cuda_ceil(Og, 64) * mr_cuda_ceil((int64_t)c.taps * Cg, 64)),
              (unsigned)(c.groups * ranges));
    if (groups && mr_conv_groups_fit(Og) && mr_conv_groups_fit(c.taps * Cg))
        mr_conv_dw_groups(filled, dy, x, partials, range, ranges, stream);
    else
        MR_LAUNCH(conv_dw_tiles, grid, dim3(THREADS), 4 * TILE, stream, dy, x, partials, range,
                  filled);
    MR_LAUNCH(conv_dw_add, threads_for(mr_desc_count(&call->out[0].desc)), dim3(THREADS), 0, stream,
              (const float *)partials, (float *)call->out[0].data, ranges, Og, Cg, c);
}

static mr_status dw(const mr_call *call, bool groups)
{
    cudaStream_t stream = (cudaStream_t)call->stream;
    Conv c;
    MR_TRY(dw_of(call, &c));
    if (mr_desc_count(&call->in[0].desc) == 0 || mr_desc_count(&call->out[0].desc) == 0)
        return MR_OK;
    // grids are as narrow as 65535 in y and z
    if (in_tiles(c, call->in[0].desc.dtype, call->in[0].data, call->in[1].data) &&
        c.groups * RANGES_MOST <= 65535)
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
