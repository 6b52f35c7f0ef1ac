/* ckpt: the image of a shard in a host buffer. Inside the room. Licence: Apache-2.0 */
#ifndef MR_CKPT_SNAPSHOT_H
#define MR_CKPT_SNAPSHOT_H

#include "manifest.h"

/* Names, shapes and places of the tensors; the same for every save of a run. */
typedef struct mr_snapshot_layout {
    mr_arena arena;
    mr_ckpt_item *items; /* without data */
    int64_t *offsets;    /* from the start of the file */
    int n;
    char *header; /* first bytes of the file; NULL: nothing laid out yet */
    int64_t header_bytes, total;
} mr_snapshot_layout;

void mr_snapshot_init(mr_snapshot_layout *l);
void mr_snapshot_drop(mr_snapshot_layout *l);
bool mr_snapshot_fits(const mr_snapshot_layout *l, const mr_ckpt_item *items, int n);
mr_status mr_snapshot_make(mr_snapshot_layout *l, const mr_ckpt_item *items, int n);

/* Copy header and tensors to `image` (l->total bytes) and hash each block into `blocks`. Copy
 * functions of items are called from this thread only, in file order; helper threads do the rest
 * beside it and end before this returns. Errors: what an item's copy function returns. */
mr_status mr_snapshot_copy(const mr_snapshot_layout *l, const mr_ckpt_item *items, char *image,
                           mr_hash128 *blocks);

#endif
