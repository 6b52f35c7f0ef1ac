/* depthwise: convolutions of every channel by itself (isa/depthwise.c); conv.c chooses them.
 * Licence: Apache-2.0 */
#ifndef MR_DEPTHWISE_H
#define MR_DEPTHWISE_H

#include "cpu/conv.h"

enum { MR_DEPTHWISE_BLOCK = 128 }; // channels that a worker has in its memory, at most

/* A convolution of what is read into what is written, and the memory of its run: x into y, for the
 * gradient of x the other way round; the gradient of the weights reads x, and y at each place. */
typedef struct mr_depthwise_plan {
    int64_t batch, in[3], out[3], before[3], kernel[3], stride[3], channels;
    int64_t block;         /* channels that a worker has in its memory */
    int64_t height, width; /* of a frame with the zeros around it that taps read */
    bool weights;          /* this is the gradient of the weights */
    bool turned;           /* filters are read from their last tap to the first */
    mr_dtype type;
    int threads;
    int64_t weight_floats; /* of the workspace, once for all workers */
    int64_t own_floats;    /* of the workspace, for each worker */
} mr_depthwise_plan;

/* True, and *p is filled, if every channel has a filter of its own and, for the gradient of x, all
 * strides are 1. */
bool mr_depthwise_fits(const mr_conv_spec *s, const mr_facts *facts, mr_depthwise_plan *p);
size_t mr_depthwise_workspace(const mr_depthwise_plan *p);

typedef struct mr_depthwise_call {
    const void *from;
    const void *w;    /* for the gradient of the weights: dy */
    const void *bias; /* [channels] or NULL */
    void *to;         /* for the gradient of the weights: f32, and sums are added to it */
    void *workspace;
} mr_depthwise_call;
typedef void mr_depthwise_fn(const mr_depthwise_plan *p, const mr_depthwise_call *call);
mr_depthwise_fn mr_depthwise_base, mr_depthwise_avx2, mr_depthwise_avx512;

#endif
