/* attention: o = softmax(scale q k^T) v per sample, group and head, keys at or past len[b] do not
 * exist; its gradient. Formulas as in core/op/attention.c.
 *
 *   q, o [B, G, N, h, d]    k, v [B, G, M, h, d]    len [B] i32    lse [B, G, h, N] f32
 * bf16 of any strides whose heads are dense pieces of 16 bytes, d a multiple of 8 to 256, filled up
 * to 64, 80, 128 or 256 columns. Kernels, bytes and determinism: cuda/attention. */
#include "cuda/attention/backward.cuh"
#include "cuda/attention/forward.cuh"
#include "cuda/kernels/kernel_call.h"
#include <type_traits>

struct attr { // as in core/op/attention_job.h
    double scale;
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

static mr_status attention_of(const mr_call *call, Attention *p)
{
    const mr_view *q = &call->in[0], *k = &call->in[1];
    const int64_t *n = q->desc.dim, M = k->desc.dim[2];
    if (q->desc.dtype != MR_BF16 || n[4] % 8 || n[4] > 256)
        return mr_fail(MR_E_UNSUPPORTED, "%s heads of %lld, expected bf16, a multiple of 8 to 256",
                       mr_dtype_name(q->desc.dtype), (long long)n[4]);
    int64_t longest = n[2] > M ? n[2] : M;
    if (n[0] * n[1] * n[3] * mr_cuda_ceil(longest, ROWS) > INT32_MAX)
        return mr_fail(MR_E_UNSUPPORTED, "%lld heads of %lld rows, expected fewer than 2^31 tiles",
                       (long long)(n[0] * n[1] * n[3]), (long long)longest);
    double scale = ((const attr *)call->attr)->scale;
    *p = {(int)n[0],
          (int)n[1],
          (int)n[2],
          (int)M,
          (int)n[3],
          (int)n[4],
          (float)(scale != 0 ? scale : 1 / sqrt((double)n[4])),
          (const int32_t *)call->in[3].data};
    return MR_OK;
}

static mr_status strides_fit(const mr_view *const *views, int n)
{
    for (int i = 0; i < n; i++)
        if (!whole_heads(views[i]))
            return mr_fail(MR_E_UNSUPPORTED,
                           "heads that are no dense pieces of 16 bytes; try: a copy of them");
    return MR_OK;
}

// blocks of tiles of `rows` rows over all heads
static dim3 grid_of(const Attention &p, int rows)
{
    return dim3((unsigned)(p.B * p.G * p.h * mr_cuda_ceil(rows, ROWS)));
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

MR_CUDA_KERNEL(attention)
{
    Attention p = {};
    MR_TRY(attention_of(call, &p));
    const mr_view *views[] = {&call->in[0], &call->in[1], &call->in[2], &call->out[0]};
    MR_TRY(strides_fit(views, 4));
    Heads q = heads(views[0]), k = heads(views[1]), v = heads(views[2]), o = heads(views[3]);
    float *lse = (float *)call->out[1].data;
    if (p.B * p.G * p.h * p.N > 0)
        with_columns(p.d, [&](auto columns) {
            constexpr int D = decltype(columns)::value;
            mr_cuda_shared(attention_forward<D>, Forward<D>::SHARED);
            MR_LAUNCH((attention_forward<D>), grid_of(p, p.N), dim3(ATTENTION_THREADS),
                      Forward<D>::SHARED, stream, q, k, v, o, lse, p);
        });
    return MR_OK;
}

static size_t grad_workspace(const mr_call *call)
{
    return (size_t)mr_desc_count(&call->in[5].desc) * sizeof(float);
}

MR_CUDA_KERNEL(attention_grad, grad_workspace)
{
    Attention p = {};
    MR_TRY(attention_of(call, &p));
    const mr_view *views[] = {&call->in[0], &call->in[1],  &call->in[2],  &call->in[4],
                              &call->in[6], &call->out[0], &call->out[1], &call->out[2]};
    MR_TRY(strides_fit(views, 8));
    Heads q = heads(views[0]), k = heads(views[1]), v = heads(views[2]), o = heads(views[3]),
          dy = heads(views[4]), dq = heads(views[5]), dk = heads(views[6]), dv = heads(views[7]);
    const float *lse = (const float *)call->in[5].data, *dlse = (const float *)call->in[7].data;
    float *dots = (float *)call->workspace;
    int64_t rows = (int64_t)p.B * p.G * p.h * p.N;
    dim3 block(ATTENTION_THREADS);
    if (rows > 0)
        MR_LAUNCH(attention_dots, dim3((unsigned)mr_cuda_ceil(rows, ATTENTION_THREADS / DOT_LANES)),
                  block, 0, stream, o, dy, dlse, dots, p);
    with_columns(p.d, [&](auto columns) {
        constexpr int D = decltype(columns)::value;
        constexpr int SHARED = Backward<D>::SHARED;
        if (rows > 0) {
            mr_cuda_shared(attention_dq<D>, SHARED);
            MR_LAUNCH((attention_dq<D>), grid_of(p, p.N), block, SHARED, stream, q, k, v, dy, lse,
                      dots, dq, p);
        }
        if (p.B * p.G * p.h * p.M == 0)
            return;
        if constexpr (D <= 128) {
            mr_cuda_shared(attention_dkv<D, true, true>, SHARED);
            MR_LAUNCH((attention_dkv<D, true, true>), grid_of(p, p.M), block, SHARED, stream, q, k,
                      v, dy, lse, dots, dk, dv, p);
        } else {
            mr_cuda_shared(attention_dkv<D, true, false>, SHARED);
            mr_cuda_shared(attention_dkv<D, false, true>, SHARED);
            MR_LAUNCH((attention_dkv<D, true, false>), grid_of(p, p.M), block, SHARED, stream, q, k,
                      v, dy, lse, dots, dk, dv, p);
            MR_LAUNCH((attention_dkv<D, false, true>), grid_of(p, p.M), block, SHARED, stream, q, k,
                      v, dy, lse, dots, dk, dv, p);
        }
    });
    return MR_OK;
}
