/* index: turns a part of a clip into a row. Frames are counted from the first one of the part, so a
 * reader treats it like any other row. Licence: Apache-2.0 */
#include "moonreel/index.h"

#include <math.h>

// number of earlier key frames to keep: a decoder may have to start before the nearest one
enum { KEYS_BEFORE = 7 };

static int64_t time_us(const mr_clip_info *i, int64_t frame)
{
    return llround((double)frame * 1e6 * i->rate_den / i->rate_num);
}

// limits the key frames to a few before `from` up to the last one before `to`, without a copy
static void keep_keys(mr_clip_info *i, int64_t from, int64_t to)
{
    int32_t a = 0, b = 0;
    while (b < i->n_keys && i->key_pts[b] < to)
        a += i->key_pts[b++] <= from;
    a = MR_MAX(a - 1 - KEYS_BEFORE, 0);
    i->key_pts += a, i->n_keys = b - a;
}

mr_status mr_row_cut(mr_row *row, int64_t first, int64_t frames)
{
    mr_clip_info *i = &row->info;
    if (i->flags & (MR_CLIP_IMAGE | MR_CLIP_NO_PTS) || i->rate_num < 1)
        return mr_fail(MR_E_UNSUPPORTED, "%s: %s cannot be cut", row->path,
                       i->flags & MR_CLIP_IMAGE ? "a picture" : "a clip without times");
    if (first < 0 || frames < 1 || first > i->frames - frames)
        return mr_fail(MR_E_RANGE, "%s: %lld frames from %lld on; it has %lld", row->path,
                       (long long)frames, (long long)first, (long long)i->frames);
    double ticks = (double)i->tb_den / i->tb_num * i->rate_den / i->rate_num;
    // with variable durations, take the frame shown at that time: it begins at this tick or earlier
    double from = (double)first * ticks;
    int64_t to_pts = i->first_pts + (int64_t)ceil((double)(first + frames) * ticks);
    i->first_pts += i->flags & MR_CLIP_VFR ? (int64_t)ceil(from - 1e-6) : llround(from);
    keep_keys(i, i->first_pts, to_pts);
    row->end_us = row->start_us + time_us(i, first + frames);
    row->start_us += time_us(i, first);
    i->frames = frames, i->flags |= MR_CLIP_PART;
    i->duration_ms = (row->end_us - row->start_us + 500) / 1000;
    const int64_t words[] = {(int64_t)row->key.hi, (int64_t)row->key.lo, row->start_us,
                             row->end_us};
    row->key = mr_hash128_of(words, sizeof words);
    return MR_OK;
}
