/* index: columns, a number of every row under a name. Table "col:NAME" holds chunks of MR_HOT_ROWS
 * values as f64 or i64 with a checksum behind them; where a row has none NaN, or the smallest i64.
 * Ref: dataplane 2.2. Licence: Apache-2.0 */
#include "index/room.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = MR_HOT_ROWS * sizeof(uint64_t), NAMES = INDEX_COLUMNS * 80 };

/* ---- values ---- */

bool mr_number_is_none(mr_number x)
{
    return !x.whole && isnan(x.f);
}

double index_decimal_of(float value)
{
    char text[32];
    if (!isfinite(value))
        return value;
    // six digits come back from f32 as they were, unless it is so small that it has less of them
    int digits = fabsf(value) < FLT_MIN ? 1 : FLT_DIG;
    for (; digits < FLT_DECIMAL_DIG; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            return strtod(text, NULL);
    }
    snprintf(text, sizeof text, "%.*g", FLT_DECIMAL_DIG, (double)value);
    return strtod(text, NULL);
}

mr_number mr_column_number(const mr_column_chunk *c, int32_t i)
{
    mr_number value = {.f = NAN};
    if (c->kind == MR_COLUMN_F32) {
        float narrow;
        memcpy(&narrow, (const char *)c->values + (size_t)i * sizeof narrow, sizeof narrow);
        value.f = index_decimal_of(narrow);
        return value;
    }
    int64_t word;
    memcpy(&word, (const char *)c->values + (size_t)i * sizeof word, sizeof word);
    if (c->kind == MR_COLUMN_REAL)
        memcpy(&value.f, &word, sizeof word);
    else if (word != INT64_MIN)
        value.whole = true, value.i = word;
    return value;
}

/* ---- names and kinds ---- */

// as the meta text has them; columns of format 2 have a name alone
static const char *const kind_names[] = {
    [MR_COLUMN_REAL] = "f64", [MR_COLUMN_WHOLE] = "i64", [MR_COLUMN_F32] = ""};

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

mr_status index_columns_append(index_columns *c, const char *name, mr_column_kind kind,
                               MDB_txn *txn, bool create, const char *file)
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
    c->kinds[c->n] = kind;
    snprintf(c->names[c->n++], sizeof c->names[0], "%s", name);
    return MR_OK;
}

mr_status index_columns_open(index_columns *c, const char *names, MDB_txn *txn, const char *file)
{
    for (const char *p = names ? names : ""; *p;) {
        char name[INDEX_COLUMN_NAME];
        size_t n = strcspn(p, " \n"), kind = 0;
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        p += n + (p[n] == ' ');
        n = strcspn(p, "\n");
        while (kind < MR_COUNT(kind_names) &&
               (strlen(kind_names[kind]) != n || strncmp(kind_names[kind], p, n)))
            kind++;
        if (kind == MR_COUNT(kind_names))
            return mr_fail(MR_E_FORMAT, "%s: column '%s' holds '%.*s'; expected f64 or i64", file,
                           name, (int)MR_MIN(n, 40), p);
        MR_TRY(index_columns_append(c, name, (mr_column_kind)kind, txn, false, file));
        p += n + (p[n] == '\n');
    }
    return MR_OK;
}

mr_status index_column_read(const index_columns *c, int32_t column, MDB_txn *txn, uint64_t chunk,
                            int32_t n, bool check, const void **values, const char *file)
{
    uint32_t key = (uint32_t)chunk;
    MDB_val k = {sizeof key, &key}, v;
    int err = mdb_get(txn, c->tables[column], &k, &v);
    if (err)
        return index_fail_mdb(file, c->names[column], err);
    size_t bytes = (size_t)n * (c->kinds[column] == MR_COLUMN_F32 ? 4 : 8);
    uint64_t hash = 0;
    bool whole = v.mv_size == bytes + sizeof hash;
    if (whole && check) {
        memcpy(&hash, (const char *)v.mv_data + bytes, sizeof hash);
        whole = hash == mr_hash64(v.mv_data, bytes);
    }
    *values = v.mv_data;
    return whole ? MR_OK
                 : mr_fail(MR_E_DATA,
                           "%s: column %s, chunk %llu is damaged; try: copy or build the index "
                           "again",
                           file, c->names[column], (unsigned long long)chunk);
}

/* ---- a builder's ---- */

int32_t mr_index_builder_find(const mr_index_builder *b, const char *name)
{
    return index_columns_find(&b->columns, name);
}

static mr_status put_names(mr_index_builder *b)
{
    const index_columns *c = &b->columns;
    char names[NAMES];
    size_t n = 0;
    for (int32_t i = 0; i < c->n; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s %s\n", c->names[i],
                              kind_names[c->kinds[i]]);
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

// a value as its column holds it; false: it cannot
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
        return mr_fail(MR_E_DATA, "%s: column '%s' cannot hold %s; expected %s", row->path,
                       c->names[i], text,
                       c->kinds[i] == MR_COLUMN_WHOLE
                           ? "whole numbers of 64 bits"
                           : "what a real holds exactly, as it has fractions elsewhere");
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
    char names[NAMES];
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
