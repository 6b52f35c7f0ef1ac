/* flow_mix: x_t = (1 - t/1000) x0 + (t/1000) noise; frames with a false mask keep x0.
 *
 *   x0, noise, x_t [B, C, T, H, W] f32   t [B] f32   mask [B, T] bool or absent
 *
 * Each element is read and written once, in 16-byte pieces if a plane H W divides into them,
 * otherwise one by one. x_t may overwrite x0. There are no sums, so the bits are fixed. */
#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/kernel_call.h"

enum { THREADS = 256 };

struct Shape {
    uint32_t C, T, plane; // plane: units of H W
    uint32_t units;       // all units
};

// a unit has E elements
template <int E>
__global__ void __launch_bounds__(THREADS)
    flow_mix_units(const float *x0, const float *noise, const float *t, const uint8_t *mask,
                   float *xt, Shape n)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n.units)
        return;
    uint32_t frame = i / n.plane, b = frame / (n.C * n.T);
    bool noised = !mask || mask[b * n.T + frame % n.T];
    float u = noised ? t[b] / 1000.0f : 0;
    if constexpr (E == 4) {
        float x[4], z[4] = {0, 0, 0, 0};
        mr_load(x0 + (int64_t)i * 4, x);
        if (noised)
            mr_load(noise + (int64_t)i * 4, z);
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[e] = noised ? (1 - u) * x[e] + u * z[e] : x[e];
        mr_store(xt + (int64_t)i * 4, x);
    } else {
        xt[i] = noised ? (1 - u) * x0[i] + u * noise[i] : x0[i];
    }
}

MR_CUDA_KERNEL(flow_mix)
{
    const int64_t *d = call->in[0].desc.dim, plane = d[3] * d[4],
                  count = d[0] * d[1] * d[2] * plane;
    const float *x0 = (const float *)call->in[0].data, *noise = (const float *)call->in[1].data,
                *t = (const float *)call->in[2].data;
    const uint8_t *mask = (const uint8_t *)call->in[3].data;
    float *xt = (float *)call->out[0].data;
    bool fours = plane % 4 == 0 && mr_cuda_aligned(x0, 16) && mr_cuda_aligned(noise, 16) &&
                 mr_cuda_aligned(xt, 16);
    int64_t units = fours ? count / 4 : count;
    if (units > (int64_t)UINT32_MAX)
        return mr_fail(MR_E_UNSUPPORTED, "%lld elements, expected fewer than 2^32",
                       (long long)count);
    if (count == 0)
        return MR_OK;
    Shape n = {(uint32_t)d[1], (uint32_t)d[2], (uint32_t)(fours ? plane / 4 : plane),
               (uint32_t)units};
    dim3 grid((unsigned)mr_cuda_ceil(units, THREADS));
    if (fours)
        MR_LAUNCH((flow_mix_units<4>), grid, dim3(THREADS), 0, stream, x0, noise, t, mask, xt, n);
    else
        MR_LAUNCH((flow_mix_units<1>), grid, dim3(THREADS), 0, stream, x0, noise, t, mask, xt, n);
    return MR_OK;
}
