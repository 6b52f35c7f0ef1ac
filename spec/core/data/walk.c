/* data/walk: lengths tried one by one give the result of many rows at once; references draw in the
 * same way. */
#include "check.h"
#include "data/bucket.h"
#include "moonreel/generator.h"

#include <math.h>

static mr_bucket_aspect two[] = {{0.56, 36, 64}, {1.78, 64, 36}}, one[] = {{1.0, 96, 96}};

// lengths as in a recipe: some with one probability, some with two
static mr_status make_rule(int interval, mr_reference reference, mr_bucket_rule **out)
{
    static const mr_bucket_length low[] = {
        {1, 0.6, NAN, 8, 0}, {16, 0.5, NAN, 4, 0}, {32, 0.7, 0.4, 2, 0}, {51, 1, 1, 2, 0}};
    static const mr_bucket_length high[] = {
        {1, 0.3, NAN, 2, 0}, {17, 0.4, 0.8, 2, 0}, {120, 0, NAN, 0, 0}};
    mr_bucket_resolution r[] = {{"low", 4096, two, 2, low, 4}, {"high", 30000, one, 1, high, 3}};
    MR_TRY(mr_bucket_rule_new(r, 2, interval, false, out));
    return mr_bucket_rule_follow(*out, reference, 24);
}

static mr_hot row(uint64_t i)
{
    static const uint32_t rates[] = {0, 12000, 23976, 24000, 24001, 30000, 60000};
    uint64_t r = MR_MIX(i, 5);
    return (mr_hot){.key_lo = r,
                    .frames = r >> 9 & 3 ? 1 + (uint32_t)((r >> 20) % 140) : 1,
                    .fps_milli = rates[(r >> 40) % MR_COUNT(rates)],
                    .width = (uint16_t)(50 + (r >> 2) % 200),
                    .height = (uint16_t)(50 + (r >> 33) % 200)};
}

static void ours(void)
{
    mr_bucket_rule *r;
    int64_t taken = 0;
    if (!CHECK_OK(make_rule(1, MR_REFERENCE_NONE, &r)))
        return;
    for (uint64_t i = 0; i < 20000; i++) {
        mr_hot hot = row(i);
        mr_drop why, drop;
        mr_asked asked[7];
        int32_t b = mr_bucket_rule_assign(r, 3, i % 3, i, &hot, &why);
        const bucket_length *len = bucket_walk(r, 3, i % 3, i, &hot, NULL, &drop);
        if (!CHECK_INT(why, drop) ||
            !CHECK_INT(len ? len->frames : -1, b < 0 ? -1 : mr_bucket_rule_get(r, b).frames))
            return;
        // the one that takes it is reported last, with the draws that led there
        mr_bucket_rule_ask(r, 3, i % 3, i, &hot, asked);
        for (int k = 0; k < 7; k++)
            if (asked[k].said == MR_SAID_TAKES)
                CHECK(len && asked[k].frames == len->frames), len = NULL, taken++;
        CHECK(!len);
    }
    CHECK(taken > 4000 && taken < 16000);
    mr_bucket_rule_free(r);
}

// the first numbers of numpy's generator for this seed
static void numbers(uint64_t seed, double u[4])
{
    mr_pcg64 p;
    mr_pcg64_seed(&p, seed);
    for (int i = 0; i < 4; i++)
        u[i] = mr_pcg64_next(&p);
}

/* 1.2 with the rule above: high has 3 pairs (0: 120, 1: 17, 2: 1), low 4 (3: 51, 4: 32, 5: 16, 6:
 * 1); 11 buckets. The frames of the length, 0: none. */
static int like_12(uint64_t seed, uint64_t id, const mr_hot *h, int interval)
{
    double u[7][4];
    uint64_t pixels = (uint64_t)h->width * h->height;
    for (uint64_t k = 0; k < 7; k++)
        numbers(seed + id * 11 + k, u[k]);
    uint32_t t = h->frames, s = (uint32_t)interval;
    if ((double)pixels >= 0.8 * 30000) {
        if (t == 1 && u[2][0] < 0.3)
            return 1;
        if (t > 1 && t > 17 * s && !(t > 120 * s) && !(u[1][0] > 0.8) && u[1][1] < 0.4)
            return 17;
    }
    if ((double)pixels < 0.8 * 4096)
        return 0;
    if (t == 1)
        return u[6][0] < 0.6 ? 1 : 0;
    if (t > 51 * s && !(u[3][0] > 1))
        return 51;
    if (t > 32 * s && !(u[4][0] > 0.4))
        return u[4][1] < 0.7 ? 32 : 0;
    return t > 16 * s && u[5][0] < 0.5 ? 16 : 0;
}

/* 2.0: one generator for the sample; the second number of a pair decides whether it is skipped. */
static int like_20(uint64_t seed, uint64_t id, const mr_hot *h)
{
    double u[4], fps = h->fps_milli / 1000.0;
    int at = 0;
    uint64_t pixels = (uint64_t)h->width * h->height;
    numbers(seed + id * 11, u);
    int interval = !h->fps_milli || fps < 24 ? 1 : (int)ceil(fps / 24),
        t = (int)h->frames / interval;
    if ((double)pixels >= 0.8 * 30000) {
        if (t == 1 && u[at++] < 0.3)
            return 1;
        // a length of probability 0 ends the resolution: u <= 0 is almost never true
        if (t >= 120)
            at++;
        else if (t > 1 && t >= 17 && !(u[at++] <= 0.8) && u[at++] <= 0.4)
            return 17;
    }
    if ((double)pixels < 0.8 * 4096)
        return 0;
    if (t == 1)
        return u[at] < 0.6 ? 1 : 0;
    // 51 has a pair whose second number is 1: it is always skipped
    if (t >= 32 && !(u[at++] <= 0.4))
        return u[at] <= 0.7 ? 32 : 0;
    return t >= 16 && u[at] <= 0.5 ? 16 : 0;
}

static void references(void)
{
    for (int k = 0; k < 4; k++) {
        bool new = k == 3;
        int interval = new ? 1 : k + 1;
        int64_t taken = 0;
        mr_bucket_rule *r;
        if (!CHECK_OK(make_rule(interval, new ? MR_REFERENCE_20 : MR_REFERENCE_12, &r)))
            return;
        CHECK_INT(mr_bucket_rule_count(r), 11);
        for (uint64_t i = 0; i < 5000; i++) {
            mr_hot hot = row(i);
            mr_drop why;
            int32_t b = mr_bucket_rule_assign(r, 40, 2, i, &hot, &why);
            int want = new ? like_20(42, i, &hot) : like_12(42, i, &hot, interval);
            if (!CHECK_INT(b < 0 ? 0 : mr_bucket_rule_get(r, b).frames, want))
                return;
            taken += b >= 0;
        }
        CHECK(taken > 1000);
        mr_bucket_rule_free(r);
    }
}

// settings that a rule that follows a reference cannot have
static void refusals(void)
{
    const mr_bucket_length pair[] = {{1, 1, 1, 2, 0}};
    mr_bucket_resolution r[] = {{"low", 4096, one, 1, pair, 1}};
    mr_bucket_rule *rule;
    if (!CHECK_OK(mr_bucket_rule_new(r, 1, 1, false, &rule)))
        return;
    CHECK_FAILS(mr_bucket_rule_follow(rule, MR_REFERENCE_12, 0), MR_E_RECIPE,
                "bucket_config.low[1]: two probabilities");
    mr_bucket_rule_free(rule);
    if (!CHECK_OK(make_rule(1, MR_REFERENCE_NONE, &rule)))
        return;
    uint64_t hash = mr_bucket_rule_hash_of(rule, NULL);
    mr_bucket_rule_free(rule);
    // states of each order are its own
    mr_bucket_rule *old, *new;
    if (!CHECK_OK(make_rule(1, MR_REFERENCE_12, &old)) ||
        !CHECK_OK(make_rule(1, MR_REFERENCE_20, &new)))
        return;
    CHECK(mr_bucket_rule_hash_of(old, NULL) != hash && mr_bucket_rule_hash_of(new, NULL) != hash &&
          mr_bucket_rule_hash_of(old, NULL) != mr_bucket_rule_hash_of(new, NULL));
    mr_bucket_rule_free(old);
    mr_bucket_rule_free(new);
}

int main(void)
{
    ours();
    references();
    refusals();
    return check_done();
}
