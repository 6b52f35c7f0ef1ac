/* index: reads a sealed index. One LMDB environment per index, one read transaction per reader.
 * Ref: dataplane 2. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/sort.h"
#include "index/store.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mr_index {
    atomic_int refs;
    char *path, *file;
    MDB_env *env;
    MDB_txn *txn; // of the opener
    MDB_dbi tables[DATA_TABLES];
    mr_index_facts facts;
    mr_arena arena; // meta texts and roots
    const char **roots;
    struct {
        const char *name, *text;
        size_t n;
    } * meta;
    int n_meta;
    index_decompress *decompress; // NULL: captions are not compressed
    index_columns columns;
    index_spot spot; // an open descriptor keeps the copy from removal
    bool watched;
};

struct mr_index_reader {
    mr_index *index;
    MDB_txn *txn;
    mr_arena arena; // texts of a row; `fresh` keeps its first block
    mr_arena_mark fresh;
    mr_hot *aligned; // copy of a small chunk, because LMDB aligns it to 2 bytes only
    void *zstd;
    uint64_t *checked[INDEX_COLUMNS]; // chunks of a column whose hash was compared, one bit each
};

static mr_status open_env(mr_index *ix)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", ix->spot.copy);
    int err = mdb_env_create(&ix->env);
    if (!err)
        err = mdb_env_set_maxdbs(ix->env, 64);
    // sealed files never change, so they need no locks; read-ahead would only evict other pages
    unsigned flags = MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS | (ix->spot.ahead ? 0 : MDB_NORDAHEAD);
    if (!err)
        err = ix->spot.copy < 0 ? mdb_env_open(ix->env, ix->path, flags, 0)
                                : mdb_env_open(ix->env, path, flags | MDB_NOSUBDIR, 0);
    if (!err)
        err = mdb_txn_begin(ix->env, NULL, MDB_RDONLY, &ix->txn);
    for (int t = 0; !err && t < DATA_TABLES; t++)
        err = mdb_dbi_open(ix->txn, index_table_names[t], index_table_flags(t), &ix->tables[t]);
    if (err)
        return index_fail_mdb(ix->file, "open", err);
    // the handles stay valid after a successful commit
    if ((err = mdb_txn_commit(ix->txn)))
        return index_fail_mdb(ix->file, "open", err);
    ix->txn = NULL;
    return MR_OK;
}

static mr_status read_meta(mr_index *ix)
{
    MDB_cursor *cursor = NULL;
    MDB_val key, value;
    int err = mdb_txn_begin(ix->env, NULL, MDB_RDONLY, &ix->txn), n = 0;
    if (!err)
        err = mdb_cursor_open(ix->txn, ix->tables[DATA_META], &cursor);
    if (err)
        return index_fail_mdb(ix->file, "read", err);
    ix->meta = mr_arena_alloc(&ix->arena, sizeof *ix->meta * 32);
    mr_status st = ix->meta ? MR_OK : mr_fail_memory(0);
    for (int op = MDB_FIRST;
         st == MR_OK && n < 32 && (err = mdb_cursor_get(cursor, &key, &value, op)) == 0;
         op = MDB_NEXT) {
        char *name = mr_arena_alloc(&ix->arena, key.mv_size + 1),
             *text = mr_arena_alloc(&ix->arena, value.mv_size + 1);
        if (!name || !text) {
            st = mr_fail_memory(value.mv_size);
            break;
        }
        memcpy(name, key.mv_data, key.mv_size);
        memcpy(text, value.mv_data, value.mv_size);
        ix->meta[n].name = name, ix->meta[n].text = text, ix->meta[n++].n = value.mv_size;
        if (strcmp(name, "dict") == 0 &&
            (st = index_decompress_new(value.mv_data, value.mv_size, &ix->decompress)) != MR_OK)
            break;
        if (!ix->watched) {
            index_bus_watch(value.mv_data, ix->file);
            ix->watched = true;
        }
    }
    mdb_cursor_close(cursor);
    mdb_txn_abort(ix->txn);
    ix->txn = NULL, ix->n_meta = n;
    if (st == MR_OK && err && err != MDB_NOTFOUND)
        st = index_fail_mdb(ix->file, "read", err);
    return st;
}

const char *mr_index_meta(const mr_index *ix, const char *name)
{
    for (int i = 0; i < ix->n_meta; i++)
        if (strcmp(ix->meta[i].name, name) == 0)
            return ix->meta[i].text;
    return NULL;
}

static mr_status open_columns(mr_index *ix)
{
    const char *names = mr_index_meta(ix, "columns");
    int err = names ? mdb_txn_begin(ix->env, NULL, MDB_RDONLY, &ix->txn) : 0;
    if (err || !names)
        return err ? index_fail_mdb(ix->file, "read", err) : MR_OK;
    MR_TRY(index_columns_open(&ix->columns, names, ix->txn, ix->file));
    err = mdb_txn_commit(ix->txn);
    ix->txn = NULL;
    return err ? index_fail_mdb(ix->file, "open", err) : MR_OK;
}

const void *mr_index_dictionary(const mr_index *ix, size_t *n)
{
    for (int i = 0; i < ix->n_meta; i++)
        if (strcmp(ix->meta[i].name, "dict") == 0) {
            *n = ix->meta[i].n;
            return ix->meta[i].text;
        }
    *n = 0;
    return NULL;
}

bool index_get_hash(const char *hex, mr_hash128 *out)
{
    unsigned long long hi, lo;
    if (!hex || sscanf(hex, "%16llx%16llx", &hi, &lo) != 2)
        return false;
    *out = (mr_hash128){lo, hi};
    return true;
}

// roots are absolute, or relative to the index's parent folder
static mr_status read_roots(mr_index *ix)
{
    const char *text = mr_index_meta(ix, "roots");
    char folder[4096], full[8300];
    MR_TRY(index_path_absolute(ix->path, folder));
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    int n = 0;
    for (const char *p = text ? text : ""; *p; p++)
        n += *p == '\n';
    if (!(ix->roots = mr_arena_alloc(&ix->arena, sizeof *ix->roots * (size_t)(n + 1))))
        return mr_fail_memory(0);
    for (const char *p = text; n && *p; p = strchr(p, '\n') + 1) {
        int len = (int)strcspn(p, "\n");
        if (*p == '/')
            snprintf(full, sizeof full, "%.*s", len, p);
        else if (len == 1 && *p == '.')
            snprintf(full, sizeof full, "%s", folder);
        else
            snprintf(full, sizeof full, "%s/%.*s", folder, len, p);
        if (!(ix->roots[ix->facts.n_roots++] = mr_arena_strdup(&ix->arena, full)))
            return mr_fail_memory(0);
    }
    return MR_OK;
}

static mr_status open_index(mr_index *ix, bool verify)
{
    MR_TRY(index_place(ix->path, ix->file, verify, &ix->spot));
    MR_TRY(open_env(ix));
    MR_TRY(read_meta(ix));
    const char *format = mr_index_meta(ix, "format"), *state = mr_index_meta(ix, "state"),
               *rows = mr_index_meta(ix, "rows");
    if (!format || (strcmp(format, DATA_FORMAT) && strcmp(format, DATA_FORMAT_F32)))
        return mr_fail(MR_E_FORMAT,
                       "%s: format '%s', expected '%s'; try: moonreel data ingest once more",
                       ix->path, format ? format : "none", DATA_FORMAT);
    if (!state || strcmp(state, "sealed") != 0)
        return mr_fail(MR_E_DATA,
                       "%s: is not sealed; try: build it again with 'moonreel data ingest'",
                       ix->path);
    if (!rows || !index_get_hash(mr_index_meta(ix, "fp_order"), &ix->facts.fp_order) ||
        !index_get_hash(mr_index_meta(ix, "fp_set"), &ix->facts.fp_set))
        return mr_fail(MR_E_DATA, "%s: table meta lacks rows or fingerprints", ix->path);
    ix->facts.rows = strtoull(rows, NULL, 10);
    MR_TRY(open_columns(ix));
    return read_roots(ix);
}

mr_status mr_index_open(const char *path, bool verify, mr_index **out)
{
    mr_index *ix;
    if (!MR_NEW(ix))
        return mr_fail_memory(sizeof *ix);
    ix->spot.copy = -1;
    atomic_init(&ix->refs, 1);
    mr_arena_init(&ix->arena);
    size_t n = strlen(path);
    // removes final slashes to find the parent folder
    if ((ix->path = mr_strdup(path)) && (ix->file = mr_alloc(n + 16))) {
        while (n > 1 && ix->path[n - 1] == '/')
            ix->path[--n] = 0;
        snprintf(ix->file, n + 16, "%s/" INDEX_DATA, ix->path);
    }
    mr_status st =
        !ix->file ? mr_fail_memory(n)
        : !mr_path_exists(ix->path)
            ? mr_fail(MR_E_DATA, "%s: no such index; try: moonreel data ingest DIR|CSV -o %s", path,
                      path)
            : mr_fail_try(open_index(ix, verify), "copy or build the index again");
    if (st == MR_OK)
        *out = ix;
    else
        mr_index_unref(ix);
    return st;
}

mr_index *mr_index_ref(mr_index *ix)
{
    atomic_fetch_add(&ix->refs, 1);
    return ix;
}

void mr_index_unref(mr_index *ix)
{
    if (!ix || atomic_fetch_sub(&ix->refs, 1) != 1)
        return;
    if (ix->txn)
        mdb_txn_abort(ix->txn);
    if (ix->watched)
        index_bus_forget(ix->file);
    if (ix->env)
        mdb_env_close(ix->env);
    if (ix->spot.copy >= 0)
        close(ix->spot.copy);
    index_decompress_free(ix->decompress);
    mr_arena_fini(&ix->arena);
    mr_free(ix->path);
    mr_free(ix->file);
    mr_free(ix);
}

mr_index_facts mr_index_get_facts(const mr_index *ix)
{
    return ix->facts;
}
const char *mr_index_path(const mr_index *ix)
{
    return ix->path;
}
const char *mr_index_root(const mr_index *ix, int32_t root)
{
    return root >= 0 && root < ix->facts.n_roots ? ix->roots[root] : "";
}

mr_status mr_index_reader_new(mr_index *ix, mr_index_reader **out)
{
    mr_index_reader *r;
    if (!MR_NEW(r))
        return mr_fail_memory(sizeof *r);
    int err = mdb_txn_begin(ix->env, NULL, MDB_RDONLY, &r->txn);
    if (err) {
        mr_free(r);
        return index_fail_mdb(ix->file, "read", err);
    }
    r->index = mr_index_ref(ix);
    mr_arena_init(&r->arena);
    bool good = mr_arena_alloc(&r->arena, 1) != NULL;
    r->fresh = mr_arena_get_mark(&r->arena);
    if (!good || (ix->decompress && !(r->zstd = index_decompress_context()))) {
        mr_index_reader_free(r);
        return mr_fail_memory(0);
    }
    *out = r;
    return MR_OK;
}

void mr_index_reader_free(mr_index_reader *r)
{
    if (!r)
        return;
    mdb_txn_abort(r->txn);
    mr_arena_fini(&r->arena);
    mr_free(r->aligned);
    for (int i = 0; i < INDEX_COLUMNS; i++)
        mr_free(r->checked[i]);
    index_decompress_context_free(r->zstd);
    mr_index_unref(r->index);
    mr_free(r);
}

mr_index *mr_index_reader_index(const mr_index_reader *r)
{
    return r->index;
}

// looks up a value by its integer key
static mr_status get(mr_index_reader *r, int table, void *key, size_t key_bytes, MDB_val *value)
{
    MDB_val k = {key_bytes, key};
    int err = mdb_get(r->txn, r->index->tables[table], &k, value);
    return err ? index_fail_mdb(r->index->file, index_table_names[table], err) : MR_OK;
}

mr_status mr_index_hot(mr_index_reader *r, uint64_t chunk, const mr_hot **out, int32_t *n)
{
    uint64_t rows = r->index->facts.rows, hash;
    if (chunk * MR_HOT_ROWS >= rows)
        return mr_fail(MR_E_RANGE, "chunk %llu of an index of %llu rows", (unsigned long long)chunk,
                       (unsigned long long)rows);
    uint32_t key = (uint32_t)chunk;
    MDB_val v;
    MR_TRY(get(r, DATA_HOT, &key, sizeof key, &v));
    *n = (int32_t)MR_MIN((uint64_t)MR_HOT_ROWS, rows - chunk * MR_HOT_ROWS);
    size_t bytes = (size_t)*n * sizeof(mr_hot);
    if (v.mv_size == bytes + 8) {
        memcpy(&hash, (const char *)v.mv_data + bytes, 8);
        *out = v.mv_data;
        if ((uintptr_t)v.mv_data % _Alignof(mr_hot)) {
            if (!r->aligned && !(r->aligned = mr_alloc(sizeof *r->aligned * MR_HOT_ROWS)))
                return mr_fail_memory(sizeof *r->aligned * MR_HOT_ROWS);
            *out = memcpy(r->aligned, v.mv_data, bytes);
        }
        if (hash == mr_hash64(v.mv_data, bytes))
            return MR_OK;
    }
    return mr_fail(MR_E_DATA,
                   "%s: table hot, chunk %llu is damaged; try: copy or build the index again",
                   r->index->file, (unsigned long long)chunk);
}

int32_t mr_index_columns(const mr_index *ix)
{
    return ix->columns.n;
}
const char *mr_index_column_name(const mr_index *ix, int32_t column)
{
    return column >= 0 && column < ix->columns.n ? ix->columns.names[column] : NULL;
}

mr_column_kind mr_index_column_kind(const mr_index *ix, int32_t column)
{
    return ix->columns.kinds[column];
}

mr_status mr_index_column(mr_index_reader *r, int32_t column, uint64_t chunk, mr_column_chunk *out)
{
    const mr_index *ix = r->index;
    uint64_t rows = ix->facts.rows;
    if (column < 0 || column >= ix->columns.n || chunk * MR_HOT_ROWS >= rows)
        return mr_fail(MR_E_RANGE, "%s: column %d, chunk %llu; it has %d columns and %llu rows",
                       ix->file, column, (unsigned long long)chunk, ix->columns.n,
                       (unsigned long long)rows);
    uint64_t **checked = &r->checked[column], bit = UINT64_C(1) << chunk % 64;
    size_t words = (size_t)(rows / MR_HOT_ROWS / 64 + 1);
    if (!*checked && !(*checked = mr_calloc(words, sizeof **checked)))
        return mr_fail_memory(words * sizeof **checked);
    out->kind = ix->columns.kinds[column];
    out->n = (int32_t)MR_MIN((uint64_t)MR_HOT_ROWS, rows - chunk * MR_HOT_ROWS);
    MR_TRY(index_column_read(&ix->columns, column, r->txn, chunk, out->n,
                             !((*checked)[chunk / 64] & bit), &out->values, ix->file));
    (*checked)[chunk / 64] |= bit;
    return MR_OK;
}

// reads the row's values, in the order of the columns
static mr_status read_values(mr_index_reader *r, mr_row *row)
{
    int32_t n = r->index->columns.n;
    mr_number *values = n ? mr_arena_alloc(&r->arena, sizeof *values * (size_t)n) : NULL;
    if (n && !values)
        return mr_fail_memory(sizeof *values * (size_t)n);
    for (int32_t c = 0; c < n; c++) {
        mr_column_chunk chunk;
        MR_TRY(mr_index_column(r, c, row->id / MR_HOT_ROWS, &chunk));
        values[c] = mr_column_number(&chunk, (int32_t)(row->id % MR_HOT_ROWS));
    }
    row->n_columns = n, row->columns = values;
    return MR_OK;
}

mr_status mr_index_row(mr_index_reader *r, uint64_t id, mr_row *out)
{
    if (id >= r->index->facts.rows)
        return mr_fail(MR_E_RANGE, "row %llu of an index of %llu rows", (unsigned long long)id,
                       (unsigned long long)r->index->facts.rows);
    // frees the texts of the last row, and keeps one block for the next row
    mr_arena_release(&r->arena, r->fresh);
    mr_status st =
        index_read_row(r->txn, r->index->tables, id, &r->arena, r->index->decompress, r->zstd, out);
    if (st == MR_E_DATA)
        mr_fail_note("%s: row %llu is damaged; try: copy or build the index again", r->index->file,
                     (unsigned long long)id);
    return st == MR_OK ? read_values(r, out) : st;
}

mr_status index_keys(mr_index_reader *r, uint32_t chunk, const char **entries, size_t *n)
{
    uint64_t rows = r->index->facts.rows, from = (uint64_t)chunk * DATA_KEYMAP_ROWS;
    *n = 0;
    if (from >= rows)
        return MR_OK;
    MDB_val v;
    MR_TRY(get(r, DATA_KEYMAP, &chunk, sizeof chunk, &v));
    *entries = v.mv_data, *n = (size_t)MR_MIN(rows - from, (uint64_t)DATA_KEYMAP_ROWS);
    return v.mv_size == *n * sizeof(index_keymap_entry)
               ? MR_OK
               : mr_fail(
                     MR_E_DATA,
                     "%s: table keymap, chunk %u is damaged; try: copy or build the index again",
                     r->index->file, chunk);
}

mr_status mr_index_find(mr_index_reader *r, mr_hash128 key, uint64_t *id)
{
    index_keymap_entry want = {key.hi, key.lo, 0}, e;
    uint32_t chunks = (uint32_t)((r->index->facts.rows + DATA_KEYMAP_ROWS - 1) / DATA_KEYMAP_ROWS),
             lo = 0, hi = chunks;
    MDB_val v;
    // finds the last chunk whose first key is not above `key`
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        MR_TRY(get(r, DATA_KEYMAP, &mid, sizeof mid, &v));
        memcpy(&e, v.mv_data, sizeof e);
        e.id = 0;
        if (index_keymap_compare(&e, &want) <= 0)
            lo = mid;
        else
            hi = mid;
    }
    MR_TRY(get(r, DATA_KEYMAP, &lo, sizeof lo, &v));
    size_t a = 0, b = v.mv_size / sizeof e;
    while (a < b) {
        size_t mid = a + (b - a) / 2;
        memcpy(&e, (const char *)v.mv_data + mid * sizeof e, sizeof e);
        *id = e.id, e.id = 0;
        int c = index_keymap_compare(&e, &want);
        if (c == 0)
            return MR_OK;
        if (c < 0)
            a = mid + 1;
        else
            b = mid;
    }
    char hex[33];
    mr_hash128_hex(key, hex);
    return mr_fail(MR_E_RANGE, "%s: no sample with key %s", r->index->path, hex);
}

mr_status mr_index_file(const mr_index *ix, const mr_row *row, char *out, size_t cap)
{
    int n = row->path[0] == '/'
                ? snprintf(out, cap, "%s", row->path)
                : snprintf(out, cap, "%s/%s", mr_index_root(ix, row->root), row->path);
    return n < 0 || (size_t)n >= cap ? mr_fail(MR_E_DATA, "%s: path is too long", row->path)
                                     : MR_OK;
}
