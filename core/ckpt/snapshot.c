/* ckpt: copies a shard into host memory. The training step waits for this copy only. Hashing a
 * block costs about as much as copying it, so helper threads share the work (promise P7 of
 * reliability: 1.3 x the copy). Licence: Apache-2.0 */
#define _DEFAULT_SOURCE
#include "ckpt/blocks.h"
#include "ckpt/snapshot.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { HELPERS_MAX = 3, HELPERS_FROM_BLOCKS = 8 };

void mr_snapshot_init(mr_snapshot_layout *l)
{
    *l = (mr_snapshot_layout){0};
    mr_arena_init(&l->arena);
}

void mr_snapshot_drop(mr_snapshot_layout *l)
{
    mr_free(l->header);
    mr_arena_fini(&l->arena);
    mr_snapshot_init(l);
}

static bool same_slice(const mr_ckpt_item *a, const mr_ckpt_item *b)
{
    int n = a->slice.cut == MR_CKPT_BOX ? a->rank : a->slice.cut == MR_CKPT_RANGE ? 1 : 0;
    return a->slice.cut == b->slice.cut &&
           memcmp(a->slice.from, b->slice.from, sizeof a->slice.from[0] * (size_t)n) == 0 &&
           memcmp(a->slice.to, b->slice.to, sizeof a->slice.to[0] * (size_t)n) == 0;
}

bool mr_snapshot_fits(const mr_snapshot_layout *l, const mr_ckpt_item *items, int n)
{
    if (!l->header || l->n != n)
        return false;
    for (int i = 0; i < n; i++) {
        const mr_ckpt_item *a = &l->items[i], *b = &items[i];
        if (a->dtype != b->dtype || a->rank != b->rank || strcmp(a->name, b->name))
            return false;
        if (memcmp(a->shape, b->shape, sizeof a->shape[0] * (size_t)a->rank))
            return false;
        if (!same_slice(a, b))
            return false;
    }
    return true;
}

static mr_status lay_out(mr_snapshot_layout *l, const mr_ckpt_item *items, int n)
{
    static const mr_st_pair format = {"format", "moonreel"};
    l->items = mr_arena_alloc(&l->arena, sizeof *items * (size_t)n);
    l->offsets = mr_arena_alloc(&l->arena, sizeof *l->offsets * (size_t)n);
    // in the file, a part of a tensor is a separate tensor
    mr_ckpt_item *parts = mr_arena_alloc(&l->arena, sizeof *parts * (size_t)n);
    if (!l->items || !l->offsets || !parts)
        return mr_fail_memory(sizeof *items * (size_t)n);
    for (int i = 0; i < n; i++) {
        char name[MR_SLICE_NAME];
        l->items[i] = items[i];
        l->items[i].data = NULL, l->items[i].copy = NULL;
        if (!(l->items[i].name = mr_arena_strdup(&l->arena, items[i].name)))
            return mr_fail_memory(64);
        MR_TRY(mr_ckpt_slice_item(&l->items[i], name, sizeof name, &parts[i]));
        if (!(parts[i].name = mr_arena_strdup(&l->arena, name)))
            return mr_fail_memory(64);
    }
    l->n = n;
    return mr_safetensors_header(parts, n, &format, 1, &l->header, &l->header_bytes, l->offsets,
                                 &l->total);
}

mr_status mr_snapshot_make(mr_snapshot_layout *l, const mr_ckpt_item *items, int n)
{
    mr_snapshot_drop(l);
    mr_status st = lay_out(l, items, n);
    if (st != MR_OK)
        mr_snapshot_drop(l);
    return st;
}

/* ---- copy and hash ---- */

/* Each thread takes block numbers. If all tensors are in host memory, it copies and hashes these
 * blocks. Only the caller's thread calls a copy function: it copies all blocks in order, and the
 * other threads hash blocks [first, copied). */
typedef struct work {
    const mr_snapshot_layout *l;
    const mr_ckpt_item *items;
    char *image; // from block `first` on
    mr_hash128 *blocks;
    int64_t first, end; // blocks
    bool host;
    _Atomic int64_t copied, drawn; // blocks before these numbers
    _Atomic bool given_up;
} work;

/* The last item that starts at or before byte `at`. If several start at the same byte, all but the
 * last are empty. */
static int item_at(const mr_snapshot_layout *l, int64_t at)
{
    int lo = 0, hi = l->n - 1;
    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2;
        if (l->offsets[mid] <= at)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static char *place_of(const work *w, int64_t block)
{
    return w->image + (block - w->first) * MR_CKPT_BLOCK;
}

static mr_status copy_block(const work *w, int64_t block)
{
    const mr_snapshot_layout *l = w->l;
    int64_t at = block * MR_CKPT_BLOCK, end = MR_MIN(at + MR_CKPT_BLOCK, l->total);
    char *out = place_of(w, block);
    if (at < l->header_bytes) {
        int64_t stop = MR_MIN(l->header_bytes, end);
        memcpy(out, l->header + at, (size_t)(stop - at));
        out += stop - at, at = stop;
    }
    for (int i = item_at(l, at); at < end; i++) {
        const mr_ckpt_item *item = &w->items[i];
        int64_t from = at - l->offsets[i],
                stop = MR_MIN(i + 1 < l->n ? l->offsets[i + 1] : l->total, end);
        if (stop == at)
            continue;
        if (item->copy)
            MR_TRY(item->copy(item->user, out, from, stop - at));
        else
            memcpy(out, (const char *)item->data + from, (size_t)(stop - at));
        out += stop - at, at = stop;
    }
    return MR_OK;
}

static void *take_blocks(void *arg)
{
    work *w = arg;
    for (int64_t i; (i = w->drawn++) < w->end;) {
        if (w->host)
            (void)copy_block(w, i); // a copy in host memory cannot fail
        // the copy is at most a few blocks behind; a failed copy ends this wait too
        else
            while (w->copied <= i) {
                if (w->given_up)
                    return NULL;
                sched_yield();
            }
        int64_t n = MR_MIN(w->l->total - i * MR_CKPT_BLOCK, (int64_t)MR_CKPT_BLOCK);
        w->blocks[i] = mr_hash128_of(place_of(w, i), (size_t)n);
    }
    return NULL;
}

mr_status mr_snapshot_copy(const mr_snapshot_layout *l, const mr_ckpt_item *items, int64_t at,
                           int64_t bytes, char *image, mr_hash128 *blocks)
{
    const int64_t first = at / MR_CKPT_BLOCK;
    work w = {.l = l,
              .items = items,
              .image = image,
              .blocks = blocks,
              .first = first,
              .end = first + mr_ckpt_blocks(bytes),
              .host = true,
              .copied = first,
              .drawn = first};
    for (int i = 0; i < l->n; i++)
        w.host = w.host && !items[i].copy;
    pthread_t helpers[HELPERS_MAX];
    int n = w.end - w.first < HELPERS_FROM_BLOCKS
                ? 0
                : mr_ckpt_helpers(HELPERS_MAX, take_blocks, &w, helpers);
    mr_status st = MR_OK;
    for (int64_t i = first; !w.host && i < w.end && st == MR_OK; i++)
        if ((st = copy_block(&w, i)) == MR_OK)
            w.copied = i + 1;
    if (st != MR_OK)
        w.given_up = true;
    else
        take_blocks(&w);
    for (int i = 0; i < n; i++)
        pthread_join(helpers[i], NULL);
    return st;
}
