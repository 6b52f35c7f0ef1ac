/* data: samples that an epoch left over because they did not fill a micro-batch of their bucket.
 * The next epoch begins with them. Ref: dataplane 4.4. Licence: Apache-2.0 */
#include "data/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

mr_status tail_new(int32_t n_buckets, mr_tail **out)
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

mr_status tail_add(mr_tail *t, int32_t bucket, uint64_t id, uint64_t key)
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

// most samples that a brief state names itself
enum { BRIEF = 64 };

static bool is_listed(const mr_tail *t)
{
    return t && t->n > BRIEF;
}

static void put_all(const mr_tail *t, mr_text *out)
{
    mr_text_add(out, "tail");
    for (int32_t b = 0; b < t->n_buckets; b++)
        for (uint64_t i = t->first[b]; i < t->first[b + 1]; i++)
            mr_text_add(out, " %d:%" PRIu64, b, t->ids[i]);
    mr_text_add(out, "\n");
}

void tail_put(const mr_tail *t, bool brief, mr_text *out)
{
    if (!t || !t->n)
        return;
    if (!brief || !is_listed(t)) {
        put_all(t, out);
        return;
    }
    mr_text all = {0};
    put_all(t, &all);
    if (!all.failed)
        mr_text_add(out, "tail @%016" PRIx64 " %" PRIu64 "\n", mr_hash64(all.data, all.used), t->n);
    out->failed |= all.failed;
    mr_free(all.data);
}

void tail_put_list(const mr_tail *t, mr_text *out)
{
    if (!is_listed(t))
        return;
    mr_text_add(out, "\n");
    put_all(t, out);
}

// the line of a text that starts with `begin`, including its end; NULL if there is no such line
static const char *line_of(const char *text, const char *begin, size_t *n)
{
    const char *p = strstr(text, begin);
    if (!p)
        return NULL;
    p += *begin == '\n';
    *n = strcspn(p, "\n") + 1;
    return p;
}

mr_status mr_position_whole(const char *text, const char *list, char **out)
{
    size_t n, n_all = 0;
    uint64_t hash, count;
    const char *brief = line_of(text, "\ntail @", &n), *all = NULL;
    *out = NULL;
    mr_text whole = {0};
    if (brief) {
        all = list ? line_of(list, "\ntail ", &n_all) : NULL;
        // the line of the list is the last one of its text, and can lack the line break
        mr_text line = {0};
        mr_text_put(&line, all ? all : "", n_all ? n_all - 1 : 0);
        mr_text_put(&line, "\n", 1);
        bool good = !line.failed && all &&
                    sscanf(brief, "tail @%16" SCNx64 " %" SCNu64, &hash, &count) == 2 &&
                    mr_hash64(line.data, line.used) == hash;
        if (good) {
            mr_text_put(&whole, text, (size_t)(brief - text));
            mr_text_put(&whole, line.data, line.used);
            mr_text_put(&whole, brief + n, strlen(brief + n));
        }
        mr_free(line.data);
        if (!good)
            return mr_fail(MR_E_DATA,
                           "the sampler state names samples that its last epoch left over, but the "
                           "list of them is %s; try: an older checkpoint, or --start-from-scratch",
                           all ? "another one" : "not there");
    } else {
        mr_text_put(&whole, text, strlen(text));
    }
    return mr_text_end(&whole, out);
}

mr_status tail_read(mr_order *o, const char *p, mr_tail **out)
{
    int32_t last = 0;
    MR_TRY(tail_new(o->at.n_buckets, out));
    while (*p == ' ') {
        const mr_hot *rows;
        char *end;
        int32_t n;
        uint64_t b = strtoull(p, &end, 10), id = *end == ':' ? strtoull(end + 1, &end, 10) : 0;
        if (b >= (uint64_t)o->at.n_buckets || (int32_t)b < last || id >= o->rows.facts.rows)
            break;
        MR_TRY(o->rows.read(o->rows.user, id / MR_HOT_ROWS, &rows, &n));
        MR_TRY(tail_add(*out, last = (int32_t)b, id, rows[id % MR_HOT_ROWS].key_lo));
        p = end;
    }
    return *p == '\n'
               ? MR_OK
               : mr_fail(MR_E_FORMAT,
                         "the sampler state names samples of its last epoch that do not exist; "
                         "try: an older checkpoint, or --start-from-scratch");
}

/* ---- move to another plan ---- */

typedef struct mover {
    mr_order *order;
    const mr_carry *from;
    const mr_bucket_rule *rule;
    const mr_subset *members;
    mr_index_reader *was, *now;
    bool same; // both are the same index
} mover;

static int32_t bucket_of_shape(const mr_bucket_rule *rule, const mr_bucket *shape)
{
    for (int32_t b = 0; b < mr_bucket_rule_count(rule); b++) {
        mr_bucket is = mr_bucket_rule_get(rule, b);
        if (is.frames == shape->frames && is.height == shape->height && is.width == shape->width &&
            strcmp(is.resolution, shape->resolution) == 0)
            return b;
    }
    return -1;
}

// The row and the bucket of sample i of a tail in the new plan; *bucket is -1 if it has no bucket.
static mr_status move_one(const mover *m, const mr_tail *t, int32_t was, uint64_t i, uint64_t *id,
                          int32_t *bucket)
{
    mr_row row;
    const mr_hot *hot;
    int32_t n;
    *id = t->ids[i], *bucket = -1;
    if (!m->same) {
        MR_TRY(mr_index_row(m->was, t->ids[i], &row));
        mr_status st = mr_index_find(m->now, row.key, id);
        if (st != MR_OK)
            return st == MR_E_RANGE ? MR_OK : st;
    }
    if (m->members && !mr_subset_has(m->members, *id))
        return MR_OK;
    mr_bucket shape = mr_bucket_rule_get(m->from->rule, was);
    if ((*bucket = bucket_of_shape(m->rule, &shape)) >= 0)
        return MR_OK;
    mr_drop why;
    MR_TRY(mr_index_hot(m->now, *id / MR_HOT_ROWS, &hot, &n));
    *bucket = mr_bucket_rule_assign(m->rule, m->from->seed, m->order->at.epoch - 1, *id,
                                    &hot[*id % MR_HOT_ROWS], &why);
    return MR_OK;
}

static mr_status move_all(const mover *m, mr_tail **out)
{
    const mr_order *o = m->order;
    const mr_tail *t = o->at.tail;
    uint64_t *ids = mr_calloc(t->n + 1, sizeof *ids), n = 0;
    int32_t *buckets = mr_calloc(t->n + 1, sizeof *buckets);
    mr_status st = ids && buckets ? MR_OK : mr_fail_memory(0);
    for (int32_t b = 0; b < t->n_buckets; b++)
        for (uint64_t i = t->first[b] + o->at.taken[b]; i < t->first[b + 1] && st == MR_OK; i++) {
            st = move_one(m, t, b, i, &ids[n], &buckets[n]);
            n += st == MR_OK && buckets[n] >= 0;
        }
    if (st == MR_OK)
        st = tail_new(mr_bucket_rule_count(m->rule), out);
    // read the keys again, with the rows
    for (int32_t b = 0; st == MR_OK && b < mr_bucket_rule_count(m->rule); b++)
        for (uint64_t i = 0; i < n && st == MR_OK; i++)
            if (buckets[i] == b)
                st = tail_add(*out, b, ids[i], 0);
    mr_free(ids);
    mr_free(buckets);
    return st;
}

mr_status tail_move(mr_order *o, const mr_carry *from, mr_index *now, const mr_bucket_rule *rule,
                    const mr_subset *members, mr_tail **out)
{
    mover m = {.order = o,
               .from = from,
               .rule = rule,
               .members = members,
               .same = subset_is_of(mr_index_get_facts(from->index).fp_order,
                                    mr_index_get_facts(now).fp_order)};
    *out = NULL;
    if (!o->at.tail)
        return MR_OK;
    mr_status st = mr_index_reader_new(from->index, &m.was);
    if (st == MR_OK)
        st = mr_index_reader_new(now, &m.now);
    if (st == MR_OK)
        st = move_all(&m, out);
    mr_index_reader_free(m.was);
    mr_index_reader_free(m.now);
    return st;
}
