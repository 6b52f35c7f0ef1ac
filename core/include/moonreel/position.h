/* data: the place of a stream of draws, as text and back.
 *
 * A position is a copy of that of an order, moved along by draws that are done with. Its text is
 * the state that a checkpoint keeps; from it an order continues, or the rest of its epoch is
 * planned anew for other data.
 *
 * Threads: a position belongs to one thread at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_POSITION_H
#define MOONREEL_POSITION_H

#include "moonreel/order.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a stream of draws stands; counts samples, never steps. */
typedef struct mr_position {
    uint64_t epoch, number, digest;
    uint64_t excluded_n, excluded_hash;
    uint64_t seen_n, seen_hash; /* of an mr_subset in force */
    mr_slot slot;
    int32_t n_buckets;
    mr_tail *tail;   /* that this epoch began with, or NULL */
    uint64_t *taken; /* [n_buckets] samples consumed in this epoch, those of the tail first */
} mr_position;
MR_API mr_status mr_position_init(mr_position *p, const mr_order *order);
MR_API void mr_position_fini(mr_position *p);
MR_API void mr_position_advance(mr_position *p, const mr_draw *draw);
/* As text, which the caller frees with mr_free. A brief one is below 4 KB for 200 buckets: more
 * than some samples that an epoch left over are named by a hash, and stand in the text beside it.
 */
MR_API mr_status mr_position_text(const mr_position *p, const mr_order *order, bool brief,
                                  char **text);
/* A brief text of one source and what mr_loader_excluded says beside it, as mr_order_restore takes
 * it; the caller frees *out with mr_free. Errors: MR_E_DATA the list is not there, or another one
 */
MR_API mr_status mr_position_whole(const char *text, const char *beside, char **out);
/* Continue from a text. Micro-batch sizes and slots may differ; `excluded` are the keys in force in
 * that epoch, `seen` what it trained before a change, NULL when there was none; keeps a reference.
 * Errors: MR_E_DATA other data, rule, seed, exclusions or seen samples (says which), MR_E_FORMAT */
MR_API mr_status mr_order_restore(mr_order *order, const char *text, const uint64_t *excluded,
                                  uint64_t n, mr_subset *seen);

/* A state, and what it is a state of. */
typedef struct mr_carry {
    mr_index *index;
    const mr_bucket_rule *rule;
    uint64_t seed;
    const char *text;
    const uint64_t *excluded; /* keys in force in that epoch, ascending */
    uint64_t n_excluded;
    mr_subset *seen, *members; /* or NULL */
} mr_carry;
/* The same place in the data for another index, another rule or both: what was trained in this
 * epoch is left out of the rest of it, sample by sample, and the rest is planned anew. Owns: the
 * caller frees *text with mr_free and unrefs *seen.
 * Errors: those of mr_order_new and mr_order_restore for the old state */
MR_API mr_status mr_order_carry(const mr_carry *from, mr_index *index, const mr_bucket_rule *rule,
                                const mr_subset *members, char **text, mr_subset **seen);
/* The epoch a state text stands in, to find the exclusions in force. */
MR_API mr_status mr_position_epoch(const char *text, uint64_t *epoch);

#ifdef __cplusplus
}
#endif
#endif
