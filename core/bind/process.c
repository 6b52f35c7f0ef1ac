/* bind: moonreel.core.process - path and limits of this process, children with a deadline.
 * Licence: Apache-2.0
 *
 * real_path(path) -> absolute path without links, or nil if nothing is at the path. program() ->
 * path of the running program. build_id() -> which build of it runs. limit{memory_bytes=, cpu_s=}
 * lowers this process's address space and processor time for good; passing
 *   the first makes allocations fail, passing the second kills it. It also ends core dumps.
 * plugin(name) -> its path, or nil and where it was looked for. allowed() -> {files =, locked_bytes
 * =}: what the system lets this process have. variable(name) -> value that the environment of this
 * program gives, nil for one that it has set itself. outlive_readers(): SIGPIPE is ignored.
 * drop(file): it writes to /dev/null from now on. restart(argv, {NAME = value}): this program from
 * its start, with words and further variables; returns only by raising. run(argv, input,
 * {deadline_s=, output_bytes=, quiet=}) -> {output, exit | signal, timed_out, too_long, peak_bytes,
 * cpu_s}:
 *   start a program, give it `input` on stdin, read its stdout; its stderr is ours, or nowhere with
 * quiet. It is killed
 *   at the deadline or when it writes more than output_bytes. cpu_s is its processor time,
 * peak_bytes its largest
 *   resident size; Linux counts what this process had at the start as well, so measure from a small
 * one. */
#define _DEFAULT_SOURCE
#define _GNU_SOURCE
#include "base/build_id.h"
#include "base/plugin.h"
#include "base/process.h"
#include "bind/room.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int p_real_path(lua_State *L)
{
    char path[PATH_MAX];
    if (!realpath(luaL_checkstring(L, 1), path))
        return 0;
    lua_pushstring(L, path);
    return 1;
}

static int p_program(lua_State *L)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    if (n <= 0)
        return mr_bind_raise(L, MR_E_IO, "cannot read /proc/self/exe: %s", strerror(errno));
    lua_pushlstring(L, path, (size_t)n);
    return 1;
}

static int p_build_id(lua_State *L)
{
    mr_hash128 id;
    char hex[33];
    mr_bind_check(L, mr_build_id(&id));
    mr_hash128_hex(id, hex);
    lua_pushstring(L, hex);
    return 1;
}

typedef struct limit_options {
    int64_t memory_bytes;
    double cpu_s;
} limit_options;

static const mr_bind_field limit_fields[] = {
    MR_BIND_INT("memory_bytes", limit_options, memory_bytes, 0, 0,
                "Address space; above it allocations fail. A lower limit stays."),
    MR_BIND_NUM("cpu_s", limit_options, cpu_s, 0,
                "Processor time; after it the process is killed."),
    MR_BIND_END};

// Lowers a limit to n; a lower one stays.
static int lower(int what, rlim_t n)
{
    struct rlimit r;
    if (getrlimit(what, &r) != 0)
        return -1;
    r.rlim_cur = r.rlim_max = MR_MIN(r.rlim_max, n);
    return setrlimit(what, &r);
}

static int p_limit(lua_State *L)
{
    limit_options o;
    mr_bind_options(L, 1, "process.limit", limit_fields, &o);
    int64_t bytes = o.memory_bytes;
    double cpu_s = o.cpu_s;
    lower(RLIMIT_CORE, 0);
    if (bytes > 0 && lower(RLIMIT_AS, (rlim_t)bytes) != 0)
        return mr_bind_raise(L, MR_E_IO, "cannot limit memory: %s", strerror(errno));
    if (cpu_s > 0) {
        // SIGPROF ends the process; the second limit, in whole seconds, cannot be caught
        struct itimerval t = {
            .it_value = {(time_t)cpu_s, (suseconds_t)((cpu_s - (double)(time_t)cpu_s) * 1e6)}};
        if (setitimer(ITIMER_PROF, &t, NULL) != 0 || lower(RLIMIT_CPU, (rlim_t)cpu_s + 2) != 0)
            return mr_bind_raise(L, MR_E_IO, "cannot limit processor time: %s", strerror(errno));
    }
    return 0;
}

// call fn(name, user) for each variable that main() has set itself, until it returns true
static bool own_variables(bool (*fn)(const char *name, const void *user), const void *user)
{
    char names[64], *rest = names;
    const char *own = getenv("MOONREEL_OWN");
    snprintf(names, sizeof names, "%s", own ? own : "");
    for (char *name; (name = strtok_r(rest, " ", &rest));)
        if (fn(name, user))
            return true;
    return false;
}

static bool is_name(const char *name, const void *user)
{
    return strcmp(name, user) == 0;
}

static bool unset(const char *name, const void *user)
{
    (void)user;
    unsetenv(name);
    return false;
}

static int p_variable(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    lua_pushstring(L, own_variables(is_name, name) ? NULL : getenv(name));
    return 1;
}

static int p_outlive(lua_State *L)
{
    (void)L;
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

static int p_drop(lua_State *L)
{
    luaL_Stream *stream = luaL_checkudata(L, 1, LUA_FILEHANDLE);
    luaL_argcheck(L, stream->closef, 1, "expected an open file");
    if (!freopen("/dev/null", "w", stream->f))
        return mr_bind_raise(L, MR_E_IO, "/dev/null: %s", strerror(errno));
    return 0;
}

static int p_enter(lua_State *L)
{
    const char *dir = luaL_checkstring(L, 1);
    if (chdir(dir) != 0)
        return mr_bind_raise(L, MR_E_IO, "cannot enter %s: %s", dir, strerror(errno));
    return 0;
}

static int p_set(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    if (setenv(name, luaL_checkstring(L, 2), 1) != 0)
        return mr_bind_raise(L, MR_E_USAGE, "set: '%s' is no name of a variable", name);
    return 0;
}

/* The words of a list, zero-terminated; the table keeps them alive. */
static char **check_words(lua_State *L, int arg, const char *who)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    int count = (int)lua_rawlen(L, arg);
    luaL_argcheck(L, count >= 1 && count <= 4096, arg, "1 to 4096 words");
    char **words = mr_bind_scratch(L, ((size_t)count + 1) * sizeof *words);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, arg, i + 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            mr_bind_raise(L, MR_E_USAGE, "%s: word %d is not a string", who, i + 1);
        words[i] = (char *)lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    return words;
}

static int p_restart(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    char **argv = check_words(L, 1, "restart");
    // libraries decide again, by the variables that are set now
    own_variables(unset, NULL);
    unsetenv("MOONREEL_OWN");
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING ||
            setenv(lua_tostring(L, -2), lua_tostring(L, -1), 1) != 0)
            return mr_bind_raise(
                L, MR_E_USAGE,
                "restart: cannot set a variable: expected texts, the name without =");
    }
    char file[4096];
    mr_program_file(file);
    execv(file, argv);
    return mr_bind_raise(L, MR_E_IO, "cannot start over: %s", strerror(errno));
}

/* The resources of a running child, in one object, so that its scratch block or the end releases
 * them. */
typedef struct child {
    pid_t pid;
    int in, out; /* our ends of the pipes; -1: closed */
    char *text;
    size_t used, cap;
} child;

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static mr_status start_child(child *c, char *const *argv, bool quiet)
{
    int to[2], from[2];
    // no end must leak into children that other threads start: they would keep it open
    if (pipe2(to, O_CLOEXEC) != 0)
        return mr_fail(MR_E_IO, "cannot make a pipe: %s", strerror(errno));
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]), close(to[1]);
        return mr_fail(MR_E_IO, "cannot make a pipe: %s", strerror(errno));
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    if (quiet)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int err = posix_spawnp(&c->pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]), close(from[1]);
    c->in = to[1], c->out = from[0];
    if (err == 0)
        return MR_OK;
    c->pid = 0;
    close_end(&c->in), close_end(&c->out);
    return mr_fail(MR_E_IO, "cannot start %s: %s", argv[0], strerror(err));
}

/* Write input and read output until the child closes its output. Returns MR_OK even if time or
 * space ran out. */
static mr_status talk(child *c, const char *input, size_t n, double deadline_s, size_t most,
                      bool *late, bool *much)
{
    double end = mr_now_s() + deadline_s;
    size_t sent = 0;
    fcntl(c->in, F_SETFL, O_NONBLOCK);
    if (n == 0)
        close_end(&c->in);
    for (;;) {
        double left = end - mr_now_s();
        if (left <= 0)
            return *late = true, MR_OK;
        struct pollfd p[2] = {{c->out, POLLIN, 0}, {c->in, POLLOUT, 0}};
        int ready = poll(p, c->in >= 0 ? 2 : 1, (int)(left * 1000) + 1);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready < 0)
            return mr_fail(MR_E_IO, "poll: %s", strerror(errno));
        if (c->in >= 0 && p[1].revents) {
            ssize_t w = write(c->in, input + sent, n - sent);
            if (w > 0)
                sent += (size_t)w;
            if (sent == n || (w < 0 && errno != EAGAIN && errno != EINTR))
                close_end(&c->in);
        }
        if (!p[0].revents)
            continue;
        if (c->used == c->cap) {
            size_t cap = c->cap ? c->cap * 2 : 65536;
            char *grown = mr_realloc(c->text, cap);
            if (!grown)
                return mr_fail_memory(cap);
            c->text = grown, c->cap = cap;
        }
        ssize_t r = read(c->out, c->text + c->used, c->cap - c->used);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return mr_fail(MR_E_IO, "cannot read from a child: %s", strerror(errno));
        if (r == 0)
            return MR_OK;
        c->used += (size_t)r;
        if (c->used > most)
            return *much = true, MR_OK;
    }
}

typedef struct run_options {
    double deadline_s;
    int64_t output_bytes;
    bool quiet;
} run_options;

static const mr_bind_field run_fields[] = {
    MR_BIND_NUM("deadline_s", run_options, deadline_s, 60, "Seconds until it is killed."),
    MR_BIND_INT("output_bytes", run_options, output_bytes, 64 << 20, 0,
                "More output than this ends the program, too."),
    MR_BIND_BOOL("quiet", run_options, quiet, "Discard its error output."), MR_BIND_END};

static int p_run(lua_State *L)
{
    lua_settop(L, 3);
    char **argv = check_words(L, 1, "run");
    size_t n;
    const char *input = luaL_optlstring(L, 2, "", &n);
    run_options o;
    mr_bind_options(L, 3, "process.run", run_fields, &o);

    void **text = mr_bind_hold(L);
    child c = {.in = -1, .out = -1};
    bool late = false, much = false;
    int how = 0;
    struct rusage used = {0};
    mr_status st = start_child(&c, argv, o.quiet);
    // a child that exits early must not kill us by SIGPIPE; the child does not inherit this setting
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGPIPE, &ignore, &before);
    if (st == MR_OK)
        st = talk(&c, input, n, o.deadline_s, (size_t)o.output_bytes, &late, &much);
    sigaction(SIGPIPE, &before, NULL);
    close_end(&c.in), close_end(&c.out);
    if (c.pid > 0) {
        if (late || much || st != MR_OK)
            kill(c.pid, SIGKILL);
        while (wait4(c.pid, &how, 0, &used) < 0 && errno == EINTR) {}
    }
    *text = c.text;
    mr_bind_check(L, st);
    lua_createtable(L, 0, 6);
    lua_pushlstring(L, c.text ? c.text : "", c.used);
    lua_setfield(L, -2, "output");
    lua_pushboolean(L, late);
    lua_setfield(L, -2, "timed_out");
    lua_pushboolean(L, much);
    lua_setfield(L, -2, "too_long");
    lua_pushinteger(L, (lua_Integer)used.ru_maxrss * 1024);
    lua_setfield(L, -2, "peak_bytes");
    lua_pushnumber(L, (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                          (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6);
    lua_setfield(L, -2, "cpu_s");
    lua_pushinteger(L, WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
    lua_setfield(L, -2, WIFEXITED(how) ? "exit" : "signal");
    return 1;
}

static int p_leave(lua_State *L)
{
    char **argv = check_words(L, 1, "leave");
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t how;
    pid_t pid = 0;
    posix_spawn_file_actions_init(&actions), posix_spawnattr_init(&how);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    // signals of a terminal go to its parent only
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID);
    int err = posix_spawnp(&pid, argv[0], &actions, &how, argv, environ);
    posix_spawnattr_destroy(&how), posix_spawn_file_actions_destroy(&actions);
    if (err)
        return mr_bind_raise(L, MR_E_IO, "cannot start %s: %s", argv[0], strerror(err));
    lua_pushinteger(L, pid);
    return 1;
}

/* plugin(name) -> path, or nil and where it was searched */
static int p_plugin(lua_State *L)
{
    char path[MR_PLUGIN_PATH];
    if (mr_plugin_find(luaL_checkstring(L, 1), path) == MR_OK) {
        lua_pushstring(L, path);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, mr_error_last()->text);
    mr_error_clear();
    return 2;
}

/* allowed() -> {files =, locked_bytes =}; a field without limit is absent */
static int p_allowed(lua_State *L)
{
    static const struct {
        const char *name;
        int what;
    } limits[] = {{"files", RLIMIT_NOFILE}, {"locked_bytes", RLIMIT_MEMLOCK}};
    lua_createtable(L, 0, MR_COUNT(limits));
    for (size_t i = 0; i < MR_COUNT(limits); i++) {
        struct rlimit r;
        if (getrlimit(limits[i].what, &r) == 0 && r.rlim_cur != RLIM_INFINITY) {
            lua_pushinteger(L, (lua_Integer)r.rlim_cur);
            lua_setfield(L, -2, limits[i].name);
        }
    }
    return 1;
}

static const mr_bind_entry process_entries[] = {
    MR_ENTRY("real_path", p_real_path, "(path: string): string?",
             "The absolute path without links; nil if nothing is at the path."),
    MR_ENTRY("program", p_program, "(): string", "Path of the running program."),
    MR_ENTRY("build_id", p_build_id, "(): string",
             "32 digits that identify the build of the program."),
    MR_ENTRY_OPTIONS("limit", p_limit, "(options: table)",
                     "Lower the limits of memory and processor time of this process permanently.",
                     limit_fields),
    MR_ENTRY("plugin", p_plugin, "(name: string): string?, string?",
             "The path of a plug-in; else nil and where it was searched."),
    MR_ENTRY("allowed", p_allowed, "(): table",
             "Limits of the system for this process: {files, locked_bytes}; absent: no limit."),
    MR_ENTRY("variable", p_variable, "(name: string): string?",
             "A variable of the environment; nil for one that this program has set itself."),
    MR_ENTRY("set", p_set, "(name: string, value: string)",
             "Set a variable for this process and its children."),
    MR_ENTRY("enter", p_enter, "(dir: string)", "Change the working folder."),
    MR_ENTRY("outlive_readers", p_outlive, "()",
             "Ignore SIGPIPE from now on, here and in programs that this one starts."),
    MR_ENTRY("drop", p_drop, "(file: file*)",
             "Discard all further output of this stream, and clear its error."),
    MR_ENTRY("restart", p_restart, "(words: string[], variables: table)",
             "Start this program again; returns only with an error."),
    MR_ENTRY_OPTIONS(
        "run", p_run, "(words: string[], input?: string, options?: table): table",
        "Run a program: {output, exit or signal, timed_out, too_long, peak_bytes, cpu_s}.",
        run_fields),
    MR_ENTRY("leave", p_leave, "(words: string[]): integer",
             "Start a program in a new session, which outlives this one and prints to standard "
             "error of this one. Returns its process id."),
    MR_ENTRY_END};
static const mr_bind_face process_face = {
    "moonreel.core.process", "This process, and children with a deadline.", process_entries, NULL};

MR_BIND_ROOM(process)
{
    return mr_bind_module(L, &process_face);
}
