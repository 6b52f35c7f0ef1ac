/* index: rows of CSV (RFC 4180) and TSV, a header first. Licence: Apache-2.0 */
#include "index/room.h"

#include <stdio.h>
#include <string.h>

enum { COLUMNS = 256 };

/* ---- fields ---- */

typedef struct csv {
    index_pieces *t;
    char separator;
    bool row_ended;
} csv;

// takes what stands between quotes; "" is one of them
static mr_status take_quoted(index_pieces *t, index_pack *out)
{
    uint64_t began = t->line;
    for (t->at++;;) {
        MR_TRY(index_pieces_need(t));
        if (t->ended)
            return mr_fail(MR_E_DATA, "%s:%llu: a quoted field does not end", t->file,
                           (unsigned long long)began);
        const char *from = t->buf + t->at, *quote = memchr(from, '"', t->n - t->at);
        size_t n = quote ? (size_t)(quote - from) : t->n - t->at;
        for (size_t i = 0; i < n; i++)
            t->line += from[i] == '\n';
        MR_TRY(index_pieces_take(t, out, n, began));
        if (!quote)
            continue;
        t->at++;
        MR_TRY(index_pieces_need(t));
        if (t->ended || t->buf[t->at] != '"')
            return MR_OK;
        MR_TRY(index_pieces_take(t, out, 1, began));
    }
}

// takes what stands up to a separator or the end of the line, which is left there
static mr_status take_plain(const csv *c, index_pack *out)
{
    index_pieces *t = c->t;
    for (;;) {
        MR_TRY(index_pieces_need(t));
        if (t->ended)
            return MR_OK;
        size_t n = t->at;
        while (n < t->n && t->buf[n] != c->separator && t->buf[n] != '\n' && t->buf[n] != '\r')
            n++;
        MR_TRY(index_pieces_take(t, out, n - t->at, t->line));
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

// gives the next field of the row, with a zero behind it
static mr_status next_field(csv *c, index_pack *out)
{
    index_pieces *t = c->t;
    out->n = 0, out->failed = false;
    MR_TRY(index_pieces_need(t));
    if (!t->ended && t->buf[t->at] == '"')
        MR_TRY(take_quoted(t, out));
    MR_TRY(take_plain(c, out));
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

// times and scores of one name would hide each other; captions do not
static mr_status add_column(const csv *c, columns *cols, index_meaning is, const char *name)
{
    for (int i = 0; i < cols->n; i++)
        if (cols->of[i] == is && is != INDEX_NOTHING && is != INDEX_TEXT && is != INDEX_MORE)
            return mr_fail(MR_E_DATA,
                           "%s:1: column '%s' stands twice; try: remove one of them, or call it "
                           "otherwise: --columns other=%s",
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
        if (!cols->n && strncmp(name, "\xef\xbb\xbf", 3) == 0)
            name += 3; // byte order mark
        if (cols->n == COLUMNS)
            return mr_fail(MR_E_DATA, "%s:1: more than %d columns", c->t->file, COLUMNS);
        index_meaning is = index_scores_meaning(w->scores, name);
        cols->path |= is == INDEX_PATH, cols->text |= is == INDEX_TEXT;
        size_t n = strlen(found);
        snprintf(found + n, sizeof found - n, "%s%s", cols->n ? ", " : "", name);
        MR_TRY(add_column(c, cols, is, name));
    }
    // spreadsheets of some languages divide so
    if (cols->n == 1 && !cols->path && strchr(found, ';'))
        return mr_fail(MR_E_DATA,
                       "%s:1: one column, '%s'; expected commas between columns; try: save it with "
                       "commas in place of ';'",
                       c->t->file, found);
    char room[INDEX_NAME_MAX];
    const char *missing = index_scores_missing(w->scores, NULL, room);
    if (missing)
        return mr_fail(MR_E_DATA,
                       "%s:1: no column '%s', which --columns asks for; columns found: %s",
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
        index_making_begin(w);
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
                           "that hold separators",
                           c->t->file, (unsigned long long)line, n, cols.n);
        MR_TRY(index_making_end(w, (const char *)w->path.bytes, line));
    }
}

mr_status index_csv_read(index_pieces *t, char separator, index_making *w)
{
    csv c = {.t = t, .separator = separator};
    return read_rows(&c, w);
}
