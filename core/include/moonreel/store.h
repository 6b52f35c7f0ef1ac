/* moonreel/store.h - values under keys, written once and then sealed: what models made of samples.
 *
 * A store is a folder: data.mdb (LMDB), data.sum (checksums of its blocks), as an index is. While
 * it is written it is called PATH.part; whoever writes it next goes on after the last commit. Keys
 * are bytes, at most MR_STORE_KEY_MAX of them, ordered as memcmp orders them. Every value has a
 * checksum of its own, which reading compares. Beside the values lie a few named texts. Licence:
 * Apache-2.0 */
#ifndef MOONREEL_STORE_H
#define MOONREEL_STORE_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MR_STORE_KEY_MAX = 256 };

/* ---- writing ---- */

typedef struct mr_store_writer mr_store_writer;

/* Begin a store, or go on with the one that was left unfinished.
 * Errors: MR_E_USAGE there is a sealed store of this name; MR_E_LOCK another process writes it;
 * MR_E_IO; MR_E_DATA what was left is damaged */
MR_API mr_status mr_store_writer_new(const char *path, mr_store_writer **out);
/* What the last commit left: values, and the named text or NULL. Owns: caller frees *text with
 * mr_free. */
MR_API uint64_t mr_store_writer_values(const mr_store_writer *w);
MR_API mr_status mr_store_writer_get_text(mr_store_writer *w, const char *name, char **text);
/* Is there a value of this key, committed or not? */
MR_API mr_status mr_store_writer_has(mr_store_writer *w, const void *key, size_t key_bytes,
                                     bool *has);
/* Add a value, which may be empty. Copies both; they wait in memory for the next commit. Errors:
 * MR_E_USAGE a key that is empty or too long, or has a value; MR_E_MEMORY */
MR_API mr_status mr_store_writer_put(mr_store_writer *w, const void *key, size_t key_bytes,
                                     const void *value, size_t bytes);
/* Bytes that wait. */
MR_API size_t mr_store_writer_waiting(const mr_store_writer *w);
/* All that waits goes to the disk together with a text, or nothing of it does. */
MR_API mr_status mr_store_writer_commit(mr_store_writer *w, const char *name, const char *text);
/* Commit, seal, and take the name. Nothing can be done with the writer afterwards. */
MR_API mr_status mr_store_writer_finish(mr_store_writer *w);
/* Unfinished: what is committed stays, for the next one. NULL is fine. */
MR_API void mr_store_writer_free(mr_store_writer *w);

/* ---- reading ---- */

typedef struct mr_store mr_store;

/* verify: compare every block of the file first; that happens too when its time is not the one at
 * which it was sealed. A file that is cut off while it is open ends the process with a word instead
 * of a signal.
 * Errors: MR_E_DATA no such store, not finished, damaged, a torn copy; MR_E_FORMAT; MR_E_IO */
MR_API mr_status mr_store_open(const char *path, bool verify, mr_store **out);
MR_API void mr_store_free(mr_store *s); /* NULL is fine */
MR_API uint64_t mr_store_values(const mr_store *s);
/* The same for the same values, in whatever order they were put. */
MR_API mr_hash128 mr_store_fingerprint(const mr_store *s);
/* A named text, or NULL; lent. */
MR_API const char *mr_store_text(mr_store *s, const char *name);
/* The value of a key, in the mapping of the file: lent until the store is freed, at any address.
 * *value NULL: there is none. Errors: MR_E_DATA damaged. Threads: one at a time */
MR_API mr_status mr_store_get(mr_store *s, const void *key, size_t key_bytes, const void **value,
                              size_t *bytes);
/* The first key that is not before this one; *found NULL: there is none; lent. */
MR_API mr_status mr_store_seek(mr_store *s, const void *key, size_t key_bytes, const void **found,
                               size_t *found_bytes);

#ifdef __cplusplus
}
#endif
#endif
