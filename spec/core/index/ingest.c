/* index/ingest: equal indexes for any number of threads, refused rows, lists that are read in
 * parallel or spilled to disk, Ctrl-C. */
#include "check.h"
#include "clipset.h"
#include "index/bytes.h"
#include "index/sort.h"

#include <stdatomic.h>

static void any_number_of_threads(void)
{
    mr_ingest_progress p;
    mr_index *ix[2];
    if (!CHECK_OK(clipset_ingest(clips_path("set"), clips_path("one.mrx"), 1, &p)) ||
        !CHECK_OK(clipset_ingest(clips_path("set"), clips_path("set.mrx"), 4, &p)))
        return;
    CHECK_INT(p.written, CLIPS);
    CHECK_INT(p.refused, 0);
    CHECK_INT(p.without_caption, 0);
    CHECK_OK(mr_index_open(clips_path("one.mrx"), false, &ix[0]));
    CHECK_OK(mr_index_open(clips_path("set.mrx"), false, &ix[1]));
    mr_index_facts f[2] = {mr_index_get_facts(ix[0]), mr_index_get_facts(ix[1])};
    CHECK(memcmp(&f[0].fp_order, &f[1].fp_order, 16) == 0);
    mr_index_unref(ix[0]);
    mr_index_unref(ix[1]);
}

// Ctrl-C ends an ingest; it resumes from committed rows, and no row was refused
static void interrupted_ingest(void)
{
    mr_ingest *g;
    mr_ingest_progress p = {0};
    mr_index *ix[2];
    char out[300];
    snprintf(out, sizeof out, "%s", clips_path("interrupted.mrx"));
    mr_io io = *mr_io_table();
    io.pread = clipset_pread;
    int stopped = 0, count = 0;
    for (mr_status st = MR_E_STOPPED; st == MR_E_STOPPED && stopped < 100;) {
        mr_ingest_options options = {.threads = 1, .resume = true, .commit_rows = 1};
        clipset_reads = -1;
        mr_io_replace(&io);
        if (!CHECK_OK(mr_ingest_new(clips_path("set"), out, &options, &g)))
            return;
        clipset_reads = count;
        do
            st = mr_ingest_step(g, 1, &p);
        while (st == MR_OK && !p.finished);
        mr_ingest_free(g);
        count = clipset_reads;
        mr_io_replace(NULL);
        mr_interrupt_set(false);
        stopped += st == MR_E_STOPPED;
    }
    CHECK(stopped > 2 && stopped < 100);
    CHECK_INT(p.written, CLIPS);
    CHECK_INT(p.refused, 0);
    if (!CHECK_OK(mr_index_open(clips_path("set.mrx"), false, &ix[0])) ||
        !CHECK_OK(mr_index_open(out, false, &ix[1])))
        return;
    mr_index_facts f[2] = {mr_index_get_facts(ix[0]), mr_index_get_facts(ix[1])};
    CHECK(memcmp(&f[0].fp_order, &f[1].fp_order, 16) == 0);
    mr_index_unref(ix[0]);
    mr_index_unref(ix[1]);
}

static void ingest_refusals(void)
{
    mr_ingest_progress p;
    char out[300];
    snprintf(out, sizeof out, "%s", clips_path("new.mrx"));
    CHECK_OK(mr_dir_make(clips_path("hollow")));
    CHECK_FAILS(clipset_ingest(clips_path("hollow"), out, 2, &p), MR_E_DATA, "no samples in it");
    CHECK_FAILS(clipset_ingest(clips_path("nothing"), out, 2, &p), MR_E_DATA, "No such file");
    const struct {
        const char *text, *part;
    } rows[] = {{"file,text\na,b\n", "no column 'path'; columns found: file, text"},
                {"path,caption\na,b\n", "no column 'text'; columns found: path, caption"},
                {"", "no column 'path'; columns found: none"},
                {"path,text\n", "no samples in it"},
                {"path,text\nset/00.webm\n", ":2: 1 fields, expected 2"},
                {"path,text\nset/00.webm,\"open\n", ":2: a quoted field does not end"},
                {"path,text\nlost.mp4,x\nset/00.txt,y\n", "none of 2 rows can be read"}};
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        CHECK_OK(mr_file_replace(clips_path("list.csv"), rows[i].text, strlen(rows[i].text)));
        CHECK_FAILS(clipset_ingest(clips_path("list.csv"), out, 2, &p), MR_E_DATA, rows[i].part);
    }
    CHECK_INT(mr_path_exists(out), 0);
    // a list with quotes, line breaks, a byte order mark and a row that cannot be read
    const char *good =
        "\xef\xbb\xbfnum,path,text\r\n1,set/00.webm,\"a \"\"red\"\" "
        "ball,\r\nrolling\"\r\n2,lost.mp4,x\r\n\r\n3,set/05.png,\r\n4,set/stills/05.png,still\r\n"
        "5,./set/../set/00.webm,again\r\n6,set/02.webm,bell\a\r\n";
    CHECK_OK(mr_file_replace(clips_path("list.csv"), good, strlen(good)));
    if (!CHECK_OK(clipset_ingest(clips_path("list.csv"), out, 2, &p)))
        return;
    CHECK_INT(p.written, 2);
    CHECK_INT(p.refused, 4);
    mr_index *ix;
    mr_index_reader *reader;
    mr_row row;
    CHECK_OK(mr_index_open(out, true, &ix));
    CHECK_OK(mr_index_reader_new(ix, &reader));
    CHECK_OK(mr_index_row(reader, 0, &row));
    CHECK_STR(row.captions[0].text, "a \"red\" ball,\r\nrolling");
    CHECK_OK(mr_index_row(reader, 1, &row));
    CHECK_INT(row.info.flags & MR_CLIP_IMAGE, MR_CLIP_IMAGE);
    mr_index_reader_free(reader);
    mr_index_unref(ix);
    char refused[400];
    snprintf(refused, sizeof refused, "%s/refused.jsonl", out);
    CHECK_INT(clipset_count(refused, "\"class\":\"io\""), 2);
    CHECK_INT(clipset_count(refused,
                            "\"class\":\"caption\",\"detail\":\"a caption with the control "
                            "character U+0007 at byte 4\""),
              1);
    CHECK_INT(clipset_count(refused, "\"row\":8,\"path\":\"./set/../set/00.webm\",\"class\":"
                                     "\"duplicate\",\"detail\":\"./set/../set/00.webm: the same "
                                     "sample as row 2 (set/00.webm)\""),
              1);
    CHECK_OK(mr_file_replace(clips_path("list.jsonl"),
                             "{\"path\":\"set/00.webm\",\"text\":\"x\"}\n{\"path\":3}\n", 45));
    CHECK_FAILS(clipset_ingest(clips_path("list.jsonl"), out, 2, &p), MR_E_DATA,
                "list.jsonl:2: no text value 'path'");
    // stopped half way: nothing of the new one remains, the old one stays
    mr_ingest *g;
    if (CHECK_OK(mr_ingest_new(clips_path("set"), out, &(mr_ingest_options){.threads = 2}, &g))) {
        CHECK_OK(mr_ingest_step(g, 0, &p));
        mr_ingest_free(g);
    }
    CHECK_OK(mr_index_open(out, true, &ix));
    CHECK_INT(mr_index_get_facts(ix).rows, 2);
    mr_index_unref(ix);
}

static atomic_int endless_calls;
static ssize_t endless_read(int fd, void *buf, size_t n)
{
    (void)fd;
    // the observer gets its turn too, also on a busy machine
    if (endless_calls > 1000)
        mr_clock_table()->sleep_ns(100000);
    // the table ends some day, so that a spec that fails ends too
    if (endless_calls++ > 20000)
        return 0;
    return snprintf(buf, n, endless_calls == 1 ? "path,text\n" : "%d.mp4,text\n", endless_calls);
}

// A list is read while the caller polls, and can be stopped at any moment; a step returns errors.
static void list_beside_the_caller(void)
{
    mr_ingest *g;
    mr_ingest_progress p;
    char out[300];
    snprintf(out, sizeof out, "%s", clips_path("endless.mrx"));
    CHECK_OK(mr_file_replace(clips_path("endless.csv"), "", 0));
    mr_io io = *mr_io_table();
    io.read = endless_read;
    mr_io_replace(&io);
    if (!CHECK_OK(mr_ingest_new(clips_path("endless.csv"), out, &(mr_ingest_options){0}, &g)))
        return;
    mr_status st;
    do
        st = mr_ingest_step(g, 0, &p);
    while (st == MR_OK && p.listed < 100 && endless_calls < 20000);
    CHECK_OK(st);
    CHECK_INT(p.total, 0);
    CHECK_INT(p.finished, 0);
    CHECK_STR(mr_ingest_notes(g), "");
    mr_ingest_free(g);
    CHECK(endless_calls < 20000);
    mr_io_replace(NULL);
    CHECK_INT(clips_count("endless.mrx"), 0);
    // a failed one keeps failing
    if (!CHECK_OK(mr_ingest_new(clips_path("endless.csv"), out, &(mr_ingest_options){0}, &g)))
        return;
    for (int again = 0; again < 2; again++)
        CHECK_FAILS(mr_ingest_step(g, 60, &p), MR_E_DATA, "no column 'path'");
    mr_ingest_free(g);
}

static char *file_of(const char *index, const char *name, size_t *n)
{
    char path[700], *bytes = NULL;
    snprintf(path, sizeof path, "%s/%s", index, name);
    CHECK_OK(mr_file_read_all(path, &bytes, n));
    return bytes;
}

// A list that does not fit in memory gives the same index, byte for byte, and the same refusals.
static void lists_put_aside(void)
{
    enum { ROWS = 4000 };
    index_pack list = {0};
    char line[300], out[2][300], *file[2];
    size_t n[2];
    index_put(&list, "path,text\n", 10);
    for (int i = 0; i < ROWS; i++) {
        // few of the rows are samples: others are missing, or duplicates under another name
        int k = snprintf(line, sizeof line, "%s%s%03d.mp4,\"row %d%s\"\n", i % 3 ? "" : "./",
                         i % 50 == 7 ? "set/../gone/" : "gone/", i / 2, i, i % 11 ? "" : "\a");
        if (i % 400 == 3)
            k = snprintf(line, sizeof line, "set/%02d.webm,\"row %d\"\n", i / 400 * 2 % 8, i);
        index_put(&list, line, (size_t)k);
    }
    CHECK_OK(mr_file_replace(clips_path("long.csv"), list.bytes, list.n));
    CHECK(list.n > 100000);
    mr_free(list.bytes);
    for (int small = 0; small < 2; small++) {
        mr_ingest_progress p;
        index_run_bytes = small ? 20000 : 64 << 20;
        snprintf(out[small], sizeof out[0], "%s", clips_path(small ? "small.mrx" : "large.mrx"));
        CHECK_OK(clipset_ingest(clips_path("long.csv"), out[small], 1 + small, &p));
        CHECK_INT(p.written, 4);
        CHECK_INT(p.refused, ROWS - 4);
    }
    index_run_bytes = (size_t)64 << 20;
    static const char *const names[] = {"data.mdb", "info.txt", "refused.jsonl"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        for (int small = 0; small < 2; small++)
            file[small] = file_of(out[small], names[i], &n[small]);
        CHECK(file[0] && file[1] && n[0] == n[1] && memcmp(file[0], file[1], n[0]) == 0);
        mr_free(file[0]);
        mr_free(file[1]);
    }
    char refused[400];
    snprintf(refused, sizeof refused, "%s/refused.jsonl", out[1]);
    CHECK_INT(clipset_count(refused, "\n"), ROWS - 4);
    CHECK_INT(clipset_count(refused, "\"class\":\"caption\""), ROWS / 11);
    CHECK_INT(clipset_count(refused, "\"row\":25,\"path\":\"gone/011.mp4\",\"class\":\"duplicate\","
                                     "\"detail\":\"gone/011.mp4: the same sample as row 24 "
                                     "(gone/011.mp4)\""),
              1);
}

int main(void)
{
    const mr_media *m;
    if (!CHECK_OK(mr_media_get(&m)) || !clipset_make(m))
        return check_done();
    any_number_of_threads();
    ingest_refusals();
    list_beside_the_caller();
    lists_put_aside();
    interrupted_ingest();
    return check_done();
}
