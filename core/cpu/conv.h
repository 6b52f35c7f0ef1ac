/* conv: convolutions of channels-last volumes, and their two gradients. conv.c chooses the first
 * algorithm that fits: winograd.h for large 3 x 3 kernels in f32, depthwise.h if each channel has
 * its own filter, points.h for grouped 1 x 1 x 1 kernels, narrow.h if few channels are written,
 * oneDNN if it is built in and supports the types, else products over gathered rows. One object per
 * node is created from shapes, then run. No algorithm stores the whole gathered input.
 * Licence: Apache-2.0 */
#ifndef MR_CONV_H
#define MR_CONV_H

#include "moonreel/op.h"

typedef enum mr_conv_kind { MR_CONV_FORWARD, MR_CONV_DATA, MR_CONV_WEIGHTS } mr_conv_kind;

/* x [batch, in[0], in[1], in[2], channels], y [batch, out[0], out[1], out[2], filters], both dense;
 * w [filters, channels / groups, kernel[0], kernel[1], kernel[2]]. Position p of an axis of y reads
 * position p * stride - before + k of x for each k of the kernel; positions outside of x are
 * zero. */
typedef struct mr_conv_spec {
    mr_conv_kind kind;
    int64_t batch, in[3], out[3], channels, filters, groups;
    int64_t kernel[3], stride[3], before[3], after[3];
    mr_dtype type; /* of x, w, bias and y: f32 or bf16; sums are f32 */
    bool bias;     /* FORWARD: [filters] */
} mr_conv_spec;

typedef struct mr_conv mr_conv;
/* Owns: caller frees; NULL is fine. facts: instruction set ("base" never uses oneDNN) and team of
 * every run. Errors: MR_E_MEMORY. */
mr_status mr_conv_new(const mr_conv_spec *spec, const mr_facts *facts, mr_conv **out);
void mr_conv_free(mr_conv *c);
/* Most bytes of workspace that a run needs; depends on shapes and facts only. */
size_t mr_conv_workspace(const mr_conv_spec *spec, const mr_facts *facts);
/* The name of the algorithm for measurements: "fewer products" (winograd), "channels" (depthwise),
 * "places" (points), "few channels" (narrow), or NULL for the others; depends on shapes and facts
 * only. */
const char *mr_conv_way(const mr_conv_spec *spec, const mr_facts *facts);
/* Run once; one run at a time per object.
 *   FORWARD   y = conv(x, w) + bias      DATA      x = adjoint of it, from y and w
 *   WEIGHTS   w += from x and y, f32     (`kind` names the output, out) */
mr_status mr_conv_run(mr_conv *c, const void *x, const void *w, const void *bias, const void *y,
                      void *out, void *workspace);

/* By oneDNN (conv_onednn.c). new returns NULL if the library is not built in, does not support the
 * shape, is slow there, or needs more than `room` bytes. run is as above. */
typedef struct mr_conv_library mr_conv_library;
/* Bytes of `room` for copies of inputs that a run needs. */
size_t mr_conv_library_aside(const mr_conv_spec *spec);
mr_conv_library *mr_conv_library_new(const mr_conv_spec *spec, int threads, size_t room);
void mr_conv_library_free(mr_conv_library *l);
mr_status mr_conv_library_run(mr_conv_library *l, const void *x, const void *w, const void *bias,
                              const void *y, void *out, void *workspace);

#endif
