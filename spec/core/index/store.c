/* index/store: values are read back; a later writer continues after a killed writer's commits;
 * damage is reported. */
#include "check.h"
#include "clips.h"
#include "moonreel/index.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITEMS = 200, GROUP = 7 };

// value i: between nothing and some pages
static size_t value(int i, uint8_t out[20000])
{
    size_t n = i % 5 ? (size_t)(i * 97 % 20000) : 0;
    for (size_t k = 0; k < n; k++)
        out[k] = (uint8_t)(mr_mix((const uint64_t[]){(uint64_t)i, k / 8}, 2) >> k % 8 * 8);
    return n;
}

static size_t key(int i, char out[16])
{
    return (size_t)snprintf(out, 16, "key %d", i * 31 % ITEMS);
}

// writes from..to-1 in groups, each committed with its progress
static mr_status write_some(mr_store_writer *w, int from, int to)
{
    uint8_t bytes[20000];
    char name[16], at[16];
    for (int i = from; i < to; i++) {
        size_t n = value(i, bytes);
        MR_TRY(mr_store_writer_put(w, name, key(i, name), bytes, n));
        snprintf(at, sizeof at, "%d", i + 1);
        if ((i + 1) % GROUP == 0)
            MR_TRY(mr_store_writer_commit(w, "at", at));
    }
    return MR_OK;
}

// writes what is missing; the process is killed after `until` values
static int write_all(const char *path, int until)
{
    mr_store_writer *w;
    char *at = NULL;
    if (mr_store_writer_new(path, &w) != MR_OK || mr_store_writer_get_text(w, "at", &at) != MR_OK)
        return 1;
    int from = at ? atoi(at) : 0;
    mr_free(at);
    if (write_some(w, from, until) != MR_OK)
        return 1;
    if (until < ITEMS)
        raise(SIGKILL);
    mr_status st = mr_store_writer_finish(w);
    mr_store_writer_free(w);
    return st != MR_OK;
}

static mr_hash128 print_of(const char *path)
{
    mr_store *s;
    mr_hash128 h = {0};
    if (CHECK_OK(mr_store_open(path, true, &s))) {
        h = mr_store_fingerprint(s);
        mr_store_free(s);
    }
    return h;
}

static void all_come_back(const char *path)
{
    mr_store *s;
    uint8_t bytes[20000];
    char name[16];
    const void *got;
    size_t n;
    if (!CHECK_OK(mr_store_open(path, false, &s)))
        return;
    CHECK_INT(mr_store_values(s), ITEMS);
    for (int i = 0; i < ITEMS; i++) {
        size_t want = value(i, bytes);
        CHECK_OK(mr_store_get(s, name, key(i, name), &got, &n));
        CHECK(got && n == want && memcmp(got, bytes, n) == 0);
    }
    CHECK_OK(mr_store_get(s, "key", 3, &got, &n));
    CHECK(!got);
    CHECK_OK(mr_store_seek(s, "key 19", 6, &got, &n));
    CHECK(n == 6 && memcmp(got, "key 19", 6) == 0);
    CHECK_OK(mr_store_seek(s, "key 190", 7, &got, &n));
    CHECK(n == 7 && memcmp(got, "key 190", 7) == 0);
    CHECK_OK(mr_store_seek(s, "l", 1, &got, &n));
    CHECK(!got);
    CHECK_STR(mr_store_text(s, "at"), "196");
    CHECK(!mr_store_text(s, "nothing"));
    mr_store_free(s);
}

// a writer that is killed again and again ends with the same values
static void killed(const char *path, mr_hash128 whole)
{
    for (int until = 3; until <= ITEMS;
         until = until == ITEMS ? ITEMS + 1 : MR_MIN(until + 23, ITEMS)) {
        int status;
        pid_t pid = fork();
        if (!pid)
            _exit(write_all(path, until));
        waitpid(pid, &status, 0);
        if (until < ITEMS)
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    mr_hash128 h = print_of(path);
    CHECK(h.lo == whole.lo && h.hi == whole.hi);
    CHECK_FAILS(mr_store_writer_new(path, &(mr_store_writer *){NULL}), MR_E_USAGE,
                "already exists");
}

static void wrong_use(const char *path)
{
    mr_store_writer *w, *other;
    mr_store *s;
    char *text, name[MR_STORE_KEY_MAX + 1] = "";
    bool has;
    CHECK_FAILS(mr_store_open(path, false, &s), MR_E_DATA, "no finished store");
    if (!CHECK_OK(mr_store_writer_new(path, &w)))
        return;
    CHECK_FAILS(mr_store_writer_new(path, &other), MR_E_LOCK, "another process writes it");
    CHECK_FAILS(mr_store_writer_put(w, "", 0, "x", 1), MR_E_USAGE, "expected 1 to 256");
    CHECK_FAILS(mr_store_writer_put(w, name, sizeof name, "x", 1), MR_E_USAGE,
                "a key of 257 bytes");
    CHECK_OK(mr_store_writer_put(w, "a", 1, "x", 1));
    CHECK_FAILS(mr_store_writer_put(w, "a", 1, "y", 1), MR_E_USAGE, "has a value already");
    CHECK_OK(mr_store_writer_commit(w, "at", "1"));
    CHECK_FAILS(mr_store_writer_put(w, "a", 1, "y", 1), MR_E_USAGE, "has a value already");
    CHECK_OK(mr_store_writer_has(w, "b", 1, &has));
    CHECK(!has);
    // after a failed allocation no part of a value is kept
    static const uint8_t block[1 << 20];
    size_t waits = mr_store_writer_waiting(w);
    mr_alloc_fail_at(1);
    CHECK_INT(mr_store_writer_put(w, "b", 1, block, sizeof block), MR_E_MEMORY);
    mr_alloc_fail_at(0);
    CHECK_INT(mr_store_writer_waiting(w), waits);
    CHECK_OK(mr_store_writer_has(w, "b", 1, &has));
    CHECK(!has);
    mr_store_writer_free(w);
    CHECK_FAILS(mr_store_open(path, false, &s), MR_E_DATA, "no finished store");
    // the next one finds what was committed
    CHECK_OK(mr_store_writer_new(path, &w));
    CHECK_INT(mr_store_writer_values(w), 1);
    CHECK_OK(mr_store_writer_get_text(w, "at", &text));
    CHECK_STR(text, "1");
    mr_free(text);
    CHECK_OK(mr_store_writer_finish(w));
    CHECK_FAILS(mr_store_writer_finish(w), MR_E_USAGE, "the writer is closed");
    CHECK_FAILS(mr_store_writer_commit(w, "at", "2"), MR_E_USAGE, "the writer is closed");
    CHECK_FAILS(mr_store_writer_put(w, "c", 1, "x", 1), MR_E_USAGE, "the writer is closed");
    CHECK_FAILS(mr_store_writer_has(w, "a", 1, &has), MR_E_USAGE, "the writer is closed");
    CHECK_FAILS(mr_store_writer_get_text(w, "at", &text), MR_E_USAGE, "the writer is closed");
    mr_store_writer_free(w);
}

// each changed byte of a sealed file is detected, and none crashes the reader
static void damaged(const char *path)
{
    char file[500], part[400];
    struct stat about;
    mr_store *s;
    mr_store_writer *w;
    snprintf(file, sizeof file, "%s/data.mdb", path);
    snprintf(part, sizeof part, "%s.part", path);
    CHECK_INT(stat(file, &about), 0);
    int fd = open(file, O_RDWR);
    for (uint64_t i = 0; i < 60; i++) {
        off_t at = (off_t)(MR_MIX(i, 5) % (uint64_t)about.st_size);
        uint8_t was, now;
        CHECK_INT(pread(fd, &was, 1, at), 1);
        now = was ^ 64;
        CHECK_INT(pwrite(fd, &now, 1, at), 1);
        CHECK_FAILS(mr_store_open(path, true, &s), MR_E_DATA, "damaged between bytes");
        CHECK_INT(pwrite(fd, &was, 1, at), 1);
    }
    CHECK_INT(ftruncate(fd, about.st_size - 4096), 0);
    CHECK_FAILS(mr_store_open(path, false, &s), MR_E_DATA, "a torn copy");
    // nor does an unfinished one
    CHECK_INT(rename(path, part), 0);
    snprintf(file, sizeof file, "%s/data.sum", part);
    CHECK_INT(unlink(file), 0);
    CHECK_FAILS(mr_store_writer_new(path, &w), MR_E_DATA, "cut off");
    close(fd);
}

int main(void)
{
    char path[300], other[300];
    snprintf(path, sizeof path, "%s", clips_path("whole"));
    snprintf(other, sizeof other, "%s", clips_path("killed"));
    CHECK_INT(write_all(path, ITEMS), 0);
    mr_hash128 whole = print_of(path);
    CHECK(whole.lo && whole.hi);
    all_come_back(path);
    killed(other, whole);
    wrong_use(clips_path("wrong"));
    damaged(other);
    return check_done();
}
