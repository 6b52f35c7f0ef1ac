/* data: the order of an index's samples.
 *
 * An order is a pure function of index, bucket rule, seed and epoch; it gives micro-batches as row
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

/* A slot that is begun: draws that are left in it, 0: none; their class of cost, -1: mixed, near to
 * that of the first bucket. */
typedef struct mr_slot {
    int32_t left, class, first;
} mr_slot;

/* What several sources had of a stream. Ref: dataplane 4.10 */
enum { MR_SOURCES_MAX = 32 };
typedef struct mr_blend_shares {
    uint64_t samples;                /* drawn of all */
    uint64_t taken[MR_SOURCES_MAX];  /* of each */
    int64_t deficit[MR_SOURCES_MAX]; /* samples that are due to each, 32.32 bits; 0 in sum */
} mr_blend_shares;

/* What an epoch left over for the next one; see mr_order_options. */
typedef struct mr_tail mr_tail;

typedef struct mr_draw {    /* one micro-batch, as row ids */
    uint64_t epoch, number; /* number: of this draw in its epoch, from 0 */
    int32_t source;         /* of a blend; an order by itself leaves it and `shares` alone */
    mr_blend_shares shares; /* behind it */
    int32_t bucket, n;      /* n <= batch of the bucket: the last one of a bucket may be short */
    bool last;              /* of its epoch */
    uint64_t digest;        /* sum of mix(key_lo) over its samples */
    mr_slot slot;           /* behind it */
    mr_tail *tail;          /* that its epoch began with; lent by the order until the next draw */
    uint64_t *ids, *keys;   /* [n] row ids and key_lo; in the caller's arrays */
} mr_draw;

typedef struct mr_order_options {
    uint64_t seed;
    /* Micro-batches that are drawn together, of costs within 5 %, so that ranks which share them
     * end at the same time; 0 or 1: each by itself. Ref: dataplane 4.5. Where the rule follows a
     * reference: its ranks, an epoch has a multiple of them. */
    int32_t slot;
    mr_subset *members; /* samples that it is of; NULL: all; keeps a reference */
    /* What is left of a bucket at an epoch's end and is no whole micro-batch comes first in the
     * next epoch, instead of in a short one; not at the end of epoch number `epochs` (0: never).
     * Ref: dataplane 4.4 */
    bool carry;
    uint64_t epochs;
    /* Where the rule follows a reference, not as it trains: what is no whole batch is filled up
     * from the front instead of left out; nothing is shuffled. */
    bool fill, unshuffled;
} mr_order_options;

typedef struct mr_order mr_order;
/* The order of all micro-batches for (index, rule, seed), at epoch 0. Keeps the index, borrows the
 * rule.
 * Errors: MR_E_DATA when no row enters any bucket, with the rows removed by each rule; MR_E_RECIPE
 * the rule follows a reference, which knows no carried samples and no members */
MR_API mr_status mr_order_new(mr_index *index, const mr_bucket_rule *rule,
                              const mr_order_options *options, mr_order **out);
MR_API void mr_order_free(mr_order *order);
/* Largest batch of the rule: the room that ids and keys of a draw need. */
MR_API int32_t mr_order_batch_max(const mr_order *order);
/* Take the next micro-batch; a new epoch is planned when the last one is used up.
 * Errors: MR_E_DATA, MR_E_MEMORY; MR_E_INTERNAL when an epoch's accounts do not match */
MR_API mr_status mr_order_next(mr_order *order, mr_draw *draw);
/* Keys (low halves) left out from the next planned epoch on; copies. */
MR_API mr_status mr_order_exclude(mr_order *order, const uint64_t *keys, uint64_t n);
/* This epoch: samples of bucket b that are drawn; rows dropped for a reason; micro-batches in all.
 */
MR_API uint64_t mr_order_samples(const mr_order *order, int32_t bucket);
MR_API uint64_t mr_order_dropped(const mr_order *order, mr_drop why);
MR_API uint64_t mr_order_batches(const mr_order *order);
/* Epoch `epoch` from its beginning. Errors: those of mr_order_next */
MR_API mr_status mr_order_begin(mr_order *order, uint64_t epoch);
/* One of the rows that a reference leaves out because they make no whole batch; false: none. */
MR_API bool mr_order_left_row(const mr_order *order, uint64_t *row);

/* What planning takes: an order over `rows` made-up rows, and its first some thousand samples.
 * Errors: those of mr_order_new */
typedef struct mr_order_times {
    double plan_s, select_s; /* of a processor: all rows; one sample */
    size_t bytes;            /* private memory of the plan */
    size_t state_bytes;
    int32_t buckets, used; /* of the rule; with samples */
} mr_order_times;
MR_API mr_status mr_order_measure(const mr_bucket_rule *rule, uint64_t rows, mr_order_times *out);

#ifdef __cplusplus
}
#endif
#endif
