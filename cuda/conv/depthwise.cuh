/* conv3d, and with stride 1 also its gradient of x, if every channel has its own filter
 *
 *   y[b, p, c] = bias[c] + sum over taps k of w[c, k] x[b, p stride - before + k, c]
 *
 * Weights are transposed to [taps, C] first, so that loads of a warp are coalesced. Then a thread
 * computes RUN positions of a line for 16 bytes of channels. Each 16-byte load of weights is used
 * for RUN products per channel, and lines that taps share stay in the cache. Memory-bound: 2
 * elements per element of y. Sums are f32, tap after tap.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_CONV_DEPTHWISE_CUH
#define MOONREEL_CUDA_CONV_DEPTHWISE_CUH

#include "cuda/conv/geometry.cuh"
#include "cuda/kernels/pieces.cuh"

enum { RUN = 4 }; // positions per thread

// w [C, taps] -> [taps, C]; mirrored: last tap first
template <typename T>
__global__ void __launch_bounds__(THREADS)
    conv_depthwise_turn(const T *w, T *turned, int C, int taps, bool mirrored)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (int64_t)C * taps)
        return;
    int tap = (int)(i / C);
    turned[i] = w[i % C * taps + (mirrored ? taps - 1 - tap : tap)];
}

// c describes the convolution to compute; for the gradient of x, the one applied to dy
template <typename T>
__global__ void __launch_bounds__(THREADS)
    conv_depthwise(const T *x, const T *w, const T *bias, T *y, Conv c)
{
    constexpr int E = 16 / sizeof(T);
    const int pieces = c.C / E, runs = (c.out[2] + RUN - 1) / RUN;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (int64_t)c.B * c.out[0] * c.out[1] * runs * pieces)
        return;
    const int channel = (int)(i % pieces) * E, first = (int)(i / pieces % runs) * RUN;
    const int dim[3] = {c.out[0], c.out[1], 1};
    const Place3 p = place3(i / pieces / runs, dim);
    float sum[RUN][E];
#pragma unroll
    for (int r = 0; r < RUN; r++)
#pragma unroll
        for (int e = 0; e < E; e++)
            sum[r][e] = bias ? mr_load1(bias + channel + e) : 0;
    const T *weights = w + channel;
    for (int kt = 0; kt < c.kernel[0]; kt++)
        for (int kh = 0; kh < c.kernel[1]; kh++) {
            int t = p.at[0] * c.stride[0] - c.before[0] + kt;
            int h = p.at[1] * c.stride[1] - c.before[1] + kh;
            if (c.edge)
                t = nearest(t, c.in[0]), h = nearest(h, c.in[1]);
            if ((unsigned)t >= (unsigned)c.in[0] || (unsigned)h >= (unsigned)c.in[1]) {
                weights += (int64_t)c.kernel[2] * c.C;
                continue;
            }
            const T *line =
                x + (((int64_t)p.b * c.in[0] + t) * c.in[1] + h) * c.in[2] * c.C + channel;
#pragma unroll 1 // more taps at once would not fit into registers
            for (int kw = 0; kw < c.kernel[2]; kw++, weights += c.C) {
                float weight[E], v[E];
                mr_load(weights, weight);
#pragma unroll
                for (int r = 0; r < RUN; r++) {
                    int at = (first + r) * c.stride[2] - c.before[2] + kw;
                    if (c.edge)
                        at = nearest(at, c.in[2]);
                    if ((unsigned)at >= (unsigned)c.in[2])
                        continue;
                    mr_load(line + (int64_t)at * c.C, v);
#pragma unroll
                    for (int e = 0; e < E; e++)
                        sum[r][e] += weight[e] * v[e];
                }
            }
        }
    T *to =
        y + (((int64_t)p.b * c.out[0] + p.at[0]) * c.out[1] + p.at[1]) * c.out[2] * c.C + channel;
#pragma unroll
    for (int r = 0; r < RUN; r++)
        if (first + r < c.out[2])
            mr_store(to + (int64_t)(first + r) * c.C, sum[r]);
}

#endif
