/* index/table: rows of tables, for any division into pieces.
 * Covers: core/index/score.c core/index/pieces.c core/index/csv.c core/index/json_lines.c
 * core/index/making.c core/index/shape.c core/index/ranges.c */
#include "check.h"
#include "clips.h"
#include "index/table.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>
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
} beside[ROWS];
static index_scores scores;
static int n_got;

static mr_status note_row(void *user, const index_input *in)
{
    CHECK(user == got);
    if (n_got < ROWS) {
        snprintf(got[n_got].path, sizeof got[0].path, "%s", in->path);
        // captions in order, separated by '|'
        size_t n = index_input_text_bytes(in);
        memcpy(got[n_got].text, in->text, n < 200 ? n : 200);
        for (size_t i = 0; i + 1 < n && i < 199; i++)
            got[n_got].text[i] = got[n_got].text[i] ? got[n_got].text[i] : '|';
        got[n_got].line = in->line, beside[n_got].more = in->more;
        beside[n_got].n_numbers = in->n_numbers;
        beside[n_got].start_us = in->start_us, beside[n_got].end_us = in->end_us;
        for (int i = 0; i < 4; i++)
            beside[n_got].numbers[i] = index_input_number(in, i);
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
    const char *escape = scores.escape;
    scores = (index_scores){.escape = escape};
    return index_table_read(file, &scores, note_row, got);
}

static mr_status read_text(const char *name, const char *text)
{
    return read_table(name, text, strlen(text));
}

static bool none(int row, int number)
{
    return mr_number_is_none(beside[row].numbers[number]);
}
static bool real(int row, int number, double value)
{
    mr_number got_number = beside[row].numbers[number];
    return !got_number.whole && got_number.f == value;
}
static bool whole(int row, int number, int64_t value)
{
    mr_number got_number = beside[row].numbers[number];
    return got_number.whole && got_number.i == value;
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

// numbers are stored by name, captions by position, and values that a scan measures are ignored
static void meanings(void)
{
    static const char csv[] = "text_2,path,fps,Aesthetic Score,text,flow,text3,2d\n"
                              "b,1.mp4,24,5.25,a,1e3,,7\n"
                              "b,2.mp4,x, 4 ,,nan,c,8\n"
                              ",3.mp4,24,None,,,,9\n";
    CHECK_OK(read_table("t.csv", csv, sizeof csv - 1));
    CHECK_INT(n_got, 3);
    CHECK_STR(got[0].text, "a|b");
    CHECK_STR(got[1].text, "b|c");
    CHECK_STR(got[2].text, "");
    CHECK_INT(beside[0].more, 1);
    CHECK_INT(beside[2].more, 0);
    CHECK_INT(scores.n, 3);
    CHECK_STR(scores.of[0].name, "Aesthetic_Score");
    CHECK_STR(scores.of[2].name, "_2d");
    CHECK(real(0, 0, 5.25) && real(0, 1, 1000) && whole(0, 2, 7));
    CHECK(whole(1, 0, 4) && none(1, 1));
    CHECK(none(2, 0) && none(2, 1) && none(2, 3));
    CHECK_INT(index_score_kind(&scores.of[0]), MR_COLUMN_REAL);
    CHECK_INT(index_score_kind(&scores.of[2]), MR_COLUMN_WHOLE);
    static const char json[] =
        "{\"path\":\"1\",\"text\":[\"a\",\"\",\"b\"],\"flow\":2.5,\"tags\":[1]}\n"
        "{\"good\":true,\"text\":\"c\",\"path\":\"2\",\"flow\":null,\"width\":9}\n";
    CHECK_OK(read_table("t.jsonl", json, sizeof json - 1));
    CHECK_STR(got[0].text, "a|b");
    // `tags` is a column that never gets a number
    CHECK_INT(beside[0].n_numbers, 2);
    CHECK_INT(beside[1].n_numbers, 3);
    CHECK(real(0, 0, 2.5) && whole(1, 2, 1) && none(1, 0));
    CHECK_FAILS(read_table("t.jsonl", "{\"path\":\"1\",\"text\":[1]}", 23), MR_E_DATA,
                "t.jsonl:1: text[0] is not text");
    // a missing caption counts as none, as an empty field does
    static const char none[] = "\xef\xbb\xbf{\"path\":\"1\",\"text\":[]}\n"
                               "{\"path\":\"2\",\"text\":null}\n"
                               "{\"path\":\"3\",\"text\":[null,\"NaN\"]}\n";
    CHECK_OK(read_table("t.jsonl", none, sizeof none - 1));
    CHECK_INT(n_got, 3);
    CHECK_STR(got[0].text, "");
    CHECK_STR(got[1].text, "");
    CHECK_STR(got[2].text, "NaN");
    CHECK_FAILS(read_table("t.jsonl", "{\"path\":\"1\",\"caption\":\"a\"}", 26), MR_E_DATA,
                "t.jsonl:1: no text value 'text'; values found: path, caption; expected path and "
                "text; try: --columns path=NAME,text=NAME");
    CHECK_FAILS(read_table("t.jsonl", "{}", 2), MR_E_DATA, "'path'; values found: none");
}

// numbers that are no values do not turn their column into text
static void not_finite(void)
{
    static const char csv[] = "path,text,flow\n1,a,inf\n2,b,-Infinity\n3,c,1e300\n4,d,NaN\n5,e,2\n";
    CHECK_OK(read_table("t.csv", csv, sizeof csv - 1));
    CHECK_INT(scores.of[0].wholes, 1);
    CHECK_INT(scores.of[0].reals, 1);
    CHECK(index_score_is_column(&scores.of[0]));
    CHECK(none(0, 0) && none(1, 0) && real(2, 0, 1e300) && none(3, 0) && whole(4, 0, 2));
    index_pack out = {0};
    CHECK_OK(index_scores_notes(&scores, &out));
    index_put(&out, "", 1);
    CHECK_STR((const char *)out.bytes,
              "column 'flow' has no value for 2 of its cells, which are not "
              "finite, the first: 'inf' in row 2\n");
    mr_free(out.bytes);
    static const char json[] = "{\"path\":\"\\\"NaN\",\"text\":\"Infinity\",\"flow\":NaN}\n"
                               "{\"path\":\"2\",\"flow\":-Infinity,\"text\":\"b\\\\\"}\n"
                               "{\"path\":\"3\",\"text\":\"c\",\"flow\":[Infinity]}\n"
                               "{\"path\":\"4\",\"text\":\"d\",\"flow\":18446744073709551616}\n";
    CHECK_OK(read_table("t.jsonl", json, sizeof json - 1));
    CHECK_INT(n_got, 4);
    CHECK_STR(got[0].path, "\"NaN");
    CHECK_STR(got[0].text, "Infinity");
    CHECK_STR(got[1].text, "b\\");
    CHECK(index_score_is_column(&scores.of[0]));
    CHECK(none(0, 0) && none(1, 0) && real(3, 0, 0x1p64));
}

// integers up to 64 bits stay integers; rounding to a real is reported
static void whole_numbers(void)
{
    static const char csv[] = "path,text,uid,mixed,wide,half\n"
                              "1,a,16777217,9007199254740993,9223372036854775807,1.0\n"
                              "2,b,-9223372036854775807,0.5,9223372036854775808,+2\n"
                              "3,c, 7 ,-9007199254740993,-9223372036854775808,-0\n";
    static const char json[] =
        "{\"path\":\"1\",\"text\":\"a\",\"uid\":9007199254740993,\"x\":5.0,\"y\":[-1]}\n"
        "{\"path\":\"2\",\"text\":\"b\",\"uid\":-9223372036854775807,\"x\":1e2,"
        "\"y\":9999999999999999999}\n"
        "{\"path\":\"3\",\"text\":\"1234567890123456789\",\"uid\":1234567890123456789}\n";
    CHECK_OK(read_table("t.csv", csv, sizeof csv - 1));
    CHECK(whole(0, 0, 16777217) && whole(1, 0, -INT64_MAX) && whole(2, 0, 7));
    CHECK(whole(0, 1, INT64_C(9007199254740993)) && real(1, 1, 0.5));
    CHECK(whole(0, 2, INT64_MAX) && real(1, 2, 0x1p63) && real(2, 2, -0x1p63));
    CHECK(real(0, 3, 1) && whole(1, 3, 2) && whole(2, 3, 0));
    CHECK_INT(index_score_kind(&scores.of[0]), MR_COLUMN_WHOLE);
    for (int i = 1; i < 4; i++)
        CHECK_INT(index_score_kind(&scores.of[i]), MR_COLUMN_REAL);
    index_pack out = {0};
    CHECK_OK(index_scores_notes(&scores, &out));
    index_put(&out, "", 1);
    CHECK_STR((const char *)out.bytes,
              "column 'mixed' stores reals, which round 2 of its integers, the first: "
              "'9007199254740993' in row 2\n"
              "column 'wide' stores reals, which round 3 of its integers, the first: "
              "'9223372036854775807' in row 2\n");
    mr_free(out.bytes);
    CHECK_OK(read_table("t.jsonl", json, sizeof json - 1));
    CHECK(whole(0, 0, INT64_C(9007199254740993)) && whole(1, 0, -INT64_MAX));
    CHECK(whole(2, 0, INT64_C(1234567890123456789)));
    CHECK_STR(got[2].text, "1234567890123456789");
    CHECK(real(0, 1, 5) && real(1, 1, 100) && real(1, 2, 1e19));
    // a value that f32 holds is not rounded if it was written so
    CHECK_OK(read_text("t.jsonl", "{\"path\":\"1\",\"text\":\"a\",\"x\":5.099999904632568}"));
    CHECK(real(0, 0, 5.099999904632568));
}

// the values that pandas reads as missing are missing, and no others
static void missing(void)
{
    static const char *const words[] = {"",         "#N/A", "#N/A N/A", "#NA",    "-1.#IND",
                                        "-1.#QNAN", "-NaN", "-nan",     "1.#IND", "1.#QNAN",
                                        "<NA>",     "N/A",  "NA",       "NULL",   "NaN",
                                        "None",     "n/a",  "nan",      "null"};
    static const char *const texts[] = {"N/a", "none", "-",      "1,234.5", "0x10",  "5.1.2",
                                        "1e",  "5 %",  "nan(1)", "--5",     "1_000", "\xc3\xa9"};
    char text[200], want[300];
    for (size_t i = 0; i < MR_COUNT(words); i++) {
        int n = snprintf(text, sizeof text, "path,text,aes\n1,a,%s\n2,b,5.5\n3,c, %s\t\n", words[i],
                         words[i]);
        CHECK_OK(read_table("t.csv", text, (size_t)n));
        CHECK(none(0, 0) && real(1, 0, 5.5) && none(2, 0));
        CHECK_INT(scores.of[0].others.n, 0);
    }
    for (size_t i = 0; i < MR_COUNT(texts); i++) {
        int n = snprintf(text, sizeof text, "path,text,A s\n1,a,5\n2,b,\"%s\"\n3,c,6\n4,d,\"%s\"\n",
                         texts[i], texts[i]);
        snprintf(want, sizeof want,
                 "t.csv:3: column 'A s' has '%s', which is not a number; 2 of its cells are not "
                 "numbers, 2 "
                 "are; expected numbers, and for a missing value an empty cell, NA, NaN, null "
                 "or similar; try: --columns -=A s to leave it out, --columns text_2=A s to "
                 "keep its text as a caption",
                 texts[i]);
        CHECK_FAILS(read_table("t.csv", text, (size_t)n), MR_E_DATA, want);
    }
    // hashes include a number among hundreds, and are text
    for (int others = 99; others <= 100; others++) {
        char long_text[3000] = "path,text,md5\n0,a,12345678\n";
        for (int i = 0; i < others; i++)
            sprintf(long_text + strlen(long_text), "%d,a,c%d\n", i + 1, i);
        mr_status st = read_text("t.csv", long_text);
        CHECK_INT(st, others == 99 ? MR_E_DATA : MR_OK);
    }
    CHECK(!index_score_is_column(&scores.of[0]));
    // a column that is left out may hold anything, and one of text only has no numbers
    static const char csv[] = "path,text,views,who\n1,a,5,x\n2,b,\"1,234.5\",y\n";
    char file[300];
    snprintf(file, sizeof file, "%s", clips_path("t.csv"));
    CHECK_OK(mr_file_replace(file, csv, sizeof csv - 1));
    index_scores s;
    CHECK_OK(index_scores_begin(&s, &(mr_table_options){.columns = "-=views"}));
    CHECK_OK(index_table_read(file, &s, note_row, got));
    CHECK_INT(s.n, 1);
    CHECK_STR(s.of[0].name, "who");
    CHECK(!index_score_is_column(&s.of[0]));
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

static void notes(void)
{
    static const char csv[] = "path,text,move,flow\na,b,pan \xc3\xa9,1\nc,d,zoom,2\n";
    index_pack out = {0};
    CHECK_OK(read_table("t.csv", csv, sizeof csv - 1));
    CHECK_OK(index_scores_notes(&scores, &out));
    index_put(&out, "", 1);
    CHECK_STR((const char *)out.bytes,
              "column 'move' is left out: 2 of its values are not numbers, "
              "the first: 'pan \xc3\xa9' in row 2\n");
    mr_free(out.bytes);
    // a column too many
    char wide[1000] = "path,text", *end = wide + strlen(wide);
    for (int i = 0; i < INDEX_SCORES + 3; i++)
        end += sprintf(end, ",c%d", i);
    CHECK_OK(read_table("t.csv", wide, strlen(wide)));
    CHECK_INT(scores.n, INDEX_SCORES);
    CHECK_INT(scores.beyond, 3);
}

// columns with other names
static void renamed(void)
{
    static const char csv[] = "video,caption,path,a score\n1.mp4,one,7,2\n";
    char file[300];
    snprintf(file, sizeof file, "%s", clips_path("named.csv"));
    CHECK_OK(mr_file_replace(file, csv, sizeof csv - 1));
    n_got = 0;
    scores = (index_scores){.names = "path = Video, text=caption,good=a score,old=path"};
    CHECK_OK(index_table_read(file, &scores, note_row, got));
    CHECK_STR(got[0].path, "1.mp4");
    CHECK_STR(got[0].text, "one");
    CHECK_INT(scores.n, 2);
    CHECK_STR(scores.of[1].name, "good");
    CHECK(whole(0, 0, 7) && whole(0, 1, 2));
    // an unknown column is an error, also where it is optional
    scores = (index_scores){.names = "path=video,text=captoin,old=path"};
    CHECK_FAILS(index_table_read(file, &scores, note_row, got), MR_E_DATA,
                "named.csv:1: no column 'captoin', which --columns names; columns found: video, "
                "caption, path, a score");
    scores = (index_scores){.names = "path=video,text=caption,text_2=titel,old=path"};
    CHECK_FAILS(index_table_read(file, &scores, note_row, got), MR_E_DATA, "no column 'titel'");
    static const char lines[] = "{\"video\":\"1.mp4\",\"caption\":\"one\"}\n"
                                "{\"video\":\"2.mp4\",\"caption\":\"two\",\"good\":3}\n";
    snprintf(file, sizeof file, "%s", clips_path("named.jsonl"));
    CHECK_OK(mr_file_replace(file, lines, sizeof lines - 1));
    scores = (index_scores){.names = "path=video,text=captoin"};
    CHECK_FAILS(index_table_read(file, &scores, note_row, got), MR_E_DATA,
                "named.jsonl:1: no text value 'captoin'; values found: video, caption");
    scores = (index_scores){.names = "path=video,text=caption,score=god"};
    CHECK_FAILS(index_table_read(file, &scores, note_row, got), MR_E_DATA,
                "named.jsonl: no row has a value 'god', which --columns names");
    scores = (index_scores){.names = "path=video,text=caption,score=good"};
    CHECK_OK(index_table_read(file, &scores, note_row, got));
    static const char *const bad[] = {"path", "=video", "path=", "path=a,,text=b", "a=b,c"};
    for (size_t i = 0; i < MR_COUNT(bad); i++)
        CHECK_FAILS(index_scores_begin(&scores, &(mr_table_options){.columns = bad[i]}), MR_E_USAGE,
                    "try: path=video,text=caption");
    scores = (index_scores){0};
    CHECK_FAILS(read_table("t.csv", "path,text,a,b,a\n1,2,3,4,5\n", 26), MR_E_DATA,
                "t.csv:1: column 'a' occurs twice; try: remove one of them, or rename it: "
                "--columns other=a");
    CHECK_FAILS(read_table("t.csv", "path,path,text\n1,2,3\n", 21), MR_E_DATA,
                "t.csv:1: column 'path' occurs twice");
    CHECK_OK(read_table("t.csv", "path,text,text\n1,2,3\n", 21));
    CHECK_FAILS(read_table("t.csv", "path;text\n1;2\n", 14), MR_E_DATA,
                "t.csv:1: one column, 'path;text'; expected commas between columns; try: save it");
    CHECK_FAILS(read_table("t.csv", csv, sizeof csv - 1), MR_E_DATA,
                "no column 'text'; columns found: video, caption, path, a score; expected a header "
                "with path and text; try: --columns");
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
    CHECK_INT(beside[0].start_us, 12345678912);
    CHECK_INT(beside[0].end_us, 12345678913);
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
    meanings();
    not_finite();
    whole_numbers();
    missing();
    quotes();
    marks();
    json_list();
    notes();
    renamed();
    odd_tables();
    no_files();
    endless_fields();
    failures();
    return check_done();
}
