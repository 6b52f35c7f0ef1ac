/* cast: converts values to another dtype. Rounds to nearest even if bits are lost. Floats become
 * integers by truncation; values out of range saturate, NaN becomes 0.
 *
 * Between f32 and bf16 elementwise.cuh moves pieces. Equal dtypes are a copy. Other pairs are
 * converted element by element. Every element is read and written once. */
#include "cuda/kernels/copy.cuh"
#include "cuda/kernels/elementwise.cuh"

enum { THREADS = 256 };

struct Same {
    MR_MEMBER float operator()(const float (&x)[1]) const
    {
        return x[0];
    }
};

// an intermediate value; integers keep all their bits
struct Value {
    double f;
    int64_t i;
    bool integer;
};

MR_DEVICE Value load_any(const void *p, int64_t at, mr_dtype dtype)
{
    switch (dtype) {
    case MR_F64: return {((const double *)p)[at], 0, false};
    case MR_F32: return {(double)((const float *)p)[at], 0, false};
    case MR_BF16: return {(double)mr_f32(((const mr_bf16 *)p)[at]), 0, false};
    case MR_I64: return {0, ((const int64_t *)p)[at], true};
    case MR_I32: return {0, ((const int32_t *)p)[at], true};
    case MR_F8_E4M3: return {(double)mr_f8_value(((const uint8_t *)p)[at], 3), 0, false};
    case MR_F8_E5M2: return {(double)mr_f8_value(((const uint8_t *)p)[at], 2), 0, false};
    default: return {0, ((const uint8_t *)p)[at], true};
    }
}

// x clamped to the range of an integer dtype
MR_DEVICE int64_t whole(const Value &x, int64_t least, int64_t most)
{
    if (x.integer)
        return x.i < least ? least : x.i > most ? most : x.i;
    double f = x.f != x.f ? 0 : x.f;
    return f < (double)least ? least : f >= (double)most ? most : (int64_t)f;
}

MR_DEVICE void store_any(void *p, int64_t at, mr_dtype dtype, const Value &x)
{
    double f = x.integer ? (double)x.i : x.f;
    switch (dtype) {
    case MR_F64: ((double *)p)[at] = f; break;
    case MR_F32: ((float *)p)[at] = (float)f; break;
    case MR_BF16: mr_store1((mr_bf16 *)p + at, (float)f); break;
    case MR_I64: ((int64_t *)p)[at] = whole(x, INT64_MIN, INT64_MAX); break;
    case MR_I32: ((int32_t *)p)[at] = (int32_t)whole(x, INT32_MIN, INT32_MAX); break;
    case MR_U8: ((uint8_t *)p)[at] = (uint8_t)whole(x, 0, 255); break;
    case MR_F8_E4M3: ((uint8_t *)p)[at] = (uint8_t)mr_pack8<3>((float)f, 0); break;
    case MR_F8_E5M2: ((uint8_t *)p)[at] = (uint8_t)mr_pack8<2>((float)f, 0); break;
    default: ((uint8_t *)p)[at] = x.integer ? x.i != 0 : x.f != 0; break;
    }
}

__global__ void __launch_bounds__(THREADS)
    cast_any(const __grid_constant__ Walk<2> walk, uint32_t count, void *y, mr_dtype to,
             const void *x, mr_dtype from)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    int64_t at[2];
    walk.at(i, at);
    store_any(y, at[0], to, load_any(x, at[1], from));
}

MR_CUDA_KERNEL(cast)
{
    const mr_view *y = &call->out[0], *x = &call->in[0];
    mr_dtype to = y->desc.dtype, from = x->desc.dtype;
    if (to == from)
        return copy_view(y, x, stream);
    if (to == MR_BF16 && from == MR_F32)
        return elementwise<Same, mr_bf16, float>(Same(), call, stream);
    if (to == MR_F32 && from == MR_BF16)
        return elementwise<Same, float, mr_bf16>(Same(), call, stream);
    const mr_desc *views[2] = {&y->desc, &x->desc};
    Walk<2> walk;
    int64_t count;
    if (!walk_of(views, y->desc.rank, &walk, &count))
        return walk_too_large(count);
    if (count > 0)
        MR_LAUNCH(cast_any, dim3((unsigned)mr_cuda_ceil(count, THREADS)), dim3(THREADS), 0, stream,
                  walk, (uint32_t)count, y->data, to, x->data, from);
    return MR_OK;
}
