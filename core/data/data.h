/* data: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_DATA_PRIVATE_H
#define MR_DATA_PRIVATE_H

#include "moonreel/data.h"

#include <lmdb.h>

/* ---- bytes.c: growing output, checked input, little endian ---- */

typedef struct data_pack {
    uint8_t *bytes;
    size_t n, cap;
    bool failed;
} data_pack; /* growing output */
typedef struct data_view {
    const uint8_t *at, *end;
    bool failed;
} data_view; /* checked input */

void data_put(data_pack *p, const void *bytes, size_t n);
void data_put_int(data_pack *p, uint64_t value, int bytes);
void data_put_varint(data_pack *p, uint64_t value);
void data_put_text(data_pack *p, const char *text, int length_bytes);
uint64_t data_get_int(data_view *v, int bytes);
uint64_t data_get_varint(data_view *v);
const uint8_t *data_get(data_view *v, size_t n);
static inline uint64_t data_zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}
static inline int64_t data_unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* ---- list.c: samples to be ---- */

/* text NULL: no caption; fault: why the row is refused before its file is looked at, or NULL */
typedef struct data_input {
    const char *path, *text, *fault;
    uint64_t line;
} data_input;
typedef struct data_source {
    mr_arena arena;
    data_input *rows;
    uint64_t n, cap;
    char root[4096];      /* absolute */
    char described[8192]; /* the meta text "sources" */
} data_source;
/* Append a sample; texts are copied. Errors: MR_E_MEMORY */
mr_status data_source_add(data_source *s, const char *path, const char *text, uint64_t line);
void data_source_fini(data_source *s);

/* ---- squeeze.c: captions compressed against a dictionary of the index ---- */

typedef struct data_squeeze data_squeeze;     /* a builder's */
typedef struct data_unsqueeze data_unsqueeze; /* an index's, shared by its readers */
/* A dictionary for the captions of a list; empty for small lists. */
mr_status data_dict_train(const data_input *rows, uint64_t n, data_pack *dict);
mr_status data_squeeze_new(const void *dict, size_t n, data_squeeze **out);
void data_squeeze_free(data_squeeze *s);
mr_status data_squeeze_put(data_squeeze *s, data_pack *p, const char *text);
mr_status data_unsqueeze_new(const void *dict, size_t n, data_unsqueeze **out);
void data_unsqueeze_free(data_unsqueeze *u);
/* u NULL: the index has no dictionary. `context` is the reader's. */
mr_status data_unsqueeze_get(const data_unsqueeze *u, void *context, data_view *v, mr_arena *arena,
                             const char **text);
void *data_unsqueeze_context(void);
void data_unsqueeze_context_free(void *context);

/* ---- pack.c: rows as bytes ---- */

/* Values of the tables row, text and kf; `p` is emptied first. The last 4 bytes are a checksum. */
mr_status data_pack_row(data_pack *p, const mr_row *row);
mr_status data_pack_text(data_pack *p, const mr_row *row,
                         data_squeeze *squeeze); /* squeeze NULL: plain */
mr_status data_pack_keys(data_pack *p, const mr_row *row);
/* The reverse; texts and lists are put in `arena`. MR_E_DATA when damaged. */
mr_status data_unpack_row(MDB_val v, mr_arena *arena, mr_row *row);
mr_status data_unpack_text(MDB_val v, mr_arena *arena, mr_row *row, const data_unsqueeze *u,
                           void *context);
mr_status data_unpack_keys(MDB_val v, mr_arena *arena, mr_row *row);
mr_hot data_hot_of(const mr_row *row);
/* Hash of key, hot fields, file size and captions. */
mr_hash128 data_row_hash(const mr_row *row);

/* ---- tables ---- */

#define DATA_FORMAT "moonreel index 1"
enum { DATA_META, DATA_HOT, DATA_ROW, DATA_TEXT, DATA_KF, DATA_KEYMAP, DATA_TABLES };
enum { DATA_KEYMAP_ROWS = 65536 };
extern const char *const data_table_names[]; /* a builder's too */
unsigned data_table_flags(int table);
mr_status data_fail_mdb(const char *path, const char *verb, int err);
/* A whole row; texts and lists are put in `arena`. Errors: MR_E_DATA damaged */
mr_status data_read_row(MDB_txn *txn, const MDB_dbi *tables, uint64_t id, mr_arena *arena,
                        const data_unsqueeze *u, void *context, mr_row *out);

typedef struct data_keymap_entry {
    uint64_t hi, lo, id;
} data_keymap_entry;
int data_keymap_compare(const void *a, const void *b); /* by key, then id */

/* ---- sum.c: checksums of the file, and its sudden end ---- */

mr_status data_sum_write(const char *dir);
/* Length always; blocks when `verify` or the time differs from the noted one. With copy >= 0 every
 * block is checked and written there. */
mr_status data_sum_check(const char *dir, bool verify, int copy);
/* Name the file on SIGBUS inside the mapping that holds `inside`; forget it before unmapping. */
void data_bus_watch(const void *inside, const char *file);
void data_bus_forget(const char *file);

/* ---- place.c ---- */

/* A file that must not be mapped where it lies gets an empty one in memory: its descriptor, the
 * caller closes it; -1: map it. Errors: MR_E_DATA too large for that */
mr_status data_place(const char *file, int *copy);
/* The network file system that holds `path`, or NULL; lent. Specs replace it. */
extern const char *(*data_network)(const char *path);

/* ---- source.c, table.c: folders and lists of samples ---- */

/* What an unfinished index was built from must be the same. Errors: MR_E_DATA, with what changed */
mr_status data_source_same(const data_source *s, const char *described);
mr_status data_source_read(data_source *s, const char *input, const mr_ingest_options *options);
/* Rows of a CSV or JSON lines file; `want_text` makes a missing text column an error. */
mr_status data_table_read(data_source *s, const char *file, bool want_text);
mr_status data_path_absolute(const char *path, char out[4096]);

#endif
