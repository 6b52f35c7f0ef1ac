/* ckpt/newest: only the owner of the run sets damaged checkpoints aside, and only for bytes that
 * were read: input errors and absent files are no damage. */
#include "ckptcase.h"

#include <sys/stat.h>

static char dir[600];

static int lines;
static void report(void *user, const char *line)
{
    lines++;
    snprintf(user, 1500, "%s", line);
}

/* A part of the newest checkpoint, and where it is hidden. */
static char part[700], hidden[800];
static int pauses_left;
static void come_back(void)
{
    if (--pauses_left == 0)
        CHECK_INT(rename(hidden, part), 0);
}

/* Absent for three pauses it is found, absent for good it is skipped and stays; nothing is set
 * aside. */
static void absent(mr_run_lock *lock, const char *name)
{
    char text[1500] = "", step[600];
    mr_ckpt *c;
    snprintf(part, sizeof part, "%s/%s", mr_ckpt_dir(dir, 3, step, sizeof step), name);
    snprintf(hidden, sizeof hidden, "%s/hidden", dir);
    case_clock();
    case_meanwhile = come_back;
    for (int after = 3; after < 100; after += 90) {
        CHECK_INT(rename(part, hidden), 0);
        pauses_left = after, case_slept_ns = 0, lines = 0;
        CHECK_OK(mr_ckpt_open_newest(dir, lock, report, text, &c));
        CHECK_INT(mr_ckpt_step(c), after == 3 ? 3 : 2);
        CHECK_INT(lines, after == 3 ? 0 : 1);
        CHECK(after == 3 || (case_slept_ns >= 2000000000 && case_slept_ns <= 10000000000));
        mr_ckpt_close(c);
        CHECK_INT(case_count(dir, ".bad-"), 0);
    }
    CHECK(strstr(text, "checkpoint step 3 skipped: ") && strstr(text, name));
    case_meanwhile = NULL;
    mr_clock_replace(NULL);
    CHECK_INT(rename(hidden, part), 0);
}

int main(void)
{
    char text[1500] = "";
    mr_run_lock *lock;
    mr_saver *saver;
    mr_ckpt *c;
    snprintf(dir, sizeof dir, "%s", case_dir("newest"));
    CHECK_FAILS(mr_ckpt_open_newest(dir, NULL, NULL, NULL, &c), MR_E_USAGE, "no checkpoint in it");
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock}, &saver));
    for (int64_t step = 1; step <= 3; step++)
        CHECK_OK(case_save(saver, step));
    mr_saver_close(saver);

    absent(lock, "r00000-of-00001.safetensors");
    absent(lock, "MANIFEST.json");

    // an input error is no damage, even for the owner
    static const int errors[] = {EIO, EACCES, ENOENT, ESTALE};
    case_clock();
    fault_install();
    CHECK_OK(mr_ckpt_open_newest(dir, lock, NULL, NULL, &c));
    mr_ckpt_close(c);
    long operations = fault_operations();
    for (size_t k = 0; k < MR_COUNT(errors); k++)
        for (long i = 1; i <= operations; i++) {
            fault_at(i, FAULT_ERRNO, errors[k]);
            CHECK_OK(mr_ckpt_open_newest(dir, lock, NULL, NULL, &c));
            fault_clear();
            // ESTALE ends when the file is opened again, so the newest step is still found
            CHECK(mr_ckpt_step(c) >= (errors[k] == ESTALE ? 3 : 2) && case_exact(c));
            mr_ckpt_close(c);
        }
    CHECK(operations > 10);
    CHECK_INT(case_count(dir, ".bad-"), 0);
    mr_io_replace(NULL);
    mr_clock_replace(NULL);

    // a reader without the lock skips it and renames nothing
    lines = 0, text[0] = 0;
    case_flip_last_byte(dir, 3);
    // a request to stop skips none, and takes no older one
    mr_interrupt_set(true);
    CHECK_FAILS(mr_ckpt_open_newest(dir, NULL, report, text, &c), MR_E_STOPPED, "");
    mr_interrupt_set(false);
    CHECK_STR(text, "");
    CHECK_OK(mr_ckpt_open_newest(dir, NULL, report, text, &c));
    CHECK_INT(mr_ckpt_step(c), 2);
    CHECK(case_exact(c));
    mr_ckpt_close(c);
    CHECK_INT(lines, 1);
    CHECK(strstr(text, "checkpoint step 3 skipped: "));
    CHECK_INT(case_count(dir, ".bad-"), 0);

    // the owner sets it aside and keeps it
    CHECK_OK(mr_ckpt_open_newest(dir, lock, report, text, &c));
    CHECK_INT(mr_ckpt_step(c), 2);
    mr_ckpt_close(c);
    CHECK(strstr(text, "step 3 skipped and renamed to .bad-"));
    CHECK_INT(case_count(dir, ".bad-step-000000000003"), 1);
    int64_t *steps;
    int n;
    CHECK_OK(mr_ckpt_steps(dir, &steps, &n));
    CHECK_INT(n, 2);
    CHECK_INT(steps[0], 2);
    mr_free(steps);

    // all are damaged: an error that reports this
    case_flip_last_byte(dir, 1);
    case_flip_last_byte(dir, 2);
    CHECK_FAILS(mr_ckpt_open_newest(dir, NULL, NULL, NULL, &c), MR_E_CKPT,
                "none of its 2 checkpoints is valid");
    CHECK_INT(mr_status_exit(MR_E_CKPT), 8);
    mr_run_lock_release(lock);
    mr_dir_remove(dir);
    return check_done();
}
