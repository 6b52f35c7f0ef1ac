/* data/trained: the property of a whole epoch. Whatever happens between its micro-batches - other
 * ranks, slots, batch sizes, bucket rules, data sets, kills - each sample that the rule takes is
 * trained exactly once in it. MOONREEL_EPOCHS sets the number of random epochs, MOONREEL_SEED
 * selects them.
 * Covers: core/data/subset.c core/index/match.c */
#include "check.h"
#include "data/room.h"
#include "rows.h"

#include <math.h>

static uint64_t state = 20;

static uint64_t below(uint64_t n)
{
    state = MR_MIX(state, 9);
    return state % n;
}

/* ---- data sets that share samples ---- */

enum { SETS = 6, SAMPLES = 1800, RULES = 5, BATCH_MAX = 9 };

/* Rows first, first + step, ... modulo SAMPLES, n of them. The first two hold the same samples in
 * another order; a sample is the same clip in each set. */
static const struct {
    uint64_t first, step, n;
} sets[SETS] = {{0, 1, 1500},   {7, 11, 1500},  {0, 1, 1800},
                {400, 1, 1000}, {900, 7, 1200}, {3, 5, 12}};
static mr_index *indexes[SETS];

static bool build_sets(void)
{
    // sizes of the intersections, computed here: 7 + 11 k modulo 1800 reaches all of them
    for (int s = 0; s < SETS; s++) {
        char name[32], path[64], text[64];
        snprintf(name, sizeof name, "set%d.mrx", s);
        mr_caption caption;
        int64_t keys[4];
        uint16_t root;
        mr_index_builder *b;
        if (!CHECK_OK(mr_index_builder_new(clips_path(name), NULL, &b)))
            return false;
        CHECK_OK(mr_index_builder_root(b, "/nowhere", &root));
        uint64_t added = 0;
        for (uint64_t k = 0; added < sets[s].n; k++) {
            uint64_t i = (sets[s].first + k * sets[s].step) % SAMPLES;
            // the second set holds those of the first
            if (s == 1 && i >= sets[0].n)
                continue;
            mr_row row = rows_make(77, i, path, text, &caption, keys);
            CHECK_OK(mr_index_builder_add(b, &row));
            added++;
        }
        CHECK_OK(mr_index_builder_finish(b));
        mr_index_builder_free(b);
        if (!CHECK_OK(mr_index_open(clips_path(name), false, &indexes[s])))
            return false;
    }
    return true;
}

/* ---- rules ---- */

static mr_bucket_aspect square[] = {{1.0, 64, 64}},
                        three[] = {{0.56, 36, 64}, {1.0, 48, 48}, {1.78, 64, 36}};

static mr_status make_rule(int kind, mr_bucket_rule **out)
{
    int m[5];
    for (int i = 0; i < 5; i++)
        m[i] = 1 + (int)below(BATCH_MAX);
    mr_bucket_length low[] = {{1, 1, 1, m[0], 0}, {16, 0.7, 1, m[1], 0}, {51, 1, 0.6, m[2], 0}},
                     high[] = {{120, 0.5, 1, m[3], 0}, {32, 0.9, 0.8, m[4], 0}},
                     all[] = {{1, 1, 1, m[0], 3}, {4, 1, 1, m[1], 5}};
    mr_bucket_resolution r[] = {{"low", 4096, three, 3, low, 3},
                                {"high", 200000, square, 1, high, 2}};
    switch (kind) {
    case 0: return mr_bucket_rule_new(r, 2, 1, false, out);
    case 1: return mr_bucket_rule_new(r, 2, 2, false, out);
    case 2: return mr_bucket_rule_new(r, 1, 1, false, out);
    case 3: r[0].lengths = all, r[0].n_lengths = 2; return mr_bucket_rule_new(r, 2, 1, false, out);
    default: return mr_bucket_rule_new(r, 2, 1, true, out);
    }
}

/* ---- one run ---- */

typedef struct run {
    int set, kind, slot, ranks;
    uint64_t seed;
    mr_bucket_rule *rule;
    mr_order *order;
    char *text;      // the newest checkpoint
    mr_subset *seen; // that belongs to it
    uint64_t excluded[3], n_excluded;
    uint8_t count[SAMPLES], saved[SAMPLES]; // trained in this epoch; when the checkpoint was made
} run;

static const uint64_t *sample_of_key;

static int compare_pair(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

// the number of a sample by its key
static uint64_t sample_of(uint64_t key)
{
    const uint64_t *p = bsearch(&key, sample_of_key, SAMPLES, 2 * sizeof key, compare_pair);
    return p ? p[1] : SAMPLES;
}

static void note_keys(void)
{
    static uint64_t table[2 * SAMPLES];
    char path[64], text[64];
    mr_caption caption;
    int64_t keys[4];
    for (uint64_t i = 0; i < SAMPLES; i++) {
        mr_row row = rows_make(77, i, path, text, &caption, keys);
        table[2 * i] = row.key.lo, table[2 * i + 1] = i;
    }
    qsort(table, SAMPLES, 2 * sizeof *table, compare_pair);
    sample_of_key = table;
}

static bool open_order(const run *r, mr_order **out)
{
    mr_order_options o = {.seed = r->seed, .slot = r->slot};
    return CHECK_OK(mr_order_new(indexes[r->set], r->rule, &o, out)) &&
           (!r->text ||
            CHECK_OK(mr_order_restore(*out, r->text, r->excluded, r->n_excluded, r->seen)));
}

static void save(run *r)
{
    mr_position p;
    CHECK_OK(mr_position_init(&p, r->order));
    mr_free(r->text);
    CHECK_OK(mr_position_text(&p, r->order, false, &r->text));
    mr_position_fini(&p);
    memcpy(r->saved, r->count, sizeof r->saved);
}

// the state continues with another set, another rule, or both; through a file, as in a run
static bool carry(run *r, int set, int kind)
{
    mr_bucket_rule *rule;
    char *text;
    mr_subset *seen;
    if (!CHECK_OK(make_rule(kind, &rule)))
        return false;
    mr_carry from = {.index = indexes[r->set],
                     .rule = r->rule,
                     .seed = r->seed,
                     .text = r->text,
                     .excluded = r->excluded,
                     .n_excluded = r->n_excluded,
                     .seen = r->seen};
    if (!CHECK_OK(mr_order_carry(&from, indexes[set], rule, NULL, &text, &seen)))
        return false;
    mr_free(r->text);
    mr_subset_unref(r->seen);
    mr_bucket_rule_free(r->rule);
    CHECK_OK(mr_subset_write(seen, clips_path("seen.bits")));
    mr_subset_unref(seen);
    CHECK_OK(mr_subset_read(clips_path("seen.bits"), &r->seen));
    r->text = text, r->set = set, r->kind = kind, r->rule = rule;
    return true;
}

// from the newest checkpoint on: a kill, with changes meanwhile
static bool restart(run *r)
{
    static const int ranks[] = {1, 2, 8, 24, 192}, slots[] = {1, 1, 8, 24};
    mr_order_free(r->order);
    r->order = NULL;
    memcpy(r->count, r->saved, sizeof r->count);
    r->ranks = ranks[below(MR_COUNT(ranks))], r->slot = slots[below(MR_COUNT(slots))];
    uint64_t what = below(8);
    int set = what < 2 ? (int)below(SETS) : r->set, kind = what % 2 ? r->kind : (int)below(RULES);
    bool same = set == r->set && kind == r->kind;
    mr_bucket_rule *rule;
    if (!same && !carry(r, set, kind))
        return false;
    if (same && what == 5 && CHECK_OK(make_rule(kind, &rule))) {
        mr_bucket_rule_free(r->rule);
        r->rule = rule;
    }
    return open_order(r, &r->order);
}

// the samples that the rule takes of the current set are trained, and none twice
static bool whole(const run *r)
{
    mr_index_reader *reader;
    int bad = 0;
    if (!CHECK_OK(mr_index_reader_new(indexes[r->set], &reader)))
        return false;
    const mr_hot *hot;
    int32_t n;
    CHECK_OK(mr_index_hot(reader, 0, &hot, &n));
    for (int32_t i = 0; i < n; i++) {
        mr_drop why;
        bool out = false;
        for (uint64_t k = 0; k < r->n_excluded; k++)
            out |= r->excluded[k] == hot[i].key_lo;
        if (!out &&
            mr_bucket_rule_assign(r->rule, r->seed, r->order->at.epoch, 0, &hot[i], &why) >= 0)
            bad += r->count[sample_of(hot[i].key_lo)] != 1;
    }
    for (int i = 0; i < SAMPLES; i++)
        bad += r->count[i] > 1;
    mr_index_reader_free(reader);
    return CHECK_INT(bad, 0);
}

// an epoch from its beginning; returns false on an error
static bool epoch(uint64_t number)
{
    run r = {.set = (int)below(SETS), .kind = (int)below(RULES), .slot = 1, .ranks = 1};
    mr_draw d = {.ids = (uint64_t[BATCH_MAX]){0}, .keys = (uint64_t[BATCH_MAX]){0}};
    r.seed = below(1 << 20);
    bool good = CHECK_OK(make_rule(r.kind, &r.rule));
    mr_order_options o = {.seed = r.seed};
    mr_status st = mr_order_new(indexes[r.set], r.rule, &o, &r.order);
    // a rule may take no sample of a small set
    if (st == MR_OK && number % 3) {
        for (r.n_excluded = 0; r.n_excluded < 3; r.n_excluded++)
            r.excluded[r.n_excluded] = sample_of_key[2 * (r.n_excluded * 500 + below(400))];
        CHECK_OK(mr_order_exclude(r.order, r.excluded, r.n_excluded));
        st = mr_order_begin(r.order, below(4));
    }
    bool over = st != MR_OK;
    if (!over)
        save(&r);
    while (good && !over) {
        // a round of the ranks; its end may be that of the epoch
        if (!r.order->in_epoch)
            break;
        uint64_t left = r.order->in_epoch;
        for (int32_t b = 0; b < r.order->at.n_buckets; b++)
            left -= r.order->at.taken[b];
        for (int q = 0; q < r.ranks && left && good; q++) {
            good = CHECK_OK(mr_order_next(r.order, &d));
            for (int i = 0; i < d.n && good; i++)
                good = CHECK(sample_of(d.keys[i]) < SAMPLES) &&
                       CHECK_INT(r.count[sample_of(d.keys[i])]++, 0);
            left -= (uint64_t)d.n;
            good = good && CHECK_INT(d.last, !left);
        }
        over = !left;
        if (good && !over && below(60) < (uint64_t)MR_MIN(r.ranks, 20)) {
            if (below(3))
                save(&r);
            good = restart(&r);
        }
    }
    good = good && (st != MR_OK || whole(&r));
    mr_order_free(r.order);
    mr_bucket_rule_free(r.rule);
    mr_subset_unref(r.seen);
    mr_free(r.text);
    return good;
}

/* ---- the file ---- */

static void damaged_files(void)
{
    mr_subset *s;
    char *bytes;
    size_t n;
    const char *path = clips_path("seen.bits");
    run r = {.set = 0, .kind = 0, .seed = 4};
    mr_draw d = {.ids = (uint64_t[BATCH_MAX]){0}, .keys = (uint64_t[BATCH_MAX]){0}};
    CHECK_OK(make_rule(0, &r.rule));
    if (!open_order(&r, &r.order))
        return;
    for (int i = 0; i < 20; i++)
        CHECK_OK(mr_order_next(r.order, &d));
    save(&r);
    char *old = mr_strdup(r.text);
    CHECK(carry(&r, 2, 0));
    uint64_t taken = mr_subset_count(r.seen);
    CHECK(taken > 20);
    // without the list the state is refused, and the list belongs to one index
    mr_order *o;
    CHECK_OK(mr_order_new(indexes[2], r.rule, &(mr_order_options){.seed = 4}, &o));
    CHECK_FAILS(mr_order_restore(o, r.text, NULL, 0, NULL), MR_E_DATA, "the list of them has 0");
    CHECK_OK(mr_order_restore(o, r.text, NULL, 0, r.seen));
    CHECK_INT(mr_order_dropped(o, MR_DROP_SEEN), taken);
    mr_order_free(o);
    CHECK_OK(mr_order_new(indexes[0], r.rule, &(mr_order_options){.seed = 4}, &o));
    CHECK_FAILS(mr_order_restore(o, old, NULL, 0, r.seen), MR_E_DATA,
                "before its data or rule changed");
    mr_order_free(o);
    CHECK_OK(mr_file_read_all(path, &bytes, &n));
    for (size_t i = 0; i < n; i += 5) {
        bytes[i] ^= 16;
        CHECK_OK(mr_file_replace(path, bytes, n));
        mr_status st = mr_subset_read(path, &s);
        // the name of the index is compared when the list is used
        if (st == MR_OK)
            mr_subset_unref(s), CHECK(i >= 8 && i < 24);
        bytes[i] ^= 16;
    }
    CHECK_OK(mr_file_replace(path, bytes, n - 1));
    CHECK_FAILS(mr_subset_read(path, &s), MR_E_DATA, "bytes after its header");
    CHECK_OK(mr_file_replace(path, bytes, 11));
    CHECK_FAILS(mr_subset_read(path, &s), MR_E_DATA, "is no list of trained samples");
    mr_free(bytes);
    mr_free(old);
    mr_free(r.text);
    mr_order_free(r.order);
    mr_bucket_rule_free(r.rule);
    mr_subset_unref(r.seen);
}

static void common_samples(void)
{
    mr_index_common c;
    CHECK_OK(mr_index_match(indexes[0], indexes[1], NULL, NULL, &c));
    CHECK(c.both == 1500 && !c.only_a && !c.only_b);
    CHECK_OK(mr_index_match(indexes[0], indexes[3], NULL, NULL, &c));
    CHECK(c.both == 1000 && c.only_a == 500 && !c.only_b);
    CHECK_OK(mr_index_match(indexes[3], indexes[2], NULL, NULL, &c));
    CHECK(c.both == 1000 && !c.only_a && c.only_b == 800);
}

int main(void)
{
    const char *many = getenv("MOONREEL_EPOCHS"), *seed = getenv("MOONREEL_SEED");
    uint64_t n = many ? strtoull(many, NULL, 10) : 400;
    state = seed ? strtoull(seed, NULL, 10) : 20;
    note_keys();
    if (!build_sets())
        return check_done();
    common_samples();
    damaged_files();
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = state;
        if (!epoch(i)) {
            printf("epoch %llu of MOONREEL_SEED=%llu\n", (unsigned long long)i,
                   (unsigned long long)at);
            break;
        }
    }
    for (int s = 0; s < SETS; s++)
        mr_index_unref(indexes[s]);
    return check_done();
}
