/* index: reads external tables row by row - chooses the reader of a file, and gives tables to other
 * rooms.
 * Licence: Apache-2.0 */
#include "index/table.h"

#include <string.h>
#include <strings.h>

/* ---- a file ---- */

static bool ends(const char *dot, const char *ending)
{
    return dot && strcasecmp(dot, ending) == 0;
}

static mr_status read_rows(index_pieces *t, const char *dot, index_making *w)
{
    if (ends(dot, ".parquet") || ends(dot, ".jsonl") || ends(dot, ".ndjson") || ends(dot, ".json"))
        return index_json_read(t, w);
    return index_csv_read(t, ends(dot, ".tsv") ? '\t' : ',', w);
}

static mr_status read_file(const char *file, index_making *w)
{
    index_pieces t;
    const char *dot = strrchr(file, '.'), *escape = w->scores->escape;
    w->scores->file = file;
    if (escape && *escape && !ends(dot, ".csv") && !ends(dot, ".tsv"))
        return mr_fail(MR_E_USAGE, "%s: escape: '%s' applies only to CSV and TSV", file, escape);
    mr_status st = index_pieces_open(&t, file, ends(dot, ".parquet"));
    if (st == MR_OK)
        st = read_rows(&t, dot, w);
    st = index_pieces_close(&t, st);
    if (st == MR_OK)
        st = index_scores_end(w->scores);
    index_making_fini(w);
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
    mr_number numbers[INDEX_SCORES];
    if (in->fault)
        return mr_fail(MR_E_DATA, "%s:%llu: %s", table->scores.file, (unsigned long long)in->line,
                       in->fault);
    for (int32_t i = 0; i < in->n_numbers; i++)
        numbers[i] = index_input_number(in, i);
    return table->fn(table->user, table,
                     &(mr_table_row){.path = in->path,
                                     .line = in->line,
                                     .n_captions = in->more + 1,
                                     .captions = in->text,
                                     .start_us = in->start_us,
                                     .end_us = in->end_us,
                                     .n_numbers = in->n_numbers,
                                     .numbers = numbers});
}

mr_status mr_table_read(const char *file, const mr_table_options *options, mr_table_fn *fn,
                        void *user, mr_table **out)
{
    mr_table *table;
    if (!MR_NEW(table))
        return mr_fail_memory(sizeof *table);
    table->fn = fn, table->user = user;
    const mr_table_options none = {0};
    mr_status st = index_scores_begin(&table->scores, options ? options : &none);
    if (st == MR_OK)
        st = read_file(
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
mr_column_kind mr_table_kind(const mr_table *table, int32_t number)
{
    return index_score_kind(&table->scores.of[number]);
}
const char *mr_table_notes(const mr_table *table)
{
    return (const char *)table->notes.bytes;
}
