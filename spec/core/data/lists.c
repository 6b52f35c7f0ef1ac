/* data/lists: epochs in the order of references: each row once or left out and counted, for any
 * restarts; ranks share one order. Golden files check that the order is the references'. */
#include "check.h"
#include "data/room.h"
#include "rows.h"

#include <math.h>

enum { ROWS = 2400, BATCH = 4 };

static uint64_t state = 11;

static uint64_t below(uint64_t n)
{
    state = MR_MIX(state, 3);
    return state % n;
}

static mr_bucket_aspect square[] = {{1.0, 64, 64}},
                        both[] = {{0.56, 36, 64}, {1.0, 48, 48}, {1.78, 64, 36}};

static mr_status make_rule(mr_reference reference, int more, mr_bucket_rule **out)
{
    mr_bucket_length low[] = {{1, 1, NAN, BATCH, 0}, {15, 0.7, NAN, 2, 0}, {50, 1, 0.6, 2, 0}};
    mr_bucket_length high[] = {{119, 0.5, NAN, 1, 0}, {31, 0.9, 0.8, 3 + more, 0}};
    mr_bucket_resolution r[] = {{"low", 4096, both, 3, low, 3},
                                {"high", 200000, square, 1, high, 2}};
    MR_TRY(mr_bucket_rule_new(r, 2, 1, false, out));
    return mr_bucket_rule_follow(*out, reference, 24);
}

typedef struct opened {
    mr_bucket_rule *rule;
    mr_order *order;
    mr_draw d;
    uint64_t ids[BATCH], keys[BATCH];
} opened;

static bool start(opened *o, mr_index *index, mr_reference reference, int more, int32_t ranks,
                  uint64_t seed)
{
    memset(o, 0, sizeof *o);
    o->d.ids = o->ids, o->d.keys = o->keys;
    return CHECK_OK(make_rule(reference, more, &o->rule)) &&
           CHECK_OK(mr_order_new(index, o->rule, &(mr_order_options){.seed = seed, .slot = ranks},
                                 &o->order));
}

static void stop(opened *o)
{
    mr_order_free(o->order);
    mr_bucket_rule_free(o->rule);
}

// A recorded epoch: its draws, and texts of its states.
enum { TEXTS = 3 };
typedef struct record {
    uint64_t ids[ROWS + BATCH], n, draws, left;
    uint8_t bucket[ROWS];
    char *text[TEXTS];
    uint64_t text_draw[TEXTS], text_id[TEXTS];
} record;

static void forget(record *r)
{
    for (int i = 0; i < TEXTS; i++)
        mr_free(r->text[i]), r->text[i] = NULL;
}

// draws to the end of the epoch; `from` after this many samples of it
static bool draw_epoch(opened *o, record *r)
{
    memset(r, 0, sizeof *r);
    do {
        uint64_t k = below(TEXTS);
        if (r->draws && !r->text[k] && below(40) == 0) {
            CHECK_OK(mr_position_text(&o->order->at, o->order, false, &r->text[k]));
            r->text_draw[k] = r->draws, r->text_id[k] = r->n;
        }
        if (!CHECK_OK(mr_order_next(o->order, &o->d)) || !CHECK_INT(o->d.number, r->draws))
            return false;
        memcpy(r->ids + r->n, o->ids, sizeof *o->ids * (size_t)o->d.n);
        r->bucket[r->draws++] = (uint8_t)o->d.bucket;
        r->n += (uint64_t)o->d.n;
    } while (!o->d.last);
    r->left = mr_order_dropped(o->order, MR_DROP_LEFT);
    return true;
}

// each row is drawn once, or is left out, or entered no bucket; batches are whole, and ranks have
// equally many
static bool accounts(const opened *o, const record *r, int32_t ranks)
{
    static uint8_t met[ROWS];
    uint64_t out = 0, left;
    memset(met, 0, sizeof met);
    for (uint64_t i = 0; i < r->n; i++)
        if (!CHECK(r->ids[i] < ROWS && !met[r->ids[i]]++))
            return false;
    for (int why = 1; why < MR_DROP_COUNT; why++)
        out += mr_order_dropped(o->order, (mr_drop)why);
    return CHECK_INT(r->n + out, ROWS) && CHECK_INT(r->draws % (uint64_t)ranks, 0) &&
           CHECK_INT(r->draws, mr_order_batches(o->order)) && CHECK(r->left > 0) &&
           CHECK(mr_order_left_row(o->order, &left) && left < ROWS && !met[left]);
}

// from each state on the same draws follow, also when another order continues it
static bool goes_on(const record *r, mr_index *index, mr_reference reference, int32_t ranks,
                    uint64_t seed)
{
    for (int k = 0; k < TEXTS; k++) {
        opened o;
        static record rest;
        if (!r->text[k])
            continue;
        bool good = CHECK(strlen(r->text[k]) < 400) &&
                    start(&o, index, reference, 0, ranks, seed) &&
                    CHECK_OK(mr_order_restore(o.order, r->text[k], NULL, 0, NULL));
        uint64_t n = r->text_id[k];
        for (uint64_t i = r->text_draw[k]; i < r->draws && good; i++) {
            good = CHECK_OK(mr_order_next(o.order, &o.d)) && CHECK_INT(o.d.bucket, r->bucket[i]) &&
                   CHECK(memcmp(o.ids, r->ids + n, sizeof *o.ids * (size_t)o.d.n) == 0);
            n += (uint64_t)o.d.n;
        }
        // the digest of the epoch was kept, too: its end counts as an end
        good = good && CHECK(o.d.last) && draw_epoch(&o, &rest) && CHECK_INT(n, r->n);
        forget(&rest);
        stop(&o);
        if (!good)
            return false;
    }
    return true;
}

static bool epochs(mr_index *index, mr_reference reference)
{
    static const int32_t ranks[] = {1, 8, 24, 192};
    static record one, r;
    uint64_t seed = below(5000);
    opened alone, o;
    bool good = start(&alone, index, reference, 0, 1, seed);
    for (int e = 0; e < 2 && good; e++) {
        good = draw_epoch(&alone, &one) && accounts(&alone, &one, 1) &&
               goes_on(&one, index, reference, 1, seed);
        for (size_t k = 1; k < MR_COUNT(ranks) && good; k++) {
            good = start(&o, index, reference, 0, ranks[k], seed) &&
                   CHECK_OK(e ? mr_order_begin(o.order, 1) : MR_OK) && draw_epoch(&o, &r) &&
                   accounts(&o, &r, ranks[k]) && CHECK(one.draws - r.draws < (uint64_t)ranks[k]) &&
                   CHECK(memcmp(r.ids, one.ids, sizeof *r.ids * r.n) == 0) &&
                   goes_on(&r, index, reference, ranks[k], seed);
            forget(&r);
            stop(&o);
        }
        forget(&one);
    }
    stop(&alone);
    return good;
}

static void refusals(mr_index *index)
{
    mr_bucket_rule *rule;
    mr_order *order = NULL;
    opened o, other;
    char *text = NULL;
    if (!CHECK_OK(make_rule(MR_REFERENCE_20, 0, &rule)))
        return;
    mr_order_options carry = {.carry = true}, negative = {.seed = (uint64_t)-1},
                     many = {.slot = 5000};
    CHECK_FAILS(mr_order_new(index, rule, &carry, &order), MR_E_RECIPE, "tail = \"carry\"");
    CHECK_FAILS(mr_order_new(index, rule, &negative, &order), MR_E_RECIPE, "seed is -1");
    CHECK_FAILS(mr_order_new(index, rule, &many, &order), MR_E_DATA, "fewer ranks");
    mr_source two[] = {{.name = "a", .index = index}, {.name = "b", .index = index}};
    mr_blend *blend = NULL;
    CHECK_FAILS(mr_blend_new(two, 2, rule, &(mr_order_options){0}, &blend), MR_E_RECIPE,
                "moonreel data merge");
    mr_loader *loader = NULL;
    mr_loader_options options = {.lpt = true, .parts = 2, .blind = true, .isolated = true};
    mr_source alone = {.name = "", .index = index};
    CHECK_FAILS(mr_loader_new(&alone, 1, rule, &options, &loader), MR_E_RECIPE, "take turns");
    // the draws depend on batch sizes: they may not change within an epoch
    if (start(&o, index, MR_REFERENCE_12, 0, 1, 5) &&
        start(&other, index, MR_REFERENCE_12, 1, 1, 5)) {
        mr_subset *seen = NULL;
        char *moved = NULL;
        CHECK_OK(mr_order_next(o.order, &o.d));
        CHECK_OK(mr_position_text(&o.order->at, o.order, false, &text));
        CHECK_FAILS(mr_order_restore(other.order, text, NULL, 0, NULL), MR_E_DATA,
                    "no part of the rule of a reference can change within an epoch");
        mr_carry from = {.index = index, .rule = o.rule, .seed = 5, .text = text};
        CHECK_FAILS(mr_order_carry(&from, index, other.rule, NULL, &moved, &seen), MR_E_DATA,
                    "would repeat samples and skip others");
        // failed samples are drawn like all others: the order stays the reference's
        uint64_t key = o.keys[0];
        CHECK_OK(mr_order_exclude(o.order, &key, 1));
        CHECK_OK(mr_order_begin(o.order, 1));
        CHECK_INT(mr_order_dropped(o.order, MR_DROP_QUARANTINE), 0);
        stop(&o);
        stop(&other);
    }
    mr_free(text);
}

int main(void)
{
    mr_index *index;
    const char *path = clips_path("lists.mrx");
    if (!CHECK_OK(rows_build(path, 4, ROWS, 0)) || !CHECK_OK(mr_index_open(path, false, &index)))
        return check_done();
    for (int i = 0; i < 2; i++)
        for (int reference = MR_REFERENCE_12; reference <= MR_REFERENCE_20; reference++)
            CHECK(epochs(index, (mr_reference)reference));
    refusals(index);
    mr_index_unref(index);
    return check_done();
}
