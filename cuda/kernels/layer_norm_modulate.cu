/* layer_norm_modulate: y = n (1 + scale) + shift, n = (x - mean) * rsqrt(var + eps), over the last
 * dimension, and its gradient: with g = dy (1 + scale)
 *
 *   dx = rsqrt(var + eps) (g - mean(g) - n mean(g n))    dshift = sum_S dy    dscale = sum_S dy n
 *
 *   x, y, dy, dx [B, T, S, C] dense   shift, scale [B, T, C], any strides   dshift, dscale dense
 *
 * A row stays in registers: x is read once and y written once; backward x and dy are read once and
 * dx written once. Shift and scale of a frame are read once for the rows of a block. Sums run over
 * lanes and rows in a fixed order, so the bits do not depend on the order of blocks. All arithmetic
 * is f32; the tolerance is that of the op: 2e-6 for f32, 2^-8 for bf16.
 *
 * The fast kernels use the forms of rows.cuh. They need widths of up to 4096 (a multiple of 8 for
 * bf16, of 4 for f32) and dense rows of shift and scale. All other calls use the plain kernel, one
 * element at a time. */
#include "cuda/kernels/modulation.cuh"
#include "cuda/kernels/norm.cuh"

enum { SPAN = 32, GRAD_SPAN = 64 };

struct attr { // as in core/op/layer_norm_modulate.c
    double eps;
};

template <typename T, class F>
__global__ void __launch_bounds__(ROW_THREADS)
    layer_norm_modulate_rows(const T *x, Modulation<T> shift, Modulation<T> scale, T *y, Frames n)
{
    typedef Part<T, F> P;
    MR_SHARED(memory);
    int frame = blockIdx.y;
    auto [first, last] = n.of_block();
    // the modulation stays packed in registers
    P add, factor;
    add.load(shift.of(frame, n.T), n.C);
    factor.load(scale.of(frame, n.T), n.C);
    for (int r = first; r < last; r += F::AT_ONCE) {
        int row = r + P::group();
        bool inside = row < last;
        int64_t at = ((int64_t)frame * n.S + row) * n.C;
        P in;
        in.load(inside ? x + at : NULL, n.C);
        NormRow<T, F> norm(in, n.C, n.eps, (float *)memory);
        norm.forward(factor, 1, add, inside, y + at);
    }
}

// The plain kernel: any C and strides, one warp per row.
template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    layer_norm_modulate_plain(const T *x, Modulation<T> shift, Modulation<T> scale, T *y, Frames n)
{
    int frame = blockIdx.y;
    auto [first, last] = n.of_block();
    const T *add = shift.of(frame, n.T), *factor = scale.of(frame, n.T);
    for (int row = first + threadIdx.x / 32; row < last; row += ROW_THREADS / 32) {
        int64_t at = ((int64_t)frame * n.S + row) * n.C;
        float mean, rstd;
        plain_moments(x + at, n.C, n.eps, &mean, &rstd);
        for (int c = threadIdx.x % 32; c < n.C; c += 32)
            mr_store1(y + at + c,
                      (mr_load1(x + at + c) - mean) * rstd * (1 + mr_load1(factor + c * scale.c)) +
                          mr_load1(add + c * shift.c));
    }
}

// partials: per frame and piece of rows, one partial row of dshift and one of dscale
template <typename T, class F>
__global__ void __launch_bounds__(ROW_THREADS)
    layer_norm_modulate_grad_rows(const T *x, Modulation<T> scale, const T *dy, T *dx,
                                  float *partials, Frames n)
{
    typedef Part<T, F> P;
    MR_SHARED(memory);
    float *scratch = (float *)memory;
    int frame = blockIdx.y;
    auto [first, last] = n.of_block();
    float dshift[P::N][P::E] = {}, dscale[P::N][P::E] = {};
    P factor;
    factor.load(scale.of(frame, n.T), n.C);
    for (int r = first; r < last; r += F::AT_ONCE) {
        int row = r + P::group();
        bool inside = row < last;
        int64_t at = ((int64_t)frame * n.S + row) * n.C;
        P in, up;
        in.load(inside ? x + at : NULL, n.C);
        up.load(inside ? dy + at : NULL, n.C);
        NormRow<T, F> norm(in, n.C, n.eps, scratch);
        norm.backward(up, factor, 1, scratch, inside, dx + at, [&](int i, int e, float d, float n) {
            dshift[i][e] += d;
            dscale[i][e] += d * n;
        });
    }
    float *partial = partials + ((int64_t)frame * gridDim.x + blockIdx.x) * 2 * F::SLOTS;
    fold<T, F>(dshift, scratch, partial);
    __syncthreads();
    fold<T, F>(dscale, scratch, partial + F::SLOTS);
}

// The plain kernel: one warp per block; it keeps the sums of its rows in shared memory.
template <typename T>
__global__ void __launch_bounds__(32)
    layer_norm_modulate_grad_plain(const T *x, Modulation<T> scale, const T *dy, T *dx,
                                   float *partials, int step, Frames n)
{
    MR_SHARED(memory);
    float *dshift = (float *)memory, *dscale = dshift + n.C;
    int frame = blockIdx.y;
    auto [first, last] = n.of_block();
    const T *factor = scale.of(frame, n.T);
    for (int c = threadIdx.x; c < n.C; c += 32)
        dshift[c] = dscale[c] = 0;
    for (int row = first; row < last; row++) {
        int64_t at = ((int64_t)frame * n.S + row) * n.C;
        float mean, rstd, g1 = 0, gn = 0;
        plain_moments(x + at, n.C, n.eps, &mean, &rstd);
        for (int c = threadIdx.x; c < n.C; c += 32) {
            float norm = (mr_load1(x + at + c) - mean) * rstd, d = mr_load1(dy + at + c);
            float g = d * (1 + mr_load1(factor + c * scale.c));
            dshift[c] += d;
            dscale[c] += d * norm;
            g1 += g;
            gn += g * norm;
        }
        g1 = mr_warp_sum(g1) / n.C;
        gn = mr_warp_sum(gn) / n.C;
        for (int c = threadIdx.x; c < n.C; c += 32) {
            float norm = (mr_load1(x + at + c) - mean) * rstd;
            float g = mr_load1(dy + at + c) * (1 + mr_load1(factor + c * scale.c));
            mr_store1(dx + at + c, rstd * (g - g1 - norm * gn));
        }
    }
    float *partial = partials + ((int64_t)frame * gridDim.x + blockIdx.x) * 2 * step;
    for (int c = threadIdx.x; c < n.C; c += 32) {
        partial[c] = dshift[c];
        partial[step + c] = dscale[c];
    }
}

// ---- host ----

template <typename T> static mr_status forward(const mr_call *call, cudaStream_t stream)
{
    const mr_view *x = &call->in[0], *y = &call->out[0];
    Frames n = {};
    MR_TRY(frames_of(&x->desc, SPAN, ((const attr *)call->attr)->eps, &n));
    if (mr_desc_count(&x->desc) == 0)
        return MR_OK;
    Modulation<T> shift = modulation<T>(&call->in[1]), scale = modulation<T>(&call->in[2]);
    const T *in = (const T *)x->data;
    T *out = (T *)y->data;
    dim3 grid(pieces_of(n), (unsigned)(x->desc.dim[0] * x->desc.dim[1])), block(ROW_THREADS);
    bool fast =
        whole_rows(n.C, {x, y, &call->in[1], &call->in[2]}) && with_form(n.C, [&](auto form) {
            MR_LAUNCH((layer_norm_modulate_rows<T, decltype(form)>), grid, block, 16, stream, in,
                      shift, scale, out, n);
        });
    if (!fast)
        MR_LAUNCH((layer_norm_modulate_plain<T>), grid, block, 0, stream, in, shift, scale, out, n);
    return MR_OK;
}

MR_CUDA_FLOATS(layer_norm_modulate, 0, forward)

static size_t grad_workspace(const mr_call *call, const mr_facts *)
{
    const int64_t *d = call->in[0].desc.dim;
    int64_t rows = d[0] * d[1] * mr_cuda_ceil(d[2], GRAD_SPAN);
    return (size_t)(rows * 2 * partial_floats(d[3])) * sizeof(float);
}

template <typename T> static mr_status backward(const mr_call *call, cudaStream_t stream)
{
    const mr_view *x = &call->in[0], *dy = &call->in[2], *dx = &call->out[0];
    Frames n = {};
    MR_TRY(frames_of(&x->desc, GRAD_SPAN, ((const attr *)call->attr)->eps, &n));
    int frames = (int)(x->desc.dim[0] * x->desc.dim[1]), pieces = pieces_of(n);
    if (frames * n.C == 0)
        return MR_OK;
    Modulation<T> scale = modulation<T>(&call->in[1]);
    const T *in = (const T *)x->data, *up = (const T *)dy->data;
    T *out = (T *)dx->data;
    float *partials = (float *)call->workspace;
    int step = (int)partial_floats(n.C);
    Partials sums = {partials, 2 * step, pieces, n.C, step, 4};
    dim3 grid(pieces, frames);
    bool fast = whole_rows(n.C, {x, dy, dx, &call->in[1]}) && with_form(n.C, [&](auto form) {
                    typedef decltype(form) F;
                    sums.of<T, F>();
                    if (pieces > 0)
                        MR_LAUNCH((layer_norm_modulate_grad_rows<T, F>), grid, dim3(ROW_THREADS),
                                  F::SHARED, stream, in, scale, up, out, partials, n);
                });
    if (!fast)
        MR_TRY(plain_fits(n.C, 2));
    if (!fast && pieces > 0)
        MR_LAUNCH((layer_norm_modulate_grad_plain<T>), grid, dim3(32), 2 * n.C * sizeof(float),
                  stream, in, scale, up, out, partials, step, n);
    launch_add(sums, frames, NULL, (T *)call->out[1].data, stream);
    sums.data += step;
    launch_add(sums, frames, NULL, (T *)call->out[2].data, stream);
    return MR_OK;
}

MR_CUDA_FLOATS(layer_norm_modulate_grad, 0, backward, grad_workspace)
