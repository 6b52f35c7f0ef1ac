/* index: untrusted texts: checks captions, and writes any bytes as JSON. Licence: Apache-2.0 */
#include "index/list.h"

#include <stdio.h>
#include <string.h>

// captions may contain tabs and line breaks
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
        // fast path: most text is ASCII
        if (text[at] >= ' ' && text[at] < 0x7f) {
            at++;
            continue;
        }
        uint32_t code;
        size_t n = mr_utf8(text + at, bytes - at, &code);
        if (!n || is_control(code)) {
            snprintf(why, INDEX_WHY,
                     n ? "a caption with the control character U+%04X at byte %zu"
                       : "a caption that is not UTF-8: %02X at byte %zu",
                     n ? code : (unsigned char)text[at], at);
            return true;
        }
        at += n;
    }
    return false;
}
