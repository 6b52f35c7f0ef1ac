/* Indexes for specs: rows without files, made from a seed. */
#ifndef MR_SPEC_ROWS_H
#define MR_SPEC_ROWS_H
#include "clips.h"
#include "moonreel/data.h"

/* Row i of the set `seed`. `text` [64] and `path` [64] are the caller's. */
static inline mr_row rows_make(uint64_t seed, uint64_t i, char *path, char *text,
                               mr_caption *caption, int64_t keys[4])
{
    static const int sizes[][2] = {{256, 256}, {426, 240},  {240, 426},
                                   {640, 360}, {1280, 720}, {100, 90}};
    static const int lengths[] = {1, 4, 16, 17, 32, 51, 120, 300};
    uint64_t r = MR_MIX(seed, i);
    snprintf(path, 64, "clips/%06llu.mp4", (unsigned long long)i);
    snprintf(text, 64, "caption %llu of set %llu", (unsigned long long)i, (unsigned long long)seed);
    *caption = (mr_caption){"", text};
    for (int k = 0; k < 4; k++)
        keys[k] = (int64_t)(r % 1000) + k * 12 * 512;
    const int *size = sizes[r % 6];
    mr_row row = {.path = path,
                  .end_us = -1,
                  .n_captions = 1,
                  .captions = caption,
                  .info = {.frames = lengths[(r >> 8) % 8],
                           .tb_num = 1,
                           .tb_den = 12800,
                           .rate_num = 25,
                           .rate_den = 1,
                           .width = size[0],
                           .height = size[1],
                           .coded_width = size[0],
                           .coded_height = size[1],
                           .sar_num = 1,
                           .sar_den = 1,
                           .bytes = 1000 + r % 1000,
                           .codec = "h264",
                           .n_keys = 4,
                           .key_pts = keys}};
    row.info.duration_ms = row.info.frames * 40;
    row.info.flags = row.info.frames == 1 ? MR_CLIP_IMAGE : r >> 20 & MR_CLIP_VFR;
    row.key = mr_sample_key("spec", path, 0, -1);
    return row;
}

static inline mr_status rows_build(const char *name, uint64_t seed, uint64_t n, size_t map_bytes)
{
    mr_index_builder *b;
    char path[64], text[64];
    mr_caption caption;
    int64_t keys[4];
    uint16_t root;
    MR_TRY(mr_index_builder_new(name, &(mr_index_options){.map_bytes = map_bytes}, &b));
    mr_status st = mr_index_builder_root(b, "/nowhere", &root);
    for (uint64_t i = 0; i < n && st == MR_OK; i++) {
        mr_row row = rows_make(seed, i, path, text, &caption, keys);
        st = mr_index_builder_add(b, &row);
    }
    if (st == MR_OK)
        st = mr_index_builder_finish(b);
    mr_index_builder_free(b);
    return st;
}
#endif
