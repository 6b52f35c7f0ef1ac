/* ckpt, inside: parts of tensors: slices and ranges as runs of bytes. Licence: Apache-2.0 */
#ifndef MR_CKPT_SPAN_H
#define MR_CKPT_SPAN_H

#include "moonreel/ckpt.h"

/* Runs of consecutive bytes of a tensor: a slice, or a range that a reader requests. */
typedef struct mr_span {
    int64_t first, end; /* start of the first run, end of the last one; equal: empty */
    int64_t run, runs;  /* bytes of a run, number of runs */
    int outer;          /* number of dimensions that the runs iterate over */
    int64_t extent[MR_ST_RANK_MAX], stride[MR_ST_RANK_MAX]; /* of these dimensions; strides in
                                                             * bytes */
} mr_span;

mr_span mr_span_stretch(int64_t from, int64_t n); /* bytes [from, from + n) */
/* The runs of a slice of a tensor. Uses name, dtype, rank, shape and bytes of `t`. Errors:
 * MR_E_RANGE outside it */
mr_status mr_span_of(const mr_st_tensor *t, const mr_ckpt_slice *slice, mr_span *out);
int64_t mr_span_bytes(const mr_span *r);
int64_t mr_span_start(const mr_span *r, int64_t i); /* first byte of the i-th run */
/* Called in order for each range of n bytes that both spans contain. at_a, at_b: its position,
 * counted in bytes of that span. */
typedef mr_status mr_span_both(void *user, int64_t at_a, int64_t at_b, int64_t n);
mr_status mr_span_intersect(const mr_span *a, const mr_span *b, mr_span_both *each, void *user);

enum { MR_SLICE_NAME = MR_ST_NAME_MAX + 320 }; /* room for name[from:to,...] */
/* Name and shape of an item's part in the rank's file: "x[0:4,8:16]" for a box, "x[0:32]" for a
 * range. *out points to `name`. Errors: MR_E_RANGE the part is not inside the tensor; MR_E_FORMAT a
 * bad shape */
mr_status mr_ckpt_slice_item(const mr_ckpt_item *item, char *name, size_t cap, mr_ckpt_item *out);

#endif
