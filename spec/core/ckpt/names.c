/* ckpt/names: steps of a run, newest first; only committed directories count. */
#include "ckptcase.h"
#include "ckpt/save.h"

int main(void)
{
    const char *rest;
    CHECK_INT(mr_save_step_of("step-000000000012", &rest), 12);
    CHECK_STR(rest, "");
    CHECK_INT(mr_save_step_of("step-000000000012.tmp-a-1.0", &rest), 12);
    CHECK_STR(rest, ".tmp-a-1.0");
    CHECK_INT(mr_save_step_of("step-12", &rest), -1);
    CHECK_INT(mr_save_step_of("LATEST", &rest), -1);

    const char *dir = case_dir("names");
    char ckpt[MR_SAVE_PATH], path[MR_SAVE_PATH + 64];
    int64_t *steps;
    int n;
    CHECK_OK(mr_ckpt_steps(dir, &steps, &n)); // a run without the folder has none
    CHECK_INT(n, 0);
    CHECK_OK(mr_save_make_dir(dir, ckpt));
    CHECK_OK(mr_save_make_dir(dir, ckpt));
    static const char *const names[] = {"step-000000000002", "step-000000000010",
                                        "step-000000000011.tmp-a-1.0", ".bad-step-000000000003"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", ckpt, names[i]);
        CHECK_OK(mr_dir_make(path));
    }
    CHECK_OK(mr_ckpt_steps(dir, &steps, &n));
    if (CHECK_INT(n, 2))
        CHECK(steps[0] == 10 && steps[1] == 2);
    mr_free(steps);
    CHECK_STR(mr_ckpt_dir("r", 7, path, sizeof path), "r/ckpt/step-000000000007");
    mr_dir_remove(dir);
    return check_done();
}
