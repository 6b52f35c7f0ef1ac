/* index: columns: one number per row, under a name. Table "col:NAME" has chunks of MR_HOT_ROWS
 * values as f64 or i64, each followed by a checksum. NaN or the smallest i64 marks a missing value.
 * Ref: dataplane 2.2. Licence: Apache-2.0 */
#include "index/store.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    // f32 preserves six decimal digits, but fewer if it is subnormal
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

// as in the meta text; columns of format 2 have no kind there
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
        return mr_fail(MR_E_DATA, "%s: column '%s' exceeds the limit; expected at most %d columns",
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

void index_columns_text(const index_columns *c, char text[INDEX_COLUMNS_TEXT])
{
    *text = 0;
    for (int32_t i = 0, n = 0; i < c->n; i++)
        n += snprintf(text + n, (size_t)(INDEX_COLUMNS_TEXT - n), "%s %s\n", c->names[i],
                      kind_names[c->kinds[i]]);
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
