/* data, inside: the samples that an epoch left over, by bucket. Licence: Apache-2.0 */
#ifndef MR_DATA_TAIL_H
#define MR_DATA_TAIL_H

#include "base/text.h"
#include "moonreel/position.h"

#include <stdatomic.h>

struct mr_tail {
    atomic_int refs;
    int32_t n_buckets;
    uint64_t *first; /* [bucket + 1] in the lists, which stand in the order of the buckets */
    uint64_t *ids, *keys, n, cap, digest;
};
mr_tail *tail_ref(mr_tail *t); /* NULL is fine */
void tail_unref(mr_tail *t);
/* An empty one, and one more sample of a bucket, which does not come before the bucket of the last
 * one. */
mr_status tail_new(int32_t n_buckets, mr_tail **out);
mr_status tail_add(mr_tail *t, int32_t bucket, uint64_t id, uint64_t key);
/* As a line of a state, none when it is empty; and back, from behind the line's name. A brief one
 * names a long list by its hash, and the list stands in a line of the text next to the state. */
void tail_put(const mr_tail *t, bool brief, mr_text *out);
void tail_put_beside(const mr_tail *t, mr_text *out);
mr_status tail_read(mr_order *o, const char *line, mr_tail **out);
/* What an order has not drawn yet of its tail, for another index, rule or members: as rows of
 * those, in a bucket of the same shape, or in the one that its key leads to. Who has none is given
 * up. */
mr_status tail_move(mr_order *o, const mr_carry *from, mr_index *now, const mr_bucket_rule *rule,
                    const mr_subset *members, mr_tail **out);
static inline uint64_t tail_count(const mr_tail *t, int32_t bucket)
{
    return t ? t->first[bucket + 1] - t->first[bucket] : 0;
}

#endif
