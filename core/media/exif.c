/* media: reads the orientation of pictures for which FFmpeg does not report it: from the chunk eXIf
 * of PNG, and from the first directory of TIFF. Ref: PNG 3rd edition 11.3.4.5, TIFF 6.0 section 2.
 * Licence: Apache-2.0 */
#include "media/room.h"

#include <string.h>

typedef struct exif {
    const uint8_t *data;
    size_t n;
    bool little; // little-endian
} exif;

// a number of `bytes` bytes; 0 if it is outside of the data
static uint32_t number(const exif *e, size_t at, size_t bytes)
{
    uint32_t v = 0;
    if (at > e->n || bytes > e->n - at)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        v = v << 8 | e->data[at + (e->little ? bytes - 1 - i : i)];
    return v;
}

// the tag Orientation, 1 to 8, of the first directory; 0: no such tag
static int orientation(const uint8_t *data, size_t n)
{
    enum { ORIENTATION = 274, SHORT = 3, ENTRY = 12 };
    exif e = {data, n, n > 0 && data[0] == 'I'};
    if (n < 8 || (memcmp(data, "II*\0", 4) && memcmp(data, "MM\0*", 4)))
        return 0;
    size_t at = number(&e, 4, 4);
    uint32_t entries = number(&e, at, 2);
    for (at += 2; entries > 0 && at + ENTRY <= n; entries--, at += ENTRY)
        if (number(&e, at, 2) == ORIENTATION && number(&e, at + 2, 2) == SHORT)
            return (int)number(&e, at + 8, 2);
    return 0;
}

// chunks: length, name, bytes, checksum
static int of_chunks(const uint8_t *data, size_t n)
{
    const exif chunks = {data, n, false};
    size_t at = n >= 8 && memcmp(data, "\x89PNG", 4) == 0 ? 8 : 0;
    while (at + 12 <= n) {
        size_t bytes = number(&chunks, at, 4);
        if (bytes > n - at - 12)
            return 0;
        if (memcmp(data + at + 4, "eXIf", 4) == 0)
            return orientation(data + at + 8, bytes);
        at += bytes + 12;
    }
    return 0;
}

int media_exif_orientation(const AVCodecParameters *of, const AVPacket *p)
{
    switch (of->codec_id) {
    case AV_CODEC_ID_PNG: return of_chunks(p->data, (size_t)p->size);
    case AV_CODEC_ID_APNG: return of_chunks(of->extradata, (size_t)of->extradata_size);
    case AV_CODEC_ID_TIFF: return orientation(p->data, (size_t)p->size);
    default: return 0;
    }
}
