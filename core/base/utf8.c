/* base: checks UTF-8. Ref: Unicode Standard, table 3-7. Licence: Apache-2.0 */
#include "moonreel/base.h"

size_t mr_utf8(const char *text, size_t n, uint32_t *code)
{
    // for 1 to 4 bytes: the pattern of the first byte, and the smallest code point of this length
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    const unsigned char *s = (const unsigned char *)text;
    for (size_t k = 0; k < MR_COUNT(forms) && n; k++) {
        if ((s[0] & forms[k].mask) != forms[k].lead)
            continue;
        if (k >= n)
            return 0;
        uint32_t value = s[0] & (unsigned char)~forms[k].mask;
        for (size_t i = 1; i <= k; i++) {
            if ((s[i] & 0xc0) != 0x80)
                return 0;
            value = value << 6 | (s[i] & 0x3f);
        }
        if (value < forms[k].least || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
            return 0;
        *code = value;
        return k + 1;
    }
    return 0;
}
