/* graph/params: ranges, shared names, sealing, initial values.
 * Covers: core/graph/store.c */
#include "check.h"
#include "moonreel/graph.h"

static mr_param row(const char *name, mr_init_kind kind, double scale, int rank, const int64_t *dim)
{
    return (mr_param){.name = name,
                      .desc = mr_desc_dense(MR_F32, rank, dim),
                      .init = {.kind = kind, .scale = scale},
                      .decay = 1,
                      .lr_factor = 1};
}

static void ranges(void)
{
    mr_params *p;
    int a, b, c, d;
    CHECK_FAILS(mr_params_new(MR_U8, &p), MR_E_USAGE, "u8");
    CHECK_OK(mr_params_new(MR_BF16, &p));
    mr_param first = row("a", MR_INIT_XAVIER, 0, 2, (int64_t[]){100, 3});
    mr_param second = row("b", MR_INIT_ONES, 0, 1, (int64_t[]){5});
    mr_param table = row("freqs", MR_INIT_ONES, 0, 1, (int64_t[]){7});
    table.frozen = true;
    CHECK_OK(mr_params_add(p, &first, &a));
    CHECK_OK(mr_params_add(p, &table, &c));
    CHECK_OK(mr_params_add(p, &second, &b));
    CHECK_OK(mr_params_add(p, &first, &d));
    CHECK_INT(d, a); // shared weights
    mr_param other = row("a", MR_INIT_XAVIER, 0, 2, (int64_t[]){3, 100});
    CHECK_FAILS(mr_params_add(p, &other, &d), MR_E_SHAPE, "[100, 3]");
    CHECK_OK(mr_params_seal(p, NULL));
    CHECK_INT(mr_params_at(p, a)->offset, 0);
    CHECK_INT(mr_params_at(p, b)->offset, 320); // 300 rounded up to 64s
    CHECK_INT(mr_params_at(p, c)->offset, 0);   // the frozen range counts for itself
    CHECK_INT(mr_params_elements(p, false), 384);
    CHECK_INT(mr_params_elements(p, true), 64);
    CHECK_INT(mr_params_at(p, a)->desc.dtype, MR_BF16);
    CHECK_INT(mr_params_find(p, "freqs"), c);
    CHECK_INT(mr_params_find(p, "nobody"), -1);
    mr_param late = row("late", MR_INIT_ZEROS, 0, 1, (int64_t[]){1});
    CHECK_FAILS(mr_params_add(p, &late, &d), MR_E_USAGE, "sealed");
    mr_params_free(p);
}

/* Elements are those of the trainable range; 64 KiB are 32,768 of bf16. */
static void buckets(void)
{
    enum { K = 32768 };
    static const struct {
        int ranks;
        int64_t most, end[4];
        int64_t offset[4]; /* of a, b, large, c */
    } cases[] = {
        // without pads: one after the other
        {0, 0, {101376}, {0, 320, 384, 100416}},
        {1, 0, {4 * K}, {0, 320, 384, 100416}},
        // all fit, the end is padded to a chunk for each of three
        {3, 1000000, {6 * K}, {0, 320, 384, 100416}},
        // a and b fill one exactly, large is alone, c remains
        {1, 384, {K, 5 * K, 6 * K}, {0, 320, K, 5 * K}},
        {2, 383, {2 * K, 4 * K, 8 * K, 10 * K}, {0, 2 * K, 4 * K, 8 * K}},
    };
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        mr_params *p;
        int id[4], fixed;
        CHECK_OK(mr_params_new(MR_BF16, &p));
        mr_param rows[] = {row("a", MR_INIT_ZEROS, 0, 2, (int64_t[]){100, 3}),
                           row("b", MR_INIT_ZEROS, 0, 1, (int64_t[]){5}),
                           row("large", MR_INIT_ZEROS, 0, 1, (int64_t[]){100000}),
                           row("c", MR_INIT_ZEROS, 0, 1, (int64_t[]){960})};
        mr_param table = row("table", MR_INIT_ONES, 0, 1, (int64_t[]){7});
        table.frozen = true;
        for (int k = 0; k < 4; k++) {
            CHECK_OK(mr_params_add(p, &rows[k], &id[k]));
            if (k == 1)
                CHECK_OK(mr_params_add(p, &table, &fixed));
        }
        mr_cut cut = {.ranks = cases[i].ranks, .elements = cases[i].most};
        CHECK_OK(mr_params_seal(p, cut.ranks ? &cut : NULL));
        for (int k = 0; k < 4; k++)
            CHECK_INT(mr_params_at(p, id[k])->offset, cases[i].offset[k]);
        CHECK_INT(mr_params_elements(p, true), 64);
        int n = 0, ranks = MR_MAX(cut.ranks, 1);
        while (n < 4 && cases[i].end[n])
            n++;
        CHECK_INT(mr_params_buckets(p), n);
        int64_t start, stop, before = 0;
        for (int k = 0; k < n; k++) {
            mr_params_bucket(p, k, &start, &stop);
            CHECK(start == before && stop == cases[i].end[k]);
            // owners are adjacent and equal, and each finds its own part
            for (int r = 0; r < ranks; r++) {
                int64_t from, to;
                mr_params_owned(p, k, r, &from, &to);
                CHECK(from == before && to - from == (stop - start) / ranks);
                CHECK(mr_params_bucket_of(p, from) == k && mr_params_bucket_of(p, to - 1) == k);
                before = to;
            }
        }
        CHECK_INT(mr_params_elements(p, false), before);
        mr_params_free(p);
    }
    mr_params *p;
    CHECK_OK(mr_params_new(MR_F32, &p));
    CHECK_FAILS(mr_params_seal(p, &(mr_cut){.ranks = 0, .elements = 5}), MR_E_RANGE, "for 0 ranks");
    CHECK_FAILS(mr_params_seal(p, &(mr_cut){.ranks = 1, .elements = -5}), MR_E_RANGE,
                "-5 elements");
    CHECK_FAILS(mr_params_seal(p, &(mr_cut){.ranks = 2, .granule = 100}), MR_E_RANGE,
                "multiples of 100 bytes; expected a multiple of 256");
    mr_param one = row("one", MR_INIT_ZEROS, 0, 1, (int64_t[]){1300});
    CHECK_OK(mr_params_add(p, &one, &(int){0}));
    CHECK_OK(mr_params_seal(p, &(mr_cut){.ranks = 2, .granule = 512}));
    CHECK_INT(mr_params_elements(p, false), 6 * 256);
    mr_params_free(p);
    CHECK_OK(mr_params_new(MR_F32, &p));
    CHECK_OK(mr_params_seal(p, &(mr_cut){.ranks = 2}));
    CHECK_INT(mr_params_buckets(p), 0);
    CHECK_INT(mr_params_elements(p, false), 0);
    mr_params_free(p);
}

// matrices come after the others, in buckets whose chunks are whole blocks
static void matrices(void)
{
    enum { BLOCK = 256 };
    static const int64_t counts[] = {3 * BLOCK, 40, 4 * BLOCK, BLOCK, 7};
    static const bool matrix[] = {true, false, true, true, false};
    for (int ranks = 0; ranks <= 8; ranks++) {
        mr_params *p;
        CHECK_OK(mr_params_new(MR_F32, &p));
        for (int i = 0; i < 5; i++) {
            mr_param one =
                row((const char *[]){"a", "b", "c", "d", "e"}[i], MR_INIT_ZEROS, 0, 1, &counts[i]);
            CHECK_OK(mr_params_add(p, &one, &(int){0}));
        }
        mr_cut cut = {MR_MAX(ranks, 1), ranks ? 3 * BLOCK : 0, 256, BLOCK, matrix};
        CHECK_OK(mr_params_seal(p, &cut));
        int64_t first = mr_params_matrices(p), before = 0;
        CHECK(mr_params_at(p, 1)->offset == 0 && mr_params_at(p, 4)->offset == 64);
        CHECK(mr_params_at(p, 0)->offset == first && first >= 128);
        for (int i = 0; i < 5; i++)
            CHECK_INT(mr_params_at(p, i)->block, matrix[i] ? BLOCK : 0);
        for (int i = 0; i < mr_params_buckets(p); i++) {
            int64_t start, stop;
            mr_params_bucket(p, i, &start, &stop);
            CHECK(start == before && (stop <= first || start >= first));
            if (start >= first)
                CHECK_INT((stop - start) % (cut.ranks * BLOCK), 0);
            for (int k = 0; k < 5; k++)
                if (matrix[k] && mr_params_bucket_of(p, mr_params_at(p, k)->offset) == i)
                    CHECK_INT((mr_params_at(p, k)->offset - start) % BLOCK, 0);
            before = stop;
        }
        mr_params_free(p);
    }
    mr_params *p;
    CHECK_OK(mr_params_new(MR_F32, &p));
    mr_param one = row("one", MR_INIT_ZEROS, 0, 1, (int64_t[]){130});
    CHECK_OK(mr_params_add(p, &one, &(int){0}));
    CHECK_FAILS(mr_params_seal(p, &(mr_cut){1, 0, 0, 100, matrix}), MR_E_RANGE,
                "blocks of 100 elements; expected a multiple of 64");
    CHECK_FAILS(mr_params_seal(p, &(mr_cut){1, 0, 0, 64, matrix}), MR_E_RANGE,
                "'one' [130] f32: expected a trained one of whole blocks of 64 elements");
    mr_params_free(p);
}

static void initial_values(void)
{
    mr_params *p;
    int id;
    CHECK_OK(mr_params_new(MR_F32, &p));
    static float x[200 * 50];
    const float given[3] = {1, -2, 3};
    mr_param w = row("w", MR_INIT_XAVIER, 0, 2, (int64_t[]){200, 50});
    mr_param v = row("v", MR_INIT_VALUES, 0, 1, (int64_t[]){3});
    mr_param n = row("n", MR_INIT_NORMAL, 0.02, 2, (int64_t[]){200, 50});
    v.init.values = given;
    CHECK_OK(mr_params_add(p, &w, &id));
    CHECK_OK(mr_params_init(p, id, 42, x));
    double bound = sqrt(6.0 / 250), worst = 0, square = 0;
    for (int i = 0; i < 10000; i++)
        worst = fmax(worst, fabs(x[i])), square += (double)x[i] * x[i];
    CHECK(worst <= bound && worst > 0.99 * bound);
    CHECK_NEAR(square / 10000, bound * bound / 3, 0.03 * bound * bound);
    float again = x[7];
    CHECK_OK(mr_params_init(p, id, 43, x));
    CHECK(x[7] != again); // another seed, other values
    CHECK_OK(mr_params_add(p, &n, &id));
    CHECK_OK(mr_params_init(p, id, 42, x));
    // another name, other values: they are independent in each element
    static float y[200 * 50];
    mr_param other = row("other", MR_INIT_NORMAL, 0.02, 2, (int64_t[]){200, 50});
    CHECK_OK(mr_params_add(p, &other, &id));
    CHECK_OK(mr_params_init(p, id, 42, y));
    double both = 0;
    for (int i = 0; i < 10000; i++)
        both += (double)x[i] * y[i] / (0.02 * 0.02) / 10000;
    CHECK_NEAR(both, 0, 0.05);
    square = 0;
    for (int i = 0; i < 10000; i++)
        square += (double)x[i] * x[i];
    CHECK_NEAR(sqrt(square / 10000), 0.02, 0.0006);
    CHECK_OK(mr_params_add(p, &v, &id));
    CHECK_OK(mr_params_init(p, id, 1, x));
    CHECK_NEAR(x[1], -2, 0);
    mr_params_free(p);
}

static void many_names(void)
{
    mr_params *p;
    int id;
    char name[32];
    CHECK_OK(mr_params_new(MR_F32, &p));
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "blocks.%d.weight", i);
        mr_param w = row(name, MR_INIT_ZEROS, 0, 1, (int64_t[]){i % 7 + 1});
        if (mr_params_add(p, &w, &id) != MR_OK || id != i)
            CHECK(!"added in order");
    }
    CHECK_INT(mr_params_find(p, "blocks.1234.weight"), 1234);
    mr_params_free(p);
}

static void failing_memory(void)
{
    for (int i = 1; i < 12; i++) {
        mr_params *p = NULL;
        int id;
        mr_alloc_fail_at(i);
        mr_status st = mr_params_new(MR_F32, &p);
        mr_param w = row("w", MR_INIT_ZEROS, 0, 1, (int64_t[]){4});
        if (st == MR_OK)
            st = mr_params_add(p, &w, &id);
        mr_alloc_fail_at(0);
        CHECK(st == MR_OK || st == MR_E_MEMORY);
        mr_params_free(p);
    }
}

static void impossible_shapes(void)
{
    mr_params *p;
    int id;
    float none[1];
    CHECK_OK(mr_params_new(MR_F32, &p));
    mr_param w = row("w", MR_INIT_ZEROS, 0, 1, (int64_t[]){-4});
    CHECK_FAILS(mr_params_add(p, &w, &id), MR_E_SHAPE, "parameter 'w'");
    w = row("w", MR_INIT_ZEROS, 0, 2, (int64_t[]){(int64_t)1 << 40, (int64_t)1 << 40});
    CHECK_FAILS(mr_params_add(p, &w, &id), MR_E_SHAPE, "too large");
    CHECK_INT(mr_params_count(p), 0);
    // an empty one is a parameter without values
    w = row("empty", MR_INIT_XAVIER, 0, 2, (int64_t[]){0, 4});
    CHECK_OK(mr_params_add(p, &w, &id));
    CHECK_OK(mr_params_init(p, id, 1, none));
    mr_params_free(p);
}

int main(void)
{
    impossible_shapes();
    ranges();
    buckets();
    matrices();
    initial_values();
    many_names();
    failing_memory();
    return check_done();
}
