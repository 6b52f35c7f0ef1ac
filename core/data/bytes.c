/* data: growing output and checked input of bytes, little endian. Licence: Apache-2.0 */
#include "data/data.h"

#include <string.h>

void data_put(data_pack *p, const void *bytes, size_t n)
{
    if (p->failed)
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

void data_put_int(data_pack *p, uint64_t value, int bytes)
{
    data_put(p, &value, (size_t)bytes);
}

void data_put_varint(data_pack *p, uint64_t value)
{
    do {
        uint8_t b = (uint8_t)(value & 127) | (value > 127 ? 128 : 0);
        data_put(p, &b, 1);
        value >>= 7;
    } while (value);
}

void data_put_text(data_pack *p, const char *text, int length_bytes)
{
    size_t n = strlen(text), most = length_bytes == 1   ? 255
                                    : length_bytes == 2 ? 65535
                                                        : UINT32_MAX;
    n = MR_MIN(n, most);
    data_put_int(p, n, length_bytes);
    data_put(p, text, n);
}

const uint8_t *data_get(data_view *v, size_t n)
{
    if (v->failed || (size_t)(v->end - v->at) < n) {
        v->failed = true;
        return NULL;
    }
    v->at += n;
    return v->at - n;
}

uint64_t data_get_int(data_view *v, int bytes)
{
    uint64_t value = 0;
    const uint8_t *p = data_get(v, (size_t)bytes);
    if (p)
        memcpy(&value, p, (size_t)bytes);
    return value;
}

uint64_t data_get_varint(data_view *v)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t *p = data_get(v, 1);
        if (!p)
            return 0;
        value |= (uint64_t)(*p & 127) << shift;
        if (!(*p & 128))
            return value;
    }
    v->failed = true;
    return 0;
}
