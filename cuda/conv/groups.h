/* Interface of the warp-group convolution kernels for sm_90a. These kernels are compiled into
 * separate objects, for this architecture only. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_CONV_GROUPS_H
#define MOONREEL_CUDA_CONV_GROUPS_H

#include "cuda/conv/geometry.cuh"

/* Do they serve `columns` of a side of the result, and pay? They work on 128 at a time, others on
 * 64. */
static inline bool mr_conv_groups_fit(int columns)
{
    return columns > 64 && columns % 8 == 0;
}

/* Enqueue y, or (ADJOINT) dx, from weights [groups, rows, taps, K] (conv_pack); bias of y or NULL.
 * Channels of both are multiples of 8. */
template <bool ADJOINT>
void mr_conv_groups(const Conv &c, const mr_bf16 *from, const mr_bf16 *packed, const mr_bf16 *bias,
                    mr_bf16 *to, cudaStream_t stream);

/* Enqueue the gradient of w over `ranges` of `range` places each, into partials [ranges, groups, O
 * / groups, taps, C / groups]; channels of both are multiples of 8. */
void mr_conv_dw_groups(const Conv &c, const mr_bf16 *dy, const mr_bf16 *x, float *partials,
                       int range, int ranges, cudaStream_t stream);

#endif
