/* index: handles the files that killed builders left next to an index: it removes them, or
 * continues at their last commit. Ref: dataplane 2.3. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "base/process.h"
#include "index/builder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Is the builder of NAME.tmp-PID alive? A PID equal to ours belonged to a dead process.
static bool is_alive(long pid)
{
    return pid != (long)getpid() && !mr_process_gone(pid);
}

// Removes or resumes one build. A sealed build cannot be resumed.
static mr_status deal_with(mr_index_builder *b, const char *child, long pid, bool *taken)
{
    char file[8500];
    struct stat about;
    if (is_alive(pid))
        return !b->resume ? MR_OK
                          : mr_fail(MR_E_USAGE, "%s: process %ld is building it; try: wait for it",
                                    b->path, pid);
    snprintf(file, sizeof file, "%s/" INDEX_SUM, child);
    bool whole = mr_path_exists(file);
    snprintf(file, sizeof file, "%s/" INDEX_DATA, child);
    if (!b->resume || *taken || whole || stat(file, &about) || !about.st_size)
        return mr_dir_remove(child);
    if (mr_io_table()->rename(child, b->tmp))
        return mr_fail(MR_E_IO, "%s: cannot take over: %s", child, strerror(errno));
    b->used_bytes = (size_t)about.st_size;
    *taken = b->kept = true;
    return MR_OK;
}

mr_status index_builder_leftovers(mr_index_builder *b)
{
    char dir[4096], child[8400];
    char **names;
    int n;
    MR_TRY(index_path_absolute(b->path, dir));
    char *slash = strrchr(dir, '/'), *name = slash + 1;
    char base[4096];
    size_t len = (size_t)snprintf(base, sizeof base, "%s.tmp-", name);
    slash[slash == dir] = 0;
    if (!mr_path_exists(dir))
        return MR_OK;
    MR_TRY(mr_dir_list(dir, &names, &n));
    mr_status st = MR_OK;
    bool taken = false;
    for (int i = 0; i < n && st == MR_OK; i++) {
        char *end;
        if (strncmp(names[i], base, len))
            continue;
        long pid = strtol(names[i] + len, &end, 10);
        bool spill = strcmp(end, INDEX_SPILL_ENDING) == 0;
        if (pid <= 0 || (*end && !spill))
            continue;
        snprintf(child, sizeof child, "%s/%s", dir, names[i]);
        if (!spill)
            st = deal_with(b, child, pid, &taken);
        else if (!is_alive(pid))
            mr_io_table()->unlink(child);
    }
    mr_dir_list_free(names, n);
    return st;
}

static mr_status fail_torn(const mr_index_builder *b, const char *what)
{
    return mr_fail(MR_E_DATA,
                   "%s: cannot be continued: %s; try: without --continue, from the start", b->tmp,
                   what);
}

// loads the dictionary of the captions
static mr_status reload_dictionary(mr_index_builder *b, index_decompress **decompress)
{
    MDB_val k = {4, "dict"}, v;
    int err = mdb_get(b->txn, b->tables[DATA_META], &k, &v);
    if (err)
        return err == MDB_NOTFOUND ? MR_OK : index_fail_mdb(b->tmp, "read", err);
    MR_TRY(index_compress_new(v.mv_data, v.mv_size, &b->compress));
    return index_decompress_new(v.mv_data, v.mv_size, decompress);
}

static mr_status reload_rows(mr_index_builder *b, uint64_t rows)
{
    index_decompress *decompress = NULL;
    mr_arena arena;
    mr_arena_init(&arena);
    void *context = NULL;
    mr_status st = reload_dictionary(b, &decompress);
    if (st == MR_OK && decompress && !(context = index_decompress_context()))
        st = mr_fail_memory(0);
    // all rows use the same block
    if (st == MR_OK && !mr_arena_alloc(&arena, 1))
        st = mr_fail_memory(0);
    const mr_arena_mark fresh = mr_arena_get_mark(&arena);
    for (uint64_t id = 0; st == MR_OK && id < rows; id++) {
        mr_row row;
        mr_arena_release(&arena, fresh);
        st = index_read_row(b->txn, b->tables, id, &arena, decompress, context, &row);
        if (st == MR_OK)
            st = index_builder_note(b, &row);
    }
    if (st == MR_E_DATA)
        mr_fail_note("%s: try: without --continue, from the start", b->tmp);
    index_decompress_context_free(context);
    index_decompress_free(decompress);
    mr_arena_fini(&arena);
    return st;
}

mr_status index_builder_whole(const mr_index_builder *b)
{
    MDB_stat about;
    MDB_envinfo info;
    mdb_env_info(b->env, &info);
    mdb_env_stat(b->env, &about);
    bool whole = (info.me_last_pgno + 1) * about.ms_psize <= b->used_bytes;
    return whole ? MR_OK : fail_torn(b, "cut off");
}

mr_status index_builder_reload(mr_index_builder *b)
{
    MDB_stat stat[DATA_BUILD_TABLES];
    // undoes an interrupted seal: the unfinished chunk and the key map are written again
    int err = mdb_drop(b->txn, b->tables[DATA_KEYMAP], 0);
    for (int t = 0; !err && t < DATA_BUILD_TABLES; t++)
        err = mdb_stat(b->txn, b->tables[t], &stat[t]);
    if (err)
        return index_fail_mdb(b->tmp, "read", err);
    uint64_t rows = stat[DATA_ROW].ms_entries;
    uint32_t tail = (uint32_t)(rows / MR_HOT_ROWS);
    if (stat[DATA_HOT].ms_entries > tail) {
        MDB_val k = {sizeof tail, &tail};
        if ((err = mdb_del(b->txn, b->tables[DATA_HOT], &k, NULL)))
            return index_fail_mdb(b->tmp, "read", err);
        stat[DATA_HOT].ms_entries--;
    }
    if (stat[DATA_HOT].ms_entries != tail)
        return fail_torn(b, "its tables do not contain the same rows");
    // without rows there is nothing to keep
    if (!rows) {
        b->kept = false;
        for (int t = 0; !err && t < DATA_BUILD_TABLES; t++)
            err = mdb_drop(b->txn, b->tables[t], 0);
        return err ? index_fail_mdb(b->tmp, "empty", err) : MR_OK;
    }
    b->built.refused = stat[DATA_REFUSED].ms_entries;
    MR_TRY(index_builder_reload_values(b, rows));
    MR_TRY(reload_rows(b, rows));
    b->committed = b->built;
    return MR_OK;
}
