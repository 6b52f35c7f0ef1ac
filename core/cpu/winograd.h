/* winograd: convolutions with 3 x 3 kernels by fewer products (isa/winograd.c); conv.c chooses
 * them.
 * Licence: Apache-2.0 */
#ifndef MR_WINOGRAD_H
#define MR_WINOGRAD_H

#include "cpu/conv.h"

// floats between rows in a worker's memory; squares of outputs that it computes at a time, and the
// same with large weights
enum { MR_WINOGRAD_GAP = 16, MR_WINOGRAD_SQUARES = 96, MR_WINOGRAD_MORE = 192 };

/* A convolution and the memory of its run. It reads `in` and writes `out`: x and y, or y and x for
 * the gradient of x. */
typedef struct mr_winograd_plan {
    int64_t batch, in[3], out[3], before[3], taps; /* taps: of the time axis */
    int64_t channels, filters;                     /* channels of in; channels of out */
    int64_t w_filter, w_channel;                   /* strides of the weights */
    int64_t step;                                  /* stride of time */
    bool strided;                                  /* stride 2 x 2, else 1 x 1 */
    bool pairs;                                    /* fewer products along time, too */
    bool turned;                                   /* taps are reversed */
    mr_dtype type;
    int threads;
    int64_t group, parts;              /* squares of a group of frames; parts of a group */
    int64_t tiles, rows;               /* squares of a part, which a worker computes at a time;
                                        * padded to tiles */
    int64_t weight_floats, own_floats; /* workspace: shared; per worker */
} mr_winograd_plan;

/* Fill *p and return true if this is the faster algorithm: kernel [k, 3, 3], stride 1 or, forward,
 * [k, 2, 2], one group, many channels, and f32 products, or bf16 without tiles if winograd in f32
 * takes less time. Depends on shapes and facts only. */
bool mr_winograd_fits(const mr_conv_spec *s, const mr_facts *facts, mr_winograd_plan *p);
size_t mr_winograd_workspace(const mr_winograd_plan *p);

typedef struct mr_winograd_call {
    const void *from, *w, *bias; /* bias: [filters] or NULL */
    void *to, *workspace;
} mr_winograd_call;
typedef void mr_winograd_fn(const mr_winograd_plan *p, const mr_winograd_call *call);
mr_winograd_fn mr_winograd_base, mr_winograd_avx2, mr_winograd_avx512;

#endif
