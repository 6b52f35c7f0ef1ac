/* data: samples that an epoch left over, whose buckets had no whole micro-batch of them any more;
 * the next epoch begins with them. Ref: dataplane 4.4. Licence: Apache-2.0 */
#include "data/room.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static mr_status new_tail(int32_t n_buckets, mr_tail **out)
{
    mr_tail *t;
    if (!MR_NEW(t))
        return mr_fail_memory(sizeof *t);
    atomic_init(&t->refs, 1);
    t->n_buckets = n_buckets;
    if (!(t->first = mr_calloc((size_t)n_buckets + 1, sizeof *t->first))) {
        tail_unref(t);
        return mr_fail_memory(sizeof *t->first * (size_t)n_buckets);
    }
    *out = t;
    return MR_OK;
}

mr_tail *tail_ref(mr_tail *t)
{
    if (t)
        atomic_fetch_add(&t->refs, 1);
    return t;
}

void tail_unref(mr_tail *t)
{
    if (!t || atomic_fetch_sub(&t->refs, 1) != 1)
        return;
    mr_free(t->first);
    mr_free(t->ids);
    mr_free(t->keys);
    mr_free(t);
}

// one more of a bucket, which is none before that of the last one
static mr_status add(mr_tail *t, int32_t bucket, uint64_t id, uint64_t key)
{
    if (t->n == t->cap) {
        uint64_t cap = MR_MAX(2 * t->cap, 64);
        uint64_t *ids = mr_realloc(t->ids, cap * sizeof *ids);
        if (ids)
            t->ids = ids;
        uint64_t *keys = ids ? mr_realloc(t->keys, cap * sizeof *keys) : NULL;
        if (!keys)
            return mr_fail_memory(cap * sizeof *keys);
        t->keys = keys, t->cap = cap;
    }
    t->ids[t->n] = id, t->keys[t->n++] = key;
    t->digest += MR_MIX(key);
    for (int32_t b = bucket + 1; b <= t->n_buckets; b++)
        t->first[b] = t->n;
    return MR_OK;
}

mr_status tail_of(mr_order *o, mr_tail **out)
{
    MR_TRY(new_tail(o->at.n_buckets, out));
    for (int32_t b = 0; b < o->at.n_buckets; b++)
        for (uint64_t j = o->at.taken[b]; j < order_total(o, b); j++) {
            uint64_t id, key;
            MR_TRY(order_sample(o, b, j, &id, &key));
            MR_TRY(add(*out, b, id, key));
        }
    return MR_OK;
}

void tail_put(const mr_tail *t, index_pack *out)
{
    char line[48];
    if (!t || !t->n)
        return;
    index_put(out, "tail", 4);
    for (int32_t b = 0; b < t->n_buckets; b++)
        for (uint64_t i = t->first[b]; i < t->first[b + 1]; i++)
            index_put(out, line, (size_t)snprintf(line, sizeof line, " %d:%" PRIu64, b, t->ids[i]));
    index_put(out, "\n", 1);
}

mr_status tail_read(mr_order *o, const char *p, mr_tail **out)
{
    int32_t last = 0;
    MR_TRY(new_tail(o->at.n_buckets, out));
    while (*p == ' ') {
        const mr_hot *rows;
        char *end;
        int32_t n;
        uint64_t b = strtoull(p, &end, 10), id = *end == ':' ? strtoull(end + 1, &end, 10) : 0;
        if (b >= (uint64_t)o->at.n_buckets || (int32_t)b < last || id >= o->rows.facts.rows)
            break;
        MR_TRY(o->rows.read(o->rows.user, id / MR_HOT_ROWS, &rows, &n));
        MR_TRY(add(*out, last = (int32_t)b, id, rows[id % MR_HOT_ROWS].key_lo));
        p = end;
    }
    return *p == '\n' ? MR_OK
                      : mr_fail(MR_E_FORMAT,
                                "the sampler state names samples of its last epoch that are none; "
                                "try: an older checkpoint, or --start-from-scratch");
}
