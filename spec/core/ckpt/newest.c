/* ckpt/newest: damaged checkpoints are set aside by the owner of the run only, errors of input are
 * not damage. */
#include "ckptcase.h"

static char dir[600];

static int lines;
static void told(void *user, const char *line)
{
    lines++;
    snprintf(user, 1500, "%s", line);
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

    // an input error is no damage, even for the owner
    fault_install();
    CHECK_OK(mr_ckpt_open_newest(dir, lock, NULL, NULL, &c));
    mr_ckpt_close(c);
    long operations = fault_operations();
    for (long i = 1; i <= operations; i++) {
        fault_at(i, FAULT_ERRNO, EIO);
        CHECK_OK(mr_ckpt_open_newest(dir, lock, NULL, NULL, &c));
        fault_clear();
        CHECK(mr_ckpt_step(c) >= 2 && case_exact(c));
        mr_ckpt_close(c);
    }
    CHECK(operations > 10);
    CHECK_INT(case_count(dir, ".bad-"), 0);
    mr_io_replace(NULL);

    // a reader without the lock passes over and renames nothing
    case_flip_last_byte(dir, 3);
    // a request to stop passes none over, and takes no older one
    mr_interrupt_set(true);
    CHECK_FAILS(mr_ckpt_open_newest(dir, NULL, told, text, &c), MR_E_STOPPED, "");
    mr_interrupt_set(false);
    CHECK_STR(text, "");
    CHECK_OK(mr_ckpt_open_newest(dir, NULL, told, text, &c));
    CHECK_INT(mr_ckpt_step(c), 2);
    CHECK(case_exact(c));
    mr_ckpt_close(c);
    CHECK_INT(lines, 1);
    CHECK(strstr(text, "checkpoint step 3 passed over: "));
    CHECK_INT(case_count(dir, ".bad-"), 0);

    // the owner sets it aside and keeps it
    CHECK_OK(mr_ckpt_open_newest(dir, lock, told, text, &c));
    CHECK_INT(mr_ckpt_step(c), 2);
    mr_ckpt_close(c);
    CHECK(strstr(text, "step 3 passed over and set aside as .bad-"));
    CHECK_INT(case_count(dir, ".bad-step-000000000003"), 1);
    int64_t *steps;
    int n;
    CHECK_OK(mr_ckpt_steps(dir, &steps, &n));
    CHECK_INT(n, 2);
    CHECK_INT(steps[0], 2);
    mr_free(steps);

    // all damaged: an error that says so
    case_flip_last_byte(dir, 1);
    case_flip_last_byte(dir, 2);
    CHECK_FAILS(mr_ckpt_open_newest(dir, NULL, NULL, NULL, &c), MR_E_CKPT,
                "none of its 2 checkpoints is valid");
    CHECK_INT(mr_status_exit(MR_E_CKPT), 8);
    mr_run_lock_release(lock);
    mr_dir_remove(dir);
    return check_done();
}
