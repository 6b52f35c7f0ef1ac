/* index/table: rows of tables, for any division into pieces.
 * Covers: core/index/pieces.c core/index/csv.c core/index/json_lines.c core/index/making.c
 * core/index/shape.c core/index/ranges.c */
#include "tablecase.h"

#include <errno.h>
#include <sys/stat.h>

static void tables(void)
{
    static const char csv[] = "\xef\xbb\xbfnum,path,text\r\n"
                              "1,a.mp4,\"a \"\"red\"\" ball,\r\nrolling\"\r\n"
                              "\r\n"
                              "2,b.mp4,plain \"quotes\" and\rreturns\r\n"
                              "3,\"c.mp4\",\"\"\n"
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
                    "t.csv:3: a zero byte, at 15 of the file; expected text in UTF-8; try: is it "
                    "UTF-16 or UTF-32?");
        CHECK_FAILS(read_table("t.jsonl", "{\"path\":\"a\",\"text\":\"b\"}\n\n{\0", 27), MR_E_DATA,
                    "t.jsonl:3: a zero byte, at 26");
        CHECK_FAILS(read_table("t.csv", "path,text\na,\"b\n\n", 16), MR_E_DATA,
                    "t.csv:2: a quoted field does not end");
        CHECK_FAILS(read_table("t.csv", "path,text\na,b\na,b,c\n", 20), MR_E_DATA,
                    "t.csv:3: 3 fields, expected 2");
        CHECK_FAILS(read_table("t.jsonl", "{\"path\":\"a\",\"text\":\"b\"}\n{", 25), MR_E_DATA,
                    "t.jsonl:2: not JSON");
    }
    mr_io_replace(NULL);
}

// Quotes are doubled; any other character after one does not end the field, and is refused by line.
static void quotes(void)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"path,text\na,\"b\" c\n",
         "t.csv:2: ' ' after the closing quote of a field; expected the end "
         "of the field, or two quotes for one"},
        {"path,text\na,\"b\nc\"d\n", "t.csv:3: 'd' after the closing quote"},
        {"path,text\na,\"b\"\rc\n", "after the closing quote"},
        {"path,text\na,\"say \\\"hi\\\"\"\n",
         "t.csv:2: 'h' after the closing quote of a field; expected the end of the field, or two "
         "quotes for one; try: --escape '\\', if \\\" stands for a quote there"},
        {"path,text\na,\"say \\\", and\"\n", "t.csv:2: 3 fields, expected 2 as in the header; try: "
                                             "quote fields that hold separators; try: --escape"},
        {"path,text\na,\"say \\\"\"\n", "t.csv:2: a quoted field does not end; try: --escape"}};
    static const char spark[] = "path,text,n\n"
                                "a,\"say \\\"hi\\\"\",1\nb,\"\\\\ \\n "
                                "\"\"x\"\"\\\",\",2\nc,a\\,b\\\\,3\nd,\"l\\\nm\",4\ne,f\\,5\n";
    static const size_t pieces[] = {1, 2, 3, 1000};
    mr_io io = *mr_io_table();
    io.read = piecewise_read;
    mr_io_replace(&io);
    for (size_t p = 0; p < MR_COUNT(pieces); p++) {
        piece = pieces[p];
        scores.escape = NULL;
        for (size_t i = 0; i < MR_COUNT(bad); i++)
            CHECK_FAILS(read_text("t.csv", bad[i].text), MR_E_DATA, bad[i].why);
        scores.escape = "\\";
        CHECK_FAILS(read_table("t.csv", spark, sizeof spark - 1), MR_E_DATA,
                    "t.csv:7: 2 fields, expected 3");
        CHECK_INT(n_got, 4);
        CHECK_STR(got[0].text, "say \"hi\"");
        CHECK_STR(got[1].text, "\\ \\n \"x\"\",");
        CHECK_STR(got[2].text, "a,b\\");
        CHECK_STR(got[3].text, "l\nm");
        CHECK_INT(got[3].line, 5);
    }
    mr_io_replace(NULL);
    CHECK_FAILS(read_table("t.jsonl", "{}", 2), MR_E_USAGE,
                "t.jsonl: escape: '\\' applies only to CSV and TSV");
    // a user who named one gets no such proposal
    CHECK_FAILS(read_text("t.csv", "path,text\na,\"b\\\\\" c\"\n"), MR_E_DATA,
                "after the closing quote");
    CHECK(!strstr(mr_error_last()->text, "--escape"));
    scores.escape = ",";
    CHECK_FAILS(read_table("t.csv", spark, sizeof spark - 1), MR_E_USAGE, "',' separates columns");
    scores.escape = NULL;
    static const char *const no[] = {"ab", "a", "1", "\n", "\xc3"};
    for (size_t i = 0; i < MR_COUNT(no); i++)
        CHECK_FAILS(index_scores_begin(&scores, &(mr_table_options){.escape = no[i]}), MR_E_USAGE,
                    "expected one character");
    CHECK_OK(index_scores_begin(&scores, &(mr_table_options){.escape = "\""}));
    scores.escape = NULL;
}

// all rows in one list, over any number of lines
static void json_list(void)
{
    static const char text[] =
        " \n[\n {\"path\": \"a}\\\"{\",\n  \"text\": \"one\", \"n\": [{\"x\": 1}]},"
        "{\"path\":\"b\",\"text\":[\"two\"],\"m\":NaN}\n,\n{\"path\":\"c\","
        "\"text\":\"\\\\\"}\n]\n\n";
    static const got_row rows[] = {{"a}\"{", "one", 3}, {"b", "two", 4}, {"c", "\\", 6}};
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"[", "t.json:1: its end in a list of rows; expected an object"},
        {"[\n1]", "t.json:2: '1' in a list of rows; expected an object"},
        {"[{\"path\":\"a\",\"text\":\"b\"}\n{}]",
         "t.json:2: '{' in a list of rows; expected ',' or ']'"},
        {"[{\"path\":\"a\",\"text\":\"b\"},]",
         "t.json:1: ']' in a list of rows; expected an object"},
        {"[{\"path\":\"a\",\"text\":\"b\"}", "its end in a list of rows; expected ',' or ']'"},
        {"[{\"path\":\"a\",\"text\":\"b}", "its end in a list of rows; expected '}'"},
        {"[]\n[]", "t.json:2: '[' in a list of rows; expected nothing after it"},
        {"[{\"path\":\"a\",\"text\":\"b\"},\n{\"path\":\"a\"}]", "t.json:2: no text value 'text'"},
        {"[{\"path\":\"a\" \"text\":\"b\"}]", "t.json:1: not JSON"}};
    static const size_t pieces[] = {1, 2, 3, 1000};
    mr_io io = *mr_io_table();
    io.read = piecewise_read;
    mr_io_replace(&io);
    for (size_t p = 0; p < MR_COUNT(pieces); p++) {
        piece = pieces[p];
        CHECK_OK(read_text("t.json", text));
        rows_are(rows, MR_COUNT(rows));
        for (size_t i = 0; i < MR_COUNT(bad); i++)
            CHECK_FAILS(read_text("t.json", bad[i].text), MR_E_DATA, bad[i].why);
        CHECK_OK(read_text("t.jsonl", "[]"));
        CHECK_INT(n_got, 0);
    }
    mr_io_replace(NULL);
}

// a byte order mark may precede quotes, and identifies encodings that are not supported
static void marks(void)
{
    static const size_t pieces[] = {1, 2, 3, 1000};
    mr_io io = *mr_io_table();
    io.read = piecewise_read;
    mr_io_replace(&io);
    for (size_t p = 0; p < MR_COUNT(pieces); p++) {
        piece = pieces[p];
        CHECK_OK(read_text("t.csv", "\xef\xbb\xbf\"path\",\"text\"\r\n\"a\",\"b\"\r\n"));
        CHECK_INT(n_got, 1);
        CHECK_STR(got[0].path, "a");
        CHECK_OK(read_text("t.jsonl", "\xef\xbb\xbf{\"path\":\"a\",\"text\":\"b\"}"));
        CHECK_FAILS(read_text("t.csv", "\xef\xbb\xbf"), MR_E_DATA, "columns found: none");
        CHECK_FAILS(read_text("t.csv", "\xef\xbb"), MR_E_DATA, "columns found: \xef\xbb");
        CHECK_FAILS(read_text("t.csv", "\xff\xfep"), MR_E_DATA,
                    "t.csv: is UTF-16; expected UTF-8; try: iconv -f UTF-16 -t UTF-8 '");
        CHECK_FAILS(read_table("t.jsonl", "\xfe\xff\0{", 4), MR_E_DATA, "t.jsonl: is UTF-16");
        CHECK_FAILS(read_table("t.csv", "\xff\xfe\0\0p\0\0\0", 8), MR_E_DATA,
                    "t.csv: is UTF-32; expected UTF-8; try: iconv -f UTF-32 -t UTF-8 '");
    }
    mr_io_replace(NULL);
}

// what a table may not have
static void odd_tables(void)
{
    CHECK_FAILS(read_table("t.csv", "path,text\na,b\nc\n", 16), MR_E_DATA,
                "t.csv:3: 1 fields, expected 2 as in the header; try: quote fields");
    CHECK_FAILS(read_table("t.csv", "a,b\n1,2\n", 8), MR_E_DATA, "t.csv:1: no column 'path'");
    // a byte order mark is accepted at the beginning of a file only
    CHECK_OK(read_table("t.csv", "\xef\xbb\xbfpath,text\na,b\n", 17));
    CHECK_FAILS(read_table("t.csv", "path,\xef\xbb\xbftext\na,b\n", 17), MR_E_DATA,
                "no column 'text'");
    CHECK_FAILS(read_table("t.jsonl",
                           "{\"path\":\"a\",\"text\":\"b\"}\n\xef\xbb\xbf{\"path\":\"a\",\"text\":"
                           "\"b\"}",
                           50),
                MR_E_DATA, "t.jsonl:2: not JSON");
    CHECK_FAILS(read_table("t.jsonl", "{\"path\":\"a\",\"text\":\"b\",\"path\":\"c\"}", 34),
                MR_E_DATA, "t.jsonl:1: not JSON: duplicate");
    // as many columns as there is room for, and one more
    char text[2000];
    for (int more = 0; more < 2; more++) {
        int n = snprintf(text, sizeof text, "path,text");
        for (int i = 2; i < 256 + more; i++)
            n += snprintf(text + n, sizeof text - (size_t)n, ",c%d", i);
        n += snprintf(text + n, sizeof text - (size_t)n, "\na,b");
        for (int i = 2; i < 256 + more; i++)
            n += snprintf(text + n, sizeof text - (size_t)n, ",");
        mr_status st = read_table("t.csv", text, (size_t)n);
        if (more)
            CHECK_FAILS(st, MR_E_DATA, "t.csv:1: more than 256 columns");
        else
            CHECK_OK(st);
    }
    // times have microseconds, also late in a file
    static const char times[] = "{\"path\":\"a\",\"text\":\"b\",\"start_s\":12345.678912,"
                                "\"end_s\":12345.678913}";
    CHECK_OK(read_table("t.jsonl", times, sizeof times - 1));
    CHECK_INT(rest[0].start_us, 12345678912);
    CHECK_INT(rest[0].end_us, 12345678913);
}

// a path that is no file is refused without a wait; files are closed in every case
static void no_files(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("folder.csv"));
    CHECK_OK(mr_dir_make(path));
    int before = dup(0);
    close(before);
    CHECK_FAILS(index_table_read(path, &scores, note_row, got), MR_E_DATA,
                "folder.csv: is not a regular file; expected a .csv or .jsonl file");
    snprintf(path, sizeof path, "%s", clips_path("pipe.jsonl"));
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_FAILS(index_table_read(path, &scores, note_row, got), MR_E_DATA,
                "pipe.jsonl: is not a regular file");
    CHECK_OK(read_table("t.csv", "path,text\na,b\n", 14));
    CHECK_FAILS(read_table("t.csv", "path\n", 5), MR_E_DATA, "no column 'text'");
    int after = dup(0);
    close(after);
    CHECK_INT(after, before);
}

// an open quote does not read the rest of a large table into memory
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

static void short_of_memory(const char *name)
{
    int count = 0;
    for (int n = 1; n < 60; n++) {
        mr_alloc_fail_at(n);
        mr_status st = index_table_read(clips_path(name), &scores, note_row, got);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
        count++;
    }
    CHECK(count > 2 && count < 50);
}

static void failures(void)
{
    short_of_memory("t.tsv");
    CHECK_OK(read_table("t.jsonl", "{\"path\":\"a\",\"text\":\"b\"}\n", 24));
    short_of_memory("t.jsonl");
    mr_io io = *mr_io_table();
    io.read = failing_read;
    mr_io_replace(&io);
    CHECK_FAILS(index_table_read(clips_path("t.tsv"), &scores, note_row, got), MR_E_IO,
                "t.tsv: cannot read: Input/output error");
    mr_io_replace(NULL);
    mr_interrupt_set(true);
    CHECK_INT(index_table_read(clips_path("t.tsv"), &scores, note_row, got), MR_E_STOPPED);
    mr_interrupt_set(false);
    CHECK_FAILS(index_table_read(clips_path("none.csv"), &scores, note_row, got), MR_E_DATA,
                "cannot open");
}

int main(void)
{
    tables();
    quotes();
    json_list();
    marks();
    odd_tables();
    no_files();
    endless_fields();
    failures();
    return check_done();
}
