/* media: decides whether a decoder can start with a packet. Containers mark such packets, but some
 * mark others, too: a decoder that starts there returns frames without their references, mostly
 * without an error. So the bits of the codec decide. Licence: Apache-2.0 */
#include "media/room.h"

/* ---- bits of a packet; bits after its end are 0 ---- */

typedef struct bits {
    const uint8_t *data;
    int64_t at, end; // positions in bits
} bits;

static bits bits_of(const uint8_t *data, int bytes)
{
    return (bits){.data = data, .end = (int64_t)bytes * 8};
}

static uint32_t take(bits *b, int n)
{
    uint32_t v = 0;
    for (; n > 0; n--, b->at++)
        v = v << 1 | (b->at < b->end ? b->data[b->at / 8] >> (7 - b->at % 8) & 1u : 0);
    return v;
}

// read an unsigned Exp-Golomb code
static uint32_t take_golomb(bits *b)
{
    int zeros = 0;
    while (b->at < b->end && zeros < 31 && !take(b, 1))
        zeros++;
    return (1u << zeros) - 1 + take(b, zeros);
}

static media_start begins_if(bool begins)
{
    return begins ? MEDIA_BEGINS : MEDIA_BUILDS;
}

/* ---- HEVC and H.264 ---- */

// pictures of types 16 to 23 (BLA, IDR, CRA) allow random access; others do not without loss
static media_start of_hevc(const AVCodecParameters *of, const AVPacket *p)
{
    media_units u = media_units_of(of, p);
    while (media_unit_next(&u))
        if (u.is_slice)
            return begins_if(u.type >= 16 && u.type <= 23);
    return MEDIA_UNSURE;
}

// Copy the first bytes of a unit without its emulation prevention bytes (the 3 after two zeros).
// Returns their number.
static int unescape(const media_units *u, uint8_t *out, int most)
{
    const uint8_t *from = u->packet->data + u->at;
    int n = 0, zeros = 0;
    for (int i = 0; i < u->bytes && n < most; i++) {
        bool escape = zeros >= 2 && from[i] == 3;
        zeros = from[i] || escape ? 0 : zeros + 1;
        if (!escape)
            out[n++] = from[i];
    }
    return n;
}

// read a number of a message: the sum of bytes up to the first below 255
static uint32_t take_sum(bits *b)
{
    uint32_t sum = 0, byte;
    do
        sum += byte = take(b, 8);
    while (byte == 255 && b->at < b->end);
    return sum;
}

// Whether the unit has a recovery point with exact frames, from here or some frames later. One with
// approximate frames does not count.
static bool has_recovery(const media_units *u)
{
    enum { RECOVERY_POINT = 6, TRAILING = 128 };
    uint8_t bytes[1024];
    bits b = bits_of(bytes, unescape(u, bytes, sizeof bytes));
    take(&b, 8);
    while (b.at + 16 < b.end) {
        uint32_t type = take_sum(&b), size = take_sum(&b);
        if (type == RECOVERY_POINT) {
            bool later = take_golomb(&b) > 0, exact = take(&b, 1);
            return exact || !later;
        }
        if (type == TRAILING)
            break;
        b.at += (int64_t)size * 8;
    }
    return false;
}

static media_start of_h264(const AVCodecParameters *of, const AVPacket *p)
{
    enum { IDR = 5, MESSAGES = 6 };
    bool recovers = false;
    for (media_units u = media_units_of(of, p); media_unit_next(&u);) {
        if (u.is_slice)
            return begins_if(u.type == IDR || recovers);
        recovers |= u.type == MESSAGES && has_recovery(&u);
    }
    return MEDIA_UNSURE;
}

/* ---- MPEG-1, MPEG-2, MPEG-4 part 2: the header of a picture follows 0 0 1 and its code ---- */

static media_start behind_mark(const AVPacket *p, uint8_t code, int skip, int n, uint32_t intra)
{
    for (int i = 0; i + 4 < p->size; i++)
        if (!p->data[i] && !p->data[i + 1] && p->data[i + 2] == 1 && p->data[i + 3] == code) {
            bits b = bits_of(p->data + i + 4, p->size - i - 4);
            take(&b, skip);
            return begins_if(take(&b, n) == intra);
        }
    return MEDIA_UNSURE;
}

static media_start of_mpeg(const AVCodecParameters *of, const AVPacket *p)
{
    (void)of;
    return behind_mark(p, 0x00, 10, 3, 1);
}

static media_start of_mpeg4(const AVCodecParameters *of, const AVPacket *p)
{
    (void)of;
    return behind_mark(p, 0xb6, 0, 2, 0);
}

/* ---- H.263 and its variants ---- */

// Ref: ITU-T H.263 5.1, for format 7 with the extended type of 5.1.4
static media_start of_h263(const AVCodecParameters *of, const AVPacket *p)
{
    (void)of;
    enum { EXTENDED = 7 };
    bits b = bits_of(p->data, p->size);
    if (take(&b, 22) != 32)
        return MEDIA_UNSURE;
    take(&b, 8 + 5);
    if (take(&b, 3) != EXTENDED)
        return begins_if(!take(&b, 1));
    if (take(&b, 3) == 1)
        take(&b, 18);
    return begins_if(!take(&b, 3));
}

// Sorenson H.263 in Flash video
static media_start of_flv1(const AVCodecParameters *of, const AVPacket *p)
{
    (void)of;
    bits b = bits_of(p->data, p->size);
    if (take(&b, 17) != 1)
        return MEDIA_UNSURE;
    take(&b, 5 + 8);
    uint32_t size = take(&b, 3);
    take(&b, size == 0 ? 16 : size == 1 ? 32 : 0);
    return begins_if(!take(&b, 2));
}

// Microsoft MPEG-4
static media_start of_msmpeg4(const AVCodecParameters *of, const AVPacket *p)
{
    bits b = bits_of(p->data, p->size);
    return begins_if(!take(&b, of->codec_id == AV_CODEC_ID_WMV2 ? 1 : 2));
}

/* ---- all codecs ---- */

// H.261 has no types of pictures: each can depend on the previous one
static media_start of_h261(const AVCodecParameters *of, const AVPacket *p)
{
    (void)of, (void)p;
    return MEDIA_BUILDS;
}

// What a codec's decoder does: it returns frames from any packet; or it reports per frame whether
// decoding can start there; or it returns nothing before such a frame.
enum { BY_PACKET, BY_FRAME, BY_DECODER };

typedef struct codec_row {
    enum AVCodecID codec;
    int how;
    media_start (*look)(const AVCodecParameters *of, const AVPacket *p);
} codec_row;

static const codec_row *row_of(enum AVCodecID codec)
{
    static const codec_row rows[] = {
        {AV_CODEC_ID_HEVC, BY_PACKET, of_hevc},
        {AV_CODEC_ID_H264, BY_DECODER, of_h264},
        {AV_CODEC_ID_MPEG4, BY_PACKET, of_mpeg4},
        {AV_CODEC_ID_MPEG2VIDEO, BY_PACKET, of_mpeg},
        {AV_CODEC_ID_MPEG1VIDEO, BY_PACKET, of_mpeg},
        {AV_CODEC_ID_H261, BY_PACKET, of_h261},
        {AV_CODEC_ID_H263, BY_PACKET, of_h263},
        {AV_CODEC_ID_H263P, BY_PACKET, of_h263},
        {AV_CODEC_ID_FLV1, BY_PACKET, of_flv1},
        {AV_CODEC_ID_MSMPEG4V2, BY_PACKET, of_msmpeg4},
        {AV_CODEC_ID_MSMPEG4V3, BY_PACKET, of_msmpeg4},
        {AV_CODEC_ID_WMV1, BY_PACKET, of_msmpeg4},
        {AV_CODEC_ID_WMV2, BY_PACKET, of_msmpeg4},
        {AV_CODEC_ID_WMV3, BY_FRAME, NULL},
        {AV_CODEC_ID_VC1, BY_FRAME, NULL},
        {AV_CODEC_ID_RV10, BY_FRAME, NULL},
        {AV_CODEC_ID_RV20, BY_FRAME, NULL},
        {AV_CODEC_ID_RV30, BY_FRAME, NULL},
        {AV_CODEC_ID_RV40, BY_FRAME, NULL},
        {AV_CODEC_ID_VP8, BY_DECODER, NULL},
        {AV_CODEC_ID_VP9, BY_DECODER, NULL},
        {AV_CODEC_ID_AV1, BY_DECODER, NULL},
        {AV_CODEC_ID_THEORA, BY_DECODER, NULL},
        {AV_CODEC_ID_FFV1, BY_DECODER, NULL},
        {AV_CODEC_ID_VP6, BY_DECODER, NULL},
        {AV_CODEC_ID_VP6F, BY_DECODER, NULL},
    };
    for (size_t i = 0; i < MR_COUNT(rows); i++)
        if (rows[i].codec == codec)
            return &rows[i];
    return NULL;
}

media_start media_packet_start(const AVCodecParameters *of, const AVPacket *p)
{
    const codec_row *row = row_of(of->codec_id);
    return row && row->look && p->size > 0 ? row->look(of, p) : MEDIA_UNSURE;
}

bool media_needs_start(enum AVCodecID codec)
{
    const codec_row *row = row_of(codec);
    return row && row->how == BY_PACKET && row->look != of_h261;
}

bool media_frame_builds(enum AVCodecID codec, const AVFrame *f)
{
    const codec_row *row = row_of(codec);
    if (!row || row->how != BY_FRAME)
        return false;
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 7, 100)
    return !(f->flags & AV_FRAME_FLAG_KEY);
#else
    return !f->key_frame;
#endif
}

bool media_stands_alone(enum AVCodecID codec)
{
    const AVCodecDescriptor *about = avcodec_descriptor_get(codec);
    return !about || about->props & AV_CODEC_PROP_INTRA_ONLY;
}

bool media_keys_unknown(enum AVCodecID codec)
{
    return !row_of(codec) && !media_stands_alone(codec);
}
