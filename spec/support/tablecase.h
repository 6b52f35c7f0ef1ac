/* Rows of a table as the reader of tables passes them on, in pieces of any size. */
#ifndef MR_TABLECASE_H
#define MR_TABLECASE_H

#include "check.h"
#include "clips.h"
#include "index/table.h"

#include <unistd.h>

enum { ROWS = 8 };

typedef struct got_row {
    char path[200], text[200];
    uint64_t line;
} got_row;
static got_row got[ROWS];
static struct {
    int more, n_numbers;
    mr_number numbers[4];
    int64_t start_us, end_us;
} rest[ROWS];
static index_scores scores;
static int n_got;

static inline mr_status note_row(void *user, const index_input *in)
{
    CHECK(user == got);
    if (n_got < ROWS) {
        snprintf(got[n_got].path, sizeof got[0].path, "%s", in->path);
        // captions in order, separated by '|'
        size_t n = index_input_text_bytes(in);
        memcpy(got[n_got].text, in->text, n < 200 ? n : 200);
        for (size_t i = 0; i + 1 < n && i < 199; i++)
            got[n_got].text[i] = got[n_got].text[i] ? got[n_got].text[i] : '|';
        got[n_got].line = in->line, rest[n_got].more = in->more;
        rest[n_got].n_numbers = in->n_numbers;
        rest[n_got].start_us = in->start_us, rest[n_got].end_us = in->end_us;
        for (int i = 0; i < 4; i++)
            rest[n_got].numbers[i] = index_input_number(in, i);
    }
    n_got++;
    return MR_OK;
}

static size_t piece;
static inline ssize_t piecewise_read(int fd, void *buf, size_t n)
{
    return read(fd, buf, n < piece ? n : piece);
}

static inline mr_status read_table(const char *name, const char *text, size_t n)
{
    char file[300];
    snprintf(file, sizeof file, "%s", clips_path(name));
    CHECK_OK(mr_file_replace(file, text, n));
    n_got = 0;
    memset(got, 0, sizeof got);
    const char *escape = scores.escape;
    scores = (index_scores){.escape = escape};
    return index_table_read(file, &scores, note_row, got);
}

static inline mr_status read_text(const char *name, const char *text)
{
    return read_table(name, text, strlen(text));
}

static inline bool none(int row, int number)
{
    return mr_number_is_none(rest[row].numbers[number]);
}
static inline bool real(int row, int number, double value)
{
    mr_number got_number = rest[row].numbers[number];
    return !got_number.whole && got_number.f == value;
}
static inline bool whole(int row, int number, int64_t value)
{
    mr_number got_number = rest[row].numbers[number];
    return got_number.whole && got_number.i == value;
}

static inline void rows_are(const got_row *want, int n)
{
    CHECK_INT(n_got, n);
    for (int i = 0; i < n && i < ROWS; i++) {
        CHECK_STR(got[i].path, want[i].path);
        CHECK_STR(got[i].text, want[i].text);
        CHECK_INT(got[i].line, want[i].line);
    }
}

#endif
