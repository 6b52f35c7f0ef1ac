/* index/validate, text: captions and rows that are refused before any file is read.
 * Covers: core/index/text.c core/index/list.c core/index/input.c */
#include "check.h"
#include "clips.h"
#include "inputs.h"

static void captions(void)
{
    static char text[INDEX_CAPTION_MAX + 2];
    char why[INDEX_WHY];
    static const char *const good[] = {"", "a red ball,\r\n\trolling",
                                       "Caf\xc3\xa9 \xe2\x80\x94 \xe7\x8c\xab \xf0\x9f\x90\x88",
                                       "\xc2\xa0\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80"
                                       "\xef\xbf\xbd\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < MR_COUNT(good); i++)
        CHECK(!index_caption_bad(good[i], why));
    static const struct {
        const char *text, *why;
    } bad[] = {{"ab\xff", "not UTF-8: FF at byte 2"},
               {"\x80", "not UTF-8: 80 at byte 0"},
               {"cut \xc3", "not UTF-8: C3 at byte 4"},
               {"\xe2\x80x", "not UTF-8: E2"},
               {"\xc0\xaf", "not UTF-8: C0"},
               {"\xe0\x9f\xbf", "not UTF-8: E0"},
               {"\xf0\x8f\xbf\xbf", "not UTF-8: F0"},
               {"\xed\xa0\x80", "not UTF-8: ED"},
               {"\xf4\x90\x80\x80", "not UTF-8: F4"},
               {"\xf5\x80\x80\x80", "not UTF-8: F5"},
               {"bell\a", "control character U+0007 at byte 4"},
               {"\x1b[31mred", "control character U+001B at byte 0"},
               {"\x7f", "control character U+007F"},
               {"\xc2\x85", "control character U+0085"}};
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        CHECK(index_caption_bad(bad[i].text, why));
        if (!CHECK(strstr(why, bad[i].why) != NULL))
            printf("  %s, expected %s\n", why, bad[i].why);
    }
    memset(text, 'x', INDEX_CAPTION_MAX);
    CHECK(!index_caption_bad(text, why));
    text[INDEX_CAPTION_MAX] = 'x';
    CHECK(index_caption_bad(text, why));
    CHECK_STR(why, "a caption of 65537 bytes; expected at most 65536");
}

static void rows_of_one_sample(void)
{
    static const struct {
        const char *path, *text, *class, *why;
    } rows[] = {
        {"b/x.mp4", "one", NULL, NULL},
        {"a.mp4", "bell\a", "caption", "U+0007"},
        {"./b//x.mp4", "two", "duplicate", "./b//x.mp4: the same sample as row 10 (b/x.mp4)"},
        {"b/../a.mp4", "three", "duplicate", "the same sample as row 11 (a.mp4)"},
        {"/root/b/c/../x.mp4", NULL, "duplicate", "the same sample as row 10"},
        {"/elsewhere/x.mp4", "four", NULL, NULL},
        {"../elsewhere/x.mp4", "four", "duplicate", "the same sample as row 15"},
        {"x.mp4", "\xff", "caption", "not UTF-8"}};
    index_source s;
    CHECK_OK(index_source_init(&s, clips_path("new.mrx"), "main"));
    strcpy(s.root, "/root");
    for (size_t i = 0; i < MR_COUNT(rows); i++)
        CHECK_OK(index_source_add(
            &s, &(index_input){.path = rows[i].path, .text = rows[i].text, .line = 10 + i}));
    static char path[5000];
    memset(path, 'p', sizeof path - 1);
    CHECK_OK(index_source_add(&s, &(index_input){.path = path, .line = 20}));
    CHECK_OK(index_source_add(
        &s, &(index_input){.path = "y.mp4", .text = "good\0bell\a", .more = 1, .line = 21}));
    CHECK_OK(index_source_add(
        &s, &(index_input){.path = "z.mp4", .text = "good\0better", .more = 1, .line = 22}));
    CHECK_OK(index_source_end(&s));
    inputs_take(&s);
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        CHECK_STR(inputs[i].path, rows[i].path);
        CHECK_INT(inputs[i].line, 10 + i);
        if (rows[i].class) {
            CHECK_STR(inputs[i].class, rows[i].class);
            CHECK(inputs[i].fault && strstr(inputs[i].fault, rows[i].why));
        } else {
            CHECK(!inputs[i].fault && !inputs[i].class);
        }
    }
    CHECK_STR(inputs[MR_COUNT(rows)].class, "open");
    CHECK(strstr(inputs[MR_COUNT(rows)].fault, "path is too long") != NULL);
    // each caption is checked
    CHECK_STR(inputs[MR_COUNT(rows) + 1].class, "caption");
    CHECK(!inputs[MR_COUNT(rows) + 1].text && !inputs[MR_COUNT(rows) + 1].more);
    CHECK_STR(inputs[MR_COUNT(rows) + 2].text, "good");
    CHECK_STR(inputs[MR_COUNT(rows) + 2].text + 5, "better");
    // a refused text has no effect, not even on the dictionary
    CHECK(!inputs[1].text && !inputs[7].text);
    CHECK_STR(inputs[0].text, "one");
    CHECK_INT(s.text_bytes, strlen("one"
                                   "two"
                                   "three"
                                   "four"
                                   "four"
                                   "good"));
    index_pack unused = {0};
    index_input none;
    CHECK_FAILS(index_source_take(&s, &unused, &none), MR_E_RANGE, "the list has 11 rows");
    index_source_fini(&s);
    inputs_free();
}

int main(void)
{
    captions();
    rows_of_one_sample();
    return check_done();
}
