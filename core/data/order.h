/* data, inside: an order: it plans epochs and draws micro-batches from them. Licence: Apache-2.0 */
#ifndef MR_DATA_ORDER_H
#define MR_DATA_ORDER_H

#include "data/bucket.h"
#include "data/subset.h"
#include "data/tail.h"

enum { ORDER_STRIDE = 64, ORDER_SIZES_LOG = 10 };
/* Up to this many rows keep their buckets in memory; of more a chunk is looked through for each
 * sample. Specs change it. */
extern uint64_t order_kept_rows;

/* Where an order reads its rows; an index usually. */
typedef struct order_rows {
    /* chunk c of MR_HOT_ROWS, the last one shorter; lent until the next call */
    mr_status (*read)(void *user, uint64_t chunk, const mr_hot **rows, int32_t *n);
    void *user;
    mr_index_facts facts;
    const char *name; /* for errors */
} order_rows;

typedef struct order_cost {
    double cost; /* of a micro-batch */
    int32_t bucket;
} order_cost;

/* An epoch of a reference, which is made of lists; lists.c. */
typedef struct order_lists {
    uint32_t *rows; /* each bucket's one after another, in their order; room for all rows */
    uint64_t room;
    uint64_t *first; /* [bucket] where its rows begin */
    uint16_t *turns; /* [n] bucket of each micro-batch */
    uint64_t n;
    uint64_t left; /* one of the rows that are left out; UINT64_MAX: none is */
} order_lists;

struct mr_order {
    order_rows rows;
    mr_index_reader *reader; /* what `rows` reads; keeps the index */
    const mr_bucket_rule *rule;
    uint64_t seed;
    int32_t slot;
    bool carry;
    uint64_t epochs; /* the number of epochs; the last carries nothing */
    uint64_t chunks, strides;
    uint8_t *counts;   /* [bucket][chunk] what a byte of the count holds */
    uint8_t **above;   /* [bucket][chunk] the byte above it; NULL: none has any */
    uint64_t *prefix;  /* [bucket][stride]: samples before every ORDER_STRIDE-th chunk */
    uint64_t *samples; /* [bucket] */
    order_cost *costs; /* all buckets, cheap to dear */
    int32_t *class_of; /* [bucket] */
    uint64_t dropped[MR_DROP_COUNT];
    uint64_t in_epoch, batches, expected; /* samples, micro-batches, digest of this epoch */
    mr_position at;
    uint64_t *excluded, n_excluded;
    uint64_t *next_excluded, n_next_excluded; /* from the next epoch on, when has_next */
    bool has_next;
    mr_subset *members;
    mr_subset *seen, *next_seen; /* in this epoch; in the one that begins next */
    bucket_sizes sizes;          /* of rows met lately */
    uint16_t *entered;           /* [row] bucket, 0xffff: none; NULL: too many rows to keep */
    order_lists *lists;          /* of this epoch, where the rule follows a reference */
    bool fill, unshuffled;       /* as of mr_order_options */
};

/* Samples of bucket b that this epoch is to draw, those left over by the last one first. */
static inline uint64_t order_total(const mr_order *o, int32_t b)
{
    return o->samples[b] + tail_count(o->at.tail, b);
}
/* What is left of an order's epoch. *out is the caller's, also after a failure. */
mr_status order_left_over(mr_order *o, mr_tail **out);

/* mr_order_new over any rows; what `rows` reads stays the caller's. */
mr_status order_new_of(order_rows rows, const mr_bucket_rule *rule, const mr_order_options *options,
                       mr_order **out);
/* The buckets of n <= BUCKET_ROWS rows from row `id` on in this epoch, or why not, times -1. */
void order_buckets_of(const mr_order *o, uint64_t id, const mr_hot *rows, int32_t n, int32_t *out);
/* The key of a bucket's permutation in this epoch, and the j whose P(j) is p. */
uint64_t order_bucket_key(const mr_order *o, int32_t bucket);
uint64_t order_unpermute(uint64_t key, uint64_t n, uint64_t p);
/* Errors: MR_E_RECIPE, MR_E_DATA an order of a reference that cannot be; MR_E_MEMORY */
mr_status lists_new(mr_order *o);
void lists_free(mr_order *o);
size_t lists_bytes(const mr_order *o);
/* This epoch's lists: samples, micro-batches and what is expected of them follow. */
mr_status lists_plan(mr_order *o);

/* Are all micro-batches of the epoch drawn? How many are not? */
bool order_is_used_up(const mr_order *o);
uint64_t order_rest(const mr_order *o);
/* Does the epoch leave to the next one what is no whole micro-batch? */
bool order_carries(const mr_order *o);
/* Has the next epoch the samples of this one, each in the same bucket? */
bool order_is_alike(const mr_order *o);
/* The next epoch, with what this one leaves over. */
mr_status order_go_on(mr_order *o);
/* Pass over the rest of the epoch and over those behind it while `most` micro-batches hold them
 * whole and there are `epochs` of them (0: no end): as if they were drawn, and none is. It stands
 * at an end or a beginning then. One at most, where not `settled`: who is left out is asked again.
 * *n micro-batches were passed over, of *samples samples.
 * Errors: those of mr_order_next; MR_E_STOPPED */
mr_status order_pass(mr_order *o, uint64_t most, uint64_t epochs, bool settled, uint64_t *n,
                     uint64_t *samples);

#endif
