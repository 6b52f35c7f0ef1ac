/* data: the order of micro-batches, a pure function of index, rule, seed, epoch and draw number.
 * Ref: dataplane 4.1 to 4.5. Licence: Apache-2.0 */
#include "data/mix.h"
#include "data/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t order_kept_rows = 3 << 20;

// The halves of the Feistel network have unequal widths and swap in each round; after 8 rounds both
// are in place again.
typedef struct halves {
    int left, right;
} halves;

static halves halves_of(uint64_t n)
{
    int bits = 2;
    while (bits < 63 && (uint64_t)1 << bits < n)
        bits++;
    return (halves){bits / 2, bits - bits / 2};
}

static uint64_t low_bits(uint64_t word, int n)
{
    return word & (((uint64_t)1 << n) - 1);
}

uint64_t mr_permute(uint64_t key, uint64_t n, uint64_t j)
{
    halves h = halves_of(n);
    do {
        uint64_t l = j >> h.right, r = low_bits(j, h.right);
        for (uint64_t round = 0; round < 8; round++) {
            uint64_t next = l ^ low_bits(MR_MIX(key, round, r), round % 2 ? h.right : h.left);
            l = r, r = next;
        }
        j = l << h.right | r;
    } while (j >= n);
    return j;
}

uint64_t order_unpermute(uint64_t key, uint64_t n, uint64_t p)
{
    halves h = halves_of(n);
    do {
        uint64_t l = p >> h.right, r = low_bits(p, h.right);
        for (uint64_t round = 8; round-- > 0;) {
            uint64_t before = r ^ low_bits(MR_MIX(key, round, l), round % 2 ? h.right : h.left);
            r = l, l = before;
        }
        p = l << h.right | r;
    } while (p >= n);
    return p;
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
                   "%s: no sample fits any bucket%s in epoch %llu; of %llu rows were removed:%s\n  "
                   "try: lower lengths or resolutions in bucket_config%s",
                   o->rows.name, o->lists ? " with enough others for a batch of each rank" : "",
                   (unsigned long long)o->at.epoch, (unsigned long long)o->rows.facts.rows, text,
                   o->lists ? ", smaller batches, fewer ranks, or order = \"own\"" : "");
}

// the number of samples of bucket b in chunk c
static uint32_t count_of(const mr_order *o, int32_t b, uint64_t c)
{
    uint32_t low = o->counts[(uint64_t)b * o->chunks + c];
    return o->above[b] ? low | (uint32_t)o->above[b][c] << 8 : low;
}

static mr_status set_count(mr_order *o, int32_t b, uint64_t c, uint32_t n)
{
    o->counts[(uint64_t)b * o->chunks + c] = (uint8_t)n;
    if (n > UINT8_MAX && !o->above[b] &&
        !(o->above[b] = mr_calloc((size_t)o->chunks, sizeof *o->above[b])))
        return mr_fail_memory(o->chunks);
    if (o->above[b])
        o->above[b][c] = (uint8_t)(n >> 8);
    return MR_OK;
}

// Count the rows of a chunk per bucket; `met` is all zero before and after.
static mr_status plan_chunk(mr_order *o, uint64_t c, uint16_t *met)
{
    const mr_hot *rows;
    int32_t n, buckets[BUCKET_ROWS];
    MR_TRY(o->rows.read(o->rows.user, c, &rows, &n));
    for (int32_t at = 0, some; at < n; at += some) {
        uint64_t id = c * MR_HOT_ROWS + (uint64_t)at;
        some = MR_MIN(n - at, (int32_t)BUCKET_ROWS);
        order_buckets_of(o, id, rows + at, some, buckets);
        for (int32_t i = 0; i < some; i++) {
            if (o->entered)
                o->entered[id + (uint64_t)i] = (uint16_t)MR_MAX(buckets[i], -1);
            if (buckets[i] < 0) {
                o->dropped[-buckets[i]]++;
                continue;
            }
            met[buckets[i]]++;
            o->expected += MIX_INLINE(rows[at + i].key_lo);
        }
    }
    for (int32_t b = 0; b < o->at.n_buckets; b++)
        if (met[b]) {
            MR_TRY(set_count(o, b, c, met[b]));
            o->samples[b] += met[b];
            met[b] = 0;
        }
    return MR_OK;
}

// Count the samples per chunk and bucket in one pass over all rows. Tables of buckets without
// samples are never written, so they need no memory.
static mr_status count_rows(mr_order *o)
{
    int32_t nb = o->at.n_buckets;
    for (int32_t b = 0; b < nb; b++)
        if (o->samples[b]) {
            memset(o->counts + (uint64_t)b * o->chunks, 0, sizeof *o->counts * o->chunks);
            mr_free(o->above[b]);
            o->above[b] = NULL;
        }
    memset(o->samples, 0, sizeof *o->samples * (size_t)nb);
    memset(o->dropped, 0, sizeof o->dropped);
    o->expected = o->in_epoch = o->batches = 0;
    uint16_t *met = mr_calloc((size_t)nb, sizeof *met);
    mr_status st = met ? MR_OK : mr_fail_memory(0);
    for (uint64_t c = 0; c < o->chunks && st == MR_OK; c++)
        st = plan_chunk(o, c, met);
    mr_free(met);
    MR_TRY(st);
    for (int32_t b = 0; b < nb; b++) {
        uint64_t sum = 0, m = (uint64_t)mr_bucket_rule_get(o->rule, b).batch;
        if (!o->samples[b])
            continue;
        for (uint64_t c = 0; c < o->chunks; c++) {
            if (c % ORDER_STRIDE == 0)
                o->prefix[(uint64_t)b * o->strides + c / ORDER_STRIDE] = sum;
            sum += count_of(o, b, c);
        }
        o->in_epoch += sum;
        o->batches += (sum + m - 1) / m;
    }
    return MR_OK;
}

static mr_status plan(mr_order *o)
{
    MR_TRY(o->lists ? lists_plan(o) : count_rows(o));
    // samples trained before a change of the rule can be the whole epoch
    return o->batches || o->seen ? MR_OK : fail_empty(o);
}

// Whether this row belongs to bucket b. Size and length are checked first, since they need no
// draws.
static bool is_member(const mr_order *o, uint64_t id, const mr_hot *hot, int32_t b)
{
    if (o->entered)
        return o->entered[id] == b;
    if (!bucket_may_take(o->rule, o->sizes, hot, b))
        return false;
    int32_t entered;
    order_buckets_of(o, id, hot, 1, &entered);
    return entered == b;
}

// select(b, r): find the row of the r-th member of bucket b
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
    for (r -= prefix[lo]; r >= count_of(o, b, c); c++)
        r -= count_of(o, b, c);
    const mr_hot *rows;
    int32_t n;
    MR_TRY(o->rows.read(o->rows.user, c, &rows, &n));
    for (int32_t i = 0; i < n; i++) {
        *id = c * MR_HOT_ROWS + (uint64_t)i, *key = rows[i].key_lo;
        if (is_member(o, *id, &rows[i], b) && r-- == 0)
            return MR_OK;
    }
    return mr_fail(MR_E_INTERNAL, "bucket %d has fewer members in chunk %llu than were counted", b,
                   (unsigned long long)c);
}

/* ---- life ---- */

static int compare_costs(const void *a, const void *b)
{
    const order_cost *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->bucket - y->bucket;
}

// group buckets with similar costs per micro-batch into classes: up to 5 % above the cheapest
static void sort_classes(mr_order *o)
{
    int32_t nb = o->at.n_buckets, class = -1;
    double least = 0;
    for (int32_t b = 0; b < nb; b++)
        o->costs[b] = (order_cost){mr_bucket_rule_get(o->rule, b).cost, b};
    qsort(o->costs, (size_t)nb, sizeof *o->costs, compare_costs);
    for (int32_t i = 0; i < nb; i++) {
        if (class < 0 || o->costs[i].cost > 1.05 * least)
            class ++, least = o->costs[i].cost;
        o->class_of[o->costs[i].bucket] = class;
    }
}

mr_status order_new_of(order_rows rows, const mr_bucket_rule *rule, const mr_order_options *options,
                       mr_order **out)
{
    mr_order *o;
    if (!MR_NEW(o))
        return mr_fail_memory(sizeof *o);
    o->rows = rows, o->rule = rule, o->seed = options->seed;
    o->slot = MR_MAX(options->slot, 1);
    o->members = mr_subset_ref(options->members);
    o->carry = options->carry, o->epochs = options->epochs;
    o->fill = options->fill, o->unshuffled = options->unshuffled;
    o->chunks = (rows.facts.rows + MR_HOT_ROWS - 1) / MR_HOT_ROWS;
    o->strides = (o->chunks + ORDER_STRIDE - 1) / ORDER_STRIDE;
    size_t nb = (size_t)mr_bucket_rule_count(rule);
    o->at.n_buckets = (int32_t)nb;
    o->counts = mr_calloc(nb * o->chunks, sizeof *o->counts);
    o->samples = mr_calloc(nb, sizeof *o->samples);
    o->prefix = mr_calloc(nb * o->strides, sizeof *o->prefix);
    o->at.taken = mr_calloc(nb, sizeof *o->at.taken);
    bool keep = rows.facts.rows <= order_kept_rows || rule->follows;
    if (keep)
        o->entered = mr_calloc((size_t)rows.facts.rows, sizeof *o->entered);
    o->above = mr_calloc(nb, sizeof *o->above);
    o->sizes.log = ORDER_SIZES_LOG;
    o->sizes.of = mr_calloc((size_t)1 << ORDER_SIZES_LOG, sizeof *o->sizes.of);
    o->costs = mr_calloc(nb, sizeof *o->costs);
    o->class_of = mr_calloc(nb, sizeof *o->class_of);
    mr_status st = o->counts && o->above && o->samples && o->prefix && o->at.taken && o->sizes.of &&
                           o->costs && o->class_of && (o->entered || !keep)
                       ? MR_OK
                       : mr_fail_memory(nb * o->chunks);
    if (st == MR_OK && rule->follows)
        st = lists_new(o);
    if (st == MR_OK) {
        sort_classes(o);
        st = plan(o);
    }
    if (st == MR_OK)
        *out = o;
    else
        mr_order_free(o);
    return st;
}

static mr_status read_index(void *reader, uint64_t chunk, const mr_hot **rows, int32_t *n)
{
    return mr_index_hot(reader, chunk, rows, n);
}

mr_status mr_order_new(mr_index *index, const mr_bucket_rule *rule, const mr_order_options *options,
                       mr_order **out)
{
    mr_index_reader *reader;
    MR_TRY(mr_index_reader_new(index, &reader));
    order_rows rows = {.read = read_index,
                       .user = reader,
                       .facts = mr_index_get_facts(index),
                       .name = mr_index_path(index)};
    mr_status st = order_new_of(rows, rule, options, out);
    if (st == MR_OK)
        (*out)->reader = reader;
    else
        mr_index_reader_free(reader);
    return st;
}

void mr_order_free(mr_order *o)
{
    if (!o)
        return;
    mr_index_reader_free(o->reader);
    tail_unref(o->at.tail);
    mr_subset_unref(o->members);
    mr_subset_unref(o->seen);
    mr_subset_unref(o->next_seen);
    lists_free(o);
    for (int32_t b = 0; o->above && b < o->at.n_buckets; b++)
        mr_free(o->above[b]);
    mr_free(o->above);
    mr_free(o->counts);
    mr_free(o->samples);
    mr_free(o->prefix);
    mr_free(o->at.taken);
    mr_free(o->entered);
    mr_free(o->sizes.of);
    mr_free(o->costs);
    mr_free(o->class_of);
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

bool mr_order_left_row(const mr_order *o, uint64_t *row)
{
    *row = o->lists ? o->lists->left : UINT64_MAX;
    return *row != UINT64_MAX;
}

bool order_is_alike(const mr_order *o)
{
    return bucket_is_certain(o->rule) && !o->has_next && !o->seen && !o->next_seen;
}

mr_status mr_order_begin(mr_order *o, uint64_t epoch)
{
    bool planned = order_is_alike(o);
    if (o->has_next) {
        mr_free(o->excluded);
        o->excluded = o->next_excluded, o->n_excluded = o->n_next_excluded;
        o->next_excluded = NULL, o->has_next = false;
        o->at.excluded_n = o->n_excluded;
        o->at.excluded_hash =
            o->n_excluded ? mr_hash64(o->excluded, sizeof *o->excluded * o->n_excluded) : 0;
    }
    // the list of samples trained before a change applies only to its epoch
    mr_subset_unref(o->seen);
    o->seen = o->next_seen, o->next_seen = NULL;
    o->at.seen_n = o->seen ? o->seen->count : 0, o->at.seen_hash = o->seen ? o->seen->hash : 0;
    o->at.epoch = epoch, o->at.number = o->at.digest = 0, o->at.slot.left = 0;
    memset(o->at.taken, 0, sizeof *o->at.taken * (size_t)o->at.n_buckets);
    // lists are shuffled for each epoch
    return planned && !o->lists ? MR_OK : plan(o);
}

bool order_carries(const mr_order *o)
{
    return o->carry && o->at.epoch + 1 != o->epochs;
}

// the number of remaining micro-batches of a bucket, without those carried to the next epoch
static uint64_t remaining(const mr_order *o, int32_t b)
{
    uint64_t left = order_total(o, b) - o->at.taken[b];
    if (!left)
        return 0;
    uint64_t m = (uint64_t)mr_bucket_rule_get(o->rule, b).batch;
    return order_carries(o) ? left / m : (left + m - 1) / m;
}

// at the end of an epoch, check that every planned sample was drawn once or is carried to the next
// epoch
static mr_status check_accounts(const mr_order *o, const mr_tail *left)
{
    const mr_tail *had = o->at.tail;
    uint64_t taken = left ? left->n : 0, digest = o->at.digest + (left ? left->digest : 0);
    for (int32_t b = 0; b < o->at.n_buckets; b++)
        taken += o->at.taken[b];
    if (taken == o->in_epoch + (had ? had->n : 0) &&
        digest == o->expected + (had ? had->digest : 0))
        return MR_OK;
    return mr_fail(MR_E_INTERNAL,
                   "epoch %llu drew %llu samples (digest %016llx), planned were %llu (%016llx)",
                   (unsigned long long)o->at.epoch, (unsigned long long)taken,
                   (unsigned long long)o->at.digest, (unsigned long long)o->in_epoch,
                   (unsigned long long)o->expected);
}

uint64_t order_bucket_key(const mr_order *o, int32_t bucket)
{
    mr_hash128 fp = o->rows.facts.fp_order;
    return MR_MIX(o->seed, o->at.epoch, (uint64_t)bucket, fp.lo, fp.hi);
}

/* ---- choice of the next bucket ---- */

enum { ANY_CLASS = -1 };

// the number of remaining micro-batches of a class, or of all
static uint64_t left_of(const mr_order *o, int32_t class)
{
    uint64_t sum = 0;
    for (int32_t b = 0; b < o->at.n_buckets; b++)
        if (class == ANY_CLASS || o->class_of[b] == class)
            sum += remaining(o, b);
    return sum;
}

// the bucket of micro-batch u among the remaining ones of a class
static int32_t bucket_at(const mr_order *o, int32_t class, uint64_t u)
{
    int32_t b = 0;
    for (uint64_t r;; b++) {
        if (class != ANY_CLASS && o->class_of[b] != class)
            continue;
        if (u < (r = remaining(o, b)))
            return b;
        u -= r;
    }
}

// draw a class that fills a whole slot, by its share of the micro-batches; ANY_CLASS if no class
// does
static int32_t draw_class(const mr_order *o)
{
    int32_t classes = o->class_of[o->costs[o->at.n_buckets - 1].bucket] + 1;
    uint64_t sum = 0, left, slot = (uint64_t)o->slot;
    for (int32_t c = 0; c < classes; c++)
        sum += (left = left_of(o, c)) >= slot ? left : 0;
    if (!sum)
        return ANY_CLASS;
    uint64_t u = MR_MIX(o->seed, o->at.epoch, o->at.number, mr_name_word("slot")) % sum;
    for (int32_t c = 0;; c++) {
        if ((left = left_of(o, c)) < slot)
            continue;
        if (u < left)
            return c;
        u -= left;
    }
}

// the bucket with remaining micro-batches whose cost is nearest to that of the slot's first one
static int32_t nearest_cost(const mr_order *o, int32_t first)
{
    double cost = mr_bucket_rule_get(o->rule, first).cost, best = INFINITY;
    int32_t at = first;
    for (int32_t i = 0; i < o->at.n_buckets; i++) {
        double off = fabs(log(o->costs[i].cost / cost));
        if (remaining(o, o->costs[i].bucket) && off < best)
            best = off, at = o->costs[i].bucket;
    }
    return at;
}

// All draws of a slot have one class. At the end of an epoch, the remaining micro-batches form
// mixed slots, with costs as near as possible.
static int32_t draw_bucket(mr_order *o)
{
    mr_position *p = &o->at;
    bool fresh = !p->slot.left;
    if (o->slot > 1 && fresh) {
        p->slot.left = o->slot;
        p->slot.class = draw_class(o);
        p->slot.first = -1;
    }
    // other micro-batches since the start of the slot can have used up its class
    if (o->slot > 1 && p->slot.class != ANY_CLASS && !left_of(o, p->slot.class))
        p->slot.class = ANY_CLASS;
    int32_t class = o->slot > 1 ? p->slot.class : ANY_CLASS;
    if (o->slot > 1 && class == ANY_CLASS && p->slot.first >= 0)
        return nearest_cost(o, p->slot.first);
    uint64_t u = MR_MIX(o->seed, p->epoch, p->number) % left_of(o, class);
    return p->slot.first = bucket_at(o, class, u);
}

uint64_t order_rest(const mr_order *o)
{
    return o->lists ? o->lists->n - MR_MIN(o->at.number, o->lists->n) : left_of(o, ANY_CLASS);
}

bool order_is_used_up(const mr_order *o)
{
    return order_rest(o) == 0;
}

static mr_status listed_row(mr_order *o, uint64_t row, uint64_t *id, uint64_t *key)
{
    const mr_hot *rows;
    int32_t n;
    MR_TRY(o->rows.read(o->rows.user, row / MR_HOT_ROWS, &rows, &n));
    *id = row, *key = rows[row % MR_HOT_ROWS].key_lo;
    return MR_OK;
}

// find the j-th sample that this epoch draws from bucket b
static mr_status sample_of(mr_order *o, int32_t b, uint64_t j, uint64_t *id, uint64_t *key)
{
    if (o->lists)
        return listed_row(o, o->lists->rows[o->lists->first[b] + j], id, key);
    uint64_t carried = tail_count(o->at.tail, b);
    if (j < carried) {
        *id = o->at.tail->ids[o->at.tail->first[b] + j];
        *key = o->at.tail->keys[o->at.tail->first[b] + j];
        return MR_OK;
    }
    return select_row(o, b, mr_permute(order_bucket_key(o, b), o->samples[b], j - carried), id,
                      key);
}

mr_status order_left_over(mr_order *o, mr_tail **out)
{
    MR_TRY(tail_new(o->at.n_buckets, out));
    for (int32_t b = 0; b < o->at.n_buckets; b++)
        for (uint64_t j = o->at.taken[b]; j < order_total(o, b); j++) {
            uint64_t id, key;
            MR_TRY(sample_of(o, b, j, &id, &key));
            MR_TRY(tail_add(*out, b, id, key));
        }
    return MR_OK;
}

mr_status order_go_on(mr_order *o)
{
    mr_tail *left = NULL;
    mr_status st = o->carry ? order_left_over(o, &left) : MR_OK;
    if (st == MR_OK)
        st = check_accounts(o, left);
    if (st != MR_OK) {
        tail_unref(left);
        return st;
    }
    tail_unref(o->at.tail);
    o->at.tail = left;
    return mr_order_begin(o, o->at.epoch + 1);
}

mr_status mr_order_next(mr_order *o, mr_draw *d)
{
    // an epoch can be too small for a micro-batch, and is carried completely
    while (order_is_used_up(o))
        MR_TRY(order_go_on(o));
    int32_t b = o->lists ? o->lists->turns[o->at.number] : draw_bucket(o);
    d->epoch = o->at.epoch, d->number = o->at.number, d->bucket = b, d->digest = 0;
    d->n = (int32_t)MR_MIN((uint64_t)mr_bucket_rule_get(o->rule, b).batch,
                           order_total(o, b) - o->at.taken[b]);
    for (int32_t i = 0; i < d->n; i++) {
        MR_TRY(sample_of(o, b, o->at.taken[b] + (uint64_t)i, &d->ids[i], &d->keys[i]));
        d->digest += MR_MIX(d->keys[i]);
    }
    o->at.taken[b] += (uint64_t)d->n, o->at.number++, o->at.digest += d->digest;
    d->last = order_is_used_up(o);
    o->at.slot.left = d->last ? 0 : MR_MAX(o->at.slot.left - 1, 0);
    d->slot = o->at.slot, d->tail = o->at.tail;
    // After the last epoch no other one begins, so its accounts are checked here.
    return d->last && o->at.epoch + 1 == o->epochs ? check_accounts(o, NULL) : MR_OK;
}
