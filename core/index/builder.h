/* index, inside: a builder, and the folders and lists that it reads. Licence: Apache-2.0 */
#ifndef MR_INDEX_BUILDER_H
#define MR_INDEX_BUILDER_H

#include "index/list.h"
#include "index/store.h"

/* ---- source.c, join.c: folders and lists of samples ---- */

/* Check that the source of an unfinished index has not changed. Errors: MR_E_DATA names the
 * change */
mr_status index_source_same(const index_source *s, const char *described);
/* Read all samples of an input, including the call of index_source_end. */
mr_status index_source_read(index_source *s, const char *input, const mr_ingest_options *options);
/* Append the clips of a sorted list of packed inputs, with captions from a table, found by the
 * clip's path or by its file name. */
mr_status index_join_captions(index_source *s, index_sorter *clips, const char *table);

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
