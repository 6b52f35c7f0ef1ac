/* base/process: what /proc reports about this process, about one with an odd name, and about a
 * missing one; closed standard streams. */
#define _GNU_SOURCE
#include "base/process.h"
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_nothing(int fd)
{
    struct stat here, null;
    return fstat(fd, &here) == 0 && stat("/dev/null", &null) == 0 && here.st_rdev == null.st_rdev;
}

/* A process starts with these streams closed (a bit each). Do files that it opens get other
 * numbers, are the closed streams /dev/null, and are the others unchanged? */
static bool held(int closed)
{
    pid_t pid = fork();
    if (pid == 0) {
        int pipes[2];
        bool fine = pipe(pipes) == 0;
        for (int i = 0; i <= STDERR_FILENO; i++) {
            dup2(pipes[0], i);
            if (closed >> i & 1)
                close(i);
        }
        mr_streams_hold();
        for (int i = 0; i <= STDERR_FILENO; i++)
            fine &= is_nothing(i) == (closed >> i & 1);
        int first = dup(pipes[0]);
        close(first), mr_streams_hold();
        _exit(!fine || first <= STDERR_FILENO || dup(pipes[0]) != first);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    return status == 0;
}

int main(void)
{
    for (int closed = 0; closed < 8; closed++)
        CHECK(held(closed));
    mr_process self, same, child;
    CHECK(mr_process_read(0, &self));
    CHECK_INT(self.pid, getpid());
    CHECK_INT(self.parent, getppid());
    CHECK_INT(self.state, 'R');
    // a name may look like the fields after it
    prctl(PR_SET_NAME, "a) S 1 2 3 4 5");
    CHECK(mr_process_read(getpid(), &same));
    CHECK_INT(same.start, self.start);
    CHECK_INT(same.parent, self.parent);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK_INT(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    CHECK(mr_process_read(pid, &child));
    CHECK_INT(child.state, 'Z');
    CHECK_INT(child.parent, getpid());
    waitpid(pid, NULL, 0);
    CHECK(!mr_process_read(pid, &child));
    // the file of this program, and the system's name for it
    char file[4096], name[16] = "";
    mr_program_file(file);
    CHECK(access(file, X_OK) == 0 && !strstr(file, "/proc/"));
    mr_process_name(NULL);
    prctl(PR_GET_NAME, name);
    CHECK_STR(name, "moonreel");
    mr_process_name("decode");
    prctl(PR_GET_NAME, name);
    CHECK_STR(name, "moonreel-decode");
    return check_done();
}
