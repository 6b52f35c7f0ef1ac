/* bind: moonreel.core.stream - child processes with pipes for input and output. A caller can serve
 * several without blocking on one.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "bind/room.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define STREAM "mr.Stream"
enum { PIECE = 65536, MOST_STREAMS = 4096 };

/* One end of a pipe; data that cannot be written at once waits in `queue`. */
typedef struct stream {
    int fd;
    char *queue;
    size_t used, sent, cap;
} stream;

static void free_stream(void *object)
{
    stream *s = object;
    if (s->fd >= 0)
        close(s->fd);
    mr_free(s->queue), mr_free(s);
}

static void push_stream(lua_State *L, int fd)
{
    void **box = mr_bind_box(L, STREAM);
    stream *s = mr_calloc(1, sizeof *s);
    if (!s) {
        close(fd);
        mr_bind_check(L, mr_fail_memory(sizeof *s));
    }
    s->fd = fd;
    *box = s;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* ---- reading and writing ---- */

static int s_read(lua_State *L)
{
    const stream *s = mr_bind_unbox(L, 1, STREAM);
    luaL_Buffer b;
    char *room = luaL_buffinitsize(L, &b, PIECE);
    ssize_t n = read(s->fd, room, PIECE);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return 0;
    luaL_pushresultsize(&b, n > 0 ? (size_t)n : 0);
    return 1;
}

/* Returns whether the other end is open. */
static bool flush(stream *s)
{
    while (s->sent < s->used) {
        ssize_t n = write(s->fd, s->queue + s->sent, s->used - s->sent);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (n < 0)
            return false;
        s->sent += (size_t)n;
    }
    s->sent = s->used = 0;
    return true;
}

static int s_write(lua_State *L)
{
    stream *s = mr_bind_unbox(L, 1, STREAM);
    size_t n;
    const char *text = luaL_checklstring(L, 2, &n);
    if (s->used + n > s->cap) {
        size_t cap = s->used + n + PIECE;
        char *grown = mr_realloc(s->queue, cap);
        if (!grown)
            return mr_bind_check(L, mr_fail_memory(cap)), 0;
        s->queue = grown, s->cap = cap;
    }
    memcpy(s->queue + s->used, text, n);
    s->used += n;
    lua_pushboolean(L, flush(s));
    return 1;
}

static int s_wait(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    const int count = (int)lua_rawlen(L, 1), ms = (int)luaL_checkinteger(L, 2);
    luaL_argcheck(L, count <= MOST_STREAMS, 1, "too many streams");
    struct pollfd *p = mr_bind_scratch(L, ((size_t)count + 1) * sizeof *p);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 1, i + 1);
        const stream *s = mr_bind_unbox(L, -1, STREAM);
        p[i] = (struct pollfd){s->fd, s->used > s->sent ? POLLOUT : POLLIN, 0};
        lua_pop(L, 1);
    }
    int ready = poll(p, (nfds_t)count, ms);
    for (int i = 0; i < count && ready > 0; i++) {
        lua_rawgeti(L, 1, i + 1);
        if (p[i].events == POLLOUT && p[i].revents)
            flush(mr_bind_unbox(L, -1, STREAM));
        lua_pop(L, 1);
    }
    lua_pushboolean(L, ready > 0);
    return 1;
}

/* ---- children ---- */

static mr_status spawn(char *const *argv, const int *theirs, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t how;
    sigset_t none, all;
    sigemptyset(&none), sigfillset(&all);
    posix_spawn_file_actions_init(&actions), posix_spawnattr_init(&how);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, theirs[i], i);
    // signals of a terminal go to us only, and we forward them
    posix_spawnattr_setflags(&how,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&how, &none), posix_spawnattr_setsigdefault(&how, &all);
    int err = posix_spawnp(pid, argv[0], &actions, &how, argv, environ);
    posix_spawnattr_destroy(&how), posix_spawn_file_actions_destroy(&actions);
    return err == 0 ? MR_OK : mr_fail(MR_E_NODE, "cannot start %s: %s", argv[0], strerror(err));
}

static int s_spawn(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    const int count = (int)lua_rawlen(L, 1);
    luaL_argcheck(L, count >= 1 && count <= 4096, 1, "1 to 4096 words");
    char **argv = mr_bind_scratch(L, ((size_t)count + 1) * sizeof *argv);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 1, i + 1);
        argv[i] = (char *)(uintptr_t)luaL_checkstring(L, -1);
        lua_pop(L, 1);
    }
    signal(SIGPIPE, SIG_IGN); // write reports a closed reader
    int in[2], out[2], errors[2];
    if (pipe2(in, O_CLOEXEC) != 0)
        return mr_bind_raise(L, MR_E_NODE, "cannot make a pipe: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]), close(in[1]);
        return mr_bind_raise(L, MR_E_NODE, "cannot make a pipe: %s", strerror(errno));
    }
    if (pipe2(errors, O_CLOEXEC) != 0) {
        close(in[0]), close(in[1]), close(out[0]), close(out[1]);
        return mr_bind_raise(L, MR_E_NODE, "cannot make a pipe: %s", strerror(errno));
    }
    pid_t pid = 0;
    const int theirs[] = {in[0], out[1], errors[1]};
    mr_status st = spawn(argv, theirs, &pid);
    for (int i = 0; i < 3; i++)
        close(theirs[i]);
    if (st != MR_OK) {
        close(in[1]), close(out[0]), close(errors[0]);
        mr_bind_check(L, st);
    }
    lua_createtable(L, 0, 4);
    lua_pushinteger(L, pid), lua_setfield(L, -2, "pid");
    push_stream(L, in[1]), lua_setfield(L, -2, "input");
    push_stream(L, out[0]), lua_setfield(L, -2, "output");
    push_stream(L, errors[0]), lua_setfield(L, -2, "errors");
    return 1;
}

static int s_reap(lua_State *L)
{
    const lua_Integer id = luaL_checkinteger(L, 1);
    luaL_argcheck(L, id > 0 && id <= INT32_MAX, 1, "expected a child");
    const pid_t pid = (pid_t)id;
    int how = 0;
    // another process is not ours to kill; kill(-1) would end all processes of the host
    siginfo_t state;
    if (pid == 1 || waitid(P_PID, (id_t)pid, &state, WEXITED | WNOHANG | WNOWAIT) != 0)
        return mr_bind_raise(L, MR_E_USAGE, "reap: process %d is no child of this one", (int)pid);
    // kill its session, including the processes that it has started
    if (lua_toboolean(L, 2) && kill(-pid, SIGKILL) != 0)
        kill(pid, SIGKILL);
    pid_t got = waitpid(pid, &how, lua_toboolean(L, 2) ? 0 : WNOHANG);
    if (got == 0)
        return 0;
    lua_pushinteger(L, WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how));
    return 1;
}

/* ---- the other end ---- */

static int s_standard(lua_State *L)
{
    int out[2], errors[2], nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), to = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (nothing < 0 || in < 0 || to < 0 || pipe2(out, O_CLOEXEC) != 0 ||
        pipe2(errors, O_CLOEXEC) != 0)
        return mr_bind_raise(L, MR_E_NODE, "cannot make a pipe: %s", strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    dup2(nothing, STDIN_FILENO), dup2(out[1], STDOUT_FILENO), dup2(errors[1], STDERR_FILENO);
    close(nothing), close(out[1]), close(errors[1]);
    lua_createtable(L, 0, 4);
    push_stream(L, in), lua_setfield(L, -2, "input");
    push_stream(L, to), lua_setfield(L, -2, "output");
    push_stream(L, out[0]), lua_setfield(L, -2, "lines");
    push_stream(L, errors[0]), lua_setfield(L, -2, "errors");
    return 1;
}

static const mr_bind_entry stream_methods[] = {
    MR_ENTRY("read", s_read, "(): string?",
             "Available data, possibly empty; nil: end of the stream."),
    MR_ENTRY("write", s_write, "(text: string): boolean",
             "Write a text; the rest is written by wait. False: the reader is gone."),
    MR_ENTRY_END};
static const mr_bind_face stream_type = {STREAM, "One end of a pipe, without blocking.",
                                         stream_methods, free_stream};

static const mr_bind_entry stream_entries[] = {
    MR_ENTRY("spawn", s_spawn, "(words: string[]): table",
             "Start a program in a new session: {pid, input, output, errors}."),
    MR_ENTRY(
        "reap", s_reap, "(pid: integer, kill?: boolean): integer?",
        "The exit code of a child, or 128 + its signal; nil: it still runs, and was not killed. "
        "MR_E_USAGE: the process is no child of this one."),
    MR_ENTRY("wait", s_wait, "(streams: mr.Stream[], ms: integer): boolean",
             "Wait until one of them can be read or has written its queue, at most this long."),
    MR_ENTRY("standard", s_standard, "(): table",
             "Standard input and output of this process as {input, output}; later output of this "
             "process and its children arrives at {lines, errors}."),
    MR_ENTRY_END};
static const mr_bind_face stream_face = {
    "moonreel.core.stream", "Child processes with pipes, several at a time.", stream_entries, NULL};

MR_BIND_ROOM(stream)
{
    mr_bind_type(L, &stream_type);
    return mr_bind_module(L, &stream_face);
}
