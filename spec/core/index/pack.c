/* index/pack: unusual rows are read back unchanged, and need little room.
 * Covers: core/index/synthetic.c */
#include "check.h"
#include "clips.h"
#include "index/store.h"
#include <sys/stat.h>
#include <xxhash.h>

static bool same_row(const mr_row *a, const mr_row *b)
{
    const mr_clip_info *x = &a->info, *y = &b->info;
    bool same = a->root == b->root && strcmp(a->path, b->path) == 0 && a->start_us == b->start_us &&
                a->end_us == b->end_us && a->key.lo == b->key.lo && a->key.hi == b->key.hi &&
                a->n_captions == b->n_captions && x->n_keys == y->n_keys &&
                x->frames == y->frames && x->first_pts == y->first_pts && x->tb_num == y->tb_num &&
                x->tb_den == y->tb_den && x->rate_num == y->rate_num &&
                x->rate_den == y->rate_den && x->duration_ms == y->duration_ms &&
                x->coded_width == y->coded_width && x->coded_height == y->coded_height &&
                x->width == y->width && x->height == y->height && x->sar_num == y->sar_num &&
                x->sar_den == y->sar_den && x->orient == y->orient && x->reorder == y->reorder &&
                x->flags == y->flags && x->matrix == y->matrix && x->range == y->range &&
                x->transfer == y->transfer && x->primaries == y->primaries &&
                x->bytes == y->bytes && x->mtime_ns / 1000000000 == y->mtime_ns / 1000000000 &&
                strcmp(x->codec, y->codec) == 0;
    for (int32_t k = 0; same && k < x->n_keys; k++)
        same = x->key_pts[k] == y->key_pts[k];
    for (int32_t c = 0; same && c < a->n_captions; c++)
        same = strcmp(a->captions[c].tag, b->captions[c].tag) == 0 &&
               strcmp(a->captions[c].text, b->captions[c].text) == 0;
    return same;
}

static mr_caption captions[3] = {{"", "one"}, {"", ""}, {"", "three"}};
static int64_t keys[] = {0, 48, 96, 144, 150, 600};

static mr_row usual(void)
{
    return (mr_row){.path = "a/b.mp4",
                    .key = {7, 8},
                    .end_us = -1,
                    .n_captions = 2,
                    .captions = captions,
                    .info = {.frames = 250,
                             .tb_num = 1,
                             .tb_den = 12800,
                             .rate_num = 25,
                             .rate_den = 1,
                             .duration_ms = 10000,
                             .coded_width = 1280,
                             .coded_height = 720,
                             .width = 1280,
                             .height = 720,
                             .sar_num = 1,
                             .sar_den = 1,
                             .reorder = 2,
                             .matrix = 1,
                             .range = 1,
                             .transfer = 1,
                             .primaries = 1,
                             .bytes = 123456,
                             .mtime_ns = 1700000000123456789,
                             .codec = "h264",
                             .n_keys = 6,
                             .key_pts = keys}};
}

// an empty write at the end of an empty buffer reads no memory out of bounds
static void nothing(void)
{
    index_pack p = {0};
    index_put(&p, "", 0);
    CHECK(!p.failed && p.n == 0);
}

// packs a row, returns its size, and compares the unpacked row
static size_t check(const mr_row *row)
{
    index_pack p = {0};
    mr_arena arena;
    mr_row got = {0}, facts = {0};
    mr_arena_init(&arena);
    CHECK_OK(index_pack_row(&p, row, NULL));
    const MDB_val v = {p.n, p.bytes};
    CHECK_OK(index_unpack_row(v, &arena, &got, NULL, NULL));
    CHECK(same_row(row, &got));
    CHECK_OK(index_unpack_facts(v, &arena, &facts));
    CHECK_STR(facts.path, row->path);
    size_t n = p.n;
    // each changed byte is detected, and no byte is read past its end
    for (size_t i = 0; i < n; i++) {
        p.bytes[i] ^= 0x41;
        CHECK_FAILS(index_unpack_row(v, &arena, &got, NULL, NULL), MR_E_DATA, "checksum");
        p.bytes[i] ^= 0x41;
        MDB_val cut = {i, p.bytes};
        CHECK(index_unpack_row(cut, &arena, &got, NULL, NULL) == MR_E_DATA);
    }
    mr_arena_fini(&arena);
    mr_free(p.bytes);
    return n;
}

static void unusual(void)
{
    mr_row base = usual(), rows[17];
    size_t least = check(&base), n = 0;
    CHECK(least < 70);
    for (size_t i = 0; i < MR_COUNT(rows); i++)
        rows[i] = base;
    rows[n++].root = 300;
    rows[n++].info.first_pts = -5;
    rows[n].info.rate_num = 30000, rows[n++].info.rate_den = 1001;
    rows[n++].info.matrix = 5;
    rows[n].info.primaries = 9, rows[n++].info.range = 2;
    rows[n++].info.flags = MR_CLIP_VFR | MR_CLIP_PART;
    rows[n].info.width = 720, rows[n++].info.height = 1280;
    rows[n++].info.duration_ms = 9999;
    rows[n].info.sar_num = 4, rows[n++].info.sar_den = 3;
    rows[n++].info.orient = 5;
    rows[n].start_us = 40000, rows[n++].end_us = 80000;
    rows[n++].info.tb_num = 1001;
    static const mr_caption tagged[] = {{"long", "a text"}, {"", "b"}};
    rows[n++].captions = tagged;
    snprintf(rows[n++].info.codec, 24, "strange");
    // a picture has no rate, no key frames, perhaps no captions and no time
    rows[n].info.rate_num = 0, rows[n].info.duration_ms = 0, rows[n].n_captions = 0;
    rows[n].info.n_keys = 0, rows[n++].info.mtime_ns = 0;
    static int64_t wild[] = {INT64_MIN, INT64_MAX, 0, INT64_MIN + 1};
    rows[n].info.key_pts = wild, rows[n++].info.n_keys = 4;
    rows[n++].info.frames = (int64_t)1 << 40;
    CHECK_INT(n, MR_COUNT(rows));
    for (size_t i = 0; i < n; i++)
        CHECK(check(&rows[i]) > 20);
}

// a count that exceeds the bytes after it is damage, whatever the checksum says
static void long_lists(void)
{
    mr_row row = usual(), got = {0};
    index_pack p = {0};
    mr_arena arena;
    mr_arena_init(&arena);
    row.info.n_keys = 0, row.n_captions = 0;
    CHECK_OK(index_pack_row(&p, &row, NULL));
    // after the metadata are both counts and the checksum
    p.n -= 6;
    index_put_varint(&p, (uint64_t)1 << 50);
    index_put_int(&p, XXH32(p.bytes, p.n, 0), 4);
    const MDB_val v = {p.n, p.bytes};
    CHECK_FAILS(index_unpack_row(v, &arena, &got, NULL, NULL), MR_E_DATA, "key frame list");
    mr_arena_fini(&arena);
    mr_free(p.bytes);
}

// the promise: at most 260 bytes a row with captions of 300, all included
static void size(void)
{
    enum { ROWS = 20000, DICTIONARY = 64 << 10 };
    const char *path = clips_path("s.mrx");
    char file[300];
    struct stat about;
    mr_index *index;
    mr_index_reader *reader;
    if (!CHECK_OK(mr_index_synthetic(path, ROWS, 3)))
        return;
    snprintf(file, sizeof file, "%s/data.mdb", path);
    CHECK(stat(file, &about) == 0 && about.st_size - DICTIONARY < 260 * ROWS);
    if (!CHECK_OK(mr_index_open(path, true, &index)) ||
        !CHECK_OK(mr_index_reader_new(index, &reader)))
        return;
    size_t texts = 0;
    for (uint64_t i = 0; i < ROWS; i += 100) {
        mr_row row;
        CHECK_OK(mr_index_row(reader, i, &row));
        texts += strlen(row.captions[0].text);
        CHECK(row.info.n_keys == MR_MIN((row.info.frames + 47) / 48, 16));
    }
    CHECK(texts / (ROWS / 100) > 280);
    mr_index_reader_free(reader);
    mr_index_unref(index);
}

int main(void)
{
    nothing();
    unusual();
    long_lists();
    size();
    return check_done();
}
