/* sincos: [cos(v f_k) | sin(v f_k)], f_k = max_period^(-k / (dim/2)). Exponent, frequency and
 * product are computed in f32 exactly as on the CPU, cos and sin in double.
 *
 * The op is small and runs once per shape or step, so a thread computes one pair. There are no
 * sums, so the bits are fixed. */
#include "cuda/kernels/kernel_call.h"

enum { THREADS = 128 };

struct attrs { // as in core/op/sincos.c
    int64_t dim;
    double max_period;
    bool sin_first;
};

// the same as exp_f32 of core/op/sincos.c
MR_DEVICE float exp_f32(float x)
{
    const float c[] = {0.000198527617612853646f, 0.00139304355252534151f, 0.00833336077630519867f,
                       0.0416664853692054749f,   0.166666671633720398f,   0.5f};
    float q = rintf(x * 1.44269504088896341f);
    float r = fmaf(q, -1.42860676533018705e-6f, fmaf(q, -0.693145751953125f, x));
    float u = c[0];
#pragma unroll
    for (int i = 1; i < 6; i++)
        u = fmaf(u, r, c[i]);
    return ldexpf(1 + fmaf(r * r, u, r), (int)q);
}

__global__ void __launch_bounds__(THREADS)
    sincos_pairs(const float *v, float *y, int64_t n, int64_t half, float log_period,
                 bool sin_first)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / half, k = i % half;
    if (row >= n)
        return;
    float p = v[row] * exp_f32(log_period * (float)k / (float)half);
    y[row * 2 * half + k + (sin_first ? half : 0)] = (float)cos((double)p);
    y[row * 2 * half + k + (sin_first ? 0 : half)] = (float)sin((double)p);
}

MR_CUDA_KERNEL(sincos)
{
    const attrs *a = (const attrs *)call->attr;
    int64_t n = call->in[0].desc.dim[0], half = a->dim / 2;
    if (n > 0)
        MR_LAUNCH(sincos_pairs, dim3((unsigned)mr_cuda_ceil(n * half, THREADS)), dim3(THREADS), 0,
                  stream, (const float *)call->in[0].data, (float *)call->out[0].data, n, half,
                  (float)-log(a->max_period), a->sin_first);
    return MR_OK;
}
