/* index: refuses rows before their file is read: captions that are unfit for training, and
 * duplicate samples. Licence: Apache-2.0 */
#include "index/list.h"

#include <stdio.h>
#include <string.h>

// keeps the first reason to refuse a row
static void refuse(index_input *in, const char *class, const char *why)
{
    if (!in->fault)
        in->class = class, in->fault = why;
}

bool index_validate_row(const index_source *s, index_input *in, char why[INDEX_FAULT],
                        mr_hash128 *key)
{
    char full[4096];
    const char *relative;
    const char *text = in->text;
    for (int32_t i = 0; in->text && i <= in->more; i++, text += strlen(text) + 1)
        if (index_caption_bad(text, why)) {
            in->text = NULL, in->more = 0;
            refuse(in, "caption", why);
        }
    if (index_source_path(s, in->path, full, &relative) != MR_OK) {
        if (!in->fault)
            snprintf(why, INDEX_FAULT, "%s", mr_error_last()->text);
        refuse(in, "open", why);
        return false;
    }
    *key = mr_sample_key(s->name, relative, in->start_us, in->end_us ? in->end_us : -1);
    return true;
}

// In the sorted keys, duplicates are adjacent, the first of the list before the others.
mr_status index_validate_keys(index_source *s)
{
    index_keymap_entry e, first = {0};
    bool more, any = false;
    MR_TRY(index_sorter_new(s->near, &s->doubles));
    MR_TRY(index_sorter_sort(s->keys));
    for (;;) {
        MR_TRY(index_sorter_next_key(s->keys, &e, &more));
        if (!more)
            break;
        MR_TRY(index_source_check(s));
        if (any && e.hi == first.hi && e.lo == first.lo)
            MR_TRY(index_sorter_add_key(s->doubles, (index_keymap_entry){e.id, first.id, 0}));
        else
            first = e, any = true;
    }
    index_sorter_free(s->keys);
    s->keys = NULL;
    MR_TRY(index_sorter_sort(s->doubles));
    return index_sorter_next_key(s->doubles, &s->next, &s->has_next);
}

mr_status index_validate_double(index_source *s, uint64_t place, index_pack *room, index_input *in)
{
    char why[INDEX_FAULT];
    const uint8_t *record;
    size_t n, behind = room->n;
    if (!s->has_next || s->next.hi != place)
        return MR_OK;
    index_spill_seek(&s->first, s->next.lo);
    MR_TRY(index_sorter_next_key(s->doubles, &s->next, &s->has_next));
    if (in->fault)
        return MR_OK;
    MR_TRY(index_spill_next(&s->first, &record, &n, &place));
    index_input first = index_input_of(record);
    snprintf(why, sizeof why, "%.4000s: the same sample as row %llu (%.200s)", in->path,
             (unsigned long long)first.line, first.path);
    index_put(room, why, strlen(why) + 1);
    if (room->failed)
        return mr_fail_memory(room->cap * 2);
    // the append may have moved the texts
    *in = index_input_of(room->bytes);
    refuse(in, "duplicate", (const char *)room->bytes + behind);
    return MR_OK;
}
