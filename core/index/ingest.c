/* index: ingest: one thread reads the input list, several threads scan its files, and the caller
 * writes rows in input order. Licence: Apache-2.0 */
#include "base/json_fields.h"
#include "base/wait.h"
#include "index/builder.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AHEAD = 256, THREADS_MAX = 64 };

typedef struct scanned {
    bool ready, good;
    mr_clip_info info;
    mr_fault fault;
    const char *class; // class of the fault of the file or its row; NULL: none
    char why[1024];
} scanned;

struct mr_ingest {
    mr_arena arena;
    const char *input, *output;
    mr_ingest_options options; // its texts are in the arena
    index_source source;
    mr_index_builder *builder;
    const mr_media *media;
    uint16_t root;
    int32_t columns[INDEX_COLUMNS], n_columns; // for each column of the index, the number of the
                                               // list's score
    char first_reasons[1024];
    int n_reasons;
    mr_ingest_progress progress;

    pthread_mutex_t lock;
    pthread_cond_t can_scan, can_write;
    pthread_t lister, threads[THREADS_MAX];
    bool has_lister, listed, writing; // listed: reading the list has ended, with success or not
    bool torn;                        // writing failed: the builder may contain half a row
    mr_status list_status;
    mr_error *list_error;
    int n_threads;
    uint64_t next;    // next row to scan
    uint64_t written; // number of rows already written
    bool stop;
    mr_status worker_status;
    mr_error *worker_error;
    // row r at r % AHEAD: scan result, row and texts
    scanned ring[AHEAD];
    index_input rows[AHEAD];
    index_pack texts[AHEAD];
};

static void scan_one(const mr_ingest *g, mr_media_worker *w, const index_input *in, scanned *s)
{
    char file[4096];
    const char *path = in->path, *relative;
    if (in->fault) {
        s->class = in->class;
        snprintf(s->why, sizeof s->why, "%s", in->fault);
        return;
    }
    mr_status st = index_source_path(&g->source, path, file, &relative);
    if (st == MR_OK)
        st = g->media->scan(w, file, g->options.deadline_s, &s->info, &s->fault);
    // a file system error can be temporary: try three more times with growing pauses
    for (int i = 0; i < 3 && st == MR_E_IO && mr_path_exists(file); i++) {
        mr_clock_table()->sleep_ns((int64_t)100000000 << i);
        st = g->media->scan(w, file, g->options.deadline_s, &s->info, &s->fault);
    }
    s->good = st == MR_OK;
    if (s->fault != MR_FAULT_NONE)
        s->class = mr_fault_name(s->fault);
    if (st == MR_OK && s->info.flags & MR_CLIP_HDR) {
        mr_clip_info_fini(&s->info);
        s->good = false, s->class = mr_fault_name(MR_FAULT_HDR);
        snprintf(s->why, sizeof s->why, "%s: hdr: PQ or HLG transfer is not mapped", path);
    } else if (st != MR_OK) {
        snprintf(s->why, sizeof s->why, "%s", mr_error_last() ? mr_error_last()->text : "?");
    }
}

static void *scan_thread(void *user)
{
    mr_ingest *g = user;
    mr_media_worker *w = NULL;
    mr_status st = g->media->worker_new(&w);
    pthread_mutex_lock(&g->lock);
    while (!g->stop && st == MR_OK) {
        if (g->next >= g->source.n || g->next >= g->written + AHEAD) {
            pthread_cond_wait(&g->can_scan, &g->lock);
            continue;
        }
        uint64_t row = g->next++;
        index_input *in = &g->rows[row % AHEAD];
        if ((st = index_source_take(&g->source, &g->texts[row % AHEAD], in)) != MR_OK)
            break;
        pthread_mutex_unlock(&g->lock);
        scanned s = {0};
        scan_one(g, w, in, &s);
        bool fatal = !s.good && !s.class;
        pthread_mutex_lock(&g->lock);
        if (fatal) {
            st = mr_error_last() ? mr_error_last()->code : MR_E_INTERNAL;
            break;
        }
        s.ready = true;
        g->ring[row % AHEAD] = s;
        pthread_cond_signal(&g->can_write);
    }
    // an error that is not the file's fault stops the ingest
    if (st != MR_OK && g->worker_status == MR_OK) {
        g->worker_status = st;
        g->worker_error = mr_error_copy(mr_error_last());
        pthread_cond_signal(&g->can_write);
    }
    pthread_mutex_unlock(&g->lock);
    g->media->worker_free(w);
    return NULL;
}

static void *list_thread(void *user)
{
    mr_ingest *g = user;
    mr_status st = index_source_read(&g->source, g->input, &g->options);
    pthread_mutex_lock(&g->lock);
    g->list_status = st, g->listed = true;
    if (st != MR_OK)
        g->list_error = mr_error_copy(mr_error_last());
    pthread_cond_signal(&g->can_write);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static mr_status begin(mr_ingest *g)
{
    MR_TRY(mr_index_builder_meta(g->builder, "sources", g->source.described));
    index_pack dict = {0};
    mr_status st = index_dict_train(&g->source, &dict);
    if (st == MR_OK && dict.n)
        st = mr_index_builder_dictionary(g->builder, dict.bytes, dict.n);
    mr_free(dict.bytes);
    return st;
}

// each input row is in the index or refused, so their number tells the row to resume at
static mr_status resume(mr_ingest *g, mr_index_built had)
{
    char *described;
    MR_TRY(mr_index_builder_text(g->builder, "sources", &described));
    mr_status st = index_source_same(&g->source, described);
    mr_free(described);
    g->written = g->progress.resumed = g->progress.done = had.rows + had.refused;
    for (; g->next < g->written && st == MR_OK; g->next++)
        st = index_source_take(&g->source, &g->texts[0], &g->rows[0]);
    return st;
}

static mr_status name_columns(mr_ingest *g)
{
    const index_scores *s = &g->source.scores;
    for (int32_t i = 0; i < s->n; i++) {
        int32_t column;
        if (!index_score_is_column(&s->of[i]))
            continue;
        MR_TRY(mr_index_builder_column(g->builder, s->of[i].name, index_score_kind(&s->of[i]),
                                       &column));
        g->columns[column] = i, g->n_columns = column + 1;
    }
    return MR_OK;
}

// after the list was read: starts the index and the scan of its files
static mr_status begin_writing(mr_ingest *g)
{
    const mr_ingest_options *o = &g->options;
    const mr_index_options options = {.commit_rows = o->commit_rows, .resume = o->resume};
    MR_TRY(mr_index_builder_new(g->output, &options, &g->builder));
    MR_TRY(mr_index_builder_root(g->builder, g->source.root, &g->root));
    mr_index_built had = mr_index_builder_built(g->builder);
    MR_TRY(had.rows ? resume(g, had) : begin(g));
    MR_TRY(name_columns(g));
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = o->threads > 0 ? o->threads : (int)MR_MAX(processors, 1);
    g->progress.total = g->source.n;
    for (threads = MR_MIN(threads, THREADS_MAX); g->n_threads < threads; g->n_threads++)
        if (pthread_create(&g->threads[g->n_threads], NULL, scan_thread, g))
            break;
    g->writing = true;
    return g->n_threads ? MR_OK : mr_fail(MR_E_FAIL, "cannot start a thread");
}

static mr_status keep_text(mr_ingest *g, const char *text, const char **kept)
{
    *kept = text ? mr_arena_strdup(&g->arena, text) : NULL;
    return text && !*kept ? mr_fail_memory(strlen(text)) : MR_OK;
}

static mr_status start(mr_ingest *g, const char *input, const char *output,
                       const mr_ingest_options *o)
{
    g->media = mr_media_guarded();
    if (!o->isolated)
        MR_TRY(mr_media_get(&g->media));
    g->options = *o;
    MR_TRY(keep_text(g, input, &g->input));
    MR_TRY(keep_text(g, output, &g->output));
    MR_TRY(keep_text(g, o->captions, &g->options.captions));
    MR_TRY(keep_text(g, o->root, &g->options.root));
    MR_TRY(keep_text(g, o->table.columns, &g->options.table.columns));
    MR_TRY(keep_text(g, o->table.escape, &g->options.table.escape));
    MR_TRY(index_source_init(&g->source, output, o->source ? o->source : "main"));
    g->options.source = NULL; // the list has its own copy
    g->has_lister = pthread_create(&g->lister, NULL, list_thread, g) == 0;
    return g->has_lister ? MR_OK : mr_fail(MR_E_FAIL, "cannot start a thread");
}

mr_status mr_ingest_new(const char *input, const char *output, const mr_ingest_options *o,
                        mr_ingest **out)
{
    mr_ingest *g;
    if (!MR_NEW(g))
        return mr_fail_memory(sizeof *g);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->can_scan, NULL);
    pthread_cond_init(&g->can_write, NULL);
    mr_arena_init(&g->arena);
    mr_status st = start(g, input, output, o);
    if (st == MR_OK)
        *out = g;
    else
        mr_ingest_free(g);
    return st;
}

static mr_status refuse(mr_ingest *g, const index_input *in, const scanned *s)
{
    json_t *o =
        json_pack("{s:I, s:o, s:s, s:o}", "row", (json_int_t)in->line, "path",
                  mr_json_text(in->path), "class", s->class, "detail", mr_json_text(s->why));
    char *line = o ? json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(o);
    if (!line)
        return mr_fail_memory(0);
    mr_status st = mr_index_builder_refuse(g->builder, line);
    free(line);
    if (g->n_reasons++ < 3) {
        size_t n = strlen(g->first_reasons);
        snprintf(g->first_reasons + n, sizeof g->first_reasons - n, "\n  %s", s->why);
    }
    return st;
}

// keeps the frames between the times in a list. An end one frame past the last one is a rounded
// length and means the end
static mr_status cut(mr_row *row, const index_input *in)
{
    const mr_clip_info *i = &row->info;
    double rate = (double)i->rate_num / i->rate_den * 1e-6;
    int64_t first = llround((double)in->start_us * rate),
            end = in->end_us ? llround((double)in->end_us * rate) : i->frames;
    return mr_row_cut(row, first, (end == i->frames + 1 ? i->frames : end) - first);
}

// counts integers that a column of reals rounds, for its notes
static mr_number number_of(const mr_ingest *g, const index_input *in, int32_t score)
{
    mr_number value = index_input_number(in, score);
    if (value.whole && index_score_kind(&g->source.scores.of[score]) == MR_COLUMN_REAL)
        value = (mr_number){.f = (double)value.i};
    return value;
}

static mr_status write_row(mr_ingest *g, const index_input *in, scanned *s)
{
    g->progress.done++;
    if (!s->good)
        return refuse(g, in, s);
    // below the root the path is relative, with "./" and ".." resolved, because it is part of the
    // key
    char absolute[4096];
    const char *relative;
    MR_TRY(index_source_path(&g->source, in->path, absolute, &relative));
    mr_caption captions[UINT8_MAX + 1] = {{"", ""}};
    const char *text = in->text;
    for (int32_t i = 0; text && i <= in->more; i++, text += strlen(text) + 1)
        captions[i] = (mr_caption){"", text};
    mr_number values[INDEX_COLUMNS];
    mr_row row = {.root = g->root,
                  .path = relative,
                  .end_us = -1,
                  .info = s->info,
                  .n_captions = 1 + in->more,
                  .captions = captions,
                  .n_columns = g->n_columns,
                  .columns = values};
    for (int32_t c = 0; c < g->n_columns; c++)
        values[c] = number_of(g, in, g->columns[c]);
    row.key = mr_sample_key(g->source.name, row.path, row.start_us, row.end_us);
    if ((in->start_us || in->end_us) && cut(&row, in) != MR_OK) {
        s->class = "range";
        snprintf(s->why, sizeof s->why, "%s", mr_error_last()->text);
        return refuse(g, in, s);
    }
    return mr_index_builder_add(g->builder, &row);
}

static mr_status finish(mr_ingest *g)
{
    if (!mr_index_builder_built(g->builder).rows)
        return mr_fail(MR_E_DATA, "none of %llu rows can be read; the first reasons:%s",
                       (unsigned long long)g->progress.total, g->first_reasons);
    MR_TRY(mr_index_builder_finish(g->builder));
    g->progress.finished = true;
    return MR_OK;
}

// waits for the list until `end`, then starts the index
static mr_status wait_for_list(mr_ingest *g, double end)
{
    pthread_mutex_lock(&g->lock);
    while (!g->listed && mr_now_s() < end)
        mr_wait_briefly(&g->can_write, &g->lock);
    bool listed = g->listed;
    pthread_mutex_unlock(&g->lock);
    if (!listed)
        return MR_OK;
    if (g->list_status == MR_OK)
        g->list_status = begin_writing(g);
    else
        return mr_error_adopt(g->list_error);
    // after one failure, every call fails
    if (g->list_status != MR_OK)
        g->list_error = mr_error_copy(mr_error_last());
    return g->list_status;
}

mr_status mr_ingest_step(mr_ingest *g, double seconds, mr_ingest_progress *progress)
{
    double end = mr_now_s() + seconds;
    mr_status st = g->writing ? MR_OK : wait_for_list(g, end);
    while (st == MR_OK && g->writing && !g->progress.finished) {
        if (g->written == g->source.n) {
            st = finish(g);
            g->torn = st != MR_OK;
            break;
        }
        pthread_mutex_lock(&g->lock);
        scanned *slot = &g->ring[g->written % AHEAD];
        if (!slot->ready && g->worker_status == MR_OK)
            mr_wait_briefly(&g->can_write, &g->lock);
        scanned s = *slot;
        bool failed = g->worker_status != MR_OK;
        *slot = (scanned){0};
        pthread_mutex_unlock(&g->lock);
        // write the rows scanned before the failure first
        if (failed && !s.ready)
            return mr_error_adopt(g->worker_error);
        if (s.ready) {
            st = write_row(g, &g->rows[g->written % AHEAD], &s);
            g->torn = st != MR_OK;
            mr_clip_info_fini(&s.info);
            pthread_mutex_lock(&g->lock);
            g->written++;
            pthread_cond_broadcast(&g->can_scan);
            pthread_mutex_unlock(&g->lock);
        }
        if (mr_now_s() >= end)
            break;
    }
    *progress = g->progress;
    progress->listed = g->source.n;
    if (!g->writing)
        return st;
    mr_index_built built = mr_index_builder_built(g->builder);
    progress->written = built.rows, progress->refused = built.refused;
    progress->without_caption = built.without_caption;
    return st;
}

mr_status mr_ingest_keep(mr_ingest *g, uint64_t *rows, uint64_t *total)
{
    mr_index_built kept = {0};
    if (g->writing && !g->progress.finished)
        MR_TRY(mr_index_builder_keep(g->builder, !g->torn, &kept));
    *rows = kept.rows ? kept.rows + kept.refused : 0;
    *total = g->progress.total;
    return MR_OK;
}

const char *mr_ingest_notes(const mr_ingest *g)
{
    return g->writing ? g->source.notes : "";
}

void mr_ingest_free(mr_ingest *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    g->stop = true;
    pthread_cond_broadcast(&g->can_scan);
    pthread_mutex_unlock(&g->lock);
    g->source.stop = true;
    if (g->has_lister)
        pthread_join(g->lister, NULL);
    for (int i = 0; i < g->n_threads; i++)
        pthread_join(g->threads[i], NULL);
    for (int i = 0; i < AHEAD; i++) {
        mr_clip_info_fini(&g->ring[i].info);
        mr_free(g->texts[i].bytes);
    }
    mr_index_builder_free(g->builder);
    index_source_fini(&g->source);
    mr_error_free(g->list_error);
    mr_error_free(g->worker_error);
    mr_arena_fini(&g->arena);
    pthread_cond_destroy(&g->can_scan);
    pthread_cond_destroy(&g->can_write);
    pthread_mutex_destroy(&g->lock);
    mr_free(g);
}
