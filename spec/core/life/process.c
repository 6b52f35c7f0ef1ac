/* life/process: a signal reaches the intended process, and no other. */
#define _GNU_SOURCE
#include "life/process.c"

#include "check.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

/* A child that has started with an environment entry; a detached one is no child of ours any
 * more. */
static pid_t sleeper(const char *entry, bool detached)
{
    char *const env[] = {"A=1", (char *)(uintptr_t)entry, NULL};
    int ready[2], report[2];
    pid_t inner = 0;
    CHECK_INT(pipe2(ready, O_CLOEXEC), 0);
    CHECK_INT(pipe2(report, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (detached && (setsid() < 0 || (inner = fork()) > 0))
            _exit(write(report[1], &inner, sizeof inner) < 0);
        execle("/bin/sleep", "sleep", "100", (char *)NULL, env);
        _exit(127);
    }
    close(ready[1]), close(report[1]);
    if (detached) {
        CHECK_INT(read(report[0], &inner, sizeof inner), sizeof inner);
        waitpid(pid, NULL, 0);
    }
    // the pipe closes when the program begins
    CHECK_INT(read(ready[0], &(char){0}, 1), 0);
    close(ready[0]), close(report[0]);
    return detached ? inner : pid;
}

static int64_t start_of(pid_t pid)
{
    char path[64], *text;
    size_t n;
    long long start = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    CHECK_OK(mr_file_read_all(path, &text, &n));
    const char *p = strrchr(text, ')') + 1;
    for (int field = 2; field < 22; field++)
        p = strchr(p, ' ') + 1;
    start = strtoll(p, NULL, 10);
    mr_free(text);
    return start;
}

static int end_of(pid_t pid)
{
    int how = 0;
    waitpid(pid, &how, 0);
    return WIFSIGNALED(how) ? WTERMSIG(how) : -1;
}

/* An idle child until it is reported, whose own child then computes and reads. */
static void work(void)
{
    int go[2], done[2];
    mr_life_work before, idle, after, gone;
    CHECK_INT(pipe2(go, O_CLOEXEC), 0);
    CHECK_INT(pipe2(done, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            static char page[1 << 16];
            int zero = open("/dev/zero", O_RDONLY);
            if (read(go[0], page, 1) != 1)
                _exit(1);
            for (int i = 0; i < 4096; i++)
                if (read(zero, page, sizeof page) != sizeof page)
                    _exit(2);
            while (clock() < CLOCKS_PER_SEC / 10) {}
            if (write(done[1], "x", 1) != 1)
                _exit(3);
        }
        for (;;)
            pause();
    }
    CHECK(mr_life_work_of(pid, &before));
    CHECK(mr_life_work_of(pid, &idle));
    CHECK(idle.cpu_s < before.cpu_s + 0.1 && idle.bytes < before.bytes + 65536);
    CHECK_INT(write(go[1], "x", 1), 1);
    CHECK_INT(read(done[0], &(char){0}, 1), 1);
    CHECK(mr_life_work_of(pid, &after));
    // at most as many processes as there is room for
    int64_t of[3] = {0, -1, -1};
    CHECK_INT(family(pid, of, 1), 1);
    CHECK(of[0] == pid && of[1] == -1);
    CHECK_INT(family(pid, of, 3), 2);
    CHECK(of[1] > 0 && of[2] == -1);
    CHECK(after.cpu_s >= idle.cpu_s + 0.05);
    CHECK(after.bytes >= idle.bytes + 4096.0 * 65536);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(!mr_life_work_of(pid, &gone));
    close(go[0]), close(go[1]), close(done[0]), close(done[1]);
}

int main(void)
{
    work();
    const uint32_t uid = geteuid();
    char state;
    pid_t a = fork();
    if (a == 0) {
        pause();
        _exit(0);
    }
    const int64_t start = start_of(a);
    CHECK(mr_life_process_state(a, start, &state));
    CHECK(!mr_life_process_state(a, start + 1, &state));
    CHECK_FAILS(mr_life_signal(a, start + 1, uid, SIGKILL), MR_E_NODE,
                "another process has its number");
    CHECK_FAILS(mr_life_signal(a, start, uid + 1, SIGKILL), MR_E_NODE,
                "another process has its number");
    CHECK(mr_life_process_state(a, start, &state));
    CHECK_OK(mr_life_signal(a, start, uid, SIGTERM));
    CHECK_INT(end_of(a), SIGTERM);
    CHECK(!mr_life_process_state(a, start, &state));
    CHECK_FAILS(mr_life_signal(a, start, uid, SIGTERM), MR_E_NODE, "process");

    // the token of a launch identifies the processes that it started, also those that left their
    // parents; it is this process's own, because the same spec may run at the same time
    char token[33], entry[64], other[64];
    snprintf(token, sizeof token, "%032x", (unsigned)getpid());
    snprintf(entry, sizeof entry, "MOONREEL_LAUNCH=%s", token);
    snprintf(other, sizeof other, "MOONREEL_LAUNCH=%.31sx", token);
    mr_life_process found[4];
    pid_t ours = sleeper(entry, false);
    pid_t orphan = sleeper(entry, true);
    pid_t decoy = sleeper(other, false);
    CHECK_INT(mr_life_processes("", uid, found, 4), 0);
    CHECK_INT(mr_life_processes(token, uid + 1, found, 4), 0);
    CHECK_INT(mr_life_processes(token, uid, found, 1), 1);
    CHECK_INT(mr_life_processes(token, uid, found, 4), 2);
    CHECK_INT(found[0].pid + found[1].pid, ours + orphan);
    CHECK_INT(mr_life_signal_all(token, uid, SIGKILL), 2);
    CHECK_INT(end_of(ours), SIGKILL);
    CHECK_INT(waitpid(decoy, NULL, WNOHANG), 0);
    CHECK_OK(mr_life_signal(decoy, start_of(decoy), uid, SIGKILL));
    CHECK_INT(end_of(decoy), SIGKILL);
    return check_done();
}
