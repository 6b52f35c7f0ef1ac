/* run/lock: one writer per run, also between processes; a dead process loses the lock, and one that
 * only seems dead keeps it. */
#define _GNU_SOURCE
#include "ckptcase.h"
#include "peak.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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

/* A child, on request the first process of a namespace of its own; it ends with its parent. Its
 * /proc is still ours, in which its own number belongs to another process. */
static pid_t fork_child(bool apart)
{
    pid_t child;
    if (apart && unshare(CLONE_NEWPID))
        return -1;
    child = fork();
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

/* A process that takes the lock reports so ('y', 'n') and lives on until it is killed. */
static void take_and_stay(int tell)
{
    mr_run_lock *lock;
    char c = mr_run_lock_take(dir, &lock) == MR_OK ? 'y' : 'n';
    if (write(tell, &c, 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

/* A child that holds the lock until it is killed; returns its pid. `orphan`: a child of its own,
 * which inherits its open files, lives longer and receives the pid. */
static pid_t holder(pid_t *orphan)
{
    int ready[2];
    char c = 0;
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        mr_run_lock *lock;
        c = mr_run_lock_take(dir, &lock) == MR_OK ? 'y' : 'n';
        pid_t other = orphan ? fork() : 0;
        if (orphan && other == 0)
            for (;;)
                pause();
        if (write(ready[1], &c, 1) != 1 || write(ready[1], &other, sizeof other) != sizeof other)
            _exit(1);
        for (;;)
            pause();
    }
    pid_t other = 0;
    CHECK(read(ready[0], &c, 1) == 1);
    CHECK(read(ready[0], &other, sizeof other) == sizeof other);
    if (orphan)
        *orphan = other;
    CHECK_INT(c, 'y');
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void two_processes(void)
{
    mr_run_lock *lock;
    char part[64];
    pid_t child = holder(NULL);
    snprintf(part, sizeof part, "try: stop that one first: kill %ld", (long)child);
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, part);
    snprintf(part, sizeof part, "process %ld on host ", (long)child);
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, part);
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

/* Eight processes at the same time, each in a process namespace of its own or all in ours: one gets
 * it. */
static void race(bool apart)
{
    enum { N = 8 };
    int go[2], report[2], winners = 0;
    pid_t child[N];
    CHECK(pipe(go) == 0 && pipe(report) == 0);
    for (int i = 0; i < N; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            char c;
            close(go[1]);
            pid_t inner = apart ? fork_child(true) : 0;
            if (inner)
                for (;;)
                    pause();
            if (read(go[0], &c, 1) < 0)
                _exit(1);
            take_and_stay(report[1]);
        }
    }
    close(go[1]);
    for (int i = 0; i < N; i++) {
        char c = 0;
        CHECK(read(report[0], &c, 1) == 1);
        winners += c == 'y';
    }
    CHECK_INT(winners, 1);
    for (int i = 0; i < N; i++)
        kill(child[i], SIGKILL);
    while (wait(NULL) > 0) {}
    close(go[0]);
    close(report[0]);
    close(report[1]);
}

/* While another process reads and writes the record, no one takes the lock; that wait has an
 * end. */
static int64_t guard_clock;
static int64_t clock_now(void)
{
    return guard_clock;
}
static void clock_sleep(int64_t ns)
{
    guard_clock += ns;
}

static void guarded(void)
{
    char path[600];
    mr_run_lock *lock;
    mr_clock jumping = *mr_clock_table();
    jumping.monotonic_ns = clock_now, jumping.sleep_ns = clock_sleep;
    snprintf(path, sizeof path, "%s/lock", dir);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 << 20, .l_len = 1};
    CHECK_INT(fcntl(fd, F_OFD_SETLK, &f), 0);
    mr_clock_replace(&jumping);
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, "cannot lock the file");
    CHECK_INT(guard_clock / 1000000000, 5);
    mr_clock_replace(NULL);
    close(fd);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    mr_run_lock_release(lock);
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

/* An owner in another process namespace keeps the lock while it lives and loses it when it dies.
 * Its number, which in our namespace is another process's, does not matter. */
static void namespaces(void)
{
    mr_run_lock *lock;
    mr_run_owner o;
    int tell[2];
    char c = 0;
    CHECK(pipe(tell) == 0);
    pid_t outer = fork();
    if (outer == 0) {
        if (fork_child(true) == 0)
            take_and_stay(tell[1]);
        for (;;)
            pause();
    }
    CHECK(read(tell[0], &c, 1) == 1);
    CHECK_INT(c, 'y');
    CHECK_OK(mr_run_lock_peek(dir, &o));
    CHECK(o.owned && !o.dead && o.holds);
    CHECK_INT(o.pid, 1);
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK,
                "stop that one first, in its container (another process namespace of this host)");
    kill(outer, SIGKILL);
    while (wait(NULL) > 0) {}
    CHECK_OK(mr_run_lock_peek(dir, &o));
    CHECK(o.dead);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_INT(mr_run_lock_fence(lock), o.fence + 1);
    mr_run_lock_release(lock);
    close(tell[0]);
    close(tell[1]);
    race(true);
}

/* A child that outlives its parent holds the parent's open files, but the parent counts as dead.
 * The next owner cannot lock the byte then, and a byte that is free later proves nothing about
 * it. */
static void orphan(void)
{
    mr_run_lock *lock, *other;
    mr_run_owner o;
    pid_t left, child = holder(&left);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_OK(mr_run_lock_peek(dir, &o));
    CHECK(o.owned && !o.dead && !o.holds);
    kill(left, SIGKILL);
    waitpid(left, NULL, 0); // now its files are closed
    CHECK_OK(mr_run_lock_peek(dir, &o));
    CHECK(!o.dead);
    CHECK_FAILS(mr_run_lock_take(dir, &other), MR_E_LOCK, "this very process");
    mr_run_lock_release(lock);
}

/* A /proc that cannot be read proves nothing: the kernel is asked whether the process exists. */
static char hidden[64];
static int hidden_errno;
static const mr_io *open_io;
static int hide_process(const char *path, int flags, int mode)
{
    if (strcmp(path, hidden))
        return open_io->open(path, flags, mode);
    if (!hidden_errno)
        return open_io->open("/dev/null", flags, mode);
    return errno = hidden_errno, -1;
}

static void write_lock(const char *text);
static void unreadable_proc(void)
{
    static const int errors[] = {ENOENT, EACCES, EMFILE, ENOMEM, EIO, 0};
    mr_run_lock *lock;
    mr_run_owner o;
    char text[600];
    pid_t child = holder(NULL);
    CHECK_OK(mr_run_lock_peek(dir, &o));
    // an owner that holds no byte, as on a file system without locks
    snprintf(text, sizeof text,
             "{\"run\": \"abc\", \"fence\": 41, \"owner\": {\"host\": \"%s\", \"machine\": \"%s\", "
             "\"boot\": \"%s\", \"pidns\": \"%s\", \"pid\": %d, \"start\": %lld}}",
             o.host, o.machine, o.boot, o.pidns, (int)child, (long long)o.start);
    snprintf(hidden, sizeof hidden, "/proc/%d/stat", (int)child);
    open_io = mr_io_table();
    mr_io hiding = *open_io;
    hiding.open = hide_process;
    mr_io_replace(&hiding);
    for (int alive = 1; alive >= 0; alive--) {
        for (size_t i = 0; i < MR_COUNT(errors); i++) {
            hidden_errno = errors[i];
            write_lock(text);
            CHECK_OK(mr_run_lock_peek(dir, &o));
            CHECK_INT(o.dead, !alive);
            if (alive) {
                CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, "stop that one first: kill");
                continue;
            }
            CHECK_OK(mr_run_lock_take(dir, &lock));
            mr_run_lock_release(lock);
        }
        if (!alive)
            break;
        // dead, and only its exit status is left: /proc reports that
        siginfo_t info;
        kill(child, SIGKILL);
        waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
        mr_io_replace(open_io);
        CHECK_OK(mr_run_lock_peek(dir, &o));
        CHECK(o.dead);
        mr_io_replace(&hiding);
        waitpid(child, NULL, 0);
    }
    mr_io_replace(open_io);
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

/* Another launch, even of the same process: the one whose fencing number is old stops. */
static void fenced_off(void)
{
    char text[200];
    mr_run_lock *lock;
    CHECK_OK(mr_run_lock_take(dir, &lock));
    for (int later = 1; later >= 0; later--) {
        snprintf(text, sizeof text,
                 "{\"run\": \"%s\", \"fence\": %lld, \"owner\": {\"host\": \"h\", \"pid\": %ld}}",
                 mr_run_lock_id(lock), (long long)mr_run_lock_fence(lock) + later, (long)getpid());
        write_lock(text);
        if (later)
            CHECK_FAILS(mr_run_lock_check(lock), MR_E_LOCK, "has taken this run over");
        else
            CHECK_OK(mr_run_lock_check(lock));
    }
    mr_run_lock_release(lock);
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
    // this boot, but another container's process ids, and no byte held
    snprintf(text, sizeof text, form, host, machine, boot, "pid:[1]", 999999999);
    write_lock(text);
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK, "999999999");
    CHECK_FAILS(mr_run_lock_take(dir, &lock), MR_E_LOCK,
                "or, if its container is gone for good, remove ");
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
    // removed while the owner holds it
    write_lock("{\"run\": \"other\", \"fence\": 77, \"owner\": null}");
    CHECK_FAILS(mr_run_lock_check(lock), MR_E_LOCK, "launch 77");
    mr_run_lock_release(lock);
    mr_run_owner o;
    CHECK_OK(mr_run_lock_peek(dir, &o));
    CHECK_INT(o.fence, 77);
}

static bool takes(void *user)
{
    mr_run_lock *lock;
    bool good = mr_run_lock_take(user, &lock) == MR_OK;
    good = good && mr_run_lock_fence(lock) == 8 && !strcmp(mr_run_lock_id(lock), "large");
    // the child's lock dies with it
    return good;
}

/* Two fields of a large manifest are read with only the memory of their text. */
static void large_manifest(void)
{
    enum { TENSORS = 100000 };
    char run[700], path[800];
    snprintf(run, sizeof run, "%s/large", dir);
    snprintf(path, sizeof path, "%s/ckpt/step-000000000001", run);
    CHECK_OK(mr_dir_make(path));
    strcat(path, "/MANIFEST.json");
    FILE *f = fopen(path, "wb");
    fprintf(f, "{\"fence\": 7, \"tensors\": [");
    for (int i = 0; i < TENSORS; i++)
        fprintf(f, "%s{\"name\": \"blocks.%d.weight\", \"shape\": [%d, 2]}", i ? "," : "", i, i);
    fprintf(f, "], \"run\": \"large\"}");
    long n = ftell(f);
    fclose(f);
    bool ok;
    int64_t peak = peak_of(takes, run, &ok);
    CHECK(ok && (!PEAK_COUNTS || peak < 2 * n));
    mr_dir_remove(run);
}

/* A lost lock file: run id and fencing number are read from the checkpoints. */
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
    // a pipe in the place of a manifest is skipped without a wait
    snprintf(path, sizeof path, "%s/ckpt/step-000000000009", dir);
    CHECK_OK(mr_dir_make(path));
    snprintf(path, sizeof path, "%s/ckpt/step-000000000009/MANIFEST.json", dir);
    CHECK_INT(mkfifo(path, 0600), 0);
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
        // whatever failed, the run can be locked: the owner on record is this process, or there is
        // no owner
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
    race(false);
    guarded();
    forked_child();
    fenced_off();
    prctl(PR_SET_CHILD_SUBREAPER, 1); // orphaned grandchildren become our children
    pid_t probe = fork();
    if (probe == 0)
        _exit(unshare(CLONE_NEWPID) != 0);
    int status;
    waitpid(probe, &status, 0);
    if (status == 0)
        namespaces();
    else
        printf("process namespaces: not allowed here, skipped\n");
    orphan();
    unreadable_proc();
    proof_of_death();
    damaged();
    lost_file();
    large_manifest();
    failing_files();
    mr_dir_remove(dir);
    return check_done();
}
