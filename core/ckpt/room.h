/* ckpt, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_CKPT_ROOM_H
#define MR_CKPT_ROOM_H

#include "moonreel/ckpt.h"
#include "base/json_fields.h"
#include "moonreel/base.h"

#include <jansson.h>
#include <pthread.h>

enum { MR_CKPT_SCHEMA = 2, MR_CKPT_BLOCK = 1 << 20 };
#define MR_CKPT_MANIFEST "MANIFEST.json"

static inline int64_t mr_ckpt_blocks(int64_t bytes)
{
    return (bytes + MR_CKPT_BLOCK - 1) / MR_CKPT_BLOCK;
}

/* ---- parts of tensors ---- */

/* Runs of consecutive bytes of a tensor: a slice, or a range that a reader requests. */
typedef struct mr_span {
    int64_t first, end; /* start of the first run, end of the last one; equal: empty */
    int64_t run, runs;  /* bytes of a run, number of runs */
    int outer;          /* number of dimensions that the runs iterate over */
    int64_t extent[MR_ST_RANK_MAX], stride[MR_ST_RANK_MAX]; /* of these dimensions; strides in
                                                             * bytes */
} mr_span;

mr_span mr_span_stretch(int64_t from, int64_t n); /* bytes [from, from + n) */
/* The runs of a slice of a tensor. Uses name, dtype, rank, shape and bytes of `t`. Errors:
 * MR_E_RANGE outside it */
mr_status mr_span_of(const mr_st_tensor *t, const mr_ckpt_slice *slice, mr_span *out);
int64_t mr_span_bytes(const mr_span *r);
int64_t mr_span_start(const mr_span *r, int64_t i); /* first byte of the i-th run */
/* Called in order for each range of n bytes that both spans contain. at_a, at_b: its position,
 * counted in bytes of that span. */
typedef mr_status mr_span_both(void *user, int64_t at_a, int64_t at_b, int64_t n);
mr_status mr_span_intersect(const mr_span *a, const mr_span *b, mr_span_both *each, void *user);

enum { MR_SLICE_NAME = MR_ST_NAME_MAX + 320 }; /* room for name[from:to,...] */
/* Name and shape of an item's part in the rank's file: "x[0:4,8:16]" for a box, "x[0:32]" for a
 * range. *out points to `name`. Errors: MR_E_RANGE the part is not inside the tensor; MR_E_FORMAT a
 * bad shape */
mr_status mr_ckpt_slice_item(const mr_ckpt_item *item, char *name, size_t cap, mr_ckpt_item *out);

/* ---- the manifest of a checkpoint directory, or a rank's part of it ---- */

typedef struct mr_ckpt_file {
    const char *name; /* inside the directory */
    int64_t bytes;
    mr_hash128 *blocks; /* one per MiB */
} mr_ckpt_file;

/* A slice of a tensor, and its place in a file. */
typedef struct mr_piece {
    const int64_t *bounds; /* for a box: from, to of each dimension; for a range: from, to */
    int64_t offset;        /* file offset of its first byte */
    int file;
} mr_piece;

typedef struct mr_manifest_tensor {
    mr_st_tensor is; /* file and offset: those of its first piece */
    mr_ckpt_cut cut; /* kind of all its pieces: boxes or ranges */
    int first, n;    /* its pieces in mr_manifest.pieces */
} mr_manifest_tensor;

typedef struct mr_manifest {
    char *facts; /* JSON: all members but files, tensors and the self hash */
    int64_t schema, step, fence, save, attempt, rank, ranks;
    char run[40];
    mr_ckpt_file *files;
    mr_manifest_tensor *tensors; /* sorted by file and offset of their first piece */
    mr_piece *pieces;            /* pieces of each tensor are adjacent, in element order */
    int n_files, n_tensors, n_pieces, cap_files, cap_tensors, cap_pieces;
    mr_arena arena; /* memory of texts, hashes and bounds */
} mr_manifest;

void mr_manifest_init(mr_manifest *m);
void mr_manifest_fini(mr_manifest *m);
/* Append a cleared entry to a list; NULL: no memory. */
mr_ckpt_file *mr_manifest_add_file(mr_manifest *m, const char *name, int64_t bytes);
mr_manifest_tensor *mr_manifest_add_tensor(mr_manifest *m, const mr_st_tensor *is, mr_ckpt_cut cut);
mr_piece *mr_manifest_add_piece(mr_manifest *m, int n_bounds); /* to the last tensor */
/* The slice of a piece. */
mr_ckpt_slice mr_piece_slice(const mr_manifest_tensor *t, const mr_piece *p);
mr_span mr_piece_span(const mr_manifest_tensor *t, const mr_piece *p);

/* Add a file of items with the layout of mr_safetensors_header; each item becomes a tensor of one
 * piece.
 * Errors: MR_E_MEMORY */
mr_status mr_manifest_add(mr_manifest *m, const mr_ckpt_file *file, const mr_ckpt_item *items,
                          const int64_t *offsets, int n);
/* Merge the parts of all ranks, in rank order. Collects the pieces of each tensor.
 * Errors: MR_E_CKPT a tensor has another shape, dtype or cut in another part; MR_E_MEMORY */
mr_status mr_manifest_merge(mr_manifest *m, const mr_manifest *parts, int n_parts);
/* Check that every element of every tensor is in exactly one piece. Errors: MR_E_CKPT names tensor
 * and place; MR_E_MEMORY. `path` is for messages; pieces are sorted. */
mr_status mr_manifest_check(const char *path, mr_manifest *m);
/* The hash of a file: the hash of the text of its block hashes. *text is that text: 32 characters
 * per block and a zero; NULL: no memory. Owns: caller frees it with mr_free */
mr_hash128 mr_ckpt_file_hash(const mr_ckpt_file *file, char **text);

/* End of a manifest; the hash of all earlier bytes is between these two. */
#define MR_SELF_HEAD ",\n \"self\": \""
#define MR_SELF_TAIL "\"\n}\n"

/* Check that the caller's meta has the required members and no reserved ones. Errors: MR_E_USAGE
 * names the member. */
mr_status mr_manifest_check_meta(const json_t *meta);
/* Write a manifest as text: facts of `m` (run, fence, step, ranks), the members of `meta`, files,
 * tensors, and the self hash. meta NULL: a rank's part, with rank, save and attempt.
 * Owns: caller frees *text with mr_free. */
mr_status mr_manifest_build(const mr_manifest *m, json_t *meta, char **text, size_t *bytes);
/* Read a manifest and check self hash, schema and sizes. If it is not a part, also check that the
 * pieces of each tensor cover it. Reads the text piece by piece, so memory use is a few times its
 * size. Call _fini after a failure too. Errors: MR_E_FORMAT damaged; MR_E_CKPT, MR_E_UNSUPPORTED
 * undamaged but not readable; MR_E_IO; MR_E_MEMORY. */
mr_status mr_manifest_read(const char *path, bool part, mr_manifest *m);

/* ---- missing files ---- */

/* Should the caller retry an operation that failed with errno `err`? A missing (ENOENT) or stale
 * (ESTALE) file may appear a moment later. Waits that moment, a few seconds in all. *pauses counts
 * the waits, from 0. */
bool mr_ckpt_again(int err, int *pauses);

/* Open the directory of a step like mr_ckpt_open, but wait for a missing manifest. Errors: as
 * there, but MR_E_IO if it stays missing */
mr_status mr_save_open(const char *dir, mr_ckpt **out);

/* ---- files whose blocks have hashes ---- */

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

/* One save in the writer thread, and maintenance of the ckpt/ directory. Inside the room. */

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

/* A small buffer through which a shard is written while its owner waits (window.c). The owner's
 * thread copies pieces into free halves, the writer thread takes them. */
typedef struct mr_window {
    pthread_mutex_t mutex; // protects the fields below, but not the bytes of a half
    pthread_cond_t changed;
    char *buffer; // two halves; borrowed
    int64_t half, total;
    int attempt;           // number of the attempt to write the shard
    bool asked;            // the writer has asked for bytes
    bool closed, ended;    // the owner provides no more bytes; the save has ended
    int64_t copied, taken; // bytes copied so far; bytes that the writer has finished
    int64_t lent;          // bytes after `taken` that the writer is using
    mr_error *why;         // reason of `closed`
} mr_window;

/* A piece for the owner to copy: bytes [at, at + n) of the shard, to `place`. */
typedef struct mr_window_piece {
    int64_t at, n;
    char *place;
    int attempt;
} mr_window_piece;

typedef enum mr_window_state { MR_WINDOW_NOTHING, MR_WINDOW_ROOM, MR_WINDOW_ENDED } mr_window_state;

void mr_window_init(mr_window *w);
void mr_window_fini(mr_window *w);
/* Owner: begin a shard of `total` bytes. `half` is a multiple of a block. `buffer` has space for
 * two halves or for the shard. */
void mr_window_open(mr_window *w, char *buffer, int64_t half, int64_t total);
/* Owner: wait briefly for a free half. Returns whether there is a piece to copy, or the save has
 * ended. */
mr_window_state mr_window_wait(mr_window *w, mr_window_piece *out);
void mr_window_filled(mr_window *w, const mr_window_piece *piece); /* Owner: the piece is copied */
/* Owner: stop after an error of this thread; the writer gets this error. */
void mr_window_close(mr_window *w);
/* Writer: begin or restart at the first byte. */
void mr_window_begin(mr_window *w);
/* Writer: release the previous piece and get the next one. Errors: that of the close */
mr_status mr_window_next(mr_window *w, const char **bytes, int64_t *n);
void mr_window_end(mr_window *w); /* Writer: end the save */

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

/* The image of a shard, or of a part of it, in a host buffer. Inside the room. */

/* Names, shapes and offsets of the tensors; equal for every save of a run. */
typedef struct mr_snapshot_layout {
    mr_arena arena;
    mr_ckpt_item *items; /* without data */
    int64_t *offsets;    /* from the start of the file */
    int n;
    char *header; /* first bytes of the file; NULL: no layout yet */
    int64_t header_bytes, total;
} mr_snapshot_layout;

void mr_snapshot_init(mr_snapshot_layout *l);
void mr_snapshot_drop(mr_snapshot_layout *l);
bool mr_snapshot_fits(const mr_snapshot_layout *l, const mr_ckpt_item *items, int n);
mr_status mr_snapshot_make(mr_snapshot_layout *l, const mr_ckpt_item *items, int n);

/* Copy bytes [at, at + n) of header and tensors to `image`, and hash each block into `blocks`,
 * which has one for each of all l->total bytes; `at` is a multiple of a block, and so is n, unless
 * it reaches to the end. Copy functions of items are called from this thread only, in file order;
 * helper threads do the rest in parallel with it and end before this returns. Errors: what an
 * item's copy function returns. */
mr_status mr_snapshot_copy(const mr_snapshot_layout *l, const mr_ckpt_item *items, int64_t at,
                           int64_t n, char *image, mr_hash128 *blocks);

/* ---- weights saved by torch, read as data ---- */

/* A range of bytes in a file, by name: an entry of a zip, or a storage of an older file. */
typedef struct mr_entry {
    char *name;
    int64_t at, bytes;
    uint32_t crc;
    bool has_sum; /* crc is the CRC-32 of the bytes */
    bool proven;  /* the CRC was compared */
} mr_entry;

/* Sorted by name; released by mr_entries_free. */
typedef struct mr_entries {
    mr_entry *list;
    int n;
} mr_entries;

enum { MR_ENTRY_NAME = 256 }; /* room for an entry's name */

/* Sort by name. Errors: MR_E_FORMAT a name occurs twice */
mr_status mr_entries_sort(const char *path, mr_entries *entries);
mr_entry *mr_entries_find(const mr_entries *entries, const char *name); /* borrowed; NULL: none */
void mr_entries_free(mr_entries *entries);

/* The entries of a zip: stored, plain, inside the file, no name twice. `path` is for messages.
 * Owns: caller frees *out, after a failure too. Errors: MR_E_FORMAT, MR_E_UNSUPPORTED a build
 * without minizip, MR_E_MEMORY */
mr_status mr_zip_list(const char *path, int fd, int64_t size, mr_entries *out);
/* Read a whole entry to dst [bytes]. Compares its CRC if it has one. Errors: MR_E_FORMAT damaged,
 * MR_E_IO */
mr_status mr_entry_read(const char *path, int fd, mr_entry *e, void *dst);
/* Read an entry and compare its CRC. Does nothing if it has none. Errors: as above, MR_E_MEMORY */
mr_status mr_entry_check(const char *path, int fd, mr_entry *e);

/* A value of a pickle. The mr_pickle owns it. */
typedef enum mr_pickled_kind {
    MR_P_NOTHING, /* None and unused values */
    MR_P_NUMBER,
    MR_P_BIG, /* an integer larger than 8 bytes: its bytes, in .text */
    MR_P_TEXT,
    MR_P_TUPLE,
    MR_P_LIST, /* sets too */
    MR_P_DICT,
    MR_P_NAME,  /* a name on the list in rebuild.c */
    MR_P_CLASS, /* a name that is not on the list */
    MR_P_MODULE,
    MR_P_STORAGE,
    MR_P_TENSOR,
    MR_P_MARK,
    MR_P_COUNT
} mr_pickled_kind;

typedef struct mr_torch_entry mr_torch_entry;

typedef struct mr_pickled {
    uint8_t kind;
    bool open, barren; /* for torch_names.c: being visited; contains no tensor */
    int n;             /* bytes of a text, items of a container */
    union {
        int64_t number;
        const char *text;          /* inside the pickle, not terminated */
        struct mr_pickled **items; /* for a dictionary: key, value, key, value */
        const mr_torch_entry *row;
        struct mr_torch_class *class;
        struct mr_torch_module *module;
        struct mr_torch_storage *storage;
        struct mr_torch_tensor *tensor;
    };
} mr_pickled;

enum { MR_TORCH_NAME = 128 }; /* room for a module's or class's name in a pickle */

typedef struct mr_torch_class {
    char module[MR_TORCH_NAME], name[MR_TORCH_NAME];
    bool is_module; /* an instance was filled as a torch module */
    int unfilled;   /* number of instances not filled yet */
    struct mr_torch_class *next;
} mr_torch_class;

typedef struct mr_torch_module {
    mr_torch_class *class;
    mr_pickled *parameters, *buffers, *modules; /* dictionaries */
    mr_pickled *unsaved;                        /* names of buffers that are not weights; or NULL */
} mr_torch_module;

typedef struct mr_torch_storage {
    const mr_torch_entry *row;
    const mr_pickled *key;   /* a text */
    int64_t elements, bytes; /* according to the pickle; the file may differ */
    int size;                /* bytes per element */
    int64_t first, window;   /* range of elements that tensors may use */
    struct mr_torch_storage *next;
} mr_torch_storage;

typedef struct mr_torch_tensor {
    mr_st_tensor at;                       /* dtype, shape and bytes */
    int64_t stride[MR_ST_RANK_MAX], first; /* in elements; inside the storage's window */
    const mr_torch_storage *storage;
    const char *why; /* reason why it cannot be read, and no other field is set; NULL: it can be
                      * read */
} mr_torch_tensor;

/* An interpreter of the pickles at the start of a text. */
typedef struct mr_pickle {
    const char *path;
    const unsigned char *at, *end; /* the unread bytes */
    mr_arena arena;                /* memory of all values */
    size_t used;
    mr_pickled **stack, **memo, *bare[MR_P_COUNT];
    int n_stack, n_memo, n_ops;
    mr_torch_class *classes;
    mr_torch_storage *storages; /* all storages named so far, newest first */
} mr_pickle;

/* Begin with `text`; borrows it until the close. Call close after a failure too. */
mr_status mr_pickle_open(mr_pickle *p, const char *path, const void *text, size_t bytes);
/* Read the next pickle; *out is its value. Errors: MR_E_FORMAT cut off, an opcode or name that
 * weights do not need (named), a limit passed; MR_E_MEMORY */
mr_status mr_pickle_next(mr_pickle *p, mr_pickled **out);
void mr_pickle_close(mr_pickle *p);

/* In pickled.c: cleared memory, and a value of a kind; NULL: failed, and the error is set. */
void *mr_pickle_alloc(mr_pickle *p, size_t bytes);
mr_pickled *mr_pickle_new(mr_pickle *p, mr_pickled_kind kind);
bool mr_pickled_is(const mr_pickled *x, const char *text);

/* For pickle.c: interpret names, references, calls, instances and states of torch. Errors:
 * MR_E_FORMAT, MR_E_MEMORY */
typedef mr_status mr_torch_made(mr_pickle *p, mr_pickled *what, mr_pickled *args, mr_pickled **out);
mr_status mr_torch_name(mr_pickle *p, const char *module, const char *name, mr_pickled **out);
mr_status mr_torch_reference(mr_pickle *p, mr_pickled *id, mr_pickled **out);
mr_torch_made mr_torch_call, mr_torch_instance;
mr_status mr_torch_build(mr_pickle *p, mr_pickled *object, mr_pickled *state);
/* Check that every named class is the class of a module. */
mr_status mr_torch_check_classes(const mr_pickle *p);

/* Call `found` for each tensor below `root`, with its name "a.b.c" from nested dictionaries and
 * modules. The arguments are valid during the call only. Errors: MR_E_FORMAT not a dictionary, too
 * deep, too many paths; those of `found` */
typedef mr_status mr_torch_found(void *user, const char *name, const mr_torch_tensor *tensor);
mr_status mr_torch_names(const char *path, mr_pickled *root, mr_torch_found *found, void *user);

/* Read a file of torch before 1.6: several pickles, then the storages. `p` is open at the start of
 * the file. *root is the saved value; the storages become entries. Owns: caller frees *out, after a
 * failure too. Errors: MR_E_FORMAT, MR_E_IO, MR_E_MEMORY */
mr_status mr_legacy_read(mr_pickle *p, int fd, int64_t size, mr_pickled **root, mr_entries *out);

/* Copy the elements [from, from + n), counted in row-major order, of a strided tensor to out [n *
 * size], contiguously. `first` points to element (0, 0, ...); strides are in elements. */
void mr_strided_gather(const void *first, size_t size, int rank, const int64_t *shape,
                       const int64_t *stride, int64_t from, int64_t n, void *out);

typedef struct mr_torch mr_torch;

/* Open a file of torch.save. Reads no tensor data.
 * Errors: MR_E_FORMAT damaged or with anything that weights do not need; MR_E_UNSUPPORTED a zip in
 * a build without minizip; MR_E_IO; MR_E_MEMORY */
mr_status mr_torch_open(const char *path, mr_torch **out);
void mr_torch_close(mr_torch *torch); /* NULL is fine */
int mr_torch_count(const mr_torch *torch);
const mr_st_tensor *mr_torch_at(const mr_torch *torch, int i); /* lent */
/* Tensors in the file that cannot be read, with the reason. Borrowed. */
int mr_torch_refused_count(const mr_torch *torch);
const mr_st_refused *mr_torch_refused_at(const mr_torch *torch, int i);
/* Read bytes [offset, offset + n) of the i-th tensor in row-major order. Compares a storage with
 * its CRC before it returns the first byte. A strided tensor keeps its range of the storage in
 * memory until its last byte is read. Errors: MR_E_IO, MR_E_FORMAT, MR_E_MEMORY
 * Threads: one call at a time */
mr_status mr_torch_read(mr_torch *torch, int i, void *dst, int64_t offset, int64_t n);
/* Compare every entry with its CRC. Errors: MR_E_USAGE the file has none; as above */
mr_status mr_torch_verify(mr_torch *torch);

#endif
