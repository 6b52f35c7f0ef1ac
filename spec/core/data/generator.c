/* data/generator: numbers that torch 1.13, Python 3 and numpy 1.24 computed for these seeds. */
#include "check.h"
#include "moonreel/generator.h"

static void torch(void)
{
    // torch.randperm(10, seed 0), then of 5: swaps by the remainder of a word
    static const int first[] = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2}, then[] = {3, 2, 4, 0, 1};
    mr_twister t;
    mr_twister_seed(&t, 0);
    const int *want[] = {first, then};
    for (int k = 0; k < 2; k++) {
        int n = k ? 5 : 10, list[10];
        for (int i = 0; i < n; i++)
            list[i] = i;
        for (int i = 0; i + 1 < n; i++) {
            int j = i + (int)(mr_twister_next(&t) % (uint32_t)(n - i)), x = list[i];
            list[i] = list[j], list[j] = x;
        }
        for (int i = 0; i < n; i++)
            CHECK_INT(list[i], want[k][i]);
    }
    // the 10,000th word of the classic seed, as in the C++ standard
    mr_twister_seed(&t, 5489);
    for (int i = 1; i < 10000; i++)
        mr_twister_next(&t);
    CHECK_INT(mr_twister_next(&t), 4123659995);
}

static double random_of(mr_twister *t)
{
    double a = mr_twister_next(t) >> 5, b = mr_twister_next(t) >> 6;
    return (a * 67108864 + b) / 9007199254740992.0;
}

static void python(void)
{
    static const struct {
        uint32_t seed;
        double want[2];
    } rows[] = {{0, {0.8444218515250481, 0.7579544029403025}},
                {1, {0.13436424411240122, 0.8474337369372327}},
                {42, {0.6394267984578837, 0.025010755222666936}}};
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        mr_twister t;
        mr_twister_seed_words(&t, &rows[i].seed, 1);
        for (int k = 0; k < 2; k++)
            CHECK(random_of(&t) == rows[i].want[k]);
    }
}

static void numpy(void)
{
    static const struct {
        uint64_t seed;
        double want[2];
    } rows[] = {{0, {0.6369616873214543, 0.2697867137638703}},
                {42, {0.7739560485559633, 0.4388784397520523}},
                {1024, {0.3224619691165699, 0.2583528100229512}},
                {8589934597, {0.23772096442823154, 0.42782131249807576}}};
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        mr_pcg64 p;
        mr_pcg64_seed(&p, rows[i].seed);
        for (int k = 0; k < 2; k++)
            CHECK(mr_pcg64_next(&p) == rows[i].want[k]);
    }
}

int main(void)
{
    torch();
    python();
    numpy();
    return check_done();
}
