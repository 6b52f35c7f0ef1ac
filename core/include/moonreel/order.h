/* data: the order of an index's samples.
 *
 * An order is a pure function of index, bucket rule, seed and epoch. It yields micro-batches of row
 * ids. Rules: reference dataplane, section 4.
 *
 * Threads: an order belongs to one thread at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_ORDER_H
#define MOONREEL_ORDER_H

#include "moonreel/bucket.h"

#ifdef __cplusplus
extern "C" {
#endif

/* P(j): the keyed permutation of [0, n) that orders a bucket. Ref: dataplane 4.3; 8-round Feistel
 * network on max(2, ceil(log2 n)) bits with cycle walking. j < n. */
MR_API uint64_t mr_permute(uint64_t key, uint64_t n, uint64_t j);

/* A slot that has begun: remaining draws, 0: no slot; their cost class, -1: mixed, with costs near
 * that of bucket `first`. */
typedef struct mr_slot {
    int32_t left, class, first;
} mr_slot;

/* Samples that several sources have given to a stream. Ref: dataplane 4.10 */
enum { MR_SOURCES_MAX = 32 };
typedef struct mr_blend_shares {
    uint64_t samples;                /* drawn from all sources */
    uint64_t taken[MR_SOURCES_MAX];  /* from each source */
    int64_t deficit[MR_SOURCES_MAX]; /* samples due to each source, 32.32 bits; the sum is 0 */
} mr_blend_shares;

/* Samples that an epoch left over for the next one; see mr_order_options. */
typedef struct mr_tail mr_tail;

typedef struct mr_draw {    /* one micro-batch, as row ids */
    uint64_t epoch, number; /* number: of this draw in its epoch, from 0 */
    int32_t source;         /* of a blend; a single order does not set it and `shares` */
    mr_blend_shares shares; /* after this draw */
    int32_t bucket, n;      /* n <= batch of the bucket: the last one of a bucket may be short */
    bool last;              /* of its epoch */
    uint64_t digest;        /* sum of mix(key_lo) over its samples */
    mr_slot slot;           /* after this draw */
    mr_tail *tail;          /* with which its epoch began; lent by the order until the next draw */
    uint64_t *ids, *keys;   /* [n] row ids and key_lo; in the caller's arrays */
} mr_draw;

typedef struct mr_order_options {
    uint64_t seed;
    /* Micro-batches that are drawn together, with costs within 5 %, so that ranks which share them
     * finish at the same time; 0 or 1: each separately. Ref: dataplane 4.5. If the rule follows a
     * reference: the number of its ranks; an epoch has a multiple of it. */
    int32_t slot;
    mr_subset *members; /* samples of the order; NULL: all; keeps a reference */
    /* Samples of a bucket that do not fill a micro-batch at the end of an epoch come first in the
     * next epoch, instead of in a short micro-batch; except after epoch number `epochs` (0: no
     * exception). Ref: dataplane 4.4 */
    bool carry;
    uint64_t epochs;
    /* If the rule follows a reference, differences from its training order: incomplete batches are
     * filled up from the front instead of left out; nothing is shuffled. */
    bool fill, unshuffled;
} mr_order_options;

typedef struct mr_order mr_order;
/* The order of all micro-batches for (index, rule, seed), at epoch 0. Keeps the index, borrows the
 * rule.
 * Errors: MR_E_DATA if no row enters any bucket, with the rows removed by each rule; MR_E_RECIPE
 * the rule follows a reference, which has no carried samples and no members */
MR_API mr_status mr_order_new(mr_index *index, const mr_bucket_rule *rule,
                              const mr_order_options *options, mr_order **out);
MR_API void mr_order_free(mr_order *order);
/* Largest batch of the rule: the space that ids and keys of a draw need. */
MR_API int32_t mr_order_batch_max(const mr_order *order);
/* Take the next micro-batch; a new epoch is planned when the last one is exhausted.
 * Errors: MR_E_DATA, MR_E_MEMORY; MR_E_INTERNAL if the counts of an epoch do not match */
MR_API mr_status mr_order_next(mr_order *order, mr_draw *draw);
/* Exclude keys (low halves) from the next planned epoch on; copies. */
MR_API mr_status mr_order_exclude(mr_order *order, const uint64_t *keys, uint64_t n);
/* This epoch: drawn samples of bucket b; rows dropped for a reason; number of micro-batches. */
MR_API uint64_t mr_order_samples(const mr_order *order, int32_t bucket);
MR_API uint64_t mr_order_dropped(const mr_order *order, mr_drop why);
MR_API uint64_t mr_order_batches(const mr_order *order);
/* Epoch `epoch` from its beginning. Errors: those of mr_order_next */
MR_API mr_status mr_order_begin(mr_order *order, uint64_t epoch);
/* One of the rows that a reference leaves out because they do not fill a batch; false: no such
 * row. */
MR_API bool mr_order_left_row(const mr_order *order, uint64_t *row);

/* Cost of planning: an order over `rows` synthetic rows, and its first few thousand samples.
 * Errors: those of mr_order_new */
typedef struct mr_order_times {
    double plan_s, select_s; /* processor seconds: for all rows; for one sample */
    size_t bytes;            /* private memory of the plan */
    size_t state_bytes;
    int32_t buckets, used; /* buckets of the rule; those with samples */
} mr_order_times;
MR_API mr_status mr_order_measure(const mr_bucket_rule *rule, uint64_t rows, mr_order_times *out);

#ifdef __cplusplus
}
#endif
#endif
