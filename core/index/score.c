/* index: what the columns of a list mean. Path and captions are a sample's, what a scan measures is
 * not believed, numbers become columns of the index under their names. Licence: Apache-2.0 */
#include "index/room.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// what every row of an index has already, exactly
static const char *const measured[] = {
    "num_frames", "frames",     "height", "width", "aspect_ratio", "resolution",
    "fps",        "seconds",    "bytes",  "codec", "text_bytes",   "image",
    "vfr",        "interlaced", "file",   "id",    "key"};

// text, text2, text_3
static bool is_caption(const char *name)
{
    if (strncasecmp(name, "text", 4))
        return false;
    const char *number = name + 4 + (name[4] == '_' && name[5]);
    return !number[strspn(number, "0123456789")];
}

// the length of a name up to `end`, without blanks around it
static size_t trimmed(const char **name, size_t n)
{
    while (n && **name == ' ')
        ++*name, n--;
    while (n && (*name)[n - 1] == ' ')
        n--;
    return n;
}

// Entry "to=from" at *p: moves on to the next; false at the end, or when it is none.
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

mr_status index_scores_check(const char *names)
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

// the name that a column of this list stands for
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
        bool wanted =
            name ? strlen(name) == n_to && strncasecmp(name, to, n_to) == 0 : !(s->met >> i & 1);
        if (!wanted)
            continue;
        snprintf(room, INDEX_NAME_MAX, "%.*s", (int)n_from, from);
        return room;
    }
    return name;
}

index_meaning index_scores_meaning(index_scores *s, const char *column)
{
    char name[INDEX_COLUMN_NAME] = "", room[INDEX_NAME_MAX];
    const char *given = called(s, column, room);
    size_t n = 0;
    if (strcasecmp(given, "path") == 0)
        return INDEX_PATH;
    if (strcasecmp(given, "start_s") == 0)
        return INDEX_START;
    if (strcasecmp(given, "end_s") == 0)
        return INDEX_END;
    if (is_caption(given))
        return given[4] ? INDEX_MORE : INDEX_TEXT;
    // what cannot stand in an expression becomes '_'
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
    memcpy(s->of[s->n].name, name, n + 1);
    return (index_meaning)(INDEX_SCORE + s->n++);
}

float index_scores_take(index_scores *s, int32_t score, const char *text)
{
    static const char *const nothing[] = {"", "none", "null", "na"};
    index_score *of = &s->of[score];
    char *end;
    double value = strtod(text, &end);
    end += strspn(end, " \t");
    if (end != text && !*end) {
        // what is not finite, or not as f32, is no value
        bool good = isfinite(value) && fabs(value) < 3e38;
        of->numbers += good;
        return good ? (float)value : NAN;
    }
    for (size_t i = 0; i < MR_COUNT(nothing); i++)
        if (strcasecmp(text, nothing[i]) == 0)
            return NAN;
    if (!of->others++)
        snprintf(of->first, sizeof of->first, "%.*s", (int)sizeof of->first - 1, text);
    return NAN;
}

bool index_score_is_column(const index_score *s)
{
    return s->numbers && !s->others;
}

mr_status index_scores_notes(const index_scores *s, index_pack *out)
{
    char line[400];
    for (int32_t i = 0; i < s->n; i++) {
        const index_score *of = &s->of[i];
        if (!of->others)
            continue;
        // the first text may be cut within a character
        char first[sizeof of->first];
        size_t n = 0;
        for (size_t at = 0, bytes; of->first[at]; at += bytes) {
            uint32_t code;
            bytes = mr_utf8(of->first + at, strlen(of->first + at), &code);
            if (!bytes || code < 32)
                break;
            n = at + bytes;
        }
        snprintf(first, sizeof first, "%.*s", (int)n, of->first);
        snprintf(line, sizeof line,
                 "column '%s' is left out: %llu of its values are no numbers, the first: '%s'",
                 of->name, (unsigned long long)of->others, first);
        index_note(out, line);
    }
    if (s->beyond) {
        snprintf(line, sizeof line, "%llu columns are left out: an index has at most %d",
                 (unsigned long long)s->beyond, INDEX_SCORES);
        index_note(out, line);
    }
    return out->failed ? mr_fail_memory(out->cap * 2) : MR_OK;
}
