/* life/page: what a rank publishes, and what others read. */
#include "check.h"
#include "moonreel/life.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t now_ns = 1000000000;
static int64_t told_ns(void)
{
    return now_ns;
}
static void pass(double seconds)
{
    now_ns += (int64_t)(seconds * 1e9);
}

static char folder[] = "/tmp/life-XXXXXX";

static void making(void)
{
    char path[4096], own[64];
    mr_life *page, *none;
    CHECK_FAILS(mr_life_new(0, 0, 1, &none), MR_E_USAGE, "0 ranks on one host: expected 1 to 1024");
    CHECK_FAILS(mr_life_new(1025, 0, 1025, &none), MR_E_USAGE, "1025 ranks");
    CHECK(mr_life_registry(path, sizeof path));
    CHECK_STR(path, folder);
    CHECK_OK(mr_life_new(2, 6, 8, &page));
    mr_life_launch a;
    mr_life_about(page, &a);
    CHECK_INT(a.ranks, 2), CHECK_INT(a.first, 6), CHECK_INT(a.world, 8);
    CHECK_INT(a.pid, getpid()), CHECK_INT(a.uid, geteuid());
    CHECK_INT(strlen(a.token), 32);
    snprintf(own, sizeof own, "%s/%d-%.8s", folder, (int)getpid(), a.token);
    CHECK_OK(mr_life_open(own, &none));
    mr_life_free(none);
    CHECK(mr_path_exists(own));
    mr_life_free(page);
    CHECK(!mr_path_exists(own));
    // a folder that others can write to: no name, and still a page
    chmod(folder, 0777);
    CHECK(!mr_life_registry(path, sizeof path));
    CHECK_OK(mr_life_new(1, 0, 1, &page));
    mr_life_free(page);
    chmod(folder, 0700);
}

// a process with a page, which reports on `ready` and waits to be killed; its child is a rank
static pid_t launcher(bool with_rank, int ready[2])
{
    pid_t pid = fork();
    if (pid)
        return pid;
    mr_life *page;
    bool good = setpgid(0, 0) == 0 && mr_life_new(1, 0, 1, &page) == MR_OK;
    if (with_rank && fork() != 0)
        pause();
    good = write(ready[1], good ? "y" : "n", 1) == 1;
    for (;;)
        pause();
}

static int pages(void)
{
    char command[64], text[16];
    snprintf(command, sizeof command, "ls %s | wc -l", folder);
    FILE *out = popen(command, "r");
    CHECK(out && fgets(text, sizeof text, out));
    pclose(out);
    return atoi(text);
}

/* kill -9 of a run leaves its page. The next start removes it, but no page of a launch with a
 * living process, and no file that is no page. */
static void left_behind(void)
{
    char path[64], byte = 0;
    int ready[2];
    mr_life *page;
    snprintf(path, sizeof path, "%s/none", folder);
    CHECK_OK(mr_file_replace(path, "nothing at all", 14));
    CHECK_INT(pipe(ready), 0);
    pid_t alone = launcher(false, ready);
    CHECK(read(ready[0], &byte, 1) == 1 && byte == 'y');
    CHECK_OK(mr_life_new(1, 0, 1, &page));
    CHECK_INT(pages(), 3);
    mr_life_free(page);
    kill(alone, SIGKILL), waitpid(alone, NULL, 0);
    CHECK_INT(pages(), 2);
    CHECK_OK(mr_life_new(1, 0, 1, &page));
    CHECK_INT(pages(), 2);
    mr_life_free(page);
    // a launcher is killed, and its rank continues
    pid_t two = launcher(true, ready);
    CHECK(read(ready[0], &byte, 1) == 1 && byte == 'y');
    kill(two, SIGKILL), waitpid(two, NULL, 0);
    CHECK_OK(mr_life_new(1, 0, 1, &page));
    CHECK_INT(pages(), 3);
    mr_life_free(page);
    kill(-two, SIGKILL);
    close(ready[1]); // the rank has the last other end
    CHECK_INT(read(ready[0], &byte, 1), 0);
    CHECK_OK(mr_life_new(1, 0, 1, &page));
    CHECK_INT(pages(), 2);
    mr_life_free(page);
    close(ready[0]), unlink(path);
}

/* A launch is killed while it allocates its page: the next one removes the rest. */
static void ended_while_made(void)
{
    int how;
    mr_life *page;
    pid_t pid = fork();
    if (!pid) {
        // SIGXFSZ ends this process when it allocates more, as any kill at that moment would
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096});
        mr_life_new(1, 0, 1, &page);
        _exit(0);
    }
    CHECK_INT(waitpid(pid, &how, 0), pid);
    CHECK(WIFSIGNALED(how));
    CHECK_INT(pages(), 1);
    CHECK_OK(mr_life_new(1, 0, 1, &page));
    CHECK_INT(pages(), 1);
    mr_life_free(page);
    CHECK_INT(pages(), 0);
}

static void strangers(void)
{
    char path[64];
    mr_life *none;
    snprintf(path, sizeof path, "%s/none", folder);
    CHECK_FAILS(mr_life_open(path, &none), MR_E_IO, "cannot open");
    CHECK_OK(mr_file_replace(path, "nothing", 7));
    CHECK_FAILS(mr_life_open(path, &none), MR_E_FORMAT, "is not the status page of a launch");
    int fd = open(path, O_RDONLY);
    CHECK_FAILS(mr_life_join(fd, 0), MR_E_FORMAT, "is not the status page of a launch");
    close(fd), unlink(path);
    CHECK_FAILS(mr_life_join(-1, 0), MR_E_FORMAT, "descriptor -1: is not the status page");
}

/* Without a seat nothing happens. */
static void silence(void)
{
    mr_life_op op = {.kind = "barrier"};
    CHECK(!mr_life_publishes());
    CHECK_INT(mr_life_phase(MR_PHASE_LOAD), MR_PHASE_LOAD);
    CHECK_INT(mr_life_op_begin(&op), 0);
    mr_life_op_wait(0), mr_life_op_end(0, 4);
    mr_life_step(1), mr_life_clip("x"), mr_life_frames("x");
    mr_life_set_run("id", "dir", 1);
}

static void operations(mr_life *page)
{
    static mr_life_op ops[MR_LIFE_OPS];
    mr_life_rank r;
    mr_life_op op = {.kind = "all_reduce", .dtype = "f32", .group = 7, .seq = 3, .count = 64};
    mr_life_set_where("train.lua:12");
    uint64_t first = mr_life_op_begin(&op);
    mr_life_look(page, 1, &r);
    CHECK_INT(r.open.number, 0);
    CHECK_STR(r.last.kind, "all_reduce");
    mr_life_op_wait(first);
    mr_life_look(page, 1, &r);
    CHECK_INT(r.open.number, first), CHECK_INT(r.last.number, 0);
    CHECK_STR(r.open.where, "train.lua:12");
    // it waits again, in two parts
    mr_life_op_end(first, 100), mr_life_op_wait(first), mr_life_op_end(first, 28);
    mr_life_look(page, 1, &r);
    CHECK_INT(r.open.number, 0), CHECK_INT(r.last.bytes, 128);
    CHECK_INT(r.last.group, 7), CHECK_INT(r.last.seq, 3), CHECK_INT(r.last.count, 64);
    CHECK_STR(r.last.dtype, "f32");
    // the ring keeps the newest calls; the end of a call whose place was reused is not reported
    for (int i = 0; i < MR_LIFE_OPS; i++)
        op.seq = (unsigned)i, mr_life_op_begin(&op);
    mr_life_op_end(first, 1);
    CHECK_INT(mr_life_ops(page, 1, ops), MR_LIFE_OPS);
    CHECK_INT(ops[0].number, first + 1), CHECK_INT(ops[0].seq, 0);
    CHECK_INT(ops[MR_LIFE_OPS - 1].seq, MR_LIFE_OPS - 1);
    CHECK_INT(mr_life_ops(page, 0, ops), 0);
}

static void phases(mr_life *page)
{
    int64_t count;
    mr_life_rank r;
    CHECK_INT(mr_life_phase(MR_PHASE_LOAD), MR_PHASE_START);
    for (int i = 0; i < 100; i++) {
        pass(i < 98 ? 0.01 : 2);
        // the same phase again is a new one: a micro-batch follows another
        mr_life_phase(MR_PHASE_FORWARD);
        mr_life_phase(MR_PHASE_LOAD);
    }
    CHECK_NEAR(mr_life_quantile_s(page, MR_PHASE_LOAD, 0.5, &count), 0.01, 0.002);
    CHECK_INT(count, 100);
    CHECK_NEAR(mr_life_quantile_s(page, MR_PHASE_LOAD, 0.99, &count), 2, 0.4);
    CHECK_NEAR(mr_life_quantile_s(page, MR_PHASE_PERSIST, 0.99, &count), 0, 0);
    CHECK_INT(count, 0);
    // the time in which others are waited for is not part of the phase
    mr_life_op op = {.kind = "barrier"};
    mr_life_phase(MR_PHASE_REDUCE);
    uint64_t n = mr_life_op_begin(&op);
    mr_life_op_wait(n), pass(9), mr_life_op_end(n, 0), pass(0.1);
    mr_life_phase(MR_PHASE_LOAD);
    CHECK_NEAR(mr_life_quantile_s(page, MR_PHASE_REDUCE, 1, &count), 0.1, 0.02);
    double began = mr_now_s();
    pass(5);
    mr_life_op_end(mr_life_op_begin(&op), 0);
    mr_life_look(page, 1, &r);
    CHECK_INT(r.phase, MR_PHASE_LOAD);
    CHECK_NEAR(r.phase_s, began, 1e-6);
    CHECK_NEAR(r.beat_s, began + 5, 1e-6);
    CHECK_INT(mr_phase_from_name("persist"), MR_PHASE_PERSIST);
    CHECK_INT(mr_phase_from_name("nap"), MR_PHASE_COUNT);
}

static void steps(mr_life *page)
{
    mr_life_op op = {.kind = "all_gather"};
    mr_life_rank r;
    mr_life_step(1);
    pass(1);
    uint64_t n = mr_life_op_begin(&op);
    mr_life_op_wait(n), pass(3), mr_life_op_end(n, 0);
    CHECK_NEAR(mr_life_own_s(page, 1, 1), 0, 0);
    mr_life_step(2);
    CHECK_NEAR(mr_life_own_s(page, 1, 1), 1, 1e-6);
    pass(2);
    for (int step = 3; step <= 2 + MR_LIFE_STEPS; step++)
        mr_life_step(step);
    CHECK_NEAR(mr_life_own_s(page, 1, 2), 2, 1e-6);
    mr_life_step(3 + MR_LIFE_STEPS), mr_life_step(4 + MR_LIFE_STEPS);
    CHECK_NEAR(mr_life_own_s(page, 1, 2), 0, 0);
    mr_life_look(page, 1, &r);
    CHECK_INT(r.step, 4 + MR_LIFE_STEPS), CHECK_INT(r.steps, 4 + MR_LIFE_STEPS);
}

/* Texts that are too long are cut off; a child that inherits the page does not publish for its
 * parent. */
static void texts(mr_life *page)
{
    char text[2000];
    mr_life_rank r;
    mr_life_launch a;
    memset(text, 'x', sizeof text - 1), text[sizeof text - 1] = 0;
    mr_life_clip(text), mr_life_frames(text);
    mr_life_look(page, 1, &r);
    CHECK_INT(strlen(r.clip), sizeof r.clip - 1);
    CHECK_INT(strlen(r.frames), sizeof r.frames - 1);
    mr_life_clip("a");
    mr_life_look(page, 1, &r);
    CHECK_STR(r.clip, "a");
    mr_life_set_run("0123456789abcdef", "/runs/001", 4);
    mr_life_about(page, &a);
    CHECK_STR(a.run, "0123456789abcdef"), CHECK_STR(a.dir, "/runs/001"), CHECK_INT(a.fence, 4);
    CHECK_FAILS(mr_life_join(mr_life_fd(page), 2), MR_E_FORMAT, "seat 2 of 2");
    pid_t child = fork();
    if (child == 0) {
        bool joined = mr_life_join(mr_life_fd(page), 1) == MR_OK;
        mr_life_look(page, 1, &r);
        _exit(joined && r.pid == getppid() ? 0 : 1);
    }
    int how;
    waitpid(child, &how, 0);
    CHECK_INT(how, 0);
}

int main(void)
{
    static const mr_clock clock = {.monotonic_ns = told_ns};
    CHECK(mkdtemp(folder) != NULL);
    setenv("MOONREEL_REGISTRY", folder, 1);
    making();
    left_behind();
    ended_while_made();
    strangers();
    silence();
    mr_life *page;
    CHECK_OK(mr_life_new(2, 0, 2, &page));
    mr_clock_replace(&clock);
    mr_life_take(page, 1);
    mr_life_rank r;
    mr_life_look(page, 1, &r);
    CHECK_INT(r.pid, getpid()), CHECK(r.start > 0);
    CHECK(r.beat_s == mr_now_s() && r.phase_s == mr_now_s());
    mr_life_look(page, 0, &r);
    CHECK_INT(r.pid, 0);
    operations(page);
    phases(page);
    steps(page);
    texts(page);
    mr_life_free(page);
    CHECK(!mr_life_publishes());
    mr_clock_replace(NULL);
    rmdir(folder);
    return check_done();
}
