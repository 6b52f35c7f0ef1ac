/* points: convolutions of single places by groups of channels (isa/points.c); conv.c chooses them.
 * Licence: Apache-2.0 */
#ifndef MR_POINTS_H
#define MR_POINTS_H

#include "cpu/conv.h"

// places that a worker does at once: whole tiles of every instruction set
enum { MR_POINTS_ROWS = 48 };

/* What is read and what is written, x and y or for the gradient of x the other way round: rows of
 * groups * channels and of groups * filters. Element (group, filter, channel) of the weights lies
 * at group * filters * channels + filter * w_filter + channel * w_channel. */
typedef struct mr_points_plan {
    int64_t places, groups, channels, filters, w_filter, w_channel;
    mr_dtype type;
    bool pairs; /* products of bf16 by instructions of their own */
    int threads;
    int64_t wide;                   /* channels of a group in memory: whole steps of pairs */
    size_t weight_bytes, own_bytes; /* of the workspace: once; per worker */
} mr_points_plan;

/* Whether it is the faster way: several groups, a kernel of one place, no strides, no zeros, not
 * the gradient of weights. A function of shapes and facts; fills *p where it is. */
bool mr_points_fits(const mr_conv_spec *s, const mr_facts *facts, mr_points_plan *p);
size_t mr_points_workspace(const mr_points_plan *p);

typedef struct mr_points_call {
    const void *from, *w, *bias; /* bias: [groups * filters] or NULL */
    void *to, *workspace;
} mr_points_call;
typedef void mr_points_fn(const mr_points_plan *p, const mr_points_call *call);
mr_points_fn mr_points_base, mr_points_avx2, mr_points_avx512;

#endif
