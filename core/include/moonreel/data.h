/* data: batches of decoded clips.
 *
 * Stream: index -> order (a pure function of index, bucket rule, seed and epoch) -> loader (decode
 * threads, slabs) -> batch. Rules: reference dataplane, sections 4 and 5.
 *
 * Threads: a loader has worker threads of its own and one caller.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_DATA_H
#define MOONREEL_DATA_H

#include "moonreel/blend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys (low halves, ascending) that a quarantine.jsonl excludes from an epoch of the source of this
 * name, whose index has this fp_order. The caller frees them with mr_free. A missing file excludes
 * no key. Errors: MR_E_IO, MR_E_MEMORY */
MR_API mr_status mr_quarantine_excluded(const char *path, mr_hash128 fp_order, const char *source,
                                        uint64_t epoch, uint64_t **keys, uint64_t *n);

/* The same from a text of mr_loader_excluded, for the epoch of that text. Errors: MR_E_FORMAT,
 * MR_E_MEMORY
 */
MR_API mr_status mr_quarantine_keys(const char *text, uint64_t **keys, uint64_t *n);

/* ---- loader ---- */

typedef struct mr_loader_options {
    uint64_t seed;
    int32_t threads;   /* decode workers; 0: one per processor */
    int32_t prefetch;  /* batches decoded ahead; 0: 2 */
    int64_t epochs;    /* end after this many epochs of each source; 0: never */
    const char *state; /* text of mr_loader_state, or NULL: from the start */
    /* text of mr_loader_excluded at that state; NULL: as in the quarantine file */
    const char *excluded;
    const char *quarantine; /* quarantine.jsonl to read and append to; NULL: kept in memory */
    int32_t slot;           /* as of mr_order_options */
    bool carry;             /* likewise */
    double deadline_s;      /* per clip; 0: 60 */
    mr_filter filter;
    bool isolated; /* each worker decodes in a separate process: mr_media_guarded */
    /* lengths of the rule that no sample can enter are skipped, not refused */
    bool allow_empty;
    /* Several ranks share an order: this one is `part` of `parts` (0: alone) and decodes only its
     * own draws. Of every `group` draws (0: `parts`), counted from the start of the loader, each
     * rank has every parts-th. */
    int32_t part, parts, group;
    /* Instead of taking turns in a group, its costliest draw goes to the rank with the least work
     * so far, then the next one. Ref: dataplane 4.5 */
    bool lpt;
    /* nothing is decoded: pixels are undefined, no sample fails */
    bool blind;
    /* only samples of this part, from 1, of sample_parts are decoded: those for which
     * mr_sample_in_part is true; sample_parts 0: all */
    int32_t sample_part, sample_parts;
    int32_t node;        /* NUMA node for slabs, from 1; 0: any */
    int32_t local_ranks; /* ranks that share this host's memory; 0: one */
} mr_loader_options;

/* One micro-batch. Slots n .. size-1 of a short micro-batch, and failed samples, have weight 0 and
 * the pixels of a good sample. */
typedef struct mr_batch {
    uint64_t epoch, draw; /* draw: number in its epoch */
    uint64_t drawn;       /* the epoch for which buckets, starts and captions are drawn */
    int32_t source;       /* number of its source, which its epochs and rows refer to */
    int32_t bucket, size, n;
    mr_bucket shape; /* resolution, frames, height, width */
    bool last;       /* of its epoch */
    bool other;      /* of another rank: only the fields above, ids and keys are set */
    uint8_t *pixels; /* [size][frames][3][height][width] u8 RGB */
    size_t bytes;
    const float *weights;  /* [size] 1 or 0 */
    const uint64_t *ids;   /* [size] rows; of empty slots: those of slot 0 */
    const uint64_t *keys;  /* [size] key_lo */
    const int64_t *starts; /* [size] first frame_idx */
    const float *fps;      /* [size] floor(native fps / interval); 24 unknown, 120 pictures */
    const float *native_fps;
    const int32_t *native_height, *native_width; /* [size] as displayed */
    const char *const *captions;                 /* [size] */
    double wait_s;                               /* how long the caller waited for this batch */
    void *slab;
} mr_batch;

/* Whether a sample belongs to a part of the samples. Each sample is in exactly one part. */
static inline bool mr_sample_in_part(uint64_t key_lo, int32_t part, int32_t parts)
{
    return parts < 2 || (key_lo >> 32) % (uint64_t)parts == (uint64_t)part - 1;
}

typedef struct mr_loader mr_loader;
/* Start decode threads on the indexes of n sources. Takes `rule`, also on failure; keeps references
 * of the indexes. All slabs are allocated and touched here. The output depends on neither threads
 * nor prefetch.
 * Errors: those of mr_order_new and mr_order_restore; MR_E_DATA a length of the rule that no sample
 * can enter (with the reasons); MR_E_MEMORY slabs above a quarter of a rank's share of the memory,
 * with the bucket */
MR_API mr_status mr_loader_new(const mr_source *sources, int32_t n, mr_bucket_rule *rule,
                               const mr_loader_options *options, mr_loader **out);
/* Stops at any moment; batches become invalid. NULL is fine. */
MR_API void mr_loader_free(mr_loader *loader);
/* The next batch, in draw order, valid until it is released; *out NULL after the last epoch. Draws
 * of other ranks come as batches without pixels, so that all ranks have the same position.
 * Errors: MR_E_DATA too many failed samples (dataplane 5), damaged index; MR_E_MEMORY. After any of
 * these all further calls fail. MR_E_STOPPED the user interrupted the wait: the next call
 * continues. MR_E_USAGE this rank has not received the failures of the other ranks in the previous
 * epoch.
 * Threads: one caller at a time */
MR_API mr_status mr_loader_next(mr_loader *loader, const mr_batch **out);
MR_API void mr_loader_release(mr_loader *loader, const mr_batch *batch);
/* Samples that failed here since the last call, as text; and the failures of all other ranks, their
 * texts concatenated. Ranks exchange both when an epoch is over, before the next one is planned,
 * and before a state is saved: then all leave out the same samples. Caller frees with mr_free.
 * Errors: MR_E_FORMAT no such text; MR_E_MEMORY */
MR_API mr_status mr_loader_failures(mr_loader *loader, char **text);
MR_API mr_status mr_loader_agree(mr_loader *loader, const char *others);
/* State after the last batch given out; batches decoded ahead do not count. Caller frees with
 * mr_free. */
MR_API mr_status mr_loader_state(mr_loader *loader, char **text);
/* The samples that the quarantine leaves out in the epoch of that state and in the next one; and,
 * if they are many, the samples that an earlier epoch left over for the epoch of the last saved
 * state. Save it with the state, which has only their number and hash: then a run can continue with
 * a damaged or missing quarantine file. 17 bytes a sample; usually empty. Caller frees with
 * mr_free. */
MR_API mr_status mr_loader_excluded(mr_loader *loader, char **text);
/* Row ids of the next samples, each in its source, without decoding; fewer than n only at the end
 * of the last epoch. */
MR_API mr_status mr_loader_peek(mr_loader *loader, uint64_t *ids, int64_t n, int64_t *got);

/* Facts of the epoch the loader began in, and counters. */
typedef struct mr_loader_facts {
    uint64_t epoch, samples, batches, dropped[MR_DROP_COUNT];
    size_t slab_bytes;
    double pool_s;      /* time to touch the slabs */
    size_t small_bytes; /* bytes without large pages, because the search took too long */
    int32_t slabs, threads;
    uint64_t delivered, failed; /* samples */
    /* batches that were ready when requested, and that were not; pixels of both; ready now */
    uint64_t hits, waits, bytes;
    int32_t ready;
    double wait_s;
} mr_loader_facts;
MR_API mr_loader_facts mr_loader_get_facts(mr_loader *loader);
/* Of one source: its epoch, the size of that epoch, and the samples given out of it. */
typedef struct mr_source_facts {
    const char *name; /* lent */
    uint64_t rows, epoch, samples, batches, delivered;
} mr_source_facts;
MR_API int32_t mr_loader_sources(const mr_loader *loader);
MR_API mr_source_facts mr_loader_source(mr_loader *loader, int32_t source);
MR_API int32_t mr_loader_buckets(const mr_loader *loader);
MR_API mr_bucket mr_loader_bucket(const mr_loader *loader, int32_t bucket, uint64_t *samples);

/* ---- pixels at another size, as Open-Sora makes them ---- */

/* Scale a picture so that it covers a size, with its aspect ratio kept, and crop the centre. The
 * bits equal those of Pillow's bicubic filter, whose support grows when it shrinks a picture.
 *
 * in       [3][height][width] u8
 * out      [3][to_height][to_width] u8
 * Sides are 1 or more. Errors: MR_E_MEMORY. Threads: any. */
MR_API mr_status mr_resize_picture(const uint8_t *in, int64_t height, int64_t width,
                                   int64_t to_height, int64_t to_width, uint8_t *out);
/* The same for a video frame, by bilinear interpolation without antialiasing.
 *
 * out      [3][to_height][to_width] f32, -1..1 */
MR_API void mr_resize_frame(const uint8_t *in, int64_t height, int64_t width, int64_t to_height,
                            int64_t to_width, float *out);

#ifdef __cplusplus
}
#endif
#endif
