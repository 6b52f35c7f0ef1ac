/* data/index, builder, sum, pack: written rows are read back; kills, cuts and flipped bits are
 * detected.
 * Covers: core/index/builder.c core/index/note.c core/index/pack.c core/index/sum.c
 * core/index/tables.c */
#include "check.h"
#include "rows.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static void round_trip(void)
{
    enum { N = 9000 };
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("a.mrx"));
    mr_index *ix;
    mr_index_reader *reader;
    // a map that has to grow on the way
    if (!CHECK_OK(rows_build(path, 1, N, 256 << 10)) || !CHECK_OK(mr_index_open(path, true, &ix)))
        return;
    mr_index_facts f = mr_index_get_facts(ix);
    CHECK_INT(f.rows, N);
    CHECK_INT(f.n_roots, 1);
    CHECK_STR(mr_index_root(ix, 0), "/nowhere");
    CHECK_STR(mr_index_meta(ix, "state"), "sealed");
    if (!CHECK_OK(mr_index_reader_new(ix, &reader)))
        return;
    uint64_t mismatches = 0;
    for (uint64_t i = 0; i < N; i += 7) {
        char p[64], text[64], file[200];
        mr_caption caption;
        int64_t keys[4];
        mr_row want = rows_make(1, i, p, text, &caption, keys), got;
        uint64_t id = 0;
        const mr_hot *hot;
        int32_t n;
        if (!CHECK_OK(mr_index_row(reader, i, &got)) ||
            !CHECK_OK(mr_index_file(ix, &got, file, sizeof file)))
            break;
        mismatches += strcmp(got.path, p) || strcmp(got.captions[0].text, text) ||
                      got.info.frames != want.info.frames || got.info.width != want.info.width ||
                      got.info.bytes != want.info.bytes || got.info.n_keys != 4 ||
                      memcmp(got.info.key_pts, keys, sizeof keys) || got.key.lo != want.key.lo ||
                      got.key.hi != want.key.hi || strcmp(got.info.codec, "h264") ||
                      got.end_us != -1 || strncmp(file, "/nowhere/clips/", 15);
        CHECK_OK(mr_index_find(reader, want.key, &id));
        mismatches += id != i;
        CHECK_OK(mr_index_hot(reader, i / MR_HOT_ROWS, &hot, &n));
        const mr_hot *h = &hot[i % MR_HOT_ROWS];
        mismatches += h->key_lo != want.key.lo || h->frames != (uint32_t)want.info.frames ||
                      h->fps_milli != 25000 || h->width != want.info.width ||
                      h->height != want.info.height || h->flags != want.info.flags ||
                      h->duration_ms != (uint32_t)want.info.duration_ms || h->source != 0;
    }
    CHECK_INT(mismatches, 0);
    mr_row row;
    uint64_t id;
    const mr_hot *hot;
    int32_t n;
    CHECK_FAILS(mr_index_row(reader, N, &row), MR_E_RANGE, "of an index of 9000 rows");
    CHECK_FAILS(mr_index_find(reader, (mr_hash128){1, 2}, &id), MR_E_RANGE, "no sample with key");
    CHECK_FAILS(mr_index_hot(reader, 3, &hot, &n), MR_E_RANGE, "chunk 3");
    mr_index_reader_free(reader);
    mr_index_unref(ix);
}

// rows in another order: the same set, another order
static void fingerprints(void)
{
    mr_index_facts f[5];
    for (int round = 0; round < 5; round++) {
        mr_index_builder *b;
        uint16_t root;
        mr_index *ix;
        if (!CHECK_OK(mr_index_builder_new(clips_path("fp.mrx"), NULL, &b)))
            return;
        // the folder is not part of it, nor the number of the root
        if (round == 1)
            CHECK_OK(mr_index_builder_root(b, "/first", &root));
        CHECK_OK(mr_index_builder_root(b, round == 1 ? "/elsewhere" : "/nowhere", &root));
        for (uint64_t i = 0; i < 50; i++) {
            char p[64], text[64];
            mr_caption caption;
            int64_t keys[4];
            mr_row row = rows_make(1, round == 2 ? 49 - i : i, p, text, &caption, keys);
            row.root = root;
            if (round == 3 && i == 20)
                *text = '!';
            if (round == 4 && i == 20)
                row.info.bytes++;
            CHECK_OK(mr_index_builder_add(b, &row));
        }
        CHECK_OK(mr_index_builder_finish(b));
        mr_index_builder_free(b);
        CHECK_OK(mr_index_open(clips_path("fp.mrx"), false, &ix));
        f[round] = mr_index_get_facts(ix);
        mr_index_unref(ix);
    }
    CHECK(memcmp(&f[0].fp_order, &f[1].fp_order, 16) == 0);
    CHECK(memcmp(&f[0].fp_set, &f[2].fp_set, 16) == 0);
    CHECK(memcmp(&f[0].fp_order, &f[2].fp_order, 16) != 0);
    // captions and file sizes are part of it
    for (int round = 3; round < 5; round++) {
        CHECK(memcmp(&f[0].fp_order, &f[round].fp_order, 16) != 0);
        CHECK(memcmp(&f[0].fp_set, &f[round].fp_set, 16) != 0);
    }
}

static void duplicates(void)
{
    mr_index_builder *b;
    char p[64], text[64];
    mr_caption caption;
    int64_t keys[4];
    if (!CHECK_OK(mr_index_builder_new(clips_path("dup.mrx"), NULL, &b)))
        return;
    for (uint64_t i = 0; i < 20; i++) {
        mr_row row = rows_make(1, i == 17 ? 3 : i, p, text, &caption, keys), bad = row;
        CHECK_OK(mr_index_builder_add(b, &row));
        bad.info.width = i ? MR_CLIP_SHOWN_MAX + 1 : 0;
        CHECK_FAILS(mr_index_builder_add(b, &bad), MR_E_RANGE, "expected 1 to 65535 a side");
    }
    CHECK_FAILS(
        mr_index_builder_finish(b), MR_E_DATA,
        "two rows are the same sample: clips/000003.mp4 (row 4) and clips/000003.mp4 (row 18)");
    mr_index_builder_free(b);
    CHECK_INT(mr_path_exists(clips_path("dup.mrx")), 0);
    CHECK_FAILS(rows_build(clips_path("none.mrx"), 1, 0, 0), MR_E_DATA, "no rows");
}

// a builder killed at any moment leaves the old index whole, and the next one removes its rest
static void killed(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("kill.mrx"));
    if (!CHECK_OK(rows_build(path, 1, 500, 0)))
        return;
    int before = clips_count(""), finished = 0, old = 0;
    for (int round = 0; round < 12; round++) {
        pid_t child = fork();
        if (child == 0)
            _exit(rows_build(path, 2, 3000, 0) != MR_OK);
        struct timespec t = {0, 1000000L + 6000000L * round};
        nanosleep(&t, NULL);
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        mr_index *ix;
        if (!CHECK_OK(mr_index_open(path, true, &ix)))
            return;
        uint64_t rows = mr_index_get_facts(ix).rows;
        CHECK(rows == 500 || rows == 3000);
        finished += rows == 3000, old += rows == 500;
        mr_index_unref(ix);
        if (rows == 3000)
            CHECK_OK(rows_build(path, 1, 500, 0));
    }
    printf("killed builders: %d before the rename, %d after it\n", old, finished);
    CHECK_OK(rows_build(path, 1, 500, 0));
    CHECK_INT(clips_count(""), before);
}

static void change(const char *index, const char *name, int64_t at, int64_t length)
{
    char file[400], *data;
    size_t n;
    snprintf(file, sizeof file, "%s/%s", index, name);
    CHECK_OK(mr_file_read_all(file, &data, &n));
    if (at >= 0)
        data[(size_t)at % n] ^= 0x10;
    int fd = open(file, O_WRONLY | O_TRUNC);
    CHECK(fd >= 0 && write(fd, data, length >= 0 ? n - (size_t)length : n) > 0);
    // later than the build by more than the resolution of file times
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) + 10}};
    CHECK_INT(futimens(fd, times), 0);
    close(fd);
    mr_free(data);
}

static void damage(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("hurt.mrx"));
    mr_index *ix;
    uint64_t seed = 3;
    for (int round = 0; round < 8; round++) {
        if (!CHECK_OK(rows_build(path, 1, 3000, 0)))
            return;
        change(path, "data.mdb", (int64_t)((seed = MR_MIX(seed)) >> 8), -1);
        // the file's time differs from the recorded one: all blocks are verified
        CHECK_FAILS(mr_index_open(path, false, &ix), MR_E_DATA, "damaged between bytes");
    }
    CHECK_OK(rows_build(path, 1, 3000, 0));
    change(path, "data.mdb", -1, 4096);
    CHECK_FAILS(mr_index_open(path, false, &ix), MR_E_DATA, "a torn copy");
    CHECK_OK(rows_build(path, 1, 3000, 0));
    change(path, "data.sum", 20, -1);
    CHECK_FAILS(mr_index_open(path, false, &ix), MR_E_DATA, "data.sum: is damaged");
    char sum[400];
    snprintf(sum, sizeof sum, "%s/data.sum", path);
    unlink(sum);
    CHECK_FAILS(mr_index_open(path, false, &ix), MR_E_DATA, "is not sealed");
    // one that cannot be read is not missing
    CHECK(mkdir(sum, 0700) == 0);
    CHECK_FAILS(mr_index_open(path, false, &ix), MR_E_IO, "data.sum: ");
    rmdir(sum);
    // a good copy with a new time is verified once and then known
    CHECK_OK(rows_build(path, 1, 3000, 0));
    change(path, "data.mdb", -1, -1);
    CHECK_OK(mr_index_open(path, false, &ix));
    mr_index_unref(ix);
    snprintf(sum, sizeof sum, "%s/data.seen", path);
    CHECK(mr_path_exists(sum));
    // and may be replaced by another one as the first may
    CHECK_OK(rows_build(path, 1, 3000, 0));
    CHECK(!mr_path_exists(sum));
    CHECK_FAILS(mr_index_open(clips_path("missing.mrx"), false, &ix), MR_E_DATA,
                "no such index; try: moonreel data ingest");
}

// an index that is cut off while it is open ends the program with an error, not with a signal
static void cut_while_open(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("cut.mrx"));
    if (!CHECK_OK(rows_build(path, 1, 6000, 0)))
        return;
    int out[2];
    CHECK_INT(pipe(out), 0);
    pid_t child = fork();
    if (child == 0) {
        mr_index *ix;
        mr_index_reader *reader;
        mr_row row;
        char file[400];
        dup2(out[1], 2);
        if (mr_index_open(path, false, &ix) || mr_index_reader_new(ix, &reader))
            _exit(90);
        snprintf(file, sizeof file, "%s/data.mdb", path);
        if (truncate(file, 8192))
            _exit(91);
        for (uint64_t i = 0; i < 6000; i++)
            if (mr_index_row(reader, i, &row))
                _exit(92);
        _exit(93);
    }
    close(out[1]);
    char text[1000];
    ssize_t n, used = 0; // the message arrives in pieces
    while ((n = read(out[0], text + used, sizeof text - 1 - (size_t)used)) > 0)
        used += n;
    text[used] = 0;
    close(out[0]);
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 4);
    CHECK(strstr(text, "cut.mrx/data.mdb: cannot be read at byte") != NULL);
}

static int writes_left;
static ssize_t full_write(int fd, const void *data, size_t n)
{
    if (writes_left-- > 0)
        return write(fd, data, n);
    errno = ENOSPC;
    return -1;
}

static void full_disk(void)
{
    int before = clips_count("");
    mr_io io = *mr_io_table();
    io.write = full_write;
    mr_io_replace(&io);
    for (writes_left = 0; writes_left < 2;) {
        int left = writes_left;
        CHECK_FAILS(rows_build(clips_path("full.mrx"), 1, 100, 0), MR_E_IO, "No space left");
        writes_left = left + 1;
    }
    mr_io_replace(NULL);
    CHECK_INT(clips_count(""), before);
}

static void failing_memory(void)
{
    int before = clips_count(""), failures = 0;
    for (int n = 1; n < 400; n++) {
        mr_alloc_fail_at(n);
        mr_status st = rows_build(clips_path("mem.mrx"), 1, 5, 0);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
        failures++;
    }
    CHECK(failures > 5);
    CHECK_INT(clips_count(""), before + 1);
    for (int n = 1; n < 400; n++) {
        mr_index *ix;
        mr_index_reader *reader = NULL;
        mr_row row;
        mr_alloc_fail_at(n);
        mr_status st = mr_index_open(clips_path("mem.mrx"), false, &ix);
        if (st == MR_OK) {
            st = mr_index_reader_new(ix, &reader);
            if (st == MR_OK)
                st = mr_index_row(reader, 2, &row);
            mr_index_reader_free(reader);
            mr_index_unref(ix);
        }
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
    }
}

int main(void)
{
    round_trip();
    fingerprints();
    duplicates();
    killed();
    damage();
    cut_while_open();
    full_disk();
    failing_memory();
    return check_done();
}
