/* ckpt, inside: files whose blocks have hashes, threads that help to read them, and missing files.
 * Licence: Apache-2.0 */
#ifndef MR_CKPT_BLOCKS_H
#define MR_CKPT_BLOCKS_H

#include "ckpt/manifest.h"

#include <pthread.h>

typedef struct mr_blocks mr_blocks;

/* Open the files of a manifest in `dir` and check their sizes. Borrows `m` until the close. Errors:
 * MR_E_FORMAT another size; MR_E_IO missing or unreadable; MR_E_MEMORY */
mr_status mr_blocks_open(const char *dir, const mr_manifest *m, mr_blocks **out);
void mr_blocks_close(mr_blocks *b); /* NULL is fine */
/* Read bytes [at, at + n) of a file. Reads whole blocks and compares their hashes. Caches the last
 * blocks. Errors: MR_E_FORMAT with file, block and tensor; MR_E_IO; MR_E_MEMORY
 * Threads: one call at a time */
mr_status mr_blocks_read(mr_blocks *b, int file, int64_t at, void *dst, int64_t n);
/* Read a share of all blocks with several threads. `compare`: also compare their hashes. A share is
 * a range of the blocks counted over all files; shares differ by one block at most. Errors: as
 * above */
mr_status mr_blocks_check(mr_blocks *b, mr_ckpt_share share, bool compare);
int64_t mr_blocks_bytes_read(const mr_blocks *b); /* of all files, since the open */

/* Start helper threads that receive no signals: at most `most`, and fewer than the number of
 * processors. Returns their number. The caller joins them. */
int mr_ckpt_helpers(int most, void *(*work)(void *), void *arg, pthread_t *threads);

/* Should the caller retry an operation that failed with errno `err`? A missing (ENOENT) or stale
 * (ESTALE) file may appear a moment later. Waits that moment, a few seconds in all. *pauses counts
 * the waits, from 0. */
bool mr_ckpt_again(int err, int *pauses);

/* Open the directory of a step like mr_ckpt_open, but wait for a missing manifest. Errors: as
 * there, but MR_E_IO if it stays missing */
mr_status mr_save_open(const char *dir, mr_ckpt **out);

#endif
