/* data: merges the orders of several sources into one stream. The next source depends only on the
 * number of samples that each source is due. Ref: dataplane 4.10. Licence: Apache-2.0 */
#include "data/blend.h"
#include "data/position.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- shares ---- */

#define ONE ((int64_t)1 << 32) // a share of 1

static int64_t share_of(double weight, double sum)
{
    return sum > 0 ? (int64_t)(weight / sum * (double)ONE) : 0;
}

static double weight_at(const blend_source *s, uint64_t x)
{
    if (!s->n_weights)
        return 1;
    int32_t i = 0;
    while (i < s->n_weights && s->weights[i].samples <= x)
        i++;
    if (i == 0 || i == s->n_weights)
        return s->weights[MR_MAX(i - 1, 0)].weight;
    const mr_weight *a = &s->weights[i - 1], *b = &s->weights[i];
    double way = (double)(x - a->samples) / (double)(b->samples - a->samples);
    return a->weight + way * (b->weight - a->weight);
}

// whether a source has a share from sample x on
static bool has_future(const blend_source *s, uint64_t x)
{
    bool any = weight_at(s, x) > 0;
    for (int32_t i = 0; i < s->n_weights; i++)
        any |= s->weights[i].samples > x && s->weights[i].weight > 0;
    return any;
}

// the number of epochs that are drawn completely
static uint64_t drawn_epochs(const blend_source *s)
{
    return s->order->at.epoch + order_is_used_up(s->order);
}

static bool has_ended(const blend_source *s)
{
    return s->epochs && drawn_epochs(s) >= s->epochs;
}

// The share of each source in the next micro-batch, as 32.32 fixed point; the sum is 1. The largest
// share absorbs the rounding error. False if no source has a share.
static bool shares_now(const mr_blend *m, int64_t share[MR_SOURCES_MAX])
{
    double weight[MR_SOURCES_MAX], sum = 0;
    for (int32_t i = 0; i < m->n; i++) {
        weight[i] = has_ended(&m->sources[i]) ? 0 : weight_at(&m->sources[i], m->at.samples);
        sum += weight[i];
    }
    int64_t left = ONE;
    int32_t largest = 0;
    for (int32_t i = 0; i < m->n; i++) {
        share[i] = share_of(weight[i], sum);
        left -= share[i];
        largest = weight[i] > weight[largest] ? i : largest;
    }
    share[largest] += left;
    return sum > 0;
}

// The source to which most is due; of equal ones that with the larger share. -1 if no source has a
// share.
static int32_t next_source(const mr_blend *m, const int64_t share[MR_SOURCES_MAX])
{
    int32_t best = -1;
    for (int32_t i = 0; i < m->n; i++) {
        // a slot of equal cost that is begun stays with its source
        if (m->sources[i].order->at.slot.left)
            return i;
        if (!share[i])
            continue;
        int64_t due = m->at.deficit[i];
        if (best < 0 || due > m->at.deficit[best] ||
            (due == m->at.deficit[best] && share[i] > share[best]))
            best = i;
    }
    return best;
}

mr_status mr_blend_next(mr_blend *m, mr_draw *d)
{
    int64_t share[MR_SOURCES_MAX];
    if (!shares_now(m, share))
        return mr_fail(MR_E_RANGE, "every source has reached its largest number of draws");
    d->source = next_source(m, share);
    MR_TRY(mr_order_next(m->sources[d->source].order, d));
    for (int32_t i = 0; i < m->n; i++)
        m->at.deficit[i] += share[i] * d->n;
    m->at.deficit[d->source] -= (int64_t)d->n * ONE;
    m->at.taken[d->source] += (uint64_t)d->n;
    m->at.samples += (uint64_t)d->n;
    d->shares = m->at;
    return MR_OK;
}

bool mr_blend_over(const mr_blend *m, uint64_t epochs)
{
    int64_t share[MR_SOURCES_MAX];
    if (!shares_now(m, share))
        return true;
    bool over = epochs > 0;
    for (int32_t i = 0; i < m->n && over; i++) {
        const blend_source *s = &m->sources[i];
        over = has_ended(s) || drawn_epochs(s) >= epochs || !has_future(s, m->at.samples);
    }
    return over;
}

/* ---- life ---- */

static mr_status check_source(const mr_source *sources, int32_t i)
{
    const mr_source *s = &sources[i];
    const char *good = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (s->name[strspn(s->name, good)] || strlen(s->name) > 63)
        return mr_fail(MR_E_RECIPE,
                       "sources: '%.80s' is no name; expected letters, digits, '_', '-' and '.', "
                       "63 at most",
                       s->name);
    for (int32_t k = 0; k < i; k++)
        if (strcmp(sources[k].name, s->name) == 0)
            return mr_fail(MR_E_RECIPE, "sources: two of them are called '%s'", s->name);
    bool any = !s->n_weights;
    for (int32_t k = 0; k < s->n_weights; k++) {
        const mr_weight *w = &s->weights[k];
        if (!(w->weight >= 0 && w->weight < 1e100) || (k && w->samples < w[-1].samples))
            return mr_fail(MR_E_RECIPE,
                           "sources.%s: weight %g at %llu samples; expected weights of 0 or more, "
                           "in ascending order of samples",
                           s->name, w->weight, (unsigned long long)w->samples);
        any |= w->weight > 0;
    }
    return any ? MR_OK
               : mr_fail(MR_E_RECIPE,
                         "sources.%s: its weight is 0 all the time; try: a weight above 0, or "
                         "leave it out",
                         s->name);
}

// The sample from which weight k of source i applies. The first weight of a jump applies up to the
// sample before it.
static uint64_t place_of(const blend_source *s, int32_t k)
{
    const mr_weight *w = &s->weights[k];
    bool jumps = k + 1 < s->n_weights && w[1].samples == w->samples;
    return w->samples - (jumps && w->samples);
}

// Refuse a weight so small that its share rounds to 0: its source would never be drawn.
static mr_status check_shares(const mr_blend *m)
{
    for (int32_t i = 0; i < m->n; i++) {
        const blend_source *s = &m->sources[i];
        for (int32_t k = 0; k < s->n_weights; k++) {
            uint64_t x = place_of(s, k);
            double weight = weight_at(s, x), others = -weight;
            for (int32_t j = 0; j < m->n; j++)
                others += weight_at(&m->sources[j], x);
            if (weight > 0 && share_of(weight, others + weight) == 0)
                return mr_fail(MR_E_RECIPE,
                               "sources.%s: weight %g at %llu samples, against %g of the others, "
                               "is too little to be drawn ever; expected 0, or %.3g and more",
                               s->name, weight, (unsigned long long)x, others,
                               1.01 * others / (double)ONE);
        }
    }
    return MR_OK;
}

static mr_status add_source(mr_blend *m, const mr_source *from, const mr_bucket_rule *rule,
                            const mr_order_options *options)
{
    blend_source *to = &m->sources[m->n++];
    size_t bytes = sizeof *to->weights * (size_t)from->n_weights;
    to->epochs = from->epochs, to->n_weights = from->n_weights;
    if (!(to->name = mr_strdup(from->name)) || !(to->weights = mr_alloc(MR_MAX(bytes, 1))))
        return mr_fail_memory(bytes);
    if (bytes)
        memcpy(to->weights, from->weights, bytes);
    mr_order_options own = *options;
    own.members = from->members;
    // the last epoch
    if (from->epochs && (!own.epochs || from->epochs < own.epochs))
        own.epochs = from->epochs;
    mr_status st = mr_order_new(from->index, rule, &own, &to->order);
    if (st != MR_OK && *from->name)
        mr_fail_note("sources.%s", from->name);
    return st;
}

mr_status mr_blend_new(const mr_source *sources, int32_t n, const mr_bucket_rule *rule,
                       const mr_order_options *options, mr_blend **out)
{
    mr_blend *m;
    if (n < 1 || n > MR_SOURCES_MAX)
        return mr_fail(MR_E_RECIPE, "sources: there are %d; expected 1 to %d", n, MR_SOURCES_MAX);
    for (int32_t i = 0; i < n; i++)
        MR_TRY(check_source(sources, i));
    if (n > 1 && rule->follows)
        return mr_fail(MR_E_RECIPE,
                       "dataset.sources: there are %d; the order of a reference is "
                       "that of one index; try: moonreel data merge, or order = "
                       "\"own\"",
                       n);
    if (!MR_NEW(m))
        return mr_fail_memory(sizeof *m);
    mr_status st = MR_OK;
    for (int32_t i = 0; i < n && st == MR_OK; i++)
        st = add_source(m, &sources[i], rule, options);
    if (st == MR_OK)
        st = check_shares(m);
    if (st == MR_OK)
        *out = m;
    else
        mr_blend_free(m);
    return st;
}

void mr_blend_free(mr_blend *m)
{
    if (!m)
        return;
    for (int32_t i = 0; i < m->n; i++) {
        mr_order_free(m->sources[i].order);
        mr_free(m->sources[i].name);
        mr_free(m->sources[i].weights);
    }
    mr_free(m);
}

mr_order *mr_blend_order(mr_blend *m, int32_t source)
{
    return m->sources[source].order;
}

/* ---- position ---- */

mr_status blend_position_init(blend_position *p, const mr_blend *m)
{
    p->shares = m->at;
    for (p->n = 0; p->n < m->n; p->n++)
        MR_TRY(mr_position_init(&p->at[p->n], m->sources[p->n].order));
    return MR_OK;
}

void blend_position_fini(blend_position *p)
{
    for (int32_t i = 0; i < p->n; i++)
        mr_position_fini(&p->at[i]);
    p->n = 0;
}

void blend_position_advance(blend_position *p, const mr_draw *d)
{
    mr_position_advance(&p->at[d->source], d);
    p->shares = d->shares;
}

void blend_put_name(mr_text *out, const char *name)
{
    if (*name)
        mr_text_add(out, "source %s\n", name);
}

/* The text of a position. For one source without a name it is the text of its order. Else it is a
 * head with the shares, then one part per source. */
mr_status blend_position_text(const blend_position *p, const mr_blend *m, bool brief, char **text)
{
    mr_text out = {0};
    mr_status st = MR_OK;
    if (*m->sources[0].name) {
        mr_text_add(&out, "moonreel blend 1\nsamples %" PRIu64 "\n", p->shares.samples);
        for (int32_t i = 0; i < p->n; i++)
            mr_text_add(&out, "share %s %" PRIu64 " %" PRId64 "\n", m->sources[i].name,
                        p->shares.taken[i], p->shares.deficit[i]);
    }
    for (int32_t i = 0; i < p->n && st == MR_OK; i++) {
        char *part;
        blend_put_name(&out, m->sources[i].name);
        if ((st = mr_position_text(&p->at[i], m->sources[i].order, brief, &part)) != MR_OK)
            break;
        mr_text_put(&out, part, strlen(part));
        mr_free(part);
    }
    if (st == MR_OK)
        return mr_text_end(&out, text);
    mr_free(out.data);
    return st;
}

static const char *next_line(const char *p)
{
    const char *end = strchr(p, '\n');
    return end ? end + 1 : p + strlen(p);
}

// whether this is the line "source NAME"; NULL: of any name
static bool names(const char *line, const char *name)
{
    if (strncmp(line, "source ", 7) != 0)
        return false;
    size_t n = name ? strlen(name) : 0;
    return !name || (strncmp(line + 7, name, n) == 0 && (line[7 + n] == '\n' || !line[7 + n]));
}

mr_status blend_part(const char *text, const char *name, char **out)
{
    mr_text part = {0};
    bool mine = !*name, any = mine;
    for (const char *p = text; *p; p = next_line(p)) {
        if (names(p, NULL))
            mine = names(p, name), any |= mine;
        else if (mine)
            mr_text_put(&part, p, (size_t)(next_line(p) - p));
    }
    *out = NULL;
    return any ? mr_text_end(&part, out) : MR_OK;
}

mr_status mr_blend_state_of(const char *text, const char *name, char **out)
{
    bool blended = strncmp(text, "moonreel blend 1\n", 17) == 0;
    *out = NULL;
    // the state of a single source does not fit a stream of several sources, and vice versa
    return blended == (*name != 0) ? blend_part(text, name, out) : MR_OK;
}

mr_status blend_restore(mr_blend *m, const char *text)
{
    if (strncmp(text, "moonreel blend 1\n", 17) != 0)
        return MR_OK;
    const char *p = next_line(text);
    int64_t sum = 0;
    bool good = sscanf(p, "samples %" SCNu64, &m->at.samples) == 1;
    for (p = next_line(p); strncmp(p, "share ", 6) == 0 && good; p = next_line(p)) {
        char name[64];
        uint64_t taken;
        int64_t deficit;
        good = sscanf(p, "share %63s %" SCNu64 " %" SCNd64, name, &taken, &deficit) == 3;
        for (int32_t i = 0; i < m->n && good; i++)
            if (strcmp(m->sources[i].name, name) == 0)
                m->at.taken[i] = taken, m->at.deficit[i] = deficit, sum += deficit;
    }
    // drop what was due to removed sources: shares start again
    if (sum)
        memset(m->at.deficit, 0, sizeof m->at.deficit);
    return good ? MR_OK
                : mr_fail(MR_E_FORMAT, "the sampler state has no shares of its sources; try: an "
                                       "older checkpoint, or --start-from-scratch");
}
