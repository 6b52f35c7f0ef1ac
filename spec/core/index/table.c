/* index/table: rows of tables, whatever the pieces they are read in. */
#include "check.h"
#include "clips.h"
#include "index/room.h"

#include <errno.h>
#include <unistd.h>

enum { ROWS = 8 };

typedef struct got_row {
    char path[200], text[200];
    uint64_t line;
} got_row;
static got_row got[ROWS];
static int n_got;

static mr_status note_row(void *user, const index_input *in)
{
    CHECK(user == got);
    if (n_got < ROWS) {
        snprintf(got[n_got].path, sizeof got[0].path, "%s", in->path);
        snprintf(got[n_got].text, sizeof got[0].text, "%s", in->text);
        got[n_got].line = in->line;
    }
    n_got++;
    return MR_OK;
}

static size_t piece;
static ssize_t piecewise_read(int fd, void *buf, size_t n)
{
    return read(fd, buf, n < piece ? n : piece);
}

static mr_status read_table(const char *name, const char *text, size_t n)
{
    char file[300];
    snprintf(file, sizeof file, "%s", clips_path(name));
    CHECK_OK(mr_file_replace(file, text, n));
    n_got = 0;
    memset(got, 0, sizeof got);
    return index_table_read(file, note_row, got);
}

static void rows_are(const got_row *want, int n)
{
    CHECK_INT(n_got, n);
    for (int i = 0; i < n && i < ROWS; i++) {
        CHECK_STR(got[i].path, want[i].path);
        CHECK_STR(got[i].text, want[i].text);
        CHECK_INT(got[i].line, want[i].line);
    }
}

static void tables(void)
{
    static const char csv[] = "\xef\xbb\xbfnum,path,text\r\n"
                              "1,a.mp4,\"a \"\"red\"\" ball,\r\nrolling\"\r\n"
                              "\r\n"
                              "2,b.mp4,plain \"quotes\" and\rreturns\r\n"
                              "3,\"c\".mp4,\"\"\n"
                              "\n"
                              "4,\"d, e.mp4\",\"\"\"\"";
    static const got_row csv_rows[] = {{"a.mp4", "a \"red\" ball,\r\nrolling", 2},
                                       {"b.mp4", "plain \"quotes\" and\rreturns", 5},
                                       {"c.mp4", "", 6},
                                       {"d, e.mp4", "\"", 8}};
    static const char tsv[] = "PATH\tText\nx, y.mp4\tone, two\nz.mp4\t\n";
    static const got_row tsv_rows[] = {{"x, y.mp4", "one, two", 2}, {"z.mp4", "", 3}};
    static const char json[] = "{\"path\":\"a.mp4\",\"text\":\"one\"}\r\n"
                               " \t\r\n"
                               "\n"
                               "{\"text\":\"caf\\u00e9\",\"n\":[1],\"path\":\"b.mp4\"}";
    static const got_row json_rows[] = {{"a.mp4", "one", 1}, {"b.mp4", "caf\xc3\xa9", 4}};
    static const size_t pieces[] = {1, 2, 3, 7, 31, 1000};
    mr_io io = *mr_io_table();
    io.read = piecewise_read;
    mr_io_replace(&io);
    for (size_t i = 0; i < MR_COUNT(pieces); i++) {
        piece = pieces[i];
        CHECK_OK(read_table("t.csv", csv, sizeof csv - 1));
        rows_are(csv_rows, MR_COUNT(csv_rows));
        CHECK_OK(read_table("t.tsv", tsv, sizeof tsv - 1));
        rows_are(tsv_rows, MR_COUNT(tsv_rows));
        CHECK_OK(read_table("t.jsonl", json, sizeof json - 1));
        rows_are(json_rows, MR_COUNT(json_rows));
        CHECK_FAILS(read_table("t.csv", "path,text\na,b\nc\0,d\n", 18), MR_E_DATA,
                    "t.csv: holds a zero byte at 15; expected text in UTF-8");
        CHECK_FAILS(read_table("t.csv", "path,text\na,\"b\n\n", 16), MR_E_DATA,
                    "t.csv:2: a quoted field does not end");
        CHECK_FAILS(read_table("t.csv", "path,text\na,b\na,b,c\n", 20), MR_E_DATA,
                    "t.csv:3: 3 fields, expected 2");
        CHECK_FAILS(read_table("t.jsonl", "{\"path\":\"a\",\"text\":\"b\"}\n{", 25), MR_E_DATA,
                    "t.jsonl:2: not JSON");
    }
    mr_io_replace(NULL);
}

// a quote that was left open does not take the rest of a large table into memory
static void endless_fields(void)
{
    enum { BYTES = 20 << 20 };
    char *text = mr_alloc(BYTES);
    memset(text, 'x', BYTES);
    CHECK_FAILS(read_table("t.jsonl", text, BYTES), MR_E_DATA,
                "t.jsonl:1: a field does not end within 16777216 bytes");
    memcpy(text, "path,text\na,\"", 13);
    CHECK_FAILS(read_table("t.csv", text, BYTES), MR_E_DATA,
                "t.csv:2: a field does not end within 16777216 bytes; try: is a quoted field");
    memcpy(text, "path,text\na,bbb", 15);
    CHECK_FAILS(read_table("t.csv", text, BYTES), MR_E_DATA, "t.csv:2: a field does not end");
    mr_free(text);
}

static ssize_t failing_read(int fd, void *buf, size_t n)
{
    static int calls;
    errno = calls++ % 2 ? EIO : EINTR;
    return calls % 3 ? -1 : read(fd, buf, n);
}

static void failures(void)
{
    int count = 0;
    for (int n = 1; n < 60; n++) {
        mr_alloc_fail_at(n);
        mr_status st = index_table_read(clips_path("t.tsv"), note_row, got);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
        count++;
    }
    CHECK(count > 3 && count < 50);
    mr_io io = *mr_io_table();
    io.read = failing_read;
    mr_io_replace(&io);
    CHECK_FAILS(index_table_read(clips_path("t.tsv"), note_row, got), MR_E_IO,
                "t.tsv: cannot read: Input/output error");
    mr_io_replace(NULL);
    mr_interrupt_set(true);
    CHECK_INT(index_table_read(clips_path("t.tsv"), note_row, got), MR_E_STOPPED);
    mr_interrupt_set(false);
    CHECK_FAILS(index_table_read(clips_path("none.csv"), note_row, got), MR_E_DATA, "cannot open");
}

int main(void)
{
    tables();
    endless_fields();
    failures();
    return check_done();
}
