/* data: batches in draw order, filled by decode threads (worker.c).
 *
 * Slabs form a ring: batch number s lives in slab s % slabs. A worker takes the oldest empty slot.
 * When the newest batch is begun and the next slab is free, it plans the next draw into that slab
 * while the other workers decode. The worker that fills the last slot completes the batch. A sample
 * depends only on its key and the draw, so the result does not depend on the number of threads or
 * their speed. When ranks share an order, draws of other ranks pass through the ring without
 * pixels. Ref: dataplane 4.6, 5, 6. Licence: Apache-2.0 */
#include "base/wait.h"
#include "data/room.h"

#include <string.h>
#include <unistd.h>

enum { WINDOW_FAILURES = 10, IN_A_ROW = 8 };

/* ---- life ---- */

// allocate memory for the draws of a group
static mr_status make_ahead(mr_loader *l)
{
    size_t n = l->options.lpt ? (size_t)l->options.group : 1;
    if (!(l->ahead = mr_calloc(n, sizeof *l->ahead)) ||
        !(l->owner = mr_calloc(n, sizeof *l->owner)) ||
        !(l->load = mr_calloc((size_t)l->options.parts, sizeof *l->load)) ||
        !(l->ahead_ids = mr_calloc(2 * n * (size_t)l->batch_max, sizeof *l->ahead_ids)))
        return mr_fail_memory(n * (size_t)l->batch_max * 16);
    for (size_t i = 0; i < n; i++) {
        l->ahead[i].ids = l->ahead_ids + 2 * i * (size_t)l->batch_max;
        l->ahead[i].keys = l->ahead[i].ids + l->batch_max;
    }
    return MR_OK;
}

// The part of a text for one source; NULL if it has no part. The lines of a list extend to the end
// of the text.
static mr_status part_of(const mr_loader *l, const char *text, int32_t source, char **out)
{
    *out = NULL;
    if (!text)
        return MR_OK;
    MR_TRY(blend_part(text, l->blend->sources[source].name, out));
    size_t n = *out ? strlen(*out) : 0;
    if (n && (*out)[n - 1] == '\n')
        (*out)[n - 1] = 0;
    return MR_OK;
}

static mr_status restore(mr_loader *l, int32_t source, const char *text, const char *excluded,
                         const char *seen)
{
    loader_source *s = &l->sources[source];
    uint64_t epoch, *keys, n;
    MR_TRY(mr_position_epoch(text, &epoch));
    if (excluded)
        MR_TRY(quarantine_take(s->bad, epoch, excluded));
    if (seen)
        MR_TRY(mr_subset_read(seen, &s->carried));
    s->carried_epoch = epoch;
    MR_TRY(quarantine_excluded(s->bad, epoch, &keys, &n));
    mr_status st = mr_order_restore(mr_blend_order(l->blend, source), text, keys, n, s->carried);
    mr_free(keys);
    return st;
}

// start a source at the position of its state, or at the start of an epoch
static mr_status begin_source(mr_loader *l, int32_t i, const mr_source *source)
{
    loader_source *s = &l->sources[i];
    const mr_loader_options *o = &l->options;
    char *text = NULL, *excluded = NULL;
    s->index = mr_index_ref(source->index);
    MR_TRY(quarantine_open(o->quarantine, mr_index_get_facts(s->index).fp_order, source->name,
                           &s->bad));
    mr_order *order = mr_blend_order(l->blend, i);
    mr_status st = o->state ? mr_blend_state_of(o->state, source->name, &text) : MR_OK;
    if (st == MR_OK)
        st = part_of(l, o->excluded, i, &excluded);
    char *whole = NULL;
    if (st == MR_OK && text)
        st = mr_position_whole(text, excluded, &whole);
    if (st == MR_OK && text) {
        st = restore(l, i, whole, excluded ? excluded : o->excluded ? "" : NULL, source->seen);
    } else if (st == MR_OK && source->epoch) {
        st = loader_exclude(l, i, source->epoch);
        if (st == MR_OK)
            st = mr_order_begin(order, source->epoch);
    }
    if (st != MR_OK && *source->name)
        mr_fail_note("sources.%s", source->name);
    mr_free(text);
    mr_free(whole);
    mr_free(excluded);
    s->epoch = order->at.epoch, s->samples = order->in_epoch, s->batches = order->batches;
    return st;
}

static mr_status check_share(mr_loader_options *o)
{
    o->parts = MR_MAX(o->parts, 1);
    if (!o->group)
        o->group = o->parts;
    if (o->part < 0 || o->part >= o->parts || o->group < 1)
        return mr_fail(MR_E_USAGE,
                       "part %d of %d, groups of %d: expected part 0 to %d, groups from 1", o->part,
                       o->parts, o->group, o->parts - 1);
    return MR_OK;
}

static mr_order_options order_options(const mr_loader *l)
{
    const mr_loader_options *o = &l->options;
    return (mr_order_options){.seed = o->seed,
                              .slot = o->slot,
                              .carry = o->carry,
                              .epochs = (uint64_t)MR_MAX(o->epochs, 0)};
}

// sum up the epochs of all sources
static mr_status add_facts(mr_loader *l)
{
    int32_t nb = mr_bucket_rule_count(l->rule);
    if (!(l->plan = mr_calloc((size_t)nb, sizeof *l->plan)))
        return mr_fail_memory(0);
    for (int32_t i = 0; i < l->blend->n; i++) {
        const mr_order *order = mr_blend_order(l->blend, i);
        for (int32_t b = 0; b < nb; b++)
            l->plan[b] += mr_order_samples(order, b);
        for (int why = 0; why < MR_DROP_COUNT; why++)
            l->facts.dropped[why] += mr_order_dropped(order, why);
        l->facts.samples += l->sources[i].samples, l->facts.batches += l->sources[i].batches;
        // the position can be the end of an epoch
        l->epoch_over |= order_is_used_up(order);
    }
    l->facts.epoch = l->sources[0].epoch;
    return MR_OK;
}

static mr_status start(mr_loader *l, const mr_source *sources, int32_t n)
{
    const mr_loader_options *o = &l->options;
    MR_TRY(check_share(&l->options));
    if (o->lpt && l->rule->follows)
        return mr_fail(MR_E_RECIPE, "share_out = \"lpt\": in the order of a reference ranks take "
                                    "turns; try: share_out = \"turns\", or order = \"own\"");
    l->agreed = true;
    l->media = mr_media_guarded();
    if (!o->isolated && !o->blind)
        MR_TRY(mr_media_get(&l->media));
    mr_order_options order = order_options(l);
    MR_TRY(mr_blend_new(sources, n, l->rule, &order, &l->blend));
    if (!o->allow_empty)
        MR_TRY(blend_check_cover(l->blend));
    if (!(l->sources = mr_calloc((size_t)n, sizeof *l->sources)))
        return mr_fail_memory(0);
    for (int32_t i = 0; i < n; i++)
        MR_TRY(begin_source(l, i, &sources[i]));
    if (o->state)
        MR_TRY(blend_restore(l->blend, o->state));
    MR_TRY(blend_position_init(&l->position, l->blend));
    MR_TRY(add_facts(l));
    l->all_planned = mr_blend_over(l->blend, (uint64_t)o->epochs);
    l->batch_max = mr_order_batch_max(mr_blend_order(l->blend, 0));
    MR_TRY(make_ahead(l));
    MR_TRY(slabs_open(l));
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int32_t threads =
        o->threads > 0 ? MR_MIN(o->threads, LOADER_THREADS) : (int32_t)MR_MAX(processors, 1);
    for (; l->n_threads < threads; l->n_threads++)
        if (pthread_create(&l->threads[l->n_threads], NULL, loader_worker, l))
            break;
    l->facts.threads = l->n_threads;
    return l->n_threads ? MR_OK : mr_fail(MR_E_FAIL, "cannot start a thread");
}

mr_status mr_loader_new(const mr_source *sources, int32_t n, mr_bucket_rule *rule,
                        const mr_loader_options *options, mr_loader **out)
{
    mr_loader *l;
    if (!MR_NEW(l)) {
        mr_bucket_rule_free(rule);
        return mr_fail_memory(sizeof *l);
    }
    l->rule = rule, l->options = *options;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    mr_status st = start(l, sources, n);
    // the texts belong to the caller: keep no pointer to them
    l->options.state = l->options.excluded = l->options.quarantine = NULL;
    if (st == MR_OK)
        *out = l;
    else
        mr_loader_free(l);
    return st;
}

void mr_loader_free(mr_loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int32_t i = 0; i < l->n_threads; i++)
        pthread_join(l->threads[i], NULL);
    slabs_close(l);
    mr_free(l->ahead);
    mr_free(l->owner);
    mr_free(l->load);
    mr_free(l->ahead_ids);
    for (int32_t i = 0; l->sources && i < l->blend->n; i++) {
        mr_subset_unref(l->sources[i].carried);
        tail_unref(l->sources[i].saved);
        quarantine_close(l->sources[i].bad);
        mr_index_unref(l->sources[i].index);
    }
    mr_free(l->sources);
    blend_position_fini(&l->position);
    mr_blend_free(l->blend);
    mr_bucket_rule_free(l->rule);
    mr_free(l->plan);
    mr_error_free(l->error);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->lock);
    mr_free(l);
}

/* ---- giving out batches ---- */

// count failures; more than 1 % of the last 1,000 samples, or 8 in a row from one root, stop the
// run
static mr_status count_failures(mr_loader *l, const slab *s)
{
    loader_source *source = &l->sources[s->draw.source];
    for (int32_t i = 0; i < s->draw.n && !s->batch.other; i++) {
        bool bad = s->faults[i] != MR_FAULT_NONE;
        uint8_t *old = &l->window[l->seen++ % LOADER_WINDOW];
        l->window_failures += bad - *old;
        *old = bad;
        int32_t *row = &l->row_of[(s->roots[i] + 7 * s->draw.source) % (int)MR_COUNT(l->row_of)];
        *row = bad ? *row + 1 : 0;
        l->facts.failed += bad;
        if (*row >= IN_A_ROW)
            return mr_fail(MR_E_DATA,
                           "%d samples in a row cannot be read from %s; try: is that disk there? "
                           "The newest: %s",
                           *row, mr_index_root(source->index, s->roots[i]), l->why);
        if (l->window_failures > WINDOW_FAILURES)
            return mr_fail(MR_E_DATA,
                           "%d of the last %llu samples cannot be read; try: moonreel data scan %s "
                           "--decode. The newest: %s",
                           l->window_failures, (unsigned long long)MR_MIN(l->seen, LOADER_WINDOW),
                           mr_index_path(source->index), l->why);
    }
    l->facts.delivered += s->batch.other ? 0 : (uint64_t)s->draw.n;
    source->delivered += (uint64_t)s->draw.n;
    return MR_OK;
}

mr_status mr_loader_next(mr_loader *l, const mr_batch **out)
{
    double began = mr_now_s();
    *out = NULL;
    pthread_mutex_lock(&l->lock);
    slab *s = &l->slabs[l->delivered % (uint64_t)l->n_slabs];
    if (s->state == OUT) {
        pthread_mutex_unlock(&l->lock);
        return mr_fail(MR_E_USAGE, "all %d slabs are given out; release batches first", l->n_slabs);
    }
    if (loader_must_agree(l) && l->delivered == l->planned) {
        pthread_mutex_unlock(&l->lock);
        return mr_fail(MR_E_USAGE,
                       "epoch %llu is over: the loader waits to hear what failed on "
                       "other ranks; try: loader:agree",
                       (unsigned long long)l->position.at[l->ended].epoch);
    }
    bool there = s->state == READY;
    // the worker that completes a batch, or a failure, signals `ready`; only this loop waits for it
    mr_status st = MR_OK;
    while (st == MR_OK && l->failed == MR_OK && s->state != READY &&
           !(l->all_planned && l->delivered == l->planned)) {
        mr_wait_briefly(&l->ready, &l->lock);
        st = mr_interrupt_check();
    }
    if (st != MR_OK) {
        // the next call continues with this batch
    } else if (l->failed != MR_OK) {
        st = mr_error_adopt(l->error);
    } else if (s->state == READY) {
        if ((st = count_failures(l, s)) != MR_OK) {
            loader_fail(l, st);
        } else {
            s->state = OUT;
            s->batch.wait_s = mr_now_s() - began;
            l->facts.wait_s += s->batch.wait_s;
            if (!s->batch.other)
                l->facts.hits += there, l->facts.waits += !there, l->facts.bytes += s->batch.bytes;
            l->delivered++;
            blend_position_advance(&l->position, &s->draw);
            mr_position *at = &l->position.at[s->draw.source];
            at->excluded_n = s->excluded_n, at->excluded_hash = s->excluded_hash;
            *out = &s->batch;
        }
    }
    pthread_mutex_unlock(&l->lock);
    return st;
}

void mr_loader_release(mr_loader *l, const mr_batch *batch)
{
    slab *s = batch->slab;
    pthread_mutex_lock(&l->lock);
    if (s->state == OUT) {
        s->state = FREE;
        if (!s->batch.other)
            l->in_use[s->buffer] = false;
    }
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}

// Concatenate the texts of all sources, each after its name if it has one. The lock is held.
static mr_status gather(mr_loader *l, mr_status (*tell)(mr_loader *l, int32_t source, char **text),
                        char **text)
{
    mr_text all = {0};
    mr_status st = MR_OK;
    for (int32_t i = 0; i < l->blend->n && st == MR_OK; i++) {
        char *part;
        if ((st = tell(l, i, &part)) != MR_OK)
            break;
        size_t n = strlen(part);
        if (n)
            blend_put_name(&all, l->blend->sources[i].name);
        mr_text_put(&all, part, n);
        if (n && i + 1 < l->blend->n && part[n - 1] != '\n')
            mr_text_put(&all, "\n", 1);
        mr_free(part);
    }
    if (st == MR_OK)
        return mr_text_end(&all, text);
    mr_free(all.data);
    return st;
}

static mr_status tell_failures(mr_loader *l, int32_t source, char **text)
{
    return quarantine_tell(l->sources[source].bad, text);
}

static mr_status tell_excluded(mr_loader *l, int32_t source, char **text)
{
    mr_text all = {0};
    char *keys;
    MR_TRY(quarantine_text(l->sources[source].bad, l->position.at[source].epoch, &keys));
    mr_text_put(&all, keys, strlen(keys));
    tail_put_list(l->sources[source].saved, &all);
    mr_free(keys);
    return mr_text_end(&all, text);
}

mr_status mr_loader_failures(mr_loader *l, char **text)
{
    pthread_mutex_lock(&l->lock);
    mr_status st = gather(l, tell_failures, text);
    pthread_mutex_unlock(&l->lock);
    return st;
}

mr_status mr_loader_agree(mr_loader *l, const char *others)
{
    pthread_mutex_lock(&l->lock);
    mr_status st = MR_OK;
    for (int32_t i = 0; i < l->blend->n && st == MR_OK; i++) {
        char *part;
        st = blend_part(others, l->blend->sources[i].name, &part);
        if (st == MR_OK && part)
            st = quarantine_hear(l->sources[i].bad, part);
        mr_free(part);
    }
    // within an epoch, more samples can fail
    if (st == MR_OK && l->epoch_over && l->delivered == l->planned)
        l->agreed = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return st;
}

mr_status mr_loader_state(mr_loader *l, char **text)
{
    pthread_mutex_lock(&l->lock);
    mr_status st = blend_position_text(&l->position, l->blend, true, text);
    for (int32_t i = 0; i < l->blend->n && st == MR_OK; i++) {
        mr_tail *before = l->sources[i].saved;
        l->sources[i].saved = tail_ref(l->position.at[i].tail);
        tail_unref(before);
    }
    pthread_mutex_unlock(&l->lock);
    return st;
}

mr_status mr_loader_excluded(mr_loader *l, char **text)
{
    pthread_mutex_lock(&l->lock);
    mr_status st = gather(l, tell_excluded, text);
    pthread_mutex_unlock(&l->lock);
    return st;
}

/* The position of a loader, and the samples that are excluded from this epoch and later ones of a
 * source, as known now. */
typedef struct outlook {
    char *text;
    uint64_t *now[MR_SOURCES_MAX], *next[MR_SOURCES_MAX];
    uint64_t n_now[MR_SOURCES_MAX], n_next[MR_SOURCES_MAX];
} outlook;

static mr_status look_ahead(mr_loader *l, outlook *o)
{
    MR_TRY(blend_position_text(&l->position, l->blend, false, &o->text));
    for (int32_t i = 0; i < l->blend->n; i++) {
        const quarantine *bad = l->sources[i].bad;
        MR_TRY(quarantine_excluded(bad, l->position.at[i].epoch, &o->now[i], &o->n_now[i]));
        MR_TRY(quarantine_excluded(bad, UINT64_MAX, &o->next[i], &o->n_next[i]));
    }
    return MR_OK;
}

// copy the stream, at the same position
static mr_status copy_stream(mr_loader *l, const outlook *o, mr_blend **out)
{
    mr_source sources[MR_SOURCES_MAX];
    mr_order_options options = order_options(l);
    for (int32_t i = 0; i < l->blend->n; i++) {
        const blend_source *s = &l->blend->sources[i];
        sources[i] = (mr_source){.name = s->name,
                                 .index = l->sources[i].index,
                                 .weights = s->weights,
                                 .n_weights = s->n_weights,
                                 .members = s->order->members,
                                 .epochs = s->epochs};
    }
    MR_TRY(mr_blend_new(sources, l->blend->n, l->rule, &options, out));
    for (int32_t i = 0; i < l->blend->n; i++) {
        char *part;
        mr_order *order = mr_blend_order(*out, i);
        uint64_t epoch;
        MR_TRY(mr_blend_state_of(o->text, sources[i].name, &part));
        mr_status st = mr_position_epoch(part, &epoch);
        mr_subset *seen =
            st == MR_OK && l->sources[i].carried_epoch == epoch ? l->sources[i].carried : NULL;
        if (st == MR_OK)
            st = mr_order_restore(order, part, o->now[i], o->n_now[i], seen);
        mr_free(part);
        MR_TRY(st);
        MR_TRY(mr_order_exclude(order, o->next[i], o->n_next[i]));
    }
    return blend_restore(*out, o->text);
}

mr_status mr_loader_peek(mr_loader *l, uint64_t *ids, int64_t n, int64_t *got)
{
    outlook o = {0};
    mr_blend *stream = NULL;
    uint64_t *scratch = mr_alloc(2 * sizeof *scratch * (size_t)l->batch_max);
    mr_status st = scratch ? MR_OK : mr_fail_memory(0);
    *got = 0;
    // copy under the lock; plan epochs without it
    pthread_mutex_lock(&l->lock);
    if (st == MR_OK)
        st = look_ahead(l, &o);
    pthread_mutex_unlock(&l->lock);
    if (st == MR_OK)
        st = copy_stream(l, &o, &stream);
    mr_draw d = {.ids = scratch, .keys = scratch ? scratch + l->batch_max : NULL};
    while (st == MR_OK && *got < n && !mr_blend_over(stream, (uint64_t)l->options.epochs)) {
        if ((st = mr_blend_next(stream, &d)) != MR_OK)
            break;
        for (int32_t i = 0; i < d.n && *got < n; i++)
            ids[(*got)++] = d.ids[i];
    }
    mr_blend_free(stream);
    mr_free(o.text);
    for (int32_t i = 0; i < l->blend->n; i++) {
        mr_free(o.now[i]);
        mr_free(o.next[i]);
    }
    mr_free(scratch);
    return st;
}

int32_t mr_loader_sources(const mr_loader *l)
{
    return l->blend->n;
}

mr_source_facts mr_loader_source(mr_loader *l, int32_t source)
{
    const loader_source *s = &l->sources[source];
    mr_source_facts f = {.name = l->blend->sources[source].name,
                         .rows = mr_index_get_facts(s->index).rows,
                         .samples = s->samples,
                         .batches = s->batches};
    pthread_mutex_lock(&l->lock);
    f.delivered = s->delivered, f.epoch = l->position.at[source].epoch;
    pthread_mutex_unlock(&l->lock);
    return f;
}

mr_loader_facts mr_loader_get_facts(mr_loader *l)
{
    pthread_mutex_lock(&l->lock);
    mr_loader_facts f = l->facts;
    // the number of consecutive batches that are ready
    for (uint64_t b = l->delivered; b < l->planned; b++, f.ready++)
        if (l->slabs[b % (uint64_t)l->n_slabs].state != READY)
            break;
    pthread_mutex_unlock(&l->lock);
    return f;
}

int32_t mr_loader_buckets(const mr_loader *l)
{
    return mr_bucket_rule_count(l->rule);
}

mr_bucket mr_loader_bucket(const mr_loader *l, int32_t bucket, uint64_t *samples)
{
    *samples = l->plan[bucket];
    return mr_bucket_rule_get(l->rule, bucket);
}
