/* index/spill: spilled records are read back in their order, and errors of the disk. */
#include "check.h"
#include "clips.h"
#include "fault.h"
#include "index/sort.h"

#include <signal.h>
#include <sys/wait.h>

enum { RECORDS = 3000, LARGE = 70000 };

// record i: up to 300 bytes, some larger than a block
static size_t make(uint64_t i, uint8_t *out)
{
    size_t n = i % 500 == 7 ? LARGE + i : MR_MIX(i) % 300;
    for (size_t k = 0; k < n; k++)
        out[k] = (uint8_t)MR_MIX(i, k / 8);
    return n;
}

static uint8_t record[LARGE + RECORDS];
static uint64_t places[RECORDS];

static mr_status fill(index_spill *s, int n)
{
    for (int i = 0; i < n; i++)
        MR_TRY(index_spill_put(s, record, make((uint64_t)i, record), &places[i]));
    return MR_OK;
}

static bool is_next(index_spill_reader *r, int i)
{
    const uint8_t *got;
    size_t n, want = make((uint64_t)i, record);
    uint64_t place;
    return CHECK_OK(index_spill_next(r, &got, &n, &place)) && CHECK(got != NULL) &&
           CHECK_INT(n, want) && CHECK(memcmp(got, record, n) == 0) && CHECK(place == places[i]);
}

static void come_back(void)
{
    static const int sizes[] = {0, 1, 40, RECORDS};
    for (size_t k = 0; k < MR_COUNT(sizes); k++) {
        index_spill *s;
        const uint8_t *got;
        size_t n;
        uint64_t place;
        CHECK_OK(index_spill_new(clips_path("x.mrx"), &s));
        if (!CHECK_OK(fill(s, sizes[k])))
            return;
        for (int i = 1; i < sizes[k]; i++)
            CHECK(places[i] > places[i - 1]);
        index_spill_reader r = index_spill_read(s, 0, UINT64_MAX);
        for (int i = 0; i < sizes[k] && is_next(&r, i); i++) {}
        for (int again = 0; again < 2; again++) {
            CHECK_OK(index_spill_next(&r, &got, &n, &place));
            CHECK(!got);
        }
        // any of them by its position, and those after it
        for (int i = sizes[k] - 2; i >= 0; i -= 17) {
            index_spill_seek(&r, places[i]);
            if (!is_next(&r, i) || !is_next(&r, i + 1))
                break;
        }
        index_spill_reader_fini(&r);
        // no name exists for the file
        CHECK_INT(clips_count("x.mrx"), 0);
        index_spill_free(s);
    }
}

// blocks that were ended by hand are read one by one
static void parts(void)
{
    index_spill *s;
    uint64_t ends[3], place;
    const uint8_t *got;
    size_t n;
    CHECK_OK(index_spill_new(clips_path("x.mrx"), &s));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(index_spill_put(s, &i, sizeof i, &place));
        CHECK_OK(index_spill_cut(s, &ends[i]));
        CHECK_INT(ends[i], i + 1);
    }
    CHECK_OK(index_spill_cut(s, &ends[2]));
    CHECK_INT(ends[2], 3);
    for (int i = 0; i < 3; i++) {
        int value;
        index_spill_reader r = index_spill_read(s, (uint64_t)i, (uint64_t)i + 1);
        CHECK_OK(index_spill_next(&r, &got, &n, &place));
        if (CHECK(got && n == sizeof value))
            CHECK_INT(memcpy(&value, got, n) ? value : -1, i);
        CHECK_OK(index_spill_next(&r, &got, &n, &place));
        CHECK(!got);
        index_spill_reader_fini(&r);
    }
    index_spill_free(s);
}

// ---- the folder ----

static char opened[3][4200];
static int opened_flags[3], n_opened;
static bool nameless;

static int noting_open(const char *path, int flags, int mode)
{
    if (n_opened < 3) {
        snprintf(opened[n_opened], sizeof opened[0], "%s", path);
        opened_flags[n_opened++] = flags;
    }
    if (!nameless && flags & O_CREAT)
        CHECK_INT(flags & O_EXCL, 0);
    errno = EOPNOTSUPP;
    return nameless || flags & O_CREAT ? fault_real.open(path, flags, mode) : -1;
}

static void where(void)
{
    char far[400];
    mr_io io = fault_real = *mr_io_table();
    io.open = noting_open;
    mr_io_replace(&io);
    snprintf(far, sizeof far, "%s", clips_path("not/there/yet.mrx"));
    for (int round = 0; round < 2; round++) {
        index_spill *s;
        nameless = round == 0, n_opened = 0;
        CHECK_OK(index_spill_new(far, &s));
        if (!CHECK_OK(fill(s, RECORDS)))
            return;
        // the nearest existing folder; without nameless files a file has a name for a moment
        CHECK_INT(n_opened, 1 + round);
        CHECK_STR(opened[0], clips_dir());
        if (round) {
            char name[500];
            snprintf(name, sizeof name, "%s/yet.mrx.tmp-%ld.spill", clips_dir(), (long)getpid());
            CHECK_STR(opened[1], name);
        }
        CHECK_INT(clips_count("yet.mrx"), 0);
        CHECK_INT(mr_path_exists(clips_path("not")), 0);
        index_spill_reader r = index_spill_read(s, 0, UINT64_MAX);
        is_next(&r, 0);
        index_spill_reader_fini(&r);
        index_spill_free(s);
    }
    mr_io_replace(NULL);
}

static void killed(void)
{
    int pipes[2];
    char byte;
    CHECK_INT(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        index_spill *s;
        mr_status st = index_spill_new(clips_path("killed.mrx"), &s);
        if (st == MR_OK)
            st = fill(s, RECORDS);
        _exit(st || write(pipes[1], "x", 1) != 1 || pause());
    }
    CHECK_INT(read(pipes[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_INT(clips_count("killed.mrx"), 0);
}

// ---- errors ----

static void full_disk(void)
{
    long before = 0;
    fault_install();
    for (long at = 1;; at++) {
        index_spill *s;
        fault_at(at, FAULT_FULL, 0);
        CHECK_OK(index_spill_new(clips_path("x.mrx"), &s));
        mr_status st = fill(s, RECORDS);
        if (st != MR_OK)
            CHECK_FAILS(st, MR_E_IO,
                        at == 1 ? "No space left"
                                : "where the temporary file for rows is; try: free space");
        index_spill_free(s);
        fault_clear();
        if (st == MR_OK)
            break;
        before = at;
    }
    CHECK(before > 5);
    mr_io_replace(NULL);
}

static int64_t hurt_at;
static ssize_t hurting_pread(int fd, void *buf, size_t n, int64_t at)
{
    ssize_t got = pread(fd, buf, n, at);
    if (hurt_at >= at && hurt_at < at + got)
        ((char *)buf)[hurt_at - at] ^= 4;
    return hurt_at < 0 && at > 100000 ? 0 : got; // the file became shorter
}

static void damaged(void)
{
    index_spill *s;
    const uint8_t *got;
    size_t n;
    uint64_t place;
    mr_io io = *mr_io_table();
    io.pread = hurting_pread;
    CHECK_OK(index_spill_new(clips_path("x.mrx"), &s));
    CHECK_OK(fill(s, RECORDS));
    mr_io_replace(&io);
    static const int64_t places_of_damage[] = {0, 5, 70000, 300000, -1};
    for (size_t k = 0; k < MR_COUNT(places_of_damage); k++) {
        hurt_at = places_of_damage[k];
        index_spill_reader r = index_spill_read(s, 0, UINT64_MAX);
        mr_status st;
        do
            st = index_spill_next(&r, &got, &n, &place);
        while (st == MR_OK && got);
        CHECK_FAILS(st, MR_E_IO, "rows in the temporary file there are damaged (bytes ");
        index_spill_reader_fini(&r);
    }
    // bytes that are damaged once may be whole when they are read again
    index_spill_reader r = index_spill_read(s, 0, UINT64_MAX);
    hurt_at = 5;
    CHECK_INT(index_spill_next(&r, &got, &n, &place), MR_E_IO);
    hurt_at = (int64_t)1 << 40;
    is_next(&r, 0);
    index_spill_reader_fini(&r);
    mr_io_replace(NULL);
    index_spill_free(s);
}

static void interrupted(void)
{
    index_spill *s;
    CHECK_OK(index_spill_new(clips_path("x.mrx"), &s));
    mr_interrupt_set(true);
    CHECK_INT(fill(s, RECORDS), MR_E_STOPPED);
    mr_interrupt_set(false);
    index_spill_free(s);
}

static void failing_memory(void)
{
    int failures = 0;
    for (int n = 1; n < 200; n++) {
        index_spill *s = NULL;
        const uint8_t *got;
        size_t bytes;
        uint64_t place;
        mr_alloc_fail_at(n);
        mr_status st = index_spill_new(clips_path("x.mrx"), &s);
        if (st == MR_OK)
            st = fill(s, 200);
        index_spill_reader r = index_spill_read(s, 0, UINT64_MAX);
        while (st == MR_OK) {
            st = index_spill_next(&r, &got, &bytes, &place);
            if (!got)
                break;
        }
        mr_alloc_fail_at(0);
        index_spill_reader_fini(&r);
        index_spill_free(s);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
        failures++;
    }
    CHECK(failures > 4 && failures < 100);
}

int main(void)
{
    come_back();
    parts();
    where();
    killed();
    full_disk();
    damaged();
    interrupted();
    failing_memory();
    return check_done();
}
