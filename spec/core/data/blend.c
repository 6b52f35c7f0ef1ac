/* data/blend: several sources as one stream: each sample exactly once in each epoch of its source,
 * shares that follow the weights at each position, the same stream after any restart.
 * MOONREEL_EPOCHS sets the number of random streams, MOONREEL_SEED selects them. */
#include "check.h"
#include "data/room.h"
#include "rows.h"

#include <math.h>
#include <stdlib.h>

enum { SETS = 5, BATCH_MAX = 9 };
static const uint64_t rows_of[SETS] = {700, 90, 333, 41, 1200};
static mr_index *indexes[SETS];
static uint64_t state = 3;

static uint64_t below(uint64_t n)
{
    state = MR_MIX(state, 9);
    return state % n;
}

static mr_bucket_aspect square[] = {{1.0, 64, 64}}, wide[] = {{0.56, 36, 64}, {1.78, 64, 36}};

static mr_status make_rule(mr_bucket_rule **out)
{
    int m[4];
    for (int i = 0; i < 4; i++)
        m[i] = 1 + (int)below(BATCH_MAX);
    mr_bucket_length low[] = {{1, 1, 1, m[0], 0}, {16, 0.8, 1, m[1], 0}, {4, 1, 1, m[2], 0}},
                     high[] = {{120, 0.5, 1, m[3], 0}};
    mr_bucket_resolution r[] = {{"low", 4096, wide, 2, low, 3},
                                {"high", 200000, square, 1, high, 1}};
    return mr_bucket_rule_new(r, 2, 1, false, out);
}

/* ---- a stream, drawn with kills on the way ---- */

typedef struct stream {
    int n, set[SETS];
    mr_source sources[SETS];
    mr_weight weights[SETS][3];
    char names[SETS][8];
    uint64_t seed;
    int32_t slot;
    mr_bucket_rule *rule;
    mr_blend *m;
} stream;

static mr_status open_stream(stream *s, const char *text)
{
    mr_order_options o = {.seed = s->seed, .slot = s->slot};
    MR_TRY(mr_blend_new(s->sources, s->n, s->rule, &o, &s->m));
    for (int i = 0; i < s->n && text; i++) {
        char *part;
        MR_TRY(mr_blend_state_of(text, s->names[i], &part));
        mr_status st = mr_order_restore(mr_blend_order(s->m, i), part, NULL, 0, NULL);
        mr_free(part);
        MR_TRY(st);
    }
    return text ? blend_restore(s->m, text) : MR_OK;
}

// some sources, perhaps the same set twice, each of a constant weight or one that changes
static void make_stream(stream *s, bool constant)
{
    memset(s, 0, sizeof *s);
    s->n = 1 + (int)below(SETS), s->seed = below(1000), s->slot = (int32_t)(below(3) ? 1 : 4);
    for (int i = 0; i < s->n; i++) {
        s->set[i] = (int)below(SETS);
        snprintf(s->names[i], sizeof s->names[i], "s%d", i);
        for (int k = 0; k < 3; k++)
            s->weights[i][k] =
                (mr_weight){(uint64_t)k * (300 + below(300)), (double)(1 + below(9))};
        if (!constant && i)
            s->weights[i][below(3)].weight = 0;
        s->sources[i] = (mr_source){.name = s->names[i],
                                    .index = indexes[s->set[i]],
                                    .weights = s->weights[i],
                                    .n_weights = constant ? 1 : 3};
    }
    CHECK_OK(make_rule(&s->rule));
}

// a state as a loader keeps it, of the samples given out
static char *state_of(const blend_position *p, const stream *s)
{
    char *text = NULL;
    CHECK_OK(blend_position_text(p, s->m, false, &text));
    return text;
}

typedef struct tally {
    uint8_t *count[SETS]; // [row] in the epoch of its source
    uint64_t epoch[SETS], left[SETS];
} tally;

// a draw's samples are counted; an epoch that ends has had each sample that its plan took once
static bool count(tally *t, stream *s, const mr_draw *d)
{
    int i = d->source;
    bool good = true;
    mr_order *o = mr_blend_order(s->m, i);
    if (d->number == 0) {
        memset(t->count[i], 0, rows_of[s->set[i]]);
        t->left[i] = o->in_epoch;
        good = CHECK(d->epoch == t->epoch[i] + 1 || (d->epoch == 0 && t->epoch[i] == 0));
        t->epoch[i] = d->epoch;
    }
    for (int k = 0; k < d->n && good; k++)
        good = CHECK_INT(t->count[i][d->ids[k]]++, 0);
    t->left[i] -= (uint64_t)d->n;
    return good && CHECK_INT(d->last, !t->left[i]);
}

static bool draw_stream(uint64_t draws, bool constant)
{
    stream s;
    tally t = {0};
    uint64_t ids[2][BATCH_MAX], keys[BATCH_MAX], most = 0;
    mr_draw d = {.ids = ids[0], .keys = keys};
    blend_position p;
    make_stream(&s, constant);
    bool good = CHECK_OK(open_stream(&s, NULL)) && CHECK_OK(blend_position_init(&p, s.m));
    for (int i = 0; i < s.n; i++)
        t.count[i] = calloc(rows_of[s.set[i]], 1);
    for (uint64_t k = 0; k < draws && good; k++) {
        uint64_t x = s.m->at.samples;
        int32_t begun = s.m->at.samples && d.slot.left ? d.source : -1;
        good = CHECK_OK(mr_blend_next(s.m, &d)) && count(&t, &s, &d);
        // draws of a slot are of one source
        good = good && CHECK(begun < 0 || d.source == begun);
        blend_position_advance(&p, &d);
        most = MR_MAX(most, (uint64_t)d.n * (uint64_t)s.slot);
        // A source without a share is not drawn. The debt to one of n sources stays within 1 + 1/2
        // + .. + 1/(n-1) slots: because the source with the largest debt is drawn, the k largest
        // debts together are at most k/(k+1) of the k + 1 largest and a slot, and all n together
        // are 0.
        int64_t sum = 0;
        double slots = 0;
        for (int k = 1; k < s.n; k++)
            slots += 1.0 / k;
        for (int i = 0; i < s.n; i++) {
            sum += d.shares.deficit[i];
            good = good && (!constant || CHECK(llabs(d.shares.deficit[i]) <=
                                               (int64_t)(slots * (double)(most << 32)) + 400));
        }
        const mr_weight *w = s.weights[d.source];
        for (int j = 0; j < 2 && !constant && s.slot == 1; j++)
            good = good && CHECK(!(x >= w[j].samples && x < w[j + 1].samples &&
                                   w[j].weight + w[j + 1].weight == 0));
        good = good && CHECK_INT(sum, 0) && CHECK_INT(d.shares.samples, x + (uint64_t)d.n);
        // a kill: the draws after the state are the same
        if (good && below(40) == 0) {
            char *text = state_of(&p, &s);
            mr_blend *before = s.m;
            good = CHECK(strlen(text) < (size_t)(4096 * s.n)) && CHECK_OK(open_stream(&s, text));
            mr_draw a = {.ids = ids[1], .keys = keys};
            for (int i = 0; i < 3 && good; i++) {
                good = CHECK_OK(mr_blend_next(before, &a)) && CHECK_OK(mr_blend_next(s.m, &d)) &&
                       CHECK_INT(a.source, d.source) && CHECK_INT(a.n, d.n) &&
                       CHECK(memcmp(ids[0], ids[1], sizeof ids[0][0] * (size_t)d.n) == 0) &&
                       CHECK(memcmp(&a.shares, &d.shares, sizeof a.shares) == 0) &&
                       count(&t, &s, &d);
                most = MR_MAX(most, (uint64_t)d.n * (uint64_t)s.slot);
                blend_position_advance(&p, &d);
            }
            mr_blend_free(before);
            mr_free(text);
        }
    }
    for (int i = 0; i < s.n; i++)
        free(t.count[i]);
    blend_position_fini(&p);
    mr_blend_free(s.m);
    mr_bucket_rule_free(s.rule);
    return good;
}

/* ---- shares, ends, wrong input ---- */

static void draws_of(mr_blend *m, uint64_t samples, uint64_t taken[SETS])
{
    uint64_t ids[BATCH_MAX], keys[BATCH_MAX];
    mr_draw d = {.ids = ids, .keys = keys};
    uint64_t from = m->at.samples;
    memset(taken, 0, sizeof *taken * SETS);
    while (m->at.samples < from + samples) {
        CHECK_OK(mr_blend_next(m, &d));
        taken[d.source] += (uint64_t)d.n;
    }
}

static void weights_are_kept(void)
{
    // from 3 : 1 over a ramp between 1,000 and 2,000 samples to 1 : 3
    mr_weight falling[] = {{1000, 3}, {2000, 1}}, rising[] = {{1000, 1}, {2000, 3}};
    mr_source sources[] = {{.name = "a", .index = indexes[0], .weights = falling, .n_weights = 2},
                           {.name = "b", .index = indexes[1], .weights = rising, .n_weights = 2}};
    mr_bucket_rule *rule;
    mr_blend *m;
    uint64_t taken[SETS];
    CHECK_OK(make_rule(&rule));
    CHECK_OK(mr_blend_new(sources, 2, rule, &(mr_order_options){.seed = 1}, &m));
    CHECK(!mr_blend_over(m, 0) && !mr_blend_over(m, 1));
    draws_of(m, 1000, taken);
    CHECK(llabs((int64_t)taken[0] - 750) <= BATCH_MAX);
    draws_of(m, 500, taken);
    CHECK(llabs((int64_t)taken[0] - 312) <= 2 * BATCH_MAX);
    draws_of(m, 500, taken);
    CHECK(llabs((int64_t)taken[0] - 188) <= 2 * BATCH_MAX);
    draws_of(m, 4000, taken);
    CHECK(llabs((int64_t)taken[0] - 1000) <= 2 * BATCH_MAX);
    // the small source was drawn many times meanwhile
    CHECK(mr_blend_order(m, 1)->at.epoch > 20);
    mr_blend_free(m);
    mr_bucket_rule_free(rule);
}

// a source with a limit of two epochs gives its share to the others; when all have reached theirs,
// the stream ends
static void ends(void)
{
    mr_source sources[] = {{.name = "a", .index = indexes[1], .epochs = 2},
                           {.name = "b", .index = indexes[3], .epochs = 3}};
    mr_bucket_rule *rule;
    mr_blend *m;
    uint64_t ids[BATCH_MAX], keys[BATCH_MAX], taken[SETS] = {0};
    mr_draw d = {.ids = ids, .keys = keys};
    CHECK_OK(make_rule(&rule));
    CHECK_OK(mr_blend_new(sources, 2, rule, &(mr_order_options){.seed = 1}, &m));
    uint64_t most[2] = {0};
    while (!mr_blend_over(m, 0)) {
        if (!CHECK_OK(mr_blend_next(m, &d)))
            break;
        taken[d.source] += (uint64_t)d.n;
        most[d.source] = MR_MAX(most[d.source], d.epoch);
    }
    CHECK_INT(most[0], 1);
    CHECK_INT(most[1], 2);
    CHECK(order_is_used_up(mr_blend_order(m, 0)) && order_is_used_up(mr_blend_order(m, 1)));
    CHECK_INT(taken[0], m->at.taken[0]);
    CHECK_FAILS(mr_blend_next(m, &d), MR_E_RANGE, "its largest number of draws");
    mr_blend_free(m);
    // after a number of epochs each source has had that many, the faster ones more
    sources[0].epochs = sources[1].epochs = 0;
    CHECK_OK(mr_blend_new(sources, 2, rule, &(mr_order_options){.seed = 1}, &m));
    while (!mr_blend_over(m, 2))
        if (!CHECK_OK(mr_blend_next(m, &d)))
            break;
    for (int i = 0; i < 2; i++)
        CHECK(mr_blend_order(m, i)->at.epoch + order_is_used_up(mr_blend_order(m, i)) >= 2);
    CHECK(d.last && d.epoch == 1);
    mr_blend_free(m);
    mr_bucket_rule_free(rule);
}

// draws until the stream of `epochs` epochs is over; at most `most`
static uint64_t draws_until_over(mr_blend *m, uint64_t epochs, uint64_t most)
{
    uint64_t ids[BATCH_MAX], keys[BATCH_MAX], n = 0;
    mr_draw d = {.ids = ids, .keys = keys};
    while (n < most && !mr_blend_over(m, epochs) && CHECK_OK(mr_blend_next(m, &d)))
        n++;
    return n;
}

// A source whose share has ended, or that has ended, is not waited for; one with a later share is.
static void over_with_phases(void)
{
    enum { MOST = 20000 };
    mr_weight retires[] = {{0, 1}, {20, 1}, {20, 0}}, comes[] = {{2000, 0}, {2000, 1}},
              first[] = {{0, 1}};
    mr_source two[] = {{.name = "a", .index = indexes[1], .weights = first, .n_weights = 1},
                       {.name = "b", .index = indexes[4], .weights = retires, .n_weights = 3}};
    mr_bucket_rule *rule;
    mr_blend *m;
    mr_order_options o = {.seed = 1};
    CHECK_OK(make_rule(&rule));
    if (CHECK_OK(mr_blend_new(two, 2, rule, &o, &m))) {
        CHECK(draws_until_over(m, 1, MOST) < MOST);
        CHECK(order_is_used_up(mr_blend_order(m, 0)));
        CHECK(m->at.taken[1] > 0 && m->at.taken[1] <= 10 + BATCH_MAX);
        mr_blend_free(m);
    }
    two[1].weights = comes, two[1].n_weights = 2;
    if (CHECK_OK(mr_blend_new(two, 2, rule, &o, &m))) {
        CHECK(draws_until_over(m, 1, MOST) < MOST);
        CHECK(m->at.samples > 2000 && mr_blend_order(m, 1)->at.epoch <= 1);
        CHECK(m->at.taken[1] >= mr_blend_order(m, 1)->in_epoch);
        mr_blend_free(m);
    }
    // one of the two may be drawn for one epoch, the other without limit
    two[1].n_weights = 0, two[0].epochs = 1;
    if (CHECK_OK(mr_blend_new(two, 2, rule, &o, &m))) {
        CHECK(draws_until_over(m, 3, MOST) < MOST);
        CHECK(order_is_used_up(mr_blend_order(m, 1)));
        CHECK_INT(mr_blend_order(m, 1)->at.epoch, 2);
        mr_blend_free(m);
    }
    // its one epoch is its last, so nothing is carried over to another one
    o.carry = true;
    if (CHECK_OK(mr_blend_new(two, 2, rule, &o, &m))) {
        uint64_t all = mr_blend_order(m, 0)->in_epoch;
        CHECK(draws_until_over(m, 3, MOST) < MOST);
        CHECK_INT(m->at.taken[0], all);
        mr_blend_free(m);
    }
    mr_bucket_rule_free(rule);
}

// Of equal debts the larger share comes first, and rounding gives nothing to a source without a
// debt.
static void who_comes_first(void)
{
    mr_weight none[] = {{100000, 0}, {100000, 1}}, one = {0, 1}, three = {0, 3};
    mr_source sources[] = {{.name = "a", .index = indexes[0], .weights = none, .n_weights = 2},
                           {.name = "b", .index = indexes[0], .weights = &one, .n_weights = 1},
                           {.name = "c", .index = indexes[0], .weights = &three, .n_weights = 1},
                           {.name = "d", .index = indexes[0], .weights = &three, .n_weights = 1}};
    mr_bucket_rule *rule;
    mr_blend *m;
    uint64_t taken[SETS], ids[BATCH_MAX], keys[BATCH_MAX];
    mr_draw d = {.ids = ids, .keys = keys};
    CHECK_OK(make_rule(&rule));
    if (CHECK_OK(mr_blend_new(sources, 4, rule, &(mr_order_options){.seed = 1}, &m))) {
        CHECK_OK(mr_blend_next(m, &d));
        CHECK_INT(d.source, 2);
        draws_of(m, 5000, taken);
        CHECK_INT(taken[0], 0);
        CHECK(taken[1] > 500);
        mr_blend_free(m);
    }
    mr_bucket_rule_free(rule);
}

// A source that was removed takes its debt with it, and names are compared to their ends.
static void without_a_source(void)
{
    mr_source three[] = {{.name = "a", .index = indexes[0]},
                         {.name = "ab", .index = indexes[1]},
                         {.name = "c", .index = indexes[2]}};
    mr_bucket_rule *rule;
    mr_blend *m;
    blend_position p = {0};
    char *text, *part;
    uint64_t taken[SETS];
    CHECK_OK(make_rule(&rule));
    mr_order_options o = {.seed = 1};
    if (!CHECK_OK(mr_blend_new(three, 3, rule, &o, &m)))
        return;
    do
        draws_of(m, 1, taken);
    while (!m->at.deficit[0] || !m->at.deficit[1] || !m->at.deficit[2]);
    CHECK_OK(blend_position_init(&p, m));
    CHECK_OK(blend_position_text(&p, m, false, &text));
    blend_position_fini(&p);
    mr_blend_free(m);
    if (CHECK_OK(mr_blend_new(three + 1, 2, rule, &o, &m))) {
        CHECK_OK(blend_restore(m, text));
        CHECK(!m->at.deficit[0] && !m->at.deficit[1]);
        CHECK(m->at.samples > 0);
        mr_blend_free(m);
    }
    // the part of "ab" begins after that of "a"
    CHECK_OK(mr_blend_state_of(text, "a", &part));
    CHECK(part && strstr(part, "rows 700\n") && !strstr(part, "rows 90\n"));
    mr_free(part);
    mr_free(text);
    mr_bucket_rule_free(rule);
}

// A weight whose count of shares is rounded to zero is refused; the proposed one is drawn. A weight
// that is small for a moment, on a ramp or before a jump, is accepted.
static void tiny_weights(void)
{
    mr_weight tiny = {0, 1e-12}, ramp[] = {{0, 0}, {(uint64_t)1 << 40, 1}},
              late[] = {{0, 1}, {500, 1e-12}}, jump[] = {{0, 1}, {500, 1}, {500, 1e12}, {600, 1}},
              with_it[] = {{0, 1}, {500, 1}, {500, 1e12}, {600, 1}},
              before[] = {{500, 1e-12}, {500, 1}};
    mr_source two[] = {{.name = "a", .index = indexes[0]},
                       {.name = "b", .index = indexes[3], .weights = &tiny, .n_weights = 1}};
    mr_bucket_rule *rule;
    mr_blend *m;
    double least = 0;
    CHECK_OK(make_rule(&rule));
    mr_order_options o = {.seed = 1};
    CHECK_FAILS(mr_blend_new(two, 2, rule, &o, &m), MR_E_RECIPE,
                "sources.b: weight 1e-12 at 0 samples, against 1 of the others, is too little");
    sscanf(strstr(mr_error_last()->text, "expected 0, or "), "expected 0, or %lf", &least);
    CHECK(least > 2.3e-10 && least < 2.4e-10);
    tiny.weight = least;
    if (CHECK_OK(mr_blend_new(two, 2, rule, &o, &m))) {
        uint64_t taken[SETS];
        draws_of(m, 100, taken);
        CHECK(taken[1] > 0 && taken[1] <= BATCH_MAX);
        mr_blend_free(m);
    }
    two[1].weights = late, two[1].n_weights = 2;
    CHECK_FAILS(mr_blend_new(two, 2, rule, &o, &m), MR_E_RECIPE, "weight 1e-12 at 500 samples");
    two[1].weights = before, two[1].n_weights = 2;
    CHECK_FAILS(mr_blend_new(two, 2, rule, &o, &m), MR_E_RECIPE, "at 499 samples");
    two[1].weights = ramp, two[1].n_weights = 2;
    if (CHECK_OK(mr_blend_new(two, 2, rule, &o, &m)))
        mr_blend_free(m);
    two[0].weights = with_it, two[0].n_weights = 4;
    two[1].weights = jump, two[1].n_weights = 4;
    if (CHECK_OK(mr_blend_new(two, 2, rule, &o, &m)))
        mr_blend_free(m);
    // a single source accepts any weight
    tiny.weight = 1e-300;
    two[1].weights = &tiny, two[1].n_weights = 1;
    if (CHECK_OK(mr_blend_new(two + 1, 1, rule, &o, &m)))
        mr_blend_free(m);
    mr_bucket_rule_free(rule);
}

static void wrong_input(void)
{
    mr_bucket_rule *rule;
    mr_blend *m;
    mr_order_options o = {.seed = 1};
    CHECK_OK(make_rule(&rule));
#define TRY(text, ...)                                                                             \
    CHECK_FAILS(mr_blend_new((mr_source[]){__VA_ARGS__}, 2, rule, &o, &m), MR_E_RECIPE, text)
    mr_source good = {.name = "a", .index = indexes[0]};
    mr_weight nan = {0, NAN}, less = {0, -1}, none = {0, 0}, back[] = {{5, 1}, {4, 1}},
              all = {0, INFINITY};
    TRY("two of them are called 'a'", good, good);
    TRY("'b c' is no name", good, {.name = "b c", .index = indexes[1]});
    TRY("sources.b: weight nan", good,
        {.name = "b", .index = indexes[1], .weights = &nan, .n_weights = 1});
    TRY("sources.b: weight -1", good,
        {.name = "b", .index = indexes[1], .weights = &less, .n_weights = 1});
    TRY("sources.b: weight inf", good,
        {.name = "b", .index = indexes[1], .weights = &all, .n_weights = 1});
    TRY("in ascending order of samples", good,
        {.name = "b", .index = indexes[1], .weights = back, .n_weights = 2});
    TRY("its weight is 0 all the time", good,
        {.name = "b", .index = indexes[1], .weights = &none, .n_weights = 1});
    mr_source many[MR_SOURCES_MAX + 1] = {{0}};
    CHECK_FAILS(mr_blend_new(many, MR_SOURCES_MAX + 1, rule, &o, &m), MR_E_RECIPE, "there are 33");
    CHECK_FAILS(mr_blend_new(many, 0, rule, &o, &m), MR_E_RECIPE, "there are 0");
    // a text of states, damaged anywhere, is accepted or refused
    CHECK_OK(
        mr_blend_new((mr_source[]){good, {.name = "b", .index = indexes[1]}}, 2, rule, &o, &m));
    blend_position p;
    char *text, *part;
    CHECK_OK(blend_position_init(&p, m));
    CHECK_OK(blend_position_text(&p, m, false, &text));
    CHECK_FAILS(blend_restore(m, "moonreel blend 1\nshare a b"), MR_E_FORMAT, "no shares");
    CHECK_OK(mr_blend_state_of(text, "c", &part));
    CHECK(!part);
    for (size_t i = 0; text[i]; i++) {
        char was = text[i];
        text[i] = (char)(was ^ 8);
        if (blend_restore(m, text) == MR_OK && mr_blend_state_of(text, "b", &part) == MR_OK)
            mr_free(part);
        text[i] = was;
    }
    blend_position_fini(&p);
    mr_free(text);
    mr_blend_free(m);
    mr_bucket_rule_free(rule);
}

int main(void)
{
    const char *many = getenv("MOONREEL_EPOCHS"), *seed = getenv("MOONREEL_SEED");
    uint64_t n = many ? strtoull(many, NULL, 10) / 4 : 100;
    state = seed ? strtoull(seed, NULL, 10) : 3;
    for (int i = 0; i < SETS; i++) {
        char name[32];
        snprintf(name, sizeof name, "source%d.mrx", i);
        if (!CHECK_OK(rows_build(clips_path(name), (uint64_t)i, rows_of[i], 0)) ||
            !CHECK_OK(mr_index_open(clips_path(name), false, &indexes[i])))
            return check_done();
    }
    weights_are_kept();
    ends();
    over_with_phases();
    who_comes_first();
    without_a_source();
    tiny_weights();
    wrong_input();
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = state;
        if (!draw_stream(400, i % 2)) {
            printf("stream %llu of MOONREEL_SEED=%llu\n", (unsigned long long)i,
                   (unsigned long long)at);
            break;
        }
    }
    for (int i = 0; i < SETS; i++)
        mr_index_unref(indexes[i]);
    return check_done();
}
