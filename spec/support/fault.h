/* A file table that counts its operations and lets one of them fail. Syncs are counted, not done:
 * specs test order and results, not the disk. Use: fault_install(); fault_at(i, FAULT_ERRNO, EIO);
 * ... fault_clear(). */
#ifndef MR_FAULT_H
#define MR_FAULT_H
#include "moonreel/base.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_ERRNO,      /* operation `at` fails with `err`, once */
    FAULT_FULL,       /* from operation `at` on the disk is full: ENOSPC until cleared */
    FAULT_SHORT,      /* operation `at`, when it is a write or read, does half of it */
    FAULT_DIE_BEFORE, /* the process ends just before or just after operation `at` */
    FAULT_DIE_AFTER
} fault_kind;

enum { FAULT_EXIT = 77 };
static _Atomic long fault_count;
static _Atomic long fault_index; /* 1 = the next operation; 0 = none */
static _Atomic int fault_what, fault_errno;
static mr_io fault_real;

static inline void fault_at(long at, fault_kind kind, int err)
{
    fault_count = 0;
    fault_errno = err;
    fault_what = (int)kind;
    fault_index = at;
}
static inline void fault_clear(void)
{
    fault_at(0, FAULT_NONE, 0);
}
static inline long fault_operations(void)
{
    return fault_count;
}

/* Does this operation fail? `grows`: it needs room on the disk. */
static inline bool fault_hits(bool grows, bool *after)
{
    long n = ++fault_count;
    *after = false;
    if (!fault_index || n < fault_index)
        return false;
    if (fault_what == FAULT_FULL) {
        errno = ENOSPC;
        return grows;
    }
    if (n != fault_index)
        return false;
    if (fault_what == FAULT_DIE_BEFORE)
        _exit(FAULT_EXIT);
    if (fault_what == FAULT_DIE_AFTER)
        *after = true;
    errno = fault_errno;
    return fault_what == FAULT_ERRNO;
}
#define FAULT_DO(grows, type, call)                                                                \
    bool after;                                                                                    \
    if (fault_hits(grows, &after))                                                                 \
        return -1;                                                                                 \
    type r = (call);                                                                               \
    if (after)                                                                                     \
        _exit(FAULT_EXIT);                                                                         \
    return r

static inline bool fault_is_short(void)
{
    return fault_what == FAULT_SHORT && fault_count + 1 == fault_index;
}
static int fault_open(const char *p, int flags, int mode)
{
    FAULT_DO((flags & O_CREAT) != 0, int, fault_real.open(p, flags, mode));
}
static ssize_t fault_read(int fd, void *b, size_t n)
{
    if (fault_is_short() && n > 1)
        n /= 2;
    FAULT_DO(false, ssize_t, fault_real.read(fd, b, n));
}
static ssize_t fault_write(int fd, const void *b, size_t n)
{
    if (fault_is_short() && n > 1)
        n /= 2;
    FAULT_DO(true, ssize_t, fault_real.write(fd, b, n));
}
static ssize_t fault_pread(int fd, void *b, size_t n, int64_t at)
{
    if (fault_is_short() && n > 1)
        n /= 2;
    FAULT_DO(false, ssize_t, fault_real.pread(fd, b, n, at));
}
static ssize_t fault_pwrite(int fd, const void *b, size_t n, int64_t at)
{
    if (fault_is_short() && n > 1)
        n /= 2;
    FAULT_DO(false, ssize_t, fault_real.pwrite(fd, b, n, at));
}
static int fault_fallocate(int fd, int64_t n)
{
    FAULT_DO(true, int, fault_real.fallocate(fd, n));
}
static int fault_ftruncate(int fd, int64_t n)
{
    FAULT_DO(false, int, fault_real.ftruncate(fd, n));
}
static int fault_fsync(int fd)
{
    (void)fd;
    FAULT_DO(false, int, 0);
}
/* A close that reports failure has still closed the descriptor. */
static int fault_close(int fd)
{
    int closed = fault_real.close(fd);
    FAULT_DO(false, int, closed);
}
static int fault_rename(const char *a, const char *b)
{
    FAULT_DO(false, int, fault_real.rename(a, b));
}
static int fault_exchange(const char *a, const char *b)
{
    FAULT_DO(false, int, fault_real.exchange(a, b));
}
static int fault_unlink(const char *p)
{
    FAULT_DO(false, int, fault_real.unlink(p));
}
static int fault_rmdir(const char *p)
{
    FAULT_DO(false, int, fault_real.rmdir(p));
}
static int fault_mkdir(const char *p, int mode)
{
    FAULT_DO(!mr_path_exists(p), int, fault_real.mkdir(p, mode));
}
static int64_t fault_free_bytes(const char *p)
{
    FAULT_DO(false, int64_t, fault_real.free_bytes(p));
}

static inline void fault_install(void)
{
    static const mr_io table = {fault_open,   fault_read,      fault_write,     fault_pread,
                                fault_pwrite, fault_fallocate, fault_ftruncate, fault_fsync,
                                fault_close,  fault_rename,    fault_exchange,  fault_unlink,
                                fault_rmdir,  fault_mkdir,     fault_free_bytes};
    if (!fault_real.open)
        fault_real = *mr_io_table();
    mr_io_replace(&table);
    fault_clear();
}
#endif
