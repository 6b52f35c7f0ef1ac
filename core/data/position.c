/* data: writes the position of a stream of draws as text, and reads it back. Ref: dataplane 4.7.
 * Licence: Apache-2.0 */
#include "data/order.h"
#include "data/position.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mr_status mr_position_init(mr_position *p, const mr_order *o)
{
    size_t bytes = sizeof *p->taken * (size_t)o->at.n_buckets;
    uint64_t *taken = mr_alloc(bytes);
    if (!taken)
        return mr_fail_memory(bytes);
    *p = o->at;
    p->tail = tail_ref(o->at.tail);
    p->taken = memcpy(taken, o->at.taken, bytes);
    return MR_OK;
}

void mr_position_fini(mr_position *p)
{
    mr_free(p->taken);
    tail_unref(p->tail);
    p->taken = NULL, p->tail = NULL;
}

void mr_position_advance(mr_position *p, const mr_draw *d)
{
    // this is the first draw of an epoch: earlier epochs are complete
    if (d->epoch != p->epoch) {
        memset(p->taken, 0, sizeof *p->taken * (size_t)p->n_buckets);
        p->epoch = d->epoch, p->digest = 0;
        p->seen_n = p->seen_hash = 0;
        tail_unref(p->tail);
        p->tail = tail_ref(d->tail);
    }
    p->taken[d->bucket] += (uint64_t)d->n;
    p->number = d->number + 1;
    p->digest += d->digest;
    p->slot = d->slot;
}

mr_status mr_position_text(const mr_position *p, const mr_order *o, bool brief, char **text)
{
    mr_position said = *p;
    // the lists determine how many samples of each bucket are taken
    if (o->lists)
        said.n_buckets = 0;
    return position_text(&said, &o->rows.facts, mr_bucket_rule_hash_of(o->rule, o->members),
                         o->seed, brief, text);
}

mr_status position_text(const mr_position *p, const mr_index_facts *facts, uint64_t rule,
                        uint64_t seed, bool brief, char **text)
{
    char order[33], set[33];
    mr_text out = {0};
    mr_hash128_hex(facts->fp_order, order);
    mr_hash128_hex(facts->fp_set, set);
    mr_text_add(&out, "moonreel order 1\nrows %" PRIu64 "\nfp_order %s\nfp_set %s\n", facts->rows,
                order, set);
    mr_text_add(&out,
                "rule %016" PRIx64 "\nseed %" PRIu64 "\nepoch %" PRIu64 "\ndraw %" PRIu64
                "\ndigest %016" PRIx64 "\nexcluded %" PRIu64 " %016" PRIx64 "\n",
                rule, seed, p->epoch, p->number, p->digest, p->excluded_n, p->excluded_hash);
    if (p->seen_n)
        mr_text_add(&out, "seen %" PRIu64 " %016" PRIx64 "\n", p->seen_n, p->seen_hash);
    if (p->slot.left)
        mr_text_add(&out, "slot %d %d %d\n", p->slot.left, p->slot.class, p->slot.first);
    tail_put(p->tail, brief, &out);
    mr_text_add(&out, "taken");
    for (int32_t b = 0; b < p->n_buckets; b++)
        if (p->taken[b])
            mr_text_add(&out, " %d:%" PRIu64, b, p->taken[b]);
    mr_text_add(&out, "\n");
    return mr_text_end(&out, text);
}

// find the value of a line "name value"; *n is its length
static const char *value_of(const char *text, const char *name, int *n)
{
    size_t len = strlen(name);
    for (const char *p = text; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
        if (strncmp(p, name, len) == 0 && p[len] == ' ') {
            *n = (int)strcspn(p + len + 1, "\n");
            return p + len + 1;
        }
    *n = 0;
    return "";
}

static bool get_number(const char *text, const char *name, int base, uint64_t *out)
{
    int n;
    const char *p = value_of(text, name, &n);
    char *end;
    *out = strtoull(p, &end, base);
    return n && end != p;
}

static mr_status fail_form(void)
{
    return mr_fail(MR_E_FORMAT, "the sampler state is not one of 'moonreel order 1'; try: an older "
                                "checkpoint, or --start-from-scratch");
}

mr_status mr_position_epoch(const char *text, uint64_t *epoch)
{
    return strncmp(text, "moonreel order 1\n", 17) == 0 && get_number(text, "epoch", 10, epoch)
               ? MR_OK
               : fail_form();
}

static bool is_same(const char *text, const char *name, mr_hash128 h)
{
    char hex[33];
    int n;
    mr_hash128_hex(h, hex);
    const char *p = value_of(text, name, &n);
    return n == 32 && strncmp(p, hex, 32) == 0;
}

// read an optional line of a number and a hash
static bool get_list(const char *text, const char *name, uint64_t *n, uint64_t *hash)
{
    int len;
    const char *p = value_of(text, name, &len);
    *n = *hash = 0;
    return !len || sscanf(p, "%" SCNu64 " %16" SCNx64, n, hash) == 2;
}

// read the text, except for the taken samples
static mr_status read_text(const char *text, mr_position *at, uint64_t *seed, uint64_t *rule,
                           uint64_t *rows)
{
    int len;
    MR_TRY(mr_position_epoch(text, &at->epoch));
    bool good = get_number(text, "draw", 10, &at->number) &&
                get_number(text, "digest", 16, &at->digest) && get_number(text, "seed", 10, seed) &&
                get_number(text, "rule", 16, rule) && get_number(text, "rows", 10, rows) &&
                get_list(text, "excluded", &at->excluded_n, &at->excluded_hash) &&
                get_list(text, "seen", &at->seen_n, &at->seen_hash);
    const char *slot = value_of(text, "slot", &len);
    good = good && (!len || sscanf(slot, "%d %d %d", &at->slot.left, &at->slot.class,
                                   &at->slot.first) == 3);
    return good ? MR_OK : fail_form();
}

static mr_status check_same(const mr_order *o, const char *text, uint64_t seed, uint64_t rule,
                            uint64_t rows)
{
    const mr_index_facts *facts = &o->rows.facts;
    if (!is_same(text, "fp_order", facts->fp_order))
        return mr_fail(MR_E_DATA,
                       "%s: %s; expected the index of the state, with %llu rows; try: the index of "
                       "that run, or --start-from-scratch",
                       o->rows.name,
                       is_same(text, "fp_set", facts->fp_set)
                           ? "holds the same samples in another order"
                           : "holds other samples",
                       (unsigned long long)rows);
    if (seed != o->seed)
        return mr_fail(MR_E_DATA,
                       "seed is %llu; expected %llu, the seed of the state; try: that seed, or "
                       "--start-from-scratch",
                       (unsigned long long)o->seed, (unsigned long long)seed);
    if (rule != mr_bucket_rule_hash_of(o->rule, o->members))
        return mr_fail(MR_E_DATA,
                       "the bucket rule (bucket_config, resolutions, frame_interval, quantiles of "
                       "the source, order) differs from that of the state; %s can change within an "
                       "epoch; try: the old rule, data_change = \"next\", or --start-from-scratch",
                       o->lists ? "no part of the rule of a reference" : "only batch sizes");
    return MR_OK;
}

static mr_status check_seen(const mr_order *o, const mr_subset *seen, const mr_position *at)
{
    uint64_t n = seen ? seen->count : 0, hash = seen ? seen->hash : 0;
    if (n != at->seen_n || hash != at->seen_hash)
        return mr_fail(MR_E_DATA,
                       "epoch %llu trained %llu samples before its data or rule changed, but the "
                       "list of them has %llu samples or other ones; try: the seen-*.bits of that "
                       "run, or --start-from-scratch",
                       (unsigned long long)at->epoch, (unsigned long long)at->seen_n,
                       (unsigned long long)n);
    if (seen && !subset_is_of(seen->fp_order, o->rows.facts.fp_order))
        return mr_fail(MR_E_DATA,
                       "the list of trained samples belongs to another index than %s; try: the "
                       "seen-*.bits of that run, or --start-from-scratch",
                       o->rows.name);
    return MR_OK;
}

// read the number of taken samples per bucket from a text
static mr_status read_taken(mr_order *o, const char *text)
{
    uint64_t taken = 0;
    const char *p = strstr(text, "\ntaken");
    if (!p)
        return fail_form();
    for (p += 6; *p == ' ';) {
        char *end;
        uint64_t b = strtoull(p, &end, 10),
                 count = *end == ':' ? strtoull(end + 1, &end, 10) : UINT64_MAX;
        if (b >= (uint64_t)o->at.n_buckets || count > order_total(o, (int32_t)b))
            return fail_form();
        o->at.taken[b] = count;
        taken += count;
        p = end;
    }
    return *p == '\n' && taken <= o->in_epoch + (o->at.tail ? o->at.tail->n : 0) ? MR_OK
                                                                                 : fail_form();
}

// compute the same from the lists of a reference
static mr_status replay_turns(mr_order *o, uint64_t number)
{
    for (uint64_t i = 0; i < MR_MIN(number, o->lists->n); i++) {
        int32_t b = o->lists->turns[i];
        o->at.taken[b] += (uint64_t)mr_bucket_rule_get(o->rule, b).batch;
    }
    return MR_OK;
}

mr_status mr_order_restore(mr_order *o, const char *text, const uint64_t *excluded, uint64_t n,
                           mr_subset *seen)
{
    mr_position at = {0};
    uint64_t seed = 0, rule = 0, rows = 0;
    MR_TRY(read_text(text, &at, &seed, &rule, &rows));
    MR_TRY(check_same(o, text, seed, rule, rows));
    MR_TRY(check_seen(o, seen, &at));
    MR_TRY(mr_order_exclude(o, excluded, n));
    mr_subset_unref(o->next_seen);
    o->next_seen = mr_subset_ref(seen);
    MR_TRY(mr_order_begin(o, at.epoch));
    const char *tail = strstr(text, "\ntail ");
    if (tail) {
        tail_unref(o->at.tail);
        o->at.tail = NULL;
        MR_TRY(tail_read(o, tail + 5, &o->at.tail));
    }
    if (o->at.excluded_n != at.excluded_n || o->at.excluded_hash != at.excluded_hash)
        return mr_fail(MR_E_DATA,
                       "the quarantine list excludes %llu samples from epoch %llu, but the state "
                       "excludes %llu samples or other ones; try: the quarantine.jsonl of that run",
                       (unsigned long long)o->at.excluded_n, (unsigned long long)at.epoch,
                       (unsigned long long)at.excluded_n);
    MR_TRY(o->lists ? replay_turns(o, at.number) : read_taken(o, text));
    o->at.number = at.number, o->at.digest = at.digest;
    // continue a slot that is begun only if its size fits
    mr_slot slot = at.slot;
    int32_t nb = o->at.n_buckets;
    if (slot.left > 0 && slot.left < o->slot && slot.class >= -1 && slot.class < nb &&
        slot.first >= -1 && slot.first < nb)
        o->at.slot = slot;
    return MR_OK;
}
