/* index: several threads read the files of rows; the results are returned in the order of the
 * requests. Licence: Apache-2.0 */
#include "base/wait.h"
#include "moonreel/index.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { AHEAD = 256, THREADS_MAX = 64 };

typedef struct look {
    bool ready;
    const char *class; // class of the fault; NULL: none
    char why[1024];
    float *changes; // grown
    int64_t n_changes, cap;
    int64_t *keys; // grown
    int32_t n_keys, keys_cap;
} look;

struct mr_sweep {
    mr_index *index;
    const uint64_t *ids;
    uint64_t n, next, taken; // number of rows; next row to read; next row to return
    mr_sweep_options options;
    const mr_media *media;
    pthread_mutex_t lock;
    pthread_cond_t can_look, can_take;
    pthread_t threads[THREADS_MAX];
    int n_threads;
    bool stop, lent; // the caller has the row at `taken`
    mr_status failed;
    mr_error *error;
    look ring[AHEAD]; // result of row r at r % AHEAD
};

typedef struct looker {
    mr_sweep *s;
    mr_media_worker *worker;
    mr_index_reader *reader;
} looker;

/* ---- one row ---- */

// a file is unchanged if the facts that sampling uses are equal
static void compare(const mr_row *row, const mr_clip_info *now, const char *file, look *l)
{
    const mr_clip_info *i = &row->info;
    bool part = i->flags & MR_CLIP_PART;
    const struct {
        const char *name;
        int64_t now, then;
    } facts[] = {{"bytes", (int64_t)now->bytes, (int64_t)i->bytes},
                 {"frames", part ? i->frames : now->frames, i->frames},
                 {"width", now->width, i->width},
                 {"height", now->height, i->height}};
    for (size_t f = 0; f < MR_COUNT(facts) && !l->class; f++)
        if (facts[f].now != facts[f].then) {
            l->class = mr_fault_name(MR_FAULT_STALE);
            snprintf(l->why, sizeof l->why, "%s: %s is %lld, the index says %lld", file,
                     facts[f].name, (long long)facts[f].now, (long long)facts[f].then);
        }
}

// keeps the real key frames, and reports entries of the index that are not key frames
static mr_status note_keys(const mr_clip_info *found, const mr_clip_info *i, const char *file,
                           look *l)
{
    int32_t none = i->n_keys - found->n_keys;
    if (!none)
        return MR_OK;
    if (found->n_keys > l->keys_cap) {
        size_t bytes = sizeof *l->keys * (size_t)found->n_keys;
        int64_t *more = mr_realloc(l->keys, bytes);
        if (!more)
            return mr_fail_memory(bytes);
        l->keys = more, l->keys_cap = found->n_keys;
    }
    if (found->n_keys)
        memcpy(l->keys, found->key_pts, sizeof *l->keys * (size_t)found->n_keys);
    l->n_keys = found->n_keys, l->class = "keys";
    snprintf(l->why, sizeof l->why,
             "%.800s: %d of %d key frames in the index are not key frames: decoding that begins "
             "there gives "
             "other frames; try: --output NEW.mrx, which keeps the others",
             file, none, i->n_keys);
    return MR_OK;
}

static mr_status look_once(looker *k, const mr_row *row, const char *file, look *l, mr_fault *fault)
{
    const mr_sweep_options *o = &k->s->options;
    const mr_clip_info *i = &row->info;
    double deadline_s = (o->deadline_s > 0 ? o->deadline_s : 60) + (double)i->duration_ms / 1000;
    if (o->look == MR_LOOK_PACKETS) {
        mr_clip_info now;
        MR_TRY(k->s->media->scan(k->worker, file, deadline_s, &now, fault));
        compare(row, &now, file, l);
        mr_clip_info_fini(&now);
        return MR_OK;
    }
    l->n_changes = o->look == MR_LOOK_CHANGES ? i->frames : 0;
    if (l->n_changes > l->cap) {
        size_t bytes = sizeof *l->changes * (size_t)l->n_changes;
        float *more = mr_realloc(l->changes, bytes);
        if (!more)
            return mr_fail_memory(bytes);
        l->changes = more, l->cap = l->n_changes;
    }
    mr_clip_info found = *i; // its key frames are in the reader's memory, until its next row
    MR_TRY(k->s->media->watch(k->worker, file, &found, deadline_s, l->n_changes ? l->changes : NULL,
                              fault));
    return note_keys(&found, i, file, l);
}

// `l` gets the fault of the file; other errors are returned
static mr_status look_at(looker *k, uint64_t id, look *l)
{
    mr_row row;
    char file[8300];
    mr_fault fault = MR_FAULT_NONE;
    MR_TRY(mr_index_row(k->reader, id, &row));
    MR_TRY(mr_index_file(k->s->index, &row, file, sizeof file));
    l->class = NULL, l->why[0] = 0, l->n_changes = l->n_keys = 0;
    if (!mr_path_exists(file)) {
        l->class = "gone";
        snprintf(l->why, sizeof l->why, "%.990s: does not exist", file);
        return MR_OK;
    }
    mr_status st = look_once(k, &row, file, l, &fault);
    // a file system error can be temporary: try three more times with growing pauses
    for (int i = 0; i < 3 && st == MR_E_IO && mr_path_exists(file); i++) {
        mr_clock_table()->sleep_ns((int64_t)100000000 << i);
        st = look_once(k, &row, file, l, &fault);
    }
    if (st == MR_OK || fault == MR_FAULT_NONE)
        return st;
    l->class = mr_fault_name(fault), l->n_changes = 0;
    snprintf(l->why, sizeof l->why, "%s", mr_error_last() ? mr_error_last()->text : "?");
    return MR_OK;
}

/* ---- threads ---- */

static mr_status work(looker *k)
{
    mr_sweep *s = k->s;
    while (!s->stop) {
        if (s->next == s->n || s->next == s->taken + AHEAD) {
            pthread_cond_wait(&s->can_look, &s->lock);
            continue;
        }
        uint64_t r = s->next++;
        look *l = &s->ring[r % AHEAD];
        pthread_mutex_unlock(&s->lock);
        mr_status st = look_at(k, s->ids[r], l);
        pthread_mutex_lock(&s->lock);
        MR_TRY(st);
        l->ready = true;
        pthread_cond_signal(&s->can_take);
    }
    return MR_OK;
}

static void *look_thread(void *user)
{
    mr_sweep *s = user;
    looker k = {.s = s};
    mr_status st = s->media->worker_new(&k.worker);
    if (st == MR_OK)
        st = mr_index_reader_new(s->index, &k.reader);
    pthread_mutex_lock(&s->lock);
    if (st == MR_OK)
        st = work(&k);
    // an error that is not a file's fault stops the sweep
    if (st != MR_OK && s->failed == MR_OK) {
        s->failed = st, s->error = mr_error_copy(mr_error_last());
        pthread_cond_signal(&s->can_take);
    }
    pthread_mutex_unlock(&s->lock);
    mr_index_reader_free(k.reader);
    s->media->worker_free(k.worker);
    return NULL;
}

mr_status mr_sweep_new(mr_index *index, const uint64_t *ids, uint64_t n,
                       const mr_sweep_options *options, mr_sweep **out)
{
    const mr_media *media = mr_media_guarded();
    if (!options->isolated)
        MR_TRY(mr_media_get(&media));
    mr_sweep *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    s->index = mr_index_ref(index), s->ids = ids, s->n = n, s->options = *options;
    s->media = media;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->can_look, NULL);
    pthread_cond_init(&s->can_take, NULL);
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = options->threads > 0 ? options->threads : (int)MR_MAX(processors, 1);
    for (threads = MR_MIN(threads, THREADS_MAX); s->n_threads < threads; s->n_threads++)
        if (pthread_create(&s->threads[s->n_threads], NULL, look_thread, s))
            break;
    if (!s->n_threads) {
        mr_sweep_free(s);
        return mr_fail(MR_E_FAIL, "cannot start a thread");
    }
    *out = s;
    return MR_OK;
}

// frees the place of the row returned last
static void give_back(mr_sweep *s)
{
    if (!s->lent)
        return;
    s->ring[s->taken++ % AHEAD].ready = s->lent = false;
    pthread_cond_broadcast(&s->can_look);
}

mr_status mr_sweep_next(mr_sweep *s, double seconds, mr_seen *seen, bool *got)
{
    double end = mr_now_s() + seconds;
    mr_status st = MR_OK;
    *got = false;
    pthread_mutex_lock(&s->lock);
    give_back(s);
    const look *l = &s->ring[s->taken % AHEAD];
    while (!l->ready && s->taken < s->n && s->failed == MR_OK && mr_now_s() < end)
        mr_wait_briefly(&s->can_take, &s->lock);
    // return the rows read before the failure first
    if (l->ready) {
        s->lent = *got = true;
        *seen = (mr_seen){.id = s->ids[s->taken],
                          .class = l->class,
                          .why = l->why,
                          .changes = l->changes,
                          .n_changes = l->n_changes,
                          .keys = l->keys,
                          .n_keys = l->n_keys};
    } else if (s->failed != MR_OK) {
        st = mr_error_adopt(s->error);
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

void mr_sweep_free(mr_sweep *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->can_look);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_threads; i++)
        pthread_join(s->threads[i], NULL);
    for (int i = 0; i < AHEAD; i++)
        mr_free(s->ring[i].changes), mr_free(s->ring[i].keys);
    mr_index_unref(s->index);
    mr_error_free(s->error);
    pthread_cond_destroy(&s->can_look);
    pthread_cond_destroy(&s->can_take);
    pthread_mutex_destroy(&s->lock);
    mr_free(s);
}
