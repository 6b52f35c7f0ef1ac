/* run: the run directory without its checkpoints: who may write (lock), the append-only record of
 * the run (journal.jsonl), and the creation of the directory.
 *
 * `outputs/NNN-name/` contains recipe.lua, settings.json, journal.jsonl, ckpt/, samples/, log/ and
 * the file `lock`. A run of several stages contains settings.json, `lock` and stages/NAME/, each
 * laid out like a run. Checkpoints themselves: moonreel/ckpt.h.
 *
 * Threads: any to create and inspect; a lock and a journal take one call at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_RUN_H
#define MOONREEL_RUN_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make outputs/NNN-name with NNN = 1 + the largest number there (three digits at least), and in it
 * ckpt/, samples/ and log/. Two concurrent processes get two directories.
 *
 * name     [A-Za-z0-9._-]+, at most 100 bytes, first character not '.'
 * staged   the run has several stages: it gets stages/ instead
 * path     receives the new directory; `cap` bytes
 * Errors:  MR_E_USAGE bad name; MR_E_IO
 * Threads: any */
MR_API mr_status mr_run_create(const char *outputs, const char *name, bool staged, char *path,
                               size_t cap);
/* Make run_dir/stages/name with ckpt/, samples/ and log/, durably; an existing one is kept
 * unchanged. Arguments, errors and threads as above. */
MR_API mr_status mr_run_stage(const char *run_dir, const char *name, char *path, size_t cap);

/* ---- lock ---- */

/* One writer per run directory. The file `lock` records run id, fencing number and owner. It
 * remains after the owner ends, so that the fencing number grows with every launch. */
typedef struct mr_run_lock mr_run_lock;
enum { MR_RUN_DIR_MAX = 3500 };

typedef struct mr_run_owner {
    char run[40];  /* run id: 16 hex digits, made with the first lock */
    int64_t fence; /* grows with every launch */
    bool owned;    /* false: it is free; the fields below are empty */
    /* the owner has provably ended: same boot, and no such process or the byte of the lock file
     * that it held is free; or same machine, older boot */
    bool dead;
    char host[72], machine[40], boot[40], pidns[40];
    int64_t pid, start; /* process id and its start time in clock ticks since boot; 0 unknown */
    bool holds;         /* it holds a lock on a byte of the file for as long as it lives */
} mr_run_owner;

/* Become the writer of `run_dir` (which exists). The fencing number is larger than that of every
 * lock and every checkpoint seen there before.
 *
 * Owns:    caller owns *out
 * Errors:  MR_E_USAGE run_dir longer than MR_RUN_DIR_MAX; MR_E_LOCK another owner lives, or its
 *          death cannot be proven (the text names host, pid and what to try), or the lock file is
 *          damaged, or the file system has no locks; MR_E_IO
 * Threads: any */
MR_API mr_status mr_run_lock_take(const char *run_dir, mr_run_lock **out);
/* Add a holder of the same lock (a saver); returns `lock`. */
MR_API mr_run_lock *mr_run_lock_ref(mr_run_lock *lock);
/* Release; the last holder releases the run and frees `lock`. NULL is fine. A lock that another
 * launch has taken stays unchanged. */
MR_API void mr_run_lock_release(mr_run_lock *lock);
/* MR_OK while this lock is in force, otherwise MR_E_LOCK: the caller stops writing. Threads: any.
 */
MR_API mr_status mr_run_lock_check(const mr_run_lock *lock);
MR_API const char *mr_run_lock_id(const mr_run_lock *lock); /* run id; lent */
MR_API int64_t mr_run_lock_fence(const mr_run_lock *lock);
MR_API const char *mr_run_lock_dir(const mr_run_lock *lock); /* lent */
/* The owner of `run_dir`. Takes nothing. Without a lock file: owned = false, fence = 0, run = "".
 */
MR_API mr_status mr_run_lock_peek(const char *run_dir, mr_run_owner *out);

/* ---- journal ---- */

/* Append-only JSON lines; one write with O_APPEND per line. A process killed at any moment leaves
 * at most one incomplete line at the end: opening for append removes it, readers skip it.
 *
 * A line that the disk does not accept (full, over quota, failing) waits in memory and is written
 * before the next one, so the file is always a prefix of the appended lines. At most
 * MR_JOURNAL_WAIT_MAX bytes wait. Later lines are dropped and counted; when the disk has accepted
 * the waiting lines, one line {"kind":"gap","lines":N} is written in their place. */
typedef struct mr_journal mr_journal;
enum { MR_JOURNAL_LINE_MAX = 1 << 20, MR_JOURNAL_WAIT_MAX = 16 << 20 };

/* Open or create `path` for append. Owns: caller owns *out. Errors: MR_E_IO. */
MR_API mr_status mr_journal_open(const char *path, mr_journal **out);
/* Append one line: `n` bytes of JSON without a line break. It is no error if the disk does not
 * accept it: see mr_journal_waiting.
 * Errors:  MR_E_USAGE a line break inside or longer than MR_JOURNAL_LINE_MAX; MR_E_MEMORY
 * Threads: any, one call at a time per journal */
MR_API mr_status mr_journal_append(mr_journal *journal, const char *line, size_t n);
/* The number of lines that wait in memory. *left_out: lines dropped so far; *reason: why the last
 * write failed, "" if it did not; lent until the next call. Threads: as append. */
MR_API int64_t mr_journal_waiting(const mr_journal *journal, int64_t *left_out,
                                  const char **reason);
/* Write waiting lines and make everything appended so far durable. Errors: MR_E_IO, also if lines
 * still wait. */
MR_API mr_status mr_journal_sync(mr_journal *journal);
/* Write waiting lines, as far as the disk accepts them, and free. NULL is fine. */
MR_API void mr_journal_close(mr_journal *journal);

typedef struct mr_journal_reader mr_journal_reader;
/* Read from the start. Owns: caller owns *out. Errors: MR_E_IO. */
MR_API mr_status mr_journal_read_open(const char *path, mr_journal_reader **out);
/* The next whole line, without its line break, zero-terminated; lent until the next call. *line is
 * NULL at the end; a later call sees lines appended in the meantime. An incomplete last line is not
 * returned.
 * Errors:  MR_E_FORMAT a line longer than MR_JOURNAL_LINE_MAX; MR_E_IO; MR_E_MEMORY */
MR_API mr_status mr_journal_read_next(mr_journal_reader *reader, const char **line, size_t *n);
MR_API void mr_journal_read_close(mr_journal_reader *reader); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
