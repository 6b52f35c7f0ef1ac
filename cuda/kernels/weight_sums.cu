/* weight_sums: sums of squares of weights, of their last update, and of the difference to their
 * average; also counts rows and dead rows. Formulas as in core/op/weight_sums.c.
 *
 *   w [n] f32   ema, m, v [n] f32 may be absent   hyper [12] f64 -> sums [5] f64
 *
 * Each tensor is read once, 4 bytes per element, neighbouring elements by neighbouring lanes. A
 * thread block processes a group of rows, the same group as on a CPU; each warp takes every eighth
 * row. Then one block adds each sum over the groups. The bits do not depend on the order of blocks.
 */
#include "cuda/kernels/block_sum.cuh"
#include "cuda/kernels/kernel_call.h"

enum { THREADS = 256, WARPS = THREADS / 32, GROUP = 16384, ROWS_LEAST = 8, ROW = 2048, SUMS = 5 };
enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, STEP = 7 };

struct attr { // as in core/op/weight_sums.c
    double decay, lr_factor;
    int64_t since, cols, before;
};

struct Watched {
    const float *w, *ema, *m, *v; // all but w may be NULL; m and v together
    int64_t n, cols, before, rows, group;
    bool counts; // count rows?
};

struct Terms {
    float c1, c2, eps, of_a, of_w;
};

MR_DEVICE Terms terms_of(const double *h, attr a)
{
    Terms t;
    double lr = h[LR] * a.lr_factor, wd = lr * h[WEIGHT_DECAY] * a.decay;
    t.c1 = (float)(1 / (1 - pow((double)(float)h[BETA1], h[STEP])));
    t.c2 = (float)(1 / (1 - pow((double)(float)h[BETA2], h[STEP] - (double)a.since)));
    t.eps = (float)h[EPS];
    t.of_a = (float)(-lr / (1 - wd));
    t.of_w = (float)(-wd / (1 - wd));
    return t;
}

// add one element to this thread's sums; returns the root of its second moment
MR_DEVICE float add_element(const Watched &x, const Terms &t, int64_t i, double (&s)[SUMS])
{
    float w = x.w[i];
    s[0] += (double)w * (double)w;
    if (x.ema) {
        float off = x.ema[i] - w;
        s[2] += (double)off * (double)off;
    }
    if (!x.v)
        return 0;
    float root = sqrtf(x.v[i] * t.c2), u = t.of_a * (x.m[i] * t.c1 / (root + t.eps)) + t.of_w * w;
    s[1] += (double)u * (double)u;
    return root;
}

__global__ void __launch_bounds__(THREADS)
    sums_of_group(Watched x, const double *hyper, attr a, double *sums)
{
    MR_SHARED(memory);
    double *shared = (double *)memory;
    Terms *terms = (Terms *)(shared + SUMS * THREADS);
    if (threadIdx.x == 0)
        *terms = terms_of(hyper, a);
    __syncthreads();
    Terms t = *terms;
    double s[SUMS] = {0, 0, 0, 0, 0};
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t first = blockIdx.x * x.group;
    int64_t last = first + x.group < x.rows ? first + x.group : x.rows;
    for (int64_t r = first + warp; r < last; r += WARPS) {
        int64_t from = r * x.cols - x.before, to = from + x.cols < x.n ? from + x.cols : x.n;
        bool lives = false;
        for (int64_t i = (from < 0 ? 0 : from) + lane; i < to; i += 32)
            // NaN counts as alive
            lives = !(add_element(x, t, i, s) <= t.eps) || lives;
        bool dies = __ballot_sync(~0u, lives) == 0;
        if (lane == 0 && x.counts && from >= 0) {
            s[3] += 1;
            s[4] += dies ? 1 : 0;
        }
    }
    mr_block_sums<THREADS>(s, shared, sums + blockIdx.x * SUMS);
}

// one block per sum
__global__ void __launch_bounds__(THREADS)
    add_groups(const double *sums, int64_t groups, double *out)
{
    MR_SHARED(memory);
    double sum = 0;
    for (int64_t g = threadIdx.x; g < groups; g += THREADS)
        sum += sums[g * SUMS + blockIdx.x];
    double total = mr_block_sum<THREADS>(sum, (double *)memory);
    if (threadIdx.x == 0)
        out[blockIdx.x] = total;
}

static Watched watched(const mr_call *call)
{
    const attr *a = (const attr *)call->attr;
    const mr_view *in = call->in;
    Watched x = {(const float *)in[0].data,
                 (const float *)in[1].data,
                 (const float *)in[2].data,
                 (const float *)in[3].data,
                 in[0].desc.dim[0],
                 0,
                 0,
                 0,
                 0,
                 false};
    x.cols = a->cols ? a->cols : (int64_t)ROW;
    x.before = a->before;
    x.rows = mr_cuda_ceil(x.before + x.n, x.cols);
    x.group = GROUP / x.cols > ROWS_LEAST ? GROUP / x.cols : (int64_t)ROWS_LEAST;
    x.counts = x.v && a->cols;
    return x;
}

static size_t workspace(const mr_call *call, const mr_facts *)
{
    Watched x = watched(call);
    return (size_t)mr_cuda_ceil(x.rows, x.group) * SUMS * sizeof(double);
}

MR_CUDA_KERNEL(weight_sums, workspace)
{
    Watched x = watched(call);
    int64_t groups = mr_cuda_ceil(x.rows, x.group);
    double *sums = (double *)call->workspace;
    if (groups > 0)
        MR_LAUNCH(sums_of_group, dim3((unsigned)groups), dim3(THREADS),
                  SUMS * THREADS * sizeof(double) + sizeof(Terms), stream, x,
                  (const double *)call->in[4].data, *(const attr *)call->attr, sums);
    MR_LAUNCH(add_groups, dim3(SUMS), dim3(THREADS), THREADS * sizeof(double), stream, sums, groups,
              (double *)call->out[0].data);
    return MR_OK;
}
