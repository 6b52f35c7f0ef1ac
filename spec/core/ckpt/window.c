/* ckpt/window: a save through a small buffer writes the same shard, byte for byte, as one that is
 * copied whole. Its caller waits for its end, but not for a disk that does not answer; an end at
 * any moment leaves no partial checkpoint. */
#define _DEFAULT_SOURCE
#include "ckptcase.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BIG = 7 * (1 << 18) + 11, BUFFER = 2 << 20 }; /* f32 elements: 7 blocks and a bit */
static float big[BIG];
static char dir[600];
static mr_run_lock *lock;
static mr_saver *saver;
static bool taken;

static void begin(const mr_saver_options *o)
{
    mr_saver_options options = *o;
    mr_dir_remove(dir);
    mr_dir_make(dir);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    options.lock = lock;
    CHECK_OK(mr_saver_open(&options, &saver));
}

static void end(void)
{
    mr_saver_close(saver);
    mr_run_lock_release(lock);
}

static mr_status big_copy(void *user, void *dst, int64_t offset, int64_t n)
{
    memcpy(dst, (const char *)user + offset, (size_t)n);
    return MR_OK;
}

/* The items of ckptcase.h and a large one, in host memory or behind a copy function. */
static mr_status save(int64_t step, bool copied)
{
    mr_ckpt_item items[CASE_ITEMS + 1];
    case_fill(step);
    case_items(items);
    for (int i = 0; i < BIG; i++)
        big[i] = case_value(step, 2, i);
    items[CASE_ITEMS] = (mr_ckpt_item){.name = "big",
                                       .dtype = MR_ST_F32,
                                       .rank = 1,
                                       .shape = {BIG},
                                       .data = copied ? NULL : big,
                                       .copy = copied ? big_copy : NULL,
                                       .user = big};
    if (!copied)
        items[0].copy = NULL, items[0].data = case_a;
    return mr_saver_save(saver, step, items, CASE_ITEMS + 1, CASE_META, false, &taken);
}

static void read_shard(int64_t step, char **bytes, size_t *n)
{
    char path[800], base[700];
    snprintf(path, sizeof path, "%s/r00000-of-00001.safetensors",
             mr_ckpt_dir(dir, step, base, sizeof base));
    CHECK_OK(mr_file_read_all(path, bytes, n));
}

/* A disk that does not answer while the gate is closed. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static const mr_io *honest;
static int bad_writes;
static ssize_t gated_write(int fd, const void *data, size_t n)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return honest->write(fd, data, n);
}
static ssize_t bad_write(int fd, const void *data, size_t n)
{
    // not the first piece: the next attempt begins with that one again
    if (n == BUFFER / 2 && bad_writes++ == 2)
        return errno = EIO, -1;
    return honest->write(fd, data, n);
}

static void same_bytes(void)
{
    char *want, *got;
    size_t n_want, n_got;
    mr_saver_event e;
    mr_saver_status s;
    begin(&(mr_saver_options){0});
    CHECK_OK(save(1, false));
    CHECK_OK(mr_saver_wait(saver, 30));
    read_shard(1, &want, &n_want);
    end();
    const int64_t buffers[] = {BUFFER, BUFFER + 1, 3 * BUFFER, 64 << 20};
    for (int i = 0; i < 8; i++) {
        begin(&(mr_saver_options){.buffer_bytes = buffers[i / 2]});
        CHECK_OK(save(1, i % 2));
        // committed when the call returns
        CHECK(taken);
        mr_saver_get_status(saver, &s);
        CHECK_INT(s.commits, 1);
        CHECK(mr_saver_poll(saver, &e) && e.kind == MR_SAVER_COMMIT);
        CHECK(e.copy_s > 0 && e.write_s == 0 && e.bytes == (int64_t)n_want);
        read_shard(1, &got, &n_got);
        CHECK_INT(n_got, n_want);
        CHECK(memcmp(got, want, n_got) == 0);
        mr_free(got);
        // the blocks match their hashes, which the writer compares, too
        mr_ckpt *c;
        char path[700];
        CHECK_OK(mr_ckpt_open(mr_ckpt_dir(dir, 1, path, sizeof path), &c));
        CHECK_OK(mr_ckpt_verify(c));
        CHECK(case_exact(c));
        mr_ckpt_close(c);
        end();
    }
    mr_free(want);
}

/* A write that fails in the middle: the next attempt gets all pieces again. */
static void another_attempt(void)
{
    char *first, *second;
    size_t n, m;
    mr_saver_event e;
    begin(&(mr_saver_options){.buffer_bytes = BUFFER});
    honest = mr_io_table();
    mr_io bad = *honest;
    bad.write = bad_write;
    mr_io_replace(&bad);
    CHECK_OK(save(1, true));
    mr_io_replace(honest);
    CHECK(taken);
    CHECK(mr_saver_poll(saver, &e) && e.kind == MR_SAVER_RETRY);
    CHECK(mr_saver_poll(saver, &e) && e.kind == MR_SAVER_COMMIT);
    read_shard(1, &first, &n);
    CHECK_OK(save(1, false));
    read_shard(1, &second, &m);
    CHECK(n == m && memcmp(first, second, n) == 0);
    mr_free(first);
    mr_free(second);
    end();
}

/* The caller of a save that is stuck continues after the deadline: what the disk writes later is no
 * checkpoint, because the tensors may have changed. */
static void dead_disk(void)
{
    mr_run_owner owner;
    begin(&(mr_saver_options){.buffer_bytes = BUFFER, .deadline_s = 0.05});
    honest = mr_io_table();
    mr_io slow = *honest;
    slow.write = gated_write;
    mr_io_replace(&slow);
    pthread_mutex_lock(&gate);
    CHECK_FAILS(save(1, true), MR_E_CKPT, "the save of step 1 has not ended after");
    CHECK(!taken);
    // nor does the next one wait longer for the window
    CHECK_OK(save(2, true));
    CHECK(!taken);
    CHECK_FAILS(mr_saver_wait(saver, INFINITY), MR_E_CKPT, "check that the disk of");
    end();
    pthread_mutex_unlock(&gate);
    do
        CHECK_OK(mr_run_lock_peek(dir, &owner));
    while (owner.owned);
    CHECK_INT(case_count(dir, "step-"), 0);
    mr_io_replace(honest);
}

static mr_status gone(void *user, void *dst, int64_t offset, int64_t n)
{
    (void)user, (void)dst, (void)n;
    return offset < 1000000 ? MR_OK : mr_fail(MR_E_NODE, "the device is gone");
}

/* A copy function that fails ends the save, and its reason is reported. */
static void dead_device(void)
{
    mr_ckpt_item items[CASE_ITEMS];
    mr_saver_event e;
    begin(&(mr_saver_options){.buffer_bytes = BUFFER});
    case_items(items);
    items[0].copy = gone;
    CHECK_FAILS(mr_saver_save(saver, 1, items, CASE_ITEMS, CASE_META, false, &taken), MR_E_NODE,
                "the device is gone");
    CHECK_FAILS(mr_saver_wait(saver, 30), MR_E_CKPT, "the device is gone");
    CHECK(mr_saver_poll(saver, &e) && e.kind == MR_SAVER_FAIL);
    CHECK_INT(case_count(dir, "step-"), 0);
    CHECK_OK(case_save(saver, 2));
    end();
}

/* SIGKILL at random moments: acknowledged checkpoints exist, and none is incomplete. */
static void kill_sweep(unsigned seed, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        int tell[2];
        CHECK(pipe(tell) == 0);
        pid_t child = fork();
        if (child == 0) {
            begin(&(mr_saver_options){.buffer_bytes = BUFFER});
            for (int64_t step = 1;; step++)
                if (save(step, true) != MR_OK || !taken ||
                    write(tell[1], &step, sizeof step) != sizeof step)
                    _exit(1);
        }
        close(tell[1]);
        int64_t report = 0, step;
        if (read(tell[0], &step, sizeof step) == sizeof step)
            report = step;
        seed = seed * 1664525u + 1013904223u;
        nanosleep(&(struct timespec){0, (long)(seed >> 8) % 90000000}, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(tell[0], &step, sizeof step) == sizeof step)
            report = step;
        close(tell[0]);
        mr_ckpt *c = NULL;
        CHECK_OK(mr_run_lock_take(dir, &lock));
        CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock}, &saver));
        CHECK_OK(mr_ckpt_open_newest(dir, lock, NULL, NULL, &c));
        CHECK(report >= 1 && c && mr_ckpt_step(c) >= report && case_exact(c));
        CHECK_INT(case_count(dir, ".bad-") + case_count(dir, ".tmp-"), 0);
        mr_ckpt_close(c);
        end();
    }
}

static void wrong_use(void)
{
    mr_dir_remove(dir);
    mr_dir_make(dir);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_FAILS(
        mr_saver_open(&(mr_saver_options){.lock = lock, .buffer_bytes = BUFFER - 1}, &saver),
        MR_E_USAGE, "a buffer of 2097151 bytes, expected 0 or at least 2097152");
    mr_run_lock_release(lock);
}

int main(void)
{
    fault_install(); // syncs are counted, not done
    snprintf(dir, sizeof dir, "%s", case_dir("window"));
    same_bytes();
    another_attempt();
    dead_disk();
    dead_device();
    kill_sweep(20261129, 8);
    wrong_use();
    mr_dir_remove(dir);
    return check_done();
}
