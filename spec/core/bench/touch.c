/* mr_bench_touch: all of the memory is written, by any number of threads. Licence: Apache-2.0 */
#include "check.h"
#include "moonreel/bench.h"

int main(void)
{
    enum { BYTES = 24 << 20 };
    static const int threads[] = {0, 1, 3, 1000};
    double seconds;
    for (size_t i = 0; i < MR_COUNT(threads); i++) {
        seconds = 0;
        CHECK_OK(mr_bench_touch(BYTES, threads[i], &seconds));
        CHECK(seconds > 0);
    }
    // it was resident at the same time, and is freed
    CHECK(mr_bench_max_resident() >= BYTES);
    CHECK(mr_bench_resident() < mr_bench_max_resident() - BYTES / 2);
    CHECK_FAILS(mr_bench_touch((int64_t)1 << 60, 2, &seconds), MR_E_MEMORY, "");
    return check_done();
}
