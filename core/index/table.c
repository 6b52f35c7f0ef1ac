/* index: rows of CSV (RFC 4180, a header first), TSV and JSON lines, read in pieces: a table may be
 * larger than memory. Licence: Apache-2.0 */
#include "index/room.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { PIECE = 1 << 20, FIELD_MAX = 16 << 20, COLUMNS = 256 };

/* ---- a text file, piece by piece ---- */

typedef struct text {
    const char *file;
    int fd;
    index_child *child; // fd is its end of a pipe; NULL: a file
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
    if (t->child)
        MR_TRY(index_child_wait(t->child));
    t->before += t->n, t->at = t->n = 0;
    ssize_t n;
    do
        n = mr_io_table()->read(t->fd, t->buf, PIECE);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return mr_fail(MR_E_IO, "%s: cannot read: %s", t->file, strerror(errno));
    t->n = (size_t)n, t->ended = n == 0;
    const char *zero = n ? memchr(t->buf, 0, t->n) : NULL;
    if (!zero)
        return MR_OK;
    uint64_t line = t->line;
    for (const char *p = t->buf; p < zero; p++)
        line += *p == '\n';
    return mr_fail(MR_E_DATA,
                   "%s:%llu: a zero byte, at %llu of the file; expected text in UTF-8; try: is it "
                   "UTF-16?",
                   t->file, (unsigned long long)line,
                   (unsigned long long)(t->before + (uint64_t)(zero - t->buf)));
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
    int n;
    index_meaning of[COLUMNS];
    bool path, text;
} columns;

/* ---- a row in the making ---- */

// captions that are not empty, each with a zero
typedef struct captions {
    index_pack bytes;
    int32_t n;
} captions;

typedef struct table {
    index_scores *scores;
    index_pack path, field;
    captions first, more; // of the column text; of text_2 and its like, which come behind
    float numbers[INDEX_SCORES];
    int64_t start_us, end_us;
    char wrong[INDEX_WHY]; // with the times of the row; "": nothing
    index_table_row *row;
    void *user;
    bool any; // it is no list of samples: captions may be missing
} table;

static void table_begin(table *w)
{
    w->path.n = w->first.bytes.n = w->more.bytes.n = 0;
    w->first.n = w->more.n = 0;
    w->start_us = w->end_us = 0, *w->wrong = 0;
    for (int32_t i = 0; i < INDEX_SCORES; i++)
        w->numbers[i] = NAN;
}

static mr_status add_caption(captions *c, const text *t, const char *caption)
{
    if (!*caption)
        return MR_OK;
    if (c->n++ == UINT8_MAX / 2)
        return mr_fail(MR_E_DATA, "%s:%llu: more than %d captions", t->file,
                       (unsigned long long)t->line, UINT8_MAX / 2);
    index_put(&c->bytes, caption, strlen(caption) + 1);
    return c->bytes.failed ? mr_fail_memory(c->bytes.cap * 2) : MR_OK;
}

// seconds from 0 on; nothing stands for the file's own begin or end
static int64_t take_time(table *w, const char *name, const char *value)
{
    char *end;
    double seconds = strtod(value, &end);
    end += strspn(end, " \t");
    if (end == value && !*end)
        return 0;
    if (end == value || *end || !(seconds >= 0 && seconds < 1e9)) {
        snprintf(w->wrong, sizeof w->wrong, "%s is '%.60s'; expected seconds from 0 on", name,
                 value);
        return 0;
    }
    return llround(seconds * 1e6);
}

static mr_status table_value(table *w, const text *t, index_meaning is, const char *value)
{
    if (is == INDEX_START)
        w->start_us = take_time(w, "start_s", value);
    if (is == INDEX_END)
        w->end_us = take_time(w, "end_s", value);
    if (is == INDEX_TEXT || is == INDEX_MORE)
        return add_caption(is == INDEX_TEXT ? &w->first : &w->more, t, value);
    if (is >= INDEX_SCORE)
        w->numbers[is - INDEX_SCORE] = index_scores_take(w->scores, (int)is - INDEX_SCORE, value);
    return MR_OK;
}

static mr_status table_end(table *w, const char *path, uint64_t line)
{
    captions *c = &w->first;
    if (w->more.n)
        index_put(&c->bytes, w->more.bytes.bytes, w->more.bytes.n);
    c->n += w->more.n;
    // a row without any has an empty one
    index_put(&c->bytes, "", c->n ? 0 : 1);
    if (c->bytes.failed)
        return mr_fail_memory(c->bytes.cap * 2);
    if (!*w->wrong && w->end_us && w->end_us <= w->start_us)
        snprintf(w->wrong, sizeof w->wrong, "end_s is %.6f; expected more than start_s, %.6f",
                 (double)w->end_us * 1e-6, (double)w->start_us * 1e-6);
    return w->row(w->user, &(index_input){.path = path,
                                          .start_us = w->start_us,
                                          .end_us = w->end_us,
                                          .fault = *w->wrong ? w->wrong : NULL,
                                          .class = *w->wrong ? "range" : NULL,
                                          .text = (const char *)c->bytes.bytes,
                                          .line = line,
                                          .more = MR_MAX(c->n, 1) - 1,
                                          .n_numbers = w->scores->n,
                                          .numbers = w->numbers});
}

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

static mr_status read_header(csv *c, table *w, columns *cols)
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

static mr_status read_rows(csv *c, table *w)
{
    columns cols;
    MR_TRY(read_header(c, w, &cols));
    for (;;) {
        MR_TRY(need(c->t));
        if (c->t->ended)
            return MR_OK;
        uint64_t line = c->t->line;
        int n = 0;
        bool empty = true;
        table_begin(w);
        for (bool more = true; more; more = !c->row_ended, n++) {
            index_meaning is = n < cols.n ? cols.of[n] : INDEX_NOTHING;
            index_pack *to = is == INDEX_PATH ? &w->path : &w->field;
            MR_TRY(next_field(c, to));
            MR_TRY(table_value(w, c->t, is, (const char *)to->bytes));
            empty = to->n == 1;
        }
        if (n == 1 && empty)
            continue; // an empty line
        if (n != cols.n)
            return mr_fail(MR_E_DATA,
                           "%s:%llu: %d fields, expected %d as in the header; try: quote fields "
                           "that hold separators",
                           c->t->file, (unsigned long long)line, n, cols.n);
        MR_TRY(table_end(w, (const char *)w->path.bytes, line));
    }
}

static mr_status read_csv(text *t, char separator, table *w)
{
    csv c = {.t = t, .separator = separator};
    return read_rows(&c, w);
}

/* ---- JSON lines ---- */

// a text, or a list of texts
static mr_status take_captions(captions *to, const text *t, const json_t *value)
{
    size_t i;
    json_t *one;
    if (json_is_string(value))
        return add_caption(to, t, json_string_value(value));
    json_array_foreach(value, i, one)
    {
        if (json_is_null(one))
            continue;
        if (!json_is_string(one))
            return mr_fail(MR_E_DATA, "%s:%llu: text[%zu] is no text; expected a list of captions",
                           t->file, (unsigned long long)t->line, i);
        MR_TRY(add_caption(to, t, json_string_value(one)));
    }
    return MR_OK;
}

// numbers and texts alone can be scores
static mr_status take_value(table *w, const text *t, index_meaning is, const json_t *value)
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
    return table_value(w, t, is, json_is_string(value) ? json_string_value(value) : number);
}

static mr_status fail_object(const table *w, const text *t, json_t *o, const char *lacks)
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

static mr_status take_object(table *w, const text *t, json_t *o)
{
    const char *path = NULL, *name;
    json_t *value;
    bool captioned = false;
    table_begin(w);
    json_object_foreach(o, name, value)
    {
        index_meaning is = index_scores_meaning(w->scores, name);
        path = is == INDEX_PATH ? json_string_value(value) : path;
        // nothing is a caption, too, as an empty field of CSV is
        captioned |= is == INDEX_TEXT &&
                     (json_is_string(value) || json_is_array(value) || json_is_null(value));
        MR_TRY(take_value(w, t, is, value));
    }
    return path && (captioned || w->any) ? table_end(w, path, t->line)
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

static mr_status read_object(table *w, const text *t, size_t from)
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

static mr_status read_json(text *t, table *w)
{
    index_pack *line = &w->field;
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

static mr_status open_child(const char *file, text *t, index_child *child)
{
    *t = (text){.file = file, .line = 1, .fd = -1};
    MR_TRY(index_child_open(child, file));
    t->fd = child->fd, t->child = child;
    return (t->buf = mr_alloc(PIECE)) ? MR_OK : mr_fail_memory(PIECE);
}

// what the child has to say counts more than that its output ends too early
static mr_status end_child(const text *t, mr_status st)
{
    mr_error *kept = st == MR_OK ? NULL : mr_error_copy(mr_error_last());
    mr_status end = t->child ? index_child_close(t->child, t->ended) : MR_OK;
    if (end == MR_OK && kept)
        mr_error_adopt(kept);
    mr_error_free(kept);
    return end == MR_OK ? st : end;
}

static mr_status read_file(const char *file, table *w)
{
    text t;
    const char *dot = strrchr(file, '.');
    index_child child;
    bool parquet = dot && strcasecmp(dot, ".parquet") == 0;
    mr_status st = parquet ? open_child(file, &t, &child) : open_text(file, &t);
    if (st == MR_OK)
        st = parquet || (dot && (strcasecmp(dot, ".jsonl") == 0 || strcasecmp(dot, ".ndjson") == 0))
                 ? read_json(&t, w)
                 : read_csv(&t, dot && strcasecmp(dot, ".tsv") == 0 ? '\t' : ',', w);
    if (parquet)
        st = end_child(&t, st);
    else if (t.fd >= 0)
        mr_io_table()->close(t.fd);
    mr_free(t.buf);
    mr_free(w->path.bytes);
    mr_free(w->first.bytes.bytes);
    mr_free(w->more.bytes.bytes);
    mr_free(w->field.bytes);
    return st;
}

mr_status index_table_read(const char *file, index_scores *scores, index_table_row *row, void *user)
{
    return read_file(file, &(table){.scores = scores, .row = row, .user = user});
}

/* ---- for other rooms ---- */

struct mr_table {
    index_scores scores;
    index_pack notes;
    mr_table_fn *fn;
    void *user;
};

static mr_status hand_on(void *user, const index_input *in)
{
    const mr_table *table = user;
    return table->fn(table->user, table,
                     &(mr_table_row){.path = in->path,
                                     .line = in->line,
                                     .n_captions = in->more + 1,
                                     .captions = in->text,
                                     .n_numbers = in->n_numbers,
                                     .numbers = in->numbers});
}

mr_status mr_table_read(const char *file, mr_table_fn *fn, void *user, mr_table **out)
{
    mr_table *table;
    if (!MR_NEW(table))
        return mr_fail_memory(sizeof *table);
    table->fn = fn, table->user = user;
    mr_status st = read_file(
        file,
        &(struct table){.scores = &table->scores, .row = hand_on, .user = table, .any = true});
    if (st == MR_OK)
        st = index_scores_notes(&table->scores, &table->notes);
    index_put(&table->notes, "", 1);
    if (st == MR_OK && table->notes.failed)
        st = mr_fail_memory(1);
    if (st == MR_OK)
        *out = table;
    else
        mr_table_free(table);
    return st;
}

void mr_table_free(mr_table *table)
{
    if (!table)
        return;
    mr_free(table->notes.bytes);
    mr_free(table);
}

int32_t mr_table_numbers(const mr_table *table)
{
    return table->scores.n;
}
const char *mr_table_name(const mr_table *table, int32_t number)
{
    return table->scores.of[number].name;
}
bool mr_table_is_column(const mr_table *table, int32_t number)
{
    return index_score_is_column(&table->scores.of[number]);
}
const char *mr_table_notes(const mr_table *table)
{
    return (const char *)table->notes.bytes;
}
