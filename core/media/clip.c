/* media: opens a clip: a demuxer over our own I/O, and a decoder with one thread. A clip is opened
 * again for every use. That costs half a millisecond, and no state can be stale.
 * Licence: Apache-2.0 */
#include "media/room.h"

#include <errno.h>
#include <string.h>

static int past_deadline(void *user)
{
    media_clip *c = user;
    return media_file_over(&c->file);
}

mr_status media_clip_fail(media_clip *c, mr_fault fault, int err, const char *verb, mr_fault *out)
{
    char why[AV_ERROR_MAX_STRING_SIZE];
    const char *log = media_log_text();
    if (c->file.stopped) {
        *out = MR_FAULT_NONE;
        return mr_fail(MR_E_STOPPED, "%s: stopped by Ctrl-C", c->path);
    }
    if (c->file.err) {
        *out = MR_FAULT_IO;
        return mr_fail(MR_E_IO, "%s: cannot read: %s", c->path, strerror(c->file.err));
    }
    if (err == AVERROR(ENOMEM))
        return mr_fail_memory(0);
    if (err == AVERROR_EXIT)
        fault = MR_FAULT_STALL;
    *out = fault;
    return mr_fail(MR_E_DECODE, "%s: %s: cannot %s%s%s%s%s", c->path, mr_fault_name(fault), verb,
                   err < 0 ? ": " : "", err < 0 ? av_make_error_string(why, sizeof why, err) : "",
                   *log ? "; " : "", log);
}

// if the header has size, codec and parameter sets, no probing is needed
static bool header_suffices(const AVFormatContext *demux, const AVStream *st)
{
    const AVCodecParameters *p = st->codecpar;
    if (!strstr(demux->iformat->name, "mp4") && !strstr(demux->iformat->name, "matroska"))
        return false;
    if (p->width < 1 || p->height < 1)
        return false;
    switch (p->codec_id) {
    case AV_CODEC_ID_H264:
    case AV_CODEC_ID_HEVC:
    case AV_CODEC_ID_AV1: return p->extradata_size > 0;
    case AV_CODEC_ID_VP8:
    case AV_CODEC_ID_VP9: return true;
    default: return false;
    }
}

// The best video stream that is not a cover picture; negative: no such stream.
static int find_video(AVFormatContext *demux)
{
    int best = av_find_best_stream(demux, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
    if (best < 0 || !(demux->streams[best]->disposition & AV_DISPOSITION_ATTACHED_PIC))
        return best;
    for (unsigned i = 0; i < demux->nb_streams; i++) {
        const AVStream *st = demux->streams[i];
        if (st->codecpar->codec_type == AVMEDIA_TYPE_VIDEO &&
            !(st->disposition & AV_DISPOSITION_ATTACHED_PIC))
            return (int)i;
    }
    return AVERROR_STREAM_NOT_FOUND;
}

/* The demuxer of a file whose format is certain. NULL: FFmpeg probes all of its 300 demuxers, which
 * takes longer than decoding a frame of a small clip. Brands of JPEG formats begin with j. */
static const AVInputFormat *certain_demuxer(AVIOContext *io)
{
    uint8_t head[9];
    int n = avio_read(io, head, sizeof head);
    avio_seek(io, 0, SEEK_SET);
    bool mp4 = n == sizeof head && memcmp(head + 4, "ftyp", 4) == 0 && head[8] != 'j';
    return mp4 ? av_find_input_format("mp4") : NULL;
}

static mr_status open_demuxer(media_clip *c, double deadline_s, mr_fault *fault)
{
    int64_t began_ns = mr_clock_table()->monotonic_ns();
    mr_status st = media_file_open(&c->file, c->path, false, &c->io);
    if (st != MR_OK) {
        *fault = MR_FAULT_IO;
        return st;
    }
    c->file.deadline_ns = began_ns + (int64_t)((deadline_s > 0 ? deadline_s : 60) * 1e9);
    if (!(c->demux = avformat_alloc_context()))
        return mr_fail_memory(0);
    c->demux->pb = c->io;
    // do not open files that a playlist names, or sockets of a session description
    if (!(c->demux->protocol_whitelist = av_strdup("none")))
        return mr_fail_memory(0);
    c->demux->interrupt_callback = (AVIOInterruptCB){past_deadline, c};
    // FFmpeg does not get the name of the file: it detects formats by content, and must not expand
    // patterns in a name. Without any name, it reports a playlist as lack of memory
    int err = avformat_open_input(&c->demux, "clip", certain_demuxer(c->io), NULL);
    if (err < 0)
        return media_clip_fail(c, MR_FAULT_OPEN, err, "open", fault);
    int best = find_video(c->demux);
    if (best >= 0 && header_suffices(c->demux, c->demux->streams[best])) {
        // packets are whole frames with timestamps: parsing them again would cost more than reading
        c->demux->flags |= AVFMT_FLAG_NOPARSE | AVFMT_FLAG_NOFILLIN;
    } else {
        err = avformat_find_stream_info(c->demux, NULL);
        if (err < 0)
            return media_clip_fail(c, MR_FAULT_OPEN, err, "find its streams", fault);
        best = find_video(c->demux);
    }
    if (best < 0) {
        bool cover = av_find_best_stream(c->demux, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0) >= 0;
        return media_clip_fail(c, MR_FAULT_OPEN, 0,
                               cover ? "find a video stream in it other than its cover picture"
                                     : "find a video stream in it",
                               fault);
    }
    for (unsigned i = 0; i < c->demux->nb_streams; i++)
        c->demux->streams[i]->discard = (int)i == best ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
    c->stream = c->demux->streams[best];
    const char *name = c->demux->iformat->name;
    c->keeps_no_index = strcmp(name, "gif") == 0 || strcmp(name, "apng") == 0;
    return MR_OK;
}

mr_status media_clip_open(media_clip *c, const char *path, double deadline_s, int reorder,
                          mr_fault *fault)
{
    *c = (media_clip){.path = path, .file.fd = -1};
    MR_TRY(open_demuxer(c, deadline_s, fault));
    const AVCodecParameters *p = c->stream->codecpar;
    if (p->width > MEDIA_SIDE_MAX || p->height > MEDIA_SIDE_MAX) {
        *fault = MR_FAULT_GEOMETRY;
        return mr_fail(MR_E_DECODE, "%s: geometry: %d x %d; expected at most %d a side", path,
                       p->width, p->height, MEDIA_SIDE_MAX);
    }
    const AVCodec *decoder = avcodec_find_decoder(p->codec_id);
    if (!decoder)
        return media_clip_fail(c, MR_FAULT_CODEC, 0, "find a decoder for it", fault);
    if (!(c->codec = avcodec_alloc_context3(decoder)))
        return mr_fail_memory(0);
    int err = avcodec_parameters_to_context(c->codec, p);
    if (err < 0)
        return media_clip_fail(c, MR_FAULT_CODEC, err, "set up its decoder", fault);
    c->codec->thread_count = 1;
    c->codec->pkt_timebase = c->stream->time_base;
    // report damage as an error instead of concealing it
    c->codec->err_recognition = AV_EF_EXPLODE | AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER;
    // the TIFF decoder would report each unknown tag as damage
    if (p->codec_id == AV_CODEC_ID_TIFF)
        c->codec->err_recognition &= ~AV_EF_EXPLODE;
    // a decoder that detects its delay while decoding drops frames
    if (reorder > c->codec->has_b_frames)
        c->codec->has_b_frames = reorder;
    err = avcodec_open2(c->codec, decoder, NULL);
    return err < 0 ? media_clip_fail(c, MR_FAULT_CODEC, err, "open its decoder", fault) : MR_OK;
}

void media_clip_close(media_clip *c)
{
    avcodec_free_context(&c->codec);
    avformat_close_input(&c->demux);
    media_file_close(&c->file, &c->io);
}

int media_clip_packet(media_clip *c, AVPacket *packet)
{
    for (;;) {
        int err = av_read_frame(c->demux, packet);
        // a failed read can look like the end of the file, or like a damaged packet
        if (c->file.err) {
            av_packet_unref(packet);
            return AVERROR(c->file.err);
        }
        if (err < 0) {
            if (past_deadline(c))
                return AVERROR_EXIT;
            return err == AVERROR_EOF ? 0 : err;
        }
        if (packet->stream_index == c->stream->index)
            return 1;
        av_packet_unref(packet);
        if (past_deadline(c))
            return AVERROR_EXIT;
    }
}
