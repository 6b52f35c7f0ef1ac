/* media/first: the facts of a picture that a scan reads from the begin of its first slice equal
 * FFmpeg's facts of the whole first frame.
 * Covers: core/media/scan.c core/media/units.c */
#include "media/first.c"
#include "media/units.c"

#include "check.h"
#include "clips.h"
#include "x265.h"

static const mr_media *m;
static mr_media_worker *w;

enum { W = 320, H = 192 };

// Grain makes slices of many kilobytes.
static mr_status write_grain(const char *path, mr_encode_options o)
{
    static uint8_t rgb[3 * H * W];
    mr_encoder *e;
    o.width = W, o.height = H;
    MR_TRY(m->encoder_open(path, &o, &e));
    mr_status st = MR_OK;
    for (int t = 0; t < 3 && st == MR_OK; t++) {
        for (size_t i = 0; i < sizeof rgb; i++)
            rgb[i] = (uint8_t)MR_MIX((uint64_t)t, i);
        st = m->encoder_frame(e, rgb, -1);
    }
    if (st == MR_OK)
        st = m->encoder_finish(e);
    m->encoder_free(e);
    return st;
}

// The first packet and the whole first frame of a decoder without settings.
typedef struct expected {
    AVFormatContext *demux;
    AVStream *stream;
    AVPacket *packet; // the first
    AVFrame *frame;
} expected;

static void forget(expected *t)
{
    avformat_close_input(&t->demux);
    av_packet_free(&t->packet);
    av_frame_free(&t->frame);
}

static bool look(const char *path, expected *t)
{
    *t = (expected){.frame = av_frame_alloc()};
    if (avformat_open_input(&t->demux, path, NULL, NULL) < 0 ||
        avformat_find_stream_info(t->demux, NULL) < 0)
        return false;
    int at = av_find_best_stream(t->demux, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
    if (at < 0)
        return false;
    t->stream = t->demux->streams[at];
    const AVCodec *decoder = avcodec_find_decoder(t->stream->codecpar->codec_id);
    AVCodecContext *codec = avcodec_alloc_context3(decoder);
    avcodec_parameters_to_context(codec, t->stream->codecpar);
    codec->thread_count = 1;
    AVPacket *p = av_packet_alloc();
    bool out = false;
    for (bool open = avcodec_open2(codec, decoder, NULL) >= 0, ended = false;
         open && !out && !ended;) {
        ended = av_read_frame(t->demux, p) < 0;
        if (!ended && p->stream_index == at) {
            if (!t->packet)
                t->packet = av_packet_clone(p);
            avcodec_send_packet(codec, p);
        } else if (ended) {
            avcodec_send_packet(codec, NULL);
        }
        av_packet_unref(p);
        out = avcodec_receive_frame(codec, t->frame) >= 0;
    }
    av_packet_free(&p);
    avcodec_free_context(&codec);
    return out;
}

static bool interlaced(const AVFrame *f)
{
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 7, 100)
    return f->flags & AV_FRAME_FLAG_INTERLACED;
#else
    return f->interlaced_frame;
#endif
}

static void same_facts(const char *path, const mr_clip_info *info, expected *t)
{
    const AVFrame *f = t->frame;
    AVRational sar = av_guess_sample_aspect_ratio(t->demux, t->stream, t->frame);
    bool full = f->color_range == AVCOL_RANGE_JPEG || f->format == AV_PIX_FMT_YUVJ420P ||
                f->format == AV_PIX_FMT_YUVJ422P || f->format == AV_PIX_FMT_YUVJ444P;
    bool hdr = f->color_trc == AVCOL_TRC_SMPTE2084 || f->color_trc == AVCOL_TRC_ARIB_STD_B67;
    bool same = CHECK_INT(info->coded_width, f->width) & CHECK_INT(info->coded_height, f->height) &
                CHECK_INT(info->sar_num, sar.num > 0 ? sar.num : 1) &
                CHECK_INT(info->sar_den, sar.num > 0 ? sar.den : 1) &
                CHECK_INT(info->matrix, f->colorspace) & CHECK_INT(info->transfer, f->color_trc) &
                CHECK_INT(info->primaries, f->color_primaries) &
                CHECK_INT(info->range, full ? 2 : 1) &
                CHECK_INT(!!(info->flags & MR_CLIP_INTERLACED), interlaced(f)) &
                CHECK_INT(!!(info->flags & MR_CLIP_HDR), hdr);
    if (!same)
        printf("  in %s\n", path);
}

// the rest of a packet still gives a frame
static bool gives_frame(const AVCodecParameters *of, const AVPacket *p)
{
    const AVCodec *decoder = avcodec_find_decoder(of->codec_id);
    AVCodecContext *codec = avcodec_alloc_context3(decoder);
    AVFrame *f = av_frame_alloc();
    avcodec_parameters_to_context(codec, of);
    codec->thread_count = 1, codec->error_concealment = 0;
    codec->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
    bool out = avcodec_open2(codec, decoder, NULL) >= 0 && avcodec_send_packet(codec, p) >= 0 &&
               avcodec_send_packet(codec, NULL) >= 0 && avcodec_receive_frame(codec, f) >= 0;
    avcodec_free_context(&codec);
    av_frame_free(&f);
    return out;
}

/* short_one: its first packet is shortened to less than a tenth */
static void compare(const char *path, bool short_one)
{
    expected t;
    mr_clip_info info;
    mr_fault fault;
    if (m->scan(w, path, 0, &info, &fault) == MR_OK) {
        if (CHECK(look(path, &t)))
            same_facts(path, &info, &t);
        int was = t.packet ? t.packet->size : 0;
        if (short_one && CHECK(was) &&
            (!CHECK(media_packet_shorten(t.stream->codecpar, t.packet)) ||
             !CHECK(t.packet->size < was / 10) ||
             !CHECK(gives_frame(t.stream->codecpar, t.packet))))
            printf("  in %s: %d bytes\n", path, was);
        forget(&t);
        mr_clip_info_fini(&info);
    } else if (short_one) {
        CHECK_OK(mr_error_last()->code);
    }
}

static void made_clips(void)
{
    static const struct {
        const char *file;
        mr_encode_options o;
    } rows[] = {
        {"plain.mp4", {0}},
        {"plain.mkv", {0}},
        {"plain.avi", {.codec = "h264"}},
        {"plain.ts", {0}},
        {"untagged.mp4", {.untagged = true}},
        {"601.mp4", {.matrix = "bt601"}},
        {"full.mp4", {.full_range = true}},
        {"wide.mkv", {.sar_num = 4, .sar_den = 3}},
        {"wide.ts", {.sar_num = 4, .sar_den = 3}},
        {"ten.mp4", {.pixel_format = "yuv420p10le"}},
        {"slices.mp4", {.options = "x264-params=slices=6"}},
        {"delimited.mp4",
         {.options = "x264-params=aud=1\\:repeat-headers=1\\:nal-hrd=vbr"
                     "\\:vbv-maxrate=9000\\:vbv-bufsize=9000"}},
        {"fields.mp4", {.options = "x264-params=tff=1"}},
        {"fields.ts", {.options = "x264-params=bff=1"}},
        {"said_fields.mkv", {.options = "x264-params=fake-interlaced=1"}},
        {"pq.mkv",
         {.untagged = true,
          .options = "x264-params=colorprim=bt2020\\:transfer=smpte2084\\:colormatrix=bt2020nc"}},
        {"late_hlg.ts",
         {.untagged = true, .options = "x264-params=alternative-transfer=arib-std-b67"}},
        {"hevc.mp4", {.codec = "hevc"}},
        {"hevc.ts", {.codec = "hevc", .matrix = "bt2020"}},
        {"hevc_fields.mkv",
         {.codec = "hevc", .options = "x265-params=log-level=none\\:pools=none\\:interlace=tff"}},
        {"hevc_late_hlg.mkv",
         {.codec = "hevc",
          .untagged = true,
          .options = "x265-params=log-level=none\\:pools=none\\:atc-sei=18"}},
    };
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        mr_status st = write_grain(clips_path(rows[i].file), rows[i].o);
        if (st == MR_E_UNSUPPORTED)
            printf("SKIP %s: %s\n", rows[i].file, mr_error_last()->text);
        else if (CHECK_OK(st))
            compare(clips_path(rows[i].file), true);
    }
}

// clips of other readers' test folders, next to the repository
static void foreign_clips(void)
{
    const char *folder = getenv("MOONREEL_CLIPS");
    char path[512], **names;
    int n = 0;
    folder = folder ? folder : "../shared/clips";
    if (!mr_path_exists(folder) || !CHECK_OK(mr_dir_list(folder, &names, &n))) {
        printf("SKIP %s: not there\n", folder);
        return;
    }
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (!strstr(names[i], ".md"))
            compare(path, false);
    }
    mr_dir_list_free(names, n);
}

// for any packet, nothing is read past its end, and no length is trusted
static void any_bytes(void)
{
    uint8_t extra[64] = {0};
    AVCodecParameters *of = avcodec_parameters_alloc();
    int cut = 0;
    for (uint64_t round = 0; round < 1500; round++) {
        AVPacket *p = av_packet_alloc();
        int n = (int)(MR_MIX(round, 1) % 2000);
        if (!CHECK(av_new_packet(p, n) == 0))
            return;
        for (int i = 0; i < n; i++) {
            uint64_t r = MR_MIX(round, (uint64_t)i, 2);
            p->data[i] = (uint8_t)(r % 8 < 5 ? r % 8 / 4 : r >> 8);
        }
        of->codec_id = round % 3 ? AV_CODEC_ID_H264 : AV_CODEC_ID_HEVC;
        extra[0] = round % 2, extra[4] = extra[21] = (uint8_t)round;
        of->extradata = extra, of->extradata_size = (int)(MR_MIX(round, 3) % sizeof extra);
        if (media_packet_shorten(of, p)) {
            cut++;
            CHECK(p->size < n);
        } else {
            CHECK_INT(p->size, n);
        }
        av_packet_free(&p);
    }
    CHECK(cut > 50);
    of->extradata = NULL, of->extradata_size = 0;
    avcodec_parameters_free(&of);
}

int main(void)
{
    if (!CHECK_OK(mr_media_get(&m)) || !CHECK_OK(m->worker_new(&w)))
        return check_done();
    made_clips();
    foreign_clips();
    any_bytes();
    m->worker_free(w);
    return check_done();
}
