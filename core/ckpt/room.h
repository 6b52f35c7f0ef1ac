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

/* Runs of consecutive bytes of a tensor: a slice of it, or what a reader wants of it. */
typedef struct mr_span {
    int64_t first, end; /* of its first run, behind its last one; equal: nothing */
    int64_t run, runs;  /* bytes of a run, how many there are */
    int outer;          /* dimensions that are counted through to come from run to run */
    int64_t extent[MR_ST_RANK_MAX], stride[MR_ST_RANK_MAX]; /* of these; strides in bytes */
} mr_span;

mr_span mr_span_stretch(int64_t from, int64_t n); /* bytes [from, from + n) */
/* The slice of a tensor (its name, dtype, rank, shape, bytes). Errors: MR_E_RANGE outside it */
mr_status mr_span_of(const mr_st_tensor *t, const mr_ckpt_slice *slice, mr_span *out);
int64_t mr_span_bytes(const mr_span *r);
int64_t mr_span_start(const mr_span *r, int64_t i); /* first byte of its i-th run */
/* Called for each stretch of n bytes that is in both, in order: where it is in either, counted in
 * the bytes of the span alone. */
typedef mr_status mr_span_both(void *user, int64_t at_a, int64_t at_b, int64_t n);
mr_status mr_span_intersect(const mr_span *a, const mr_span *b, mr_span_both *each, void *user);

enum { MR_SLICE_NAME = MR_ST_NAME_MAX + 320 }; /* room for name[from:to,...] */
/* How a rank's own file names and shapes the part that an item is: "x[0:4,8:16]" of a box,
 * "x[0:32]" of a range. `name` is lent to *out. Errors: MR_E_RANGE the part is not inside the
 * tensor; MR_E_FORMAT a bad shape */
mr_status mr_ckpt_slice_item(const mr_ckpt_item *item, char *name, size_t cap, mr_ckpt_item *out);

/* ---- the manifest of a checkpoint directory, or a rank's part of it ---- */

typedef struct mr_ckpt_file {
    const char *name; /* inside the directory */
    int64_t bytes;
    mr_hash128 *blocks; /* one per MiB */
} mr_ckpt_file;

/* A slice of a tensor, and its place. */
typedef struct mr_piece {
    const int64_t *bounds; /* of a box: from, to of each dimension; of a range: from, to */
    int64_t offset;        /* of its first byte in the file */
    int file;
} mr_piece;

typedef struct mr_manifest_tensor {
    mr_st_tensor is; /* file and offset: those of its first piece */
    mr_ckpt_cut cut; /* of all its pieces: boxes or ranges */
    int first, n;    /* which pieces of the manifest are its own */
} mr_manifest_tensor;

typedef struct mr_manifest {
    char *facts; /* JSON: all members but files, tensors and the self hash */
    int64_t schema, step, fence, save, attempt, rank, ranks;
    char run[40];
    mr_ckpt_file *files;
    mr_manifest_tensor *tensors; /* by file and offset of their first piece */
    mr_piece *pieces;            /* of each tensor in a row, in its order of elements */
    int n_files, n_tensors, n_pieces, cap_files, cap_tensors, cap_pieces;
    mr_arena arena; /* holds texts, hashes and bounds */
} mr_manifest;

void mr_manifest_init(mr_manifest *m);
void mr_manifest_fini(mr_manifest *m);
/* One more entry of a list: its address, cleared; NULL when out of memory. */
mr_ckpt_file *mr_manifest_add_file(mr_manifest *m, const char *name, int64_t bytes);
mr_manifest_tensor *mr_manifest_add_tensor(mr_manifest *m, const mr_st_tensor *is, mr_ckpt_cut cut);
mr_piece *mr_manifest_add_piece(mr_manifest *m, int n_bounds); /* of the last tensor */
/* The slice that a piece is. */
mr_ckpt_slice mr_piece_slice(const mr_manifest_tensor *t, const mr_piece *p);
mr_span mr_piece_span(const mr_manifest_tensor *t, const mr_piece *p);

/* Add a file of items, as mr_safetensors_header has laid them out, each as a tensor of one piece.
 * Errors: MR_E_MEMORY */
mr_status mr_manifest_add(mr_manifest *m, const mr_ckpt_file *file, const mr_ckpt_item *items,
                          const int64_t *offsets, int n);
/* The whole from the parts of all ranks, in their order: pieces of one tensor come together.
 * Errors: MR_E_CKPT a tensor has another shape, dtype or cut in another part; MR_E_MEMORY */
mr_status mr_manifest_merge(mr_manifest *m, const mr_manifest *parts, int n_parts);
/* Does every element of every tensor lie in one piece? Errors: MR_E_CKPT naming tensor and place;
 * MR_E_MEMORY. `path` is for messages; pieces are sorted. */
mr_status mr_manifest_check(const char *path, mr_manifest *m);
/* The hash of a file: of the text of its blocks' hashes, one after the other. `text` is that text:
 * 32 characters per block and a zero; NULL: out of memory. Owns: caller frees it with mr_free */
mr_hash128 mr_ckpt_file_hash(const mr_ckpt_file *file, char **text);

/* How a manifest ends: the hash of all bytes before stands between these. */
#define MR_SELF_HEAD ",\n \"self\": \""
#define MR_SELF_TAIL "\"\n}\n"

/* Members that the caller's meta must and must not have. Errors: MR_E_USAGE naming the member. */
mr_status mr_manifest_check_meta(const json_t *meta);
/* The text of a manifest: facts of `m` (run, fence, step, ranks), the members of `meta`, files,
 * tensors, self hash last. Without meta: of a rank's part, with rank, save and attempt.
 * Owns: caller frees *text with mr_free. */
mr_status mr_manifest_build(const mr_manifest *m, json_t *meta, char **text, size_t *bytes);
/* Read and check a manifest: self hash, schema, sizes that fit together, and where it is no part,
 * that the pieces of each tensor are all of it. The text is read piece by piece: memory stays
 * within a few times its size. `m` is closed by _fini, also after a failure. Errors: MR_E_FORMAT
 * damaged; MR_E_CKPT, MR_E_UNSUPPORTED undamaged but not readable; MR_E_IO; MR_E_MEMORY. */
mr_status mr_manifest_read(const char *path, bool part, mr_manifest *m);

/* ---- files that are not there ---- */

/* Is an operation that failed with errno `err` worth another try? What is absent (ENOENT) or stale
 * (ESTALE) may be there a moment later; waits that moment, some seconds in all. *pauses counts
 * them, from 0. */
bool mr_ckpt_again(int err, int *pauses);

/* Open the directory of a step, as mr_ckpt_open does, with patience for an absent manifest. Errors:
 * as there, but MR_E_IO where it stays absent */
mr_status mr_save_open(const char *dir, mr_ckpt **out);

/* ---- files whose blocks have hashes ---- */

typedef struct mr_blocks mr_blocks;

/* Files of a manifest that lie in `dir`: are they there, with the right sizes? `m` is borrowed
 * until the close. Errors: MR_E_FORMAT of another size; MR_E_IO missing, cannot be read;
 * MR_E_MEMORY */
mr_status mr_blocks_open(const char *dir, const mr_manifest *m, mr_blocks **out);
void mr_blocks_close(mr_blocks *b); /* NULL is fine */
/* Read bytes [at, at + n) of a file. Whole blocks are read and compared with their hash; the ones
 * read last are kept. Errors: MR_E_FORMAT with file, block and tensor; MR_E_IO; MR_E_MEMORY
 * Threads: one call at a time */
mr_status mr_blocks_read(mr_blocks *b, int file, int64_t at, void *dst, int64_t n);
/* Read a share of all blocks by several threads and compare; without `compare` they are only read.
 * A share is a stretch of the blocks counted through all files: equal to one block, whatever the
 * files. Errors: as above */
mr_status mr_blocks_check(mr_blocks *b, mr_ckpt_share share, bool compare);
int64_t mr_blocks_bytes_read(const mr_blocks *b); /* from all files, since the open */

/* Threads that help the caller: they take no signals. Starts at most `most`, and fewer than there
 * are processors; returns how many. The caller joins them. */
int mr_ckpt_helpers(int most, void *(*work)(void *), void *arg, pthread_t *threads);

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

/* Who writes the checkpoints of a run: its lock (rank 0), or another rank of the same launch. */
typedef struct mr_save_owner {
    mr_run_lock *lock; /* NULL: another rank */
    int rank, ranks;
    char dir[MR_RUN_DIR_MAX + 1], run[40];
    int64_t fence;
} mr_save_owner;

/* Errors: MR_E_USAGE, MR_E_LOCK, MR_E_IO */
mr_status mr_save_owner_take(const mr_saver_options *options, mr_save_owner *out);

/* A shard that passes through a small buffer while its owner waits (window.c). Two threads meet in
 * it: the owner's copies pieces into free halves, the writer's takes them. */
typedef struct mr_window {
    pthread_mutex_t mutex; // guards what follows, but not the bytes of a half
    pthread_cond_t changed;
    char *buffer; // two halves; lent
    int64_t half, total;
    int attempt;           // which attempt to write it this is
    bool asked;            // the writer wants bytes
    bool closed, ended;    // no more bytes come; the save is over
    int64_t copied, taken; // bytes in order that were copied; that the writer is done with
    int64_t lent;          // bytes behind those, which the writer uses
    mr_error *why;         // of closed
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
/* Owner: begin with a shard of `total` bytes; `half` is a multiple of a block, and `buffer` has
 * room for two of them or for the shard. */
void mr_window_open(mr_window *w, char *buffer, int64_t half, int64_t total);
/* Owner: the next piece, waiting a moment for room; is there one, or is the save over? */
mr_window_state mr_window_wait(mr_window *w, mr_window_piece *out);
void mr_window_filled(mr_window *w, const mr_window_piece *piece); /* Owner: it is copied */
/* Owner: no more pieces come, because of this thread's error, which is what the writer gets. */
void mr_window_close(mr_window *w);
/* Writer: from the first byte on, also again. */
void mr_window_begin(mr_window *w);
/* Writer: the next piece, in order; the one before it is done with. Errors: that of the close */
mr_status mr_window_next(mr_window *w, const char **bytes, int64_t *n);
void mr_window_end(mr_window *w); /* Writer: the save is over */

/* A finished snapshot: the bytes of the shard with their block hashes, and what the manifest
 * says. */
typedef struct mr_save_job {
    const mr_save_owner *owner;
    int64_t save;      /* which save of the launch this is, from 1 on; the same on every rank */
    double patience_s; /* how long ranks wait for each other */
    const _Atomic double *parted_s; /* from when on they do not: some are lost */
    int64_t step, bytes;
    const char *image;         /* NULL: */
    mr_window *window;         /* the bytes come through this one */
    const mr_hash128 *blocks;  /* of the bytes that are there */
    const mr_ckpt_item *items; /* names and shapes; no data */
    const int64_t *offsets;
    int n;
    json_t *meta;
} mr_save_job;

/* Rank 0: write, read back, wait for the parts of other ranks, commit under ckpt/step-<step>/. On
 * failure nothing of the attempt is left that could be taken for a checkpoint. `attempt` counts
 * from
 * 1. *final: the next attempt would fail too (disk full, a rank that does not answer, parts that do
 * not fit together).
 * Errors: MR_E_IO, MR_E_FORMAT read back differs, MR_E_LOCK fenced off, MR_E_CKPT, MR_E_MEMORY */
mr_status mr_save_attempt(const mr_save_job *job, int attempt, bool *final);
/* Another rank: write the shard and the part of the manifest into the directory of an attempt. */
mr_status mr_save_part(const mr_save_job *job, int attempt, const char *dir);
/* Another rank: a whole save, attempt after attempt, until rank 0 has sent its outcome. Errors: as
 * mr_save_attempt */
mr_status mr_save_follow(const mr_save_job *job);

/* What ranks.c, attempt.c and follow.c share: names in ckpt/ and in the directory of an attempt. */
#define MR_SAVE_ENDED ".ended-"
enum { MR_SAVE_PAUSE_NS = 1000000, MR_SAVE_TEXT_MAX = 4096 }; /* the first pause; of a reason */
/* MR_OK while the launch is the one in force, else MR_E_LOCK. */
mr_status mr_save_check_owner(const mr_save_owner *o);
/* The number behind PREFIX + RUN-FENCE. in a name; -1: another name. *rest: what follows it. */
int64_t mr_save_number_in(const char *name, const char *prefix, const mr_save_owner *o,
                          const char **rest);
/* Has rank 0 said how the save ended? Then the status is that. */
mr_status mr_save_read_outcome(const mr_save_job *job, bool *ended);
/* How long other ranks have been waited for. */
double mr_save_waited_s(const mr_save_job *job, double began);
/* A pause that gets longer while nothing happens; false when other ranks have been waited for long
 * enough since `began`. */
bool mr_save_pause_since(const mr_save_job *job, double began, int64_t *pause_ns);
const char *mr_save_attempt_dir(char buf[MR_SAVE_PATH], const mr_save_job *job, int attempt);
const char *mr_save_rank_file(char buf[MR_SAVE_PATH], const char *dir, int rank, int ranks,
                              const char *ending);
/* Rank 0: the whole from its own part and those that the other ranks have written or write. */
mr_status mr_save_gather(const mr_save_job *job, int attempt, const char *dir, mr_manifest *own,
                         mr_manifest *whole, bool *final);
void mr_save_remove_parts(const mr_save_job *job, const char *dir);
/* Rank 0: tell the others how a save ended; a failure is this thread's error, and stays it. */
void mr_save_tell_outcome(const mr_save_job *job, mr_status st);
void mr_save_forget_outcomes(const mr_save_owner *owner, int64_t save); /* of saves before it */

/* Put back checkpoints that made way for a replacement which never came. Errors: MR_E_IO one cannot
 * be put back; it stays where it is; MR_E_LOCK. */
mr_status mr_save_repair(const mr_run_lock *lock);
/* Repair, then remove what earlier launches of this run (proven dead by the lock) and earlier
 * attempts of this one left behind. */
mr_status mr_save_sweep(const mr_run_lock *lock);

/* Apply retention: keep the newest `keep`, multiples of keep_every (0 = none) and always two whose
 * files match their hashes. verified: steps known to match (this saver's own commits), n_verified
 * of them. `report` receives a line per checkpoint found damaged. */
mr_status mr_save_retain(const mr_run_lock *lock, int keep, int64_t keep_every,
                         const int64_t *verified, int n_verified, mr_ckpt_report *report,
                         void *user);

/* Rename a damaged checkpoint directory to .bad-<name>[-k] and keep it. Best effort. */
void mr_save_condemn(const char *run_dir, int64_t step);

/* Read all of a checkpoint directory and compare. */
mr_status mr_save_verify(const char *dir);

/* The image of a shard, or of a part of it, in a host buffer. Inside the room. */

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
    bool proven;  /* and it was compared */
} mr_entry;

/* Sorted by name; released by mr_entries_free. */
typedef struct mr_entries {
    mr_entry *list;
    int n;
} mr_entries;

enum { MR_ENTRY_NAME = 256 }; /* room for an entry's name */

/* Sort by name. Errors: MR_E_FORMAT a name comes twice */
mr_status mr_entries_sort(const char *path, mr_entries *entries);
mr_entry *mr_entries_find(const mr_entries *entries, const char *name); /* lent; NULL: none */
void mr_entries_free(mr_entries *entries);

/* The entries of a zip: stored, plain, inside the file, no name twice. `path` is for messages.
 * Owns: caller frees *out, after a failure too. Errors: MR_E_FORMAT, MR_E_UNSUPPORTED a build
 * without minizip, MR_E_MEMORY */
mr_status mr_zip_list(const char *path, int fd, int64_t size, mr_entries *out);
/* The whole of an entry into dst [bytes]; its CRC is compared unless it has none. Errors:
 * MR_E_FORMAT damaged, MR_E_IO */
mr_status mr_entry_read(const char *path, int fd, mr_entry *e, void *dst);
/* Read all of an entry and compare its CRC; nothing to do when it has none. Errors: as above,
 * MR_E_MEMORY */
mr_status mr_entry_check(const char *path, int fd, mr_entry *e);

/* What a pickle holds. A value is lent by the mr_pickle that made it. */
typedef enum mr_pickled_kind {
    MR_P_NOTHING, /* None, and whatever is of no use here */
    MR_P_NUMBER,
    MR_P_BIG, /* an integer larger than 8 bytes: its bytes, in .text */
    MR_P_TEXT,
    MR_P_TUPLE,
    MR_P_LIST, /* sets too */
    MR_P_DICT,
    MR_P_NAME,  /* one of the list in rebuild.c */
    MR_P_CLASS, /* one that is not on it */
    MR_P_MODULE,
    MR_P_STORAGE,
    MR_P_TENSOR,
    MR_P_MARK,
    MR_P_COUNT
} mr_pickled_kind;

typedef struct mr_torch_entry mr_torch_entry;

typedef struct mr_pickled {
    uint8_t kind;
    bool open, barren; /* of torch_names.c: being walked; leads to no tensor */
    int n;             /* bytes of a text, items of a container */
    union {
        int64_t number;
        const char *text;          /* inside the pickle, not terminated */
        struct mr_pickled **items; /* of a dictionary: key, value, key, value */
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
    bool is_module; /* an instance of it was filled as a module of torch */
    int unfilled;   /* instances that are not filled yet */
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
    int64_t elements, bytes; /* as the pickle says; the file may say otherwise */
    int size;                /* bytes per element */
    int64_t first, window;   /* elements that tensors may use */
    struct mr_torch_storage *next;
} mr_torch_storage;

typedef struct mr_torch_tensor {
    mr_st_tensor at;                       /* dtype, shape and bytes */
    int64_t stride[MR_ST_RANK_MAX], first; /* in elements; inside the storage's window */
    const mr_torch_storage *storage;
    const char *why; /* it cannot be read; then nothing else is set. NULL: it can */
} mr_torch_tensor;

/* A walk over the pickles at the start of a text. */
typedef struct mr_pickle {
    const char *path;
    const unsigned char *at, *end; /* what is not read yet */
    mr_arena arena;                /* all values */
    size_t used;
    mr_pickled **stack, **memo, *bare[MR_P_COUNT];
    int n_stack, n_memo, n_ops;
    mr_torch_class *classes;
    mr_torch_storage *storages; /* all that are named, newest first */
} mr_pickle;

/* Begin with `text`, which is borrowed until the close; that is due after a failure too. */
mr_status mr_pickle_open(mr_pickle *p, const char *path, const void *text, size_t bytes);
/* Read the next pickle; *out is its value. Errors: MR_E_FORMAT cut off, an opcode or name that
 * weights do not need (named), a limit passed; MR_E_MEMORY */
mr_status mr_pickle_next(mr_pickle *p, mr_pickled **out);
void mr_pickle_close(mr_pickle *p);

/* Of pickled.c: cleared memory of the walk, a value of a kind; NULL when they failed and said
 * why. */
void *mr_pickle_alloc(mr_pickle *p, size_t bytes);
mr_pickled *mr_pickle_new(mr_pickle *p, mr_pickled_kind kind);
bool mr_pickled_is(const mr_pickled *x, const char *text);

/* For pickle.c: what names, references, calls, instances and states of torch mean. Errors:
 * MR_E_FORMAT, MR_E_MEMORY */
typedef mr_status mr_torch_made(mr_pickle *p, mr_pickled *what, mr_pickled *args, mr_pickled **out);
mr_status mr_torch_name(mr_pickle *p, const char *module, const char *name, mr_pickled **out);
mr_status mr_torch_reference(mr_pickle *p, mr_pickled *id, mr_pickled **out);
mr_torch_made mr_torch_call, mr_torch_instance;
mr_status mr_torch_build(mr_pickle *p, mr_pickled *object, mr_pickled *state);
/* Every class that was named has turned out to be one of modules. */
mr_status mr_torch_check_classes(const mr_pickle *p);

/* Tell each tensor below `root` with its name ("a.b.c", from nested dictionaries and modules); all
 * lent for the call. Errors: MR_E_FORMAT no dictionary, too deep, too many ways; those of `found`
 */
typedef mr_status mr_torch_found(void *user, const char *name, const mr_torch_tensor *tensor);
mr_status mr_torch_names(const char *path, mr_pickled *root, mr_torch_found *found, void *user);

/* Files of torch before 1.6: pickles in a row, then the storages. `p` is open at the start of the
 * file; *root is the value that was saved, the storages become entries. Owns: caller frees *out,
 * after a failure too. Errors: MR_E_FORMAT, MR_E_IO, MR_E_MEMORY */
mr_status mr_legacy_read(mr_pickle *p, int fd, int64_t size, mr_pickled **root, mr_entries *out);

/* Elements [from, from + n), counted in row-major order, of a tensor whose element (0, 0, ...) lies
 * at `first`, strides in elements; into out [n * size] without a gap. */
void mr_strided_gather(const void *first, size_t size, int rank, const int64_t *shape,
                       const int64_t *stride, int64_t from, int64_t n, void *out);

typedef struct mr_torch mr_torch;

/* Open what torch.save wrote. Tensor data is not read.
 * Errors: MR_E_FORMAT damaged or with anything that weights do not need; MR_E_UNSUPPORTED a zip in
 * a build without minizip; MR_E_IO; MR_E_MEMORY */
mr_status mr_torch_open(const char *path, mr_torch **out);
void mr_torch_close(mr_torch *torch); /* NULL is fine */
int mr_torch_count(const mr_torch *torch);
const mr_st_tensor *mr_torch_at(const mr_torch *torch, int i); /* lent */
/* Tensors that are in the file and cannot be read, with the reason. Lent. */
int mr_torch_refused_count(const mr_torch *torch);
const mr_st_refused *mr_torch_refused_at(const mr_torch *torch, int i);
/* Bytes [offset, offset + n) of the i-th tensor, inside it, in row-major order. A storage is
 * compared with its CRC before its first byte is handed out; a strided tensor takes memory of its
 * stretch of the storage until its last byte is read. Errors: MR_E_IO, MR_E_FORMAT, MR_E_MEMORY
 * Threads: one call at a time */
mr_status mr_torch_read(mr_torch *torch, int i, void *dst, int64_t offset, int64_t n);
/* Compare every entry with its CRC. Errors: MR_E_USAGE the file has none; as above */
mr_status mr_torch_verify(mr_torch *torch);

#endif
