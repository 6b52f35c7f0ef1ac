/* token: reads the fields of protobuf messages in order. Ref: protobuf encoding, "wire format".
 * Licence: Apache-2.0 */
#include "token/room.h"

#include <string.h>

static bool take_varint(mr_lent *rest, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && rest->n; shift += 7) {
        unsigned char byte = (unsigned char)*rest->at++;
        rest->n--;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool take_fixed(mr_lent *rest, size_t n, uint64_t *out)
{
    if (rest->n < n)
        return false;
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out |= (uint64_t)(unsigned char)rest->at[i] << 8 * i;
    rest->at += n, rest->n -= n;
    return true;
}

static bool take_text(mr_lent *rest, mr_lent *out)
{
    uint64_t n;
    if (!take_varint(rest, &n) || n > rest->n)
        return false;
    *out = (mr_lent){rest->at, (size_t)n};
    rest->at += n, rest->n -= (size_t)n;
    return true;
}

bool mr_field_next(mr_lent *rest, mr_field *out, bool *damaged)
{
    uint64_t tag;
    *out = (mr_field){0};
    if (!rest->n)
        return false;
    bool good = take_varint(rest, &tag) && tag >> 3;
    if (good) {
        out->number = tag >> 3, out->wire_type = tag & 7;
        switch (out->wire_type) {
        case MR_WIRE_INT: good = take_varint(rest, &out->value); break;
        case MR_WIRE_8: good = take_fixed(rest, 8, &out->value); break;
        case MR_WIRE_4: good = take_fixed(rest, 4, &out->value); break;
        case MR_WIRE_TEXT: good = take_text(rest, &out->text); break;
        default: good = false; // groups are obsolete
        }
    }
    *damaged = *damaged || !good;
    return good;
}

float mr_field_float(const mr_field *f)
{
    uint32_t bits = (uint32_t)f->value;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
