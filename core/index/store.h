/* index, inside: the file of an index: tables, rows as bytes, columns, checksums, place.
 * Licence: Apache-2.0 */
#ifndef MR_INDEX_STORE_H
#define MR_INDEX_STORE_H

#include "index/bytes.h"

#include <lmdb.h>

/* ---- compress.c: captions compressed against a dictionary of the index ---- */

typedef struct index_compress index_compress;     /* owned by a builder */
typedef struct index_decompress index_decompress; /* owned by an index; its readers share it */
struct index_source;                              /* index/list.h */
/* Train a dictionary for the captions of a complete list; empty for small lists. */
mr_status index_dict_train(const struct index_source *s, index_pack *dict);
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

#endif
