/* rotary: rotates pairs (a, b) of each head by the angle of its position: (a cos - b sin, b cos + a
 * sin). Attribute `inverse` rotates back. With `halves` a pair is (x[k], x[k + d/2]) instead of
 * (x[2k], x[2k+1]).
 *
 *   x, y [B, G, N, h, d], any strides   cos, sin [N, d/2] f32
 *
 * A thread rotates a pair. A dense pair is one access of one word (bf16) or two (f32). x is read
 * once, y written once, the angles read once per head. There are no sums, so the bits are fixed. */
#include "cuda/kernels/formula.cuh"
#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/walk.cuh"

enum { THREADS = 256 };

struct attr { // as in core/op/rotary.c
    bool inverse, halves;
};

MR_DEVICE void load_pair(const float *p, float *a, float *b)
{
    uint2 x = mr_load8(p);
    *a = mr_f32_of(x.x);
    *b = mr_f32_of(x.y);
}

MR_DEVICE void load_pair(const mr_bf16 *p, float *a, float *b)
{
    uint32_t x = *(const uint32_t *)p;
    *a = mr_low(x);
    *b = mr_high(x);
}

MR_DEVICE void store_pair(float *p, float a, float b)
{
    mr_store8(p, {mr_bits_of(a), mr_bits_of(b)});
}

MR_DEVICE void store_pair(mr_bf16 *p, float a, float b)
{
    *(uint32_t *)p = mr_pack(a, b);
}

// x_step, y_step: distance between the elements of a pair; DENSE: they are adjacent and aligned to
// the size of a pair
template <typename T, bool DENSE>
__global__ void __launch_bounds__(THREADS)
    rotary_pairs(const __grid_constant__ Walk<3> walk, uint32_t pairs, const T *x, int64_t x_step,
                 const float *cos, const float *sin, float sign, T *y, int64_t y_step)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= pairs)
        return;
    int64_t at[3];
    walk.at(i, at);
    float a, b, c = cos[at[2]], s = sign * sin[at[2]];
    if (DENSE) {
        load_pair(x + at[1], &a, &b);
        store_pair(y + at[0], formula_turn_first(a, b, c, s), formula_turn_second(a, b, c, s));
    } else {
        a = mr_load1(x + at[1]);
        b = mr_load1(x + at[1] + x_step);
        mr_store1(y + at[0], formula_turn_first(a, b, c, s));
        mr_store1(y + at[0] + y_step, formula_turn_second(a, b, c, s));
    }
}

// view of the first elements of all pairs: half as many, with twice the stride if the elements of a
// pair are adjacent
static mr_desc pairs_of(const mr_desc *d, bool halves)
{
    mr_desc p = *d;
    p.dim[4] /= 2;
    p.stride[4] *= halves ? 1 : 2;
    return p;
}

static bool dense_pairs(const mr_view *v)
{
    bool dense =
        v->desc.stride[4] == 1 && mr_cuda_aligned(v->data, 2 * mr_dtype_bytes(v->desc.dtype));
    for (int d = 0; d < 4; d++)
        dense = dense && v->desc.stride[d] % 2 == 0;
    return dense;
}

template <typename T> static mr_status run(const mr_call *call, cudaStream_t stream)
{
    const mr_view *x = &call->in[0], *y = &call->out[0];
    const attr *a = (const attr *)call->attr;
    mr_desc in = pairs_of(&x->desc, a->halves), out = pairs_of(&y->desc, a->halves), table = in;
    for (int d = 0; d < 5; d++)
        table.stride[d] = d == 2 ? in.dim[4] : d == 4;
    const mr_desc *views[3] = {&out, &in, &table};
    Walk<3> walk;
    int64_t pairs;
    if (!walk_of(views, 5, &walk, &pairs))
        return walk_too_large(pairs);
    if (pairs == 0)
        return MR_OK;
    dim3 grid((unsigned)mr_cuda_ceil(pairs, THREADS)), block(THREADS);
    float sign = a->inverse ? -1.0f : 1.0f;
    const T *from = (const T *)x->data;
    T *to = (T *)y->data;
    const float *cos = (const float *)call->in[1].data, *sin = (const float *)call->in[2].data;
    int64_t apart = a->halves ? in.dim[4] : 1, x_step = x->desc.stride[4] * apart,
            y_step = y->desc.stride[4] * apart;
    if (!a->halves && dense_pairs(x) && dense_pairs(y))
        MR_LAUNCH((rotary_pairs<T, true>), grid, block, 0, stream, walk, (uint32_t)pairs, from,
                  x_step, cos, sin, sign, to, y_step);
    else
        MR_LAUNCH((rotary_pairs<T, false>), grid, block, 0, stream, walk, (uint32_t)pairs, from,
                  x_step, cos, sin, sign, to, y_step);
    return MR_OK;
}

MR_CUDA_FLOATS(rotary, 0, run)
