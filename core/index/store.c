/* index: a key-value file, written in commits, then sealed and checked like an index. Ref:
 * dataplane 7, 2.3. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define STORE_FORMAT "moonreel store 1"
enum { SUM_BYTES = 8 };

static const char *const table_names[] = {"text", "value"};
enum { TEXT, VALUE, TABLES };

static MDB_val val(const void *bytes, size_t n)
{
    return (MDB_val){n, (void *)(uintptr_t)bytes};
}

static MDB_val text_val(const char *text)
{
    return val(text, strlen(text));
}

static mr_status open_env(const char *dir, const char *file, unsigned flags, MDB_env **env)
{
    int err = mdb_env_create(env);
    if (!err)
        err = mdb_env_set_maxdbs(*env, TABLES);
    if (!err)
        err = mdb_env_open(*env, dir, flags | MDB_NOLOCK | MDB_NOTLS | MDB_NORDAHEAD, 0644);
    return err ? index_fail_mdb(file, "open", err) : MR_OK;
}

// adds a value to the fingerprint, which does not depend on the order
static void add_hash(mr_hash128 *sum, MDB_val key, MDB_val value)
{
    mr_hash128 two[] = {mr_hash128_of(key.mv_data, key.mv_size),
                        mr_hash128_of(value.mv_data, value.mv_size)};
    mr_hash128 h = mr_hash128_of(two, sizeof two);
    sum->lo += h.lo;
    sum->hi += h.hi + (sum->lo < h.lo);
}

/* ---- writing ---- */

struct mr_store_writer {
    char path[4096], part[4200], file[4300];
    int lock;
    MDB_env *env;
    MDB_dbi tables[TABLES];
    uint64_t values;  // committed
    mr_hash128 print; // fingerprint of the committed values
    index_pack waiting;
    uint64_t n_waiting;
};

static mr_status fail_write(const mr_store_writer *w, const char *verb, int err)
{
    return index_fail_mdb(w->file, verb, err);
}

// locks the store for one process; the lock ends with the process
static mr_status take_lock(mr_store_writer *w)
{
    char file[4300];
    snprintf(file, sizeof file, "%s/lock", w->part);
    w->lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (w->lock < 0)
        return mr_fail(MR_E_IO, "%s: cannot open: %s", file, strerror(errno));
    if (flock(w->lock, LOCK_EX | LOCK_NB))
        return mr_fail(MR_E_LOCK, "%s: another process writes it; try: wait for it", w->part);
    return MR_OK;
}

// refuses a file that is shorter than it declares; LMDB would read past its end
static mr_status check_length(const mr_store_writer *w)
{
    MDB_stat about;
    MDB_envinfo info;
    int fd;
    mdb_env_info(w->env, &info);
    mdb_env_stat(w->env, &about);
    mdb_env_get_fd(w->env, &fd);
    off_t have = lseek(fd, 0, SEEK_END);
    uint64_t want = (uint64_t)(info.me_last_pgno + 1) * about.ms_psize;
    return have < 0 || (uint64_t)have >= want
               ? MR_OK
               : mr_fail(MR_E_DATA, "%s: cut off: %llu bytes, expected %llu; try: remove %s",
                         w->file, (unsigned long long)have, (unsigned long long)want, w->part);
}

static mr_status open_tables(mr_store_writer *w)
{
    MDB_txn *txn;
    MDB_stat about;
    int err = mdb_txn_begin(w->env, NULL, 0, &txn);
    if (err)
        return fail_write(w, "begin writing", err);
    for (int t = 0; !err && t < TABLES; t++)
        err = mdb_dbi_open(txn, table_names[t], MDB_CREATE, &w->tables[t]);
    if (!err)
        err = mdb_stat(txn, w->tables[VALUE], &about);
    if (err) {
        mdb_txn_abort(txn);
        return fail_write(w, "open", err);
    }
    w->values = about.ms_entries;
    err = mdb_txn_commit(txn);
    return err ? fail_write(w, "begin", err) : MR_OK;
}

// loads the fingerprint of the committed values
static mr_status take_up(mr_store_writer *w)
{
    char *print;
    MR_TRY(mr_store_writer_get_text(w, "fingerprint", &print));
    bool good = print ? index_get_hash(print, &w->print) : w->values == 0;
    mr_free(print);
    return good ? MR_OK
                : mr_fail(MR_E_DATA, "%s: damaged: no fingerprint; try: remove %s", w->file,
                          w->part);
}

static mr_status open_writer(mr_store_writer *w, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    if ((size_t)snprintf(w->path, sizeof w->path, "%.*s", (int)n, path) >= sizeof w->path)
        return mr_fail(MR_E_IO, "%s: path is too long", path);
    snprintf(w->part, sizeof w->part, "%s.part", w->path);
    snprintf(w->file, sizeof w->file, "%s/" INDEX_DATA, w->part);
    if (mr_path_exists(w->path))
        return mr_fail(MR_E_USAGE, "%s: already exists; try: another name, or remove it", w->path);
    MR_TRY(mr_dir_make(w->part));
    MR_TRY(take_lock(w));
    MR_TRY(open_env(w->part, w->file, 0, &w->env));
    MR_TRY(check_length(w));
    MR_TRY(open_tables(w));
    return take_up(w);
}

mr_status mr_store_writer_new(const char *path, mr_store_writer **out)
{
    mr_store_writer *w;
    if (!MR_NEW(w))
        return mr_fail_memory(sizeof *w);
    w->lock = -1;
    mr_status st = open_writer(w, path);
    if (st == MR_OK)
        *out = w;
    else
        mr_store_writer_free(w);
    return st;
}

void mr_store_writer_free(mr_store_writer *w)
{
    if (!w)
        return;
    if (w->env)
        mdb_env_close(w->env);
    if (w->lock >= 0)
        close(w->lock);
    mr_free(w->waiting.bytes);
    mr_free(w);
}

uint64_t mr_store_writer_values(const mr_store_writer *w)
{
    return w->values;
}

size_t mr_store_writer_waiting(const mr_store_writer *w)
{
    return w->waiting.n;
}

static mr_status check_open(const mr_store_writer *w)
{
    return w->env ? MR_OK
                  : mr_fail(MR_E_USAGE, "%s: the writer is closed; try: a new one", w->path);
}

mr_status mr_store_writer_get_text(mr_store_writer *w, const char *name, char **text)
{
    MDB_txn *txn;
    MDB_val key = text_val(name), v;
    *text = NULL;
    MR_TRY(check_open(w));
    int err = mdb_txn_begin(w->env, NULL, MDB_RDONLY, &txn);
    if (err)
        return fail_write(w, "read", err);
    err = mdb_get(txn, w->tables[TEXT], &key, &v);
    mr_status st = MR_OK;
    if (!err && !(*text = mr_calloc(v.mv_size + 1, 1)))
        st = mr_fail_memory(v.mv_size);
    if (!err && *text)
        memcpy(*text, v.mv_data, v.mv_size);
    mdb_txn_abort(txn);
    return err && err != MDB_NOTFOUND ? fail_write(w, "read", err) : st;
}

// reads the next pending record: key and value with their lengths
static bool next_waiting(const mr_store_writer *w, index_view *v, MDB_val *key, MDB_val *value)
{
    if (!v->at)
        *v = (index_view){.at = w->waiting.bytes, .end = w->waiting.bytes + w->waiting.n};
    if (!w->waiting.n || v->at == v->end)
        return false;
    size_t n = (size_t)index_get_int(v, 8);
    *key = val(index_get(v, n), n);
    n = (size_t)index_get_int(v, 8);
    *value = val(index_get(v, n), n);
    return true;
}

mr_status mr_store_writer_has(mr_store_writer *w, const void *key, size_t key_bytes, bool *has)
{
    MDB_txn *txn;
    index_view view = {0};
    MDB_val k = val(key, key_bytes), other, v;
    *has = false;
    while (!*has && next_waiting(w, &view, &other, &v))
        *has = other.mv_size == key_bytes && memcmp(other.mv_data, key, key_bytes) == 0;
    if (*has)
        return MR_OK;
    MR_TRY(check_open(w));
    int err = mdb_txn_begin(w->env, NULL, MDB_RDONLY, &txn);
    if (err)
        return fail_write(w, "read", err);
    err = mdb_get(txn, w->tables[VALUE], &k, &v);
    mdb_txn_abort(txn);
    *has = !err;
    return err && err != MDB_NOTFOUND ? fail_write(w, "read", err) : MR_OK;
}

mr_status mr_store_writer_put(mr_store_writer *w, const void *key, size_t key_bytes,
                              const void *value, size_t bytes)
{
    bool has;
    if (!key_bytes || key_bytes > MR_STORE_KEY_MAX)
        return mr_fail(MR_E_USAGE, "%s: a key of %zu bytes; expected 1 to %d", w->path, key_bytes,
                       MR_STORE_KEY_MAX);
    MR_TRY(mr_store_writer_has(w, key, key_bytes, &has));
    if (has)
        return mr_fail(MR_E_USAGE, "%s: a key has a value already", w->path);
    size_t before = w->waiting.n;
    index_put_int(&w->waiting, key_bytes, 8);
    index_put(&w->waiting, key, key_bytes);
    index_put_int(&w->waiting, bytes + SUM_BYTES, 8);
    index_put(&w->waiting, value, bytes);
    index_put_int(&w->waiting, mr_hash64(value, bytes), SUM_BYTES);
    if (w->waiting.failed) {
        w->waiting.n = before, w->waiting.failed = false;
        return mr_fail_memory(bytes);
    }
    w->n_waiting++;
    return MR_OK;
}

// grows the map for the pending records and LMDB's overhead
static mr_status make_room(mr_store_writer *w)
{
    MDB_envinfo info;
    MDB_stat about;
    mdb_env_info(w->env, &info);
    mdb_env_stat(w->env, &about);
    size_t need = (info.me_last_pgno + 1) * about.ms_psize + w->waiting.n +
                  w->n_waiting * 2 * about.ms_psize + (1 << 20);
    need += need / 4;
    if (need <= info.me_mapsize)
        return MR_OK;
    int err = mdb_env_set_mapsize(w->env, need * 2);
    return err ? fail_write(w, "enlarge", err) : MR_OK;
}

static int put_text(const mr_store_writer *w, MDB_txn *txn, const char *name, const char *text)
{
    MDB_val key = text_val(name), value = text_val(text);
    return mdb_put(txn, w->tables[TEXT], &key, &value, 0);
}

mr_status mr_store_writer_commit(mr_store_writer *w, const char *name, const char *text)
{
    MDB_txn *txn;
    index_view view = {0};
    MDB_val key, value;
    mr_hash128 print = w->print;
    char hex[33];
    MR_TRY(check_open(w));
    MR_TRY(make_room(w));
    int err = mdb_txn_begin(w->env, NULL, 0, &txn);
    if (err)
        return fail_write(w, "begin writing", err);
    while (!err && next_waiting(w, &view, &key, &value)) {
        add_hash(&print, key, value);
        err = mdb_put(txn, w->tables[VALUE], &key, &value, MDB_NOOVERWRITE);
    }
    mr_hash128_hex(print, hex);
    if (!err)
        err = put_text(w, txn, "fingerprint", hex);
    if (!err)
        err = put_text(w, txn, name, text);
    if (err)
        mdb_txn_abort(txn);
    else
        err = mdb_txn_commit(txn);
    if (err)
        return fail_write(w, "write", err);
    w->values += w->n_waiting, w->print = print;
    w->waiting.n = 0, w->n_waiting = 0;
    return MR_OK;
}

mr_status mr_store_writer_finish(mr_store_writer *w)
{
    char lock[4300], dir[4096];
    MR_TRY(mr_store_writer_commit(w, "format", STORE_FORMAT));
    mdb_env_close(w->env);
    w->env = NULL;
    MR_TRY(index_sum_write(w->part));
    snprintf(lock, sizeof lock, "%s/lock", w->part);
    mr_io_table()->unlink(lock);
    if (mr_io_table()->rename(w->part, w->path))
        return mr_fail(MR_E_IO, "%s: cannot create: %s", w->path, strerror(errno));
    MR_TRY(index_path_absolute(w->path, dir));
    char *slash = strrchr(dir, '/');
    slash[slash == dir] = 0;
    return mr_dir_sync(dir);
}

/* ---- reading ---- */

struct mr_store {
    char *path, *file;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi tables[TABLES];
    uint64_t values;
    mr_hash128 print;
    mr_arena arena; // texts
    bool watched;
};

const char *mr_store_text(mr_store *s, const char *name)
{
    MDB_val key = text_val(name), v;
    if (mdb_get(s->txn, s->tables[TEXT], &key, &v))
        return NULL;
    char *text = mr_arena_alloc(&s->arena, v.mv_size + 1);
    if (text)
        memcpy(text, v.mv_data, v.mv_size);
    return text;
}

static mr_status open_store(mr_store *s, bool verify)
{
    MDB_stat about;
    char sum[4200];
    snprintf(sum, sizeof sum, "%s/" INDEX_SUM, s->path);
    if (!mr_path_exists(s->file) || !mr_path_exists(sum))
        return mr_fail(MR_E_DATA, "%s: no finished store; try: the command that makes it", s->path);
    MR_TRY(index_sum_check(s->path, verify, -1, NULL));
    MR_TRY(open_env(s->path, s->file, MDB_RDONLY, &s->env));
    int err = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &s->txn);
    for (int t = 0; !err && t < TABLES; t++)
        err = mdb_dbi_open(s->txn, table_names[t], 0, &s->tables[t]);
    if (!err)
        err = mdb_stat(s->txn, s->tables[VALUE], &about);
    if (err)
        return index_fail_mdb(s->file, "open", err);
    s->values = about.ms_entries;
    const char *format = mr_store_text(s, "format");
    if (!format || strcmp(format, STORE_FORMAT) != 0)
        return mr_fail(MR_E_FORMAT, "%s: format '%s', expected '%s'", s->path,
                       format ? format : "none", STORE_FORMAT);
    if (!index_get_hash(mr_store_text(s, "fingerprint"), &s->print))
        return mr_fail(MR_E_DATA, "%s: no fingerprint", s->path);
    MDB_val key = text_val("format"), v;
    if (mdb_get(s->txn, s->tables[TEXT], &key, &v) == 0) {
        index_bus_watch(v.mv_data, s->file);
        s->watched = true;
    }
    return MR_OK;
}

mr_status mr_store_open(const char *path, bool verify, mr_store **out)
{
    mr_store *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    mr_arena_init(&s->arena);
    size_t n = strlen(path);
    if ((s->path = mr_strdup(path)) && (s->file = mr_alloc(n + 16)))
        snprintf(s->file, n + 16, "%s/" INDEX_DATA, path);
    mr_status st = s->file ? open_store(s, verify) : mr_fail_memory(n);
    mr_fail_try(st, "copy or build it again");
    if (st == MR_OK)
        *out = s;
    else
        mr_store_free(s);
    return st;
}

void mr_store_free(mr_store *s)
{
    if (!s)
        return;
    if (s->txn)
        mdb_txn_abort(s->txn);
    if (s->watched)
        index_bus_forget(s->file);
    if (s->env)
        mdb_env_close(s->env);
    mr_arena_fini(&s->arena);
    mr_free(s->path);
    mr_free(s->file);
    mr_free(s);
}

uint64_t mr_store_values(const mr_store *s)
{
    return s->values;
}

mr_hash128 mr_store_fingerprint(const mr_store *s)
{
    return s->print;
}

mr_status mr_store_get(mr_store *s, const void *key, size_t key_bytes, const void **value,
                       size_t *bytes)
{
    MDB_val k = val(key, key_bytes), v;
    uint64_t sum;
    *value = NULL, *bytes = 0;
    if (!key_bytes)
        return MR_OK;
    int err = mdb_get(s->txn, s->tables[VALUE], &k, &v);
    if (err == MDB_NOTFOUND || err == MDB_BAD_VALSIZE)
        return MR_OK;
    if (err)
        return index_fail_mdb(s->file, "read", err);
    bool good = v.mv_size >= SUM_BYTES;
    if (good) {
        *bytes = v.mv_size - SUM_BYTES;
        memcpy(&sum, (const uint8_t *)v.mv_data + *bytes, SUM_BYTES);
        good = sum == mr_hash64(v.mv_data, *bytes);
    }
    if (!good)
        return mr_fail(MR_E_DATA,
                       "%s: a value of %zu bytes is damaged; try: copy or build it again", s->file,
                       v.mv_size);
    *value = v.mv_data;
    return MR_OK;
}

mr_status mr_store_seek(mr_store *s, const void *key, size_t key_bytes, const void **found,
                        size_t *found_bytes)
{
    MDB_cursor *cursor;
    MDB_val k = val(key, key_bytes), v;
    *found = NULL, *found_bytes = 0;
    int err = mdb_cursor_open(s->txn, s->tables[VALUE], &cursor);
    if (err)
        return index_fail_mdb(s->file, "read", err);
    err = mdb_cursor_get(cursor, &k, &v, key_bytes ? MDB_SET_RANGE : MDB_FIRST);
    mdb_cursor_close(cursor);
    if (err && err != MDB_NOTFOUND)
        return index_fail_mdb(s->file, "read", err);
    if (!err)
        *found = k.mv_data, *found_bytes = k.mv_size;
    return MR_OK;
}
