/* index: Parquet comes as JSON lines from a child process, the duckdb command or python3 with
 * pyarrow: no distribution packages a C library for it. Ref: dataplane 2.4. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/room.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_PYARROW = 77, SAID = 400 };

// Columns of other types mean nothing to a list of clips, and may have no form in JSON.
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
    "    if types.is_list(t) or types.is_large_list(t):\n"
    "        return text(t.value_type)\n"
    "    return (text(t) or types.is_integer(t) or types.is_floating(t)\n"
    "            or types.is_boolean(t) or types.is_decimal(t))\n"
    "try:\n"
    "    file = parquet.ParquetFile(sys.argv[1])\n"
    "    names = [f.name for f in file.schema_arrow if wanted(f.type)]\n"
    "    for batch in file.iter_batches(8192, columns=names):\n"
    "        for row in batch.to_pylist():\n"
    "            sys.stdout.write(json.dumps(row, default=str) + '\\n')\n"
    "except Exception as problem:\n"
    "    sys.exit(str(problem))\n";

// starts a program whose output goes into the pipe; ENOENT when it is not there
static int spawn(index_child *c, const char *const argv[])
{
    extern char **environ;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return errno;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
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

// the question to duckdb, with the name of the file as an SQL text
static mr_status question(const char *file, index_pack *out)
{
    static const char before[] = "COPY (SELECT * FROM read_parquet('",
                      behind[] = "')) TO '/dev/stdout' (FORMAT JSON)";
    index_put(out, before, sizeof before - 1);
    for (const char *p = file; *p; p++)
        index_put(out, *p == '\'' ? "''" : p, *p == '\'' ? 2 : 1);
    index_put(out, behind, sizeof behind);
    return out->failed ? mr_fail_memory(out->cap * 2) : MR_OK;
}

static mr_status fail_tools(const char *file)
{
    return mr_fail(MR_E_UNSUPPORTED,
                   "%s: Parquet is read by the duckdb command, or by python3 with pyarrow, and "
                   "neither is here; try: install one of them, or export CSV",
                   file);
}

mr_status index_child_open(index_child *c, const char *file)
{
    *c = (index_child){.file = file, .fd = -1};
    if (access(file, R_OK))
        return mr_fail(MR_E_DATA, "%s: cannot open: %s", file, strerror(errno));
    if ((c->errors = memfd_create("child-errors", MFD_CLOEXEC)) < 0)
        return mr_fail(MR_E_IO, "%s: cannot keep what a child says: %s", file, strerror(errno));
    index_pack sql = {0};
    mr_status st = question(file, &sql);
    int err = 0;
    if (st == MR_OK)
        err = spawn(c, (const char *const[]){"duckdb", "-c", (const char *)sql.bytes, NULL});
    mr_free(sql.bytes);
    if (st == MR_OK && err == ENOENT)
        err = spawn(c, (const char *const[]){"python3", "-c", python_script, file, NULL});
    if (st == MR_OK && err)
        st = err == ENOENT ? fail_tools(file)
                           : mr_fail(MR_E_IO, "%s: cannot start a child: %s", file, strerror(err));
    if (st != MR_OK)
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

// the end of what the child said, in one line
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

mr_status index_child_close(index_child *c, bool whole)
{
    int status = 0;
    char said[SAID] = "";
    if (c->fd >= 0)
        close(c->fd);
    if (c->pid) {
        // it would go on for nobody
        if (!whole)
            kill(c->pid, SIGTERM);
        while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    if (c->errors >= 0) {
        last_words(c, said);
        close(c->errors);
    }
    if (!whole || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return MR_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PYARROW)
        return fail_tools(c->file);
    return mr_fail(MR_E_DATA, "%s: the child that reads Parquet failed: %s", c->file,
                   *said ? said : "it said nothing");
}
