/* media/exif: pictures whose files contain an orientation: each kind of file, each of the eight
 * orientations, either order of bytes.
 * Covers: core/media/orient.c core/media/scan.c */
#include "media/exif.c"
#include "media/orient.c"

#include "check.h"
#include "clips.h"

static const mr_media *m;
static mr_media_worker *w;

typedef struct bytes {
    uint8_t at[1 << 16];
    size_t n;
} bytes;

static void add(bytes *b, const void *data, size_t n)
{
    if (CHECK(b->n + n <= sizeof b->at)) {
        memcpy(b->at + b->n, data, n);
        b->n += n;
    }
}

static void add_int(bytes *b, uint32_t value, int n, bool little)
{
    for (int i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)(value >> 8 * (little ? i : n - 1 - i));
        add(b, &byte, 1);
    }
}

/* EXIF data of an orientation: a directory of two entries, of which the second counts. */
static bytes exif_of(int orientation, bool little)
{
    bytes b = {.n = 0};
    add(&b, little ? "II*\0" : "MM\0*", 4);
    add_int(&b, 8, 4, little), add_int(&b, 2, 2, little);
    const uint32_t tags[2][2] = {{0x100, 7}, {0x112, (uint32_t)orientation}};
    for (int i = 0; i < 2; i++) {
        add_int(&b, tags[i][0], 2, little), add_int(&b, 3, 2, little), add_int(&b, 1, 4, little);
        add_int(&b, tags[i][1], 2, little), add_int(&b, 0, 2, little);
    }
    add_int(&b, 0, 4, little);
    return b;
}

static uint32_t checksum(const uint8_t *data, size_t n)
{
    uint32_t sum = 0xffffffff;
    for (size_t i = 0; i < n * 8; i++) {
        sum ^= i % 8 ? 0 : data[i / 8];
        sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
    }
    return ~sum;
}

/* ---- files with it, inserted after the first `head` bytes of the upright one ---- */

// the chunk comes before the pixels, or after them
static bytes png_with(const bytes *plain, const bytes *exif, bool behind)
{
    enum { HEAD = 8 + 25, TAIL = 12 };
    bytes b = {.n = 0};
    size_t at = behind ? plain->n - TAIL : HEAD;
    add(&b, plain->at, at);
    add_int(&b, (uint32_t)exif->n, 4, false);
    size_t from = b.n;
    add(&b, "eXIf", 4), add(&b, exif->at, exif->n);
    add_int(&b, checksum(b.at + from, b.n - from), 4, false);
    add(&b, plain->at + at, plain->n - at);
    return b;
}

static bytes jpeg_with(const bytes *plain, const bytes *exif)
{
    bytes b = {.n = 0};
    add(&b, plain->at, 2), add(&b, "\xff\xe1", 2);
    add_int(&b, (uint32_t)exif->n + 8, 2, false);
    add(&b, "Exif\0\0", 6), add(&b, exif->at, exif->n);
    add(&b, plain->at + 2, plain->n - 2);
    return b;
}

// the simple file's chunk of pixels after one that announces the other chunks
static bytes webp_with(const bytes *plain, const bytes *exif)
{
    enum { RIFF = 12, HAS_EXIF = 8 };
    bytes b = {.n = 0};
    add(&b, "RIFF", 4), add_int(&b, (uint32_t)(plain->n - 8 + 18 + 8 + exif->n), 4, true);
    add(&b, "WEBPVP8X", 8), add_int(&b, 10, 4, true), add_int(&b, HAS_EXIF, 4, true);
    add_int(&b, BAR_W - 1, 3, true), add_int(&b, BAR_H - 1, 3, true);
    add(&b, plain->at + RIFF, plain->n - RIFF);
    add(&b, "EXIF", 4), add_int(&b, (uint32_t)exif->n, 4, true), add(&b, exif->at, exif->n);
    return b;
}

// a picture of its own kind, whose directory is that of EXIF
static bytes tiff_with(const uint8_t *rgb, int orientation, bool little)
{
    enum { PIXELS = 8, BITS = PIXELS + BAR_BYTES, DIRECTORY = BITS + 6 };
    const uint32_t entries[][4] = {{256, 3, 1, BAR_W},
                                   {257, 3, 1, BAR_H},
                                   {258, 3, 3, BITS},
                                   {259, 3, 1, 1},
                                   {262, 3, 1, 2},
                                   {273, 4, 1, PIXELS},
                                   {274, 3, 1, (uint32_t)orientation},
                                   {277, 3, 1, 3},
                                   {278, 3, 1, BAR_H},
                                   {279, 4, 1, BAR_BYTES}};
    bytes b = {.n = 0};
    add(&b, little ? "II*\0" : "MM\0*", 4), add_int(&b, DIRECTORY, 4, little);
    for (int i = 0; i < BAR_BYTES; i++)
        add(&b, rgb + i % 3 * BAR_H * BAR_W + i / 3, 1);
    for (int c = 0; c < 3; c++)
        add_int(&b, 8, 2, little);
    add_int(&b, MR_COUNT(entries), 2, little);
    for (size_t e = 0; e < MR_COUNT(entries); e++) {
        bool is_short = entries[e][1] == 3 && entries[e][2] == 1;
        add_int(&b, entries[e][0], 2, little), add_int(&b, entries[e][1], 2, little);
        add_int(&b, entries[e][2], 4, little), add_int(&b, entries[e][3], is_short ? 2 : 4, little);
        add_int(&b, 0, is_short ? 2 : 0, little);
    }
    add_int(&b, 0, 4, little);
    return b;
}

/* ---- reads ---- */

static bool decode(const char *name, uint8_t *out, int *height, int *width)
{
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(m->scan(w, clips_path(name), 0, &info, &fault)))
        return false;
    *height = info.height, *width = info.width;
    mr_clip_request q = {.path = clips_path(name),
                         .info = &info,
                         .step = 1,
                         .frames = 1,
                         .height = info.height,
                         .width = info.width};
    bool good =
        CHECK(info.height * info.width * 3 == BAR_BYTES) && CHECK_OK(m->read(w, &q, out, &fault));
    mr_clip_info_fini(&info);
    return good;
}

// The pixel of the upright file that is shown at (x, y), as the standard describes the eight
// orientations: the sides of row 0 and column 0 of the file. Ref: EXIF 2.3, tag Orientation
static int source_of(int orientation, int x, int y, int h, int wide)
{
    switch (orientation) {
    case 2: return y * BAR_W + wide - 1 - x;
    case 3: return (h - 1 - y) * BAR_W + wide - 1 - x;
    case 4: return (h - 1 - y) * BAR_W + x;
    case 5: return x * BAR_W + y;
    case 6: return (wide - 1 - x) * BAR_W + y;
    case 7: return (wide - 1 - x) * BAR_W + h - 1 - y;
    case 8: return x * BAR_W + h - 1 - y;
    default: return y * BAR_W + x;
    }
}

static void compare(const char *name, const bytes *file, const uint8_t *upright, int orientation)
{
    static uint8_t got[BAR_BYTES];
    int h, wide, wrong = 0;
    CHECK_OK(mr_file_replace(clips_path(name), file->at, file->n));
    if (!decode(name, got, &h, &wide))
        return;
    CHECK_INT(wide, orientation >= 5 && orientation <= 8 ? BAR_H : BAR_W);
    for (int i = 0; i < BAR_BYTES; i++) {
        int x = i % wide, y = i / wide % h, c = i / wide / h;
        wrong += got[i] != upright[c * BAR_H * BAR_W + source_of(orientation, x, y, h, wide)];
    }
    if (!CHECK_INT(wrong, 0))
        printf("  in %s, orientation %d\n", name, orientation);
}

static bool plain_file(const char *name, bytes *b)
{
    mr_encoder *e;
    uint8_t rgb[BAR_BYTES];
    char *data;
    size_t n;
    const mr_encode_options o = {
        .width = BAR_W, .height = BAR_H, .codec = strstr(name, "webp") ? "libwebp" : NULL};
    mr_status st = m->encoder_open(clips_path(name), &o, &e);
    if (st == MR_E_UNSUPPORTED) {
        printf("SKIP %s: %s\n", name, mr_error_last()->text);
        return false;
    }
    if (!CHECK_OK(st))
        return false;
    bars_draw(rgb, 1234);
    CHECK_OK(m->encoder_frame(e, rgb, -1));
    CHECK_OK(m->encoder_finish(e));
    m->encoder_free(e);
    if (!CHECK_OK(mr_file_read_all(clips_path(name), &data, &n)))
        return false;
    b->n = 0;
    add(b, data, n);
    mr_free(data);
    return true;
}

static void every_orientation(void)
{
    static const char *const names[] = {"plain.png", "plain.jpg", "plain.webp"};
    static uint8_t upright[BAR_BYTES], rgb[BAR_BYTES];
    int h, wide;
    for (size_t k = 0; k < MR_COUNT(names); k++) {
        bytes plain;
        if (!plain_file(names[k], &plain) || !decode(names[k], upright, &h, &wide))
            continue;
        // 0 and 9 have no meaning
        for (int o = 0; o <= 9; o++) {
            bytes exif = exif_of(o, o % 2), file;
            file = k == 0   ? png_with(&plain, &exif, o > 4)
                   : k == 1 ? jpeg_with(&plain, &exif)
                            : webp_with(&plain, &exif);
            compare(names[k], &file, upright, o);
        }
    }
    bars_draw(rgb, 77);
    for (int o = 0; o <= 9; o++) {
        bytes file = tiff_with(rgb, o, o % 2);
        compare("turned.tiff", &file, rgb, o);
    }
}

// data that is cut off or has a wrong size is ignored, and nothing after its end is read
static void damaged(void)
{
    const bytes whole = exif_of(6, true);
    CHECK_INT(orientation(whole.at, whole.n), 6);
    for (size_t n = 0; n < 34; n++) {
        uint8_t *part = mr_alloc(n + 1);
        memcpy(part, whole.at, n);
        CHECK_INT(orientation(part, n), 0);
        mr_free(part);
    }
    bytes far = whole, long_ = whole;
    far.at[7] = 0xff, long_.at[8] = 0xff, long_.at[9] = 0xff, long_.at[22] = 0;
    CHECK_INT(orientation(far.at, far.n), 0);
    CHECK_INT(orientation(long_.at, long_.n), 0);
    // a chunk that ends after the file
    bytes chunk = {.n = 0};
    add_int(&chunk, (uint32_t)whole.n, 4, false), add(&chunk, "eXIf", 4);
    add(&chunk, whole.at, whole.n), add_int(&chunk, 0, 4, false);
    CHECK_INT(of_chunks(chunk.at, chunk.n), 6);
    CHECK_INT(of_chunks(chunk.at, chunk.n - 1), 0);
}

// data without nine numbers is no display matrix
static void short_matrix(void)
{
    for (size_t n = MEDIA_MATRIX_BYTES - 1; n <= MEDIA_MATRIX_BYTES; n++) {
        AVFormatContext *file = avformat_alloc_context();
        AVStream *stream = avformat_new_stream(file, NULL);
        CHECK(!media_stream_matrix(stream));
        const int32_t *added = media_stream_add_matrix(stream, n);
        CHECK(added && media_stream_matrix(stream) == (n < MEDIA_MATRIX_BYTES ? NULL : added));
        avformat_free_context(file);
    }
}

int main(void)
{
    if (!CHECK_OK(mr_media_get(&m)) || !CHECK_OK(m->worker_new(&w)))
        return check_done();
    damaged();
    every_orientation();
    short_matrix();
    m->worker_free(w);
    return check_done();
}
