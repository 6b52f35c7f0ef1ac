/* media: finds the YUV matrix and range of a frame, for the scaler. Ref: dataplane 1.4.
 * Licence: Apache-2.0 */
#include "media/room.h"

void media_colour_set(struct SwsContext *sws, int matrix, bool full_range, bool to_rgb)
{
    const int *yuv = sws_getCoefficients(matrix);
    enum { ONE = 1 << 16 };
    // this fails for conversions without YUV, which need no matrix
    if (to_rgb)
        sws_setColorspaceDetails(sws, yuv, full_range, yuv, 1, 0, ONE, ONE);
    else
        sws_setColorspaceDetails(sws, yuv, 1, yuv, full_range, 0, ONE, ONE);
}

int media_colour_matrix(const AVFrame *frame, enum AVCodecID codec, int coded_height)
{
    switch (frame->colorspace) {
    case AVCOL_SPC_BT709: return SWS_CS_ITU709;
    case AVCOL_SPC_FCC: return SWS_CS_FCC;
    case AVCOL_SPC_BT470BG:
    case AVCOL_SPC_SMPTE170M: return SWS_CS_ITU601;
    case AVCOL_SPC_SMPTE240M: return SWS_CS_SMPTE240M;
    case AVCOL_SPC_BT2020_NCL:
    case AVCOL_SPC_BT2020_CL: return SWS_CS_BT2020;
    default: break;
    }
    // VP8 and WebP are BT.601 by definition
    if (codec == AV_CODEC_ID_VP8 || codec == AV_CODEC_ID_WEBP)
        return SWS_CS_ITU601;
    return coded_height >= 720 ? SWS_CS_ITU709 : SWS_CS_ITU601;
}

bool media_colour_full(const AVFrame *frame)
{
    switch (frame->format) {
    case AV_PIX_FMT_YUVJ420P:
    case AV_PIX_FMT_YUVJ411P:
    case AV_PIX_FMT_YUVJ422P:
    case AV_PIX_FMT_YUVJ440P:
    case AV_PIX_FMT_YUVJ444P: return true;
    default: return frame->color_range == AVCOL_RANGE_JPEG;
    }
}
