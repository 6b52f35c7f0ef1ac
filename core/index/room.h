/* index, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_INDEX_ROOM_H
#define MR_INDEX_ROOM_H

#include "moonreel/index.h"

#include <jansson.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>

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

/* ---- spill.c: records put aside on the disk ---- */

/* Records in the order in which they are put, the last block in memory, all others in a file
 * without a name in the folder of `near`, or in the nearest one above it that exists. A place is a
 * number that grows from record to record. Errors: MR_E_MEMORY; MR_E_IO a full disk, what comes
 * back damaged; MR_E_STOPPED */
typedef struct index_spill index_spill;
#define INDEX_SPILL_ENDING ".spill" /* of the moment in which the file may have a name */
mr_status index_spill_new(const char *near, index_spill **out);
void index_spill_free(index_spill *s); /* NULL is fine */
mr_status index_spill_put(index_spill *s, const void *record, size_t n, uint64_t *place);
/* End the block: *blocks of them lie behind each other now. */
mr_status index_spill_cut(index_spill *s, uint64_t *blocks);

typedef struct index_spill_reader {
    index_spill *spill;
    uint64_t block, to, loaded;
    size_t at, n, cap;
    const uint8_t *bytes;
    uint8_t *room;
} index_spill_reader;
/* Read blocks from .. to - 1; UINT64_MAX: to the end. After the last put. */
index_spill_reader index_spill_read(index_spill *s, uint64_t from, uint64_t to);
void index_spill_seek(index_spill_reader *r, uint64_t place);
/* The next record, lent until the next call; NULL behind the last one. */
mr_status index_spill_next(index_spill_reader *r, const uint8_t **record, size_t *n,
                           uint64_t *place);
void index_spill_reader_fini(index_spill_reader *r);

/* ---- sort.c: records in the order of their bytes ---- */

typedef struct index_sorter index_sorter;
/* The memory of a run, about; specs make it small. */
extern size_t index_run_bytes;
/* Errors: as of a spill */
mr_status index_sorter_new(const char *near, index_sorter **out);
void index_sorter_free(index_sorter *s); /* NULL is fine */
mr_status index_sorter_add(index_sorter *s, const void *record, size_t n);
/* After the last record, before the first next. */
mr_status index_sorter_sort(index_sorter *s);
/* Lent until the next call; NULL behind the last one. */
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
/* How many values of a kind a column has, and the first of them. */
typedef struct index_seen {
    uint64_t n, line;
    char first[32]; /* may be cut within a character */
} index_seen;
typedef struct index_score {
    char name[64], column[64]; /* here, and in the list, where it may be cut */
    bool times;                /* its lists are ranges of time: "timestamp" */
    uint64_t wholes, reals;
    index_seen others;  /* text that is no number */
    index_seen large;   /* whole numbers that a real cannot hold exactly, or beyond 64 bits */
    index_seen endless; /* not finite */
    index_seen unread;  /* lists and objects that mean nothing here */
} index_score;
typedef struct index_scores {
    const char *file;   /* for errors, once it is read; lent */
    const char *names;  /* "path=video,text=caption": what columns are called here, "-": they are
                           left out; NULL: nothing */
    const char *escape; /* of CSV; NULL or "": none */
    int32_t n;
    uint64_t met;    /* entries of `names` whose column came, a bit for each of the first 64 */
    uint64_t beyond; /* columns that found no place */
    char times[64];  /* a column that is not called start_s, end_s or range_s, taken for times */
    uint64_t cut;    /* samples that are parts of their files */
    index_score of[INDEX_SCORES];
} index_scores;
/* The scores of a list that is read so. Errors: MR_E_USAGE unknown options */
mr_status index_scores_begin(index_scores *s, const mr_table_options *o);
/* What a column of that name is; INDEX_SCORE + i: number i of the rows. */
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
/* The same without a place for values that are missing: INDEX_SCORE. *times: its lists are
 * ranges. */
index_meaning index_scores_look(index_scores *s, const char *name, bool *times);
/* The column that `names` calls `name`, or `name` itself; of NULL the first one that `names` asks
 * for and that has not come, or NULL. */
const char *index_scores_missing(const index_scores *s, const char *name,
                                 char room[INDEX_NAME_MAX]);
/* Is it one of the words with which pandas writes that there is no value, or empty? */
bool index_is_missing(const char *text);
/* The number that the text of a cell says, or none. */
mr_number index_scores_take(index_scores *s, int32_t score, const char *text, uint64_t line);
/* Is a real of that value the same? */
static inline bool index_whole_is_real(int64_t i)
{
    double f = (double)i;
    return f < 0x1p63 && (int64_t)f == i;
}
/* Count a number that came as one. */
mr_number index_scores_count(index_scores *s, int32_t score, mr_number value, uint64_t line);
/* Count a list or an object that means nothing. */
void index_scores_unread(index_scores *s, int32_t score, const char *what, uint64_t line);
/* Once the list is read: is it a column of the index, and of which kind? One of text is not, nor
 * where a few of its cells read as numbers. */
bool index_score_is_column(const index_score *s);
mr_column_kind index_score_kind(const index_score *s);
/* Refuse columns of numbers with cells that are no numbers. Errors: MR_E_DATA (names row and
 * cell) */
mr_status index_scores_end(const index_scores *s);
/* What is passed over, a line each. Errors: MR_E_MEMORY */
mr_status index_scores_notes(const index_scores *s, index_pack *out);

/* ---- input.c: a sample to be ---- */

/* text NULL: no caption; fault: why the row is refused before its file is looked at, or NULL, and
 * the class of that */
typedef struct index_input {
    const char *path, *text, *fault, *class;
    uint64_t line;
    int64_t start_us, end_us; /* part of the file; end 0: to its end */
    int32_t more;             /* captions that lie behind the zero of `text`, each with a zero */
    int32_t n_numbers;        /* of the list's scores, 8 bytes each at any address */
    uint32_t wholes;          /* a bit for each: it is a whole number, not a real */
    const void *numbers;
} index_input;
/* Number i; none when the row does not reach that far. */
mr_number index_input_number(const index_input *in, int32_t i);
/* The bytes of all captions with their zeros; 0: none. */
size_t index_input_text_bytes(const index_input *in);
/* As bytes that begin with the path and its zero, and back: then the texts lie in the record. */
void index_input_pack(index_pack *p, const index_input *in);
index_input index_input_of(const uint8_t *record);

/* ---- list.c: the samples to be ---- */

/* The samples of an input in their order. They are put aside, not held in memory: 24 bytes of each
 * are sorted to find those that are one sample. */
typedef struct index_source {
    mr_arena arena;
    atomic_bool stop;            /* set by any thread: what goes on ends with MR_E_STOPPED */
    _Atomic uint64_t n;          /* may be looked at meanwhile */
    uint64_t text_bytes;         /* of captions that are not refused */
    int32_t part, parts;         /* parts 0: the whole input */
    uint64_t seen;               /* rows of the input */
    char root[4096], near[4096]; /* absolute; where rows are put aside */
    char name[128];              /* in the sample keys */
    const char *described;       /* the meta text "sources" */
    const char *notes;           /* what was passed over in a folder, a line each; "" */
    mr_hasher *hash;             /* of all paths, captions and numbers */
    index_scores scores;         /* of the list */
    index_spill *rows;
    index_sorter *keys, *doubles;
    index_spill_reader at, first; /* the next row; the first of rows that are one sample */
    index_keymap_entry next;      /* the next double: its place and that of the first */
    bool has_next;
    index_pack record;
} index_source;
/* `near`: a path in whose folder rows are put aside; `name`: in the sample keys.
 * Errors: MR_E_MEMORY. Call _fini after a failure too. */
mr_status index_source_init(index_source *s, const char *near, const char *name);
/* Errors: MR_E_STOPPED when `stop` is set. */
mr_status index_source_check(const index_source *s);
/* Append a sample; a bad caption or an impossible path becomes its fault. Errors: of a spill */
mr_status index_source_add(index_source *s, const index_input *in);
/* After the last sample: go to the first, knowing which rows are one sample. */
mr_status index_source_end(index_source *s);
/* The next of the n samples, with its texts in `room`. Errors: of a spill */
mr_status index_source_take(index_source *s, index_pack *room, index_input *in);
void index_source_fini(index_source *s);

/* ---- compress.c: captions compressed against a dictionary of the index ---- */

typedef struct index_compress index_compress;     /* a builder's */
typedef struct index_decompress index_decompress; /* an index's, shared by its readers */
/* A dictionary for the captions of a list that is complete; empty for small lists. */
mr_status index_dict_train(const index_source *s, index_pack *dict);
/* The same of texts that lie behind each other, with their sizes, size_t each. */
mr_status index_dict_make(const index_pack *samples, const index_pack *sizes, index_pack *dict);
mr_status index_compress_new(const void *dict, size_t n, index_compress **out);
void index_compress_free(index_compress *s);
/* Append a text with its length; s NULL: plain. */
mr_status index_compress_put(index_compress *s, index_pack *p, const char *text);
mr_status index_decompress_new(const void *dict, size_t n, index_decompress **out);
void index_decompress_free(index_decompress *u);
/* u NULL: the index has no dictionary. `context` is the reader's. */
mr_status index_decompress_get(const index_decompress *u, void *context, index_view *v,
                               mr_arena *arena, const char **text);
void *index_decompress_context(void);
void index_decompress_context_free(void *context);

/* ---- pack.c: rows as bytes ---- */

/* A value of table row; `p` is emptied first, compress NULL: captions stay plain. The last 4 bytes
 * are a checksum. */
mr_status index_pack_row(index_pack *p, const mr_row *row, index_compress *compress);
/* The reverse; texts and lists are put in `arena`. MR_E_DATA when damaged. */
mr_status index_unpack_row(MDB_val v, mr_arena *arena, mr_row *row, const index_decompress *u,
                           void *context);
/* The same without key frames and captions. */
mr_status index_unpack_facts(MDB_val v, mr_arena *arena, mr_row *row);
/* A row of the table, by its id; texts and lists are put in `arena`. Errors: MR_E_DATA damaged */
mr_status index_read_row(MDB_txn *txn, const MDB_dbi *tables, uint64_t id, mr_arena *arena,
                         const index_decompress *u, void *context, mr_row *out);
mr_hot index_hot_of(const mr_row *row);
/* Hash of key, hot fields, file size and captions. */
mr_hash128 index_row_hash(const mr_row *row);

/* ---- tables.c: files and tables ---- */

/* What an index directory holds; a store of store.c has the first three. */
#define INDEX_DATA    "data.mdb"
#define INDEX_SUM     "data.sum"
#define INDEX_SEEN    "data.seen" /* the file time of a copy whose blocks have been checked */
#define INDEX_INFO    "info.txt"
#define INDEX_REFUSED "refused.jsonl"
#define INDEX_LOCK    "lock.mdb" /* of whoever else opened it through LMDB */
#define INDEX_FILES   INDEX_DATA, INDEX_SUM, INDEX_SEEN, INDEX_INFO, INDEX_REFUSED, INDEX_LOCK

/* One of format 2 has columns of f32 alone. */
#define DATA_FORMAT     "moonreel index 3"
#define DATA_FORMAT_F32 "moonreel index 2"
enum { DATA_META, DATA_HOT, DATA_ROW, DATA_KEYMAP, DATA_TABLES };
enum { DATA_KEYMAP_ROWS = 65536 };
extern const char *const index_table_names[]; /* a builder's too */
unsigned index_table_flags(int table);
mr_status index_fail_mdb(const char *path, const char *verb, int err);
/* The hash that 32 hexadecimal digits say; false: they are not, or NULL. */
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
/* The real with the fewest digits that f32 rounds to `value`. */
double index_decimal_of(float value);
int32_t index_columns_find(const index_columns *c, const char *name); /* -1: none of that name */
/* One more column, whose table is there or is made. Errors: MR_E_DATA a bad name, too many */
mr_status index_columns_append(index_columns *c, const char *name, mr_column_kind kind,
                               MDB_txn *txn, bool create, const char *file);
/* All of the meta text "columns", NAME or NAME KIND a line; NULL: none. */
mr_status index_columns_open(index_columns *c, const char *names, MDB_txn *txn, const char *file);
void index_columns_text(const index_columns *c, char text[INDEX_COLUMNS_TEXT]);
/* The n values of a chunk, lent by the transaction. `check`: compare their hash. Errors: MR_E_DATA
 * damaged */
mr_status index_column_read(const index_columns *c, int32_t column, MDB_txn *txn, uint64_t chunk,
                            int32_t n, bool check, const void **values, const char *file);

/* Entries of a chunk of the key map, in the layout of the file; none after the last chunk. */
mr_status index_keys(mr_index_reader *r, uint32_t chunk, const char **entries, size_t *n);

/* ---- sum.c: checksums of the file, and its sudden end ---- */

mr_status index_sum_write(const char *dir);
/* Length always; blocks when `verify` or the time differs from the noted one. With copy >= 0 every
 * block is checked and written there; `name` is that of the copy. */
mr_status index_sum_check(const char *dir, bool verify, int copy, const char *name);
/* The size of the file, as its n bytes of data.sum say; those are not checked. */
uint64_t index_sum_bytes(const void *sum, size_t n);
/* Name the file on SIGBUS inside the mapping that holds `inside`; forget it before unmapping. */
void index_bus_watch(const void *inside, const char *file);
void index_bus_forget(const char *file);

/* ---- network.c, place.c: where an index is mapped ---- */

/* The network file system that holds `path`, or NULL; lent. Specs replace it. */
extern const char *(*index_network)(const char *path);
typedef struct index_spot {
    int copy;   /* descriptor of the file to map instead, locked while it is open; -1: none */
    bool ahead; /* pages are read ahead */
} index_spot;
/* Check an index, and copy it where it must not be mapped in place: to a local disk, where
 * that cannot be to memory. The caller closes `copy`. verify  read every block in place
 * Errors: those of index_sum_check and index_local_copy; MR_E_DATA no place for it */
mr_status index_place(const char *dir, const char *file, bool verify, index_spot *out);

/* ---- local_copy.c: copies on this host ---- */

/* Open the copy of an index's file; one process of the host makes it, others wait.
 * $MOONREEL_COPIES, else $TMPDIR, else /var/tmp holds the folder of them.
 * Errors: MR_E_UNSUPPORTED no copy can lie there; MR_E_DATA damaged, with the block; MR_E_IO; the
 * process that copies does not come further; MR_E_STOPPED */
mr_status index_local_copy(const char *dir, int *fd);

/* ---- parquet.c ---- */

/* A child process that gives a Parquet file as JSON lines, through fd. */
typedef struct index_child {
    const char *file;
    int fd, errors;
    int pid; /* 0: none */
} index_child;
/* Errors: MR_E_UNSUPPORTED no program that can; MR_E_DATA no such file, or none that is regular;
 * MR_E_IO */
mr_status index_child_open(index_child *c, const char *file);
/* Wait until something can be read. Errors: MR_E_STOPPED */
mr_status index_child_wait(const index_child *c);
/* End it; `whole`: all was read, so that it has to end well, and by itself within some seconds.
 * Errors: MR_E_DATA with what it said, MR_E_UNSUPPORTED, MR_E_STOPPED */
mr_status index_child_close(index_child *c, bool whole);

/* ---- guard.c, fork_server.c, guarded.c: decoders in separate processes ---- */

/* What a process that guards and one that decodes share: a question, its answer, and behind them in
 * the same file of memory the key frames of the clip and the pixels that come out. */
typedef enum guard_job { GUARD_SCAN, GUARD_READ, GUARD_WATCH } guard_job;
typedef struct guard_crate {
    guard_job job;
    bool wants; /* GUARD_WATCH: the changes */
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
/* The environment variable that makes the program a fork server: its socket. */
#define GUARD_VARIABLE "MOONREEL_MEDIA_WORKER"
/* A decoder process, a child of this one, that talks through `sock` and `memory` (copied into it).
 * Threads: any. Errors: MR_E_FAIL, MR_E_STOPPED; *pid is 0 then. */
mr_status fork_server_start(int sock, int memory, pid_t *pid);
/* The error of a process that did not start. */
mr_status fork_server_fail(const char *why);
/* A worker is in use, or is no longer: with the last one the server ends. */
void fork_server_hold(void);
void fork_server_release(void);
/* Room for n_keys key frames and `bytes` behind them; both sides may ask. Errors: MR_E_MEMORY */
mr_status guard_reserve(guard_memory *m, int64_t n_keys, size_t bytes);
static inline guard_crate *guard_crate_of(const guard_memory *m)
{
    return (guard_crate *)(void *)m->at;
}
/* Wait for `bytes` bytes from the other end of a socket. ENDED: it was closed; STOPPED: Ctrl-C. */
typedef enum guard_waited { GUARD_ANSWERED, GUARD_ENDED, GUARD_LATE, GUARD_STOPPED } guard_waited;
guard_waited guard_wait(int sock, double seconds, void *answer, size_t bytes);
enum { GUARD_START_S = 60 };
/* How long after its deadline a process is ended; specs make it short. */
extern double guard_grace_s;
int64_t *guard_keys(const guard_memory *m);
uint8_t *guard_out(const guard_memory *m, int64_t n_keys);

/* ---- text.c, validate.c: what is refused before any file is looked at ---- */

enum { INDEX_CAPTION_MAX = 64 << 10, INDEX_WHY = 160 };
/* Nothing should be trained on this caption, for the reason put into `why`: too long, not UTF-8, or
 * with control characters other than tabs and line breaks. */
bool index_caption_bad(const char *text, char why[INDEX_WHY]);
/* Set the fault of a row with a bad caption, which it loses, or with an impossible path; its text
 * goes to `why`. *key is that of the sample. Answers false when it has none. */
enum { INDEX_FAULT = 4400 };
bool index_validate_row(const index_source *s, index_input *in, char why[INDEX_FAULT],
                        mr_hash128 *key);
/* From the keys of all rows: all but the first of rows that are one sample, in the order of the
 * rows. Errors: of a spill */
mr_status index_validate_keys(index_source *s);
/* Set the fault of the row at `place` when it is such a one; its text goes behind those in `room`.
 */
mr_status index_validate_double(index_source *s, uint64_t place, index_pack *room, index_input *in);

/* ---- pieces.c: text of others ---- */

typedef struct index_pieces {
    const char *file;
    int fd;
    index_child child; /* of Parquet: fd is its end of a pipe; its file NULL: none */
    char *buf;
    size_t at, n;    /* of the piece: used up, there */
    uint64_t before; /* bytes of earlier pieces */
    uint64_t line;
    bool ended;
} index_pieces;
/* To be closed also where this fails. Errors: MR_E_DATA no file, or none that is regular; those of
 * index_child_open; MR_E_MEMORY */
mr_status index_pieces_open(index_pieces *t, const char *file, bool parquet);
/* Gives `st`, or what the child says of its end. */
mr_status index_pieces_close(index_pieces *t, mr_status st);
/* Reads on when the piece is used up; afterwards a byte is there, or `ended` is true. Errors:
 * MR_E_IO, MR_E_STOPPED, MR_E_DATA a zero byte */
mr_status index_pieces_need(index_pieces *t);
/* Takes n bytes of the piece to a field that began at line `began`. Errors: MR_E_DATA it is too
 * long, MR_E_MEMORY */
mr_status index_pieces_take(index_pieces *t, index_pack *to, size_t n, uint64_t began);

/* ---- literal.c: lists in a cell ---- */

/* A list as Python or JSON writes it, with nothing but blanks around it; owns: the caller. *out is
 * NULL when it is not. Errors: MR_E_MEMORY */
mr_status index_literal(const char *text, json_t **out);

/* ---- rows of tables ---- */

/* Takes a row; its texts are lent. */
typedef mr_status index_table_row(void *user, const index_input *in);

/* Captions that are not empty, each with a zero. */
typedef struct index_captions {
    index_pack bytes;
    int32_t n;
} index_captions;
/* A value of a row that is a list or an object, and owned. */
enum { INDEX_LISTS = 64 };
typedef enum index_use {
    INDEX_UNREAD,
    INDEX_LEADS,  /* it says how many samples there are */
    INDEX_PAIR,   /* the times of the one sample */
    INDEX_FOLLOWS /* an item for each sample, or captions of the one */
} index_use;
typedef struct index_list {
    index_meaning is;
    index_use use; /* known at the end of the row */
    json_t *value;
} index_list;
/* A row in the making, value by value. */
typedef struct index_making {
    index_scores *scores;
    index_pack path, field, plain; /* plain: a line of JSON as it is parsed */
    index_captions first, more; /* of the column text; of text_2 and its like, which come behind */
    uint64_t numbers[INDEX_SCORES];
    uint32_t wholes;
    uint64_t line; /* with which the row begins */
    index_list lists[INDEX_LISTS];
    int32_t n_lists;
    bool captioned; /* it says what its captions are, be it nothing */
    int64_t start_us, end_us;
    char wrong[INDEX_WHY]; /* with the times of the row; "": nothing */
    index_table_row *row;
    void *user;
    bool any; /* it is no list of samples: captions may be missing */
} index_making;

/* ---- shape.c: what lists and objects of a row hold ---- */

/* Is it a list or an object? */
bool index_shape_is_container(const json_t *value);
/* Is it a list of two values, neither a list nor an object? */
bool index_shape_is_pair(const json_t *value);
/* Is it a list of texts, null among them, and where does its first other item lie? */
bool index_shape_is_texts(const json_t *value);
size_t index_shape_first_no_text(const json_t *list);
/* Are the lists of such a column ranges of time? */
bool index_shape_has_times(const index_making *w, index_meaning is);
/* Does a list of objects say what the captions are? */
bool index_shape_captioned(const index_making *w, const json_t *value);
/* Is the object a range, be it one that lacks its times? */
bool index_shape_timed(const index_making *w, index_meaning is, const json_t *value);
/* Does a list hold captions: texts, or lists of them? */
bool index_shape_are_captions(const json_t *value);
index_use index_shape_use(const index_making *w, const index_list *list);

/* ---- making.c, ranges.c: a row, value by value ---- */

/* "1:02:03.5", "02:03.5", seconds as a number: microseconds from 0 on. false: it is no time */
bool index_time(const char *text, int64_t *us);
void index_making_begin(index_making *w, uint64_t line);
void index_making_fini(index_making *w);
/* Errors: MR_E_DATA too many captions; MR_E_MEMORY */
mr_status index_making_caption(index_captions *c, const index_pieces *t, const char *caption);
/* A value as text; one that reads as a list is one. */
mr_status index_making_value(index_making *w, const index_pieces *t, index_meaning is,
                             const char *value);
/* A value of JSON: text, a number, a list, an object. Borrows it. */
mr_status index_making_json(index_making *w, const index_pieces *t, index_meaning is,
                            json_t *value);
void index_making_number(index_making *w, int32_t score, mr_number value);
/* Hand on what was made: one sample. */
mr_status index_making_sample(index_making *w, const char *path);
/* Write down what is wrong with the row, unless something is already. */
void index_making_wrong(index_making *w, const char *form, ...) MR_PRINTF(2, 3);
/* The end of the row: one sample, or one for each of its lists of ranges. Errors: MR_E_DATA,
 * MR_E_MEMORY, those of `row` */
mr_status index_making_end(index_making *w, const index_pieces *t, const char *path);

/* ---- csv.c, json_lines.c, table.c: files of rows ---- */

/* All rows of a file. Errors: MR_E_DATA with its line; those of index_pieces and of `row` */
mr_status index_csv_read(index_pieces *t, char separator, index_making *w);
mr_status index_json_read(index_pieces *t, index_making *w);
/* Hand on the rows of a CSV or JSON lines file one by one; a missing text column is an error. Other
 * columns go into `scores`, their values into the rows. */
mr_status index_table_read(const char *file, index_scores *scores, index_table_row *row,
                           void *user);

/* ---- source.c, join.c: folders and lists of samples ---- */

/* What an unfinished index was built from must be the same. Errors: MR_E_DATA, with what changed */
mr_status index_source_same(const index_source *s, const char *described);
/* All samples of an input, up to index_source_end. */
mr_status index_source_read(index_source *s, const char *input, const mr_ingest_options *options);
/* Append the clips of a sorted list, packed inputs, with captions from a table: those of a clip's
 * path, or of its file name. */
mr_status index_join_captions(index_source *s, index_sorter *clips, const char *table);
/* Where the file of a row lies, "." and ".." resolved by name; *relative points to its path below
 * the root, or to the whole one. Errors: MR_E_IO too long */
mr_status index_source_path(const index_source *s, const char *path, char full[4096],
                            const char **relative);

/* ---- a builder as its files see it ---- */

// refused rows wait in a table of their own: they are committed together with the rows between them
enum { DATA_REFUSED = DATA_TABLES, DATA_BUILD_TABLES };

struct mr_index_builder {
    char path[4096], tmp[4200];
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi tables[DATA_BUILD_TABLES];
    size_t map_bytes;
    size_t used_bytes,
        committed_bytes; // an upper bound of what the tables hold; at the last commit
    uint64_t commit_rows;
    mr_index_built committed;
    size_t commit_bytes;
    double committed_s;
    mr_index_built built;
    mr_hot *chunk; // the unfinished one
    index_columns columns;
    uint64_t *values;         // [column][MR_HOT_ROWS] of the unfinished chunk, as they are written
    index_sorter *keys;       // of all rows, with their ids
    mr_hasher *order;         // of the row hashes in id order
    index_pack pack;          // scratch
    index_pack value_pack;    // of columns: a commit writes them while `pack` waits
    index_compress *compress; // NULL: captions stay plain
    mr_hash128 set;
    char roots[16][4096];
    int n_roots;
    bool resume, finished;
    bool ours, kept; // tmp: made or taken up by us; holds rows for the next one
};

/* Write a value and count its bytes. */
mr_status index_builder_put(mr_index_builder *b, MDB_dbi table, const void *key, size_t key_bytes,
                            const void *value, size_t bytes, unsigned flags);
/* Of row `id`; of the first n rows of a chunk; those of the first `rows` rows back. In values.c
 * Errors: MR_E_DATA a value that its column cannot hold */
mr_status index_builder_note_values(mr_index_builder *b, const mr_row *row, uint64_t id);
mr_status index_builder_put_values(mr_index_builder *b, uint32_t chunk, size_t n);
mr_status index_builder_reload_values(mr_index_builder *b, uint64_t rows);

/* ---- note.c: what a builder keeps of rows ---- */

/* Take note of the next row, added or read again. Errors: of a spill */
mr_status index_builder_note(mr_index_builder *b, const mr_row *row);

/* ---- resume.c: what killed builders left ---- */

/* Remove it; with b->resume the newest one becomes b->tmp instead, when it is no whole index. */
mr_status index_builder_leftovers(mr_index_builder *b);
/* Before anything is read: the file is as long as it says. */
mr_status index_builder_whole(const mr_index_builder *b);
/* Take up the rows of the last commit, in the first transaction: again as if they had just been
 * added. */
mr_status index_builder_reload(mr_index_builder *b);

#endif
