/* index: makes an index of any size without clips, for measurements. Its rows resemble those of a
 * large data set. Licence: Apache-2.0 */
#include "index/builder.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 60, SAMPLES = 10000, TEXT = 1024, KEYS = 16 };

static const char *const words[] = {
    "a",          "the",     "of",       "in",         "with",     "and",       "on",
    "video",      "shows",   "man",      "woman",      "person",   "scene",     "camera",
    "background", "wearing", "standing", "white",      "black",    "blue",      "red",
    "green",      "wooden",  "table",    "street",     "trees",    "mountains", "water",
    "slowly",     "moving",  "towards",  "holding",    "close-up", "shot",      "captures",
    "serene",     "vibrant", "colors",   "sky",        "clouds",   "city",      "night",
    "lights",     "beach",   "waves",    "walking",    "sitting",  "looking",   "speaking",
    "gesture",    "hands",   "focused",  "expression", "natural",  "lighting",  "appears",
    "forest",     "animal",  "overall",  "atmosphere"};
_Static_assert(MR_COUNT(words) == WORDS, "as many as drawn from");

// the first words are frequent, the last ones rare
static void make_text(uint64_t seed, uint64_t row, char text[TEXT])
{
    uint64_t state = MR_MIX(seed, row, 1) | 1;
    size_t n = 0, want = 200 + state % 200;
    while (n < want) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        uint64_t u = state >> 48;
        const char *word = words[(u * u >> 16) * WORDS >> 16];
        size_t length = strlen(word);
        memcpy(text + n, word, length);
        text[n + length] = ' ';
        n += length + 1;
    }
    text[n - 1] = 0;
}

static mr_row make_row(uint64_t seed, uint64_t row, char path[64], int64_t keys[KEYS])
{
    static const int sizes[][2] = {{1280, 720}, {1920, 1080}, {854, 480}, {640, 360}, {720, 1280}};
    static const int rates[][2] = {{24, 1}, {25, 1}, {30, 1}, {30000, 1001}};
    uint64_t r = MR_MIX(seed, row);
    const int *size = sizes[r % 5], *rate = rates[(r >> 8) % 4];
    snprintf(path, 64, "%011llx_%02d_%dto%d.mp4", (unsigned long long)(r >> 20), (int)(r % 90),
             (int)(r % 400), (int)(r % 400 + r % 97));
    mr_clip_info info = {.frames = 40 + (int64_t)((r >> 16) % 560),
                         .tb_num = 1,
                         .tb_den = rate[0] * 512,
                         .rate_num = rate[0],
                         .rate_den = rate[1],
                         .coded_width = size[0],
                         .coded_height = size[1],
                         .width = size[0],
                         .height = size[1],
                         .sar_num = 1,
                         .sar_den = 1,
                         .reorder = 2,
                         .matrix = 1,
                         .range = 1,
                         .transfer = 1,
                         .primaries = 1,
                         .bytes = 200000 + (r >> 30) % 9000000,
                         .mtime_ns = 1700000000000000000 + (int64_t)(r >> 8),
                         .codec = "h264",
                         .key_pts = keys};
    info.duration_ms = info.frames * 1000 * rate[1] / rate[0];
    for (int64_t f = 0; f < info.frames && info.n_keys < KEYS; f += 48)
        keys[info.n_keys++] = f * 512 * rate[1];
    return (mr_row){.path = path,
                    .end_us = -1,
                    .info = info,
                    .key = mr_sample_key("synthetic", path, (int64_t)row, -1)};
}

static mr_status train(uint64_t seed, uint64_t rows, index_pack *dict)
{
    index_pack samples = {0}, sizes = {0};
    char text[TEXT];
    for (uint64_t i = 0; i < MR_MIN(rows, SAMPLES); i++) {
        make_text(seed, i, text);
        size_t n = strlen(text);
        index_put(&samples, text, n);
        index_put(&sizes, &n, sizeof n);
    }
    mr_status st = samples.failed || sizes.failed ? mr_fail_memory(samples.cap)
                                                  : index_dict_make(&samples, &sizes, dict);
    mr_free(samples.bytes);
    mr_free(sizes.bytes);
    return st;
}

// makes rows for a builder, or only counts them
static mr_status fill(mr_index_builder *b, uint64_t seed, uint64_t rows)
{
    for (uint64_t i = 0; i < rows; i++) {
        char path[64], text[TEXT];
        int64_t keys[KEYS];
        mr_row row = make_row(seed, i, path, keys);
        const mr_caption caption = {"", text};
        make_text(seed, i, text);
        row.n_captions = 1, row.captions = &caption;
        if (b)
            MR_TRY(mr_index_builder_add(b, &row));
    }
    return MR_OK;
}

static mr_status build(mr_index_builder *b, uint64_t seed, uint64_t rows)
{
    index_pack dict = {0};
    mr_status st = train(seed, rows, &dict);
    if (st == MR_OK && dict.n)
        st = mr_index_builder_dictionary(b, dict.bytes, dict.n);
    mr_free(dict.bytes);
    uint16_t root;
    MR_TRY(st);
    MR_TRY(mr_index_builder_root(b, "/nowhere", &root));
    MR_TRY(mr_index_builder_meta(b, "sources", "[]"));
    MR_TRY(fill(b, seed, rows));
    return mr_index_builder_finish(b);
}

mr_status mr_index_synthetic(const char *path, uint64_t rows, uint64_t seed)
{
    if (!path)
        return fill(NULL, seed, rows);
    mr_index_builder *b;
    MR_TRY(mr_index_builder_new(path, NULL, &b));
    mr_status st = build(b, seed, rows);
    mr_index_builder_free(b);
    return st;
}
