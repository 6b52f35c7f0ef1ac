/* media: scans a file for ingest: one pass over packet headers, and the facts of the first decoded
 * frame. Ref: dataplane 1.3. Licence: Apache-2.0 */
#include "media/room.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct stamps { // displayable packets
    int64_t *pts;
    int64_t n, cap;
    int64_t missing; // without a timestamp
    int64_t discarded;
    int reorder;
    AVPacket *first; // of the file
} stamps;

static mr_status push(int64_t **list, int64_t *n, int64_t *cap, int64_t value)
{
    if (*n == *cap) {
        int64_t more = *cap ? *cap * 2 : 256;
        int64_t *p = mr_realloc(*list, (size_t)more * sizeof *p);
        if (!p)
            return mr_fail_memory((size_t)more * sizeof *p);
        *list = p, *cap = more;
    }
    (*list)[(*n)++] = value;
    return MR_OK;
}

// alternative reference frames of VP8 are packets that are not displayed
static bool is_hidden(const media_clip *c, const AVPacket *p)
{
    return c->stream->codecpar->codec_id == AV_CODEC_ID_VP8 && p->size > 0 && !(p->data[0] & 0x10);
}

static mr_status read_packets(media_clip *c, AVPacket *packet, stamps *s, mr_clip_info *info,
                              mr_fault *fault)
{
    int64_t keys = 0, keys_cap = 0;
    for (;;) {
        int got = media_clip_packet(c, packet);
        if (got <= 0) {
            info->n_keys = (int32_t)MR_MIN(keys, INT32_MAX);
            return got < 0 && (got == AVERROR_EXIT || c->file.err || !s->n)
                       ? media_clip_fail(c, MR_FAULT_CORRUPT, got, "read its packets", fault)
                       : MR_OK;
        }
        if (!s->first && !(s->first = av_packet_clone(packet)))
            return mr_fail_memory(0);
        int64_t pts = packet->pts;
        int flags = packet->flags;
        // a key frame of the container may not be one
        bool key = flags & AV_PKT_FLAG_KEY && pts != AV_NOPTS_VALUE &&
                   (!c->keeps_no_index || !keys) &&
                   media_packet_start(c->stream->codecpar, packet) != MEDIA_BUILDS;
        // a packet that is cut off by the end of the file is not displayed
        bool shown =
            !(flags & (AV_PKT_FLAG_DISCARD | AV_PKT_FLAG_CORRUPT)) && !is_hidden(c, packet);
        av_packet_unref(packet);
        mr_status st = MR_OK;
        if (key)
            st = push(&info->key_pts, &keys, &keys_cap, pts);
        s->discarded += !!(flags & AV_PKT_FLAG_DISCARD);
        if (st == MR_OK && shown) {
            if (pts == AV_NOPTS_VALUE)
                s->missing++;
            // count earlier packets that are displayed after this one; delays above 16 do not exist
            int later = 0;
            for (int64_t i = s->n - 1; i >= 0 && i >= s->n - 32; i--)
                later += s->pts[i] > pts;
            s->reorder = MR_MAX(s->reorder, MR_MIN(later, 16));
            st = push(&s->pts, &s->n, &s->cap, pts);
        }
        MR_TRY(st);
    }
}

// the largest distance, in frames, of a timestamp from the even grid of `rate`
static double deviation(const stamps *s, int64_t n, AVRational tb, AVRational rate)
{
    double per_tick = av_q2d(tb) * av_q2d(rate), worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)(s->pts[i] - s->pts[0]) * per_tick - (double)i));
    return worst;
}

static const AVRational common_rates[] = {
    {24, 1}, {25, 1},       {30, 1},  {24000, 1001}, {30000, 1001}, {50, 1},
    {60, 1}, {60000, 1001}, {48, 1},  {12, 1},       {15, 1},       {10, 1},
    {8, 1},  {20, 1},       {120, 1}, {240, 1},      {6, 1},        {5, 1}};

// the rates that the file states, then common rates
static AVRational known_rate(const media_clip *c, size_t i)
{
    return i == 0   ? c->stream->avg_frame_rate
           : i == 1 ? c->stream->r_frame_rate
                    : common_rates[i - 2];
}
enum { KNOWN_RATES = 2 + MR_COUNT(common_rates), RATE_MAX = 1000 };

// The rate for frames without timestamps: the mean rate that the file states or, if missing, that
// of its stream.
static AVRational stated_rate(const media_clip *c)
{
    for (size_t i = 0; i < 2; i++) {
        AVRational r = known_rate(c, i);
        // a larger one is the clock tick of a codec, not a rate
        if (r.num > 0 && r.den > 0 && av_q2d(r) <= RATE_MAX)
            return r;
    }
    return (AVRational){24, 1};
}

// Find the rate whose grid contains all timestamps, or the mean rate. Returns whether they are
// evenly spaced.
static bool find_rate(const media_clip *c, const stamps *s, int64_t n, AVRational *rate)
{
    AVRational tb = c->stream->time_base;
    if (n < 2) {
        *rate = stated_rate(c);
        return true;
    }
    // rounding by a tick at both ends, and jitter of a tenth of a frame, still count as even
    double mean = (double)(s->pts[n - 1] - s->pts[0]) / (double)(n - 1),
           bound = fmin(1 / mean + 0.1, 0.45);
    for (size_t i = 0; i < KNOWN_RATES; i++) {
        AVRational r = known_rate(c, i);
        if (r.num > 0 && r.den > 0 && deviation(s, n, tb, r) <= fmin(1 / mean + 0.01, bound)) {
            *rate = r;
            return true;
        }
    }
    av_reduce(&rate->num, &rate->den, (n - 1) * tb.den, (s->pts[n - 1] - s->pts[0]) * tb.num,
              1 << 30);
    return rate->num > 0 && deviation(s, n, tb, *rate) <= bound;
}

// a truncated file lacks some of its last frames: count up to the first gap
static int64_t without_torn_end(const stamps *s)
{
    int64_t n = s->n;
    if (n < 4)
        return n;
    int64_t step = s->pts[1] - s->pts[0];
    for (int64_t i = 2; i < MR_MIN(n, 16); i++)
        step = MR_MIN(step, s->pts[i] - s->pts[i - 1]);
    for (int64_t i = MR_MAX(n - 16, 2); i < n; i++)
        if (s->pts[i] - s->pts[i - 1] > step + step * 3 / 4)
            return i;
    return n;
}

static mr_status set_timing(media_clip *c, stamps *s, mr_clip_info *info, mr_fault *fault)
{
    if (!s->n)
        return media_clip_fail(c, MR_FAULT_SHORT, 0, "find a frame in it", fault);
    AVRational tb = c->stream->time_base, rate = {0, 1};
    info->tb_num = tb.num, info->tb_den = tb.den;
    info->reorder = s->reorder;
    if (info->n_keys)
        qsort(info->key_pts, (size_t)info->n_keys, sizeof *info->key_pts, media_ascending);
    bool counted = s->missing > 0 && s->n > 1;
    if (!counted) {
        qsort(s->pts, (size_t)s->n, sizeof *s->pts, media_ascending);
        for (int64_t i = 1; i < s->n; i++)
            counted |= s->pts[i] == s->pts[i - 1];
    }
    if (counted) {
        info->flags |= MR_CLIP_NO_PTS;
        rate = stated_rate(c);
        info->first_pts = 0, info->frames = s->n;
    } else {
        int64_t n = s->n, whole = without_torn_end(s);
        bool even = find_rate(c, s, n, &rate);
        if (!even && whole < n && find_rate(c, s, whole, &rate))
            n = whole, even = true;
        if (rate.num < 1)
            return media_clip_fail(c, MR_FAULT_CORRUPT, 0,
                                   "find its rate: its timestamps are too far apart", fault);
        if (!even)
            info->flags |= MR_CLIP_VFR;
        info->frames = n, info->first_pts = s->pts[0] == AV_NOPTS_VALUE ? 0 : s->pts[0];
    }
    info->rate_num = rate.num, info->rate_den = rate.den;
    info->duration_ms = (int64_t)((double)info->frames * 1000 * rate.den / rate.num + 0.5);
    return MR_OK;
}

static int frame_orient(const media_clip *c, const AVPacket *first, const AVFrame *f)
{
    const int32_t *m = media_stream_matrix(c->stream);
    const AVFrameSideData *sd = av_frame_get_side_data(f, AV_FRAME_DATA_DISPLAYMATRIX);
    if (!m && sd && sd->size >= 36)
        m = (const int32_t *)(const void *)sd->data;
    if (m)
        return media_orient_of_matrix(m);
    const AVDictionaryEntry *exif = av_dict_get(f->metadata, "Orientation", NULL, 0);
    if (exif)
        return media_orient_of_exif(atoi(exif->value));
    return first ? media_orient_of_exif(media_exif_orientation(c->stream->codecpar, first)) : 0;
}

static bool is_interlaced(const AVFrame *f)
{
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 7, 100)
    return f->flags & AV_FRAME_FLAG_INTERLACED;
#else
    return f->interlaced_frame;
#endif
}

static void set_picture(media_clip *c, const AVPacket *first, AVFrame *f, mr_clip_info *info)
{
    AVRational sar = av_guess_sample_aspect_ratio(c->demux, c->stream, f);
    if (sar.num < 1 || sar.den < 1)
        sar = (AVRational){1, 1};
    info->coded_width = f->width, info->coded_height = f->height;
    info->sar_num = sar.num, info->sar_den = sar.den;
    info->orient = frame_orient(c, first, f);
    // a file can state any aspect; check_shown rejects invalid ones
    int w = (int)fmin(f->width * av_q2d(sar) + 0.5, INT32_MAX), h = f->height;
    info->width = info->orient & 4 ? h : w, info->height = info->orient & 4 ? w : h;
    info->matrix = (uint8_t)f->colorspace, info->transfer = (uint8_t)f->color_trc,
    info->primaries = (uint8_t)f->color_primaries;
    info->range = media_colour_full(f) ? 2 : 1;
    if (is_interlaced(f))
        info->flags |= MR_CLIP_INTERLACED;
    if (f->color_trc == AVCOL_TRC_SMPTE2084 || f->color_trc == AVCOL_TRC_ARIB_STD_B67)
        info->flags |= MR_CLIP_HDR;
    const char *demuxer = c->demux->iformat->name;
    size_t n = strlen(demuxer);
    if (info->frames == 1 &&
        (strcmp(demuxer, "image2") == 0 || (n > 5 && strcmp(demuxer + n - 5, "_pipe") == 0))) {
        info->flags |= MR_CLIP_IMAGE;
        info->rate_num = 0, info->rate_den = 1, info->duration_ms = 0;
    }
}

// Decode the first frame from the first packet alone, by flushing the decoder. If a shortened
// packet suffices, only that is decoded: the frame is damaged then, but its facts are valid.
static bool decode_first(media_clip *c, mr_media_worker *w, AVPacket *packet, mr_clip_info *info)
{
    // the pixels are not used
    c->codec->skip_loop_filter = AVDISCARD_ALL;
    bool shortened = packet && media_packet_shorten(c->stream->codecpar, packet);
    if (shortened) {
        c->codec->err_recognition = c->codec->error_concealment = 0;
        c->codec->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
    }
    bool out = packet && avcodec_send_packet(c->codec, packet) >= 0 &&
               avcodec_send_packet(c->codec, NULL) >= 0 &&
               avcodec_receive_frame(c->codec, w->frame) >= 0 &&
               (shortened || !w->frame->decode_error_flags);
    if (out)
        set_picture(c, packet, w->frame, info);
    av_frame_unref(w->frame);
    return out;
}

// decode up to the first frame, or with `all` to the end, and count frames
static mr_status decode_some(media_clip *c, mr_media_worker *w, const AVPacket *first, bool all,
                             mr_clip_info *info, mr_fault *fault)
{
    int64_t frames = 0;
    for (int idle = 0, ended = 0; !ended;) {
        int got = media_clip_packet(c, w->packet);
        if (got < 0)
            return media_clip_fail(c, MR_FAULT_CORRUPT, got, "read its packets", fault);
        ended = !got;
        int err = avcodec_send_packet(c->codec, ended ? NULL : w->packet);
        av_packet_unref(w->packet);
        if (err == AVERROR(ENOMEM))
            return media_clip_fail(c, MR_FAULT_CORRUPT, err, "decode", fault);
        while ((err = avcodec_receive_frame(c->codec, w->frame)) >= 0) {
            if (!frames++)
                set_picture(c, first, w->frame, info);
            av_frame_unref(w->frame);
            idle = 0;
            if (!all)
                return MR_OK;
        }
        if (++idle > 600)
            return media_clip_fail(c, MR_FAULT_STALL, 0, "decode: 600 packets without a frame",
                                   fault);
    }
    if (!frames)
        return media_clip_fail(c, MR_FAULT_CORRUPT, 0, "decode a single frame", fault);
    info->frames = frames;
    return MR_OK;
}

static mr_status scan_open_file(media_clip *c, mr_media_worker *w, stamps *s, mr_clip_info *info,
                                mr_fault *fault)
{
    struct stat about;
    if (fstat(c->file.fd, &about) == 0) {
        info->bytes = (uint64_t)about.st_size;
        info->mtime_ns = (int64_t)about.st_mtim.tv_sec * 1000000000 + about.st_mtim.tv_nsec;
    }
    snprintf(info->codec, sizeof info->codec, "%s",
             avcodec_get_name(c->stream->codecpar->codec_id));
    MR_TRY(read_packets(c, w->packet, s, info, fault));
    return set_timing(c, s, info, fault);
}

static mr_status check_shown(const char *path, const mr_clip_info *info, mr_fault *fault)
{
    if (MR_MIN(info->width, info->height) >= 1 &&
        MR_MAX(info->width, info->height) <= MR_CLIP_SHOWN_MAX)
        return MR_OK;
    *fault = MR_FAULT_GEOMETRY;
    return mr_fail(MR_E_DECODE,
                   "%s: geometry: %d x %d, shown as %d x %d (pixel aspect %d:%d); expected 1 to %d "
                   "a side",
                   path, info->coded_width, info->coded_height, info->width, info->height,
                   info->sar_num, info->sar_den, MR_CLIP_SHOWN_MAX);
}

// For codecs whose key frames only pictures show, decode all frames. If the file does not decode,
// trust only the first key frame.
static mr_status prove_keys(mr_media_worker *w, const char *path, double deadline_s,
                            mr_clip_info *info, mr_fault *fault)
{
    const AVCodecDescriptor *codec = avcodec_descriptor_get_by_name(info->codec);
    if (info->n_keys < 2 || !codec || !media_keys_unknown(codec->id))
        return MR_OK;
    mr_status st = media_watch(w, path, info, deadline_s, NULL, fault);
    if (st == MR_OK || *fault == MR_FAULT_NONE || *fault == MR_FAULT_IO)
        return st;
    info->n_keys = 1, *fault = MR_FAULT_NONE;
    return MR_OK;
}

mr_status media_scan(mr_media_worker *w, const char *path, double deadline_s, mr_clip_info *out,
                     mr_fault *fault)
{
    media_clip c;
    stamps s = {0};
    mr_clip_info info = {0};
    *fault = MR_FAULT_NONE;
    media_log_clear();
    mr_status st = media_clip_open(&c, path, deadline_s, 0, fault);
    if (st == MR_OK)
        st = scan_open_file(&c, w, &s, &info, fault);
    bool counts = info.flags & MR_CLIP_NO_PTS;
    bool done = st == MR_OK && !counts && decode_first(&c, w, s.first, &info);
    media_clip_close(&c);
    // if the first packet does not suffice, decode from the start, with the delay of the decoder,
    // which is known now
    if (st == MR_OK && !done) {
        media_log_clear();
        st = media_clip_open(&c, path, deadline_s, info.reorder, fault);
        if (st == MR_OK)
            st = decode_some(&c, w, s.first, counts, &info, fault);
        media_clip_close(&c);
    }
    av_packet_free(&s.first);
    av_packet_unref(w->packet);
    av_frame_unref(w->frame);
    mr_free(s.pts);
    if (st == MR_OK)
        st = check_shown(path, &info, fault);
    if (st == MR_OK)
        st = prove_keys(w, path, deadline_s, &info, fault);
    if (st == MR_OK)
        *out = info;
    else
        mr_clip_info_fini(&info);
    return st;
}
