/* ckpt, inside: the image of a shard, or of a part of it, in a host buffer. Licence: Apache-2.0 */
#ifndef MR_CKPT_SNAPSHOT_H
#define MR_CKPT_SNAPSHOT_H

#include "moonreel/ckpt.h"

/* Names, shapes and offsets of the tensors; equal for every save of a run. */
typedef struct mr_snapshot_layout {
    mr_arena arena;
    mr_ckpt_item *items; /* without data */
    int64_t *offsets;    /* from the start of the file */
    int n;
    char *header; /* first bytes of the file; NULL: no layout yet */
    int64_t header_bytes, total;
} mr_snapshot_layout;

void mr_snapshot_init(mr_snapshot_layout *l);
void mr_snapshot_drop(mr_snapshot_layout *l);
bool mr_snapshot_fits(const mr_snapshot_layout *l, const mr_ckpt_item *items, int n);
mr_status mr_snapshot_make(mr_snapshot_layout *l, const mr_ckpt_item *items, int n);

/* Copy bytes [at, at + n) of header and tensors to `image`, and hash each block into `blocks`,
 * which has one for each of all l->total bytes; `at` is a multiple of a block, and so is n, unless
 * it reaches to the end. Copy functions of items are called from this thread only, in file order;
 * helper threads do the rest in parallel with it and end before this returns. Errors: what an
 * item's copy function returns. */
mr_status mr_snapshot_copy(const mr_snapshot_layout *l, const mr_ckpt_item *items, int64_t at,
                           int64_t n, char *image, mr_hash128 *blocks);

#endif
