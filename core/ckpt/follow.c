/* ckpt: the part of ranks other than 0 in a save by several ranks (ranks.c). Such a rank waits for
 * an invitation, writes its shard, and reads the outcome of the save. Licence: Apache-2.0 */
#include "ckpt/save.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What rank 0 has written to ckpt/ for this save. */
typedef struct news {
    int attempt;  // the newest invitation; 0: none
    int64_t save; // newest save with any file
} news;

static mr_status look(const mr_save_job *job, news *out)
{
    char ckpt[MR_SAVE_PATH], **names;
    const char *rest;
    int n;
    *out = (news){0};
    mr_save_path(ckpt, "%s/ckpt", job->owner->dir);
    MR_TRY(mr_dir_list(ckpt, &names, &n));
    for (int i = 0; i < n; i++) {
        int64_t step = mr_save_step_of(names[i], &rest);
        int64_t save = step < 0 ? mr_save_number_in(names[i], MR_SAVE_ENDED, job->owner, &rest)
                                : mr_save_number_in(rest, ".tmp-", job->owner, &rest);
        out->save = MR_MAX(out->save, save);
        if (step == job->step && save == job->save && *rest == '.')
            out->attempt = MR_MAX(out->attempt, atoi(rest + 1));
    }
    mr_dir_list_free(names, n);
    return MR_OK;
}

/* Looks once at the files of rank 0. *ended: the save has ended, and the status is its result. */
static mr_status listen(const mr_save_job *job, news *now, bool *ended)
{
    MR_TRY(look(job, now));
    // read the outcome after that look: rank 0 writes it before it continues
    mr_status st = mr_save_read_outcome(job, ended);
    if (*ended || st != MR_OK)
        return st;
    if (now->save > job->save) {
        *ended = true;
        return mr_fail(MR_E_CKPT,
                       "rank 0 already started save %lld of this launch; this rank is at save %lld",
                       (long long)now->save, (long long)job->save);
    }
    st = mr_save_check_owner(job->owner);
    *ended = st == MR_E_LOCK;
    return st;
}

/* Writes the reason for rank 0. If the invitation is gone, rank 0 has withdrawn it. */
static void note_failure(const mr_save_job *job, const char *dir)
{
    char path[MR_SAVE_PATH], text[MR_SAVE_TEXT_MAX], host[72] = "";
    if (gethostname(host, sizeof host - 1))
        snprintf(host, sizeof host, "unknown");
    const int n = snprintf(text, sizeof text, "host %s: ", host);
    mr_error_format(mr_error_last(), text + n, sizeof text - (size_t)n);
    mr_save_rank_file(path, dir, job->owner->rank, job->owner->ranks, ".failed");
    if (!mr_path_exists(dir) || mr_file_replace(path, text, strlen(text)) == MR_OK)
        return;
    mr_error_clear();
    // on a full disk, an empty file may still be possible; rank 0 waits for its name only
    const int fd = mr_io_table()->open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0)
        mr_io_table()->close(fd);
}

mr_status mr_save_follow(const mr_save_job *job)
{
    for (int done = 0;;) {
        int64_t pause_ns = MR_SAVE_PAUSE_NS;
        const double began = mr_now_s();
        news now;
        do {
            bool ended = false;
            mr_status st = listen(job, &now, &ended);
            if (ended)
                return st;
            // an input error may not recur in the next attempt
            if (st != MR_OK)
                now.attempt = 0;
        } while (now.attempt <= done && mr_save_pause_since(job, began, &pause_ns));
        if (now.attempt <= done)
            return mr_fail(MR_E_CKPT,
                           "rank 0 did not report the save of step %lld within %.3g s; try: check "
                           "that its process still runs",
                           (long long)job->step, mr_save_waited_s(job, began));
        done = now.attempt;
        char dir[MR_SAVE_PATH];
        mr_save_attempt_dir(dir, job, done);
        if (mr_save_part(job, done, dir) != MR_OK)
            note_failure(job, dir);
    }
}
