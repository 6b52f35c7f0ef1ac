/* ckpt/saver: training continues while a snapshot is written; buffers, waiting, counting, failing
 * allocations. */
#define _DEFAULT_SOURCE
#include "ckptcase.h"

#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[600];
static mr_run_lock *lock;
static mr_saver *saver;

static void begin(void)
{
    mr_dir_remove(dir);
    mr_dir_make(dir);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock}, &saver));
}

static void end(void)
{
    mr_saver_close(saver);
    mr_run_lock_release(lock);
}

/* A disk that does not answer while the gate is closed. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static const mr_io *honest;
static ssize_t gated_write(int fd, const void *data, size_t n)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return honest->write(fd, data, n);
}

static int refuse_step_4(const char *path, int mode)
{
    if (strstr(path, "/step-000000000004")) {
        // not before the next save exists
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
        return errno = EIO, -1;
    }
    return honest->mkdir(path, mode);
}

static bool taken; // by the last start_save
static mr_status start_save(int64_t step, bool wait)
{
    mr_ckpt_item items[CASE_ITEMS];
    case_fill(step);
    case_items(items);
    return mr_saver_save(saver, step, items, CASE_ITEMS, CASE_META, wait, &taken);
}

static void expect(int64_t step)
{
    char path[700];
    mr_ckpt *c;
    CHECK_OK(mr_ckpt_open(mr_ckpt_dir(dir, step, path, sizeof path), &c));
    CHECK(c && case_exact(c));
    mr_ckpt_close(c);
}

static void *save_fifth(void *ended)
{
    CHECK_OK(start_save(5, false));
    *(atomic_bool *)ended = true;
    return NULL;
}

static void two_buffers(void)
{
    mr_saver_status s;
    mr_saver_event e;
    begin();
    honest = mr_io_table();
    mr_io slow = *honest;
    slow.write = gated_write;
    mr_io_replace(&slow);
    pthread_mutex_lock(&gate);
    CHECK_OK(start_save(1, false));
    CHECK_OK(start_save(2, false)); // overwrites the source of step 1
    mr_saver_get_status(saver, &s);
    CHECK_INT(s.pending, 2);
    CHECK_INT(s.commits, 0);
    // a third one finds no buffer: it is skipped and reported without a wait
    CHECK(taken);
    CHECK_OK(start_save(3, false));
    CHECK(!taken);
    CHECK(mr_saver_poll(saver, &e));
    CHECK_INT(e.kind, MR_SAVER_SKIP);
    CHECK_INT(e.step, 3);
    CHECK(strstr(e.text, "still being written"));
    CHECK_FAILS(mr_saver_wait(saver, 0.05), MR_E_CKPT, "the save of step 1 has not ended after ");
    // its thread may have been slow to begin
    while (case_count(dir, "step-000000000001.tmp-") == 0)
        mr_clock_table()->sleep_ns(1000000);
    CHECK_OK(start_save(4, false));
    CHECK(mr_saver_poll(saver, &e));
    CHECK_INT(e.kind, MR_SAVER_SKIP);
    // a third skip in a row would stop the run: this one waits for the disk, as the last save of a
    // run does
    pthread_t thread;
    atomic_bool ended = false;
    CHECK_INT(pthread_create(&thread, NULL, save_fifth, &ended), 0);
    usleep(100000);
    CHECK(!ended);
    pthread_mutex_unlock(&gate);
    pthread_join(thread, NULL);
    CHECK(ended);
    CHECK_OK(start_save(6, true));
    CHECK_OK(mr_saver_wait(saver, 30));
    mr_saver_get_status(saver, &s);
    CHECK_INT(s.commits, 4);
    CHECK_INT(s.failures, 2);
    CHECK_INT(s.failures_in_row, 0);
    CHECK_INT(s.last_commit, 6);
    CHECK_INT(s.pending, 0);
    int64_t order[] = {1, 2, 5, 6};
    for (int i = 0; i < 4; i++) {
        CHECK(mr_saver_poll(saver, &e));
        CHECK_INT(e.kind, MR_SAVER_COMMIT);
        CHECK_INT(e.step, order[i]);
        CHECK(e.copy_s >= 0 && e.write_s > 0 && e.bytes > CASE_A * 4);
        if (i)
            expect(order[i]); // three are kept
    }
    CHECK(!mr_saver_poll(saver, &e));
    mr_io_replace(honest);
    end();
}

/* wait() reports the newest save: an older one that commits after the newest was skipped does not
 * count in its place, and an older one that fails does not change a newest one that commits. */
static void the_newest_counts(void)
{
    begin();
    honest = mr_io_table();
    mr_io slow = *honest;
    slow.write = gated_write;
    mr_io_replace(&slow);
    pthread_mutex_lock(&gate);
    for (int64_t step = 1; step <= 3; step++)
        CHECK_OK(start_save(step, false));
    CHECK(!taken);
    pthread_mutex_unlock(&gate);
    CHECK_FAILS(mr_saver_wait(saver, INFINITY), MR_E_CKPT,
                "the newest save ended without a commit: the two saves before this one");
    expect(2);
    CHECK_OK(start_save(3, true));
    CHECK_OK(mr_saver_wait(saver, INFINITY));
    expect(3);
    // the older of two fails: its directory cannot be created
    slow.mkdir = refuse_step_4;
    pthread_mutex_lock(&gate);
    CHECK_OK(start_save(4, false));
    CHECK_OK(start_save(5, false));
    pthread_mutex_unlock(&gate);
    CHECK_OK(mr_saver_wait(saver, INFINITY));
    CHECK_INT(case_count(dir, "step-000000000004"), 0);
    expect(5);
    mr_io_replace(honest);
    end();
}

/* The journal is synced before the rename that commits; a sync that fails is reported and stops no
 * save. */
static ino_t journal_inode;
static bool journal_synced, journal_broken, synced_at_commit;
static int watched_fsync(int fd)
{
    struct stat st;
    bool journal = fstat(fd, &st) == 0 && st.st_ino == journal_inode;
    if (journal && journal_broken)
        return errno = EIO, -1;
    journal_synced = journal_synced || journal;
    return honest->fsync(fd);
}
static int watched_rename(const char *from, const char *to)
{
    if (strstr(to, "/ckpt/step-") && !strstr(to, ".tmp-"))
        synced_at_commit = journal_synced;
    return honest->rename(from, to);
}

static void journal_first(void)
{
    char path[700];
    struct stat st;
    mr_saver_event e;
    begin();
    snprintf(path, sizeof path, "%s/journal.jsonl", dir);
    mr_journal *journal;
    CHECK_OK(mr_journal_open(path, &journal));
    CHECK_OK(mr_journal_append(journal, "{}", 2));
    CHECK(stat(path, &st) == 0);
    journal_inode = st.st_ino;
    honest = mr_io_table();
    mr_io watched = *honest;
    watched.fsync = watched_fsync, watched.rename = watched_rename;
    mr_io_replace(&watched);
    CHECK_OK(case_save(saver, 1));
    CHECK(synced_at_commit);
    CHECK(mr_saver_poll(saver, &e) && e.kind == MR_SAVER_COMMIT);
    journal_broken = true;
    CHECK_OK(case_save(saver, 2));
    CHECK(mr_saver_poll(saver, &e) && e.kind == MR_SAVER_NOTE && e.step == 2);
    CHECK(strstr(e.text, "the journal could not be synced: Input/output error"));
    CHECK(mr_saver_poll(saver, &e) && e.kind == MR_SAVER_COMMIT);
    mr_io_replace(honest);
    mr_journal_close(journal);
    end();
}

/* A disk that does not answer: no caller waits longer than the deadline, the lock stays taken, and
 * the thread frees everything when the disk answers again. */
static void dead_disk(void)
{
    mr_run_owner owner;
    mr_run_lock *other;
    mr_dir_remove(dir);
    mr_dir_make(dir);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock, .deadline_s = 0.05}, &saver));
    honest = mr_io_table();
    mr_io slow = *honest;
    slow.write = gated_write;
    mr_io_replace(&slow);
    pthread_mutex_lock(&gate);
    for (int64_t step = 1; step <= 4; step++)
        CHECK_OK(start_save(step, false));
    // the third skip in a row waits for a buffer before it gives up
    CHECK_FAILS(start_save(5, false), MR_E_CKPT, "no checkpoint was committed in 3 saves in a row");
    CHECK_FAILS(mr_saver_wait(saver, INFINITY), MR_E_CKPT, "try: check that the disk of");
    end();
    CHECK_OK(mr_run_lock_peek(dir, &owner));
    CHECK(owner.owned);
    CHECK_FAILS(mr_run_lock_take(dir, &other), MR_E_LOCK, "this very process");
    pthread_mutex_unlock(&gate);
    while (owner.owned) {
        CHECK_OK(mr_run_lock_peek(dir, &owner));
        mr_clock_table()->sleep_ns(1000000);
    }
    expect(1);
    expect(2);
    mr_io_replace(honest);
}

/* The caller's thread makes no call to a disk that does not answer, not even for its free room. */
static int64_t gated_free_bytes(const char *path)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return honest->free_bytes(path);
}

static void dead_disk_is_not_asked(void)
{
    begin();
    honest = mr_io_table();
    mr_io slow = *honest;
    slow.free_bytes = gated_free_bytes;
    mr_io_replace(&slow);
    pthread_mutex_lock(&gate);
    // this thread holds the gate: it would wait for itself
    CHECK_OK(start_save(1, false));
    CHECK(taken);
    CHECK_OK(start_save(2, false));
    CHECK(taken);
    pthread_mutex_unlock(&gate);
    CHECK_OK(mr_saver_wait(saver, INFINITY));
    expect(1);
    expect(2);
    mr_io_replace(honest);
    end();
}

/* Old checkpoints that are slow to remove hold no buffer, and no caller waits for them beyond the
 * deadline. */
static int gated_unlink(const char *path)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return honest->unlink(path);
}

static void removal_holds_no_buffer(void)
{
    mr_saver_status s;
    begin();
    CHECK_OK(case_save(saver, 1));
    CHECK_OK(case_save(saver, 2));
    mr_saver_close(saver);
    CHECK_OK(
        mr_saver_open(&(mr_saver_options){.lock = lock, .keep = 1, .deadline_s = 0.05}, &saver));
    honest = mr_io_table();
    mr_io slow = *honest;
    slow.unlink = gated_unlink;
    mr_io_replace(&slow);
    pthread_mutex_lock(&gate);
    CHECK_OK(start_save(3, false)); // step 1 is removed: two good ones stay
    do
        mr_saver_get_status(saver, &s);
    while (s.commits < 1);
    CHECK_OK(mr_saver_wait(saver, INFINITY)); // the save itself has succeeded
    CHECK_OK(start_save(4, false));
    CHECK(taken);
    CHECK_OK(start_save(5, false));
    CHECK(taken);
    CHECK_FAILS(mr_saver_wait(saver, INFINITY), MR_E_CKPT,
                "the save of step 4 waits for the removal of old checkpoints, which has not ended");
    pthread_mutex_unlock(&gate);
    do
        mr_saver_get_status(saver, &s);
    while (s.pending);
    // close() leaves the rest of a slow removal to the thread
    end();
    for (mr_run_owner owner = {.owned = true}; owner.owned;)
        CHECK_OK(mr_run_lock_peek(dir, &owner));
    expect(4);
    expect(5);
    CHECK_INT(case_count(dir, "step-"), 2);
    mr_io_replace(honest);
}

/* close() finishes the saves that were accepted. */
static void close_finishes(void)
{
    begin();
    CHECK_OK(start_save(1, false));
    end();
    expect(1);
}

static void layouts(void)
{
    begin();
    mr_ckpt_item items[CASE_ITEMS];
    case_items(items);
    CHECK_OK(mr_saver_prepare(saver, items, CASE_ITEMS, 2));
    CHECK_OK(case_save(saver, 1));
    // other tensors in the next save
    case_fill(2);
    CHECK_OK(mr_saver_save(saver, 2, items + 1, 2, CASE_META, false, &taken));
    CHECK_OK(mr_saver_wait(saver, 30));
    char path[700];
    mr_ckpt *c;
    CHECK_OK(mr_ckpt_open(mr_ckpt_dir(dir, 2, path, sizeof path), &c));
    CHECK_INT(mr_ckpt_count(c), 2);
    mr_ckpt_close(c);
    CHECK_OK(case_save(saver, 3));
    expect(3);
    end();
}

/* A link in the place of the step, which leads nowhere, is replaced. */
static void link_in_the_way(void)
{
    begin();
    char path[700];
    struct stat s;
    CHECK_INT(symlink("/nowhere", mr_ckpt_dir(dir, 1, path, sizeof path)), 0);
    CHECK_OK(case_save(saver, 1));
    CHECK(lstat(path, &s) == 0 && S_ISDIR(s.st_mode));
    expect(1);
    end();
}

static mr_status no_copy(void *user, void *dst, int64_t offset, int64_t n)
{
    (void)user, (void)dst, (void)n;
    return offset < 1000000 ? MR_OK : mr_fail(MR_E_NODE, "the device is gone");
}

static void wrong_use(void)
{
    mr_ckpt_item items[CASE_ITEMS];
    mr_saver_status s;
    begin();
    case_items(items);
    CHECK_FAILS(mr_saver_save(saver, -1, items, CASE_ITEMS, CASE_META, false, &taken), MR_E_USAGE,
                "checkpoint step -1");
    CHECK_FAILS(mr_saver_save(saver, 1, items, 0, CASE_META, false, &taken), MR_E_USAGE,
                "0 tensors");
    CHECK_FAILS(mr_saver_save(saver, 1, items, CASE_ITEMS, "{", false, &taken), MR_E_USAGE,
                "checkpoint meta: line 1");
    CHECK_FAILS(mr_saver_save(saver, 1, items, CASE_ITEMS, "{}", false, &taken), MR_E_USAGE,
                "recipe_hash");
    items[1].name = items[0].name;
    CHECK_FAILS(mr_saver_save(saver, 1, items, CASE_ITEMS, CASE_META, false, &taken), MR_E_USAGE,
                "'x.weight' occurs twice");
    case_items(items);
    items[0].copy = no_copy;
    CHECK_FAILS(mr_saver_save(saver, 1, items, CASE_ITEMS, CASE_META, false, &taken), MR_E_NODE,
                "the device is gone");
    mr_saver_get_status(saver, &s);
    CHECK_INT(s.pending, 0);
    CHECK_OK(case_save(saver, 1));
    expect(1);
    end();
}

/* A later launch owns the run: this one stops writing for good. */
static void fenced_off(void)
{
    char path[700];
    begin();
    CHECK_OK(case_save(saver, 1));
    snprintf(path, sizeof path, "%s/lock", dir);
    FILE *f = fopen(path, "wb");
    fprintf(f, "{\"run\": \"%s\", \"fence\": 9, \"owner\": null}", mr_run_lock_id(lock));
    fclose(f);
    CHECK_OK(start_save(2, false));
    CHECK_FAILS(mr_saver_wait(saver, 30), MR_E_LOCK, "launch 9");
    CHECK_FAILS(mr_saver_check(saver), MR_E_LOCK, "launch 1 stops writing");
    CHECK_FAILS(start_save(3, false), MR_E_LOCK, "stops writing");
    CHECK_INT(case_count(dir, "step-000000000002"), 0);
    end();
    // the run is taken over while the save is being written: it is not committed
    begin();
    honest = mr_io_table();
    mr_io slow = *honest;
    slow.write = gated_write;
    mr_io_replace(&slow);
    pthread_mutex_lock(&gate);
    CHECK_OK(start_save(1, false));
    while (!case_count(dir, ".tmp-"))
        sched_yield();
    remove(path);
    pthread_mutex_unlock(&gate);
    CHECK_FAILS(mr_saver_wait(saver, INFINITY), MR_E_LOCK, "the lock file is gone");
    CHECK_INT(case_count(dir, "step-000000000001"), 0);
    mr_io_replace(honest);
    end();
}

/* A damaged older checkpoint that retention finds is reported, with the step that was just
 * saved. */
static void damage_is_told(void)
{
    char path[800], base[700];
    mr_saver_event e;
    begin();
    for (int64_t step = 1; step <= 3; step++)
        CHECK_OK(case_save(saver, step));
    end();
    for (int64_t step = 2; step <= 3; step++) {
        snprintf(path, sizeof path, "%s/r00000-of-00001.safetensors",
                 mr_ckpt_dir(dir, step, base, sizeof base));
        FILE *f = fopen(path, "r+b");
        fputc('!', f);
        fclose(f);
    }
    // a new launch does not know which blocks the old one had verified
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock}, &saver));
    CHECK_OK(case_save(saver, 4));
    mr_saver_close(saver);
    CHECK_INT(case_count(dir, ".bad-"), 2);
    CHECK_INT(case_count(dir, "step-"), 4);
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock}, &saver));
    snprintf(path, sizeof path, "%s/MANIFEST.json", mr_ckpt_dir(dir, 4, base, sizeof base));
    CHECK(truncate(path, 100) == 0);
    CHECK_OK(case_save(saver, 5));
    for (int i = 0; i < 6000 && case_count(dir, ".bad-") < 3; i++)
        mr_clock_table()->sleep_ns(10000000);
    CHECK(mr_saver_poll(saver, &e));
    CHECK_INT(e.kind, MR_SAVER_COMMIT);
    mr_saver_status status;
    for (int i = 0; i < 6000 && !mr_saver_poll(saver, &e); i++)
        mr_clock_table()->sleep_ns(10000000);
    CHECK_INT(e.kind, MR_SAVER_NOTE);
    CHECK_INT(e.step, 5);
    CHECK(strstr(e.text, "renamed to .bad-step-000000000004"));
    mr_saver_get_status(saver, &status);
    CHECK_INT(status.failures, 0);
    end();
}

static void retention_runs(void)
{
    begin();
    for (int64_t step = 1; step <= 6; step++)
        CHECK_OK(case_save(saver, step));
    end();
    int64_t *steps;
    int n;
    CHECK_OK(mr_ckpt_steps(dir, &steps, &n));
    CHECK_INT(n, 3);
    CHECK_INT(steps[2], 4);
    mr_free(steps);
    // below 0: none is removed
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock, .keep = -1}, &saver));
    for (int64_t step = 7; step <= 9; step++)
        CHECK_OK(case_save(saver, step));
    end();
    CHECK_INT(case_count(dir, "step-"), 6);
}

/* The i-th allocation fails, in any thread: no crash, no leak, and a reported success is true. */
static void no_memory(void)
{
    int i = 1, failed = 0;
    for (; i < 3000; i++) {
        mr_dir_remove(dir);
        mr_dir_make(dir);
        int64_t before = mr_alloc_count();
        mr_alloc_fail_at(i);
        mr_status st = mr_run_lock_take(dir, &lock);
        saver = NULL;
        if (st == MR_OK)
            st = mr_saver_open(&(mr_saver_options){.lock = lock}, &saver);
        if (st == MR_OK)
            st = case_save(saver, 1);
        mr_saver_close(saver);
        bool done = mr_alloc_count() - before < i;
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            expect(1);
        else
            failed++;
        if (lock)
            mr_run_lock_release(lock);
        lock = NULL;
        if (done)
            break;
    }
    printf("%d allocations, %d of them end the save\n", i - 1, failed);
    CHECK(i > 50 && i < 3000);
}

int main(void)
{
    // allocations of jansson fail too
    json_set_alloc_funcs(mr_alloc, mr_free);
    fault_install(); // syncs are counted, not done
    snprintf(dir, sizeof dir, "%s", case_dir("saver"));
    two_buffers();
    the_newest_counts();
    dead_disk();
    dead_disk_is_not_asked();
    removal_holds_no_buffer();
    journal_first();
    close_finishes();
    layouts();
    link_in_the_way();
    wrong_use();
    fenced_off();
    retention_runs();
    damage_is_told();
    no_memory();
    mr_dir_remove(dir);
    return check_done();
}
