/* data: the inside of an order. Licence: Apache-2.0 */
#ifndef MR_DATA_ORDER_H
#define MR_DATA_ORDER_H

#include "data/data.h"

#include <stdio.h>

enum { ORDER_STRIDE = 64, ORDER_CACHE = 64 };

struct mr_order {
    mr_index *index;
    mr_index_reader *reader;
    const mr_bucket_rule *rule;
    uint64_t seed;
    mr_index_facts facts;
    uint64_t chunks, strides;
    uint16_t *counts;  /* [bucket][chunk] */
    uint64_t *prefix;  /* [bucket][stride]: samples before every ORDER_STRIDE-th chunk */
    uint64_t *samples; /* [bucket] */
    uint64_t dropped[MR_DROP_COUNT];
    uint64_t in_epoch, batches, expected; /* samples, micro-batches, digest of this epoch */
    mr_position at;
    uint64_t *excluded, n_excluded;
    uint64_t *next_excluded, n_next_excluded; /* from the next epoch on, when has_next */
    bool has_next;
    uint16_t (*cache)[MR_HOT_ROWS]; /* evaluated chunks, by chunk % ORDER_CACHE */
    uint64_t cached[ORDER_CACHE];
    int32_t known[ORDER_CACHE]; /* rows of it whose bucket is there */
};

/* Plan `epoch` from its beginning. */
mr_status order_begin_epoch(mr_order *o, uint64_t epoch);

/* MR_E_DATA when a length of the rule can get no sample, whatever the draws; cover.c. */
mr_status order_check_cover(mr_order *o);

#endif
