/* index/local_copy: one process copies an index from a network file system to this host, and others
 * wait for it. A copy is complete or does not exist, whatever ends its maker.
 * Covers: core/index/local_copy.c */
#define _GNU_SOURCE
#include "check.h"
#include "index/store.h"
#include "rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 40000, READERS = 5 };

static char far[300], copies[300], mine[400];

// only the index is on the network
static const char *far_away(const char *path)
{
    return strstr(path, ".mrx") ? "NFS" : NULL;
}

/* ---- a file system that counts and fails ---- */

typedef struct counted {
    _Atomic int64_t bytes; // read in blocks
    _Atomic int64_t left;  // bytes that may be read or written; then it fails
} counted;
static counted *count;

static ssize_t counting_pread(int fd, void *buf, size_t n, int64_t at)
{
    ssize_t got = pread(fd, buf, n, at);
    count->bytes += got > 0 ? got : 0;
    return got;
}

static ssize_t failing_pread(int fd, void *buf, size_t n, int64_t at)
{
    if (at >= count->left) {
        errno = EIO;
        return -1;
    }
    return pread(fd, buf, MR_MIN(n, (size_t)(count->left - at)), at);
}

static ssize_t full_write(int fd, const void *buf, size_t n)
{
    if (!count->left) {
        errno = ENOSPC;
        return -1;
    }
    n = MR_MIN(n, (size_t)count->left);
    count->left -= (int64_t)n;
    return write(fd, buf, n);
}

static int64_t no_bytes(const char *path)
{
    (void)path;
    return 100;
}

/* ---- readers ---- */

static bool reads_all(void)
{
    mr_index *ix = NULL;
    mr_index_reader *reader = NULL;
    mr_row row;
    bool good =
        mr_index_open(far, false, &ix) == MR_OK && mr_index_reader_new(ix, &reader) == MR_OK;
    for (uint64_t i = 0; good && i < ROWS; i += 97)
        good = mr_index_row(reader, i, &row) == MR_OK && strncmp(row.path, "clips/", 6) == 0;
    mr_index_reader_free(reader);
    mr_index_unref(ix);
    return good;
}

// how many names in the copies' folder have this end
static int copies_that(const char *end)
{
    char **names;
    int n, found = 0;
    if (mr_dir_list(mine, &names, &n) != MR_OK)
        return 0;
    for (int i = 0; i < n; i++)
        found += strcmp(names[i] + strlen(names[i]) - strlen(end), end) == 0;
    mr_dir_list_free(names, n);
    return found;
}

// the path of the first file there
static void first_copy(char path[900])
{
    char **names;
    int n;
    CHECK_OK(mr_dir_list(mine, &names, &n));
    snprintf(path, 900, "%s/%s", mine, names[0]);
    mr_dir_list_free(names, n);
}

static int64_t far_bytes(void)
{
    struct stat s;
    char file[400];
    snprintf(file, sizeof file, "%s/data.mdb", far);
    return stat(file, &s) ? -1 : (int64_t)s.st_size;
}

static void one_copies_for_all(void)
{
    pid_t pids[READERS];
    mr_io io = *mr_io_table();
    io.pread = counting_pread;
    mr_io_replace(&io);
    count->bytes = 0;
    for (int i = 0; i < READERS; i++)
        if (!(pids[i] = fork()))
            _exit(reads_all() ? 0 : 1);
    for (int i = 0; i < READERS; i++) {
        int how = 1;
        CHECK_INT(waitpid(pids[i], &how, 0), pids[i]);
        CHECK_INT(how, 0);
    }
    mr_io_replace(NULL);
    // each block was read once, by one of them
    CHECK_INT(count->bytes, far_bytes());
    CHECK_INT(copies_that(".mdb"), 1);
    CHECK_INT(copies_that(".part"), 0);
    // and serves later ones too
    CHECK(reads_all());
    CHECK_INT(count->bytes, far_bytes());
}

static void forget_copies(void)
{
    CHECK_OK(mr_dir_remove(mine));
}

// files of a dead process, of this index or of another one, are reused or removed
static void left_overs(void)
{
    char part[900], other[500];
    first_copy(part);
    CHECK_INT(unlink(part), 0);
    strcpy(strrchr(part, '.'), ".part");
    snprintf(other, sizeof other, "%s/0000.part", mine);
    CHECK_OK(mr_file_replace(part, "half of it, and other bytes", 27));
    CHECK_OK(mr_file_replace(other, "half", 4));
    CHECK(reads_all());
    CHECK_INT(copies_that(".part"), 0);
    CHECK_INT(copies_that(".mdb"), 1);
    // a copy that was cut off is made again
    strcpy(strrchr(part, '.'), ".mdb");
    CHECK_INT(truncate(part, 100000), 0);
    CHECK(reads_all());
    struct stat s;
    CHECK_INT(stat(part, &s), 0);
    CHECK_INT(s.st_size, far_bytes());
}

static int64_t looks;
static int64_t passing(void)
{
    return looks += 1000000000;
}
static void no_sleep(int64_t ns)
{
    (void)ns;
}

// a living process that hangs is not waited for for ever
static void waits_within_bounds(void)
{
    char part[900];
    mr_index *ix;
    first_copy(part);
    CHECK_INT(unlink(part), 0);
    strcpy(strrchr(part, '.'), ".part");
    int fd = open(part, O_RDWR | O_CREAT, 0600);
    CHECK_INT(write(fd, "12345", 5), 5);
    CHECK_INT(flock(fd, LOCK_EX), 0);
    mr_clock clock = *mr_clock_table();
    clock.monotonic_ns = passing, clock.sleep_ns = no_sleep;
    mr_clock_replace(&clock);
    CHECK_FAILS(mr_index_open(far, false, &ix), MR_E_IO, "another process copies it to");
    CHECK(strstr(mr_error_last()->text, "has been stuck at byte 5 for 120 s") != NULL);
    mr_interrupt_set(true);
    CHECK_FAILS(mr_index_open(far, false, &ix), MR_E_STOPPED, "");
    mr_interrupt_set(false);
    mr_clock_replace(NULL);
    // it dies
    close(fd);
    CHECK(reads_all());
}

static void failing_disks(void)
{
    mr_io io = *mr_io_table();
    mr_index *ix;
    forget_copies();
    io.pread = failing_pread;
    count->left = 5000000;
    mr_io_replace(&io);
    CHECK_FAILS(mr_index_open(far, false, &ix), MR_E_IO, "data.mdb");
    CHECK(strstr(mr_error_last()->text, "5000000") != NULL);
    CHECK_INT(copies_that("t"), 0);
    mr_io_replace(NULL);
    io = *mr_io_table();
    io.write = full_write;
    count->left = 1000000;
    mr_io_replace(&io);
    CHECK_FAILS(mr_index_open(far, false, &ix), MR_E_IO, "No space left");
    mr_io_replace(NULL);
    CHECK_INT(copies_that("t"), 0);
    CHECK_INT(copies_that("b"), 0);
    // a disk that reports too little room is not used: this index is small enough for memory
    io = *mr_io_table();
    io.free_bytes = no_bytes;
    mr_io_replace(&io);
    CHECK(reads_all());
    mr_io_replace(NULL);
    CHECK_INT(copies_that("b"), 0);
}

// without room, unused copies are removed, also a damaged one of the same index; one that is in use
// stays
static void makes_room(void)
{
    char used[500], unused[500], damaged[900];
    mr_io io = *mr_io_table();
    CHECK(reads_all());
    CHECK_INT(copies_that(".mdb"), 1);
    first_copy(damaged);
    CHECK_INT(truncate(damaged, 100000), 0);
    io.free_bytes = no_bytes;
    mr_io_replace(&io);
    CHECK(reads_all());
    CHECK(!mr_path_exists(damaged));
    snprintf(used, sizeof used, "%s/1.mdb", mine);
    snprintf(unused, sizeof unused, "%s/2.mdb", mine);
    CHECK_OK(mr_file_replace(used, "x", 1));
    CHECK_OK(mr_file_replace(unused, "x", 1));
    int fd = open(used, O_RDONLY);
    CHECK_INT(flock(fd, LOCK_SH), 0);
    CHECK_OK(rows_build(far, 2, ROWS, 0));
    CHECK(reads_all());
    mr_io_replace(NULL);
    CHECK(mr_path_exists(used));
    CHECK(!mr_path_exists(unused));
    close(fd);
}

static void damaged(void)
{
    char file[400];
    mr_index *ix;
    snprintf(file, sizeof file, "%s/data.mdb", far);
    int fd = open(file, O_WRONLY);
    CHECK_INT(pwrite(fd, "zzzzzz", 6, 4500000), 6);
    close(fd);
    CHECK_FAILS(mr_index_open(far, false, &ix), MR_E_DATA,
                "data.mdb: damaged between bytes 4194304 and ");
    CHECK_INT(copies_that(".part"), 0);
    CHECK_INT(truncate(file, 4000000), 0);
    CHECK_FAILS(mr_index_open(far, false, &ix), MR_E_DATA, "a torn copy");
}

// a folder that another user could have made is not written to
static void only_ones_own(void)
{
    CHECK_OK(rows_build(far, 3, ROWS, 0));
    forget_copies();
    CHECK_OK(mr_dir_make(clips_path("elsewhere")));
    CHECK_INT(symlink(clips_path("elsewhere"), mine), 0);
    CHECK(reads_all());
    CHECK_INT(clips_count("elsewhere"), 1);
    CHECK_INT(rmdir(clips_path("elsewhere")), 0);
    CHECK_INT(unlink(mine), 0);
    CHECK_INT(mkdir(mine, 0777), 0);
    CHECK_INT(chmod(mine, 0777), 0);
    CHECK(reads_all());
    CHECK_INT(copies_that(".mdb"), 0);
}

int main(void)
{
    count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(far, sizeof far, "%s", clips_path("far.mrx"));
    snprintf(copies, sizeof copies, "%s", clips_path("copies"));
    snprintf(mine, sizeof mine, "%s/moonreel-%u", copies, (unsigned)geteuid());
    CHECK_OK(mr_dir_make(copies));
    setenv("MOONREEL_COPIES", copies, 1);
    if (!CHECK_OK(rows_build(far, 1, ROWS, 0)))
        return check_done();
    index_network = far_away;
    CHECK(far_bytes() > 5000000);
    one_copies_for_all();
    left_overs();
    waits_within_bounds();
    failing_disks();
    makes_room();
    damaged();
    only_ones_own();
    return check_done();
}
