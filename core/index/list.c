/* index: the list of samples that folders and tables fill; it lies on the disk. Licence:
 * Apache-2.0 */
#include "index/room.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HAS_TEXT = 1, HAS_FAULT = 2, PART_ROWS = 64, NUMBER_BYTES = 8 };

mr_number index_input_number(const index_input *in, int32_t i)
{
    mr_number value = {.f = NAN};
    if (i >= in->n_numbers)
        return value;
    value.whole = in->wholes >> i & 1;
    memcpy(&value.i, (const char *)in->numbers + (size_t)i * NUMBER_BYTES, NUMBER_BYTES);
    return value;
}

size_t index_input_text_bytes(const index_input *in)
{
    size_t n = 0;
    for (int32_t i = 0; in->text && i <= in->more; i++)
        n += strlen(in->text + n) + 1;
    return n;
}

static void put_text(index_pack *p, const char *text)
{
    index_put(p, text, strlen(text) + 1);
}

void index_input_pack(index_pack *p, const index_input *in)
{
    p->n = 0, p->failed = false;
    put_text(p, in->path);
    index_put_int(p, in->line, 8);
    index_put_int(p, (uint64_t)in->start_us, 8);
    index_put_int(p, (uint64_t)in->end_us, 8);
    index_put_int(p, (in->text ? HAS_TEXT : 0) | (in->fault ? HAS_FAULT : 0), 1);
    index_put_int(p, (uint64_t)in->more, 1);
    index_put_int(p, (uint64_t)in->n_numbers, 1);
    index_put_int(p, in->wholes, 4);
    if (in->n_numbers)
        index_put(p, in->numbers, (size_t)in->n_numbers * NUMBER_BYTES);
    if (in->text)
        index_put(p, in->text, index_input_text_bytes(in));
    if (in->fault) {
        put_text(p, in->class);
        put_text(p, in->fault);
    }
}

static const char *get_text(const uint8_t **at)
{
    const char *text = (const char *)*at;
    *at += strlen(text) + 1;
    return text;
}

index_input index_input_of(const uint8_t *record)
{
    index_input in = {.path = get_text(&record)};
    memcpy(&in.line, record, 8);
    memcpy(&in.start_us, record + 8, 8);
    memcpy(&in.end_us, record + 16, 8);
    int has = record[24];
    in.more = record[25], in.n_numbers = record[26];
    memcpy(&in.wholes, record + 27, 4);
    in.numbers = record + 31;
    record += 31 + (size_t)in.n_numbers * NUMBER_BYTES;
    if (has & HAS_TEXT) {
        in.text = (const char *)record;
        record += index_input_text_bytes(&in);
    }
    if (has & HAS_FAULT) {
        in.class = get_text(&record);
        in.fault = get_text(&record);
    }
    return in;
}

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

mr_status index_source_check(const index_source *s)
{
    return s->stop ? mr_fail(MR_E_STOPPED, "stopped while the list was read") : MR_OK;
}

mr_status index_source_add(index_source *s, const index_input *given)
{
    index_input in = *given;
    // parts take blocks of rows in turn
    if (s->seen++ / PART_ROWS % (uint64_t)MR_MAX(s->parts, 1) != (uint64_t)MR_MAX(s->part - 1, 0))
        return index_source_check(s);
    char why[INDEX_FAULT];
    mr_hash128 key;
    uint64_t place;
    mr_hasher_add(s->hash, in.path, strlen(in.path) + 1);
    if (in.text)
        mr_hasher_add(s->hash, in.text, index_input_text_bytes(&in));
    if (in.n_numbers)
        mr_hasher_add(s->hash, in.numbers, (size_t)in.n_numbers * NUMBER_BYTES);
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
