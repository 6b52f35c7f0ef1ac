/* gated_residual: y = x + gate a, and its gradient da = gate dy, dgate = sum over S of dy a.
 *
 *   x, a, y, dy, da [B, T, S, C] dense   gate [B, T, C], any strides   dgate dense
 *
 * Each element of the large tensors is read and written once, the gate of a frame once for the rows
 * of a block. Sums run over rows in a fixed order, so the bits do not depend on the order of
 * blocks. y may overwrite x, and da may overwrite a: a thread reads its elements before it writes
 * them. All arithmetic is f32.
 *
 * Fast and plain kernels as in layer_norm_modulate.cu. */
#include "cuda/kernels/modulation.cuh"

enum { SPAN = 32, GRAD_SPAN = 64 };

template <typename T, class F>
__global__ void __launch_bounds__(ROW_THREADS)
    gated_residual_rows(const T *x, Modulation<T> gate, const T *a, T *y, Frames n)
{
    typedef Part<T, F> P;
    int frame = blockIdx.y;
    auto [first, last] = n.of_block();
    P factor;
    factor.load(gate.of(frame, n.T), n.C);
    for (int row = first + P::group(); row < last; row += F::AT_ONCE) {
        int64_t at = ((int64_t)frame * n.S + row) * n.C;
        P in, branch;
        in.load(x + at, n.C);
        branch.load(a + at, n.C);
#pragma unroll
        for (int i = 0; i < P::N; i++) {
            if (P::column(i) >= n.C)
                continue;
            float v[P::E], b[P::E], f[P::E];
            in.get(i, v);
            branch.get(i, b);
            factor.get(i, f);
#pragma unroll
            for (int e = 0; e < P::E; e++)
                v[e] = fmaf(f[e], b[e], v[e]);
            mr_store(y + at + P::column(i), v);
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    gated_residual_plain(const T *x, Modulation<T> gate, const T *a, T *y, Frames n)
{
    int frame = blockIdx.y;
    auto [first, last] = n.of_block();
    const T *factor = gate.of(frame, n.T);
    for (int row = first + threadIdx.x / 32; row < last; row += ROW_THREADS / 32) {
        int64_t at = ((int64_t)frame * n.S + row) * n.C;
        for (int c = threadIdx.x % 32; c < n.C; c += 32)
            mr_store1(y + at + c, fmaf(mr_load1(factor + c * gate.c), mr_load1(a + at + c),
                                       mr_load1(x + at + c)));
    }
}

template <typename T, class F>
__global__ void __launch_bounds__(ROW_THREADS)
    gated_residual_grad_rows(Modulation<T> gate, const T *a, const T *dy, T *da, float *partials,
                             Frames n)
{
    typedef Part<T, F> P;
    MR_SHARED(memory);
    int frame = blockIdx.y;
    auto [first, last] = n.of_block();
    float dgate[P::N][P::E] = {};
    P factor;
    factor.load(gate.of(frame, n.T), n.C);
    for (int row = first + P::group(); row < last; row += F::AT_ONCE) {
        int64_t at = ((int64_t)frame * n.S + row) * n.C;
        P branch, up;
        branch.load(a + at, n.C);
        up.load(dy + at, n.C);
#pragma unroll
        for (int i = 0; i < P::N; i++) {
            if (P::column(i) >= n.C)
                continue;
            float d[P::E], b[P::E], f[P::E];
            up.get(i, d);
            branch.get(i, b);
            factor.get(i, f);
#pragma unroll
            for (int e = 0; e < P::E; e++) {
                dgate[i][e] = fmaf(d[e], b[e], dgate[i][e]);
                d[e] *= f[e];
            }
            mr_store(da + at + P::column(i), d);
        }
    }
    fold<T, F>(dgate, (float *)memory,
               partials + ((int64_t)frame * gridDim.x + blockIdx.x) * F::SLOTS);
}

// The plain kernel: one warp per block; each lane has its own columns.
template <typename T>
__global__ void __launch_bounds__(32)
    gated_residual_grad_plain(Modulation<T> gate, const T *a, const T *dy, T *da, float *partials,
                              int step, Frames n)
{
    int frame = blockIdx.y;
    auto [first, last] = n.of_block();
    float *partial = partials + ((int64_t)frame * gridDim.x + blockIdx.x) * step;
    for (int c = threadIdx.x; c < n.C; c += 32) {
        float sum = 0, factor = mr_load1(gate.of(frame, n.T) + c * gate.c);
        for (int row = first; row < last; row++) {
            int64_t at = ((int64_t)frame * n.S + row) * n.C + c;
            float d = mr_load1(dy + at);
            sum = fmaf(d, mr_load1(a + at), sum);
            mr_store1(da + at, d * factor);
        }
        partial[c] = sum;
    }
}

// ---- host ----

template <typename T> static mr_status forward(const mr_call *call, cudaStream_t stream)
{
    const mr_view *x = &call->in[0], *a = &call->in[2], *y = &call->out[0];
    Frames n = {};
    MR_TRY(frames_of(&x->desc, SPAN, 0, &n));
    if (mr_desc_count(&x->desc) == 0)
        return MR_OK;
    Modulation<T> gate = modulation<T>(&call->in[1]);
    const T *in = (const T *)x->data, *branch = (const T *)a->data;
    T *out = (T *)y->data;
    dim3 grid(pieces_of(n), (unsigned)(x->desc.dim[0] * x->desc.dim[1])), block(ROW_THREADS);
    bool fast = whole_rows(n.C, {x, a, y, &call->in[1]}) && with_form(n.C, [&](auto form) {
                    MR_LAUNCH((gated_residual_rows<T, decltype(form)>), grid, block, 0, stream, in,
                              gate, branch, out, n);
                });
    if (!fast)
        MR_LAUNCH((gated_residual_plain<T>), grid, block, 0, stream, in, gate, branch, out, n);
    return MR_OK;
}

MR_CUDA_FLOATS(gated_residual, 0, forward)

static size_t grad_workspace(const mr_call *call, const mr_facts *)
{
    const int64_t *d = call->in[1].desc.dim;
    return (size_t)(d[0] * d[1] * mr_cuda_ceil(d[2], GRAD_SPAN) * partial_floats(d[3])) *
           sizeof(float);
}

template <typename T> static mr_status backward(const mr_call *call, cudaStream_t stream)
{
    const mr_view *a = &call->in[1], *dy = &call->in[2], *da = &call->out[0];
    Frames n = {};
    MR_TRY(frames_of(&a->desc, GRAD_SPAN, 0, &n));
    int frames = (int)(a->desc.dim[0] * a->desc.dim[1]), pieces = pieces_of(n);
    if (frames * n.C == 0)
        return MR_OK;
    Modulation<T> gate = modulation<T>(&call->in[0]);
    const T *branch = (const T *)a->data, *up = (const T *)dy->data;
    T *out = (T *)da->data;
    float *partials = (float *)call->workspace;
    int step = (int)partial_floats(n.C);
    Partials sums = {partials, step, pieces, n.C, step, 4};
    dim3 grid(pieces, frames);
    bool fast = whole_rows(n.C, {a, dy, da, &call->in[0]}) && with_form(n.C, [&](auto form) {
                    typedef decltype(form) F;
                    sums.of<T, F>();
                    if (pieces > 0)
                        MR_LAUNCH((gated_residual_grad_rows<T, F>), grid, dim3(ROW_THREADS),
                                  F::SHARED, stream, gate, branch, up, out, partials, n);
                });
    if (!fast && pieces > 0)
        MR_LAUNCH((gated_residual_grad_plain<T>), grid, dim3(32), 0, stream, gate, branch, up, out,
                  partials, step, n);
    launch_add(sums, frames, NULL, (T *)call->out[1].data, stream);
    return MR_OK;
}

MR_CUDA_FLOATS(gated_residual_grad, 1, backward, grad_workspace)
