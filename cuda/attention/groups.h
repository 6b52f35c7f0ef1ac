/* Interface of the attention kernels for sm_90a, which use warp groups. They are compiled into
 * separate objects, for this architecture only. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_GROUPS_H
#define MOONREEL_CUDA_ATTENTION_GROUPS_H

#include "cuda/attention/tile.cuh"
#include "cuda/kernels/kernel_call.h"
#include "moonreel/base.h"

/* Does the standard sm_90a kernel support this call? It needs heads of at most 128 columns, no
 * bias, no frames, and more queries than one warp group processes. */
static inline bool mr_attention_groups_fit(const Attention &p)
{
    bool narrow = p.d <= 128 && p.e <= 128;
    return narrow && !p.bias && !p.frame && p.M > 0 && p.N > 64 && p.scale > 0;
}

/* Does forward_wide_sm90a.cuh support this call? It needs heads of 264 to 512 columns in whole
 * 16-byte pieces, no bias and no lengths. */
static inline bool mr_attention_wide_fit(const Attention &p)
{
    int columns = p.d > p.e ? p.d : p.e;
    return columns > 256 && columns <= 512 && !p.bias && !p.len && p.M > 0 && p.N > 64 &&
           p.scale > 0;
}

// number of columns after padding
static inline int mr_attention_group_columns(const Attention &p)
{
    int d = p.d > p.e ? p.d : p.e;
    return d <= 64 ? 64 : d <= 80 ? 80 : 128;
}

/* Number of multiprocessors of an H100 and an H200. The emulated GPU has two: this keeps specs
 * short, and a block still gets several problems. */
#ifdef __CUDACC__
enum { GROUP_PROCESSORS = 132 };
#else
enum { GROUP_PROCESSORS = 2 };
#endif

/* Bytes per head of the slice in which the gradient sums dq over tiles of keys; 0 if one tile has
 * all keys. */
static inline size_t mr_attention_slice_bytes(const Attention &p)
{
    int64_t rows = (p.N + 63) / 64 * 64;
    return p.M <= 128 ? 0 : (size_t)(rows * mr_attention_group_columns(p)) * sizeof(float);
}

/* Does a call use backward_whole_sm90a.cuh? A problem is one head of one sequence. Problems must
 * fill all multiprocessors three times, so that the partly idle last round costs no more than the
 * saved products, and the slices must fit in the L2: 41 MB of its 50. */
static inline bool mr_attention_whole_fit(const Attention &p)
{
    return (int64_t)p.B * p.G * p.h >= 3 * GROUP_PROCESSORS &&
           mr_attention_slice_bytes(p) <= 320 << 10;
}

/* Number of slots in backward_turns_sm90a.cuh, which runs all other calls. A slot processes one
 * head at a time. At most 8 blocks of a head run at once, fewer than the head has turn words. */
static inline int mr_attention_turn_slots(const Attention &p)
{
    int64_t heads = (int64_t)p.B * p.G * p.h, words = mr_cuda_ceil(p.N, 64), most = words - 1;
    int64_t slots = mr_cuda_ceil(GROUP_PROCESSORS, most < 8 ? most : 8);
    return (int)(slots < heads ? slots : heads);
}

// number of turn words, which start as 0: the next ticket, then one word per slot and 64 queries
static inline int64_t mr_attention_turn_words(const Attention &p)
{
    return 1 + mr_attention_turn_slots(p) * mr_cuda_ceil(p.N, 64);
}

struct AttentionTurns {
    uint32_t *words;
    float *slices; // one per slot
    int slots;
};

/* Inputs and outputs of the gradient. dots [B, G, h, N] is D of each query (attention_dots). There
 * is one slice per processor or per slot. words is NULL for whole problems. */
struct AttentionGradient {
    Heads q, k, v, dy, dq, dk, dv;
    const float *lse, *dots, *dlse;
    uint32_t *words;
    float *slices;
};

/* Enqueue the backward pass, the forward pass, and the forward pass of wide heads. Errors: of the
 * driver, for tensor maps. */
mr_status mr_attention_backward_groups(const Attention &p, const AttentionGradient &x,
                                       cudaStream_t stream);
mr_status mr_attention_forward_groups(const Attention &p, Heads q, Heads k, Heads v, Heads o,
                                      float *lse, cudaStream_t stream);
mr_status mr_attention_forward_wide(const Attention &p, Heads q, Heads k, Heads v, Heads o,
                                    float *lse, cudaStream_t stream);

#endif
