/* data, inside: an order: it plans epochs and draws micro-batches from them. Licence: Apache-2.0 */
#ifndef MR_DATA_ORDER_H
#define MR_DATA_ORDER_H

#include "data/bucket.h"
#include "data/subset.h"
#include "data/tail.h"

enum { ORDER_STRIDE = 64, ORDER_SIZES_LOG = 10 };
/* With up to this many rows, the bucket of each row is kept in memory; with more, a chunk is
 * searched for each sample. Specs change it. */
extern uint64_t order_kept_rows;

/* The source of rows of an order, usually an index. */
typedef struct order_rows {
    /* chunk c of MR_HOT_ROWS rows (the last is shorter); lent until the next call */
    mr_status (*read)(void *user, uint64_t chunk, const mr_hot **rows, int32_t *n);
    void *user;
    mr_index_facts facts;
    const char *name; /* for errors */
} order_rows;

typedef struct order_cost {
    double cost; /* of a micro-batch */
    int32_t bucket;
} order_cost;

/* An epoch in the order of a reference, as lists; lists.c. */
typedef struct order_lists {
    uint32_t *rows; /* row ids by bucket, in order; room for all rows */
    uint64_t room;
    uint64_t *first; /* [bucket] index of its first row */
    uint16_t *turns; /* [n] bucket of each micro-batch */
    uint64_t n;
    uint64_t left; /* a row that is dropped; UINT64_MAX: no row is */
} order_lists;

struct mr_order {
    order_rows rows;
    mr_index_reader *reader; /* the reader behind `rows`; holds the index */
    const mr_bucket_rule *rule;
    uint64_t seed;
    int32_t slot;
    bool carry;
    uint64_t epochs; /* the number of epochs; the last carries nothing */
    uint64_t chunks, strides;
    uint8_t *counts;   /* [bucket][chunk] low byte of the count */
    uint8_t **above;   /* [bucket][chunk] high byte; NULL: all are zero */
    uint64_t *prefix;  /* [bucket][stride]: samples before every ORDER_STRIDE-th chunk */
    uint64_t *samples; /* [bucket] */
    order_cost *costs; /* all buckets by cost, ascending */
    int32_t *class_of; /* [bucket] */
    uint64_t dropped[MR_DROP_COUNT];
    uint64_t in_epoch, batches, expected; /* samples, micro-batches, digest of this epoch */
    mr_position at;
    uint64_t *excluded, n_excluded;
    uint64_t *next_excluded, n_next_excluded; /* excluded from the next epoch on, if has_next */
    bool has_next;
    mr_subset *members;
    mr_subset *seen, *next_seen; /* trained before a change: in this epoch; in the next one */
    bucket_sizes sizes;          /* cache of sizes */
    uint16_t *entered;           /* [row] bucket, 0xffff: no bucket; NULL: too many rows to keep */
    order_lists *lists;          /* of this epoch, if the rule follows a reference */
    bool fill, unshuffled;       /* as of mr_order_options */
};

/* The number of samples of bucket b that this epoch draws, including those left over by the
 * previous one. */
static inline uint64_t order_total(const mr_order *o, int32_t b)
{
    return o->samples[b] + tail_count(o->at.tail, b);
}
/* The samples that remain of the epoch. The caller owns *out, even after a failure. */
mr_status order_left_over(mr_order *o, mr_tail **out);

/* mr_order_new over any rows; the caller owns what `rows` reads. */
mr_status order_new_of(order_rows rows, const mr_bucket_rule *rule, const mr_order_options *options,
                       mr_order **out);
/* The buckets of n <= BUCKET_ROWS rows from row `id` on in this epoch, or the negative reason. */
void order_buckets_of(const mr_order *o, uint64_t id, const mr_hot *rows, int32_t n, int32_t *out);
/* The key of the permutation P of a bucket in this epoch, and the j for which P(j) = p. */
uint64_t order_bucket_key(const mr_order *o, int32_t bucket);
uint64_t order_unpermute(uint64_t key, uint64_t n, uint64_t p);
/* Errors: MR_E_RECIPE, MR_E_DATA an order of a reference that cannot be; MR_E_MEMORY */
mr_status lists_new(mr_order *o);
void lists_free(mr_order *o);
size_t lists_bytes(const mr_order *o);
/* Build the lists of this epoch, and from them the numbers of samples and micro-batches and the
 * expected digest. */
mr_status lists_plan(mr_order *o);

/* Whether all micro-batches of the epoch are drawn; how many are not. */
bool order_is_used_up(const mr_order *o);
uint64_t order_rest(const mr_order *o);
/* Whether the epoch carries samples that do not fill a micro-batch to the next one. */
bool order_carries(const mr_order *o);
/* Whether the next epoch has the samples of this one, each in the same bucket. */
bool order_is_alike(const mr_order *o);
/* Go to the next epoch, with the samples that this one leaves over. */
mr_status order_go_on(mr_order *o);
/* Skip the rest of the epoch and whole later epochs without drawing them: at most `most`
 * micro-batches, and up to `epochs` epochs (0: no limit). The order is then at the start or end of
 * an epoch. If not `settled`, skip one epoch at most, since the excluded samples can change. *n and
 * *samples: skipped micro-batches and samples.
 * Errors: those of mr_order_next; MR_E_STOPPED */
mr_status order_pass(mr_order *o, uint64_t most, uint64_t epochs, bool settled, uint64_t *n,
                     uint64_t *samples);

#endif
