/* run/journal: whole lines only, whatever happens during a write; what a full disk refuses is
 * written later, in order. */
#define _DEFAULT_SOURCE
#include "ckptcase.h"

#include <signal.h>
#include <sys/wait.h>

static char path[600];

/* Lines in the journal; the last one in `last`. */
static int count_lines(char last[4096])
{
    mr_journal_reader *r;
    const char *line;
    size_t n;
    int count = 0;
    CHECK_OK(mr_journal_read_open(path, &r));
    for (;;) {
        CHECK_OK(mr_journal_read_next(r, &line, &n));
        if (!line)
            break;
        CHECK_INT(strlen(line), n);
        snprintf(last, 4096, "%s", line);
        count++;
    }
    mr_journal_read_close(r);
    return count;
}

static void append_raw(const char *text)
{
    FILE *f = fopen(path, "ab");
    fputs(text, f);
    fclose(f);
}

static void cut_line(void)
{
    char last[4096];
    mr_journal *j;
    CHECK_OK(mr_journal_open(path, &j));
    CHECK_OK(mr_journal_append(j, "{\"a\":1}", 7));
    CHECK_OK(mr_journal_append(j, "{\"b\":2}", 7));
    CHECK_OK(mr_journal_sync(j));
    mr_journal_close(j);
    append_raw("{\"c\":");
    // readers skip it, the next writer cuts it off
    CHECK_INT(count_lines(last), 2);
    CHECK_STR(last, "{\"b\":2}");
    CHECK_OK(mr_journal_open(path, &j));
    CHECK_OK(mr_journal_append(j, "{\"d\":4}", 7));
    mr_journal_close(j);
    CHECK_INT(count_lines(last), 3);
    CHECK_STR(last, "{\"d\":4}");
    // only an incomplete line
    FILE *f = fopen(path, "wb");
    for (int i = 0; i < 10000; i++)
        fputc('x', f);
    fclose(f);
    CHECK_OK(mr_journal_open(path, &j));
    CHECK_OK(mr_journal_append(j, "1", 1));
    mr_journal_close(j);
    CHECK_INT(count_lines(last), 1);
}

static void long_lines(void)
{
    static char line[MR_JOURNAL_LINE_MAX + 1]; // zero-terminated
    mr_journal *j;
    mr_journal_reader *r;
    const char *got;
    size_t n;
    memset(line, 'y', sizeof line - 1);
    CHECK_OK(mr_journal_open(path, &j));
    CHECK_FAILS(mr_journal_append(j, line, MR_JOURNAL_LINE_MAX), MR_E_USAGE, "at most 1048575");
    CHECK_FAILS(mr_journal_append(j, "a\nb", 3), MR_E_USAGE, "line break");
    CHECK_OK(mr_journal_append(j, line, MR_JOURNAL_LINE_MAX - 1));
    CHECK_OK(mr_journal_append(j, "2", 1));
    CHECK_OK(mr_journal_read_open(path, &r));
    CHECK_OK(mr_journal_read_next(r, &got, &n));
    CHECK_OK(mr_journal_read_next(r, &got, &n));
    CHECK_INT(n, MR_JOURNAL_LINE_MAX - 1);
    CHECK_OK(mr_journal_read_next(r, &got, &n));
    CHECK_STR(got, "2");
    CHECK_OK(mr_journal_read_next(r, &got, &n));
    CHECK(!got);
    // a reader at the end sees later lines
    CHECK_OK(mr_journal_append(j, "3", 1));
    CHECK_OK(mr_journal_read_next(r, &got, &n));
    CHECK_STR(got, "3");
    mr_journal_read_close(r);
    mr_journal_close(j);
    append_raw(line);
    append_raw("yyyyyyyyyyyyyyyy");
    CHECK_OK(mr_journal_read_open(path, &r));
    mr_status st = MR_OK;
    while (st == MR_OK && (st = mr_journal_read_next(r, &got, &n)) == MR_OK && got) {}
    CHECK_FAILS(st, MR_E_FORMAT, "longer than");
    mr_journal_read_close(r);
}

/* A disk with `room` bytes left; the last write may be shortened. */
static const mr_io *honest;
static int64_t room;
static ssize_t small_disk_write(int fd, const void *data, size_t n)
{
    if (!room)
        return errno = ENOSPC, -1;
    ssize_t done = honest->write(fd, data, MR_MIN(n, (size_t)room));
    room -= MR_MAX(done, (ssize_t)0);
    return done;
}

static void begin_small_disk(mr_io *small)
{
    remove(path);
    honest = mr_io_table();
    *small = *honest;
    small->write = small_disk_write;
    mr_io_replace(small);
}

static void append_number(mr_journal *j, int i)
{
    char line[64];
    CHECK_OK(mr_journal_append(j, line, (size_t)snprintf(line, sizeof line, "{\"i\":%d}", i)));
}

/* The journal is {"i":0}, {"i":1}, ... and nothing else. */
static void expect_numbers(int n)
{
    mr_journal_reader *r;
    const char *line;
    char want[64];
    size_t bytes;
    CHECK_OK(mr_journal_read_open(path, &r));
    for (int i = 0; i < n; i++) {
        CHECK_OK(mr_journal_read_next(r, &line, &bytes));
        snprintf(want, sizeof want, "{\"i\":%d}", i);
        CHECK_STR(line, want);
    }
    CHECK_OK(mr_journal_read_next(r, &line, &bytes));
    CHECK(!line);
    mr_journal_read_close(r);
}

/* A disk that is full after any number of bytes: what it refuses waits and is written later, each
 * line once and in order. */
static void full_disk(void)
{
    mr_io small;
    mr_journal *j;
    const char *reason;
    int64_t left_out;
    char last[4096];
    begin_small_disk(&small);
    for (int64_t bytes = 0; bytes <= 24; bytes++) {
        remove(path);
        room = bytes;
        CHECK_OK(mr_journal_open(path, &j));
        for (int i = 0; i < 5; i++)
            append_number(j, i);
        int written = (int)(bytes / 8); // whole lines of 8 bytes
        CHECK_INT(mr_journal_waiting(j, &left_out, &reason), 5 - written);
        CHECK_STR(reason, "No space left on device");
        CHECK_INT(left_out, 0);
        CHECK_INT(count_lines(last), written);
        CHECK_FAILS(mr_journal_sync(j), MR_E_IO, "No space left on device;");
        // a little room, then enough
        room = 3;
        append_number(j, 5);
        room = 1000;
        append_number(j, 6);
        CHECK_INT(mr_journal_waiting(j, &left_out, &reason), 0);
        CHECK_OK(mr_journal_sync(j));
        expect_numbers(7);
        // sync and close write what waits at the end
        room = 0;
        append_number(j, 7);
        room = 8;
        CHECK_OK(mr_journal_sync(j));
        room = 4;
        append_number(j, 8);
        room = 4;
        mr_journal_close(j);
        expect_numbers(9);
        // a process that ends on the full disk leaves an incomplete line, which the next one
        // removes
        CHECK_OK(mr_journal_open(path, &j));
        room = 5;
        append_number(j, 9);
        mr_journal_close(j);
        expect_numbers(9);
        CHECK_OK(mr_journal_open(path, &j));
        room = 100;
        append_number(j, 9);
        mr_journal_close(j);
        expect_numbers(10);
    }
    mr_io_replace(honest);
}

/* A write that is interrupted, or fails otherwise: the line waits for the next one. */
static void failing_write(void)
{
    int64_t left_out;
    const char *reason;
    mr_journal *j;
    remove(path);
    fault_install();
    CHECK_OK(mr_journal_open(path, &j));
    fault_at(1, FAULT_ERRNO, EINTR);
    append_number(j, 0);
    CHECK_INT(mr_journal_waiting(j, &left_out, &reason), 0);
    fault_at(1, FAULT_ERRNO, EIO);
    append_number(j, 1);
    CHECK_INT(mr_journal_waiting(j, &left_out, &reason), 1);
    CHECK_STR(reason, "Input/output error");
    append_number(j, 2);
    fault_at(1, FAULT_SHORT, 0);
    append_number(j, 3); // finished by a second write
    fault_at(1, FAULT_ERRNO, EIO);
    CHECK_FAILS(mr_journal_sync(j), MR_E_IO, "cannot sync: Input/output error");
    fault_clear();
    expect_numbers(4);
    mr_journal_close(j);
    mr_io_replace(NULL);
}

/* Memory is bounded: lines beyond the bound are left out, and one line reports them. */
static void bounded(void)
{
    // the last line that fits leaves a little room
    enum { LINES = 40, BYTES = (1 << 20) - 10, FIT = MR_JOURNAL_WAIT_MAX / BYTES };
    static char line[BYTES];
    char last[4096];
    int64_t left_out;
    const char *reason;
    mr_io small;
    mr_journal *j;
    begin_small_disk(&small);
    room = 0;
    memset(line, 'z', sizeof line);
    CHECK_OK(mr_journal_open(path, &j));
    for (int i = 0; i < LINES; i++)
        CHECK_OK(mr_journal_append(j, line, BYTES - 1));
    CHECK_INT(mr_journal_waiting(j, &left_out, &reason), FIT);
    CHECK_INT(left_out, LINES - FIT);
    // a short line would fit, but it comes after those that did not
    append_number(j, 1);
    CHECK_INT(mr_journal_waiting(j, &left_out, &reason), FIT);
    CHECK_INT(left_out, LINES - FIT + 1);
    // room for what waits, but not for the line that reports the gap
    room = FIT * (int64_t)BYTES;
    append_number(j, 2);
    room = 1000;
    append_number(j, 3);
    CHECK_INT(mr_journal_waiting(j, &left_out, &reason), 0);
    CHECK_INT(count_lines(last), FIT + 3);
    CHECK_STR(last, "{\"i\":3}");
    mr_journal_close(j);
    mr_journal_reader *r;
    const char *got;
    size_t n;
    CHECK_OK(mr_journal_read_open(path, &r));
    for (int i = 0; i <= FIT; i++)
        CHECK_OK(mr_journal_read_next(r, &got, &n));
    CHECK_STR(got, "{\"kind\":\"gap\",\"lines\":25}");
    CHECK_OK(mr_journal_read_next(r, &got, &n));
    CHECK_STR(got, "{\"i\":2}");
    mr_journal_read_close(r);
    mr_io_replace(honest);
}

/* SIGKILL while lines are written: at most the last one is missing. */
static void killed(void)
{
    char last[4096];
    for (int round = 0; round < 5; round++) {
        remove(path);
        pid_t child = fork();
        if (child == 0) {
            mr_journal *j;
            char line[300];
            if (mr_journal_open(path, &j) != MR_OK)
                _exit(1);
            for (int i = 0;; i++)
                mr_journal_append(j, line,
                                  (size_t)snprintf(line, sizeof line, "{\"i\":%d,\"pad\":\"%0*d\"}",
                                                   i, i % 200, 0));
        }
        usleep(3000 + (useconds_t)round * 1700);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (!mr_path_exists(path))
            continue;
        int n = count_lines(last), i = -1;
        if (n)
            CHECK(sscanf(last, "{\"i\":%d,", &i) == 1);
        CHECK_INT(i, n - 1);
    }
}

int main(void)
{
    snprintf(path, sizeof path, "%s/journal.jsonl", case_dir("journal"));
    cut_line();
    long_lines();
    full_disk();
    failing_write();
    bounded();
    killed();
    mr_dir_remove(case_dir("journal"));
    return check_done();
}
