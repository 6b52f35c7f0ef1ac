/* base/file: whole-file operations under faults of the I/O table. Covers: core/base/replace.c */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static mr_io faulty;
static const mr_io *real;
static int budget;      /* calls until the fault */
static int fault_errno; /* 0: short counts only */

static ssize_t faulty_write(int fd, const void *buf, size_t n)
{
    if (!fault_errno)
        return real->write(fd, buf, n > 3 ? 3 : n);
    if (--budget == 0) {
        errno = fault_errno;
        return -1;
    }
    return real->write(fd, buf, n);
}
static int faulty_fsync(int fd)
{
    if (fault_errno && --budget == 0) {
        errno = fault_errno;
        return -1;
    }
    return real->fsync(fd);
}
static int faulty_rename(const char *a, const char *b)
{
    if (fault_errno && --budget == 0) {
        errno = fault_errno;
        return -1;
    }
    return real->rename(a, b);
}

static void replace_under_faults(const char *dir)
{
    char path[256], *data;
    size_t n;
    snprintf(path, sizeof path, "%s/f", dir);
    CHECK_OK(mr_file_replace(path, "old", 3));
    real = mr_io_table();
    faulty = *real;
    faulty.write = faulty_write, faulty.fsync = faulty_fsync, faulty.rename = faulty_rename;
    mr_io_replace(&faulty);
    // each call on the way fails in turn: the old file stays whole, and no other file remains
    fault_errno = ENOSPC;
    for (int i = 1; i <= 3; i++) {
        budget = i;
        CHECK_FAILS(mr_file_replace(path, "a longer new text", 17), MR_E_IO, "No space left");
        CHECK_OK(mr_file_read_all(path, &data, &n));
        CHECK_STR(data, "old");
        mr_free(data);
        char **names;
        int count;
        CHECK_OK(mr_dir_list(dir, &names, &count));
        CHECK_INT(count, 1);
        mr_dir_list_free(names, count);
    }
    // the error names the requested file
    budget = 1;
    CHECK_FAILS(mr_file_replace(path, "x", 1), MR_E_IO, "/f: cannot write: No space left");
    // an interrupted write is repeated, short counts are continued
    fault_errno = EINTR, budget = 1;
    CHECK_OK(mr_file_replace(path, "interrupted", 11));
    fault_errno = 0;
    CHECK_OK(mr_file_replace(path, "in small pieces", 15));
    mr_io_replace(NULL);
    CHECK_OK(mr_file_read_all(path, &data, &n));
    CHECK_STR(data, "in small pieces");
    CHECK_INT(n, 15);
    mr_free(data);
}

static void replace_what_is_there(const char *dir)
{
    char path[256], target[256], *data;
    struct stat st;
    size_t n;
    snprintf(path, sizeof path, "%s/f", dir), snprintf(target, sizeof target, "%s/target", dir);
    // a pipe is written in place, as a device would be
    CHECK_OK(mr_dir_remove(path));
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_FAILS(mr_file_replace(path, "x", 1), MR_E_IO, "f: cannot rename to: Operation not perm");
    CHECK_INT(lstat(path, &st), 0);
    CHECK(S_ISFIFO(st.st_mode));
    // a link stays a link
    CHECK_OK(mr_dir_remove(path));
    CHECK_OK(mr_file_replace(target, "old", 3));
    CHECK_INT(symlink("target", path), 0);
    CHECK_OK(mr_file_replace(path, "new", 3));
    CHECK_INT(lstat(path, &st), 0);
    CHECK(S_ISLNK(st.st_mode));
    CHECK_OK(mr_file_read_all(target, &data, &n));
    CHECK_STR(data, "new");
    mr_free(data);
    CHECK_OK(mr_dir_remove(path));
    CHECK_OK(mr_dir_remove(target));
}

// appends a byte to the file that is being read: it grows after its size was queried
static ssize_t growing_read(int fd, void *buf, size_t n)
{
    char path[64], name[256] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(readlink(path, name, sizeof name - 1) > 0);
    int more = open(name, O_WRONLY | O_APPEND);
    CHECK_INT(write(more, "+", 1), 1);
    close(more);
    return real->read(fd, buf, n);
}

static void small_files(const char *dir)
{
    char path[256], *data;
    size_t n;
    snprintf(path, sizeof path, "%s/f", dir);
    CHECK_OK(mr_file_replace(path, "seven b", 7));
    CHECK_OK(mr_file_read_small(path, 7, &data, &n));
    CHECK_STR(data, "seven b");
    mr_free(data);
    CHECK_FAILS(mr_file_read_small(path, 6, &data, &n), MR_E_FORMAT,
                "f: has 7 bytes, expected at most 6");
    char part[8];
    int fd = open(path, O_RDONLY);
    CHECK_OK(mr_file_read_at(fd, part, 1, 6, path));
    CHECK(part[0] == 'b');
    CHECK_FAILS(mr_file_read_at(fd, part, 5, 5, path), MR_E_FORMAT,
                "f: ends 3 bytes too early at byte 7");
    close(fd);
    real = mr_io_table();
    faulty = *real;
    faulty.read = growing_read;
    mr_io_replace(&faulty);
    CHECK_FAILS(mr_file_read_small(path, 7, &data, &n), MR_E_FORMAT,
                "f: has more than the expected 7 bytes");
    mr_io_replace(NULL);
    // a pipe without a writer is refused at once
    CHECK_OK(mr_dir_remove(path));
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_FAILS(mr_file_read_small(path, 7, &data, &n), MR_E_IO, "f: is not a regular file");
    CHECK_FAILS(mr_file_read_small("/dev/zero", 7, &data, &n), MR_E_IO, "is not a regular file");
    CHECK_FAILS(mr_file_read_small(dir, 7, &data, &n), MR_E_IO, "is not a regular file");
    CHECK_OK(mr_dir_remove(path));
}

int main(void)
{
    char dir[] = "/tmp/mr-spec-XXXXXX", deep[128], *data;
    size_t n;
    if (!mkdtemp(dir))
        return 1;
    replace_under_faults(dir);
    replace_what_is_there(dir);
    small_files(dir);
    snprintf(deep, sizeof deep, "%s/a/b/c", dir);
    CHECK_OK(mr_dir_make(deep));
    CHECK_OK(mr_dir_make(deep));
    CHECK(mr_path_exists(deep));
    CHECK_FAILS(mr_file_read_all(deep, &data, &n), MR_E_IO, "c");
    char below[160];
    snprintf(below, sizeof below, "%s/file", deep);
    CHECK_OK(mr_file_replace(below, "x", 1));
    CHECK_FAILS(mr_dir_make(below), MR_E_IO, "/file: cannot create directory: File exists");
    CHECK_FAILS(mr_file_read_all("/nowhere/x", &data, &n), MR_E_IO, "/nowhere/x");
    CHECK_FAILS(mr_file_replace("/nowhere/x", "x", 1), MR_E_IO,
                "/nowhere/x: cannot create: No such");
    char longest[4096];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    CHECK_FAILS(mr_file_replace(longest, "x", 1), MR_E_IO, "xxx");
    CHECK_OK(mr_dir_remove(dir));
    CHECK_OK(mr_dir_remove(dir));
    CHECK(!mr_path_exists(dir));
    return check_done();
}
