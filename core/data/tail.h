/* data, inside: the samples that an epoch left over, by bucket. Licence: Apache-2.0 */
#ifndef MR_DATA_TAIL_H
#define MR_DATA_TAIL_H

#include "base/text.h"
#include "moonreel/position.h"

#include <stdatomic.h>

struct mr_tail {
    atomic_int refs;
    int32_t n_buckets;
    uint64_t *first; /* [bucket + 1] index of the first sample in the lists, which are ordered by
                      * bucket */
    uint64_t *ids, *keys, n, cap, digest;
};
mr_tail *tail_ref(mr_tail *t); /* NULL is fine */
void tail_unref(mr_tail *t);
/* Create an empty tail; add a sample of a bucket. Buckets must not decrease. */
mr_status tail_new(int32_t n_buckets, mr_tail **out);
mr_status tail_add(mr_tail *t, int32_t bucket, uint64_t id, uint64_t key);
/* Write a tail as a line of a state (no line if it is empty), and read it from the text after the
 * name of the line. If `brief`, a long list is replaced by its hash, and the list is a line of a
 * separate text. */
void tail_put(const mr_tail *t, bool brief, mr_text *out);
void tail_put_list(const mr_tail *t, mr_text *out);
mr_status tail_read(mr_order *o, const char *line, mr_tail **out);
/* Move the part of its tail that an order has not drawn yet to another index, rule or subset. A
 * sample goes to the bucket of the same shape, or to the bucket of its key; without such a bucket
 * it is dropped. */
mr_status tail_move(mr_order *o, const mr_carry *from, mr_index *now, const mr_bucket_rule *rule,
                    const mr_subset *members, mr_tail **out);
static inline uint64_t tail_count(const mr_tail *t, int32_t bucket)
{
    return t ? t->first[bucket + 1] - t->first[bucket] : 0;
}

#endif
