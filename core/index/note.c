/* index: what a builder's memory keeps of each row: hot record, key and hash. Licence: Apache-2.0
 */
#include "index/room.h"

mr_status index_builder_note(mr_index_builder *b, const mr_row *row)
{
    uint64_t id = b->built.rows;
    if (id == b->keymap_cap) {
        uint64_t cap = MR_MAX(b->keymap_cap * 2, 4096);
        index_keymap_entry *more = mr_realloc(b->keymap, cap * sizeof *more);
        if (!more)
            return mr_fail_memory(cap * sizeof *more);
        b->keymap = more, b->keymap_cap = cap;
    }
    b->chunk[id % MR_HOT_ROWS] = index_hot_of(row);
    b->keymap[id] = (index_keymap_entry){row->key.hi, row->key.lo, id};
    mr_hash128 h = index_row_hash(row);
    index_put(&b->order_hashes, &h, sizeof h);
    if (b->order_hashes.failed)
        return mr_fail_memory(b->order_hashes.cap * 2);
    b->set.lo += h.lo;
    b->set.hi += h.hi + (b->set.lo < h.lo);
    bool any = false;
    for (int32_t c = 0; c < row->n_captions; c++)
        any |= *row->captions[c].text != 0;
    b->built.rows++, b->built.without_caption += !any;
    return MR_OK;
}
