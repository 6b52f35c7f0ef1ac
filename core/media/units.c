/* media: splits an H.264 or HEVC packet into NAL units, which have length prefixes or start codes.
 * Licence: Apache-2.0 */
#include "media/room.h"

// the number of bytes of the length prefix; 0: units follow start codes 0 0 1
static int length_bytes(const AVCodecParameters *p)
{
    const uint8_t *e = p->extradata;
    bool hevc = p->codec_id == AV_CODEC_ID_HEVC;
    if (p->extradata_size < (hevc ? 23 : 7))
        return 0;
    bool counted = hevc ? e[0] || e[1] || e[2] > 1 : e[0] == 1;
    return counted ? (e[hevc ? 21 : 4] & 3) + 1 : 0;
}

// the next unit from `from` on, with a length prefix of `prefix` bytes
static bool counted_unit(media_units *u, int from)
{
    const AVPacket *p = u->packet;
    if (from > p->size - u->prefix - 1)
        return false;
    int64_t bytes = 0;
    for (int i = 0; i < u->prefix; i++)
        bytes = bytes << 8 | p->data[from + i];
    u->at = from + u->prefix;
    if (bytes < 1 || bytes > p->size - u->at)
        return false;
    u->bytes = (int)bytes;
    return true;
}

// the same after a start code; it extends to the end of the packet, since no caller needs its end
static bool marked_unit(media_units *u, int from)
{
    const AVPacket *p = u->packet;
    for (int at = from; at + 3 < p->size; at++)
        if (!p->data[at] && !p->data[at + 1] && p->data[at + 2] == 1) {
            u->at = at + 3, u->bytes = p->size - at - 3;
            return true;
        }
    return false;
}

media_units media_units_of(const AVCodecParameters *of, const AVPacket *packet)
{
    return (media_units){
        .packet = packet, .hevc = of->codec_id == AV_CODEC_ID_HEVC, .prefix = length_bytes(of)};
}

bool media_unit_next(media_units *u)
{
    if (!(u->prefix ? counted_unit(u, u->at + u->bytes) : marked_unit(u, u->at)))
        return false;
    uint8_t head = u->packet->data[u->at];
    u->type = u->hevc ? head >> 1 & 63 : head & 31;
    u->is_slice = u->hevc ? u->type < 32 : u->type >= 1 && u->type <= 5;
    return true;
}
