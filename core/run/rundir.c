/* run: creates run directories, outputs/NNN-name. Licence: Apache-2.0 */
#include "moonreel/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mr_status check_name(const char *name)
{
    size_t n = strlen(name);
    bool good = n >= 1 && n <= 100 && name[0] != '.';
    for (size_t i = 0; i < n && good; i++)
        good = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
               (name[i] >= '0' && name[i] <= '9') || strchr("._-", name[i]);
    return good ? MR_OK
                : mr_fail(MR_E_USAGE,
                          "run name '%.120s': expected 1 to 100 of A-Z a-z 0-9 . _ -, not starting "
                          "with a dot",
                          name);
}

static mr_status largest_number(const char *outputs, long *out)
{
    char **names;
    int n;
    MR_TRY(mr_dir_list(outputs, &names, &n));
    *out = 0;
    for (int i = 0; i < n; i++) {
        char *end;
        long number = names[i][0] >= '0' && names[i][0] <= '9' ? strtol(names[i], &end, 10) : 0;
        if (number > *out && number < 100000000 && *end == '-')
            *out = number;
    }
    mr_dir_list_free(names, n);
    return MR_OK;
}

/* Create the folders in a run directory. Each is durable before the folder that contains it. `path`
 * itself may exist. */
static mr_status make_inside(const char *path, bool staged)
{
    static const char *const plain[] = {"ckpt", "samples", "log"}, *const outer[] = {"stages"};
    const char *const *names = staged ? outer : plain;
    for (size_t i = 0; i < (staged ? MR_COUNT(outer) : MR_COUNT(plain)); i++) {
        char sub[4096];
        if ((size_t)snprintf(sub, sizeof sub, "%s/%s", path, names[i]) >= sizeof sub)
            return mr_fail(
                MR_E_USAGE,
                "%s: the path of the run is too long; try: a shorter output folder or run name",
                path);
        MR_TRY(mr_dir_make(sub));
    }
    return mr_dir_sync(path);
}

mr_status mr_run_stage(const char *run_dir, const char *name, char *path, size_t cap)
{
    MR_TRY(check_name(name));
    char stages[4096];
    if ((size_t)snprintf(stages, sizeof stages, "%s/stages", run_dir) >= sizeof stages ||
        (size_t)snprintf(path, cap, "%s/%s", stages, name) >= cap)
        return mr_fail(
            MR_E_USAGE,
            "%s: the path of the run is too long; try: a shorter output folder or run name",
            run_dir);
    MR_TRY(make_inside(path, false));
    return mr_dir_sync(stages);
}

mr_status mr_run_create(const char *outputs, const char *name, bool staged, char *path, size_t cap)
{
    MR_TRY(check_name(name));
    // If another process takes the number first, find the next one. One whose run did not begin may
    // remove an empty `outputs`.
    for (int tries = 0; tries < 1000; tries++) {
        long number;
        MR_TRY(mr_dir_make(outputs));
        MR_TRY(largest_number(outputs, &number));
        if ((size_t)snprintf(path, cap, "%s/%03ld-%s", outputs, number + 1, name) >= cap)
            return mr_fail(
                MR_E_USAGE,
                "%s: the path of the run is too long; try: a shorter output folder or run name",
                outputs);
        if (mr_io_table()->mkdir(path, 0755)) {
            if (errno == EEXIST || errno == ENOENT)
                continue;
            return mr_fail(MR_E_IO, "%s: cannot create directory: %s", path, strerror(errno));
        }
        MR_TRY(make_inside(path, staged));
        // `outputs` itself must be durable as well
        char parent[4096];
        if ((size_t)snprintf(parent, sizeof parent, "%s/..", outputs) >= sizeof parent)
            return mr_fail(
                MR_E_USAGE,
                "%s: the path of the run is too long; try: a shorter output folder or run name",
                outputs);
        MR_TRY(mr_dir_sync(outputs));
        return mr_dir_sync(parent);
    }
    return mr_fail(MR_E_IO,
                   "%s: cannot find a free run number in 1000 tries: other processes create runs "
                   "there all the time; try: again later, or another output folder",
                   outputs);
}
