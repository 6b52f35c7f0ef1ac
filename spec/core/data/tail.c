/* data/tail: with the rest carried into the next epoch, a sample is trained once for each epoch
 * that takes it, for any restarts and micro-batch sizes, and no batch is short before the last
 * epoch. */
#include "check.h"
#include "data/room.h"
#include "rows.h"

enum { ROWS = 900, BATCH_MAX = 16, EPOCHS = 4 };
static uint64_t state = 5;

static uint64_t below(uint64_t n)
{
    state = MR_MIX(state, 9);
    return state % n;
}

static mr_bucket_aspect three[] = {{0.56, 36, 64}, {1.0, 48, 48}, {1.78, 64, 36}};

static mr_status make_rule(mr_bucket_rule **out)
{
    int m[4];
    for (int i = 0; i < 4; i++)
        m[i] = 1 + (int)below(BATCH_MAX);
    // a bucket of a few samples has no whole batch for several epochs
    mr_bucket_length low[] = {{1, 1, 1, m[0], 0}, {16, 0.7, 1, m[1], 0}, {51, 1, 0.6, m[2], 0}},
                     high[] = {{120, 0.02, 1, m[3], 0}};
    mr_bucket_resolution r[] = {{"low", 4096, three, 3, low, 3},
                                {"high", 200000, three, 3, high, 1}};
    return mr_bucket_rule_new(r, 2, 1, false, out);
}

// the rest of the epoch is planned without the samples that it trained, as when data or rule change
static bool plan_anew(mr_index *index, const mr_bucket_rule *rule, uint64_t seed, char **text,
                      mr_subset **seen)
{
    char *other;
    mr_carry from = {.index = index, .rule = rule, .seed = seed, .text = *text};
    if (!CHECK_OK(mr_order_carry(&from, index, rule, NULL, &other, seen)))
        return false;
    mr_free(*text);
    *text = other;
    return true;
}

static bool trains_each_once(mr_index *index, uint64_t seed, uint64_t rows)
{
    static uint8_t count[ROWS], wanted[ROWS];
    uint64_t ids[BATCH_MAX], keys[BATCH_MAX];
    mr_order_options o = {.seed = seed, .carry = true, .epochs = EPOCHS, .slot = below(3) ? 1 : 4};
    mr_draw d = {.ids = ids, .keys = keys};
    mr_bucket_rule *rule;
    mr_order *order = NULL;
    mr_position p;
    mr_subset *seen = NULL;
    uint64_t seen_epoch = UINT64_MAX;
    if (!CHECK_OK(make_rule(&rule)) || !CHECK_OK(mr_order_new(index, rule, &o, &order)) ||
        !CHECK_OK(mr_position_init(&p, order)))
        return false;
    memset(count, 0, sizeof count);
    memset(wanted, 0, sizeof wanted);
    mr_index_reader *reader;
    CHECK_OK(mr_index_reader_new(index, &reader));
    const mr_hot *hot;
    int32_t n;
    mr_drop why;
    CHECK_OK(mr_index_hot(reader, 0, &hot, &n));
    for (uint64_t e = 0; e < EPOCHS; e++)
        for (int32_t i = 0; i < n; i++)
            wanted[i] += mr_bucket_rule_assign(rule, seed, e, 0, &hot[i], &why) >= 0;
    mr_index_reader_free(reader);
    bool good = true, over = false;
    while (good && !over) {
        good = CHECK_OK(mr_order_next(order, &d));
        mr_position_advance(&p, &d);
        for (int i = 0; i < d.n && good; i++)
            good = CHECK(ids[i] < rows) && CHECK(++count[ids[i]] <= EPOCHS);
        good = good &&
               (d.epoch + 1 == EPOCHS || CHECK_INT(d.n, mr_bucket_rule_get(rule, d.bucket).batch));
        over = d.last && d.epoch + 1 == EPOCHS;
        if (good && !over && below(20) == 0) {
            // a kill; other micro-batches from the same state on, or a plan of the rest
            char *text = NULL;
            good = CHECK_OK(mr_position_text(&p, order, false, &text));
            if (!seen && good && below(3) == 0)
                good = plan_anew(index, rule, seed, &text, &seen), seen_epoch = p.epoch;
            if (seen && p.epoch != seen_epoch && seen_epoch != UINT64_MAX)
                mr_subset_unref(seen), seen = NULL;
            mr_order_free(order);
            mr_position_fini(&p);
            order = NULL;
            if (below(2)) {
                mr_bucket_rule_free(rule);
                good = good && CHECK_OK(make_rule(&rule));
            }
            good = good && CHECK_OK(mr_order_new(index, rule, &o, &order)) &&
                   CHECK_OK(mr_order_restore(order, text, NULL, 0, seen)) &&
                   CHECK_OK(mr_position_init(&p, order));
            mr_free(text);
        }
    }
    int bad = 0;
    for (uint64_t i = 0; i < rows; i++)
        bad += count[i] != wanted[i];
    good = good && CHECK_INT(bad, 0);
    mr_position_fini(&p);
    mr_order_free(order);
    mr_subset_unref(seen);
    mr_bucket_rule_free(rule);
    return good;
}

// names of samples that do not exist end in an error for any text. With 210 buckets of batches that
// leave many samples over, a brief state is short, and together with the list equal to the whole
// one.
static void brief_states(void)
{
    enum { LENGTHS = 70, MOST = 40 };
    mr_index *index;
    if (!CHECK_OK(rows_build(clips_path("brief.mrx"), 7, 40000, 0)) ||
        !CHECK_OK(mr_index_open(clips_path("brief.mrx"), false, &index)))
        return;
    mr_bucket_length lengths[LENGTHS];
    for (int i = 0; i < LENGTHS; i++)
        lengths[i] = (mr_bucket_length){i + 1, 1, i ? 0.1 : 1, 4 + (i * 7) % 18, 0};
    mr_bucket_resolution r = {"low", 4096, three, 3, lengths, LENGTHS};
    mr_order_options options = {.seed = 3, .carry = true};
    uint64_t ids[MOST], keys[MOST];
    mr_draw d = {.ids = ids, .keys = keys};
    mr_bucket_rule *rule;
    mr_order *order = NULL, *again = NULL;
    char *brief, *whole, *joined, *wrong;
    if (!CHECK_OK(mr_bucket_rule_new(&r, 1, 1, false, &rule)) ||
        !CHECK_OK(mr_order_new(index, rule, &options, &order)) ||
        !CHECK_OK(mr_order_new(index, rule, &options, &again)))
        return;
    do
        CHECK_OK(mr_order_next(order, &d));
    while (d.epoch < 2 || d.number < mr_order_batches(order) / 2);
    CHECK_OK(mr_position_text(&order->at, order, true, &brief));
    CHECK_OK(mr_position_text(&order->at, order, false, &whole));
    int32_t used = 0;
    for (int32_t b = 0; b < order->at.n_buckets; b++)
        used += order->at.taken[b] > 0;
    CHECK(used >= 200);
    mr_text list = {0};
    tail_put_list(order->at.tail, &list);
    CHECK(order->at.tail->n > 400);
    CHECK(strlen(brief) < 4096 && strlen(whole) > 4096);
    CHECK_OK(mr_position_whole(brief, list.data, &joined));
    CHECK_STR(joined, whole);
    CHECK_OK(mr_order_restore(again, joined, NULL, 0, NULL));
    CHECK(again->at.tail->n == order->at.tail->n &&
          again->at.tail->digest == order->at.tail->digest);
    // another list, and none
    list.data[20] ^= 1;
    CHECK_FAILS(mr_position_whole(brief, list.data, &wrong), MR_E_DATA,
                "the list of them is another one");
    CHECK_FAILS(mr_position_whole(brief, NULL, &wrong), MR_E_DATA, "not there");
    mr_free(list.data);
    mr_free(brief);
    mr_free(whole);
    mr_free(joined);
    mr_order_free(order);
    mr_order_free(again);
    mr_bucket_rule_free(rule);
    mr_index_unref(index);
}

static void damaged_texts(mr_index *index)
{
    uint64_t ids[BATCH_MAX], keys[BATCH_MAX];
    mr_order_options o = {.seed = 8, .carry = true};
    mr_draw d = {.ids = ids, .keys = keys};
    mr_bucket_rule *rule;
    mr_order *order, *other;
    mr_position p;
    char *text;
    CHECK_OK(make_rule(&rule));
    CHECK_OK(mr_order_new(index, rule, &o, &order));
    CHECK_OK(mr_position_init(&p, order));
    do {
        CHECK_OK(mr_order_next(order, &d));
        mr_position_advance(&p, &d);
    } while (!d.epoch);
    CHECK_OK(mr_position_text(&p, order, false, &text));
    char *tail = strstr(text, "\ntail ");
    if (CHECK(tail)) {
        for (char *c = tail + 6; *c != '\n'; c++) {
            char was = *c;
            *c = was == ':' ? ';' : was == '9' ? ':' : '9';
            CHECK_OK(mr_order_new(index, rule, &o, &other));
            mr_status st = mr_order_restore(other, text, NULL, 0, NULL);
            CHECK(st == MR_OK || st == MR_E_FORMAT);
            mr_order_free(other);
            *c = was;
        }
        CHECK_OK(mr_order_new(index, rule, &o, &other));
        memcpy(tail + 6, "99999", 5);
        CHECK_FAILS(mr_order_restore(other, text, NULL, 0, NULL), MR_E_FORMAT,
                    "names samples of its last epoch that do not exist");
        mr_order_free(other);
    }
    mr_free(text);
    mr_position_fini(&p);
    mr_order_free(order);
    mr_bucket_rule_free(rule);
}

int main(void)
{
    static const uint64_t sizes[] = {ROWS, 300, 60};
    for (int s = 0; s < 3; s++) {
        mr_index *index;
        if (!CHECK_OK(rows_build(clips_path("tail.mrx"), 40 + (uint64_t)s, sizes[s], 0)) ||
            !CHECK_OK(mr_index_open(clips_path("tail.mrx"), false, &index)))
            break;
        for (uint64_t i = 0; i < 15; i++)
            if (!trains_each_once(index, i, sizes[s]))
                break;
        if (!s)
            damaged_texts(index);
        mr_index_unref(index);
    }
    brief_states();
    return check_done();
}
