/* comm/sum: sums go in the order of ranks and are rounded once. Blocks and tails of all dtypes are
 * in spec/core/comm/collective.c. */
#include "comm/room.h"
#include "check.h"

int main(void)
{
    // in another order, or in f64, each of these is another number
    float a[600], b[600], c[600], out[600];
    for (int i = 0; i < 600; i++)
        a[i] = 1e8f, b[i] = 3, c[i] = -1e8f;
    comm_sum(MR_COMM_SUM, MR_F32, (const void *const[]){a, b, c}, 3, 600, MR_F32, out);
    CHECK_NEAR(out[0], 0, 0);
    CHECK_NEAR(out[599], 0, 0);
    comm_sum(MR_COMM_SUM, MR_F32, (const void *const[]){a, c, b}, 3, 600, MR_F32, out);
    CHECK_NEAR(out[599], 3, 0);
    // contributions of 1/256 vanish when bf16 is rounded after each
    uint16_t x[1] = {mr_f32_to_bf16(1)}, y[1] = {mr_f32_to_bf16(0.00390625f)}, sum[1];
    comm_sum(MR_COMM_SUM, MR_BF16, (const void *const[]){x, y, y, y}, 4, 1, MR_BF16, sum);
    CHECK_NEAR(mr_bf16_to_f32(sum[0]), 1.015625, 0);
    // integers wrap around
    int64_t big[1] = {INT64_MAX}, one[1] = {1}, wrapped[1];
    comm_sum(MR_COMM_SUM, MR_I64, (const void *const[]){big, one}, 2, 1, MR_I64, wrapped);
    CHECK(wrapped[0] == INT64_MIN);
    CHECK_FAILS(comm_can_sum(MR_U8, MR_U8), MR_E_USAGE, "u8 has no sum over ranks");
    CHECK_FAILS(comm_can_sum(MR_F32, MR_I32), MR_E_USAGE, "f32 cannot return i32; try: f32");
    CHECK_OK(comm_can_sum(MR_BF16, MR_F32));
    CHECK_STR(mr_comm_kind_name(MR_COMM_MAX), "max");
    CHECK_STR(mr_comm_kind_name(MR_COMM_KIND_COUNT), "?");
    return check_done();
}
