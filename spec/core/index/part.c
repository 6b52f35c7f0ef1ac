/* index/part: a part of a clip is read as the frames of the file that it represents.
 * Covers: core/media/change.c */
#include "check.h"
#include "clips.h"
#include "moonreel/index.h"
#include <math.h>

static const mr_media *m;
static mr_media_worker *w;

static mr_row row_of(const char *path, mr_clip_info *info)
{
    mr_row row = {.path = path, .end_us = -1, .info = *info};
    row.key = mr_sample_key("spec", path, 0, -1);
    return row;
}

// frames of a part, one by one and all together, show their numbers in the file
static void check_part(const char *path, mr_clip_info *info, int first, int frames)
{
    mr_row row = row_of(path, info);
    mr_fault fault;
    if (!CHECK_OK(mr_row_cut(&row, first, frames)))
        return;
    CHECK_INT(row.info.frames, frames);
    CHECK(row.info.n_keys <= info->n_keys);
    uint8_t *out = malloc((size_t)frames * BAR_BYTES);
    mr_clip_request q = {.path = path,
                         .info = &row.info,
                         .step = 1,
                         .frames = frames,
                         .height = BAR_H,
                         .width = BAR_W};
    if (CHECK_OK(m->read(w, &q, out, &fault)))
        for (int i = 0; i < frames; i++)
            CHECK_INT(bars_read(out + (size_t)i * BAR_BYTES, BAR_H, BAR_W), first + i);
    q.frames = 1, q.start = frames - 1;
    if (CHECK_OK(m->read(w, &q, out, &fault)))
        CHECK_INT(bars_read(out, BAR_H, BAR_W), first + frames - 1);
    q.start = frames;
    CHECK_FAILS(m->read(w, &q, out, &fault), MR_E_RANGE, "short");
    float *change = malloc(sizeof *change * (size_t)frames);
    if (CHECK_OK(m->watch(w, path, &row.info, 0, change, &fault)))
        CHECK(change[0] == 0);
    // a file with another time is scanned again, and the part is found in the result
    row.info.mtime_ns -= 5000000000;
    q.start = 0;
    CHECK_OK(m->read(w, &q, out, &fault));
    row.info.first_pts = info->first_pts - 1;
    CHECK_FAILS(m->read(w, &q, out, &fault), MR_E_DECODE, "stale");
    free(change);
    free(out);
}

static void parts(void)
{
    static const struct {
        const char *file;
        mr_encode_options o;
    } subjects[] = {{"closed.mp4", {.gop = 6}},
                    {"open.mp4", {.gop = 15, .options = "x264-params=open-gop=1"}},
                    {"stream.ts", {.gop = 10}},
                    {"odd.mkv", {.gop = 12, .rate_num = 24000, .rate_den = 1001}},
                    {"vp9.webm", {.gop = 20}}};
    for (size_t i = 0; i < MR_COUNT(subjects); i++) {
        const char *path = clips_path(subjects[i].file);
        mr_clip_info info;
        mr_fault fault;
        if (!CHECK_OK(bars_write(m, path, subjects[i].o, 90, NULL)) ||
            !CHECK_OK(m->scan(w, path, 0, &info, &fault)))
            continue;
        check_part(path, &info, 0, 20);
        check_part(path, &info, 41, 13);
        check_part(path, &info, 77, 13);
        check_part(path, &info, 89, 1);
        mr_clip_info_fini(&info);
    }
}

// uneven times: a part shows what the whole clip shows at the same moments
static void uneven(void)
{
    enum { N = 40, FIRST = 17, PART = 11 };
    int64_t pts[N];
    for (int i = 0; i < N; i++)
        pts[i] = i * 3 + (i > 12) * 7 + (i > 30) * 5;
    const char *path = clips_path("uneven.mp4");
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(bars_write(m, path, (mr_encode_options){.gop = 10, .rate_num = 90}, N, pts)) ||
        !CHECK_OK(m->scan(w, path, 0, &info, &fault)))
        return;
    CHECK(info.flags & MR_CLIP_VFR);
    mr_row row = row_of(path, &info);
    CHECK_OK(mr_row_cut(&row, FIRST, PART));
    uint8_t *whole = malloc((size_t)PART * BAR_BYTES), *part = malloc((size_t)PART * BAR_BYTES);
    mr_clip_request q = {.path = path,
                         .info = &info,
                         .start = FIRST,
                         .step = 1,
                         .frames = PART,
                         .height = BAR_H,
                         .width = BAR_W};
    CHECK_OK(m->read(w, &q, whole, &fault));
    q.info = &row.info, q.start = 0;
    CHECK_OK(m->read(w, &q, part, &fault));
    // a frame that begins within a tick of a moment may already count, none is shown too long
    int later = 0;
    for (size_t i = 0; i < PART; i++)
        later += bars_read(part + i * BAR_BYTES, BAR_H, BAR_W) -
                 bars_read(whole + i * BAR_BYTES, BAR_H, BAR_W);
    CHECK(later >= 0 && later <= 1);
    free(whole);
    free(part);
    mr_clip_info_fini(&info);
}

static void keys_and_refusals(void)
{
    int64_t keys[100];
    for (int i = 0; i < 100; i++)
        keys[i] = i * 1000;
    mr_clip_info info = {.frames = 1000,
                         .tb_num = 1,
                         .tb_den = 2500,
                         .rate_num = 25,
                         .rate_den = 1,
                         .n_keys = 100,
                         .key_pts = keys};
    mr_row row = row_of("a.mp4", &info), same = row, other = row;
    CHECK_OK(mr_row_cut(&row, 500, 20));
    // the one it is decoded from, some before, those inside
    CHECK_INT(row.info.first_pts, 50000);
    CHECK(row.info.n_keys < 12 && row.info.key_pts[0] <= 44000);
    CHECK_INT(row.info.key_pts[row.info.n_keys - 1], 51000);
    CHECK_INT(row.start_us, 20000000);
    CHECK_INT(row.end_us, 20800000);
    CHECK_INT(row.info.duration_ms, 800);
    // the key depends on the part and the clip only
    CHECK_OK(mr_row_cut(&same, 500, 20));
    CHECK_OK(mr_row_cut(&other, 500, 21));
    CHECK(memcmp(&row.key, &same.key, sizeof row.key) == 0);
    CHECK(memcmp(&row.key, &other.key, sizeof row.key) != 0);
    // a part of a part is inside it
    CHECK_OK(mr_row_cut(&row, 10, 5));
    CHECK_INT(row.info.first_pts, 51000);
    CHECK_INT(row.start_us, 20400000);
    row = row_of("a.mp4", &info);
    CHECK_FAILS(mr_row_cut(&row, 990, 11), MR_E_RANGE, "11 frames from 990 on; it has 1000");
    CHECK_FAILS(mr_row_cut(&row, -1, 5), MR_E_RANGE, "from -1");
    CHECK_FAILS(mr_row_cut(&row, 3, 0), MR_E_RANGE, "0 frames");
    row.info.flags = MR_CLIP_NO_PTS;
    CHECK_FAILS(mr_row_cut(&row, 3, 4), MR_E_UNSUPPORTED, "without times cannot be cut");
    row.info.flags = MR_CLIP_IMAGE;
    CHECK_FAILS(mr_row_cut(&row, 0, 1), MR_E_UNSUPPORTED, "a picture cannot be cut");
}

// grey frames whose lightness jumps: the distance is that of the jump
static void changes(void)
{
    enum { N = 9, H = 48, W = 64 };
    static const int light[N] = {60, 60, 60, 160, 160, 100, 100, 100, 220};
    const char *path = clips_path("grey.mkv");
    mr_encoder *e;
    mr_clip_info info;
    mr_fault fault;
    uint8_t rgb[3 * H * W];
    float change[N];
    const mr_encode_options o = {.width = W, .height = H, .codec = "ffv1", .full_range = true};
    if (!CHECK_OK(m->encoder_open(path, &o, &e)))
        return;
    for (int i = 0; i < N; i++) {
        memset(rgb, light[i], sizeof rgb);
        CHECK_OK(m->encoder_frame(e, rgb, -1));
    }
    CHECK_OK(m->encoder_finish(e));
    m->encoder_free(e);
    if (!CHECK_OK(m->scan(w, path, 0, &info, &fault)))
        return;
    if (CHECK_OK(m->watch(w, path, &info, 0, change, &fault)))
        for (int i = 0; i < N; i++)
            CHECK(fabsf(change[i] - (i ? (float)abs(light[i] - light[i - 1]) : 0)) <= 2);
    CHECK_OK(m->watch(w, path, &info, 0, NULL, &fault));
    info.frames++;
    CHECK_FAILS(m->watch(w, path, &info, 0, NULL, &fault), MR_E_DECODE, "seek");
    mr_clip_info_fini(&info);
}

int main(void)
{
    if (CHECK_OK(mr_media_get(&m)) && CHECK_OK(m->worker_new(&w))) {
        parts();
        uneven();
        keys_and_refusals();
        changes();
        m->worker_free(w);
    }
    return check_done();
}
