/* media: writes frames as a clip (FFmpeg's muxers and encoders) or as one picture, reproducibly. A
 * file gets its name only when it is complete. Licence: Apache-2.0 */
#include "media/room.h"

#include <libavutil/opt.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct mr_encoder {
    char path[4096], tmp[4200];
    media_file file;
    AVIOContext *io;
    AVFormatContext *mux; // NULL for a picture: its packet is the file
    AVCodecContext *ctx;
    AVStream *stream;
    AVFrame *frame;
    AVPacket *packet;
    struct SwsContext *sws;
    int64_t next_pts, frames;
    bool header_written;
};

static mr_status fail_av(const mr_encoder *e, mr_status code, const char *verb, int err)
{
    char why[AV_ERROR_MAX_STRING_SIZE];
    if (e->file.err)
        return mr_fail(MR_E_IO, "%s: cannot write: %s", e->path, strerror(e->file.err));
    if (err == AVERROR(ENOMEM))
        return mr_fail_memory(0);
    return mr_fail(code, "%s: cannot %s: %s: %s", e->path, verb,
                   av_make_error_string(why, sizeof why, err), media_log_text());
}

// encoders for the short name of a codec, or for the default of a container; best first
static const char *const by_name[][5] = {
    {"h264", "libx264", "libopenh264", NULL},
    {"vp9", "libvpx-vp9", NULL},
    {"vp8", "libvpx", NULL},
    {"av1", "libsvtav1", "libaom-av1", NULL},
    {"hevc", "libx265", NULL},
    {".webm", "libvpx-vp9", "libvpx", "libsvtav1", NULL},
    {".png", "png", NULL},
    {".jpg", "mjpeg", NULL},
    {".jpeg", "mjpeg", NULL},
    {"", "libx264", "libsvtav1", "libvpx-vp9", "mpeg4"},
};

static const AVCodec *find_encoder(const char *name, const char *ext, int width, int height)
{
    const AVCodec *codec = name ? avcodec_find_encoder_by_name(name) : NULL;
    if (codec && codec->type == AVMEDIA_TYPE_VIDEO)
        return codec;
    for (size_t i = 0; i < MR_COUNT(by_name); i++) {
        const char *key = by_name[i][0];
        if (name ? strcmp(key, name) != 0 : strcmp(key, ext) != 0 && *key)
            continue;
        for (int j = 1; j < 5 && by_name[i][j]; j++) {
            // libsvtav1 rejects pictures below 64 x 64
            if (strcmp(by_name[i][j], "libsvtav1") == 0 && (width < 64 || height < 64))
                continue;
            if ((codec = avcodec_find_encoder_by_name(by_name[i][j])))
                return codec;
        }
        return NULL;
    }
    return NULL;
}

static bool is_picture(const char *ext)
{
    return strcmp(ext, ".png") == 0 || strcmp(ext, ".jpg") == 0 || strcmp(ext, ".jpeg") == 0;
}

static int matrix_of(const char *name, enum AVColorSpace *space, enum AVColorPrimaries *primaries,
                     enum AVColorTransferCharacteristic *trc)
{
    static const struct {
        const char *name;
        int sws;
        enum AVColorSpace space;
        enum AVColorPrimaries prim;
        enum AVColorTransferCharacteristic trc;
    } rows[] = {
        {"bt709", SWS_CS_ITU709, AVCOL_SPC_BT709, AVCOL_PRI_BT709, AVCOL_TRC_BT709},
        {"bt601", SWS_CS_ITU601, AVCOL_SPC_SMPTE170M, AVCOL_PRI_SMPTE170M, AVCOL_TRC_SMPTE170M},
        {"smpte240m", SWS_CS_SMPTE240M, AVCOL_SPC_SMPTE240M, AVCOL_PRI_SMPTE240M,
         AVCOL_TRC_SMPTE240M},
        {"bt2020", SWS_CS_BT2020, AVCOL_SPC_BT2020_NCL, AVCOL_PRI_BT2020, AVCOL_TRC_BT2020_10},
    };
    for (size_t i = 0; i < MR_COUNT(rows); i++)
        if (strcmp(rows[i].name, name) == 0) {
            *space = rows[i].space, *primaries = rows[i].prim, *trc = rows[i].trc;
            return rows[i].sws;
        }
    return -1;
}

// default quality and speed of each encoder; "options" of the caller override them
static void set_defaults(AVCodecContext *ctx, int quality, AVDictionary **dict)
{
    const char *name = ctx->codec->name;
    char q[16];
    if (strcmp(name, "libx264") == 0 || strcmp(name, "libx265") == 0) {
        snprintf(q, sizeof q, "%d", quality ? quality : 16);
        av_dict_set(dict, "crf", q, 0);
        // with macroblock trees, x264 writes different bytes in each call (seen in version 164 with
        // frames of 32 x 32)
        if (strcmp(name, "libx264") == 0)
            av_dict_set(dict, "x264-params", "mbtree=0", 0);
        if (strcmp(name, "libx265") == 0)
            av_dict_set(dict, "x265-params", "log-level=none:pools=none:frame-threads=1", 0);
    } else if (strncmp(name, "libvpx", 6) == 0 || strcmp(name, "libaom-av1") == 0) {
        snprintf(q, sizeof q, "%d", quality ? quality : 16);
        av_dict_set(dict, "crf", q, 0);
        av_dict_set(dict, "cpu-used", "4", 0);
        if (strcmp(name, "libvpx") == 0)
            ctx->qmin = 0;
        // for VP8, crf limits a target rate; for the others it is a constant quality
        ctx->bit_rate =
            strcmp(name, "libvpx") == 0 ? (int64_t)ctx->width * ctx->height * 24 + 200000 : 0;
    } else if (strcmp(name, "libsvtav1") == 0) {
        snprintf(q, sizeof q, "%d", quality ? quality : 25);
        av_dict_set(dict, "crf", q, 0);
        av_dict_set(dict, "preset", "8", 0);
    } else if (ctx->codec->id != AV_CODEC_ID_PNG) {
        ctx->flags |= AV_CODEC_FLAG_QSCALE;
        ctx->global_quality = FF_QP2LAMBDA * (quality ? quality : 2);
    }
}

static mr_status open_codec(mr_encoder *e, const mr_encode_options *o, const char *ext)
{
    const AVCodec *codec = find_encoder(o->codec, ext, o->width, o->height);
    if (!codec)
        return mr_fail(MR_E_UNSUPPORTED,
                       "%s: this FFmpeg has no encoder '%s'; try: another codec or container",
                       e->path, o->codec ? o->codec : ext);
    bool rgb = codec->id == AV_CODEC_ID_PNG, odd = o->width % 2 || o->height % 2;
    const char *format = o->pixel_format                  ? o->pixel_format
                         : rgb                            ? "rgb24"
                         : codec->id == AV_CODEC_ID_MJPEG ? "yuvj444p"
                         : odd && (codec->id == AV_CODEC_ID_H264 || codec->id == AV_CODEC_ID_HEVC)
                             ? "yuv444p"
                             : "yuv420p";
    enum AVPixelFormat pix = av_get_pix_fmt(format);
    if (pix == AV_PIX_FMT_NONE)
        return mr_fail(MR_E_USAGE, "%s: unknown pixel format '%s'", e->path, format);
    enum AVColorSpace space;
    enum AVColorPrimaries primaries;
    enum AVColorTransferCharacteristic trc;
    // JPEG is BT.601 full range by definition
    bool jpeg = codec->id == AV_CODEC_ID_MJPEG, full = o->full_range || jpeg;
    int matrix = matrix_of(jpeg        ? "bt601"
                           : o->matrix ? o->matrix
                                       : "bt709",
                           &space, &primaries, &trc);
    if (matrix < 0)
        return mr_fail(MR_E_USAGE,
                       "%s: unknown matrix '%s'; known: bt709, bt601, smpte240m, bt2020", e->path,
                       o->matrix);

    if (!(e->ctx = avcodec_alloc_context3(codec)) || !(e->frame = av_frame_alloc()) ||
        !(e->packet = av_packet_alloc()))
        return mr_fail_memory(0);
    AVCodecContext *ctx = e->ctx;
    ctx->width = o->width, ctx->height = o->height, ctx->pix_fmt = pix;
    ctx->framerate =
        (AVRational){o->rate_num > 0 ? o->rate_num : 24, o->rate_den > 0 ? o->rate_den : 1};
    ctx->time_base = av_inv_q(ctx->framerate);
    ctx->gop_size = o->gop > 0 ? o->gop : 48;
    ctx->sample_aspect_ratio =
        (AVRational){o->sar_num > 0 ? o->sar_num : 1, o->sar_den > 0 ? o->sar_den : 1};
    ctx->thread_count = 1;
    ctx->flags |= AV_CODEC_FLAG_BITEXACT;
    if (e->mux && e->mux->oformat->flags & AVFMT_GLOBALHEADER)
        ctx->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    if (!rgb && !o->untagged) {
        ctx->colorspace = space, ctx->color_primaries = primaries, ctx->color_trc = trc;
        ctx->color_range = full ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
    }
    AVDictionary *dict = NULL;
    set_defaults(ctx, o->quality, &dict);
    int err = av_dict_parse_string(&dict, o->options, "=", ":", 0);
    if (err >= 0)
        err = avcodec_open2(ctx, codec, &dict);
    const AVDictionaryEntry *left =
        err < 0 ? NULL : av_dict_get(dict, "", NULL, AV_DICT_IGNORE_SUFFIX);
    mr_status st = err < 0 ? fail_av(e, MR_E_UNSUPPORTED, codec->name, err)
                   : left  ? mr_fail(MR_E_USAGE, "%s: encoder %s has no option '%s'", e->path,
                                     codec->name, left->key)
                           : MR_OK;
    av_dict_free(&dict);
    MR_TRY(st);

    e->frame->format = pix, e->frame->width = o->width, e->frame->height = o->height;
    e->frame->color_range = ctx->color_range, e->frame->colorspace = ctx->colorspace;
    e->frame->sample_aspect_ratio = ctx->sample_aspect_ratio;
    if ((err = av_frame_get_buffer(e->frame, 0)) < 0)
        return fail_av(e, MR_E_MEMORY, "allocate a frame", err);
    e->sws = sws_getContext(o->width, o->height, AV_PIX_FMT_GBRP, o->width, o->height, pix,
                            SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP | SWS_BITEXACT,
                            NULL, NULL, NULL);
    if (!e->sws)
        return mr_fail(MR_E_UNSUPPORTED, "%s: cannot convert RGB to %s", e->path, format);
    if (!rgb)
        media_colour_set(e->sws, matrix, full, false);
    return MR_OK;
}

static mr_status open_stream(mr_encoder *e, const mr_encode_options *o)
{
    if (!(e->stream = avformat_new_stream(e->mux, NULL)))
        return mr_fail_memory(0);
    int err = avcodec_parameters_from_context(e->stream->codecpar, e->ctx);
    if (err < 0)
        return fail_av(e, MR_E_MEMORY, "describe the stream", err);
    e->stream->time_base = e->ctx->time_base;
    e->stream->avg_frame_rate = e->ctx->framerate;
    e->stream->sample_aspect_ratio = e->ctx->sample_aspect_ratio;
    if (o->orient) {
        int32_t *m = media_stream_add_matrix(e->stream, MEDIA_MATRIX_BYTES);
        if (!m)
            return mr_fail_memory(MEDIA_MATRIX_BYTES);
        media_orient_to_matrix(o->orient, m);
    }
    AVDictionary *dict = NULL;
    err = av_dict_parse_string(&dict, o->mux_options, "=", ":", 0);
    if (err >= 0)
        err = avformat_write_header(e->mux, &dict);
    const AVDictionaryEntry *left =
        err < 0 ? NULL : av_dict_get(dict, "", NULL, AV_DICT_IGNORE_SUFFIX);
    e->header_written = err >= 0;
    mr_status st = err < 0 ? fail_av(e, MR_E_UNSUPPORTED, "start the container", err)
                   : left  ? mr_fail(MR_E_USAGE, "%s: container %s has no option '%s'", e->path,
                                     e->mux->oformat->name, left->key)
                           : MR_OK;
    av_dict_free(&dict);
    return st;
}

static mr_status encoder_start(mr_encoder *e, const mr_encode_options *o)
{
    const char *dot = strrchr(e->path, '.'), *ext = dot && !strchr(dot, '/') ? dot : "";
    if (o->width < 1 || o->height < 1 || o->width > 16384 || o->height > 16384)
        return mr_fail(MR_E_USAGE, "%s: frame size %d x %d; expected 1 to 16384 a side", e->path,
                       o->width, o->height);
    const AVOutputFormat *format = NULL;
    if (!is_picture(ext)) {
        format = av_guess_format(NULL, e->path, NULL);
        if (!format || format->flags & AVFMT_NOFILE)
            return mr_fail(MR_E_UNSUPPORTED,
                           "%s: no container for '%s'; try: .mp4, .webm, .mkv, .png", e->path, ext);
    }
    mr_status st = media_file_open(&e->file, e->tmp, true, &e->io);
    if (st != MR_OK)
        return e->file.err ? mr_fail(st, "%s: cannot create: %s", e->path, strerror(e->file.err))
                           : st;
    mr_temporary_hold(e->file.fd);
    if (format) {
        int err = avformat_alloc_output_context2(&e->mux, format, NULL, NULL);
        if (err < 0)
            return fail_av(e, MR_E_MEMORY, "make the container", err);
        e->mux->pb = e->io;
        e->mux->flags |= AVFMT_FLAG_BITEXACT | AVFMT_FLAG_CUSTOM_IO;
    }
    MR_TRY(open_codec(e, o, ext));
    return e->mux ? open_stream(e, o) : MR_OK;
}

mr_status media_encoder_open(const char *path, const mr_encode_options *options, mr_encoder **out)
{
    media_log_clear();
    mr_encoder *e;
    if (!MR_NEW(e))
        return mr_fail_memory(sizeof *e);
    e->file.fd = -1;
    mr_status st = mr_temporary_path(path, e->tmp, sizeof e->tmp);
    if (st != MR_OK) {
        mr_free(e);
        return st;
    }
    snprintf(e->path, sizeof e->path, "%s", path);
    st = encoder_start(e, options);
    if (st == MR_OK)
        *out = e;
    else
        media_encoder_free(e);
    return st;
}

static mr_status drain(mr_encoder *e)
{
    for (;;) {
        int err = avcodec_receive_packet(e->ctx, e->packet);
        if (err == AVERROR(EAGAIN) || err == AVERROR_EOF)
            return MR_OK;
        if (err < 0)
            return fail_av(e, MR_E_FAIL, "encode", err);
        if (e->mux) {
            if (!e->packet->duration)
                e->packet->duration = 1;
            av_packet_rescale_ts(e->packet, e->ctx->time_base, e->stream->time_base);
            e->packet->stream_index = 0;
            err = av_interleaved_write_frame(e->mux, e->packet);
        } else {
            avio_write(e->io, e->packet->data, e->packet->size);
            av_packet_unref(e->packet);
        }
        if (err < 0 || e->file.err)
            return fail_av(e, MR_E_IO, "write", err);
    }
}

mr_status media_encoder_frame(mr_encoder *e, const uint8_t *rgb, int64_t pts)
{
    media_log_clear();
    if (pts < 0)
        pts = e->next_pts;
    if (pts < e->next_pts)
        return mr_fail(MR_E_USAGE, "%s: frame at %lld after %lld; expected ascending", e->path,
                       (long long)pts, (long long)e->next_pts - 1);
    if (!e->mux && e->frames)
        return mr_fail(MR_E_USAGE, "%s: a picture has one frame; try: .mp4 or .webm", e->path);
    int err = av_frame_make_writable(e->frame);
    if (err < 0)
        return fail_av(e, MR_E_MEMORY, "copy a frame", err);
    size_t plane = (size_t)e->ctx->width * (size_t)e->ctx->height;
    // FFmpeg's planar RGB is stored as G, B, R
    const uint8_t *const src[4] = {rgb + plane, rgb + 2 * plane, rgb, NULL};
    const int stride[4] = {e->ctx->width, e->ctx->width, e->ctx->width, 0};
    sws_scale(e->sws, src, stride, 0, e->ctx->height, e->frame->data, e->frame->linesize);
    e->frame->pts = pts;
    e->next_pts = pts + 1, e->frames++;
    if ((err = avcodec_send_frame(e->ctx, e->frame)) < 0)
        return fail_av(e, MR_E_FAIL, "encode", err);
    return drain(e);
}

mr_status media_encoder_finish(mr_encoder *e)
{
    media_log_clear();
    if (!e->frames)
        return mr_fail(MR_E_USAGE, "%s: no frame was written", e->path);
    int err = avcodec_send_frame(e->ctx, NULL);
    if (err < 0)
        return fail_av(e, MR_E_FAIL, "encode", err);
    MR_TRY(drain(e));
    // the muxer cannot be used again, even if this fails: a second trailer would use freed memory
    e->header_written = false;
    if (e->mux && (err = av_write_trailer(e->mux)) < 0)
        return fail_av(e, MR_E_IO, "finish", err);
    if (media_file_close(&e->file, &e->io))
        return fail_av(e, MR_E_IO, "finish", 0);
    if (mr_io_table()->rename(e->tmp, e->path)) {
        e->file.err = errno;
        return fail_av(e, MR_E_IO, "finish", 0);
    }
    e->tmp[0] = 0;
    return MR_OK;
}

void media_encoder_free(mr_encoder *e)
{
    if (!e)
        return;
    avcodec_free_context(&e->ctx);
    av_frame_free(&e->frame);
    av_packet_free(&e->packet);
    sws_freeContext(e->sws);
    if (e->mux) {
        // a started muxer frees its memory only when it writes the trailer
        if (e->header_written)
            av_write_trailer(e->mux);
        e->mux->pb = NULL;
        avformat_free_context(e->mux);
    }
    bool opened = e->file.fd >= 0 || e->io;
    media_file_close(&e->file, &e->io);
    if (e->tmp[0] && (opened || mr_path_exists(e->tmp)))
        mr_io_table()->unlink(e->tmp);
    mr_free(e);
}
