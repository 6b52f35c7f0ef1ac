/* index: a growing output buffer and bounds-checked input, little endian. Licence: Apache-2.0 */
#include "index/bytes.h"

#include <string.h>

void index_put(index_pack *p, const void *bytes, size_t n)
{
    if (p->failed || !n)
        return;
    if (p->n + n > p->cap) {
        size_t cap = MR_MAX(p->cap * 2, p->n + n + 256);
        uint8_t *more = mr_realloc(p->bytes, cap);
        if (!more) {
            p->failed = true;
            return;
        }
        p->bytes = more, p->cap = cap;
    }
    memcpy(p->bytes + p->n, bytes, n);
    p->n += n;
}

void index_put_int(index_pack *p, uint64_t value, int bytes)
{
    index_put(p, &value, (size_t)bytes);
}

void index_put_varint(index_pack *p, uint64_t value)
{
    do {
        uint8_t b = (uint8_t)(value & 127) | (value > 127 ? 128 : 0);
        index_put(p, &b, 1);
        value >>= 7;
    } while (value);
}

const uint8_t *index_get(index_view *v, size_t n)
{
    if (v->failed || (size_t)(v->end - v->at) < n) {
        v->failed = true;
        return NULL;
    }
    v->at += n;
    return v->at - n;
}

uint64_t index_get_int(index_view *v, int bytes)
{
    uint64_t value = 0;
    const uint8_t *p = index_get(v, (size_t)bytes);
    if (p)
        memcpy(&value, p, (size_t)bytes);
    return value;
}

uint64_t index_get_varint(index_view *v)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t *p = index_get(v, 1);
        if (!p)
            return 0;
        value |= (uint64_t)(*p & 127) << shift;
        if (!(*p & 128))
            return value;
    }
    v->failed = true;
    return 0;
}

void index_note(index_pack *notes, const char *line)
{
    index_put(notes, line, strlen(line));
    index_put(notes, "\n", 1);
}
