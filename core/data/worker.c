/* data: the decode threads of a loader. A thread takes the oldest empty slot, plans the next draw
 * when the newest batch is begun, and completes a batch with its last slot. Ref: dataplane 4.6, 5.
 * Licence: Apache-2.0
 */
#include "data/room.h"

#include <math.h>
#include <string.h>

/* ---- decoding one sample ---- */

typedef struct worker {
    mr_loader *l;
    mr_media_worker *media;
    mr_index_reader *readers[MR_SOURCES_MAX];
} worker;

static float fps_of(const mr_clip_info *info, int32_t interval)
{
    if (info->flags & MR_CLIP_IMAGE)
        return 120;
    return info->rate_num > 0
               ? (float)floor((double)info->rate_num / info->rate_den / interval + 1e-9)
               : 24;
}

static int32_t interval_of(const mr_loader *l, const mr_clip_info *info)
{
    return mr_bucket_rule_interval(l->rule, mr_fps_milli(info));
}

static mr_status set_facts(const mr_loader *l, slab *s, int32_t slot, const mr_row *row)
{
    uint64_t seed = l->options.seed, key = s->draw.keys[slot];
    uint64_t epoch = mr_bucket_rule_draws(l->rule, s->draw.epoch);
    const mr_clip_info *info = &row->info;
    s->native_fps[slot] = info->rate_num ? (float)info->rate_num / (float)info->rate_den : 0;
    int32_t interval = interval_of(l, info);
    s->fps[slot] = fps_of(info, interval);
    s->native_height[slot] = info->height, s->native_width[slot] = info->width;
    s->roots[slot] = row->root;
    // start and caption depend only on seed, key and the epoch of draws
    mr_crop crop = mr_bucket_rule_crop(l->rule, s->batch.shape.frames, info->frames, interval);
    s->starts[slot] =
        (int64_t)(mr_fraction(MR_MIX(seed, epoch, key, mr_name_word("sample.start"))) *
                  (double)crop.starts);
    const char *text = "";
    if (row->n_captions > 0)
        text = row->captions[MR_MIX(seed, epoch, key, mr_name_word("sample.caption")) %
                             (uint64_t)row->n_captions]
                   .text;
    size_t n = strlen(text) + 1;
    if (n > s->caption_cap[slot]) {
        char *more = mr_realloc(s->captions[slot], n + 64);
        if (!more)
            return mr_fail_memory(n);
        s->captions[slot] = more, s->caption_cap[slot] = n + 64;
    }
    memcpy(s->captions[slot], text, n);
    return MR_OK;
}

static mr_status note(mr_loader *l, const slab *s, int32_t slot, const mr_row *row, int32_t attempt)
{
    quarantine_event e = {.key_lo = s->draw.keys[slot],
                          .epoch = s->draw.epoch,
                          .attempt = attempt,
                          .fault = s->faults[slot]};
    const mr_error *err = mr_error_last();
    pthread_mutex_lock(&l->lock);
    snprintf(l->why, sizeof l->why, "%s", err ? err->text : "");
    mr_status st = quarantine_add(l->sources[s->draw.source].bad, &e, row, l->why);
    pthread_mutex_unlock(&l->lock);
    return st;
}

// wait before another attempt; false if the loader is being freed
static bool pause_s(mr_loader *l, double seconds)
{
    pthread_mutex_lock(&l->lock);
    bool stop = l->stop;
    pthread_mutex_unlock(&l->lock);
    if (!stop)
        mr_clock_table()->sleep_ns((int64_t)(seconds * 1e9));
    return !stop;
}

// Decode one sample. A bad sample is MR_OK, too; other errors are failures of the loader.
static mr_status fill_slot(worker *w, slab *s, int32_t slot)
{
    mr_loader *l = w->l;
    mr_row row;
    char file[8300];
    int32_t source = s->draw.source;
    MR_TRY(mr_index_row(w->readers[source], s->draw.ids[slot], &row));
    MR_TRY(mr_index_file(l->sources[source].index, &row, file, sizeof file));
    MR_TRY(set_facts(l, s, slot, &row));
    if (l->options.blind ||
        !mr_sample_in_part(s->draw.keys[slot], l->options.sample_part, l->options.sample_parts))
        return MR_OK;
    const mr_bucket *b = &s->batch.shape;
    size_t bytes = (size_t)b->frames * 3 * (size_t)b->height * (size_t)b->width;
    mr_crop crop =
        mr_bucket_rule_crop(l->rule, b->frames, row.info.frames, interval_of(l, &row.info));
    mr_clip_request q = {.path = file,
                         .info = &row.info,
                         .start = s->starts[slot],
                         .step = crop.step,
                         .spread = crop.spread,
                         .frames = b->frames,
                         .height = b->height,
                         .width = b->width,
                         .filter = l->options.filter,
                         .deadline_s = l->options.deadline_s};
    for (int32_t attempt = 1, io_tries = 0;;) {
        mr_status st =
            l->media->read(w->media, &q, s->pixels + (size_t)slot * bytes, &s->faults[slot]);
        if (st == MR_OK)
            return MR_OK;
        // Ctrl-C interrupts the thread that waits for a batch; the batch is decoded again
        if (st == MR_E_STOPPED && pause_s(l, 0.01))
            continue;
        if (s->faults[slot] == MR_FAULT_NONE)
            return st;
        // the file system can fail temporarily: try three more times, after growing pauses
        if (s->faults[slot] == MR_FAULT_IO && io_tries < 3 && pause_s(l, 0.05 * (1 << io_tries))) {
            io_tries++;
            continue;
        }
        MR_TRY(note(l, s, slot, &row, attempt));
        if (s->faults[slot] == MR_FAULT_IO || attempt++ == 2)
            return MR_OK;
    }
}

/* ---- planning and completing batches ---- */

// give failed and empty slots the pixels of a good one, and weight 0
static void complete(slab *s, bool blind)
{
    size_t bytes = blind ? 0 : s->batch.bytes / (size_t)s->batch.size;
    int32_t good = 0;
    while (good < s->draw.n && s->faults[good] != MR_FAULT_NONE)
        good++;
    for (int32_t i = 0; i < s->batch.size; i++) {
        bool fine = i < s->draw.n && s->faults[i] == MR_FAULT_NONE;
        s->weights[i] = fine ? 1 : 0;
        if (!fine && good < s->draw.n)
            memcpy(s->pixels + (size_t)i * bytes, s->pixels + (size_t)good * bytes, bytes);
        else if (!fine)
            memset(s->pixels + (size_t)i * bytes, 0, bytes);
        if (i < s->draw.n)
            continue;
        s->ids[i] = s->ids[0], s->keys[i] = s->keys[0], s->starts[i] = s->starts[0];
        s->fps[i] = s->fps[0], s->native_fps[i] = s->native_fps[0];
        s->native_height[i] = s->native_height[0], s->native_width[i] = s->native_width[0];
    }
}

static bool all_filled(const mr_loader *l)
{
    for (uint64_t b = l->delivered; b < l->planned; b++)
        if (l->slabs[b % (uint64_t)l->n_slabs].state == FILLING)
            return false;
    return true;
}

// True if no slot of the newest batch is begun: all threads have work, so planning can wait.
static bool has_work_ahead(const mr_loader *l)
{
    const slab *newest = &l->slabs[(l->planned - 1) % (uint64_t)l->n_slabs];
    return l->planned > l->delivered && newest->state == FILLING && !newest->started;
}

/* ---- assignment of the draws of a group to ranks ---- */

static bool is_known(const mr_loader *l)
{
    return l->next_ahead < l->n_ahead;
}

// Whether this rank decodes the next draw, which is known.
static bool is_own(const mr_loader *l)
{
    return l->owner[l->next_ahead] == l->options.part;
}

// Assign draws by falling cost, each to the rank with the least load; of equal ones to the first.
static void share_out(mr_loader *l)
{
    for (int32_t k = 0; k < l->n_ahead; k++)
        l->owner[k] = -1;
    for (int32_t k = 0; k < l->n_ahead; k++) {
        int32_t draw = -1, rank = 0;
        double most = -1;
        for (int32_t i = 0; i < l->n_ahead; i++) {
            double cost = mr_bucket_rule_get(l->rule, l->ahead[i].bucket).cost;
            if (l->owner[i] < 0 && cost > most)
                draw = i, most = cost;
        }
        for (int32_t r = 1; r < l->options.parts; r++)
            rank = l->load[r] < l->load[rank] ? r : rank;
        l->owner[draw] = rank, l->load[rank] += most;
    }
}

// Draw what the next batch needs: only its draw, or the rest of its group up to the end of the
// epoch, since the excluded samples of the next epoch are not known yet.
static mr_status look_ahead(mr_loader *l, uint64_t planned)
{
    int32_t at = (int32_t)(planned % (uint64_t)l->options.group),
            n = l->options.lpt ? l->options.group - at : 1;
    l->n_ahead = l->next_ahead = 0;
    do
        MR_TRY(loader_draw(l->blend, &l->ahead[l->n_ahead]));
    while (!l->ahead[l->n_ahead++].last && l->n_ahead < n);
    if (!at)
        memset(l->load, 0, sizeof *l->load * (size_t)l->options.parts);
    if (l->options.lpt)
        share_out(l);
    else
        l->owner[0] = at % l->options.parts;
    return MR_OK;
}

bool loader_must_agree(const mr_loader *l)
{
    return l->options.parts > 1 && l->epoch_over && !l->agreed && !l->all_planned;
}

// One worker at a time plans. The next draw can be planned when its slab is free and, between
// epochs, when all workers are idle, because a sample that fails in one epoch is excluded from the
// next.
static bool can_plan(const mr_loader *l)
{
    if (l->all_planned || l->planning || has_work_ahead(l) ||
        l->slabs[l->planned % (uint64_t)l->n_slabs].state != FREE || loader_must_agree(l))
        return false;
    if (is_known(l) && is_own(l) && l->in_use[l->own % (uint64_t)l->n_buffers])
        return false;
    return !l->epoch_over || all_filled(l);
}

mr_status loader_exclude(const mr_loader *l, int32_t source, uint64_t epoch)
{
    uint64_t *keys, n;
    MR_TRY(quarantine_excluded(l->sources[source].bad, epoch, &keys, &n));
    mr_status st = mr_order_exclude(mr_blend_order(l->blend, source), keys, n);
    mr_free(keys);
    return st;
}

mr_status (*loader_draw)(mr_blend *blend, mr_draw *draw) = mr_blend_next;

// Planning is slow, so it runs without the lock: the planner has exclusive use of the orders and
// the known draws.
static mr_status draw_ahead(mr_loader *l)
{
    for (int32_t i = 0; i < l->blend->n && l->epoch_over; i++)
        if (order_is_used_up(l->blend->sources[i].order))
            MR_TRY(loader_exclude(l, i, l->blend->sources[i].order->at.epoch + 1));
    uint64_t planned = l->planned;
    l->planning = true;
    pthread_mutex_unlock(&l->lock);
    mr_status st = look_ahead(l, planned);
    pthread_mutex_lock(&l->lock);
    l->planning = false;
    return st;
}

// move a known draw to a slab; it gets the arrays of the slab
static void take_known(mr_loader *l, slab *s)
{
    const mr_draw *d = &l->ahead[l->next_ahead++];
    uint64_t *ids = s->ids, *keys = s->keys;
    memcpy(ids, d->ids, sizeof *ids * (size_t)d->n);
    memcpy(keys, d->keys, sizeof *keys * (size_t)d->n);
    s->draw = *d;
    s->draw.ids = ids, s->draw.keys = keys;
    mr_tail *before = s->tail;
    s->tail = tail_ref(d->tail);
    tail_unref(before);
}

static mr_status plan_next(mr_loader *l)
{
    slab *s = &l->slabs[l->planned % (uint64_t)l->n_slabs];
    if (!is_known(l)) {
        MR_TRY(draw_ahead(l));
        if (is_own(l) && l->in_use[l->own % (uint64_t)l->n_buffers])
            return MR_OK;
    }
    bool own = is_own(l);
    take_known(l, s);
    if (own) {
        s->buffer = (int32_t)(l->own++ % (uint64_t)l->n_buffers);
        l->in_use[s->buffer] = true;
        s->pixels = l->pool.at + (size_t)s->buffer * l->facts.slab_bytes;
    }
    mr_bucket b = mr_bucket_rule_get(l->rule, s->draw.bucket);
    size_t bytes = (size_t)b.batch * (size_t)b.frames * 3 * (size_t)b.height * (size_t)b.width;
    s->batch = (mr_batch){.epoch = s->draw.epoch,
                          .drawn = mr_bucket_rule_draws(l->rule, s->draw.epoch),
                          .draw = s->draw.number,
                          .source = s->draw.source,
                          .bucket = s->draw.bucket,
                          .size = b.batch,
                          .n = s->draw.n,
                          .shape = b,
                          .last = s->draw.last,
                          .other = !own,
                          .pixels = own ? s->pixels : NULL,
                          .bytes = own ? bytes : 0,
                          .weights = s->weights,
                          .ids = s->ids,
                          .keys = s->keys,
                          .starts = s->starts,
                          .fps = s->fps,
                          .native_fps = s->native_fps,
                          .native_height = s->native_height,
                          .native_width = s->native_width,
                          .captions = (const char *const *)s->captions,
                          .slab = s};
    const mr_position *at = &mr_blend_order(l->blend, s->draw.source)->at;
    s->excluded_n = at->excluded_n, s->excluded_hash = at->excluded_hash;
    s->started = s->done = 0;
    memset(s->faults, 0, sizeof *s->faults * (size_t)l->batch_max);
    for (int32_t i = s->draw.n; i < b.batch; i++)
        if (s->captions[i])
            s->captions[i][0] = 0;
    s->state = own ? FILLING : READY;
    l->planned++;
    l->agreed &= !s->draw.last;
    l->epoch_over = s->draw.last;
    l->ended = s->draw.last ? s->draw.source : l->ended;
    l->all_planned = !is_known(l) && mr_blend_over(l->blend, (uint64_t)l->options.epochs);
    return MR_OK;
}

static slab *find_slot(mr_loader *l, int32_t *slot)
{
    for (uint64_t b = l->delivered; b < l->planned; b++) {
        slab *s = &l->slabs[b % (uint64_t)l->n_slabs];
        if (s->state == FILLING && s->started < s->draw.n) {
            *slot = s->started++;
            return s;
        }
    }
    return NULL;
}

// record the first failure, and wake all threads
void loader_fail(mr_loader *l, mr_status st)
{
    if (l->failed == MR_OK) {
        l->failed = st;
        l->error = mr_error_copy(mr_error_last());
    }
    pthread_cond_broadcast(&l->ready);
    pthread_cond_broadcast(&l->work);
}

static mr_status work(worker *w)
{
    mr_loader *l = w->l;
    mr_status st = MR_OK;
    while (!l->stop && l->failed == MR_OK && st == MR_OK) {
        if (can_plan(l)) {
            st = plan_next(l);
            pthread_cond_broadcast(&l->work);
            pthread_cond_broadcast(&l->ready);
            continue;
        }
        int32_t slot;
        slab *s = find_slot(l, &slot);
        if (!s) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        pthread_mutex_unlock(&l->lock);
        st = fill_slot(w, s, slot);
        pthread_mutex_lock(&l->lock);
        if (st != MR_OK || ++s->done < s->draw.n)
            continue;
        pthread_mutex_unlock(&l->lock);
        complete(s, l->options.blind);
        pthread_mutex_lock(&l->lock);
        s->state = READY;
        pthread_cond_broadcast(&l->ready);
        pthread_cond_broadcast(&l->work);
    }
    return st;
}

void *loader_worker(void *user)
{
    worker w = {.l = user};
    mr_loader *l = w.l;
    // a blind loader needs no decoder
    mr_status st = l->options.blind ? MR_OK : l->media->worker_new(&w.media);
    for (int32_t i = 0; i < l->blend->n && st == MR_OK; i++)
        st = mr_index_reader_new(l->sources[i].index, &w.readers[i]);
    pthread_mutex_lock(&l->lock);
    if (st == MR_OK)
        st = work(&w);
    if (st != MR_OK)
        loader_fail(l, st);
    pthread_mutex_unlock(&l->lock);
    for (int32_t i = 0; i < l->blend->n; i++)
        mr_index_reader_free(w.readers[i]);
    if (w.media)
        l->media->worker_free(w.media);
    return NULL;
}
