/* base: the function tables for files and clocks, and operations on whole files.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static int real_open(const char *path, int flags, int mode)
{
    return open(path, flags | O_CLOEXEC, mode);
}
static ssize_t real_pread(int fd, void *buf, size_t n, int64_t at)
{
    return pread(fd, buf, n, at);
}
static ssize_t real_pwrite(int fd, const void *buf, size_t n, int64_t at)
{
    return pwrite(fd, buf, n, at);
}
static int real_mkdir(const char *path, int mode)
{
    return mkdir(path, (mode_t)mode);
}
static int real_ftruncate(int fd, int64_t bytes)
{
    return ftruncate(fd, bytes);
}

static int real_fallocate(int fd, int64_t bytes)
{
    int err = posix_fallocate(fd, 0, bytes);
    errno = err;
    return err ? -1 : 0;
}

static int real_exchange(const char *a, const char *b)
{
#ifdef RENAME_EXCHANGE
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
#else
    (void)a, (void)b;
    errno = ENOSYS;
    return -1;
#endif
}

/* Replaces the target of a symbolic link and keeps the link. Refuses to replace a device or a
 * pipe. */
static int real_rename(const char *from, const char *to)
{
    char *meant = realpath(to, NULL);
    struct stat st;
    int bad = 0;
    if (meant && stat(meant, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        bad = EPERM;
    else if (rename(from, meant ? meant : to))
        bad = errno;
    free(meant);
    errno = bad;
    return bad ? -1 : 0;
}

static int64_t real_free_bytes(const char *path)
{
    struct statvfs s;
    return statvfs(path, &s) ? -1 : (int64_t)s.f_bavail * (int64_t)s.f_frsize;
}

static const mr_io real_io = {
    .open = real_open,
    .read = read,
    .write = write,
    .pread = real_pread,
    .pwrite = real_pwrite,
    .fallocate = real_fallocate,
    .ftruncate = real_ftruncate,
    .fsync = fsync,
    .close = close,
    .rename = real_rename,
    .exchange = real_exchange,
    .unlink = unlink,
    .rmdir = rmdir,
    .mkdir = real_mkdir,
    .free_bytes = real_free_bytes,
};
static const mr_io *io = &real_io;

const mr_io *mr_io_table(void)
{
    return io;
}
void mr_io_replace(const mr_io *table)
{
    io = table ? table : &real_io;
}

static int64_t clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static int64_t real_monotonic(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}
static int64_t real_wall(void)
{
    return clock_ns(CLOCK_REALTIME);
}
static void real_sleep(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}
static const mr_clock real_clock = {real_monotonic, real_wall, real_sleep};
static const mr_clock *clock_table = &real_clock;

const mr_clock *mr_clock_table(void)
{
    return clock_table;
}
void mr_clock_replace(const mr_clock *table)
{
    clock_table = table ? table : &real_clock;
}
double mr_now_s(void)
{
    return (double)clock_table->monotonic_ns() * 1e-9;
}

mr_status mr_fail_io(const char *verb, const char *path)
{
    int err = errno;
    return mr_fail(MR_E_IO, "%s: cannot %s: %s", path, verb, strerror(err));
}

mr_status mr_file_write_full(int fd, const void *data, size_t bytes, const char *path)
{
    const char *p = data;
    while (bytes) {
        ssize_t n = io->write(fd, p, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return mr_fail_io("write", path);
        p += n, bytes -= (size_t)n;
    }
    return MR_OK;
}

mr_status mr_file_read_at(int fd, void *data, size_t bytes, int64_t at, const char *path)
{
    enum { PIECE = 16 << 20 }; // small enough that an interrupt takes effect soon
    char *p = data;
    while (bytes) {
        MR_TRY(mr_interrupt_check());
        ssize_t n = io->pread(fd, p, MR_MIN(bytes, (size_t)PIECE), at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mr_fail(MR_E_IO, "%s: cannot read at byte %lld: %s", path, (long long)at,
                           strerror(errno));
        if (n == 0)
            return mr_fail(MR_E_FORMAT, "%s: ends %zu bytes too early at byte %lld", path, bytes,
                           (long long)at);
        p += n, at += n, bytes -= (size_t)n;
    }
    return MR_OK;
}

// checks the size before reading. A file that is not regular has no known size
static mr_status check_small(int fd, const char *path, size_t most)
{
    struct stat about;
    if (fstat(fd, &about))
        return mr_fail_io("look at", path);
    if (!S_ISREG(about.st_mode))
        return mr_fail(MR_E_IO, "%s: is not a regular file", path);
    return (uint64_t)about.st_size <= most
               ? MR_OK
               : mr_fail(MR_E_FORMAT, "%s: has %lld bytes, expected at most %zu", path,
                         (long long)about.st_size, most);
}

static mr_status read_whole(int fd, const char *path, size_t most, char **data, size_t *bytes)
{
    size_t used = 0, cap = 65536;
    char *buf = mr_alloc(cap);
    mr_status st = MR_OK;
    while (buf && used <= most) {
        ssize_t n = io->read(fd, buf + used, cap - used - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            st = mr_fail_io("read", path);
        if (n <= 0)
            break;
        used += (size_t)n;
        if (cap - used < 4096) {
            char *more = mr_realloc(buf, cap * 2);
            if (!more)
                mr_free(buf);
            buf = more, cap *= 2;
        }
    }
    if (!buf)
        return mr_fail_memory(cap);
    if (st == MR_OK && used > most)
        st = mr_fail(MR_E_FORMAT, "%s: has more than the expected %zu bytes", path, most);
    if (st != MR_OK) {
        mr_free(buf);
        return st;
    }
    buf[used] = 0;
    *data = buf, *bytes = used;
    return MR_OK;
}

mr_status mr_file_read_all(const char *path, char **data, size_t *bytes)
{
    int fd = io->open(path, O_RDONLY, 0);
    if (fd < 0)
        return mr_fail_io("open", path);
    mr_status st = read_whole(fd, path, SIZE_MAX, data, bytes);
    io->close(fd);
    return st;
}

mr_status mr_file_read_small(const char *path, size_t most, char **data, size_t *bytes)
{
    // without O_NONBLOCK, opening a pipe that has no writer would wait forever
    int fd = io->open(path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0)
        return mr_fail_io("open", path);
    mr_status st = check_small(fd, path, most);
    if (st == MR_OK)
        st = read_whole(fd, path, most, data, bytes);
    io->close(fd);
    return st;
}

mr_status mr_dir_sync(const char *path)
{
    int fd = io->open(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return mr_fail_io("open", path);
    int bad = io->fsync(fd);
    if (bad)
        mr_fail_io("sync", path);
    io->close(fd);
    return bad ? MR_E_IO : MR_OK;
}

mr_status mr_dir_make(const char *path)
{
    char part[4096];
    if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part)
        return mr_fail(MR_E_IO, "%s: path is too long", path);
    for (char *p = part + 1;; p++) {
        if (*p && *p != '/')
            continue;
        char keep = *p;
        *p = 0;
        // EEXIST is fine only if `part` is a folder
        struct stat there;
        if (io->mkdir(part, 0755) &&
            (errno != EEXIST || (stat(part, &there) == 0 && !S_ISDIR(there.st_mode))))
            return mr_fail_io("create directory", part);
        if (!keep)
            return MR_OK;
        *p = keep;
    }
}

mr_status mr_dir_list(const char *path, char ***names, int *n)
{
    struct dirent **found;
    int count = scandir(path, &found, NULL, alphasort);
    if (count < 0)
        return mr_fail_io("list", path);
    char **list = mr_alloc(sizeof *list * (size_t)(count + 1));
    int used = 0;
    bool bad = !list;
    for (int i = 0; i < count; i++) {
        const char *name = found[i]->d_name;
        if (!bad && strcmp(name, ".") && strcmp(name, "..") && !(list[used++] = mr_strdup(name)))
            bad = true;
        free(found[i]);
    }
    free(found);
    if (bad) {
        if (list)
            mr_dir_list_free(list, used);
        return mr_fail_memory((size_t)count * 32);
    }
    *names = list, *n = used;
    return MR_OK;
}

void mr_dir_list_free(char **names, int n)
{
    for (int i = 0; i < n; i++)
        mr_free(names[i]);
    mr_free(names);
}

mr_status mr_dir_remove(const char *path)
{
    struct stat s;
    if (lstat(path, &s))
        return errno == ENOENT ? MR_OK : mr_fail_io("look at", path);
    if (!S_ISDIR(s.st_mode))
        return io->unlink(path) ? mr_fail_io("remove", path) : MR_OK;
    char **names;
    int n;
    MR_TRY(mr_dir_list(path, &names, &n));
    mr_status st = MR_OK;
    for (int i = 0; i < n && st == MR_OK; i++) {
        char child[4096];
        snprintf(child, sizeof child, "%s/%s", path, names[i]);
        st = mr_dir_remove(child);
    }
    mr_dir_list_free(names, n);
    if (st == MR_OK && io->rmdir(path))
        st = mr_fail_io("remove", path);
    return st;
}

bool mr_path_exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}
