/* attention_merge: merges attention over some keys with attention over other keys into attention
 * over all of them. ring_attention: converts the result to q's dtype. Formulas as in
 * core/op/ring_attention.c.
 *
 *   o, part [B, G, N, h, e], any strides    lse, part_lse [B, G, h, N] dense
 *
 * One thread per element: o and part are read once and o is written once. The e threads of a row
 * all read its two lse values; a second kernel then merges these. o and lse may be updated in
 * place. There are no sums over threads, so the bits are fixed. */
#include "cuda/kernels/copy.cuh"
#include "cuda/kernels/elementwise.cuh"

enum { THREADS = 256 };

struct Same {
    MR_MEMBER float operator()(const float (&x)[1]) const
    {
        return x[0];
    }
};

// log(e^a + e^b); NaN stays NaN
MR_DEVICE float log_of_both(float a, float b)
{
    float top = a > b || a != a ? a : b;
    return top != -INFINITY ? top + logf(expf(a - top) + expf(b - top)) : -INFINITY;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    merge_values(const __grid_constant__ Walk<5> walk, uint32_t count, float *y, const float *o,
                 const T *part, const float *lse, const float *part_lse)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    int64_t at[5];
    walk.at(i, at);
    float a = lse[at[3]], b = part_lse[at[4]], sum = log_of_both(a, b);
    y[at[0]] = sum != -INFINITY
                   ? fmaf(expf(a - sum), o[at[1]], expf(b - sum) * mr_load1(part + at[2]))
                   : 0;
}

__global__ void __launch_bounds__(THREADS)
    merge_sums(uint32_t count, float *y, const float *lse, const float *part_lse)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        y[i] = log_of_both(lse[i], part_lse[i]);
}

// lse [B, G, h, N] as a view with one value per element of o [B, G, N, h, e]
static mr_desc spread(const mr_desc *lse, const mr_desc *o)
{
    mr_desc d = *o;
    const int64_t *s = lse->stride;
    d.stride[0] = s[0], d.stride[1] = s[1], d.stride[2] = s[3], d.stride[3] = s[2], d.stride[4] = 0;
    return d;
}

MR_CUDA_KERNEL(attention_merge)
{
    const mr_view *o = &call->in[0], *part = &call->in[2], *y = &call->out[0];
    const float *lse = (const float *)call->in[1].data, *part_lse = (const float *)call->in[3].data;
    mr_desc of_lse = spread(&call->in[1].desc, &o->desc),
            of_part_lse = spread(&call->in[3].desc, &o->desc);
    const mr_desc *views[5] = {&y->desc, &o->desc, &part->desc, &of_lse, &of_part_lse};
    Walk<5> walk;
    int64_t count, rows = mr_desc_count(&call->in[1].desc);
    if (!walk_of(views, 5, &walk, &count))
        return walk_too_large(count);
    dim3 grid((unsigned)mr_cuda_ceil(count, THREADS));
    if (count > 0 && part->desc.dtype == MR_BF16)
        MR_LAUNCH(merge_values<mr_bf16>, grid, dim3(THREADS), 0, stream, walk, (uint32_t)count,
                  (float *)y->data, (const float *)o->data, (const mr_bf16 *)part->data, lse,
                  part_lse);
    else if (count > 0)
        MR_LAUNCH(merge_values<float>, grid, dim3(THREADS), 0, stream, walk, (uint32_t)count,
                  (float *)y->data, (const float *)o->data, (const float *)part->data, lse,
                  part_lse);
    // runs also if o has no elements
    if (rows > 0)
        MR_LAUNCH(merge_sums, dim3((unsigned)mr_cuda_ceil(rows, THREADS)), dim3(THREADS), 0, stream,
                  (uint32_t)rows, (float *)call->out[1].data, lse, part_lse);
    return MR_OK;
}

MR_CUDA_KERNEL(ring_attention)
{
    mr_call one = *call;
    one.in[0] = call->in[3];
    one.n_in = 1;
    if (call->out[0].desc.dtype == MR_F32)
        return copy_view(&call->out[0], &one.in[0], stream);
    return elementwise<Same, mr_bf16, float>(Same(), &one, stream);
}
