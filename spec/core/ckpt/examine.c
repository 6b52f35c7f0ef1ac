/* ckpt/examine: statistics of a tensor, and bit-for-bit comparison. */
#include "check.h"
#include "ckptcase.h"

int main(void)
{
    char a[600], b[600];
    snprintf(a, sizeof a, "%s/a.safetensors", case_dir("examine"));
    snprintf(b, sizeof b, "%s/b.safetensors", case_dir("examine"));
    static float x[200000];
    for (int i = 0; i < 200000; i++)
        x[i] = (float)(i % 100) - 50;
    x[7] = NAN, x[9] = INFINITY, x[11] = -0.0f;
    uint16_t half[3] = {0x3f80, 0x4000, 0xc000};
    mr_ckpt_item items[] = {
        {.name = "x", .dtype = MR_ST_F32, .rank = 1, .shape = {200000}, .data = x},
        {.name = "h", .dtype = MR_ST_BF16, .rank = 1, .shape = {3}, .data = half},
        {.name = "none", .dtype = MR_ST_F64, .rank = 1, .shape = {0}},
        {.name = "huge",
         .dtype = MR_ST_F64,
         .rank = 1,
         .shape = {2},
         .data = (double[]){1e300, -1e300}},
        {.name = "only_a", .dtype = MR_ST_U8, .rank = 0, .data = "q"}};
    CHECK_OK(mr_safetensors_write(a, items, 5, NULL, 0));
    mr_ckpt *ca, *cb;
    mr_ckpt_stats s;
    CHECK_OK(mr_ckpt_open(a, &ca));
    CHECK_OK(mr_ckpt_stats_of(ca, "x", &s));
    CHECK_INT(s.n, 200000);
    CHECK_INT(s.nonfinite, 2);
    CHECK_INT(s.zeros, 2000 + 1);
    CHECK(s.min == -50 && s.max == 49);
    CHECK_OK(mr_ckpt_stats_of(ca, "h", &s));
    CHECK_NEAR(s.mean, 1.0 / 3, 1e-12);
    CHECK_NEAR(s.rms, sqrt(3), 1e-12);
    CHECK_OK(mr_ckpt_stats_of(ca, "none", &s));
    CHECK(s.n == 0 && s.mean == 0 && s.rms == 0);
    CHECK_OK(mr_ckpt_stats_of(ca, "huge", &s));
    CHECK_NEAR(s.rms / 1e300, 1, 1e-12);
    CHECK_FAILS(mr_ckpt_stats_of(ca, "y", &s), MR_E_RANGE, "no tensor 'y'");

    // one element past the first chunk, one equal by value but not by bits, NaN equal to itself
    x[11] = 0.0f, x[150000] += 0.5f;
    items[1].shape[0] = 2;
    CHECK_OK(mr_safetensors_write(b, items, 4, NULL, 0));
    CHECK_OK(mr_ckpt_open(b, &cb));
    mr_ckpt_delta d;
    CHECK_OK(mr_ckpt_compare(ca, "x", cb, "x", &d));
    CHECK_INT(d.n, 200000);
    CHECK_INT(d.differing, 2);
    CHECK_INT(d.first, 11);
    CHECK(d.max_abs == 0.5);
    CHECK(d.distance == 0.5); // not its square
    CHECK_OK(mr_ckpt_compare(ca, "huge", cb, "huge", &d));
    CHECK(d.differing == 0 && d.first == -1 && d.max_abs == 0);
    CHECK_FAILS(mr_ckpt_compare(ca, "h", cb, "h", &d), MR_E_SHAPE, "another shape or dtype");
    CHECK_FAILS(mr_ckpt_compare(ca, "only_a", cb, "only_a", &d), MR_E_RANGE,
                "b.safetensors: no tensor 'only_a'");
    for (int i = 1; i <= 2; i++) {
        mr_alloc_fail_at(i);
        CHECK_FAILS(mr_ckpt_compare(ca, "x", cb, "x", &d), MR_E_MEMORY, "cannot allocate");
        mr_alloc_fail_at(i);
        CHECK_FAILS(mr_ckpt_stats_of(ca, "x", &s), MR_E_MEMORY, "cannot allocate");
    }
    mr_ckpt_close(ca);
    mr_ckpt_close(cb);
    mr_dir_remove(case_dir("examine"));
    return check_done();
}
