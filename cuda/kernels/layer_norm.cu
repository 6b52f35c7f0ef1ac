/* layer_norm: y = n w + b, n = (x - mean) * rsqrt(var + eps), over the last dimension; w and b are
 * optional. The gradient of x, with g = dy w,
 *
 *   dx = rsqrt(var + eps) (g - mean(g) - n mean(g n))
 *
 * and that of w: acc += sum over rows of dy n.
 *
 *   x, y, dy, dx [..., C]: dense rows, any strides between them   w, b [C]   acc [C] f32
 *
 * A row stays in registers: x and dy are read once, y and dx written once, w and b read once for
 * the rows of a block. Sums run in a fixed order, so the bits do not depend on the order of blocks.
 * In place is allowed: a thread reads its part of a row before it writes it. All arithmetic is f32.
 *
 * The fast kernels use the forms of rows.cuh. The plain ones serve C or rows that do not consist of
 * 16-byte pieces. */
#include "cuda/kernels/norm.cuh"

struct attr { // as in core/op/layer_norm.c
    double eps;
};

template <typename T, class F>
__global__ void __launch_bounds__(ROW_THREADS)
    layer_norm_rows(const __grid_constant__ Walk<2> walk, const T *x, const T *w, const T *b, T *y,
                    RowSpan n)
{
    typedef Part<T, F> P;
    MR_SHARED(memory);
    auto [first, last] = n.of_block();
    P factor, add;
    factor.load(w, n.C);
    add.load(b, n.C);
    for (uint32_t r = first; r < last; r += F::AT_ONCE) {
        uint32_t row = r + P::group();
        bool inside = row < last;
        int64_t at[2];
        walk.at(inside ? row : first, at);
        P in;
        in.load(inside ? x + at[1] : NULL, n.C);
        NormRow<T, F> norm(in, n.C, n.eps, (float *)memory);
        norm.forward(factor, w ? 0 : 1, add, inside, y + at[0]);
    }
}

template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    layer_norm_plain(const __grid_constant__ Walk<2> walk, const T *x, const T *w, const T *b, T *y,
                     RowSpan n)
{
    auto [first, last] = n.of_block();
    for (uint32_t row = first + threadIdx.x / 32; row < last; row += ROW_THREADS / 32) {
        int64_t at[2];
        float mean, rstd;
        walk.at(row, at);
        plain_moments(x + at[1], n.C, n.eps, &mean, &rstd);
        for (int c = threadIdx.x % 32; c < n.C; c += 32)
            mr_store1(y + at[0] + c,
                      (mr_load1(x + at[1] + c) - mean) * rstd * (w ? mr_load1(w + c) : 1) +
                          (b ? mr_load1(b + c) : 0));
    }
}

template <typename T, class F>
__global__ void __launch_bounds__(ROW_THREADS)
    layer_norm_grad_rows(const __grid_constant__ Walk<3> walk, const T *x, const T *w, const T *dy,
                         T *dx, RowSpan n)
{
    typedef Part<T, F> P;
    MR_SHARED(memory);
    float *scratch = (float *)memory;
    auto [first, last] = n.of_block();
    P factor;
    factor.load(w, n.C);
    for (uint32_t r = first; r < last; r += F::AT_ONCE) {
        uint32_t row = r + P::group();
        bool inside = row < last;
        int64_t at[3];
        walk.at(inside ? row : first, at);
        P in, up;
        in.load(inside ? x + at[1] : NULL, n.C);
        up.load(inside ? dy + at[2] : NULL, n.C);
        NormRow<T, F> norm(in, n.C, n.eps, scratch);
        norm.backward(up, factor, w ? 0 : 1, scratch, inside, dx + at[0],
                      [](int, int, float, float) {});
    }
}

template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    layer_norm_grad_plain(const __grid_constant__ Walk<3> walk, const T *x, const T *w, const T *dy,
                          T *dx, RowSpan n)
{
    auto [first, last] = n.of_block();
    for (uint32_t row = first + threadIdx.x / 32; row < last; row += ROW_THREADS / 32) {
        int64_t at[3];
        float mean, rstd, g1 = 0, gn = 0;
        walk.at(row, at);
        plain_moments(x + at[1], n.C, n.eps, &mean, &rstd);
        for (int c = threadIdx.x % 32; c < n.C; c += 32) {
            float g = mr_load1(dy + at[2] + c) * (w ? mr_load1(w + c) : 1);
            g1 += g;
            gn += g * (mr_load1(x + at[1] + c) - mean) * rstd;
        }
        g1 = mr_warp_sum(g1) / n.C;
        gn = mr_warp_sum(gn) / n.C;
        for (int c = threadIdx.x % 32; c < n.C; c += 32) {
            float g = mr_load1(dy + at[2] + c) * (w ? mr_load1(w + c) : 1);
            float norm = (mr_load1(x + at[1] + c) - mean) * rstd;
            mr_store1(dx + at[0] + c, rstd * (g - g1 - norm * gn));
        }
    }
}

// each block writes a partial row of dy n
template <typename T, class F>
__global__ void __launch_bounds__(ROW_THREADS)
    layer_norm_dw_rows(const __grid_constant__ Walk<2> walk, const T *x, const T *dy,
                       float *partials, RowSpan n)
{
    typedef Part<T, F> P;
    MR_SHARED(memory);
    auto [first, last] = n.of_block();
    float dw[P::N][P::E] = {};
    for (uint32_t r = first; r < last; r += F::AT_ONCE) {
        uint32_t row = r + P::group();
        bool inside = row < last;
        int64_t at[2];
        walk.at(inside ? row : first, at);
        P in, up;
        in.load(inside ? x + at[0] : NULL, n.C);
        up.load(inside ? dy + at[1] : NULL, n.C);
        float mean, rstd;
        row_moments(in, n.C, n.eps, (float *)memory, &mean, &rstd);
#pragma unroll
        for (int i = 0; i < P::N; i++) {
            float v[P::E], d[P::E];
            in.get(i, v);
            up.get(i, d);
#pragma unroll
            for (int e = 0; e < P::E; e++)
                dw[i][e] += d[e] * (v[e] - mean) * rstd;
        }
    }
    fold<T, F>(dw, (float *)memory, partials + (int64_t)blockIdx.x * F::SLOTS);
}

// one warp per block; it keeps the sums of its rows in shared memory
template <typename T>
__global__ void __launch_bounds__(32)
    layer_norm_dw_plain(const __grid_constant__ Walk<2> walk, const T *x, const T *dy,
                        float *partials, int step, RowSpan n)
{
    MR_SHARED(memory);
    float *dw = (float *)memory;
    auto [first, last] = n.of_block();
    for (int c = threadIdx.x; c < n.C; c += 32)
        dw[c] = 0;
    for (uint32_t row = first; row < last; row++) {
        int64_t at[2];
        float mean, rstd;
        walk.at(row, at);
        plain_moments(x + at[0], n.C, n.eps, &mean, &rstd);
        for (int c = threadIdx.x; c < n.C; c += 32)
            dw[c] += mr_load1(dy + at[1] + c) * (mr_load1(x + at[0] + c) - mean) * rstd;
    }
    for (int c = threadIdx.x; c < n.C; c += 32)
        partials[(int64_t)blockIdx.x * step + c] = dw[c];
}

// ---- host ----

enum { SPAN = 32 };

template <typename T> static mr_status forward(const mr_call *call, cudaStream_t stream)
{
    const mr_view *x = &call->in[0], *y = &call->out[0];
    const mr_desc *views[2] = {&y->desc, &x->desc};
    Walk<2> walk;
    RowSpan n = {};
    MR_TRY(rows_of(views, SPAN, ((const attr *)call->attr)->eps, &walk, &n));
    if (n.rows == 0)
        return MR_OK;
    const T *in = (const T *)x->data, *w = (const T *)call->in[1].data,
            *b = (const T *)call->in[2].data;
    T *out = (T *)y->data;
    dim3 grid((unsigned)mr_cuda_ceil(n.rows, n.span)), block(ROW_THREADS);
    bool fast =
        whole_rows(n.C, {x, y, &call->in[1], &call->in[2]}) && with_form(n.C, [&](auto form) {
            MR_LAUNCH((layer_norm_rows<T, decltype(form)>), grid, block, 16, stream, walk, in, w, b,
                      out, n);
        });
    if (!fast)
        MR_LAUNCH((layer_norm_plain<T>), grid, block, 0, stream, walk, in, w, b, out, n);
    return MR_OK;
}

MR_CUDA_FLOATS(layer_norm, 0, forward)

template <typename T> static mr_status backward(const mr_call *call, cudaStream_t stream)
{
    const mr_view *x = &call->in[0], *dy = &call->in[2], *dx = &call->out[0];
    const mr_desc *views[3] = {&dx->desc, &x->desc, &dy->desc};
    Walk<3> walk;
    RowSpan n = {};
    MR_TRY(rows_of(views, SPAN, ((const attr *)call->attr)->eps, &walk, &n));
    if (n.rows == 0)
        return MR_OK;
    const T *in = (const T *)x->data, *w = (const T *)call->in[1].data, *up = (const T *)dy->data;
    T *out = (T *)dx->data;
    dim3 grid((unsigned)mr_cuda_ceil(n.rows, n.span)), block(ROW_THREADS);
    bool fast = whole_rows(n.C, {x, dy, dx, &call->in[1]}) && with_form(n.C, [&](auto form) {
                    MR_LAUNCH((layer_norm_grad_rows<T, decltype(form)>), grid, block, 16, stream,
                              walk, in, w, up, out, n);
                });
    if (!fast)
        MR_LAUNCH((layer_norm_grad_plain<T>), grid, block, 0, stream, walk, in, w, up, out, n);
    return MR_OK;
}

MR_CUDA_FLOATS(layer_norm_grad, 0, backward)

static size_t dw_workspace(const mr_call *call, const mr_facts *)
{
    return partial_bytes(&call->in[0].desc);
}

template <typename T> static mr_status weight(const mr_call *call, cudaStream_t stream)
{
    const mr_view *x = &call->in[0], *dy = &call->in[1];
    const mr_desc *views[2] = {&x->desc, &dy->desc};
    Walk<2> walk;
    RowSpan n = {};
    MR_TRY(rows_of(views, rows_of_block(row_count(&x->desc)), ((const attr *)call->attr)->eps,
                   &walk, &n));
    if (n.rows == 0)
        return MR_OK;
    const T *in = (const T *)x->data, *up = (const T *)dy->data;
    float *partials = (float *)call->workspace, *acc = (float *)call->out[0].data;
    int blocks = (int)mr_cuda_ceil(n.rows, n.span), step = (int)partial_floats(n.C);
    Partials sums = {partials, step, blocks, n.C, step, 4};
    bool fast = whole_rows(n.C, {x, dy}) && with_form(n.C, [&](auto form) {
                    typedef decltype(form) F;
                    sums.of<T, F>();
                    MR_LAUNCH((layer_norm_dw_rows<T, F>), dim3(blocks), dim3(ROW_THREADS),
                              F::SHARED, stream, walk, in, up, partials, n);
                });
    if (!fast) {
        MR_TRY(plain_fits(n.C, 1));
        MR_LAUNCH((layer_norm_dw_plain<T>), dim3(blocks), dim3(32), n.C * sizeof(float), stream,
                  walk, in, up, partials, step, n);
    }
    launch_add(sums, 1, acc, acc, stream);
    return MR_OK;
}

MR_CUDA_FLOATS(layer_norm_dw, 0, weight, dw_workspace)
