/* index: reads Parquet as JSON lines from a child process, the duckdb command or python3 with
 * pyarrow, because no distribution packages a C library for it. Ref: dataplane 2.4.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/table.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_PYARROW = 77, SAID = 400, PAUSE_MIN_NS = 1000000, PAUSE_MAX_NS = 50000000 };

/* Seconds that a child may run after the end of its output, and again after SIGTERM. */
static const double GRACE_S = 5;

// The file is passed as standard input, because duckdb treats a name as a pattern and turns folders
// called NAME=VALUE into columns.
static const char question[] =
    "COPY (SELECT * FROM read_parquet('/dev/stdin')) TO '/dev/stdout' (FORMAT JSON)";

// Leaves out columns of other types: a list of clips does not use them, and JSON may not represent
// them. Values of f32 arrive as f64; index_making_json() restores them.
static const char python_script[] =
    "import sys\n"
    "try:\n"
    "    import pyarrow.parquet as parquet, pyarrow.types as types\n"
    "except ImportError:\n"
    "    sys.exit(77)\n"
    "import json\n"
    "def text(t): return types.is_string(t) or types.is_large_string(t)\n"
    "def wanted(t):\n"
    "    if types.is_dictionary(t):\n"
    "        return wanted(t.value_type)\n"
    "    if types.is_list(t) or types.is_large_list(t) or types.is_fixed_size_list(t):\n"
    "        return wanted(t.value_type)\n"
    "    if types.is_struct(t):\n"
    "        return all(wanted(f.type) for f in t)\n"
    "    return (text(t) or types.is_integer(t) or types.is_floating(t)\n"
    "            or types.is_boolean(t) or types.is_decimal(t))\n"
    "try:\n"
    "    file = parquet.ParquetFile(sys.argv[1])\n"
    "    names = [f.name for f in file.schema_arrow if wanted(f.type)]\n"
    "    def raw(t): return (types.is_binary(t) or types.is_large_binary(t)\n"
    "                        or types.is_struct(t) and any(raw(f.type) for f in t))\n"
    "    bytes_of = [f.name for f in file.schema_arrow if raw(f.type)]\n"
    "    words = ('path', 'file', 'video', 'clip')\n"
    "    places = [n for n in names if any(w in n.lower() for w in words)]\n"
    "    if bytes_of and not places:\n"
    "        sys.exit('column %s holds the bytes of clips, which are read from files alone; '\n"
    "                 'try: a file for each value, and a CSV with path and text' % bytes_of[0])\n"
    "    for batch in file.iter_batches(8192, columns=names):\n"
    "        for row in batch.to_pylist():\n"
    "            sys.stdout.write(json.dumps(row, default=str) + '\\n')\n"
    "except Exception as problem:\n"
    "    sys.exit(str(problem))\n";

// starts a program that reads a file and writes to the pipe; ENOENT: no such program
static int spawn(index_child *c, int input, const char *const argv[])
{
    extern char **environ;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return errno;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, c->errors, STDERR_FILENO);
    int err =
        posix_spawnp(&c->pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (err) {
        c->pid = 0;
        close(ends[0]);
        return err;
    }
    c->fd = ends[0];
    return 0;
}

static mr_status fail_tools(const char *file)
{
    return mr_fail(MR_E_UNSUPPORTED,
                   "%s: Parquet is read by the duckdb command, or by python3 with pyarrow, and "
                   "neither is here; try: install one of them, or export CSV",
                   file);
}

static mr_status open_input(const char *file, int *fd)
{
    struct stat about;
    // without O_NONBLOCK, opening a pipe that has no writer would wait forever
    *fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0)
        return mr_fail(MR_E_DATA, "%s: cannot open: %s", file, strerror(errno));
    if (fstat(*fd, &about) == 0 && S_ISREG(about.st_mode))
        return MR_OK;
    close(*fd);
    return mr_fail(MR_E_DATA, "%s: is not a regular file; expected a .parquet file", file);
}

mr_status index_child_open(index_child *c, const char *file)
{
    int input;
    *c = (index_child){.file = file, .fd = -1, .errors = -1};
    MR_TRY(open_input(file, &input));
    if ((c->errors = memfd_create("child-errors", MFD_CLOEXEC)) < 0) {
        close(input);
        return mr_fail(MR_E_IO, "%s: cannot store the error output of a child: %s", file,
                       strerror(errno));
    }
    int err = spawn(c, input, (const char *const[]){"duckdb", "-c", question, NULL});
    if (err == ENOENT)
        err = spawn(c, input, (const char *const[]){"python3", "-c", python_script, file, NULL});
    close(input);
    if (!err)
        return MR_OK;
    mr_status st = err == ENOENT
                       ? fail_tools(file)
                       : mr_fail(MR_E_IO, "%s: cannot start a child: %s", file, strerror(err));
    index_child_close(c, false);
    return st;
}

mr_status index_child_wait(const index_child *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    while (poll(&p, 1, 50) == 0)
        MR_TRY(mr_interrupt_check());
    return MR_OK;
}

// copies the end of the child's error output as one line
static void last_words(const index_child *c, char said[SAID])
{
    off_t n = lseek(c->errors, 0, SEEK_END);
    off_t from = n > SAID - 1 ? n - (SAID - 1) : 0;
    ssize_t got = pread(c->errors, said, SAID - 1, from);
    said[got > 0 ? got : 0] = 0;
    for (char *p = said; *p; p++)
        if ((unsigned char)*p < 32)
            *p = p[1] ? ' ' : 0;
}

// waits for the child to end, for at most GRACE_S; with `may`, Ctrl-C ends the wait too
static bool ends(const index_child *c, bool may, int *status)
{
    const double until = mr_now_s() + GRACE_S;
    pid_t got;
    for (int64_t ns = PAUSE_MIN_NS;
         (got = waitpid(c->pid, status, WNOHANG)) == 0 || (got < 0 && errno == EINTR);
         ns = MR_MIN(ns * 2, (int64_t)PAUSE_MAX_NS)) {
        if (mr_now_s() >= until || (may && mr_interrupt_get()))
            return false;
        mr_clock_table()->sleep_ns(ns);
    }
    return true;
}

// ends the child
static void end(const index_child *c)
{
    int status;
    kill(c->pid, SIGTERM);
    if (ends(c, false, &status))
        return;
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
}

mr_status index_child_close(index_child *c, bool whole)
{
    int status = 0;
    char said[SAID] = "";
    if (c->fd >= 0)
        close(c->fd);
    const bool late = c->pid && !(whole && ends(c, true, &status));
    if (late)
        end(c);
    if (c->errors >= 0) {
        last_words(c, said);
        close(c->errors);
    }
    if (!whole)
        return MR_OK;
    if (late) {
        MR_TRY(mr_interrupt_check());
        return mr_fail(MR_E_DATA,
                       "%s: the child that reads Parquet has closed its output, but not ended in "
                       "%g s, so that rows may be missing: %s; try: export CSV",
                       c->file, GRACE_S, *said ? said : "it printed no error");
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return MR_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PYARROW)
        return fail_tools(c->file);
    return mr_fail(MR_E_DATA, "%s: the child that reads Parquet failed: %s", c->file,
                   *said ? said : "it printed no error");
}
