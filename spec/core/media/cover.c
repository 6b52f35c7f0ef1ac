/* media/clip: the cover picture of a song is no clip, and that of a clip is not taken for it.
 * Covers: core/media/clip.c */
#include "check.h"
#include "clips.h"

#include <libavformat/avformat.h>

static const mr_media *m;
static mr_media_worker *w;

static size_t append(uint8_t *to, size_t at, const void *data, size_t n)
{
    memcpy(to + at, data, n);
    return at + n;
}

static size_t append_int(uint8_t *to, size_t at, size_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[at + (size_t)i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
    return at + (size_t)bytes;
}

// MP3 of silence after an ID3 tag with a cover picture
static size_t song_with_cover(uint8_t *to, const char *png, size_t bytes)
{
    const size_t frame = 14 + bytes;
    size_t n = append(to, 0, "ID3\3\0\0", 6);
    for (int i = 3; i >= 0; i--)
        to[n++] = (uint8_t)((frame + 10) >> 7 * i & 127);
    n = append(to, n, "APIC", 4), n = append_int(to, n, frame, 4), n = append_int(to, n, 0, 2);
    n = append(to, n, "\0image/png\0\3\0", 14), n = append(to, n, png, bytes);
    for (int i = 0; i < 40; i++, n += 417 - 4) {
        n = append(to, n, "\xff\xfb\x90\x00", 4);
        memset(to + n, 0, 417 - 4);
    }
    return n;
}

// The atom moov of an MP4 is its last one. A cover comes first in it, and the track of the clip is
// not a default, so that only its kind distinguishes the clip from the cover.
static size_t clip_with_cover(uint8_t *to, const char *mp4, size_t bytes, const char *png,
                              size_t pic)
{
    static const char *const atoms[] = {"udta", "meta", "ilst", "covr", "data"};
    static const char handler[] = "\0\0\0\x21hdlr\0\0\0\0\0\0\0\0mdirappl\0\0\0\0\0\0\0\0\0\0";
    // the atoms that each contains: the ones after it, and meta a handler
    const size_t holds[] = {77 + pic, 69 + pic, 24 + pic, 16 + pic, 8 + pic};
    size_t moov = bytes, track;
    while (moov > 4 && memcmp(mp4 + moov - 4, "moov", 4))
        moov--;
    size_t n = append(to, 0, mp4, moov);
    for (int i = 0; i < 5; i++) {
        n = append_int(to, n, holds[i] + 8, 4), n = append(to, n, atoms[i], 4);
        if (i == 1)
            n = append_int(to, n, 0, 4), n = append(to, n, handler, 33);
    }
    n = append_int(to, n, 14, 4), n = append_int(to, n, 0, 4), n = append(to, n, png, pic);
    track = n;
    n = append(to, n, mp4 + moov, bytes - moov);
    append_int(to, moov - 8, n - (moov - 8), 4);
    while (memcmp(to + track, "tkhd", 4))
        track++;
    append_int(to, track + 5, 2, 3);
    return n;
}

// a clip of `frames` frames with a cover picture in front of them
static void covered(int frames, const char *png, size_t pic)
{
    static uint8_t file[1 << 18], rgb[BAR_BYTES];
    char *mp4;
    size_t bytes;
    mr_clip_info info;
    mr_fault fault;
    AVFormatContext *demux = NULL;
    const mr_encode_options o = {
        .gop = 12, .mux_options = "movflags=frag_keyframe+empty_moov+default_base_moof"};
    if (!CHECK_OK(bars_write(m, clips_path("bare.mp4"), o, frames, NULL)) ||
        !CHECK_OK(mr_file_read_all(clips_path("bare.mp4"), &mp4, &bytes)) ||
        !CHECK(pic + bytes + 200 < sizeof file))
        return;
    CHECK_OK(mr_file_replace(clips_path("covered.mp4"), file,
                             clip_with_cover(file, mp4, bytes, png, pic)));
    mr_free(mp4);
    if (CHECK(avformat_open_input(&demux, clips_path("covered.mp4"), NULL, NULL) == 0)) {
        CHECK_INT(demux->nb_streams, 2);
        CHECK(demux->streams[0]->disposition & AV_DISPOSITION_ATTACHED_PIC);
        avformat_close_input(&demux);
    }
    if (!CHECK_OK(m->scan(w, clips_path("covered.mp4"), 0, &info, &fault)))
        return;
    CHECK_INT(info.frames, frames);
    CHECK_STR(info.codec, "h264");
    mr_clip_request q = {.path = clips_path("covered.mp4"),
                         .info = &info,
                         .start = frames / 2,
                         .step = 1,
                         .frames = 1,
                         .height = BAR_H,
                         .width = BAR_W};
    CHECK_OK(m->read(w, &q, rgb, &fault));
    CHECK_INT(bars_read(rgb, BAR_H, BAR_W), frames / 2);
    mr_clip_info_fini(&info);
}

// a cover picture is no clip, neither alone nor next to one
static void covers(void)
{
    static uint8_t file[1 << 16];
    char *png;
    size_t pic;
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(mr_file_read_all(clips_path("still.png"), &png, &pic)) ||
        !CHECK(pic + 20000 < sizeof file))
        return;
    CHECK_OK(mr_file_replace(clips_path("song.mp4"), file, song_with_cover(file, png, pic)));
    CHECK_FAILS(m->scan(w, clips_path("song.mp4"), 0, &info, &fault), MR_E_DECODE,
                "song.mp4: open: cannot find a video stream in it other than its cover picture");
    CHECK_INT(fault, MR_FAULT_OPEN);
    covered(60, png, pic);
    covered(1, png, pic);
    mr_free(png);
}

int main(void)
{
    if (!CHECK_OK(mr_media_get(&m)) || !CHECK_OK(m->worker_new(&w)) ||
        !CHECK_OK(bars_write(m, clips_path("still.png"), (mr_encode_options){0}, 1, NULL)))
        return check_done();
    covers();
    m->worker_free(w);
    return check_done();
}
