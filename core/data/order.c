/* data: the order of micro-batches, a pure function of index, rule, seed, epoch and draw number.
 * Ref: dataplane 4.1 to 4.4. Licence: Apache-2.0 */
#include "data/room.h"

#include <stdlib.h>
#include <string.h>

enum { NO_BUCKET = 0xffff };

uint64_t mr_permute(uint64_t key, uint64_t n, uint64_t j)
{
    int bits = 2;
    while (bits < 63 && (uint64_t)1 << bits < n)
        bits++;
    // halves of unequal width change places each round; after 8 rounds both are back
    int left = bits / 2, right = bits - left;
    do {
        uint64_t l = j >> right, r = j & (((uint64_t)1 << right) - 1);
        int lw = left, rw = right;
        for (uint64_t round = 0; round < 8; round++) {
            uint64_t next = l ^ (MR_MIX(key, round, r) & (((uint64_t)1 << lw) - 1));
            l = r, r = next;
            int t = lw;
            lw = rw, rw = t;
        }
        j = l << right | r;
    } while (j >= n);
    return j;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// tells the bucket of a row in this epoch, or NO_BUCKET and why
static uint16_t bucket_of(const mr_order *o, const mr_hot *hot, mr_drop *why)
{
    *why = MR_DROP_QUARANTINE;
    if (o->n_excluded &&
        bsearch(&hot->key_lo, o->excluded, o->n_excluded, sizeof hot->key_lo, compare_u64))
        return NO_BUCKET;
    int32_t b = mr_bucket_rule_assign(o->rule, o->seed, o->at.epoch, hot, why);
    return b < 0 ? NO_BUCKET : (uint16_t)b;
}

static mr_status fail_empty(const mr_order *o)
{
    char text[600];
    size_t n = 0;
    for (int why = 1; why < MR_DROP_COUNT; why++)
        if (o->dropped[why])
            n += (size_t)snprintf(text + n, sizeof text - n, "\n  %llu rows: %s",
                                  (unsigned long long)o->dropped[why], mr_drop_text(why));
    return mr_fail(MR_E_DATA,
                   "%s: no sample fits any bucket in epoch %llu; of %llu rows were removed:%s\n  "
                   "try: lower lengths or resolutions in bucket_config",
                   mr_index_path(o->index), (unsigned long long)o->at.epoch,
                   (unsigned long long)o->facts.rows, text);
}

// one pass over all rows counts how many of each chunk each bucket has
static mr_status plan(mr_order *o)
{
    int32_t nb = o->at.n_buckets;
    memset(o->counts, 0, sizeof *o->counts * (size_t)nb * o->chunks);
    memset(o->samples, 0, sizeof *o->samples * (size_t)nb);
    memset(o->dropped, 0, sizeof o->dropped);
    for (int i = 0; i < ORDER_CACHE; i++)
        o->cached[i] = UINT64_MAX;
    o->expected = o->in_epoch = o->batches = 0;
    for (uint64_t c = 0; c < o->chunks; c++) {
        const mr_hot *rows;
        int32_t n;
        uint16_t *buckets = o->cache[c % ORDER_CACHE];
        MR_TRY(mr_index_hot(o->reader, c, &rows, &n));
        o->cached[c % ORDER_CACHE] = c, o->known[c % ORDER_CACHE] = n;
        for (int32_t i = 0; i < n; i++) {
            mr_drop why;
            buckets[i] = bucket_of(o, &rows[i], &why);
            if (buckets[i] == NO_BUCKET) {
                o->dropped[why]++;
                continue;
            }
            o->counts[buckets[i] * o->chunks + c]++;
            o->samples[buckets[i]]++;
            o->expected += MR_MIX(rows[i].key_lo);
        }
    }
    for (int32_t b = 0; b < nb; b++) {
        uint64_t sum = 0, m = (uint64_t)mr_bucket_rule_get(o->rule, b).batch;
        for (uint64_t c = 0; c < o->chunks; c++) {
            if (c % ORDER_STRIDE == 0)
                o->prefix[(uint64_t)b * o->strides + c / ORDER_STRIDE] = sum;
            sum += o->counts[(uint64_t)b * o->chunks + c];
        }
        o->in_epoch += sum;
        if (sum)
            o->batches += (sum + m - 1) / m;
    }
    return o->in_epoch ? MR_OK : fail_empty(o);
}

// select(b, r) is the row of the r-th member of bucket b
static mr_status select_row(mr_order *o, int32_t b, uint64_t r, uint64_t *id, uint64_t *key)
{
    const uint64_t *prefix = o->prefix + (uint64_t)b * o->strides;
    uint64_t lo = 0, hi = o->strides;
    while (hi - lo > 1) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (prefix[mid] <= r)
            lo = mid;
        else
            hi = mid;
    }
    uint64_t c = lo * ORDER_STRIDE;
    const uint16_t *counts = o->counts + (uint64_t)b * o->chunks;
    for (r -= prefix[lo]; r >= counts[c]; c++)
        r -= counts[c];
    const mr_hot *rows;
    int32_t n;
    uint16_t *buckets = o->cache[c % ORDER_CACHE];
    int32_t *known = &o->known[c % ORDER_CACHE];
    MR_TRY(mr_index_hot(o->reader, c, &rows, &n));
    if (o->cached[c % ORDER_CACHE] != c)
        o->cached[c % ORDER_CACHE] = c, *known = 0;
    for (int32_t i = 0; i < n; i++) {
        mr_drop why;
        // rows behind the one that is looked for need no bucket
        if (i == *known)
            buckets[i] = bucket_of(o, &rows[i], &why), ++*known;
        if (buckets[i] == b && r-- == 0) {
            *id = c * MR_HOT_ROWS + (uint64_t)i;
            *key = rows[i].key_lo;
            return MR_OK;
        }
    }
    return mr_fail(MR_E_INTERNAL, "bucket %d has fewer members in chunk %llu than were counted", b,
                   (unsigned long long)c);
}

mr_status mr_order_new(mr_index *index, const mr_bucket_rule *rule, uint64_t seed, mr_order **out)
{
    mr_order *o;
    if (!MR_NEW(o))
        return mr_fail_memory(sizeof *o);
    o->index = mr_index_ref(index), o->rule = rule, o->seed = seed;
    o->facts = mr_index_get_facts(index);
    o->chunks = (o->facts.rows + MR_HOT_ROWS - 1) / MR_HOT_ROWS;
    o->strides = (o->chunks + ORDER_STRIDE - 1) / ORDER_STRIDE;
    size_t nb = (size_t)mr_bucket_rule_count(rule);
    o->at.n_buckets = (int32_t)nb;
    o->counts = mr_calloc(nb * o->chunks, sizeof *o->counts);
    o->samples = mr_calloc(nb, sizeof *o->samples);
    o->prefix = mr_calloc(nb * o->strides, sizeof *o->prefix);
    o->at.taken = mr_calloc(nb, sizeof *o->at.taken);
    o->cache = mr_calloc(ORDER_CACHE, sizeof *o->cache);
    mr_status st = o->counts && o->samples && o->prefix && o->at.taken && o->cache
                       ? MR_OK
                       : mr_fail_memory(nb * o->chunks * 2);
    if (st == MR_OK)
        st = mr_index_reader_new(index, &o->reader);
    if (st == MR_OK)
        st = plan(o);
    if (st == MR_OK)
        *out = o;
    else
        mr_order_free(o);
    return st;
}

void mr_order_free(mr_order *o)
{
    if (!o)
        return;
    mr_index_reader_free(o->reader);
    mr_index_unref(o->index);
    mr_free(o->counts);
    mr_free(o->samples);
    mr_free(o->prefix);
    mr_free(o->at.taken);
    mr_free(o->cache);
    mr_free(o->excluded);
    mr_free(o->next_excluded);
    mr_free(o);
}

int32_t mr_order_batch_max(const mr_order *o)
{
    int32_t most = 1;
    for (int32_t b = 0; b < o->at.n_buckets; b++)
        most = MR_MAX(most, mr_bucket_rule_get(o->rule, b).batch);
    return most;
}

uint64_t mr_order_samples(const mr_order *o, int32_t bucket)
{
    return o->samples[bucket];
}
uint64_t mr_order_dropped(const mr_order *o, mr_drop why)
{
    return o->dropped[why];
}
uint64_t mr_order_batches(const mr_order *o)
{
    return o->batches;
}

mr_status mr_order_exclude(mr_order *o, const uint64_t *keys, uint64_t n)
{
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

mr_status order_begin_epoch(mr_order *o, uint64_t epoch)
{
    if (o->has_next) {
        mr_free(o->excluded);
        o->excluded = o->next_excluded, o->n_excluded = o->n_next_excluded;
        o->next_excluded = NULL, o->has_next = false;
        o->at.excluded_n = o->n_excluded;
        o->at.excluded_hash =
            o->n_excluded ? mr_hash64(o->excluded, sizeof *o->excluded * o->n_excluded) : 0;
    }
    o->at.epoch = epoch, o->at.number = o->at.digest = 0;
    memset(o->at.taken, 0, sizeof *o->at.taken * (size_t)o->at.n_buckets);
    return plan(o);
}

// counts the micro-batches that are left in a bucket
static uint64_t remaining(const mr_order *o, int32_t b)
{
    uint64_t left = o->samples[b] - o->at.taken[b],
             m = (uint64_t)mr_bucket_rule_get(o->rule, b).batch;
    return left ? (left + m - 1) / m : 0;
}

static uint64_t all_remaining(const mr_order *o)
{
    uint64_t sum = 0;
    for (int32_t b = 0; b < o->at.n_buckets; b++)
        sum += remaining(o, b);
    return sum;
}

// at the end of an epoch every planned sample has been drawn once
static mr_status check_accounts(const mr_order *o)
{
    uint64_t taken = 0;
    for (int32_t b = 0; b < o->at.n_buckets; b++)
        taken += o->at.taken[b];
    if (taken == o->in_epoch && o->at.digest == o->expected)
        return MR_OK;
    return mr_fail(MR_E_INTERNAL,
                   "epoch %llu drew %llu samples (digest %016llx), planned were %llu (%016llx)",
                   (unsigned long long)o->at.epoch, (unsigned long long)taken,
                   (unsigned long long)o->at.digest, (unsigned long long)o->in_epoch,
                   (unsigned long long)o->expected);
}

mr_status mr_order_next(mr_order *o, mr_draw *d)
{
    uint64_t sum = all_remaining(o);
    if (!sum) {
        MR_TRY(check_accounts(o));
        MR_TRY(order_begin_epoch(o, o->at.epoch + 1));
        sum = all_remaining(o);
    }
    uint64_t u = MR_MIX(o->seed, o->at.epoch, o->at.number) % sum;
    int32_t b = 0;
    for (uint64_t r; u >= (r = remaining(o, b)); b++)
        u -= r;
    d->epoch = o->at.epoch, d->number = o->at.number, d->bucket = b, d->digest = 0;
    d->n = (int32_t)MR_MIN((uint64_t)mr_bucket_rule_get(o->rule, b).batch,
                           o->samples[b] - o->at.taken[b]);
    uint64_t key =
        MR_MIX(o->seed, o->at.epoch, (uint64_t)b, o->facts.fp_order.lo, o->facts.fp_order.hi);
    for (int32_t i = 0; i < d->n; i++) {
        MR_TRY(select_row(o, b, mr_permute(key, o->samples[b], o->at.taken[b] + (uint64_t)i),
                          &d->ids[i], &d->keys[i]));
        d->digest += MR_MIX(d->keys[i]);
    }
    o->at.taken[b] += (uint64_t)d->n, o->at.number++, o->at.digest += d->digest;
    d->last = all_remaining(o) == 0;
    return MR_OK;
}
