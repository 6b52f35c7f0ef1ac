/* token: splits a text into words as CLIP's tokenizer does before byte pair encoding.
 * Licence: Apache-2.0 */
#include "token/room.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { TEXT_MAX = 64 << 20 };

/* ---- the normal form ---- */

/* Compose a text (NFC); a byte that is not valid UTF-8 becomes U+FFFD. Caller frees *out with
 * free(). */
static mr_status composed(const char *text, size_t bytes, utf8proc_uint8_t **out, size_t *n)
{
    mr_text clean = {0};
    for (size_t at = 0, taken; at < bytes; at += MR_MAX(taken, (size_t)1)) {
        uint32_t code;
        taken = mr_utf8(text + at, bytes - at, &code);
        mr_text_put(&clean, taken ? text + at : MR_TOKEN_REPLACE, taken ? taken : 3);
    }
    mr_status st = clean.failed ? mr_fail_memory(bytes) : MR_OK;
    utf8proc_ssize_t got = 0;
    if (!st && clean.used)
        got = utf8proc_map((const utf8proc_uint8_t *)clean.data, (utf8proc_ssize_t)clean.used, out,
                           UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (got < 0)
        st = mr_fail(MR_E_MEMORY, "cannot normalize a text of %zu bytes to NFC: %s", bytes,
                     utf8proc_errmsg(got));
    mr_free(clean.data);
    *n = st ? 0 : (size_t)got;
    return st;
}

/* ---- one character ---- */

typedef enum kind { SPACE, LETTER, NUMBER, OTHER } kind;

static kind kind_of(utf8proc_int32_t c)
{
    if ((c >= 9 && c <= 13) || c == 0x85)
        return SPACE;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return SPACE;
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return NUMBER;
    default: return OTHER;
    }
}

static void put(mr_text *out, utf8proc_int32_t c)
{
    utf8proc_uint8_t bytes[4];
    mr_text_put(out, (const char *)bytes, (size_t)utf8proc_encode_char(c, bytes));
}

/* Append a character in lower case, and any kind of space as ' '. The lower case of one capital has
 * two characters, which utf8proc_tolower cannot return. */
static void put_small(mr_text *out, utf8proc_int32_t c)
{
    enum { CAPITAL_I_WITH_DOT = 0x130, DOT_ABOVE = 0x307 };
    if (c == CAPITAL_I_WITH_DOT) {
        put(out, 'i');
        put(out, DOT_ABOVE);
    } else {
        put(out, kind_of(c) == SPACE ? ' ' : utf8proc_tolower(c));
    }
}

static mr_status small(const utf8proc_uint8_t *text, size_t n, mr_text *out)
{
    for (size_t at = 0; at < n;) {
        utf8proc_int32_t c;
        at += (size_t)utf8proc_iterate(text + at, (utf8proc_ssize_t)(n - at), &c);
        put_small(out, c);
    }
    return out->failed ? mr_fail_memory(n) : MR_OK;
}

/* ---- words ---- */

static size_t begins_with(mr_lent rest, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t m = strlen(list[i]);
        if (rest.n >= m && memcmp(rest.at, list[i], m) == 0)
            return m;
    }
    return 0;
}

/* The length of the first word of a text that does not begin with a space: an ending behind an
 * apostrophe, a run of letters, one number, or a run of other characters. */
static size_t front(mr_lent rest)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    size_t taken = begins_with(rest, endings, MR_COUNT(endings));
    kind first = OTHER;
    if (taken)
        return taken;
    while (taken < rest.n) {
        utf8proc_int32_t c;
        size_t n = (size_t)utf8proc_iterate((const utf8proc_uint8_t *)rest.at + taken,
                                            (utf8proc_ssize_t)(rest.n - taken), &c);
        kind k = kind_of(c);
        if (taken && k != first)
            break;
        first = k;
        taken += n;
        if (k == NUMBER)
            break;
    }
    return taken;
}

mr_status mr_token_words(const char *text, size_t bytes, char **out, size_t *n)
{
    *out = NULL;
    if (bytes > TEXT_MAX)
        return mr_fail(MR_E_RANGE,
                       "cannot split a text of %zu bytes into words; expected at most %d", bytes,
                       TEXT_MAX);
    utf8proc_uint8_t *normal = NULL;
    mr_text all = {0}, words = {0};
    mr_status st = composed(text, bytes, &normal, n);
    if (!st)
        st = small(normal, *n, &all);
    for (size_t at = 0, taken; !st && at < all.used; at += taken) {
        mr_lent rest = {all.data + at, all.used - at};
        taken = *rest.at == ' ' ? 1 : front(rest);
        if (*rest.at != ' ' && words.used)
            mr_text_put(&words, " ", 1);
        if (*rest.at != ' ')
            mr_text_put(&words, rest.at, taken);
    }
    free(normal);
    mr_free(all.data);
    return mr_token_take(&words, st, out, n);
}
