/* index: reads rows of CSV (RFC 4180) and TSV files with a header. Licence: Apache-2.0 */
#include "index/table.h"

#include <stdio.h>
#include <string.h>

enum { COLUMNS = 256 };

/* ---- fields ---- */

typedef struct csv {
    index_pieces *t;
    char separator, escape; /* escape 0: none */
    bool row_ended;
    uint64_t slashed; /* line of the last field with a backslash before a quote */
} csv;

// the advice for a file that cannot be parsed, if backslashes may be the reason
static const char *advice(const csv *c, bool slash)
{
    return slash && !c->escape ? "; try: --escape '\\', if \\\" stands for a quote there" : "";
}

// Takes n bytes, then the character after the escape as plain text. An escape before any other
// character is text itself.
static mr_status take_escaped(const csv *c, index_pack *out, size_t n, uint64_t began)
{
    index_pieces *t = c->t;
    MR_TRY(index_pieces_take(t, out, n, began));
    t->at++;
    MR_TRY(index_pieces_need(t));
    const char meant[] = {'"', c->separator, c->escape, '\n', 0};
    if (t->ended || !strchr(meant, t->buf[t->at])) {
        index_put(out, &c->escape, 1);
        return MR_OK;
    }
    t->line += t->buf[t->at] == '\n';
    return index_pieces_take(t, out, 1, began);
}

// Takes a quoted text; "" is a quote in it. *slash: a backslash was before a quote.
static mr_status take_quoted(const csv *c, index_pack *out, bool *slash)
{
    index_pieces *t = c->t;
    uint64_t began = t->line;
    for (t->at++;;) {
        MR_TRY(index_pieces_need(t));
        if (t->ended)
            return mr_fail(MR_E_DATA, "%s:%llu: a quoted field does not end%s", t->file,
                           (unsigned long long)began, advice(c, c->slashed || *slash));
        const char *from = t->buf + t->at;
        size_t n = 0, left = t->n - t->at;
        for (; n < left && from[n] != '"' && (!c->escape || from[n] != c->escape); n++)
            t->line += from[n] == '\n';
        if (n < left && from[n] != '"') {
            MR_TRY(take_escaped(c, out, n, began));
            continue;
        }
        bool quote = n < left;
        MR_TRY(index_pieces_take(t, out, n, began));
        if (!quote)
            continue;
        *slash |= out->n && out->bytes[out->n - 1] == '\\';
        t->at++;
        MR_TRY(index_pieces_need(t));
        if (t->ended || t->buf[t->at] != '"')
            return MR_OK;
        MR_TRY(index_pieces_take(t, out, 1, began));
    }
}

// takes the text up to a separator or the end of the line, and does not consume that
static mr_status take_plain(const csv *c, index_pack *out)
{
    index_pieces *t = c->t;
    for (;;) {
        MR_TRY(index_pieces_need(t));
        if (t->ended)
            return MR_OK;
        const char *from = t->buf + t->at;
        size_t n = 0, left = t->n - t->at;
        while (n < left && from[n] != c->separator && from[n] != '\n' && from[n] != '\r' &&
               (!c->escape || from[n] != c->escape))
            n++;
        if (n < left && c->escape && from[n] == c->escape) {
            MR_TRY(take_escaped(c, out, n, t->line));
            continue;
        }
        MR_TRY(index_pieces_take(t, out, n, t->line));
        if (t->at == t->n)
            continue;
        if (t->buf[t->at] != '\r')
            return MR_OK;
        t->at++;
        MR_TRY(index_pieces_need(t));
        if (!t->ended && t->buf[t->at] == '\n')
            return MR_OK;
        index_put(out, "\r", 1);
    }
}

// takes the next field of the row and adds a zero
static mr_status next_field(csv *c, index_pack *out)
{
    index_pieces *t = c->t;
    out->n = 0, out->failed = false;
    MR_TRY(index_pieces_need(t));
    bool quoted = !t->ended && t->buf[t->at] == '"', slash = false;
    if (quoted)
        MR_TRY(take_quoted(c, out, &slash));
    size_t n = out->n;
    MR_TRY(take_plain(c, out));
    if (quoted && out->n > n)
        return mr_fail(MR_E_DATA,
                       "%s:%llu: '%c' after the closing quote of a field; expected the end of the "
                       "field, or two quotes for one%s",
                       t->file, (unsigned long long)t->line, out->bytes[n], advice(c, slash));
    c->slashed = slash ? t->line : c->slashed;
    c->row_ended = t->ended || t->buf[t->at] != c->separator;
    t->line += !t->ended && t->buf[t->at] == '\n';
    t->at += !t->ended;
    index_put(out, "", 1);
    return out->failed ? mr_fail_memory(out->cap * 2) : MR_OK;
}

/* ---- rows ---- */

typedef struct columns {
    int n;
    index_meaning of[COLUMNS];
    bool path, text;
} columns;

// refuses two columns of times or of scores with the same name; several captions are fine
static mr_status add_column(const csv *c, columns *cols, index_meaning is, const char *name)
{
    for (int i = 0; i < cols->n; i++)
        if (cols->of[i] == is && is != INDEX_NOTHING && is != INDEX_TEXT && is != INDEX_MORE)
            return mr_fail(MR_E_DATA,
                           "%s:1: column '%s' occurs twice; try: remove one of them, or rename it: "
                           "--columns other=%s",
                           c->t->file, name, name);
    cols->of[cols->n++] = is;
    return MR_OK;
}

static mr_status read_header(csv *c, index_making *w, columns *cols)
{
    char found[1024] = "";
    *cols = (columns){0};
    for (bool more = true; more; more = !c->row_ended) {
        MR_TRY(next_field(c, &w->field));
        const char *name = (const char *)w->field.bytes;
        if (cols->n == COLUMNS)
            return mr_fail(MR_E_DATA, "%s:1: more than %d columns", c->t->file, COLUMNS);
        index_meaning is = index_scores_meaning(w->scores, name);
        cols->path |= is == INDEX_PATH, cols->text |= is == INDEX_TEXT;
        size_t n = strlen(found);
        snprintf(found + n, sizeof found - n, "%s%s", cols->n ? ", " : "", name);
        MR_TRY(add_column(c, cols, is, name));
    }
    // spreadsheets write semicolons in some locales
    if (cols->n == 1 && !cols->path && strchr(found, ';'))
        return mr_fail(MR_E_DATA,
                       "%s:1: one column, '%s'; expected commas between columns; try: save it with "
                       "commas in place of ';'",
                       c->t->file, found);
    char room[INDEX_NAME_MAX];
    const char *missing = index_scores_missing(w->scores, NULL, room);
    if (missing)
        return mr_fail(MR_E_DATA, "%s:1: no column '%s', which --columns names; columns found: %s",
                       c->t->file, missing, *found ? found : "none");
    if (cols->path && (cols->text || w->any))
        return MR_OK;
    if (w->any)
        return mr_fail(MR_E_DATA, "%s:1: no column 'path'; columns found: %s", c->t->file,
                       *found ? found : "none");
    return mr_fail(MR_E_DATA,
                   "%s:1: no column '%s'; columns found: %s; expected a header with path and text; "
                   "try: --columns path=NAME,text=NAME",
                   c->t->file, !cols->path ? "path" : "text", *found ? found : "none");
}

static mr_status read_rows(csv *c, index_making *w)
{
    columns cols;
    MR_TRY(read_header(c, w, &cols));
    for (;;) {
        MR_TRY(index_pieces_need(c->t));
        if (c->t->ended)
            return MR_OK;
        uint64_t line = c->t->line;
        int n = 0;
        bool empty = true;
        index_making_begin(w, line);
        for (bool more = true; more; more = !c->row_ended, n++) {
            index_meaning is = n < cols.n ? cols.of[n] : INDEX_NOTHING;
            index_pack *to = is == INDEX_PATH ? &w->path : &w->field;
            MR_TRY(next_field(c, to));
            MR_TRY(index_making_value(w, c->t, is, (const char *)to->bytes));
            empty = to->n == 1;
        }
        if (n == 1 && empty)
            continue; // an empty line
        if (n != cols.n)
            return mr_fail(MR_E_DATA,
                           "%s:%llu: %d fields, expected %d as in the header; try: quote fields "
                           "that hold separators%s",
                           c->t->file, (unsigned long long)line, n, cols.n,
                           advice(c, c->slashed >= line));
        MR_TRY(index_making_end(w, c->t, (const char *)w->path.bytes));
    }
}

mr_status index_csv_read(index_pieces *t, char separator, index_making *w)
{
    const char *escape = w->scores->escape;
    csv c = {.t = t, .separator = separator, .escape = escape ? *escape : 0};
    if (c.escape == separator)
        return mr_fail(MR_E_USAGE, "%s: escape: '%c' separates columns", t->file, separator);
    return read_rows(&c, w);
}
