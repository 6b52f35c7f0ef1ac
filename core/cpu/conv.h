/* conv: convolutions of channels-last volumes and their two gradients: with fewer products where
 * the shape allows it and they are computed in f32 (winograd.h), every channel by itself where each
 * has a filter of its own (depthwise.h), place by place where groups have kernels of one place
 * (points.h), by sums over lanes where few channels are written (narrow.h), else by oneDNN where it
 * is built in and serves the types, else as own products over gathered rows. One object per node:
 * made once from shapes, then run. No way holds the whole of the gathered input.
 * Licence: Apache-2.0 */
#ifndef MR_CONV_H
#define MR_CONV_H

#include "moonreel/op.h"

typedef enum mr_conv_kind { MR_CONV_FORWARD, MR_CONV_DATA, MR_CONV_WEIGHTS } mr_conv_kind;

/* x [batch, in[0], in[1], in[2], channels], y [batch, out[0], out[1], out[2], filters], both dense;
 * w [filters, channels / groups, kernel[0], kernel[1], kernel[2]]. Position p of an axis of y reads
 * p * stride - before + k of x for each k of the kernel; what lies outside is zero. */
typedef struct mr_conv_spec {
    mr_conv_kind kind;
    int64_t batch, in[3], out[3], channels, filters, groups;
    int64_t kernel[3], stride[3], before[3], after[3];
    mr_dtype type; /* of x, w, bias and y: f32 or bf16; sums are f32 */
    bool bias;     /* FORWARD: [filters] */
} mr_conv_spec;

typedef struct mr_conv mr_conv;
/* Owns: caller frees (also a NULL). facts: instruction set of own kernels ("base" takes them
 * always), team of every run. Errors: MR_E_MEMORY. */
mr_status mr_conv_new(const mr_conv_spec *spec, const mr_facts *facts, mr_conv **out);
void mr_conv_free(mr_conv *c);
/* Bytes that a run takes at most; a function of shapes and facts alone. */
size_t mr_conv_workspace(const mr_conv_spec *spec, const mr_facts *facts);
/* "fewer products", "channels" (every channel by itself), "places" (single places by groups),
 * "few channels" (that are written), or NULL, the usual way; a function of shapes and facts alone,
 * too. */
const char *mr_conv_way(const mr_conv_spec *spec, const mr_facts *facts);
/* One run; one at a time per object.
 *   FORWARD   y = conv(x, w) + bias      DATA      x = adjoint of it, from y and w
 *   WEIGHTS   w += from x and y, f32     (what is written is named by `kind`) */
mr_status mr_conv_run(mr_conv *c, const void *x, const void *w, const void *bias, const void *y,
                      void *out, void *workspace);

/* The oneDNN way (conv_onednn.c): NULL where the library is not built in, does not serve the shape,
 * is slow there, or wants more than `room` bytes. Run as above. */
typedef struct mr_conv_library mr_conv_library;
/* Bytes of `room` in which a run keeps copies of what it reads, where it has to. */
size_t mr_conv_library_aside(const mr_conv_spec *spec);
mr_conv_library *mr_conv_library_new(const mr_conv_spec *spec, int threads, size_t room);
void mr_conv_library_free(mr_conv_library *l);
mr_status mr_conv_library_run(mr_conv_library *l, const void *x, const void *w, const void *bias,
                              const void *y, void *out, void *workspace);

#endif
