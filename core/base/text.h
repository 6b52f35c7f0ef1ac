/* base, inside: a text buffer that grows. After a failed allocation the buffer stays failed, so the
 * caller checks once at the end.
 * Licence: Apache-2.0 */
#ifndef MR_BASE_TEXT_H
#define MR_BASE_TEXT_H

#include "moonreel/base.h"

#include <stdio.h>
#include <string.h>

typedef struct mr_text {
    char *data;
    size_t used, cap;
    bool failed;
} mr_text;

MR_PRINTF(2, 3) static inline void mr_text_add(mr_text *t, const char *fmt, ...)
{
    for (int round = 0; round < 2 && !t->failed; round++) {
        va_list ap;
        va_start(ap, fmt);
        size_t room = t->cap - t->used;
        size_t n = (size_t)vsnprintf(t->data ? t->data + t->used : NULL, room, fmt, ap);
        va_end(ap);
        if (n < room) {
            t->used += n;
            return;
        }
        size_t cap = t->cap * 2 + n + 256;
        char *data = mr_realloc(t->data, cap);
        if (!data)
            t->failed = true;
        else
            t->data = data, t->cap = cap;
    }
}

/* Adds any bytes and keeps a zero after them. */
static inline void mr_text_put(mr_text *t, const void *data, size_t n)
{
    if (t->cap - t->used <= n) {
        size_t cap = t->cap * 2 + n + 256;
        char *grown = t->failed ? NULL : mr_realloc(t->data, cap);
        if (!grown) {
            t->failed = true;
            return;
        }
        t->data = grown, t->cap = cap;
    }
    memcpy(t->data + t->used, data, n);
    t->used += n;
    t->data[t->used] = 0;
}

/* Gives the text to the caller (free with mr_free), or fails with MR_E_MEMORY. */
static inline mr_status mr_text_end(mr_text *t, char **out)
{
    if (!t->data)
        mr_text_add(t, "%s", "");
    if (t->failed) {
        mr_free(t->data);
        return mr_fail_memory(t->cap * 2 + 256);
    }
    *out = t->data;
    return MR_OK;
}

#endif
