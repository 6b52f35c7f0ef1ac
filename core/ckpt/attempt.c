/* ckpt: makes one attempt to write a checkpoint: temporary directory, shard, read-back, manifest,
 * commit by one rename (reference: reliability 3.2, steps 3 to 6). ranks.c coordinates several
 * ranks. A failed sync or close is never repeated on the same file: the attempt fails and the next
 * one uses a new name. Licence: Apache-2.0 */
#define _DEFAULT_SOURCE
#include "base/file.h"
#include "ckpt/save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Is there space for shards of this size of all ranks, and a fifth more? *final: there is not. */
static mr_status check_room(const mr_save_job *job, bool *final)
{
    const char *dir = job->owner->dir;
    int64_t bytes = job->bytes * job->owner->ranks, need = bytes + bytes / 5;
    int64_t have = mr_io_table()->free_bytes(dir);
    if (have < 0)
        return mr_fail_io("ask for free space", dir);
    *final = have < need;
    if (!*final)
        return MR_OK;
    return mr_fail(
        MR_E_IO,
        "%s: %.1f MB are free, a checkpoint needs %.1f; try: remove old checkpoints or samples",
        dir, (double)have * 1e-6, (double)need * 1e-6);
}

/* Compares the file with the hashes of the snapshot. */
static mr_status read_back(int fd, const char *path, const mr_save_job *job)
{
    char *block = mr_alloc(MR_CKPT_BLOCK);
    mr_status st = block ? MR_OK : mr_fail_memory(MR_CKPT_BLOCK);
    for (int64_t at = 0; at < job->bytes && st == MR_OK; at += MR_CKPT_BLOCK) {
        size_t n = (size_t)MR_MIN(job->bytes - at, (int64_t)MR_CKPT_BLOCK);
        st = mr_file_read_at(fd, block, n, at, path);
        mr_hash128 h = st == MR_OK ? mr_hash128_of(block, n) : (mr_hash128){0};
        const mr_hash128 *want = &job->blocks[at / MR_CKPT_BLOCK];
        if (st == MR_OK && (h.lo != want->lo || h.hi != want->hi))
            st = mr_fail(MR_E_FORMAT,
                         "%s: bytes from %lld on differ from the snapshot when read back", path,
                         (long long)at);
    }
    mr_free(block);
    return st;
}

/* Writes all bytes of the shard. *final: another attempt would fail too (no space, or no more
 * data). */
static mr_status write_bytes(const mr_save_job *job, int fd, const char *path, bool *final)
{
    const char *bytes = job->image;
    int64_t n = job->bytes;
    if (job->window)
        mr_window_begin(job->window);
    for (int64_t at = 0; at < job->bytes; at += n) {
        mr_status st = job->window ? mr_window_next(job->window, &bytes, &n) : MR_OK;
        *final = st != MR_OK;
        MR_TRY(st);
        st = mr_file_write_full(fd, bytes, (size_t)n, path);
        *final = st != MR_OK && (errno == ENOSPC || errno == EDQUOT);
        MR_TRY(st);
    }
    return MR_OK;
}

static mr_status write_shard(const mr_save_job *job, const char *dir, const char *path, bool *final)
{
    const mr_io *io = mr_io_table();
    char part[MR_SAVE_PATH];
    mr_save_path(part, "%s.part", path);
    int fd;
    do
        fd = io->open(part, O_RDWR | O_CREAT | O_EXCL, 0644);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return mr_fail_io("create", part);
    mr_status st = MR_OK;
    // reserve all space before the first byte; if the file system cannot, a write reports the lack
    if (io->fallocate(fd, job->bytes) && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
        *final = errno != EFBIG;
        st = mr_fail_io("reserve room", part);
    }
    if (st == MR_OK)
        st = write_bytes(job, fd, part, final);
    if (st == MR_OK && io->fsync(fd))
        st = mr_fail_io("sync", part);
    // make the read-back come from the disk, not from the page cache
    if (st == MR_OK) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        st = read_back(fd, part, job);
    }
    if (io->close(fd) && st == MR_OK)
        st = mr_fail_io("close", part);
    if (st == MR_OK && io->rename(part, path))
        st = mr_fail_io("rename to", path);
    return st == MR_OK ? mr_dir_sync(dir) : st;
}

/* Writes a manifest to its final name. */
static mr_status put_manifest(const mr_manifest *m, json_t *meta, const char *path, bool *final)
{
    char *text;
    size_t n;
    MR_TRY(mr_manifest_build(m, meta, &text, &n));
    mr_status st = mr_file_replace(path, text, n);
    if (st != MR_OK)
        *final = errno == ENOSPC || errno == EDQUOT;
    mr_free(text);
    return st;
}

/* Makes this rank's part of the manifest. */
static mr_status own_part(const mr_save_job *job, int attempt, mr_manifest *m)
{
    const mr_save_owner *o = job->owner;
    char name[MR_SAVE_PATH];
    // file name without a folder
    mr_save_rank_file(name, "", o->rank, o->ranks, ".safetensors");
    snprintf(m->run, sizeof m->run, "%s", o->run);
    m->fence = o->fence, m->step = job->step, m->ranks = o->ranks;
    m->rank = o->rank, m->save = job->save, m->attempt = attempt;
    mr_ckpt_file file = {
        .name = name + 1, .bytes = job->bytes, .blocks = (mr_hash128 *)job->blocks};
    return mr_manifest_add(m, &file, job->items, job->offsets, job->n);
}

static mr_status write_manifest(const mr_save_job *job, int attempt, const char *dir, bool *final)
{
    char path[MR_SAVE_PATH];
    mr_manifest own, whole;
    mr_save_path(path, "%s/" MR_CKPT_MANIFEST, dir);
    mr_manifest_init(&own), mr_manifest_init(&whole);
    mr_status st = own_part(job, attempt, &own);
    if (st == MR_OK)
        st = mr_save_gather(job, attempt, dir, &own, &whole, final);
    if (st == MR_OK)
        st = mr_manifest_check(path, &whole);
    // a contradiction between parts will not go away in another attempt
    *final = *final || st == MR_E_CKPT;
    snprintf(whole.run, sizeof whole.run, "%s", own.run);
    whole.fence = own.fence, whole.step = own.step, whole.ranks = own.ranks;
    if (st == MR_OK)
        st = put_manifest(&whole, job->meta, path, final);
    if (st == MR_OK)
        mr_save_remove_parts(job, dir);
    mr_manifest_fini(&own), mr_manifest_fini(&whole);
    return st;
}

/* Writes the shard of this rank. */
static mr_status write_own(const mr_save_job *job, const char *dir, bool *final)
{
    char path[MR_SAVE_PATH];
    struct stat s;
    mr_save_rank_file(path, dir, job->owner->rank, job->owner->ranks, ".safetensors");
    MR_TRY(write_shard(job, dir, path, final));
    // check the size in the directory, not the one that the writer counted
    if (stat(path, &s))
        return mr_fail_io("look at", path);
    if (s.st_size != job->bytes)
        return mr_fail(MR_E_FORMAT, "%s: has %lld bytes after the write, expected %lld", path,
                       (long long)s.st_size, (long long)job->bytes);
    return MR_OK;
}

mr_status mr_save_part(const mr_save_job *job, int attempt, const char *dir)
{
    char path[MR_SAVE_PATH];
    mr_manifest own;
    bool final = false;
    MR_TRY(check_room(job, &final));
    MR_TRY(write_own(job, dir, &final));
    mr_manifest_init(&own);
    mr_status st = own_part(job, attempt, &own);
    mr_save_rank_file(path, dir, own.rank, own.ranks, ".json");
    if (st == MR_OK)
        st = put_manifest(&own, NULL, path, &final);
    mr_manifest_fini(&own);
    return st;
}

/* Commits if the final name is free: the rename makes the directory a checkpoint. */
static mr_status commit_new(const char *ckpt, const char *tmp, const char *dir)
{
    const mr_io *io = mr_io_table();
    if (io->rename(tmp, dir))
        return mr_fail_io("commit as", dir);
    mr_status st = mr_dir_sync(ckpt);
    // the name may not survive a power cut, so undo the rename
    if (st != MR_OK && io->rename(dir, tmp))
        return mr_fail_note("%s: not acknowledged, although the directory exists", dir);
    return st;
}

/* Commits if an older checkpoint of the step has the name. Exchanges the two directories in one
 * call, then removes the old one under the temporary name. Errors: also MR_E_UNSUPPORTED. */
static mr_status commit_exchanged(const char *ckpt, const char *tmp, const char *dir)
{
    const mr_io *io = mr_io_table();
    if (io->exchange(tmp, dir))
        return errno == ENOSYS || errno == EINVAL || errno == EOPNOTSUPP
                   ? mr_fail(MR_E_UNSUPPORTED, "%s: this file system cannot exchange two names",
                             dir)
                   : mr_fail_io("commit as", dir);
    mr_status st = mr_dir_sync(ckpt);
    if (st != MR_OK && io->exchange(dir, tmp))
        return mr_fail_note("%s: not acknowledged, although the directory exists", dir);
    // a later sweep removes it if this fails
    if (st == MR_OK && mr_dir_remove(tmp) != MR_OK)
        mr_error_clear();
    return st;
}

/* Commits on a file system without exchange. Renames the old directory to a name that readers also
 * search (mr_save_find), and back if the commit fails. */
static mr_status commit_aside(const mr_save_job *job, const char *ckpt, const char *tmp,
                              const char *dir, int attempt)
{
    char aside[MR_SAVE_PATH];
    mr_save_path(aside, "%s/" MR_SAVE_ASIDE "step-%012lld-%lld.%d", ckpt, (long long)job->step,
                 (long long)job->owner->fence, attempt);
    if (mr_io_table()->rename(dir, aside))
        return mr_fail_io("move aside", dir);
    mr_status st = commit_new(ckpt, tmp, dir);
    if (st != MR_OK)
        // a later sweep puts it back if this fails
        mr_io_table()->rename(aside, dir);
    else if (mr_dir_remove(aside) != MR_OK)
        mr_error_clear();
    return st;
}

static mr_status commit(const mr_save_job *job, const char *ckpt, const char *tmp, int attempt)
{
    char dir[MR_SAVE_PATH];
    mr_ckpt_dir(job->owner->dir, job->step, dir, sizeof dir);
    MR_TRY(mr_run_lock_check(job->owner->lock));
    // lstat: a dangling link occupies the name too
    struct stat s;
    if (lstat(dir, &s) != 0)
        return commit_new(ckpt, tmp, dir);
    mr_status st = commit_exchanged(ckpt, tmp, dir);
    return st == MR_E_UNSUPPORTED ? commit_aside(job, ckpt, tmp, dir, attempt) : st;
}

mr_status mr_save_attempt(const mr_save_job *job, int attempt, bool *final)
{
    const mr_io *io = mr_io_table();
    char ckpt[MR_SAVE_PATH], tmp[MR_SAVE_PATH], hint[64];
    *final = false;
    MR_TRY(mr_run_lock_check(job->owner->lock));
    MR_TRY(check_room(job, final));
    MR_TRY(mr_save_make_dir(job->owner->dir, ckpt));
    mr_save_attempt_dir(tmp, job, attempt);
    if (io->mkdir(tmp, 0755)) {
        *final = errno == ENOSPC || errno == EDQUOT;
        return mr_fail_io("create directory", tmp);
    }
    mr_status st = write_own(job, tmp, final);
    if (st == MR_OK)
        st = write_manifest(job, attempt, tmp, final);
    if (st == MR_OK)
        st = commit(job, ckpt, tmp, attempt);
    if (st != MR_OK) {
        // clean up and keep the error; a later sweep removes the rest
        mr_error *why = mr_error_copy(mr_error_last());
        mr_dir_remove(tmp);
        mr_error_adopt(why);
        mr_error_free(why);
        return st;
    }
    // LATEST is a hint for people; no program uses it, so ignore failures
    mr_save_path(tmp, "%s/LATEST", ckpt);
    int n = snprintf(hint, sizeof hint, "step-%012lld\n", (long long)job->step);
    if (mr_file_replace(tmp, hint, (size_t)n) != MR_OK)
        mr_error_clear();
    return MR_OK;
}
