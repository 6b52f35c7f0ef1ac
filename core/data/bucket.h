/* data: the inside of a bucket rule. Licence: Apache-2.0 */
#ifndef MR_DATA_BUCKET_H
#define MR_DATA_BUCKET_H

#include "data/data.h"

typedef struct bucket_length {
    int32_t frames, batch, first; /* first: bucket number of the first aspect */
    double keep, tries;
    uint64_t try_word, keep_word; /* purposes of the two draws */
} bucket_length;

typedef struct bucket_resolution {
    const char *name;
    double pixels;
    mr_bucket_aspect *aspects;
    int32_t n_aspects, n_lengths;
    bucket_length *lengths; /* long to short */
} bucket_resolution;

struct mr_bucket_rule {
    mr_arena arena;
    bucket_resolution *resolutions; /* high to low */
    int32_t n, interval, count;
    bool compat;
    mr_bucket *buckets;
    uint64_t hash;
};

/* Does a clip of `have` frames fit a length? Pictures fit lengths of 1 only. */
bool bucket_fits(const mr_bucket_rule *r, const bucket_length *l, int64_t have);

#endif
