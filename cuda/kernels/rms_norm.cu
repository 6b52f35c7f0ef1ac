/* rms_norm: y = round(x r) w, r = rsqrt(mean(x^2) + eps), over the last dimension. qk_norm then
 * rotates each pair (a, b) of it by the angle of its position: (a cos - b sin, b cos + a sin).
 * Backward, with z the gradient dy rotated back and n = x r:
 *
 *   dx = r (z w - n mean(z w n))    acc += sum over rows of z n
 *
 *   x, y, dy, dx [..., d], any strides   w [d]   cos, sin [N, d/2] f32   acc [d] f32
 *
 * A row stays in registers: x and dy are read once, y and dx written once, w is read once for the
 * rows of a block, angles once for consecutive rows of a thread with the same position. Sums run in
 * a fixed order, so the bits do not depend on the order of blocks. All arithmetic is f32.
 *
 * The fast kernels use the forms of rows.cuh. The plain ones serve rows that are not dense 16-byte
 * pieces. */
#include "cuda/kernels/rms.h"
#include "cuda/kernels/rows.cuh"

enum { SPAN = 64 };

struct attr { // as in core/op/rms_norm.c
    double eps;
};

struct Angles {
    const float *cos, *sin; // NULL: no rotation
};

// for the plain kernels: stride of the elements of a row
struct Steps {
    int64_t y, x, dy;
};

MR_DEVICE float stored(float v, const float *)
{
    return v;
}

MR_DEVICE float stored(float v, const mr_bf16 *)
{
    return mr_low(mr_pack(v, 0));
}

// the angles of the thread's pairs
template <class P> struct Turn {
    float c[P::N][P::E / 2], s[P::N][P::E / 2];
    int64_t at;

    MR_MEMBER void load(const Angles &angles, int64_t row, int C)
    {
        at = row;
#pragma unroll
        for (int i = 0; i < P::N; i++) {
            if (P::column(i) >= C)
                continue;
            const float *from[2] = {angles.cos + row + P::column(i) / 2,
                                    angles.sin + row + P::column(i) / 2};
            if constexpr (P::E == 8) {
                mr_load(from[0], c[i]);
                mr_load(from[1], s[i]);
            } else {
                uint2 x = mr_load8(from[0]), y = mr_load8(from[1]);
                c[i][0] = mr_f32_of(x.x);
                c[i][1] = mr_f32_of(x.y);
                s[i][0] = mr_f32_of(y.x);
                s[i][1] = mr_f32_of(y.y);
            }
        }
    }

    // sign -1 rotates back
    MR_MEMBER void apply(int i, float (&v)[P::E], float sign) const
    {
#pragma unroll
        for (int e = 0; e < P::E; e += 2) {
            float a = v[e], b = v[e + 1], si = sign * s[i][e / 2];
            v[e] = a * c[i][e / 2] - b * si;
            v[e + 1] = b * c[i][e / 2] + a * si;
        }
    }
};

template <typename T, class F>
MR_DEVICE float root(const Part<T, F> &x, const RowSpan &n, float *scratch)
{
    float v[Part<T, F>::E], squares = 0;
#pragma unroll
    for (int i = 0; i < Part<T, F>::N; i++) {
        x.get(i, v);
#pragma unroll
        for (int e = 0; e < Part<T, F>::E; e++)
            squares += v[e] * v[e];
    }
    return 1 / sqrtf(row_sum<F>(squares, scratch) / n.C + n.eps);
}

template <typename T, class F>
__global__ void __launch_bounds__(ROW_THREADS)
    rms_rows(const __grid_constant__ Walk<3> walk, const T *x, const T *w, Angles angles, T *y,
             RowSpan n)
{
    typedef Part<T, F> P;
    MR_SHARED(memory);
    auto [first, last] = n.of_block();
    P factor;
    Turn<P> turn;
    turn.at = -1;
    factor.load(w, n.C);
    for (uint32_t k = first; k < last; k += F::AT_ONCE) {
        uint32_t row = k + P::group();
        bool inside = row < last;
        int64_t at[3];
        walk.at(inside ? row : first, at);
        P in;
        in.load(inside ? x + at[1] : NULL, n.C);
        if (angles.cos && inside && turn.at != at[2])
            turn.load(angles, at[2], n.C);
        float r = root(in, n, (float *)memory);
#pragma unroll
        for (int i = 0; i < P::N; i++) {
            if (!inside || P::column(i) >= n.C)
                continue;
            float v[P::E], f[P::E];
            in.get(i, v);
            factor.get(i, f);
#pragma unroll
            for (int e = 0; e < P::E; e++)
                v[e] = stored(v[e] * r, x) * f[e];
            if (angles.cos)
                turn.apply(i, v, 1);
            mr_store(y + at[0] + P::column(i), v);
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    rms_plain(const __grid_constant__ Walk<3> walk, const T *x, const T *w, Angles angles, T *y,
              Steps step, RowSpan n)
{
    int lane = threadIdx.x % 32;
    auto [first, last] = n.of_block();
    for (uint32_t row = first + threadIdx.x / 32; row < last; row += ROW_THREADS / 32) {
        int64_t at[3];
        walk.at(row, at);
        const T *in = x + at[1];
        float squares = 0;
        for (int c = lane; c < n.C; c += 32)
            squares += mr_load1(in + c * step.x) * mr_load1(in + c * step.x);
        float r = 1 / sqrtf(mr_warp_sum(squares) / n.C + n.eps);
        for (int c = lane; c < n.C; c += 32) {
            float v = stored(mr_load1(in + c * step.x) * r, x) * mr_load1(w + c);
            if (angles.cos) {
                // the other element of the pair is multiplied by the sine, with its sign
                float other =
                    stored(mr_load1(in + (c ^ 1) * step.x) * r, x) * mr_load1(w + (c ^ 1));
                float si = angles.sin[at[2] + c / 2];
                v = v * angles.cos[at[2] + c / 2] + other * (c & 1 ? si : -si);
            }
            mr_store1(y + at[0] + c * step.y, v);
        }
    }
}

// writes a partial row of z n per block if `partials` is not NULL
template <typename T, class F>
__global__ void __launch_bounds__(ROW_THREADS)
    rms_grad_rows(const __grid_constant__ Walk<4> walk, const T *x, const T *w, Angles angles,
                  const T *dy, T *dx, float *partials, RowSpan n)
{
    typedef Part<T, F> P;
    MR_SHARED(memory);
    float *scratch = (float *)memory;
    auto [first, last] = n.of_block();
    P factor;
    Turn<P> turn;
    turn.at = -1;
    factor.load(w, n.C);
    float dw[P::N][P::E] = {};
    for (uint32_t k = first; k < last; k += F::AT_ONCE) {
        uint32_t row = k + P::group();
        bool inside = row < last;
        int64_t at[4];
        walk.at(inside ? row : first, at);
        P in, up;
        in.load(inside ? x + at[1] : NULL, n.C);
        up.load(inside ? dy + at[2] : NULL, n.C);
        if (angles.cos && inside && turn.at != at[3])
            turn.load(angles, at[3], n.C);
        float r = root(in, n, scratch), zwn = 0;
#pragma unroll
        for (int i = 0; i < P::N; i++) {
            if (!inside || P::column(i) >= n.C)
                continue;
            float v[P::E], z[P::E], f[P::E];
            in.get(i, v);
            up.get(i, z);
            factor.get(i, f);
            if (angles.cos)
                turn.apply(i, z, -1);
#pragma unroll
            for (int e = 0; e < P::E; e++) {
                float zn = z[e] * v[e] * r;
                dw[i][e] += zn;
                zwn += zn * f[e];
            }
        }
        float mean = row_sum<F>(zwn, scratch) / n.C;
#pragma unroll
        for (int i = 0; i < P::N; i++) {
            if (!inside || P::column(i) >= n.C)
                continue;
            float v[P::E], z[P::E], f[P::E];
            in.get(i, v);
            up.get(i, z);
            factor.get(i, f);
            if (angles.cos)
                turn.apply(i, z, -1);
#pragma unroll
            for (int e = 0; e < P::E; e++)
                z[e] = r * (z[e] * f[e] - v[e] * r * mean);
            mr_store(dx + at[0] + P::column(i), z);
        }
    }
    if (partials)
        fold<T, F>(dw, scratch, partials + (int64_t)blockIdx.x * F::SLOTS);
}

// one warp per block; it keeps the sums of its rows in shared memory
template <typename T>
__global__ void __launch_bounds__(32)
    rms_grad_plain(const __grid_constant__ Walk<4> walk, const T *x, const T *w, Angles angles,
                   const T *dy, T *dx, float *partials, int width, Steps step, RowSpan n)
{
    MR_SHARED(memory);
    float *dw = (float *)memory;
    int lane = threadIdx.x;
    auto [first, last] = n.of_block();
    for (int c = lane; c < n.C; c += 32)
        dw[c] = 0;
    for (uint32_t row = first; row < last; row++) {
        int64_t at[4];
        walk.at(row, at);
        const T *in = x + at[1], *up = dy + at[2];
        auto turned_back = [&](int c) {
            float z = mr_load1(up + c * step.dy);
            if (!angles.cos)
                return z;
            float si = angles.sin[at[3] + c / 2], other = mr_load1(up + (c ^ 1) * step.dy);
            return z * angles.cos[at[3] + c / 2] + other * (c & 1 ? -si : si);
        };
        float squares = 0, zwn = 0;
        for (int c = lane; c < n.C; c += 32)
            squares += mr_load1(in + c * step.x) * mr_load1(in + c * step.x);
        float r = 1 / sqrtf(mr_warp_sum(squares) / n.C + n.eps);
        for (int c = lane; c < n.C; c += 32) {
            float zn = turned_back(c) * mr_load1(in + c * step.x) * r;
            dw[c] += zn;
            zwn += zn * mr_load1(w + c);
        }
        float mean = mr_warp_sum(zwn) / n.C;
        for (int c = lane; c < n.C; c += 32)
            mr_store1(dx + at[0] + c * step.y, r * (turned_back(c) * mr_load1(w + c) -
                                                    mr_load1(in + c * step.x) * r * mean));
    }
    for (int c = lane; partials && c < n.C; c += 32)
        partials[(int64_t)blockIdx.x * width + c] = dw[c];
}

// ---- host ----

// the table of angles as a view with the shape of x: only N has a stride
static mr_desc angles_of(const mr_desc *x, const mr_view *cos)
{
    mr_desc table = *x;
    for (int d = 0; d < x->rank; d++)
        table.stride[d] = cos->data && d == x->rank - 3 ? x->dim[x->rank - 1] / 2 : 0;
    return table;
}

static int64_t last_step(const mr_view *v)
{
    return v->desc.stride[v->desc.rank - 1];
}

template <typename T>
static mr_status forward(const mr_view *x, const mr_view *w, const mr_view *cos, const mr_view *sin,
                         const mr_view *y, double eps, cudaStream_t stream)
{
    mr_desc table = angles_of(&x->desc, cos);
    const mr_desc *views[3] = {&y->desc, &x->desc, &table};
    Walk<3> walk;
    RowSpan n = {};
    MR_TRY(rows_of(views, SPAN, eps, &walk, &n));
    if (n.rows == 0)
        return MR_OK;
    const T *in = (const T *)x->data, *weight = (const T *)w->data;
    T *out = (T *)y->data;
    Angles angles = {(const float *)cos->data, (const float *)sin->data};
    dim3 grid((unsigned)mr_cuda_ceil(n.rows, n.span)), block(ROW_THREADS);
    bool fast = whole_rows(n.C, {x, y, w}) && mr_cuda_aligned(cos->data, 16) &&
                mr_cuda_aligned(sin->data, 16) && with_form(n.C, [&](auto form) {
                    MR_LAUNCH((rms_rows<T, decltype(form)>), grid, block, 16, stream, walk, in,
                              weight, angles, out, n);
                });
    Steps step = {last_step(y), last_step(x), 0};
    if (!fast)
        MR_LAUNCH((rms_plain<T>), grid, block, 0, stream, walk, in, weight, angles, out, step, n);
    return MR_OK;
}

mr_status mr_cuda_rms(const mr_view *x, const mr_view *w, const mr_view *cos, const mr_view *sin,
                      const mr_view *y, double eps, cudaStream_t stream)
{
    if (x->desc.dtype == MR_BF16)
        return forward<mr_bf16>(x, w, cos, sin, y, eps, stream);
    return forward<float>(x, w, cos, sin, y, eps, stream);
}

size_t mr_cuda_rms_workspace(const mr_view *x, const mr_view *acc)
{
    return acc->desc.rank < 0 ? 0 : partial_bytes(&x->desc);
}

template <typename T>
static mr_status backward(const mr_view *x, const mr_view *w, const mr_view *cos,
                          const mr_view *sin, const mr_view *dy, const mr_view *dx,
                          const mr_view *acc, double eps, void *workspace, cudaStream_t stream)
{
    mr_desc table = angles_of(&x->desc, cos);
    const mr_desc *views[4] = {&dx->desc, &x->desc, &dy->desc, &table};
    Walk<4> walk;
    RowSpan n = {};
    MR_TRY(rows_of(views, rows_of_block(row_count(&x->desc)), eps, &walk, &n));
    if (n.rows == 0)
        return MR_OK;
    const T *in = (const T *)x->data, *weight = (const T *)w->data, *up = (const T *)dy->data;
    T *out = (T *)dx->data;
    Angles angles = {(const float *)cos->data, (const float *)sin->data};
    float *partials = acc->data ? (float *)workspace : NULL;
    int blocks = (int)mr_cuda_ceil(n.rows, n.span), width = (int)partial_floats(n.C);
    Partials sums = {partials, width, blocks, n.C, width, 4};
    bool fast = whole_rows(n.C, {x, dy, dx, w}) && mr_cuda_aligned(cos->data, 16) &&
                mr_cuda_aligned(sin->data, 16) && with_form(n.C, [&](auto form) {
                    typedef decltype(form) F;
                    sums.of<T, F>();
                    MR_LAUNCH((rms_grad_rows<T, F>), dim3(blocks), dim3(ROW_THREADS), F::SHARED,
                              stream, walk, in, weight, angles, up, out, partials, n);
                });
    Steps step = {last_step(dx), last_step(x), last_step(dy)};
    if (!fast) {
        MR_TRY(plain_fits(n.C, 1));
        MR_LAUNCH((rms_grad_plain<T>), dim3(blocks), dim3(32), n.C * sizeof(float), stream, walk,
                  in, weight, angles, up, out, partials, width, step, n);
    }
    if (partials)
        launch_add(sums, 1, (const float *)acc->data, (float *)acc->data, stream);
    return MR_OK;
}

mr_status mr_cuda_rms_grad(const mr_view *x, const mr_view *w, const mr_view *cos,
                           const mr_view *sin, const mr_view *dy, const mr_view *dx,
                           const mr_view *acc, double eps, void *workspace, cudaStream_t stream)
{
    if (x->desc.dtype == MR_BF16)
        return backward<mr_bf16>(x, w, cos, sin, dy, dx, acc, eps, workspace, stream);
    return backward<float>(x, w, cos, sin, dy, dx, acc, eps, workspace, stream);
}

static const mr_view NO_ANGLES = {};

MR_CUDA_KERNEL(rms_norm)
{
    return mr_cuda_rms(&call->in[0], &call->in[1], &NO_ANGLES, &NO_ANGLES, &call->out[0],
                       ((const attr *)call->attr)->eps, stream);
}

static size_t grad_workspace(const mr_call *call, const mr_facts *)
{
    return mr_cuda_rms_workspace(&call->in[0], &call->in[3]);
}

MR_CUDA_KERNEL(rms_norm_grad, grad_workspace)
{
    return mr_cuda_rms_grad(&call->in[0], &call->in[1], &NO_ANGLES, &NO_ANGLES, &call->in[2],
                            &call->out[0], &call->out[1], ((const attr *)call->attr)->eps,
                            call->workspace, stream);
}
