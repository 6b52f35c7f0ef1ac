/* data: several sources as one stream of micro-batches.
 *
 * Each source has the same order as alone; shares decide which source comes next. Ref: dataplane
 * 4.10.
 *
 * Threads: a blend belongs to one thread at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_BLEND_H
#define MOONREEL_BLEND_H

#include "moonreel/order.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A share that changes with the number of samples drawn from all sources: linear between two
 * points, constant before the first and after the last one. Two points at the same place make a
 * jump. */
typedef struct mr_weight {
    uint64_t samples;
    double weight; /* >= 0, relative to those of other sources */
} mr_weight;

typedef struct mr_source {
    const char *name; /* of letters, digits, "_", "-", "."; "" for a single source */
    mr_index *index;
    const mr_weight *weights; /* ascending */
    int32_t n_weights;        /* 0: constant 1 */
    mr_subset *members;       /* samples of the source; NULL: all */
    uint64_t epochs;          /* after this many epochs its share goes to the others; 0: never */
    const char *seen;         /* file of mr_subset_write, if its state is one of mr_order_carry */
    uint64_t epoch;           /* first epoch if the state does not have the source */
} mr_source;

/* Orders of several sources as one stream. Each source has the same order as alone, epoch after
 * epoch. The next micro-batch, or slot, comes from the source to which most samples are due. A
 * source of weight 0 gives none. Ref: dataplane 4.10 */
typedef struct mr_blend mr_blend;
/* Copies names and weights, keeps the indexes, borrows the rule.
 * Errors: those of mr_order_new; MR_E_RECIPE names, weights, or more than MR_SOURCES_MAX sources */
MR_API mr_status mr_blend_new(const mr_source *sources, int32_t n, const mr_bucket_rule *rule,
                              const mr_order_options *options, mr_blend **out);
MR_API void mr_blend_free(mr_blend *blend);
MR_API mr_order *mr_blend_order(mr_blend *blend, int32_t source); /* lent */
/* Take the next micro-batch. Errors: those of mr_order_next; MR_E_RANGE no micro-batch is left */
MR_API mr_status mr_blend_next(mr_blend *blend, mr_draw *draw);
/* Whether nothing more can be drawn, or every source that will still have a share has been drawn
 * `epochs` times (0: never), or as often as its own limit allows. */
MR_API bool mr_blend_over(const mr_blend *blend, uint64_t epochs);
/* Skip whole epochs of at most `most` micro-batches, up to the end of epoch number `epochs` (0: no
 * end). settled: later epochs leave out the same samples as this one; otherwise at most one epoch
 * is skipped. *n micro-batches were skipped, up to *epoch. *n is 0 if the next epoch is longer than
 * `most`, or if several sources have shares, because these follow only from draws.
 * Errors: those of mr_order_next; MR_E_STOPPED */
MR_API mr_status mr_blend_pass(mr_blend *blend, uint64_t most, uint64_t epochs, bool settled,
                               uint64_t *n, uint64_t *epoch);
/* An upper bound of the micro-batches before mr_blend_over; UINT64_MAX: no bound is known. */
MR_API uint64_t mr_blend_most(const mr_blend *blend, uint64_t epochs);
/* The part of a text of mr_loader_state for one source, as mr_order_restore takes it; the caller
 * frees it with mr_free; NULL: no such part. Errors: MR_E_FORMAT, MR_E_MEMORY */
MR_API mr_status mr_blend_state_of(const char *text, const char *name, char **out);

#ifdef __cplusplus
}
#endif
#endif
