/* index: builds an index: it appends rows in id order, then writes fingerprints, seal and
 * checksums, and renames the folder. Ref: dataplane 2.2, 2.3. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/builder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMMIT_ROWS = 262144, COMMIT_S = 60, COMMIT_BYTES = 1 << 29, REFUSED_BYTES = 1 << 20 };

static mr_status put(mr_index_builder *b, int table, const void *key, size_t key_bytes,
                     const void *value, size_t bytes, unsigned flags)
{
    return index_builder_put(b, b->tables[table], key, key_bytes, value, bytes, flags);
}

static mr_status begin(mr_index_builder *b)
{
    int err = mdb_txn_begin(b->env, NULL, 0, &b->txn);
    for (int t = 0; !err && t < DATA_BUILD_TABLES; t++)
        err = mdb_dbi_open(b->txn, index_table_names[t], MDB_CREATE | index_table_flags(t),
                           &b->tables[t]);
    b->committed_s = mr_now_s(), b->committed_bytes = b->used_bytes;
    b->kept |= b->resume && b->built.rows;
    return err ? index_fail_mdb(b->path, "begin writing", err) : MR_OK;
}

static mr_status commit(mr_index_builder *b)
{
    int err = mdb_txn_commit(b->txn);
    b->txn = NULL;
    if (err)
        return index_fail_mdb(b->path, "commit", err);
    b->committed = b->built;
    return MR_OK;
}

// does the map have room for `more` bytes and LMDB's overhead?
static bool fits(const mr_index_builder *b, size_t more)
{
    size_t need = b->used_bytes + more + (1 << 20);
    return need + need / 4 < b->map_bytes;
}

// Commits between two rows, so that at each commit all tables contain the same rows.
static mr_status commit_rows(mr_index_builder *b)
{
    // the unfinished chunk of hot records can be rebuilt from the rows, that of columns cannot
    if (b->built.rows % MR_HOT_ROWS)
        MR_TRY(index_builder_put_values(b, (uint32_t)(b->built.rows / MR_HOT_ROWS),
                                        b->built.rows % MR_HOT_ROWS));
    return commit(b);
}

// Called before each row. Grows the map between transactions, so that it is never full inside one.
static mr_status reserve(mr_index_builder *b, size_t more)
{
    if (b->built.rows - b->committed.rows < b->commit_rows &&
        b->used_bytes - b->committed_bytes < b->commit_bytes &&
        mr_now_s() - b->committed_s < COMMIT_S && fits(b, more))
        return MR_OK;
    MR_TRY(commit_rows(b));
    while (!fits(b, more))
        b->map_bytes *= 2;
    int err = mdb_env_set_mapsize(b->env, b->map_bytes);
    if (err)
        return index_fail_mdb(b->path, "enlarge", err);
    return begin(b);
}

mr_status mr_index_builder_dictionary(mr_index_builder *b, const void *dict, size_t n)
{
    if (!n || b->built.rows || b->compress)
        return mr_fail(
            MR_E_USAGE,
            "%s: dictionary of %zu bytes added after %llu rows; try: set it before the first row",
            b->path, n, (unsigned long long)b->built.rows);
    MR_TRY(reserve(b, n));
    MR_TRY(put(b, DATA_META, "dict", 4, dict, n, 0));
    return index_compress_new(dict, n, &b->compress);
}

// Creates the folder for the build. An error names the final folder.
static mr_status make_folder(mr_index_builder *b)
{
    char dir[sizeof b->path];
    snprintf(dir, sizeof dir, "%s", b->path);
    char *slash = strrchr(dir, '/');
    if (slash && slash > dir) {
        *slash = 0;
        MR_TRY(mr_dir_make(dir));
    }
    // a builder that resumes has the folder already
    if (mr_io_table()->mkdir(b->tmp, 0755) && errno != EEXIST)
        return mr_fail(MR_E_IO, "%s: cannot create: %s", b->path, strerror(errno));
    return MR_OK;
}

static mr_status builder_open(mr_index_builder *b)
{
    b->ours = true;
    MR_TRY(make_folder(b));
    while (!fits(b, 0))
        b->map_bytes *= 2;
    int err = mdb_env_create(&b->env);
    if (!err)
        err = mdb_env_set_maxdbs(b->env, 64);
    if (!err)
        err = mdb_env_set_mapsize(b->env, b->map_bytes);
    // no other process knows this directory, so it needs no lock file
    if (!err)
        err = mdb_env_open(b->env, b->tmp, MDB_NOLOCK, 0644);
    // an error names the resumed build, or the final name of a new one
    bool taken = b->used_bytes > 0;
    if (err)
        return index_fail_mdb(taken ? b->tmp : b->path, "create", err);
    if (taken)
        MR_TRY(index_builder_whole(b));
    MR_TRY(begin(b));
    if (taken)
        MR_TRY(index_builder_reload(b));
    MR_TRY(mr_index_builder_meta(b, "format", DATA_FORMAT));
    MR_TRY(mr_index_builder_meta(b, "state", "building"));
    return mr_index_builder_meta(
        b, "schema",
        "hot: key_lo u64, frames u32, fps_milli u32, dur_ms u32, width u16, height u16, "
        "flags u16, source u16, text_tokens u16, spare u16; 4096 rows a chunk, then xxh3-64");
}

// Allows to replace the files of an index, and no other files.
static mr_status check_name(const char *path)
{
    static const char *const parts[] = {INDEX_FILES};
    char **names;
    const char *foreign = NULL;
    int n;
    if (!mr_path_exists(path))
        return MR_OK;
    if (mr_dir_list(path, &names, &n) != MR_OK)
        return mr_fail(
            MR_E_USAGE,
            "%s: exists and is not an index; expected a new name, or an index to replace", path);
    for (int i = 0; i < n && !foreign; i++) {
        foreign = names[i];
        for (size_t k = 0; k < MR_COUNT(parts); k++)
            foreign = foreign && strcmp(foreign, parts[k]) ? foreign : NULL;
    }
    mr_status st = foreign ? mr_fail(MR_E_USAGE,
                                     "%s: is a folder with '%s' in it; expected a new name, or an "
                                     "index to replace",
                                     path, foreign)
                           : MR_OK;
    mr_dir_list_free(names, n);
    return st;
}

mr_status mr_index_builder_new(const char *path, const mr_index_options *options,
                               mr_index_builder **out)
{
    const mr_index_options o = options ? *options : (mr_index_options){0};
    mr_index_builder *b;
    if (!MR_NEW(b))
        return mr_fail_memory(sizeof *b);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    b->map_bytes = o.map_bytes ? o.map_bytes : (size_t)1 << 30;
    b->commit_rows = o.commit_rows ? o.commit_rows : COMMIT_ROWS;
    b->commit_bytes = o.commit_bytes ? o.commit_bytes : COMMIT_BYTES;
    b->resume = o.resume;
    mr_status st = (size_t)snprintf(b->path, sizeof b->path, "%.*s", (int)n, path) < sizeof b->path
                       ? MR_OK
                       : mr_fail(MR_E_IO, "%s: path is too long", path);
    snprintf(b->tmp, sizeof b->tmp, "%s.tmp-%ld", b->path, (long)getpid());
    if (st == MR_OK)
        st = check_name(b->path);
    if (st == MR_OK && !(b->chunk = mr_calloc(MR_HOT_ROWS, sizeof *b->chunk)))
        st = mr_fail_memory(MR_HOT_ROWS * sizeof *b->chunk);
    if (st == MR_OK && !(b->order = mr_hasher_new()))
        st = mr_fail_memory(0);
    char keys[4300];
    snprintf(keys, sizeof keys, "%s/keys", b->tmp);
    if (st == MR_OK)
        st = index_sorter_new(keys, &b->keys);
    if (st == MR_OK)
        st = index_builder_leftovers(b);
    if (st == MR_OK)
        st = builder_open(b);
    if (st == MR_OK)
        *out = b;
    else
        mr_index_builder_free(b);
    return st;
}

mr_index_built mr_index_builder_built(const mr_index_builder *b)
{
    return b->built;
}

mr_status mr_index_builder_text(mr_index_builder *b, const char *name, char **text)
{
    MDB_val k = {strlen(name), (void *)(uintptr_t)name}, v;
    int err = mdb_get(b->txn, b->tables[DATA_META], &k, &v);
    if (err)
        return index_fail_mdb(b->path, name, err);
    if (!(*text = mr_alloc(v.mv_size + 1)))
        return mr_fail_memory(v.mv_size);
    memcpy(*text, v.mv_data, v.mv_size);
    (*text)[v.mv_size] = 0;
    return MR_OK;
}

mr_status mr_index_builder_root(mr_index_builder *b, const char *folder, uint16_t *root)
{
    for (int i = 0; i < b->n_roots; i++)
        if (strcmp(b->roots[i], folder) == 0) {
            *root = (uint16_t)i;
            return MR_OK;
        }
    if (b->n_roots == (int)MR_COUNT(b->roots))
        return mr_fail(MR_E_DATA, "more than %d root folders", b->n_roots);
    snprintf(b->roots[b->n_roots], sizeof b->roots[0], "%s", folder);
    *root = (uint16_t)b->n_roots++;
    return MR_OK;
}

static mr_status put_chunk(mr_index_builder *b, uint32_t chunk, size_t n)
{
    size_t bytes = n * sizeof *b->chunk;
    index_pack *p = &b->pack;
    p->n = 0, p->failed = false;
    index_put(p, b->chunk, bytes);
    index_put_int(p, mr_hash64(b->chunk, bytes), 8);
    if (p->failed)
        return mr_fail_memory(bytes);
    MR_TRY(put(b, DATA_HOT, &chunk, sizeof chunk, p->bytes, p->n, MDB_APPEND));
    return index_builder_put_values(b, chunk, n);
}

mr_status mr_index_builder_add(mr_index_builder *b, const mr_row *given)
{
    mr_row row = *given;
    row.id = b->built.rows;
    if (MR_MIN(row.info.width, row.info.height) < 1 ||
        MR_MAX(row.info.width, row.info.height) > MR_CLIP_SHOWN_MAX)
        return mr_fail(MR_E_RANGE, "%s: shown as %d x %d; expected 1 to %d a side", row.path,
                       row.info.width, row.info.height, MR_CLIP_SHOWN_MAX);
    if (row.n_columns > b->columns.n)
        return mr_fail(MR_E_USAGE,
                       "%s: %d column values; expected at most %d, as columns were named", row.path,
                       row.n_columns, b->columns.n);
    char why[INDEX_WHY];
    size_t texts = strlen(row.path) + 512 + (size_t)row.info.n_keys * 10;
    for (int32_t c = 0; c < row.n_captions; c++) {
        if (index_caption_bad(row.captions[c].text, why))
            return mr_fail(MR_E_DATA, "%s: %s", row.path, why);
        texts += strlen(row.captions[c].text) + 300;
    }
    size_t of_row = sizeof(mr_hot) + (size_t)b->columns.n * sizeof *b->values;
    MR_TRY(reserve(b, texts * 2 + MR_HOT_ROWS * of_row));
    MR_TRY(index_builder_note_values(b, &row, row.id));
    MR_TRY(index_pack_row(&b->pack, &row, b->compress));
    MR_TRY(put(b, DATA_ROW, &row.id, sizeof row.id, b->pack.bytes, b->pack.n, MDB_APPEND));
    MR_TRY(index_builder_note(b, &row));
    return b->built.rows % MR_HOT_ROWS
               ? MR_OK
               : put_chunk(b, (uint32_t)(b->built.rows / MR_HOT_ROWS - 1), MR_HOT_ROWS);
}

mr_status mr_index_builder_refuse(mr_index_builder *b, const char *line)
{
    MR_TRY(reserve(b, strlen(line) * 2));
    MR_TRY(put(b, DATA_REFUSED, &b->built.refused, sizeof b->built.refused, line, strlen(line),
               MDB_APPEND));
    b->built.refused++;
    return MR_OK;
}

// two rows have the same key: the error names both files
static mr_status fail_duplicate(mr_index_builder *b, uint64_t first, uint64_t second)
{
    char path[2][4096] = {"?", "?"};
    uint64_t id[2] = {first, second};
    mr_arena arena;
    mr_arena_init(&arena);
    for (int i = 0; i < 2; i++) {
        MDB_val k = {sizeof id[i], &id[i]}, v;
        mr_row row;
        if (mdb_get(b->txn, b->tables[DATA_ROW], &k, &v) == 0 &&
            index_unpack_facts(v, &arena, &row) == MR_OK)
            snprintf(path[i], sizeof path[i], "%s", row.path);
    }
    mr_arena_fini(&arena);
    return mr_fail(
        MR_E_DATA,
        "two rows are the same sample: %s (row %llu) and %s (row %llu); try: remove one of them",
        path[0], (unsigned long long)first + 1, path[1], (unsigned long long)second + 1);
}

// writes the sorted keys as chunks of the key map; equal keys are adjacent here
static mr_status put_keymap(mr_index_builder *b)
{
    index_pack *p = &b->pack;
    index_keymap_entry e, last = {0};
    bool more;
    MR_TRY(index_sorter_sort(b->keys));
    p->n = 0, p->failed = false;
    for (uint64_t i = 0;; i++, last = e) {
        MR_TRY(index_sorter_next_key(b->keys, &e, &more));
        if (p->n && (!more || i % DATA_KEYMAP_ROWS == 0)) {
            uint32_t chunk = (uint32_t)((i - 1) / DATA_KEYMAP_ROWS);
            MR_TRY(reserve(b, p->n));
            MR_TRY(put(b, DATA_KEYMAP, &chunk, sizeof chunk, p->bytes, p->n, MDB_APPEND));
            p->n = 0;
        }
        if (!more)
            return MR_OK;
        if (i && e.hi == last.hi && e.lo == last.lo)
            return fail_duplicate(b, last.id, e.id);
        index_put(p, &e, sizeof e);
        if (p->failed)
            return mr_fail_memory(p->cap * 2);
    }
}

// writes a root inside the index's folder as a relative path, so that both can move together
static mr_status put_roots(mr_index_builder *b)
{
    char folder[4096];
    index_pack p = {0};
    MR_TRY(index_path_absolute(b->path, folder));
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    size_t n = strlen(folder);
    for (int i = 0; i < b->n_roots; i++) {
        const char *root = b->roots[i];
        if (strcmp(root, folder) == 0)
            root = ".";
        else if (strncmp(root, folder, n) == 0 && root[n] == '/')
            root += n + 1;
        index_put(&p, root, strlen(root));
        index_put(&p, "\n", 1);
    }
    index_put(&p, "", 1);
    mr_status st =
        p.failed ? mr_fail_memory(p.cap) : mr_index_builder_meta(b, "roots", (const char *)p.bytes);
    mr_free(p.bytes);
    return st;
}

static mr_status seal(mr_index_builder *b, char order[33], char set[33])
{
    char rows[24];
    if (b->built.rows % MR_HOT_ROWS)
        MR_TRY(put_chunk(b, (uint32_t)(b->built.rows / MR_HOT_ROWS), b->built.rows % MR_HOT_ROWS));
    MR_TRY(put_keymap(b));
    MR_TRY(put_roots(b));
    snprintf(rows, sizeof rows, "%llu", (unsigned long long)b->built.rows);
    mr_hash128_hex(mr_hasher_digest(b->order), order);
    mr_hash128_hex(b->set, set);
    MR_TRY(mr_index_builder_meta(b, "rows", rows));
    MR_TRY(mr_index_builder_meta(b, "fp_order", order));
    MR_TRY(mr_index_builder_meta(b, "fp_set", set));
    MR_TRY(mr_index_builder_meta(b, "state", "sealed"));
    MR_TRY(commit(b));
    int err = mdb_env_sync(b->env, 1);
    if (err)
        return index_fail_mdb(b->path, "sync", err);
    mdb_env_close(b->env);
    b->env = NULL;
    return MR_OK;
}

// Renames the build to its final name in one step. The name always refers to an index, the old one
// or the new one.
static mr_status take_name(mr_index_builder *b)
{
    const mr_io *io = mr_io_table();
    char dir[4096];
    // another program may have created files there meanwhile
    MR_TRY(check_name(b->path));
    bool had = mr_path_exists(b->path);
    // exchanges the two names; without that system call, the name is missing for a moment
    bool traded = had && renameat2(AT_FDCWD, b->tmp, AT_FDCWD, b->path, RENAME_EXCHANGE) == 0;
    if (had && !traded)
        MR_TRY(mr_dir_remove(b->path));
    if (!traded && io->rename(b->tmp, b->path))
        return mr_fail(MR_E_IO, "%s: cannot create: %s", b->path, strerror(errno));
    if (traded)
        MR_TRY(mr_dir_remove(b->tmp));
    MR_TRY(index_path_absolute(b->path, dir));
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = 0;
    return mr_dir_sync(dir);
}

static mr_status copy_refused(mr_index_builder *b, int fd, const char *path)
{
    index_pack *p = &b->pack;
    p->n = 0, p->failed = false;
    for (uint64_t i = 0; i < b->built.refused; i++) {
        MDB_val k = {sizeof i, &i}, v;
        int err = mdb_get(b->txn, b->tables[DATA_REFUSED], &k, &v);
        if (err)
            return index_fail_mdb(b->path, "read", err);
        index_put(p, v.mv_data, v.mv_size);
        index_put(p, "\n", 1);
        if (p->failed)
            return mr_fail_memory(p->cap * 2);
        if (p->n < REFUSED_BYTES && i + 1 < b->built.refused)
            continue;
        MR_TRY(mr_file_write_full(fd, p->bytes, p->n, path));
        p->n = 0;
    }
    return mr_io_table()->fsync(fd) ? mr_fail(MR_E_IO, "%s: cannot sync: %s", path, strerror(errno))
                                    : MR_OK;
}

// writes the refused rows to refused.jsonl, one line each
static mr_status write_refused(mr_index_builder *b)
{
    const mr_io *io = mr_io_table();
    char path[4300], wanted[4300];
    if (!b->built.refused)
        return MR_OK;
    snprintf(path, sizeof path, "%s/" INDEX_REFUSED, b->tmp);
    snprintf(wanted, sizeof wanted, "%s/" INDEX_REFUSED, b->path);
    int fd = io->open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return mr_fail(MR_E_IO, "%s: cannot create: %s", wanted, strerror(errno));
    mr_status st = copy_refused(b, fd, wanted);
    io->close(fd);
    return st;
}

mr_status mr_index_builder_finish(mr_index_builder *b)
{
    char order[33], set[33], path[4300], info[512];
    if (!b->built.rows)
        return mr_fail(MR_E_DATA, "%s: no rows", b->path);
    MR_TRY(write_refused(b));
    MR_TRY(seal(b, order, set));
    snprintf(info, sizeof info, DATA_FORMAT "\nrows %llu\nfp_order %s\nfp_set %s\n",
             (unsigned long long)b->built.rows, order, set);
    snprintf(path, sizeof path, "%s/" INDEX_INFO, b->tmp);
    MR_TRY(mr_file_replace(path, info, strlen(info)));
    MR_TRY(index_sum_write(b->tmp));
    MR_TRY(mr_dir_sync(b->tmp));
    MR_TRY(take_name(b));
    b->finished = true;
    return MR_OK;
}

mr_status mr_index_builder_keep(mr_index_builder *b, bool all, mr_index_built *kept)
{
    // without a committed row a later build has nothing to resume
    b->kept |= b->committed.rows > 0;
    if (all && b->built.rows) {
        MR_TRY(commit_rows(b));
        b->kept = true;
    }
    *kept = b->kept ? b->committed : (mr_index_built){0};
    return MR_OK;
}

void mr_index_builder_free(mr_index_builder *b)
{
    if (!b)
        return;
    if (b->txn)
        mdb_txn_abort(b->txn);
    if (b->env)
        mdb_env_close(b->env);
    // removing the files must not replace the error record
    if (b->ours && !b->finished && !b->kept) {
        mr_error *kept = mr_error_copy(mr_error_last());
        mr_dir_remove(b->tmp);
        if (kept)
            mr_error_adopt(kept);
        mr_error_free(kept);
    }
    index_compress_free(b->compress);
    mr_free(b->chunk);
    mr_free(b->values);
    index_sorter_free(b->keys);
    mr_hasher_free(b->order);
    mr_free(b->pack.bytes);
    mr_free(b->value_pack.bytes);
    mr_free(b);
}
