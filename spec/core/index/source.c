/* index/source: the files of folders and lists that are read, and those that are skipped.
 * Covers: core/index/path.c */
#include "check.h"
#include "clips.h"
#include "index/builder.h"
#include "inputs.h"

#include <jansson.h>
#include <sys/stat.h>

static void put(const char *name, const char *text)
{
    CHECK_OK(mr_file_replace(clips_path(name), text, strlen(text)));
}

static mr_status read_source(index_source *s, const char *input)
{
    char from[300];
    snprintf(from, sizeof from, "%s", clips_path(input));
    MR_TRY(index_source_init(s, clips_path("new.mrx"), "main"));
    MR_TRY(index_source_read(s, from, &(mr_ingest_options){0}));
    inputs_take(s);
    return MR_OK;
}

// links that form cycles, and several names of one folder
static void links(void)
{
    index_source s;
    CHECK_OK(mr_dir_make(clips_path("set/a/deep")));
    CHECK_OK(mr_dir_make(clips_path("set/b")));
    CHECK_OK(mr_dir_make(clips_path("outside/more")));
    put("set/a/deep/1.mp4", "");
    put("set/b/2.mp4", "");
    put("outside/more/3.mp4", "");
    CHECK_INT(symlink("..", clips_path("set/a/again")), 0);
    CHECK_INT(symlink("../a", clips_path("set/b/0")), 0);
    CHECK_INT(symlink("../../../set", clips_path("set/a/deep/root")), 0);
    CHECK_INT(symlink("../../outside", clips_path("set/b/out")), 0);
    CHECK_INT(symlink("../../outside/more", clips_path("set/a/out")), 0);
    CHECK_INT(symlink("nothing", clips_path("set/lost.mp4")), 0);
    // out of the set, and back into it
    CHECK_INT(symlink("../../set/b", clips_path("outside/more/back")), 0);
    if (CHECK_OK(read_source(&s, "set"))) {
        CHECK_INT(s.n, 3);
        CHECK_STR(inputs_at(&s, "a/deep/1.mp4")->path, "a/deep/1.mp4");
        CHECK_STR(inputs_at(&s, "b/2.mp4")->path, "b/2.mp4");
        CHECK_STR(inputs_at(&s, "a/out/3.mp4")->path, "a/out/3.mp4");
        CHECK(strstr(s.notes, "5 link to a folder read already, the first: a/again"));
        CHECK(strstr(s.notes, "1 dangling link, the first: lost.mp4"));
    }
    printf("%s\n", s.notes);
    index_source_fini(&s);
}

static void what_is_passed_over(void)
{
    index_source s;
    CHECK_OK(mr_dir_make(clips_path("mixed/old.mrx")));
    CHECK_OK(mr_dir_make(clips_path("mixed/old.mrx.tmp-12")));
    put("mixed/old.mrx/data.mdb", "");
    put("mixed/old.mrx/1.mp4", "");
    put("mixed/old.mrx.tmp-12/data.mdb", "");
    static const char *const names[] = {"1.mp4",  "1.txt",  "list.csv", "a.npy", "b.NPY",
                                        "c.flac", "README", ".hidden",  "2.TIF", "2.json"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        char name[64];
        snprintf(name, sizeof name, "mixed/%s", names[i]);
        put(name, strstr(names[i], ".json") ? "{\"caption\": \"two\"}" : "one\n");
    }
    for (int i = 0; i < 100; i++) {
        char name[64];
        snprintf(name, sizeof name, "mixed/file.%03d", i);
        put(name, "");
    }
    if (CHECK_OK(read_source(&s, "mixed"))) {
        CHECK_INT(s.n, 2);
        CHECK_STR(inputs_at(&s, "1.mp4")->text, "one");
        CHECK_STR(inputs_at(&s, "2.TIF")->text, "two");
        CHECK(strstr(s.notes, "ignored: 2 .npy, the first: a.npy\n"));
        CHECK(strstr(s.notes, "ignored: 1 .flac, the first: c.flac\n"));
        CHECK(strstr(s.notes, "ignored: 1 without ending, the first: README\n"));
        CHECK(strstr(s.notes, " others, the first: "));
    }
    index_source_fini(&s);
}

static void sources_text(void)
{
    // long names full of characters that JSON escapes once caused a text that was cut off
    char folder[3000] = "", name[300];
    index_source s;
    strcpy(name, clips_dir());
    strcpy(folder, name);
    for (int part = 0; part < 9; part++) {
        memset(name, part % 2 ? '\x02' : '\xff', 200);
        snprintf(name + 200, sizeof name - 200, "%d", part);
        strcat(folder, "/");
        strcat(folder, name);
    }
    CHECK_OK(mr_dir_make(folder));
    strcat(folder, "/1.mp4");
    CHECK_OK(mr_file_replace(folder, "", 0));
    *strrchr(folder, '/') = 0;
    CHECK_OK(index_source_init(&s, clips_path("new.mrx"), "main"));
    if (CHECK_OK(index_source_read(&s, folder, &(mr_ingest_options){0}))) {
        CHECK(strlen(s.described) > 8192);
        json_t *o = json_loads(s.described, 0, NULL);
        CHECK(strstr(json_string_value(json_object_get(json_array_get(o, 0), "root")), "\\xFF"));
        json_decref(o);
        CHECK_OK(index_source_same(&s, s.described));
        CHECK_FAILS(index_source_same(&s, "[{\"rows\":2}]"), MR_E_DATA, "is ");
    }
    index_source_fini(&s);
}

// pipes are refused without a wait, texts of any length are not read
static void captions_beside(void)
{
    index_source s;
    CHECK_OK(mr_dir_make(clips_path("odd")));
    for (int i = 0; i < 6; i++) {
        char name[32];
        snprintf(name, sizeof name, "odd/%d.mp4", i);
        put(name, "");
    }
    CHECK_INT(mkfifo(clips_path("odd/0.txt"), 0600), 0);
    CHECK_INT(mkfifo(clips_path("odd/1.json"), 0600), 0);
    put("odd/2.txt", "");
    CHECK_INT(truncate(clips_path("odd/2.txt"), 10 << 20), 0);
    put("odd/3.json", "");
    CHECK_INT(truncate(clips_path("odd/3.json"), (off_t)1 << 40), 0);
    put("odd/4.txt", "\xef\xbb\xbfmarked\r\n");
    CHECK_OK(mr_file_replace(clips_path("odd/5.txt"), "a\0b", 3));
    if (CHECK_OK(read_source(&s, "odd"))) {
        CHECK_INT(s.n, 6);
        CHECK(strstr(inputs_at(&s, "0.mp4")->fault, "0.txt: is not a regular file"));
        CHECK(strstr(inputs_at(&s, "1.mp4")->fault, "1.json: is not a regular file"));
        CHECK(strstr(inputs_at(&s, "2.mp4")->fault,
                     "2.txt: has 10485760 bytes, expected at most 65536"));
        CHECK(strstr(inputs_at(&s, "3.mp4")->fault, "expected at most 16777216"));
        CHECK(!inputs_at(&s, "4.mp4")->fault);
        CHECK_STR(inputs_at(&s, "4.mp4")->text, "marked");
        CHECK(strstr(inputs_at(&s, "5.mp4")->fault, "contains a zero byte"));
        CHECK_STR(inputs_at(&s, "0.mp4")->class, "caption");
    }
    index_source_fini(&s);
    CHECK_INT(mkfifo(clips_path("odd/list.csv"), 0600), 0);
    CHECK_FAILS(read_source(&s, "odd/list.csv"), MR_E_DATA, "list.csv: is not a regular file");
    index_source_fini(&s);
}

static void failing_memory(void)
{
    int failures = 0;
    for (int n = 1; n < 400; n++) {
        index_source s;
        mr_alloc_fail_at(n);
        mr_status st = read_source(&s, "set");
        mr_alloc_fail_at(0);
        index_source_fini(&s);
        if (st == MR_OK)
            continue;
        CHECK_INT(st, MR_E_MEMORY);
        failures++;
    }
    CHECK(failures > 20);
}

int main(void)
{
    links();
    what_is_passed_over();
    sources_text();
    captions_beside();
    failing_memory();
    inputs_free();
    return check_done();
}
