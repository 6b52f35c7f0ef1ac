/* index: the columns that a builder fills, one chunk at a time. Licence: Apache-2.0 */
#include "index/builder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES = MR_HOT_ROWS * sizeof(uint64_t) };

int32_t mr_index_builder_find(const mr_index_builder *b, const char *name)
{
    return index_columns_find(&b->columns, name);
}

static mr_status put_names(mr_index_builder *b)
{
    char names[INDEX_COLUMNS_TEXT];
    index_columns_text(&b->columns, names);
    return mr_index_builder_meta(b, "columns", names);
}

mr_status mr_index_builder_column(mr_index_builder *b, const char *name, mr_column_kind kind,
                                  int32_t *column)
{
    index_columns *c = &b->columns;
    kind = kind == MR_COLUMN_WHOLE ? kind : MR_COLUMN_REAL;
    *column = index_columns_find(c, name);
    if (*column >= 0 && (b->built.rows || c->kinds[*column] == kind))
        return MR_OK;
    if (*column >= 0) {
        c->kinds[*column] = MR_COLUMN_REAL;
        return put_names(b);
    }
    if (b->built.rows)
        return mr_fail(MR_E_USAGE, "%s: column '%s' after %llu rows; expected before the first",
                       b->path, name, (unsigned long long)b->built.rows);
    uint64_t *more = mr_realloc(b->values, CHUNK_BYTES * (size_t)(c->n + 1));
    if (!more)
        return mr_fail_memory(CHUNK_BYTES * (size_t)(c->n + 1));
    b->values = more;
    MR_TRY(index_columns_append(c, name, kind, b->txn, true, b->path));
    *column = c->n - 1;
    return put_names(b);
}

// converts a value to the form of its column; false: the column cannot represent it
static bool word_of(mr_number value, mr_column_kind kind, uint64_t *word)
{
    const bool none = mr_number_is_none(value);
    int64_t whole = INT64_MIN;
    double real = NAN;
    if (kind == MR_COLUMN_WHOLE) {
        if (!none && value.whole)
            whole = value.i;
        memcpy(word, &whole, sizeof *word);
        return none || (value.whole && whole != INT64_MIN);
    }
    if (!none)
        real = value.whole ? (double)value.i : value.f;
    memcpy(word, &real, sizeof *word);
    return !value.whole || index_whole_is_real(value.i);
}

mr_status index_builder_note_values(mr_index_builder *b, const mr_row *row, uint64_t id)
{
    const index_columns *c = &b->columns;
    for (int32_t i = 0; i < c->n; i++) {
        const mr_number value = i < row->n_columns ? row->columns[i] : (mr_number){.f = NAN};
        char text[40];
        if (word_of(value, c->kinds[i], &b->values[(size_t)i * MR_HOT_ROWS + id % MR_HOT_ROWS]))
            continue;
        if (value.whole)
            snprintf(text, sizeof text, "%lld", (long long)value.i);
        else
            snprintf(text, sizeof text, "%.17g", value.f);
        return mr_fail(
            MR_E_DATA, "%s: column '%s' cannot represent %s; expected %s", row->path, c->names[i],
            text,
            c->kinds[i] == MR_COLUMN_WHOLE
                ? "whole numbers of 64 bits"
                : "numbers that a double represents exactly, because it has fractions elsewhere");
    }
    return MR_OK;
}

mr_status index_builder_put_values(mr_index_builder *b, uint32_t chunk, size_t n)
{
    size_t bytes = n * sizeof *b->values;
    for (int32_t i = 0; i < b->columns.n; i++) {
        const uint64_t *values = b->values + (size_t)i * MR_HOT_ROWS;
        index_pack *p = &b->value_pack;
        p->n = 0, p->failed = false;
        index_put(p, values, bytes);
        index_put_int(p, mr_hash64(values, bytes), 8);
        if (p->failed)
            return mr_fail_memory(bytes);
        // replaces an unfinished chunk of an earlier commit
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
    char names[INDEX_COLUMNS_TEXT];
    snprintf(names, sizeof names, "%.*s", (int)v.mv_size, (const char *)v.mv_data);
    MR_TRY(index_columns_open(&b->columns, names, b->txn, b->tmp));
    if (!(b->values = mr_alloc(CHUNK_BYTES * (size_t)b->columns.n)))
        return mr_fail_memory(CHUNK_BYTES * (size_t)b->columns.n);
    int32_t begun = (int32_t)(rows % MR_HOT_ROWS);
    for (int32_t i = 0; i < b->columns.n; i++) {
        const void *values;
        if (b->columns.kinds[i] == MR_COLUMN_F32)
            return mr_fail(MR_E_DATA,
                           "%s: was begun by an earlier version, with columns of f32; try: without "
                           "--continue, from the start",
                           b->tmp);
        if (!begun)
            continue;
        MR_TRY(index_column_read(&b->columns, i, b->txn, rows / MR_HOT_ROWS, begun, true, &values,
                                 b->tmp));
        memcpy(b->values + (size_t)i * MR_HOT_ROWS, values, (size_t)begun * sizeof *b->values);
    }
    return MR_OK;
}
