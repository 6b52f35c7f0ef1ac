/* index: interprets the columns of a list. Path and captions belong to the sample, columns that a
 * scan measures itself are ignored, and numbers become columns of the index under their names.
 * Licence: Apache-2.0 */
#include "index/list.h"
#include "index/store.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// columns that a scan measures exactly for every row
static const char *const measured[] = {
    "num_frames", "frames",     "height", "width", "aspect_ratio", "resolution",
    "fps",        "seconds",    "bytes",  "codec", "text_bytes",   "image",
    "vfr",        "interlaced", "file",   "id",    "key"};

enum { TEXTS = 100 }; // a column with this many texts per number is text

// text, text2, text_3
static bool is_caption(const char *name)
{
    if (strncasecmp(name, "text", 4))
        return false;
    const char *number = name + 4 + (name[4] == '_' && name[5]);
    return !number[strspn(number, "0123456789")];
}

// the length of a name without blanks around it
static size_t trimmed(const char **name, size_t n)
{
    while (n && **name == ' ')
        ++*name, n--;
    while (n && (*name)[n - 1] == ' ')
        n--;
    return n;
}

// Parses the entry "to=from" at *p and moves to the next; false: the end, or not an entry.
static bool next_name(const char **p, const char **to, size_t *n_to, const char **from,
                      size_t *n_from)
{
    size_t n = strcspn(*p, ",");
    const char *equals = memchr(*p, '=', n);
    if (!equals)
        return false;
    *to = *p, *from = equals + 1;
    *n_to = trimmed(to, (size_t)(equals - *p));
    *n_from = trimmed(from, n - (size_t)(equals + 1 - *p));
    *p += n + ((*p)[n] == ',');
    return *n_to && *n_from && *n_to < INDEX_NAME_MAX;
}

static mr_status check_names(const char *names)
{
    const char *p = names, *to, *from;
    size_t n_to, n_from;
    while (*p)
        if (!next_name(&p, &to, &n_to, &from, &n_from))
            return mr_fail(MR_E_USAGE,
                           "columns: '%s'; expected NAME=COLUMN,...; try: path=video,text=caption",
                           names);
    return MR_OK;
}

mr_status index_scores_begin(index_scores *s, const mr_table_options *o)
{
    const char *escape = o->escape ? o->escape : "";
    *s = (index_scores){.names = o->columns, .escape = escape};
    if (strlen(escape) > 1 || (*escape && (!isprint((unsigned char)*escape) || isalnum(*escape))))
        return mr_fail(MR_E_USAGE, "escape: '%s'; expected one character, as '\\'", escape);
    return o->columns ? check_names(o->columns) : MR_OK;
}

// the name of a column of this list in the index
static const char *called(index_scores *s, const char *given, char room[INDEX_NAME_MAX])
{
    const char *p = s->names ? s->names : "", *to, *from;
    size_t n_to, n_from;
    for (int i = 0; *p && next_name(&p, &to, &n_to, &from, &n_from); i++)
        if (strlen(given) == n_from && strncasecmp(given, from, n_from) == 0) {
            s->met |= i < 64 ? UINT64_C(1) << i : 0;
            snprintf(room, INDEX_NAME_MAX, "%.*s", (int)n_to, to);
            return room;
        }
    return given;
}

const char *index_scores_missing(const index_scores *s, const char *name, char room[INDEX_NAME_MAX])
{
    const char *p = s->names ? s->names : "", *to, *from;
    size_t n_to, n_from;
    for (int i = 0; i < 64 && *p && next_name(&p, &to, &n_to, &from, &n_from); i++) {
        // a column to leave out may be missing; the notes report it
        bool wanted = name ? strlen(name) == n_to && strncasecmp(name, to, n_to) == 0
                           : !(s->met >> i & 1) && *to != '-';
        if (!wanted)
            continue;
        snprintf(room, INDEX_NAME_MAX, "%.*s", (int)n_from, from);
        return room;
    }
    return name;
}

// column names of clip times in data sets
static const char *const starts[] = {"start_s", "start", "start_time", "start_timestamp", NULL},
                         *const ends[] = {"end_s", "end", "end_time", "end_timestamp", NULL},
                         *const ranges[] = {"range_s", "range",     "ranges",     "span", "spans",
                                            "times",   "timestamp", "timestamps", NULL};

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcasecmp(name, *names))
        names++;
    return *names != NULL;
}

static index_meaning look(const char *given, bool *times)
{
    *times = is_one_of(given, ranges);
    if (strcmp(given, "-") == 0)
        return INDEX_NOTHING;
    if (strcasecmp(given, "path") == 0)
        return INDEX_PATH;
    if (is_one_of(given, starts))
        return INDEX_START;
    if (is_one_of(given, ends))
        return INDEX_END;
    if (is_caption(given))
        return given[4] ? INDEX_MORE : INDEX_TEXT;
    return INDEX_SCORE;
}

index_meaning index_scores_look(index_scores *s, const char *column, bool *times)
{
    char room[INDEX_NAME_MAX];
    return look(called(s, column, room), times);
}

index_meaning index_scores_meaning(index_scores *s, const char *column)
{
    char name[INDEX_COLUMN_NAME] = "", room[INDEX_NAME_MAX];
    const char *given = called(s, column, room);
    size_t n = 0;
    bool times;
    index_meaning is = look(given, &times);
    // the first name of each list is our own
    bool guessed = (is == INDEX_START && strcasecmp(given, *starts)) ||
                   (is == INDEX_END && strcasecmp(given, *ends)) ||
                   (times && strcasecmp(given, *ranges));
    if (guessed && !*s->times)
        snprintf(s->times, sizeof s->times, "%.*s", (int)sizeof s->times - 1, column);
    if (is != INDEX_SCORE)
        return is;
    // characters that an expression cannot contain become '_'
    if (isdigit((unsigned char)*given))
        name[n++] = '_';
    for (; *given && n + 1 < sizeof name; given++)
        name[n++] = (unsigned char)*given < 128 && isalnum(*given) ? *given : '_';
    for (size_t i = 0; i < MR_COUNT(measured); i++)
        if (strcasecmp(name, measured[i]) == 0)
            return INDEX_NOTHING;
    for (int32_t i = 0; i < s->n; i++)
        if (strcmp(s->of[i].name, name) == 0)
            return (index_meaning)(INDEX_SCORE + i);
    if (!n || s->n == INDEX_SCORES) {
        s->beyond += n > 0;
        return INDEX_NOTHING;
    }
    index_score *of = &s->of[s->n];
    memcpy(of->name, name, n + 1);
    snprintf(of->column, sizeof of->column, "%.*s", (int)sizeof of->column - 1, column);
    of->times = times;
    return (index_meaning)(INDEX_SCORE + s->n++);
}

/* ---- values ---- */

// Ref: pandas 2.2, io/parsers/readers.py, STR_NA_VALUES
static const char *const missing[] = {
    "",     "#N/A", "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A",  "NA",       "NULL", "NaN",     "None",     "n/a",  "nan",  "null"};

static bool is_missing(const char *text, size_t n)
{
    for (size_t i = 0; i < MR_COUNT(missing); i++)
        if (strlen(missing[i]) == n && memcmp(text, missing[i], n) == 0)
            return true;
    return false;
}

bool index_is_missing(const char *text)
{
    return is_missing(text, strlen(text));
}

static void see(index_seen *seen, const char *text, uint64_t line)
{
    if (seen->n++)
        return;
    seen->line = line;
    snprintf(seen->first, sizeof seen->first, "%.*s", (int)sizeof seen->first - 1, text);
}

// are all n bytes among `letters`?
static bool holds(const char *text, size_t n, const char *letters)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(letters, text[i]))
            return false;
    return n > 0;
}

// Parses an integer of 64 bits, except the smallest, which means none; false: something else.
static bool take_whole(const char *text, size_t n, int64_t *value, bool *beyond)
{
    size_t sign = *text == '-' || *text == '+';
    if (!holds(text + sign, n - sign, "0123456789"))
        return false;
    errno = 0;
    *value = strtoll(text, NULL, 10);
    *beyond = errno == ERANGE || *value == INT64_MIN;
    return !*beyond;
}

static bool is_endless(const char *text, size_t n)
{
    size_t sign = *text == '-' || *text == '+';
    return (n - sign == 3 && strncasecmp(text + sign, "inf", 3) == 0) ||
           (n - sign == 8 && strncasecmp(text + sign, "infinity", 8) == 0);
}

static const mr_number none = {.f = NAN};

mr_number index_scores_count(index_scores *s, int32_t score, mr_number value, uint64_t line)
{
    index_score *of = &s->of[score];
    char text[32];
    if (mr_number_is_none(value))
        return none;
    of->wholes += value.whole, of->reals += !value.whole;
    if (value.whole && !index_whole_is_real(value.i)) {
        snprintf(text, sizeof text, "%lld", (long long)value.i);
        see(&of->large, text, line);
    }
    return value;
}

mr_number index_scores_take(index_scores *s, int32_t score, const char *text, uint64_t line)
{
    index_score *of = &s->of[score];
    int64_t whole;
    bool beyond = false;
    const char *from = text + strspn(text, " \t");
    size_t n = strlen(from);
    while (n && strchr(" \t", from[n - 1]))
        n--;
    if (is_missing(from, n))
        return none;
    if (take_whole(from, n, &whole, &beyond))
        return index_scores_count(s, score, (mr_number){.whole = true, .i = whole}, line);
    char *end;
    double real = strtod(from, &end);
    bool number = end == from + n && holds(from, n, "0123456789+-.eE");
    if (number && isfinite(real)) {
        if (beyond)
            see(&of->large, from, line);
        return index_scores_count(s, score, (mr_number){.f = real}, line);
    }
    see(number || is_endless(from, n) ? &of->endless : &of->others, text, line);
    return none;
}

void index_scores_unread(index_scores *s, int32_t score, const char *what, uint64_t line)
{
    see(&s->of[score].unread, what, line);
}

/* ---- after the list was read ---- */

// in a column of text, such as hashes, a few values are numbers by chance
bool index_score_is_column(const index_score *s)
{
    uint64_t numbers = s->wholes + s->reals;
    return numbers && s->others.n / TEXTS < numbers;
}

mr_column_kind index_score_kind(const index_score *s)
{
    return s->reals ? MR_COLUMN_REAL : MR_COLUMN_WHOLE;
}

// copies a text that may end inside a character, up to the last whole character
static void clean(const index_seen *seen, char out[sizeof seen->first])
{
    size_t n = 0;
    for (size_t at = 0, bytes; seen->first[at]; at += bytes) {
        uint32_t code;
        bytes = mr_utf8(seen->first + at, strlen(seen->first + at), &code);
        if (!bytes || code < 32)
            break;
        n = at + bytes;
    }
    snprintf(out, sizeof seen->first, "%.*s", (int)n, seen->first);
}

mr_status index_scores_end(const index_scores *s)
{
    char first[sizeof s->of->others.first];
    for (int32_t i = 0; i < s->n; i++) {
        const index_score *of = &s->of[i];
        if (!index_score_is_column(of) || !of->others.n)
            continue;
        clean(&of->others, first);
        return mr_fail(
            MR_E_DATA,
            "%s:%llu: column '%s' has '%s', which is not a number; %llu of its cells are not "
            "numbers, %llu "
            "are; expected numbers, and for a missing value an empty cell, NA, NaN, null or "
            "similar; try: --columns -=%s to leave it out, --columns text_2=%s to keep its text "
            "as a caption",
            s->file, (unsigned long long)of->others.line, of->column, first,
            (unsigned long long)of->others.n, (unsigned long long)(of->wholes + of->reals),
            of->column, of->column);
    }
    return MR_OK;
}

mr_status index_scores_notes(const index_scores *s, index_pack *out)
{
    char line[400], first[sizeof s->of->others.first];
    for (int32_t i = 0; i < s->n; i++) {
        const index_score *of = &s->of[i];
        const struct {
            const index_seen *seen;
            const char *does, *what;
        } rows[] = {{&of->others, "is left out:", "of its values are not numbers"},
                    {&of->endless, "has no value for", "of its cells, which are not finite"},
                    {of->reals ? &of->large : NULL, "stores reals, which round", "of its integers"},
                    {&of->unread, "ignores", "lists or objects without a meaning here"}};
        for (size_t k = 0; k < MR_COUNT(rows); k++) {
            const index_seen *seen = rows[k].seen;
            if (!seen || !seen->n)
                continue;
            clean(seen, first);
            snprintf(line, sizeof line, "column '%s' %s %llu %s, the first: '%s' in row %llu",
                     of->name, rows[k].does, (unsigned long long)seen->n, rows[k].what, first,
                     (unsigned long long)seen->line);
            index_note(out, line);
        }
    }
    if (s->cut && *s->times) {
        snprintf(line, sizeof line,
                 "%llu samples are parts of their files, as '%s' says; --columns -=%s takes whole "
                 "files",
                 (unsigned long long)s->cut, s->times, s->times);
        index_note(out, line);
    }
    const char *p = s->names ? s->names : "", *to, *from;
    size_t n_to, n_from;
    for (int i = 0; i < 64 && *p && next_name(&p, &to, &n_to, &from, &n_from); i++) {
        if (*to != '-' || s->met >> i & 1)
            continue;
        snprintf(line, sizeof line, "column '%.*s', which --columns leaves out, does not exist",
                 (int)MR_MIN(n_from, 64), from);
        index_note(out, line);
    }
    if (s->beyond) {
        snprintf(line, sizeof line, "%llu columns are left out: an index has at most %d",
                 (unsigned long long)s->beyond, INDEX_SCORES);
        index_note(out, line);
    }
    return out->failed ? mr_fail_memory(out->cap * 2) : MR_OK;
}
