/* ckpt/journal: whole lines only, whatever happens while one is written. */
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
    // nothing but a cut line
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
    // a reader at the end sees what comes later
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

/* A full disk in the middle of a line: the append fails, the journal stays whole. */
static void full_disk(void)
{
    char last[4096];
    mr_journal *j;
    remove(path);
    fault_install();
    CHECK_OK(mr_journal_open(path, &j));
    CHECK_OK(mr_journal_append(j, "{\"n\":1}", 7));
    fault_at(1, FAULT_SHORT, 0);
    CHECK_OK(mr_journal_append(j, "{\"n\":2}", 7)); // finished by a second write
    fault_at(1, FAULT_FULL, 0);
    CHECK_FAILS(mr_journal_append(j, "{\"n\":3}", 7), MR_E_IO, "No space left");
    fault_at(1, FAULT_ERRNO, EINTR);
    CHECK_OK(mr_journal_append(j, "{\"n\":4}", 7));
    fault_clear();
    CHECK_INT(count_lines(last), 3);
    CHECK_STR(last, "{\"n\":4}");
    mr_journal_close(j);
    mr_io_replace(NULL);
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
    killed();
    mr_dir_remove(case_dir("journal"));
    return check_done();
}
