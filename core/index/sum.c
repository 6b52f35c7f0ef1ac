/* index: data.sum, the checksums LMDB does not have, and a handler for files that shrink under the
 * map. Ref: dataplane 2.3. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// enough checksums for 32 TB
enum { BLOCK = 4 << 20, SUM_MAX = 64 << 20 };

typedef struct sum_head {
    char magic[8];
    uint64_t bytes;
    int64_t mtime_ns;
    uint64_t blocks;
} sum_head;

static mr_status open_file(const char *dir, const char *name, char path[4096], int *fd)
{
    if (snprintf(path, 4096, "%s/%s", dir, name) >= 4096)
        return mr_fail(MR_E_IO, "%s: path is too long", dir);
    // do not wait if it is a pipe; look() refuses that
    *fd = mr_io_table()->open(path, O_RDONLY | O_NONBLOCK, 0);
    return *fd < 0
               ? mr_fail(MR_E_DATA,
                         "%s: cannot open; expected an index made by 'moonreel data ingest'", path)
               : MR_OK;
}

static mr_status look(int fd, const char *path, sum_head *head)
{
    struct stat s;
    if (fstat(fd, &s))
        return mr_fail(MR_E_IO, "%s: cannot get its status", path);
    if (!S_ISREG(s.st_mode))
        return mr_fail(MR_E_DATA, "%s: is not a regular file", path);
    head->bytes = (uint64_t)s.st_size;
    head->mtime_ns = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
    head->blocks = (head->bytes + BLOCK - 1) / BLOCK;
    return MR_OK;
}

static mr_status hash_block(int fd, const char *path, const sum_head *head, uint64_t block,
                            uint8_t *buf, size_t *n, uint64_t *hash)
{
    uint64_t at = block * BLOCK;
    *n = (size_t)MR_MIN((uint64_t)BLOCK, head->bytes - at);
    MR_TRY(mr_file_read_at(fd, buf, *n, (int64_t)at, path));
    *hash = mr_hash64(buf, *n);
    return MR_OK;
}

mr_status index_sum_write(const char *dir)
{
    char path[4096], sum[4096];
    int fd;
    sum_head head = {.magic = "MRSUM 1"};
    MR_TRY(open_file(dir, INDEX_DATA, path, &fd));
    uint8_t *buf = mr_alloc(BLOCK);
    index_pack p = {0};
    mr_status st = buf ? look(fd, path, &head) : mr_fail_memory(BLOCK);
    index_put(&p, &head, sizeof head);
    for (uint64_t b = 0; st == MR_OK && b < head.blocks; b++) {
        uint64_t hash = 0;
        size_t bytes;
        st = hash_block(fd, path, &head, b, buf, &bytes, &hash);
        index_put_int(&p, hash, 8);
    }
    mr_io_table()->close(fd);
    index_put_int(&p, p.n ? mr_hash64(p.bytes, p.n) : 0, 8);
    snprintf(sum, sizeof sum, "%s/" INDEX_SUM, dir);
    if (st == MR_OK)
        st = p.failed ? mr_fail_memory(p.cap) : mr_file_replace(sum, p.bytes, p.n);
    mr_free(p.bytes);
    mr_free(buf);
    return st;
}

uint64_t index_sum_bytes(const void *sum, size_t n)
{
    sum_head head = {0};
    memcpy(&head, sum, MR_MIN(n, sizeof head));
    return head.bytes;
}

static mr_status check_blocks(int fd, const char *path, const sum_head *head,
                              const uint64_t *hashes, int copy, const char *name)
{
    uint8_t *buf = mr_alloc(BLOCK);
    if (!buf)
        return mr_fail_memory(BLOCK);
    mr_status st = MR_OK;
    for (uint64_t b = 0; st == MR_OK && b < head->blocks; b++) {
        uint64_t hash = 0;
        size_t n;
        st = hash_block(fd, path, head, b, buf, &n, &hash);
        if (st == MR_OK && hash != hashes[b])
            st = mr_fail(MR_E_DATA,
                         "%s: damaged between bytes %llu and %llu; try: copy or build it again",
                         path, (unsigned long long)(b * BLOCK),
                         (unsigned long long)MR_MIN((b + 1) * BLOCK, head->bytes));
        if (st == MR_OK && copy >= 0)
            st = mr_file_write_full(copy, buf, n, name);
    }
    mr_free(buf);
    return st;
}

// A copy has another file time. After a check of its blocks, that time is recorded next to it.
static bool was_seen(const char *dir, int64_t mtime_ns, bool note)
{
    char path[4096], text[32], *seen;
    size_t n;
    snprintf(path, sizeof path, "%s/" INDEX_SEEN, dir);
    snprintf(text, sizeof text, "%lld\n", (long long)mtime_ns);
    if (note) {
        // on a read-only disk, the blocks are checked each time instead
        if (mr_file_replace(path, text, strlen(text)) != MR_OK)
            mr_error_clear();
        return true;
    }
    if (!mr_path_exists(path))
        return false;
    if (mr_file_read_small(path, sizeof text, &seen, &n) != MR_OK) {
        mr_error_clear();
        return false;
    }
    bool same = strcmp(seen, text) == 0;
    mr_free(seen);
    return same;
}

mr_status index_sum_check(const char *dir, bool verify, int copy, const char *name)
{
    char path[4096], sum[4096], *text;
    size_t n;
    int fd;
    MR_TRY(open_file(dir, INDEX_DATA, path, &fd));
    snprintf(sum, sizeof sum, "%s/" INDEX_SUM, dir);
    mr_status st = mr_file_read_small(sum, SUM_MAX, &text, &n);
    if (st != MR_OK) {
        mr_io_table()->close(fd);
        if (mr_path_exists(sum))
            return st;
        return mr_fail(MR_E_DATA,
                       "%s: is not sealed (no data.sum); try: 'moonreel data ingest', with "
                       "--continue when it was killed",
                       dir);
    }
    sum_head want, have = {0};
    uint64_t self;
    bool good = n >= sizeof want + 8;
    if (good) {
        memcpy(&want, text, sizeof want);
        memcpy(&self, text + n - 8, 8);
        good = memcmp(want.magic, "MRSUM 1", 8) == 0 && self == mr_hash64(text, n - 8) &&
               (n - sizeof want) % 8 == 0 && want.blocks == (n - sizeof want) / 8 - 1;
    }
    if (!good)
        st = mr_fail(MR_E_DATA, "%s: is damaged; try: copy or build it again", sum);
    if (st == MR_OK)
        st = look(fd, path, &have);
    if (st == MR_OK && have.bytes != want.bytes)
        st = mr_fail(MR_E_DATA,
                     "%s: has %llu bytes, expected %llu: a torn copy; try: copy or build it again",
                     path, (unsigned long long)have.bytes, (unsigned long long)want.bytes);
    if (st == MR_OK && (verify || copy >= 0 ||
                        (have.mtime_ns != want.mtime_ns && !was_seen(dir, have.mtime_ns, false)))) {
        // the hashes follow the head, which keeps them aligned
        st = check_blocks(fd, path, &want, (const uint64_t *)(const void *)(text + sizeof want),
                          copy, name);
        if (st == MR_OK && have.mtime_ns != want.mtime_ns)
            was_seen(dir, have.mtime_ns, true);
    }
    mr_io_table()->close(fd);
    mr_free(text);
    return st;
}

/* ---- SIGBUS: the file became shorter than its map ---- */

enum { WATCHED = 128 };
static struct {
    uintptr_t from, to;
    char file[512];
} watched[WATCHED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void on_bus(int sig, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < WATCHED; i++) {
        if (at < watched[i].from || at >= watched[i].to)
            continue;
        // from here, use only calls that are safe in a signal handler
        char digits[24];
        int n = 23;
        digits[n] = 0;
        for (uintptr_t off = at - watched[i].from; n && (off || n == 23); off /= 10)
            digits[--n] = (char)('0' + off % 10);
        say("moonreel: ");
        say(watched[i].file);
        say(": cannot be read at byte ");
        say(digits + n);
        say(": it was cut off while in use, or its disk failed; try: copy or build it again\n");
        _exit(mr_status_exit(MR_E_DATA));
    }
    // not an address of an index: act as if there were no handler
    signal(sig, SIG_DFL);
    raise(sig);
}

// finds the bounds of the mapping around `inside`
static bool find_map(uintptr_t inside, uintptr_t *from, uintptr_t *to)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    bool found = false;
    char line[8192];
    while (maps && !found && fgets(line, sizeof line, maps)) {
        char *end;
        *from = strtoull(line, &end, 16);
        *to = strtoull(end + 1, NULL, 16);
        found = inside >= *from && inside < *to;
    }
    if (maps)
        fclose(maps);
    return found;
}

void index_bus_watch(const void *inside, const char *file)
{
    uintptr_t from, to;
    if (!find_map((uintptr_t)inside, &from, &to))
        return;
    pthread_mutex_lock(&lock);
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    for (int i = 0; i < WATCHED; i++)
        if (!watched[i].to) {
            snprintf(watched[i].file, sizeof watched[i].file, "%s", file);
            watched[i].from = from, watched[i].to = to;
            break;
        }
    pthread_mutex_unlock(&lock);
}

void index_bus_forget(const char *file)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < WATCHED; i++)
        if (watched[i].to && strncmp(watched[i].file, file, sizeof watched[i].file - 1) == 0) {
            watched[i].to = watched[i].from = 0;
            break;
        }
    pthread_mutex_unlock(&lock);
}
