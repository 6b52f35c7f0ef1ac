/* ckpt: saves checkpoints in the background. The caller waits only for a copy into one of two host
 * buffers, which hashes each block. A writer thread does the rest (reference: reliability 3.2). A
 * buffer is reused only after its save ended. With a window the caller waits for the whole save and
 * copies part after part into the window, so the host needs no other buffer.
 * Licence: Apache-2.0
 *
 * A wait for the writer thread ends when a save exceeds its deadline. Such a save is stuck: the
 * disk does not answer, and the thread cannot leave its system call. A saver that is closed in this
 * state belongs to that thread, which frees it when the call returns. The caller's thread makes no
 * disk calls, so a disk that does not answer blocks no step. */
#include "base/json_fields.h"
#include "ckpt/save.h"
#include "ckpt/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { EVENTS = 64, BUFFERS = 2, VERIFIED = 16 };

typedef struct buffer {
    char *image;
    int64_t cap;
    mr_hash128 *blocks;
    int64_t cap_blocks;
    bool busy;
    int64_t step, number, save; // of the save: its step, its number among saves taken or skipped,
                                // and its number among all calls
    json_t *meta;
    double copy_s, copied_at;
    double began; // time from which its write could begin
} buffer;

struct mr_saver {
    mr_saver_options opt;
    mr_save_owner owner;
    mr_snapshot_layout layout;
    mr_window window;
    int64_t half; // bytes of half a window; 0: a save is copied as a whole
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex; // protects all fields below
    pthread_cond_t changed;
    bool stop, fenced;
    _Atomic double parted_s; // time at which waiting for the parts of other ranks ends
    bool left_behind;        // the saver was closed while a save was stuck; the writer thread frees
                             // it
    buffer buffers[BUFFERS];
    buffer *queue[BUFFERS]; // oldest first; [0] is being written, unless `tending`
    int queued;
    bool tending;       // old checkpoints are being removed, which needs no buffer
    double tends_since; // start time of that
    int64_t saves;      // number of calls of mr_saver_save, equal on every rank
    int64_t newest;     // number of the newest save, written or skipped
    bool newest_failed; // that save ended without a commit
    char reason[512];   // error of the last save that ended without a commit
    mr_saver_status status;
    mr_saver_event events[EVENTS];
    int first_event, n_events;
    // only the writer thread uses these
    bool untidy; // the last attempt failed
    int64_t verified[VERIFIED];
    int n_verified;
};

const char *mr_saver_kind_name(mr_saver_kind kind)
{
    static const char *const names[] = {"commit", "retry", "skip", "fail", "note"};
    return (unsigned)kind < MR_COUNT(names) ? names[kind] : "?";
}

/* ---- events and counters; the mutex is held ---- */

static mr_saver_event *add_event(mr_saver *s, mr_saver_kind kind, int64_t step)
{
    if (s->n_events == EVENTS)
        s->first_event = (s->first_event + 1) % EVENTS, s->n_events--;
    mr_saver_event *e = &s->events[(s->first_event + s->n_events++) % EVENTS];
    *e = (mr_saver_event){.kind = kind, .step = step, .bytes = s->layout.total};
    return e;
}

/* Counts a save that ended without a commit, and keeps this thread's error as the reason. */
static void add_failure(mr_saver *s, mr_saver_kind kind, int64_t step, int64_t number)
{
    mr_saver_event *e = add_event(s, kind, step);
    mr_error_format(mr_error_last(), e->text, sizeof e->text);
    snprintf(s->reason, sizeof s->reason, "%s", e->text);
    s->status.failures++, s->status.failures_in_row++;
    s->newest_failed = s->newest_failed || number == s->newest;
}

/* With several ranks, only the first one decides. The others learn about the end of a save earlier
 * or later, and would end the run at another save, with another reason. */
static mr_status verdict(const mr_saver *s)
{
    if (s->fenced)
        return mr_fail(MR_E_LOCK, "%s", s->reason);
    if (s->owner.rank > 0 || s->status.failures_in_row < s->opt.intervals_max)
        return MR_OK;
    return mr_fail(MR_E_CKPT, "no checkpoint was committed in %d saves in a row; the last one: %s",
                   s->status.failures_in_row, s->reason);
}

/* May a save begin? With several ranks, each rank accepts all saves until the run ends. If only the
 * first rank refused one, the others would wait for it. */
static mr_status may_save(mr_saver *s)
{
    pthread_mutex_lock(&s->mutex);
    mr_status st = s->fenced || s->owner.ranks == 1 ? verdict(s) : MR_OK;
    pthread_mutex_unlock(&s->mutex);
    return st;
}

/* ---- waiting; the mutex is held ---- */

static bool idle(const mr_saver *s)
{
    return s->queued == 0;
}

static bool settled(const mr_saver *s)
{
    return idle(s) && !s->tending;
}

static bool has_room(const mr_saver *s)
{
    return s->queued < (s->half ? 1 : BUFFERS);
}

static bool stuck(const mr_saver *s)
{
    if (settled(s))
        return false;
    double began = s->tending ? s->tends_since : s->queue[0]->began;
    return mr_now_s() >= began + s->opt.deadline_s;
}

/* Waits until `done` is true. False: a save is stuck, or `timeout_s` have passed. */
static bool wait_until(mr_saver *s, bool (*done)(const mr_saver *), double timeout_s)
{
    for (double limit = mr_now_s() + timeout_s; !done(s);) {
        if (mr_now_s() >= limit || stuck(s))
            return false;
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += 50000000;
        if (t.tv_nsec >= 1000000000)
            t.tv_sec++, t.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&s->changed, &s->mutex, &t);
    }
    return true;
}

static mr_status fail_stuck(const mr_saver *s)
{
    if (s->tending)
        return mr_fail(MR_E_CKPT,
                       "the save of step %lld waits for the removal of old checkpoints, which has "
                       "not ended after %.3g s; try: check that the disk of %s still answers",
                       (long long)s->queue[0]->step, mr_now_s() - s->tends_since, s->owner.dir);
    return mr_fail(MR_E_CKPT,
                   "the save of step %lld has not ended after %.3g s; try: check that the disk of "
                   "%s still answers",
                   (long long)s->queue[0]->step, mr_now_s() - s->queue[0]->began, s->owner.dir);
}

/* ---- writer thread ---- */

static void report(void *user, const char *line)
{
    mr_saver *s = user;
    pthread_mutex_lock(&s->mutex);
    snprintf(add_event(s, MR_SAVER_NOTE, s->verified[s->n_verified - 1])->text,
             sizeof s->events[0].text, "%s", line);
    pthread_mutex_unlock(&s->mutex);
}

static void tend(mr_saver *s, int64_t step)
{
    // the newest commits are valid, because they were read back
    if (s->n_verified == VERIFIED)
        memmove(s->verified, s->verified + 1, sizeof s->verified[0] * (size_t)--s->n_verified);
    s->verified[s->n_verified++] = step;
    if (mr_save_retain(s->opt.lock, s->opt.keep, s->opt.keep_every, s->verified, s->n_verified,
                       report, s) == MR_OK)
        return;
    char line[480];
    mr_error_format(mr_error_last(), line, sizeof line);
    report(s, line);
}

/* The same for the writer's loop; unlocks the mutex meanwhile. */
static void tend_unlocked(mr_saver *s, int64_t step)
{
    s->tending = true, s->tends_since = mr_now_s();
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    tend(s, step);
    pthread_mutex_lock(&s->mutex);
    s->tending = false;
}

/* Syncs the run's journal up to this step before the checkpoint. A sync works with any descriptor
 * of the file, so it does not need the journal's descriptor. */
static void sync_journal(mr_saver *s, int64_t step)
{
    const mr_io *io = mr_io_table();
    char path[MR_RUN_DIR_MAX + 20];
    snprintf(path, sizeof path, "%s/journal.jsonl", s->owner.dir);
    if (!mr_path_exists(path))
        return;
    int fd = io->open(path, O_RDONLY, 0);
    bool bad = fd < 0 || io->fsync(fd);
    int why = errno;
    if (fd >= 0)
        io->close(fd);
    if (!bad)
        return;
    pthread_mutex_lock(&s->mutex);
    mr_saver_event *e = add_event(s, MR_SAVER_NOTE, step);
    snprintf(e->text, sizeof e->text, "the journal could not be synced: %s", strerror(why));
    pthread_mutex_unlock(&s->mutex);
}

/* Runs the attempts of rank 0, and writes the outcome for the other ranks. */
static mr_status lead(mr_saver *s, const mr_save_job *job)
{
    mr_status st = MR_OK;
    sync_journal(s, job->step);
    for (int attempt = 1;; attempt++) {
        bool final;
        // retry to remove the files that the last attempt could not remove
        if (s->untidy && mr_save_sweep(s->opt.lock) != MR_OK)
            mr_error_clear();
        st = mr_save_attempt(job, attempt, &final);
        s->untidy = st != MR_OK;
        if (st == MR_OK || st == MR_E_LOCK || final || attempt >= s->opt.attempts)
            break;
        pthread_mutex_lock(&s->mutex);
        mr_saver_event *e = add_event(s, MR_SAVER_RETRY, job->step);
        mr_error_format(mr_error_last(), e->text, sizeof e->text);
        pthread_mutex_unlock(&s->mutex);
    }
    if (s->owner.ranks > 1)
        mr_save_tell_outcome(job, st);
    return st;
}

static mr_status write_one(mr_saver *s, buffer *b)
{
    mr_save_job job = {.owner = &s->owner,
                       .save = b->save,
                       // half the deadline: a rank that does not answer is reported before the save
                       // counts as stuck
                       .patience_s = s->opt.deadline_s / 2,
                       .parted_s = &s->parted_s,
                       .step = b->step,
                       .bytes = s->layout.total,
                       .image = s->half ? NULL : b->image,
                       .window = s->half ? &s->window : NULL,
                       .blocks = b->blocks,
                       .items = s->layout.items,
                       .offsets = s->layout.offsets,
                       .n = s->layout.n,
                       .meta = b->meta};
    mr_status st = s->owner.lock ? lead(s, &job) : mr_save_follow(&job);
    pthread_mutex_lock(&s->mutex);
    if (st == MR_OK) {
        mr_saver_event *e = add_event(s, MR_SAVER_COMMIT, b->step);
        mr_ckpt_dir(s->owner.dir, b->step, e->text, sizeof e->text);
        // if the caller waits for the save, all of it counts as copy
        e->write_s = s->half ? 0 : mr_now_s() - b->copied_at;
        e->copy_s = s->half ? mr_now_s() - b->copied_at : b->copy_s;
        s->status.commits++, s->status.failures_in_row = 0, s->status.last_commit = b->step;
    } else {
        add_failure(s, MR_SAVER_FAIL, b->step, b->number);
        s->fenced = s->fenced || st == MR_E_LOCK;
    }
    pthread_mutex_unlock(&s->mutex);
    return st;
}

/* Releases the lock last: when it is free, no part of the saver remains. */
static void destroy(mr_saver *s)
{
    mr_run_lock *lock = s->opt.lock;
    for (int i = 0; i < BUFFERS; i++) {
        mr_free(s->buffers[i].image);
        mr_free(s->buffers[i].blocks);
    }
    mr_snapshot_drop(&s->layout);
    mr_window_fini(&s->window);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    mr_free(s);
    mr_run_lock_release(lock);
}

static void *writer(void *arg)
{
    mr_saver *s = arg;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!s->queued && !s->stop)
            pthread_cond_wait(&s->changed, &s->mutex);
        if (!s->queued)
            break;
        buffer *b = s->queue[0];
        pthread_mutex_unlock(&s->mutex);
        mr_status st = write_one(s, b);
        json_decref(b->meta);
        b->meta = NULL;
        pthread_mutex_lock(&s->mutex);
        mr_window_end(&s->window);
        s->queue[0] = s->queue[1];
        s->queued--;
        b->busy = false;
        // the next save can use the buffer while old checkpoints are removed
        if (st == MR_OK && s->owner.lock)
            tend_unlocked(s, b->step);
        if (s->queued)
            s->queue[0]->began = mr_now_s();
        pthread_cond_broadcast(&s->changed);
    }
    bool left_behind = s->left_behind;
    pthread_mutex_unlock(&s->mutex);
    if (left_behind)
        destroy(s);
    return NULL;
}

/* ---- open, close ---- */

mr_status mr_saver_open(const mr_saver_options *options, mr_saver **out)
{
    mr_save_owner owner;
    *out = NULL;
    const int64_t half = options->buffer_bytes / 2 / MR_CKPT_BLOCK * MR_CKPT_BLOCK;
    if (options->buffer_bytes && half < MR_CKPT_BLOCK)
        return mr_fail(MR_E_USAGE, "a buffer of %lld bytes, expected 0 or at least %d",
                       (long long)options->buffer_bytes, 2 * MR_CKPT_BLOCK);
    MR_TRY(mr_save_owner_take(options, &owner));
    if (owner.lock)
        MR_TRY(mr_save_sweep(owner.lock));
    if (owner.lock && owner.ranks > 1)
        mr_save_forget_outcomes(&owner, INT64_MAX);
    mr_saver *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    s->opt = *options, s->owner = owner, s->half = half;
    s->opt.run_dir = s->owner.dir;
    if (s->opt.lock)
        mr_run_lock_ref(s->opt.lock);
    if (s->opt.keep == 0)
        s->opt.keep = 3;
    if (s->opt.keep < 0)
        s->opt.keep = INT_MAX;
    if (s->opt.attempts <= 0)
        s->opt.attempts = 3;
    if (s->opt.intervals_max <= 0)
        s->opt.intervals_max = 3;
    if (!(s->opt.deadline_s > 0))
        s->opt.deadline_s = 600;
    s->status.last_commit = -1;
    atomic_store(&s->parted_s, INFINITY);
    mr_snapshot_init(&s->layout);
    mr_window_init(&s->window);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    // the writer thread receives no signals; the training thread handles them
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&s->thread, NULL, writer, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->started = err == 0;
    if (err) {
        mr_saver_close(s);
        return mr_fail(MR_E_MEMORY, "cannot start the checkpoint writer thread: %s", strerror(err));
    }
    *out = s;
    return MR_OK;
}

void mr_saver_part(mr_saver *s, double seconds)
{
    atomic_store(&s->parted_s, mr_now_s() + seconds);
}

void mr_saver_close(mr_saver *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_broadcast(&s->changed);
    s->left_behind = !wait_until(s, settled, INFINITY);
    bool left_behind = s->left_behind, started = s->started;
    pthread_t thread = s->thread;
    pthread_mutex_unlock(&s->mutex);
    if (left_behind) {
        pthread_detach(thread);
        return;
    }
    if (started)
        pthread_join(thread, NULL);
    destroy(s);
}

/* ---- layout and buffers ---- */

/* Bytes of a host buffer. */
static int64_t image_bytes(const mr_saver *s)
{
    return s->half ? MR_MIN(s->layout.total, 2 * s->half) : s->layout.total;
}

static bool fit(const mr_saver *s, buffer *b)
{
    int64_t bytes = image_bytes(s), blocks = mr_ckpt_blocks(s->layout.total);
    if (b->cap < bytes) {
        mr_free(b->image);
        b->image = mr_alloc((size_t)bytes), b->cap = b->image ? bytes : 0;
    }
    if (b->cap_blocks < blocks) {
        mr_free(b->blocks);
        b->blocks = mr_alloc(sizeof *b->blocks * (size_t)blocks),
        b->cap_blocks = b->blocks ? blocks : 0;
    }
    return b->image && b->blocks;
}

static mr_status take_layout(mr_saver *s, const mr_ckpt_item *items, int n)
{
    if (mr_snapshot_fits(&s->layout, items, n))
        return MR_OK;
    pthread_mutex_lock(&s->mutex);
    bool ready = wait_until(s, idle, INFINITY);
    mr_status st = ready ? mr_snapshot_make(&s->layout, items, n) : fail_stuck(s);
    if (st != MR_OK && ready)
        mr_snapshot_drop(&s->layout);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

mr_status mr_saver_prepare(mr_saver *s, const mr_ckpt_item *items, int n, int buffers)
{
    if (buffers < 1 || buffers > BUFFERS)
        return mr_fail(MR_E_USAGE, "%d snapshot buffers, expected 1 to %d", buffers, BUFFERS);
    MR_TRY(take_layout(s, items, n));
    buffers = s->half ? 1 : buffers;
    pthread_mutex_lock(&s->mutex);
    bool ready = wait_until(s, idle, INFINITY), good = ready;
    if (!ready)
        fail_stuck(s);
    for (int i = 0; i < buffers && good; i++) {
        good = fit(s, &s->buffers[i]);
        // the system allocates pages at the first write, so write them now
        if (good)
            memset(s->buffers[i].image, 0, (size_t)image_bytes(s));
    }
    pthread_mutex_unlock(&s->mutex);
    if (!ready)
        return MR_E_CKPT;
    return good ? MR_OK
                : mr_fail(MR_E_MEMORY, "cannot allocate %d snapshot buffers of %.1f MB each",
                          buffers, (double)image_bytes(s) * 1e-6);
}

/* ---- save ---- */

/* Returns a free buffer for the image, or NULL; this thread's error is the reason. A slow disk must
 * slow the run but not end it, so a save waits for a buffer if skipping it would end the run. */
static buffer *take_buffer(mr_saver *s, bool wait)
{
    buffer *b = NULL;
    pthread_mutex_lock(&s->mutex);
    bool last_chance = s->status.failures_in_row + 1 >= s->opt.intervals_max;
    if (wait || last_chance || s->half)
        wait_until(s, has_room, INFINITY);
    for (int i = 0; i < BUFFERS && has_room(s) && !b; i++)
        if (!s->buffers[i].busy)
            b = &s->buffers[i];
    pthread_mutex_unlock(&s->mutex);
    if (!b)
        mr_fail(MR_E_CKPT,
                "%s before this one %s still being written; try: a larger "
                "ckpt_every or a faster disk",
                s->half ? "the save" : "the two saves", s->half ? "is" : "are");
    else if (!fit(s, b)) {
        mr_fail(MR_E_MEMORY, "cannot allocate a snapshot buffer of %.1f MB",
                (double)image_bytes(s) * 1e-6);
        b = NULL;
    }
    return b;
}

/* Returns the number of a new save; the caller holds the mutex. */
static int64_t number_save(mr_saver *s)
{
    s->newest_failed = false;
    return ++s->newest;
}

static mr_status skip(mr_saver *s, int64_t step)
{
    pthread_mutex_lock(&s->mutex);
    add_failure(s, MR_SAVER_SKIP, step, number_save(s));
    mr_status st = verdict(s);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

static mr_status parse_meta(const char *text, json_t **out)
{
    json_error_t err;
    *out = json_loads(text, JSON_REJECT_DUPLICATES, &err);
    if (!*out)
        return mr_json_fail(MR_E_USAGE, "checkpoint meta", &err);
    mr_status st = mr_manifest_check_meta(*out);
    if (st == MR_OK)
        return st;
    json_decref(*out);
    *out = NULL;
    return st;
}

/* Copies pieces into the window as the writer requests them, until the save has ended. */
static mr_status serve(mr_saver *s, const mr_ckpt_item *items, const buffer *b)
{
    mr_window_piece piece;
    mr_window_state state;
    mr_status st = MR_OK;
    while (st == MR_OK && (state = mr_window_wait(&s->window, &piece)) != MR_WINDOW_ENDED) {
        if (state == MR_WINDOW_ROOM) {
            st = mr_snapshot_copy(&s->layout, items, piece.at, piece.n, piece.place, b->blocks);
            if (st == MR_OK)
                mr_window_filled(&s->window, &piece);
            continue;
        }
        pthread_mutex_lock(&s->mutex);
        st = stuck(s) ? fail_stuck(s) : MR_OK;
        pthread_mutex_unlock(&s->mutex);
    }
    if (st != MR_OK)
        mr_window_close(&s->window);
    return st;
}

/* Passes a buffer to the writer thread. */
static void queue(mr_saver *s, buffer *b, int64_t step, int64_t save, json_t *meta)
{
    pthread_mutex_lock(&s->mutex);
    b->busy = true, b->step = step, b->meta = meta;
    b->number = number_save(s), b->save = save;
    b->began = mr_now_s();
    s->queue[s->queued++] = b;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

mr_status mr_saver_save(mr_saver *s, int64_t step, const mr_ckpt_item *items, int n,
                        const char *meta_json, bool wait, bool *taken)
{
    double start = mr_now_s();
    int64_t save = ++s->saves;
    *taken = false;
    if (step < 0 || step > 999999999999)
        return mr_fail(MR_E_USAGE, "checkpoint step %lld: expected 0 to 999999999999",
                       (long long)step);
    // with several ranks, a rank may own only padding
    if (n < (s->owner.ranks == 1))
        return mr_fail(MR_E_USAGE, "a checkpoint of %d tensors; expected 1 or more", n);
    MR_TRY(may_save(s));
    json_t *meta = NULL;
    if (s->owner.lock)
        MR_TRY(parse_meta(meta_json, &meta));
    mr_status st = take_layout(s, items, n);
    // with several ranks always wait: a save that one rank skips is lost for all
    buffer *b = st == MR_OK ? take_buffer(s, wait || s->owner.ranks > 1) : NULL;
    if (!b) {
        json_decref(meta);
        return st != MR_OK ? st : skip(s, step);
    }
    b->copied_at = start;
    if (s->half) {
        mr_window_open(&s->window, b->image, s->half, s->layout.total);
        queue(s, b, step, save, meta);
        MR_TRY(serve(s, items, b));
        pthread_mutex_lock(&s->mutex);
        *taken = !s->newest_failed;
        pthread_mutex_unlock(&s->mutex);
        return MR_OK;
    }
    st = mr_snapshot_copy(&s->layout, items, 0, s->layout.total, b->image, b->blocks);
    if (st != MR_OK) {
        json_decref(meta);
        return st;
    }
    b->copied_at = mr_now_s(), b->copy_s = b->copied_at - start;
    queue(s, b, step, save, meta);
    *taken = true;
    return MR_OK;
}

mr_status mr_saver_wait(mr_saver *s, double timeout_s)
{
    pthread_mutex_lock(&s->mutex);
    mr_status st = MR_OK;
    // all saves may have ended while the removal of old checkpoints continues
    if (!wait_until(s, settled, timeout_s) && !idle(s))
        st = fail_stuck(s);
    else if (s->newest_failed)
        st = mr_fail(s->fenced ? MR_E_LOCK : MR_E_CKPT,
                     "the newest save ended without a commit: %s", s->reason);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

mr_status mr_saver_check(mr_saver *s)
{
    pthread_mutex_lock(&s->mutex);
    mr_status st = verdict(s);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

void mr_saver_get_status(mr_saver *s, mr_saver_status *out)
{
    pthread_mutex_lock(&s->mutex);
    *out = s->status;
    out->pending = s->queued;
    pthread_mutex_unlock(&s->mutex);
}

bool mr_saver_poll(mr_saver *s, mr_saver_event *out)
{
    pthread_mutex_lock(&s->mutex);
    bool any = s->n_events > 0;
    if (any) {
        *out = s->events[s->first_event];
        s->first_event = (s->first_event + 1) % EVENTS, s->n_events--;
    }
    pthread_mutex_unlock(&s->mutex);
    return any;
}
