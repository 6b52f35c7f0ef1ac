/* index: rows of tables of others, one by one: what their values mean, and which reader is for a
 * file. Licence: Apache-2.0 */
#include "index/room.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- a row in the making ---- */

void index_making_begin(index_making *w)
{
    w->path.n = w->first.bytes.n = w->more.bytes.n = 0;
    w->first.n = w->more.n = 0;
    w->start_us = w->end_us = 0, *w->wrong = 0;
    for (int32_t i = 0; i < INDEX_SCORES; i++)
        w->numbers[i] = NAN;
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

// seconds from 0 on; nothing stands for the file's own begin or end
static int64_t take_time(index_making *w, const char *name, const char *value)
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

mr_status index_making_value(index_making *w, const index_pieces *t, index_meaning is,
                             const char *value)
{
    if (is == INDEX_START)
        w->start_us = take_time(w, "start_s", value);
    if (is == INDEX_END)
        w->end_us = take_time(w, "end_s", value);
    if (is == INDEX_TEXT || is == INDEX_MORE)
        return index_making_caption(is == INDEX_TEXT ? &w->first : &w->more, t, value);
    if (is >= INDEX_SCORE)
        w->numbers[is - INDEX_SCORE] = index_scores_take(w->scores, (int)is - INDEX_SCORE, value);
    return MR_OK;
}

mr_status index_making_end(index_making *w, const char *path, uint64_t line)
{
    index_captions *c = &w->first;
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

/* ---- a file ---- */

static bool ends(const char *dot, const char *ending)
{
    return dot && strcasecmp(dot, ending) == 0;
}

static mr_status read_rows(index_pieces *t, const char *dot, index_making *w)
{
    if (ends(dot, ".parquet") || ends(dot, ".jsonl") || ends(dot, ".ndjson"))
        return index_json_read(t, w);
    return index_csv_read(t, ends(dot, ".tsv") ? '\t' : ',', w);
}

static mr_status read_file(const char *file, index_making *w)
{
    index_pieces t;
    const char *dot = strrchr(file, '.');
    mr_status st = index_pieces_open(&t, file, ends(dot, ".parquet"));
    if (st == MR_OK)
        st = read_rows(&t, dot, w);
    st = index_pieces_close(&t, st);
    mr_free(w->path.bytes);
    mr_free(w->first.bytes.bytes);
    mr_free(w->more.bytes.bytes);
    mr_free(w->field.bytes);
    return st;
}

mr_status index_table_read(const char *file, index_scores *scores, index_table_row *row, void *user)
{
    return read_file(file, &(index_making){.scores = scores, .row = row, .user = user});
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
        &(index_making){.scores = &table->scores, .row = hand_on, .user = table, .any = true});
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
