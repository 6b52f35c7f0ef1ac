/* ckpt: names in ckpt/ (reference: reliability 3.4): step-N is committed,
 * step-N.tmp-RUN-FENCE.SAVE.TRY is being written, .replaced- is kept until its replacement is
 * committed, .trash- is being removed, .bad- is damaged and kept. Licence: Apache-2.0 */
#define _DEFAULT_SOURCE
#include "ckpt/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DIGITS = 12 };

const char *mr_save_path(char buf[MR_SAVE_PATH], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, MR_SAVE_PATH, fmt, ap);
    va_end(ap);
    return buf;
}

const char *mr_ckpt_dir(const char *run_dir, int64_t step, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s/ckpt/step-%012lld", run_dir, (long long)step);
    return buf;
}

int64_t mr_save_step_of(const char *name, const char **rest)
{
    if (strncmp(name, "step-", 5) || strspn(name + 5, "0123456789") != DIGITS)
        return -1;
    *rest = name + 5 + DIGITS;
    return strtoll(name + 5, NULL, 10);
}

int64_t mr_save_step_aside(const char *name)
{
    enum { PREFIX = sizeof MR_SAVE_ASIDE - 1 };
    const char *rest;
    return strncmp(name, MR_SAVE_ASIDE, PREFIX) ? -1 : mr_save_step_of(name + PREFIX, &rest);
}

const char *mr_save_find(const char *dir, char buf[MR_SAVE_PATH])
{
    const char *slash = strrchr(dir, '/'), *name = slash ? slash + 1 : dir, *rest;
    int64_t step = mr_save_step_of(name, &rest);
    if (step < 0 || *rest || mr_path_exists(dir))
        return dir;
    char **names, parent[MR_SAVE_PATH];
    int n;
    mr_save_path(parent, "%.*s", slash ? (int)(slash - dir) : 1, slash ? dir : ".");
    if (mr_dir_list(parent, &names, &n) != MR_OK) {
        mr_error_clear();
        return dir;
    }
    const char *found = dir;
    for (int i = 0; i < n && found == dir; i++)
        if (mr_save_step_aside(names[i]) == step)
            found = mr_save_path(buf, "%s/%s", parent, names[i]);
    mr_dir_list_free(names, n);
    return found;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Is the name in ckpt/ something other than a directory? A link is not a checkpoint, because its
 * target has another name. If lstat fails, it may be a directory. */
static bool is_stray(const char *ckpt, const char *name)
{
    char path[MR_SAVE_PATH];
    struct stat s;
    return lstat(mr_save_path(path, "%s/%s", ckpt, name), &s) == 0 && !S_ISDIR(s.st_mode);
}

mr_status mr_ckpt_steps(const char *run_dir, int64_t **steps, int *n)
{
    char ckpt[MR_SAVE_PATH], **names;
    int count;
    *steps = NULL, *n = 0;
    mr_save_path(ckpt, "%s/ckpt", run_dir);
    if (!mr_path_exists(ckpt))
        return MR_OK;
    MR_TRY(mr_dir_list(ckpt, &names, &count));
    int64_t *list = mr_alloc(sizeof *list * (size_t)(count + 1));
    for (int i = 0; i < count && list; i++) {
        const char *rest;
        int64_t step = mr_save_step_of(names[i], &rest);
        if (step < 0 || *rest)
            step = mr_save_step_aside(names[i]);
        if (step >= 0 && !is_stray(ckpt, names[i]))
            list[(*n)++] = step;
    }
    mr_dir_list_free(names, count);
    if (!list)
        return mr_fail_memory(sizeof *list * (size_t)count);
    qsort(list, (size_t)*n, sizeof *list, newest_first);
    // count a step once, even while its old directory is aside
    int kept = 0;
    for (int i = 0; i < *n; i++)
        if (!kept || list[kept - 1] != list[i])
            list[kept++] = list[i];
    *n = kept;
    *steps = list;
    return MR_OK;
}

mr_status mr_save_make_dir(const char *run_dir, char ckpt[MR_SAVE_PATH])
{
    mr_save_path(ckpt, "%s/ckpt", run_dir);
    if (mr_path_exists(ckpt))
        return MR_OK;
    MR_TRY(mr_dir_make(ckpt));
    return mr_dir_sync(run_dir);
}
