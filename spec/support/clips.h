/* Clips for specs: frames that show their number as bars, and a folder that is removed. */
#ifndef MR_SPEC_CLIPS_H
#define MR_SPEC_CLIPS_H
#include "moonreel/media.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAR_H = 64, BAR_W = 96, BAR_BITS = 12, BAR_BYTES = 3 * BAR_H * BAR_W };

/* Frame `n`: upper half bars of its bits, lower half blocks that change from frame to frame. */
static inline void bars_draw(uint8_t *rgb, int n)
{
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < BAR_H; y++)
            for (int x = 0; x < BAR_W; x++) {
                uint64_t noise = MR_MIX((uint64_t)(x / 8), (uint64_t)(y / 8), (uint64_t)(n / 3));
                int v = y < BAR_H / 2 ? (n >> (x / 8) & 1) * 255 : 64 + (int)(noise & 127);
                rgb[(c * BAR_H + y) * BAR_W + x] = (uint8_t)v;
            }
}

/* The next number of a seed. */
static inline uint64_t clips_draw(uint64_t *seed)
{
    return *seed = MR_MIX(*seed, 1);
}

/* The number that a decoded frame [3][h][w] shows; -1 when a bar is neither dark nor light. */
static inline int bars_read(const uint8_t *rgb, int h, int w)
{
    int n = 0;
    for (int bit = 0; bit < BAR_BITS; bit++) {
        int v = rgb[(h + h / 5) * w + (2 * bit + 1) * w / (2 * BAR_BITS)];
        if (v > 80 && v < 175)
            return -1;
        n |= (v >= 175) << bit;
    }
    return n;
}

/* Writes `frames` numbered frames; pts NULL: one after the other. */
static inline mr_status bars_write(const mr_media *m, const char *path, mr_encode_options o,
                                   int frames, const int64_t *pts)
{
    mr_encoder *e;
    uint8_t rgb[BAR_BYTES];
    o.width = BAR_W, o.height = BAR_H;
    MR_TRY(m->encoder_open(path, &o, &e));
    mr_status st = MR_OK;
    for (int i = 0; i < frames && st == MR_OK; i++) {
        bars_draw(rgb, i);
        st = m->encoder_frame(e, rgb, pts ? pts[i] : -1);
    }
    if (st == MR_OK)
        st = m->encoder_finish(e);
    m->encoder_free(e);
    return st;
}

static char clips_folder[64];
static inline void clips_clean(void)
{
    mr_dir_remove(clips_folder);
}
/* A new folder, removed at exit. */
static inline const char *clips_dir(void)
{
    if (clips_folder[0])
        return clips_folder;
    snprintf(clips_folder, sizeof clips_folder, "/tmp/moonreel-spec-XXXXXX");
    if (!mkdtemp(clips_folder))
        exit(99);
    atexit(clips_clean);
    return clips_folder;
}
/* How many of its names start with this text. */
static inline int clips_count(const char *start)
{
    char **names;
    int n, count = 0;
    if (mr_dir_list(clips_dir(), &names, &n) != MR_OK)
        return -1;
    for (int i = 0; i < n; i++)
        count += strncmp(names[i], start, strlen(start)) == 0;
    mr_dir_list_free(names, n);
    return count;
}
/* A path in it; lent until eight calls later. */
static inline const char *clips_path(const char *name)
{
    static char path[8][256];
    static unsigned at; // several threads call it
    char *p = path[__atomic_fetch_add(&at, 1, __ATOMIC_RELAXED) % 8];
    snprintf(p, sizeof path[0], "%s/%s", clips_dir(), name);
    return p;
}
#endif
