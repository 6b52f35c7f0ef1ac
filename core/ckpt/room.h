/* ckpt, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_CKPT_ROOM_H
#define MR_CKPT_ROOM_H

#include "moonreel/ckpt.h"
#include "moonreel/base.h"

#include <jansson.h>

/* The manifest of a checkpoint directory: built by the writer, parsed by readers. Inside the room.
 */

enum { MR_CKPT_SCHEMA = 1, MR_CKPT_BLOCK = 1 << 20 };
/* A manifest holds 37 bytes per MiB of a checkpoint: this is enough for 800 GB. */
enum { MR_CKPT_MANIFEST_MAX = 32 << 20 };
#define MR_CKPT_MANIFEST "MANIFEST.json"

static inline int64_t mr_ckpt_blocks(int64_t bytes)
{
    return (bytes + MR_CKPT_BLOCK - 1) / MR_CKPT_BLOCK;
}

/* After a json_load call that failed: MR_E_MEMORY if memory ran out, else MR_OK. */
mr_status mr_json_check_memory(const json_error_t *err);
/* The failure of a json_load call: memory, or what stands in the text of `path`. */
mr_status mr_json_fail(mr_status code, const char *path, const json_error_t *err);

/* JSON objects of untrusted files, read member by member, so that memory stays near their size. */

/* The text of one value inside a larger text. */
typedef struct mr_json_part {
    const char *path;  /* of the file, for messages */
    const char *whole; /* where the text of the file starts */
    const char *at, *end;
} mr_json_part;

/* Called for each member of an object; everything is lent for the call. */
typedef mr_status mr_json_member(void *user, const char *key, mr_json_part value);

/* Tell the members of the object that `object` is, in the order of the file. The same name may come
 * twice: the caller decides. Errors: MR_E_FORMAT damaged, nested deeper than 4; MR_E_MEMORY; those
 * of `each` */
mr_status mr_json_members(mr_json_part object, mr_json_member *each, void *user);
/* Parse one value: a text of any length, or 64 KiB of anything else. Owns: caller drops *out.
 * Errors: MR_E_FORMAT, MR_E_MEMORY */
mr_status mr_json_parse(mr_json_part part, json_t **out);

typedef struct mr_ckpt_file {
    const char *name; /* inside the directory */
    int64_t bytes;
    mr_hash128 whole, *blocks; /* one per MiB; NULL: a plain file without hashes */
} mr_ckpt_file;

typedef struct mr_manifest {
    char *text; /* zero-terminated */
    size_t text_bytes;
    int64_t step, fence;
    char run[40];
    mr_ckpt_file *files;
    int n_files;
    mr_st_tensor *tensors; /* by file and offset */
    int n_tensors;
    mr_arena arena; /* holds all but `text` */
} mr_manifest;

/* Members that the caller's meta must and must not have. Errors: MR_E_USAGE naming the member. */
mr_status mr_manifest_check_meta(const json_t *meta);
/* The text of a manifest: facts, the members of `meta`, files, slices, self hash last.
 * Owns: caller frees *text with mr_free. */
mr_status mr_manifest_build(const char *run, int64_t fence, int64_t step, json_t *meta,
                            const mr_ckpt_file *file, const mr_ckpt_item *items,
                            const int64_t *offsets, int n, char **text, size_t *bytes);
/* Read and check <dir>/MANIFEST.json: self hash, schema, sizes that fit together. `m` is closed by
 * _fini, also after a failure. Errors: MR_E_FORMAT damaged; MR_E_CKPT, MR_E_UNSUPPORTED undamaged
 * but not readable; MR_E_IO; MR_E_MEMORY. */
mr_status mr_manifest_read(const char *dir, mr_manifest *m);
void mr_manifest_fini(mr_manifest *m);

/* One save as the writer thread sees it, and the care of the ckpt/ directory. Inside the room. */

/* Paths inside a run directory: printf into a buffer of MR_SAVE_PATH bytes. They fit, because the
 * lock refuses run directories longer than MR_RUN_DIR_MAX; returns the buffer. */
enum { MR_SAVE_PATH = 4096 };
const char *mr_save_path(char buf[MR_SAVE_PATH], const char *fmt, ...) MR_PRINTF(2, 3);

/* The step of a name that starts with "step-<12 digits>", the rest in *rest; -1 for other names. */
int64_t mr_save_step_of(const char *name, const char **rest);

/* How the name of a directory begins that made way for a newer save of the same step, on a file
 * system where two names cannot change places at once. */
#define MR_SAVE_ASIDE ".replaced-"

/* Where the checkpoint `dir` (<run>/ckpt/step-N) lies: there, or aside when its replacement never
 * came; `dir` when there is none. The answer is `dir` or `buf`. */
const char *mr_save_find(const char *dir, char buf[MR_SAVE_PATH]);

/* The step of a directory that is aside; -1 for other names. */
int64_t mr_save_step_aside(const char *name);

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

/* Put back checkpoints that made way for a replacement which never came. Errors: MR_E_IO one cannot
 * be put back; it stays where it is; MR_E_LOCK. */
mr_status mr_save_repair(const mr_run_lock *lock);
/* Repair, then remove what earlier launches of this run (proven dead by the lock) and earlier
 * attempts of this one left behind. */
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

/* The image of a shard in a host buffer. Inside the room. */

/* Names, shapes and places of the tensors; the same for every save of a run. */
typedef struct mr_snapshot_layout {
    mr_arena arena;
    mr_ckpt_item *items; /* without data */
    int64_t *offsets;    /* from the start of the file */
    int n;
    char *header; /* first bytes of the file; NULL: nothing laid out yet */
    int64_t header_bytes, total;
} mr_snapshot_layout;

void mr_snapshot_init(mr_snapshot_layout *l);
void mr_snapshot_drop(mr_snapshot_layout *l);
bool mr_snapshot_fits(const mr_snapshot_layout *l, const mr_ckpt_item *items, int n);
mr_status mr_snapshot_make(mr_snapshot_layout *l, const mr_ckpt_item *items, int n);

/* Copy header and tensors to `image` (l->total bytes) and hash each block into `blocks`. Copy
 * functions of items are called from this thread only, in file order; helper threads do the rest
 * beside it and end before this returns. Errors: what an item's copy function returns. */
mr_status mr_snapshot_copy(const mr_snapshot_layout *l, const mr_ckpt_item *items, char *image,
                           mr_hash128 *blocks);

/* The zips that torch writes: stored entries, read at their places. */

enum { MR_ZIP_NAME = 256 }; /* room for an entry's name */

/* at: in the file */
typedef struct mr_zip_entry {
    char *name;
    int64_t at, bytes;
} mr_zip_entry;

typedef struct mr_zip {
    const char *path;
    int fd;
    int64_t at, size;
    void *zip;
    mr_zip_entry *entries; /* sorted by name */
    int n;
} mr_zip;

/* List the entries: stored, plain, inside the file, no name twice. Borrows path until the close,
 * which is due after a failure too. Errors: MR_E_IO, MR_E_USAGE no file, MR_E_FORMAT,
 * MR_E_MEMORY */
mr_status mr_zip_open(mr_zip *z, const char *path);
void mr_zip_close(mr_zip *z);
const mr_zip_entry *mr_zip_find(const mr_zip *z, const char *name); /* lent; NULL: none */
/* The whole of an entry into dst [bytes], its CRC compared. Errors: MR_E_FORMAT damaged */
mr_status mr_zip_read(mr_zip *z, const mr_zip_entry *e, void *dst);

/* The pickle that names the tensors of a torch file, walked as data. */

/* A dense tensor `name` ("a.b.c", from nested dictionaries) inside the storage `key`;
 * tensor->offset in bytes from the storage's start, its name not set. All lent for the call. */
typedef mr_status mr_pickle_found(void *user, const char *name, const char *key,
                                  const mr_st_tensor *tensor);

/* Walk a pickle and tell its tensors; `path` is for messages.
 * Errors: MR_E_FORMAT cut off, an opcode or name that weights do not need (named), a limit passed;
 * MR_E_UNSUPPORTED a strided view; MR_E_MEMORY; those of `found` */
mr_status mr_pickle_walk(const char *path, const void *pickle, size_t bytes, mr_pickle_found *found,
                         void *user);

/* Weights saved by torch, read as data. Inside the room. */

typedef struct mr_torch mr_torch;

/* Open a zip of torch.save. The dictionaries inside are read as names, joined by dots; tensor data
 * is not read.
 * Errors: MR_E_FORMAT damaged or with anything that weights do not need; MR_E_UNSUPPORTED a strided
 * view, or a build without minizip; MR_E_IO; MR_E_MEMORY */
mr_status mr_torch_open(const char *path, mr_torch **out);
void mr_torch_close(mr_torch *torch); /* NULL is fine */
int mr_torch_count(const mr_torch *torch);
const mr_st_tensor *mr_torch_at(const mr_torch *torch, int i); /* lent */
/* Bytes [offset, offset + n) of a tensor, inside it. Errors: MR_E_IO, MR_E_FORMAT file cut. */
mr_status mr_torch_read(const mr_torch *torch, const mr_st_tensor *t, void *dst, int64_t offset,
                        int64_t n);

#endif
