/* data: batches in draw order, filled by decode threads (worker.c).
 *
 * Slabs form a ring: batch number s lives in slab s % slabs. A worker takes the oldest empty slot;
 * when the newest batch is begun and the next slab is free, it plans the next draw into it while
 * the others decode. Whoever fills the last slot completes the batch. Everything about a sample
 * comes from its key and the draw, so neither the number of threads nor their speed shows in the
 * result. Where ranks share an order, draws of others pass through the ring without pixels.
 * Ref: dataplane 4.6, 5, 6. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "data/room.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WINDOW_FAILURES = 10, IN_A_ROW = 8 };

/* ---- life ---- */

static mr_status make_slab(mr_loader *l, slab *s)
{
    size_t m = (size_t)l->batch_max;
    bool ok = (s->weights = mr_calloc(m, sizeof *s->weights)) &&
              (s->fps = mr_calloc(m, sizeof *s->fps)) &&
              (s->native_fps = mr_calloc(m, sizeof *s->native_fps)) &&
              (s->ids = mr_calloc(m, sizeof *s->ids)) &&
              (s->keys = mr_calloc(m, sizeof *s->keys)) &&
              (s->starts = mr_calloc(m, sizeof *s->starts)) &&
              (s->native_height = mr_calloc(m, sizeof *s->native_height)) &&
              (s->native_width = mr_calloc(m, sizeof *s->native_width)) &&
              (s->faults = mr_calloc(m, sizeof *s->faults)) &&
              (s->roots = mr_calloc(m, sizeof *s->roots)) &&
              (s->captions = mr_calloc(m, sizeof *s->captions)) &&
              (s->caption_cap = mr_calloc(m, sizeof *s->caption_cap));
    for (size_t i = 0; ok && i < m; i++)
        ok = (s->captions[i] = mr_calloc(1, s->caption_cap[i] = 256)) != NULL;
    s->draw.ids = s->ids, s->draw.keys = s->keys;
    return ok ? MR_OK : mr_fail_memory(m * 256);
}

static void free_slab(const mr_loader *l, slab *s)
{
    for (int32_t i = 0; s->captions && i < l->batch_max; i++)
        mr_free(s->captions[i]);
    void *all[] = {s->weights, s->fps,    s->native_fps,    s->ids,
                   s->keys,    s->starts, s->native_height, s->native_width,
                   s->faults,  s->roots,  s->captions,      s->caption_cap};
    for (size_t i = 0; i < MR_COUNT(all); i++)
        mr_free(all[i]);
}

// all slabs lie in one mapping, which is shared so that workers may become processes
static mr_status make_pool(mr_loader *l)
{
    size_t largest = 0;
    for (int32_t i = 0; i < mr_bucket_rule_count(l->rule); i++) {
        mr_bucket b = mr_bucket_rule_get(l->rule, i);
        largest = MR_MAX(largest, (size_t)b.batch * (size_t)b.frames * 3 * (size_t)b.height *
                                      (size_t)b.width);
    }
    int32_t prefetch = l->options.prefetch > 0 ? l->options.prefetch : 2;
    l->n_buffers = MR_MAX(prefetch + 2, 4);
    l->n_slabs = l->n_buffers * l->options.parts;
    size_t slab_bytes = (largest + 4095) / 4096 * 4096, total = slab_bytes * (size_t)l->n_buffers;
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (total > memory / 4)
        return mr_fail(MR_E_MEMORY,
                       "%d slabs of %zu bytes exceed a quarter of this machine's memory (%zu "
                       "bytes); try: smaller batch sizes, or prefetch below %d",
                       l->n_buffers, slab_bytes, memory, prefetch);
    int fd = memfd_create("moonreel slabs", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)total)) {
        if (fd >= 0)
            close(fd);
        return mr_fail_memory(total);
    }
    void *p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return mr_fail_memory(total);
    l->pool = p, l->pool_bytes = total;
    l->facts.slab_bytes = slab_bytes, l->facts.slabs = l->n_buffers;
    if (!(l->slabs = mr_calloc((size_t)l->n_slabs, sizeof *l->slabs)) ||
        !(l->in_use = mr_calloc((size_t)l->n_buffers, sizeof *l->in_use)))
        return mr_fail_memory(0);
    for (int32_t i = 0; i < l->n_slabs; i++)
        MR_TRY(make_slab(l, &l->slabs[i]));
    return MR_OK;
}

static mr_status restore(mr_loader *l, const char *text)
{
    uint64_t epoch, *keys, n;
    MR_TRY(mr_position_epoch(text, &epoch));
    if (l->options.excluded)
        MR_TRY(quarantine_take(l->bad, epoch, l->options.excluded));
    if (l->options.seen)
        MR_TRY(mr_trained_read(l->options.seen, &l->carried));
    l->carried_epoch = epoch;
    MR_TRY(quarantine_excluded(l->bad, epoch, &keys, &n));
    mr_status st = mr_order_restore(l->order, text, keys, n, l->carried);
    mr_free(keys);
    return st;
}

// the start of an epoch that is not the first one
static mr_status begin_at(mr_loader *l, uint64_t epoch)
{
    MR_TRY(loader_exclude(l, l->order, epoch));
    return order_begin_epoch(l->order, epoch);
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

static mr_status start(mr_loader *l)
{
    const mr_loader_options *o = &l->options;
    MR_TRY(check_share(&l->options));
    l->agreed = true;
    l->media = mr_media_guarded();
    if (!o->isolated)
        MR_TRY(mr_media_get(&l->media));
    MR_TRY(quarantine_open(o->quarantine, mr_index_get_facts(l->index).fp_order, &l->bad));
    mr_order_options order = {.seed = o->seed, .slot = o->slot};
    MR_TRY(mr_order_new(l->index, l->rule, &order, &l->order));
    if (!o->allow_empty)
        MR_TRY(order_check_cover(l->order));
    if (o->state)
        MR_TRY(restore(l, o->state));
    else if (o->epoch)
        MR_TRY(begin_at(l, o->epoch));
    MR_TRY(mr_position_init(&l->position, l->order));
    int32_t nb = mr_bucket_rule_count(l->rule);
    if (!(l->plan = mr_calloc((size_t)nb, sizeof *l->plan)))
        return mr_fail_memory(0);
    for (int32_t b = 0; b < nb; b++)
        l->facts.samples += l->plan[b] = mr_order_samples(l->order, b);
    for (int why = 0; why < MR_DROP_COUNT; why++)
        l->facts.dropped[why] = mr_order_dropped(l->order, why);
    l->facts.epoch = l->position.epoch, l->facts.batches = mr_order_batches(l->order);
    // the state may stand at the very end of an epoch, or past the last one
    bool used_up = true;
    for (int32_t b = 0; b < nb; b++)
        used_up &= l->position.taken[b] == l->plan[b];
    l->epoch_over = used_up;
    l->all_planned = o->epochs > 0 && l->position.epoch + used_up >= (uint64_t)o->epochs;
    l->batch_max = mr_order_batch_max(l->order);
    MR_TRY(make_pool(l));
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int32_t threads =
        o->threads > 0 ? MR_MIN(o->threads, LOADER_THREADS) : (int32_t)MR_MAX(processors, 1);
    for (; l->n_threads < threads; l->n_threads++)
        if (pthread_create(&l->threads[l->n_threads], NULL, loader_worker, l))
            break;
    l->facts.threads = l->n_threads;
    return l->n_threads ? MR_OK : mr_fail(MR_E_FAIL, "cannot start a thread");
}

mr_status mr_loader_new(mr_index *index, mr_bucket_rule *rule, const mr_loader_options *options,
                        mr_loader **out)
{
    mr_loader *l;
    if (!MR_NEW(l)) {
        mr_bucket_rule_free(rule);
        return mr_fail_memory(sizeof *l);
    }
    l->index = mr_index_ref(index), l->rule = rule, l->options = *options;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    mr_status st = start(l);
    // the texts belong to the caller and are not kept
    l->options.state = l->options.excluded = l->options.quarantine = l->options.seen = NULL;
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
    for (int32_t i = 0; l->slabs && i < l->n_slabs; i++)
        free_slab(l, &l->slabs[i]);
    mr_free(l->slabs);
    mr_free(l->in_use);
    if (l->pool)
        munmap(l->pool, l->pool_bytes);
    mr_position_fini(&l->position);
    mr_order_free(l->order);
    mr_trained_unref(l->carried);
    quarantine_close(l->bad);
    mr_bucket_rule_free(l->rule);
    mr_index_unref(l->index);
    mr_free(l->plan);
    mr_error_free(l->error);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->lock);
    mr_free(l);
}

/* ---- giving out ---- */

// failures of more than 1 % of the last 1,000 samples, or of 8 in a row from one root, stop the run
static mr_status count_failures(mr_loader *l, const slab *s)
{
    for (int32_t i = 0; i < s->draw.n && !s->batch.other; i++) {
        bool bad = s->faults[i] != MR_FAULT_NONE;
        uint8_t *old = &l->window[l->seen++ % LOADER_WINDOW];
        l->window_failures += bad - *old;
        *old = bad;
        int32_t *row = &l->row_of[s->roots[i] % MR_COUNT(l->row_of)];
        *row = bad ? *row + 1 : 0;
        l->facts.failed += bad;
        if (*row >= IN_A_ROW)
            return mr_fail(MR_E_DATA,
                           "%d samples in a row cannot be read from %s; try: is that disk there? "
                           "The newest: %s",
                           *row, mr_index_root(l->index, s->roots[i]), l->why);
        if (l->window_failures > WINDOW_FAILURES)
            return mr_fail(MR_E_DATA, "%d of the last %llu samples cannot be read; the newest: %s",
                           l->window_failures, (unsigned long long)MR_MIN(l->seen, LOADER_WINDOW),
                           l->why);
    }
    l->facts.delivered += s->batch.other ? 0 : (uint64_t)s->draw.n;
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
                       "epoch %llu is over: the loader waits to be told what failed on "
                       "other ranks; try: loader:agree",
                       (unsigned long long)l->position.epoch);
    }
    bool there = s->state == READY;
    // woken by the worker that completes a batch, or by a failure; `ready` is only waited for here
    mr_status st = MR_OK;
    while (st == MR_OK && l->failed == MR_OK && s->state != READY &&
           !(l->all_planned && l->delivered == l->planned)) {
        index_wait(&l->ready, &l->lock);
        st = mr_interrupt_check();
    }
    if (st != MR_OK) {
        // the loader goes on with this batch the next time
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
            mr_position_advance(&l->position, &s->draw);
            l->position.excluded_n = s->excluded_n, l->position.excluded_hash = s->excluded_hash;
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

mr_status mr_loader_failures(mr_loader *l, char **text)
{
    pthread_mutex_lock(&l->lock);
    mr_status st = quarantine_tell(l->bad, text);
    pthread_mutex_unlock(&l->lock);
    return st;
}

mr_status mr_loader_agree(mr_loader *l, const char *others)
{
    pthread_mutex_lock(&l->lock);
    mr_status st = quarantine_hear(l->bad, others);
    // within an epoch more may fail
    if (st == MR_OK && l->epoch_over && l->delivered == l->planned)
        l->agreed = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return st;
}

mr_status mr_loader_state(mr_loader *l, char **text)
{
    pthread_mutex_lock(&l->lock);
    mr_status st = mr_position_text(&l->position, l->order, text);
    pthread_mutex_unlock(&l->lock);
    return st;
}

mr_status mr_loader_excluded(mr_loader *l, char **text)
{
    pthread_mutex_lock(&l->lock);
    mr_status st = quarantine_text(l->bad, l->position.epoch, text);
    pthread_mutex_unlock(&l->lock);
    return st;
}

mr_status mr_loader_peek(mr_loader *l, uint64_t *ids, int64_t n, int64_t *got)
{
    char *text = NULL;
    mr_order *order = NULL;
    uint64_t *scratch = mr_alloc(2 * sizeof *scratch * (size_t)l->batch_max), *now = NULL,
             *next = NULL, n_now, n_next;
    mr_status st = scratch ? MR_OK : mr_fail_memory(0);
    *got = 0;
    // one look under the lock; the plans of epochs follow without it
    pthread_mutex_lock(&l->lock);
    if (st == MR_OK)
        st = mr_position_text(&l->position, l->order, &text);
    if (st == MR_OK)
        st = quarantine_excluded(l->bad, l->position.epoch, &now, &n_now);
    // nobody knows yet what fails until then, so the next epoch is told as it would be now
    if (st == MR_OK)
        st = quarantine_excluded(l->bad, UINT64_MAX, &next, &n_next);
    mr_trained *seen = l->carried_epoch == l->position.epoch ? l->carried : NULL;
    pthread_mutex_unlock(&l->lock);
    mr_order_options options = {.seed = l->options.seed, .slot = l->options.slot};
    if (st == MR_OK)
        st = mr_order_new(l->index, l->rule, &options, &order);
    if (st == MR_OK)
        st = mr_order_restore(order, text, now, n_now, seen);
    if (st == MR_OK)
        st = mr_order_exclude(order, next, n_next);
    mr_draw d = {.ids = scratch, .keys = scratch ? scratch + l->batch_max : NULL};
    bool ended =
        l->options.epochs > 0 && st == MR_OK && order->at.epoch >= (uint64_t)l->options.epochs;
    while (st == MR_OK && *got < n && !ended) {
        if ((st = mr_order_next(order, &d)) != MR_OK)
            break;
        if (l->options.epochs > 0 && d.epoch >= (uint64_t)l->options.epochs)
            break;
        for (int32_t i = 0; i < d.n && *got < n; i++)
            ids[(*got)++] = d.ids[i];
        ended = d.last && l->options.epochs > 0 && d.epoch + 1 >= (uint64_t)l->options.epochs;
    }
    mr_order_free(order);
    mr_free(text);
    mr_free(now);
    mr_free(next);
    mr_free(scratch);
    return st;
}

mr_loader_facts mr_loader_get_facts(mr_loader *l)
{
    pthread_mutex_lock(&l->lock);
    mr_loader_facts f = l->facts;
    // batches that could be given out at once, one behind the other
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
