/* index: runs decoders in separate processes (guarded.c). A worker passes a request in shared
 * memory and waits for a byte. If a process crashes or times out, its clip fails, and the next clip
 * gets a new process. Ref: dataplane 1.2. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// a decoder normally answers by its deadline; if it loops, it is killed this much later
double guard_grace_s = 5;

struct mr_media_worker {
    guard_memory memory;
    int sock;
    pid_t pid; // 0: none
};

/* ---- the process ---- */

// Kills the process and returns its wait status. If a signal had ended it before, the status
// reports that signal.
static int end(mr_media_worker *w)
{
    int how = 0;
    if (!w->pid)
        return 0;
    close(w->sock);
    kill(w->pid, SIGKILL);
    while (waitpid(w->pid, &how, 0) < 0 && errno == EINTR)
        ;
    w->pid = 0;
    return how;
}

static guard_waited wait_for(const mr_media_worker *w, double seconds)
{
    char byte;
    return guard_wait(w->sock, seconds, &byte, 1);
}

// *died: the process ended before it reported anything
static mr_status start_once(mr_media_worker *w, bool *died)
{
    int ends[2];
    *died = false;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return fork_server_refused(errno);
    w->sock = ends[0];
    mr_status st = fork_server_start(ends[1], w->memory.fd, &w->pid);
    close(ends[1]);
    if (st != MR_OK)
        return close(ends[0]), st;
    // the decoder reports that it runs and whether it has its libraries
    const guard_crate *c = guard_crate_of(&w->memory);
    guard_waited came = wait_for(w, GUARD_START_S);
    *died = came == GUARD_ENDED;
    if (came == GUARD_ANSWERED && c->status == MR_OK)
        return MR_OK;
    char text[sizeof c->text];
    snprintf(text, sizeof text, "%.*s", (int)sizeof text - 1, c->text);
    st = c->status;
    end(w);
    return came == GUARD_ANSWERED ? mr_fail(st, "%s", text) : fork_server_silent(came);
}

// a process killed during its start is replaced
static mr_status start(mr_media_worker *w)
{
    bool died = true;
    mr_status st = MR_OK;
    for (int turn = 0; turn < GUARD_STARTS && died; turn++) {
        mr_error_clear();
        st = start_once(w, &died);
    }
    return st;
}

/* ---- a question ---- */

static mr_status fail_ended(const char *path, int how, mr_fault *fault)
{
    // SIGKILL comes from the kernel when memory is short; the clip is not at fault
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL) {
        *fault = MR_FAULT_IO;
        return mr_fail(MR_E_IO, "%s: the process that decoded it was killed", path);
    }
    *fault = MR_FAULT_CORRUPT;
    return mr_fail(MR_E_DECODE, "%s: corrupt: the decoder crashed: %s", path,
                   WIFSIGNALED(how) ? strsignal(WTERMSIG(how)) : "its process ended");
}

static mr_status ask(mr_media_worker *w, guard_job job, const char *path, double deadline_s,
                     mr_fault *fault)
{
    guard_crate *c = guard_crate_of(&w->memory);
    char byte = 0;
    *fault = MR_FAULT_NONE;
    if ((size_t)snprintf(c->path, sizeof c->path, "%s", path) >= sizeof c->path)
        return mr_fail(MR_E_IO, "%s: path is too long", path);
    c->job = job, c->deadline_s = deadline_s > 0 ? deadline_s : 60;
    if (!w->pid)
        MR_TRY(start(w));
    guard_waited came = GUARD_ENDED;
    if (send(w->sock, &byte, 1, MSG_NOSIGNAL) == 1)
        came = wait_for(w, c->deadline_s + guard_grace_s);
    switch (came) {
    case GUARD_ENDED: return fail_ended(path, end(w), fault);
    case GUARD_STOPPED: end(w); return mr_fail(MR_E_STOPPED, "%s: stopped by Ctrl-C", path);
    case GUARD_LATE:
        end(w);
        *fault = MR_FAULT_STALL;
        return mr_fail(MR_E_DECODE, "%s: stall: the decoder did not end in time", path);
    case GUARD_ANSWERED: break;
    }
    // do not trust the answer: the decoder may have overwritten any shared memory
    c->text[sizeof c->text - 1] = c->log[sizeof c->log - 1] = 0;
    *fault = (unsigned)c->fault < MR_FAULT_COUNT ? c->fault : MR_FAULT_CORRUPT;
    return c->status == MR_OK ? MR_OK : mr_fail(c->status, "%s", c->text);
}

/* ---- the table's functions ---- */

static void worker_free(mr_media_worker *w)
{
    if (!w)
        return;
    end(w);
    fork_server_release();
    if (w->memory.at)
        munmap(w->memory.at, w->memory.bytes);
    if (w->memory.fd >= 0)
        close(w->memory.fd);
    mr_free(w);
}

static mr_status worker_new(mr_media_worker **out)
{
    mr_media_worker *w;
    if (!MR_NEW(w))
        return mr_fail_memory(sizeof *w);
    fork_server_hold();
    w->memory.fd = memfd_create("moonreel clip", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    mr_status st = w->memory.fd >= 0 ? guard_reserve(&w->memory, 0, 0) : fork_server_refused(errno);
    // neither process can shrink the memory that the other has mapped
    if (st == MR_OK && fcntl(w->memory.fd, F_ADD_SEALS, F_SEAL_SHRINK))
        st = fork_server_refused(errno);
    if (st == MR_OK)
        st = start(w);
    if (st == MR_OK)
        *out = w;
    else
        worker_free(w);
    return st;
}

static const char *worker_log(mr_media_worker *w)
{
    return guard_crate_of(&w->memory)->log;
}

static mr_status scan(mr_media_worker *w, const char *path, double deadline_s, mr_clip_info *out,
                      mr_fault *fault)
{
    MR_TRY(ask(w, GUARD_SCAN, path, deadline_s, fault));
    mr_clip_info info = guard_crate_of(&w->memory)->info;
    MR_TRY(guard_reserve(&w->memory, info.n_keys, 0));
    size_t bytes = sizeof *info.key_pts * (size_t)info.n_keys;
    info.key_pts = bytes ? mr_alloc(bytes) : NULL;
    if (bytes && !info.key_pts)
        return mr_fail_memory(bytes);
    if (bytes)
        memcpy(info.key_pts, guard_keys(&w->memory), bytes);
    *out = info;
    return MR_OK;
}

// fills the shared memory with a request; *crate is its present address
static mr_status pack(mr_media_worker *w, const mr_clip_info *info, size_t bytes,
                      guard_crate **crate)
{
    MR_TRY(guard_reserve(&w->memory, info->n_keys, bytes));
    *crate = guard_crate_of(&w->memory);
    (*crate)->info = *info;
    if (info->n_keys)
        memcpy(guard_keys(&w->memory), info->key_pts, sizeof *info->key_pts * (size_t)info->n_keys);
    return MR_OK;
}

static mr_status read_clip(mr_media_worker *w, const mr_clip_request *q, uint8_t *out,
                           mr_fault *fault)
{
    guard_crate *c;
    size_t bytes = q->frames > 0 && q->height > 0 && q->width > 0
                       ? (size_t)q->frames * 3 * (size_t)q->height * (size_t)q->width
                       : 0;
    MR_TRY(pack(w, q->info, bytes, &c));
    c->request = *q;
    MR_TRY(ask(w, GUARD_READ, q->path, q->deadline_s, fault));
    memcpy(out, guard_out(&w->memory, q->info->n_keys), bytes);
    return MR_OK;
}

static mr_status watch(mr_media_worker *w, const char *path, mr_clip_info *info, double deadline_s,
                       float *change, mr_fault *fault)
{
    guard_crate *c;
    size_t bytes = change ? sizeof *change * (size_t)info->frames : 0;
    MR_TRY(pack(w, info, bytes, &c));
    c->wants = change != NULL;
    MR_TRY(ask(w, GUARD_WATCH, path, deadline_s, fault));
    if (change)
        memcpy(change, guard_out(&w->memory, info->n_keys), bytes);
    info->n_keys = MR_MIN(info->n_keys, guard_crate_of(&w->memory)->info.n_keys);
    if (info->n_keys > 0)
        memcpy(info->key_pts, guard_keys(&w->memory), sizeof *info->key_pts * (size_t)info->n_keys);
    return MR_OK;
}

static mr_status encoder_open(const char *path, const mr_encode_options *o, mr_encoder **out)
{
    const mr_media *m;
    MR_TRY(mr_media_get(&m));
    return m->encoder_open(path, o, out);
}
static mr_status encoder_frame(mr_encoder *e, const uint8_t *rgb, int64_t pts)
{
    const mr_media *m;
    MR_TRY(mr_media_get(&m));
    return m->encoder_frame(e, rgb, pts);
}
static mr_status encoder_finish(mr_encoder *e)
{
    const mr_media *m;
    MR_TRY(mr_media_get(&m));
    return m->encoder_finish(e);
}
static void encoder_free(mr_encoder *e)
{
    const mr_media *m;
    if (e && mr_media_get(&m) == MR_OK)
        m->encoder_free(e);
}

const mr_media *mr_media_guarded(void)
{
    static const mr_media table = {.version = MR_MEDIA_VERSION,
                                   .worker_new = worker_new,
                                   .worker_free = worker_free,
                                   .worker_log = worker_log,
                                   .scan = scan,
                                   .read = read_clip,
                                   .watch = watch,
                                   .encoder_open = encoder_open,
                                   .encoder_frame = encoder_frame,
                                   .encoder_finish = encoder_finish,
                                   .encoder_free = encoder_free};
    return &table;
}
