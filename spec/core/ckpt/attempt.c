/* ckpt/attempt: each file operation of a save may fail or be the last one. Acknowledged checkpoints
 * exist, loaded data is exact, and no other files remain (reference: reliability 8, I/O
 * count-down). */
#define _DEFAULT_SOURCE
#include "ckptcase.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static const char *dir;

/* Step 2 is saved a second time and replaces the first. */
static bool again;

/* A run with step 1 committed and a saver open; with `again` step 2 as well. */
static void begin(mr_run_lock **lock, mr_saver **saver)
{
    mr_dir_remove(dir);
    mr_dir_make(dir);
    CHECK_OK(mr_run_lock_take(dir, lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = *lock}, saver));
    CHECK_OK(case_save(*saver, 1));
    if (again)
        CHECK_OK(case_save(*saver, 2));
}

/* A file system on which two names cannot be swapped atomically. */
static int no_exchange(const char *a, const char *b)
{
    (void)a, (void)b;
    return errno = EINVAL, -1;
}

/* After a restart: the newest checkpoint is exact and not older than `least`. */
static void judge(int64_t least, const char *what, long i)
{
    mr_run_lock *lock;
    mr_saver *saver;
    least = again ? 2 : least;
    // during a replacement, also for a reader and for a launch that has not cleaned up
    for (int round = 0; round < 3; round++) {
        mr_ckpt *c = NULL;
        if (round == 1)
            CHECK_OK(mr_run_lock_take(dir, &lock));
        if (round == 2)
            CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock}, &saver));
        if (round < 2 && !again)
            continue;
        CHECK_OK(mr_ckpt_open_newest(dir, round ? lock : NULL, NULL, NULL, &c));
        bool good = c && mr_ckpt_step(c) >= least && case_exact(c);
        if (!good)
            printf("%s at operation %ld: newest is %lld, expected at least %lld and exact\n", what,
                   i, c ? (long long)mr_ckpt_step(c) : -1, (long long)least);
        CHECK(good);
        mr_ckpt_close(c);
    }
    CHECK_INT(case_count(dir, ".tmp-"), 0);
    CHECK_INT(case_count(dir, ".trash-"), 0);
    CHECK_INT(case_count(dir, ".replaced-"), 0);
    CHECK_INT(case_count(dir, ".bad-"), 0);
    // and the run continues
    CHECK_OK(case_save(saver, 3));
    mr_saver_close(saver);
    mr_run_lock_release(lock);
}

static long count_operations(void)
{
    mr_run_lock *lock;
    mr_saver *saver;
    begin(&lock, &saver);
    fault_clear();
    CHECK_OK(case_save(saver, 2));
    CHECK_INT(case_count(dir, "step-"), 2);
    mr_saver_close(saver);
    long n = fault_operations();
    mr_run_lock_release(lock);
    return n;
}

static void sweep(long n, fault_kind kind, int err, const char *what)
{
    int acknowledged = 0;
    for (long i = 1; i <= n; i++) {
        mr_run_lock *lock;
        mr_saver *saver;
        mr_saver_status status;
        begin(&lock, &saver);
        fault_at(i, kind, err);
        mr_status st = case_save(saver, 2);
        mr_saver_get_status(saver, &status);
        fault_clear();
        // success is reported only for a commit, and each commit is reported
        CHECK_INT(status.commits, (again ? 2 : 1) + (st == MR_OK));
        acknowledged += st == MR_OK;
        mr_saver_close(saver);
        mr_run_lock_release(lock);
        judge(st == MR_OK ? 2 : 1, what, i);
    }
    printf("%s: %d of %ld saves committed in spite of it\n", what, acknowledged, n);
    // a new attempt succeeds after one failing operation; a full disk skips this save
    if (kind == FAULT_FULL)
        CHECK(acknowledged < n);
    else if (err != ENOSPC)
        CHECK(acknowledged >= n - 3);
}

/* The process ends after each operation, which is before the next one. */
static void die_sweep(long n, const char *what)
{
    for (long i = 1; i <= n; i++) {
        mr_dir_remove(dir);
        mr_dir_make(dir);
        pid_t child = fork();
        if (child == 0) {
            mr_run_lock *lock;
            mr_saver *saver;
            begin(&lock, &saver);
            fault_at(i, FAULT_DIE_AFTER, 0);
            case_save(saver, 2);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        fault_clear();
        CHECK(WIFEXITED(status));
        judge(WEXITSTATUS(status) == 0 ? 2 : 1, what, i);
    }
}

/* SIGKILL at random moments while saves follow each other. */
static void kill_sweep(unsigned seed, int rounds)
{
    printf("kill sweep: seed %u\n", seed);
    for (int round = 0; round < rounds; round++) {
        mr_dir_remove(dir);
        mr_dir_make(dir);
        int tell[2];
        CHECK(pipe(tell) == 0);
        pid_t child = fork();
        if (child == 0) {
            mr_run_lock *lock;
            mr_saver *saver;
            begin(&lock, &saver);
            for (int64_t step = 1;; step++) {
                if (step > 1 && case_save(saver, step) != MR_OK)
                    _exit(1);
                if (write(tell[1], &step, sizeof step) != sizeof step)
                    _exit(1);
            }
        }
        close(tell[1]);
        int64_t report = 0, step;
        if (read(tell[0], &step, sizeof step) == sizeof step)
            report = step;
        seed = seed * 1664525u + 1013904223u;
        struct timespec pause = {0, (long)(seed >> 8) % 40000000};
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(tell[0], &step, sizeof step) == sizeof step)
            report = step;
        close(tell[0]);
        CHECK(report >= 1);
        judge(report, "SIGKILL", round);
    }
}

/* Without a second attempt: a save that reports failure leaves no checkpoint. */
static void unacknowledged(long n)
{
    for (long i = 1; i <= n; i++) {
        mr_run_lock *lock;
        mr_saver *saver;
        int64_t *steps;
        int count;
        mr_dir_remove(dir);
        mr_dir_make(dir);
        CHECK_OK(mr_run_lock_take(dir, &lock));
        CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock, .attempts = 1}, &saver));
        CHECK_OK(case_save(saver, 1));
        fault_at(i, FAULT_ERRNO, EIO);
        mr_status st = case_save(saver, 2);
        fault_clear();
        CHECK_OK(mr_ckpt_steps(dir, &steps, &count));
        CHECK_INT(count, st == MR_OK ? 2 : 1);
        mr_free(steps);
        mr_saver_close(saver);
        mr_run_lock_release(lock);
    }
}

/* Three saves in a row without a commit are reported so that the caller stops; then the disk has
 * room again. */
static void full_disk(void)
{
    mr_run_lock *lock;
    mr_saver *saver;
    mr_saver_event event;
    begin(&lock, &saver);
    while (mr_saver_poll(saver, &event)) {}
    fault_at(1, FAULT_FULL, 0);
    CHECK_FAILS(case_save(saver, 2), MR_E_CKPT, "No space left");
    CHECK(mr_saver_poll(saver, &event));
    CHECK_INT(event.kind, MR_SAVER_FAIL); // not tried again at once: the disk is full
    CHECK_OK(mr_saver_check(saver));
    CHECK_FAILS(case_save(saver, 3), MR_E_CKPT, "No space left");
    CHECK_FAILS(case_save(saver, 4), MR_E_CKPT, "No space left");
    CHECK_FAILS(mr_saver_check(saver), MR_E_CKPT,
                "no checkpoint was committed in 3 saves in a row");
    CHECK_FAILS(case_save(saver, 5), MR_E_CKPT, "3 saves in a row");
    CHECK_INT(mr_status_exit(MR_E_CKPT), 8);
    fault_clear();
    mr_saver_close(saver);
    mr_run_lock_release(lock);
    judge(1, "full disk", 0);
}

static int64_t little_room(const char *path)
{
    (void)path;
    return 1000000;
}

/* Less than 1.2 x the size is free: the save is given up before anything is written. */
static void shortage(void)
{
    mr_run_lock *lock;
    mr_saver *saver;
    mr_saver_event event;
    begin(&lock, &saver);
    while (mr_saver_poll(saver, &event)) {}
    mr_io small = *mr_io_table();
    small.free_bytes = little_room;
    const mr_io *before = mr_io_table();
    mr_io_replace(&small);
    case_fill(2);
    mr_ckpt_item items[CASE_ITEMS];
    case_items(items);
    bool taken;
    CHECK_OK(mr_saver_save(saver, 2, items, CASE_ITEMS, CASE_META, false, &taken));
    CHECK_FAILS(mr_saver_wait(saver, 30), MR_E_CKPT, "1.0 MB are free, a checkpoint needs 1.4");
    CHECK(mr_saver_poll(saver, &event));
    CHECK_INT(event.kind, MR_SAVER_FAIL);
    CHECK_INT(case_count(dir, "step-000000000002"), 0);
    mr_io_replace(before);
    CHECK_OK(case_save(saver, 3));
    mr_saver_status status;
    mr_saver_get_status(saver, &status);
    CHECK_INT(status.failures_in_row, 0);
    CHECK_INT(status.failures, 1);
    mr_saver_close(saver);
    mr_run_lock_release(lock);
}

/* A write that reports success but stores other bytes is found before the commit. */
static const mr_io *honest;
static int lies;
static ssize_t lying_write(int fd, const void *data, size_t n)
{
    if (lies <= 0 || n < 100000)
        return honest->write(fd, data, n);
    lies--;
    char *copy = malloc(n);
    memcpy(copy, data, n);
    copy[n / 2] ^= 4;
    ssize_t done = honest->write(fd, copy, n);
    free(copy);
    return done;
}

static void silent_corruption(void)
{
    mr_run_lock *lock;
    mr_saver *saver;
    mr_saver_event event;
    begin(&lock, &saver);
    while (mr_saver_poll(saver, &event)) {}
    honest = mr_io_table();
    mr_io liar = *honest;
    liar.write = lying_write;
    mr_io_replace(&liar);
    lies = 1;
    CHECK_OK(case_save(saver, 2));
    CHECK(mr_saver_poll(saver, &event));
    CHECK_INT(event.kind, MR_SAVER_RETRY);
    CHECK(strstr(event.text, "differ from the snapshot when read back"));
    lies = 1000;
    CHECK_FAILS(case_save(saver, 3), MR_E_CKPT, "when read back");
    mr_io_replace(honest);
    mr_saver_close(saver);
    mr_run_lock_release(lock);
    judge(2, "silent corruption", 0);
}

/* The same step again replaces the old directory. Whatever fails and wherever the process ends, the
 * step exists, on file systems of both kinds. */
static void replaced(void)
{
    const mr_io *exchanging = mr_io_table();
    mr_io plain = *exchanging;
    plain.exchange = no_exchange;
    again = true;
    for (int kind = 0; kind < 2; kind++) {
        mr_io_replace(kind ? &plain : exchanging);
        long n = count_operations();
        sweep(n, FAULT_ERRNO, EIO, "EIO, replacing");
        die_sweep(n, "death, replacing");
    }
    mr_io_replace(exchanging);
    again = false;
}

int main(void)
{
    char text[600];
    fault_install();
    snprintf(text, sizeof text, "%s", case_dir("attempt"));
    dir = text;
    long n = count_operations();
    printf("%ld operations per save\n", n);
    CHECK(n > 30);
    sweep(n, FAULT_ERRNO, EIO, "EIO");
    sweep(n, FAULT_ERRNO, EINTR, "EINTR");
    sweep(n, FAULT_ERRNO, ENOSPC, "ENOSPC once");
    sweep(n, FAULT_SHORT, 0, "short read or write");
    sweep(n, FAULT_FULL, 0, "full disk");
    die_sweep(n, "death");
    kill_sweep(20261121, 20);
    unacknowledged(n);
    full_disk();
    shortage();
    silent_corruption();
    replaced();
    mr_dir_remove(dir);
    return check_done();
}
