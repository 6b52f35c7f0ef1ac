/* Interface of the convolution kernels for sm_90a, which use warp groups. They are compiled into
 * separate objects, for this architecture only. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_CONV_GROUPS_H
#define MOONREEL_CUDA_CONV_GROUPS_H

#include "cuda/conv/geometry.cuh"

/* Do the sm_90a kernels support a result of `columns` channels, and are they faster? They compute
 * 128 columns at a time, the others 64. */
static inline bool mr_conv_groups_fit(int columns)
{
    return columns > 64 && columns % 8 == 0;
}

/* Enqueue y, or with ADJOINT dx, from weights [groups, rows, taps, K] (conv_pack). bias belongs to
 * y, or is NULL. The channels of both sides are multiples of 8. */
template <bool ADJOINT>
void mr_conv_groups(const Conv &c, const mr_bf16 *from, const mr_bf16 *packed, const mr_bf16 *bias,
                    mr_bf16 *to, cudaStream_t stream);

/* Enqueue the gradient of w: `ranges` ranges of `range` positions each, into partials [ranges,
 * groups, O / groups, taps, C / groups]. The channels of both sides are multiples of 8. */
void mr_conv_dw_groups(const Conv &c, const mr_bf16 *dy, const mr_bf16 *x, float *partials,
                       int range, int ranges, cudaStream_t stream);

#endif
