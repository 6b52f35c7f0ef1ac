/* points: grouped convolutions with kernels of 1 x 1 x 1 (isa/points.c); conv.c chooses them.
 * Licence: Apache-2.0 */
#ifndef MR_POINTS_H
#define MR_POINTS_H

#include "cpu/conv.h"

// positions that a worker computes at a time: whole tiles in every instruction set
enum { MR_POINTS_ROWS = 48 };

/* A convolution and the memory of its run. It reads rows of groups * channels and writes rows of
 * groups * filters: x and y, or y and x for the gradient of x. Element (group, filter, channel) of
 * the weights is at group * filters * channels + filter * w_filter + channel * w_channel. */
typedef struct mr_points_plan {
    int64_t places, groups, channels, filters, w_filter, w_channel;
    mr_dtype type;
    bool pairs; /* use bf16 instructions */
    int threads;
    int64_t wide;                   /* channels of a group, padded to whole steps of pairs */
    size_t weight_bytes, own_bytes; /* workspace: shared; per worker */
} mr_points_plan;

/* Fill *p and return true if this is the faster algorithm: several groups, a kernel of 1 x 1 x 1,
 * no strides, no padding, not the gradient of weights. Depends on shapes and facts only. */
bool mr_points_fits(const mr_conv_spec *s, const mr_facts *facts, mr_points_plan *p);
size_t mr_points_workspace(const mr_points_plan *p);

typedef struct mr_points_call {
    const void *from, *w, *bias; /* bias: [groups * filters] or NULL */
    void *to, *workspace;
} mr_points_call;
typedef void mr_points_fn(const mr_points_plan *p, const mr_points_call *call);
mr_points_fn mr_points_base, mr_points_avx2, mr_points_avx512;

#endif
