/* media/clip: files that are damaged, torn, replaced, no clips, or slow; failing disks; Ctrl-C. */
#include "check.h"
#include "clips.h"

#include <sys/stat.h>

static const mr_media *m;
static mr_media_worker *w;

static const struct {
    const char *file;
    mr_encode_options o;
    int frames;
} made[] = {
    {"closed.mp4", {.gop = 12}, 100},
    {"bframes.mkv", {.gop = 48, .options = "bf=8:b_strategy=0"}, 120},
    {"stream.ts", {.gop = 15}, 90},
    {"fragments.mp4", {.gop = 12, .mux_options = "movflags=frag_keyframe+empty_moov"}, 60},
    {"still.png", {0}, 1},
};

static bool have_ffmpeg(void)
{
    return system("command -v ffmpeg >/dev/null 2>&1") == 0;
}

static void copy_damaged(const char *from, const char *to, size_t keep, int hits, uint64_t seed)
{
    char *data;
    size_t n;
    CHECK_OK(mr_file_read_all(clips_path(from), &data, &n));
    for (int i = 0; i < hits; i++)
        data[n / 5 + clips_draw(&seed) % (n * 3 / 5)] ^= (char)(1 + clips_draw(&seed) % 255);
    CHECK_OK(mr_file_replace(clips_path(to), data, keep ? n * keep / 100 : n));
    mr_free(data);
}

// a damaged file returns right frames or an error with a class, never wrong frames
static void damage(void)
{
    uint64_t seed = 31;
    int refused = 0, fine = 0, wrong = 0, unnoticed = 0;
    uint8_t *part = malloc(8 * (size_t)BAR_BYTES), *whole = malloc(100 * (size_t)BAR_BYTES);
    for (int round = 0; round < 24; round++) {
        mr_clip_info info;
        mr_fault fault = MR_FAULT_NONE;
        copy_damaged("closed.mp4", "hurt.mp4", 0, 1 + round % 6, clips_draw(&seed));
        if (m->scan(w, clips_path("hurt.mp4"), 5, &info, &fault) != MR_OK) {
            CHECK(fault != MR_FAULT_NONE);
            continue;
        }
        for (int t = 0; t < 8; t++) {
            mr_clip_request q = {.path = clips_path("hurt.mp4"),
                                 .info = &info,
                                 .step = 1 + t % 3,
                                 .frames = 8,
                                 .height = BAR_H,
                                 .width = BAR_W,
                                 .deadline_s = 5};
            if (info.frames < 8 * q.step)
                continue;
            q.start = (int64_t)(clips_draw(&seed) % (uint64_t)(info.frames - 7 * q.step));
            if (m->read(w, &q, part, &fault) != MR_OK) {
                CHECK(fault != MR_FAULT_NONE);
                refused++;
                continue;
            }
            fine++;
            // compared with a decode from the start, where that is possible
            mr_clip_request all = q;
            all.start = 0, all.step = 1, all.frames = (int32_t)(q.start + 7 * q.step + 1);
            bool known = m->read(w, &all, whole, &fault) == MR_OK;
            for (int i = 0; i < 8; i++) {
                const uint8_t *got = part + (size_t)i * BAR_BYTES,
                              *want = whole + (size_t)(q.start + i * q.step) * BAR_BYTES;
                if (known)
                    wrong += memcmp(got, want, BAR_BYTES) != 0;
                else
                    unnoticed += bars_read(got, BAR_H, BAR_W) != q.start + i * q.step;
            }
        }
        mr_clip_info_fini(&info);
    }
    // slices of 30 bytes contain damage that is legal syntax: no decoder reports it
    printf("damaged: %d reads refused, %d done, %d frames wrong, %d unnoticed\n", refused, fine,
           wrong, unnoticed);
    CHECK_INT(wrong, 0);
    CHECK(unnoticed < fine * 8 / 20);
    CHECK(refused > 0);
    CHECK(fine > 0);
    free(part);
    free(whole);
}

static void truncation(void)
{
    mr_clip_info info;
    mr_fault fault;
    // the index of a plain MP4 is at its end, that of a fragmented or Matroska file is not
    copy_damaged("closed.mp4", "torn.mp4", 60, 0, 1);
    CHECK_FAILS(m->scan(w, clips_path("torn.mp4"), 0, &info, &fault), MR_E_DECODE, "open");
    CHECK_INT(fault, MR_FAULT_OPEN);
    char command[700];
    snprintf(command, sizeof command, "ffmpeg -v error -y -i %s -c copy -movflags faststart %s",
             clips_path("closed.mp4"), clips_path("front.mp4"));
    static const char *const from[] = {"fragments.mp4", "bframes.mkv", "stream.ts", "front.mp4"};
    for (size_t i = 0; i < MR_COUNT(from); i++) {
        char name[64];
        if (strcmp(from[i], "front.mp4") == 0 && (!have_ffmpeg() || system(command))) {
            printf("SKIP torn front.mp4: no ffmpeg command to make it with\n");
            continue;
        }
        snprintf(name, sizeof name, "torn_%s", from[i]);
        copy_damaged(from[i], name, 60, 0, 1);
        if (!CHECK_OK(m->scan(w, clips_path(name), 0, &info, &fault)))
            continue;
        CHECK(info.frames > 20 && info.frames < 100);
        // the frames that the scan counted can be read; the very last ones may be torn
        uint8_t rgb[BAR_BYTES];
        for (int64_t at = 0; at < info.frames - 4; at += 7) {
            mr_clip_request q = {.path = clips_path(name),
                                 .info = &info,
                                 .start = at,
                                 .step = 1,
                                 .frames = 1,
                                 .height = BAR_H,
                                 .width = BAR_W};
            if (CHECK_OK(m->read(w, &q, rgb, &fault)))
                CHECK_INT(bars_read(rgb, BAR_H, BAR_W), at);
        }
        mr_clip_info_fini(&info);
    }
}

static void refusals(void)
{
    mr_clip_info info;
    mr_fault fault;
    uint8_t rgb[BAR_BYTES];
    CHECK_FAILS(m->scan(w, clips_path("missing.mp4"), 0, &info, &fault), MR_E_IO, "No such file");
    CHECK_INT(fault, MR_FAULT_IO);
    CHECK_OK(mr_file_replace(clips_path("text.mp4"), "no clip at all", 14));
    CHECK_FAILS(m->scan(w, clips_path("text.mp4"), 0, &info, &fault), MR_E_DECODE, "open");
    CHECK_OK(mr_file_replace(clips_path("empty.mp4"), "", 0));
    CHECK_FAILS(m->scan(w, clips_path("empty.mp4"), 0, &info, &fault), MR_E_DECODE, "open");
    // neither a folder nor a pipe without a writer
    CHECK_FAILS(m->scan(w, clips_dir(), 0, &info, &fault), MR_E_IO, "not a regular file");
    CHECK_INT(mkfifo(clips_path("pipe.mp4"), 0600), 0);
    CHECK_FAILS(m->scan(w, clips_path("pipe.mp4"), 0, &info, &fault), MR_E_IO,
                "not a regular file");
    if (!CHECK_OK(m->scan(w, clips_path("closed.mp4"), 0, &info, &fault)))
        return;
    mr_clip_request q = {.path = clips_path("closed.mp4"),
                         .info = &info,
                         .start = 99,
                         .step = 1,
                         .frames = 2,
                         .height = BAR_H,
                         .width = BAR_W};
    CHECK_FAILS(m->read(w, &q, rgb, &fault), MR_E_RANGE,
                "frame 100 was requested, the file has 100");
    CHECK_INT(fault, MR_FAULT_SHORT);
    // the header promises more frames than there are
    q.start = 0, q.frames = 1, info.frames = 300, q.start = 200;
    CHECK_FAILS(m->read(w, &q, rgb, &fault), MR_E_DECODE, "seek");
    info.frames = (int64_t)INT32_MAX + 1;
    CHECK_FAILS(m->watch(w, clips_path("closed.mp4"), &info, 0, NULL, &fault), MR_E_DECODE,
                "geometry: 2147483648 frames; expected at most 2147483647");
    CHECK_INT(fault, MR_FAULT_GEOMETRY);
    mr_clip_info_fini(&info);
}

// files whose text names others: none of these is opened, and no socket
static void references(void)
{
    mr_clip_info info;
    mr_fault fault;
    char text[4][512], here[1024];
    snprintf(text[0], sizeof text[0],
             "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n%s\n#EXT-X-ENDLIST\n",
             clips_path("stream.ts"));
    snprintf(text[1], sizeof text[1], "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n%s\n",
             clips_path("list.m3u8"));
    snprintf(text[2], sizeof text[2], "ffconcat version 1.0\nfile closed.mp4\n");
    snprintf(text[3], sizeof text[3],
             "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n"
             "m=video 50040 RTP/AVP 33\n");
    // names are searched in the working directory, too
    if (!CHECK(getcwd(here, sizeof here)) || !CHECK_INT(chdir(clips_dir()), 0))
        return;
    for (size_t i = 0; i < MR_COUNT(text); i++) {
        CHECK_OK(mr_file_replace(clips_path("list.m3u8"), text[i], strlen(text[i])));
        CHECK_FAILS(m->scan(w, clips_path("list.m3u8"), 2, &info, &fault), MR_E_DECODE,
                    "open: cannot open");
        CHECK_INT(fault, MR_FAULT_OPEN);
    }
    CHECK_INT(chdir(here), 0);
}

// sides that no frame may have are reported before one is decoded
static void large_sides(void)
{
    enum { LONG = 8193, SHORT = 8 };
    static uint8_t rgb[3 * LONG * SHORT];
    for (int tall = 0; tall < 2; tall++) {
        mr_clip_info info;
        mr_fault fault;
        mr_encoder *e;
        const mr_encode_options o = {.width = tall ? SHORT : LONG, .height = tall ? LONG : SHORT};
        if (!CHECK_OK(m->encoder_open(clips_path("large.png"), &o, &e)))
            return;
        CHECK_OK(m->encoder_frame(e, rgb, -1));
        CHECK_OK(m->encoder_finish(e));
        m->encoder_free(e);
        CHECK_FAILS(m->scan(w, clips_path("large.png"), 0, &info, &fault), MR_E_DECODE,
                    tall ? "geometry: 8 x 8193; expected at most 8192 a side"
                         : "geometry: 8193 x 8; expected at most 8192 a side");
        CHECK_INT(fault, MR_FAULT_GEOMETRY);
    }
}

// a picture with one changed byte is refused, or shows the same
static void hurt_pictures(void)
{
    mr_clip_info info;
    mr_fault fault;
    char *data;
    size_t n;
    int refused = 0;
    static uint8_t want[BAR_BYTES], got[BAR_BYTES];
    mr_clip_request q = {.info = &info, .step = 1, .frames = 1, .height = BAR_H, .width = BAR_W};
    if (!CHECK_OK(mr_file_read_all(clips_path("still.png"), &data, &n)))
        return;
    for (size_t i = 0; i <= 40; i++) {
        const size_t at = n / 42 * i + 4;
        data[at] ^= i ? 1 : 0;
        CHECK_OK(mr_file_replace(clips_path("hurt.png"), data, n));
        data[at] ^= i ? 1 : 0;
        q.path = clips_path("hurt.png");
        if (m->scan(w, q.path, 0, &info, &fault) != MR_OK) {
            refused++;
            continue;
        }
        if (m->read(w, &q, i ? got : want, &fault) == MR_OK)
            CHECK(i == 0 || memcmp(got, want, sizeof want) == 0);
        else
            refused++;
        mr_clip_info_fini(&info);
    }
    printf("pictures: %d of 40 refused\n", refused);
    CHECK(refused > 30);
    mr_free(data);
}

// requests that no clip can answer are the caller's fault
static void odd_requests(void)
{
    mr_clip_info info;
    mr_fault fault;
    uint8_t rgb[BAR_BYTES];
    if (!CHECK_OK(m->scan(w, clips_path("closed.mp4"), 0, &info, &fault)))
        return;
    const mr_clip_request good = {.path = clips_path("closed.mp4"),
                                  .info = &info,
                                  .step = 1,
                                  .frames = 1,
                                  .height = BAR_H,
                                  .width = BAR_W};
    mr_clip_request bad[] = {good, good, good, good, good, good};
    bad[0].frames = 0, bad[1].step = 0, bad[2].spread = -1, bad[3].start = -1;
    bad[4].height = MR_CLIP_SIDE_MIN - 1, bad[5].width = MR_CLIP_SIDE_MIN - 1;
    for (size_t i = 0; i < MR_COUNT(bad); i++) {
        CHECK_FAILS(m->read(w, &bad[i], rgb, &fault), MR_E_USAGE, "expected positive numbers");
        CHECK_INT(fault, MR_FAULT_NONE);
    }
    info.flags |= MR_CLIP_HDR, info.transfer = 16;
    CHECK_FAILS(m->read(w, &good, rgb, &fault), MR_E_DECODE, "hdr: transfer 16");
    CHECK_INT(fault, MR_FAULT_HDR);
    mr_clip_info_fini(&info);
}

// frames that are counted from the start, and are fewer than in the index
static void counted_short(void)
{
    mr_clip_info info;
    mr_fault fault;
    uint8_t rgb[BAR_BYTES];
    if (!CHECK_OK(
            bars_write(m, clips_path("counted.avi"), (mr_encode_options){.gop = 12}, 30, NULL)) ||
        !CHECK_OK(m->scan(w, clips_path("counted.avi"), 0, &info, &fault)))
        return;
    CHECK(info.flags & MR_CLIP_NO_PTS);
    mr_clip_request q = {.path = clips_path("counted.avi"),
                         .info = &info,
                         .start = 40,
                         .step = 1,
                         .frames = 1,
                         .height = BAR_H,
                         .width = BAR_W};
    info.frames = 60;
    CHECK_FAILS(m->read(w, &q, rgb, &fault), MR_E_DECODE, "frame 40 did not come out");
    CHECK_INT(fault, MR_FAULT_NO_PTS);
    mr_clip_info_fini(&info);
}

// network stores round times, and copies have their own; another clip is detected nevertheless
static void changed_files(void)
{
    mr_clip_info info;
    mr_fault fault;
    uint8_t rgb[BAR_BYTES];
    char path[256];
    snprintf(path, sizeof path, "%s", clips_path("closed.mp4"));
    if (!CHECK_OK(m->scan(w, path, 0, &info, &fault)))
        return;
    mr_clip_request q = {
        .path = path, .info = &info, .step = 1, .frames = 1, .height = BAR_H, .width = BAR_W};
    const mr_clip_info true_info = info;
    struct {
        int64_t frames, first_pts;
        int32_t width, height;
        char codec;
    } changes[] = {{.frames = 1}, {.first_pts = 1}, {.width = 1}, {.height = 1}, {.codec = 1}};
    for (int64_t later_ns = 1; later_ns < 10000000000000; later_ns *= 1000) {
        info.mtime_ns = true_info.mtime_ns - later_ns;
        CHECK_OK(m->read(w, &q, rgb, &fault));
    }
    info.mtime_ns = true_info.mtime_ns - 5000000000;
    for (size_t i = 0; i < MR_COUNT(changes); i++) {
        info.frames += changes[i].frames, info.first_pts += changes[i].first_pts;
        info.width += changes[i].width, info.height += changes[i].height;
        info.codec[0] += changes[i].codec;
        CHECK_FAILS(m->read(w, &q, rgb, &fault), MR_E_DECODE, "stale");
        CHECK_INT(fault, MR_FAULT_STALE);
        info = true_info, info.mtime_ns -= 5000000000;
    }
    // an index may lack key frames, or have some that are no key frames, but not both
    int64_t more[64];
    CHECK(info.n_keys > 3 && info.n_keys < 63);
    info.n_keys--;
    CHECK_OK(m->read(w, &q, rgb, &fault));
    info.key_pts[1]++;
    CHECK_FAILS(m->read(w, &q, rgb, &fault), MR_E_DECODE, "stale");
    info.key_pts[1]--;
    memcpy(more, true_info.key_pts, sizeof *more * (size_t)true_info.n_keys);
    more[true_info.n_keys] = more[true_info.n_keys - 1] + 1;
    info.key_pts = more, info.n_keys = true_info.n_keys + 1;
    CHECK_OK(m->read(w, &q, rgb, &fault));
    more[2]++;
    CHECK_FAILS(m->read(w, &q, rgb, &fault), MR_E_DECODE, "stale");
    info = true_info, info.bytes++;
    CHECK_FAILS(m->read(w, &q, rgb, &fault), MR_E_DECODE, "stale");
    info = true_info, info.mtime_ns -= 5000000000;
    CHECK_OK(mr_file_replace(path, "no clip at all", info.bytes = 14));
    CHECK_FAILS(m->read(w, &q, rgb, &fault), MR_E_DECODE, "stale");
    CHECK_INT(fault, MR_FAULT_STALE);
    mr_clip_info_fini(&info);
    CHECK_OK(bars_write(m, path, made[0].o, made[0].frames, NULL));
}

// the libraries' messages about a clip: its last lines, no addresses, nothing of the clip before
static void words_of_libraries(void)
{
    mr_clip_info info;
    mr_fault fault;
    size_t most = 0;
    for (uint64_t seed = 1; seed < 12; seed++) {
        copy_damaged("stream.ts", "hurt.ts", 0, 99, seed);
        if (m->scan(w, clips_path("hurt.ts"), 5, &info, &fault) != MR_OK)
            continue;
        m->watch(w, clips_path("hurt.ts"), &info, 5, NULL, &fault);
        const char *log = m->worker_log(w);
        size_t lines = *log ? 1 : 0;
        for (const char *at = log; (at = strstr(at, "; [")); at++)
            lines++;
        most = MR_MAX(most, lines);
        CHECK(!strstr(log, " @ 0x"));
        mr_clip_info_fini(&info);
    }
    CHECK_INT(most, 4);
    if (CHECK_OK(m->scan(w, clips_path("closed.mp4"), 0, &info, &fault))) {
        CHECK_STR(m->worker_log(w), "");
        mr_clip_info_fini(&info);
    }
}

// each opened file is closed, however its use ended
static int open_files(void)
{
    char **names;
    int n = 0;
    CHECK_OK(mr_dir_list("/proc/self/fd", &names, &n));
    mr_dir_list_free(names, n);
    return n;
}

int main(void)
{
    if (!CHECK_OK(mr_media_get(&m)) || !CHECK_OK(m->worker_new(&w)))
        return check_done();
    const int files = open_files();
    for (size_t i = 0; i < MR_COUNT(made); i++)
        CHECK_OK(bars_write(m, clips_path(made[i].file), made[i].o, made[i].frames, NULL));
    damage();
    truncation();
    refusals();
    references();
    large_sides();
    hurt_pictures();
    odd_requests();
    counted_short();
    changed_files();
    words_of_libraries();
    CHECK_INT(open_files(), files);
    m->worker_free(w);
    return check_done();
}
