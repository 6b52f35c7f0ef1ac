/* conv3d and its gradients, any type and number of channels: a thread an element of y, of dx or of
 * acc. Right, and slow. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_CONV_PLAIN_CUH
#define MOONREEL_CUDA_CONV_PLAIN_CUH

#include "cuda/conv/geometry.cuh"
#include "cuda/kernels/pieces.cuh"

template <typename T>
__global__ void __launch_bounds__(THREADS)
    conv_plain(const T *x, const T *w, const T *bias, T *y, Conv c)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= c.out_places() * c.O)
        return;
    int o = (int)(i % c.O), Cg = c.C / c.groups, g = o / (c.O / c.groups);
    const Phase<false> phase(c, 0);
    const Source<false> p(c, phase, place3(i / c.O, c.out), c.C);
    float sum = bias ? mr_load1(bias + o) : 0;
    for (Walk<false> at(phase, 1, 0); at.exists(phase); at.move(phase, 1, 1)) {
        if (!p.meets(c, at.tap))
            continue;
        const T *from = x + (uint32_t)(p.first + Source<false>::behind(c, at.tap, c.C) + g * Cg);
        int weight = at.weight(c, phase, 1);
        for (int k = 0; k < Cg; k++)
            sum += mr_load1(from + k) * mr_load1(w + ((int64_t)o * Cg + k) * c.taps + weight);
    }
    mr_store1(y + i, sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) conv_dx_plain(const T *dy, const T *w, T *dx, Conv c)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= c.in_places() * c.C)
        return;
    int Cg = c.C / c.groups, Og = c.O / c.groups, g = (int)(i % c.C) / Cg, which = 0;
    Place3 place = place3(i / c.C, c.in);
#pragma unroll
    for (int k = 0; k < 3; k++)
        which = which * c.stride[k] + place.at[k] % c.stride[k];
    const Phase<true> phase(c, which);
    const Source<true> p(c, phase, place, c.O);
    float sum = 0;
    for (Walk<true> at(phase, 1, 0); at.exists(phase); at.move(phase, 1, 1)) {
        if (!p.meets(c, at.tap))
            continue;
        const T *from = dy + (uint32_t)(p.first + Source<true>::behind(c, at.tap, c.O));
        int weight = (int)(i % c.C % Cg) * c.taps + at.weight(c, phase, 1);
        for (int o = g * Og; o < (g + 1) * Og; o++)
            sum += mr_load1(from + o) * mr_load1(w + (int64_t)o * Cg * c.taps + weight);
    }
    mr_store1(dx + i, sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    conv_dw_plain(const T *dy, const T *x, float *acc, Conv c)
{
    int Cg = c.C / c.groups, Og = c.O / c.groups;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (int64_t)c.O * Cg * c.taps)
        return;
    int channel = (int)(i / c.taps % Cg), o = (int)(i / c.taps / Cg);
    const Phase<false> phase(c, 0);
    const Walk<false> at(phase, 1, (int)(i % c.taps));
    const uint32_t k = o / Og * Cg + channel + Source<false>::behind(c, at.tap, c.C);
    Place3 place = {};
    const Place3 next = place3(1, c.out);
    float sum = 0;
    for (int64_t p = 0; p < c.out_places(); p++) {
        const Source<false> source(c, phase, place, c.C);
        if (source.meets(c, at.tap))
            sum += mr_load1(dy + p * c.O + o) * mr_load1(x + (uint32_t)(source.first + k));
        place3_move(place, next, c.out);
    }
    acc[i] += sum;
}

#endif
