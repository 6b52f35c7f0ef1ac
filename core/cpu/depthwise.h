/* depthwise: convolutions in which each channel has its own filter (isa/depthwise.c); conv.c
 * chooses them.
 * Licence: Apache-2.0 */
#ifndef MR_DEPTHWISE_H
#define MR_DEPTHWISE_H

#include "cpu/conv.h"

enum { MR_DEPTHWISE_BLOCK = 128 }; // most channels of a block

/* A convolution and the memory of its run. It reads `in` and writes `out`: x and y, or y and x for
 * the gradient of x. The gradient of the weights reads x as `in`, and y. */
typedef struct mr_depthwise_plan {
    int64_t batch, in[3], out[3], before[3], kernel[3], stride[3], channels;
    int64_t block;         /* channels that a worker computes at a time */
    int64_t height, width; /* of a frame, including the padding */
    bool weights;          /* compute the gradient of the weights */
    bool turned;           /* taps are reversed */
    mr_dtype type;
    int threads;
    int64_t weight_floats; /* workspace, shared by all workers */
    int64_t own_floats;    /* workspace per worker */
} mr_depthwise_plan;

/* Fill *p and return true if each channel has its own filter and, for the gradient of x, all
 * strides are 1. */
bool mr_depthwise_fits(const mr_conv_spec *s, const mr_facts *facts, mr_depthwise_plan *p);
size_t mr_depthwise_workspace(const mr_depthwise_plan *p);

typedef struct mr_depthwise_call {
    const void *from;
    const void *w;    /* for the gradient of the weights: dy */
    const void *bias; /* [channels] or NULL */
    void *to;         /* for the gradient of the weights: f32, accumulated */
    void *workspace;
} mr_depthwise_call;
typedef void mr_depthwise_fn(const mr_depthwise_plan *p, const mr_depthwise_call *call);
mr_depthwise_fn mr_depthwise_base, mr_depthwise_avx2, mr_depthwise_avx512;

#endif
