/* media, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_MEDIA_ROOM_H
#define MR_MEDIA_ROOM_H

#include "moonreel/media.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>

/* ---- file.c: AVIO over the I/O table ---- */

typedef struct media_file {
    int fd;
    int64_t at, size;
    int err;             /* errno of a failed system call, or 0 */
    int64_t deadline_ns; /* reads fail after this time of the monotonic clock; 0: never */
    bool stopped;        /* interrupted by Ctrl-C: the outcome is no error of the file */
    bool writes;
} media_file;

/* Open `path` and wrap it. media_file_close frees *io and closes the descriptor. */
mr_status media_file_open(media_file *f, const char *path, bool writes, AVIOContext **io);
/* Whether work on the file must end: the deadline has passed, or Ctrl-C, which sets f->stopped. */
bool media_file_over(media_file *f);
/* Returns errno of the first failure, or 0. */
int media_file_close(media_file *f, AVIOContext **io);

/* ---- log.c: library messages of this thread ---- */

void media_log_install(void); /* call once; then the libraries print nothing */
void media_log_clear(void);
const char *media_log_text(void); /* the last lines, joined by "; "; lent, per thread */

/* ---- orient.c: eight orientations ---- */

/* orient: bit 2: transpose the stored picture; then bit 0: mirror x; then bit 1: mirror y. */
int media_orient_of_matrix(const int32_t matrix[9]);
int media_orient_of_exif(int orientation);
void media_orient_to_matrix(int orient, int32_t matrix[9]);
/* copy src [3][sh][sw] to dst [3][h][w]; (h, w) is (sw, sh) for transposing orientations */
void media_orient_apply(int orient, const uint8_t *src, int sh, int sw, uint8_t *dst);
enum { MEDIA_MATRIX_BYTES = 9 * sizeof(int32_t) };
/* The display matrix of a stream; NULL if it has no complete one; lent. */
const int32_t *media_stream_matrix(const AVStream *st);
/* Add an uninitialized one; NULL when out of memory. */
int32_t *media_stream_add_matrix(AVStream *st, size_t bytes);

/* ---- exif.c ---- */

/* The EXIF orientation, 1 to 8, in the first packet of a picture whose decoder does not report it;
 * 0: none. */
int media_exif_orientation(const AVCodecParameters *of, const AVPacket *packet);

/* ---- colour.c ---- */

/* Set matrix and range of the YUV side of `sws`; the RGB side is full range. to_rgb: the source is
 * YUV. */
void media_colour_set(struct SwsContext *sws, int matrix, bool full_range, bool to_rgb);
/* The matrix of a frame: its tag, or the default of the codec or of the size. */
int media_colour_matrix(const AVFrame *frame, enum AVCodecID codec, int coded_height);
bool media_colour_full(const AVFrame *frame);

/* ---- clip.c: an opened file with its decoder ---- */

typedef struct media_clip {
    const char *path;
    media_file file;
    AVIOContext *io;
    AVFormatContext *demux;
    AVCodecContext *codec;
    AVStream *stream;
    bool keeps_no_index; /* GIF and APNG: frames depend on all earlier ones */
} media_clip;

/* Open `path`, choose the best video stream, and open its decoder (reorder: its delay in frames,
 * -1: unknown). Call media_clip_close even after a failure. */
mr_status media_clip_open(media_clip *c, const char *path, double deadline_s, int reorder,
                          mr_fault *fault);
void media_clip_close(media_clip *c);
/* Report a failure of FFmpeg while reading or decoding as an error record and a fault class; after
 * Ctrl-C as MR_E_STOPPED without a class. */
mr_status media_clip_fail(media_clip *c, mr_fault fault, int err, const char *verb, mr_fault *out);
/* Read the next packet of the video stream: 1; 0 at the end; negative AVERROR. */
int media_clip_packet(media_clip *c, AVPacket *packet);

/* ---- units.c: the units of an H.264 or HEVC packet ---- */

typedef struct media_units {
    const AVPacket *packet;
    bool hevc;
    int prefix;          /* bytes of the length prefix of a unit; 0: units follow start codes */
    int at, bytes, type; /* of the unit, in the packet; after a start code it extends to the end of
                          * the packet */
    bool is_slice;
} media_units;
media_units media_units_of(const AVCodecParameters *of, const AVPacket *packet);
bool media_unit_next(media_units *u); /* false: no further unit, or the rest is damaged */

/* ---- begin.c: whether a decoder can start with a packet ---- */

typedef enum media_start {
    MEDIA_UNSURE, /* unknown codec, or the packet has no picture */
    MEDIA_BEGINS,
    MEDIA_BUILDS, /* it depends on earlier frames */
} media_start;
media_start media_packet_start(const AVCodecParameters *of, const AVPacket *packet);
/* Whether decoders of the codec return wrong frames before a packet with which decoding can
 * start. */
bool media_needs_start(enum AVCodecID codec);
/* Whether the decoder reports that the first frame depends on earlier ones. */
bool media_frame_builds(enum AVCodecID codec, const AVFrame *f);
/* Whether frames of the codec never depend on others. */
bool media_stands_alone(enum AVCodecID codec);
/* Whether only decoded pictures show if decoding can start at a frame. */
bool media_keys_unknown(enum AVCodecID codec);

/* ---- prints.c: fingerprints of the frames of a decode ---- */

typedef struct media_print {
    int64_t pts; /* first member, so that a list can be searched by time */
    uint64_t print;
} media_print;
typedef struct media_prints {
    media_print *of; /* in order of time */
    int64_t n, cap;
} media_prints;
mr_status media_prints_add(media_prints *p, int64_t pts, const AVFrame *f);
/* Whether the frame equals the one of that time; true if no frame has that time. */
bool media_prints_has(const media_prints *p, int64_t pts, const AVFrame *f);
int media_ascending(const void *a, const void *b); /* of int64_t, for qsort and bsearch */

/* ---- first.c: the facts of a frame without its pixels ---- */

/* Shorten a packet to the part from which a decoder gets the facts of its frame; the decoder must
 * tolerate the missing rest. False: the packet is unchanged, and the decoder needs all of it. */
bool media_packet_shorten(const AVCodecParameters *of, AVPacket *packet);

/* ---- scale.c: crop, scale, convert ---- */

enum { MEDIA_SCALERS = 6, MEDIA_SIDE_MAX = 8192 };

typedef struct media_scaler {
    int src_w, src_h, src_format, matrix, full, dst_w, dst_h, dst_format, filter;
    struct SwsContext *sws;
} media_scaler;

struct mr_media_worker {
    AVPacket *packet;
    AVFrame *frame, *held;
    media_scaler scalers[MEDIA_SCALERS];
    unsigned next_scaler;
    uint8_t *turn; /* scratch for transposed or mirrored pictures */
    size_t turn_bytes;
    uint8_t *small; /* two small grey pictures of the largest size */
    unsigned small_n;
};

/* Convert a frame to out [3][height][width]: the largest centred rectangle with the target's
 * display aspect. */
mr_status media_scale(mr_media_worker *w, const AVFrame *frame, enum AVCodecID codec,
                      AVRational sar, int orient, mr_filter filter, int height, int width,
                      uint8_t *out);

/* ---- change.c: how much a picture changes ---- */

/* The mean absolute difference of lightness, 0 to 255, between a frame and the previous one; 0 for
 * the first.
 * Errors: MR_E_DECODE, MR_E_MEMORY */
mr_status media_change(mr_media_worker *w, const AVFrame *frame, bool first, float *change);
/* A scaler of the worker with the parameters of `want` (its `sws` is ignored); lent. NULL: FFmpeg
 * has none. */
struct SwsContext *media_scaler_get(mr_media_worker *w, const media_scaler *want);

/* ---- functions of the table ---- */

mr_status media_worker_new(mr_media_worker **out);
void media_worker_free(mr_media_worker *w);
const char *media_worker_log(mr_media_worker *w);
mr_status media_scan(mr_media_worker *w, const char *path, double deadline_s, mr_clip_info *out,
                     mr_fault *fault);
mr_status media_read(mr_media_worker *w, const mr_clip_request *req, uint8_t *out, mr_fault *fault);
mr_status media_watch(mr_media_worker *w, const char *path, mr_clip_info *info, double deadline_s,
                      float *change, mr_fault *fault);
mr_status media_encoder_open(const char *path, const mr_encode_options *options, mr_encoder **out);
mr_status media_encoder_frame(mr_encoder *enc, const uint8_t *rgb, int64_t pts);
mr_status media_encoder_finish(mr_encoder *enc);
void media_encoder_free(mr_encoder *enc);

#endif
