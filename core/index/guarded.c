/* index: the fork server of fork_server.c and the decoder processes that it forks. The program
 * starts itself with an environment variable. A constructor finds the variable, serves, and exits
 * before main().
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "base/process.h"
#include "index/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HEAD = 16384, ALARM_S = 60, KEPT_BYTES = 16 << 20 };
_Static_assert(sizeof(guard_crate) <= HEAD, "the crate lies in the head");

/* ---- shared memory ---- */

int64_t *guard_keys(const guard_memory *m)
{
    return (int64_t *)(void *)(m->at + HEAD);
}

uint8_t *guard_out(const guard_memory *m, int64_t n_keys)
{
    return m->at + HEAD + (size_t)(n_keys + 7) / 8 * 64;
}

mr_status guard_reserve(guard_memory *m, int64_t n_keys, size_t bytes)
{
    size_t want = HEAD + (size_t)(n_keys + 7) / 8 * 64 + bytes;
    struct stat about;
    if (fstat(m->fd, &about))
        return mr_fail_memory(want);
    if ((size_t)about.st_size < want && ftruncate(m->fd, (off_t)want))
        return mr_fail_memory(want);
    // the other process may have enlarged it
    want = MR_MAX(want, (size_t)about.st_size);
    if (m->at && want <= m->bytes)
        return MR_OK;
    void *p = mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (p == MAP_FAILED)
        return mr_fail_memory(want);
    if (m->at)
        munmap(m->at, m->bytes);
    m->at = p, m->bytes = want;
    return MR_OK;
}

struct msghdr *guard_letter_open(guard_letter *l)
{
    *l = (guard_letter){.part = {&l->byte, 1}};
    l->message = (struct msghdr){.msg_iov = &l->part,
                                 .msg_iovlen = 1,
                                 .msg_control = l->room,
                                 .msg_controllen = sizeof l->room};
    return &l->message;
}

/* ---- answering ---- */

static mr_status answer_scan(const mr_media *media, mr_media_worker *w, guard_memory *m)
{
    guard_crate *c = guard_crate_of(m);
    mr_clip_info info;
    MR_TRY(media->scan(w, c->path, c->deadline_s, &info, &c->fault));
    mr_status st = guard_reserve(m, info.n_keys, 0);
    if (st == MR_OK) {
        guard_crate_of(m)->info = info;
        if (info.n_keys)
            memcpy(guard_keys(m), info.key_pts, sizeof *info.key_pts * (size_t)info.n_keys);
    }
    mr_clip_info_fini(&info);
    return st;
}

static mr_status answer(const mr_media *media, mr_media_worker *w, guard_memory *m)
{
    guard_crate *c = guard_crate_of(m);
    c->fault = MR_FAULT_NONE;
    if (c->job == GUARD_SCAN)
        return answer_scan(media, w, m);
    mr_clip_info info = c->info;
    uint8_t *out = guard_out(m, info.n_keys);
    info.key_pts = guard_keys(m);
    if (c->job == GUARD_WATCH) {
        mr_status st = media->watch(w, c->path, &info, c->deadline_s,
                                    c->wants ? (float *)(void *)out : NULL, &c->fault);
        c->info.n_keys = info.n_keys;
        return st;
    }
    mr_clip_request q = c->request;
    q.path = c->path, q.info = &info;
    return media->read(w, &q, out, &c->fault);
}

static void tell(guard_memory *m, mr_status st, const char *log)
{
    guard_crate *c = guard_crate_of(m);
    const mr_error *e = st == MR_OK ? NULL : mr_error_last();
    c->status = st;
    snprintf(c->text, sizeof c->text, "%s", e ? e->text : "");
    snprintf(c->log, sizeof c->log, "%s", log);
}

// ends when the other process closes its end of the socket
static void serve(int sock, guard_memory *m)
{
    const mr_media *media;
    mr_media_worker *w = NULL;
    char byte = 0;
    mr_status st = mr_media_get(&media);
    if (st == MR_OK)
        st = media->worker_new(&w);
    tell(m, st, "");
    while (send(sock, &byte, 1, MSG_NOSIGNAL) == 1 && st == MR_OK && recv(sock, &byte, 1, 0) == 1) {
        if (guard_reserve(m, 0, 0) != MR_OK)
            return;
        const guard_crate *c = guard_crate_of(m);
        // the guard may be dead: the alarm ends an infinite loop
        alarm((unsigned)fmin(c->deadline_s, 1e6) + ALARM_S);
        mr_status answered = answer(media, w, m);
        tell(m, answered, media->worker_log(w));
        alarm(0);
    }
}

/* ---- the fork server ---- */

// Keeps only the socket open, and ignores signals of the terminal, which are meant for the parent.
static void settle(int sock)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < MR_COUNT(ignored); i++)
        signal(ignored[i], SIG_IGN);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3 && null >= 0; i++)
        dup2(null, i);
    if (sock > 3)
        syscall(SYS_close_range, 3, (unsigned)sock - 1, 0);
    syscall(SYS_close_range, (unsigned)sock + 1, ~0U, 0);
}

// Waits for a request; it contains the descriptors of a decoder's socket and memory.
static bool next(int sock, int fd[2])
{
    guard_letter letter;
    struct msghdr *m = guard_letter_open(&letter);
    if (recvmsg(sock, m, 0) != 1)
        return false;
    const struct cmsghdr *head = CMSG_FIRSTHDR(m);
    if (!head || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(2 * sizeof(int)))
        return false;
    memcpy(fd, CMSG_DATA(head), 2 * sizeof(int));
    return true;
}

// forks a child of this process's parent. The server has one thread, so no other can hold a lock
static pid_t fork_sibling(void)
{
    return (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
}

static void decode(int fd[2])
{
    guard_memory m = {.fd = fd[1]};
    if (guard_reserve(&m, 0, 0) == MR_OK)
        serve(fd[0], &m);
    _exit(0);
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv(GUARD_VARIABLE);
    int sock, fd[2];
    if (!text || sscanf(text, "%d", &sock) != 1)
        return;
    unsetenv(GUARD_VARIABLE);
    mr_process_name("decode");
    settle(sock);
    // each clip opens a new decoder with tables of about 1 MiB; keep freed memory for the next one
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES), mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    const mr_media *media;
    mr_media_get(&media); // each decoder reports a failure itself
    while (next(sock, fd)) {
        pid_t pid = fork_sibling();
        if (!pid)
            close(sock), decode(fd);
        close(fd[0]), close(fd[1]);
        pid = pid < 0 ? -errno : pid;
        if (send(sock, &pid, sizeof pid, MSG_NOSIGNAL) != (ssize_t)sizeof pid)
            break;
    }
    _exit(0);
}
