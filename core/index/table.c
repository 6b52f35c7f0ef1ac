/* index: rows of CSV (RFC 4180, a header first), TSV and JSON lines. Licence: Apache-2.0 */
#include "index/room.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

typedef struct csv {
    char *at; /* fields are unquoted in place */
    char separator;
    uint64_t line;
    const char *file;
    bool row_ended;
} csv;

// gives the next field of the row, terminated by zero where it stands
static mr_status next_field(csv *c, char **out)
{
    char *p = c->at, *to = p;
    *out = p;
    if (*p == '"') {
        uint64_t began = c->line;
        for (p++;; p++) {
            if (!*p)
                return mr_fail(MR_E_DATA, "%s:%llu: a quoted field does not end", c->file,
                               (unsigned long long)began);
            if (*p == '"' && *++p != '"')
                break;
            c->line += *p == '\n';
            *to++ = *p;
        }
    }
    while (*p && *p != c->separator && *p != '\n') {
        if (*p == '\r' && p[1] == '\n') {
            p++;
            break;
        }
        *to++ = *p++;
    }
    c->row_ended = *p != c->separator;
    c->line += *p == '\n';
    c->at = p + (*p != 0);
    *to = 0;
    return MR_OK;
}

enum { COLUMNS = 256 };

static mr_status read_csv(index_source *s, csv *c, bool want_text)
{
    char found[1024] = "", *field;
    int path_at = -1, text_at = -1, columns = 0;
    for (bool more = true; more; more = !c->row_ended) {
        MR_TRY(next_field(c, &field));
        if (!columns && strncmp(field, "\xef\xbb\xbf", 3) == 0)
            field += 3; // byte order mark
        if (strcasecmp(field, "path") == 0)
            path_at = columns;
        if (strcasecmp(field, "text") == 0)
            text_at = columns;
        size_t n = strlen(found);
        snprintf(found + n, sizeof found - n, "%s%s", columns ? ", " : "", field);
        if (++columns > COLUMNS)
            return mr_fail(MR_E_DATA, "%s:1: more than %d columns", c->file, COLUMNS);
    }
    if (path_at < 0 || (want_text && text_at < 0))
        return mr_fail(
            MR_E_DATA,
            "%s:1: no column '%s'; columns found: %s; expected a header with path and text",
            c->file, path_at < 0 ? "path" : "text", *found ? found : "none");
    while (*c->at) {
        uint64_t line = c->line;
        char *path = NULL, *text = NULL;
        int n = 0;
        for (bool more = true; more; more = !c->row_ended) {
            MR_TRY(next_field(c, &field));
            if (n == path_at)
                path = field;
            if (n == text_at)
                text = field;
            n++;
        }
        if (n == 1 && !*field)
            continue; // an empty line
        if (n != columns)
            return mr_fail(MR_E_DATA,
                           "%s:%llu: %d fields, expected %d as in the header; try: quote fields "
                           "that hold separators",
                           c->file, (unsigned long long)line, n, columns);
        MR_TRY(index_source_add(s, path, text, line));
    }
    return MR_OK;
}

static mr_status read_json(index_source *s, const char *file, char *text, bool want_text)
{
    uint64_t line = 1;
    for (char *p = text; *p; line++) {
        size_t n = strcspn(p, "\n");
        if (strspn(p, " \t\r") < n) {
            json_error_t why;
            json_t *o = json_loadb(p, n, JSON_REJECT_DUPLICATES, &why);
            const char *path = json_string_value(json_object_get(o, "path")),
                       *caption = json_string_value(json_object_get(o, "text"));
            mr_status st =
                !o ? mr_fail(MR_E_DATA, "%s:%llu: not JSON: %s", file, (unsigned long long)line,
                             why.text)
                : !path || (want_text && !caption)
                    ? mr_fail(
                          MR_E_DATA,
                          "%s:%llu: no text value '%s'; expected {\"path\": ..., \"text\": ...}",
                          file, (unsigned long long)line, path ? "text" : "path")
                    : index_source_add(s, path, caption, line);
            json_decref(o);
            MR_TRY(st);
        }
        p += n + (p[n] == '\n');
    }
    return MR_OK;
}

mr_status index_table_read(index_source *s, const char *file, bool want_text)
{
    char *text;
    size_t n;
    // a list lies in memory as a whole
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    mr_status read = mr_file_read_small(file, memory / 2, &text, &n);
    if (read != MR_OK)
        return read == MR_E_MEMORY
                   ? read
                   : mr_fail(MR_E_DATA,
                             "%s; expected a .csv or .jsonl file of at most half the memory",
                             mr_error_last()->text);
    const char *dot = strrchr(file, '.');
    mr_status st;
    if (strlen(text) != n)
        st = mr_fail(MR_E_DATA, "%s: holds a zero byte at %zu; expected text in UTF-8", file,
                     strlen(text));
    else if (dot && (strcasecmp(dot, ".jsonl") == 0 || strcasecmp(dot, ".ndjson") == 0))
        st = read_json(s, file, text, want_text);
    else {
        csv c = {.at = text,
                 .separator = dot && strcasecmp(dot, ".tsv") == 0 ? '\t' : ',',
                 .line = 1,
                 .file = file};
        st = read_csv(s, &c, want_text);
    }
    mr_free(text);
    return st;
}
