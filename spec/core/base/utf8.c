/* base/utf8: each code point has one form, and all other bytes are invalid. */
#include "check.h"

/* The bytes of a code point, by the definition. */
static size_t encode(uint32_t code, char out[4])
{
    static const unsigned char leads[] = {0x00, 0xc0, 0xe0, 0xf0};
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(leads[n - 1] | code);
    return n;
}

static void all_code_points(void)
{
    int wrong = 0;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char bytes[5] = {0};
        uint32_t got = UINT32_MAX;
        size_t n = encode(code, bytes);
        bool surrogate = code >= 0xd800 && code < 0xe000;
        wrong += mr_utf8(bytes, 4, &got) != (surrogate ? 0 : n) || (!surrogate && got != code);
        wrong += mr_utf8(bytes, n - 1, &got) != 0; // cut off
    }
    CHECK_INT(wrong, 0);
}

int main(void)
{
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x80\x80",
                                      "\xe0\x9f\xbf",
                                      "\xf0\x80\x80\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xc3(",
                                      "\xe2\x82(",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xfe"};
    uint32_t code;
    all_code_points();
    for (size_t i = 0; i < MR_COUNT(bad); i++)
        CHECK_INT(mr_utf8(bad[i], strlen(bad[i]), &code), 0);
    return check_done();
}
