/* adamw: clip, AdamW, average of weights, write-back to bf16 and zeroing of the gradient, in one
 * pass. Formulas as in core/op/adamw.c.
 *
 *   master, grad, m, v [n] f32   ema [n] f32 and w [n] bf16 may be absent
 *   sumsq [1] f64, hyper [12] f64: in device memory, so that nothing waits for the host
 * With ema and w 20 bytes are read and 22 written per element, with `keep` 18, each once, 16 at a
 * time. There are no sums, so the bits are fixed. Thread 0 of a block computes the values that all
 * elements share, in double.
 */
#include "cuda/kernels/formula.cuh"
#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/kernel_call.h"

enum { THREADS = 256, PER = 4 };

struct attr { // as in core/op/adamw.c
    double decay, lr_factor;
    int64_t since;
    bool keep;
};
enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, MAX_NORM, EMA_DECAY, STEP, GRAD_SCALE, PER_MOST_NORM };

struct Terms {
    formula_adam adam;
    float d;
    bool go, clear; // !go: only the gradient may change; clear: set it to 0
};

struct Buffers {
    float *master, *grad, *m, *v, *ema; // ema may be NULL
    mr_bf16 *w;                         // may be NULL
};

MR_DEVICE Terms terms_of(const double *h, double sumsq, attr a)
{
    Terms t = {};
    double norm = sqrt(sumsq) * h[GRAD_SCALE];
    t.clear = !a.keep;
    t.go = isfinite(norm) && norm * h[PER_MOST_NORM] <= 1 && h[GRAD_SCALE] != 0;
    double q = h[MAX_NORM] > 0 ? (norm + 1e-6) / h[MAX_NORM] : 1;
    t.adam.scale = (float)(q > 1 ? h[GRAD_SCALE] / q : h[GRAD_SCALE]);
    t.adam.b1 = (float)h[BETA1];
    t.adam.b2 = (float)h[BETA2];
    t.adam.c1 = (float)(1 / (1 - pow((double)t.adam.b1, h[STEP])));
    t.adam.c2 = (float)(1 / (1 - pow((double)t.adam.b2, h[STEP] - (double)a.since)));
    t.adam.eps = (float)h[EPS];
    t.adam.lr = (float)(h[LR] * a.lr_factor);
    t.adam.wd = (float)(h[WEIGHT_DECAY] * a.decay);
    t.d = (float)h[EMA_DECAY];
    return t;
}

MR_DEVICE void update_piece(const Terms &t, const Buffers &b, int64_t i)
{
    float p[4], g[4] = {0, 0, 0, 0}, m[4], v[4], ema[4];
    if (t.clear && !t.go)
        mr_store(b.grad + i, g);
    if (!t.go)
        return;
    mr_load(b.master + i, p);
    mr_load(b.grad + i, g);
    mr_load(b.m + i, m);
    mr_load(b.v + i, v);
    if (b.ema)
        mr_load(b.ema + i, ema);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        formula_adamw(&t.adam, g[e], &p[e], &m[e], &v[e]);
        g[e] = 0;
        if (b.ema)
            ema[e] = formula_average(t.d, ema[e], p[e]);
    }
    mr_store(b.master + i, p);
    if (t.clear)
        mr_store(b.grad + i, g);
    mr_store(b.m + i, m);
    mr_store(b.v + i, v);
    if (b.ema)
        mr_store(b.ema + i, ema);
    if (b.w)
        mr_store(b.w + i, p);
}

MR_DEVICE void update_one(const Terms &t, const Buffers &b, int64_t i)
{
    if (t.go) {
        float p = b.master[i], m = b.m[i], v = b.v[i];
        formula_adamw(&t.adam, b.grad[i], &p, &m, &v);
        b.master[i] = p;
        b.m[i] = m;
        b.v[i] = v;
        if (b.ema)
            b.ema[i] = formula_average(t.d, b.ema[i], p);
        if (b.w)
            mr_store1(b.w + i, p);
    }
    if (t.clear)
        b.grad[i] = 0;
}

// pieces: number of 4-element pieces; the elements after them are processed one by one
__global__ void __launch_bounds__(THREADS)
    adamw_update(Buffers b, int64_t n, int64_t pieces, const double *hyper, const double *sumsq,
                 attr a)
{
    MR_SHARED(memory);
    Terms *shared = (Terms *)memory;
    if (threadIdx.x == 0)
        *shared = terms_of(hyper, *sumsq, a);
    __syncthreads();
    Terms t = *shared;
    int64_t first = (int64_t)blockIdx.x * (THREADS * PER) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < PER; k++) {
        int64_t i = first + k * THREADS;
        if (i < pieces)
            update_piece(t, b, i * 4);
        else if (pieces * 4 + (i - pieces) < n)
            update_one(t, b, pieces * 4 + (i - pieces));
    }
}

MR_CUDA_KERNEL(adamw)
{
    const mr_view *out = call->out;
    Buffers b = {(float *)out[0].data, (float *)out[1].data, (float *)out[2].data,
                 (float *)out[3].data, (float *)out[4].data, (mr_bf16 *)out[5].data};
    int64_t n = out[0].desc.dim[0];
    bool aligned = mr_cuda_aligned(b.w, 8);
    for (int i = 0; i < 5; i++)
        aligned = aligned && mr_cuda_aligned(out[i].data, 16);
    int64_t pieces = aligned ? n / 4 : 0, work = n - 3 * pieces;
    if (n > 0)
        MR_LAUNCH(adamw_update, dim3((unsigned)mr_cuda_ceil(work, THREADS * PER)), dim3(THREADS),
                  sizeof(Terms), stream, b, n, pieces, (const double *)call->in[6].data,
                  (const double *)call->in[7].data, *(const attr *)call->attr);
    return MR_OK;
}
