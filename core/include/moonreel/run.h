/* run: what one run directory needs beside its checkpoints: who may write (lock), the append-only
 * truth (journal.jsonl), and the making of the directory itself.
 *
 * `outputs/NNN-name/` holds recipe.lua, settings.json, journal.jsonl, ckpt/, samples/, log/ and the
 * file `lock`; a run of several stages holds settings.json, `lock` and stages/NAME/, each of these
 * laid out like a run. Checkpoints themselves: moonreel/ckpt.h.
 *
 * Threads: any for making and looking; a lock and a journal take one call at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_RUN_H
#define MOONREEL_RUN_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make outputs/NNN-name with NNN = 1 + the largest number there (three digits at least), and in it
 * ckpt/, samples/ and log/. Two processes at once get two directories.
 *
 * name     [A-Za-z0-9._-]+, at most 100 bytes, first character not '.'
 * staged   the run is one of several stages: it holds stages/ instead
 * path     receives the new directory; `cap` bytes
 * Errors:  MR_E_USAGE bad name; MR_E_IO
 * Threads: any */
MR_API mr_status mr_run_create(const char *outputs, const char *name, bool staged, char *path,
                               size_t cap);
/* Make run_dir/stages/name with ckpt/, samples/ and log/, durably; an existing one is taken as it
 * is. Arguments, errors and threads as above. */
MR_API mr_status mr_run_stage(const char *run_dir, const char *name, char *path, size_t cap);

/* ---- lock ---- */

/* One writer per run directory. The file `lock` records run id, fencing number and owner; it stays
 * when the owner leaves, so that the fencing number grows with every launch. */
typedef struct mr_run_lock mr_run_lock;
enum { MR_RUN_DIR_MAX = 3500 };

typedef struct mr_run_owner {
    char run[40];  /* run id: 16 hex digits, made with the first lock */
    int64_t fence; /* grows with every launch */
    bool owned;    /* false: it is free; the fields below are empty */
    /* the owner is provably gone: same boot, and no such process or the byte of the lock file that
     * it held is free; or same machine, older boot */
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
 *          damaged, or on a file system without locks; MR_E_IO
 * Threads: any */
MR_API mr_status mr_run_lock_take(const char *run_dir, mr_run_lock **out);
/* One more holder of the same lock (a saver); returns `lock`. */
MR_API mr_run_lock *mr_run_lock_ref(mr_run_lock *lock);
/* Let go; the last holder gives the run back and frees `lock`. NULL is fine. A lock that another
 * launch has taken stays as it is. */
MR_API void mr_run_lock_release(mr_run_lock *lock);
/* MR_OK while this lock is the one in force, else MR_E_LOCK: the caller stops writing. Threads:
 * any. */
MR_API mr_status mr_run_lock_check(const mr_run_lock *lock);
MR_API const char *mr_run_lock_id(const mr_run_lock *lock); /* run id; lent */
MR_API int64_t mr_run_lock_fence(const mr_run_lock *lock);
MR_API const char *mr_run_lock_dir(const mr_run_lock *lock); /* lent */
/* Who holds `run_dir`? Takes nothing. No lock file: owned = false, fence = 0, run = "". */
MR_API mr_status mr_run_lock_peek(const char *run_dir, mr_run_owner *out);

/* ---- journal ---- */

/* Append-only JSON lines; one write with O_APPEND per line. A process killed at any moment leaves
 * at most one cut line at the end: opening for append cuts it off, readers skip it.
 *
 * A line that the disk does not take (full, over quota, failing) waits in memory and is written
 * before the next one, so the file is always the beginning of what was appended. At most
 * MR_JOURNAL_WAIT_MAX bytes wait: later lines are left out and counted, and when the disk has taken
 * what waits, one line {"kind":"gap","lines":N} stands in their place. */
typedef struct mr_journal mr_journal;
enum { MR_JOURNAL_LINE_MAX = 1 << 20, MR_JOURNAL_WAIT_MAX = 16 << 20 };

/* Open or create `path` for append. Owns: caller owns *out. Errors: MR_E_IO. */
MR_API mr_status mr_journal_open(const char *path, mr_journal **out);
/* Append one line: `n` bytes of JSON without a line break. A disk that does not take it is no
 * error: see mr_journal_waiting.
 * Errors:  MR_E_USAGE a line break inside or longer than MR_JOURNAL_LINE_MAX; MR_E_MEMORY
 * Threads: any, one call at a time per journal */
MR_API mr_status mr_journal_append(mr_journal *journal, const char *line, size_t n);
/* How many lines wait in memory. *left_out: lines of all time that did not fit there; *reason: why
 * the last write failed, "" when none did; lent until the next call. Threads: as append. */
MR_API int64_t mr_journal_waiting(const mr_journal *journal, int64_t *left_out,
                                  const char **reason);
/* Write what waits and make everything appended so far durable. Errors: MR_E_IO, also when lines go
 * on waiting. */
MR_API mr_status mr_journal_sync(mr_journal *journal);
/* Write what waits, as far as the disk takes it, and free. NULL is fine. */
MR_API void mr_journal_close(mr_journal *journal);

typedef struct mr_journal_reader mr_journal_reader;
/* Read from the start. Owns: caller owns *out. Errors: MR_E_IO. */
MR_API mr_status mr_journal_read_open(const char *path, mr_journal_reader **out);
/* The next whole line, without its line break, zero-terminated; lent until the next call. *line is
 * NULL at the end; calling again later sees what was appended meanwhile. A cut last line is not
 * given.
 * Errors:  MR_E_FORMAT a line longer than MR_JOURNAL_LINE_MAX; MR_E_IO; MR_E_MEMORY */
MR_API mr_status mr_journal_read_next(mr_journal_reader *reader, const char **line, size_t *n);
MR_API void mr_journal_read_close(mr_journal_reader *reader); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
