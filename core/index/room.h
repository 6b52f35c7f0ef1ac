/* index, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_INDEX_ROOM_H
#define MR_INDEX_ROOM_H

#include "moonreel/index.h"

#include <jansson.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

/* ---- bytes.c: growing output, checked input, little endian ---- */

typedef struct index_pack {
    uint8_t *bytes;
    size_t n, cap;
    bool failed;
} index_pack; /* growing output */
typedef struct index_view {
    const uint8_t *at, *end;
    bool failed;
} index_view; /* checked input */

void index_put(index_pack *p, const void *bytes, size_t n);
void index_put_int(index_pack *p, uint64_t value, int bytes);
void index_put_varint(index_pack *p, uint64_t value);
uint64_t index_get_int(index_view *v, int bytes);
uint64_t index_get_varint(index_view *v);
const uint8_t *index_get(index_view *v, size_t n);
/* Append a line to notes. */
void index_note(index_pack *notes, const char *line);
static inline uint64_t index_zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}
static inline int64_t index_unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* ---- path.c: "." and ".." resolved by name ---- */

/* Errors: MR_E_IO too long, no working directory */
mr_status index_path_absolute(const char *path, char out[4096]);

/* ---- spill.c: records on disk instead of in memory ---- */

/* A sequence of records. The last block is in memory, all others are in an unlinked file in the
 * folder of `near`, or in its nearest parent that exists. A place identifies a record; places
 * increase. Errors: MR_E_MEMORY; MR_E_IO the disk is full, or a block is damaged; MR_E_STOPPED */
typedef struct index_spill index_spill;
#define INDEX_SPILL_ENDING ".spill" /* of the temporary name, on file systems that need one */
mr_status index_spill_new(const char *near, index_spill **out);
void index_spill_free(index_spill *s); /* NULL is fine */
mr_status index_spill_put(index_spill *s, const void *record, size_t n, uint64_t *place);
/* End the block. *blocks: the number of blocks so far. */
mr_status index_spill_cut(index_spill *s, uint64_t *blocks);

typedef struct index_spill_reader {
    index_spill *spill;
    uint64_t block, to, loaded;
    size_t at, n, cap;
    const uint8_t *bytes;
    uint8_t *room;
} index_spill_reader;
/* Read the blocks from `from` to `to` - 1; UINT64_MAX: to the end. Call it after the last put. */
index_spill_reader index_spill_read(index_spill *s, uint64_t from, uint64_t to);
void index_spill_seek(index_spill_reader *r, uint64_t place);
/* The next record, valid until the next call; NULL after the last one. */
mr_status index_spill_next(index_spill_reader *r, const uint8_t **record, size_t *n,
                           uint64_t *place);
void index_spill_reader_fini(index_spill_reader *r);

/* ---- sort.c: records sorted by their bytes ---- */

typedef struct index_sorter index_sorter;
/* Approximate memory of a run; specs set it to a small value. */
extern size_t index_run_bytes;
/* Errors: those of a spill */
mr_status index_sorter_new(const char *near, index_sorter **out);
void index_sorter_free(index_sorter *s); /* NULL is fine */
mr_status index_sorter_add(index_sorter *s, const void *record, size_t n);
/* Call it after the last add and before the first next. */
mr_status index_sorter_sort(index_sorter *s);
/* The record is valid until the next call; NULL after the last one. */
mr_status index_sorter_next(index_sorter *s, const uint8_t **record, size_t *n);
/* Three numbers as a record, ordered by hi, lo, id. */
typedef struct index_keymap_entry {
    uint64_t hi, lo, id;
} index_keymap_entry;
int index_keymap_compare(const index_keymap_entry *x, const index_keymap_entry *y);
mr_status index_sorter_add_key(index_sorter *s, index_keymap_entry e);
mr_status index_sorter_next_key(index_sorter *s, index_keymap_entry *e, bool *more);

/* ---- score.c: columns of a list ---- */

enum { INDEX_SCORES = MR_INDEX_COLUMNS, INDEX_NAME_MAX = 256 };
/* The number of values of one kind in a column, and the first of them. */
typedef struct index_seen {
    uint64_t n, line;
    char first[32]; /* can end inside a character */
} index_seen;
typedef struct index_score {
    char name[64], column[64]; /* in the index, and in the list (can be cut) */
    bool times;                /* its lists are time ranges: "timestamp" */
    uint64_t wholes, reals;
    index_seen others;  /* text that is not a number */
    index_seen large;   /* integers that a double cannot represent exactly, or that exceed 64
                         * bits */
    index_seen endless; /* not finite */
    index_seen unread;  /* lists and objects without a meaning here */
} index_score;
typedef struct index_scores {
    const char *file;   /* for errors; borrowed */
    const char *names;  /* "path=video,text=caption": new names of columns; the name "-" leaves a
                           column out; NULL: none */
    const char *escape; /* of CSV; NULL or "": none */
    int32_t n;
    uint64_t met;    /* entries of `names` whose column was found, one bit for each of the first
                      * 64 */
    uint64_t beyond; /* columns left out because the index is full */
    char times[64];  /* name of a column that is used as times, although it is not start_s, end_s or
                      * range_s */
    uint64_t cut;    /* samples that are a part of their file */
    index_score of[INDEX_SCORES];
} index_scores;
/* Prepare to read a list with these options. Errors: MR_E_USAGE unknown options */
mr_status index_scores_begin(index_scores *s, const mr_table_options *o);
/* The meaning of a column of that name; INDEX_SCORE + i: number i of the rows. */
typedef enum index_meaning {
    INDEX_NOTHING,
    INDEX_PATH,
    INDEX_TEXT,
    INDEX_MORE,  /* a further caption */
    INDEX_START, /* where the sample begins and ends in the file */
    INDEX_END,
    INDEX_SCORE
} index_meaning;
index_meaning index_scores_meaning(index_scores *s, const char *name);
/* The same without adding a column to the scores; every score is INDEX_SCORE. *times: its lists are
 * time ranges. */
index_meaning index_scores_look(index_scores *s, const char *name, bool *times);
/* The column that `names` renames to `name`, or `name` itself. For name NULL: the first column in
 * `names` that was not found, or NULL. */
const char *index_scores_missing(const index_scores *s, const char *name,
                                 char room[INDEX_NAME_MAX]);
/* Is the text empty, or a word that pandas reads as a missing value? */
bool index_is_missing(const char *text);
/* The number in the text of a cell, or none. */
mr_number index_scores_take(index_scores *s, int32_t score, const char *text, uint64_t line);
/* Can a double represent the integer exactly? */
static inline bool index_whole_is_real(int64_t i)
{
    double f = (double)i;
    return f < 0x1p63 && (int64_t)f == i;
}
/* Count a value that is already a number. */
mr_number index_scores_count(index_scores *s, int32_t score, mr_number value, uint64_t line);
/* Count a list or an object without a meaning. */
void index_scores_unread(index_scores *s, int32_t score, const char *what, uint64_t line);
/* After the whole list was read: does the column become a column of the index, and of which kind? A
 * column of text does not, even if a few of its cells are numbers. */
bool index_score_is_column(const index_score *s);
mr_column_kind index_score_kind(const index_score *s);
/* Refuse columns of numbers that have cells with other text. Errors: MR_E_DATA (names row and
 * cell) */
mr_status index_scores_end(const index_scores *s);
/* Write the ignored files, one line each. Errors: MR_E_MEMORY */
mr_status index_scores_notes(const index_scores *s, index_pack *out);

/* ---- input.c: one sample of the input ---- */

/* text NULL: no caption; fault, class: reason to refuse the row before its file is read, and the
 * class of the reason, or NULL */
typedef struct index_input {
    const char *path, *text, *fault, *class;
    uint64_t line;
    int64_t start_us, end_us; /* part of the file; end 0: to its end */
    int32_t more;             /* number of captions after the zero of `text`, each with a zero */
    int32_t n_numbers;        /* scores of the list, 8 bytes each, not aligned */
    uint32_t wholes;          /* one bit each: an integer, not a double */
    const void *numbers;
} index_input;
/* Number i, or none if the row has fewer. */
mr_number index_input_number(const index_input *in, int32_t i);
/* The size of all captions with their zeros; 0: none. */
size_t index_input_text_bytes(const index_input *in);
/* Write a sample as bytes that begin with the path and its zero, and read it back. The texts then
 * point into the record. */
void index_input_pack(index_pack *p, const index_input *in);
index_input index_input_of(const uint8_t *record);

/* ---- list.c: all samples of the input ---- */

/* The samples of an input in their order, on disk, not in memory. 24 bytes of each are sorted to
 * find duplicates. */
typedef struct index_source {
    mr_arena arena;
    atomic_bool stop;            /* any thread can set it: the running call then fails with
                                  * MR_E_STOPPED */
    _Atomic uint64_t n;          /* other threads may read it */
    uint64_t text_bytes;         /* total size of the captions that are not refused */
    int32_t part, parts;         /* parts 0: the whole input */
    uint64_t seen;               /* number of input rows so far */
    char root[4096], near[4096]; /* absolute; the folder of `near` gets the spill file */
    char name[128];              /* name in the sample keys */
    const char *described;       /* the meta text "sources" */
    const char *notes;           /* ignored files of a folder, one line each; or "" */
    mr_hasher *hash;             /* of all paths, captions and numbers */
    index_scores scores;         /* of the list */
    index_spill *rows;
    index_sorter *keys, *doubles;
    index_spill_reader at, first; /* next row; first row of a group of duplicates */
    index_keymap_entry next;      /* next duplicate: its place and the place of the first one */
    bool has_next;
    index_pack record;
} index_source;
/* `near`: a path; its folder gets the spill file. `name`: the name in the sample keys.
 * Errors: MR_E_MEMORY. Call _fini after a failure too. */
mr_status index_source_init(index_source *s, const char *near, const char *name);
/* Errors: MR_E_STOPPED if `stop` is set. */
mr_status index_source_check(const index_source *s);
/* Append a sample. A bad caption or an impossible path becomes its fault. Errors: those of a
 * spill */
mr_status index_source_add(index_source *s, const index_input *in);
/* Call it after the last sample. Finds the duplicates and goes to the first sample. */
mr_status index_source_end(index_source *s);
/* The next of the n samples; its texts are in `room`. Errors: those of a spill */
mr_status index_source_take(index_source *s, index_pack *room, index_input *in);
void index_source_fini(index_source *s);

/* ---- compress.c: captions compressed against a dictionary of the index ---- */

typedef struct index_compress index_compress;     /* owned by a builder */
typedef struct index_decompress index_decompress; /* owned by an index; its readers share it */
/* Train a dictionary for the captions of a complete list; empty for small lists. */
mr_status index_dict_train(const index_source *s, index_pack *dict);
/* The same for concatenated texts, with their sizes, size_t each. */
mr_status index_dict_make(const index_pack *samples, const index_pack *sizes, index_pack *dict);
mr_status index_compress_new(const void *dict, size_t n, index_compress **out);
void index_compress_free(index_compress *s);
/* Append a text with its length; s NULL: uncompressed. */
mr_status index_compress_put(index_compress *s, index_pack *p, const char *text);
mr_status index_decompress_new(const void *dict, size_t n, index_decompress **out);
void index_decompress_free(index_decompress *u);
/* u NULL: the index has no dictionary. `context` belongs to the reader. */
mr_status index_decompress_get(const index_decompress *u, void *context, index_view *v,
                               mr_arena *arena, const char **text);
void *index_decompress_context(void);
void index_decompress_context_free(void *context);

/* ---- pack.c: rows as bytes ---- */

/* Encode a value of table row. Empties `p` first. compress NULL: captions stay uncompressed. The
 * last 4 bytes are a checksum. */
mr_status index_pack_row(index_pack *p, const mr_row *row, index_compress *compress);
/* Decode it; texts and lists are in `arena`. Errors: MR_E_DATA damaged */
mr_status index_unpack_row(MDB_val v, mr_arena *arena, mr_row *row, const index_decompress *u,
                           void *context);
/* The same without key frames and captions. */
mr_status index_unpack_facts(MDB_val v, mr_arena *arena, mr_row *row);
/* Read the row of an id; texts and lists are in `arena`. Errors: MR_E_DATA damaged */
mr_status index_read_row(MDB_txn *txn, const MDB_dbi *tables, uint64_t id, mr_arena *arena,
                         const index_decompress *u, void *context, mr_row *out);
mr_hot index_hot_of(const mr_row *row);
/* Hash of key, hot fields, file size and captions. */
mr_hash128 index_row_hash(const mr_row *row);

/* ---- tables.c: files and tables ---- */

/* The files of an index directory; a store (store.c) has the first three. */
#define INDEX_DATA    "data.mdb"
#define INDEX_SUM     "data.sum"
#define INDEX_SEEN    "data.seen" /* file time of a copy whose blocks were checked */
#define INDEX_INFO    "info.txt"
#define INDEX_REFUSED "refused.jsonl"
#define INDEX_LOCK    "lock.mdb" /* from other programs that opened the index through LMDB */
#define INDEX_FILES   INDEX_DATA, INDEX_SUM, INDEX_SEEN, INDEX_INFO, INDEX_REFUSED, INDEX_LOCK

/* Format 2 has only columns of f32. */
#define DATA_FORMAT     "moonreel index 3"
#define DATA_FORMAT_F32 "moonreel index 2"
enum { DATA_META, DATA_HOT, DATA_ROW, DATA_KEYMAP, DATA_TABLES };
enum { DATA_KEYMAP_ROWS = 65536 };
extern const char *const index_table_names[]; /* also those of a builder */
unsigned index_table_flags(int table);
mr_status index_fail_mdb(const char *path, const char *verb, int err);
/* Parse a hash of 32 hexadecimal digits; false: hex is NULL or something else. */
bool index_get_hash(const char *hex, mr_hash128 *out);

/* ---- column.c: numbers of rows ---- */

enum {
    INDEX_COLUMNS = MR_INDEX_COLUMNS,
    INDEX_COLUMN_NAME = 64,
    INDEX_COLUMNS_TEXT = INDEX_COLUMNS * 80
};
typedef struct index_columns {
    int32_t n;
    char names[INDEX_COLUMNS][INDEX_COLUMN_NAME];
    mr_column_kind kinds[INDEX_COLUMNS];
    MDB_dbi tables[INDEX_COLUMNS];
} index_columns;
bool index_column_name_good(const char *name);
/* The number with the fewest digits that rounds to `value` as f32. */
double index_decimal_of(float value);
int32_t index_columns_find(const index_columns *c, const char *name); /* -1: no such column */
/* Add a column; opens its table, or creates it with `create`. Errors: MR_E_DATA a bad name, too
 * many */
mr_status index_columns_append(index_columns *c, const char *name, mr_column_kind kind,
                               MDB_txn *txn, bool create, const char *file);
/* Open all columns of the meta text "columns", one NAME or NAME KIND per line; NULL: none. */
mr_status index_columns_open(index_columns *c, const char *names, MDB_txn *txn, const char *file);
void index_columns_text(const index_columns *c, char text[INDEX_COLUMNS_TEXT]);
/* The n values of a chunk, valid as long as the transaction. `check`: compare their hash. Errors:
 * MR_E_DATA damaged */
mr_status index_column_read(const index_columns *c, int32_t column, MDB_txn *txn, uint64_t chunk,
                            int32_t n, bool check, const void **values, const char *file);

/* Entries of a chunk of the key map, in the layout of the file; none after the last chunk. */
mr_status index_keys(mr_index_reader *r, uint32_t chunk, const char **entries, size_t *n);

/* ---- sum.c: checksums of the file, and SIGBUS ---- */

mr_status index_sum_write(const char *dir);
/* Always check the length. Check the blocks if `verify`, or if the file time differs from the
 * recorded one. With copy >= 0, check every block and write it to that descriptor; `name` is the
 * name of the copy. */
mr_status index_sum_check(const char *dir, bool verify, int copy, const char *name);
/* The file size according to the n bytes of data.sum, which are not checked. */
uint64_t index_sum_bytes(const void *sum, size_t n);
/* On SIGBUS inside the mapping around `inside`, name the file. Call forget before unmapping. */
void index_bus_watch(const void *inside, const char *file);
void index_bus_forget(const char *file);

/* ---- network.c, place.c: where an index is mapped ---- */

/* The name of the network file system of `path`, or NULL; borrowed. Specs replace it. */
extern const char *(*index_network)(const char *path);
typedef struct index_spot {
    int copy;   /* descriptor of the file to map instead, locked while it is open; -1: none */
    bool ahead; /* read pages ahead */
} index_spot;
/* Check an index. If it must not be mapped in place, copy it to a local disk, or else to memory.
 * The caller closes `copy`. verify  read every block in place
 * Errors: those of index_sum_check and index_local_copy; MR_E_DATA no place for it */
mr_status index_place(const char *dir, const char *file, bool verify, index_spot *out);

/* ---- local_copy.c: copies on this host ---- */

/* Open the local copy of an index file. One process of the host makes it, others wait. The folder
 * of copies is in $MOONREEL_COPIES, else $TMPDIR, else /var/tmp.
 * Errors: MR_E_UNSUPPORTED that folder cannot be used; MR_E_DATA damaged, with the block; MR_E_IO
 * also if the copying process makes no progress; MR_E_STOPPED */
mr_status index_local_copy(const char *dir, int *fd);

/* ---- parquet.c ---- */

/* A child process that writes a Parquet file as JSON lines to fd. */
typedef struct index_child {
    const char *file;
    int fd, errors;
    int pid; /* 0: none */
} index_child;
/* Errors: MR_E_UNSUPPORTED no program can read Parquet; MR_E_DATA no such file, or not a regular
 * file; MR_E_IO */
mr_status index_child_open(index_child *c, const char *file);
/* Wait until fd is readable. Errors: MR_E_STOPPED */
mr_status index_child_wait(const index_child *c);
/* End the child. `whole`: all output was read, so the child must exit by itself within seconds,
 * with success. Errors: MR_E_DATA with its error output, MR_E_UNSUPPORTED, MR_E_STOPPED */
mr_status index_child_close(index_child *c, bool whole);

/* ---- guard.c, fork_server.c, guarded.c: decoders in separate processes ---- */

/* Shared by a guard process and its decoder process: a request and its answer. The same shared
 * memory then contains the key frames of the clip and the decoded pixels. */
typedef enum guard_job { GUARD_SCAN, GUARD_READ, GUARD_WATCH } guard_job;
typedef struct guard_crate {
    guard_job job;
    bool wants; /* GUARD_WATCH: return the changes */
    double deadline_s;
    mr_clip_info info;
    mr_clip_request request;
    char path[4400];
    mr_status status;
    mr_fault fault;
    char text[2048], log[1024];
} guard_crate;
typedef struct guard_memory {
    int fd;
    uint8_t *at; /* NULL: not mapped yet */
    size_t bytes;
} guard_memory;
/* The environment variable that makes the program a fork server; its value is the socket. */
#define GUARD_VARIABLE "MOONREEL_MEDIA_WORKER"
/* Start a decoder process, a child of this process. It communicates through `sock` and `memory` and
 * gets copies of both descriptors.
 * Threads: any. Errors: MR_E_FAIL, MR_E_STOPPED; *pid is 0 then. */
mr_status fork_server_start(int sock, int memory, pid_t *pid);
/* The error of a process that could not be started: MR_E_FAIL, which names the limit to raise. */
mr_status fork_server_refused(int err);
/* Count the workers in use. The release of the last one ends the server. */
void fork_server_hold(void);
void fork_server_release(void);
/* Make room for n_keys key frames and `bytes` after them; both processes may call it. Errors:
 * MR_E_MEMORY */
mr_status guard_reserve(guard_memory *m, int64_t n_keys, size_t bytes);
static inline guard_crate *guard_crate_of(const guard_memory *m)
{
    return (guard_crate *)(void *)m->at;
}
/* Wait for `bytes` bytes from the other end of a socket. ENDED: the other end closed; STOPPED:
 * Ctrl-C. */
typedef enum guard_waited { GUARD_ANSWERED, GUARD_ENDED, GUARD_LATE, GUARD_STOPPED } guard_waited;
guard_waited guard_wait(int sock, double seconds, void *answer, size_t bytes);
enum { GUARD_START_S = 60 };
/* The error of a process that started and did not answer: MR_E_FAIL, or MR_E_STOPPED. */
mr_status fork_server_silent(guard_waited came);
/* A message of one byte with room for two descriptors. */
typedef struct guard_letter {
    _Alignas(size_t) char room[CMSG_SPACE(2 * sizeof(int))];
    char byte;
    struct iovec part;
    struct msghdr message;
} guard_letter;
/* Prepare it for sendmsg or recvmsg; answers its message. */
struct msghdr *guard_letter_open(guard_letter *l);
/* Seconds after its deadline at which a process is killed; specs make it short. */
extern double guard_grace_s;
int64_t *guard_keys(const guard_memory *m);
uint8_t *guard_out(const guard_memory *m, int64_t n_keys);

/* ---- text.c, validate.c: rows refused before their file is read ---- */

enum { INDEX_CAPTION_MAX = 64 << 10, INDEX_WHY = 160 };
/* Is a caption unfit for training? It is too long, not UTF-8, or has control characters other than
 * tabs and line breaks; `why` gets the reason. */
bool index_caption_bad(const char *text, char why[INDEX_WHY]);
/* Set the fault of a row with a bad caption or an impossible path; `why` gets its text. Removes a
 * bad caption. *key: the sample key; false: the row has none. */
enum { INDEX_FAULT = 4400 };
bool index_validate_row(const index_source *s, index_input *in, char why[INDEX_FAULT],
                        mr_hash128 *key);
/* Find all duplicates but the first of each group from the keys of all rows, in row order. Errors:
 * those of a spill */
mr_status index_validate_keys(index_source *s);
/* Set the fault of the row at `place` if it is a duplicate; its text is appended to `room`. */
mr_status index_validate_double(index_source *s, uint64_t place, index_pack *room, index_input *in);

/* ---- pieces.c: untrusted text ---- */

typedef struct index_pieces {
    const char *file;
    int fd;
    index_child child; /* for Parquet: fd is a pipe from it; child.file NULL: no child */
    char *buf;
    size_t at, n;    /* bytes of the piece: consumed, present */
    uint64_t before; /* bytes of earlier pieces */
    uint64_t line;
    bool ended;
} index_pieces;
/* Call _close after a failure too. Errors: MR_E_DATA no such file, or not a regular file; those of
 * index_child_open; MR_E_MEMORY */
mr_status index_pieces_open(index_pieces *t, const char *file, bool parquet);
/* Returns `st`, or the error of the child. */
mr_status index_pieces_close(index_pieces *t, mr_status st);
/* Reads the next piece if this one is consumed. Then a byte is present, or `ended` is true. Errors:
 * MR_E_IO, MR_E_STOPPED, MR_E_DATA a zero byte */
mr_status index_pieces_need(index_pieces *t);
/* Moves n bytes of the piece to a field that began at line `began`. Errors: MR_E_DATA the field is
 * too long, MR_E_MEMORY */
mr_status index_pieces_take(index_pieces *t, index_pack *to, size_t n, uint64_t began);

/* ---- literal.c: lists in a cell ---- */

/* Parse a list in Python or JSON syntax, with blanks around it. *out is NULL if the text is
 * something else. Owns: the caller. Errors: MR_E_MEMORY */
mr_status index_literal(const char *text, json_t **out);

/* ---- rows of tables ---- */

/* Receives a row; its texts are valid during the call only. */
typedef mr_status index_table_row(void *user, const index_input *in);

/* Non-empty captions, each with a zero. */
typedef struct index_captions {
    index_pack bytes;
    int32_t n;
} index_captions;
/* A list or object in a row; owned. */
enum { INDEX_LISTS = 64 };
typedef enum index_use {
    INDEX_UNREAD,
    INDEX_LEADS,  /* its length is the number of samples */
    INDEX_PAIR,   /* the times of the one sample */
    INDEX_FOLLOWS /* one item per sample, or captions of the one sample */
} index_use;
typedef struct index_list {
    index_meaning is;
    index_use use; /* known at the end of the row */
    json_t *value;
} index_list;
/* A row that is being built value by value. */
typedef struct index_making {
    index_scores *scores;
    index_pack path, field, plain; /* plain: the current line of JSON */
    index_captions first, more;    /* from column text; from text_2 and so on, which follow */
    uint64_t numbers[INDEX_SCORES];
    uint32_t wholes;
    uint64_t line; /* first line of the row */
    index_list lists[INDEX_LISTS];
    int32_t n_lists;
    bool captioned; /* the row has a caption column, maybe an empty one */
    int64_t start_us, end_us;
    char wrong[INDEX_WHY]; /* fault of the row's times; "": none */
    index_table_row *row;
    void *user;
    bool any; /* not a list of samples: captions may be missing */
} index_making;

/* ---- shape.c: contents of lists and objects of a row ---- */

/* Is it a list or an object? */
bool index_shape_is_container(const json_t *value);
/* Is it a list of two values, neither a list nor an object? */
bool index_shape_is_pair(const json_t *value);
/* Is it a list of texts and nulls? The index of the first other item. */
bool index_shape_is_texts(const json_t *value);
size_t index_shape_first_no_text(const json_t *list);
/* Are the lists of such a column time ranges? */
bool index_shape_has_times(const index_making *w, index_meaning is);
/* Does a list of objects contain captions? */
bool index_shape_captioned(const index_making *w, const json_t *value);
/* Is the object a time range, even one with missing times? */
bool index_shape_timed(const index_making *w, index_meaning is, const json_t *value);
/* Is it a list of captions: texts, or lists of texts? */
bool index_shape_are_captions(const json_t *value);
index_use index_shape_use(const index_making *w, const index_list *list);

/* ---- making.c, ranges.c: a row, value by value ---- */

/* "1:02:03.5", "02:03.5", or seconds: converts a time to microseconds. false: not a time */
bool index_time(const char *text, int64_t *us);
void index_making_begin(index_making *w, uint64_t line);
void index_making_fini(index_making *w);
/* Errors: MR_E_DATA too many captions; MR_E_MEMORY */
mr_status index_making_caption(index_captions *c, const index_pieces *t, const char *caption);
/* Add a value given as text; a text in list syntax becomes a list. */
mr_status index_making_value(index_making *w, const index_pieces *t, index_meaning is,
                             const char *value);
/* Add a JSON value: text, number, list or object. Borrows it. */
mr_status index_making_json(index_making *w, const index_pieces *t, index_meaning is,
                            json_t *value);
void index_making_number(index_making *w, int32_t score, mr_number value);
/* Pass the row to `row` as one sample. */
mr_status index_making_sample(index_making *w, const char *path);
/* Record a fault of the row, unless it already has one. */
void index_making_wrong(index_making *w, const char *form, ...) MR_PRINTF(2, 3);
/* End the row: passes one sample, or one for each time range in its lists. Errors: MR_E_DATA,
 * MR_E_MEMORY, those of `row` */
mr_status index_making_end(index_making *w, const index_pieces *t, const char *path);

/* ---- csv.c, json_lines.c, table.c: files of rows ---- */

/* Read all rows of a file. Errors: MR_E_DATA with its line; those of index_pieces and of `row` */
mr_status index_csv_read(index_pieces *t, char separator, index_making *w);
mr_status index_json_read(index_pieces *t, index_making *w);
/* Pass the rows of a CSV or JSON lines file one by one. A missing text column is an error. Other
 * columns go into `scores`, their values into the rows. */
mr_status index_table_read(const char *file, index_scores *scores, index_table_row *row,
                           void *user);

/* ---- source.c, join.c: folders and lists of samples ---- */

/* Check that the source of an unfinished index has not changed. Errors: MR_E_DATA names the
 * change */
mr_status index_source_same(const index_source *s, const char *described);
/* Read all samples of an input, including the call of index_source_end. */
mr_status index_source_read(index_source *s, const char *input, const mr_ingest_options *options);
/* Append the clips of a sorted list of packed inputs, with captions from a table, found by the
 * clip's path or by its file name. */
mr_status index_join_captions(index_source *s, index_sorter *clips, const char *table);
/* The path of a row's file, with "." and ".." resolved by name. *relative points to the part below
 * the root, or to the whole path. Errors: MR_E_IO too long */
mr_status index_source_path(const index_source *s, const char *path, char full[4096],
                            const char **relative);

/* ---- a builder, inside ---- */

// refused rows are in a separate table, so that one commit covers them and the rows around them
enum { DATA_REFUSED = DATA_TABLES, DATA_BUILD_TABLES };

struct mr_index_builder {
    char path[4096], tmp[4200];
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi tables[DATA_BUILD_TABLES];
    size_t map_bytes;
    size_t used_bytes,
        committed_bytes; // upper bound of the size of the tables, now and at the last commit
    uint64_t commit_rows;
    mr_index_built committed;
    size_t commit_bytes;
    double committed_s;
    mr_index_built built;
    mr_hot *chunk; // the unfinished chunk
    index_columns columns;
    uint64_t *values;         // [column][MR_HOT_ROWS] of the unfinished chunk, in the file's form
    index_sorter *keys;       // of all rows, with their ids
    mr_hasher *order;         // of the row hashes in id order
    index_pack pack;          // scratch
    index_pack value_pack;    // for columns: a commit writes them while `pack` is in use
    index_compress *compress; // NULL: captions stay uncompressed
    mr_hash128 set;
    char roots[16][4096];
    int n_roots;
    bool resume, finished;
    bool ours, kept; // tmp: created or resumed by this builder; kept for the next builder
};

/* Write a value and count its bytes. */
mr_status index_builder_put(mr_index_builder *b, MDB_dbi table, const void *key, size_t key_bytes,
                            const void *value, size_t bytes, unsigned flags);
/* Add the column values of row `id`; write those of the first n rows of a chunk; read back those of
 * the first `rows` rows. In values.c
 * Errors: MR_E_DATA a column cannot represent a value */
mr_status index_builder_note_values(mr_index_builder *b, const mr_row *row, uint64_t id);
mr_status index_builder_put_values(mr_index_builder *b, uint32_t chunk, size_t n);
mr_status index_builder_reload_values(mr_index_builder *b, uint64_t rows);

/* ---- note.c: facts that a builder keeps of rows ---- */

/* Record the facts of the next row, new or reloaded. Errors: those of a spill */
mr_status index_builder_note(mr_index_builder *b, const mr_row *row);

/* ---- resume.c: files of killed builders ---- */

/* Remove these files. With b->resume, the newest unfinished build becomes b->tmp instead. */
mr_status index_builder_leftovers(mr_index_builder *b);
/* Check, before any read, that the file has the length that it declares. */
mr_status index_builder_whole(const mr_index_builder *b);
/* Reload the rows of the last commit in the first transaction, as if they had just been added. */
mr_status index_builder_reload(mr_index_builder *b);

#endif
