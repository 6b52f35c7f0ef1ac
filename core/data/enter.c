/* data: assigns rows to buckets for an epoch, and leaves out the quarantined samples.
 * Licence: Apache-2.0 */
#include "data/order.h"

#include <stdlib.h>
#include <string.h>

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void order_buckets_of(const mr_order *o, uint64_t id, const mr_hot *rows, int32_t n, int32_t *out)
{
    bucket_assign(o->rule, o->sizes, o->seed, o->at.epoch, id, rows, n, out);
    for (int32_t i = 0; i < n && o->n_excluded; i++)
        if (bsearch(&rows[i].key_lo, o->excluded, o->n_excluded, sizeof *o->excluded, compare_u64))
            out[i] = -MR_DROP_QUARANTINE;
    for (int32_t i = 0; i < n && o->seen; i++)
        if (mr_subset_has(o->seen, id + (uint64_t)i))
            out[i] = -MR_DROP_SEEN;
    for (int32_t i = 0; i < n && o->members; i++)
        if (!mr_subset_has(o->members, id + (uint64_t)i))
            out[i] = -MR_DROP_OUTSIDE;
}

mr_status mr_order_exclude(mr_order *o, const uint64_t *keys, uint64_t n)
{
    // a reference also draws samples that it cannot read; they fail again and get weight 0
    if (o->lists)
        n = 0;
    uint64_t *copy = mr_alloc(sizeof *copy * MR_MAX(n, 1));
    if (!copy)
        return mr_fail_memory(sizeof *copy * n);
    if (n)
        memcpy(copy, keys, sizeof *copy * n);
    qsort(copy, n, sizeof *copy, compare_u64);
    mr_free(o->next_excluded);
    o->next_excluded = copy, o->n_next_excluded = n, o->has_next = true;
    return MR_OK;
}
