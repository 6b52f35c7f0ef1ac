/* Statistics of many values: dense and strided views, values that are not finite, ranges as wide as
 * f64. */
#include "check.h"
#include "moonreel/tensor.h"

#include <float.h>
#include <math.h>

static float values[40000];

int main(void)
{
    // more than one chunk, one value of each kind
    for (int i = 0; i < 40000; i++)
        values[i] = (float)(i % 5);
    values[17] = INFINITY, values[39999] = NAN;
    int64_t n = 40000, grid[2] = {200, 200};
    mr_view flat = {values, mr_desc_dense(MR_F32, 1, &n)};
    mr_summary s = {0};
    CHECK_OK(mr_view_summary(&flat, &s));
    CHECK_INT(s.n, 40000);
    CHECK_INT(s.nonfinite, 2);
    CHECK_INT(s.zeros, 8000);
    CHECK(s.min == 0 && s.max == 4);
    CHECK(fabs(mr_summary_mean(&s) - (80000.0 - 2 - 4) / 39998) < 1e-12);

    // a column of the grid has only its own values
    mr_view two = {values, mr_desc_dense(MR_F32, 2, grid)};
    mr_desc column;
    int64_t at = 0;
    CHECK_OK(mr_desc_slice(&two.desc, 1, 1, 2, &column, &at));
    mr_view v = {values + at, column};
    mr_summary c = {0};
    CHECK_OK(mr_view_summary(&v, &c));
    CHECK(c.n == 200 && c.min == 1 && c.max == 1 && mr_summary_rms(&c) == 1);

    int64_t counts[5] = {0};
    CHECK_OK(mr_view_histogram(&flat, 0, 4, 5, counts));
    CHECK_INT(counts[0], 8000);
    CHECK_INT(counts[0] + counts[1] + counts[2] + counts[3] + counts[4], 39998);
    // the whole range of f64 has a finite width
    double wide[3] = {-DBL_MAX, 0, DBL_MAX};
    int64_t three = 3, halves[2] = {0};
    mr_view w = {wide, mr_desc_dense(MR_F64, 1, &three)};
    CHECK_OK(mr_view_histogram(&w, -DBL_MAX, DBL_MAX, 2, halves));
    CHECK(halves[0] == 1 && halves[1] == 2);
    CHECK_FAILS(mr_view_histogram(&w, 0, INFINITY, 2, halves), MR_E_USAGE, "finite range");
    CHECK_FAILS(mr_view_histogram(&w, 0, 1, 0, halves), MR_E_USAGE, "0 bins");

    // in each dtype, at each place of a row
    double bad[3] = {INFINITY, -INFINITY, NAN};
    const mr_dtype floats[3] = {MR_F64, MR_F32, MR_BF16};
    for (int k = 0; k < 3; k++)
        for (int64_t at = 0; at < 37; at++) {
            double x[37] = {0, -0.0, 1, -1, 6e4, -6e4, 6e-8, -6e-8};
            char row[37 * 8];
            int64_t n37 = 37;
            mr_view from = {x, mr_desc_dense(MR_F64, 1, &n37)};
            mr_view to = {row, mr_desc_dense(floats[k], 1, &n37)};
            CHECK_OK(mr_view_copy(&to, &from));
            CHECK_INT(mr_nonfinite(row, floats[k], 37), 0);
            x[at] = bad[at % 3];
            CHECK_OK(mr_view_copy(&to, &from));
            CHECK_INT(mr_nonfinite(row, floats[k], 37), 1);
            CHECK_INT(mr_nonfinite(row, floats[k], at), 0);
        }
    int32_t ones[2] = {-1, 0x7f800000};
    CHECK_INT(mr_nonfinite(ones, MR_I32, 2), 0);

    mr_alloc_fail_at(1);
    CHECK_FAILS(mr_view_summary(&flat, &s), MR_E_MEMORY, "cannot allocate");
    mr_interrupt_set(true);
    CHECK_FAILS(mr_view_summary(&flat, &s), MR_E_STOPPED, "stopped");
    mr_interrupt_set(false);
    return check_done();
}
