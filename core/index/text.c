/* index: texts of others: what a caption may hold, and any bytes as JSON. Licence: Apache-2.0 */
#include "index/room.h"

#include <stdio.h>
#include <string.h>

// bytes of the UTF-8 sequence at p, its code point in *code; 0: there is none
static int utf8(const unsigned char *p, uint32_t *code)
{
    int n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;
    *code = n == 1 ? *p : n == 2 ? *p & 0x1f : n == 3 ? *p & 0x0f : *p & 0x07;
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (p[i] & 0x3f);
    }
    // longer than needed, half of a pair of UTF-16, or beyond the last one
    if ((n == 3 && *code < 0x800) || (n == 4 && (*code < 0x10000 || *code > 0x10ffff)) ||
        (*code >= 0xd800 && *code < 0xe000))
        return 0;
    return n;
}

// tabs and line breaks are control characters that captions have
static bool is_control(uint32_t code)
{
    return (code < 32 && code != '\t' && code != '\n' && code != '\r') ||
           (code >= 0x7f && code < 0xa0);
}

bool index_caption_bad(const char *text, char why[INDEX_WHY])
{
    size_t bytes = strlen(text);
    if (bytes > INDEX_CAPTION_MAX) {
        snprintf(why, INDEX_WHY, "a caption of %zu bytes; expected at most %d", bytes,
                 INDEX_CAPTION_MAX);
        return true;
    }
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        int n = utf8((const unsigned char *)text + at, &code);
        if (!n || is_control(code)) {
            snprintf(why, INDEX_WHY,
                     n ? "a caption with the control character U+%04X at byte %zu"
                       : "a caption that is not UTF-8: %02X at byte %zu",
                     n ? code : (unsigned char)text[at], at);
            return true;
        }
        at += (size_t)n;
    }
    return false;
}

json_t *index_text_json(const char *text)
{
    json_t *whole = json_string(text);
    if (whole)
        return whole;
    // what is not UTF-8 is told byte by byte
    index_pack out = {0};
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        uint32_t code;
        char hex[8];
        int n = utf8(p, &code);
        snprintf(hex, sizeof hex, "\\x%02X", *p);
        index_put(&out, n ? (const void *)p : hex, n ? (size_t)n : 4);
        p += n ? n : 1;
    }
    if (!out.failed)
        whole = json_stringn((const char *)out.bytes, out.n);
    mr_free(out.bytes);
    return whole;
}
