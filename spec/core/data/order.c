/* data/order: each sample exactly once an epoch, for any restarts and micro-batch sizes.
 * Covers: core/data/enter.c core/data/position.c core/data/measure.c */
#include "check.h"
#include "data/room.h"
#include "rows.h"

static uint64_t draw(uint64_t *state)
{
    return *state = MR_MIX(*state, 9);
}

static void permutation(void)
{
    static uint8_t seen[1 << 20];
    for (uint64_t n = 1; n < 700; n++) {
        memset(seen, 0, n);
        int bad = 0;
        for (uint64_t j = 0; j < n; j++) {
            uint64_t p = mr_permute(n * 31, n, j);
            bad += p >= n || seen[p]++;
        }
        CHECK_INT(bad, 0);
    }
    uint64_t n = (1 << 20) - 12345, bad = 0, fixed = 0;
    memset(seen, 0, n);
    for (uint64_t j = 0; j < n; j++) {
        uint64_t p = mr_permute(77, n, j);
        bad += p >= n || seen[p]++;
        fixed += p == j;
    }
    CHECK_INT(bad, 0);
    CHECK(fixed < 20);
    // large sets stay in range, and keys matter
    int same = 0;
    for (uint64_t j = 0; j < 1000; j++) {
        CHECK(mr_permute(1, 10000000019, j) < 10000000019);
        same += mr_permute(1, 10000000019, j) == mr_permute(2, 10000000019, j);
    }
    CHECK(same < 3);
}

static mr_bucket_aspect square[] = {{1.0, 64, 64}},
                        both[] = {{0.56, 36, 64}, {1.0, 48, 48}, {1.78, 64, 36}};

static mr_status make_rule(const int batches[5], mr_bucket_rule **out)
{
    mr_bucket_length low[] = {
        {1, 1, 1, batches[0], 0}, {16, 0.7, 1, batches[1], 0}, {51, 1, 0.6, batches[2], 0}};
    mr_bucket_length high[] = {
        {120, 0.5, 1, batches[3], 0}, {32, 0.9, 0.8, batches[4], 0}, {300, 0, 1, 0, 0}};
    mr_bucket_resolution r[] = {{"low", 4096, both, 3, low, 3},
                                {"high", 200000, square, 1, high, 3}};
    return mr_bucket_rule_new(r, 2, 1, false, out);
}

static void sizes(uint64_t *seed, int batches[5])
{
    for (int i = 0; i < 5; i++)
        batches[i] = 1 + (int)(draw(seed) % 9);
}

typedef struct run {
    mr_index *index;
    mr_bucket_rule *rule;
    mr_order *order;
    uint64_t ids[16], keys[16];
    mr_draw d;
} run;

static bool start(run *r, const char *path, const int batches[5], uint64_t seed, const char *state)
{
    memset(r, 0, sizeof *r);
    r->d.ids = r->ids, r->d.keys = r->keys;
    return CHECK_OK(mr_index_open(path, false, &r->index)) &&
           CHECK_OK(make_rule(batches, &r->rule)) &&
           CHECK_OK(
               mr_order_new(r->index, r->rule, &(mr_order_options){.seed = seed}, &r->order)) &&
           (!state || CHECK_OK(mr_order_restore(r->order, state, NULL, 0, NULL)));
}

static void stop(run *r)
{
    mr_order_free(r->order);
    mr_bucket_rule_free(r->rule);
    mr_index_unref(r->index);
}

// A checkpoint of an older build continues the order that it began: draws may not change from one
// version to the next.
static void same_in_every_version(void)
{
    static const uint64_t want[] = {8, 1, 4, 13, 2, 14, 9, 3, 5, 0, 15, 12, 6, 11, 7, 10};
    for (uint64_t j = 0; j < 16; j++)
        CHECK_INT(mr_permute(5, 16, j), want[j]);
    static const struct {
        int slot;
        uint64_t digest;
    } cases[] = {{1, 0x6d81fc5092f1fe96}, {3, 0x83a13cb0b769838b}};
    const int batches[] = {3, 2, 4, 1, 3};
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("frozen.mrx"));
    if (!CHECK_OK(rows_build(path, 7, 400, 0)))
        return;
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        run r;
        uint64_t digest = 0;
        if (!start(&r, path, batches, 9, NULL))
            return;
        mr_order_free(r.order);
        CHECK_OK(mr_order_new(r.index, r.rule,
                              &(mr_order_options){.seed = 9, .slot = cases[i].slot}, &r.order));
        do {
            CHECK_OK(mr_order_next(r.order, &r.d));
            digest = MR_MIX(digest, r.d.epoch, r.d.number, (uint64_t)r.d.bucket);
            for (int32_t k = 0; k < r.d.n; k++)
                digest = MR_MIX(digest, r.ids[k]);
        } while (r.d.epoch < 3);
        CHECK(digest == cases[i].digest);
        stop(&r);
    }
}

// two epochs with random restarts; micro-batch sizes change at half of them
static void once_each(uint64_t seed)
{
    uint64_t n = 1 + draw(&seed) % 9000, s = draw(&seed) >> 2;
    int batches[5];
    sizes(&seed, batches);
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("order.mrx"));
    if (!CHECK_OK(rows_build(path, seed, n, 0)))
        return;
    run r;
    mr_index *index;
    if (!CHECK_OK(mr_index_open(path, false, &index)))
        return;
    mr_bucket_rule *rule;
    mr_order *order = NULL;
    CHECK_OK(make_rule(batches, &rule));
    mr_status empty = mr_order_new(index, rule, &(mr_order_options){.seed = s}, &order);
    mr_order_free(order);
    mr_bucket_rule_free(rule);
    mr_index_unref(index);
    if (empty != MR_OK) {
        CHECK_INT(empty, MR_E_DATA);
        return;
    }
    if (!start(&r, path, batches, s, NULL))
        return;
    uint8_t *seen = calloc(n, 1);
    uint64_t planned = 0, taken = 0, batches_left = mr_order_batches(r.order);
    bool resized = false;
    for (int32_t b = 0; b < mr_bucket_rule_count(r.rule); b++)
        planned += mr_order_samples(r.order, b);
    uint64_t dropped = 0;
    for (int why = 0; why < MR_DROP_COUNT; why++)
        dropped += mr_order_dropped(r.order, why);
    CHECK_INT(planned + dropped, n);
    for (int epoch = 0; epoch < 2;) {
        if (mr_order_next(r.order, &r.d) != MR_OK) {
            // an epoch may, by its random numbers, have no samples
            CHECK(strstr(mr_error_last()->text, "no sample fits") != NULL);
            break;
        }
        CHECK_INT(r.d.epoch, epoch);
        for (int i = 0; i < r.d.n; i++)
            CHECK(r.d.ids[i] < n && !seen[r.d.ids[i]]++);
        taken += (uint64_t)r.d.n;
        if (!resized)
            batches_left--;
        if (r.d.last) {
            if (epoch == 0)
                CHECK_INT(taken, planned);
            if (!resized)
                CHECK_INT(batches_left, 0);
            memset(seen, 0, n);
            epoch++;
            resized = true;
        }
        if (draw(&seed) % 40)
            continue;
        mr_position p;
        char *state;
        CHECK_OK(mr_position_init(&p, r.order));
        CHECK_OK(mr_position_text(&p, r.order, false, &state));
        mr_position_fini(&p);
        if (draw(&seed) % 2)
            sizes(&seed, batches), resized = true;
        stop(&r);
        bool ok = start(&r, path, batches, s, state);
        mr_free(state);
        if (!ok)
            break;
    }
    free(seen);
    stop(&r);
}

// a restored order continues with the draws of the uninterrupted one
static void same_after_restart(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("order.mrx"));
    const int batches[5] = {3, 4, 2, 5, 1};
    if (!CHECK_OK(rows_build(path, 4, 5000, 0)))
        return;
    run a, b;
    if (!start(&a, path, batches, 11, NULL))
        return;
    mr_position moved;
    CHECK_OK(mr_position_init(&moved, a.order));
    for (int i = 0; i < 1500; i++) {
        CHECK_OK(mr_order_next(a.order, &a.d));
        mr_position_advance(&moved, &a.d);
        if (i % 97)
            continue;
        char *state;
        CHECK_OK(mr_position_text(&moved, a.order, false, &state));
        if (!start(&b, path, batches, 11, state))
            return;
        mr_free(state);
        mr_position p;
        CHECK_OK(mr_position_init(&p, b.order));
        CHECK_INT(p.epoch, moved.epoch);
        CHECK_INT(p.number, moved.number);
        CHECK_INT(p.digest, moved.digest);
        mr_position_fini(&p);
        CHECK_OK(mr_order_next(b.order, &b.d));
        CHECK_OK(mr_order_next(a.order, &a.d));
        mr_position_advance(&moved, &a.d);
        CHECK_INT(a.d.n, b.d.n);
        CHECK_INT(a.d.bucket, b.d.bucket);
        CHECK(memcmp(a.ids, b.ids, sizeof *a.ids * (size_t)a.d.n) == 0);
        stop(&b);
    }
    mr_position_fini(&moved);
    stop(&a);
}

// the order, computed here without its tables: members in row order, the keyed permutation, and a
// bucket by its share of the rest (dataplane 4.3, 4.4)
static void said_again(uint64_t rows, int draws, uint64_t seed)
{
    char path[300];
    const int batches[5] = {3, 4, 2, 5, 1};
    enum { BUCKETS_MAX = 64 };
    static uint64_t n[BUCKETS_MAX], taken[BUCKETS_MAX];
    snprintf(path, sizeof path, "%s", clips_path("again.mrx"));
    run a;
    if (!CHECK_OK(rows_build(path, 6, rows, 0)) || !start(&a, path, batches, seed, NULL))
        return;
    mr_index_facts f = mr_index_get_facts(a.index);
    mr_index_reader *reader;
    CHECK_OK(mr_index_reader_new(a.index, &reader));
    int32_t nb = mr_bucket_rule_count(a.rule);
    uint64_t *members = malloc(sizeof *members * rows * (size_t)nb), *keys = malloc(8 * rows);
    uint64_t epoch = 0, number = 0;
    bool fresh = true;
    for (int i = 0; i < draws; i++, number++) {
        if (fresh) {
            memset(n, 0, sizeof n);
            memset(taken, 0, sizeof taken);
            const mr_hot *hot;
            int32_t count;
            for (uint64_t id = 0; id < rows; id++) {
                mr_drop why;
                if (id % MR_HOT_ROWS == 0)
                    CHECK_OK(mr_index_hot(reader, id / MR_HOT_ROWS, &hot, &count));
                const mr_hot *h = &hot[id % MR_HOT_ROWS];
                int32_t b = mr_bucket_rule_assign(a.rule, seed, epoch, 0, h, &why);
                keys[id] = h->key_lo;
                if (b >= 0)
                    members[(uint64_t)b * rows + n[b]++] = id;
            }
            fresh = false, number = 0;
        }
        uint64_t left[BUCKETS_MAX], sum = 0;
        for (int32_t b = 0; b < nb; b++) {
            uint64_t m = (uint64_t)mr_bucket_rule_get(a.rule, b).batch;
            left[b] = n[b] > taken[b] ? (n[b] - taken[b] + m - 1) / m : 0;
            sum += left[b];
        }
        uint64_t u = MR_MIX(seed, epoch, number) % sum;
        int32_t want = 0;
        for (; u >= left[want]; want++)
            u -= left[want];
        CHECK_OK(mr_order_next(a.order, &a.d));
        if (!CHECK_INT(a.d.bucket, want) || !CHECK_INT(a.d.epoch, epoch))
            break;
        uint64_t key = MR_MIX(seed, epoch, (uint64_t)want, f.fp_order.lo, f.fp_order.hi), wrong = 0;
        for (int k = 0; k < a.d.n; k++) {
            uint64_t id = members[(uint64_t)want * rows +
                                  mr_permute(key, n[want], taken[want] + (uint64_t)k)];
            wrong += a.d.ids[k] != id || a.d.keys[k] != keys[id];
        }
        if (!CHECK_INT(wrong, 0))
            break;
        taken[want] += (uint64_t)a.d.n;
        if (a.d.last)
            fresh = true, epoch++, number = UINT64_MAX;
    }
    free(members);
    free(keys);
    mr_index_reader_free(reader);
    stop(&a);
}

static void what_is_refused(void)
{
    char path[300], other[300];
    snprintf(path, sizeof path, "%s", clips_path("order.mrx"));
    snprintf(other, sizeof other, "%s", clips_path("other.mrx"));
    const int batches[5] = {3, 4, 2, 5, 1};
    run a;
    CHECK_OK(rows_build(path, 4, 3000, 0));
    CHECK_OK(rows_build(other, 5, 3000, 0));
    if (!start(&a, path, batches, 11, NULL))
        return;
    mr_position p;
    char *state;
    CHECK_OK(mr_position_init(&p, a.order));
    CHECK_OK(mr_position_text(&p, a.order, false, &state));
    mr_position_fini(&p);
    stop(&a);
    if (!start(&a, other, batches, 11, NULL))
        return;
    CHECK_FAILS(mr_order_restore(a.order, state, NULL, 0, NULL), MR_E_DATA, "holds other samples");
    stop(&a);
    if (!start(&a, path, batches, 12, NULL))
        return;
    CHECK_FAILS(mr_order_restore(a.order, state, NULL, 0, NULL), MR_E_DATA, "seed is 12");
    CHECK_FAILS(mr_order_restore(a.order, "moonreel order 1\nepoch 2\n", NULL, 0, NULL),
                MR_E_FORMAT, "moonreel order 1");
    CHECK_FAILS(mr_order_restore(a.order, "", NULL, 0, NULL), MR_E_FORMAT, "state");
    stop(&a);
    if (!start(&a, path, batches, 11, NULL))
        return;
    uint64_t key = 5;
    CHECK_FAILS(mr_order_restore(a.order, state, &key, 1, NULL), MR_E_DATA, "quarantine");
    stop(&a);
    // another rule
    mr_bucket_length length = {16, 1, 1, 2, 0};
    mr_bucket_resolution res = {"low", 4096, square, 1, &length, 1};
    mr_bucket_rule *rule;
    mr_index *index;
    mr_order *order;
    CHECK_OK(mr_bucket_rule_new(&res, 1, 1, false, &rule));
    CHECK_OK(mr_index_open(path, false, &index));
    CHECK_OK(mr_order_new(index, rule, &(mr_order_options){.seed = 11}, &order));
    CHECK_FAILS(mr_order_restore(order, state, NULL, 0, NULL), MR_E_DATA, "the bucket rule");
    mr_order_free(order);
    mr_bucket_rule_free(rule);
    // a rule that no sample fits reports what removed the rows
    length.frames = 1000;
    CHECK_OK(mr_bucket_rule_new(&res, 1, 1, false, &rule));
    CHECK_FAILS(mr_order_new(index, rule, &(mr_order_options){.seed = 11}, &order), MR_E_DATA,
                "no sample fits any bucket");
    CHECK(strstr(mr_error_last()->text, "rows: shorter than every length") != NULL);
    CHECK(strstr(mr_error_last()->text, "rows: pictures") != NULL);
    mr_bucket_rule_free(rule);
    mr_index_unref(index);
    mr_free(state);
}

// remaining micro-batches of each bucket, after `taken` of an epoch's samples
static uint64_t left_of(const run *r, const uint64_t *taken, int32_t b)
{
    uint64_t n = mr_order_samples(r->order, b) - taken[b];
    uint64_t m = (uint64_t)mr_bucket_rule_get(r->rule, b).batch;
    return m ? (n + m - 1) / m : 0; // a bucket may be off
}

// when no class fills a slot any more: of the buckets with samples left, the one whose cost is
// nearest to the first one's in ratio; of equally near ones the cheapest, then the first
static int32_t nearest(const run *r, const uint64_t *taken, int32_t first)
{
    double cost = mr_bucket_rule_get(r->rule, first).cost;
    int32_t at = -1;
    double best = 0, cheapest = 0;
    for (int32_t b = 0; b < mr_bucket_rule_count(r->rule); b++) {
        if (!left_of(r, taken, b))
            continue;
        double c = mr_bucket_rule_get(r->rule, b).cost, off = fabs(log(c / cost));
        if (at < 0 || off < best || (off == best && c < cheapest))
            at = b, best = off, cheapest = c;
    }
    return at;
}

// Costs of the micro-batches of a slot are as near as possible, and no slot crosses an epoch's end.
static void mixed_slots(void)
{
    enum { BUCKETS_MAX = 64, SLOT = 7 };
    static const int batches[][5] = {{3, 2, 4, 1, 3}, {1, 1, 1, 1, 1}, {9, 1, 2, 1, 5}};
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("mixed.mrx"));
    if (!CHECK_OK(rows_build(path, 7, 400, 0)))
        return;
    int mixed = 0, other = 0, cut = 0, dearer = 0, cheaper = 0;
    for (size_t i = 0; i < MR_COUNT(batches); i++) {
        run r;
        uint64_t taken[BUCKETS_MAX] = {0};
        mr_slot slot = {0};
        if (!start(&r, path, batches[i], 9, NULL))
            return;
        mr_order_free(r.order);
        CHECK_OK(
            mr_order_new(r.index, r.rule, &(mr_order_options){.seed = 9, .slot = SLOT}, &r.order));
        while (r.d.epoch < 6) {
            // the plan of an epoch is that of its first draw
            bool begun = slot.left && slot.class < 0;
            int32_t want = begun ? nearest(&r, taken, slot.first) : -1;
            CHECK_OK(mr_order_next(r.order, &r.d));
            if (begun) {
                CHECK_INT(r.d.bucket, want);
                CHECK_INT(r.d.slot.first, slot.first);
                double cost = mr_bucket_rule_get(r.rule, want).cost,
                       first = mr_bucket_rule_get(r.rule, slot.first).cost;
                mixed++, other += want != slot.first, dearer += cost > first,
                    cheaper += cost < first;
            }
            CHECK_INT(r.d.slot.left, r.d.last ? 0 : (slot.left ? slot.left : SLOT) - 1);
            cut += r.d.last && slot.left > 1;
            slot = r.d.slot;
            taken[r.d.bucket] += (uint64_t)r.d.n;
            if (r.d.last)
                memset(taken, 0, sizeof taken);
        }
        stop(&r);
    }
    // the cases are such that each of these occurs
    CHECK(mixed > 100 && other > 30 && dearer > 10 && cheaper > 10 && cut > 5);
}

// excluded keys are left out from the next epoch on, not within this one
static void exclusion(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("order.mrx"));
    const int batches[5] = {8, 8, 8, 8, 8};
    run a;
    CHECK_OK(rows_build(path, 4, 2000, 0));
    if (!start(&a, path, batches, 3, NULL))
        return;
    CHECK_OK(mr_order_next(a.order, &a.d));
    uint64_t gone = a.keys[0];
    CHECK_OK(mr_order_exclude(a.order, &gone, 1));
    int met = 0;
    while (a.d.epoch < 2) {
        CHECK_OK(mr_order_next(a.order, &a.d));
        for (int i = 0; i < a.d.n; i++)
            met += a.keys[i] == gone;
    }
    CHECK_INT(met, 0);
    CHECK_INT(mr_order_dropped(a.order, MR_DROP_QUARANTINE), 1);
    stop(&a);
}

// A state whose samples are not those of its draws is detected at the end of its epoch: before the
// next one begins, and also when there is no next one.
static void accounts(void)
{
    char path[300];
    const int batches[5] = {3, 4, 2, 5, 1};
    snprintf(path, sizeof path, "%s", clips_path("order.mrx"));
    run a;
    if (!CHECK_OK(rows_build(path, 4, 500, 0)) || !start(&a, path, batches, 11, NULL))
        return;
    mr_position p;
    char *text;
    for (int i = 0; i < 20; i++)
        CHECK_OK(mr_order_next(a.order, &a.d));
    CHECK_OK(mr_position_init(&p, a.order));
    // one sample is reported to be of another bucket, or the samples are others
    int32_t from = 0, to = mr_bucket_rule_count(a.rule) - 1;
    while (!p.taken[from])
        from++;
    while (to == from || p.taken[to] >= mr_order_samples(a.order, to))
        to--;
    p.taken[from]--, p.taken[to]++;
    for (int way = 0; way < 3; way++) {
        if (way == 1)
            p.taken[from]++, p.taken[to]--, p.digest++;
        else if (way == 2)
            p.digest--;
        CHECK_OK(mr_position_text(&p, a.order, false, &text));
        for (uint64_t epochs = 0; epochs <= 1; epochs++) {
            mr_order *o;
            CHECK_OK(mr_order_new(a.index, a.rule,
                                  &(mr_order_options){.seed = 11, .epochs = epochs}, &o));
            CHECK_OK(mr_order_restore(o, text, NULL, 0, NULL));
            mr_status st = MR_OK;
            a.d.last = false;
            while (!a.d.last && st == MR_OK)
                st = mr_order_next(o, &a.d);
            CHECK_INT(st, way < 2 && epochs ? MR_E_INTERNAL : MR_OK);
            if (st == MR_OK)
                st = mr_order_next(o, &a.d);
            CHECK_INT(st, way < 2 ? MR_E_INTERNAL : MR_OK);
            if (st != MR_OK)
                CHECK(strstr(mr_error_last()->text, "epoch 0 drew "));
            mr_order_free(o);
        }
        mr_free(text);
    }
    mr_position_fini(&p);
    stop(&a);
}

static void state_is_small(void)
{
    enum { LENGTHS = 40 };
    mr_bucket_aspect five[5] = {
        {0.5, 32, 64}, {0.8, 32, 40}, {1, 32, 32}, {1.25, 40, 32}, {2, 64, 32}};
    mr_bucket_length lengths[LENGTHS];
    for (int i = 0; i < LENGTHS; i++)
        lengths[i] = (mr_bucket_length){1 + i, 1, 1, 1, 0};
    mr_bucket_resolution res = {"low", 1024, five, 5, lengths, LENGTHS};
    mr_bucket_rule *rule;
    mr_index *index;
    mr_order *order;
    char *text;
    CHECK_OK(rows_build(clips_path("order.mrx"), 4, 300, 0));
    CHECK_OK(mr_index_open(clips_path("order.mrx"), false, &index));
    CHECK_OK(mr_bucket_rule_new(&res, 1, 1, false, &rule));
    CHECK_INT(mr_bucket_rule_count(rule), 200);
    CHECK_OK(mr_order_new(index, rule, &(mr_order_options){.seed = 1}, &order));
    mr_position p;
    CHECK_OK(mr_position_init(&p, order));
    for (int b = 0; b < 200; b++)
        p.taken[b] = 12345678; // ten million samples a bucket
    CHECK_OK(mr_position_text(&p, order, false, &text));
    CHECK(strlen(text) < 4096);
    mr_free(text);
    mr_position_fini(&p);
    mr_order_free(order);
    mr_bucket_rule_free(rule);
    mr_index_unref(index);
}

// the measured order is like any other, over rows that are not stored
static void measured(void)
{
    const int batches[5] = {3, 4, 2, 5, 1};
    mr_bucket_rule *rule;
    mr_order_times t;
    CHECK_OK(make_rule(batches, &rule));
    CHECK_OK(mr_order_measure(rule, 20000, &t));
    CHECK_INT(t.buckets, 12);
    CHECK(t.used > 5 && t.used <= t.buckets);
    CHECK(t.plan_s > 0 && t.select_s > 0 && t.bytes >= 40000);
    CHECK(t.state_bytes > 100 && t.state_bytes < 4096);
    mr_bucket_rule_free(rule);
}

int main(void)
{
    measured();
    permutation();
    same_in_every_version();
    for (uint64_t seed = 1; seed <= 12; seed++)
        once_each(seed);
    same_after_restart();
    said_again(3000, 2500, 11);
    // the buckets of this many rows are not kept
    order_kept_rows = 2000;
    said_again(3000, 2500, 13);
    said_again(300000, 40, 12);
    order_kept_rows = 3 << 20;
    // more chunks than one stride of the tables of sums
    said_again(300000, 250, 12);
    what_is_refused();
    mixed_slots();
    exclusion();
    accounts();
    state_is_small();
    return check_done();
}
