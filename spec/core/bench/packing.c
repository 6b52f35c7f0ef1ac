/* bench: products of linear layers in all forms; a layer that adds gradients packs no weights. */
#include "check.h"
#include "moonreel/bench.h"

int main(void)
{
    mr_bench_linear r;
    for (int form = MR_BENCH_FORWARD; form <= MR_BENCH_DW; form++) {
        CHECK_OK(mr_bench_linear_of((mr_bench_form)form, MR_F32, 1, 64, 48, 32, 0, &r));
        CHECK(r.seconds > 0 && r.how[0]);
        CHECK(form == MR_BENCH_DW ? r.packing_s == 0 : r.packing_s > 0);
    }
    CHECK_FAILS(mr_bench_linear_of(MR_BENCH_DX, MR_F32, 1, 1, 0, 1, 0, &r), MR_E_SHAPE, "0 x 1");
    CHECK_FAILS(mr_bench_linear_of(MR_BENCH_DX, MR_I64, 1, 1, 1, 1, 0, &r), MR_E_UNSUPPORTED,
                "i64");
    for (int64_t n = 1; n <= 5; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_bench_linear_of(MR_BENCH_FORWARD, MR_F32, 1, 64, 64, 64, 0, &r);
        mr_alloc_fail_at(0);
        CHECK(st == MR_E_MEMORY);
    }
    return check_done();
}
