/* ckpt: one save as the writer thread sees it, and the care of the ckpt/ directory. Inside the
 * room.
 * Licence: Apache-2.0 */
#ifndef MR_CKPT_SAVE_H
#define MR_CKPT_SAVE_H

#include "manifest.h"

/* Paths inside a run directory: printf into a buffer of MR_SAVE_PATH bytes. They fit, because the
 * lock refuses run directories longer than MR_RUN_DIR_MAX; returns the buffer. */
enum { MR_SAVE_PATH = 4096 };
const char *mr_save_path(char buf[MR_SAVE_PATH], const char *fmt, ...) MR_PRINTF(2, 3);

/* The step of a name that starts with "step-<12 digits>", the rest in *rest; -1 for other names. */
int64_t mr_save_step_of(const char *name, const char **rest);

/* <run_dir>/ckpt, made durably if it is not there; its path into `ckpt`. */
mr_status mr_save_make_dir(const char *run_dir, char ckpt[MR_SAVE_PATH]);

/* A finished snapshot: the bytes of the shard with their block hashes, and what the manifest
 * says. */
typedef struct mr_save_job {
    const mr_run_lock *lock;
    int64_t step, bytes;
    const char *image;
    const mr_hash128 *blocks;
    const mr_ckpt_item *items; /* names and shapes; no data */
    const int64_t *offsets;
    int n;
    json_t *meta;
} mr_save_job;

/* Is there room for `bytes` and a fifth more below `run_dir`? Errors: MR_E_IO, with *shortage set
 * when the disk is too full. */
mr_status mr_save_room(const char *run_dir, int64_t bytes, bool *shortage);

/* Write, read back, commit under ckpt/step-<step>/. On failure nothing of the attempt is left that
 * could be taken for a checkpoint. `attempt` names the temporary directory; never used twice in a
 * launch.
 * Errors: MR_E_IO (*shortage: disk full), MR_E_FORMAT read back differs, MR_E_LOCK fenced off,
 * MR_E_MEMORY */
mr_status mr_save_attempt(const mr_save_job *job, int attempt, bool *shortage);

/* Remove what earlier launches of this run (proven dead by the lock) and earlier attempts of this
 * one left behind; put back a checkpoint whose replacement was not finished. */
mr_status mr_save_sweep(const mr_run_lock *lock);

/* Apply retention: keep the newest `keep`, multiples of keep_every (0 = none) and always two whose
 * files match their hashes. verified: steps known to match (this saver's own commits), n_verified
 * of them. `told` receives a line per checkpoint found damaged. */
mr_status mr_save_retain(const mr_run_lock *lock, int keep, int64_t keep_every,
                         const int64_t *verified, int n_verified, mr_ckpt_told *told, void *user);

/* Rename a damaged checkpoint directory to .bad-<name>[-k] and keep it. Best effort. */
void mr_save_condemn(const char *run_dir, int64_t step);

/* Read all of a checkpoint directory and compare. */
mr_status mr_save_verify(const char *dir);

#endif
