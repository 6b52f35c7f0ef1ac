/* dynamic8: the 256 values of 8-bit codes, relative to the largest magnitude of a block. They cover
 * seven decades; each decade has twice as many equal parts as the one below it, and the last value
 * is 1. With signs, code 127 is zero and each sign has half of the parts; without, code 0 is zero.
 *
 * Ref: Dettmers 2015, arXiv:1511.04561; Dettmers et al. 2021, arXiv:2110.02861. For C and CUDA,
 * which define FORMULA. Licence: Apache-2.0 */
#ifndef MR_DYNAMIC8_H
#define MR_DYNAMIC8_H

enum { DYNAMIC8_CODES = 256, DYNAMIC8_DECADES = 7 };

/* The value of a code, 0 to 255: the middle of its part. A larger code has a larger value. */
FORMULA float dynamic8_value(bool has_sign, int code)
{
    const int zero = has_sign ? 127 : 0;
    if (code == 255)
        return 1;
    // decades have 1, 2, 4 ... parts with signs, and 2, 4, 8 ... without
    int distance = code < zero ? zero - code : code - zero, parts = has_sign ? 1 : 2, decade = 0;
    if (distance == 0)
        return 0;
    for (; distance > parts; decade++) {
        distance -= parts;
        parts *= 2;
    }
    float top = 1;
    for (int i = decade + 1; i < DYNAMIC8_DECADES; i++)
        top *= 0.1f;
    float middle = ((float)distance - 0.5f) / (float)parts, value = top * (0.1f + 0.9f * middle);
    return code < zero ? -value : value;
}

/* The border between a code and the next one; infinity for the last code. */
FORMULA float dynamic8_border(bool has_sign, int code)
{
    if (code == DYNAMIC8_CODES - 1)
        return INFINITY;
    return 0.5f * (dynamic8_value(has_sign, code) + dynamic8_value(has_sign, code + 1));
}

/* The code of the part that contains `share`, -1 to 1. It is the code of the nearest value, or off
 * by one where two decades meet or a product is rounded. There is no branch, so that loops over it
 * are vectorised. */
FORMULA int dynamic8_part(bool has_sign, float share)
{
    float size = fabsf(share) < 1 ? fabsf(share) : 1;
    float top = 1, parts = has_sign ? 64 : 128;
    float low = 0.1f, first = parts, per = parts / 0.9f;
    for (int i = 1; i < DYNAMIC8_DECADES; i++) {
        top *= 0.1f;
        parts *= 0.5f;
        bool below = size < top;
        low = below ? 0.1f * top : low;
        first = below ? parts : first;
        per = below ? parts / (0.9f * top) : per;
    }
    float part = (size - low) * per;
    int distance = (int)(first + (part > 0 ? part : 0)) - (has_sign ? 0 : 1);
    int code = !has_sign ? distance : share < 0 ? 127 - distance : 127 + distance;
    return code < 0 ? 0 : code > 255 ? 255 : code;
}

/* The code whose value is nearest to `share`: the number of borders below it. */
FORMULA int dynamic8_code(bool has_sign, float share)
{
    int code = dynamic8_part(has_sign, share);
    if (code > 0 && !(dynamic8_border(has_sign, code - 1) < share))
        return code - 1;
    return dynamic8_border(has_sign, code) < share ? code + 1 : code;
}

/* From a number to the value that is encoded, its square root or itself, and back. */
FORMULA float dynamic8_kept(bool root, float x)
{
    return root ? sqrtf(x) : x;
}
FORMULA float dynamic8_number(bool root, float kept)
{
    return root ? kept * kept : kept;
}

#endif
