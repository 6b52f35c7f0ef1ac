/* media/begin: containers that wrongly mark frames as key frames. Each frame that is read alone
 * equals that of a decode from the start, for each container, index and codec.
 * Covers: core/media/read.c core/media/prints.c core/media/scan.c */
#include "media/begin.c"
#include "media/units.c"

#include "check.h"
#include "clips.h"
#include "x265.h"

static const mr_media *m;
static mr_media_worker *w;

enum { W = 176, H = 144, GOP = 9, FRAMES = 4 * GOP, ONE = 3 * H * W };
static uint8_t all[FRAMES * ONE], one[ONE];

/* The left half moves, the right half does not. */
static mr_status write_clip(const char *path, mr_encode_options o)
{
    mr_encoder *e;
    o.width = W, o.height = H;
    MR_TRY(m->encoder_open(path, &o, &e));
    mr_status st = MR_OK;
    for (int t = 0; t < FRAMES && st == MR_OK; t++) {
        for (int i = 0; i < ONE; i++) {
            int x = i % W, y = i / W % H, c = i / W / H;
            uint64_t block = MR_MIX((uint64_t)(x / 8), (uint64_t)(y / 8), (uint64_t)c) % 99;
            one[i] = (uint8_t)(block + (uint64_t)(x < W / 2 ? x * (c + 1) + y + t * (3 + c) : 0));
        }
        st = m->encoder_frame(e, one, -1);
    }
    if (st == MR_OK)
        st = m->encoder_finish(e);
    m->encoder_free(e);
    return st;
}

/* ---- wrong marks: each function returns how many it set ---- */

static uint32_t number(const uint8_t *at, int bytes)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++)
        v = v << 8 | at[i];
    return v;
}

static size_t find(const uint8_t *data, size_t n, const char *tag, bool last)
{
    size_t at = n;
    for (size_t i = 0; i + 8 < n && (last || at == n); i++)
        if (memcmp(data + i, tag, 4) == 0)
            at = i;
    return at;
}

// MP4 without its list of sync samples: all are
static int lie_mp4(uint8_t *data, size_t n)
{
    size_t at = find(data, n, "stss", false);
    if (at == n)
        return 0;
    memcpy(data + at, "free", 4);
    return FRAMES - (int)number(data + at + 8, 4);
}

// MP4 whose list names later samples than it should
static int shift_mp4(uint8_t *data, size_t n)
{
    size_t at = find(data, n, "stss", false);
    int moved = 0, keys = at < n ? (int)number(data + at + 8, 4) : 0;
    for (int k = 1; k < keys; k++, moved++)
        data[at + 15 + 4 * (size_t)k] += 3;
    return moved;
}

static int lie_avi(uint8_t *data, size_t n)
{
    size_t at = find(data, n, "idx1", true);
    int set = 0;
    for (size_t i = at + 8; i + 16 <= n; i += 16) {
        set += !(data[i + 4] & 16);
        data[i + 4] |= 16;
    }
    return set;
}

static int lie_flv(uint8_t *data, size_t n)
{
    int set = 0;
    for (size_t at = 13; at + 12 < n; at += number(data + at + 1, 3) + 15)
        if (data[at] == 9) {
            set += data[at + 11] >> 4 != 1;
            data[at + 11] = (uint8_t)(16 | (data[at + 11] & 15));
        }
    return set;
}

// the number at `at` without its length bit; *bytes is its length
static uint64_t ebml(const uint8_t *at, int *bytes)
{
    *bytes = 1;
    while (*bytes < 8 && !(at[0] & 0x80 >> (*bytes - 1)))
        ++*bytes;
    uint64_t v = at[0] & (0xff >> *bytes);
    for (int i = 1; i < *bytes; i++)
        v = v << 8 | at[i];
    return v;
}

// the next simple block at or after `at`, where an element begins; n: no more blocks
static size_t find_block(const uint8_t *data, size_t n, size_t at)
{
    enum { SEGMENT = 0x8538067, CLUSTER = 0xf43b675, BLOCK = 0x23 };
    while (at + 16 < n) {
        int id_bytes, size_bytes;
        uint64_t id = ebml(data + at, &id_bytes), size = ebml(data + at + id_bytes, &size_bytes);
        if (id == BLOCK)
            return at;
        at += (size_t)(id_bytes + size_bytes) + (id == SEGMENT || id == CLUSTER ? 0 : (size_t)size);
    }
    return n;
}

static int lie_mkv(uint8_t *data, size_t n)
{
    int set = 0, bytes;
    for (size_t at = find_block(data, n, 0); at < n; at = find_block(data, n, at)) {
        uint64_t size = ebml(data + at + 1, &bytes);
        uint8_t *flags = data + at + 1 + bytes + 3;
        set += !(*flags & 0x80);
        *flags |= 0x80;
        at += 1 + (size_t)bytes + (size_t)size;
    }
    return set;
}

static bool lie(const char *from, const char *to, int (*how)(uint8_t *, size_t))
{
    char *data;
    size_t n;
    if (!CHECK_OK(mr_file_read_all(clips_path(from), &data, &n)))
        return false;
    bool lies = CHECK(how((uint8_t *)data, n) > 2);
    CHECK_OK(mr_file_replace(clips_path(to), data, n));
    mr_free(data);
    return lies;
}

/* ---- reads ---- */

static mr_clip_request whole(const char *name, const mr_clip_info *info)
{
    return (mr_clip_request){.path = clips_path(name),
                             .info = info,
                             .step = 1,
                             .frames = (int32_t)info->frames,
                             .height = H,
                             .width = W};
}

/* The number of frames of `all` that differ when they are read alone: backwards, then in any
 * order. */
static int others(const char *name, const mr_clip_info *info)
{
    int bad = 0;
    mr_fault fault;
    uint64_t seed = 3;
    mr_clip_request q = whole(name, info);
    q.frames = 1;
    for (int i = 0; i < FRAMES + FRAMES / 2; i++) {
        q.start = i < FRAMES ? FRAMES - 1 - i : (int64_t)(clips_draw(&seed) % FRAMES);
        if (CHECK_OK(m->read(w, &q, one, &fault)))
            bad += memcmp(one, all + q.start * ONE, ONE) != 0;
    }
    return bad;
}

/* An index that believed the container: each frame is a key frame. */
static mr_clip_info believing(const mr_clip_info *info, int64_t keys[FRAMES])
{
    mr_clip_info old = *info;
    double ticks = (double)info->tb_den / info->tb_num * info->rate_den / info->rate_num;
    for (int i = 0; i < FRAMES; i++)
        keys[i] = info->first_pts + (int64_t)(i * ticks + 0.5);
    old.key_pts = keys, old.n_keys = FRAMES;
    return old;
}

typedef struct subject {
    const char *honest, *lying;
    int (*how)(uint8_t *, size_t);
    int keys, real; /* that a scan finds, that there are; -1: those of the correct clip */
    mr_encode_options o;
} subject;

static const subject subjects[] = {
    {"hevc.mp4", "hevc_lie.mp4", lie_mp4, -1, -1, {.codec = "hevc", .gop = GOP}},
    {"hevc.mkv", "hevc_lie.mkv", lie_mkv, -1, -1, {.codec = "hevc", .gop = GOP}},
    {"hevc2.mp4", "hevc_shift.mp4", shift_mp4, 1, -1, {.codec = "hevc", .gop = GOP}},
    {"turns.mp4",
     "turns_lie.mp4",
     lie_mp4,
     1,
     1,
     {.codec = "hevc",
      .gop = GOP,
      .options = "x265-params=log-level=none\\:pools=none\\:intra-refresh=1"}},
    {"mpeg4.mp4", "mpeg4_lie.mp4", lie_mp4, -1, -1, {.codec = "mpeg4", .gop = GOP}},
    {"b.mp4", "b_lie.mp4", lie_mp4, -1, -1, {.codec = "mpeg4", .gop = GOP, .options = "bf=2"}},
    {"mpeg4b.mp4", "mpeg4_shift.mp4", shift_mp4, 1, -1, {.codec = "mpeg4", .gop = GOP}},
    {"mpeg4.avi", "mpeg4_lie.avi", lie_avi, -1, -1, {.codec = "mpeg4", .gop = GOP}},
    {"h263.3gp", "h263_lie.3gp", lie_mp4, -1, -1, {.codec = "h263", .gop = GOP}},
    {"h263p.avi", "h263p_lie.avi", lie_avi, -1, -1, {.codec = "h263p", .gop = GOP}},
    {"flv1.flv", "flv1_lie.flv", lie_flv, -1, -1, {.codec = "flv", .gop = GOP}},
    {"ms2.avi", "ms2_lie.avi", lie_avi, -1, -1, {.codec = "msmpeg4v2", .gop = GOP}},
    {"ms3.avi", "ms3_lie.avi", lie_avi, -1, -1, {.codec = "msmpeg4", .gop = GOP}},
    {"wmv1.avi", "wmv1_lie.avi", lie_avi, -1, -1, {.codec = "wmv1", .gop = GOP}},
    {"wmv2.avi", "wmv2_lie.avi", lie_avi, -1, -1, {.codec = "wmv2", .gop = GOP}},
    {"h261.mkv", "h261_lie.mkv", lie_mkv, 0, 0, {.codec = "h261", .gop = GOP}},
    {"mpeg2.mp4",
     "mpeg2_lie.mp4",
     lie_mp4,
     -1,
     -1,
     {.codec = "mpeg2video", .gop = GOP, .options = "bf=2"}},
    {"h264.mp4", "h264_lie.mp4", lie_mp4, -1, -1, {.gop = GOP}},
    {"open.mp4",
     "open_lie.mp4",
     lie_mp4,
     -1,
     -1,
     {.gop = GOP, .options = "x264-params=open-gop=1:bf=4"}},
    {"refresh.mp4", "refresh_lie.mp4", lie_mp4, -1, -1, {.gop = GOP, .options = "intra-refresh=1"}},
    {"vp9.mp4", "vp9_lie.mp4", lie_mp4, FRAMES, FRAMES, {.codec = "vp9", .gop = GOP}},
    {"ffv1.mkv",
     "ffv1_lie.mkv",
     lie_mkv,
     FRAMES,
     FRAMES,
     {.codec = "ffv1", .gop = GOP, .options = "coder=1:context=1"}},
    // only pictures reveal this one
    {"ms1.avi",
     "ms1_lie.avi",
     lie_avi,
     -1,
     -1,
     {.codec = "msvideo1", .gop = GOP, .pixel_format = "rgb555le"}},
};

static void one_subject(const subject *s)
{
    mr_clip_info honest = {0}, info = {0};
    mr_fault fault;
    int64_t keys[FRAMES];
    mr_status st = write_clip(clips_path(s->honest), s->o);
    if (st == MR_E_UNSUPPORTED) {
        printf("SKIP %s: %s\n", s->honest, mr_error_last()->text);
        return;
    }
    if (!CHECK_OK(st) || !lie(s->honest, s->lying, s->how) ||
        !CHECK_OK(m->scan(w, clips_path(s->honest), 0, &honest, &fault)) ||
        !CHECK_OK(m->scan(w, clips_path(s->lying), 0, &info, &fault)))
        goto out;
    CHECK_INT(info.frames, FRAMES);
    CHECK_INT(info.n_keys, s->keys < 0 ? honest.n_keys : s->keys);
    if (s->keys < 0 && CHECK(honest.n_keys > 1) && info.n_keys == honest.n_keys)
        CHECK(memcmp(info.key_pts, honest.key_pts, sizeof keys[0] * (size_t)info.n_keys) == 0);
    mr_clip_request q = whole(s->honest, &honest);
    if (!CHECK_OK(m->read(w, &q, all, &fault)))
        goto out;
    CHECK_INT(others(s->honest, &honest), 0);
    CHECK_INT(others(s->lying, &info), 0);
    // an index that believed it reads the same, unless only pictures reveal it, and is detected
    mr_clip_info old = believing(&info, keys);
    if (strcmp(s->honest, "ms1.avi"))
        CHECK_INT(others(s->lying, &old), 0);
    CHECK_OK(m->watch(w, clips_path(s->lying), &old, 0, NULL, &fault));
    CHECK_INT(old.n_keys, s->real < 0 ? honest.n_keys : s->real);
    // and one of a correct clip keeps its entries
    int32_t had = honest.n_keys;
    CHECK_OK(m->watch(w, clips_path(s->honest), &honest, 0, NULL, &fault));
    CHECK_INT(honest.n_keys, had);
out:
    mr_clip_info_fini(&honest);
    mr_clip_info_fini(&info);
}

// streams without an index, in which a seek ends somewhere
static void streams(void)
{
    static const struct {
        const char *name;
        mr_encode_options o;
    } rows[] = {{"hevc.ts", {.codec = "hevc", .gop = GOP}},
                {"h264.ts", {.gop = GOP}},
                {"mpeg4.ts", {.codec = "mpeg4", .gop = GOP}}};
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        mr_clip_info info;
        mr_fault fault;
        mr_status st = write_clip(clips_path(rows[i].name), rows[i].o);
        if (st == MR_E_UNSUPPORTED || !CHECK_OK(st) ||
            !CHECK_OK(m->scan(w, clips_path(rows[i].name), 0, &info, &fault)))
            continue;
        mr_clip_request q = whole(rows[i].name, &info);
        if (CHECK_OK(m->read(w, &q, all, &fault)))
            CHECK_INT(others(rows[i].name, &info), 0);
        mr_clip_info_fini(&info);
    }
}

// what the first bits of packets say
static void packets(void)
{
    static const struct {
        enum AVCodecID codec;
        media_start start;
        int n;
        uint8_t bytes[20];
    } rows[] = {
        // types of pictures
        {AV_CODEC_ID_HEVC, MEDIA_BUILDS, 6, {0, 0, 1, 15 << 1, 1, 9}},
        {AV_CODEC_ID_HEVC, MEDIA_BEGINS, 6, {0, 0, 1, 16 << 1, 1, 9}},
        {AV_CODEC_ID_HEVC, MEDIA_BEGINS, 6, {0, 0, 1, 23 << 1, 1, 9}},
        {AV_CODEC_ID_HEVC, MEDIA_BUILDS, 6, {0, 0, 1, 24 << 1, 1, 9}},
        {AV_CODEC_ID_HEVC, MEDIA_UNSURE, 6, {0, 0, 1, 32 << 1, 1, 9}},
        {AV_CODEC_ID_H264, MEDIA_BEGINS, 6, {0, 0, 1, 0x65, 1, 9}},
        {AV_CODEC_ID_H264, MEDIA_BUILDS, 6, {0, 0, 1, 0x41, 1, 9}},
        // recovery now, exactly or not; later, exactly or not
        {AV_CODEC_ID_H264, MEDIA_BEGINS, 13, {0, 0, 1, 6, 6, 1, 0xc0, 128, 0, 0, 1, 0x41, 9}},
        {AV_CODEC_ID_H264, MEDIA_BEGINS, 13, {0, 0, 1, 6, 6, 1, 0x80, 128, 0, 0, 1, 0x41, 9}},
        {AV_CODEC_ID_H264, MEDIA_BEGINS, 13, {0, 0, 1, 6, 6, 1, 0x50, 128, 0, 0, 1, 0x41, 9}},
        {AV_CODEC_ID_H264, MEDIA_BUILDS, 13, {0, 0, 1, 6, 6, 1, 0x40, 128, 0, 0, 1, 0x41, 9}},
        // after another message, whose zeros are followed by a 3 that does not count
        {AV_CODEC_ID_H264,
         MEDIA_BEGINS,
         19,
         {0, 0, 1, 6, 5, 3, 0, 0, 3, 1, 6, 1, 0xc0, 128, 0, 0, 1, 0x41, 9}},
        {AV_CODEC_ID_H264,
         MEDIA_BUILDS,
         19,
         {0, 0, 1, 6, 5, 3, 6, 1, 0xc0, 5, 1, 6, 128, 0, 0, 0, 1, 0x41, 9}},
        {AV_CODEC_ID_MPEG4, MEDIA_BEGINS, 5, {0, 0, 1, 0xb6, 0x3f}},
        {AV_CODEC_ID_MPEG4, MEDIA_BUILDS, 5, {0, 0, 1, 0xb6, 0x40}},
        {AV_CODEC_ID_MPEG4, MEDIA_UNSURE, 5, {0, 0, 1, 0xb0, 0x40}},
        {AV_CODEC_ID_MPEG2VIDEO, MEDIA_BEGINS, 6, {0, 0, 1, 0, 0xff, 0xcf}},
        {AV_CODEC_ID_MPEG2VIDEO, MEDIA_BUILDS, 6, {0, 0, 1, 0, 0, 0x10}},
        // formats of H.263 with and without extended types
        {AV_CODEC_ID_H263, MEDIA_BEGINS, 9, {0, 0, 0x80, 2, 0x08, 0xff, 0xff, 0xff, 0xff}},
        {AV_CODEC_ID_H263, MEDIA_BUILDS, 9, {0, 0, 0x80, 2, 0x0a}},
        {AV_CODEC_ID_H263, MEDIA_BEGINS, 9, {0, 0, 0x80, 2, 0x1c, 0xff, 0xff, 0xe3, 0xff}},
        {AV_CODEC_ID_H263, MEDIA_BUILDS, 9, {0, 0, 0x80, 2, 0x1c, 0x80, 0, 0x04}},
        {AV_CODEC_ID_H263, MEDIA_BUILDS, 9, {0, 0, 0x80, 2, 0x1c, 0x10}},
        {AV_CODEC_ID_H263, MEDIA_UNSURE, 9, {1, 0, 0x80, 2, 0x08}},
        {AV_CODEC_ID_FLV1, MEDIA_BEGINS, 9, {0, 0, 0x80, 1, 0x1f, 0xff}},
        {AV_CODEC_ID_FLV1, MEDIA_BUILDS, 9, {0, 0, 0x80, 1, 0x20}},
        {AV_CODEC_ID_FLV1, MEDIA_BUILDS, 9, {0, 0, 0x80, 0, 0, 0, 0x20}},
        {AV_CODEC_ID_FLV1, MEDIA_BUILDS, 9, {0, 0, 0x80, 0, 0x80, 0, 0, 0, 0x20}},
        {AV_CODEC_ID_WMV1, MEDIA_BEGINS, 2, {0x3f}},
        {AV_CODEC_ID_WMV1, MEDIA_BUILDS, 2, {0x40}},
        {AV_CODEC_ID_WMV2, MEDIA_BEGINS, 2, {0x7f}},
        {AV_CODEC_ID_WMV2, MEDIA_BUILDS, 2, {0x80}},
        {AV_CODEC_ID_VP9, MEDIA_UNSURE, 2, {0x80}},
    };
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        const AVCodecParameters of = {.codec_id = rows[i].codec};
        const AVPacket p = {.data = (uint8_t *)(uintptr_t)rows[i].bytes, .size = rows[i].n};
        if (!CHECK_INT(media_packet_start(&of, &p), rows[i].start))
            printf("  row %zu\n", i);
    }
    // for any bytes, none after their end is read
    uint64_t seed = 11;
    int begins = 0;
    for (int t = 0; t < 20000; t++) {
        uint8_t extra[32] = {1, 1, 1, 1, 3};
        const AVCodecParameters of = {.codec_id = rows[(size_t)t % MR_COUNT(rows)].codec,
                                      .extradata = extra,
                                      .extradata_size = t % 2 ? (int)sizeof extra : 0};
        int n = 1 + (int)(clips_draw(&seed) % 24);
        uint8_t *data = mr_alloc((size_t)n);
        for (int i = 0; i < n; i++) {
            uint64_t v = clips_draw(&seed);
            data[i] = (uint8_t)(v >> 8 & 3 ? v & 7 : v);
        }
        begins += media_packet_start(&of, &(AVPacket){.data = data, .size = n}) == MEDIA_BEGINS;
        mr_free(data);
    }
    CHECK(begins > 100);
}

/* ---- files that begin within a group of pictures ---- */

enum { CUT = 4 };

// without the first packets: their blocks become void elements
static int cut_mkv(uint8_t *data, size_t n)
{
    int cut = 0;
    for (size_t at = 0; cut < CUT && (at = find_block(data, n, at)) < n; cut++)
        data[at] = 0xec;
    return cut;
}

// the same in AVI, whose index and chunks name them
static int cut_avi(uint8_t *data, size_t n)
{
    int cut = 0;
    for (size_t i = 0; i + 8 < n; i++) {
        bool movi = memcmp(data + i, "movi", 4) == 0, idx1 = memcmp(data + i, "idx1", 4) == 0;
        size_t at = i + (movi ? 4 : 8);
        for (int k = 0; (movi || idx1) && k < CUT && at + 8 < n; k++, cut++) {
            size_t size = data[at + 4] | data[at + 5] << 8 | data[at + 6] << 16;
            memcpy(data + at, "JUNK", 4);
            at += movi ? 8 + (size + 1) / 2 * 2 : 16;
        }
    }
    return cut;
}

static void cuts(void)
{
    static const struct {
        const char *honest, *cut;
        mr_encode_options o;
    } rows[] = {
        {"hevc0.mkv",
         "hevc_cut.mkv",
         {.codec = "hevc",
          .gop = GOP,
          .options = "x265-params=log-level=none\\:pools=none\\:bframes=0"}},
        {"mpeg40.mkv", "mpeg4_cut.mkv", {.codec = "mpeg4", .gop = GOP}},
        {"mpeg20.mkv", "mpeg2_cut.mkv", {.codec = "mpeg2video", .gop = GOP, .options = "bf=0"}},
    };
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        mr_clip_info honest = {0}, info = {0};
        mr_fault fault;
        mr_status st = write_clip(clips_path(rows[i].honest), rows[i].o);
        if (st == MR_E_UNSUPPORTED || !CHECK_OK(st) || !lie(rows[i].honest, rows[i].cut, cut_mkv) ||
            !CHECK_OK(m->scan(w, clips_path(rows[i].honest), 0, &honest, &fault)) ||
            !CHECK_OK(m->scan(w, clips_path(rows[i].cut), 0, &info, &fault)))
            continue;
        CHECK_INT(info.frames, FRAMES - CUT);
        mr_clip_request q = whole(rows[i].honest, &honest);
        CHECK_OK(m->read(w, &q, all, &fault));
        q = whole(rows[i].cut, &info);
        q.frames = 1;
        for (q.start = 0; q.start < GOP - CUT; q.start++) {
            CHECK_FAILS(m->read(w, &q, one, &fault), MR_E_DECODE, "did not come out");
            CHECK_INT(fault, MR_FAULT_SEEK);
        }
        for (; q.start < info.frames; q.start++)
            if (CHECK_OK(m->read(w, &q, one, &fault)))
                CHECK(memcmp(one, all + (q.start + CUT) * ONE, ONE) == 0);
        mr_clip_info_fini(&honest);
        mr_clip_info_fini(&info);
    }
}

// counted frames would differ, too
static void counted(void)
{
    mr_clip_info info = {0};
    mr_fault fault;
    if (!CHECK_OK(
            write_clip(clips_path("packed0.avi"),
                       (mr_encode_options){.codec = "mpeg4", .gop = GOP, .options = "bf=2"})) ||
        !lie("packed0.avi", "packed_cut.avi", cut_avi) ||
        !CHECK_OK(m->scan(w, clips_path("packed_cut.avi"), 0, &info, &fault)))
        return;
    CHECK(info.flags & MR_CLIP_NO_PTS);
    mr_clip_request q = whole("packed_cut.avi", &info);
    q.frames = 1, q.start = 12;
    CHECK_FAILS(m->read(w, &q, one, &fault), MR_E_DECODE, "frame 12 did not come out");
    CHECK_INT(fault, MR_FAULT_NO_PTS);
    mr_clip_info_fini(&info);
}

int main(void)
{
    packets();
    if (!CHECK_OK(mr_media_get(&m)) || !CHECK_OK(m->worker_new(&w)))
        return check_done();
    for (size_t i = 0; i < MR_COUNT(subjects); i++) {
        int before = check_failed;
        one_subject(&subjects[i]);
        if (check_failed > before)
            printf("  in %s\n", subjects[i].lying);
    }
    streams();
    cuts();
    counted();
    m->worker_free(w);
    return check_done();
}
