/* data: what an epoch trained before its data or rule changed, so that the rest of it is planned
 * without. Ref: dataplane 4.8. Licence: Apache-2.0 */
#include "data/room.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

static size_t bytes_of(uint64_t rows)
{
    return (size_t)(rows + 7) / 8;
}

static mr_status new_seen(mr_hash128 fp_order, uint64_t rows, mr_trained **out)
{
    mr_trained *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    atomic_init(&s->refs, 1);
    s->fp_order = fp_order, s->rows = rows;
    if (!(s->bits = mr_calloc(bytes_of(rows) + 1, 1))) {
        mr_trained_unref(s);
        return mr_fail_memory(bytes_of(rows));
    }
    *out = s;
    return MR_OK;
}

mr_trained *mr_trained_ref(mr_trained *s)
{
    if (s)
        atomic_fetch_add(&s->refs, 1);
    return s;
}

void mr_trained_unref(mr_trained *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    mr_free(s->bits);
    mr_free(s->gone);
    mr_free(s);
}

uint64_t mr_trained_count(const mr_trained *s)
{
    return s->count;
}

uint64_t mr_trained_hash(const mr_trained *s)
{
    return s->hash;
}

static void set_bit(mr_trained *s, uint64_t row)
{
    s->bits[row / 8] |= (uint8_t)(1 << row % 8);
}

static int compare_keys(const void *a, const void *b)
{
    const mr_hash128 *x = a, *y = b;
    if (x->hi != y->hi)
        return x->hi < y->hi ? -1 : 1;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

// count and hash follow bits and keys
static void close_list(mr_trained *s)
{
    s->count = s->n_gone;
    for (size_t i = 0; i < bytes_of(s->rows); i++)
        s->count += (uint64_t)__builtin_popcount(s->bits[i]);
    if (s->n_gone)
        qsort(s->gone, s->n_gone, sizeof *s->gone, compare_keys);
    s->hash = s->count ? MR_MIX(mr_hash64(s->bits, bytes_of(s->rows)),
                                mr_hash64(s->gone, sizeof *s->gone * s->n_gone))
                       : 0;
}

static mr_status add_gone(mr_trained *s, mr_hash128 key)
{
    if (s->n_gone == s->cap_gone) {
        uint64_t cap = MR_MAX(2 * s->cap_gone, 64);
        mr_hash128 *more = mr_realloc(s->gone, cap * sizeof *more);
        if (!more)
            return mr_fail_memory(cap * sizeof *more);
        s->gone = more, s->cap_gone = cap;
    }
    s->gone[s->n_gone++] = key;
    return MR_OK;
}

/* ---- as a file: a head, the bits, the keys ---- */

typedef struct seen_head {
    char magic[8];
    mr_hash128 fp_order;
    uint64_t rows, n_gone, count, hash;
} seen_head;
static const char magic[8] = "mrseen1";

mr_status mr_trained_write(const mr_trained *s, const char *path)
{
    size_t bits = bytes_of(s->rows), keys = sizeof *s->gone * s->n_gone;
    seen_head head = {.fp_order = s->fp_order,
                      .rows = s->rows,
                      .n_gone = s->n_gone,
                      .count = s->count,
                      .hash = s->hash};
    memcpy(head.magic, magic, sizeof magic);
    index_pack all = {0};
    index_put(&all, &head, sizeof head);
    index_put(&all, s->bits, bits);
    if (keys)
        index_put(&all, s->gone, keys);
    mr_status st = all.failed ? mr_fail_memory(sizeof head + bits + keys)
                              : mr_file_replace(path, all.bytes, all.n);
    mr_free(all.bytes);
    return st;
}

// a list of what lies behind the head; n bytes are there in all
static mr_status read_list(const char *path, const char *all, size_t n, mr_trained **out)
{
    seen_head head;
    if (n < sizeof head || memcmp(all, magic, sizeof magic) != 0)
        return mr_fail(MR_E_DATA, "%s: byte 0: is no list of trained samples", path);
    memcpy(&head, all, sizeof head);
    size_t room = n - sizeof head, bits = bytes_of(head.rows);
    if (head.rows / 8 > room || head.n_gone > room || room != bits + 16 * head.n_gone)
        return mr_fail(MR_E_DATA,
                       "%s: has %zu bytes behind its head, expected those of %llu rows "
                       "and %llu keys",
                       path, room, (unsigned long long)head.rows, (unsigned long long)head.n_gone);
    mr_trained *s;
    MR_TRY(new_seen(head.fp_order, head.rows, &s));
    *out = s;
    memcpy(s->bits, all + sizeof head, bits);
    for (uint64_t i = 0; i < head.n_gone; i++) {
        mr_hash128 key;
        memcpy(&key, all + sizeof head + bits + 16 * i, sizeof key);
        MR_TRY(add_gone(s, key));
    }
    close_list(s);
    return s->count == head.count && s->hash == head.hash
               ? MR_OK
               : mr_fail(MR_E_DATA, "%s: what stands from byte %zu on is damaged", path,
                         sizeof head);
}

mr_status mr_trained_read(const char *path, mr_trained **out)
{
    enum { LARGEST = 1 << 30 };
    char *all;
    size_t n;
    mr_trained *s = NULL;
    MR_TRY(mr_file_read_small(path, LARGEST, &all, &n));
    mr_status st = read_list(path, all, n, &s);
    mr_free(all);
    if (st == MR_OK)
        *out = s;
    else
        mr_trained_unref(s);
    return st;
}

/* ---- carrying a place over ---- */

// marks the rows of an order's epoch that are consumed: P(j) of a bucket for all j below its count
static mr_status mark_taken(mr_order *o, mr_trained *s)
{
    uint64_t *met = mr_calloc((size_t)o->at.n_buckets, sizeof *met);
    mr_status st = met ? MR_OK : mr_fail_memory(0);
    for (uint64_t c = 0; c < o->chunks && st == MR_OK; c++) {
        const mr_hot *rows;
        int32_t n = 0;
        st = o->rows.read(o->rows.user, c, &rows, &n);
        for (int32_t i = 0; i < n && st == MR_OK; i++) {
            mr_drop why;
            uint64_t id = c * MR_HOT_ROWS + (uint64_t)i;
            int32_t b = order_bucket_of(o, id, &rows[i], &why);
            if (why == MR_DROP_SEEN && b < 0)
                set_bit(s, id);
            if (b < 0 || !o->at.taken[b])
                continue;
            uint64_t j = order_unpermute(order_bucket_key(o, b), o->samples[b], met[b]++);
            if (j < o->at.taken[b])
                set_bit(s, id);
        }
    }
    mr_free(met);
    close_list(s);
    return st;
}

typedef struct translation {
    const mr_trained *from;
    mr_trained *to;
} translation;

static mr_status move_row(void *user, mr_hash128 key, uint64_t from, uint64_t to)
{
    translation *t = user;
    if (from >= t->from->rows || !(t->from->bits[from / 8] >> from % 8 & 1))
        return MR_OK;
    if (to >= t->to->rows)
        return add_gone(t->to, key);
    set_bit(t->to, to);
    return MR_OK;
}

// keys without a row find one again when a later index has it
static mr_status move_gone(const mr_trained *from, mr_index *now, mr_trained *to)
{
    mr_index_reader *reader;
    MR_TRY(mr_index_reader_new(now, &reader));
    mr_status st = MR_OK;
    for (uint64_t i = 0; i < from->n_gone && st == MR_OK; i++) {
        uint64_t id;
        mr_status found = mr_index_find(reader, from->gone[i], &id);
        if (found == MR_OK && id < to->rows)
            set_bit(to, id);
        else
            st = found == MR_E_RANGE ? add_gone(to, from->gone[i]) : found;
    }
    mr_index_reader_free(reader);
    return st;
}

// The same samples as rows of another index. Those that it lacks are kept by key: the next index
// may have them.
static mr_status translate(mr_index *was, mr_index *now, mr_trained **seen)
{
    mr_index_facts facts = mr_index_get_facts(now);
    translation t = {.from = *seen};
    MR_TRY(new_seen(facts.fp_order, facts.rows, &t.to));
    mr_status st = mr_index_match(was, now, move_row, &t, NULL);
    if (st == MR_OK)
        st = move_gone(*seen, now, t.to);
    close_list(t.to);
    mr_trained_unref(*seen);
    *seen = t.to;
    return st;
}

// the list of an order's epoch, begun with the keys that an earlier one kept
static mr_status list_of(mr_order *o, mr_trained **out)
{
    const mr_trained *before = o->seen;
    MR_TRY(new_seen(o->rows.facts.fp_order, o->rows.facts.rows, out));
    for (uint64_t i = 0; before && i < before->n_gone; i++)
        MR_TRY(add_gone(*out, before->gone[i]));
    return mark_taken(o, *out);
}

mr_status mr_order_carry(const mr_carry *from, mr_index *index, const mr_bucket_rule *rule,
                         char **text, mr_trained **out)
{
    mr_order *order = NULL;
    mr_trained *seen = NULL;
    mr_order_options options = {.seed = from->seed};
    mr_index_facts facts = mr_index_get_facts(index);
    mr_status st = mr_order_new(from->index, from->rule, &options, &order);
    if (st == MR_OK)
        st = mr_order_restore(order, from->text, from->excluded, from->n_excluded, from->seen);
    if (st == MR_OK)
        st = list_of(order, &seen);
    if (st == MR_OK && !order_is_of(seen->fp_order, facts.fp_order))
        st = translate(from->index, index, &seen);
    if (st == MR_OK) {
        // nothing is taken yet of what is planned anew
        mr_position p = order->at;
        p.n_buckets = 0, p.digest = 0, p.slot.left = 0;
        p.seen_n = seen->count, p.seen_hash = seen->hash;
        st = position_text(&p, &facts, rule, from->seed, text);
    }
    mr_order_free(order);
    if (st == MR_OK)
        *out = seen;
    else
        mr_trained_unref(seen);
    return st;
}
