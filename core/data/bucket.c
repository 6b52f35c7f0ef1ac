/* data: chooses the bucket of a sample. Ref: dataplane 4.2; Open-Sora 1.2 Bucket.get_bucket_id with
 * draws from the sample's key: U(purpose, key) = mix(seed, epoch, purpose, key_lo).
 * Licence: Apache-2.0 */
#include "data/bucket.h"
#include "data/mix.h"
#include "data/subset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *mr_drop_text(mr_drop why)
{
    static const char *const texts[MR_DROP_COUNT] = {
        "none",
        "below 0.8 of the pixels of every resolution",
        "shorter than every length (frame_interval counted)",
        "pictures, and no length is 1",
        "left out by the probabilities of this epoch",
        "in quarantine",
        "trained in this epoch before data or bucket rule changed",
        "outside the quantiles of the source, or held back (dataset.hold_back)",
        "left over from whole batches, which the reference leaves out"};
    return (unsigned)why < MR_DROP_COUNT ? texts[why] : "?";
}

// entries of equal size keep the order of the table
static void sort_rule(mr_bucket_rule *r)
{
    for (int32_t i = 1; i < r->n; i++)
        for (int32_t j = i; j > 0 && r->resolutions[j].pixels > r->resolutions[j - 1].pixels; j--) {
            bucket_resolution t = r->resolutions[j];
            r->resolutions[j] = r->resolutions[j - 1], r->resolutions[j - 1] = t;
        }
    for (int32_t i = 0; i < r->n; i++) {
        bucket_length *l = r->resolutions[i].lengths;
        for (int32_t a = 1; a < r->resolutions[i].n_lengths; a++)
            for (int32_t b = a; b > 0 && l[b].frames > l[b - 1].frames; b--) {
                bucket_length t = l[b];
                l[b] = l[b - 1], l[b - 1] = t;
            }
    }
}

static mr_status check_length(const char *name, const mr_bucket_length *l)
{
    if (l->frames < 1)
        return mr_fail(MR_E_RECIPE, "bucket_config.%s: length %d; expected 1 or more frames", name,
                       l->frames);
    if (!(l->keep >= 0 && l->keep <= 1 && (isnan(l->tries) || (l->tries >= 0 && l->tries <= 1))))
        return mr_fail(MR_E_RECIPE, "bucket_config.%s[%d]: probability %g, %g; expected 0 to 1",
                       name, l->frames, l->keep, l->tries);
    if (l->batch < 0 || l->batch > 65535 || (!l->batch && l->keep > 0))
        return mr_fail(MR_E_RECIPE, "bucket_config.%s[%d]: batch size %d; expected 1 to 65535",
                       name, l->frames, l->batch);
    if (!(l->cost >= 0 && l->cost < 1e300))
        return mr_fail(MR_E_RECIPE, "bucket_config.%s[%d]: cost %g; expected a number above 0",
                       name, l->frames, l->cost);
    return MR_OK;
}

static uint64_t limit_of(double p)
{
    return (uint64_t)ceil(ldexp(p, 53));
}

static int compare_ratios(const void *a, const void *b)
{
    const bucket_ratio *x = a, *y = b;
    if (x->ratio != y->ratio)
        return x->ratio < y->ratio ? -1 : 1;
    return x->aspect - y->aspect;
}

// sort the ratios of a resolution from low to high; each ratio occurs once, with its first aspect
static mr_status sort_ratios(mr_bucket_rule *r, bucket_resolution *res)
{
    bucket_ratio *all = mr_arena_alloc(&r->arena, sizeof *all * (size_t)res->n_aspects);
    if (!all)
        return mr_fail_memory(0);
    for (int32_t a = 0; a < res->n_aspects; a++)
        all[a] = (bucket_ratio){res->aspects[a].ratio, a};
    qsort(all, (size_t)res->n_aspects, sizeof *all, compare_ratios);
    for (int32_t a = 0; a < res->n_aspects; a++)
        if (!a || all[a].ratio != all[a - 1].ratio)
            all[res->n_ratios++] = all[a];
    res->ratios = all;
    return MR_OK;
}

static mr_status copy_resolution(mr_bucket_rule *r, const mr_bucket_resolution *from,
                                 bucket_resolution *to)
{
    if (from->n_aspects < 1 || !(from->pixels > 0))
        return mr_fail(MR_E_RECIPE,
                       "resolutions.%s: %d aspects, %g pixels; expected at least one and above 0",
                       from->name, from->n_aspects, from->pixels);
    if (from->n_lengths < 1)
        return mr_fail(MR_E_RECIPE, "bucket_config.%s: no lengths in it", from->name);
    to->name = mr_arena_strdup(&r->arena, from->name);
    to->pixels = from->pixels, to->n_aspects = from->n_aspects, to->n_lengths = from->n_lengths;
    to->aspects = mr_arena_alloc(&r->arena, sizeof *to->aspects * (size_t)from->n_aspects);
    to->lengths = mr_arena_alloc(&r->arena, sizeof *to->lengths * (size_t)from->n_lengths);
    if (!to->name || !to->aspects || !to->lengths)
        return mr_fail_memory(0);
    memcpy(to->aspects, from->aspects, sizeof *to->aspects * (size_t)from->n_aspects);
    for (int32_t a = 0; a < from->n_aspects; a++)
        if (from->aspects[a].height < MR_CLIP_SIDE_MIN ||
            from->aspects[a].width < MR_CLIP_SIDE_MIN || !(from->aspects[a].ratio > 0))
            return mr_fail(MR_E_RECIPE,
                           "resolutions.%s: aspect %g is %d x %d; expected 8 pixels a side or more",
                           from->name, from->aspects[a].ratio, from->aspects[a].height,
                           from->aspects[a].width);
    MR_TRY(sort_ratios(r, to));
    for (int32_t i = 0; i < from->n_lengths; i++) {
        const mr_bucket_length *l = &from->lengths[i];
        MR_TRY(check_length(from->name, l));
        for (int32_t j = 0; j < i; j++)
            if (from->lengths[j].frames == l->frames)
                return mr_fail(MR_E_RECIPE, "bucket_config.%s: length %d is given twice",
                               from->name, l->frames);
        int64_t span =
            r->compat ? (int64_t)l->frames * r->interval : (int64_t)(l->frames - 1) * r->interval;
        to->lengths[i] = (bucket_length){.frames = l->frames,
                                         .needs = span + 1,
                                         .batch = l->batch,
                                         .cost = l->cost,
                                         .keep = l->keep,
                                         .tries = isnan(l->tries) ? 1 : l->tries,
                                         .pair = !isnan(l->tries)};
    }
    return MR_OK;
}

static int compare_needs(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static mr_status number_buckets(mr_bucket_rule *r, int32_t *n_lengths)
{
    int64_t count = 0, lengths = 0;
    for (int32_t i = 0; i < r->n; i++) {
        count += (int64_t)r->resolutions[i].n_aspects * r->resolutions[i].n_lengths;
        lengths += r->resolutions[i].n_lengths;
    }
    if (lengths > 1000)
        return mr_fail(MR_E_RECIPE, "bucket_config has %lld lengths; expected at most 1000",
                       (long long)lengths);
    *n_lengths = (int32_t)lengths;
    if (count > 65000)
        return mr_fail(MR_E_RECIPE, "bucket_config makes %lld buckets; expected at most 65000",
                       (long long)count);
    r->buckets = mr_arena_alloc(&r->arena, sizeof *r->buckets * (size_t)count);
    r->places = mr_arena_alloc(&r->arena, sizeof *r->places * (size_t)count);
    if (!r->buckets || !r->places)
        return mr_fail_memory(0);
    uint64_t h = MR_MIX((uint64_t)r->interval, r->compat);
    for (int32_t i = 0; i < r->n; i++) {
        const bucket_resolution *res = &r->resolutions[i];
        h = MR_MIX(h, mr_name_word(res->name), mr_hash64(&res->pixels, sizeof res->pixels),
                   (uint64_t)res->n_lengths, (uint64_t)res->n_aspects);
        for (int32_t l = 0; l < res->n_lengths; l++) {
            bucket_length *len = &res->lengths[l];
            len->first = r->count;
            double p[2] = {len->keep, len->tries};
            h = MR_MIX(h, (uint64_t)len->frames, mr_hash64(p, sizeof p));
            for (int32_t a = 0; a < res->n_aspects; a++) {
                const mr_bucket_aspect *as = &res->aspects[a];
                r->places[r->count] = (bucket_place){i, a, len};
                double pixels = (double)len->batch * len->frames * as->height * as->width;
                r->buckets[r->count++] =
                    (mr_bucket){res->name, len->frames, as->height,
                                as->width, len->batch,  len->cost > 0 ? len->cost : pixels};
                h = MR_MIX(h, mr_hash64(&as->ratio, sizeof as->ratio), (uint64_t)as->height,
                           (uint64_t)as->width);
            }
        }
    }
    r->hash = h;
    return MR_OK;
}

// collect the numbers of frames that lengths of the rule need, each once
static mr_status sort_needs(mr_bucket_rule *r, int32_t n_lengths)
{
    int32_t n = 0;
    if (!(r->needs = mr_arena_alloc(&r->arena, sizeof *r->needs * (size_t)n_lengths)))
        return mr_fail_memory(0);
    for (int32_t i = 0; i < r->n; i++)
        for (int32_t l = 0; l < r->resolutions[i].n_lengths; l++)
            if (r->resolutions[i].lengths[l].frames > 1)
                r->needs[n++] = r->resolutions[i].lengths[l].needs;
    qsort(r->needs, (size_t)n, sizeof *r->needs, compare_needs);
    for (int32_t i = 0; i < n; i++)
        if (!i || r->needs[i] != r->needs[i - 1])
            r->needs[r->n_needs++] = r->needs[i];
    return MR_OK;
}

// Write the steps of a length in front of those at *at. A row for which the length is not tried
// continues with a shorter length of the resolution; one for which it is tried but not kept
// continues with the next resolution. Draws are named by their purpose, so that other entries of
// the table do not change them.
static void lay_length(mr_bucket_rule *r, const bucket_resolution *res, const bucket_length *len,
                       int32_t shorter, int32_t next, int32_t *at)
{
    r->steps[--*at] = (bucket_step){.word = bucket_word("bucket.keep", res, len->frames),
                                    .limit = limit_of(len->keep),
                                    .yes = bucket_taken(len->first),
                                    .no = next};
    if (len->tries < 1) {
        int32_t keep = *at;
        r->steps[--*at] = (bucket_step){.word = bucket_word("bucket.try", res, len->frames),
                                        .limit = limit_of(len->tries),
                                        .yes = keep,
                                        .no = shorter};
    }
}

// whether a row on way k fits a length. Way k is for clips that reach k needs, the last way for
// pictures.
static bool is_on_way(const mr_bucket_rule *r, int32_t way, const bucket_length *len)
{
    if (way > r->n_needs || len->frames == 1)
        return way > r->n_needs && len->frames == 1;
    return way && len->needs <= r->needs[way - 1];
}

// write ways from their ends, so that the successor of a step is known
static mr_status lay_ways(mr_bucket_rule *r, int32_t n_lengths)
{
    int32_t n_ways = r->n_needs + 2, at = n_ways * 2 * n_lengths;
    r->steps = mr_arena_alloc(&r->arena, sizeof *r->steps * (size_t)at);
    r->begins = mr_arena_alloc(&r->arena, sizeof *r->begins * (size_t)(n_ways * (r->n + 1)));
    if (!r->steps || !r->begins)
        return mr_fail_memory(0);
    for (int32_t way = 0; way < n_ways; way++) {
        int32_t *begins = r->begins + way * (r->n + 1);
        begins[r->n] = BUCKET_END;
        for (int32_t i = r->n - 1; i >= 0; i--) {
            const bucket_resolution *res = &r->resolutions[i];
            begins[i] = begins[i + 1];
            for (int32_t l = res->n_lengths - 1; l >= 0; l--)
                if (is_on_way(r, way, &res->lengths[l])) {
                    lay_length(r, res, &res->lengths[l], begins[i], begins[i + 1], &at);
                    begins[i] = at;
                }
        }
    }
    return MR_OK;
}

mr_status mr_bucket_rule_new(const mr_bucket_resolution *from, int32_t n, int32_t interval,
                             bool compat, mr_bucket_rule **out)
{
    mr_bucket_rule *r;
    if (n < 1)
        return mr_fail(
            MR_E_RECIPE,
            "bucket_config is empty; expected resolution -> frames -> {probability, batch size}");
    if (interval < 1)
        return mr_fail(MR_E_RECIPE, "frame_interval is %d; expected 1 or more", interval);
    if (!MR_NEW(r))
        return mr_fail_memory(sizeof *r);
    mr_arena_init(&r->arena);
    r->n = n, r->interval = interval, r->compat = compat;
    r->resolutions = mr_arena_alloc(&r->arena, sizeof *r->resolutions * (size_t)n);
    mr_status st = r->resolutions ? MR_OK : mr_fail_memory(0);
    for (int32_t i = 0; i < n && st == MR_OK; i++)
        st = copy_resolution(r, &from[i], &r->resolutions[i]);
    if (st == MR_OK) {
        sort_rule(r);
        int32_t n_lengths = 0;
        if ((st = number_buckets(r, &n_lengths)) == MR_OK &&
            (st = sort_needs(r, n_lengths)) == MR_OK)
            st = lay_ways(r, n_lengths);
    }
    if (st == MR_OK)
        *out = r;
    else
        mr_bucket_rule_free(r);
    return st;
}

void mr_bucket_rule_free(mr_bucket_rule *r)
{
    if (!r)
        return;
    mr_arena_fini(&r->arena);
    mr_free(r);
}

int32_t mr_bucket_rule_count(const mr_bucket_rule *r)
{
    return r->count;
}
mr_bucket mr_bucket_rule_get(const mr_bucket_rule *r, int32_t bucket)
{
    return r->buckets[bucket];
}
void mr_bucket_rule_repeat(mr_bucket_rule *r, uint64_t epochs)
{
    r->repeat = epochs;
    if (epochs)
        r->hash = MR_MIX(r->hash, epochs, mr_name_word("repeat"));
}

mr_status mr_bucket_rule_follow(mr_bucket_rule *r, mr_reference reference, double fps_max)
{
    if (!reference)
        return MR_OK;
    r->follows = reference, r->fps_max = MR_MAX(fps_max, 0), r->compat = true;
    // the draws and the batches depend on the whole rule
    r->hash = MR_MIX(r->hash, (uint64_t)reference, mr_hash64(&r->fps_max, sizeof r->fps_max));
    for (int32_t b = 0; b < r->count; b++)
        r->hash = MR_MIX(r->hash, (uint64_t)r->buckets[b].batch);
    for (int32_t i = 0; i < r->n; i++)
        for (int32_t l = 0; l < r->resolutions[i].n_lengths; l++) {
            bucket_length *len = &r->resolutions[i].lengths[l];
            if (len->pair && len->frames == 1)
                return mr_fail(MR_E_RECIPE,
                               "bucket_config.%s[1]: two probabilities; the order of a reference "
                               "takes one number for pictures; try: { %g, batch size }",
                               r->resolutions[i].name, len->keep);
            len->needs =
                reference == MR_REFERENCE_20 ? len->frames : (int64_t)len->frames * r->interval + 1;
        }
    return MR_OK;
}

mr_reference mr_bucket_rule_follows(const mr_bucket_rule *r)
{
    return r->follows;
}

bool bucket_is_certain(const mr_bucket_rule *r)
{
    for (int32_t i = 0; i < r->n; i++)
        for (int32_t l = 0; l < r->resolutions[i].n_lengths; l++) {
            const bucket_length *len = &r->resolutions[i].lengths[l];
            bool never = !r->follows && (len->keep <= 0 || len->tries <= 0);
            if (!never && (len->keep < 1 || len->tries < 1))
                return false;
        }
    return true;
}

uint64_t mr_bucket_rule_hash_of(const mr_bucket_rule *r, const mr_subset *members)
{
    return members ? MR_MIX(r->hash, members->hash) : r->hash;
}

// the nearest aspect; of equally near ones the first of the table
static int32_t nearest_aspect(const bucket_resolution *res, const mr_hot *hot)
{
    double ratio = (double)hot->height / hot->width;
    int32_t n = 0;
    for (int32_t a = 1; a < res->n_ratios - 1; a++)
        n += res->ratios[a].ratio <= ratio;
    const bucket_ratio *lo = &res->ratios[n], *hi = &res->ratios[MR_MIN(n + 1, res->n_ratios - 1)];
    double below = fabs(lo->ratio - ratio), above = fabs(hi->ratio - ratio);
    return below < above || (below == above && lo->aspect < hi->aspect) ? lo->aspect : hi->aspect;
}

// what the size of a sample decides, from the cache; it replaces another size at that place
static bucket_size *look_at_size(const mr_bucket_rule *r, bucket_sizes sizes, const mr_hot *hot)
{
    uint32_t key = ((uint32_t)hot->width << 16 | hot->height) + 1;
    bucket_size *size = &sizes.of[(uint64_t)(key * 2654435761u) >> (32 - sizes.log)];
    if (size->key == key)
        return size;
    double pixels = (double)hot->width * hot->height;
    *size = (bucket_size){.key = key};
    for (int32_t i = 0; i < r->n; i++)
        size->first += pixels < 0.8 * r->resolutions[i].pixels;
    memset(size->aspect, 0xff, sizeof size->aspect);
    return size;
}

static int32_t aspect_of(const mr_bucket_rule *r, bucket_size *size, int32_t i, const mr_hot *hot)
{
    if (i >= BUCKET_SIZE_RESOLUTIONS)
        return nearest_aspect(&r->resolutions[i], hot);
    if (size->aspect[i] == UINT16_MAX)
        size->aspect[i] = (uint16_t)nearest_aspect(&r->resolutions[i], hot);
    return size->aspect[i];
}

// assign rows by a rule that follows a reference, one by one: its generators cost more than a
// branch
static void assign_each(const mr_bucket_rule *r, bucket_sizes sizes, uint64_t seed, uint64_t epoch,
                        uint64_t row, const mr_hot *rows, int32_t n, int32_t *out)
{
    for (int32_t i = 0; i < n; i++) {
        mr_drop why;
        const bucket_length *len =
            bucket_walk(r, seed, epoch, row + (uint64_t)i, &rows[i], NULL, &why);
        out[i] = -(int32_t)why;
        if (len)
            out[i] = len->first + aspect_of(r, look_at_size(r, sizes, &rows[i]),
                                            r->places[len->first].resolution, &rows[i]);
    }
}

/* All rows take a step before any row takes the next one. So steps of different rows overlap, and
 * the loop has no branch that depends on a draw. A 53-bit fraction is below p if its bits are below
 * p * 2^53. */
void bucket_assign(const mr_bucket_rule *r, bucket_sizes sizes, uint64_t seed, uint64_t epoch,
                   uint64_t row, const mr_hot *rows, int32_t n, int32_t *out)
{
    int32_t at[BUCKET_ROWS], m = 0;
    uint16_t open[BUCKET_ROWS];
    epoch = mr_bucket_rule_draws(r, epoch);
    if (r->follows) {
        assign_each(r, sizes, seed, epoch, row, rows, n, out);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t way = 0, first = look_at_size(r, sizes, &rows[i])->first;
        for (int32_t k = 0; k < r->n_needs; k++)
            way += rows[i].frames >= r->needs[k];
        bool picture = rows[i].frames == 1;
        at[i] = r->begins[(picture ? r->n_needs + 1 : way) * (r->n + 1) + first];
        out[i] = at[i] != BUCKET_END ? -MR_DROP_CHANCE
                 : first == r->n     ? -MR_DROP_SMALL
                 : picture           ? -MR_DROP_IMAGE
                                     : -MR_DROP_SHORT;
        open[m] = (uint16_t)i;
        m += at[i] >= 0;
    }
    for (int32_t left; m; m = left) {
        left = 0;
        for (int32_t j = 0; j < m; j++) {
            int32_t i = open[j];
            const bucket_step *s = &r->steps[at[i]];
            bool yes = MIX_INLINE(seed, epoch, s->word, rows[i].key_lo) >> 11 < s->limit;
            at[i] = s->no ^ ((s->yes ^ s->no) & -(int32_t)yes);
            open[left] = (uint16_t)i;
            left += at[i] >= 0;
        }
    }
    for (int32_t i = 0; i < n; i++)
        if (at[i] != BUCKET_END) {
            int32_t bucket = bucket_taken(at[i]);
            bucket_size *size = look_at_size(r, sizes, &rows[i]);
            out[i] = bucket + aspect_of(r, size, r->places[bucket].resolution, &rows[i]);
        }
}

bool bucket_may_take(const mr_bucket_rule *r, bucket_sizes sizes, const mr_hot *hot, int32_t b)
{
    const bucket_place *p = &r->places[b];
    bucket_size *size = look_at_size(r, sizes, hot);
    return p->resolution >= size->first && bucket_fits(p->length, bucket_frames(r, hot)) &&
           aspect_of(r, size, p->resolution, hot) == p->aspect;
}

int32_t mr_bucket_rule_assign(const mr_bucket_rule *r, uint64_t seed, uint64_t epoch, uint64_t row,
                              const mr_hot *hot, mr_drop *why)
{
    bucket_size size = {0};
    int32_t b;
    bucket_assign(r, (bucket_sizes){&size, 0}, seed, epoch, row, hot, 1, &b);
    *why = b < 0 ? (mr_drop)-b : MR_DROP_NONE;
    return MR_MAX(b, -1);
}
