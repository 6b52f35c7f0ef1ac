/* data: orders an epoch exactly as a reference implementation does. That order cannot be computed
 * from the number of a draw. So rows are gathered by bucket and shuffled as lists, which need 6
 * bytes per row and 2 bytes per micro-batch. Ref: opensora-1.2.md 4.7, opensora-2.0.md 10.3.
 * Licence: Apache-2.0 */
#include "data/order.h"
#include "moonreel/generator.h"

#include <stdlib.h>
#include <string.h>

mr_status lists_new(mr_order *o)
{
    if (o->carry)
        return mr_fail(MR_E_RECIPE,
                       "tail = \"carry\": the order of a reference drops samples that do not fill "
                       "a batch; try: tail = \"short\", or order = \"own\"");
    if (o->members)
        return mr_fail(MR_E_RECIPE,
                       "quantiles of a column or hold_back: the order of a reference needs the "
                       "whole index; try: moonreel data split, or order = \"own\"");
    if (o->seed > INT64_MAX)
        return mr_fail(MR_E_RECIPE,
                       "seed is %lld; the order of a reference expects 0 or more; try: another "
                       "seed, or order = \"own\"",
                       (long long)o->seed);
    if (o->rows.facts.rows > UINT32_MAX)
        return mr_fail(MR_E_DATA,
                       "%s: %llu rows; the order of a reference supports at most 2^32 rows; try: "
                       "order = \"own\"",
                       o->rows.name, (unsigned long long)o->rows.facts.rows);
    size_t nb = (size_t)o->at.n_buckets;
    if (!MR_NEW(o->lists) || !(o->lists->first = mr_calloc(nb + 1, sizeof *o->lists->first)))
        return mr_fail_memory(nb * sizeof *o->lists->first);
    return MR_OK;
}

void lists_free(mr_order *o)
{
    if (!o->lists)
        return;
    mr_free(o->lists->rows);
    mr_free(o->lists->first);
    mr_free(o->lists->turns);
    mr_free(o->lists);
}

size_t lists_bytes(const mr_order *o)
{
    return o->lists ? o->lists->room * sizeof *o->lists->rows + o->batches * sizeof *o->lists->turns
                    : 0;
}

/* The state while lists are built. */
typedef struct maker {
    mr_order *o;
    int32_t *met, n_met; /* buckets in the order of their first rows */
    uint64_t *has;       /* [bucket] number of its rows, which is also the room in the list */
    mr_twister numbers;
} maker;

static uint64_t batch_of(const maker *m, int32_t b)
{
    return (uint64_t)mr_bucket_rule_get(m->o->rule, b).batch;
}

// add a row to the accounts of drawn rows, or remove it
static mr_status account(mr_order *o, uint64_t row, bool joins)
{
    const mr_hot *rows;
    int32_t n;
    MR_TRY(o->rows.read(o->rows.user, row / MR_HOT_ROWS, &rows, &n));
    uint64_t mixed = MR_MIX(rows[row % MR_HOT_ROWS].key_lo);
    o->expected += joins ? mixed : -mixed;
    o->in_epoch += joins ? 1 : -(uint64_t)1;
    if (!joins) {
        o->dropped[MR_DROP_LEFT]++;
        o->lists->left = row;
    }
    return MR_OK;
}

// find the bucket of each row, and the number of rows per bucket
static mr_status assign_rows(maker *m)
{
    mr_order *o = m->o;
    for (uint64_t id = 0; id < o->rows.facts.rows;) {
        const mr_hot *rows;
        int32_t n, buckets[BUCKET_ROWS];
        MR_TRY(o->rows.read(o->rows.user, id / MR_HOT_ROWS, &rows, &n));
        for (int32_t at = 0, some; at < n; at += some, id += (uint64_t)some) {
            some = MR_MIN(n - at, (int32_t)BUCKET_ROWS);
            order_buckets_of(o, id, rows + at, some, buckets);
            for (int32_t i = 0; i < some; i++) {
                int32_t b = buckets[i];
                o->entered[id + (uint64_t)i] = (uint16_t)MR_MAX(b, -1);
                if (b < 0) {
                    o->dropped[-b]++;
                    continue;
                }
                if (!m->has[b]++)
                    m->met[m->n_met++] = b;
                o->in_epoch++;
                o->expected += MR_MIX(rows[at + i].key_lo);
            }
        }
    }
    return MR_OK;
}

// group rows by bucket, in order; each bucket has room for one more batch
static mr_status gather(maker *m)
{
    order_lists *l = m->o->lists;
    uint64_t room = 0;
    for (int32_t i = 0; i < m->n_met; i++) {
        int32_t b = m->met[i];
        l->first[b] = room;
        room += m->has[b] + batch_of(m, b);
        m->has[b] = 0;
    }
    mr_free(l->rows);
    l->room = room;
    if (!(l->rows = mr_alloc(sizeof *l->rows * (room + 1))))
        return mr_fail_memory(sizeof *l->rows * room);
    for (uint64_t row = 0; row < m->o->rows.facts.rows; row++) {
        uint16_t b = m->o->entered[row];
        if (b != UINT16_MAX)
            l->rows[l->first[b] + m->has[b]++] = (uint32_t)row;
    }
    return MR_OK;
}

// shuffle n items as torch permutes [0, n); `swap` swaps two of them
static void shuffle(maker *m, uint64_t n, void *list, void (*swap)(void *, uint64_t, uint64_t))
{
    for (uint64_t i = 0; i + 1 < n && !m->o->unshuffled; i++)
        swap(list, i, i + mr_twister_next(&m->numbers) % (n - i));
}

static void swap_rows(void *list, uint64_t a, uint64_t b)
{
    uint32_t *rows = list, row = rows[a];
    rows[a] = rows[b], rows[b] = row;
}

static void swap_turns(void *list, uint64_t a, uint64_t b)
{
    uint16_t *turns = list, turn = turns[a];
    turns[a] = turns[b], turns[b] = turn;
}

// Make whole batches of a bucket: drop its tail, or fill it with rows from its front. With too few
// rows, the bucket has no batch.
static mr_status even_out(maker *m, int32_t b)
{
    mr_order *o = m->o;
    uint32_t *rows = o->lists->rows + o->lists->first[b];
    uint64_t batch = batch_of(m, b), n = m->has[b], over = n % batch;
    for (uint64_t i = 0; i < over && !o->fill; i++)
        MR_TRY(account(o, rows[n - 1 - i], false));
    if (!o->fill) {
        m->has[b] = n - over;
    } else if (over) {
        m->has[b] = n + MR_MIN(batch - over, n);
        memcpy(rows + n, rows, sizeof *rows * (m->has[b] - n));
        for (uint64_t i = n; i < m->has[b]; i++)
            MR_TRY(account(o, rows[i], true));
    }
    shuffle(m, m->has[b], rows, swap_rows);
    for (; m->has[b] % batch; m->has[b]--)
        MR_TRY(account(o, rows[m->has[b] - 1], false));
    return MR_OK;
}

// Give every rank a micro-batch in each round: drop surplus micro-batches, or repeat the first
// ones, even of buckets without further rows.
static mr_status even_turns(maker *m, uint64_t n)
{
    mr_order *o = m->o;
    order_lists *l = o->lists;
    uint64_t ranks = (uint64_t)o->slot, over = n % ranks;
    l->n = n - over;
    if (o->fill && over) {
        l->n = n + MR_MIN(ranks - over, n);
        memcpy(l->turns + n, l->turns, sizeof *l->turns * (l->n - n));
        return MR_OK;
    }
    for (uint64_t i = l->n; i < n; i++) {
        int32_t b = l->turns[i];
        for (uint64_t k = 0; k < batch_of(m, b); k++)
            MR_TRY(account(o, l->rows[l->first[b] + --m->has[b]], false));
    }
    return MR_OK;
}

static mr_status make(maker *m)
{
    mr_order *o = m->o;
    order_lists *l = o->lists;
    MR_TRY(assign_rows(m));
    MR_TRY(gather(m));
    mr_twister_seed(&m->numbers, (uint32_t)(o->seed + o->at.epoch));
    uint64_t n = 0;
    for (int32_t i = 0; i < m->n_met; i++) {
        MR_TRY(even_out(m, m->met[i]));
        n += m->has[m->met[i]] / batch_of(m, m->met[i]);
    }
    mr_free(l->turns);
    if (!(l->turns = mr_alloc(sizeof *l->turns * (n + (uint64_t)o->slot))))
        return mr_fail_memory(sizeof *l->turns * n);
    for (int32_t i = 0, at = 0; i < m->n_met; i++)
        for (uint64_t k = m->has[m->met[i]] / batch_of(m, m->met[i]); k > 0; k--)
            l->turns[at++] = (uint16_t)m->met[i];
    shuffle(m, n, l->turns, swap_turns);
    MR_TRY(even_turns(m, n));
    for (int32_t i = 0; i < m->n_met; i++)
        o->samples[m->met[i]] = m->has[m->met[i]];
    o->batches = l->n;
    return MR_OK;
}

mr_status lists_plan(mr_order *o)
{
    size_t nb = (size_t)o->at.n_buckets;
    maker *m;
    if (!MR_NEW(m))
        return mr_fail_memory(sizeof *m);
    m->o = o;
    o->lists->left = UINT64_MAX;
    memset(o->samples, 0, sizeof *o->samples * nb);
    memset(o->dropped, 0, sizeof o->dropped);
    o->expected = o->in_epoch = o->batches = 0;
    m->met = mr_calloc(nb, sizeof *m->met);
    m->has = mr_calloc(nb, sizeof *m->has);
    mr_status st = m->met && m->has ? make(m) : mr_fail_memory(nb * sizeof *m->has);
    mr_free(m->met);
    mr_free(m->has);
    mr_free(m);
    return st;
}
