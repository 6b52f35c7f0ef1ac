/* conv3d: y[b, p, o] = bias[o] + sum over taps k and channels c of w[o, c, k] x[b, p s - before +
 * k, c], and its gradients
 *
 *   conv3d_dx   dx[b, i, c] = sum over taps and filters of w[o, c, k] dy[b, (i + before - k) / s,
 *               o], if s divides
 *   conv3d_dw   acc += sum over b, p of dy x
 *
 *   x [B, T, H, W, C]   w [O, C / groups, kt, kh, kw]   y [B, T', H', W', O], channels last, dense
 *
 * bf16 uses implicit matrix products without an im2col buffer: cuda/conv/tiles.cuh, or on sm_90a
 * with many channels cuda/conv/groups_sm90a.cuh. Both copy pieces of 8 channels. If the channels of
 * a single-group operand are not a multiple of 8, it is padded with zeros in the workspace first.
 * If each channel has its own filter, cuda/conv/depthwise.cuh runs. f32, and groups with odd
 * channels, use cuda/conv/plain.cuh.
 *
 * With `edge` all kernels read the nearest position instead of one outside, without a copy; dx of
 * positions outside is added by conv_dx_edge. Sums are f32, and the bits do not depend on the order
 * of blocks.
 */
#include "cuda/conv/depthwise.cuh"
#include "cuda/conv/groups.h"
#include "cuda/conv/plain.cuh"
#include "cuda/conv/tiles.cuh"
#include "cuda/kernels/kernel_call.h"

struct attr { // as in core/op/conv3d.c
    mr_ints stride, pad, dims;
    int64_t groups;
    bool edge;
};

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
    c->edge = a->edge;
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

/* Can the product kernels run this? The workspace is planned before addresses are known, so they
 * may be NULL. Operands with several groups of odd channels cannot be padded. Offsets have 32 bits.
 */
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

// bytes of an operand's padded copy in the workspace; 0 if its channels are a multiple of 8
static size_t filled_bytes(int64_t places, int channels)
{
    return channels % 8 ? (size_t)places * whole(channels) * sizeof(mr_bf16) : 0;
}

// the operand with channels in multiples of 8: itself, or a padded copy at *workspace, which then
// advances
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

// number of packed weights; the summed channels are padded to a multiple of 8
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

// Can the depthwise kernel run this, with 16-byte pieces? Addresses may be NULL, as in in_tiles.
static bool by_channels(const Conv &c, bool adjoint, mr_dtype type, const void *one,
                        const void *two)
{
    return c.groups > 1 && c.groups == c.C && c.groups == c.O &&
           c.C % (16 / (int)mr_dtype_bytes(type)) == 0 &&
           !(adjoint && c.stride[0] * c.stride[1] * c.stride[2] != 1) && mr_cuda_aligned(one, 16) &&
           mr_cuda_aligned(two, 16);
}

static size_t by_channels_workspace(const Conv &c, mr_dtype type)
{
    return (size_t)c.C * c.taps * mr_dtype_bytes(type);
}

template <typename T>
static void launch_channels(Conv c, bool adjoint, const void *from, const void *w, const void *bias,
                            void *to, void *workspace, cudaStream_t stream)
{
    c.edge = c.edge && !adjoint;
    for (int i = 0; adjoint && i < 3; i++) {
        int in = c.in[i];
        c.in[i] = c.out[i], c.out[i] = in;
        c.before[i] = c.kernel[i] - 1 - c.before[i];
    }
    int64_t threads = (int64_t)c.B * c.out[0] * c.out[1] * mr_cuda_ceil(c.out[2], RUN) * c.C /
                      (16 / (int64_t)sizeof(T));
    MR_LAUNCH((conv_depthwise_turn<T>), threads_for((int64_t)c.C * c.taps), dim3(THREADS), 0,
              stream, (const T *)w, (T *)workspace, c.C, c.taps, adjoint);
    MR_LAUNCH((conv_depthwise<T>), threads_for(threads), dim3(THREADS), 0, stream, (const T *)from,
              (const T *)workspace, (const T *)bias, (T *)to, c);
}

static void channels_of(const mr_call *call, const Conv &c, bool adjoint)
{
    auto run =
        call->in[0].desc.dtype == MR_BF16 ? launch_channels<mr_bf16> : launch_channels<float>;
    run(c, adjoint, call->in[0].data, call->in[1].data, adjoint ? NULL : call->in[2].data,
        call->out[0].data, call->workspace, (cudaStream_t)call->stream);
}

static size_t forward_workspace(const mr_call *call, const mr_facts *)
{
    Conv c;
    if (forward_of(call, &c) != MR_OK)
        return MR_NO_KERNEL;
    if (by_channels(c, false, call->in[0].desc.dtype, NULL, NULL))
        return by_channels_workspace(c, call->in[0].desc.dtype);
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
    if (by_channels(c, false, call->in[0].desc.dtype, call->in[0].data, call->out[0].data))
        channels_of(call, c, false);
    else if (in_tiles(c, call->in[0].desc.dtype, call->in[0].data, call->out[0].data))
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
    if (by_channels(c, true, call->in[0].desc.dtype, NULL, NULL))
        return by_channels_workspace(c, call->in[0].desc.dtype);
    return in_tiles(c, call->in[0].desc.dtype, NULL, NULL) ? tiles_workspace<true>(c) : 0;
}

template <typename T> static void dx_plain(const Conv &c, const mr_call *call, cudaStream_t stream)
{
    MR_LAUNCH((conv_dx_plain<T>), threads_for(mr_desc_count(&call->out[0].desc)), dim3(THREADS), 0,
              stream, (const T *)call->in[0].data, (const T *)call->in[1].data,
              (T *)call->out[0].data, c);
}

template <typename T> static void dx_edge(const Conv &c, const mr_call *call, cudaStream_t stream)
{
    MR_LAUNCH((conv_dx_edge<T>), threads_for(mr_desc_count(&call->out[0].desc)), dim3(THREADS), 0,
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
    if (by_channels(c, true, call->in[0].desc.dtype, call->in[0].data, call->out[0].data))
        channels_of(call, c, true);
    else if (in_tiles(c, call->in[0].desc.dtype, call->in[0].data, call->out[0].data))
        launch_tiles<true>(c, groups, call->in[0].data, call->in[1].data, NULL, call->out[0].data,
                           call->workspace, stream);
    else if (call->in[0].desc.dtype == MR_BF16)
        dx_plain<mr_bf16>(c, call, stream);
    else
        dx_plain<float>(c, call, stream);
    if (c.edge && call->in[0].desc.dtype == MR_BF16)
        dx_edge<mr_bf16>(c, call, stream);
    else if (c.edge)
        dx_edge<float>(c, call, stream);
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

// number of positions per range, and number of ranges
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
    // grids are limited to 65535 in y and z
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
