/* index: builds a row of a table value by value. Licence: Apache-2.0 */
#include "index/store.h"
#include "index/table.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void drop_lists(index_making *w)
{
    while (w->n_lists)
        json_decref(w->lists[--w->n_lists].value);
}

void index_making_begin(index_making *w, uint64_t line)
{
    w->path.n = w->first.bytes.n = w->more.bytes.n = 0;
    w->first.n = w->more.n = 0;
    w->start_us = w->end_us = 0, *w->wrong = 0;
    w->line = line, w->captioned = false;
    drop_lists(w);
    for (int32_t i = 0; i < INDEX_SCORES; i++)
        index_making_number(w, i, (mr_number){.f = NAN});
}

void index_making_fini(index_making *w)
{
    drop_lists(w);
    mr_free(w->path.bytes);
    mr_free(w->first.bytes.bytes);
    mr_free(w->more.bytes.bytes);
    mr_free(w->field.bytes);
    mr_free(w->plain.bytes);
}

void index_making_wrong(index_making *w, const char *form, ...)
{
    va_list args;
    if (*w->wrong)
        return;
    va_start(args, form);
    vsnprintf(w->wrong, sizeof w->wrong, form, args);
    va_end(args);
}

void index_making_number(index_making *w, int32_t score, mr_number value)
{
    memcpy(&w->numbers[score], &value.i, sizeof value.i);
    w->wholes = (w->wholes & ~(1u << score)) | (uint32_t)value.whole << score;
}

mr_status index_making_caption(index_captions *c, const index_pieces *t, const char *caption)
{
    if (!*caption)
        return MR_OK;
    if (c->n++ == UINT8_MAX / 2)
        return mr_fail(MR_E_DATA, "%s:%llu: more than %d captions", t->file,
                       (unsigned long long)t->line, UINT8_MAX / 2);
    index_put(&c->bytes, caption, strlen(caption) + 1);
    return c->bytes.failed ? mr_fail_memory(c->bytes.cap * 2) : MR_OK;
}

bool index_time(const char *text, int64_t *us)
{
    const char *p = text + strspn(text, " \t"), *last = p + strcspn(p, " \t");
    const bool clock = memchr(p, ':', (size_t)(last - p)) != NULL;
    double all = 0;
    for (int parts = 0; parts < 3; parts++) {
        char *end;
        size_t n = strspn(p, clock ? "0123456789." : "0123456789.eE+-");
        double part = strtod(p, &end);
        // minutes and seconds after a colon are below 60
        if (!strchr("0123456789.", *p) || end == p || end != p + n || (parts && part >= 60))
            return false;
        all = all * 60 + part;
        if (*end != ':') {
            *us = all < 1e9 ? llround(all * 1e6) : 0;
            return end == last && !end[strspn(end, " \t")] && all < 1e9;
        }
        // only seconds have a fraction
        if (memchr(p, '.', n))
            return false;
        p = end + 1;
    }
    return false;
}

// an empty value means the begin or end of the file
static int64_t take_time(index_making *w, const char *name, const char *value)
{
    int64_t us = 0;
    if (!index_is_missing(value + strspn(value, " \t")) && !index_time(value, &us))
        index_making_wrong(w, "%s is '%.60s'; expected seconds from 0 on, or H:MM:SS", name, value);
    return us;
}

static mr_status take_list(index_making *w, const index_pieces *t, index_meaning is, json_t *value)
{
    if (w->n_lists == INDEX_LISTS)
        return mr_fail(MR_E_DATA, "%s:%llu: more than %d lists in a row", t->file,
                       (unsigned long long)w->line, INDEX_LISTS);
    // a single range is a list of one
    bool range = json_is_object(value) && index_shape_timed(w, is, value);
    json_t *list = range ? json_pack("[O]", value) : json_incref(value);
    if (!list)
        return mr_fail_memory(sizeof *w);
    w->lists[w->n_lists++] = (index_list){.is = is, .value = list};
    return MR_OK;
}

// Parses two times in a text: "0:01 - 0:02", "00:01:00.5 --> 00:01:02", "1,2.5". *pair NULL: the
// text has another form.
static mr_status read_range(const char *value, json_t **pair)
{
    char from[32];
    int64_t us;
    size_t n = strcspn(value, "-,");
    const char *to = value + n + strspn(value + n, value[n] == ',' ? "," : "->");
    snprintf(from, sizeof from, "%.*s", (int)n, value);
    *pair = NULL;
    if (n >= sizeof from || !index_time(from, &us) || !index_time(to, &us))
        return MR_OK;
    *pair = json_pack("[ss]", from, to);
    return *pair ? MR_OK : mr_fail_memory(strlen(value));
}

mr_status index_making_value(index_making *w, const index_pieces *t, index_meaning is,
                             const char *value)
{
    json_t *list = NULL;
    if (is >= INDEX_TEXT)
        MR_TRY(index_literal(value, &list));
    if (!list && is >= INDEX_SCORE && w->scores->of[is - INDEX_SCORE].times)
        MR_TRY(read_range(value, &list));
    if (list && ((is != INDEX_TEXT && is != INDEX_MORE) || index_shape_are_captions(list))) {
        mr_status st = index_making_json(w, t, is, list);
        json_decref(list);
        return st;
    }
    json_decref(list);
    if (is >= INDEX_SCORE && value[strspn(value, " \t")] == '[') {
        index_score *of = &w->scores->of[is - INDEX_SCORE];
        if (of->times)
            index_making_wrong(w, "%s is not a readable list: %.60s", of->column, value);
        index_scores_unread(w->scores, (int32_t)is - INDEX_SCORE, value, w->line);
        return MR_OK;
    }
    w->captioned |= is == INDEX_TEXT;
    if (is == INDEX_START)
        w->start_us = take_time(w, "start_s", value);
    if (is == INDEX_END)
        w->end_us = take_time(w, "end_s", value);
    if (is == INDEX_TEXT || is == INDEX_MORE)
        return index_making_caption(is == INDEX_TEXT ? &w->first : &w->more, t, value);
    if (is >= INDEX_SCORE)
        index_making_number(
            w, (int32_t)is - INDEX_SCORE,
            index_scores_take(w->scores, (int32_t)is - INDEX_SCORE, value, w->line));
    return MR_OK;
}

mr_status index_making_json(index_making *w, const index_pieces *t, index_meaning is, json_t *value)
{
    char text[40];
    mr_number number = {.whole = true};
    switch (json_typeof(value)) {
    case JSON_STRING: return index_making_value(w, t, is, json_string_value(value));
    case JSON_NULL: return index_making_value(w, t, is, "");
    case JSON_ARRAY:
    case JSON_OBJECT:
        w->captioned |= is >= INDEX_SCORE ? index_shape_captioned(w, value)
                                          : is == INDEX_TEXT && json_is_array(value);
        return is < INDEX_TEXT ? MR_OK : take_list(w, t, is, value);
    case JSON_INTEGER: number.i = json_integer_value(value); break;
    case JSON_REAL:
        number = (mr_number){.f = json_real_value(value)};
        // Parquet columns of f32 arrive as f64
        if (t->child.file && fabs(number.f) <= FLT_MAX && (double)(float)number.f == number.f)
            number.f = index_decimal_of((float)number.f);
        break;
    default: number.i = json_is_true(value);
    }
    if (is >= INDEX_SCORE) {
        int32_t score = (int32_t)is - INDEX_SCORE;
        index_making_number(w, score, index_scores_count(w->scores, score, number, w->line));
        return MR_OK;
    }
    // a number can only be a time
    snprintf(text, sizeof text, "%.17g", json_number_value(value));
    return is == INDEX_START || is == INDEX_END ? index_making_value(w, t, is, text) : MR_OK;
}

mr_status index_making_sample(index_making *w, const char *path)
{
    index_captions *c = &w->first;
    if (w->more.n)
        index_put(&c->bytes, w->more.bytes.bytes, w->more.bytes.n);
    c->n += w->more.n;
    // a row without captions has an empty one
    index_put(&c->bytes, "", c->n ? 0 : 1);
    if (c->bytes.failed)
        return mr_fail_memory(c->bytes.cap * 2);
    if (w->end_us && w->end_us <= w->start_us)
        index_making_wrong(w, "end_s is %.6f; expected more than start_s, %.6f",
                           (double)w->end_us * 1e-6, (double)w->start_us * 1e-6);
    w->scores->cut += !*w->wrong && (w->start_us || w->end_us);
    return w->row(w->user, &(index_input){.path = path,
                                          .start_us = w->start_us,
                                          .end_us = w->end_us,
                                          .fault = *w->wrong ? w->wrong : NULL,
                                          .class = *w->wrong ? "range" : NULL,
                                          .text = (const char *)c->bytes.bytes,
                                          .line = w->line,
                                          .more = MR_MAX(c->n, 1) - 1,
                                          .n_numbers = w->scores->n,
                                          .wholes = w->wholes,
                                          .numbers = w->numbers});
}
