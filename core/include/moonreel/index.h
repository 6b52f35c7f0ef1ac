/* index: samples as rows of an index, an LMDB file that is sealed and never changes afterwards.
 *
 * Stream: folder, CSV or JSON lines -> ingest -> builder -> index -> reader. Training opens nothing
 * but the index and the clips themselves. Formats: reference dataplane, section 2.
 *
 * Threads: an open index may be shared, a reader, builder or ingest belongs to one thread at a
 * time; an ingest has scanning threads of its own.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_INDEX_H
#define MOONREEL_INDEX_H

#include "moonreel/base.h"
#include "moonreel/media.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading ---- */

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
/* Frames per 1,000 seconds, to the nearest: fps_milli of a clip; 0: not known, or an image. */
MR_API uint32_t mr_fps_milli(const mr_clip_info *info);
enum { MR_HOT_ROWS = 4096 };
enum { MR_INDEX_COLUMNS = 32 }; /* at most */

typedef struct mr_caption {
    const char *tag, *text;
} mr_caption;

/* A value of a column: a whole number, or a real one, NaN where a row has none. */
typedef struct mr_number {
    bool whole;
    union {
        int64_t i; /* whole */
        double f;
    };
} mr_number;
MR_API bool mr_number_is_none(mr_number x);

/* What a column holds. A builder writes reals (f64) and whole numbers of 64 bits but the smallest,
 * which stands for none. Indexes of format 2 hold f32: a value of them is the real with the fewest
 * decimal digits that f32 rounds to it, so that what a list called 5.1 is 5.1 again; two values are
 * in the order in which they were. */
typedef enum mr_column_kind { MR_COLUMN_REAL, MR_COLUMN_WHOLE, MR_COLUMN_F32 } mr_column_kind;

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
    /* values of the first n_columns columns; a builder takes the other ones of the row for none */
    int32_t n_columns;
    const mr_number *columns;
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

/* What the captions are compressed against, n bytes; lent; NULL: they are plain. */
MR_API const void *mr_index_dictionary(const mr_index *index, size_t *n);

/* A reader keeps a reference of the index. Errors: MR_E_MEMORY, MR_E_DATA */
MR_API mr_status mr_index_reader_new(mr_index *index, mr_index_reader **out);
MR_API void mr_index_reader_free(mr_index_reader *reader);
MR_API mr_index *mr_index_reader_index(const mr_index_reader *reader); /* lent */
/* Records of chunk c (rows c * MR_HOT_ROWS ...); lent until the reader's next call of this, checked
 * against their hash. Errors: MR_E_RANGE, MR_E_DATA */
MR_API mr_status mr_index_hot(mr_index_reader *reader, uint64_t chunk, const mr_hot **out,
                              int32_t *n);
/* Columns are numbers of rows under a name ("aesthetic"): how many, their names (lent; NULL: no
 * such one) and kinds. */
MR_API int32_t mr_index_columns(const mr_index *index);
MR_API const char *mr_index_column_name(const mr_index *index, int32_t column);
MR_API mr_column_kind mr_index_column_kind(const mr_index *index, int32_t column);
/* The n values of rows c * MR_HOT_ROWS ..., as they lie in the file, at any address; lent as long
 * as the reader lives. */
typedef struct mr_column_chunk {
    mr_column_kind kind;
    int32_t n;
    const void *values;
} mr_column_chunk;
/* Errors: MR_E_RANGE, MR_E_DATA damaged */
MR_API mr_status mr_index_column(mr_index_reader *reader, int32_t column, uint64_t chunk,
                                 mr_column_chunk *out);
/* Value i, 0 <= i < n. */
MR_API mr_number mr_column_number(const mr_column_chunk *chunk, int32_t i);
/* Errors: MR_E_RANGE no such id; MR_E_DATA damaged */
MR_API mr_status mr_index_row(mr_index_reader *reader, uint64_t id, mr_row *out);
/* Id of the sample with this key; MR_E_RANGE when there is none. */
MR_API mr_status mr_index_find(mr_index_reader *reader, mr_hash128 key, uint64_t *id);
/* Samples of two indexes by their keys: how many both have, and how many one alone. `fn`, unless
 * NULL, is called for each sample of `a`, in the order of the keys, with its id there and in `b`,
 * MR_INDEX_NONE when it is not there. `common` may be NULL. Memory: that of two readers.
 * Errors: MR_E_DATA damaged, MR_E_MEMORY, those of `fn` */
#define MR_INDEX_NONE UINT64_MAX
typedef struct mr_index_common {
    uint64_t both, only_a, only_b;
} mr_index_common;
typedef mr_status mr_index_match_fn(void *user, mr_hash128 key, uint64_t id_a, uint64_t id_b);
MR_API mr_status mr_index_match(mr_index *a, mr_index *b, mr_index_match_fn *fn, void *user,
                                mr_index_common *common);
/* The file of a row: root joined with path. */
MR_API mr_status mr_index_file(const mr_index *index, const mr_row *row, char *out, size_t cap);

/* ---- looking over clips ---- */

/* How closely files are looked at: packet headers and the first frame, every frame, every frame and
 * how much it differs from the one before (mr_media.watch). */
typedef enum mr_look { MR_LOOK_PACKETS, MR_LOOK_FRAMES, MR_LOOK_CHANGES } mr_look;
typedef struct mr_sweep_options {
    mr_look look;
    int32_t threads;   /* 0: one per processor */
    double deadline_s; /* of a clip, and its own length comes on top; 0: 60 */
    bool isolated;     /* each thread looks in a process of its own: mr_media_guarded */
} mr_sweep_options;
/* What came of a clip; texts and numbers are lent until the next call. */
typedef struct mr_seen {
    uint64_t id;
    /* of what is wrong: the name of a fault, "gone" for a file that is not there, "stale" for one
     * that is another than the index says, "keys" where only some of the key frames of the index
     * are some; NULL: nothing */
    const char *class;
    const char *why;
    const float *changes; /* [n_changes] of MR_LOOK_CHANGES when nothing is wrong */
    int64_t n_changes;
    const int64_t *keys; /* [n_keys] of "keys": those that are some, in time base units */
    int32_t n_keys;
} mr_seen;
typedef struct mr_sweep mr_sweep;

/* Look at the files of n rows by several threads. Borrows ids until it is freed, references the
 * index. Errors: MR_E_MEMORY, MR_E_UNSUPPORTED no media plug-in */
MR_API mr_status mr_sweep_new(mr_index *index, const uint64_t *ids, uint64_t n,
                              const mr_sweep_options *options, mr_sweep **out);
/* What came of the next row, in the order of ids; *got is false when `seconds` pass before, or no
 * row is left. Errors: what is no clip's fault; the sweep has failed then */
MR_API mr_status mr_sweep_next(mr_sweep *s, double seconds, mr_seen *seen, bool *got);
MR_API void mr_sweep_free(mr_sweep *s);

/* ---- building ---- */

typedef struct mr_index_builder mr_index_builder;
typedef struct mr_index_options {
    size_t map_bytes;     /* room in the file at first; it grows. 0: 1 GiB */
    uint64_t commit_rows; /* rows between two commits, a minute at most; 0: 262,144 */
    size_t commit_bytes;  /* bytes between them, which wait in memory; 0: 512 MiB */
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
 * Errors: MR_E_IO, MR_E_MEMORY; MR_E_USAGE what has that name is no index, or holds other files;
 * resuming: MR_E_USAGE another process builds it, MR_E_DATA damaged */
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
/* Number of the column of that name, which is new before the first row. One that is asked for as
 * more than one kind before the first row holds reals; after it the kind is settled, and MR_E_USAGE
 * when a new one is asked for. Errors: MR_E_DATA a name that is no identifier of at most 63
 * characters, more than 32 columns */
MR_API mr_status mr_index_builder_column(mr_index_builder *b, const char *name, mr_column_kind kind,
                                         int32_t *column);
/* The same of a column that is there; -1: none of that name. */
MR_API int32_t mr_index_builder_find(const mr_index_builder *b, const char *name);
/* Append a row: key, root, path, times, info (with key_pts), captions and columns are read, id is
 * set here. Errors: MR_E_USAGE more values than columns; MR_E_DATA a caption that nothing should be
 * trained on (says why), a value that its column cannot hold exactly; MR_E_RANGE sides beyond
 * MR_CLIP_SHOWN_MAX, MR_E_IO, MR_E_MEMORY */
MR_API mr_status mr_index_builder_add(mr_index_builder *b, const mr_row *row);
/* Note a row of the input that is left out; `line` (JSON) becomes one of refused.jsonl. */
MR_API mr_status mr_index_builder_refuse(mr_index_builder *b, const char *line);
/* Fingerprints, key map, seal, checksums, rename. Keys wait in memory or, many of them, on the
 * disk. Errors: MR_E_DATA no rows, or two rows with one key (named); MR_E_IO; MR_E_STOPPED */
MR_API mr_status mr_index_builder_finish(mr_index_builder *b);
/* As the last call: what is committed stays for a builder that resumes, whatever this one was asked
 * for, and with `all` what is not is committed first. *kept: what stays. Errors: MR_E_IO */
MR_API mr_status mr_index_builder_keep(mr_index_builder *b, bool all, mr_index_built *kept);
/* Unfinished: removes what was written; with `resume` committed rows stay, for the next one. */
MR_API void mr_index_builder_free(mr_index_builder *b);

MR_API mr_hash128 mr_sample_key(const char *source, const char *path, int64_t start_us,
                                int64_t end_us);
/* Build an index without clips behind it, to measure with: paths, captions of some 300 bytes, sizes
 * and key frames as a large data set has them, drawn from a seed. path NULL: only make the rows,
 * which tells what share of the time that is. Errors: of a builder */
MR_API mr_status mr_index_synthetic(const char *path, uint64_t rows, uint64_t seed);
/* Make of a row the part of `frames` frames from frame `first` of it on: its key is that of the row
 * with the times of the part, key frames are those that it needs, in the row's own list.
 * Errors: MR_E_RANGE not inside the row; MR_E_UNSUPPORTED a picture, or a clip without times */
MR_API mr_status mr_row_cut(mr_row *row, int64_t first, int64_t frames);

/* ---- lists ---- */

/* A row of a CSV, TSV or JSON lines file. Lent during the call. */
typedef struct mr_table_row {
    const char *path;
    uint64_t line;            /* of the file, from 1 */
    int32_t n_captions;       /* at least 1, which may be empty */
    const char *captions;     /* one behind the other, each with its zero */
    int64_t start_us, end_us; /* part of the clip; end 0: to its end */
    int32_t n_numbers;
    const mr_number *numbers;
} mr_table_row;
typedef struct mr_table mr_table;
typedef mr_status mr_table_fn(void *user, const mr_table *table, const mr_table_row *row);
/* How a list is read. */
typedef struct mr_table_options {
    /* names that columns of it stand for: "path=video,text=caption"; those called "-" are left out.
     * NULL: their own */
    const char *columns;
    /* of CSV and TSV: a character that takes the meaning from a quote, a separator, a line break or
     * itself, as a backslash does; NULL or "": there is none, quotes are doubled (RFC 4180) */
    const char *escape;
} mr_table_options;
/* Hand on all rows of a list, as ingest reads them: columns text, text_2, ... are captions, others
 * are numbers; there need be no captions. A row may have more numbers than those before it. *out is
 * set when all went well; the caller frees it. options may be NULL.
 * Errors: MR_E_DATA what is no such list (names the line), MR_E_IO, MR_E_STOPPED, MR_E_USAGE an
 * option that does not fit, those of `fn` */
MR_API mr_status mr_table_read(const char *file, const mr_table_options *options, mr_table_fn *fn,
                               void *user, mr_table **out);
MR_API void mr_table_free(mr_table *table); /* NULL is fine */
/* Numbers that rows have, and the name of one; lent. */
MR_API int32_t mr_table_numbers(const mr_table *table);
MR_API const char *mr_table_name(const mr_table *table, int32_t number);
/* After the last row: did number i's column hold numbers, and of which kind? What was passed over
 * has a line each; lent. */
MR_API bool mr_table_is_column(const mr_table *table, int32_t number);
MR_API mr_column_kind mr_table_kind(const mr_table *table, int32_t number);
MR_API const char *mr_table_notes(const mr_table *table);

/* ---- ingest ---- */

typedef struct mr_ingest mr_ingest;
typedef struct mr_ingest_options {
    const char *captions; /* CSV or JSON lines with path and text, for folders */
    /* folder that relative paths start from; default: the folder, or the list's folder */
    const char *root;
    const char *source;     /* name in the sample keys; default "main" */
    int32_t threads;        /* 0: one per processor */
    double deadline_s;      /* per file; 0: 60 */
    mr_table_options table; /* how the list is read */
    int32_t part, parts;    /* part 1 .. parts of the input alone; parts 0: all of it */
    bool isolated;          /* each thread scans in a process of its own: mr_media_guarded */
    /* go on where an ingest of the same input was killed or kept what it had, if there is one */
    bool resume;
    uint64_t commit_rows; /* as of the builder */
} mr_ingest_options;
typedef struct mr_ingest_progress {
    uint64_t listed; /* rows of the list that are read; total is 0 until all of them are */
    uint64_t total, done, written, refused, without_caption;
    uint64_t resumed; /* of `done`: by an earlier, killed ingest */
    bool finished;
} mr_ingest_progress;
/* Start to read the list of samples of a folder or of a list (.csv, .tsv, .jsonl, .json, .parquet)
 * on its own thread; scanning threads follow once it is there. Rows with a caption that no one
 * should train on, and all but the first of rows that are one sample, are refused before their file
 * is looked at. The list is not held in memory: it is put aside in the folder of `output`, in files
 * without names, which need about the room of the input. Copies all texts. Errors: MR_E_MEMORY,
 * MR_E_UNSUPPORTED no media plug-in */
MR_API mr_status mr_ingest_new(const char *input, const char *output,
                               const mr_ingest_options *options, mr_ingest **out);
/* Wait for the list, then write what is scanned by now, for at most `seconds`; sets finished once
 * the index is sealed. Equal input gives equal fingerprints for any number of threads.
 * Errors: MR_E_DATA no such input, missing column (names those found), nothing in it, or no row
 * remains (first reasons in the text); MR_E_IO also for what is put aside; MR_E_STOPPED a person
 * interrupted it, which refuses no file. A failed ingest keeps failing. */
MR_API mr_status mr_ingest_step(mr_ingest *ingest, double seconds, mr_ingest_progress *progress);
/* What was passed over while the folder was read, a line each; "" when nothing, or while it is
 * read. Lent by the ingest. */
MR_API const char *mr_ingest_notes(const mr_ingest *ingest);
/* End an ingest that is not finished: what is done of it, or after a step that failed while it
 * wrote what is committed, stays for one with `resume`, which goes on behind *rows rows of the
 * input's *total; 0: nothing stays, as no file could be taken yet. No step follows. Errors: MR_E_IO
 */
MR_API mr_status mr_ingest_keep(mr_ingest *ingest, uint64_t *rows, uint64_t *total);
/* Stops threads; an unfinished index is removed unless it is kept, with `resume` what is committed
 * of it stays. */
MR_API void mr_ingest_free(mr_ingest *ingest);

/* ---- stores: values under keys, written once and sealed ---- */

/* What models made of samples. A store is a folder: data.mdb and data.sum, as an index is. While it
 * is written it is called PATH.part; whoever writes it next goes on after the last commit. Keys are
 * bytes, ordered as memcmp orders them. Every value has a checksum of its own, which reading
 * compares. Beside the values lie a few named texts. */
enum { MR_STORE_KEY_MAX = 256 };

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
