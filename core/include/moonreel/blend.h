/* data: several sources as one stream of micro-batches.
 *
 * Each source has the order that it has alone; shares say whose turn it is. Ref: dataplane 4.10.
 *
 * Threads: a blend belongs to one thread at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_BLEND_H
#define MOONREEL_BLEND_H

#include "moonreel/order.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A share that changes with the samples drawn of all sources: linear between two of these, constant
 * before the first and behind the last one. Two of the same place: it jumps there. */
typedef struct mr_weight {
    uint64_t samples;
    double weight; /* >= 0, against those of other sources */
} mr_weight;

typedef struct mr_source {
    const char *name; /* of letters, digits, "_", "-", "."; "" for one that is alone */
    mr_index *index;
    const mr_weight *weights; /* ascending */
    int32_t n_weights;        /* 0: 1 all the time */
    mr_subset *members;       /* samples that it is of; NULL: all */
    uint64_t epochs;          /* after this many epochs its share goes to the others; 0: never */
    const char *seen; /* file of mr_subset_write, where its state is one of mr_order_carry */
    uint64_t epoch;   /* where a state says nothing of it: begin at this one */
} mr_source;

/* Orders of several sources as one stream: each is the one that it is alone, epoch after epoch, and
 * the next micro-batch, or slot, is of the source to which most samples are due. A source of weight
 * 0 has none. Ref: dataplane 4.10 */
typedef struct mr_blend mr_blend;
/* Copies names and weights, keeps the indexes, borrows the rule.
 * Errors: those of mr_order_new; MR_E_RECIPE names, weights, or more than MR_SOURCES_MAX sources */
MR_API mr_status mr_blend_new(const mr_source *sources, int32_t n, const mr_bucket_rule *rule,
                              const mr_order_options *options, mr_blend **out);
MR_API void mr_blend_free(mr_blend *blend);
MR_API mr_order *mr_blend_order(mr_blend *blend, int32_t source); /* lent */
/* Take the next micro-batch. Errors: those of mr_order_next; MR_E_RANGE all is over */
MR_API mr_status mr_blend_next(mr_blend *blend, mr_draw *draw);
/* Is there nothing more to draw, or has every source that will still have a share been drawn
 * `epochs` times (0: never), or as often as it is allowed to be? */
MR_API bool mr_blend_over(const mr_blend *blend, uint64_t epochs);
/* Pass over whole epochs of at most `most` micro-batches, none drawn, up to the end of epoch number
 * `epochs` (0: no end); settled: a later epoch leaves out the same samples as this one,
 * else one epoch at most. *n micro-batches were passed over, up to *epoch; 0: the next epoch ends
 * behind `most`, or shares of several sources decide, which follow from draws alone.
 * Errors: those of mr_order_next; MR_E_STOPPED */
MR_API mr_status mr_blend_pass(mr_blend *blend, uint64_t most, uint64_t epochs, bool settled,
                               uint64_t *n, uint64_t *epoch);
/* The most micro-batches that come before mr_blend_over; UINT64_MAX: no bound is known. */
MR_API uint64_t mr_blend_most(const mr_blend *blend, uint64_t epochs);
/* What a text of mr_loader_state says of one source, as mr_order_restore takes it; the caller frees
 * it with mr_free; NULL: nothing. Errors: MR_E_FORMAT, MR_E_MEMORY */
MR_API mr_status mr_blend_state_of(const char *text, const char *name, char **out);

#ifdef __cplusplus
}
#endif
#endif
