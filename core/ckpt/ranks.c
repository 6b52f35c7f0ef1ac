/* ckpt: one checkpoint by several ranks. They meet in the run directory alone, and one rename by
 * rank 0 makes the whole visible or nothing:
 *
 *   rank 0      makes step-N.tmp-RUN-FENCE.SAVE.TRY: the invitation
 *   each rank   writes its shard r-of-n.safetensors there and then, durably, its part of the
 *               manifest r-of-n.json: done; or r-of-n.failed with the reason
 *   rank 0      waits for all parts, checks that they fit together, writes MANIFEST.json, removes
 *               the parts and renames the directory: committed. On any failure it removes the
 *               directory and invites again under the next TRY
 *   rank 0      writes .ended-RUN-FENCE.SAVE with the outcome, which the others wait for
 *
 * SAVE counts the saves of a launch, on every rank alike. A rank that dies leaves no part, so its
 * save is given up after a deadline; when rank 0 dies the others give up after theirs.
 * Licence: Apache-2.0 */
#include "ckpt/save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char committed[] = "committed";

enum { PAUSE_MAX_NS = 50000000 };

/* ---- who writes ---- */

mr_status mr_save_check_owner(const mr_save_owner *o)
{
    if (o->lock)
        return mr_run_lock_check(o->lock);
    mr_run_owner now;
    MR_TRY(mr_run_lock_peek(o->dir, &now));
    if (now.fence == o->fence && strcmp(now.run, o->run) == 0)
        return MR_OK;
    return mr_fail(MR_E_LOCK,
                   "%s: launch %lld has taken the run over; rank %d of launch %lld stops "
                   "writing",
                   o->dir, (long long)now.fence, o->rank, (long long)o->fence);
}

mr_status mr_save_owner_take(const mr_saver_options *o, mr_save_owner *out)
{
    *out = (mr_save_owner){.lock = o->lock, .rank = o->rank, .ranks = MR_MAX(o->ranks, 1)};
    if (out->rank < 0 || out->rank >= out->ranks || (out->rank == 0) != (o->lock != NULL) ||
        (out->rank > 0 && !o->run_dir))
        return mr_fail(
            MR_E_USAGE,
            "rank %d of %d: expected rank 0 with the lock of its run, others without one "
            "and with its directory",
            out->rank, out->ranks);
    const char *dir = o->lock ? mr_run_lock_dir(o->lock) : o->run_dir;
    if (strlen(dir) > MR_RUN_DIR_MAX)
        return mr_fail(MR_E_USAGE, "%.80s...: path is longer than %d bytes", dir, MR_RUN_DIR_MAX);
    snprintf(out->dir, sizeof out->dir, "%s", dir);
    if (o->lock) {
        snprintf(out->run, sizeof out->run, "%s", mr_run_lock_id(o->lock));
        out->fence = mr_run_lock_fence(o->lock);
        return MR_OK;
    }
    mr_run_owner owner;
    MR_TRY(mr_run_lock_peek(dir, &owner));
    snprintf(out->run, sizeof out->run, "%s", owner.run);
    out->fence = o->fence ? o->fence : owner.fence;
    if (!owner.owned)
        return mr_fail(MR_E_LOCK, "%s: rank %d: the run is not locked; rank 0 must lock it first",
                       dir, out->rank);
    return mr_save_check_owner(out);
}

/* ---- names ---- */

const char *mr_save_attempt_dir(char buf[MR_SAVE_PATH], const mr_save_job *job, int attempt)
{
    const mr_save_owner *o = job->owner;
    return mr_save_path(buf, "%s/ckpt/step-%012lld.tmp-%s-%lld.%lld.%d", o->dir,
                        (long long)job->step, o->run, (long long)o->fence, (long long)job->save,
                        attempt);
}

const char *mr_save_rank_file(char buf[MR_SAVE_PATH], const char *dir, int rank, int ranks,
                              const char *ending)
{
    return mr_save_path(buf, "%s/r%05d-of-%05d%s", dir, rank, ranks, ending);
}

static const char *outcome_path(char buf[MR_SAVE_PATH], const mr_save_owner *o, int64_t save)
{
    return mr_save_path(buf, "%s/ckpt/" MR_SAVE_ENDED "%s-%lld.%lld", o->dir, o->run,
                        (long long)o->fence, (long long)save);
}

int64_t mr_save_number_in(const char *name, const char *prefix, const mr_save_owner *o,
                          const char **rest)
{
    char head[128];
    size_t n =
        (size_t)snprintf(head, sizeof head, "%s%s-%lld.", prefix, o->run, (long long)o->fence);
    if (strncmp(name, head, n))
        return -1;
    char *end;
    long long x = strtoll(name + n, &end, 10);
    *rest = end;
    return end == name + n ? -1 : x;
}

/* ---- outcomes ---- */

/* Removes the outcomes of saves before `save`: every rank has read them. */
void mr_save_forget_outcomes(const mr_save_owner *o, int64_t save)
{
    char ckpt[MR_SAVE_PATH], path[MR_SAVE_PATH], **names;
    const char *rest;
    int n;
    if (mr_dir_list(mr_save_path(ckpt, "%s/ckpt", o->dir), &names, &n) != MR_OK) {
        mr_error_clear();
        return;
    }
    for (int i = 0; i < n; i++) {
        int64_t number = mr_save_number_in(names[i], MR_SAVE_ENDED, o, &rest);
        if (number >= 0 && number < save)
            mr_io_table()->unlink(mr_save_path(path, "%s/%s", ckpt, names[i]));
    }
    mr_dir_list_free(names, n);
}

void mr_save_tell_outcome(const mr_save_job *job, mr_status st)
{
    char path[MR_SAVE_PATH], text[MR_SAVE_TEXT_MAX];
    snprintf(text, sizeof text, "%s", committed);
    mr_error *why = st == MR_OK ? NULL : mr_error_copy(mr_error_last());
    if (st != MR_OK)
        mr_error_format(mr_error_last(), text, sizeof text);
    // a rank that cannot read it waits until the next save or the deadline
    outcome_path(path, job->owner, job->save);
    if (mr_file_replace(path, text, strlen(text)) != MR_OK)
        mr_error_clear();
    if (st == MR_OK)
        mr_save_forget_outcomes(job->owner, job->save);
    else
        mr_error_adopt(why);
    mr_error_free(why);
}

mr_status mr_save_read_outcome(const mr_save_job *job, bool *ended)
{
    char path[MR_SAVE_PATH], *text;
    size_t n;
    outcome_path(path, job->owner, job->save);
    if (!mr_path_exists(path))
        return MR_OK;
    MR_TRY(mr_file_read_small(path, MR_SAVE_TEXT_MAX, &text, &n));
    *ended = true;
    mr_status st = strcmp(text, committed) == 0
                       ? MR_OK
                       : mr_fail(MR_E_CKPT, "rank 0 ended the save: %s", text);
    mr_free(text);
    return st;
}

/* ---- waiting ---- */

double mr_save_waited_s(const mr_save_job *job, double began)
{
    return MR_MIN(job->patience_s, mr_now_s() - began);
}

bool mr_save_pause_since(const mr_save_job *job, double began, int64_t *pause_ns)
{
    if (mr_now_s() >= MR_MIN(began + job->patience_s, atomic_load(job->parted_s)))
        return false;
    mr_clock_table()->sleep_ns(*pause_ns);
    *pause_ns = MR_MIN(*pause_ns * 2, (int64_t)PAUSE_MAX_NS);
    return true;
}

/* ---- rank 0: the parts of all ranks ---- */

/* Fails if a rank has written a note that it could not write its part. */
static mr_status check_notes(const mr_save_job *job, const char *dir)
{
    char path[MR_SAVE_PATH], *text;
    size_t n;
    int ranks = job->owner->ranks;
    for (int r = 1; r < ranks; r++) {
        if (!mr_path_exists(mr_save_rank_file(path, dir, r, ranks, ".failed")))
            continue;
        if (mr_file_read_small(path, MR_SAVE_TEXT_MAX, &text, &n) != MR_OK)
            return mr_fail_note("rank %d could not write its part", r);
        mr_status st = mr_fail(MR_E_IO, "rank %d could not write its part: %s", r,
                               n ? text : "the disk has no space for the reason either");
        mr_free(text);
        return st;
    }
    return MR_OK;
}

static mr_status check_part(const mr_save_job *job, int attempt, int rank, const char *path,
                            const char *dir, const mr_manifest *m)
{
    const mr_save_owner *o = job->owner;
    char file[MR_SAVE_PATH];
    struct stat s;
    mr_save_rank_file(file, dir, rank, o->ranks, ".safetensors");
    if (strcmp(m->run, o->run) || m->fence != o->fence || m->step != job->step ||
        m->save != job->save || m->attempt != attempt || m->rank != rank || m->ranks != o->ranks ||
        strcmp(m->files[0].name, strrchr(file, '/') + 1))
        return mr_fail(MR_E_CKPT, "%s: belongs to another save or rank", path);
    // check the size in the directory, not the one that the rank counted
    if (stat(file, &s))
        return mr_fail(MR_E_IO, "%s: cannot get its status: %s", file, strerror(errno));
    if (s.st_size != m->files[0].bytes)
        return mr_fail(MR_E_FORMAT, "%s: has %lld bytes after the write, expected %lld", file,
                       (long long)s.st_size, (long long)m->files[0].bytes);
    return MR_OK;
}

static mr_status take_part(const mr_save_job *job, int attempt, int rank, const char *dir,
                           double began, mr_manifest *part, bool *final)
{
    char path[MR_SAVE_PATH];
    int64_t pause_ns = MR_SAVE_PAUSE_NS;
    mr_save_rank_file(path, dir, rank, job->owner->ranks, ".json");
    while (!mr_path_exists(path)) {
        MR_TRY(check_notes(job, dir));
        if (mr_save_pause_since(job, began, &pause_ns))
            continue;
        *final = true;
        return mr_fail(MR_E_CKPT,
                       "rank %d has not written its part of step %lld within %.3g s; try: check "
                       "that its process still runs",
                       rank, (long long)job->step, mr_save_waited_s(job, began));
    }
    MR_TRY(mr_manifest_read(path, true, part));
    return check_part(job, attempt, rank, path, dir, part);
}

mr_status mr_save_gather(const mr_save_job *job, int attempt, const char *dir, mr_manifest *own,
                         mr_manifest *whole, bool *final)
{
    int ranks = job->owner->ranks;
    const double began = mr_now_s();
    mr_manifest *parts = mr_calloc((size_t)ranks, sizeof *parts);
    if (!parts)
        return mr_fail_memory(sizeof *parts * (size_t)ranks);
    mr_status st = MR_OK;
    parts[0] = *own;
    for (int r = 1; r < ranks && st == MR_OK; r++)
        st = take_part(job, attempt, r, dir, began, &parts[r], final);
    if (st == MR_OK)
        st = mr_manifest_merge(whole, parts, ranks);
    for (int r = 1; r < ranks; r++)
        mr_manifest_fini(&parts[r]);
    mr_free(parts);
    return st;
}

void mr_save_remove_parts(const mr_save_job *job, const char *dir)
{
    char path[MR_SAVE_PATH];
    for (int r = 1; r < job->owner->ranks; r++)
        mr_io_table()->unlink(mr_save_rank_file(path, dir, r, job->owner->ranks, ".json"));
}
