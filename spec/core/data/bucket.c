/* data/bucket: the bucket of a sample, and why it has none. */
#include "check.h"
#include "data/bucket.h"

static mr_bucket_aspect wide[] = {{0.56, 36, 64}, {1.0, 48, 48}, {1.78, 64, 36}};

static mr_status rule_of(const mr_bucket_length *low, int n_low, const mr_bucket_length *high,
                         int n_high, int interval, bool compat, mr_bucket_rule **out)
{
    // given from low to high: the rule sorts
    mr_bucket_resolution r[] = {{"low", 10000, wide, 3, low, n_low},
                                {"high", 100000, wide, 3, high, n_high}};
    return mr_bucket_rule_new(r, 2, interval, compat, out);
}

static int frames_of(const mr_bucket_rule *rule, uint64_t key, uint32_t frames, int w, int h,
                     const char **resolution, mr_drop *why)
{
    mr_hot hot = {.key_lo = key, .frames = frames, .width = (uint16_t)w, .height = (uint16_t)h};
    int32_t b = mr_bucket_rule_assign(rule, 1, 0, 0, &hot, why);
    *resolution = b < 0 ? "" : mr_bucket_rule_get(rule, b).resolution;
    return b < 0 ? -1 : mr_bucket_rule_get(rule, b).frames;
}

static void high_to_low(void)
{
    const mr_bucket_length low[] = {{1, 1, 1, 8, 0}, {16, 1, 1, 4, 0}, {51, 1, 1, 2, 0}},
                           high[] = {{17, 1, 1, 2, 0}, {120, 0, 1, 0, 0}};
    mr_bucket_rule *r;
    const char *name;
    mr_drop why;
    if (!CHECK_OK(rule_of(low, 3, high, 2, 1, false, &r)))
        return;
    CHECK_INT(frames_of(r, 1, 17, 400, 300, &name, &why), 17);
    CHECK_STR(name, "high");
    CHECK_INT(frames_of(r, 1, 16, 400, 300, &name, &why), 16);
    CHECK_STR(name, "low");
    // probability 0 sends long clips to lower resolutions
    CHECK_INT(frames_of(r, 1, 120, 400, 300, &name, &why), 51);
    CHECK_STR(name, "low");
    CHECK_INT(frames_of(r, 1, 1, 400, 300, &name, &why), 1);
    CHECK_INT(frames_of(r, 1, 15, 400, 300, &name, &why), -1);
    CHECK_INT(why, MR_DROP_SHORT);
    CHECK_INT(frames_of(r, 1, 60, 89, 89, &name, &why), -1);
    CHECK_INT(why, MR_DROP_SMALL);
    CHECK_INT(frames_of(r, 1, 60, 90, 90, &name, &why), 51);
    mr_bucket_rule_free(r);
    const mr_bucket_length moving[] = {{16, 1, 1, 4, 0}};
    if (!CHECK_OK(rule_of(moving, 1, moving, 1, 1, false, &r)))
        return;
    CHECK_INT(frames_of(r, 1, 1, 400, 300, &name, &why), -1);
    CHECK_INT(why, MR_DROP_IMAGE);
    mr_bucket_rule_free(r);
}

static void spans(void)
{
    const mr_bucket_length low[] = {{51, 1, 1, 2, 0}};
    const struct {
        int interval;
        bool compat;
        uint32_t frames;
        int fits;
    } rows[] = {{1, false, 51, 51}, {1, false, 50, -1}, {2, false, 101, 51}, {2, false, 100, -1},
                {1, true, 51, -1},  {1, true, 52, 51},  {2, true, 102, -1},  {2, true, 103, 51}};
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        mr_bucket_rule *r;
        const char *name;
        mr_drop why;
        if (!CHECK_OK(rule_of(low, 1, low, 1, rows[i].interval, rows[i].compat, &r)))
            return;
        CHECK_INT(frames_of(r, 1, rows[i].frames, 400, 300, &name, &why), rows[i].fits);
        mr_bucket_rule_free(r);
    }
}

static void aspects(void)
{
    const mr_bucket_length one[] = {{1, 1, 1, 2, 0}};
    static const struct {
        int w, h, want;
    } rows[] = {{1280, 720, 36}, {720, 1280, 64}, {500, 500, 48}, {500, 390, 36}, {500, 391, 48}};
    mr_bucket_rule *r;
    if (!CHECK_OK(rule_of(one, 1, one, 1, 1, false, &r)))
        return;
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        mr_hot hot = {.frames = 1, .width = (uint16_t)rows[i].w, .height = (uint16_t)rows[i].h};
        mr_drop why;
        int32_t b = mr_bucket_rule_assign(r, 0, 0, 0, &hot, &why);
        if (CHECK(b >= 0))
            CHECK_INT(mr_bucket_rule_get(r, b).height, rows[i].want);
    }
    mr_bucket_rule_free(r);
}

// shares follow the probabilities, change with the epoch, and do not depend on other entries
static void chances(void)
{
    const mr_bucket_length low[] = {{16, 0.5, 1, 4, 0}}, high[] = {{16, 0.3, 0.8, 2, 0}};
    mr_bucket_rule *r, *more;
    if (!CHECK_OK(rule_of(low, 1, high, 1, 1, false, &r)))
        return;
    const mr_bucket_length high_more[] = {{16, 0.3, 0.8, 2, 0}, {200, 1, 1, 1, 0}};
    if (!CHECK_OK(rule_of(low, 1, high_more, 2, 1, false, &more)))
        return;
    int in_high = 0, in_low = 0, moved = 0, differs = 0;
    for (uint64_t key = 0; key < 40000; key++) {
        mr_hot hot = {.key_lo = MR_MIX(key), .frames = 20, .width = 400, .height = 300};
        mr_drop why;
        int32_t a = mr_bucket_rule_assign(r, 7, 0, 0, &hot, &why),
                b = mr_bucket_rule_assign(r, 7, 1, 0, &hot, &why),
                c = mr_bucket_rule_assign(more, 7, 0, 0, &hot, &why);
        const char *name = a < 0 ? "" : mr_bucket_rule_get(r, a).resolution,
                   *other = c < 0 ? "" : mr_bucket_rule_get(more, c).resolution;
        in_high += *name == 'h', in_low += *name == 'l', moved += a != b,
            differs += strcmp(name, other) != 0;
    }
    // tried with 0.8 and kept with 0.3; the rest goes to low, kept there with 0.5
    CHECK_NEAR(in_high / 40000.0, 0.24, 0.01);
    CHECK_NEAR(in_low / 40000.0, 0.38, 0.01);
    CHECK(moved > 10000);
    CHECK_INT(differs, 0);
    mr_bucket_rule_free(r);
    mr_bucket_rule_free(more);
}

// random numbers that repeat: the third epoch is the first again, and the rule is another one
static void repeats(void)
{
    const mr_bucket_length low[] = {{16, 0.5, 1, 4, 0}}, high[] = {{17, 0.5, 0.5, 2, 0}};
    mr_bucket_rule *r, *plain;
    if (!CHECK_OK(rule_of(low, 1, high, 1, 1, false, &r)) ||
        !CHECK_OK(rule_of(low, 1, high, 1, 1, false, &plain)))
        return;
    mr_bucket_rule_repeat(plain, 0);
    CHECK(mr_bucket_rule_hash_of(r, NULL) == mr_bucket_rule_hash_of(plain, NULL));
    mr_bucket_rule_repeat(r, 2);
    CHECK(mr_bucket_rule_hash_of(r, NULL) != mr_bucket_rule_hash_of(plain, NULL));
    CHECK_INT(mr_bucket_rule_draws(r, 5), 1);
    CHECK_INT(mr_bucket_rule_draws(plain, 5), 5);
    int differ = 0;
    mr_drop why;
    for (uint64_t i = 0; i < 400; i++) {
        mr_hot hot = {.key_lo = MR_MIX(i), .frames = 40, .width = 400, .height = 300};
        uint64_t epoch = i % 7;
        CHECK_INT(mr_bucket_rule_assign(r, 1, epoch, 0, &hot, &why),
                  mr_bucket_rule_assign(plain, 1, epoch % 2, 0, &hot, &why));
        differ += mr_bucket_rule_assign(plain, 1, 2, 0, &hot, &why) !=
                  mr_bucket_rule_assign(plain, 1, 0, 0, &hot, &why);
    }
    CHECK(differ > 50);
    mr_bucket_rule_free(r);
    mr_bucket_rule_free(plain);
}

static void hashes(void)
{
    const mr_bucket_length a[] = {{16, 0.5, 1, 4, 0}}, batch[] = {{16, 0.5, 1, 9, 0}},
                           keep[] = {{16, 0.6, 1, 4, 0}};
    mr_bucket_rule *r[4];
    CHECK_OK(rule_of(a, 1, a, 1, 1, false, &r[0]));
    CHECK_OK(rule_of(batch, 1, a, 1, 1, false, &r[1]));
    CHECK_OK(rule_of(keep, 1, a, 1, 1, false, &r[2]));
    CHECK_OK(rule_of(a, 1, a, 1, 2, false, &r[3]));
    CHECK(mr_bucket_rule_hash_of(r[0], NULL) == mr_bucket_rule_hash_of(r[1], NULL));
    CHECK(mr_bucket_rule_hash_of(r[0], NULL) != mr_bucket_rule_hash_of(r[2], NULL));
    CHECK(mr_bucket_rule_hash_of(r[0], NULL) != mr_bucket_rule_hash_of(r[3], NULL));
    for (int i = 0; i < 4; i++)
        mr_bucket_rule_free(r[i]);
}

static void refusals(void)
{
    const mr_bucket_length twice[] = {{16, 1, 1, 4, 0}, {16, 1, 1, 2, 0}},
                           odd[] = {{16, 1.5, 1, 4, 0}}, none[] = {{16, 1, 1, 0, 0}},
                           good[] = {{16, 1, 1, 1, 0}};
    mr_bucket_rule *r;
    CHECK_FAILS(rule_of(twice, 2, good, 1, 1, false, &r), MR_E_RECIPE,
                "bucket_config.low: length 16 is given twice");
    CHECK_FAILS(rule_of(odd, 1, good, 1, 1, false, &r), MR_E_RECIPE, "probability 1.5");
    CHECK_FAILS(rule_of(none, 1, good, 1, 1, false, &r), MR_E_RECIPE, "batch size 0");
    CHECK_FAILS(rule_of(good, 1, good, 0, 1, false, &r), MR_E_RECIPE,
                "bucket_config.high: no lengths");
    CHECK_FAILS(rule_of(good, 1, good, 1, 0, false, &r), MR_E_RECIPE, "frame_interval is 0");
    mr_bucket_aspect flat = {0.1, 7, 70};
    mr_bucket_resolution res = {"flat", 490, &flat, 1, good, 1};
    CHECK_FAILS(mr_bucket_rule_new(&res, 1, 1, false, &r), MR_E_RECIPE,
                "resolutions.flat: aspect 0.1 is 7 x 70; expected 8 pixels");
    flat = (mr_bucket_aspect){-0.1, 8, 80};
    CHECK_FAILS(mr_bucket_rule_new(&res, 1, 1, false, &r), MR_E_RECIPE, "aspect -0.1 is 8 x 80");
    CHECK_FAILS(mr_bucket_rule_new(NULL, 0, 1, false, &r), MR_E_RECIPE, "bucket_config is empty");
    mr_bucket_length many[1001];
    for (int i = 0; i < 1001; i++)
        many[i] = (mr_bucket_length){i + 1, 1, 1, 1, 0};
    CHECK_FAILS(rule_of(many, 1000, good, 1, 1, false, &r), MR_E_RECIPE,
                "bucket_config has 1001 lengths; expected at most 1000");
    if (CHECK_OK(rule_of(many, 999, good, 1, 1, false, &r)))
        mr_bucket_rule_free(r);
    for (int n = 1; n < 16; n++) {
        mr_alloc_fail_at(n);
        mr_status st = rule_of(good, 1, good, 1, 1, false, &r);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            mr_bucket_rule_free(r);
        else
            CHECK_INT(st, MR_E_MEMORY);
    }
}

// facts about one size are not used for another one
static void sizes_met_before(void)
{
    const mr_bucket_aspect aspects[] = {{0.5, 32, 64}, {1, 48, 48}, {2, 64, 32}};
    const mr_bucket_length length = {1, 1, 1, 1, 0};
    const mr_bucket_resolution r[] = {{"low", 3000, aspects, 3, &length, 1},
                                      {"high", 9000, aspects, 3, &length, 1}};
    mr_bucket_rule *rule;
    if (!CHECK_OK(mr_bucket_rule_new(r, 2, 1, false, &rule)))
        return;
    bucket_size size = {0};
    mr_drop why;
    int taken[6] = {0};
    for (uint64_t i = 0; i < 400; i++) {
        mr_hot hot = {.key_lo = i,
                      .frames = 1,
                      .width = (uint16_t)(40 + MR_MIX(i) % 3 * 40),
                      .height = (uint16_t)(40 + MR_MIX(i, 1) % 3 * 40)};
        int32_t b, alone = mr_bucket_rule_assign(rule, 3, 0, 0, &hot, &why);
        bucket_assign(rule, (bucket_sizes){&size, 0}, 3, 0, 0, &hot, 1, &b);
        CHECK_INT(b, alone < 0 ? -(int32_t)why : alone);
        if (b >= 0)
            taken[b]++;
    }
    int used = 0;
    for (int b = 0; b < 6; b++)
        used += taken[b] > 0;
    CHECK(used >= 4);
    mr_bucket_rule_free(rule);
}

// rows that are assigned together get the buckets that each gets alone
static void many_at_once(void)
{
    const mr_bucket_length low[] = {{1, 0.5, 0.5, 1, 0}, {16, 0.6, 0.4, 1, 0}, {51, 0.3, 1, 1, 0}},
                           high[] = {
                               {17, 0.4, 0.7, 1, 0}, {34, 0.5, 0.2, 1, 0}, {60, 0.2, 1, 1, 0}};
    mr_bucket_rule *rule;
    if (!CHECK_OK(rule_of(low, 3, high, 3, 1, false, &rule)))
        return;
    mr_hot rows[BUCKET_ROWS];
    bucket_size kept[8] = {0};
    int32_t out[BUCKET_ROWS], times[MR_DROP_COUNT] = {0}, taken = 0;
    for (uint64_t round = 0; round < 8; round++) {
        // the last round is of one row
        int32_t n = BUCKET_ROWS - (int32_t)round * 36 - (round == 7) * 3;
        for (int32_t i = 0; i < n; i++) {
            uint64_t u = MR_MIX(round, (uint64_t)i);
            rows[i] = (mr_hot){.key_lo = u,
                               .frames = u >> 8 & 3 ? 10 + (uint32_t)(u >> 16) % 60 : 1,
                               .width = (uint16_t)(60 + u % 5 * 100),
                               .height = (uint16_t)(60 + (u >> 32) % 5 * 100)};
        }
        bucket_assign(rule, (bucket_sizes){kept, 3}, 5, round, 0, rows, n, out);
        for (int32_t i = 0; i < n; i++) {
            mr_drop why;
            int32_t b = mr_bucket_rule_assign(rule, 5, round, 0, &rows[i], &why);
            CHECK_INT(out[i], b < 0 ? -(int32_t)why : b);
            times[b < 0 ? why : MR_DROP_NONE]++, taken += b >= 0;
        }
    }
    CHECK(taken > 100 && times[MR_DROP_SMALL] > 9 && times[MR_DROP_SHORT] > 9 &&
          times[MR_DROP_CHANCE] > 100);
    mr_bucket_rule_free(rule);
}

int main(void)
{
    many_at_once();
    sizes_met_before();
    high_to_low();
    spans();
    aspects();
    chances();
    hashes();
    repeats();
    refusals();
    return check_done();
}
