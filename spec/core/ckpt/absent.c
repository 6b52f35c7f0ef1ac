/* ckpt/absent: a file that is absent or stale is tried again for some seconds; one that cannot be
 * read at all is not. */
#include "ckptcase.h"
#include "ckpt/blocks.h"

int main(void)
{
    case_clock();
    for (int i = 0; i < 2; i++) {
        const int err = i ? ESTALE : ENOENT;
        int pauses = 0, tries = 0;
        case_slept_ns = 0;
        errno = 0;
        while (mr_ckpt_again(err, &pauses))
            tries++;
        CHECK_INT(tries, 5);
        CHECK_INT(case_slept_ns, 3100000000);
        // a caller who gives up still gets the reason
        CHECK_INT(errno, err);
    }
    static const int others[] = {EIO, EACCES, ENOTDIR, EMFILE};
    case_slept_ns = 0;
    for (size_t i = 0; i < MR_COUNT(others); i++)
        CHECK(!mr_ckpt_again(others[i], &(int){0}));
    CHECK_INT(case_slept_ns, 0);

    // the checkpoint itself, its manifest, and one that is set aside
    mr_ckpt *c;
    mr_saver *saver;
    mr_run_lock *lock;
    char dir[600], step[700], to[800];
    snprintf(dir, sizeof dir, "%s", case_dir("absent"));
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock}, &saver));
    CHECK_OK(case_save(saver, 1));
    mr_saver_close(saver);
    mr_run_lock_release(lock);
    CHECK_OK(mr_save_open(mr_ckpt_dir(dir, 1, step, sizeof step), &c));
    mr_ckpt_close(c);
    snprintf(to, sizeof to, "%s/ckpt/.replaced-step-000000000001-1.1", dir);
    CHECK_INT(rename(step, to), 0);
    CHECK_OK(mr_save_open(step, &c));
    CHECK_STR(mr_ckpt_path(c), to);
    mr_ckpt_close(c);
    CHECK_INT(case_slept_ns, 0);
    CHECK_FAILS(mr_save_open(mr_ckpt_dir(dir, 2, step, sizeof step), &c), MR_E_IO,
                "step-000000000002/MANIFEST.json: cannot open");
    CHECK(!c && case_slept_ns == 3100000000);
    mr_dir_remove(dir);
    return check_done();
}
