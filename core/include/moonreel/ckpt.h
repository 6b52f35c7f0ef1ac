/* ckpt: safetensors files, checkpoints (write while training continues, verify, find, read),
 * retention.
 *
 * A checkpoint is a directory <run>/ckpt/step-<12 digits>/ with one safetensors shard per rank and
 * MANIFEST.json. The manifest records the step and the launch of the save, XXH3-128 hashes of every
 * file and of every MiB of it, and the pieces of each tensor: the whole, or boxes or ranges of
 * elements. A checkpoint is written under a temporary name; the rename to the final name commits
 * it. Every byte read from such a directory is checked against its block's hash. Plain safetensors
 * files (released weights) open in the same way, without hashes.
 *
 * Weights have the released name; other tensors have a prefix for their role and that name.
 * The lock of a run directory: moonreel/run.h.
 *
 * Threads: any, unless a function says otherwise; one caller at a time per saver and per open
 * checkpoint.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CKPT_H
#define MOONREEL_CKPT_H

#include "moonreel/base.h"
#include "moonreel/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- element types ---- */

/* The element types of safetensors files; a larger set than mr_dtype, which lists the types that
 * ops compute with. */
typedef enum mr_st_dtype {
    MR_ST_F64,
    MR_ST_F32,
    MR_ST_F16,
    MR_ST_BF16,
    MR_ST_F8_E4M3,
    MR_ST_F8_E5M2,
    MR_ST_I64,
    MR_ST_I32,
    MR_ST_I16,
    MR_ST_I8,
    MR_ST_U64,
    MR_ST_U32,
    MR_ST_U16,
    MR_ST_U8,
    MR_ST_BOOL,
    MR_ST_DTYPE_COUNT
} mr_st_dtype;

MR_API const char *mr_st_dtype_name(mr_st_dtype dtype);      /* "bf16"; lent, static */
MR_API const char *mr_st_dtype_file_name(mr_st_dtype dtype); /* "BF16", as in files; lent, static */
/* either spelling; MR_ST_DTYPE_COUNT when unknown */
MR_API mr_st_dtype mr_st_dtype_from_name(const char *name);
MR_API size_t mr_st_dtype_bytes(mr_st_dtype dtype);
/* n elements as doubles (bool and integers by value). Borrows both. */
MR_API void mr_st_to_f64(mr_st_dtype dtype, const void *src, int64_t n, double *out);

enum {
    MR_ST_RANK_MAX = 8,
    MR_ST_NAME_MAX = 512,
    MR_ST_HEADER_MAX = 16 << 20,
    MR_ST_HEADER_MAX_LARGE = 100000000
};

/* One tensor of a file or checkpoint. */
typedef struct mr_st_tensor {
    const char *name; /* lent by the file or checkpoint it came from */
    mr_st_dtype dtype;
    int rank; /* 0 = scalar */
    int64_t shape[MR_ST_RANK_MAX];
    int64_t bytes;  /* elements x element size */
    int64_t offset; /* of the first byte, from the start of its file */
    int file;       /* index of its file; 0 in a single file */
} mr_st_tensor;

/* A tensor that is in a file and cannot be read, with the reason. */
typedef struct mr_st_refused {
    const char *name, *why; /* lent by the file or checkpoint */
} mr_st_refused;

/* Bytes of a tensor of this shape. Errors: MR_E_FORMAT negative or overflowing. */
MR_API mr_status mr_st_shape_bytes(mr_st_dtype dtype, int rank, const int64_t *shape,
                                   int64_t *bytes);

/* ---- safetensors files ---- */

typedef struct mr_safetensors mr_safetensors;

/* Open `path` and check its header: length, UTF-8 JSON, unique names, known dtypes, offsets that
 * follow each other without gap and end at the file's end. Tensor data is not read. The file is not
 * trusted and never mapped.
 *
 * header_max   bytes; 0 = MR_ST_HEADER_MAX; at most MR_ST_HEADER_MAX_LARGE
 * Owns:    caller owns *out
 * Errors:  MR_E_FORMAT with file and key; MR_E_IO; MR_E_MEMORY */
MR_API mr_status mr_safetensors_open(const char *path, int64_t header_max, mr_safetensors **out);
/* NULL is fine */
MR_API void mr_safetensors_close(mr_safetensors *st);
MR_API int mr_safetensors_count(const mr_safetensors *st);
/* in the order of the file; lent */
MR_API const mr_st_tensor *mr_safetensors_at(const mr_safetensors *st, int i);
/* The __metadata__ of the file: its pairs in sorted order. Lent. */
MR_API int mr_safetensors_meta_count(const mr_safetensors *st);
MR_API void mr_safetensors_meta_at(const mr_safetensors *st, int i, const char **key,
                                   const char **value);
/* Read bytes [offset, offset + n) of a tensor. Errors: MR_E_RANGE outside it; MR_E_IO; MR_E_FORMAT
 * file cut.
 * Threads: any. */
MR_API mr_status mr_safetensors_read(const mr_safetensors *st, const mr_st_tensor *t, void *dst,
                                     int64_t offset, int64_t n);

/* A part of a tensor: all of it, a box, or a range of its elements in row-major order. */
typedef enum mr_ckpt_cut { MR_CKPT_ALL, MR_CKPT_BOX, MR_CKPT_RANGE } mr_ckpt_cut;
typedef struct mr_ckpt_slice {
    mr_ckpt_cut cut;
    /* elements [from, to): of each dimension (box), or [0] alone, of the flattened tensor (range)
     */
    int64_t from[MR_ST_RANK_MAX], to[MR_ST_RANK_MAX];
} mr_ckpt_slice;

/* One tensor to write, or a part of it: in host memory (`data`), or behind a copy function that
 * writes its bytes [offset, offset + n) to dst. The bytes of a part are dense, in row-major order.
 * The memory is borrowed during the call that takes the item. */
typedef struct mr_ckpt_item {
    const char *name;
    mr_st_dtype dtype;
    int rank;
    int64_t shape[MR_ST_RANK_MAX]; /* of the whole tensor */
    mr_ckpt_slice slice;           /* which part of it this is; cleared: all */
    const void *data;
    mr_status (*copy)(void *user, void *dst, int64_t offset, int64_t n);
    void *user;
} mr_ckpt_item;

/* Bytes of an item's part. Errors: MR_E_FORMAT bad shape; MR_E_RANGE a part outside its tensor */
MR_API mr_status mr_ckpt_item_bytes(const mr_ckpt_item *item, int64_t *bytes);

typedef struct mr_st_pair {
    const char *key, *value;
} mr_st_pair;

/* The first bytes of a safetensors file with `items` in this order: length word and JSON, padded
 * with spaces so that data starts at a multiple of 8. offsets[i] (may be NULL) receives the offset
 * of item i in the file, *total the size of the file.
 * Owns:    caller frees *header with mr_free
 * Errors:  MR_E_USAGE a name that is empty, too long, not UTF-8 or repeated; a bad shape; a header
 * over MR_ST_HEADER_MAX_LARGE */
MR_API mr_status mr_safetensors_header(const mr_ckpt_item *items, int n, const mr_st_pair *meta,
                                       int n_meta, char **header, int64_t *header_bytes,
                                       int64_t *offsets, int64_t *total);
/* Write a whole file of whole tensors: temporary name, stream, sync, rename, sync of the directory.
 */
MR_API mr_status mr_safetensors_write(const char *path, const mr_ckpt_item *items, int n,
                                      const mr_st_pair *meta, int n_meta);

/* ---- saving ---- */

typedef struct mr_saver mr_saver;

typedef struct mr_saver_options {
    /* names the run directory, run id and fencing number; the saver keeps a reference. Of rank 0.
     */
    mr_run_lock *lock;
    /* Several ranks write one checkpoint: each has a saver with its rank and the number of ranks
     * (0: one), and saves its own parts of the tensors. All ranks call mr_saver_save in the same
     * order. Ranks from 1 on have no lock: they name the directory of the run, and the fencing
     * number that rank 0 has sent them, 0: the one in force. They open after rank 0. */
    int rank, ranks;
    const char *run_dir;
    int64_t fence;
    int keep;           /* newest checkpoints to keep; 0 = 3, below 0 = all */
    int64_t keep_every; /* steps that are multiples of this are never removed; 0 = none */
    int attempts;       /* tries per save, each under a new name; 0 = 3 */
    /* saves in a row without a commit before mr_saver_check fails; 0 = 3 */
    int intervals_max;
    /* how long one save may take before it counts as stuck; 0 = 600. Callers do not wait longer for
     * the writer. Ranks wait for each other half as long; then the save is given up, and nothing is
     * committed. */
    double deadline_s;
    /* 0: a save is copied completely and written while the caller continues. Otherwise at least
     * 2 MiB: it is copied through a host buffer of this size, and mr_saver_save returns at its end
     */
    int64_t buffer_bytes;
} mr_saver_options;

typedef enum mr_saver_kind {
    MR_SAVER_COMMIT,
    MR_SAVER_RETRY,
    MR_SAVER_SKIP,
    MR_SAVER_FAIL,
    MR_SAVER_NOTE
} mr_saver_kind;

/* What happened to a save; each is returned once. */
typedef struct mr_saver_event {
    mr_saver_kind kind;     /* committed; attempt failed and is tried again; not tried (both buffers
                               busy, no memory for one); given up (a full disk at once, other
                               failures after all attempts); something the user may want to know */
    int64_t step;           /* of the save; of a note: step of the commit before it */
    int64_t bytes;          /* of the shard */
    double copy_s, write_s; /* stall of the caller; from the end of the copy to the commit */
    char text[512];         /* directory (commit) or reason */
} mr_saver_event;

typedef struct mr_saver_status {
    /* of this saver: saves committed, saves that ended without a commit */
    int64_t commits, failures;
    int failures_in_row;
    int pending;         /* saves copied and not yet ended: 0 to 2 */
    int64_t last_commit; /* step, -1 = none */
} mr_saver_status;

MR_API const char *mr_saver_kind_name(
    mr_saver_kind kind); /* "commit" "retry" "skip" "fail" "note"; lent, static */

/* Start a saver with its writer thread. Rank 0 removes temporary and trash directories that earlier
 * launches of this run left; the lock proves that these launches have ended.
 * Owns:    caller owns *out
 * Errors:  MR_E_USAGE rank and lock do not fit; MR_E_IO; MR_E_MEMORY; MR_E_LOCK the lock is no
 *          longer ours, or not taken yet */
MR_API mr_status mr_saver_open(const mr_saver_options *options, mr_saver **out);

/* Allocate `buffers` host buffers, 1 or 2 (with buffer_bytes always one), for items of these names
 * and shapes (no data is read). Later saves of the same layout then allocate nothing, as long as at
 * most `buffers` saves are written at a time. Errors: MR_E_USAGE, MR_E_MEMORY. */
MR_API mr_status mr_saver_prepare(mr_saver *saver, const mr_ckpt_item *items, int n, int buffers);

/* Take a snapshot of all items (copied and hashed before return) and let the writer thread commit
 * it as ckpt/step-<step>/. With buffer_bytes the items are copied piece by piece while it writes,
 * and the call returns at the end of the save, or when it is stuck. A save that cannot be done now
 * (both buffers are still being written) is skipped and reported by mr_saver_poll. If this would be
 * the last of intervals_max skipped saves in a row, it waits for a buffer instead. Only the writer
 * thread accesses the disk, except for mr_saver_open. Every commit is read back and compared with
 * the hashes of the snapshot. A directory that exists for this step is replaced. The contents of
 * the run's journal.jsonl, if there is one, from before the snapshot are durable before the
 * checkpoint is.
 *
 * meta_json    object; members `recipe_hash`, `dataset_fingerprint`, `sampler` (texts), `seed`
 *              (integer) and `machine` (object) are required, all are kept in the manifest
 *              NULL from rank 1 on
 * wait         true: wait for a free buffer instead of skipping (the last save of a run); several
 *              ranks always wait, because a save that one of them skips is lost for all
 * taken        receives whether there is a snapshot that the writer will try to commit, with
 *              buffer_bytes whether it is committed; false after a failure and for a skipped save
 * Owns:    borrows everything during the call
 * Errors:  MR_E_USAGE bad items or meta; what `copy` of an item returns; MR_E_LOCK and, of one rank
 *          alone, MR_E_CKPT as mr_saver_check; with buffer_bytes MR_E_CKPT a save that is stuck
 * Threads: one caller */
MR_API mr_status mr_saver_save(mr_saver *saver, int64_t step, const mr_ckpt_item *items, int n,
                               const char *meta_json, bool wait, bool *taken);
/* Wait until nothing is pending and old checkpoints are removed; a stuck removal does not fail a
 * save. Errors: MR_E_CKPT not done after timeout_s (INFINITY is fine) or stuck, or the newest save
 * was skipped or ended without a commit (reason in the text), regardless of older ones; MR_E_LOCK.
 */
MR_API mr_status mr_saver_wait(mr_saver *saver, double timeout_s);
/* MR_E_CKPT when intervals_max saves in a row ended without a commit, MR_E_LOCK when another launch
 * has taken over the run, otherwise MR_OK. With several ranks only rank 0 fails because of saves,
 * and it notifies the others. So the savers of all ranks take the same saves. Cheap: call it each
 * step.
 */
MR_API mr_status mr_saver_check(mr_saver *saver);
MR_API void mr_saver_get_status(mr_saver *saver, mr_saver_status *out);
/* Return the oldest pending event; false: no event is pending. At most 64 events are kept, the
 * newest. */
MR_API bool mr_saver_poll(mr_saver *saver, mr_saver_event *out);
/* Some ranks are lost: wait at most `seconds` for the parts of the others. */
MR_API void mr_saver_part(mr_saver *saver, double seconds);
/* Wait for pending saves, stop the thread, free. Does not wait for a stuck save: its thread keeps
 * the lock and frees the saver when its disk responds again. NULL is fine. */
MR_API void mr_saver_close(mr_saver *saver);

/* ---- reading ---- */

typedef struct mr_ckpt mr_ckpt;

/* Open a checkpoint directory (manifest with the right self hash, all files, right sizes), a
 * .safetensors file, an index file (*.safetensors.index.json, pytorch_model.bin.index.json),
 * weights saved by torch (.pth, .bin, .pt, .ckpt: read as data, no code in them is run), or a
 * directory with one of these. Hashes of a checkpoint are checked as bytes are read. Strided
 * tensors of torch come out dense. Errors: MR_E_FORMAT damaged, MR_E_IO, MR_E_USAGE no such file or
 * directory */
MR_API mr_status mr_ckpt_open(const char *path, mr_ckpt **out);
/* NULL is fine */
MR_API void mr_ckpt_close(mr_ckpt *ckpt);
MR_API int mr_ckpt_count(const mr_ckpt *ckpt);
/* file order; lent */
MR_API const mr_st_tensor *mr_ckpt_at(const mr_ckpt *ckpt, int i);
/* NULL when absent; lent */
MR_API const mr_st_tensor *mr_ckpt_find(const mr_ckpt *ckpt, const char *name);
/* Fail for a name that mr_ckpt_find does not find: MR_E_UNSUPPORTED with the reason if the file has
 * such a tensor that cannot be read, MR_E_RANGE if it has none. */
MR_API mr_status mr_ckpt_missing(const mr_ckpt *ckpt, const char *name);
/* Tensors that cannot be read (complex or quantised ones in weights of torch); they are not among
 * the others. Lent. */
MR_API int mr_ckpt_refused_count(const mr_ckpt *ckpt);
MR_API const mr_st_refused *mr_ckpt_refused_at(const mr_ckpt *ckpt, int i);
/* Read bytes [offset, offset + n) of the tensor `name`, in row-major order, to host memory. Weights
 * of torch are compared with the CRC of their storage first. After a failure dst is undefined.
 * Errors:  MR_E_RANGE outside the tensor; as mr_ckpt_missing; MR_E_FORMAT hash differs (file and
 * byte in the text); MR_E_IO; MR_E_MEMORY
 * Threads: one call at a time per checkpoint */
MR_API mr_status mr_ckpt_read(mr_ckpt *ckpt, const char *name, void *dst, int64_t offset,
                              int64_t n);
/* A slice of a tensor to read, and its destination. */
typedef struct mr_ckpt_want {
    const char *name;
    mr_ckpt_slice slice; /* cleared: all of it */
    void *dst;           /* its elements, dense, in row-major order */
    int64_t bytes;       /* of dst: the size of the slice */
} mr_ckpt_want;

/* Read slices of tensors, independent of the pieces in which they were saved, in the order of the
 * files. For a checkpoint only the necessary blocks are read, each once (a block that contains
 * parts of two distant slices may be read twice). Borrows all during the call. After a failure
 * every dst is undefined. Errors: MR_E_RANGE a slice outside its tensor; MR_E_SHAPE dst is larger
 * or smaller; as mr_ckpt_read. Threads: one call at a time per checkpoint */
MR_API mr_status mr_ckpt_read_slices(mr_ckpt *ckpt, const mr_ckpt_want *wants, int n);
/* Bytes read from the files of a checkpoint since it was opened, in whole blocks; 0 for plain
 * files. */
MR_API int64_t mr_ckpt_bytes_read(const mr_ckpt *ckpt);
/* The share of one of several readers. All take the same number of blocks, within one block;
 * together they take every block once. */
typedef struct mr_ckpt_share {
    int part, parts; /* part from 0 on; 1 << 20 parts at most */
} mr_ckpt_share;

/* Read every byte and compare all hashes, or the CRCs of torch weights. Several threads read a
 * checkpoint, split by blocks over all its files. Errors: as mr_ckpt_read; MR_E_USAGE other plain
 * files, which have no checksums. */
MR_API mr_status mr_ckpt_verify(mr_ckpt *ckpt);
/* Verify the share of one of several readers: ranks that load a checkpoint together read it once. A
 * rank that fails must notify the others, because no rank knows the results of another.
 * Errors: as mr_ckpt_verify; MR_E_USAGE no such part, plain files */
MR_API mr_status mr_ckpt_verify_share(mr_ckpt *ckpt, mr_ckpt_share share);
/* Read every byte by the same threads and compare nothing: to measure the share of reading in
 * mr_ckpt_verify. Errors: MR_E_IO, MR_E_MEMORY; MR_E_USAGE plain files */
MR_API mr_status mr_ckpt_touch(mr_ckpt *ckpt);
MR_API const char *mr_ckpt_path(const mr_ckpt *ckpt); /* lent */
/* the manifest without files and tensors, as JSON; NULL for plain files; lent */
MR_API const char *mr_ckpt_manifest(const mr_ckpt *ckpt);
MR_API int64_t mr_ckpt_step(const mr_ckpt *ckpt);   /* -1 for plain files */
MR_API int64_t mr_ckpt_bytes(const mr_ckpt *ckpt);  /* size of all files together */
MR_API int mr_ckpt_meta_count(const mr_ckpt *ckpt); /* __metadata__ of a plain file */
MR_API void mr_ckpt_meta_at(const mr_ckpt *ckpt, int i, const char **key, const char **value);

/* Statistics of one tensor. */
typedef struct mr_ckpt_stats {
    int64_t n, zeros, nonfinite;
    double min, max, mean, rms; /* over the finite elements; 0 when there are none */
} mr_ckpt_stats;
MR_API mr_status mr_ckpt_stats_of(mr_ckpt *ckpt, const char *name, mr_ckpt_stats *out);

/* Compare two tensors of equal dtype and shape bit for bit, one from each checkpoint. */
typedef struct mr_ckpt_delta {
    int64_t n, differing, first; /* elements; first differing one or -1 */
    double max_abs;              /* largest difference of finite elements */
    double distance;             /* root of the sum of their squared differences */
} mr_ckpt_delta;
MR_API mr_status mr_ckpt_compare(mr_ckpt *a, const char *name_a, mr_ckpt *b, const char *name_b,
                                 mr_ckpt_delta *out);

/* Steps committed in a run directory, newest first. Owns: caller frees *steps with mr_free. No
 * ckpt/: n = 0. */
MR_API mr_status mr_ckpt_steps(const char *run_dir, int64_t **steps, int *n);
/* "<run_dir>/ckpt/step-<12 digits>" into buf; returns buf. */
MR_API const char *mr_ckpt_dir(const char *run_dir, int64_t step, char *buf, size_t cap);

/* Open the newest valid checkpoint of a run: from the newest on, each is read completely and
 * compared with its hashes; after a damaged one the next older one is tried.
 *
 * - lock: the run's lock. A checkpoint that was renamed for a replacement which was never committed
 *   is restored first; a damaged directory is renamed .bad-<name> and kept. NULL: no renames
 * - report: called for each checkpoint that is skipped, with the reason; may be NULL
 *
 * Errors: MR_E_CKPT no checkpoint is valid (*out NULL); MR_E_USAGE the run has no checkpoint;
 * MR_E_MEMORY, MR_E_STOPPED
 */
typedef void mr_ckpt_report(void *user, const char *line);
MR_API mr_status mr_ckpt_open_newest(const char *run_dir, const mr_run_lock *lock,
                                     mr_ckpt_report *report, void *user, mr_ckpt **out);

/* Remove the checkpoints of all steps above `step`, which the run discards, the newest first.
 * Errors: MR_E_LOCK, MR_E_IO; the remaining checkpoints are complete */
MR_API mr_status mr_ckpt_drop_after(const mr_run_lock *lock, int64_t step);

#ifdef __cplusplus
}
#endif
#endif
