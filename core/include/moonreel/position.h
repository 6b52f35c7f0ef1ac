/* data: the position in a stream of draws, as text and back.
 *
 * A position is a copy of the position of an order, advanced by completed draws. Its text is the
 * state in a checkpoint. From this state an order continues, or the rest of its epoch is planned
 * again for other data.
 *
 * Threads: a position belongs to one thread at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_POSITION_H
#define MOONREEL_POSITION_H

#include "moonreel/order.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The position in a stream of draws; counts samples, never steps. */
typedef struct mr_position {
    uint64_t epoch, number, digest;
    uint64_t excluded_n, excluded_hash;
    uint64_t seen_n, seen_hash; /* of an mr_subset in force */
    mr_slot slot;
    int32_t n_buckets;
    mr_tail *tail;   /* with which this epoch began, or NULL */
    uint64_t *taken; /* [n_buckets] samples consumed in this epoch, those of the tail first */
} mr_position;
MR_API mr_status mr_position_init(mr_position *p, const mr_order *order);
MR_API void mr_position_fini(mr_position *p);
MR_API void mr_position_advance(mr_position *p, const mr_draw *draw);
/* As text, which the caller frees with mr_free. A brief text is below 4 KB for 200 buckets: if an
 * epoch leaves over many samples, it has only their hash, and another text lists them. */
MR_API mr_status mr_position_text(const mr_position *p, const mr_order *order, bool brief,
                                  char **text);
/* Combine a brief text of one source and its text from mr_loader_excluded, as mr_order_restore
 * expects it; the caller frees *out with mr_free. Errors: MR_E_DATA the list is missing or does not
 * match the hash */
MR_API mr_status mr_position_whole(const char *text, const char *list, char **out);
/* Continue from a text. Micro-batch sizes and slots may differ; `excluded` are the keys in force in
 * that epoch, `seen` the samples that it trained before a change, or NULL; keeps a reference.
 * Errors: MR_E_DATA other data, rule, seed, exclusions or seen samples (says which), MR_E_FORMAT */
MR_API mr_status mr_order_restore(mr_order *order, const char *text, const uint64_t *excluded,
                                  uint64_t n, mr_subset *seen);

/* A state, and the data that it belongs to. */
typedef struct mr_carry {
    mr_index *index;
    const mr_bucket_rule *rule;
    uint64_t seed;
    const char *text;
    const uint64_t *excluded; /* keys in force in that epoch, ascending */
    uint64_t n_excluded;
    mr_subset *seen, *members; /* or NULL */
} mr_carry;
/* The same position for another index, another rule or both: samples trained in this epoch are left
 * out of the rest of it, sample by sample, and the rest is planned again. Owns: the caller frees
 * *text with mr_free and unrefs *seen.
 * Errors: those of mr_order_new and mr_order_restore for the old state */
MR_API mr_status mr_order_carry(const mr_carry *from, mr_index *index, const mr_bucket_rule *rule,
                                const mr_subset *members, char **text, mr_subset **seen);
/* The epoch of a state text, to find the exclusions in force. */
MR_API mr_status mr_position_epoch(const char *text, uint64_t *epoch);

#ifdef __cplusplus
}
#endif
#endif
