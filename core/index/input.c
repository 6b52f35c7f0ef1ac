/* index: serialises one sample of the input. Licence: Apache-2.0 */
#include "index/list.h"

#include <math.h>
#include <string.h>

enum { HAS_TEXT = 1, HAS_FAULT = 2, NUMBER_BYTES = 8 };

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

mr_status index_source_check(const index_source *s)
{
    return s->stop ? mr_fail(MR_E_STOPPED, "stopped while the list was read") : MR_OK;
}
