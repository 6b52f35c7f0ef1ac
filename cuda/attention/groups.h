/* Interface of the warp-group attention kernels for sm_90a. These kernels are compiled into
 * separate objects, for this architecture only. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_GROUPS_H
#define MOONREEL_CUDA_ATTENTION_GROUPS_H

#include "cuda/attention/tile.cuh"
#include "cuda/kernels/kernel_call.h"
#include "moonreel/base.h"

/* What they take of the calls that go by tiles: heads to 128 columns, no bias or frames, and more
 * queries than one group of a block works on. */
static inline bool mr_attention_groups_fit(const Attention &p)
{
    bool narrow = p.d <= 128 && p.e <= 128;
    return narrow && !p.bias && !p.frame && p.M > 0 && p.N > 64 && p.scale > 0;
}

/* What forward_wide_sm90a.cuh takes of calls whose heads are whole pieces: 264 to 512 columns, no
 * bias or lengths. */
static inline bool mr_attention_wide_fit(const Attention &p)
{
    int columns = p.d > p.e ? p.d : p.e;
    return columns > 256 && columns <= 512 && !p.bias && !p.len && p.M > 0 && p.N > 64 &&
           p.scale > 0;
}

// columns that heads are filled up to
static inline int mr_attention_group_columns(const Attention &p)
{
    int d = p.d > p.e ? p.d : p.e;
    return d <= 64 ? 64 : d <= 80 ? 80 : 128;
}

/* Multiprocessors of an H100 and an H200. The emulated GPU has two: specs stay short, and yet a
 * block has several problems. */
#ifdef __CUDACC__
enum { GROUP_PROCESSORS = 132 };
#else
enum { GROUP_PROCESSORS = 2 };
#endif

/* The gradient keeps dq in slices of memory while it is summed over tiles of keys, so these bytes a
 * head: none where all keys are one tile. */
static inline size_t mr_attention_slice_bytes(const Attention &p)
{
    int64_t rows = (p.N + 63) / 64 * 64;
    return p.M <= 128 ? 0 : (size_t)(rows * mr_attention_group_columns(p)) * sizeof(float);
}

/* Which calls go by problems taken whole (backward_whole_sm90a.cuh): whose problems fill all
 * processors three times, where the last round costs at most what the products saved bring, and
 * whose slices stay in the L2, 41 MB of its 50. */
static inline bool mr_attention_whole_fit(const Attention &p)
{
    return (int64_t)p.B * p.G * p.h >= 3 * GROUP_PROCESSORS &&
           mr_attention_slice_bytes(p) <= 320 << 10;
}

/* All others go by turns (backward_turns_sm90a.cuh), a few heads at a time: that at most 8 blocks
 * of a head run at once, and fewer than it has words. */
static inline int mr_attention_turn_slots(const Attention &p)
{
    int64_t heads = (int64_t)p.B * p.G * p.h, words = mr_cuda_ceil(p.N, 64), most = words - 1;
    int64_t slots = mr_cuda_ceil(GROUP_PROCESSORS, most < 8 ? most : 8);
    return (int)(slots < heads ? slots : heads);
}

// words, which begin as 0: the next ticket, and of each slot one for 64 queries
static inline int64_t mr_attention_turn_words(const Attention &p)
{
    return 1 + mr_attention_turn_slots(p) * mr_cuda_ceil(p.N, 64);
}

struct AttentionTurns {
    uint32_t *words;
    float *slices; // one for each slot
    int slots;
};

/* What the gradient reads and writes; dots [B, G, h, N] is D of each row (attention_dots), slices
 * are one for each processor or slot, words are NULL for whole problems. */
struct AttentionGradient {
    Heads q, k, v, dy, dq, dk, dv;
    const float *lse, *dots, *dlse;
    uint32_t *words;
    float *slices;
};

/* Enqueue the backward pass, the forward pass, that of wide heads. Errors: of the driver, for
 * tensor maps. */
mr_status mr_attention_backward_groups(const Attention &p, const AttentionGradient &x,
                                       cudaStream_t stream);
mr_status mr_attention_forward_groups(const Attention &p, Heads q, Heads k, Heads v, Heads o,
                                      float *lse, cudaStream_t stream);
mr_status mr_attention_forward_wide(const Attention &p, Heads q, Heads k, Heads v, Heads o,
                                    float *lse, cudaStream_t stream);

#endif
