/* media: shortens a packet to the part from which a decoder gets the facts of a frame. In H.264 and
 * HEVC all facts (size, pixel aspect, colours, fields, orientation) precede the data of the first
 * slice, which is nearly all of a packet and of its decode time. Licence: Apache-2.0 */
#include "media/room.h"

// bytes of a slice that are kept; its header has some tens of bytes
enum { SLICE_BYTES = 256 };

bool media_packet_shorten(const AVCodecParameters *of, AVPacket *p)
{
    if (of->codec_id != AV_CODEC_ID_H264 && of->codec_id != AV_CODEC_ID_HEVC)
        return false;
    media_units u = media_units_of(of, p);
    do
        if (!media_unit_next(&u))
            return false;
    while (!u.is_slice);
    if (u.bytes <= SLICE_BYTES || u.prefix == 1 || av_packet_make_writable(p) < 0)
        return false;
    for (int i = 1; i <= u.prefix; i++)
        p->data[u.at - i] = (uint8_t)(i > 2 ? 0 : SLICE_BYTES >> 8 * (i - 1));
    av_shrink_packet(p, u.at + SLICE_BYTES);
    return true;
}
