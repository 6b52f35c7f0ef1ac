/* media: reads frames from clip files, and writes them.
 *
 * All code that uses FFmpeg is in the plug-in libmoonreel_media.so, which is opened on first use:
 * the program itself starts without it. Callers reach it through one table of functions,
 * mr_media_get(). Rules and figures: reference dataplane, section 1.
 *
 * A worker is one thread's long-lived workspace (packet, frame, scalers, log ring); each clip gets
 * its own demuxer and codec context, with one codec thread. Pixels are always u8 planar RGB.
 *
 * Threads: a worker or an encoder belongs to one thread at a time; different ones run concurrently.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_MEDIA_H
#define MOONREEL_MEDIA_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why a clip could not be used. Names are those of the quarantine records. */
typedef enum mr_fault {
    MR_FAULT_NONE,
    MR_FAULT_OPEN,     /* cannot be opened, no header, no video stream */
    MR_FAULT_CODEC,    /* no decoder for it, or a profile the decoder lacks */
    MR_FAULT_SHORT,    /* fewer displayable frames than asked for */
    MR_FAULT_CORRUPT,  /* decode errors on a used frame or in its window */
    MR_FAULT_NO_PTS,   /* timestamps missing and counting from the start failed */
    MR_FAULT_SEEK,     /* wanted frames not found, not even from the start */
    MR_FAULT_STALL,    /* deadline or effort bound reached */
    MR_FAULT_IO,       /* the file system failed; not a property of the clip */
    MR_FAULT_STALE,    /* the file has changed since the index was built */
    MR_FAULT_HDR,      /* PQ or HLG transfer: excluded */
    MR_FAULT_GEOMETRY, /* size out of policy */
    MR_FAULT_COUNT
} mr_fault;
MR_API const char *mr_fault_name(mr_fault fault); /* "short"; lent, static */

enum {                     /* mr_clip_info.flags */
       MR_CLIP_VFR = 1,    /* frames are not evenly spaced */
       MR_CLIP_NO_PTS = 2, /* timestamps missing or repeated: read by counting */
       MR_CLIP_INTERLACED = 4,
       MR_CLIP_HDR = 8,
       MR_CLIP_IMAGE = 16, /* one picture */
       MR_CLIP_PART = 32,  /* not the whole file: frames count from first_pts on */
};

/* Facts of a file from its packets and its first frame. Plain data except key_pts. */
typedef struct mr_clip_info {
    int64_t frames;             /* displayable: packets discarded by an edit list do not count */
    int64_t first_pts;          /* of the first displayable frame, in time base units */
    int32_t tb_num, tb_den;     /* time base, seconds */
    int32_t rate_num, rate_den; /* frames per second; 0/1 for an image */
    int64_t duration_ms;
    int32_t coded_width, coded_height;
    int32_t width, height;    /* display: sample aspect ratio and orientation applied */
    int32_t sar_num, sar_den; /* 1/1 when unknown */
    /* 0..7: bit 2 transpose, then bit 0 mirror x, then bit 1 mirror y */
    int32_t orient;
    int32_t reorder; /* frames the decoder must delay */
    uint32_t flags;  /* MR_CLIP_* */
    /* ISO/IEC 23091-2 code points; range 1 limited, 2 full */
    uint8_t matrix, range, transfer, primaries;
    uint64_t bytes;   /* file size */
    int64_t mtime_ns; /* file time */
    char codec[24];
    int32_t n_keys;
    int64_t *key_pts; /* [n_keys] ascending; mr_alloc memory of the owner */
} mr_clip_info;
MR_API void mr_clip_info_fini(mr_clip_info *info); /* frees key_pts */

typedef enum mr_filter {
    MR_FILTER_BILINEAR,
    MR_FILTER_AREA,
    MR_FILTER_BICUBIC,
    MR_FILTER_LANCZOS
} mr_filter;

enum { MR_CLIP_SIDE_MIN = 8 };
/* The largest displayed side: the limit of hot records of an index. */
enum { MR_CLIP_SHOWN_MAX = 65535 };
/* Requested frames of a file, and their size. */
typedef struct mr_clip_request {
    const char *path;
    const mr_clip_info *info; /* from a scan or the index */
    int64_t start;            /* frame_idx of the first frame */
    int32_t step;             /* frames between two wanted ones, >= 1 */
    /* 0; or the distance from the first requested frame to the last: the frames are spread evenly
     * over it, each rounded down to a whole frame, and step is not used */
    int64_t spread;
    int32_t frames; /* number of frames, >= 1 */
    /* of the result, >= MR_CLIP_SIDE_MIN; the largest centred crop of that aspect is scaled */
    int32_t height, width;
    mr_filter filter;
    double deadline_s; /* 0: 60 s */
} mr_clip_request;

/* How to write a clip or a picture. Zero selects a default everywhere. */
typedef struct mr_encode_options {
    int32_t width, height;
    int32_t rate_num, rate_den; /* 24/1 */
    const char
        *codec; /* "h264", "vp9", "vp8", "av1", "hevc", ... or an encoder's name; by container */
    const char *pixel_format; /* "yuv420p" */
    int32_t quality;          /* constant quality, in the encoder's scale; 0: a default */
    int32_t gop;              /* frames between key frames at most; 0: 48 */
    /* written as a display matrix, if the container supports it: as mr_clip_info */
    int32_t orient;
    int32_t sar_num, sar_den;
    const char *matrix; /* "bt709" (default), "bt601", "smpte240m", "bt2020" */
    bool full_range;
    bool untagged;           /* leave colour tags out */
    const char *options;     /* more encoder options, "name=value:name=value" */
    const char *mux_options; /* more container options */
} mr_encode_options;

/* The frame_idx of requested frame i of n, from start, step and spread. */
static inline int64_t mr_clip_frame(int64_t start, int32_t step, int64_t spread, int32_t n,
                                    int32_t i)
{
    return spread && n > 1 ? start + i * spread / (n - 1) : start + (int64_t)i * step;
}

typedef struct mr_media_worker mr_media_worker;
typedef struct mr_encoder mr_encoder;

#define MR_MEDIA_VERSION 3
typedef struct mr_media {
    uint32_t version;

    /* A worker belongs to one thread at a time. Errors: MR_E_MEMORY. */
    mr_status (*worker_new)(mr_media_worker **out);
    void (*worker_free)(mr_media_worker *w);
    /* Last messages of the libraries since the last scan or read began; lent until the next
     * call. */
    const char *(*worker_log)(mr_media_worker *w);

    /* Read every packet of `path`, and the facts of its first frame: for H.264 and HEVC without
     * the picture, so that damage to it is not noticed; `watch` notices it.
     * out      filled on MR_OK only; the caller owns key_pts (mr_clip_info_fini)
     * fault    the class on failure; MR_FAULT_NONE if the file is not the cause
     * Errors:  MR_E_DECODE, MR_E_IO, MR_E_MEMORY; MR_E_STOPPED the user interrupted it */
    mr_status (*scan)(mr_media_worker *w, const char *path, double deadline_s, mr_clip_info *out,
                      mr_fault *fault);

    /* Decode the frames start + i * step of a file, crop, scale and convert them.
     * out      [frames][3][height][width] u8 RGB, host memory; undefined after a failure
     * fault    the class on failure; MR_FAULT_NONE if the file is not the cause
     * Evenly spaced files are read by frame number, VFR files by time (start and step counted in
     * average frame durations), files without timestamps by counting from the start.
     * Errors:  MR_E_RANGE past the end (fault short), MR_E_USAGE, MR_E_DECODE, MR_E_IO,
     *          MR_E_MEMORY; MR_E_STOPPED the user interrupted it
     * Threads: one call per worker at a time */
    mr_status (*read)(mr_media_worker *w, const mr_clip_request *req, uint8_t *out,
                      mr_fault *fault);

    /* Decode all frames of a clip in order and check each for damage. If `change` is NULL, also
     * decode from each key frame and check that the frames are the same.
     * info     from a scan or the index; key frames at which decoding cannot begin are removed from
     *          its list, in place
     * change   [info->frames], or NULL: the mean absolute difference of lightness between a frame
     *          and the previous one, 0 to 255; 0 for the first; undefined after a failure
     * Frames, failures, threads: as read */
    mr_status (*watch)(mr_media_worker *w, const char *path, mr_clip_info *info, double deadline_s,
                       float *change, mr_fault *fault);

    /* Write frames to `path`; the container follows the extension (mp4, mov, webm, mkv, avi, ts,
     * ...; png, jpg: one picture). Equal frames and options make equal bytes with equal libraries.
     * The file appears under its name in encoder_finish; encoder_free before that leaves no file.
     * Errors:  MR_E_UNSUPPORTED no such container or encoder; MR_E_USAGE options; MR_E_IO */
    mr_status (*encoder_open)(const char *path, const mr_encode_options *options, mr_encoder **out);
    /* rgb [3][height][width] u8, borrowed; pts in frame durations, ascending, or -1: the next */
    mr_status (*encoder_frame)(mr_encoder *enc, const uint8_t *rgb, int64_t pts);
    mr_status (*encoder_finish)(mr_encoder *enc);
    void (*encoder_free)(mr_encoder *enc); /* NULL is fine */
} mr_media;

/* The table. The first call opens the plug-in from $MOONREEL_PLUGINS, the program's directory, or
 * ../lib/moonreel relative to it. Lent, for the life of the process.
 * Errors: MR_E_UNSUPPORTED with the places tried. Threads: any. */
MR_API mr_status mr_media_get(const mr_media **out);

/* The same functions, but each worker is a process: a crash or an endless loop of a decoder is a
 * fault of one clip (corrupt, stall), and the next clip gets a new process. Encoders stay in this
 * process. worker_new starts the program again, which runs the worker before its main(). Lent, for
 * the life of the process. Threads: any. */
MR_API const mr_media *mr_media_guarded(void);

/* The plug-in exports this as "mr_media_entry". */
typedef const mr_media *mr_media_entry_fn(void);

#ifdef __cplusplus
}
#endif
#endif
