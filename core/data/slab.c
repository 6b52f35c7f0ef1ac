/* data: the slabs of a loader: their number, their sizes and their contents. It checks that they
 * fit into a rank's share of host memory. Ref: dataplane 6. Licence: Apache-2.0 */
#include "data/room.h"

#include <unistd.h>

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
    tail_unref(s->tail);
    void *all[] = {s->weights, s->fps,    s->native_fps,    s->ids,
                   s->keys,    s->starts, s->native_height, s->native_width,
                   s->faults,  s->roots,  s->captions,      s->caption_cap};
    for (size_t i = 0; i < MR_COUNT(all); i++)
        mr_free(all[i]);
}

static size_t clip_bytes(const mr_bucket *b)
{
    return (size_t)b->frames * 3 * (size_t)b->height * (size_t)b->width;
}

// Check that slabs need at most a quarter of this rank's memory: that of the host, divided by its
// ranks.
static mr_status check_pool(const mr_loader *l, const mr_bucket *b)
{
    double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE),
           share = all / MR_MAX(l->options.local_ranks, 1),
           one = (double)clip_bytes(b) * l->n_buffers, most = share / 4 / one;
    if (b->batch <= most || l->options.blind)
        return MR_OK;
    char advice[64] = "fewer frames or smaller ones there";
    if (most >= 1)
        snprintf(advice, sizeof advice, "a batch of at most %d there", (int)most);
    return mr_fail(
        MR_E_MEMORY,
        "bucket_config.%s[%d]: %d slabs for %d clips of %d x %d x %d, the largest "
        "micro-batch, are %.1f GB; expected at most %.1f, a quarter of a rank's share of "
        "this machine's memory (%.1f GB, ranks: %d); try: %s%s",
        b->resolution, b->frames, l->n_buffers, b->batch, b->frames, b->height, b->width,
        one * b->batch / 1e9, share / 4e9, all / 1e9, MR_MAX(l->options.local_ranks, 1), advice,
        l->n_buffers > 4 ? ", or a smaller prefetch" : "");
}

// all pixels are in one block; a slab has the size of the largest micro-batch
mr_status slabs_open(mr_loader *l)
{
    mr_bucket largest = mr_bucket_rule_get(l->rule, 0);
    for (int32_t i = 1; i < mr_bucket_rule_count(l->rule); i++) {
        mr_bucket b = mr_bucket_rule_get(l->rule, i);
        if ((double)clip_bytes(&b) * b.batch > (double)clip_bytes(&largest) * largest.batch)
            largest = b;
    }
    int32_t prefetch = l->options.prefetch > 0 ? l->options.prefetch : 2;
    l->n_buffers = MR_MAX(prefetch + 2, 4);
    l->n_slabs = l->n_buffers * l->options.parts;
    MR_TRY(check_pool(l, &largest));
    size_t page = 4096, slab_bytes = clip_bytes(&largest) * (size_t)largest.batch;
    slab_bytes = (slab_bytes + page - 1) / page * page;
    // do not touch memory into which nothing is decoded
    MR_TRY(pool_open(&l->pool, slab_bytes * (size_t)l->n_buffers, l->options.node - 1,
                     !l->options.blind));
    l->facts.slab_bytes = slab_bytes, l->facts.slabs = l->n_buffers;
    l->facts.pool_s = l->pool.seconds, l->facts.small_bytes = l->pool.small;
    if (!(l->slabs = mr_calloc((size_t)l->n_slabs, sizeof *l->slabs)) ||
        !(l->in_use = mr_calloc((size_t)l->n_buffers, sizeof *l->in_use)))
        return mr_fail_memory(0);
    for (int32_t i = 0; i < l->n_slabs; i++)
        MR_TRY(make_slab(l, &l->slabs[i]));
    return MR_OK;
}

void slabs_close(mr_loader *l)
{
    for (int32_t i = 0; l->slabs && i < l->n_slabs; i++)
        free_slab(l, &l->slabs[i]);
    mr_free(l->slabs);
    mr_free(l->in_use);
    l->slabs = NULL, l->in_use = NULL;
    pool_close(&l->pool);
}
