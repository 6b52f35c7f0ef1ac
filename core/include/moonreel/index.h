/* index: samples as rows of an index, an LMDB file that is sealed and never changes afterwards.
 *
 * Stream: folder, CSV or JSON lines -> ingest -> builder -> index -> reader. Training opens only
 * the index and the clips themselves. Formats: reference dataplane, section 2.
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

/* The part of a row that sampling reads: 32 bytes, in chunks of MR_HOT_ROWS, in the layout of the
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

/* A value of a column: an integer, or a real value, NaN for a missing one. */
typedef struct mr_number {
    bool whole;
    union {
        int64_t i; /* whole */
        double f;
    };
} mr_number;
MR_API bool mr_number_is_none(mr_number x);

/* The kind of a column. A builder writes reals (f64) and 64-bit integers except the smallest, which
 * means missing. Indexes of format 2 store f32. Their values are read as the decimal with the
 * fewest digits that rounds to the stored f32, so that 5.1 in a list is read as 5.1; the order of
 * values is unchanged. */
typedef enum mr_column_kind { MR_COLUMN_REAL, MR_COLUMN_WHOLE, MR_COLUMN_F32 } mr_column_kind;

/* A whole row. Texts and the key frame list are lent by the reader until its next call. */
typedef struct mr_row {
    uint64_t id; /* dense from 0 */
    /* of source name, relative path, clip start and end: unchanged when an index is rebuilt */
    mr_hash128 key;
    uint16_t root;
    const char *path;         /* relative to its root, or absolute */
    int64_t start_us, end_us; /* part of the file; -1: to its end */
    mr_clip_info info;
    int32_t n_captions;
    const mr_caption *captions;
    /* values of the first n_columns columns; a builder treats the others as missing */
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

/* Open a sealed index directory NAME.mrx for reading. Compares the length with data.sum; if the
 * file's time differs from the recorded one, or `verify` is set, also every block.
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

/* The compression dictionary of the captions, n bytes; lent; NULL: captions are not compressed. */
MR_API const void *mr_index_dictionary(const mr_index *index, size_t *n);

/* A reader keeps a reference of the index. Errors: MR_E_MEMORY, MR_E_DATA */
MR_API mr_status mr_index_reader_new(mr_index *index, mr_index_reader **out);
MR_API void mr_index_reader_free(mr_index_reader *reader);
MR_API mr_index *mr_index_reader_index(const mr_index_reader *reader); /* lent */
/* Records of chunk c (rows c * MR_HOT_ROWS ...), verified by their hash; lent until the reader's
 * next call of this function. Errors: MR_E_RANGE, MR_E_DATA */
MR_API mr_status mr_index_hot(mr_index_reader *reader, uint64_t chunk, const mr_hot **out,
                              int32_t *n);
/* Columns are named values of rows ("aesthetic"): their number, names (lent; NULL: no such column)
 * and kinds. */
MR_API int32_t mr_index_columns(const mr_index *index);
MR_API const char *mr_index_column_name(const mr_index *index, int32_t column);
MR_API mr_column_kind mr_index_column_kind(const mr_index *index, int32_t column);
/* The n values of rows c * MR_HOT_ROWS ..., in the layout of the file, at any address; lent as long
 * as the reader lives. */
typedef struct mr_column_chunk {
    mr_column_kind kind;
    int32_t n;
    const void *values;
} mr_column_chunk;
/* Errors: MR_E_RANGE, MR_E_DATA damaged */
MR_API mr_status mr_index_column(mr_index_reader *reader, int32_t column, uint64_t chunk,
                                 mr_column_chunk *out);
/* Value i of n values in the layout of the file, 0 <= i < n. */
MR_API mr_number mr_column_number(const mr_column_chunk *chunk, int32_t i);
/* Errors: MR_E_RANGE no such id; MR_E_DATA damaged */
MR_API mr_status mr_index_row(mr_index_reader *reader, uint64_t id, mr_row *out);
/* Id of the sample with this key; MR_E_RANGE if there is no such sample. */
MR_API mr_status mr_index_find(mr_index_reader *reader, mr_hash128 key, uint64_t *id);
/* Compare the samples of two indexes by their keys: the numbers of samples in both, and in only
 * one. `fn`, unless NULL, is called for each sample of `a`, in the order of the keys, with its id
 * in `a` and in `b`, MR_INDEX_NONE if `b` lacks it. `common` may be NULL. Memory: that of two
 * readers.
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

/* ---- inspecting clips ---- */

/* How closely files are inspected: packet headers and the first frame; every frame; every frame and
 * its difference from the previous one (mr_media.watch). */
typedef enum mr_look { MR_LOOK_PACKETS, MR_LOOK_FRAMES, MR_LOOK_CHANGES } mr_look;
typedef struct mr_sweep_options {
    mr_look look;
    int32_t threads;   /* 0: one per processor */
    double deadline_s; /* per clip, in addition to its own length; 0: 60 */
    bool isolated;     /* each thread inspects in a separate process: mr_media_guarded */
} mr_sweep_options;
/* The result for a clip; texts and values are lent until the next call. */
typedef struct mr_seen {
    uint64_t id;
    /* class of the problem: the name of a fault, "gone" for a missing file, "stale" for a file that
     * differs from the index, "keys" if only some of the key frames of the index are key frames;
     * NULL: no problem */
    const char *class;
    const char *why;
    const float *changes; /* [n_changes] of MR_LOOK_CHANGES without a problem */
    int64_t n_changes;
    const int64_t *keys; /* [n_keys] of "keys": the real key frames, in time base units */
    int32_t n_keys;
} mr_seen;
typedef struct mr_sweep mr_sweep;

/* Inspect the files of n rows by several threads. Borrows ids until it is freed, references the
 * index. Errors: MR_E_MEMORY, MR_E_UNSUPPORTED no media plug-in */
MR_API mr_status mr_sweep_new(mr_index *index, const uint64_t *ids, uint64_t n,
                              const mr_sweep_options *options, mr_sweep **out);
/* The result of the next row, in the order of ids; *got is false if `seconds` pass before, or no
 * row is left. Errors: those that no clip causes; the sweep then fails */
MR_API mr_status mr_sweep_next(mr_sweep *s, double seconds, mr_seen *seen, bool *got);
MR_API void mr_sweep_free(mr_sweep *s);

/* ---- building ---- */

typedef struct mr_index_builder mr_index_builder;
typedef struct mr_index_options {
    size_t map_bytes;     /* initial size of the file, which grows. 0: 1 GiB */
    uint64_t commit_rows; /* rows between two commits, a minute at most; 0: 262,144 */
    size_t commit_bytes;  /* bytes between them, which are kept in memory; 0: 512 MiB */
    /* continue after the last commit of a builder that was killed or failed */
    bool resume;
} mr_index_options;
/* Counts of a builder: not 0 at the start if it resumes. The sum of rows and refused rows is the
 * position in the input. */
typedef struct mr_index_built {
    uint64_t rows, refused, without_caption;
} mr_index_built;

/* Start the index `path` in a temporary directory next to it. Removes the leftovers of killed
 * builders, unless `resume`: then rows, meta texts and dictionary of the last commit, if there is
 * one, are restored. Replaces an index of that name only when sealed. options NULL: all 0.
 * Errors: MR_E_IO, MR_E_MEMORY; MR_E_USAGE `path` is not an index, or contains other files;
 * resuming: MR_E_USAGE another process builds it, MR_E_DATA damaged */
MR_API mr_status mr_index_builder_new(const char *path, const mr_index_options *options,
                                      mr_index_builder **out);
MR_API mr_index_built mr_index_builder_built(const mr_index_builder *b);
/* Register a root folder (absolute); its number goes into rows. */
MR_API mr_status mr_index_builder_root(mr_index_builder *b, const char *folder, uint16_t *root);
MR_API mr_status mr_index_builder_meta(mr_index_builder *b, const char *name, const char *text);
/* Read a meta text; owns: caller frees with mr_free. Errors: MR_E_DATA no text of that name */
MR_API mr_status mr_index_builder_text(mr_index_builder *b, const char *name, char **text);
/* A zstd dictionary for the captions, before the first row. Without it they are not compressed. */
MR_API mr_status mr_index_builder_dictionary(mr_index_builder *b, const void *dict, size_t bytes);
/* Number of the column of that name; before the first row a new name adds a column. A column that
 * is requested as more than one kind before the first row stores reals; after it the kind is fixed,
 * and a new name is MR_E_USAGE. Errors: MR_E_DATA a name that is not an identifier of at most 63
 * characters, more than 32 columns */
MR_API mr_status mr_index_builder_column(mr_index_builder *b, const char *name, mr_column_kind kind,
                                         int32_t *column);
/* The same for an existing column; -1: no column of that name. */
MR_API int32_t mr_index_builder_find(const mr_index_builder *b, const char *name);
/* Append a row: key, root, path, times, info (with key_pts), captions and columns are read, id is
 * set here. Errors: MR_E_USAGE more values than columns; MR_E_DATA an unsuitable caption (with the
 * reason), a value that its column cannot represent exactly; MR_E_RANGE sides beyond
 * MR_CLIP_SHOWN_MAX, MR_E_IO, MR_E_MEMORY */
MR_API mr_status mr_index_builder_add(mr_index_builder *b, const mr_row *row);
/* Record a row of the input that is left out; `line` (JSON) becomes a line of refused.jsonl. */
MR_API mr_status mr_index_builder_refuse(mr_index_builder *b, const char *line);
/* Fingerprints, key map, seal, checksums, rename. Keys are kept in memory or, if many, on disk.
 * Errors: MR_E_DATA no rows, or two rows with one key (named); MR_E_IO; MR_E_STOPPED */
MR_API mr_status mr_index_builder_finish(mr_index_builder *b);
/* As the last call: keep committed rows for a builder that resumes, even if this one was not opened
 * with `resume`; with `all` other rows are committed first. *kept: the counts kept. Errors: MR_E_IO
 */
MR_API mr_status mr_index_builder_keep(mr_index_builder *b, bool all, mr_index_built *kept);
/* Unfinished: removes its files; with `resume` committed rows are kept for the next builder. */
MR_API void mr_index_builder_free(mr_index_builder *b);

MR_API mr_hash128 mr_sample_key(const char *source, const char *path, int64_t start_us,
                                int64_t end_us);
/* Build an index without clips, for measurements: paths, captions of some 300 bytes, sizes and key
 * frames like those of a large data set, drawn from a seed. path NULL: only make the rows, to
 * measure their share of the time. Errors: of a builder */
MR_API mr_status mr_index_synthetic(const char *path, uint64_t rows, uint64_t seed);
/* Reduce a row to the part of `frames` frames from frame `first` of it on. Its key is that of the
 * row with the times of the part. It keeps only the key frames that it needs, in the list of the
 * row, without a copy.
 * Errors: MR_E_RANGE not inside the row; MR_E_UNSUPPORTED a picture, or a clip without times */
MR_API mr_status mr_row_cut(mr_row *row, int64_t first, int64_t frames);

/* ---- lists ---- */

/* A row of a CSV, TSV or JSON lines file. Lent during the call. */
typedef struct mr_table_row {
    const char *path;
    uint64_t line;            /* of the file, from 1 */
    int32_t n_captions;       /* at least 1, which may be empty */
    const char *captions;     /* one after another, each with its terminating zero */
    int64_t start_us, end_us; /* part of the clip; end 0: to its end */
    int32_t n_numbers;
    const mr_number *numbers;
} mr_table_row;
typedef struct mr_table mr_table;
typedef mr_status mr_table_fn(void *user, const mr_table *table, const mr_table_row *row);
/* Options for reading a list. */
typedef struct mr_table_options {
    /* renamed columns: "path=video,text=caption"; columns named "-" are ignored. NULL: no renames
     */
    const char *columns;
    /* of CSV and TSV: an escape character in front of a quote, a separator, a line break or itself,
     * such as a backslash; NULL or "": none, quotes are doubled (RFC 4180) */
    const char *escape;
} mr_table_options;
/* Pass all rows of a list to `fn`, as ingest reads them: columns text, text_2, ... are captions,
 * others are numbers; captions are optional. A row may have more numbers than earlier ones. *out is
 * set on success; the caller frees it. options may be NULL.
 * Errors: MR_E_DATA a malformed list (with the line), MR_E_IO, MR_E_STOPPED, MR_E_USAGE a bad
 * option, those of `fn` */
MR_API mr_status mr_table_read(const char *file, const mr_table_options *options, mr_table_fn *fn,
                               void *user, mr_table **out);
MR_API void mr_table_free(mr_table *table); /* NULL is fine */
/* The number of number columns, and the name of one; lent. */
MR_API int32_t mr_table_numbers(const mr_table *table);
MR_API const char *mr_table_name(const mr_table *table, int32_t number);
/* After the last row: whether column i has numbers, and their kind. Notes have a line for each
 * ignored item; lent. */
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
    int32_t part, parts;    /* only part 1 .. parts of the input; parts 0: all of it */
    bool isolated;          /* each thread scans in a separate process: mr_media_guarded */
    /* continue an ingest of the same input that was killed or kept, if there is one */
    bool resume;
    uint64_t commit_rows; /* as of the builder */
} mr_ingest_options;
typedef struct mr_ingest_progress {
    uint64_t listed; /* rows of the list read so far; total is 0 until all of them are read */
    uint64_t total, done, written, refused, without_caption;
    uint64_t resumed; /* of `done`: by an earlier, killed ingest */
    bool finished;
} mr_ingest_progress;
/* Start to read the list of samples of a folder or of a list (.csv, .tsv, .jsonl, .json, .parquet)
 * on its own thread; scanning threads follow when it is complete. Rows with an unsuitable caption,
 * and all but the first of several rows with one key, are refused before their file is opened. The
 * list is not kept in memory but spilled to the folder of `output`, in unnamed files of about the
 * size of the input. Copies all texts. Errors: MR_E_MEMORY, MR_E_UNSUPPORTED no media plug-in */
MR_API mr_status mr_ingest_new(const char *input, const char *output,
                               const mr_ingest_options *options, mr_ingest **out);
/* Wait for the list, then write the rows scanned so far, for at most `seconds`; sets finished once
 * the index is sealed. Equal input gives equal fingerprints for any number of threads.
 * Errors: MR_E_DATA no such input, missing column (names those found), empty input, or no row
 * remains (first reasons in the text); MR_E_IO also for spilled data; MR_E_STOPPED the user
 * interrupted it, which refuses no file. A failed ingest keeps failing. */
MR_API mr_status mr_ingest_step(mr_ingest *ingest, double seconds, mr_ingest_progress *progress);
/* Files ignored while the folder was read, a line each; "" if there are none, or until the folder
 * is read. Lent by the ingest. */
MR_API const char *mr_ingest_notes(const mr_ingest *ingest);
/* End an unfinished ingest and keep its finished rows for an ingest with `resume`; after a failed
 * write only the committed rows. That ingest continues after *rows of *total rows of the input.
 * *rows 0: no row could be kept. No step may follow. Errors: MR_E_IO
 */
MR_API mr_status mr_ingest_keep(mr_ingest *ingest, uint64_t *rows, uint64_t *total);
/* Stops threads; an unfinished index is removed unless it is kept; with `resume` its committed rows
 * are kept. */
MR_API void mr_ingest_free(mr_ingest *ingest);

/* ---- stores: values under keys, written once and sealed ---- */

/* Results of models for samples. A store is a folder with data.mdb and data.sum, like an index.
 * While it is written it is called PATH.part; the next writer continues after the last commit. Keys
 * are bytes, ordered by memcmp. Every value has a checksum of its own, which is verified on
 * reading. A store also has a few named texts. */
enum { MR_STORE_KEY_MAX = 256 };

typedef struct mr_store_writer mr_store_writer;

/* Begin a store, or continue an unfinished one.
 * Errors: MR_E_USAGE there is a sealed store of this name; MR_E_LOCK another process writes it;
 * MR_E_IO; MR_E_DATA the unfinished store is damaged */
MR_API mr_status mr_store_writer_new(const char *path, mr_store_writer **out);
/* The state after the last commit: number of values, and the named text or NULL. Owns: caller frees
 * *text with mr_free. */
MR_API uint64_t mr_store_writer_values(const mr_store_writer *w);
MR_API mr_status mr_store_writer_get_text(mr_store_writer *w, const char *name, char **text);
/* Whether the store has a value of this key, committed or not. */
MR_API mr_status mr_store_writer_has(mr_store_writer *w, const void *key, size_t key_bytes,
                                     bool *has);
/* Add a value, which may be empty. Copies both; they stay in memory until the next commit. Errors:
 * MR_E_USAGE a key that is empty or too long, or has a value; MR_E_MEMORY */
MR_API mr_status mr_store_writer_put(mr_store_writer *w, const void *key, size_t key_bytes,
                                     const void *value, size_t bytes);
/* Uncommitted bytes. */
MR_API size_t mr_store_writer_waiting(const mr_store_writer *w);
/* Write all uncommitted values and a text to disk, completely or not at all. */
MR_API mr_status mr_store_writer_commit(mr_store_writer *w, const char *name, const char *text);
/* Commit, seal, and rename to the final name. Afterwards the writer is closed: MR_E_USAGE. */
MR_API mr_status mr_store_writer_finish(mr_store_writer *w);
/* Unfinished: committed values are kept for the next writer. NULL is fine. */
MR_API void mr_store_writer_free(mr_store_writer *w);

typedef struct mr_store mr_store;

/* verify: compare every block of the file first; also done if its time differs from the time of
 * sealing. If a file is truncated while it is open, the process ends with a message instead of a
 * signal.
 * Errors: MR_E_DATA no such store, not finished, damaged, a torn copy; MR_E_FORMAT; MR_E_IO */
MR_API mr_status mr_store_open(const char *path, bool verify, mr_store **out);
MR_API void mr_store_free(mr_store *s); /* NULL is fine */
MR_API uint64_t mr_store_values(const mr_store *s);
/* Depends only on keys and values, not on the order in which they were added. */
MR_API mr_hash128 mr_store_fingerprint(const mr_store *s);
/* A named text, or NULL; lent. */
MR_API const char *mr_store_text(mr_store *s, const char *name);
/* The value of a key, in the mapping of the file: lent until the store is freed, at any address.
 * *value NULL: no value of this key. Errors: MR_E_DATA damaged. Threads: one at a time */
MR_API mr_status mr_store_get(mr_store *s, const void *key, size_t key_bytes, const void **value,
                              size_t *bytes);
/* The first key that is not before this one; *found NULL: there is no such key; lent. */
MR_API mr_status mr_store_seek(mr_store *s, const void *key, size_t key_bytes, const void **found,
                               size_t *found_bytes);

#ifdef __cplusplus
}
#endif
#endif
