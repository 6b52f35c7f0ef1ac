/* Forms of attention by warp groups, for sm_90a. Their kernels stand in objects of their own, which
 * hold code for that processor alone. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_GROUPS_H
#define MOONREEL_CUDA_ATTENTION_GROUPS_H

#include "cuda/attention/tile.cuh"
#include "moonreel/base.h"

/* What they take of the calls that go by tiles: heads to 128 columns, no bias, frames, or text
 * before images, and more queries than one group of a block works on. */
static inline bool mr_attention_groups_fit(const Attention &p)
{
    return p.d <= 128 && p.e <= 128 && !p.bias && !p.frame && p.counted == p.M && p.M > 0 &&
           p.N > 64 && p.scale > 0;
}

// What the gradient reads and writes; dots [B, G, h, N] is D of each row (attention_dots).
struct AttentionGradient {
    Heads q, k, v, dy, dq, dk, dv;
    const float *lse, *dots, *dlse;
};

/* Enqueue the forward pass, the backward pass. Errors: of the driver, for tensor maps. */
mr_status mr_attention_backward_groups(const Attention &p, const AttentionGradient &x,
                                       cudaStream_t stream);
mr_status mr_attention_forward_groups(const Attention &p, Heads q, Heads k, Heads v, Heads o,
                                      float *lse, cudaStream_t stream);

#endif
