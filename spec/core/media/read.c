/* media/read: requested frames equal those of a sequential decode, for each container and codec
 * available.
 * Covers: core/media/scan.c core/media/table.c */
#include "check.h"
#include "clips.h"
#include "x265.h"

static const mr_media *m;
static mr_media_worker *w;

typedef struct subject {
    const char *file;
    mr_encode_options o;
    int frames;
    uint32_t flags; /* that the scan must find */
} subject;

static const subject subjects[] = {
    {"closed.mp4", {.gop = 12}, 100, 0},
    {"bframes.mkv", {.gop = 48, .options = "bf=8:b_strategy=0"}, 120, 0},
    {"open.mp4", {.gop = 15, .options = "x264-params=open-gop=1"}, 100, 0},
    {"refresh.mp4", {.gop = 20, .options = "intra-refresh=1"}, 100, 0},
    {"stream.ts", {.gop = 15}, 90, 0},
    {"open.ts", {.gop = 15, .options = "x264-params=open-gop=1"}, 90, 0},
    {"mpeg4.avi", {.codec = "mpeg4", .gop = 12}, 80, 0},
    {"h264.avi", {.gop = 12}, 60, MR_CLIP_NO_PTS},
    {"program.mpg",
     {.codec = "mpeg2video", .gop = 12, .options = "bf=2", .rate_num = 25},
     80,
     MR_CLIP_NO_PTS},
    {"mpeg4.mpg",
     {.codec = "mpeg4", .gop = 12, .rate_num = 30000, .rate_den = 1001},
     60,
     MR_CLIP_NO_PTS},
    {"packed.avi",
     {.codec = "mpeg4", .gop = 12, .options = "bf=2", .rate_num = 15},
     60,
     MR_CLIP_NO_PTS},
    {"hevc.mp4", {.codec = "hevc", .gop = 12}, 60, 0},
    {"hevc10.mkv", {.codec = "hevc", .gop = 12, .pixel_format = "yuv420p10le"}, 60, 0},
    {"hevc_closed.mp4",
     {.codec = "hevc",
      .gop = 12,
      .options = "x265-params=log-level=none\\:pools=none\\:open-gop=0"},
     60,
     0},
    {"vp9.webm", {.gop = 20}, 60, 0},
    {"vp8.webm", {.codec = "vp8", .gop = 20}, 60, 0},
    {"av1.mkv", {.codec = "av1", .gop = 20}, 60, 0},
    {"fragments.mp4", {.gop = 12, .mux_options = "movflags=frag_keyframe+empty_moov"}, 60, 0},
    {"odd_rate.mp4", {.gop = 12, .rate_num = 30000, .rate_den = 1001}, 60, 0},
    {"odd_rate.mkv", {.gop = 12, .rate_num = 24000, .rate_den = 1001}, 60, 0},
    // frames that depend on all earlier ones, whatever their packets say
    {"moving.gif", {.codec = "gif", .pixel_format = "bgr8", .rate_num = 25}, 50, 0},
    {"moving.apng", {.codec = "apng", .pixel_format = "rgb24", .rate_num = 25}, 50, 0},
    {"still.png", {0}, 1, MR_CLIP_IMAGE},
    {"still.jpg", {0}, 1, MR_CLIP_IMAGE},
};

// random reads compared with all frames decoded in one pass
static void compare(const char *name, const mr_clip_info *info, int first, uint64_t seed)
{
    const char *path = clips_path(name);
    size_t all_bytes = (size_t)info->frames * BAR_BYTES;
    uint8_t *all = malloc(all_bytes), *part = malloc(64 * (size_t)BAR_BYTES);
    mr_fault fault;
    mr_clip_request q = {.path = path,
                         .info = info,
                         .step = 1,
                         .frames = (int32_t)info->frames,
                         .height = BAR_H,
                         .width = BAR_W};
    if (!CHECK_OK(m->read(w, &q, all, &fault))) {
        printf("  in %s\n", name);
        goto out;
    }
    for (int i = 0; i < info->frames; i++) {
        int n = bars_read(all + (size_t)i * BAR_BYTES, BAR_H, BAR_W);
        if (n != i + first) {
            printf("%s: frame %d shows %d\n", name, i, n);
            CHECK_INT(n, i + first);
            break;
        }
    }
    for (int t = 0; t < 24; t++) {
        q.step = (int)(clips_draw(&seed) % 3) + 1;
        int most = (int)((info->frames - 1) / q.step + 1);
        q.frames = 1 + (int)(clips_draw(&seed) % (uint64_t)(most < 12 ? most : 12));
        q.start = (int64_t)(clips_draw(&seed) %
                            (uint64_t)(info->frames - (int64_t)(q.frames - 1) * q.step));
        // every third read spreads its frames over the clip, or over less
        int64_t even = (int64_t)(q.frames - 1) * q.step, room = info->frames - 1 - q.start - even;
        q.spread =
            t % 3 == 2 && even ? even + (int64_t)(clips_draw(&seed) % (uint64_t)(room + 1)) : 0;
        if (!CHECK_OK(m->read(w, &q, part, &fault))) {
            printf("  in %s: %d frames from %lld step %d\n", name, q.frames, (long long)q.start,
                   q.step);
            continue;
        }
        for (int i = 0; i < q.frames; i++) {
            int64_t at = q.spread
                             ? q.start + (int64_t)((double)q.spread * i / (q.frames - 1) + 1e-9)
                             : q.start + (int64_t)i * q.step;
            if (CHECK(memcmp(part + (size_t)i * BAR_BYTES, all + (size_t)at * BAR_BYTES,
                             BAR_BYTES) == 0))
                continue;
            printf("  in %s: frame %lld of a read from %lld step %d shows %d\n", name,
                   (long long)at, (long long)q.start, q.step,
                   bars_read(part + (size_t)i * BAR_BYTES, BAR_H, BAR_W));
            break;
        }
    }
out:
    free(all);
    free(part);
}

static void every_container(void)
{
    for (size_t i = 0; i < MR_COUNT(subjects); i++) {
        const subject *s = &subjects[i];
        mr_status st = bars_write(m, clips_path(s->file), s->o, s->frames, NULL);
        if (st == MR_E_UNSUPPORTED) {
            printf("SKIP %s: %s\n", s->file, mr_error_last()->text);
            continue;
        }
        if (!CHECK_OK(st))
            continue;
        mr_clip_info info;
        mr_fault fault;
        if (!CHECK_OK(m->scan(w, clips_path(s->file), 0, &info, &fault)))
            continue;
        if (info.frames != s->frames ||
            (info.flags & (MR_CLIP_VFR | MR_CLIP_NO_PTS | MR_CLIP_IMAGE)) != s->flags)
            printf("in %s: flags %u\n", s->file, info.flags);
        CHECK_INT(info.frames, s->frames);
        if (!(info.flags & MR_CLIP_IMAGE)) {
            CHECK_INT(info.rate_num, s->o.rate_num ? s->o.rate_num : 24);
            CHECK_INT(info.rate_den, s->o.rate_den ? s->o.rate_den : 1);
            double ms = 1000.0 * (double)info.frames * info.rate_den / info.rate_num;
            CHECK_NEAR((double)info.duration_ms, ms, 0.51);
        }
        CHECK_INT(info.flags & (MR_CLIP_VFR | MR_CLIP_NO_PTS | MR_CLIP_IMAGE), s->flags);
        compare(s->file, &info, 0, 1000 + i);
        mr_clip_info_fini(&info);
    }
}

static size_t put_int(uint8_t *at, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
    return (size_t)bytes;
}

// pictures of TIFF, with a tag that FFmpeg does not know
static void tiff(void)
{
    static uint8_t file[8 + BAR_BYTES + 2 + 12 * 10 + 4 + 6], rgb[BAR_BYTES], got[BAR_BYTES];
    enum { PIXELS = 8, BITS = 8 + BAR_BYTES, DIRECTORY = BITS + 6 };
    const struct {
        uint32_t tag, type, count, value;
    } entries[] = {{256, 3, 1, BAR_W}, {257, 3, 1, BAR_H}, {258, 3, 3, BITS},
                   {259, 3, 1, 1},     {262, 3, 1, 2},     {273, 4, 1, PIXELS},
                   {277, 3, 1, 3},     {278, 3, 1, BAR_H}, {279, 4, 1, BAR_BYTES},
                   {65000, 3, 1, 7}};
    size_t n = 0;
    memcpy(file, "II*", 4);
    put_int(file + 4, DIRECTORY, 4);
    bars_draw(rgb, 1234);
    for (int i = 0; i < BAR_BYTES; i++)
        file[PIXELS + i] = rgb[i % 3 * BAR_H * BAR_W + i / 3];
    for (int c = 0; c < 3; c++)
        put_int(file + BITS + 2 * c, 8, 2);
    n = DIRECTORY + put_int(file + DIRECTORY, MR_COUNT(entries), 2);
    for (size_t e = 0; e < MR_COUNT(entries); e++) {
        n += put_int(file + n, entries[e].tag, 2);
        n += put_int(file + n, entries[e].type, 2);
        n += put_int(file + n, entries[e].count, 4);
        n += put_int(file + n, entries[e].value, 4);
    }
    n += put_int(file + n, 0, 4);
    CHECK_OK(mr_file_replace(clips_path("still.tiff"), file, n));
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(m->scan(w, clips_path("still.tiff"), 0, &info, &fault)))
        return;
    CHECK_INT(info.frames, 1);
    CHECK_INT(info.flags, MR_CLIP_IMAGE);
    CHECK_INT(info.width, BAR_W);
    mr_clip_request q = {.path = clips_path("still.tiff"),
                         .info = &info,
                         .step = 1,
                         .frames = 1,
                         .height = BAR_H,
                         .width = BAR_W};
    CHECK_OK(m->read(w, &q, got, &fault));
    CHECK(memcmp(got, rgb, sizeof rgb) == 0);
    mr_clip_info_fini(&info);
    CHECK_OK(mr_file_replace(clips_path("still.tiff"), file, BITS));
    CHECK_FAILS(m->scan(w, clips_path("still.tiff"), 0, &info, &fault), MR_E_DECODE, "still.tiff");
}

// frame i is shown from time pts[i] on; a read by time returns the frame of that moment
static void uneven_times(void)
{
    int64_t pts[40], at = 0;
    uint64_t seed = 77;
    for (int i = 0; i < 40; i++)
        pts[i] = at, at += 1 + (int64_t)(clips_draw(&seed) % 4);
    if (!CHECK_OK(bars_write(m, clips_path("uneven.mp4"),
                             (mr_encode_options){.gop = 12, .rate_num = 50}, 40, pts)))
        return;
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(m->scan(w, clips_path("uneven.mp4"), 0, &info, &fault)))
        return;
    CHECK_INT(info.flags & MR_CLIP_VFR, MR_CLIP_VFR);
    CHECK_INT(info.frames, 40);
    uint8_t *part = malloc(16 * (size_t)BAR_BYTES);
    double ticks = 50.0 * info.rate_den / info.rate_num; // of 1/50 s per average frame
    for (int t = 0; t < 40; t++) {
        mr_clip_request q = {.path = clips_path("uneven.mp4"),
                             .info = &info,
                             .step = 1 + t % 3,
                             .frames = 1 + (int)(clips_draw(&seed) % 10),
                             .height = BAR_H,
                             .width = BAR_W};
        q.start = (int64_t)(clips_draw(&seed) % (uint64_t)(40 - (q.frames - 1) * q.step));
        if (!CHECK_OK(m->read(w, &q, part, &fault)))
            continue;
        for (int i = 0; i < q.frames; i++) {
            double moment = ((double)q.start + i * q.step) * ticks;
            int want = 0;
            while (want + 1 < 40 && (double)pts[want + 1] <= moment + 0.011 * ticks)
                want++;
            CHECK_INT(bars_read(part + (size_t)i * BAR_BYTES, BAR_H, BAR_W), want);
        }
    }
    free(part);
    mr_clip_info_fini(&info);
}

// milliseconds are too coarse for 1900 frames a second: some have the same time, and all are
// counted; an impossible rate is not believed
static void repeated_times(void)
{
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(bars_write(m, clips_path("repeated.mkv"),
                             (mr_encode_options){.gop = 12, .rate_num = 1900}, 60, NULL)) ||
        !CHECK_OK(m->scan(w, clips_path("repeated.mkv"), 0, &info, &fault)))
        return;
    CHECK_INT(info.flags, MR_CLIP_NO_PTS);
    CHECK_INT(info.frames, 60);
    CHECK_INT(info.rate_num, 24);
    CHECK_INT(info.rate_den, 1);
    compare("repeated.mkv", &info, 0, 8);
    mr_clip_info_fini(&info);
}

// a damaged time: frames are further apart than any rate that can be stored
static void far_times(void)
{
    const struct {
        int64_t last;
        bool taken;
    } cases[] = {{INT64_C(1) << 36, true}, {INT64_C(1) << 44, false}};
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        const int64_t pts[] = {0, 40, cases[i].last};
        mr_clip_info info;
        mr_fault fault;
        if (!CHECK_OK(bars_write(m, clips_path("far.mkv"), (mr_encode_options){.rate_num = 1000}, 3,
                                 pts)))
            return;
        mr_status st = m->scan(w, clips_path("far.mkv"), 0, &info, &fault);
        if (cases[i].taken && CHECK_OK(st)) {
            CHECK_INT(info.flags & MR_CLIP_VFR, MR_CLIP_VFR);
            CHECK_NEAR((double)info.duration_ms, 1.5 * (double)cases[i].last, 1e3);
            mr_clip_info_fini(&info);
        } else if (!cases[i].taken) {
            CHECK_FAILS(st, MR_E_DECODE, "far.mkv: corrupt: cannot find its rate");
            CHECK_INT(fault, MR_FAULT_CORRUPT);
        }
    }
}

static uint32_t big_endian(const char *at)
{
    const uint8_t *p = (const uint8_t *)at;
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_big_endian(char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (char)(value >> (24 - 8 * i));
}

// an edit list that begins within a group of pictures: its first frames are not displayed
static void edit_list(void)
{
    enum { FRAMES = 120, HIDDEN = 24, TICKS = 512 }; // of 1/12288 s a frame
    char *data;
    size_t n, at = 0;
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(bars_write(m, clips_path("cut.mp4"),
                             (mr_encode_options){.gop = 48, .options = "bf=3"}, FRAMES, NULL)) ||
        !CHECK_OK(mr_file_read_all(clips_path("cut.mp4"), &data, &n)))
        return;
    while (at + 20 < n && memcmp(data + at, "elst", 4))
        at++;
    if (!CHECK(at + 20 < n))
        return;
    // version and flags, one entry: its length in 1/1000 s, where it begins in the track, its rate
    CHECK_INT(big_endian(data + at + 8), 1);
    put_big_endian(data + at + 12, big_endian(data + at + 12) - HIDDEN * 1000 / 24);
    put_big_endian(data + at + 16, big_endian(data + at + 16) + HIDDEN * TICKS);
    CHECK_OK(mr_file_replace(clips_path("cut.mp4"), data, n));
    mr_free(data);
    if (!CHECK_OK(m->scan(w, clips_path("cut.mp4"), 0, &info, &fault)))
        return;
    CHECK_INT(info.frames, FRAMES - HIDDEN);
    compare("cut.mp4", &info, HIDDEN, 5);
    mr_clip_info_fini(&info);
}

// sizes that an index cannot hold
static void odd_aspects(void)
{
    static uint8_t rgb[3 * 4096 * 16];
    const struct {
        int width, num, den, shown;
    } cases[] = {{4096, 16, 1, 0}, {4094, 16, 1, 65504}};
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        mr_encoder *e;
        mr_clip_info info;
        mr_fault fault = MR_FAULT_NONE;
        mr_encode_options o = {.width = cases[i].width,
                               .height = 16,
                               .sar_num = cases[i].num,
                               .sar_den = cases[i].den};
        if (!CHECK_OK(m->encoder_open(clips_path("odd.mp4"), &o, &e)))
            return;
        CHECK_OK(m->encoder_frame(e, rgb, -1));
        CHECK_OK(m->encoder_finish(e));
        m->encoder_free(e);
        mr_status st = m->scan(w, clips_path("odd.mp4"), 0, &info, &fault);
        if (cases[i].shown) {
            CHECK_OK(st);
            CHECK_INT(info.width, cases[i].shown);
            mr_clip_info_fini(&info);
        } else {
            CHECK_FAILS(st, MR_E_DECODE, "expected 1 to 65535 a side");
            CHECK_INT(fault, MR_FAULT_GEOMETRY);
        }
    }
}

// clips of other readers' test folders, next to the repository
static void foreign_clips(void)
{
    static const struct {
        const char *name;
        int frames, width, height;
        uint32_t flags;
        int rate_num, rate_den;
    } rows[] = {{"av1_video.mkv", 125, 640, 360, 0, 25, 1},
                {"bigbuckbunny.mp4", 132, 1280, 720, 0, 25, 1},
                {"discard_first_keyframe.mp4", 25, 64, 64, 0, 25, 1},
                {"h264_10bits.mp4", 30, 200, 200, 0, 30, 1},
                {"h265_video.mp4", 10, 128, 128, 0, 10, 1},
                {"nasa_13013.mp4", 390, 480, 270, 0, 30000, 1001},
                {"nasa_13013_rotated.mp4", 17, 270, 480, 0, 30000, 1001},
                {"nasa_13013_hdr.mp4", 325, 320, 180, MR_CLIP_HDR, 25, 1},
                {"animated.gif", 4, 64, 48, 0, 10, 1},
                {"testsrc2_mpeg4.avi", 30, 1280, 720, 0, 30, 1},
                {"testsrc2_odd_height_and_width_vp9.mp4", 25, 321, 241, 0, 25, 1},
                {"testsrc2_odd_width_mpeg2.mp4", 10, 121, 80, 0, 25, 1},
                {"testsrc2_vp8.webm", 30, 1280, 720, 0, 30, 1},
                {"unordered.mov", 4, 50, 50, 0, 32, 1},
                {"video_90.mov", 3, 320, 568, 0, 30, 1},
                {"video_180.mov", 3, 568, 320, 0, 30, 1}};
    const char *folder = getenv("MOONREEL_CLIPS");
    folder = folder ? folder : "../shared/clips";
    if (!mr_path_exists(folder)) {
        printf("SKIP %s: not there\n", folder);
        return;
    }
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", folder, rows[i].name);
        mr_clip_info info;
        mr_fault fault;
        if (!CHECK_OK(m->scan(w, path, 0, &info, &fault)))
            continue;
        CHECK_INT(info.frames, rows[i].frames);
        CHECK_INT(info.width, rows[i].width);
        CHECK_INT(info.height, rows[i].height);
        CHECK_INT(info.rate_num, rows[i].rate_num);
        CHECK_INT(info.rate_den, rows[i].rate_den);
        CHECK_INT(info.flags & (MR_CLIP_HDR | MR_CLIP_VFR | MR_CLIP_NO_PTS), rows[i].flags);
        enum { H = 48, W = 64, ONE = 3 * H * W };
        uint8_t *all = malloc((size_t)info.frames * ONE), part[ONE];
        mr_clip_request q = {.path = path,
                             .info = &info,
                             .step = 1,
                             .frames = (int32_t)info.frames,
                             .height = H,
                             .width = W};
        if (rows[i].flags & MR_CLIP_HDR) {
            CHECK_FAILS(m->read(w, &q, all, &fault), MR_E_DECODE, "hdr");
        } else if (CHECK_OK(m->read(w, &q, all, &fault))) {
            uint64_t seed = i;
            const char *reads = getenv("MOONREEL_READS"); // of each clip; a long run requests more
            for (int t = 0; t < (reads ? atoi(reads) : 6); t++) {
                q.frames = 1, q.start = (int64_t)(clips_draw(&seed) % (uint64_t)info.frames);
                if (CHECK_OK(m->read(w, &q, part, &fault)))
                    CHECK(memcmp(part, all + (size_t)q.start * ONE, ONE) == 0);
            }
        }
        free(all);
        mr_clip_info_fini(&info);
    }
    // its damage causes no error code, only flagged frames
    mr_clip_info info;
    mr_fault fault;
    uint8_t *all = malloc(60 * 3 * 48 * 64);
    char path[256];
    snprintf(path, sizeof path, "%s/corrupted.mp4", folder);
    if (CHECK_OK(m->scan(w, path, 0, &info, &fault))) {
        mr_clip_request q = {.path = path,
                             .info = &info,
                             .step = 1,
                             .frames = (int32_t)info.frames,
                             .height = 48,
                             .width = 64};
        CHECK_FAILS(m->read(w, &q, all, &fault), MR_E_DECODE, "corrupt");
        CHECK_INT(fault, MR_FAULT_CORRUPT);
        mr_clip_info_fini(&info);
    }
    free(all);
}

int main(void)
{
    if (!CHECK_OK(mr_media_get(&m)) || !CHECK_OK(m->worker_new(&w)))
        return check_done();
    every_container();
    tiff();
    uneven_times();
    repeated_times();
    far_times();
    edit_list();
    odd_aspects();
    foreign_clips();
    m->worker_free(w);
    return check_done();
}
