/* index: reads rows of JSON objects: one per line, or all in one list. Licence: Apache-2.0 */
#include "index/table.h"

#include <stdio.h>
#include <string.h>

enum { WHOLE_DIGITS = 19 }; // a number with this many digits may exceed 64 bits

static mr_status fail_object(const index_making *w, const index_pieces *t, json_t *o,
                             const char *lacks)
{
    char found[1024] = "", room[INDEX_NAME_MAX];
    const char *name;
    json_t *value;
    json_object_foreach(o, name, value)
    {
        size_t n = strlen(found);
        snprintf(found + n, sizeof found - n, "%s%s", n ? ", " : "", name);
    }
    return mr_fail(MR_E_DATA,
                   "%s:%llu: no text value '%s'; values found: %s; expected path and text; try: "
                   "--columns path=NAME,text=NAME",
                   t->file, (unsigned long long)t->line,
                   index_scores_missing(w->scores, lacks, room), *found ? found : "none");
}

static mr_status take_object(index_making *w, const index_pieces *t, json_t *o)
{
    const char *path = NULL, *name;
    json_t *value;
    index_making_begin(w, t->line);
    json_object_foreach(o, name, value)
    {
        index_meaning is = index_scores_meaning(w->scores, name);
        path = is == INDEX_PATH ? json_string_value(value) : path;
        MR_TRY(index_making_json(w, t, is, value));
    }
    return path && (w->captioned || w->any) ? index_making_end(w, t, path)
                                            : fail_object(w, t, o, path ? "text" : "path");
}

// the length of a number that JSON (NaN) or jansson (integer beyond 64 bits) cannot parse
static size_t odd_number(const char *at, size_t n)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t k = 0; k < MR_COUNT(words); k++)
        if (n >= strlen(words[k]) && memcmp(at, words[k], strlen(words[k])) == 0)
            return strlen(words[k]);
    size_t digits = *at == '-';
    while (digits < n && at[digits] >= '0' && at[digits] <= '9')
        digits++;
    return digits >= WHOLE_DIGITS && (digits == n || !strchr(".eE", at[digits])) ? digits : 0;
}

// Copies the line with a final zero, and writes such numbers as strings.
static void quote_numbers(index_pack *out, const char *line, size_t n)
{
    bool quoted = false;
    size_t from = 0;
    out->n = 0, out->failed = false;
    for (size_t i = 0; i < n; i++) {
        if (quoted && line[i] == '\\')
            i++;
        else if (line[i] == '"')
            quoted = !quoted;
        else if (!quoted && strchr("-0123456789NI", line[i])) {
            size_t odd = odd_number(line + i, n - i);
            size_t plain = strspn(line + i, "-+.0123456789eE");
            if (odd) {
                index_put(out, line + from, i - from);
                index_put(out, "\"", 1);
                index_put(out, line + i, odd);
                index_put(out, "\"", 1);
                from = i + odd;
            }
            i += MR_MAX(MR_MAX(odd, plain), 1) - 1;
        }
    }
    index_put(out, line + from, n - from);
}

static mr_status read_object(index_making *w, const index_pieces *t, size_t from)
{
    json_error_t why;
    index_pack *line = &w->plain;
    index_put(&w->field, "", 1);
    if (!w->field.failed)
        quote_numbers(line, (const char *)w->field.bytes + from, w->field.n - 1 - from);
    if (w->field.failed || line->failed)
        return mr_fail_memory(w->field.cap * 2);
    json_t *o = json_loadb((const char *)line->bytes, line->n, JSON_REJECT_DUPLICATES, &why);
    mr_status st = o ? take_object(w, t, o)
                     : mr_fail(MR_E_DATA, "%s:%llu: not JSON: %s", t->file,
                               (unsigned long long)t->line, why.text);
    json_decref(o);
    return st;
}

/* ---- an object a line ---- */

static mr_status read_lines(index_pieces *t, index_making *w)
{
    index_pack *line = &w->field;
    for (;; t->line++) {
        line->n = 0, line->failed = false;
        for (bool more = true; more;) {
            MR_TRY(index_pieces_need(t));
            if (t->ended)
                break;
            const char *from = t->buf + t->at, *end = memchr(from, '\n', t->n - t->at);
            MR_TRY(index_pieces_take(t, line, end ? (size_t)(end - from) : t->n - t->at, t->line));
            t->at += end != NULL, more = !end;
        }
        if (t->ended && !line->n)
            break;
        size_t blank = 0;
        while (blank < line->n && strchr(" \t\r", line->bytes[blank]))
            blank++;
        if (blank < line->n)
            MR_TRY(read_object(w, t, blank));
    }
    return MR_OK;
}

/* ---- a list of objects ---- */

static mr_status fail_list(const index_pieces *t, const char *expected)
{
    char found[8] = "its end";
    if (!t->ended)
        snprintf(found, sizeof found, "'%c'", t->buf[t->at]);
    return mr_fail(MR_E_DATA, "%s:%llu: %s in a list of rows; expected %s", t->file,
                   (unsigned long long)t->line, found, expected);
}

// finds the next non-blank byte; 0 at the end
static mr_status next_byte(index_pieces *t, char *byte)
{
    for (;; t->at++) {
        MR_TRY(index_pieces_need(t));
        *byte = t->ended ? 0 : t->buf[t->at];
        if (t->ended || !strchr(" \t\r\n", *byte))
            return MR_OK;
        t->line += *byte == '\n';
    }
}

// takes an object up to its closing brace
static mr_status take_braces(index_pieces *t, index_pack *to)
{
    const uint64_t began = t->line;
    bool quoted = false, escaped = false;
    to->n = 0, to->failed = false;
    for (uint64_t depth = 0;;) {
        size_t n = 0, left;
        MR_TRY(index_pieces_need(t));
        if (t->ended)
            return fail_list(t, "'}'");
        for (left = t->n - t->at; n < left;) {
            const char c = t->buf[t->at + n++];
            t->line += c == '\n';
            if (escaped || (quoted && c == '\\'))
                escaped = !escaped;
            else if (c == '"')
                quoted = !quoted;
            else if (!quoted)
                depth += (c == '{') - (c == '}');
            if (!depth)
                return index_pieces_take(t, to, n, began);
        }
        MR_TRY(index_pieces_take(t, to, n, began));
    }
}

static mr_status read_list(index_pieces *t, index_making *w)
{
    char byte;
    for (uint64_t rows = 0;; rows++) {
        t->at++; // the bracket, or a comma
        MR_TRY(next_byte(t, &byte));
        if (byte == ']' && !rows)
            break;
        if (byte != '{')
            return fail_list(t, "an object");
        const uint64_t began = t->line;
        MR_TRY(take_braces(t, &w->field));
        const uint64_t ended = t->line;
        t->line = began;
        MR_TRY(read_object(w, t, 0));
        t->line = ended;
        MR_TRY(next_byte(t, &byte));
        if (byte == ']')
            break;
        if (byte != ',')
            return fail_list(t, "',' or ']'");
    }
    t->at++;
    MR_TRY(next_byte(t, &byte));
    return byte ? fail_list(t, "nothing after it") : MR_OK;
}

mr_status index_json_read(index_pieces *t, index_making *w)
{
    char byte;
    MR_TRY(next_byte(t, &byte));
    MR_TRY(byte == '[' ? read_list(t, w) : read_lines(t, w));
    char room[INDEX_NAME_MAX];
    const char *missing = index_scores_missing(w->scores, NULL, room);
    return !missing ? MR_OK
                    : mr_fail(MR_E_DATA, "%s: no row has a value '%s', which --columns names",
                              t->file, missing);
}
