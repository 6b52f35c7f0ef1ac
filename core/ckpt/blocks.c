/* ckpt: reads files whose blocks have hashes. It reads a whole block and compares its hash before
 * it returns a byte of it. The last few blocks stay cached, because the next read often begins
 * where one ended. Files are opened at first use. Licence: Apache-2.0 */
#define _DEFAULT_SOURCE
#include "ckpt/blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEPT = 16, OPEN_MAX = 64, THREADS_MAX = 7 };

typedef struct kept {
    char *data;
    int file;
    int64_t block; // -1: none
    int64_t used;  // number of the read that used it last
} kept;

struct mr_blocks {
    const mr_manifest *manifest;
    char **paths;
    int *fds;       // -1: not open
    int64_t *first; // number of each file's first block, counted over all files; at the end the
                    // total
    int n_open;
    kept kept[KEPT];
    int64_t reads;
    _Atomic int64_t bytes_read;
};

/* ---- open, close ---- */

static mr_status fail_open(const char *path)
{
    return errno == ENOENT ? mr_fail(MR_E_IO, "%s: missing", path)
                           : mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno));
}

static int open_again(const char *path)
{
    int fd, pauses = 0;
    do
        fd = mr_io_table()->open(path, O_RDONLY | O_NONBLOCK, 0);
    while (fd < 0 && mr_ckpt_again(errno, &pauses));
    return fd;
}

/* Reads the size of the opened file: on a network file system, the size by name may be outdated. */
static mr_status look_closer(const char *path, struct stat *s)
{
    int fd = open_again(path);
    if (fd < 0)
        return fail_open(path);
    mr_status st = fstat(fd, s) ? fail_open(path) : MR_OK;
    mr_io_table()->close(fd);
    return st;
}

static mr_status check_file(const char *path, int64_t bytes)
{
    struct stat s;
    int pauses = 0, missing;
    do
        missing = stat(path, &s);
    while (missing && mr_ckpt_again(errno, &pauses));
    if (missing)
        return fail_open(path);
    if (S_ISREG(s.st_mode) && s.st_size != bytes)
        MR_TRY(look_closer(path, &s));
    if (!S_ISREG(s.st_mode) || s.st_size != bytes)
        return mr_fail(MR_E_FORMAT, "%s: has %lld bytes, the manifest says %lld", path,
                       (long long)s.st_size, (long long)bytes);
    return MR_OK;
}

static mr_status find_files(mr_blocks *b, const char *dir)
{
    const mr_manifest *m = b->manifest;
    for (int i = 0; i < m->n_files; i++) {
        b->first[i + 1] = b->first[i] + mr_ckpt_blocks(m->files[i].bytes);
        size_t cap = strlen(dir) + strlen(m->files[i].name) + 2;
        if (!(b->paths[i] = mr_alloc(cap)))
            return mr_fail_memory(cap);
        snprintf(b->paths[i], cap, "%s/%s", dir, m->files[i].name);
        b->fds[i] = -1;
        MR_TRY(check_file(b->paths[i], m->files[i].bytes));
    }
    return MR_OK;
}

mr_status mr_blocks_open(const char *dir, const mr_manifest *m, mr_blocks **out)
{
    mr_blocks *b;
    *out = NULL;
    if (!MR_NEW(b))
        return mr_fail_memory(sizeof *b);
    b->manifest = m;
    b->paths = mr_calloc((size_t)m->n_files + 1, sizeof *b->paths);
    b->fds = mr_alloc(sizeof *b->fds * (size_t)(m->n_files + 1));
    b->first = mr_calloc((size_t)m->n_files + 1, sizeof *b->first);
    for (int i = 0; i < KEPT; i++)
        b->kept[i].block = -1;
    for (int i = 0; b->fds && i < m->n_files; i++)
        b->fds[i] = -1;
    mr_status st = b->paths && b->fds && b->first ? find_files(b, dir) : mr_fail_memory(4096);
    if (st != MR_OK)
        mr_blocks_close(b);
    else
        *out = b;
    return st;
}

static void close_files(mr_blocks *b)
{
    for (int i = 0; b->fds && b->n_open && i < b->manifest->n_files; i++)
        if (b->fds[i] >= 0) {
            mr_io_table()->close(b->fds[i]);
            b->fds[i] = -1, b->n_open--;
        }
}

void mr_blocks_close(mr_blocks *b)
{
    if (!b)
        return;
    close_files(b);
    for (int i = 0; b->paths && i < b->manifest->n_files; i++)
        mr_free(b->paths[i]);
    for (int i = 0; i < KEPT; i++)
        mr_free(b->kept[i].data);
    mr_free(b->paths);
    mr_free(b->fds);
    mr_free(b->first);
    mr_free(b);
}

static mr_status open_file(mr_blocks *b, int file)
{
    if (b->fds[file] >= 0)
        return MR_OK;
    if (b->n_open == OPEN_MAX)
        close_files(b);
    b->fds[file] = open_again(b->paths[file]);
    if (b->fds[file] < 0)
        return fail_open(b->paths[file]);
    b->n_open++;
    return MR_OK;
}

/* ---- one block ---- */

/* The name of a tensor with bytes in the block; NULL: the block is the head of its file. */
static const char *tensor_in(const mr_manifest *m, int file, int64_t at, int64_t n)
{
    for (int i = 0; i < m->n_tensors; i++) {
        const mr_manifest_tensor *t = &m->tensors[i];
        for (int k = 0; k < t->n; k++) {
            const mr_piece *p = &m->pieces[t->first + k];
            mr_span r = mr_piece_span(t, p);
            if (p->file == file && p->offset < at + n && at < p->offset + mr_span_bytes(&r))
                return t->is.name;
        }
    }
    return NULL;
}

/* Reads with a newly opened descriptor. */
static mr_status read_anew(const char *path, int64_t at, void *dst, int64_t n)
{
    int fd = open_again(path);
    if (fd < 0)
        return fail_open(path);
    mr_status st = mr_file_read_at(fd, dst, (size_t)n, at, path);
    int err = errno;
    mr_io_table()->close(fd);
    errno = err;
    return st;
}

/* Reads a whole block of an open file to dst; *n: its size. A stale handle stays stale and other
 * threads use it, so the file is opened a second time. Threads: any */
static mr_status load_block(mr_blocks *b, int file, int64_t block, void *dst, int64_t *n)
{
    int64_t at = block * MR_CKPT_BLOCK;
    int pauses = 0;
    *n = MR_MIN(b->manifest->files[file].bytes - at, (int64_t)MR_CKPT_BLOCK);
    mr_status st = mr_file_read_at(b->fds[file], dst, (size_t)*n, at, b->paths[file]);
    while (st == MR_E_IO && errno == ESTALE && mr_ckpt_again(errno, &pauses))
        st = read_anew(b->paths[file], at, dst, *n);
    if (st == MR_OK)
        b->bytes_read += *n;
    return st;
}

/* The same, and compares the block with its hash. */
static mr_status read_block(mr_blocks *b, int file, int64_t block, void *dst)
{
    int64_t at = block * MR_CKPT_BLOCK, n;
    MR_TRY(load_block(b, file, block, dst, &n));
    mr_hash128 h = mr_hash128_of(dst, (size_t)n), want = b->manifest->files[file].blocks[block];
    if (h.lo == want.lo && h.hi == want.hi)
        return MR_OK;
    const char *tensor = tensor_in(b->manifest, file, at, n);
    return mr_fail(MR_E_FORMAT,
                   "%s: damaged: block %lld, bytes %lld to %lld, do not match their hash (%s%s)",
                   b->paths[file], (long long)block, (long long)at, (long long)(at + n),
                   tensor ? "tensor " : "the head of the file", tensor ? tensor : "");
}

/* ---- reading ---- */

/* Returns a cached block, or loads it in place of the least recently used one. */
static mr_status keep_block(mr_blocks *b, int file, int64_t block, const char **data)
{
    kept *oldest = &b->kept[0];
    for (int i = 0; i < KEPT; i++) {
        kept *k = &b->kept[i];
        if (k->block == block && k->file == file) {
            k->used = ++b->reads;
            *data = k->data;
            return MR_OK;
        }
        if (k->used < oldest->used)
            oldest = k;
    }
    if (!oldest->data && !(oldest->data = mr_alloc(MR_CKPT_BLOCK)))
        return mr_fail_memory(MR_CKPT_BLOCK);
    oldest->block = -1;
    MR_TRY(read_block(b, file, block, oldest->data));
    *oldest = (kept){oldest->data, file, block, ++b->reads};
    *data = oldest->data;
    return MR_OK;
}

mr_status mr_blocks_read(mr_blocks *b, int file, int64_t at, void *dst, int64_t n)
{
    MR_TRY(open_file(b, file));
    char *out = dst;
    for (int64_t end = at + n; at < end;) {
        int64_t block = at / MR_CKPT_BLOCK, from = at % MR_CKPT_BLOCK;
        int64_t take = MR_MIN((block + 1) * MR_CKPT_BLOCK, end) - at;
        const char *data = NULL;
        // read a whole block directly to its destination
        if (take == MR_CKPT_BLOCK)
            MR_TRY(read_block(b, file, block, out));
        else {
            MR_TRY(keep_block(b, file, block, &data));
            memcpy(out, data + from, (size_t)take);
        }
        out += take, at += take;
    }
    return MR_OK;
}

/* ---- all of it ---- */

int mr_ckpt_helpers(int most, void *(*work)(void *), void *arg, pthread_t *threads)
{
    int want = (int)MR_MIN(sysconf(_SC_NPROCESSORS_ONLN) - 1, (long)most), n = 0;
    sigset_t all, before;
    sigfillset(&all);
    // helper threads receive no signals; the training thread handles them
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (n < want && pthread_create(&threads[n], NULL, work, arg) == 0)
        n++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n;
}

/* Threads take block numbers, counted over all files. If several blocks fail, the first one is
 * reported, so that the same damage always gives the same error. */
typedef struct task {
    mr_blocks *blocks;
    bool compare;
    _Atomic int64_t drawn, last; // do not read blocks from `last` on
    pthread_mutex_t mutex;       // protects the fields below
    int64_t failed;
    mr_error *why;
} task;

static void note_failure(task *t, int64_t block)
{
    pthread_mutex_lock(&t->mutex);
    if (t->failed < 0 || block < t->failed) {
        mr_error_free(t->why);
        t->why = mr_error_copy(mr_error_last());
        t->failed = t->last = block;
    }
    pthread_mutex_unlock(&t->mutex);
}

/* The file that contains a block. */
static int file_of(const mr_blocks *b, int64_t block)
{
    int lo = 0, hi = b->manifest->n_files;
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        if (b->first[mid] <= block)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static void *check_blocks(void *arg)
{
    task *t = arg;
    mr_blocks *b = t->blocks;
    char *block = mr_alloc(MR_CKPT_BLOCK);
    int64_t n;
    for (int64_t i; block && (i = t->drawn++) < t->last;) {
        int file = file_of(b, i);
        mr_status st = t->compare ? read_block(b, file, i - b->first[file], block)
                                  : load_block(b, file, i - b->first[file], block, &n);
        if (st != MR_OK)
            note_failure(t, i);
    }
    // a thread that gets no memory leaves the work to the others
    bool worked = block != NULL;
    mr_free(block);
    return worked ? arg : NULL;
}

/* Reads the blocks [from, to) of at most OPEN_MAX files, which stay open meanwhile. */
static mr_status check_some(mr_blocks *b, int64_t from, int64_t to, bool compare)
{
    close_files(b);
    for (int i = file_of(b, from); i <= file_of(b, to - 1); i++)
        MR_TRY(open_file(b, i));
    task t = {.blocks = b, .compare = compare, .drawn = from, .last = to, .failed = -1};
    pthread_t helpers[THREADS_MAX];
    pthread_mutex_init(&t.mutex, NULL);
    int started = mr_ckpt_helpers((int)MR_MIN((to - from) / 8, (int64_t)THREADS_MAX), check_blocks,
                                  &t, helpers);
    bool worked = check_blocks(&t) != NULL;
    for (int i = 0; i < started; i++)
        pthread_join(helpers[i], NULL);
    pthread_mutex_destroy(&t.mutex);
    mr_status st = MR_OK;
    if (t.failed >= 0)
        st = t.why ? mr_error_adopt(t.why) : mr_fail_memory(sizeof *t.why);
    // no thread took a block: all lacked memory
    else if (!worked && t.drawn < to)
        st = mr_fail_memory(MR_CKPT_BLOCK);
    mr_error_free(t.why);
    return st;
}

mr_status mr_blocks_check(mr_blocks *b, mr_ckpt_share share, bool compare)
{
    int n_files = b->manifest->n_files;
    int64_t all = b->first[n_files], to = all * (share.part + 1) / share.parts;
    // drop the cached blocks: the check must read the files
    for (int i = 0; i < KEPT; i++)
        b->kept[i].block = -1;
    for (int64_t at = all * share.part / share.parts, next; at < to; at = next) {
        next = MR_MIN(to, b->first[MR_MIN(file_of(b, at) + OPEN_MAX, n_files)]);
        MR_TRY(check_some(b, at, next, compare));
    }
    return MR_OK;
}

int64_t mr_blocks_bytes_read(const mr_blocks *b)
{
    return b->bytes_read;
}
