/* muon: clip, momentum, orthogonal update, average of weights, write-back to bf16 and zeroing of
 * the gradient, for consecutive matrices ("blocks" of the op). Formulas as in core/op/muon.c.
 *
 *   master, grad, m [n] f32   ema [n] f32 and w [n] bf16 may be absent
 *   sumsq [1] f64, hyper [12] f64: in device memory, so that nothing waits for the host
 *
 * Products run through cuda/gemm, one per matrix and round, so that their bits do not depend on the
 * number of matrices in a call. Norms add pieces of RANGE elements in order. If the update is
 * skipped, the rounds still run, on zeros. The workspace has 12 bytes per element for f32, 10 for
 * bf16, and as much again for a square of the shorter side. */
#include "cuda/kernels/block_sum.cuh"
#include "cuda/kernels/formula.cuh"
#include "cuda/kernels/gather.cuh"
#include "cuda/kernels/kernel_call.h"
#include "cuda/kernels/pieces.cuh"

enum { THREADS = 256, RANGE = 4096, ROUNDS = 5 };
static const float A = 3.4445f, B = -4.775f, C = 2.0315f;

struct attr { // as in core/op/muon.c
    int64_t rows, cols;
    double scale, decay, lr_factor;
    bool nesterov, bf16, keep;
};
enum { LR, MOMENTUM, EPS = 3, WEIGHT_DECAY, MAX_NORM, EMA_DECAY, GRAD_SCALE = 8, PER_MOST_NORM };

struct Terms {
    float scale, momentum, step, keep, d;
    bool go; // otherwise only the gradient changes
};

struct Buffers {
    float *master, *grad, *m, *ema; // ema may be NULL
    mr_bf16 *w;                     // may be NULL
};

MR_DEVICE Terms terms_of(const double *h, double sumsq, attr a)
{
    Terms t = {};
    double norm = sqrt(sumsq) * h[GRAD_SCALE], lr = h[LR] * a.lr_factor;
    t.go = isfinite(norm) && norm * h[PER_MOST_NORM] <= 1 && h[GRAD_SCALE] != 0;
    double q = h[MAX_NORM] > 0 ? (norm + 1e-6) / h[MAX_NORM] : 1;
    t.scale = (float)(q > 1 ? h[GRAD_SCALE] / q : h[GRAD_SCALE]);
    t.momentum = (float)h[MOMENTUM];
    t.step = (float)(lr * a.scale);
    t.keep = (float)(1 - lr * h[WEIGHT_DECAY] * a.decay);
    t.d = (float)h[EMA_DECAY];
    return t;
}

// the part of a matrix for a thread block: range blockIdx.x of matrix blockIdx.y
struct Range {
    int64_t first, last;
};
MR_DEVICE Range range_of(int64_t n)
{
    int64_t at = (int64_t)blockIdx.x * RANGE, end = at + RANGE < n ? at + RANGE : n;
    return {(int64_t)blockIdx.y * n + at, (int64_t)blockIdx.y * n + end};
}

// update the momentum, store the matrix to orthogonalise in u, and its sum of squares in sums
__global__ void __launch_bounds__(THREADS)
    muon_begin(Buffers b, float *u, int64_t n, const double *hyper, const double *sumsq, attr a,
               double *sums)
{
    MR_SHARED(memory);
    const Terms t = terms_of(hyper, *sumsq, a);
    const Range r = range_of(n);
    double sum = 0;
    for (int64_t i = r.first + threadIdx.x; i < r.last; i += THREADS) {
        float x = 0;
        if (t.go) {
            float g = (1 - t.momentum) * (b.grad[i] * t.scale), m = fmaf(t.momentum, b.m[i], g);
            b.m[i] = m;
            x = a.nesterov ? fmaf(t.momentum, m, g) : m;
        }
        u[i] = x;
        sum += (double)x * (double)x;
        if (!a.keep)
            b.grad[i] = 0;
    }
    double total = mr_block_sum<THREADS>(sum, (double *)memory);
    if (threadIdx.x == 0)
        sums[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = total;
}

// x = u divided by its norm
template <class X>
__global__ void __launch_bounds__(THREADS)
    muon_normalise(X *x, const float *u, int64_t n, const double *hyper, const double *sums)
{
    MR_SHARED(memory);
    float *by = (float *)memory;
    if (threadIdx.x == 0) {
        double sum = 0;
        for (unsigned i = 0; i < gridDim.x; i++)
            sum += sums[(int64_t)blockIdx.y * gridDim.x + i];
        double norm = sqrt(sum);
        *by = (float)(1 / (norm > hyper[EPS] ? norm : hyper[EPS]));
    }
    __syncthreads();
    const Range r = range_of(n);
    for (int64_t i = r.first + threadIdx.x; i < r.last; i += THREADS)
        mr_store1(x + i, u[i] * *by);
}

// x = by x + add_by add
template <class X>
__global__ void __launch_bounds__(THREADS)
    muon_mix(X *x, const float *add, float by, float add_by, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        mr_store1(x + i, fmaf(add_by, add[i], by * mr_load1(x + i)));
}

template <class X>
__global__ void __launch_bounds__(THREADS)
    muon_end(Buffers b, const X *x, int64_t count, const double *hyper, const double *sumsq, attr a)
{
    const Terms t = terms_of(hyper, *sumsq, a);
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (!t.go || i >= count)
        return;
    float p = fmaf(-t.step, mr_load1(x + i), t.keep * b.master[i]);
    b.master[i] = p;
    if (b.ema)
        b.ema[i] = formula_average(t.d, b.ema[i], p);
    if (b.w)
        mr_store1(b.w + i, p);
}

/* ---- host ---- */

// the matrices of a call, and offsets in the workspace
struct Plan {
    int64_t blocks, n, s, parts; // parts: ranges of a matrix
    size_t width, next, gram, square, sums, own, bytes;
    mr_product_spec gram_of, square_of, next_of;
};

static size_t line(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

static mr_product_spec product_of(const attr *a, int64_t m, int64_t n, int64_t k, mr_dtype out)
{
    mr_product_spec s = {};
    s.batch = 1;
    s.m = m;
    s.n = n;
    s.k = k;
    s.a_row = k;
    s.a_col = 1;
    s.b_row = n;
    s.b_col = 1;
    s.c_row = n;
    s.in = a->bf16 ? MR_BF16 : MR_F32;
    s.out = out;
    return s;
}

static Plan plan_of(const mr_call *call)
{
    const attr *a = (const attr *)call->attr;
    const int64_t r = a->rows, c = a->cols;
    const bool high = r > c;
    Plan p = {};
    p.n = r * c;
    p.s = high ? c : r;
    p.blocks = call->in[0].desc.dim[0] / p.n;
    p.parts = mr_cuda_ceil(p.n, RANGE);
    p.width = a->bf16 ? 2 : 4;
    const size_t all = (size_t)(p.blocks * p.n), squares = (size_t)(p.blocks * p.s * p.s);
    p.next = line(all * p.width);
    p.gram = p.next + line(all * sizeof(float));
    p.square = p.gram + line(squares * p.width);
    p.sums = p.square + line(squares * sizeof(float));
    p.own = p.sums + line((size_t)(p.blocks * p.parts) * sizeof(double));
    p.gram_of = product_of(a, p.s, p.s, high ? r : c, a->bf16 ? MR_BF16 : MR_F32);
    p.gram_of.a_row = p.gram_of.b_col = high ? 1 : c;
    p.gram_of.a_col = p.gram_of.b_row = high ? c : 1;
    p.square_of = product_of(a, p.s, p.s, p.s, MR_F32);
    p.next_of = product_of(a, r, c, p.s, MR_F32);
    size_t most = 0;
    for (const mr_product_spec *spec : {&p.gram_of, &p.square_of, &p.next_of}) {
        size_t bytes = mr_cuda_product_workspace(spec);
        most = bytes > most ? bytes : most;
    }
    p.bytes = p.own + most;
    return p;
}

static size_t workspace(const mr_call *call, const mr_facts *)
{
    return plan_of(call).bytes;
}

// y = a b for each matrix; the steps between matrices are in bytes
static mr_status products(const Plan &p, const mr_product_spec *spec, const char *a, size_t a_step,
                          const char *b, size_t b_step, char *y, size_t y_step, char *own,
                          cudaStream_t stream)
{
    for (int64_t i = 0; i < p.blocks; i++)
        MR_TRY(mr_cuda_product_run(spec, NULL, a + (size_t)i * a_step, b + (size_t)i * b_step, NULL,
                                   y + (size_t)i * y_step, own, stream));
    return MR_OK;
}

static dim3 grid_of(int64_t count)
{
    return dim3((unsigned)mr_cuda_ceil(count, THREADS));
}

template <class X>
static mr_status update(const mr_call *call, const Plan &p, const Buffers &b, cudaStream_t stream)
{
    const attr *a = (const attr *)call->attr;
    char *work = (char *)call->workspace, *own = work + p.own;
    X *x = (X *)work, *gram = (X *)(work + p.gram);
    float *next = (float *)(work + p.next), *square = (float *)(work + p.square);
    double *sums = (double *)(work + p.sums);
    const double *hyper = (const double *)call->in[5].data,
                 *sumsq = (const double *)call->in[6].data;
    const int64_t count = p.blocks * p.n, squares = p.blocks * p.s * p.s;
    const size_t step = (size_t)p.n * p.width, side = (size_t)(p.s * p.s) * p.width;
    const bool high = a->rows > a->cols;
    const dim3 ranges((unsigned)p.parts, (unsigned)p.blocks);
    MR_LAUNCH(muon_begin, ranges, dim3(THREADS), THREADS * sizeof(double), stream, b, next, p.n,
              hyper, sumsq, *a, sums);
    MR_LAUNCH(muon_normalise<X>, ranges, dim3(THREADS), sizeof(float), stream, x,
              (const float *)next, p.n, hyper, (const double *)sums);
    for (int k = 0; k < ROUNDS; k++) {
        MR_TRY(products(p, &p.gram_of, (char *)x, step, (char *)x, step, (char *)gram, side, own,
                        stream));
        MR_TRY(products(p, &p.square_of, (char *)gram, side, (char *)gram, side, (char *)square,
                        (size_t)(p.s * p.s) * sizeof(float), own, stream));
        MR_LAUNCH(muon_mix<X>, grid_of(squares), dim3(THREADS), 0, stream, gram,
                  (const float *)square, B, C, squares);
        MR_TRY(products(p, &p.next_of, high ? (char *)x : (char *)gram, high ? step : side,
                        high ? (char *)gram : (char *)x, high ? side : step, (char *)next,
                        (size_t)p.n * sizeof(float), own, stream));
        MR_LAUNCH(muon_mix<X>, grid_of(count), dim3(THREADS), 0, stream, x, (const float *)next, A,
                  1.0f, count);
    }
    MR_LAUNCH(muon_end<X>, grid_of(count), dim3(THREADS), 0, stream, b, (const X *)x, count, hyper,
              sumsq, *a);
    return MR_OK;
}

MR_CUDA_KERNEL(muon, workspace)
{
    const mr_view *out = call->out;
    const Plan p = plan_of(call);
    Buffers b = {(float *)out[0].data, (float *)out[1].data, (float *)out[2].data,
                 (float *)out[3].data, (mr_bf16 *)out[4].data};
    if (p.blocks == 0)
        return MR_OK;
    return ((const attr *)call->attr)->bf16 ? update<mr_bf16>(call, p, b, stream)
                                            : update<float>(call, p, b, stream);
}
