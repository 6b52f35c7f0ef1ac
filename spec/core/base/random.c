/* base/random: Philox against the published vectors; shape of the uniform and normal streams. */
#include "check.h"
#include "moonreel/random_inline.h"

static void known_vectors(void)
{
    // Random123 1.x kat_vectors, philox4x32 10
    static const struct {
        uint32_t c[4], k[2], out[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        uint32_t out[4];
        mr_philox_inline(rows[i].c, rows[i].k, out);
        for (int j = 0; j < 4; j++)
            CHECK_INT(out[j], rows[i].out[j]);
    }
}

static void normal_moments(void)
{
    enum { n = 1 << 20 };
    static float x[n];
    mr_random_fill_normal(x, n, 42, 7, 123456789, 0, 0);
    double m1 = 0, m2 = 0, m4 = 0;
    for (int i = 0; i < n; i++)
        m1 += x[i], m2 += (double)x[i] * x[i], m4 += pow(x[i], 4);
    CHECK_NEAR(m1 / n, 0, 0.005);
    CHECK_NEAR(m2 / n, 1, 0.01);
    CHECK_NEAR(m4 / n, 3, 0.06);
    // the value of an element does not depend on where a fill starts or ends
    for (int first = 0; first < 9; first++)
        for (int length = 1; length < 700; length += 59) {
            mr_random_fill_normal(x, length, 42, 7, 123456789, 3, (uint64_t)first);
            int e = 0;
            while (e < length &&
                   mr_random_normal(42, 7, 123456789, 3, (uint64_t)(first + e)) == x[e])
                e++;
            CHECK_INT(e, length);
        }
}

static void uniform_open(void)
{
    enum { n = 1 << 18 };
    static float x[n];
    mr_random_fill_uniform(x, n, 1, 2, 3, 4, 5);
    double m = 0;
    float lo = 1, hi = 0;
    for (int i = 0; i < n; i++)
        m += x[i], lo = fminf(lo, x[i]), hi = fmaxf(hi, x[i]);
    CHECK_NEAR(m / n, 0.5, 0.003);
    CHECK(lo > 0);
    CHECK(hi < 1);
    // the value of an element does not depend on where a fill starts
    for (uint64_t first = 0; first < 9; first++) {
        mr_random_fill_uniform(x, 50, 1, 2, 3, 4, first);
        for (int i = 0; i < 50; i++) {
            uint32_t w[4];
            uint64_t e = first + (uint64_t)i;
            mr_random_block(1, 2, 3, 4, (uint32_t)(e / 4), w);
            CHECK(x[i] == mr_word_uniform(w[e % 4]));
        }
    }
}

int main(void)
{
    known_vectors();
    normal_moments();
    uniform_open();
    return check_done();
}
