/* data, inside: a bucket rule, for one row or many rows at a time.
 * Licence: Apache-2.0 */
#ifndef MR_DATA_BUCKET_H
#define MR_DATA_BUCKET_H

#include "moonreel/bucket.h"

typedef struct bucket_length {
    int32_t frames, batch, first; /* first: bucket number of the first aspect */
    int64_t needs;                /* frames that a clip needs */
    double keep, tries, cost;
    bool pair; /* the recipe sets the probability to try; a reference then draws even if it is 1 */
} bucket_length;

typedef struct bucket_ratio {
    double ratio;
    int32_t aspect;
} bucket_ratio;

typedef struct bucket_resolution {
    const char *name;
    double pixels;
    mr_bucket_aspect *aspects;
    bucket_ratio *ratios; /* low to high */
    int32_t n_aspects, n_ratios, n_lengths;
    bucket_length *lengths; /* long to short */
} bucket_resolution;

/* A draw for a row on its way from the highest resolution down. First it is drawn whether a length
 * is tried, then whether it is kept; a probability of 1 needs no step. */
typedef struct bucket_step {
    uint64_t word, limit; /* purpose of the draw; limit of its 53 bits */
    int32_t yes, no;      /* the next step; negative: BUCKET_END, or bucket_taken of a length */
} bucket_step;
enum { BUCKET_END = -1 };
/* Encode a length as the end of a way by the bucket number of its first aspect, and decode it. */
static inline int32_t bucket_taken(int32_t first)
{
    return -2 - first;
}

/* The place of a bucket in the rule. */
typedef struct bucket_place {
    int32_t resolution, aspect;
    const bucket_length *length;
} bucket_place;

struct mr_bucket_rule {
    mr_arena arena;
    bucket_resolution *resolutions; /* high to low */
    int32_t n, interval, count;
    bool compat;
    mr_reference follows;
    double fps_max; /* of 2.0; 0: none */
    mr_bucket *buckets;
    bucket_place *places; /* [bucket] */
    int64_t *needs;       /* numbers of frames that lengths need, ascending */
    int32_t n_needs;
    /* Clips that reach k of the needs take way k through the lengths, pictures the last way.
     * begins[way][resolution], of n + 1, is the first step of a resolution. */
    bucket_step *steps;
    int32_t *begins;
    uint64_t hash, repeat; /* repeat: number of epochs after which draws repeat; 0: never */
};

/* Whether a clip of `have` frames fits a length. Pictures fit only lengths of 1. */
bool bucket_fits(const bucket_length *l, int64_t have);

/* A cache entry for rows of one size: the first resolution that the size reaches, and its aspect in
 * each resolution (0xffff: not computed yet). All zero: empty. */
enum { BUCKET_SIZE_RESOLUTIONS = 12 };
typedef struct bucket_size {
    uint32_t key; /* 0: none */
    int32_t first;
    uint16_t aspect[BUCKET_SIZE_RESOLUTIONS];
} bucket_size;
/* A hash table of 1 << log entries. */
typedef struct bucket_sizes {
    bucket_size *of;
    int32_t log;
} bucket_sizes;
/* mr_bucket_rule_assign for n <= BUCKET_ROWS rows at a time; the first has row id `row`. `sizes` is
 * the cache of this rule. out[i]: a bucket, or the negative mr_drop of row i. */
enum { BUCKET_ROWS = 256 };
void bucket_assign(const mr_bucket_rule *rule, bucket_sizes sizes, uint64_t seed, uint64_t epoch,
                   uint64_t row, const mr_hot *rows, int32_t n, int32_t *out);
/* The length that takes a sample, tried one by one; NULL if no length does, with the reason.
 * `epoch` is that of draws; `asked` as in mr_bucket_rule_ask, or NULL. */
const bucket_length *bucket_walk(const mr_bucket_rule *rule, uint64_t seed, uint64_t epoch,
                                 uint64_t row, const mr_hot *hot, mr_asked *asked, mr_drop *why);
/* Whether buckets do not depend on draws, so that all epochs are alike. */
bool bucket_is_certain(const mr_bucket_rule *rule);
/* The number of frames of a clip, as lengths of the rule count them. */
int64_t bucket_frames(const mr_bucket_rule *rule, const mr_hot *hot);
/* The purpose of one of our draws, as a word of its hash. */
uint64_t bucket_word(const char *purpose, const bucket_resolution *resolution, int32_t frames);
/* Whether some draw of some epoch can assign this row to a bucket. */
bool bucket_may_take(const mr_bucket_rule *rule, bucket_sizes sizes, const mr_hot *hot,
                     int32_t bucket);

#endif
