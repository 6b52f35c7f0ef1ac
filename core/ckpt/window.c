/* ckpt: writes a shard through a small double buffer while its owner waits. The owner's thread
 * copies parts of the shard into the two halves, and the writer thread writes them in turn. A save
 * needs no copy of the whole shard. Only the owner's thread reads tensors, and only the writer
 * thread calls the disk.
 * Licence: Apache-2.0 */
#include "ckpt/window.h"

#include <time.h>

void mr_window_init(mr_window *w)
{
    *w = (mr_window){.mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
}

void mr_window_fini(mr_window *w)
{
    mr_error_free(w->why);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
}

/* Waits for a change for a short time; the caller holds the mutex. */
static void wait_a_while(mr_window *w)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += 50000000;
    if (t.tv_nsec >= 1000000000)
        t.tv_sec++, t.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&w->changed, &w->mutex, &t);
}

static char *half_at(const mr_window *w, int64_t at)
{
    return w->buffer + at / w->half % 2 * w->half;
}

/* ---- the owner's thread ---- */

void mr_window_open(mr_window *w, char *buffer, int64_t half, int64_t total)
{
    mr_error_free(w->why);
    w->why = NULL;
    w->buffer = buffer, w->half = half, w->total = total;
    w->asked = w->closed = w->ended = false;
}

void mr_window_close(mr_window *w)
{
    pthread_mutex_lock(&w->mutex);
    w->closed = true, w->why = mr_error_copy(mr_error_last());
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

/* Is a half free for the next piece? */
static bool has_room(const mr_window *w)
{
    return w->asked && w->copied < w->total && w->copied - w->taken < 2 * w->half;
}

mr_window_state mr_window_wait(mr_window *w, mr_window_piece *out)
{
    pthread_mutex_lock(&w->mutex);
    if (!has_room(w) && !w->ended)
        wait_a_while(w);
    *out = (mr_window_piece){.at = w->copied,
                             .n = MR_MIN(w->total - w->copied, w->half),
                             .place = half_at(w, w->copied),
                             .attempt = w->attempt};
    mr_window_state state = w->ended      ? MR_WINDOW_ENDED
                            : has_room(w) ? MR_WINDOW_ROOM
                                          : MR_WINDOW_NOTHING;
    pthread_mutex_unlock(&w->mutex);
    return state;
}

void mr_window_filled(mr_window *w, const mr_window_piece *piece)
{
    pthread_mutex_lock(&w->mutex);
    // if the writer has restarted meanwhile, ignore this piece
    if (piece->attempt == w->attempt)
        w->copied += piece->n;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

/* ---- the writer thread ---- */

void mr_window_begin(mr_window *w)
{
    pthread_mutex_lock(&w->mutex);
    w->asked = true, w->attempt++;
    w->copied = w->taken = w->lent = 0;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

mr_status mr_window_next(mr_window *w, const char **bytes, int64_t *n)
{
    pthread_mutex_lock(&w->mutex);
    w->taken += w->lent, w->lent = 0;
    pthread_cond_broadcast(&w->changed);
    while (w->copied == w->taken && !w->closed)
        wait_a_while(w);
    mr_status st = !w->closed ? MR_OK : w->why ? mr_error_adopt(w->why) : mr_fail_memory(64);
    *bytes = half_at(w, w->taken);
    *n = w->lent = MR_MIN(w->total - w->taken, w->half);
    pthread_mutex_unlock(&w->mutex);
    return st;
}

void mr_window_end(mr_window *w)
{
    pthread_mutex_lock(&w->mutex);
    w->ended = true, w->asked = false;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}
