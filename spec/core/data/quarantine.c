/* data/quarantine: which samples are left out from the next epoch on; the list survives restarts
 * and torn lines. */
#include "check.h"
#include "clips.h"
#include "data/room.h"

static const mr_hash128 order = {1, 2}, foreign = {3, 4};

static void add(quarantine *q, uint64_t key, uint64_t epoch, int attempt, mr_fault fault)
{
    mr_row row = {.id = key, .key = {.lo = key, .hi = 9}, .path = "a \"clip\".mp4"};
    quarantine_event e = {.key_lo = key, .epoch = epoch, .attempt = attempt, .fault = fault};
    CHECK_OK(quarantine_add(q, &e, &row, "why\nit failed"));
}

static int64_t excluded(const quarantine *q, uint64_t epoch, uint64_t *first)
{
    uint64_t *keys, n;
    CHECK_OK(quarantine_excluded(q, epoch, &keys, &n));
    if (n && first)
        *first = keys[0];
    mr_free(keys);
    return (int64_t)n;
}

static int lines(const char *path)
{
    char *text;
    size_t n;
    int count = 0;
    CHECK_OK(mr_file_read_all(path, &text, &n));
    for (char *p = text; *p; p++)
        count += *p == '\n';
    mr_free(text);
    return count;
}

static const mr_io *real;
static ssize_t short_write(int fd, const void *buf, size_t n)
{
    return real->write(fd, buf, n / 2);
}

// the disk is full within a line and has room again: only that line is lost
static void torn_write(const char *path)
{
    quarantine *q;
    real = mr_io_table();
    mr_io io = *real;
    io.write = short_write;
    CHECK_OK(quarantine_open(path, order, "", &q));
    mr_io_replace(&io);
    add(q, 90, 2, 1, MR_FAULT_SHORT);
    mr_io_replace(NULL);
    add(q, 91, 2, 1, MR_FAULT_SHORT);
    add(q, 91, 2, 2, MR_FAULT_SHORT);
    // it counts nevertheless
    add(q, 90, 2, 2, MR_FAULT_SHORT);
    CHECK_INT(excluded(q, 3, NULL), 5);
    quarantine_close(q);
    CHECK_OK(quarantine_open(path, order, "", &q));
    CHECK_INT(excluded(q, 3, NULL), 4);
    quarantine_close(q);
}

// the left-out samples are part of the checkpoint, whatever happened to the file
static void checkpoints(void)
{
    quarantine *q;
    char *text;
    if (!CHECK_OK(quarantine_open(NULL, order, "", &q)))
        return;
    CHECK_OK(quarantine_text(q, 0, &text));
    CHECK_STR(text, "");
    mr_free(text);
    for (uint64_t key = 0xabc0; key < 0xabc3; key++)
        for (int attempt = 1; attempt < 3; attempt++)
            add(q, key, key - 0xabc0, attempt, MR_FAULT_CORRUPT);
    // epoch 0 excluded one, epoch 1 another; events of epoch 2 are from decoding ahead
    CHECK_OK(quarantine_text(q, 1, &text));
    quarantine_close(q);
    CHECK_STR(text, "000000000000abc0 +000000000000abc1");
    CHECK_OK(quarantine_open(NULL, order, "", &q));
    CHECK_OK(quarantine_take(q, 1, text));
    mr_free(text);
    uint64_t first;
    CHECK_INT(excluded(q, 1, &first), 1);
    CHECK_INT(first, 0xabc0);
    CHECK_INT(excluded(q, 2, NULL), 2);
    // later failures are added; past failures that the checkpoint did not know do not count
    add(q, 0xabc9, 0, 1, MR_FAULT_CORRUPT);
    add(q, 0xabc9, 0, 2, MR_FAULT_CORRUPT);
    add(q, 5, 2, 1, MR_FAULT_CORRUPT);
    add(q, 5, 2, 2, MR_FAULT_CORRUPT);
    CHECK_INT(excluded(q, 1, NULL), 1);
    CHECK_INT(excluded(q, 3, &first), 4);
    CHECK_INT(first, 5);
    quarantine_close(q);
    static const char *const damaged[] = {"00",
                                          "000000000000abc0,",
                                          "000000000000abc0 ++",
                                          "000000000000abc1 000000000000abc0",
                                          "000000000000ABC1",
                                          "000000000000abc1 "
                                          "00000000000000abc2"};
    for (size_t i = 0; i < MR_COUNT(damaged); i++) {
        CHECK_OK(quarantine_open(NULL, order, "", &q));
        CHECK_FAILS(quarantine_take(q, 1, damaged[i]), MR_E_FORMAT, "samples left out is damaged");
        quarantine_close(q);
    }
}

int main(void)
{
    char path[300];
    quarantine *q;
    uint64_t first = 0;
    snprintf(path, sizeof path, "%s", clips_path("q.jsonl"));
    if (!CHECK_OK(quarantine_open(path, order, "", &q)))
        return check_done();
    add(q, 50, 0, 1, MR_FAULT_CORRUPT);
    add(q, 50, 0, 2, MR_FAULT_CORRUPT);
    add(q, 20, 1, 1, MR_FAULT_SHORT);
    add(q, 20, 2, 1, MR_FAULT_SHORT);
    for (int i = 0; i < 5; i++)
        add(q, 70, (uint64_t)i, 1, MR_FAULT_IO);
    // never inside the epoch of the failure, and never for a failing file system
    CHECK_INT(excluded(q, 0, NULL), 0);
    CHECK_INT(excluded(q, 1, &first), 1);
    CHECK_INT(first, 50);
    CHECK_INT(excluded(q, 2, NULL), 1);
    CHECK_INT(excluded(q, 3, &first), 2);
    CHECK_INT(first, 20);
    // a part of an epoch that is repeated adds nothing
    int before = lines(path);
    CHECK_INT(before, 9);
    add(q, 50, 0, 2, MR_FAULT_CORRUPT);
    CHECK_INT(lines(path), before);
    quarantine_close(q);

    // read back, with a torn last line and lines of another list
    char *text;
    size_t n;
    CHECK_OK(mr_file_read_all(path, &text, &n));
    char *more = malloc(2 * n + 100);
    int len = snprintf(more, 2 * n + 100, "%s%s{\"key\":\"0000", text, text);
    CHECK_OK(mr_file_replace(path, more, (size_t)len));
    free(more);
    mr_free(text);
    CHECK_OK(quarantine_open(path, order, "", &q));
    CHECK_INT(excluded(q, 3, NULL), 2);
    quarantine_close(q);
    CHECK_OK(quarantine_open(path, foreign, "", &q));
    CHECK_INT(excluded(q, 3, NULL), 0);
    quarantine_close(q);

    // a line after a torn one is a line of its own
    CHECK_OK(quarantine_open(path, order, "", &q));
    add(q, 21, 1, 1, MR_FAULT_SHORT);
    add(q, 21, 1, 2, MR_FAULT_SHORT);
    quarantine_close(q);
    CHECK_OK(quarantine_open(path, order, "", &q));
    CHECK_INT(excluded(q, 3, NULL), 3);
    quarantine_close(q);
    torn_write(path);
    checkpoints();

    // without a file, and with many samples in any order
    CHECK_OK(quarantine_open(NULL, order, "", &q));
    for (uint64_t i = 0; i < 3000; i++) {
        add(q, MR_MIX(i) % 1000, i % 3, 1, MR_FAULT_STALL);
        add(q, MR_MIX(i) % 1000, i % 3, 2, MR_FAULT_STALL);
    }
    CHECK(excluded(q, 1, NULL) > 500);
    CHECK(excluded(q, 3, NULL) > excluded(q, 1, NULL));
    CHECK(excluded(q, 3, NULL) <= 1000);
    quarantine_close(q);
    for (int k = 1; k < 12; k++) {
        mr_alloc_fail_at(k);
        mr_status st = quarantine_open(path, order, "", &q);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            quarantine_close(q);
        else
            CHECK_INT(st, MR_E_MEMORY);
    }
    return check_done();
}
