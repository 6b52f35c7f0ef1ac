/* index: parses a list in Python or JSON syntax in a cell of a table: ['a', "b", None], [[0.5,
 * 1.5]], ('0:00:01', '0:00:02'). Ref: Python 3.11 reference, 2.4.1; RFC 8259.
 * Licence: Apache-2.0 */
#include "index/table.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 8 };

typedef struct reader {
    const char *at;
    int depth;
    bool no_memory;
    index_pack text; // the text being read
} reader;

static json_t *read_value(reader *r);

static json_t *made(reader *r, json_t *value)
{
    r->no_memory |= !value;
    return value;
}

static void skip_blanks(reader *r)
{
    r->at += strspn(r->at, " \t\r\n");
}

/* ---- texts ---- */

static void put_code(index_pack *p, uint32_t c)
{
    char out[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(heads[n] | c);
    index_put(p, out, n);
}

// reads n hexadecimal digits; false: there are fewer
static bool read_hex(reader *r, int n, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < n; i++, r->at++) {
        const char c = *r->at;
        if (!isxdigit((unsigned char)c))
            return false;
        *code = *code << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return true;
}

// Reads an escape sequence after its backslash. An unknown sequence stays as it is.
static bool read_escape(reader *r)
{
    static const char names[] = "abfnrtv\\'\"/", *const values = "\a\b\f\n\r\t\v\\'\"/";
    const char *name = *r->at ? strchr(names, *r->at) : NULL;
    uint32_t code, low;
    int digits = *r->at == 'x' ? 2 : *r->at == 'u' ? 4 : *r->at == 'U' ? 8 : 0;
    if (name) {
        index_put(&r->text, values + (name - names), 1);
        r->at++;
        return true;
    }
    if (!digits) {
        index_put(&r->text, "\\", 1);
        return true;
    }
    r->at++;
    if (!read_hex(r, digits, &code))
        return false;
    // JSON writes a code point above 16 bits as a surrogate pair
    if (code >> 10 == 0xd800 >> 10 && r->at[0] == '\\' && r->at[1] == 'u') {
        r->at += 2;
        if (!read_hex(r, 4, &low) || low >> 10 != 0xdc00 >> 10)
            return false;
        code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
    }
    if (!code || code > 0x10ffff)
        return false;
    put_code(&r->text, code);
    return true;
}

static bool read_text(reader *r)
{
    const char quote = *r->at++, ends[] = {quote, '\\', 0};
    r->text.n = 0;
    for (;;) {
        size_t n = strcspn(r->at, ends);
        index_put(&r->text, r->at, n);
        r->at += n;
        if (!*r->at)
            return false;
        if (*r->at++ == quote)
            break;
        if (!read_escape(r))
            return false;
    }
    r->no_memory |= r->text.failed;
    return !r->text.failed;
}

// a copy of the text that read_text read; NULL: not UTF-8
static json_t *text_json(reader *r)
{
    const char *text = r->text.n ? (const char *)r->text.bytes : "";
    return json_stringn(text, r->text.n);
}

/* ---- words and numbers ---- */

static json_t *read_word(reader *r)
{
    static const struct {
        const char *word;
        json_t *(*make)(void);
    } words[] = {{"None", json_null},   {"null", json_null},  {"nan", json_null},
                 {"NaN", json_null},    {"True", json_true},  {"true", json_true},
                 {"False", json_false}, {"false", json_false}};
    size_t n = strcspn(r->at, " \t\r\n,:]})");
    for (size_t i = 0; i < MR_COUNT(words); i++)
        if (strlen(words[i].word) == n && memcmp(words[i].word, r->at, n) == 0) {
            r->at += n;
            return words[i].make();
        }
    return NULL;
}

static json_t *read_number(reader *r)
{
    char *end;
    size_t n = strspn(r->at, "+-.0123456789eE"), digits = strspn(r->at + 1, "0123456789") + 1;
    errno = 0;
    double real = strtod(r->at, &end);
    if (!n || end != r->at + n || !isfinite(real))
        return NULL;
    const char *from = r->at;
    r->at = end;
    if (n != digits || *from == '.')
        return made(r, json_real(real));
    errno = 0;
    json_int_t whole = strtoll(from, NULL, 10);
    // an integer beyond 64 bits stays a string; the code that reads numbers handles it
    return made(r, errno ? json_stringn(from, n) : json_integer(whole));
}

/* ---- lists and objects ---- */

// reads the comma before the next item, or the closing bracket; false: neither
static bool next_item(reader *r, char close, bool *more)
{
    skip_blanks(r);
    *more = *r->at == ',';
    if (!*more && *r->at != close)
        return false;
    r->at++;
    skip_blanks(r);
    // a comma before the end is allowed
    if (*more && *r->at == close)
        r->at++, *more = false;
    return true;
}

static json_t *read_list(reader *r, char close)
{
    json_t *list = made(r, json_array());
    bool good = list != NULL, more = true, comma = false;
    r->at++;
    skip_blanks(r);
    if (*r->at == close)
        r->at++, more = false;
    while (good && more) {
        json_t *item = read_value(r);
        skip_blanks(r);
        comma |= *r->at == ',';
        good = item && json_array_append_new(list, item) == 0 && next_item(r, close, &more);
    }
    // parentheses without a comma contain a value, not a list
    if (!good || (close == ')' && !comma && json_array_size(list))) {
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *read_object(reader *r)
{
    json_t *object = made(r, json_object());
    bool good = object != NULL, more = true;
    r->at++;
    skip_blanks(r);
    if (*r->at == '}')
        r->at++, more = false;
    while (good && more) {
        json_t *key = *r->at == '"' || *r->at == '\'' ? read_value(r) : NULL;
        skip_blanks(r);
        good = key && *r->at == ':';
        r->at += good;
        json_t *item = good ? read_value(r) : NULL;
        good = item && json_object_set_new(object, json_string_value(key), item) == 0 &&
               next_item(r, '}', &more);
        json_decref(key);
    }
    if (!good) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *read_value(reader *r)
{
    json_t *value = NULL;
    if (++r->depth > DEPTH_MAX)
        return NULL;
    skip_blanks(r);
    switch (*r->at) {
    case '[': value = read_list(r, ']'); break;
    case '(': value = read_list(r, ')'); break;
    case '{': value = read_object(r); break;
    case '\'':
    case '"': value = read_text(r) ? text_json(r) : NULL; break;
    default: value = *r->at && strchr("+-.0123456789", *r->at) ? read_number(r) : read_word(r);
    }
    r->depth--;
    return value;
}

mr_status index_literal(const char *text, json_t **out)
{
    reader r = {.at = text};
    *out = NULL;
    skip_blanks(&r);
    if (*r.at != '[' && *r.at != '(')
        return MR_OK;
    json_t *value = read_value(&r);
    if (value)
        skip_blanks(&r);
    if (value && *r.at) {
        json_decref(value);
        value = NULL;
    }
    mr_free(r.text.bytes);
    *out = value;
    return value || !r.no_memory ? MR_OK : mr_fail_memory(strlen(text));
}
