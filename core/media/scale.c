/* media: makes one scaler call per frame, from the cropped source rectangle directly into the
 * result. Ref: dataplane 1.4. Licence: Apache-2.0 */
#include "media/room.h"

#include <string.h>

struct SwsContext *media_scaler_get(mr_media_worker *w, const media_scaler *want)
{
    for (int i = 0; i < MEDIA_SCALERS; i++) {
        media_scaler *s = &w->scalers[i];
        if (s->sws && memcmp(s, want, offsetof(media_scaler, sws)) == 0)
            return s->sws;
    }
    static const int filters[] = {SWS_BILINEAR, SWS_AREA, SWS_BICUBIC, SWS_LANCZOS};
    media_scaler *s = &w->scalers[w->next_scaler++ % MEDIA_SCALERS];
    sws_freeContext(s->sws);
    *s = *want;
    s->sws =
        sws_getContext(s->src_w, s->src_h, s->src_format, s->dst_w, s->dst_h, s->dst_format,
                       filters[s->filter] | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_BITEXACT,
                       NULL, NULL, NULL);
    if (s->sws)
        media_colour_set(s->sws, s->matrix, s->full, true);
    return s->sws;
}

// Find the first byte of the rectangle at (x, y) per plane; x and y are multiples of the chroma
// grid.
static void move_planes(const AVFrame *f, const AVPixFmtDescriptor *desc, int x, int y,
                        const uint8_t *out[4])
{
    for (int p = 0; p < 4; p++)
        out[p] = f->data[p];
    for (int p = 0; p < 4 && f->data[p]; p++) {
        if (desc->flags & AV_PIX_FMT_FLAG_PAL && p == 1)
            break; // the palette does not move
        int c = 0;
        while (c < desc->nb_components && desc->comp[c].plane != p)
            c++;
        if (c == desc->nb_components)
            break;
        bool chroma = (c == 1 || c == 2) && !(desc->flags & AV_PIX_FMT_FLAG_RGB);
        int px = chroma ? x >> desc->log2_chroma_w : x, py = chroma ? y >> desc->log2_chroma_h : y;
        // steps of bit-packed formats count bits
        int bytes = desc->flags & AV_PIX_FMT_FLAG_BITSTREAM ? px * desc->comp[c].step / 8
                                                            : px * desc->comp[c].step;
        out[p] += (ptrdiff_t)py * f->linesize[p] + bytes;
    }
}

// find the source rectangle for a target of tw x th square pixels, given the source's pixel aspect
static void crop(int w, int h, AVRational sar, int tw, int th, int *cw, int *ch)
{
    // compare w * sar / h with tw / th
    double shown = (double)w * sar.num / sar.den / h, want = (double)tw / th;
    *cw = w, *ch = h;
    if (shown > want)
        *cw = (int)(h * want * sar.den / sar.num + 0.5);
    else
        *ch = (int)(w * (double)sar.num / sar.den / want + 0.5);
    *cw = av_clip(*cw, 1, w), *ch = av_clip(*ch, 1, h);
}

mr_status media_scale(mr_media_worker *w, const AVFrame *frame, enum AVCodecID codec,
                      AVRational sar, int orient, mr_filter filter, int height, int width,
                      uint8_t *out)
{
    const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(frame->format);
    if (!desc || desc->flags & AV_PIX_FMT_FLAG_HWACCEL || !sws_isSupportedInput(frame->format))
        return mr_fail(MR_E_DECODE, "pixel format %s is not supported",
                       desc ? desc->name : "unknown");
    if (frame->width < 1 || frame->height < 1 || frame->width > MEDIA_SIDE_MAX ||
        frame->height > MEDIA_SIDE_MAX)
        return mr_fail(MR_E_DECODE, "geometry: a frame of %d x %d; expected at most %d a side",
                       frame->width, frame->height, MEDIA_SIDE_MAX);
    if (sar.num < 1 || sar.den < 1)
        sar = (AVRational){1, 1};
    // tw and th: the size of the target in the orientation of the stored picture
    int tw = orient & 4 ? height : width, th = orient & 4 ? width : height, cw, ch;
    crop(frame->width, frame->height, sar, tw, th, &cw, &ch);
    int grid_x = desc->flags & AV_PIX_FMT_FLAG_BITSTREAM ? 8 : 1 << desc->log2_chroma_w,
        grid_y = 1 << desc->log2_chroma_h;
    int x = (frame->width - cw) / 2, y = (frame->height - ch) / 2;
    const uint8_t *src[4];
    move_planes(frame, desc, x - x % grid_x, y - y % grid_y, src);

    media_scaler want;
    memset(&want, 0, sizeof want);
    want = (media_scaler){.src_w = cw,
                          .src_h = ch,
                          .src_format = frame->format,
                          .matrix = media_colour_matrix(frame, codec, frame->height),
                          .full = media_colour_full(frame),
                          .dst_w = tw,
                          .dst_h = th,
                          .dst_format = AV_PIX_FMT_GBRP,
                          .filter = (int)filter};
    struct SwsContext *sws = media_scaler_get(w, &want);
    if (!sws)
        return mr_fail(MR_E_DECODE, "cannot scale %d x %d %s to %d x %d", cw, ch, desc->name, tw,
                       th);
    size_t plane = (size_t)width * (size_t)height;
    uint8_t *rgb = out;
    if (orient) {
        if (w->turn_bytes < 3 * plane) {
            mr_free(w->turn);
            w->turn_bytes = 0;
            if (!(w->turn = mr_alloc(3 * plane)))
                return mr_fail_memory(3 * plane);
            w->turn_bytes = 3 * plane;
        }
        rgb = w->turn;
    }
    // FFmpeg's planar RGB is stored as G, B, R
    uint8_t *const dst[4] = {rgb + plane, rgb + 2 * plane, rgb, NULL};
    const int stride[4] = {tw, tw, tw, 0};
    int rows = sws_scale(sws, src, frame->linesize, 0, ch, dst, stride);
    if (rows != th)
        return mr_fail(MR_E_DECODE, "the scaler returned %d of %d rows", rows, th);
    if (orient)
        media_orient_apply(orient, rgb, th, tw, out);
    return MR_OK;
}

mr_status media_worker_new(mr_media_worker **out)
{
    mr_media_worker *w;
    if (!MR_NEW(w))
        return mr_fail_memory(sizeof *w);
    w->packet = av_packet_alloc(), w->frame = av_frame_alloc(), w->held = av_frame_alloc();
    if (!w->packet || !w->frame || !w->held) {
        media_worker_free(w);
        return mr_fail_memory(0);
    }
    *out = w;
    return MR_OK;
}

void media_worker_free(mr_media_worker *w)
{
    if (!w)
        return;
    av_packet_free(&w->packet);
    av_frame_free(&w->frame);
    av_frame_free(&w->held);
    for (int i = 0; i < MEDIA_SCALERS; i++)
        sws_freeContext(w->scalers[i].sws);
    mr_free(w->turn);
    mr_free(w->small);
    mr_free(w);
}

const char *media_worker_log(mr_media_worker *w)
{
    (void)w; // log lines belong to the thread that runs the worker
    return media_log_text();
}
