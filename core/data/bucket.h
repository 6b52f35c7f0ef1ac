/* data, inside: a bucket rule. It answers for one row or for many rows at once.
 * Licence: Apache-2.0 */
#ifndef MR_DATA_BUCKET_H
#define MR_DATA_BUCKET_H

#include "moonreel/bucket.h"

typedef struct bucket_length {
    int32_t frames, batch, first; /* first: bucket number of the first aspect */
    int64_t needs;                /* frames that a clip must have */
    double keep, tries, cost;
    bool pair; /* tries was given, a reference then draws for it whatever it is */
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

/* A draw that a row meets on its way from the highest resolution down. Whether a length is tried
 * comes before whether it keeps; a probability of one to be tried needs no step. */
typedef struct bucket_step {
    uint64_t word, limit; /* purpose of the draw, and what its 53 bits must stay below */
    int32_t yes, no;      /* the next step; below 0: BUCKET_END, or bucket_taken of a length */
} bucket_step;
enum { BUCKET_END = -1 };
/* A length as the end of a way, and back: by the bucket number of its first aspect. */
static inline int32_t bucket_taken(int32_t first)
{
    return -2 - first;
}

/* Where a bucket stands in the rule. */
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
    int64_t *needs;       /* frames that some length needs of a clip, ascending */
    int32_t n_needs;
    /* Clips that reach k of all needs go way k through the lengths, pictures the last one:
     * begins[way][resolution], of n + 1, is the first step from there on. */
    bucket_step *steps;
    int32_t *begins;
    uint64_t hash, repeat; /* repeat: epochs after which draws come again; 0: never */
};

/* Does a clip of `have` frames fit a length? Pictures fit lengths of 1 only. */
bool bucket_fits(const bucket_length *l, int64_t have);

/* What a size decides, kept for rows of the same size: the first resolution that it reaches, and
 * its aspect in each one (0xffff: not asked yet). All zero: of no size. */
enum { BUCKET_SIZE_RESOLUTIONS = 12 };
typedef struct bucket_size {
    uint32_t key; /* 0: none */
    int32_t first;
    uint16_t aspect[BUCKET_SIZE_RESOLUTIONS];
} bucket_size;
/* 1 << log of them, found by hash. */
typedef struct bucket_sizes {
    bucket_size *of;
    int32_t log;
} bucket_sizes;
/* mr_bucket_rule_assign of n <= BUCKET_ROWS rows at once, the first one number `row`, with what was
 * kept of sizes under the same rule. out[i]: a bucket, or the mr_drop of row i times -1. */
enum { BUCKET_ROWS = 256 };
void bucket_assign(const mr_bucket_rule *rule, bucket_sizes sizes, uint64_t seed, uint64_t epoch,
                   uint64_t row, const mr_hot *rows, int32_t n, int32_t *out);
/* The length that takes one sample, asked one by one; NULL and why: none. `epoch` is that of draws;
 * asked as of mr_bucket_rule_ask, or NULL. */
const bucket_length *bucket_walk(const mr_bucket_rule *rule, uint64_t seed, uint64_t epoch,
                                 uint64_t row, const mr_hot *hot, mr_asked *asked, mr_drop *why);
/* Does no draw decide who enters which bucket, so that all epochs are alike? */
bool bucket_is_certain(const mr_bucket_rule *rule);
/* Frames of a clip as lengths of the rule count them. */
int64_t bucket_frames(const mr_bucket_rule *rule, const mr_hot *hot);
/* What a draw of our own is for, as a word of its hash. */
uint64_t bucket_word(const char *purpose, const bucket_resolution *resolution, int32_t frames);
/* Could some draw of some epoch lead this row to a bucket? */
bool bucket_may_take(const mr_bucket_rule *rule, bucket_sizes sizes, const mr_hot *hot,
                     int32_t bucket);

#endif
