/* index: local copies of indexes. An index on a network file system is not mapped in place: one
 * process copies it to a local disk and checks every block, while the other processes of the host
 * wait, and all map the copy. The name of a copy is a hash of its checksums, so later runs reuse it
 * and it is never stale. Writers and readers of a copy hold a kernel lock on it, which ends with
 * the process. An incomplete copy of a dead process is continued or removed. Ref: dataplane 2.3.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// STANDS_S: longest time without progress of another process's copy; LOOK_MS: time between two
// checks
enum { STANDS_S = 120, LOOK_MS = 50, SUM_MAX = 64 << 20 };

typedef struct local_copy {
    const char *dir; // folder of the index
    uint64_t bytes;
    char folder[3000], copy[3100], part[3100];
} local_copy;

static mr_status unusable(const char *folder, const char *why)
{
    return mr_fail(MR_E_UNSUPPORTED, "no copy in %s: %s", folder, why);
}

// opens the folder of copies: it belongs to this user and is on a local disk
static mr_status enter(local_copy *n)
{
    const char *given = getenv("MOONREEL_COPIES"), *tmp = getenv("TMPDIR");
    const char *in = given && *given ? given : tmp && *tmp ? tmp : "/var/tmp";
    struct stat s;
    if (snprintf(n->folder, sizeof n->folder, "%s/moonreel-%u", in, (unsigned)geteuid()) >=
        (int)sizeof n->folder)
        return unusable(in, "its path is too long");
    const char *network = index_network(in);
    if (network)
        return unusable(in, network);
    if (mr_io_table()->mkdir(n->folder, 0700) && errno != EEXIST)
        return unusable(n->folder, strerror(errno));
    if (lstat(n->folder, &s) || !S_ISDIR(s.st_mode) || s.st_uid != geteuid() || s.st_mode & 022)
        return unusable(n->folder, "it is not this user's own folder");
    return MR_OK;
}

// derives name and size of the copy from the index's checksums
static mr_status name(local_copy *n)
{
    char file[4200], *text, hex[33];
    size_t bytes;
    snprintf(file, sizeof file, "%.4000s/" INDEX_SUM, n->dir);
    if (mr_file_read_small(file, SUM_MAX, &text, &bytes) != MR_OK)
        return index_sum_check(n->dir, false, -1, NULL);
    mr_hash128_hex(mr_hash128_of(text, bytes), hex);
    n->bytes = index_sum_bytes(text, bytes);
    mr_free(text);
    // refuse a truncated file before copying
    snprintf(file, sizeof file, "%.4000s/" INDEX_DATA, n->dir);
    struct stat s;
    if (stat(file, &s) || (uint64_t)s.st_size != n->bytes)
        MR_TRY(index_sum_check(n->dir, false, -1, NULL));
    snprintf(n->copy, sizeof n->copy, "%s/%s.mdb", n->folder, hex);
    snprintf(n->part, sizeof n->part, "%s/%s.part", n->folder, hex);
    return MR_OK;
}

// does the name still refer to the open file?
static bool is_named(const char *path, int fd)
{
    struct stat a, b;
    return stat(path, &a) == 0 && fstat(fd, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

static int64_t size_of(int fd)
{
    struct stat s;
    return fstat(fd, &s) ? -1 : (int64_t)s.st_size;
}

// opens and locks the finished copy; -1: none
static int take(const local_copy *n)
{
    // the process that made it, or that is about to remove it, locks it for a moment
    int fd = mr_io_table()->open(n->copy, O_RDONLY | O_CLOEXEC, 0);
    if (fd >= 0 && !flock(fd, LOCK_SH) && is_named(n->copy, fd) && size_of(fd) == (int64_t)n->bytes)
        return fd;
    if (fd >= 0)
        mr_io_table()->close(fd);
    return -1;
}

// Removes a file of the folder if no process has a lock on it.
static void remove_unheld(const char *path)
{
    int fd = mr_io_table()->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (!flock(fd, LOCK_EX | LOCK_NB) && is_named(path, fd))
        mr_io_table()->unlink(path);
    mr_io_table()->close(fd);
}

// removes unfinished copies of dead processes, and with `copies` also unused finished ones. A
// finished one of this name is damaged
static void sweep(const local_copy *n, bool copies)
{
    char **names, path[3400];
    int count;
    if (mr_dir_list(n->folder, &names, &count) != MR_OK) {
        mr_error_clear();
        return;
    }
    for (int i = 0; i < count; i++) {
        const char *dot = strrchr(names[i], '.');
        snprintf(path, sizeof path, "%s/%.255s", n->folder, names[i]);
        if (dot && strcmp(path, n->part) &&
            (strcmp(dot, ".part") == 0 || (copies && strcmp(dot, ".mdb") == 0)))
            remove_unheld(path);
    }
    mr_dir_list_free(names, count);
}

static bool has_room(const local_copy *n)
{
    int64_t free_bytes = mr_io_table()->free_bytes(n->folder);
    return free_bytes < 0 || (uint64_t)free_bytes > n->bytes;
}

// Copies the index into the file, which this process has locked.
static mr_status fill(const local_copy *n, int fd)
{
    sweep(n, false);
    if (!has_room(n))
        sweep(n, true);
    if (!has_room(n))
        return unusable(n->folder, "the disk is full; try: MOONREEL_COPIES=DIR on another disk");
    if (mr_io_table()->ftruncate(fd, 0))
        return mr_fail(MR_E_IO, "%s: cannot begin a copy: %s", n->part, strerror(errno));
    MR_TRY(index_sum_check(n->dir, true, fd, n->part));
    if (mr_io_table()->fsync(fd) || mr_io_table()->rename(n->part, n->copy))
        return mr_fail(MR_E_IO, "%s: cannot finish a copy: %s", n->copy, strerror(errno));
    return MR_OK;
}

// Opens the file of an unfinished copy; *mine: this process has locked it and makes the copy.
static mr_status open_part(const local_copy *n, int *fd, bool *mine)
{
    *fd = mr_io_table()->open(n->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0)
        return unusable(n->part, strerror(errno));
    *mine = !flock(*fd, LOCK_EX | LOCK_NB);
    return MR_OK;
}

// Waits until the file is renamed or its process has ended.
static mr_status wait(const local_copy *n, int fd)
{
    int64_t bytes = -1;
    double since = mr_now_s();
    while (is_named(n->part, fd)) {
        if (!flock(fd, LOCK_EX | LOCK_NB))
            return MR_OK;
        if (size_of(fd) != bytes)
            bytes = size_of(fd), since = mr_now_s();
        if (mr_now_s() - since > STANDS_S)
            return mr_fail(MR_E_IO,
                           "%s: another process copies it to %s and has been stuck at byte %lld "
                           "for %d s; try: check that process and the network file system",
                           n->dir, n->part, (long long)bytes, STANDS_S);
        mr_clock_table()->sleep_ns(LOOK_MS * 1000000ll);
        MR_TRY(mr_interrupt_check());
    }
    return MR_OK;
}

mr_status index_local_copy(const char *dir, int *out)
{
    local_copy n = {.dir = dir};
    *out = -1;
    MR_TRY(enter(&n));
    MR_TRY(name(&n));
    mr_status st = MR_OK;
    while (st == MR_OK && (*out = take(&n)) < 0) {
        int fd;
        bool mine = false;
        MR_TRY(open_part(&n, &fd, &mine));
        // if the file was finished or removed after it was opened, start again
        if (mine && is_named(n.part, fd)) {
            // or the copy was finished before, and this is a new file
            if ((*out = take(&n)) < 0 && (st = fill(&n, fd)) == MR_OK) {
                // other processes may use it now
                flock(fd, LOCK_SH);
                *out = fd;
                return MR_OK;
            }
            mr_io_table()->unlink(n.part);
            if (*out >= 0) {
                mr_io_table()->close(fd);
                return MR_OK;
            }
        } else if (!mine) {
            st = wait(&n, fd);
        }
        mr_io_table()->close(fd);
    }
    return st;
}
