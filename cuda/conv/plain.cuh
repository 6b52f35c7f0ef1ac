/* conv3d and its gradients for any type and number of channels: one thread per element of y, dx or
 * acc. Simple and slow. Licence: Apache-2.0 */
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
        uint32_t element = Source<false>::behind(c, at.tap, c.C) + g * Cg;
        if (!p.meets(c, at.tap, c.C, element))
            continue;
        const T *from = x + element;
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
        uint32_t element = Source<true>::behind(c, at.tap, c.O);
        if (!p.meets(c, at.tap, c.O, element))
            continue;
        const T *from = dy + element;
        int weight = (int)(i % c.C % Cg) * c.taps + at.weight(c, phase, 1);
        for (int o = g * Og; o < (g + 1) * Og; o++)
            sum += mr_load1(from + o) * mr_load1(w + (int64_t)o * Cg * c.taps + weight);
    }
    mr_store1(dx + i, sum);
}

/* dx += the part from positions outside x, which belong to the nearest position inside. One thread
 * per element of dx; only elements at the ends have such a part. In frames of 256 x 256 they are
 * 1.6 %, and they meet at most twice their taps, so speed does not matter here. */
template <typename T>
__global__ void __launch_bounds__(THREADS) conv_dx_edge(const T *dy, const T *w, T *dx, Conv c)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= c.in_places() * c.C)
        return;
    const Place3 place = place3(i / c.C, c.in);
    int from[3], n[3], Cg = c.C / c.groups, Og = c.O / c.groups, g = (int)(i % c.C) / Cg;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        int behind = (c.out[k] - 1) * c.stride[k] + c.kernel[k] - c.in[k] - c.before[k];
        int to = place.at[k] + (place.at[k] == c.in[k] - 1 && behind > 0 ? behind : 0);
        from[k] = place.at[k] ? place.at[k] : -c.before[k];
        n[k] = to - from[k] + 1;
    }
    if (n[0] * n[1] * n[2] == 1)
        return;
    float sum = 0;
    // for all positions whose nearest position is this one, except itself, and for all taps
    for (int which = 0; which < n[0] * n[1] * n[2] * c.taps; which++) {
        const Place3 there = place3(which / c.taps, n), tap = place3(which % c.taps, c.kernel);
        bool inside = true, meets = true;
        int64_t y = place.b;
#pragma unroll
        for (int k = 0; k < 3; k++) {
            int at = from[k] + there.at[k], step = at + c.before[k] - tap.at[k];
            inside = inside && at == place.at[k];
            meets = meets && step >= 0 && step % c.stride[k] == 0 && step / c.stride[k] < c.out[k];
            y = y * c.out[k] + step / c.stride[k];
        }
        if (inside || !meets)
            continue;
        for (int o = 0; o < Og; o++)
            sum +=
                mr_load1(dy + y * c.O + g * Og + o) *
                mr_load1(w + ((int64_t)(g * Og + o) * Cg + i % c.C % Cg) * c.taps + which % c.taps);
    }
    mr_store1(dx + i, mr_load1(dx + i) + sum);
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
        uint32_t element = k;
        if (source.meets(c, at.tap, c.C, element))
            sum += mr_load1(dy + p * c.O + o) * mr_load1(x + element);
        place3_move(place, next, c.out);
    }
    acc[i] += sum;
}

#endif
