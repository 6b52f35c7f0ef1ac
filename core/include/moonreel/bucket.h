/* data: the bucket of a sample, and the frames that it takes from its clip.
 *
 * A bucket rule is a pure function of the sample's key, a seed and an epoch. Rules: reference
 * dataplane, section 4.
 *
 * Threads: any number of threads may share a finished bucket rule.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_BUCKET_H
#define MOONREEL_BUCKET_H

#include "moonreel/subset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A bucket contains samples of one (frames, height, width). The rule decides which bucket a sample
 * enters: resolutions from high to low, lengths from long to short, with probabilities drawn from
 * the sample's key. Ref: Open-Sora 1.2 bucket assignment, with U(purpose, key) instead of a
 * generator seeded by row number. */
typedef struct mr_bucket_length {
    int32_t frames;
    double keep;   /* probability of entering if it fits */
    double tries;  /* probability of being considered; NaN: not given, which is 1 */
    int32_t batch; /* samples of a micro-batch; 0 only with keep 0 */
    double cost;   /* of a micro-batch, in any unit; 0: its pixels */
} mr_bucket_length;
/* ratio = height / width */
typedef struct mr_bucket_aspect {
    double ratio;
    int32_t height, width;
} mr_bucket_aspect;
typedef struct mr_bucket_resolution {
    const char *name;
    double pixels; /* samples below 0.8 of this do not enter */
    const mr_bucket_aspect *aspects;
    int32_t n_aspects;
    const mr_bucket_length *lengths;
    int32_t n_lengths;
} mr_bucket_resolution;

typedef struct mr_bucket {
    const char *resolution;
    int32_t frames, height, width, batch;
    double cost; /* of a micro-batch */
} mr_bucket;

/* Why a sample is in no bucket in an epoch. */
typedef enum mr_drop {
    MR_DROP_NONE,
    MR_DROP_SMALL,
    MR_DROP_SHORT,
    MR_DROP_IMAGE,
    MR_DROP_CHANCE,
    MR_DROP_QUARANTINE,
    MR_DROP_SEEN,    /* trained in this epoch before data or rule changed */
    MR_DROP_OUTSIDE, /* not a sample of the source */
    MR_DROP_LEFT,    /* in an incomplete batch, if the reference drops those */
    MR_DROP_COUNT
} mr_drop;
MR_API const char *mr_drop_text(
    mr_drop why); /* "below 0.8 of the pixels of every resolution", ...; lent, static */

typedef struct mr_bucket_rule mr_bucket_rule;
/* interval    distance between two used frames: a clip of N frames needs (N-1)*interval+1
 * compat      as Open-Sora 1.2: it needs more than N*interval, and frames are selected as there
 * Errors: MR_E_RECIPE for an empty or contradicting rule, MR_E_MEMORY. Copies everything. */
MR_API mr_status mr_bucket_rule_new(const mr_bucket_resolution *resolutions, int32_t n,
                                    int32_t interval, bool compat, mr_bucket_rule **out);
MR_API void mr_bucket_rule_free(mr_bucket_rule *rule);
MR_API int32_t mr_bucket_rule_count(const mr_bucket_rule *rule);
MR_API mr_bucket mr_bucket_rule_get(const mr_bucket_rule *rule, int32_t bucket);
/* From epoch `epochs` on draws repeat: bucket, start and caption of a sample in epoch e are those
 * of epoch mr_bucket_rule_draws, which is e modulo epochs. 0, the default: they never repeat. Call
 * this before the rule is used. */
MR_API void mr_bucket_rule_repeat(mr_bucket_rule *rule, uint64_t epochs);
MR_API uint64_t mr_bucket_rule_draws(const mr_bucket_rule *rule, uint64_t epoch);
/* Hash of everything except batch sizes and costs; members: samples of an order, NULL: all. */
MR_API uint64_t mr_bucket_rule_hash_of(const mr_bucket_rule *rule, const mr_subset *members);
/* The bucket of a sample in an epoch, or -1 with the reason. `row` is its row id, which is used
 * only if the rule follows a reference. Threads: any. */
MR_API int32_t mr_bucket_rule_assign(const mr_bucket_rule *rule, uint64_t seed, uint64_t epoch,
                                     uint64_t row, const mr_hot *hot, mr_drop *why);

/* Follow a reference exactly in assignment and order of batches, including its random generators:
 * Open-Sora 1.2 or 2.0 in training. Orders of such a rule have the reference's epochs: they leave
 * out incomplete batches, and the last batches if these are fewer than the ranks. Call this before
 * the rule is used.
 *
 * fps_max  2.0: the largest frame rate, to which faster clips are reduced; 0: no limit
 * Errors: MR_E_RECIPE a pair of probabilities for pictures */
typedef enum mr_reference { MR_REFERENCE_NONE, MR_REFERENCE_12, MR_REFERENCE_20 } mr_reference;
MR_API mr_status mr_bucket_rule_follow(mr_bucket_rule *rule, mr_reference reference,
                                       double fps_max);
MR_API mr_reference mr_bucket_rule_follows(const mr_bucket_rule *rule);
/* The interval between the frames of a sample, in frames of a clip of that rate (0: unknown). */
MR_API int32_t mr_bucket_rule_interval(const mr_bucket_rule *rule, uint32_t fps_milli);

/* The decision of each length of the rule for a sample, in the order of the decisions. */
typedef enum mr_said {
    MR_SAID_NOTHING, /* not considered: a longer one did not keep it, or an earlier one took it */
    MR_SAID_SMALL,
    MR_SAID_UNFIT, /* too short, or a picture */
    MR_SAID_NOT_TRIED,
    MR_SAID_NOT_KEPT,
    MR_SAID_TAKES
} mr_said;
typedef struct mr_asked {
    const char *resolution; /* lent by the rule */
    int32_t frames;
    double keep, tries;
    mr_said said;
    int32_t n_draws;
    double draws[2]; /* in 0..1 */
} mr_asked;
MR_API int32_t mr_bucket_rule_lengths(const mr_bucket_rule *rule);
/* asked    [mr_bucket_rule_lengths(rule)] */
MR_API void mr_bucket_rule_ask(const mr_bucket_rule *rule, uint64_t seed, uint64_t epoch,
                               uint64_t row, const mr_hot *hot, mr_asked *asked);

/* The frames that a sample takes from a clip with `have` frames. The first frame is between 0 and
 * starts - 1; mr_clip_frame returns the others. A sample takes every interval-th frame. Under
 * compat, and if the rule follows a reference, its frames are spread over frames * interval frames
 * as in Open-Sora, and the last possible start is not used. */
typedef struct mr_crop {
    int64_t starts; /* >= 1 */
    int32_t frames, step;
    int64_t spread; /* as of mr_clip_request */
} mr_crop;
MR_API mr_crop mr_bucket_rule_crop(const mr_bucket_rule *rule, int32_t frames, int64_t have,
                                   int32_t interval);
MR_API int64_t mr_crop_frame(const mr_crop *crop, int64_t start, int32_t i);

#ifdef __cplusplus
}
#endif
#endif
