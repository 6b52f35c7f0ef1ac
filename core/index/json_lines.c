/* index: rows of JSON lines, an object each. Licence: Apache-2.0 */
#include "index/room.h"

#include <stdio.h>
#include <string.h>

// a text, or a list of texts
static mr_status take_captions(index_captions *to, const index_pieces *t, const json_t *value)
{
    size_t i;
    json_t *one;
    if (json_is_string(value))
        return index_making_caption(to, t, json_string_value(value));
    json_array_foreach(value, i, one)
    {
        if (json_is_null(one))
            continue;
        if (!json_is_string(one))
            return mr_fail(MR_E_DATA, "%s:%llu: text[%zu] is no text; expected a list of captions",
                           t->file, (unsigned long long)t->line, i);
        MR_TRY(index_making_caption(to, t, json_string_value(one)));
    }
    return MR_OK;
}

// numbers and texts alone can be scores
static mr_status take_value(index_making *w, const index_pieces *t, index_meaning is,
                            const json_t *value)
{
    char number[40];
    int digits = is == INDEX_START || is == INDEX_END ? 17 : 9;
    if (is == INDEX_TEXT || is == INDEX_MORE)
        return take_captions(is == INDEX_TEXT ? &w->first : &w->more, t, value);
    if (json_is_number(value))
        snprintf(number, sizeof number, "%.*g", digits, json_number_value(value));
    else if (json_is_boolean(value))
        snprintf(number, sizeof number, "%d", json_is_true(value));
    else if (!json_is_string(value))
        return MR_OK;
    return index_making_value(w, t, is, json_is_string(value) ? json_string_value(value) : number);
}

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
    bool captioned = false;
    index_making_begin(w);
    json_object_foreach(o, name, value)
    {
        index_meaning is = index_scores_meaning(w->scores, name);
        path = is == INDEX_PATH ? json_string_value(value) : path;
        // nothing is a caption, too, as an empty field of CSV is
        captioned |= is == INDEX_TEXT &&
                     (json_is_string(value) || json_is_array(value) || json_is_null(value));
        MR_TRY(take_value(w, t, is, value));
    }
    return path && (captioned || w->any) ? index_making_end(w, path, t->line)
                                         : fail_object(w, t, o, path ? "text" : "path");
}

// Many writers have numbers that JSON has not: they become texts of the same length.
static void quote_numbers(char *line, size_t n)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (quoted && line[i] == '\\')
            i++;
        else if (line[i] == '"')
            quoted = !quoted;
        for (size_t k = 0; !quoted && i < n && k < MR_COUNT(words); k++) {
            size_t long_as = strlen(words[k]);
            if (n - i >= long_as && memcmp(line + i, words[k], long_as) == 0) {
                memset(line + i, ' ', long_as);
                line[i] = line[i + 1] = '"';
            }
        }
    }
}

static mr_status read_object(index_making *w, const index_pieces *t, size_t from)
{
    json_error_t why;
    char *line = (char *)w->field.bytes + from;
    size_t n = w->field.n - from;
    quote_numbers(line, n);
    json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &why);
    mr_status st = o ? take_object(w, t, o)
                     : mr_fail(MR_E_DATA, "%s:%llu: not JSON: %s", t->file,
                               (unsigned long long)t->line, why.text);
    json_decref(o);
    return st;
}

// the length of the byte order mark that stands before a text
static size_t order_mark(const index_pack *text)
{
    return text->n >= 3 && memcmp(text->bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

mr_status index_json_read(index_pieces *t, index_making *w)
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
        size_t blank = t->line == 1 ? order_mark(line) : 0;
        while (blank < line->n && strchr(" \t\r", line->bytes[blank]))
            blank++;
        if (blank < line->n)
            MR_TRY(read_object(w, t, blank));
    }
    char room[INDEX_NAME_MAX];
    const char *missing = index_scores_missing(w->scores, NULL, room);
    return !missing ? MR_OK
                    : mr_fail(MR_E_DATA, "%s: no line has a value '%s', which --columns asks for",
                              t->file, missing);
}
