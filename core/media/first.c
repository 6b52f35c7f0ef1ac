/* media: what a decoder needs to tell the facts of a frame. In H.264 and HEVC all of them (size,
 * shape of pixels, colours, fields, orientation) stand in front of the first slice's pictures,
 * which are nearly all of a packet and of the time it takes. Licence: Apache-2.0 */
#include "media/room.h"

// a slice is cut off so far behind its begin; its header takes some tens of bytes
enum { SLICE_BYTES = 256 };

typedef struct unit { // where a unit of the stream lies in its packet
    int at, bytes;
} unit;

static bool is_slice(enum AVCodecID codec, uint8_t head)
{
    if (codec == AV_CODEC_ID_HEVC)
        return (head >> 1 & 63) < 32;
    return (head & 31) >= 1 && (head & 31) <= 5;
}

// the bytes of a unit's length in front of it; 0: units begin at marks 0 0 1
static int length_bytes(const AVCodecParameters *p)
{
    const uint8_t *e = p->extradata;
    bool hevc = p->codec_id == AV_CODEC_ID_HEVC;
    if (p->extradata_size < (hevc ? 23 : 7))
        return 0;
    bool counted = hevc ? e[0] || e[1] || e[2] > 1 : e[0] == 1;
    return counted ? (e[hevc ? 21 : 4] & 3) + 1 : 0;
}

// the unit that begins at or behind `from`, where a length of `prefix` bytes says how long it is
static bool counted_unit(const AVPacket *p, int prefix, int from, unit *out)
{
    if (from > p->size - prefix - 1)
        return false;
    int64_t bytes = 0;
    for (int i = 0; i < prefix; i++)
        bytes = bytes << 8 | p->data[from + i];
    out->at = from + prefix;
    if (bytes < 1 || bytes > p->size - out->at)
        return false;
    out->bytes = (int)bytes;
    return true;
}

// the same behind a mark; it ends with the packet, for nobody asks where the next one begins
static bool marked_unit(const AVPacket *p, int from, unit *out)
{
    for (int at = from; at + 3 < p->size; at++)
        if (!p->data[at] && !p->data[at + 1] && p->data[at + 2] == 1) {
            *out = (unit){.at = at + 3, .bytes = p->size - at - 3};
            return true;
        }
    return false;
}

bool media_packet_shorten(const AVCodecParameters *of, AVPacket *p)
{
    if (of->codec_id != AV_CODEC_ID_H264 && of->codec_id != AV_CODEC_ID_HEVC)
        return false;
    int prefix = length_bytes(of);
    unit u = {0};
    for (int from = 0;; from = prefix ? u.at + u.bytes : u.at) {
        if (!(prefix ? counted_unit(p, prefix, from, &u) : marked_unit(p, from, &u)))
            return false;
        if (is_slice(of->codec_id, p->data[u.at]))
            break;
    }
    if (u.bytes <= SLICE_BYTES || prefix == 1 || av_packet_make_writable(p) < 0)
        return false;
    for (int i = 1; i <= prefix; i++)
        p->data[u.at - i] = (uint8_t)(i > 2 ? 0 : SLICE_BYTES >> 8 * (i - 1));
    av_shrink_packet(p, u.at + SLICE_BYTES);
    return true;
}
