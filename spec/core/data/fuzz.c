/* data and index, hostile files: good tables, quarantine lists, indexes and rows are changed at
 * random thousands of times. Each result is refused with an error, or read; nothing is read past
 * its end, and memory stays bounded.
 * Covers: core/index/table.c core/index/pack.c core/index/parquet.c */
#include "base/process.h"
#include "check.h"
#include "data/room.h"
#include "index/store.h"
#include "index/table.h"
#include "mutator.h"
#include "rows.h"
#define XXH_STATIC_LINKING_ONLY
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

// pieces that have a meaning for one of the readers
static const char *const words[] = {"\"",
                                    "\"\"",
                                    ",",
                                    "\n",
                                    "\r\n",
                                    "\r",
                                    "\t",
                                    "{",
                                    "}",
                                    "[",
                                    "]",
                                    ":",
                                    "\\",
                                    "\\u0000",
                                    "\\ud800",
                                    "\xff",
                                    "\xc0\x80",
                                    "\xef\xbb\xbf",
                                    "-1",
                                    "1e999",
                                    "nan",
                                    "null",
                                    "true",
                                    "path",
                                    "text",
                                    "text_2",
                                    "key",
                                    "class",
                                    "epoch",
                                    "attempt",
                                    "io",
                                    "corrupt",
                                    "fp_order",
                                    "18446744073709551616",
                                    "0x1p5",
                                    ",,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,",
                                    "'",
                                    "(",
                                    ")",
                                    "[[",
                                    "]]",
                                    "start",
                                    "end",
                                    "timestamp",
                                    "0:00:01",
                                    "None",
                                    "\\x",
                                    "\\U0001F600",
                                    "\xff\xfe",
                                    "1,234.5",
                                    "9223372036854775807"};

static void spoil(blob *b)
{
    change_some(b, words, MR_COUNT(words));
}

static void start_with(blob *b, const char *text)
{
    b->n = 0;
    puts_to(b, text);
}

/* ---- which reader gets which text ---- */

static uint64_t rows_read;
static mr_status take_row(void *user, const index_input *in)
{
    (void)user;
    // all memory that a row lends is read
    size_t n = strlen(in->path) + index_input_text_bytes(in);
    for (int32_t i = 0; i < in->n_numbers; i++)
        n += !mr_number_is_none(index_input_number(in, i));
    rows_read += n > 0;
    return MR_OK;
}

static void read_as(const char *name, const blob *b)
{
    index_scores scores;
    index_pack notes = {0};
    char file[300];
    snprintf(file, sizeof file, "%s", clips_path(name));
    write_blob(file, b);
    bool escape = strstr(name, "sv") && draw(2);
    CHECK_OK(index_scores_begin(&scores, &(mr_table_options){.escape = escape ? "\\" : NULL}));
    mr_status st = index_table_read(file, &scores, take_row, NULL);
    CHECK_OK(index_scores_notes(&scores, &notes));
    mr_free(notes.bytes);
    CHECK(st == MR_OK || (mr_error_last() && strstr(mr_error_last()->text, name)));
}

static void csv(blob *b)
{
    static const char lists[] =
        "path,timestamp,text,score\n1.mp4,\"[['0:00:01', '0:00:02'], (3, 4.5)]\",\"['a', "
        "\"\"b\\xe9\"\"]\",\"[0.5, None]\"\n2.mp4,\"[0.5, null]\",c,7\n3.mp4,,\"[\"\"a\"\"]\",\n";
    if (!draw(3))
        start_with(b, lists);
    else
        start_with(b, draw(2) ? "path,text,text_2,flow,\"a,b\"\n1.mp4,\"one \"\"two\"\"\",b,1.5,x\n"
                                "2.mp4,\"line\nbreak\",,-2e3,\n\n3.mp4,plain,c,,\n"
                              : "\xef\xbb\xbfpath\ttext\tn\r\na.mp4\tred\t1\r\nb.mp4\t\t2\r\n");
    spoil(b);
    read_as(draw(4) ? "f.csv" : "f.tsv", b);
}

static void start_with_lines(blob *b)
{
    start_with(b,
               "{\"path\":\"1.mp4\",\"text\":\"one\",\"flow\":1.5}\n"
               "{\"text\":[\"a\",\"\\u00e4\",\"\"],\"path\":\"2.mp4\",\"tags\":[1,{\"a\":2}]}\n"
               "\n{\"path\":\"3.mp4\",\"text\":null,\"text_2\":\"b\",\"big\":1e300}\n"
               "{\"path\":\"4\",\"timestamp\":[[\"0:00:01\",2],[3,null]],\"text\":[\"a\",[\"b\"]],"
               "\"big\":[9007199254740993,NaN]}\n"
               "{\"path\":\"5\",\"clips\":[{\"start\":1,\"end\":2,\"text\":\"a\"},{\"span\":[1,"
               "2]}],\"flow\":18446744073709551616}\n");
    spoil(b);
}

static void json_lines(blob *b)
{
    start_with_lines(b);
    read_as("f.jsonl", b);
    start_with(
        b,
        "[\n{\"path\":\"1.mp4\",\"text\":\"a}\\\"{\",\"clip\":{\"x\":[1]}},\n{\"path\":\"2.mp4\","
        "\"text\":\"b\",\"span\":[1,2]}]\n");
    spoil(b);
    read_as("f.json", b);
}

/* A child's output for a Parquet file: in pieces that end anywhere, and it may fail after them. A
 * program of this spec replaces duckdb. */
static void parquet(blob *b)
{
    static const char *const ends[] = {"0", "0", "0", "3"}, *const sizes[] = {"1", "7", "4096"};
    start_with_lines(b);
    setenv("FUZZ_FILE", clips_path("f.parquet"), 1);
    setenv("FUZZ_PIECE", sizes[draw(3)], 1);
    setenv("FUZZ_END", ends[draw(4)], 1);
    read_as("f.parquet", b);
}

static void stand_for_duckdb(void)
{
    static const char script[] = "#!/bin/sh\n"
                                 "dd if=\"$FUZZ_FILE\" bs=\"$FUZZ_PIECE\" status=none\n"
                                 "exit \"$FUZZ_END\"\n";
    char path[4096];
    CHECK_OK(mr_dir_make(clips_path("bin")));
    CHECK_OK(mr_file_replace(clips_path("bin/duckdb"), script, sizeof script - 1));
    CHECK_INT(chmod(clips_path("bin/duckdb"), 0755), 0);
    snprintf(path, sizeof path, "%s:%s", clips_path("bin"), getenv("PATH"));
    setenv("PATH", path, 1);
}

static void quarantine_file(blob *b)
{
    mr_hash128 order = {1, 2};
    char hex[33], text[900];
    mr_hash128_hex(order, hex);
    static const char form[] =
        "{\"key\":\"0000000000000007000000000000000%d\",\"row\":3,\"path\":\"a.mp4\","
        "\"class\":\"%s\",\"detail\":\"why\",\"time\":1.5,\"host\":\"h\",\"attempt\":1,"
        "\"epoch\":%d,\"fp_order\":\"%s\"}\n";
    int n = 0;
    for (int i = 0; i < 3; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, form, i % 2, i ? "corrupt" : "io", i, hex);
    start_with(b, text);
    spoil(b);
    write_blob(clips_path("q.jsonl"), b);
    quarantine *q;
    uint64_t *keys, count;
    if (quarantine_open(clips_path("q.jsonl"), order, "", &q) != MR_OK)
        return;
    char *state_text;
    CHECK_OK(quarantine_excluded(q, 3, &keys, &count));
    CHECK(count <= 3);
    mr_free(keys);
    // text from a checkpoint, changed too
    if (CHECK_OK(quarantine_text(q, 3, &state_text))) {
        start_with(b, state_text);
        spoil(b);
        put_int(b, 0, 1);
        quarantine_take(q, draw(5), b->data);
    }
    mr_free(state_text);
    quarantine_close(q);
}

static blob good[3];
static const char *const parts[] = {"data.mdb", "data.sum", "info.txt"};

static void index_file(blob *b)
{
    char file[300];
    uint32_t which = draw(8) ? draw(2) : 2;
    for (uint32_t i = 0; i < 3; i++) {
        b->n = 0, put(b, good[i].data, good[i].n);
        if (i == which)
            spoil(b);
        snprintf(file, sizeof file, "%s/%s", clips_path("f.mrx"), parts[i]);
        write_blob(file, b);
    }
    mr_index *index;
    mr_index_reader *reader;
    if (mr_index_open(clips_path("f.mrx"), draw(2), &index) != MR_OK)
        return;
    if (CHECK_OK(mr_index_reader_new(index, &reader))) {
        mr_row row;
        for (uint64_t i = 0; i < mr_index_get_facts(index).rows; i++)
            rows_read += CHECK_OK(mr_index_row(reader, i, &row));
        mr_index_reader_free(reader);
    }
    mr_index_unref(index);
}

// a row whose checksum is right, so that all bytes after it are reached
static void row(blob *b)
{
    char path[64], text[64];
    mr_caption caption[2];
    int64_t keys[4];
    mr_row in = rows_make(fuzz_state, draw(1000), path, text, caption, keys), out = {0};
    caption[1] = (mr_caption){"tag", text};
    in.n_captions = draw(3), in.root = (uint16_t)draw(3);
    index_pack p = {0};
    CHECK_OK(index_pack_row(&p, &in, NULL));
    b->n = 0, put(b, p.bytes, p.n - 4);
    mr_free(p.bytes);
    spoil(b);
    put_int(b, XXH32(b->data, b->n, 0), 4);
    // a block of its own, so that a sanitizer knows where it ends
    char *exact = malloc(b->n);
    memcpy(exact, b->data, b->n);
    mr_arena arena;
    mr_arena_init(&arena);
    if (index_unpack_row((MDB_val){b->n, exact}, &arena, &out, NULL, NULL) == MR_OK) {
        size_t n = strlen(out.path);
        for (int32_t i = 0; i < out.n_captions; i++)
            n += strlen(out.captions[i].text) + strlen(out.captions[i].tag);
        for (int32_t i = 0; i < out.info.n_keys; i++)
            n += out.info.key_pts[i] != 0;
        rows_read += n > 0;
    } else {
        CHECK_INT(mr_error_last()->code, MR_E_DATA);
    }
    mr_arena_fini(&arena);
    free(exact);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*feed)(blob *b);
    } kinds[] = {{"csv", csv},
                 {"json lines", json_lines},
                 {"quarantine", quarantine_file},
                 {"index", index_file},
                 {"row", row},
                 {"parquet", parquet}};
    blob b = {0};
    mr_streams_hold(); // as in the program: its children inherit these streams
    stand_for_duckdb();
    CHECK_OK(rows_build(clips_path("f.mrx"), 1, 10, 0));
    for (int i = 0; i < 3; i++) {
        char file[300];
        snprintf(file, sizeof file, "%s/%s", clips_path("f.mrx"), parts[i]);
        CHECK_OK(mr_file_read_all(file, &good[i].data, &good[i].n));
    }
    for (size_t k = 0; k < MR_COUNT(kinds); k++) {
        fuzz_rounds r = fuzz_start(300);
        rows_read = 0;
        while (fuzz_next(&r, k))
            kinds[k].feed(&b);
        printf("%s: %llu files, %llu rows\n", kinds[k].name, (unsigned long long)r.n,
               (unsigned long long)rows_read);
    }
    for (int i = 0; i < 3; i++)
        mr_free(good[i].data);
    blob_free(&b);
    return check_done();
}
