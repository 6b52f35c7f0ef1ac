/* data: where a stream of draws stands, as text and back. Ref: dataplane 4.7. Licence:
 * Apache-2.0 */
#include "data/room.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

mr_status mr_position_init(mr_position *p, const mr_order *o)
{
    size_t bytes = sizeof *p->taken * (size_t)o->at.n_buckets;
    uint64_t *taken = mr_alloc(bytes);
    if (!taken)
        return mr_fail_memory(bytes);
    *p = o->at;
    p->taken = memcpy(taken, o->at.taken, bytes);
    return MR_OK;
}

void mr_position_fini(mr_position *p)
{
    mr_free(p->taken);
    p->taken = NULL;
}

void mr_position_advance(mr_position *p, const mr_draw *d)
{
    // this is the first draw of an epoch: everything before it is over
    if (d->epoch != p->epoch) {
        memset(p->taken, 0, sizeof *p->taken * (size_t)p->n_buckets);
        p->epoch = d->epoch, p->digest = 0;
    }
    p->taken[d->bucket] += (uint64_t)d->n;
    p->number = d->number + 1;
    p->digest += d->digest;
}

mr_status mr_position_text(const mr_position *p, const mr_order *o, char **text)
{
    char order[33], set[33], line[256];
    index_pack out = {0};
    mr_hash128_hex(o->facts.fp_order, order);
    mr_hash128_hex(o->facts.fp_set, set);
    int n =
        snprintf(line, sizeof line, "moonreel order 1\nrows %" PRIu64 "\nfp_order %s\nfp_set %s\n",
                 o->facts.rows, order, set);
    index_put(&out, line, (size_t)n);
    n = snprintf(line, sizeof line,
                 "rule %016" PRIx64 "\nseed %" PRIu64 "\nepoch %" PRIu64 "\ndraw %" PRIu64
                 "\ndigest %016" PRIx64 "\nexcluded %" PRIu64 " %016" PRIx64 "\ntaken",
                 mr_bucket_rule_hash(o->rule), o->seed, p->epoch, p->number, p->digest,
                 p->excluded_n, p->excluded_hash);
    index_put(&out, line, (size_t)n);
    for (int32_t b = 0; b < p->n_buckets; b++)
        if (p->taken[b])
            index_put(&out, line,
                      (size_t)snprintf(line, sizeof line, " %d:%" PRIu64, b, p->taken[b]));
    index_put(&out, "\n", 2);
    if (out.failed) {
        mr_free(out.bytes);
        return mr_fail_memory(out.cap * 2);
    }
    *text = (char *)out.bytes;
    return MR_OK;
}

// finds the value of a line "name value"; *n is its length
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

mr_status mr_order_restore(mr_order *o, const char *text, const uint64_t *excluded, uint64_t n)
{
    uint64_t epoch, number, digest, seed, rule, rows, excluded_n, excluded_hash, taken = 0;
    MR_TRY(mr_position_epoch(text, &epoch));
    if (!get_number(text, "draw", 10, &number) || !get_number(text, "digest", 16, &digest) ||
        !get_number(text, "seed", 10, &seed) || !get_number(text, "rule", 16, &rule) ||
        !get_number(text, "rows", 10, &rows) || !get_number(text, "excluded", 10, &excluded_n))
        return fail_form();
    int len;
    const char *p = value_of(text, "excluded", &len), *space = strchr(p, ' ');
    excluded_hash = space ? strtoull(space, NULL, 16) : 0;
    const char *path = mr_index_path(o->index);
    if (!is_same(text, "fp_order", o->facts.fp_order))
        return mr_fail(MR_E_DATA,
                       "%s: %s, the state is of %llu rows; try: the index of that run, or "
                       "--start-from-scratch",
                       path,
                       is_same(text, "fp_set", o->facts.fp_set)
                           ? "holds the same samples in another order"
                           : "holds other samples",
                       (unsigned long long)rows);
    if (seed != o->seed)
        return mr_fail(
            MR_E_DATA,
            "seed is %llu, the state is of seed %llu; try: that seed, or --start-from-scratch",
            (unsigned long long)o->seed, (unsigned long long)seed);
    if (rule != mr_bucket_rule_hash(o->rule))
        return mr_fail(MR_E_DATA, "the bucket rule (bucket_config, resolutions, frame_interval) "
                                  "differs from that of the state; "
                                  "only batch sizes may change within an epoch; try: the old rule, "
                                  "or --start-from-scratch");
    MR_TRY(mr_order_exclude(o, excluded, n));
    MR_TRY(order_begin_epoch(o, epoch));
    if (o->at.excluded_n != excluded_n || o->at.excluded_hash != excluded_hash)
        return mr_fail(MR_E_DATA,
                       "the quarantine list leaves out %llu samples in epoch %llu, the state knows "
                       "%llu (or others); try: the quarantine.jsonl of that run",
                       (unsigned long long)o->at.excluded_n, (unsigned long long)epoch,
                       (unsigned long long)excluded_n);
    p = strstr(text, "\ntaken");
    if (!p)
        return fail_form();
    for (p += 6; *p == ' ';) {
        char *end;
        uint64_t b = strtoull(p, &end, 10),
                 count = *end == ':' ? strtoull(end + 1, &end, 10) : UINT64_MAX;
        if (b >= (uint64_t)o->at.n_buckets || count > o->samples[b])
            return fail_form();
        o->at.taken[b] = count;
        taken += count;
        p = end;
    }
    if (*p != '\n' || taken > o->in_epoch)
        return fail_form();
    o->at.number = number, o->at.digest = digest;
    return MR_OK;
}
