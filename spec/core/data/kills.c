/* data: the real loader, freed at any moment and opened again by other ranks, threads and depths,
 * returns two epochs as an order alone does: each sample once. MOONREEL_EPOCHS=4000 makes this spec
 * longer, MOONREEL_SEED selects the epochs. Nothing is decoded. */
#include "check.h"
#include "data/room.h"
#include "rows.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 900, BATCH = 9, EPOCHS = 2 };
static uint64_t state = 77;

static uint64_t below(uint64_t n)
{
    state = MR_MIX(state, 4);
    return state % n;
}

static mr_bucket_aspect square[] = {{1.0, 64, 64}}, two[] = {{0.56, 36, 64}, {1.78, 64, 36}};

typedef enum kind { SHORT, RESIZED, CARRIED, LIKE_12, LIKE_20, KINDS } kind;

static mr_status make_rule(kind k, bool resize, mr_bucket_rule **out)
{
    int m[4] = {5, 3, 2, 4};
    for (int i = 0; i < 4 && resize; i++)
        m[i] = 1 + (int)below(BATCH);
    mr_bucket_length low[] = {{1, 1, NAN, m[0], 0}, {15, 0.7, NAN, m[1], 0}, {50, 1, 0.6, m[2], 0}};
    mr_bucket_length high[] = {{31, 0.9, 0.8, m[3], 0}};
    mr_bucket_resolution r[] = {{"low", 4096, two, 2, low, 3},
                                {"high", 200000, square, 1, high, 1}};
    MR_TRY(mr_bucket_rule_new(r, 2, 1, false, out));
    return mr_bucket_rule_follow(*out,
                                 k == LIKE_12   ? MR_REFERENCE_12
                                 : k == LIKE_20 ? MR_REFERENCE_20
                                                : MR_REFERENCE_NONE,
                                 24);
}

// samples of two epochs, one after another
typedef struct stream {
    uint64_t ids[EPOCHS * ROWS], n, epoch_n[EPOCHS];
} stream;

static bool by_itself(mr_index *index, kind k, uint64_t seed, int32_t slot, stream *s)
{
    mr_bucket_rule *rule;
    mr_order *order = NULL;
    uint64_t ids[BATCH], keys[BATCH];
    mr_draw d = {.ids = ids, .keys = keys};
    mr_order_options o = {.seed = seed, .slot = slot, .carry = k == CARRIED, .epochs = EPOCHS};
    memset(s, 0, sizeof *s);
    bool good =
        CHECK_OK(make_rule(k, false, &rule)) && CHECK_OK(mr_order_new(index, rule, &o, &order));
    while (good && !(order->at.epoch == EPOCHS - 1 && order_is_used_up(order))) {
        good = CHECK_OK(mr_order_next(order, &d));
        memcpy(s->ids + s->n, ids, sizeof *ids * (size_t)d.n);
        s->n += (uint64_t)d.n, s->epoch_n[d.epoch] += (uint64_t)d.n;
    }
    mr_order_free(order);
    mr_bucket_rule_free(rule);
    return good;
}

// A life of a loader: some batches, and an end with others decoded ahead. *text is its state.
static bool live(mr_index *index, kind k, uint64_t seed, int32_t slot, char **text, stream *s,
                 bool *over)
{
    static const int32_t ranks[] = {1, 8, 24, 192};
    mr_bucket_rule *rule;
    mr_loader *l;
    const mr_batch *b;
    mr_source source = {.name = "", .index = index};
    mr_loader_options o = {.seed = seed,
                           .slot = slot,
                           .carry = k == CARRIED,
                           .epochs = EPOCHS,
                           .threads = 1 + (int32_t)below(3),
                           .prefetch = 1 + (int32_t)below(5),
                           .parts = ranks[below(MR_COUNT(ranks))],
                           .blind = true,
                           .isolated = true,
                           .allow_empty = true,
                           .state = *text};
    o.part = (int32_t)below((uint64_t)o.parts);
    if (!CHECK_OK(make_rule(k, k == RESIZED, &rule)) ||
        !CHECK_OK(mr_loader_new(&source, 1, rule, &o, &l)))
        return false;
    bool good = true;
    for (uint64_t left = 1 + below(400); left && good && !*over; left--) {
        good = CHECK_OK(mr_loader_next(l, &b));
        if (!(*over = !b) && good) {
            good = CHECK(s->n + (uint64_t)b->n <= MR_COUNT(s->ids));
            if (good)
                memcpy(s->ids + s->n, b->ids, sizeof *b->ids * (size_t)b->n);
            s->n += (uint64_t)b->n, s->epoch_n[b->epoch] += (uint64_t)b->n;
            bool last = b->last;
            mr_loader_release(l, b);
            if (last && o.parts > 1)
                good = good && CHECK_OK(mr_loader_agree(l, ""));
        }
    }
    mr_free(*text);
    *text = NULL;
    good = good && CHECK_OK(mr_loader_state(l, text)) && CHECK(strlen(*text) < 4096);
    // a state keeps a long list of left-over samples in a separate text; this run leaves few
    mr_loader_free(l);
    return good;
}

static bool once_each(const stream *s, kind k)
{
    uint8_t met[ROWS] = {0};
    for (uint64_t i = 0, e = 0, end = s->epoch_n[0]; i < s->n; i++) {
        if (i == end && k != CARRIED)
            end += s->epoch_n[++e], memset(met, 0, sizeof met);
        if (!CHECK(s->ids[i] < ROWS && met[s->ids[i]]++ < (k == CARRIED ? EPOCHS : 1)))
            return false;
    }
    return true;
}

static bool two_epochs(mr_index *index)
{
    static stream want, got;
    static const int32_t slots[] = {1, 4, 8, 24};
    kind k = (kind)below(KINDS);
    uint64_t seed = below(100000);
    int32_t slot = slots[below(MR_COUNT(slots))];
    char *text = NULL;
    bool over = false;
    memset(&got, 0, sizeof got);
    bool good = by_itself(index, k, seed, slot, &want);
    while (good && !over)
        good = live(index, k, seed, slot, &text, &got, &over);
    mr_free(text);
    good = good && once_each(&got, k) && CHECK_INT(got.n, want.n);
    // other micro-batches are grouped otherwise
    return good && (k == RESIZED || CHECK(memcmp(got.ids, want.ids, sizeof *got.ids * got.n) == 0));
}

int main(void)
{
    const char *many = getenv("MOONREEL_EPOCHS"), *given = getenv("MOONREEL_SEED");
    uint64_t n = many ? strtoull(many, NULL, 10) / EPOCHS : 5;
    state = given ? strtoull(given, NULL, 10) : state;
    mr_index *index;
    const char *path = clips_path("kills.mrx");
    if (!CHECK_OK(rows_build(path, 9, ROWS, 0)) || !CHECK_OK(mr_index_open(path, false, &index)))
        return check_done();
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = state;
        if (!two_epochs(index)) {
            printf("epoch %llu of MOONREEL_SEED=%llu\n", (unsigned long long)(i * EPOCHS),
                   (unsigned long long)at);
            break;
        }
    }
    mr_index_unref(index);
    return check_done();
}
