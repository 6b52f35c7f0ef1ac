/* base/temporary: temporary files of killed writers are removed when the file is written again;
 * those of running writers are kept. */
#include "base/process.h"
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/mr-spec-XXXXXX";

static const char *at(const char *name, long pid)
{
    static char path[4][300];
    static int turn;
    char *out = path[turn++ % 4];
    snprintf(out, sizeof path[0], pid ? "%s/%s.tmp-%ld" : "%s/%s", dir, name, pid);
    return out;
}

static void put(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0);
    close(fd);
}

// a process that is gone, so that its number is unused
static long gone(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    return (long)child;
}

static void leftovers(void)
{
    long dead = gone(), alive = (long)getppid();
    put(at("a.mp4", dead));
    put(at("a.mp4", alive));
    put(at("b.mp4", dead));
    put(at("a.mp4.tmp-x", 0));
    put(at("a.mp4.tmp-1x", 0));
    put(at("a.mp4.tmp-0", 0));
    CHECK_OK(mr_file_replace(at("a.mp4", 0), "x", 1));
    CHECK(!mr_path_exists(at("a.mp4", dead)));
    CHECK(mr_path_exists(at("a.mp4", alive)));
    CHECK(mr_path_exists(at("b.mp4", dead)));
    CHECK(mr_path_exists(at("a.mp4.tmp-x", 0)));
    CHECK(mr_path_exists(at("a.mp4.tmp-1x", 0)));
    CHECK(mr_path_exists(at("a.mp4.tmp-0", 0)));
    // it is removed when its file is written, although the folder was searched before
    CHECK_OK(mr_file_replace(at("b.mp4", 0), "x", 1));
    CHECK(!mr_path_exists(at("b.mp4", dead)));
}

// like a file from another host: locked, with the number of a process that does not exist here
static void held(void)
{
    long dead = gone();
    int fd = open(at("c", dead), O_WRONLY | O_CREAT, 0644);
    mr_temporary_hold(fd);
    CHECK_OK(mr_file_replace(at("c", 0), "x", 1));
    CHECK(mr_path_exists(at("c", dead)));
    close(fd);
    CHECK_OK(mr_file_replace(at("c", 0), "x", 1));
    CHECK(!mr_path_exists(at("c", dead)));
}

// a path without a folder, and a zombie process
static void in_the_folder(void)
{
    char name[64];
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    siginfo_t info;
    waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
    CHECK(mr_process_gone((int64_t)child));
    CHECK(!mr_process_gone((int64_t)getpid()));
    CHECK_INT(chdir(dir), 0);
    snprintf(name, sizeof name, "d.tmp-%ld", (long)child);
    put(name);
    CHECK_OK(mr_file_replace("d", "x", 1));
    CHECK(!mr_path_exists(name));
    waitpid(child, NULL, 0);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    leftovers();
    held();
    in_the_folder();
    char longest[4096], out[5000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    CHECK_OK(mr_temporary_path(longest, out, sizeof out));
    CHECK_FAILS(mr_temporary_path("a/b", out, 8), MR_E_IO, "a/b: path is too long");
    CHECK_OK(mr_dir_remove(dir));
    return check_done();
}
