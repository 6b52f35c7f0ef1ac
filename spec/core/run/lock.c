/* ckpt/lock: one writer per run, also between processes; who is dead loses it, who only seems so
 * does not. */
#define _DEFAULT_SOURCE
#include "ckptcase.h"

#include <signal.h>
#include <sys/wait.h>

static const char *dir;

static void take_and_release(void)
{
    mr_run_lock *a, *b;
    mr_run_owner o;
    char id[40];
    CHECK_OK(mr_run_lock_peek(dir, &o));
    CHECK(!o.owned && o.fence == 0);
    CHECK_OK(mr_run_lock_take(dir, &a));
    CHECK_INT(mr_run_lock_fence(a), 1);
    CHECK_STR(mr_run_lock_dir(a), dir);
    snprintf(id, sizeof id, "%s", mr_run_lock_id(a));
    CHECK_INT(strlen(id), 16);
    CHECK_OK(mr_run_lock_check(a));
    CHECK_FAILS(mr_run_lock_take(dir, &b), MR_E_LOCK, "this very process");
    CHECK_OK(mr_run_lock_peek(dir, &o));
    CHECK(o.owned && !o.dead && o.pid == getpid());
    mr_run_lock_ref(a);
    mr_run_lock_release(a);
    CHECK_OK(mr_run_lock_check(a));
    mr_run_lock_release(a);
    // the fencing number grows, the run id stays
    CHECK_OK(mr_run_lock_take(dir, &a));
    CHECK_INT(mr_run_lock_fence(a), 2);
    CHECK_STR(mr_run_lock_id(a), id);
    mr_run_lock_release(a);
}

/* A child that holds the lock until it is killed; returns its pid. */
static pid_t holder(void)
{
    int ready[2];
    char c = 0;
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        mr_run_lock *lock;
        c = mr_run_lock_take(dir, &lock) == MR_OK ? 'y' : 'n';
        if (write(ready[1], &c, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    CHECK(read(ready[0], &c, 1) == 1);
    CHECK_INT(c, 'y');
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void two_processes(void)
{
    mr_run_lock *lock;
    char part[64];
    pid_t child = holder();
    snprintf(part, sizeof part, "process %ld on host ", (long)child);
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, part);
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, "stop that one first");
    // stopped is not dead
    kill(child, SIGSTOP);
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, part);
    kill(child, SIGKILL);
    // dead though not yet waited for
    siginfo_t info;
    waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    waitpid(child, NULL, 0);
    CHECK_OK(mr_run_lock_check(lock));
    mr_run_lock_release(lock);
}

/* Eight processes at once: one gets it. */
static void race(void)
{
    enum { N = 8 };
    int go[2], told[2], winners = 0;
    pid_t child[N];
    CHECK(pipe(go) == 0 && pipe(told) == 0);
    for (int i = 0; i < N; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            char c;
            mr_run_lock *lock;
            close(go[1]);
            if (read(go[0], &c, 1) < 0)
                _exit(1);
            c = mr_run_lock_take(dir, &lock) == MR_OK;
            if (write(told[1], &c, 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
    }
    close(go[1]);
    for (int i = 0; i < N; i++) {
        char c = 0;
        CHECK(read(told[0], &c, 1) == 1);
        winners += c;
    }
    CHECK_INT(winners, 1);
    for (int i = 0; i < N; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    close(go[0]);
    close(told[0]);
    close(told[1]);
}

/* A forked child that ends leaves the lock with its parent. */
static void forked_child(void)
{
    mr_run_lock *lock;
    CHECK_OK(mr_run_lock_take(dir, &lock));
    pid_t child = fork();
    if (child == 0) {
        mr_run_lock_release(lock);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    CHECK_OK(mr_run_lock_check(lock));
    mr_run_lock_release(lock);
}

static void write_lock(const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/lock", dir);
    FILE *f = fopen(path, "wb");
    fputs(text, f);
    fclose(f);
}

static void read_line(const char *path, char *out, size_t cap)
{
    FILE *f = fopen(path, "r");
    out[0] = 0;
    if (f && fgets(out, (int)cap, f))
        out[strcspn(out, "\n")] = 0;
    if (f)
        fclose(f);
}

static void proof_of_death(void)
{
    char boot[64], machine[64], host[64], text[600];
    mr_run_lock *lock;
    mr_run_owner o;
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    read_line("/etc/machine-id", machine, sizeof machine);
    gethostname(host, sizeof host);
    static const char form[] = "{\"run\": \"abc\", \"fence\": 41, \"owner\": {\"host\": \"%s\", "
                               "\"machine\": \"%s\", \"boot\": \"%s\", "
                               "\"pidns\": \"%s\", \"pid\": %d, \"start\": 12}}";
    // another host: cannot be proven, whatever its pid
    snprintf(text, sizeof text, form, "far-away", "m", "b", "p", 999999999);
    write_lock(text);
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, "on host far-away (launch 41)");
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, "if that host is gone for good, remove");
    // this boot, but another container's process ids
    snprintf(text, sizeof text, form, host, machine, boot, "pid:[1]", 999999999);
    write_lock(text);
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, "999999999");
    // our own pid with another start time: the number was used again
    char ns[64];
    ssize_t n = readlink("/proc/self/ns/pid", ns, sizeof ns - 1);
    ns[n > 0 ? n : 0] = 0;
    snprintf(text, sizeof text, form, host, machine, boot, ns, (int)getpid());
    write_lock(text);
    CHECK_OK(mr_run_lock_peek(dir, &o));
    CHECK(o.dead);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_INT(mr_run_lock_fence(lock), 42);
    CHECK_STR(mr_run_lock_id(lock), "abc");
    mr_run_lock_release(lock);
    // an older boot of this machine
    snprintf(text, sizeof text, form, host, machine, "older", ns, 1);
    write_lock(text);
    if (machine[0]) {
        CHECK_OK(mr_run_lock_take(dir, &lock));
        mr_run_lock_release(lock);
    }
}

static void damaged(void)
{
    mr_run_lock *lock;
    static const char *const texts[] = {"{",
                                        "[]",
                                        "{\"run\": \"\", \"fence\": 1, \"owner\": null}",
                                        "{\"run\": \"a\", \"fence\": 0, \"owner\": null}",
                                        "{\"run\": \"a\", \"owner\": null}",
                                        "\xff\xff"};
    for (size_t i = 0; i < MR_COUNT(texts); i++) {
        write_lock(texts[i]);
        CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, "the lock file is damaged");
    }
    write_lock("");
    CHECK_OK(mr_run_lock_take(dir, &lock));
    // taken away under the owner's hands
    write_lock("{\"run\": \"other\", \"fence\": 77, \"owner\": null}");
    CHECK_FAILS(mr_run_lock_check(lock), MR_E_LOCK, "launch 77");
    mr_run_lock_release(lock);
    mr_run_owner o;
    CHECK_OK(mr_run_lock_peek(dir, &o));
    CHECK_INT(o.fence, 77);
}

/* A lost lock file: run id and fencing number are learnt from the checkpoints. */
static void lost_file(void)
{
    char path[600], id[40];
    mr_run_lock *lock;
    mr_saver *saver;
    mr_dir_remove(dir);
    mr_dir_make(dir);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(mr_run_lock_take(dir, &lock));
        if (i < 2)
            mr_run_lock_release(lock);
    }
    snprintf(id, sizeof id, "%s", mr_run_lock_id(lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock}, &saver));
    CHECK_OK(case_save(saver, 1));
    snprintf(path, sizeof path, "%s/lock", dir);
    remove(path);
    CHECK_FAILS(mr_run_lock_check(lock), MR_E_LOCK, "is gone");
    CHECK_FAILS(case_save(saver, 2), MR_E_LOCK, "is gone");
    CHECK_FAILS(case_save(saver, 3), MR_E_LOCK, "is gone");
    mr_saver_close(saver);
    mr_run_lock_release(lock);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_INT(mr_run_lock_fence(lock), 4);
    CHECK_STR(mr_run_lock_id(lock), id);
    mr_run_lock_release(lock);
}

static void failing_files(void)
{
    mr_run_lock *lock;
    fault_install();
    CHECK_OK(mr_run_lock_take(dir, &lock));
    long n = fault_operations();
    mr_run_lock_release(lock);
    for (long i = 1; i <= n; i++) {
        fault_at(i, FAULT_ERRNO, EIO);
        mr_status st = mr_run_lock_take(dir, &lock);
        fault_clear();
        if (st == MR_OK)
            CHECK_OK(mr_run_lock_check(lock));
        else
            CHECK(!lock);
        // whatever failed, the run is not lost: the owner on record is this process, or nobody
        if (st == MR_OK)
            mr_run_lock_release(lock);
        else
            write_lock("");
        CHECK_OK(mr_run_lock_take(dir, &lock));
        mr_run_lock_release(lock);
    }
    for (int i = 1; i < 200; i++) {
        mr_alloc_fail_at(i);
        mr_status st = mr_run_lock_take(dir, &lock);
        bool fired = st != MR_OK;
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            mr_run_lock_release(lock);
        else
            CHECK_INT(st, MR_E_MEMORY);
        if (!fired && i > 20)
            break;
    }
    char far[4000];
    memset(far, 'p', sizeof far);
    far[sizeof far - 1] = 0;
    CHECK_FAILS(mr_run_lock_take(far, &lock), MR_E_USAGE, "longer than");
    mr_io_replace(NULL);
}

int main(void)
{
    char text[600];
    snprintf(text, sizeof text, "%s", case_dir("lock"));
    dir = text;
    take_and_release();
    two_processes();
    race();
    forked_child();
    proof_of_death();
    damaged();
    lost_file();
    failing_files();
    mr_dir_remove(dir);
    return check_done();
}
