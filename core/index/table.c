/* index: rows of CSV (RFC 4180, a header first), TSV and JSON lines, read in pieces: a table may be
 * larger than memory. Licence: Apache-2.0 */
#include "index/room.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { PIECE = 1 << 20, FIELD_MAX = 16 << 20, COLUMNS = 256 };

/* ---- a text file, piece by piece ---- */

typedef struct text {
    const char *file;
    int fd;
    char *buf;
    size_t at, n;
    uint64_t before; // bytes of earlier pieces
    uint64_t line;
    bool ended;
} text;

// reads on when the piece is used up; afterwards a byte is there, or `ended` is true
static mr_status need(text *t)
{
    if (t->at < t->n || t->ended)
        return MR_OK;
    MR_TRY(mr_interrupt_check());
    t->before += t->n, t->at = t->n = 0;
    ssize_t n;
    do
        n = mr_io_table()->read(t->fd, t->buf, PIECE);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return mr_fail(MR_E_IO, "%s: cannot read: %s", t->file, strerror(errno));
    t->n = (size_t)n, t->ended = n == 0;
    const char *zero = n ? memchr(t->buf, 0, t->n) : NULL;
    return !zero ? MR_OK
                 : mr_fail(MR_E_DATA, "%s: holds a zero byte at %llu; expected text in UTF-8",
                           t->file, (unsigned long long)(t->before + (uint64_t)(zero - t->buf)));
}

// takes n bytes of the piece
static mr_status take(text *t, index_pack *to, size_t n, uint64_t began)
{
    index_put(to, t->buf + t->at, n);
    t->at += n;
    if (to->failed)
        return mr_fail_memory(to->cap * 2);
    return to->n <= FIELD_MAX ? MR_OK
                              : mr_fail(MR_E_DATA,
                                        "%s:%llu: a field does not end within %d bytes; try: is a "
                                        "quoted field left open there?",
                                        t->file, (unsigned long long)began, FIELD_MAX);
}

/* ---- CSV ---- */

typedef struct csv {
    text *t;
    char separator;
    bool row_ended;
} csv;

// takes what stands between quotes; "" is one of them
static mr_status take_quoted(text *t, index_pack *out)
{
    uint64_t began = t->line;
    for (t->at++;;) {
        MR_TRY(need(t));
        if (t->ended)
            return mr_fail(MR_E_DATA, "%s:%llu: a quoted field does not end", t->file,
                           (unsigned long long)began);
        const char *from = t->buf + t->at, *quote = memchr(from, '"', t->n - t->at);
        size_t n = quote ? (size_t)(quote - from) : t->n - t->at;
        for (size_t i = 0; i < n; i++)
            t->line += from[i] == '\n';
        MR_TRY(take(t, out, n, began));
        if (!quote)
            continue;
        t->at++;
        MR_TRY(need(t));
        if (t->ended || t->buf[t->at] != '"')
            return MR_OK;
        MR_TRY(take(t, out, 1, began));
    }
}

// takes what stands up to a separator or the end of the line, which is left there
static mr_status take_plain(const csv *c, index_pack *out)
{
    text *t = c->t;
    for (;;) {
        MR_TRY(need(t));
        if (t->ended)
            return MR_OK;
        size_t n = t->at;
        while (n < t->n && t->buf[n] != c->separator && t->buf[n] != '\n' && t->buf[n] != '\r')
            n++;
        MR_TRY(take(t, out, n - t->at, t->line));
        if (t->at == t->n)
            continue;
        if (t->buf[t->at] != '\r')
            return MR_OK;
        t->at++;
        MR_TRY(need(t));
        if (!t->ended && t->buf[t->at] == '\n')
            return MR_OK;
        index_put(out, "\r", 1);
    }
}

// gives the next field of the row, with a zero behind it
static mr_status next_field(csv *c, index_pack *out)
{
    text *t = c->t;
    out->n = 0, out->failed = false;
    MR_TRY(need(t));
    if (!t->ended && t->buf[t->at] == '"')
        MR_TRY(take_quoted(t, out));
    MR_TRY(take_plain(c, out));
    c->row_ended = t->ended || t->buf[t->at] != c->separator;
    t->line += !t->ended && t->buf[t->at] == '\n';
    t->at += !t->ended;
    index_put(out, "", 1);
    return out->failed ? mr_fail_memory(out->cap * 2) : MR_OK;
}

typedef struct columns {
    int n, path, text;
} columns;

static mr_status read_header(csv *c, index_pack *field, columns *cols)
{
    char found[1024] = "";
    *cols = (columns){.path = -1, .text = -1};
    for (bool more = true; more; more = !c->row_ended) {
        MR_TRY(next_field(c, field));
        const char *name = (const char *)field->bytes;
        if (!cols->n && strncmp(name, "\xef\xbb\xbf", 3) == 0)
            name += 3; // byte order mark
        if (strcasecmp(name, "path") == 0)
            cols->path = cols->n;
        if (strcasecmp(name, "text") == 0)
            cols->text = cols->n;
        size_t n = strlen(found);
        snprintf(found + n, sizeof found - n, "%s%s", cols->n ? ", " : "", name);
        if (++cols->n > COLUMNS)
            return mr_fail(MR_E_DATA, "%s:1: more than %d columns", c->t->file, COLUMNS);
    }
    if (cols->path >= 0 && cols->text >= 0)
        return MR_OK;
    return mr_fail(MR_E_DATA,
                   "%s:1: no column '%s'; columns found: %s; expected a header with path and text",
                   c->t->file, cols->path < 0 ? "path" : "text", *found ? found : "none");
}

enum { PATH, TEXT, OTHER, FIELDS };

static mr_status read_rows(csv *c, index_pack fields[FIELDS], index_table_row *row, void *user)
{
    columns cols;
    MR_TRY(read_header(c, &fields[OTHER], &cols));
    for (;;) {
        MR_TRY(need(c->t));
        if (c->t->ended)
            return MR_OK;
        uint64_t line = c->t->line;
        int n = 0;
        bool empty = true;
        for (bool more = true; more; more = !c->row_ended, n++) {
            index_pack *to = &fields[n == cols.path ? PATH : n == cols.text ? TEXT : OTHER];
            MR_TRY(next_field(c, to));
            empty = to->n == 1;
        }
        if (n == 1 && empty)
            continue; // an empty line
        if (n != cols.n)
            return mr_fail(MR_E_DATA,
                           "%s:%llu: %d fields, expected %d as in the header; try: quote fields "
                           "that hold separators",
                           c->t->file, (unsigned long long)line, n, cols.n);
        MR_TRY(row(user, &(index_input){.path = (const char *)fields[PATH].bytes,
                                        .text = (const char *)fields[TEXT].bytes,
                                        .line = line}));
    }
}

static mr_status read_csv(text *t, char separator, index_table_row *row, void *user)
{
    csv c = {.t = t, .separator = separator};
    index_pack fields[FIELDS] = {0};
    mr_status st = read_rows(&c, fields, row, user);
    for (int i = 0; i < FIELDS; i++)
        mr_free(fields[i].bytes);
    return st;
}

/* ---- JSON lines ---- */

static mr_status read_object(const text *t, const index_pack *line, index_table_row *row,
                             void *user)
{
    json_error_t why;
    json_t *o = json_loadb((const char *)line->bytes, line->n, JSON_REJECT_DUPLICATES, &why);
    const char *path = json_string_value(json_object_get(o, "path")),
               *caption = json_string_value(json_object_get(o, "text"));
    unsigned long long at = t->line;
    mr_status st =
        !o ? mr_fail(MR_E_DATA, "%s:%llu: not JSON: %s", t->file, at, why.text)
        : !path || !caption
            ? mr_fail(MR_E_DATA,
                      "%s:%llu: no text value '%s'; expected {\"path\": ..., \"text\": ...}",
                      t->file, at, path ? "text" : "path")
            : row(user, &(index_input){.path = path, .text = caption, .line = t->line});
    json_decref(o);
    return st;
}

static mr_status read_lines(text *t, index_pack *line, index_table_row *row, void *user)
{
    for (;; t->line++) {
        line->n = 0, line->failed = false;
        for (bool more = true; more;) {
            MR_TRY(need(t));
            if (t->ended)
                break;
            const char *from = t->buf + t->at, *end = memchr(from, '\n', t->n - t->at);
            MR_TRY(take(t, line, end ? (size_t)(end - from) : t->n - t->at, t->line));
            t->at += end != NULL, more = !end;
        }
        if (t->ended && !line->n)
            return MR_OK;
        size_t blank = 0;
        while (blank < line->n && strchr(" \t\r", line->bytes[blank]))
            blank++;
        if (blank < line->n)
            MR_TRY(read_object(t, line, row, user));
    }
}

static mr_status read_json(text *t, index_table_row *row, void *user)
{
    index_pack line = {0};
    mr_status st = read_lines(t, &line, row, user);
    mr_free(line.bytes);
    return st;
}

/* ---- the front ---- */

static mr_status open_text(const char *file, text *t)
{
    struct stat about;
    *t = (text){.file = file, .line = 1};
    // opening a pipe that nobody writes to would wait for ever
    t->fd = mr_io_table()->open(file, O_RDONLY | O_NONBLOCK, 0);
    if (t->fd < 0)
        return mr_fail(MR_E_DATA, "%s: cannot open: %s; expected a .csv or .jsonl file", file,
                       strerror(errno));
    if (fstat(t->fd, &about) || !S_ISREG(about.st_mode))
        return mr_fail(MR_E_DATA, "%s: is no regular file; expected a .csv or .jsonl file", file);
    return (t->buf = mr_alloc(PIECE)) ? MR_OK : mr_fail_memory(PIECE);
}

mr_status index_table_read(const char *file, index_table_row *row, void *user)
{
    text t;
    const char *dot = strrchr(file, '.');
    mr_status st = open_text(file, &t);
    if (st == MR_OK)
        st = dot && (strcasecmp(dot, ".jsonl") == 0 || strcasecmp(dot, ".ndjson") == 0)
                 ? read_json(&t, row, user)
                 : read_csv(&t, dot && strcasecmp(dot, ".tsv") == 0 ? '\t' : ',', row, user);
    if (t.fd >= 0)
        mr_io_table()->close(t.fd);
    mr_free(t.buf);
    return st;
}
