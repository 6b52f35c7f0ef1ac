/* base/process: what /proc tells of this process, of one with an odd name, and of none. */
#define _GNU_SOURCE
#include "base/process.h"
#include "check.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    mr_process self, same, child;
    CHECK(mr_process_read(0, &self));
    CHECK_INT(self.pid, getpid());
    CHECK_INT(self.parent, getppid());
    CHECK_INT(self.state, 'R');
    // a name may look like what follows it
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
    return check_done();
}
