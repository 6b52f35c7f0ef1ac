/* ckpt/keep: what is kept, what is removed, and that only files of dead processes are removed. */
#include "ckptcase.h"
#include "ckpt/save.h"

static char dir[600];
static mr_run_lock *lock;

static void check_steps(int n, const int64_t *want)
{
    int64_t *steps;
    int got;
    CHECK_OK(mr_ckpt_steps(dir, &steps, &got));
    CHECK_INT(got, n);
    for (int i = 0; i < got && i < n; i++)
        CHECK_INT(steps[i], want[i]);
    mr_free(steps);
}

/* Steps 1..n saved, none removed. */
static void fresh(int n)
{
    mr_saver *saver;
    mr_run_lock_release(lock);
    mr_dir_remove(dir);
    mr_dir_make(dir);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock, .keep = 100}, &saver));
    for (int64_t step = 1; step <= n; step++)
        CHECK_OK(case_save(saver, step));
    mr_saver_close(saver);
}

static int lines;
static void report(void *user, const char *line)
{
    (void)user, (void)line;
    lines++;
}

static void retention(void)
{
    fresh(7);
    CHECK_OK(mr_save_retain(lock, 3, 2, (int64_t[]){7, 6}, 2, report, NULL));
    check_steps(5, (int64_t[]){7, 6, 5, 4, 2});
    CHECK_OK(mr_save_retain(lock, 3, 0, NULL, 0, report, NULL));
    check_steps(3, (int64_t[]){7, 6, 5});
    CHECK_INT(lines, 0);
    CHECK_INT(case_count(dir, ".trash-"), 0);

    // two that match their hashes are kept, even beyond the number to keep; damaged ones are set
    // aside
    fresh(6);
    case_flip_last_byte(dir, 6);
    case_flip_last_byte(dir, 5);
    case_flip_last_byte(dir, 3);
    lines = 0;
    CHECK_OK(mr_save_retain(lock, 2, 0, NULL, 0, report, NULL));
    check_steps(2, (int64_t[]){4, 2});
    CHECK_INT(lines, 3);
    CHECK_INT(case_count(dir, ".bad-"), 3);
    // the same step damaged again gets another name
    mr_save_condemn(dir, 4);
    fresh(1);
    mr_save_condemn(dir, 1);
    mr_dir_make(dir);
    char again[800], base[700];
    CHECK_OK(mr_dir_make(mr_ckpt_dir(dir, 1, base, sizeof base)));
    mr_save_condemn(dir, 1);
    snprintf(again, sizeof again, "%s/ckpt/.bad-step-000000000001-1", dir);
    CHECK(mr_path_exists(again));
}

static char gone[800], hidden_manifest[900];
static void come_back(void)
{
    CHECK_INT(rename(hidden_manifest, gone), 0);
}

/* Links in ckpt/ are no checkpoints: they do not count as kept, and nothing is removed through
 * them. A file that cannot be read is not damaged. */
static void stray(void)
{
    char to[700], at[700], shard[800], hidden[900];
    fresh(4);
    mr_ckpt_dir(dir, 3, to, sizeof to);
    for (int64_t step = 0; step <= 9; step += 9)
        CHECK_INT(symlink(step ? "/nowhere" : to, mr_ckpt_dir(dir, step, at, sizeof at)), 0);
    FILE *f = fopen(mr_ckpt_dir(dir, 8, at, sizeof at), "wb");
    fclose(f);
    check_steps(4, (int64_t[]){4, 3, 2, 1});
    CHECK_OK(mr_save_retain(lock, 2, 0, (int64_t[]){4, 3}, 2, report, NULL));
    check_steps(2, (int64_t[]){4, 3});
    CHECK_OK(mr_save_verify(to));
    CHECK_INT(case_count(dir, "step-000000000000"), 1);
    CHECK_INT(case_count(dir, "step-000000000009"), 1);

    fresh(4);
    snprintf(shard, sizeof shard, "%s/r00000-of-00001.safetensors",
             mr_ckpt_dir(dir, 4, at, sizeof at));
    snprintf(hidden, sizeof hidden, "%s/hidden", dir);
    CHECK_INT(rename(shard, hidden), 0);
    case_clock();
    CHECK_OK(mr_save_retain(lock, 1, 0, NULL, 0, report, NULL));
    mr_clock_replace(NULL);
    // two others are good, and it is unknown whether the newest is
    check_steps(3, (int64_t[]){4, 3, 2});
    CHECK_INT(case_count(dir, ".bad-"), 0);

    // a manifest that is absent for a moment is waited for: the newest two are the good ones
    fresh(4);
    snprintf(gone, sizeof gone, "%s/MANIFEST.json", mr_ckpt_dir(dir, 4, at, sizeof at));
    snprintf(hidden_manifest, sizeof hidden_manifest, "%s/hidden", dir);
    CHECK_INT(rename(gone, hidden_manifest), 0);
    case_clock();
    case_meanwhile = come_back;
    CHECK_OK(mr_save_retain(lock, 1, 0, NULL, 0, report, NULL));
    case_meanwhile = NULL;
    mr_clock_replace(NULL);
    check_steps(2, (int64_t[]){4, 3});
}

/* A rollback removes newer checkpoints; stopped at any point, it leaves only complete ones. */
static void left_behind(void)
{
    fault_install();
    fresh(5);
    fault_clear();
    CHECK_OK(mr_ckpt_drop_after(lock, 3));
    const long n = fault_operations();
    check_steps(3, (int64_t[]){3, 2, 1});
    CHECK_INT(case_count(dir, ".trash-"), 0);
    CHECK_OK(mr_ckpt_drop_after(lock, 3));
    check_steps(3, (int64_t[]){3, 2, 1});
    for (long i = 1; i <= n; i++) {
        fresh(5);
        fault_at(i, FAULT_ERRNO, EIO);
        mr_ckpt_drop_after(lock, 3);
        fault_clear();
        CHECK_OK(mr_save_sweep(lock));
        int64_t *steps;
        int count;
        char path[700];
        CHECK_OK(mr_ckpt_steps(dir, &steps, &count));
        CHECK(count >= 3 && steps[count - 3] == 3 && (count < 4 || steps[count - 4] == 4));
        for (int k = 0; k < count; k++)
            CHECK_OK(mr_save_verify(mr_ckpt_dir(dir, steps[k], path, sizeof path)));
        mr_free(steps);
    }
    mr_io_replace(NULL);
}

static void touch_dir(const char *form, const char *run, long long fence)
{
    char path[900], file[1000];
    int n = snprintf(path, sizeof path, "%s/ckpt/", dir);
    snprintf(path + n, sizeof path - (size_t)n, form, run, fence);
    CHECK_OK(mr_dir_make(path));
    snprintf(file, sizeof file, "%s/r00000-of-00001.safetensors.part", path);
    fclose(fopen(file, "wb"));
}

static void sweep(void)
{
    fresh(1);
    const char *run = mr_run_lock_id(lock);
    long long fence = mr_run_lock_fence(lock);
    touch_dir("step-000000000005.tmp-%s-%lld.1", run, fence); // ours
    // of a later launch: it is alive
    touch_dir("step-000000000006.tmp-%s-%lld.1", run, fence + 1);
    // of another run: it may be alive
    touch_dir("step-000000000007.tmp-%s-%lld.1", "ffff", fence);
    touch_dir(".trash-step-000000000002%.0s%.0lld", "", 0);
    touch_dir(".replaced-step-000000000001%.0s-%lld.1", "", fence); // its replacement exists
    // outcomes: those of earlier launches are not waited for, those of this one may be
    touch_dir(".ended-%s-%lld.1", run, fence - 1);
    touch_dir(".ended-%s-%lld.1", run, fence);
    touch_dir(".ended-%s-%lld.1", "ffff", fence - 1);
    CHECK_OK(mr_save_sweep(lock));
    CHECK_INT(case_count(dir, ".ended-"), 2);
    char mine[200];
    snprintf(mine, sizeof mine, ".ended-%s-%lld.1", run, fence);
    CHECK_INT(case_count(dir, mine), 1);
    CHECK_INT(case_count(dir, ".tmp-"), 2);
    CHECK_INT(case_count(dir, "step-000000000006.tmp-"), 1);
    CHECK_INT(case_count(dir, "step-000000000007.tmp-"), 1);
    CHECK_INT(case_count(dir, ".trash-"), 0);
    CHECK_INT(case_count(dir, ".replaced-"), 0);
    check_steps(1, (int64_t[]){1});
}

/* A checkpoint that was set aside: readers find it, the next launch restores it, and one that
 * cannot be restored stays. */
static int refuse_rename(const char *a, const char *b)
{
    (void)a, (void)b;
    return errno = EACCES, -1;
}

static void put_back(void)
{
    char from[700], to[800], find[MR_SAVE_PATH];
    mr_ckpt *c;
    fresh(2);
    mr_ckpt_dir(dir, 2, from, sizeof from);
    snprintf(to, sizeof to, "%s/ckpt/.replaced-step-000000000002-1.2", dir);
    CHECK_STR(mr_save_find(from, find), from);
    CHECK_INT(rename(from, to), 0);
    CHECK_STR(mr_save_find(from, find), to);
    check_steps(2, (int64_t[]){2, 1});
    CHECK_OK(mr_ckpt_open(from, &c));
    CHECK(case_exact(c));
    mr_ckpt_close(c);

    mr_io stubborn = *mr_io_table();
    stubborn.rename = refuse_rename;
    mr_io_replace(&stubborn);
    CHECK_FAILS(mr_save_sweep(lock), MR_E_IO, "cannot be renamed back to");
    CHECK_OK(mr_ckpt_open_newest(dir, lock, NULL, NULL, &c));
    CHECK_INT(mr_ckpt_step(c), 2);
    mr_ckpt_close(c);
    mr_io_replace(NULL);
    CHECK(mr_path_exists(to));

    CHECK_OK(mr_ckpt_open_newest(dir, lock, NULL, NULL, &c));
    CHECK_STR(mr_ckpt_path(c), from);
    mr_ckpt_close(c);
    CHECK(!mr_path_exists(to));
    // when both exist, the step counts once and the replacement wins
    CHECK_OK(mr_dir_make(to));
    check_steps(2, (int64_t[]){2, 1});
    CHECK_OK(mr_save_repair(lock));
    CHECK(!mr_path_exists(to));
    // a path without a folder, and names that are no step
    CHECK_STR(mr_save_find("step-000000000009", find), "step-000000000009");
    CHECK_STR(mr_save_find("/no/such/step-000000000009", find), "/no/such/step-000000000009");
    CHECK_STR(mr_save_find("weights.pth", find), "weights.pth");
}

/* Retention stopped at any operation: no listed checkpoint is incomplete. */
static void stopped_retention(void)
{
    fault_install();
    fresh(5);
    fault_clear();
    CHECK_OK(mr_save_retain(lock, 3, 0, (int64_t[]){5, 4}, 2, report, NULL));
    long n = fault_operations();
    for (long i = 1; i <= n; i++) {
        fresh(5);
        fault_at(i, FAULT_ERRNO, EIO);
        mr_save_retain(lock, 3, 0, (int64_t[]){5, 4}, 2, report, NULL);
        fault_clear();
        CHECK_OK(mr_save_sweep(lock));
        int64_t *steps;
        int count;
        char path[700];
        CHECK_OK(mr_ckpt_steps(dir, &steps, &count));
        CHECK(count >= 3);
        for (int k = 0; k < count; k++)
            CHECK_OK(mr_save_verify(mr_ckpt_dir(dir, steps[k], path, sizeof path)));
        mr_free(steps);
    }
    mr_io_replace(NULL);
}

int main(void)
{
    snprintf(dir, sizeof dir, "%s", case_dir("keep"));
    retention();
    sweep();
    put_back();
    stopped_retention();
    stray();
    left_behind();
    mr_run_lock_release(lock);
    mr_dir_remove(dir);
    return check_done();
}
