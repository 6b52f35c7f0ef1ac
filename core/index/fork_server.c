/* index: starts decoder processes (guarded.c) as forks of one process. The fork server loads FFmpeg
 * and the libraries behind it, which takes 25 ms of a processor; a fork of it takes 1 ms. The first
 * worker of this process starts the server, and the last one ends it.
 *
 * A decoder is a child of this process, not of the server (CLONE_PARENT), so that guard.c can wait
 * for it and see which signal ended it. Ref: dataplane 1.2. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "base/process.h"
#include "index/guard.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct server {
    pthread_mutex_t lock;
    int workers; /* workers in use */
    pid_t pid;   /* 0: not started */
    int sock;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { SLICE_MS = 50 };

guard_waited guard_wait(int sock, double seconds, void *answer, size_t bytes)
{
    double until = mr_now_s() + seconds;
    for (;;) {
        struct pollfd p = {.fd = sock, .events = POLLIN};
        if (poll(&p, 1, SLICE_MS) > 0)
            return recv(sock, answer, bytes, 0) == (ssize_t)bytes ? GUARD_ANSWERED : GUARD_ENDED;
        if (mr_interrupt_get())
            return GUARD_STOPPED;
        if (mr_now_s() > until)
            return GUARD_LATE;
    }
}

/* Starts this program as a fork server that communicates through `theirs`. Returns errno or 0. */
static int spawn(int theirs)
{
    extern char **environ;
    char variable[64];
    size_t n = 0;
    while (environ[n])
        n++;
    char **env = mr_alloc(sizeof *env * (n + 2));
    if (!env)
        return ENOMEM;
    snprintf(variable, sizeof variable, GUARD_VARIABLE "=%d", theirs);
    memcpy(env, environ, sizeof *env * n);
    env[n] = variable, env[n + 1] = NULL;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attr, &none);
    // copying a descriptor to itself keeps it open in the new program
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs, theirs);
    char name[] = "moonreel: decodes", *argv[] = {name, NULL};
    char file[4096];
    mr_program_file(file);
    int err = posix_spawn(&server.pid, file, &actions, &attr, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    mr_free(env);
    return err;
}

static int start(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return errno;
    int err = spawn(ends[1]);
    close(ends[1]);
    if (err)
        close(ends[0]), server.pid = 0;
    else
        server.sock = ends[0];
    return err;
}

static void end(void)
{
    if (!server.pid)
        return;
    close(server.sock);
    kill(server.pid, SIGKILL);
    while (waitpid(server.pid, NULL, 0) < 0 && errno == EINTR)
        ;
    server.pid = 0;
}

/* Requests a decoder with these descriptors; *pid: its id, or -errno. */
static guard_waited ask(const int fd[2], pid_t *pid)
{
    guard_letter letter;
    struct msghdr *m = guard_letter_open(&letter);
    struct cmsghdr *head = CMSG_FIRSTHDR(m);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(head), fd, 2 * sizeof(int));
    if (sendmsg(server.sock, m, MSG_NOSIGNAL) != 1)
        return GUARD_ENDED;
    return guard_wait(server.sock, GUARD_START_S, pid, sizeof *pid);
}

#define CANNOT "cannot start a process that decodes: "

mr_status fork_server_refused(int err)
{
    const char *try = err == EMFILE   ? "; try: a larger limit of open files (ulimit -n)"
                      : err == EAGAIN ? "; try: a larger limit of processes (ulimit -u)"
                                      : "";
    return mr_fail(MR_E_FAIL, CANNOT "%s%s", strerror(err), try);
}

mr_status fork_server_silent(guard_waited came)
{
    if (came == GUARD_STOPPED)
        return mr_fail(MR_E_STOPPED, "stopped by Ctrl-C");
    if (came == GUARD_LATE)
        return mr_fail(MR_E_FAIL, CANNOT "no answer within %d s; try: again on a less busy host",
                       GUARD_START_S);
    return mr_fail(MR_E_FAIL, CANNOT "it exited at once; try: dmesg, which says whether memory was "
                                     "short");
}

mr_status fork_server_start(int sock, int memory, pid_t *pid)
{
    guard_waited came = GUARD_ENDED;
    int err = 0;
    *pid = 0;
    pthread_mutex_lock(&server.lock);
    // a killed server is restarted
    for (int turn = 0; turn < GUARD_STARTS && came == GUARD_ENDED && !err; turn++) {
        if (!server.pid && (err = start()))
            break;
        came = ask((const int[2]){sock, memory}, pid);
        if (came != GUARD_ANSWERED)
            end();
    }
    pthread_mutex_unlock(&server.lock);
    if (!err && came != GUARD_ANSWERED)
        return fork_server_silent(came);
    err = *pid < 0 ? -*pid : err;
    *pid = MR_MAX(*pid, 0);
    return err ? fork_server_refused(err) : MR_OK;
}

void fork_server_hold(void)
{
    pthread_mutex_lock(&server.lock);
    server.workers++;
    pthread_mutex_unlock(&server.lock);
}

void fork_server_release(void)
{
    pthread_mutex_lock(&server.lock);
    if (!--server.workers)
        end();
    pthread_mutex_unlock(&server.lock);
}
