/* index/score: what the columns of a table mean, and their numbers. */
#include "tablecase.h"

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
    CHECK_INT(rest[0].more, 1);
    CHECK_INT(rest[2].more, 0);
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
    CHECK_INT(rest[0].n_numbers, 2);
    CHECK_INT(rest[1].n_numbers, 3);
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

int main(void)
{
    meanings();
    not_finite();
    whole_numbers();
    missing();
    notes();
    renamed();
    return check_done();
}
