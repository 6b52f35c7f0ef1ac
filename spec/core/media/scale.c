/* media/scale: colours within 2 levels, crops in display geometry, orientation, no stray writes.
 * Covers: core/media/colour.c core/media/orient.c */
#include "check.h"
#include "clips.h"

static const mr_media *m;
static mr_media_worker *w;

enum { PATCH = 32, PATCH_W = 8 * PATCH, PATCH_H = 64 };
static const uint8_t colours[8][3] = {{255, 0, 0}, {0, 255, 0},    {0, 0, 255},   {255, 255, 255},
                                      {0, 0, 0},   {200, 120, 40}, {30, 90, 160}, {128, 128, 128}};

static void write_patches(const char *name, mr_encode_options o, int width, int height)
{
    uint8_t *rgb = malloc((size_t)width * (size_t)height * 3);
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++)
                rgb[((size_t)c * (size_t)height + (size_t)y) * (size_t)width + (size_t)x] =
                    colours[x * 8 / width][c];
    mr_encoder *e = NULL;
    o.width = width, o.height = height, o.quality = 1;
    mr_status st = m->encoder_open(clips_path(name), &o, &e);
    for (int i = 0; i < 3 && st == MR_OK; i++)
        st = m->encoder_frame(e, rgb, -1);
    if (st == MR_OK)
        st = m->encoder_finish(e);
    m->encoder_free(e);
    CHECK_OK(st);
    free(rgb);
}

/* A file of one frame. */
static bool still(const char *name, const mr_encode_options *o, const uint8_t *rgb)
{
    mr_encoder *e;
    if (!CHECK_OK(m->encoder_open(clips_path(name), o, &e)))
        return false;
    bool good = CHECK_OK(m->encoder_frame(e, rgb, -1)) & CHECK_OK(m->encoder_finish(e));
    m->encoder_free(e);
    return good;
}

static int worst_patch(const char *name, int width, int height)
{
    mr_clip_info info;
    mr_fault fault;
    int worst = 256;
    uint8_t *rgb = malloc((size_t)width * (size_t)height * 3);
    if (CHECK_OK(m->scan(w, clips_path(name), 0, &info, &fault))) {
        mr_clip_request q = {.path = clips_path(name),
                             .info = &info,
                             .start = 1,
                             .step = 1,
                             .frames = 1,
                             .height = height,
                             .width = width};
        if (CHECK_OK(m->read(w, &q, rgb, &fault))) {
            worst = 0;
            for (int p = 0; p < 8; p++)
                for (int c = 0; c < 3; c++) {
                    int got =
                        rgb[((size_t)c * (size_t)height + (size_t)height / 2) * (size_t)width +
                            (size_t)(width * (2 * p + 1) / 16)];
                    worst = MR_MAX(worst, abs(got - colours[p][c]));
                }
        }
        mr_clip_info_fini(&info);
    }
    free(rgb);
    return worst;
}

static void colours_survive(void)
{
    static const struct {
        const char *name;
        mr_encode_options o;
        int w, h;
    } rows[] = {
        {"tagged709.mp4", {.matrix = "bt709"}, PATCH_W, PATCH_H},
        {"tagged601.mp4", {.matrix = "bt601"}, PATCH_W, PATCH_H},
        {"full709.mp4", {.matrix = "bt709", .full_range = true}, PATCH_W, PATCH_H},
        {"full601.mkv", {.matrix = "bt601", .full_range = true}, PATCH_W, PATCH_H},
        {"m240.mkv", {.matrix = "smpte240m"}, PATCH_W, PATCH_H},
        {"m2020.mkv", {.matrix = "bt2020", .pixel_format = "yuv444p"}, PATCH_W, PATCH_H},
        // small and untagged is 601
        {"low.mp4", {.matrix = "bt601", .untagged = true}, PATCH_W, PATCH_H},
        // large and untagged is 709
        {"high.mp4", {.matrix = "bt709", .untagged = true}, 1280, 720},
        {"v8.webm",
         {.codec = "vp8", .matrix = "bt601", .options = "cpu-used=1:b=8M"},
         PATCH_W,
         PATCH_H},
    };
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        write_patches(rows[i].name, rows[i].o, rows[i].w, rows[i].h);
        int worst = worst_patch(rows[i].name, rows[i].w, rows[i].h);
        if (worst > 2)
            printf("in %s: off by %d\n", rows[i].name, worst);
        CHECK(worst <= 2);
    }
    CHECK_INT(mr_path_exists(clips_path("v8.webm.tmp")), 0);
}

// a PNG keeps each value
static void pictures_are_exact(void)
{
    enum { W = 37, H = 23 };
    uint8_t rgb[3 * H * W], back[3 * H * W];
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)MR_MIX(i);
    mr_encoder *e;
    mr_encode_options o = {.width = W, .height = H};
    if (!CHECK_OK(m->encoder_open(clips_path("exact.png"), &o, &e)))
        return;
    CHECK_OK(m->encoder_frame(e, rgb, -1));
    CHECK_FAILS(m->encoder_frame(e, rgb, -1), MR_E_USAGE, "a picture has one frame");
    CHECK_OK(m->encoder_finish(e));
    m->encoder_free(e);
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(m->scan(w, clips_path("exact.png"), 0, &info, &fault)))
        return;
    CHECK(info.flags & MR_CLIP_IMAGE);
    mr_clip_request q = {.path = clips_path("exact.png"),
                         .info = &info,
                         .step = 1,
                         .frames = 1,
                         .height = H,
                         .width = W};
    CHECK_OK(m->read(w, &q, back, &fault));
    CHECK(memcmp(rgb, back, sizeof rgb) == 0);
    mr_clip_info_fini(&info);
}

// one red quarter shows how a picture was rotated
static void orientations(void)
{
    enum { W = 64, H = 32 };
    uint8_t rgb[3 * H * W];
    memset(rgb, 0, sizeof rgb);
    for (int y = 0; y < H / 2; y++)
        memset(rgb + y * W, 255, W / 2); // red, upper left
    for (int orient = 0; orient < 8; orient++) {
        mr_encode_options o = {.width = W, .height = H, .orient = orient, .quality = 1};
        if (!still("turned.mp4", &o, rgb))
            return;
        mr_clip_info info;
        mr_fault fault;
        if (!CHECK_OK(m->scan(w, clips_path("turned.mp4"), 0, &info, &fault)))
            return;
        CHECK_INT(info.orient, orient);
        CHECK_INT(info.width, orient & 4 ? H : W);
        CHECK_INT(info.height, orient & 4 ? W : H);
        uint8_t back[3 * H * W];
        mr_clip_request q = {.path = clips_path("turned.mp4"),
                             .info = &info,
                             .step = 1,
                             .frames = 1,
                             .height = info.height,
                             .width = info.width};
        if (CHECK_OK(m->read(w, &q, back, &fault)))
            for (int y = 0; y < 2; y++)
                for (int x = 0; x < 2; x++) {
                    int red = back[(info.height * (2 * y + 1) / 4) * info.width +
                                   info.width * (2 * x + 1) / 4];
                    // the corner moves as the mirrors say; transposing leaves it in place
                    CHECK_INT(red > 128, x == (orient & 1) && y == (orient >> 1 & 1));
                }
        mr_clip_info_fini(&info);
    }
}

// EXIF data in a JPEG rotates the picture the same way
static void exif_orientations(void)
{
    enum { W = 64, H = 32 };
    static const int orient_of[9] = {0, 0, 1, 3, 2, 4, 5, 7, 6};
    uint8_t rgb[3 * H * W], back[3 * H * W];
    memset(rgb, 0, sizeof rgb);
    for (int y = 0; y < H / 2; y++)
        memset(rgb + y * W, 255, W / 2);
    mr_encode_options o = {.width = W, .height = H};
    char *jpeg;
    size_t n;
    if (!still("plain.jpg", &o, rgb))
        return;
    if (!CHECK_OK(mr_file_read_all(clips_path("plain.jpg"), &jpeg, &n)))
        return;
    for (int note = 1; note <= 8; note++) {
        // an APP1 segment after the start marker: TIFF header, one entry, tag 0x112
        uint8_t app1[] = {
            0xff, 0xe1, 0,    34, 'E', 'x', 'i', 'f', 0, 0, 'I',           'I', 42, 0, 8, 0, 0, 0,
            1,    0,    0x12, 1,  3,   0,   1,   0,   0, 0, (uint8_t)note, 0,   0,  0, 0, 0, 0, 0};
        char *noted = malloc(n + sizeof app1);
        memcpy(noted, jpeg, 2);
        memcpy(noted + 2, app1, sizeof app1);
        memcpy(noted + 2 + sizeof app1, jpeg + 2, n - 2);
        CHECK_OK(mr_file_replace(clips_path("noted.jpg"), noted, n + sizeof app1));
        free(noted);
        mr_clip_info info;
        mr_fault fault;
        if (!CHECK_OK(m->scan(w, clips_path("noted.jpg"), 0, &info, &fault)))
            break;
        CHECK_INT(info.orient, orient_of[note]);
        CHECK_INT(info.width, note >= 5 ? H : W);
        mr_clip_request q = {.path = clips_path("noted.jpg"),
                             .info = &info,
                             .step = 1,
                             .frames = 1,
                             .height = info.height,
                             .width = info.width};
        if (CHECK_OK(m->read(w, &q, back, &fault))) {
            int x = info.orient & 1 ? info.width * 3 / 4 : info.width / 4,
                y = info.orient & 2 ? info.height * 3 / 4 : info.height / 4;
            CHECK(back[y * info.width + x] > 200);
            CHECK(back[(info.height - 1 - y) * info.width + info.width - 1 - x] < 50);
        }
        mr_clip_info_fini(&info);
    }
    mr_free(jpeg);
}

// the grey levels of two opposite corners in a square of a file, cropped and not scaled
static void square(const char *name, int width, int first, int last)
{
    enum { SIDE = 64 };
    static uint8_t back[3 * SIDE * SIDE];
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(m->scan(w, clips_path(name), 0, &info, &fault)))
        return;
    CHECK_INT(info.width, width);
    mr_clip_request q = {.path = clips_path(name),
                         .info = &info,
                         .step = 1,
                         .frames = 1,
                         .height = SIDE,
                         .width = SIDE};
    if (CHECK_OK(m->read(w, &q, back, &fault))) {
        CHECK_NEAR(back[0], first, 3);
        CHECK_NEAR(back[SIDE * SIDE - 1], last, 3);
    }
    mr_clip_info_fini(&info);
}

// columns 0..255 as grey levels: the crop is centred, and the pixel aspect counts
static void crops(void)
{
    enum { W = 256, H = 64 };
    static uint8_t rgb[3 * H * W];
    for (int i = 0; i < 3 * H * W; i++)
        rgb[i] = (uint8_t)(i % W);
    static const struct {
        int sar_num, sar_den, first, last;
    } rows[] = {{1, 1, 96, 159}, {2, 1, 112, 143}, {1, 2, 64, 191}};
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        mr_encode_options o = {.width = W,
                               .height = H,
                               .sar_num = rows[i].sar_num,
                               .sar_den = rows[i].sar_den,
                               .quality = 1,
                               .pixel_format = "yuv444p"};
        if (!still("wide.mkv", &o, rgb))
            return;
        square("wide.mkv", W * rows[i].sar_num / rows[i].sar_den, rows[i].first, rows[i].last);
    }
    for (int i = 0; i < 3 * H * W; i++)
        rgb[i] = (uint8_t)(i / H % W);
    const mr_encode_options tall = {
        .width = H, .height = W, .quality = 1, .pixel_format = "yuv444p"};
    if (still("tall.mkv", &tall, rgb))
        square("tall.mkv", H, 96, 159);
}

// the same of a BMP, whose pixels are indices of a palette: 0..255 are the levels 255..0
static void palette(void)
{
    enum { W = 256, H = 64, PIXELS = 14 + 40 + 4 * W, BYTES = PIXELS + H * W };
    static uint8_t bmp[BYTES] = {
        [0] = 'B',   'M',       BYTES & 255,   BYTES >> 8, [10] = PIXELS & 255,
        PIXELS >> 8, [14] = 40, [19] = W >> 8, [22] = H,   [26] = 1,
        [28] = 8};
    for (int i = 0; i < W; i++)
        memset(bmp + PIXELS - 4 * (W - i), 255 - i, 3);
    for (int i = 0; i < H * W; i++)
        bmp[PIXELS + i] = (uint8_t)(i % W);
    CHECK_OK(mr_file_replace(clips_path("palette.bmp"), bmp, sizeof bmp));
    square("palette.bmp", W, 255 - 96, 255 - 159);
}

// a red, a green and a blue third: the middle of the picture is green, whose colour planes are half
// as large
static void colours_of_a_crop(void)
{
    enum { W = 192, H = 64, SIDE = 48 };
    static uint8_t rgb[3 * H * W], back[3 * SIDE * SIDE];
    for (int i = 0; i < H * W; i++)
        for (int c = 0; c < 3; c++)
            rgb[c * H * W + i] = i % W * 3 / W == c ? 255 : 0;
    const mr_encode_options o = {.width = W, .height = H, .quality = 1, .matrix = "bt601"};
    if (!still("thirds.mkv", &o, rgb))
        return;
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(m->scan(w, clips_path("thirds.mkv"), 0, &info, &fault)))
        return;
    mr_clip_request q = {.path = clips_path("thirds.mkv"),
                         .info = &info,
                         .step = 1,
                         .frames = 1,
                         .height = SIDE,
                         .width = SIDE};
    if (CHECK_OK(m->read(w, &q, back, &fault)))
        for (int x = 3; x < SIDE - 3; x += 6)
            for (int c = 0; c < 3; c++)
                CHECK_NEAR(back[c * SIDE * SIDE + SIDE / 2 * SIDE + x], c == 1 ? 255 : 0, 4);
    mr_clip_info_fini(&info);
}

// each filter gives another result, also when the same picture was scaled by the one before
static void filters(void)
{
    enum { N = 4, SIDE = 40, BYTES = 3 * SIDE * SIDE };
    static uint8_t by[2][N][BYTES];
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(bars_write(m, clips_path("filters.mp4"), (mr_encode_options){0}, 2, NULL)) ||
        !CHECK_OK(m->scan(w, clips_path("filters.mp4"), 0, &info, &fault)))
        return;
    for (int round = 0; round < 2; round++)
        for (int f = 0; f < N; f++) {
            mr_clip_request q = {.path = clips_path("filters.mp4"),
                                 .info = &info,
                                 .step = 1,
                                 .frames = 1,
                                 .height = SIDE,
                                 .width = SIDE,
                                 .filter = (mr_filter)f};
            CHECK_OK(m->read(w, &q, by[round][f], &fault));
        }
    for (int f = 0; f < N; f++) {
        CHECK(memcmp(by[0][f], by[1][f], BYTES) == 0);
        for (int other = 0; other < f; other++)
            CHECK(memcmp(by[0][f], by[0][other], BYTES) != 0);
    }
    mr_clip_info_fini(&info);
}

// nothing is written outside the frames, at any width; the pixels are the same at any alignment
static void stray_writes(void)
{
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(bars_write(m, clips_path("bars.mp4"), (mr_encode_options){.gop = 4}, 6, NULL)))
        return;
    if (!CHECK_OK(m->scan(w, clips_path("bars.mp4"), 0, &info, &fault)))
        return;
    enum { GUARD = 256 };
    uint8_t small[64 * 3];
    mr_clip_request tiny = {.path = clips_path("bars.mp4"),
                            .info = &info,
                            .step = 1,
                            .frames = 1,
                            .height = 8,
                            .width = 7};
    CHECK_FAILS(m->read(w, &tiny, small, &fault), MR_E_USAGE, "at least 8 pixels");
    for (int width = 8; width <= 70; width += width < 40 ? 1 : 7) {
        int height = 17 + width % 5;
        size_t n = (size_t)width * (size_t)height * 3 * 2;
        uint8_t *buf = malloc(n + 2 * GUARD + 1), *again = malloc(n + 2 * GUARD + 1);
        mr_clip_request q = {.path = clips_path("bars.mp4"),
                             .info = &info,
                             .start = 1,
                             .step = 2,
                             .frames = 2,
                             .height = height,
                             .width = width};
        memset(buf, 0x5a, n + 2 * GUARD + 1);
        CHECK_OK(m->read(w, &q, buf + GUARD, &fault));
        int stray = 0;
        for (int i = 0; i < GUARD; i++)
            stray += buf[i] != 0x5a || buf[GUARD + n + (size_t)i] != 0x5a;
        if (!CHECK_INT(stray, 0))
            printf("  at width %d\n", width);
        CHECK_OK(m->read(w, &q, again + GUARD + 1, &fault));
        CHECK(memcmp(buf + GUARD, again + GUARD + 1, n) == 0);
        free(buf);
        free(again);
    }
    mr_clip_info_fini(&info);
}

int main(void)
{
    if (!CHECK_OK(mr_media_get(&m)) || !CHECK_OK(m->worker_new(&w)))
        return check_done();
    colours_survive();
    pictures_are_exact();
    orientations();
    exif_orientations();
    crops();
    palette();
    colours_of_a_crop();
    filters();
    stray_writes();
    m->worker_free(w);
    return check_done();
}
