/* index: columns, a number of every row under a name. Table "col:NAME" holds chunks of MR_HOT_ROWS
 * values as f32 with a checksum behind them; NaN where a row has none. Ref: dataplane 2.2.
 * Licence: Apache-2.0 */
#include "index/room.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES = MR_HOT_ROWS * sizeof(float) };

bool index_column_name_good(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return n && !name[n] && n < INDEX_COLUMN_NAME && !strchr("0123456789", *name);
}

int32_t index_columns_find(const index_columns *c, const char *name)
{
    for (int32_t i = 0; i < c->n; i++)
        if (strcmp(c->names[i], name) == 0)
            return i;
    return -1;
}

mr_status index_columns_append(index_columns *c, const char *name, MDB_txn *txn, bool create,
                               const char *file)
{
    char table[INDEX_COLUMN_NAME + 8];
    if (!index_column_name_good(name))
        return mr_fail(
            MR_E_DATA,
            "%s: '%.80s' cannot name a column; expected letters, digits and '_', at most "
            "%d of them, the first no digit",
            file, name, INDEX_COLUMN_NAME - 1);
    if (c->n == INDEX_COLUMNS)
        return mr_fail(MR_E_DATA, "%s: column '%s' is one too many; expected at most %d columns",
                       file, name, INDEX_COLUMNS);
    snprintf(table, sizeof table, "col:%s", name);
    int err =
        mdb_dbi_open(txn, table, MDB_INTEGERKEY | (create ? MDB_CREATE : 0), &c->tables[c->n]);
    if (err)
        return index_fail_mdb(file, table, err);
    snprintf(c->names[c->n++], sizeof c->names[0], "%s", name);
    return MR_OK;
}

mr_status index_columns_open(index_columns *c, const char *names, MDB_txn *txn, const char *file)
{
    for (const char *p = names ? names : ""; *p;) {
        char name[INDEX_COLUMN_NAME];
        size_t n = strcspn(p, "\n");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        MR_TRY(index_columns_append(c, name, txn, false, file));
        p += n + (p[n] == '\n');
    }
    return MR_OK;
}

mr_status index_column_read(const index_columns *c, int32_t column, MDB_txn *txn, uint64_t chunk,
                            int32_t n, float *out, const char *file)
{
    uint32_t key = (uint32_t)chunk;
    MDB_val k = {sizeof key, &key}, v;
    int err = mdb_get(txn, c->tables[column], &k, &v);
    if (err)
        return index_fail_mdb(file, c->names[column], err);
    size_t bytes = (size_t)n * sizeof *out;
    uint64_t hash = 0;
    if (v.mv_size == bytes + sizeof hash)
        memcpy(&hash, (const char *)v.mv_data + bytes, sizeof hash);
    if (v.mv_size != bytes + sizeof hash || hash != mr_hash64(v.mv_data, bytes))
        return mr_fail(MR_E_DATA,
                       "%s: column %s, chunk %llu is damaged; try: copy or build the index again",
                       file, c->names[column], (unsigned long long)chunk);
    memcpy(out, v.mv_data, bytes);
    return MR_OK;
}

/* ---- a builder's ---- */

mr_status mr_index_builder_column(mr_index_builder *b, const char *name, int32_t *column)
{
    index_columns *c = &b->columns;
    *column = index_columns_find(c, name);
    if (*column >= 0)
        return MR_OK;
    if (b->built.rows)
        return mr_fail(MR_E_USAGE, "%s: column '%s' after %llu rows; expected before the first",
                       b->path, name, (unsigned long long)b->built.rows);
    float *more = mr_realloc(b->values, CHUNK_BYTES * (size_t)(c->n + 1));
    if (!more)
        return mr_fail_memory(CHUNK_BYTES * (size_t)(c->n + 1));
    b->values = more;
    MR_TRY(index_columns_append(c, name, b->txn, true, b->path));
    *column = c->n - 1;
    char names[INDEX_COLUMNS * INDEX_COLUMN_NAME] = "";
    for (int32_t i = 0; i < c->n; i++) {
        strcat(names, c->names[i]);
        strcat(names, "\n");
    }
    return mr_index_builder_meta(b, "columns", names);
}

void index_builder_note_values(mr_index_builder *b, const mr_row *row, uint64_t id)
{
    for (int32_t i = 0; i < b->columns.n; i++)
        b->values[(size_t)i * MR_HOT_ROWS + id % MR_HOT_ROWS] =
            i < row->n_columns ? row->columns[i] : NAN;
}

mr_status index_builder_put_values(mr_index_builder *b, uint32_t chunk, size_t n)
{
    size_t bytes = n * sizeof *b->values;
    for (int32_t i = 0; i < b->columns.n; i++) {
        const float *values = b->values + (size_t)i * MR_HOT_ROWS;
        index_pack *p = &b->value_pack;
        p->n = 0, p->failed = false;
        index_put(p, values, bytes);
        index_put_int(p, mr_hash64(values, bytes), 8);
        if (p->failed)
            return mr_fail_memory(bytes);
        // an unfinished chunk that a commit wrote is written over
        MR_TRY(index_builder_put(b, b->columns.tables[i], &chunk, sizeof chunk, p->bytes, p->n, 0));
    }
    return MR_OK;
}

mr_status index_builder_reload_values(mr_index_builder *b, uint64_t rows)
{
    MDB_val k = {7, "columns"}, v;
    int err = mdb_get(b->txn, b->tables[DATA_META], &k, &v);
    if (err)
        return err == MDB_NOTFOUND ? MR_OK : index_fail_mdb(b->tmp, "read", err);
    char names[INDEX_COLUMNS * INDEX_COLUMN_NAME];
    snprintf(names, sizeof names, "%.*s", (int)v.mv_size, (const char *)v.mv_data);
    MR_TRY(index_columns_open(&b->columns, names, b->txn, b->tmp));
    if (!(b->values = mr_alloc(CHUNK_BYTES * (size_t)b->columns.n)))
        return mr_fail_memory(CHUNK_BYTES * (size_t)b->columns.n);
    int32_t begun = (int32_t)(rows % MR_HOT_ROWS);
    for (int32_t i = 0; begun && i < b->columns.n; i++)
        MR_TRY(index_column_read(&b->columns, i, b->txn, rows / MR_HOT_ROWS, begun,
                                 b->values + (size_t)i * MR_HOT_ROWS, b->tmp));
    return MR_OK;
}
