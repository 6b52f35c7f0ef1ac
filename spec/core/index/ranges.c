/* index/ranges: lists in a row: ranges of time make samples, captions alone are several of one
 * sample, and meaningless values are counted. */
#include "check.h"
#include "clips.h"
#include "index/table.h"

#include <string.h>

static char seen[4000];

// "path 0.5-1.5 'a|b' 1,2.5,-" of each sample, or "path: fault"
static mr_status note(void *user, const index_input *in)
{
    size_t n = strlen(seen), bytes = index_input_text_bytes(in);
    char text[200];
    (void)user;
    if (in->fault) {
        CHECK_STR(in->class, "range");
        snprintf(seen + n, sizeof seen - n, "%s %llu: %s\n", in->path, (unsigned long long)in->line,
                 in->fault);
        return MR_OK;
    }
    memcpy(text, in->text, MR_MIN(bytes, sizeof text));
    for (size_t i = 0; i + 1 < bytes; i++)
        text[i] = text[i] ? text[i] : '|';
    n += (size_t)snprintf(seen + n, sizeof seen - n, "%s %llu %g-%g '%s'", in->path,
                          (unsigned long long)in->line, (double)in->start_us * 1e-6,
                          (double)in->end_us * 1e-6, text);
    for (int32_t i = 0; i < in->n_numbers; i++) {
        mr_number x = index_input_number(in, i);
        double value = x.whole ? (double)x.i : x.f;
        if (!mr_number_is_none(x))
            n += (size_t)snprintf(seen + n, sizeof seen - n, " %g", value);
    }
    snprintf(seen + n, sizeof seen - n, "\n");
    return MR_OK;
}

static index_scores scores;
static mr_status read_list(const char *name, const char *columns, const char *text)
{
    char file[300];
    snprintf(file, sizeof file, "%s", clips_path(name));
    CHECK_OK(mr_file_replace(file, text, strlen(text)));
    *seen = 0;
    CHECK_OK(index_scores_begin(&scores, &(mr_table_options){.columns = columns}));
    return index_table_read(file, &scores, note, NULL);
}

static void is(const char *name, const char *columns, const char *text, const char *want)
{
    CHECK_OK(read_list(name, columns, text));
    CHECK_STR(seen, want);
}

static void notes_are(const char *want)
{
    index_pack out = {0};
    CHECK_OK(index_scores_notes(&scores, &out));
    index_put(&out, "", 1);
    CHECK_STR((const char *)out.bytes, want);
    mr_free(out.bytes);
}

// as in Panda-70M, HD-VILA and others
static void parallel(void)
{
    is("t.jsonl", NULL,
       "{\"path\":\"1\",\"timestamp\":[[\"0:00:00.500\",\"0:00:01.500\"],[\"0:00:02\",\"1:00:03."
       "25\"]],"
       "\"text\":[\"a man\",\"a dog\"],\"score\":[0.5,7],\"year\":2024}\n"
       "{\"path\":\"2\",\"text\":\"whole\",\"score\":1}\n",
       "1 1 0.5-1.5 'a man' 0.5 2024\n1 1 2-3603.25 'a dog' 7 2024\n2 2 0-0 'whole' 1\n");
    CHECK_INT(index_score_kind(&scores.of[1]), MR_COLUMN_REAL);
    is("t.csv", "path=videoID,text=caption",
       "videoID,timestamp,caption,score,year\n"
       "1,\"[['0:00:00.500', '0:00:01.500'], ['0:00:02', '0:00:03']]\",\"['a man', \"\"a "
       "dog's\"\"]\","
       "\"[0.5, 7]\",2024\n"
       "2,\"[(1, 2)]\",\"[\"\"one\"\"]\",[3],1999\n",
       "1 2 0.5-1.5 'a man' 0.5 2024\n1 2 2-3 'a dog's' 7 2024\n2 3 1-2 'one' 3 1999\n");
    is("t.jsonl", NULL,
       "{\"start\":[0,1],\"end\":[1,null],\"text\":[\"a\",[\"b\",\"c\"]],\"text_2\":[null,\"d\"],"
       "\"n\":[null,\"N/A\"],\"m\":[1,\"2\"],\"path\":\"1\"}\n",
       "1 1 0-1 'a' 1\n1 1 1-0 'b|c|d' 2\n");
    is("t.jsonl", "path=video,text=caption,range_s=when",
       "{\"video\":\"1\",\"caption\":[\"a\"],\"when\":[[1,2]],\"year\":3}\n", "1 1 1-2 'a' 3\n");
    is("t.jsonl", NULL,
       "{\"path\":\"1\",\"clips\":[{\"start\":1,\"end\":5,\"text\":\"a\"},{\"start\":2},{\"end\":3}"
       ","
       "{\"text\":\"b\"}]}\n",
       "1 1 1-5 'a'\n1 1 2-0 ''\n1 1 0-3 ''\n1 1: one of its items has no times\n");
    // a value that one item lacks is not taken from the item before
    is("t.jsonl", NULL,
       "{\"path\":\"1\",\"n\":9,\"clips\":[{\"span\":[0,1],\"text\":\"a\",\"n\":5},{\"start\":2,"
       "\"end\":3,"
       "\"text\":[\"b\",\"c\"]},{\"span\":[4,5],\"id\":\"x\"}]}\n",
       "1 1 0-1 'a' 5\n1 1 2-3 'b|c' 9\n1 1 4-5 '' 9\n");
}

// one range, or none
static void single(void)
{
    is("t.csv", "path=videoID,text=caption",
       "videoID,timestamp,caption\n1,\"['0:00:02.480', '0:00:09.680']\",one\n2,\"(0.5, 1)\",two\n"
       "3,,whole\n4,\"[1, null]\",\"['a', 'b']\"\n5,,\"[music] plays\"\n6,,\"[1, 2]\"\n7,,[]\n",
       "1 2 2.48-9.68 'one'\n2 3 0.5-1 'two'\n3 4 0-0 'whole'\n4 5 1-0 'a|b'\n"
       "5 6 0-0 '[music] plays'\n6 7 0-0 '[1, 2]'\n7 8 0-0 ''\n");
    is("t.csv", "path=YoutubeID,text=Caption",
       "YoutubeID,Start_timestamp,End_timestamp,Caption,Aesthetic_Score\n"
       "1,00:07:33.689,00:07:51.085,one,4.5\n2,90:05,,two,5\n3,1.5,nan,three,5\n",
       "1 2 453.689-471.085 'one' 4.5\n2 3 5405-0 'two' 5\n3 4 1.5-0 'three' 5\n");
    is("t.jsonl", NULL,
       "{\"path\":\"1\",\"text\":[\"a\",null,\"b\"],\"timestamp\":1650000000,\"tags\":[\"x\"],"
       "\"o\":{},"
       "\"n\":[1,2]}\n{\"path\":\"2\",\"text\":\"c\",\"tags\":[\"x\",\"y\"],\"conversations\":"
       "[{\"from\":\"human\",\"value\":\"v\"}]}\n",
       "1 1 0-0 'a|b' 1.65e+09\n2 2 0-0 'c'\n");
    notes_are("column 'tags' ignores 2 lists or objects without a meaning here, the first: 'a "
              "list' in row 1\n"
              "column 'o' ignores 1 lists or objects without a meaning here, the first: 'an "
              "object' in row 1\n"
              "column 'n' ignores 1 lists or objects without a meaning here, the first: 'a "
              "list' in row 1\n"
              "column 'conversations' ignores 1 lists or objects without a meaning here, the "
              "first: 'a list' in row 2\n");
    // the column used for times is reported, unless it has the usual name
    is("t.csv", "-=timestamp,-=fps", "path,text,timestamp\n1,a,\"[0, 1]\"\n", "1 2 0-0 'a'\n");
    notes_are("column 'fps', which --columns leaves out, does not exist\n");
    is("t.csv", "range_s=timestamp", "path,text,timestamp\n1,a,\"[0, 1]\"\n", "1 2 0-1 'a'\n");
    notes_are("");
    is("t.csv", NULL, "path,text,Start,end_s\n1,a,0,1\n2,b,,\n3,c,5,2\n",
       "1 2 0-1 'a'\n2 3 0-0 'b'\n3 4: end_s is 2.000000; expected more than start_s, 5.000000\n");
    notes_are("1 samples are parts of their files, as 'Start' says; --columns -=Start takes whole "
              "files\n");
    is("t.csv", NULL, "path,text,start_s,end_s\n1,a,0,1\n", "1 2 0-1 'a'\n");
    notes_are("");
    CHECK_FAILS(read_list("t.jsonl", NULL, "{\"path\":\"1\",\"text\":[\"a\",2]}"), MR_E_DATA,
                "t.jsonl:1: text[1] is not text; expected a list of captions");
}

// ranges in other notations, and captions that belong to none
static void forms(void)
{
    is("t.csv", NULL,
       "path,text,timestamp\n1,a,00:00:00.200 - 00:00:01\n2,b,0.5-1.25\n3,c,\"1,2.5\"\n"
       "4,d,0:01 --> 0:02 \n5,e,NaN\n6,f,2020-01-05\n",
       "1 2 0.2-1 'a'\n2 3 0.5-1.25 'b'\n3 4 1-2.5 'c'\n4 5 1-2 'd'\n5 6 0-0 'e'\n6 7 0-0 'f'\n");
    is("t.csv", NULL, "path,text,span,start\n1,a,1-2,5\n2,b,2-1,\n",
       "1 2: span is a range, and the row has other times\n"
       "2 3: end_s is 1.000000; expected more than start_s, 2.000000\n");
    is("t.jsonl", NULL,
       "{\"path\":\"1\",\"text\":\"a\",\"range_s\":{\"start\":0.5,\"end\":1}}\n"
       "{\"path\":\"2\",\"clip\":{\"start\":2,\"end\":3,\"text\":\"b\",\"score\":4}}\n"
       "{\"path\":\"3\",\"text\":\"c\",\"span\":{\"of\":1}}\n"
       "{\"path\":\"4\",\"text\":\"d\",\"meta\":{\"of\":1}}\n",
       "1 1 0.5-1 'a'\n2 2 2-3 'b' 4\n3 3: one of its items has no times\n4 4 0-0 'd'\n");
    notes_are("column 'meta' ignores 1 lists or objects without a meaning here, the first: 'an "
              "object' in row 4\n2 samples are parts of their files, as 'start' says; --columns "
              "-=start takes whole files\n");
    is("t.jsonl", NULL,
       "{\"path\":\"1\",\"text\":\"a\",\"start\":{\"s\":1}}\n"
       "{\"path\":\"2\",\"text\":\"a\",\"text_2\":{\"en\":\"b\"}}\n"
       "{\"path\":\"3\",\"text\":\"a\",\"start\":{\"start\":1}}\n",
       "1 1: start_s is an object; expected a value or a list of them\n"
       "2 2: text_2 is an object; expected a value or a list of them\n"
       "3 3: start_s is a list; expected a list for the other edge too\n");
    CHECK_FAILS(read_list("t.json", "text=value",
                          "[{\"path\":\"1\",\"talk\":[{\"from\":\"gpt\",\"value\":\"a\"}]}]"),
                MR_E_DATA, "t.json:1: no text value 'value'; values found: path, talk");
}

// contradictions are refused by row, and no caption goes to another clip
static void refused(void)
{
    static const struct {
        const char *row, *why;
    } rows[] = {
        {"\"timestamp\":[[0,1],[1,2]],\"text\":[\"a\"]",
         "text has 1 items, timestamp has 2; expected equal numbers"},
        {"\"timestamp\":[[0,1]],\"text\":[\"a\",\"b\"]",
         "text has 2 items, timestamp has 1; expected equal numbers"},
        {"\"timestamp\":[[0,1],[1,2]],\"text\":\"a\"",
         "timestamp has 2 items, but there is one caption; expected equal numbers"},
        {"\"timestamp\":[[0,1],[1,2]],\"text\":[\"a\",\"b\"],\"n\":[1]",
         "n has 1 items, timestamp has 2; expected equal numbers"},
        {"\"start\":[0,1],\"end\":[1],\"text\":[\"a\",\"b\"]",
         "end_s has 1 items, start_s has 2; expected equal numbers"},
        {"\"start\":[0,1],\"text\":[\"a\",\"b\"]",
         "start_s is a list; expected a list for the other edge too"},
        {"\"start\":[0],\"end\":[1],\"span\":[[0,1]],\"text\":[\"a\"]",
         "both start_s and span are lists of ranges"},
        {"\"start\":[0],\"start_time\":[1],\"text\":[\"a\"]",
         "both start_s and start_s are lists of ranges"},
        {"\"timestamp\":[[0,1]],\"span\":[0,1],\"text\":[\"a\"]",
         "timestamp is a list of ranges, and the row has times of its own"},
        {"\"timestamp\":[[0,1]],\"end\":1,\"text\":[\"a\"]",
         "timestamp is a list of ranges, and the row has times of its own"},
        {"\"timestamp\":[0,1],\"span\":[1,2],\"text\":\"a\"", "both timestamp and span are ranges"},
        {"\"timestamp\":[0,1],\"end\":1,\"text\":\"a\"",
         "timestamp is a range, and the row has other times"},
        {"\"timestamp\":[],\"text\":[]", "timestamp is an empty list"},
        {"\"timestamp\":[0,1,2],\"text\":[\"a\",\"b\",\"c\"]",
         "timestamp has an item that is not a range; expected [from, to]"},
        {"\"timestamp\":[[0,1,2]],\"text\":[\"a\"]",
         "timestamp has an item that is not a range; expected [from, to]"},
        {"\"timestamp\":[[0,1]],\"text\":[7]", "text has an item that is not text"},
        {"\"start\":[[0]],\"end\":[1],\"text\":[\"a\"]",
         "start_s has an item that is not a range; expected [from, to]"},
        {"\"timestamp\":[[2,1]],\"text\":[\"a\"]",
         "end_s is 1.000000; expected more than start_s, 2.000000"},
        {"\"timestamp\":[[0,\"0:61\"]],\"text\":[\"a\"]",
         "end_s is '0:61'; expected seconds from 0 on, or H:MM:SS"},
        {"\"timestamp\":\"[[0 1]]\",\"text\":\"a\"", "timestamp is not a readable list: [[0 1]]"},
        {"\"timestamp\":[[0,1]],\"text\":\"['a' 'b']\"", "text is not a readable list: ['a' 'b']"}};
    char text[300], want[300];
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        snprintf(text, sizeof text, "{\"path\":\"1\",%s}\n{\"path\":\"2\",\"text\":\"good\"}\n",
                 rows[i].row);
        CHECK_OK(read_list("t.jsonl", NULL, text));
        size_t n = strcspn(seen, "\n");
        // one error of its kind for each sample that is wrong by itself
        snprintf(want, sizeof want, "1 1: %s", rows[i].why);
        seen[n] = 0;
        CHECK_STR(seen, want);
        CHECK(strstr(seen + n + 1, "2 2 0-0 'good'\n"));
    }
    // a wrong item costs only its own sample
    is("t.jsonl", NULL,
       "{\"path\":\"1\",\"timestamp\":[[0,1],7,[2,3]],\"text\":[\"a\",\"b\",\"c\"]}",
       "1 1 0-1 'a'\n1 1: timestamp has an item that is not a range; expected [from, to]\n"
       "1 1 2-3 'c'\n");
    // a cell of a list is a cell of its column
    CHECK_FAILS(
        read_list(
            "t.jsonl", NULL,
            "{\"path\":\"1\",\"span\":[[0,1],[1,2]],\"text\":[\"a\",\"b\"],\"n\":[1,\"1,5\"]}"),
        MR_E_DATA, "t.jsonl:1: column 'n' has '1,5', which is not a number");
    char many[3000] = "{\"path\":\"1\",\"text\":[\"a\"]";
    for (int i = 0; i < INDEX_LISTS; i++)
        sprintf(many + strlen(many), ",\"text_%d\":[\"b\"]", i + 2);
    strcat(many, "}");
    CHECK_FAILS(read_list("t.jsonl", NULL, many), MR_E_DATA,
                "t.jsonl:1: more than 64 lists in a row");
}

static void times(void)
{
    static const struct {
        const char *text;
        int64_t us;
    } good[] = {{"0", 0},
                {"1.5", 1500000},
                {" 2 ", 2000000},
                {"1e-3", 1000},
                {".5", 500000},
                {"5.", 5000000},
                {"0:00:00.500", 500000},
                {"1:02:03.25", 3723250000},
                {"00:07:33.689", 453689000},
                {"99:59", 5999000000},
                {"100:00:00", 360000000000},
                {"0:00", 0}};
    static const char *const bad[] = {"",        ":",   "1:",    ":1",   "1:60",   "1:60:00",
                                      "1:2:3:4", "-1",  "+1",    "0x10", "1.5:00", "1:00.5:00",
                                      "1:-5",    "nan", "inf",   "1 2",  "1e9",    "1:00a",
                                      "1e",      "a",   "1:1e1", "."};
    for (size_t i = 0; i < MR_COUNT(good); i++) {
        int64_t us = -1;
        CHECK(index_time(good[i].text, &us));
        CHECK_INT(us, good[i].us);
    }
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        int64_t us;
        if (index_time(bad[i], &us))
            printf("a time: '%s'\n", bad[i]);
        CHECK(!index_time(bad[i], &us));
    }
}

int main(void)
{
    parallel();
    single();
    forms();
    refused();
    times();
    return check_done();
}
