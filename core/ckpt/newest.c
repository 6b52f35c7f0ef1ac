/* ckpt: finds the newest valid checkpoint (reference: reliability 3.3). Licence: Apache-2.0 */
#include "ckpt/blocks.h"
#include "ckpt/save.h"

#include <stdio.h>

static void announce(mr_ckpt_report *report, void *user, int64_t step, bool set_aside)
{
    char line[1500];
    size_t n =
        (size_t)snprintf(line, sizeof line, "checkpoint step %lld skipped%s: ", (long long)step,
                         set_aside ? " and renamed to .bad-" : "");
    mr_error_format(mr_error_last(), line + n, sizeof line - n);
    if (report)
        report(user, line);
}

// lack of memory, a newer format and a request to stop do not prove a checkpoint invalid
static bool says_nothing(mr_status st)
{
    return st == MR_E_MEMORY || st == MR_E_UNSUPPORTED || st == MR_E_STOPPED;
}

mr_status mr_ckpt_open_newest(const char *run_dir, const mr_run_lock *lock, mr_ckpt_report *report,
                              void *user, mr_ckpt **out)
{
    char dir[MR_SAVE_PATH];
    int64_t *steps;
    int n;
    *out = NULL;
    // if a checkpoint cannot be renamed back, it is found under the other name; opening a saver
    // reports the error
    if (lock && mr_save_repair(lock) != MR_OK)
        mr_error_clear();
    MR_TRY(mr_ckpt_steps(run_dir, &steps, &n));
    mr_status st = n ? MR_OK : mr_fail(MR_E_USAGE, "%s: no checkpoint in it", run_dir);
    bool found = false;
    for (int i = 0; i < n && !found; i++) {
        mr_ckpt *c = NULL;
        st = mr_save_open(mr_ckpt_dir(run_dir, steps[i], dir, sizeof dir), &c);
        if (st == MR_OK && mr_ckpt_step(c) != steps[i])
            st = mr_fail(MR_E_FORMAT, "%s: its manifest has step %lld, not the step of its name",
                         dir, (long long)mr_ckpt_step(c));
        if (st == MR_OK)
            st = mr_ckpt_verify(c);
        if (st == MR_OK) {
            *out = c;
            found = true;
            break;
        }
        mr_ckpt_close(c);
        if (says_nothing(st))
            break;
        // a missing or unreadable file may be temporary. Only bytes that were read and do not match
        // prove damage
        bool damaged = st == MR_E_FORMAT && lock;
        announce(report, user, steps[i], damaged);
        if (damaged)
            mr_save_condemn(run_dir, steps[i]);
    }
    mr_free(steps);
    if (found || !n || says_nothing(st))
        return st;
    char why[800];
    mr_error_format(mr_error_last(), why, sizeof why);
    return mr_fail(MR_E_CKPT, "%s: none of its %d checkpoints is valid; the oldest: %s", run_dir, n,
                   why);
}
