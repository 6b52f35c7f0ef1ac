/* media: measures the change from frame to frame, on small grey pictures. Ref: dataplane 7, scene
 * cutting. Licence: Apache-2.0 */
#include "media/room.h"

#include <stdlib.h>
#include <string.h>

enum { LONG_SIDE = 160, SMALL_BYTES = LONG_SIDE * LONG_SIDE };

// the size of a small picture with about the aspect of the frame
static void small_size(const AVFrame *f, int *w, int *h)
{
    double scale = (double)LONG_SIDE / MR_MAX(f->width, f->height);
    *w = MR_MAX((int)(f->width * scale), MR_CLIP_SIDE_MIN) / 8 * 8;
    *h = MR_MAX((int)(f->height * scale), MR_CLIP_SIDE_MIN);
}

mr_status media_change(mr_media_worker *w, const AVFrame *f, bool first, float *change)
{
    int width, height;
    if (!w->small && !(w->small = mr_alloc(2 * SMALL_BYTES)))
        return mr_fail_memory(2 * SMALL_BYTES);
    if (!sws_isSupportedInput(f->format) || MR_MAX(f->width, f->height) > MEDIA_SIDE_MAX)
        return mr_fail(MR_E_DECODE, "geometry: a frame of %d x %d in pixel format %d", f->width,
                       f->height, f->format);
    small_size(f, &width, &height);
    media_scaler want;
    memset(&want, 0, sizeof want);
    want = (media_scaler){.src_w = f->width,
                          .src_h = f->height,
                          .src_format = f->format,
                          .matrix = SWS_CS_DEFAULT,
                          .full = media_colour_full(f),
                          .dst_w = width,
                          .dst_h = height,
                          .dst_format = AV_PIX_FMT_GRAY8,
                          .filter = MR_FILTER_AREA};
    struct SwsContext *sws = media_scaler_get(w, &want);
    uint8_t *now = w->small + (size_t)(w->small_n++ % 2) * SMALL_BYTES;
    const uint8_t *before = w->small + (size_t)(w->small_n % 2) * SMALL_BYTES;
    const int stride[4] = {width};
    if (!sws || sws_scale(sws, (const uint8_t *const *)f->data, f->linesize, 0, f->height,
                          (uint8_t *const[4]){now}, stride) != height)
        return mr_fail(MR_E_DECODE, "cannot scale %d x %d to %d x %d", f->width, f->height, width,
                       height);
    int64_t sum = 0;
    for (int i = 0; i < width * height; i++)
        sum += abs(now[i] - before[i]);
    *change = first ? 0 : (float)sum / (float)(width * height);
    return MR_OK;
}
