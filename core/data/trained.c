/* data: the samples that an epoch trained before its data or rule changed. The rest of the epoch is
 * planned without them. Ref: dataplane 4.8. Licence: Apache-2.0 */
#include "data/order.h"
#include "data/position.h"

// mark the consumed rows of an order's epoch: P(j) of a bucket for all j below its count
static mr_status mark_taken(mr_order *o, mr_subset *s)
{
    uint64_t *met = mr_calloc((size_t)o->at.n_buckets, sizeof *met);
    mr_status st = met ? MR_OK : mr_fail_memory(0);
    for (uint64_t c = 0; c < o->chunks && st == MR_OK; c++) {
        const mr_hot *rows;
        int32_t n = 0;
        st = o->rows.read(o->rows.user, c, &rows, &n);
        for (int32_t i = 0; i < n && st == MR_OK; i++) {
            int32_t b;
            uint64_t id = c * MR_HOT_ROWS + (uint64_t)i;
            order_buckets_of(o, id, &rows[i], 1, &b);
            if (b == -MR_DROP_SEEN)
                subset_add(s, id);
            if (b < 0 || !o->at.taken[b])
                continue;
            uint64_t j = order_unpermute(order_bucket_key(o, b), o->samples[b], met[b]++);
            if (j + tail_count(o->at.tail, b) < o->at.taken[b])
                subset_add(s, id);
        }
    }
    mr_free(met);
    subset_close(s);
    return st;
}

typedef struct translation {
    const mr_subset *from;
    mr_subset *to;
} translation;

static mr_status move_row(void *user, mr_hash128 key, uint64_t from, uint64_t to)
{
    translation *t = user;
    if (from >= t->from->rows || !(t->from->bits[from / 8] >> from % 8 & 1))
        return MR_OK;
    if (to >= t->to->rows)
        return subset_add_gone(t->to, key);
    subset_add(t->to, to);
    return MR_OK;
}

// keys without a row get a row if a later index has one
static mr_status move_gone(const mr_subset *from, mr_index *now, mr_subset *to)
{
    mr_index_reader *reader;
    MR_TRY(mr_index_reader_new(now, &reader));
    mr_status st = MR_OK;
    for (uint64_t i = 0; i < from->n_gone && st == MR_OK; i++) {
        uint64_t id;
        mr_status found = mr_index_find(reader, from->gone[i], &id);
        if (found == MR_OK && id < to->rows)
            subset_add(to, id);
        else
            st = found == MR_E_RANGE ? subset_add_gone(to, from->gone[i]) : found;
    }
    mr_index_reader_free(reader);
    return st;
}

// Translate the samples to rows of another index. Samples that it lacks are kept by key: a later
// index can have them.
static mr_status translate(mr_index *was, mr_index *now, mr_subset **seen)
{
    mr_index_facts facts = mr_index_get_facts(now);
    translation t = {.from = *seen};
    MR_TRY(subset_new(facts.fp_order, facts.rows, &t.to));
    mr_status st = mr_index_match(was, now, move_row, &t, NULL);
    if (st == MR_OK)
        st = move_gone(*seen, now, t.to);
    subset_close(t.to);
    mr_subset_unref(*seen);
    *seen = t.to;
    return st;
}

// create the list of an order's epoch, with the keys of an earlier list
static mr_status list_of(mr_order *o, mr_subset **out)
{
    const mr_subset *before = o->seen;
    MR_TRY(subset_new(o->rows.facts.fp_order, o->rows.facts.rows, out));
    for (uint64_t i = 0; before && i < before->n_gone; i++)
        MR_TRY(subset_add_gone(*out, before->gone[i]));
    return mark_taken(o, *out);
}

mr_status mr_order_carry(const mr_carry *from, mr_index *index, const mr_bucket_rule *rule,
                         const mr_subset *members, char **text, mr_subset **out)
{
    mr_order *order = NULL;
    mr_subset *seen = NULL;
    mr_order_options options = {.seed = from->seed, .members = from->members};
    mr_index_facts facts = mr_index_get_facts(index);
    if (rule->follows || from->rule->follows)
        return mr_fail(MR_E_DATA, "the rest of an epoch cannot be carried over in the order of a "
                                  "reference, which would repeat samples and skip others; try: "
                                  "data_change = \"next\", or order = \"own\" in both");
    mr_status st = mr_order_new(from->index, from->rule, &options, &order);
    if (st == MR_OK)
        st = mr_order_restore(order, from->text, from->excluded, from->n_excluded, from->seen);
    if (st == MR_OK)
        st = list_of(order, &seen);
    if (st == MR_OK && !subset_is_of(seen->fp_order, facts.fp_order))
        st = translate(from->index, index, &seen);
    if (st == MR_OK) {
        // nothing of the new plan is taken yet
        mr_position p = order->at;
        p.n_buckets = 0, p.digest = 0, p.slot.left = 0;
        p.seen_n = seen->count, p.seen_hash = seen->hash;
        st = tail_move(order, from, index, rule, members, &p.tail);
        if (st == MR_OK)
            st = position_text(&p, &facts, mr_bucket_rule_hash_of(rule, members), from->seed, false,
                               text);
        tail_unref(p.tail);
    }
    mr_order_free(order);
    if (st == MR_OK)
        *out = seen;
    else
        mr_subset_unref(seen);
    return st;
}
