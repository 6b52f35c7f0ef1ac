/* data: skips epochs without drawing them, and computes how far a stream can reach at most. An
 * epoch has to be planned to know its length, unless its rule has no random choice: then all epochs
 * have one length. Licence: Apache-2.0 */
#include "data/blend.h"

#include <math.h>

// Mark the rest of the epoch as taken, with the accounts of its last draw.
static mr_status finish(mr_order *o, uint64_t rest, uint64_t *samples)
{
    const mr_tail *had = o->at.tail;
    mr_tail *left = NULL;
    bool carry = order_carries(o);
    for (int32_t b = 0; b < o->at.n_buckets; b++) {
        uint64_t n = order_total(o, b) - o->at.taken[b];
        if (carry)
            n -= n % (uint64_t)mr_bucket_rule_get(o->rule, b).batch;
        o->at.taken[b] += n;
        *samples += n;
    }
    mr_status st = carry ? order_left_over(o, &left) : MR_OK;
    if (st == MR_OK) {
        o->at.digest = o->expected + (had ? had->digest : 0) - (left ? left->digest : 0);
        o->at.number += rest, o->at.slot.left = 0;
    }
    tail_unref(left);
    return st;
}

// From the start of an epoch, skip all epochs that fit into `most` but the last; all have the
// length of this one.
static mr_status leap(mr_order *o, uint64_t most, uint64_t epochs, uint64_t *n, uint64_t *samples)
{
    uint64_t rest = order_rest(o), whole = rest ? most / rest : 0;
    if (epochs)
        whole = MR_MIN(whole, epochs - o->at.epoch);
    if (whole < 2)
        return MR_OK;
    *n += (whole - 1) * rest, *samples += (whole - 1) * o->in_epoch;
    return mr_order_begin(o, o->at.epoch + whole - 1);
}

mr_status order_pass(mr_order *o, uint64_t most, uint64_t epochs, bool settled, uint64_t *n,
                     uint64_t *samples)
{
    *n = *samples = 0;
    do {
        MR_TRY(mr_interrupt_check());
        if (order_is_used_up(o)) {
            if (epochs && o->at.epoch + 1 >= epochs)
                return MR_OK;
            MR_TRY(order_go_on(o));
        }
        if (settled && !o->carry && !o->at.number && order_is_alike(o))
            MR_TRY(leap(o, most - *n, epochs, n, samples));
        uint64_t rest = order_rest(o);
        if (rest > most - *n || (epochs && o->at.epoch >= epochs))
            return MR_OK;
        MR_TRY(finish(o, rest, samples));
        *n += rest;
    } while (settled);
    return MR_OK;
}

// a single source without end: its shares do not matter
static bool is_plain(const mr_blend *m)
{
    return m->n == 1 && !m->sources[0].n_weights && !m->sources[0].epochs;
}

mr_status mr_blend_pass(mr_blend *m, uint64_t most, uint64_t epochs, bool settled, uint64_t *n,
                        uint64_t *epoch)
{
    uint64_t samples;
    *n = 0;
    if (!is_plain(m))
        return MR_OK;
    MR_TRY(order_pass(m->sources[0].order, most, epochs, settled, n, &samples));
    m->at.taken[0] += samples, m->at.samples += samples;
    *epoch = m->sources[0].order->at.epoch;
    return MR_OK;
}

/* Each source needs the samples of `epochs` epochs. After its last change of weight it gets at
 * least its share of all samples, plus the rounding of some micro-batches. */
uint64_t mr_blend_most(const mr_blend *m, uint64_t epochs)
{
    double last = 0, most = 0, sum = 0, batch = 1;
    for (int32_t i = 0; i < m->n; i++) {
        const blend_source *s = &m->sources[i];
        sum += s->n_weights ? s->weights[s->n_weights - 1].weight : 1;
        last = s->n_weights ? fmax(last, (double)s->weights[s->n_weights - 1].samples) : last;
        batch = fmax(batch, mr_order_batch_max(s->order));
    }
    for (int32_t i = 0; i < m->n; i++) {
        const blend_source *s = &m->sources[i];
        uint64_t own = s->epochs && (!epochs || s->epochs < epochs) ? s->epochs : epochs;
        double share = (s->n_weights ? s->weights[s->n_weights - 1].weight : 1) / sum;
        if (share > 0)
            most =
                fmax(most, ((double)s->order->rows.facts.rows * (double)own + 64 * batch) / share);
        if (!own || s->order->fill)
            return UINT64_MAX;
    }
    double all = 1.001 * (last + most);
    return all < 9e18 ? (uint64_t)all : UINT64_MAX;
}
