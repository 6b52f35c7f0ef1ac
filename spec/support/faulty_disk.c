/* A library to preload: a disk with slow syncs and phases in which calls fail, for whole runs of
 * the program. What fails is drawn from a seed.
 *
 * FAULTY_PATH      calls on paths that contain this are counted: write, fsync, close, fallocate,
 *                  rename, mkdir, unlink, rmdir; without it nothing happens
 * FAULTY_SEED      the draw
 * FAULTY_PER_1000  one in this many calls begins a phase of 1 to 60 calls, half of which fail with
 * EIO or ENOSPC, or write only a part
 * FAULTY_FULL      every counted call fails with ENOSPC, or writes only a part
 * FAULTY_SLOW_MS   a sync takes up to this long */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

static _Atomic uint64_t calls, bad_until;

static uint64_t number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

/* Numbers that look random: splitmix64 of seed and call. */
static uint64_t draw(uint64_t call, uint64_t which)
{
    uint64_t x = (number("FAULTY_SEED") * 1000003 + call * 8 + which + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool is_counted(const char *path)
{
    const char *part = getenv("FAULTY_PATH");
    return part && strstr(path, part);
}

static bool is_counted_fd(int fd)
{
    char link[64], path[4096];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    errno = before;
    path[n > 0 ? n : 0] = 0;
    return is_counted(path);
}

/* Does this call fail? Sets errno. */
static bool fails(bool counted)
{
    if (!counted)
        return false;
    uint64_t call = ++calls;
    if (number("FAULTY_FULL")) {
        errno = ENOSPC;
        return true;
    }
    if (draw(call, 0) % 1000 < number("FAULTY_PER_1000"))
        bad_until = call + 1 + draw(call, 1) % 60;
    if (call >= bad_until || draw(call, 2) % 2)
        return false;
    errno = draw(call, 3) % 2 ? EIO : ENOSPC;
    return true;
}

ssize_t write(int fd, const void *data, size_t n)
{
    if (!fails(is_counted_fd(fd)))
        return REAL(write)(fd, data, n);
    bool part = n > 1 && draw(calls, 4) % 2;
    return part ? REAL(write)(fd, data, n / 2) : -1;
}

int fsync(int fd)
{
    bool counted = is_counted_fd(fd);
    uint64_t slow_ms = number("FAULTY_SLOW_MS");
    if (counted && slow_ms) {
        struct timespec t = {0, (long)(draw(calls, 5) % (slow_ms * 1000000))};
        nanosleep(&t, NULL);
    }
    return fails(counted) ? -1 : REAL(fsync)(fd);
}

/* A close that fails has still closed the file. */
int close(int fd)
{
    bool bad = fails(is_counted_fd(fd));
    int why = errno, done = REAL(close)(fd);
    errno = bad ? why : errno;
    return bad ? -1 : done;
}

int posix_fallocate(int fd, off_t at, off_t n)
{
    return fails(is_counted_fd(fd)) ? errno : REAL(posix_fallocate)(fd, at, n);
}

int rename(const char *from, const char *to)
{
    return fails(is_counted(from) || is_counted(to)) ? -1 : REAL(rename)(from, to);
}

int renameat2(int d1, const char *from, int d2, const char *to, unsigned flags)
{
    return fails(is_counted(from) || is_counted(to)) ? -1
                                                     : REAL(renameat2)(d1, from, d2, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    return fails(is_counted(path)) ? -1 : REAL(mkdir)(path, mode);
}

int unlink(const char *path)
{
    return fails(is_counted(path)) ? -1 : REAL(unlink)(path);
}

int rmdir(const char *path)
{
    return fails(is_counted(path)) ? -1 : REAL(rmdir)(path);
}
