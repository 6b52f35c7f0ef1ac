/* attention: o = softmax(scale q k^T + bias) v per sample, group and head, over the keys that a
 * query sees; its gradient. Formulas, len, frame and text as in core/op/attention.c.
 *
 *   q [B, G, N, h, d]    k [B, G, M, h, d]    v [B, G, M, h, e]    o [B, G, N, h, e]
 *   bias [h, N, M] f32 or bf16    len [B] i32    lse [B, G, h, N] f32
 * bf16 tensors whose heads are dense multiples of 16 bytes use tensor cores, with any strides. d
 * and e are multiples of 8 up to 256, padded to 64, 80, 128 or 256 columns; forward on sm_90a, up
 * to 512. All other calls, and the gradient of a bias, use plain.cuh. Kernels, bytes and
 * determinism: cuda/attention. */
#include "cuda/attention/forward.cuh"
#include "cuda/attention/groups.h"
#include "cuda/attention/plain.cuh"
#include "cuda/attention/short.cuh"
#include "cuda/kernels/kernel_call.h"
#include <type_traits>

struct attr { // as in core/op/attention_job.h
    double scale;
    int64_t frame, text, before;
    bool part;
};

static Heads heads(const mr_view *v)
{
    const int64_t *s = v->desc.stride;
    return {(mr_bf16 *)v->data, s[0], s[1], s[2], s[3]};
}

static bool whole_heads(const mr_view *v)
{
    bool whole = v->desc.stride[4] == 1 && mr_cuda_aligned(v->data, 16);
    for (int i = 0; i < 4; i++)
        whole = whole && (v->desc.stride[i] % 8 == 0 || v->desc.dim[i] == 1);
    return whole;
}

static mr_status attention_of(const mr_call *call, const mr_view *bias, Attention *p)
{
    const attr *a = (const attr *)call->attr;
    const mr_view *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    const int64_t *n = q->desc.dim, M = k->desc.dim[2], e = v->desc.dim[4];
    int64_t longest = n[2] > M ? n[2] : M;
    if (n[0] * n[1] * n[3] * mr_cuda_ceil(longest, ROWS) > INT32_MAX)
        return mr_fail(MR_E_UNSUPPORTED, "%lld heads of %lld rows, expected fewer than 2^31 tiles",
                       (long long)(n[0] * n[1] * n[3]), (long long)longest);
    p->B = (int)n[0];
    p->G = (int)n[1];
    p->N = (int)n[2];
    p->M = (int)M;
    p->h = (int)n[3];
    p->d = (int)n[4];
    p->e = (int)e;
    p->scale = (float)(a->scale != 0 ? a->scale : 1 / sqrt((double)n[4]));
    // frames longer than the sequence act as one frame
    p->frame = (int)(a->frame > longest ? 0 : a->frame);
    p->counted = (int)(!a->text ? M : a->text > a->before ? a->text - a->before : 0);
    p->before = (int)a->before;
    p->part = a->part;
    p->len = (const int32_t *)call->in[3].data;
    p->bias = bias->data;
    p->bias_half = bias->desc.dtype == MR_BF16;
    return MR_OK;
}

// can tensor cores run this, with heads of at most `most` columns? Addresses may be NULL: the
// workspace is planned before they are known
static bool in_tiles(const Attention &p, const mr_view *const *views, int n, int most = 256)
{
    bool fit = views[0]->desc.dtype == MR_BF16 && p.d % 8 == 0 && p.d <= most && p.e % 8 == 0 &&
               p.e <= most;
    for (int i = 0; i < n; i++)
        fit = fit && whole_heads(views[i]);
    return fit;
}

// one block per tile of ROWS rows of each head
static dim3 grid_of(const Attention &p, int rows)
{
    return dim3((unsigned)(p.B * p.G * p.h * mr_cuda_ceil(rows, ROWS)));
}

static bool is_short(const Attention &p)
{
    return p.N <= SHORT && p.M <= SHORT;
}

static dim3 short_grid(const Attention &p)
{
    return dim3((unsigned)mr_cuda_ceil((int64_t)p.B * p.G * p.h, SHORT_WARPS));
}

template <class Launch> static void with_columns(int d, Launch launch)
{
    if (d <= 64)
        launch(std::integral_constant<int, 64>());
    else if (d <= 80)
        launch(std::integral_constant<int, 80>());
    else if (d <= 128)
        launch(std::integral_constant<int, 128>());
    else
        launch(std::integral_constant<int, 256>());
}

// ---- plain kernels ----

template <class T> static PlainHeads<T> plain_heads(const mr_view *v)
{
    const int64_t *s = v->desc.stride;
    return {(T *)v->data, s[0], s[1], s[2], s[3], s[4]};
}

// are the rows of all views dense and divisible into pieces of four?
static bool in_fours(const Attention &p, const mr_view *const *views, int n)
{
    bool fit = p.d % 4 == 0 && p.e % 4 == 0;
    for (int i = 0; i < n; i++) {
        const mr_desc *d = &views[i]->desc;
        fit = fit && d->stride[4] == 1 &&
              mr_cuda_aligned(views[i]->data, 4 * mr_dtype_bytes(d->dtype));
        for (int k = 0; k < 4; k++)
            fit = fit && (d->stride[k] % 4 == 0 || d->dim[k] == 1);
    }
    return fit;
}

// calls launch(type, elements per load)
template <class Launch>
static void with_pieces(const Attention &p, const mr_view *const *views, int n, Launch launch)
{
    bool half = views[0]->desc.dtype == MR_BF16, fours = in_fours(p, views, n);
    if (half && fours)
        launch(mr_bf16(), std::integral_constant<int, 4>());
    else if (half)
        launch(mr_bf16(), std::integral_constant<int, 1>());
    else if (fours)
        launch(float(), std::integral_constant<int, 4>());
    else
        launch(float(), std::integral_constant<int, 1>());
}

// one warp per row; the columns are split into chunks
static dim3 plain_grid(const Attention &p, int rows)
{
    return dim3((unsigned)mr_cuda_ceil((int64_t)p.B * p.G * p.h * rows, PLAIN_WARPS),
                (unsigned)mr_cuda_ceil(p.d > p.e ? p.d : p.e, CHUNK));
}

static dim3 threads_for(int64_t elements)
{
    return dim3((unsigned)mr_cuda_ceil(elements, ATTENTION_THREADS));
}

static void forward_plain(const Attention &p, const mr_view *const *views, float *lse,
                          cudaStream_t stream)
{
    with_pieces(p, views, 4, [&](auto type, auto pieces) {
        typedef decltype(type) T;
        MR_LAUNCH((attention_plain<T, decltype(pieces)::value>), plain_grid(p, p.N),
                  dim3(ATTENTION_THREADS), PLAIN_SHARED, stream, plain_heads<T>(views[0]),
                  plain_heads<T>(views[1]), plain_heads<T>(views[2]), plain_heads<T>(views[3]), lse,
                  p);
    });
}

// ---- forward ----

// planned by shapes: the naive kernel runs calls that no CUDA kernel supports
static size_t forward_workspace(const mr_call *call, const mr_facts *)
{
    Attention p = {};
    return attention_of(call, &call->in[4], &p) == MR_OK ? 0 : MR_NO_KERNEL;
}

static mr_status forward(const mr_call *call, bool groups)
{
    cudaStream_t stream = (cudaStream_t)call->stream;
    Attention p = {};
    MR_TRY(attention_of(call, &call->in[4], &p));
    const mr_view *views[] = {&call->in[0], &call->in[1], &call->in[2], &call->out[0]};
    float *lse = (float *)call->out[1].data;
    if (p.B * p.G * p.h * p.N == 0)
        return MR_OK;
    Heads q = heads(views[0]), k = heads(views[1]), v = heads(views[2]), o = heads(views[3]);
    if (groups && in_tiles(p, views, 4, 512) && mr_attention_wide_fit(p))
        return mr_attention_forward_wide(p, q, k, v, o, lse, stream);
    if (!in_tiles(p, views, 4)) {
        forward_plain(p, views, lse, stream);
        return MR_OK;
    }
    if (groups && mr_attention_groups_fit(p))
        return mr_attention_forward_groups(p, q, k, v, o, lse, stream);
    with_columns(p.d > p.e ? p.d : p.e, [&](auto columns) {
        constexpr int D = decltype(columns)::value;
        if (is_short(p)) {
            mr_cuda_shared(attention_short<D>, Short<D>::FORWARD);
            MR_LAUNCH((attention_short<D>), short_grid(p), dim3(ATTENTION_THREADS),
                      Short<D>::FORWARD, stream, q, k, v, o, lse, p);
            return;
        }
        mr_cuda_shared(attention_forward<D>, Forward<D>::SHARED);
        MR_LAUNCH((attention_forward<D>), grid_of(p, p.N), dim3(ATTENTION_THREADS),
                  Forward<D>::SHARED, stream, q, k, v, o, lse, p);
    });
    return MR_OK;
}

static mr_status forward_sm90a(const mr_call *call)
{
    return forward(call, true);
}

MR_CUDA_KERNEL(attention, forward_workspace, NULL, NULL, NULL, forward_sm90a)
{
    (void)stream;
    return forward(call, false);
}

// ---- backward ----

// inputs and outputs of the gradient, in the order of `backward_views`
struct BackwardViews {
    const mr_view *at[8];
};

static BackwardViews backward_views(const mr_call *call)
{
    return {{&call->in[0], &call->in[1], &call->in[2], &call->in[4], &call->in[6], &call->out[0],
             &call->out[1], &call->out[2]}};
}

/* Offsets in the workspace: D of all queries first, then, for the warp-group kernels, turn words
 * and slices of dq. */
struct Room {
    size_t words_at, slices_at, bytes;
    int64_t words;
};

static Room room_of(const mr_call *call, const Attention &p, bool groups)
{
    auto round = [](size_t bytes) { return (bytes + 15) & ~(size_t)15; };
    Room room = {};
    room.words_at = round((size_t)mr_desc_count(&call->in[5].desc) * sizeof(float));
    bool whole = groups && mr_attention_whole_fit(p);
    room.words = groups && !whole ? mr_attention_turn_words(p) : 0;
    room.slices_at = room.words_at + round((size_t)room.words * sizeof(uint32_t));
    int64_t slices = whole ? GROUP_PROCESSORS : groups ? mr_attention_turn_slots(p) : 0;
    room.bytes = room.slices_at + (size_t)slices * mr_attention_slice_bytes(p);
    return room;
}

static size_t grad_workspace(const mr_call *call, const mr_facts *facts)
{
    Attention p = {};
    if (attention_of(call, &call->in[8], &p) != MR_OK)
        return MR_NO_KERNEL;
    // a bias is known only by its rank here; its address is not known yet
    bool groups = strcmp(facts->isa, "9.0") == 0 && call->in[8].desc.rank < 0 &&
                  in_tiles(p, backward_views(call).at, 8) && mr_attention_groups_fit(p);
    return room_of(call, p, groups).bytes;
}

// compute the whole gradient, or only that of the bias if tensor cores compute the rest
static void backward_plain(const Attention &p, const mr_call *call, bool bias_alone,
                           cudaStream_t stream)
{
    const BackwardViews all = backward_views(call);
    const mr_view *const *views = all.at;
    const float *lse = (const float *)call->in[5].data, *dlse = (const float *)call->in[7].data;
    float *dots = (float *)call->workspace;
    dim3 block(ATTENTION_THREADS);
    int64_t rows = (int64_t)p.B * p.G * p.h * p.N, keys = (int64_t)p.B * p.G * p.h * p.M,
            scores = (int64_t)p.h * p.N * p.M;
    with_pieces(p, views, 8, [&](auto type, auto pieces) {
        typedef decltype(type) T;
        constexpr int E = decltype(pieces)::value;
        PlainBackward<T, E> x = {plain_heads<T>(views[0]),
                                 plain_heads<T>(views[1]),
                                 plain_heads<T>(views[2]),
                                 plain_heads<T>(views[4]),
                                 lse,
                                 dots,
                                 dlse};
        if (!bias_alone && rows > 0) {
            MR_LAUNCH((attention_plain_dots<T, E>), threads_for(rows), block, 0, stream,
                      plain_heads<T>(views[3]), x.dy, dlse, dots, p);
            MR_LAUNCH((attention_plain_dq<T, E>), plain_grid(p, p.N), block, PLAIN_SHARED, stream,
                      x, plain_heads<T>(views[5]), p);
        }
        if (!bias_alone && keys > 0)
            MR_LAUNCH((attention_plain_dkv<T, E>), plain_grid(p, p.M), block, PLAIN_SHARED, stream,
                      x, plain_heads<T>(views[6]), plain_heads<T>(views[7]), p);
        if (call->out[3].desc.rank >= 0 && scores > 0)
            MR_LAUNCH((attention_plain_dbias<T, E>), threads_for(scores), block, 0, stream, x,
                      (float *)call->out[3].data, p);
    });
}

static mr_status backward_tiles(const Attention &p, const mr_call *call, bool groups,
                                cudaStream_t stream)
{
    const BackwardViews all = backward_views(call);
    const mr_view *const *views = all.at;
    Heads q = heads(views[0]), k = heads(views[1]), v = heads(views[2]), o = heads(views[3]),
          dy = heads(views[4]), dq = heads(views[5]), dk = heads(views[6]), dv = heads(views[7]);
    const float *lse = (const float *)call->in[5].data, *dlse = (const float *)call->in[7].data;
    char *memory = (char *)call->workspace;
    float *dots = (float *)memory;
    int64_t rows = (int64_t)p.B * p.G * p.h * p.N;
    dim3 block(ATTENTION_THREADS);
    groups = groups && mr_attention_groups_fit(p);
    Room room = room_of(call, p, groups);
    uint32_t *words = (uint32_t *)(memory + room.words_at);
    if (rows > 0)
        MR_LAUNCH(attention_dots, dim3((unsigned)mr_cuda_ceil(rows, ATTENTION_THREADS / DOT_LANES)),
                  block, 0, stream, o, dy, dlse, dots, words, (int)room.words, p);
    if (groups)
        return mr_attention_backward_groups(
            p,
            {q, k, v, dy, dq, dk, dv, lse, dots, dlse, words, (float *)(memory + room.slices_at)},
            stream);
    with_columns(p.d > p.e ? p.d : p.e, [&](auto columns) {
        constexpr int D = decltype(columns)::value;
        constexpr int SHARED = Backward<D>::SHARED;
        if (is_short(p)) {
            if (p.B * p.G * p.h == 0)
                return;
            mr_cuda_shared(attention_short_grad<D>, Short<D>::BACKWARD);
            MR_LAUNCH((attention_short_grad<D>), short_grid(p), block, Short<D>::BACKWARD, stream,
                      q, k, v, dy, lse, dots, dlse, dq, dk, dv, p);
            return;
        }
        if (rows > 0) {
            mr_cuda_shared(attention_dq<D>, SHARED);
            MR_LAUNCH((attention_dq<D>), grid_of(p, p.N), block, SHARED, stream, q, k, v, dy, lse,
                      dots, dlse, dq, p);
        }
        if (p.B * p.G * p.h * p.M == 0)
            return;
        if constexpr (D <= 128) {
            mr_cuda_shared(attention_dkv<D, true, true>, SHARED);
            MR_LAUNCH((attention_dkv<D, true, true>), grid_of(p, p.M), block, SHARED, stream, q, k,
                      v, dy, lse, dots, dlse, dk, dv, p);
        } else {
            mr_cuda_shared(attention_dkv<D, true, false>, SHARED);
            mr_cuda_shared(attention_dkv<D, false, true>, SHARED);
            MR_LAUNCH((attention_dkv<D, true, false>), grid_of(p, p.M), block, SHARED, stream, q, k,
                      v, dy, lse, dots, dlse, dk, dv, p);
            MR_LAUNCH((attention_dkv<D, false, true>), grid_of(p, p.M), block, SHARED, stream, q, k,
                      v, dy, lse, dots, dlse, dk, dv, p);
        }
    });
    return MR_OK;
}

static mr_status backward(const mr_call *call, bool groups)
{
    cudaStream_t stream = (cudaStream_t)call->stream;
    Attention p = {};
    MR_TRY(attention_of(call, &call->in[8], &p));
    bool tiles = in_tiles(p, backward_views(call).at, 8);
    if (tiles)
        MR_TRY(backward_tiles(p, call, groups, stream));
    if (!tiles || call->out[3].desc.rank >= 0)
        backward_plain(p, call, tiles, stream);
    return MR_OK;
}

static mr_status backward_sm90a(const mr_call *call)
{
    return backward(call, true);
}

MR_CUDA_KERNEL(attention_grad, grad_workspace, NULL, NULL, NULL, backward_sm90a)
{
    (void)stream;
    return backward(call, false);
}
