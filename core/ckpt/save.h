/* ckpt, inside: one save in the writer thread, and maintenance of the ckpt/ directory.
 * Licence: Apache-2.0 */
#ifndef MR_CKPT_SAVE_H
#define MR_CKPT_SAVE_H

#include "ckpt/manifest.h"
#include "ckpt/window.h"

/* Print a path inside a run directory to a buffer of MR_SAVE_PATH bytes, and return the buffer. The
 * path fits, because the lock refuses run directories longer than MR_RUN_DIR_MAX. */
enum { MR_SAVE_PATH = 4096 };
const char *mr_save_path(char buf[MR_SAVE_PATH], const char *fmt, ...) MR_PRINTF(2, 3);

/* The step of a name that starts with "step-<12 digits>", the rest in *rest; -1 for other names. */
int64_t mr_save_step_of(const char *name, const char **rest);

/* Prefix of the name of a directory that a newer save of the same step has moved aside, on a file
 * system that cannot exchange two names. */
#define MR_SAVE_ASIDE ".replaced-"

/* The path of the checkpoint `dir` (<run>/ckpt/step-N): `dir`, or its name aside if the replacement
 * was never committed. Returns `dir` if there is no checkpoint. */
const char *mr_save_find(const char *dir, char buf[MR_SAVE_PATH]);

/* The step of a directory that was moved aside; -1: another name. */
int64_t mr_save_step_aside(const char *name);

/* Create <run_dir>/ckpt durably if it is missing, and write its path to `ckpt`. */
mr_status mr_save_make_dir(const char *run_dir, char ckpt[MR_SAVE_PATH]);

/* The writer of a run's checkpoints: rank 0 with the lock, or another rank of the same launch. */
typedef struct mr_save_owner {
    mr_run_lock *lock; /* NULL: another rank */
    int rank, ranks;
    char dir[MR_RUN_DIR_MAX + 1], run[40];
    int64_t fence;
} mr_save_owner;

/* Errors: MR_E_USAGE, MR_E_LOCK, MR_E_IO */
mr_status mr_save_owner_take(const mr_saver_options *options, mr_save_owner *out);

/* A finished snapshot: the bytes of the shard, their block hashes, and the facts for the
 * manifest. */
typedef struct mr_save_job {
    const mr_save_owner *owner;
    int64_t save;      /* number of the save in this launch, from 1; equal on every rank */
    double patience_s; /* seconds that ranks wait for each other */
    const _Atomic double *parted_s; /* time after which they do not wait, because ranks are lost */
    int64_t step, bytes;
    const char *image; /* NULL: `window` provides the bytes */
    mr_window *window;
    const mr_hash128 *blocks;  /* hashes of the bytes present */
    const mr_ckpt_item *items; /* names and shapes; no data */
    const int64_t *offsets;
    int n;
    json_t *meta;
} mr_save_job;

/* Rank 0: write, read back, wait for the parts of other ranks, commit under ckpt/step-<step>/. A
 * failed attempt leaves nothing that looks like a checkpoint. `attempt` counts from 1. *final: the
 * next attempt would fail too (disk full, a rank that does not answer, parts that do not fit
 * together).
 * Errors: MR_E_IO, MR_E_FORMAT read back differs, MR_E_LOCK fenced off, MR_E_CKPT, MR_E_MEMORY */
mr_status mr_save_attempt(const mr_save_job *job, int attempt, bool *final);
/* Another rank: write the shard and the part of the manifest into the directory of an attempt. */
mr_status mr_save_part(const mr_save_job *job, int attempt, const char *dir);
/* Another rank: take part in all attempts of a save, until rank 0 has written the outcome. Errors:
 * as mr_save_attempt */
mr_status mr_save_follow(const mr_save_job *job);

/* Shared by ranks.c, attempt.c and follow.c: names in ckpt/ and in the directory of an attempt. */
#define MR_SAVE_ENDED ".ended-"
enum { MR_SAVE_PAUSE_NS = 1000000, MR_SAVE_TEXT_MAX = 4096 }; /* first pause; longest reason */
/* MR_OK if this launch still owns the run, else MR_E_LOCK. */
mr_status mr_save_check_owner(const mr_save_owner *o);
/* The number after "PREFIX RUN-FENCE." in a name; -1: another name. *rest: the text after the
 * number. */
int64_t mr_save_number_in(const char *name, const char *prefix, const mr_save_owner *o,
                          const char **rest);
/* Read the outcome of rank 0. *ended: there is one, and it is the returned status. */
mr_status mr_save_read_outcome(const mr_save_job *job, bool *ended);
/* Seconds that this rank has waited for other ranks. */
double mr_save_waited_s(const mr_save_job *job, double began);
/* Pause, longer each time. False: the wait for other ranks since `began` has reached its limit. */
bool mr_save_pause_since(const mr_save_job *job, double began, int64_t *pause_ns);
const char *mr_save_attempt_dir(char buf[MR_SAVE_PATH], const mr_save_job *job, int attempt);
const char *mr_save_rank_file(char buf[MR_SAVE_PATH], const char *dir, int rank, int ranks,
                              const char *ending);
/* Rank 0: wait for the parts of the other ranks, and merge them with its own. */
mr_status mr_save_gather(const mr_save_job *job, int attempt, const char *dir, mr_manifest *own,
                         mr_manifest *whole, bool *final);
void mr_save_remove_parts(const mr_save_job *job, const char *dir);
/* Rank 0: write the outcome of a save for the others. A failure is this thread's error, which is
 * kept. */
void mr_save_tell_outcome(const mr_save_job *job, mr_status st);
void mr_save_forget_outcomes(const mr_save_owner *owner, int64_t save); /* of saves before `save` */

/* Rename checkpoints back that were moved aside for a replacement that was never committed. Errors:
 * MR_E_IO a rename failed, and the checkpoint stays aside; MR_E_LOCK. */
mr_status mr_save_repair(const mr_run_lock *lock);
/* Repair, then remove the leftovers of earlier launches of this run (the lock proves them dead) and
 * of earlier attempts of this launch. */
mr_status mr_save_sweep(const mr_run_lock *lock);

/* Apply retention: keep the newest `keep`, multiples of keep_every (0 = none) and always two whose
 * files match their hashes. verified: steps known to match (this saver's own commits), n_verified
 * of them. Calls `report` with a line for each damaged checkpoint. */
mr_status mr_save_retain(const mr_run_lock *lock, int keep, int64_t keep_every,
                         const int64_t *verified, int n_verified, mr_ckpt_report *report,
                         void *user);

/* Rename a damaged checkpoint directory to .bad-<name>[-k] and keep it. Best effort. */
void mr_save_condemn(const char *run_dir, int64_t step);

/* Read a whole checkpoint directory and compare all hashes. */
mr_status mr_save_verify(const char *dir);

#endif
