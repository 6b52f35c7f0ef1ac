/* bench: limits are positive, plausible and of the requested dtype. */
#include "check.h"
#include "moonreel/bench.h"

int main(void)
{
    mr_bench_peak peak;
    CHECK_OK(mr_bench_product_peak(MR_F32, 1, 0, &peak));
    CHECK(peak.tflops > 1e-4 && peak.tflops < 100);
    CHECK(peak.m > 0 && peak.n > 0 && peak.k > 0 && peak.how[0]);
    CHECK_FAILS(mr_bench_product_peak(MR_I64, 1, 0, &peak), MR_E_UNSUPPORTED, "i64");

    double rate = 0, tflops = 0;
    for (int own = 0; own < 2; own++) {
        CHECK_OK(mr_bench_product_rate(MR_F32, 1, 64, 48, 32, own, 0, &tflops));
        CHECK(tflops > 1e-5 && tflops < 100);
    }
    CHECK_FAILS(mr_bench_product_rate(MR_F32, 1, 64, 0, 32, false, 0, &tflops), MR_E_SHAPE,
                "64 x 0 x 32");
    CHECK_FAILS(mr_bench_product_rate(MR_I64, 1, 64, 48, 32, false, 0, &tflops), MR_E_UNSUPPORTED,
                "i64");

    CHECK_OK(mr_bench_memory_rate(1, 1, 0, &rate));
    CHECK(rate > 0);
    CHECK_OK(mr_bench_memory_rate(128 << 20, 1, 0, &rate));
    CHECK(rate > 1e8 && rate < 1e13);
    size_t before = mr_bench_max_resident();
    CHECK(before > 128u << 20); // the buffers of the memory rate were touched
    CHECK(mr_bench_resident() > 1u << 20 && mr_bench_resident() < before); // and freed

    // the n-th allocation fails: an error, no crash
    for (int64_t n = 1; n <= 5; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_bench_product_peak(MR_F32, 1, 0, &peak);
        mr_alloc_fail_at(0);
        CHECK(st == MR_E_MEMORY || (n == 5 && st == MR_OK));
    }
    mr_alloc_fail_at(2);
    CHECK_FAILS(mr_bench_product_rate(MR_F32, 1, 64, 48, 32, false, 0, &tflops), MR_E_MEMORY,
                "cannot allocate");
    mr_alloc_fail_at(2);
    CHECK_FAILS(mr_bench_memory_rate(128 << 20, 1, 0, &rate), MR_E_MEMORY, "cannot allocate");
    mr_alloc_fail_at(0);
    return check_done();
}
