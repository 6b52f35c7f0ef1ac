/* index, inside: records on disk instead of in memory, and their order. Licence: Apache-2.0 */
#ifndef MR_INDEX_SORT_H
#define MR_INDEX_SORT_H

#include "moonreel/index.h"

/* ---- spill.c: records on disk instead of in memory ---- */

/* A sequence of records. The last block is in memory, all others are in an unlinked file in the
 * folder of `near`, or in its nearest parent that exists. A place identifies a record; places
 * increase. Errors: MR_E_MEMORY; MR_E_IO the disk is full, or a block is damaged; MR_E_STOPPED */
typedef struct index_spill index_spill;
#define INDEX_SPILL_ENDING ".spill" /* of the temporary name, on file systems that need one */
mr_status index_spill_new(const char *near, index_spill **out);
void index_spill_free(index_spill *s); /* NULL is fine */
mr_status index_spill_put(index_spill *s, const void *record, size_t n, uint64_t *place);
/* End the block. *blocks: the number of blocks so far. */
mr_status index_spill_cut(index_spill *s, uint64_t *blocks);

typedef struct index_spill_reader {
    index_spill *spill;
    uint64_t block, to, loaded;
    size_t at, n, cap;
    const uint8_t *bytes;
    uint8_t *room;
} index_spill_reader;
/* Read the blocks from `from` to `to` - 1; UINT64_MAX: to the end. Call it after the last put. */
index_spill_reader index_spill_read(index_spill *s, uint64_t from, uint64_t to);
void index_spill_seek(index_spill_reader *r, uint64_t place);
/* The next record, valid until the next call; NULL after the last one. */
mr_status index_spill_next(index_spill_reader *r, const uint8_t **record, size_t *n,
                           uint64_t *place);
void index_spill_reader_fini(index_spill_reader *r);

/* ---- sort.c: records sorted by their bytes ---- */

typedef struct index_sorter index_sorter;
/* Approximate memory of a run; specs set it to a small value. */
extern size_t index_run_bytes;
/* Errors: those of a spill */
mr_status index_sorter_new(const char *near, index_sorter **out);
void index_sorter_free(index_sorter *s); /* NULL is fine */
mr_status index_sorter_add(index_sorter *s, const void *record, size_t n);
/* Call it after the last add and before the first next. */
mr_status index_sorter_sort(index_sorter *s);
/* The record is valid until the next call; NULL after the last one. */
mr_status index_sorter_next(index_sorter *s, const uint8_t **record, size_t *n);
/* Three numbers as a record, ordered by hi, lo, id. */
typedef struct index_keymap_entry {
    uint64_t hi, lo, id;
} index_keymap_entry;
int index_keymap_compare(const index_keymap_entry *x, const index_keymap_entry *y);
mr_status index_sorter_add_key(index_sorter *s, index_keymap_entry e);
mr_status index_sorter_next_key(index_sorter *s, index_keymap_entry *e, bool *more);

#endif
