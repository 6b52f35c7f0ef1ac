/* winograd: convolutions with fewer products (isa/winograd.c); conv.c chooses them.
 * Licence: Apache-2.0 */
#ifndef MR_WINOGRAD_H
#define MR_WINOGRAD_H

#include "cpu/conv.h"

// floats between the ends and beginnings of rows in a worker's memory; squares of outputs that it
// does at once, and of the smaller ones where weights are many
enum { MR_WINOGRAD_GAP = 16, MR_WINOGRAD_SQUARES = 96, MR_WINOGRAD_MORE = 192 };

/* A convolution of what is read into what is written, and the memory of its run: x into y, or for
 * the gradient of x the other way round. */
typedef struct mr_winograd_plan {
    int64_t batch, in[3], out[3], before[3], taps; /* taps: of time */
    int64_t channels, filters;                     /* read; written */
    int64_t w_filter, w_channel;                   /* elements between those of the weights */
    int64_t step;                                  /* frames between those of outputs */
    bool strided;                                  /* steps of 2 x 2; else of 1 x 1 */
    bool pairs;                                    /* fewer products in time, too */
    bool turned;                                   /* taps are counted from the last */
    mr_dtype type;
    int threads;
    int64_t group, parts;              /* squares of whole frames; parts of each such group */
    int64_t tiles, rows;               /* squares of a part, which a worker does at once; room */
    int64_t weight_floats, own_floats; /* of the workspace: once; per worker */
} mr_winograd_plan;

/* Whether it is the faster way: kernel [k, 3, 3], steps of 1 or, forward, [k, 2, 2], one group,
 * many channels, and products that are computed in f32, or in bf16 without tiles where those in f32
 * take less time. A function of shapes and facts; fills *p where it is. */
bool mr_winograd_fits(const mr_conv_spec *s, const mr_facts *facts, mr_winograd_plan *p);
size_t mr_winograd_workspace(const mr_winograd_plan *p);

typedef struct mr_winograd_call {
    const void *from, *w, *bias; /* bias: [filters] or NULL */
    void *to, *workspace;
} mr_winograd_call;
typedef void mr_winograd_fn(const mr_winograd_plan *p, const mr_winograd_call *call);
mr_winograd_fn mr_winograd_base, mr_winograd_avx2, mr_winograd_avx512;

#endif
