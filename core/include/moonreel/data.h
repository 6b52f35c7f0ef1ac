/* data: samples in an index, their order, and batches of decoded clips.
 *
 * Stream: folder, CSV or JSON lines -> ingest -> index (LMDB) -> order (a pure function of index,
 * bucket rule, seed and epoch) -> loader (decode threads, slabs) -> batch. An index is sealed and
 * never changes afterwards; training opens nothing but the index and the clips themselves.
 * Formats and rules: reference dataplane, sections 2, 4 and 5.
 *
 * Licence: Apache-2.0 */
#ifndef MOONREEL_DATA_H
#define MOONREEL_DATA_H

#include "moonreel/base.h"
#include "moonreel/media.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- index ---- */

/* What sampling reads of a row: 32 bytes, packed in chunks of MR_HOT_ROWS, as they lie in the
 * file. */
typedef struct mr_hot {
    uint64_t key_lo; /* low half of the sample key */
    uint32_t frames;
    uint32_t fps_milli; /* 0 for an image */
    uint32_t duration_ms;
    uint16_t width, height; /* as displayed */
    uint16_t flags;         /* MR_CLIP_* */
    uint16_t source;        /* number of the root folder */
    uint16_t text_tokens;   /* 0: not counted */
    uint16_t spare;
} mr_hot;
enum { MR_HOT_ROWS = 4096 };

typedef struct mr_caption {
    const char *tag, *text;
} mr_caption;

/* A whole row. Texts and the key frame list are lent by the reader until its next call. */
typedef struct mr_row {
    uint64_t id; /* dense from 0 */
    /* of source name, relative path, clip start and end: stays over rebuilds */
    mr_hash128 key;
    uint16_t root;
    const char *path;         /* relative to its root, or absolute */
    int64_t start_us, end_us; /* part of the file; -1: to its end */
    mr_clip_info info;
    int32_t n_captions;
    const mr_caption *captions;
} mr_row;

typedef struct mr_index mr_index;
typedef struct mr_index_reader mr_index_reader;

typedef struct mr_index_facts {
    uint64_t rows;
    mr_hash128 fp_order; /* of all rows in id order */
    mr_hash128 fp_set;   /* of all rows in any order */
    int32_t n_roots;
} mr_index_facts;

/* Open a sealed index directory NAME.mrx for reading. Compares the length with data.sum; when the
 * file's time is not the one noted there, or `verify` is set, also every block.
 * Errors:  MR_E_DATA missing, not sealed, damaged (names file and block); MR_E_FORMAT another
 * version
 * Threads: opening any; a reader belongs to one thread at a time. Shared: _ref, _unref */
MR_API mr_status mr_index_open(const char *path, bool verify, mr_index **out);
MR_API mr_index *mr_index_ref(mr_index *index);
MR_API void mr_index_unref(mr_index *index);
MR_API mr_index_facts mr_index_get_facts(const mr_index *index);
MR_API const char *mr_index_path(const mr_index *index);               /* lent */
MR_API const char *mr_index_root(const mr_index *index, int32_t root); /* lent; absolute */
/* A text of table meta: "sources", "schema", ...; lent; NULL when absent. */
MR_API const char *mr_index_meta(const mr_index *index, const char *name);

/* A reader keeps a reference of the index. Errors: MR_E_MEMORY, MR_E_DATA */
MR_API mr_status mr_index_reader_new(mr_index *index, mr_index_reader **out);
MR_API void mr_index_reader_free(mr_index_reader *reader);
MR_API mr_index *mr_index_reader_index(const mr_index_reader *reader); /* lent */
/* Records of chunk c (rows c * MR_HOT_ROWS ...); lent until the reader's next call of this, checked
 * against their hash. Errors: MR_E_RANGE, MR_E_DATA */
MR_API mr_status mr_index_hot(mr_index_reader *reader, uint64_t chunk, const mr_hot **out,
                              int32_t *n);
/* Errors: MR_E_RANGE no such id; MR_E_DATA damaged */
MR_API mr_status mr_index_row(mr_index_reader *reader, uint64_t id, mr_row *out);
/* Id of the sample with this key; MR_E_RANGE when there is none. */
MR_API mr_status mr_index_find(mr_index_reader *reader, mr_hash128 key, uint64_t *id);
/* The file of a row: root joined with path. */
MR_API mr_status mr_index_file(const mr_index *index, const mr_row *row, char *out, size_t cap);

/* ---- building ---- */

typedef struct mr_index_builder mr_index_builder;
typedef struct mr_index_options {
    size_t map_bytes;     /* room in the file at first; it grows. 0: 1 GiB */
    uint64_t commit_rows; /* rows between two commits, a minute at most; 0: 262,144 */
    /* go on after the last commit of a builder that was killed or failed */
    bool resume;
} mr_index_options;
/* What a builder holds: not 0 at the start when it resumes. Rows and refused ones come in one
 * order, so their sum is the place in the input. */
typedef struct mr_index_built {
    uint64_t rows, refused, without_caption;
} mr_index_built;

/* Start the index `path` in a temporary directory beside it. What killed builders left there goes,
 * unless `resume`; then rows, meta texts and dictionary of the last commit are there again, or
 * nothing when there is none. Replaces an index of that name only when sealed. options NULL: all 0.
 * Errors: MR_E_IO, MR_E_MEMORY; resuming: MR_E_USAGE another process builds it, MR_E_DATA
 * damaged */
MR_API mr_status mr_index_builder_new(const char *path, const mr_index_options *options,
                                      mr_index_builder **out);
MR_API mr_index_built mr_index_builder_built(const mr_index_builder *b);
/* Register a root folder (absolute); its number goes into rows. */
MR_API mr_status mr_index_builder_root(mr_index_builder *b, const char *folder, uint16_t *root);
MR_API mr_status mr_index_builder_meta(mr_index_builder *b, const char *name, const char *text);
/* A meta text back; owns: caller frees with mr_free. Errors: MR_E_DATA none of that name */
MR_API mr_status mr_index_builder_text(mr_index_builder *b, const char *name, char **text);
/* A zstd dictionary for the captions, before the first row. Without it they are plain. */
MR_API mr_status mr_index_builder_dictionary(mr_index_builder *b, const void *dict, size_t bytes);
/* Append a row: key, root, path, times, info (with key_pts) and captions are read, id is set
 * here. */
MR_API mr_status mr_index_builder_add(mr_index_builder *b, const mr_row *row);
/* Note a row of the input that is left out; `line` (JSON) becomes one of refused.jsonl. */
MR_API mr_status mr_index_builder_refuse(mr_index_builder *b, const char *line);
/* Fingerprints, key map, seal, checksums, rename.
 * Errors: MR_E_DATA no rows, or two rows with one key (named); MR_E_IO */
MR_API mr_status mr_index_builder_finish(mr_index_builder *b);
/* Unfinished: removes what was written; with `resume` committed rows stay, for the next one. */
MR_API void mr_index_builder_free(mr_index_builder *b);

MR_API mr_hash128 mr_sample_key(const char *source, const char *path, int64_t start_us,
                                int64_t end_us);

/* ---- ingest ---- */

typedef struct mr_ingest mr_ingest;
typedef struct mr_ingest_options {
    const char *captions; /* CSV or JSON lines with path and text, for folders */
    /* folder that relative paths start from; default: the folder, or the list's folder */
    const char *root;
    const char *source; /* name in the sample keys; default "main" */
    int32_t threads;    /* 0: one per processor */
    double deadline_s;  /* per file; 0: 60 */
    /* go on where a killed ingest of the same input stopped, if there is one */
    bool resume;
    uint64_t commit_rows; /* as of the builder */
} mr_ingest_options;
typedef struct mr_ingest_progress {
    uint64_t total, done, written, refused, without_caption;
    uint64_t resumed; /* of `done`: by an earlier, killed ingest */
    bool finished;
} mr_ingest_progress;
/* Read the list of samples from a folder, a .csv or a .jsonl file and start scanning threads.
 * Errors: MR_E_DATA no such input, missing column (names those found), nothing in it */
MR_API mr_status mr_ingest_new(const char *input, const char *output,
                               const mr_ingest_options *options, mr_ingest **out);
/* Write what is scanned by now, for at most `seconds`; sets finished once the index is sealed.
 * Equal input gives equal fingerprints for any number of threads.
 * Errors: MR_E_DATA when no row remains (first reasons in the text), duplicate keys; MR_E_IO */
MR_API mr_status mr_ingest_step(mr_ingest *ingest, double seconds, mr_ingest_progress *progress);
/* Stops threads; an unfinished index is removed, with `resume` what is committed of it stays. */
MR_API void mr_ingest_free(mr_ingest *ingest);

/* ---- buckets ---- */

/* A bucket is samples with one (frames, height, width). The rule says which bucket a sample enters:
 * resolutions from high to low, lengths from long to short, with probabilities drawn from the
 * sample's key. Ref: Open-Sora 1.2 bucket assignment, with U(purpose, key) instead of a generator
 * seeded by row number. */
typedef struct mr_bucket_length {
    int32_t frames;
    double keep;   /* probability of entering when it fits */
    double tries;  /* probability of being looked at; 1 when not given */
    int32_t batch; /* samples of a micro-batch; 0 only with keep 0 */
} mr_bucket_length;
/* ratio = height / width */
typedef struct mr_bucket_aspect {
    double ratio;
    int32_t height, width;
} mr_bucket_aspect;
typedef struct mr_bucket_resolution {
    const char *name;
    double pixels; /* samples below 0.8 of it do not enter */
    const mr_bucket_aspect *aspects;
    int32_t n_aspects;
    const mr_bucket_length *lengths;
    int32_t n_lengths;
} mr_bucket_resolution;

typedef struct mr_bucket {
    const char *resolution;
    int32_t frames, height, width, batch;
} mr_bucket;

/* Why a row enters no bucket in an epoch. */
typedef enum mr_drop {
    MR_DROP_NONE,
    MR_DROP_SMALL,
    MR_DROP_SHORT,
    MR_DROP_IMAGE,
    MR_DROP_CHANCE,
    MR_DROP_QUARANTINE,
    MR_DROP_COUNT
} mr_drop;
MR_API const char *mr_drop_text(
    mr_drop why); /* "below 0.8 of the pixels of every resolution", ...; lent, static */

typedef struct mr_bucket_rule mr_bucket_rule;
/* interval    frames between two used ones: a clip of N frames needs (N-1)*interval+1
 * compat      as Open-Sora 1.2: it needs more than N*interval
 * Errors: MR_E_RECIPE for an empty or contradicting rule, MR_E_MEMORY. Copies everything. */
MR_API mr_status mr_bucket_rule_new(const mr_bucket_resolution *resolutions, int32_t n,
                                    int32_t interval, bool compat, mr_bucket_rule **out);
MR_API void mr_bucket_rule_free(mr_bucket_rule *rule);
MR_API int32_t mr_bucket_rule_count(const mr_bucket_rule *rule);
MR_API mr_bucket mr_bucket_rule_get(const mr_bucket_rule *rule, int32_t bucket);
MR_API int32_t mr_bucket_rule_interval(const mr_bucket_rule *rule);
MR_API uint64_t mr_bucket_rule_hash(const mr_bucket_rule *rule); /* of all but the batch sizes */
/* The bucket of a sample in an epoch, or -1 and why. Threads: any. */
MR_API int32_t mr_bucket_rule_assign(const mr_bucket_rule *rule, uint64_t seed, uint64_t epoch,
                                     const mr_hot *hot, mr_drop *why);

/* ---- order ---- */

/* P(j): the keyed permutation of [0, n) that orders a bucket. Ref: dataplane 4.3; 8-round Feistel
 * network on max(2, ceil(log2 n)) bits with cycle walking. j < n. */
MR_API uint64_t mr_permute(uint64_t key, uint64_t n, uint64_t j);

typedef struct mr_draw {    /* one micro-batch, as row ids */
    uint64_t epoch, number; /* number: of this draw in its epoch, from 0 */
    int32_t bucket, n;      /* n <= batch of the bucket: the last one of a bucket may be short */
    bool last;              /* of its epoch */
    uint64_t digest;        /* sum of mix(key_lo) over its samples */
    uint64_t *ids, *keys;   /* [n] row ids and key_lo; in the caller's arrays */
} mr_draw;

/* Where a stream of draws stands; counts samples, never steps. */
typedef struct mr_position {
    uint64_t epoch, number, digest;
    uint64_t excluded_n, excluded_hash;
    int32_t n_buckets;
    uint64_t *taken; /* [n_buckets] samples consumed in this epoch */
} mr_position;

typedef struct mr_order mr_order;
/* The order of all micro-batches for (index, rule, seed), at epoch 0. Keeps references.
 * Errors: MR_E_DATA when no row enters any bucket, with the rows removed by each rule */
MR_API mr_status mr_order_new(mr_index *index, const mr_bucket_rule *rule, uint64_t seed,
                              mr_order **out);
MR_API void mr_order_free(mr_order *order);
/* Largest batch of the rule: the room that ids and keys of a draw need. */
MR_API int32_t mr_order_batch_max(const mr_order *order);
/* Take the next micro-batch; a new epoch is planned when the last one is used up.
 * Errors: MR_E_DATA, MR_E_MEMORY; MR_E_INTERNAL when an epoch's accounts do not match */
MR_API mr_status mr_order_next(mr_order *order, mr_draw *draw);
/* Keys (low halves) left out from the next planned epoch on; copies. */
MR_API mr_status mr_order_exclude(mr_order *order, const uint64_t *keys, uint64_t n);
/* This epoch: samples of bucket b; rows dropped for a reason; micro-batches in all. */
MR_API uint64_t mr_order_samples(const mr_order *order, int32_t bucket);
MR_API uint64_t mr_order_dropped(const mr_order *order, mr_drop why);
MR_API uint64_t mr_order_batches(const mr_order *order);

/* Positions: a copy of the order's, moved along by draws that are done with. */
MR_API mr_status mr_position_init(mr_position *p, const mr_order *order);
MR_API void mr_position_fini(mr_position *p);
MR_API void mr_position_advance(mr_position *p, const mr_draw *draw);
/* Text below 4 KB for 200 buckets; owns: caller frees with mr_free. */
MR_API mr_status mr_position_text(const mr_position *p, const mr_order *order, char **text);
/* Continue from a text. Micro-batch sizes may differ; `excluded` are the keys in force in that
 * epoch.
 * Errors: MR_E_DATA other data, rule, seed or exclusions (says which), MR_E_FORMAT */
MR_API mr_status mr_order_restore(mr_order *order, const char *text, const uint64_t *excluded,
                                  uint64_t n);
/* The epoch a state text stands in, to find the exclusions in force. */
MR_API mr_status mr_position_epoch(const char *text, uint64_t *epoch);

/* ---- loader ---- */

typedef struct mr_loader_options {
    uint64_t seed;
    int32_t threads;        /* decode workers; 0: one per processor */
    int32_t prefetch;       /* batches decoded ahead; 0: 2 */
    int64_t epochs;         /* end after this many in all; 0: never */
    const char *state;      /* text of mr_loader_state, or NULL: from the start */
    const char *quarantine; /* quarantine.jsonl to read and append to; NULL: kept in memory */
    double deadline_s;      /* per clip; 0: 60 */
    mr_filter filter;
    /* lengths of the rule that no sample can enter are left out, not refused */
    bool allow_empty;
} mr_loader_options;

/* One micro-batch. Slots n .. size-1 of a short one, and failed samples, have weight 0 and the
 * pixels of a good sample. */
typedef struct mr_batch {
    uint64_t epoch, draw; /* draw: number in its epoch */
    int32_t bucket, size, n;
    mr_bucket shape; /* resolution, frames, height, width */
    bool last;       /* of its epoch */
    uint8_t *pixels; /* [size][frames][3][height][width] u8 RGB, shared memory */
    size_t bytes;
    const float *weights;  /* [size] 1 or 0 */
    const uint64_t *ids;   /* [size] rows; of empty slots: those of slot 0 */
    const uint64_t *keys;  /* [size] key_lo */
    const int64_t *starts; /* [size] first frame_idx */
    const float *fps;      /* [size] floor(native fps / interval); 24 unknown, 120 pictures */
    const float *native_fps;
    const int32_t *native_height, *native_width; /* [size] as displayed */
    const char *const *captions;                 /* [size] */
    double wait_s;                               /* how long this batch was waited for */
    void *slab;
} mr_batch;

typedef struct mr_loader mr_loader;
/* Start decode threads on an index. Takes `rule`, also when it fails; keeps a reference of `index`.
 * All slabs are allocated here, as shared memory. What comes out depends on neither threads nor
 * prefetch.
 * Errors: those of mr_order_new and mr_order_restore; MR_E_DATA a length of the rule that no sample
 * can enter (with what keeps the rows out); MR_E_MEMORY slabs above a quarter of the memory */
MR_API mr_status mr_loader_new(mr_index *index, mr_bucket_rule *rule,
                               const mr_loader_options *options, mr_loader **out);
/* Stops at any moment; batches become invalid. NULL is fine. */
MR_API void mr_loader_free(mr_loader *loader);
/* The next batch, in draw order, valid until it is released; *out NULL after the last epoch.
 * Errors: MR_E_DATA too many failed samples (dataplane 5), damaged index; MR_E_MEMORY. A failed
 * loader keeps failing.
 * Threads: one caller at a time */
MR_API mr_status mr_loader_next(mr_loader *loader, const mr_batch **out);
MR_API void mr_loader_release(mr_loader *loader, const mr_batch *batch);
/* State after the batch given out last; batches decoded ahead do not count. Caller frees with
 * mr_free. */
MR_API mr_status mr_loader_state(mr_loader *loader, char **text);
/* Row ids of the samples to come, without decoding; fewer than n only at the end of the last
 * epoch. */
MR_API mr_status mr_loader_peek(mr_loader *loader, uint64_t *ids, int64_t n, int64_t *got);

/* Facts of the epoch the loader began in, and counters. */
typedef struct mr_loader_facts {
    uint64_t epoch, samples, batches, dropped[MR_DROP_COUNT];
    size_t slab_bytes;
    int32_t slabs, threads;
    uint64_t delivered, failed; /* samples */
    double wait_s;
} mr_loader_facts;
MR_API mr_loader_facts mr_loader_get_facts(mr_loader *loader);
MR_API int32_t mr_loader_buckets(const mr_loader *loader);
MR_API mr_bucket mr_loader_bucket(const mr_loader *loader, int32_t bucket, uint64_t *samples);

#ifdef __cplusplus
}
#endif
#endif
