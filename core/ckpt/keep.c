/* ckpt: cleans up the ckpt/ directory: removes leftovers of dead launches and applies retention
 * (reference: reliability 3.4).
 * Licence: Apache-2.0 */
#include "ckpt/blocks.h"
#include "ckpt/save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERIFIED_LEAST = 2 };

/* ---- leftovers ---- */

/* Was this temporary directory made by this launch or an earlier one of the same run? */
static bool is_ours(const char *rest, const mr_run_lock *lock)
{
    size_t n = strlen(mr_run_lock_id(lock));
    if (strncmp(rest, ".tmp-", 5) || strncmp(rest + 5, mr_run_lock_id(lock), n) ||
        rest[5 + n] != '-')
        return false;
    return strtoll(rest + 6 + n, NULL, 10) <= mr_run_lock_fence(lock);
}

/* Is RUN-FENCE.SAVE of an earlier launch of the same run? */
static bool ended_before(const char *rest, const mr_run_lock *lock)
{
    size_t n = strlen(mr_run_lock_id(lock));
    return strncmp(rest, mr_run_lock_id(lock), n) == 0 && rest[n] == '-' &&
           strtoll(rest + n + 1, NULL, 10) < mr_run_lock_fence(lock);
}

/* Repairs one name of ckpt/: if a process was killed after it moved a checkpoint aside and before
 * it committed the replacement, gives the checkpoint its name back. If the replacement exists,
 * removes the old one. */
static mr_status put_back(const mr_run_lock *lock, const char *name, const char *path)
{
    char dir[MR_SAVE_PATH];
    int64_t step = mr_save_step_aside(name);
    if (step < 0)
        return MR_OK;
    mr_ckpt_dir(mr_run_lock_dir(lock), step, dir, sizeof dir);
    if (mr_path_exists(dir))
        return mr_dir_remove(path);
    if (mr_io_table()->rename(path, dir))
        return mr_fail(MR_E_IO, "%s: cannot be renamed back to %s: %s", path, dir, strerror(errno));
    return MR_OK;
}

static mr_status remove_leftover(const mr_run_lock *lock, const char *name, const char *path)
{
    const char *rest;
    bool dead = mr_save_step_of(name, &rest) >= 0 && is_ours(rest, lock);
    // other ranks may still wait for outcomes of this launch
    if (strncmp(name, MR_SAVE_ENDED, sizeof MR_SAVE_ENDED - 1) == 0)
        dead = ended_before(name + sizeof MR_SAVE_ENDED - 1, lock);
    if (dead || strncmp(name, ".trash-", 7) == 0 || strncmp(name, "LATEST.tmp-", 11) == 0)
        return mr_dir_remove(path);
    return MR_OK;
}

/* Calls `what` for each name in ckpt/, up to the first failure. */
static mr_status for_each(const mr_run_lock *lock,
                          mr_status (*what)(const mr_run_lock *, const char *, const char *))
{
    char ckpt[MR_SAVE_PATH], path[MR_SAVE_PATH], **names;
    int n;
    MR_TRY(mr_run_lock_check(lock));
    MR_TRY(mr_save_make_dir(mr_run_lock_dir(lock), ckpt));
    MR_TRY(mr_dir_list(ckpt, &names, &n));
    mr_status st = MR_OK;
    for (int i = 0; i < n && st == MR_OK; i++)
        st = what(lock, names[i], mr_save_path(path, "%s/%s", ckpt, names[i]));
    mr_dir_list_free(names, n);
    return st;
}

mr_status mr_save_repair(const mr_run_lock *lock)
{
    return for_each(lock, put_back);
}

mr_status mr_save_sweep(const mr_run_lock *lock)
{
    MR_TRY(mr_save_repair(lock));
    return for_each(lock, remove_leftover);
}

void mr_save_condemn(const char *run_dir, int64_t step)
{
    char dir[MR_SAVE_PATH], bad[MR_SAVE_PATH];
    mr_ckpt_dir(run_dir, step, dir, sizeof dir);
    for (int k = 0; k < 100; k++) {
        mr_save_path(bad, k ? "%s/ckpt/.bad-step-%012lld-%d" : "%s/ckpt/.bad-step-%012lld", run_dir,
                     (long long)step, k);
        if (mr_path_exists(bad))
            continue;
        mr_io_table()->rename(dir, bad);
        return;
    }
}

mr_status mr_save_verify(const char *dir)
{
    mr_ckpt *ckpt;
    MR_TRY(mr_save_open(dir, &ckpt));
    mr_status st = mr_ckpt_verify(ckpt);
    mr_ckpt_close(ckpt);
    return st;
}

/* ---- retention ---- */

/* Removes a checkpoint so that no partial one can ever be opened: renames it, then removes its
 * manifest first. */
static mr_status discard(const mr_run_lock *lock, int64_t step)
{
    char dir[MR_SAVE_PATH], trash[MR_SAVE_PATH], ckpt[MR_SAVE_PATH], manifest[MR_SAVE_PATH];
    mr_save_path(ckpt, "%s/ckpt", mr_run_lock_dir(lock));
    mr_ckpt_dir(mr_run_lock_dir(lock), step, dir, sizeof dir);
    mr_save_path(trash, "%s/.trash-step-%012lld", ckpt, (long long)step);
    MR_TRY(mr_dir_remove(trash));
    if (mr_io_table()->rename(dir, trash))
        return mr_fail(MR_E_IO, "%s: cannot rename to trash", dir);
    MR_TRY(mr_dir_sync(ckpt));
    mr_save_path(manifest, "%s/" MR_CKPT_MANIFEST, trash);
    mr_io_table()->unlink(manifest);
    return mr_dir_remove(trash);
}

mr_status mr_ckpt_drop_after(const mr_run_lock *lock, int64_t step)
{
    int64_t *steps;
    int n;
    MR_TRY(mr_run_lock_check(lock));
    MR_TRY(mr_ckpt_steps(mr_run_lock_dir(lock), &steps, &n));
    mr_status st = MR_OK;
    for (int i = 0; i < n && steps[i] > step && st == MR_OK; i++)
        st = discard(lock, steps[i]);
    mr_free(steps);
    return st;
}

/* Is the checkpoint valid? Does not read one that was verified before. Sets a damaged one aside and
 * calls `report`. */
static bool is_good(const mr_run_lock *lock, int64_t step, const int64_t *verified, int n_verified,
                    mr_ckpt_report *report, void *user)
{
    for (int i = 0; i < n_verified; i++)
        if (verified[i] == step)
            return true;
    char dir[MR_SAVE_PATH], line[1500];
    if (mr_save_verify(mr_ckpt_dir(mr_run_lock_dir(lock), step, dir, sizeof dir)) == MR_OK)
        return true;
    const mr_error *err = mr_error_last();
    if (err->code == MR_E_FORMAT) {
        size_t n =
            (size_t)snprintf(line, sizeof line, "renamed to .bad-step-%012lld: ", (long long)step);
        mr_error_format(err, line + n, sizeof line - n);
        mr_save_condemn(mr_run_lock_dir(lock), step);
        if (report)
            report(user, line);
    }
    return false;
}

mr_status mr_save_retain(const mr_run_lock *lock, int keep, int64_t keep_every,
                         const int64_t *verified, int n_verified, mr_ckpt_report *report,
                         void *user)
{
    int64_t *steps;
    int n, good = 0;
    MR_TRY(mr_ckpt_steps(mr_run_lock_dir(lock), &steps, &n));
    mr_status st = MR_OK;
    // look for two valid ones, first among those that are kept anyway
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n && st == MR_OK; i++) {
            bool stays = i < keep || (keep_every > 0 && steps[i] % keep_every == 0);
            if (stays != (pass == 0))
                continue;
            bool kept = good < VERIFIED_LEAST &&
                        is_good(lock, steps[i], verified, n_verified, report, user);
            if (kept)
                good++;
            else if (pass == 1 && good >= VERIFIED_LEAST)
                st = discard(lock, steps[i]);
        }
    mr_free(steps);
    return st;
}
