/* index: the list of samples from folders and tables; it is stored on disk.
 * Licence: Apache-2.0 */
#include "index/list.h"

#include <stdio.h>
#include <string.h>

enum { PART_ROWS = 64 };

mr_status index_source_init(index_source *s, const char *near, const char *name)
{
    memset(s, 0, sizeof *s);
    mr_arena_init(&s->arena);
    s->notes = "";
    snprintf(s->near, sizeof s->near, "%s", near);
    snprintf(s->name, sizeof s->name, "%s", name);
    if (!(s->hash = mr_hasher_new()))
        return mr_fail_memory(0);
    MR_TRY(index_spill_new(near, &s->rows));
    return index_sorter_new(near, &s->keys);
}

mr_status index_source_add(index_source *s, const index_input *given)
{
    index_input in = *given;
    // blocks of rows go to the parts in turn
    if (s->seen++ / PART_ROWS % (uint64_t)MR_MAX(s->parts, 1) != (uint64_t)MR_MAX(s->part - 1, 0))
        return index_source_check(s);
    char why[INDEX_FAULT];
    mr_hash128 key;
    uint64_t place;
    mr_hasher_add(s->hash, in.path, strlen(in.path) + 1);
    if (in.text)
        mr_hasher_add(s->hash, in.text, index_input_text_bytes(&in));
    if (in.n_numbers)
        mr_hasher_add(s->hash, in.numbers, (size_t)in.n_numbers * sizeof(uint64_t));
    if (in.start_us || in.end_us) {
        mr_hasher_add(s->hash, &in.start_us, sizeof in.start_us);
        mr_hasher_add(s->hash, &in.end_us, sizeof in.end_us);
    }
    MR_TRY(index_source_check(s));
    bool has_key = index_validate_row(s, &in, why, &key);
    s->text_bytes += in.text ? strlen(in.text) : 0;
    index_input_pack(&s->record, &in);
    if (s->record.failed)
        return mr_fail_memory(s->record.cap * 2);
    MR_TRY(index_spill_put(s->rows, s->record.bytes, s->record.n, &place));
    if (has_key)
        MR_TRY(index_sorter_add_key(s->keys, (index_keymap_entry){key.hi, key.lo, place}));
    s->n++;
    return MR_OK;
}

mr_status index_source_end(index_source *s)
{
    s->at = index_spill_read(s->rows, 0, UINT64_MAX);
    s->first = index_spill_read(s->rows, 0, UINT64_MAX);
    return index_validate_keys(s);
}

mr_status index_source_take(index_source *s, index_pack *room, index_input *in)
{
    const uint8_t *record;
    size_t n;
    uint64_t place;
    MR_TRY(index_spill_next(&s->at, &record, &n, &place));
    if (!record)
        return mr_fail(MR_E_RANGE, "the list has %llu rows", (unsigned long long)s->n);
    room->n = 0, room->failed = false;
    index_put(room, record, n);
    if (room->failed)
        return mr_fail_memory(n);
    *in = index_input_of(room->bytes);
    return index_validate_double(s, place, room, in);
}

void index_source_fini(index_source *s)
{
    index_spill_reader_fini(&s->at);
    index_spill_reader_fini(&s->first);
    index_spill_free(s->rows);
    index_sorter_free(s->keys);
    index_sorter_free(s->doubles);
    mr_hasher_free(s->hash);
    mr_free(s->record.bytes);
    mr_arena_fini(&s->arena);
}
