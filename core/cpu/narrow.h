/* narrow: convolutions that write few channels (isa/narrow.c); conv.c chooses them.
 * Licence: Apache-2.0 */
#ifndef MR_NARROW_H
#define MR_NARROW_H

#include "cpu/conv.h"

enum { MR_NARROW_MOST = 4 }; // most channels that are written

/* A convolution and the memory of its run. It reads `in` and writes `out`: x and y, or y and x for
 * the gradient of x. */
typedef struct mr_narrow_plan {
    int64_t batch, in[3], out[3], before[3], kernel[3], stride[3];
    int64_t channels, filters;   /* channels of in; channels of out */
    int64_t w_filter, w_channel; /* strides of the weights */
    bool turned;                 /* taps are reversed */
    mr_dtype type;
    int threads;
    int64_t weight_floats; /* size of the workspace */
} mr_narrow_plan;

/* Fill *p and return true if this is the faster algorithm: one group, many channels read and few
 * written, for the gradient of x no strides, and no tiles for bf16. Depends on shapes and facts
 * only. */
bool mr_narrow_fits(const mr_conv_spec *s, const mr_facts *facts, mr_narrow_plan *p);

typedef struct mr_narrow_call {
    const void *from, *w, *bias; /* bias: [filters] or NULL */
    void *to, *workspace;
} mr_narrow_call;
typedef void mr_narrow_fn(const mr_narrow_plan *p, const mr_narrow_call *call);
mr_narrow_fn mr_narrow_base, mr_narrow_avx2, mr_narrow_avx512;

#endif
