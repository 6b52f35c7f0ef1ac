/* index: the facts that a builder keeps of each row: hot record, key and hash.
 * Licence: Apache-2.0 */
#include "index/builder.h"

mr_status index_builder_note(mr_index_builder *b, const mr_row *row)
{
    uint64_t id = b->built.rows;
    b->chunk[id % MR_HOT_ROWS] = index_hot_of(row);
    MR_TRY(index_sorter_add_key(b->keys, (index_keymap_entry){row->key.hi, row->key.lo, id}));
    mr_hash128 h = index_row_hash(row);
    mr_hasher_add(b->order, &h, sizeof h);
    b->set.lo += h.lo;
    b->set.hi += h.hi + (b->set.lo < h.lo);
    bool any = false;
    for (int32_t c = 0; c < row->n_captions; c++)
        any |= *row->captions[c].text != 0;
    b->built.rows++, b->built.without_caption += !any;
    return MR_OK;
}
