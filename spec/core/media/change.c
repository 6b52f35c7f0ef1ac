/* media/change: how much of the picture changed, in levels of lightness; and that a worker that
 * compares frames also reads rotated pictures.
 * Covers: core/media/scale.c */
#include "check.h"
#include "clips.h"

static const mr_media *m;
static mr_media_worker *w;

enum { FRAMES = 6 };

// lightness of the left and the right half, by frame
static const int left_of[FRAMES] = {40, 40, 60, 200, 200, 0},
                 right_of[FRAMES] = {40, 40, 60, 200, 100, 255};

static bool write_halves(const char *path, mr_encode_options o)
{
    mr_encoder *e = NULL;
    size_t plane = (size_t)o.height * (size_t)o.width;
    uint8_t *rgb = malloc(3 * plane);
    o.quality = 1;
    mr_status st = m->encoder_open(path, &o, &e);
    for (int t = 0; t < FRAMES && st == MR_OK; t++) {
        for (size_t i = 0; i < 3 * plane; i++)
            rgb[i] = (uint8_t)((int)(i % (size_t)o.width) * 2 < o.width ? left_of[t] : right_of[t]);
        st = m->encoder_frame(e, rgb, -1);
    }
    if (st == MR_OK)
        st = m->encoder_finish(e);
    m->encoder_free(e);
    free(rgb);
    return CHECK_OK(st);
}

// codecs round, and half of a small picture is not half of it to the pixel
static void changes_are_told(const char *path)
{
    mr_clip_info info;
    mr_fault fault;
    float change[FRAMES];
    if (!CHECK_OK(m->scan(w, path, 0, &info, &fault)))
        return;
    CHECK_INT(info.frames, FRAMES);
    if (CHECK_OK(m->watch(w, path, &info, 0, change, &fault))) {
        CHECK(change[0] == 0);
        for (int t = 1; t < FRAMES; t++) {
            int left = abs(left_of[t] - left_of[t - 1]), right = abs(right_of[t] - right_of[t - 1]);
            CHECK_NEAR(change[t], (left + right) / 2.0, 3);
        }
    }
    mr_clip_info_fini(&info);
}

static void every_shape(void)
{
    static const struct {
        const char *name;
        mr_encode_options o;
    } rows[] = {
        {"small.mkv", {.width = 96, .height = 64}},
        {"wide.mkv", {.width = 2048, .height = 16}},
        {"tall.mkv", {.width = 16, .height = 1024}},
        {"full.mkv", {.width = 320, .height = 192, .full_range = true}},
        {"rgb.mkv", {.width = 64, .height = 64, .pixel_format = "yuv444p"}},
    };
    for (size_t i = 0; i < MR_COUNT(rows); i++)
        if (write_halves(clips_path(rows[i].name), rows[i].o))
            changes_are_told(clips_path(rows[i].name));
}

// each is larger than the one before, so that the memory for rotation is allocated again
static void turned_pictures_in_between(void)
{
    static uint8_t rgb[3 * 160 * 160];
    mr_clip_info info;
    mr_fault fault;
    if (!write_halves(clips_path("turned.mp4"),
                      (mr_encode_options){.width = 96, .height = 64, .orient = 5}) ||
        !CHECK_OK(m->scan(w, clips_path("turned.mp4"), 0, &info, &fault)))
        return;
    for (int side = 32; side <= 160; side += 64) {
        mr_clip_request q = {.path = clips_path("turned.mp4"),
                             .info = &info,
                             .start = 5,
                             .step = 1,
                             .frames = 1,
                             .height = side,
                             .width = side};
        CHECK_OK(m->read(w, &q, rgb, &fault));
        // the right side is at the bottom now
        CHECK(rgb[side / 4 * side + side / 2] < 50);
        CHECK(rgb[side * 3 / 4 * side + side / 2] > 200);
        changes_are_told(clips_path("small.mkv"));
    }
    mr_clip_info_fini(&info);
}

int main(void)
{
    if (!CHECK_OK(mr_media_get(&m)) || !CHECK_OK(m->worker_new(&w)))
        return check_done();
    every_shape();
    turned_pictures_in_between();
    m->worker_free(w);
    return check_done();
}
