/* ckpt/rundir: numbers grow, two concurrent launches get two directories, names are plain. */
#include "ckptcase.h"

#include <sys/wait.h>
#include <unistd.h>

/* Another launch makes the same directory between the search and the mkdir. */
static const mr_io *honest;
static int taken;
static int late_mkdir(const char *path, int mode)
{
    if (strstr(path, "-late") && !strstr(path, "-late/") && taken < 2) {
        taken++;
        honest->mkdir(path, mode);
    }
    return honest->mkdir(path, mode);
}

static void taken_meanwhile(const char *outputs)
{
    char path[4096], first[4200];
    honest = mr_io_table();
    mr_io late = *honest;
    late.mkdir = late_mkdir;
    mr_io_replace(&late);
    CHECK_OK(mr_run_create(outputs, "late", false, path, sizeof path));
    mr_io_replace(honest);
    CHECK_INT(taken, 2);
    // no file was created in the directories of the others
    char **names;
    int n, empty = 0;
    CHECK_OK(mr_dir_list(outputs, &names, &n));
    for (int i = 0; i < n; i++) {
        snprintf(first, sizeof first, "%s/%s/ckpt", outputs, names[i]);
        empty += strstr(names[i], "-late") && !mr_path_exists(first);
    }
    mr_dir_list_free(names, n);
    CHECK_INT(empty, 2);
}

/* Another launch removes the empty folder of runs before the mkdir. */
static int removed;
static int mkdir_in_removed(const char *path, int mode)
{
    char *outer = strdup(path), *slash = strrchr(outer, '/');
    *slash = 0;
    if (strstr(path, "-alone") && !strstr(path, "-alone/") && removed < 2) {
        removed++;
        CHECK_INT(rmdir(outer), 0);
    }
    free(outer);
    return honest->mkdir(path, mode);
}

static void removed_meanwhile(const char *outputs)
{
    char path[4096], want[4300], empty[4200];
    honest = mr_io_table();
    mr_io late = *honest;
    late.mkdir = mkdir_in_removed;
    mr_io_replace(&late);
    snprintf(empty, sizeof empty, "%s/empty", outputs);
    CHECK_OK(mr_run_create(empty, "alone", false, path, sizeof path));
    mr_io_replace(honest);
    CHECK_INT(removed, 2);
    snprintf(want, sizeof want, "%s/001-alone", empty);
    CHECK_STR(path, want);
}

int main(void)
{
    char outputs[600], path[4096], want[4200];
    snprintf(outputs, sizeof outputs, "%s/outputs", case_dir("rundir"));
    CHECK_OK(mr_run_create(outputs, "demo", false, path, sizeof path));
    snprintf(want, sizeof want, "%s/001-demo", outputs);
    CHECK_STR(path, want);
    snprintf(want, sizeof want, "%s/001-demo/samples", outputs);
    CHECK(mr_path_exists(want));
    // one more than the largest number, whatever other files exist
    snprintf(want, sizeof want, "%s/041-x", outputs);
    CHECK_OK(mr_dir_make(want));
    snprintf(want, sizeof want, "%s/99999999999999999999-x", outputs);
    CHECK_OK(mr_dir_make(want));
    snprintf(want, sizeof want, "%s/777", outputs);
    CHECK_OK(mr_dir_make(want));
    CHECK_OK(mr_run_create(outputs, "a.b_c-9", false, path, sizeof path));
    snprintf(want, sizeof want, "%s/042-a.b_c-9", outputs);
    CHECK_STR(path, want);
    snprintf(want, sizeof want, "%s/999-x", outputs);
    CHECK_OK(mr_dir_make(want));
    CHECK_OK(mr_run_create(outputs, "big", false, path, sizeof path));
    CHECK(strstr(path, "/1000-big"));
    static const char *const bad[] = {"", ".x", "a/b", "a b", "\xc3\xa4", "a\nb"};
    for (size_t i = 0; i < MR_COUNT(bad); i++)
        CHECK_FAILS(mr_run_create(outputs, bad[i], false, path, sizeof path), MR_E_USAGE,
                    "run name");
    CHECK_FAILS(mr_run_create(outputs, "x", false, path, 10), MR_E_USAGE, "too long");
    CHECK_FAILS(mr_run_create("/proc/no/such", "x", false, path, sizeof path), MR_E_IO,
                "cannot create directory");
    // stages: created when they begin, and used as they are later
    char outer[4096];
    CHECK_OK(mr_run_create(outputs, "row", true, outer, sizeof outer));
    snprintf(want, sizeof want, "%s/ckpt", outer);
    CHECK(!mr_path_exists(want));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(mr_run_stage(outer, "one", path, sizeof path));
        snprintf(want, sizeof want, "%s/stages/one", outer);
        CHECK_STR(path, want);
        snprintf(want, sizeof want, "%s/stages/one/ckpt", outer);
        CHECK(mr_path_exists(want));
    }
    CHECK_FAILS(mr_run_stage(outer, "../x", path, sizeof path), MR_E_USAGE, "run name");
    CHECK_FAILS(mr_run_stage(outer, "one", path, 10), MR_E_USAGE, "too long");
    taken_meanwhile(outputs);
    removed_meanwhile(outputs);
    // six processes at the same time
    for (int i = 0; i < 6; i++)
        if (fork() == 0)
            _exit(mr_run_create(outputs, "race", false, path, sizeof path) == MR_OK ? 0 : 1);
    for (int i = 0; i < 6; i++) {
        int status;
        wait(&status);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    char **names;
    int n, races = 0;
    CHECK_OK(mr_dir_list(outputs, &names, &n));
    for (int i = 0; i < n; i++)
        races += strstr(names[i], "-race") != NULL;
    mr_dir_list_free(names, n);
    CHECK_INT(races, 6);
    mr_dir_remove(case_dir("rundir"));
    return check_done();
}
