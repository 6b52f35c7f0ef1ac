/* media: applies the eight orientations of a stored picture (rotations and mirrors).
 * Licence: Apache-2.0 */
#include "media/room.h"

#include <libavcodec/packet.h>

// A display matrix maps stored (x, y) to displayed (x', y'): x' = a x + c y, y' = b x + d y, with
// entries a b u / c d v / x y w in 16.16. Only signs matter here; skewed matrices count as upright.
int media_orient_of_matrix(const int32_t m[9])
{
    int a = (m[0] > 0) - (m[0] < 0), b = (m[1] > 0) - (m[1] < 0);
    int c = (m[3] > 0) - (m[3] < 0), d = (m[4] > 0) - (m[4] < 0);
    if (a && d && !b && !c)
        return (a < 0 ? 1 : 0) | (d < 0 ? 2 : 0);
    if (b && c && !a && !d)
        return 4 | (c < 0 ? 1 : 0) | (b < 0 ? 2 : 0);
    return 0;
}

void media_orient_to_matrix(int orient, int32_t m[9])
{
    int x = orient & 1 ? -65536 : 65536, y = orient & 2 ? -65536 : 65536;
    for (int i = 0; i < 9; i++)
        m[i] = 0;
    if (orient & 4)
        m[3] = x, m[1] = y;
    else
        m[0] = x, m[4] = y;
    m[8] = 1 << 30;
}

int media_orient_of_exif(int orientation)
{
    // 1 upright, 2 mirrored, 3 rotated by 180, 4 flipped, 5 transposed, 6 rotate right, 7
    // transverse, 8 rotate left
    static const uint8_t of[9] = {0, 0, 1, 3, 2, 4, 5, 7, 6};
    return orientation >= 1 && orientation <= 8 ? of[orientation] : 0;
}

void media_orient_apply(int orient, const uint8_t *src, int sh, int sw, uint8_t *dst)
{
    int h = orient & 4 ? sw : sh, w = orient & 4 ? sh : sw;
    for (int c = 0; c < 3; c++, src += (size_t)sh * sw, dst += (size_t)h * w)
        for (int y = 0; y < h; y++) {
            int ty = orient & 2 ? h - 1 - y : y;
            for (int x = 0; x < w; x++) {
                int tx = orient & 1 ? w - 1 - x : x;
                dst[(size_t)y * w + x] =
                    orient & 4 ? src[(size_t)tx * sw + ty] : src[(size_t)ty * sw + tx];
            }
        }
}

const int32_t *media_stream_matrix(const AVStream *st)
{
    size_t n = 0;
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 100)
    const AVPacketSideData *sd = av_packet_side_data_get(
        st->codecpar->coded_side_data, st->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    const uint8_t *data = sd ? sd->data : NULL;
    n = sd ? sd->size : 0;
#else
    const uint8_t *data = av_stream_get_side_data(st, AV_PKT_DATA_DISPLAYMATRIX, &n);
#endif
    return n >= MEDIA_MATRIX_BYTES ? (const int32_t *)(const void *)data : NULL;
}

int32_t *media_stream_add_matrix(AVStream *st, size_t bytes)
{
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 100)
    AVPacketSideData *sd =
        av_packet_side_data_new(&st->codecpar->coded_side_data, &st->codecpar->nb_coded_side_data,
                                AV_PKT_DATA_DISPLAYMATRIX, bytes, 0);
    return sd ? (int32_t *)(void *)sd->data : NULL;
#else
    return (int32_t *)(void *)av_stream_new_side_data(st, AV_PKT_DATA_DISPLAYMATRIX, bytes);
#endif
}
