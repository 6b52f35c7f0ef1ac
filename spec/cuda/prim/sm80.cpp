/* cuda/prim/sm80: each instruction of the emulator compared with plain arithmetic.
 * Covers: cuda/prim/sm80.cuh, cuda/emu/product.cpp, cuda/emu/copy.cpp */
#include "sm80.cu"
#include "support.h"

static mr_bf16 bf16_at(size_t i)
{
    return mr_f32_to_bf16((float)((int)(i * 37 % 101) - 50) / 16);
}

template <int K> static void product(void)
{
    mr_bf16 *a = device_values<mr_bf16>(16 * K, bf16_at),
            *b = device_values<mr_bf16>(K * 8, bf16_at);
    float *d = device_room<float>(16 * 8);
    emu::forget_reports();
    MR_LAUNCH((one_product<K>), dim3(1), dim3(32), 1024, NULL, a, b, d);
    CHECK_SILENT();
    const auto left = seen(a, 16 * K), right = seen(b, K * 8);
    const auto got = seen(d, 16 * 8);
    // inputs are multiples of 1/16 below 4, so sums of 16 products are exact in f32
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += mr_bf16_to_f32(left[m * K + k]) * mr_bf16_to_f32(right[k * 8 + n]);
            CHECK_NEAR(got[m * 8 + n], sum, 0);
        }
}

static void rounding(void)
{
    const float values[64] = {1, 1.00390625f, 1.01171875f, -1.00390625f, 3.4e38f, -0.0f, NAN, 0.1f};
    float *x = device_values<float>(64, [&](size_t i) { return values[i]; });
    uint32_t *pairs_at = device_room<uint32_t>(32);
    float *powers_at = device_room<float>(32), *parts_at = device_room<float>(32);
    emu::forget_reports();
    MR_LAUNCH(conversions, dim3(1), dim3(32), 0, NULL, x, pairs_at, powers_at, parts_at);
    CHECK_SILENT();
    const auto pairs = seen(pairs_at, 32);
    const auto powers = seen(powers_at, 32), parts = seen(parts_at, 32);
    // ties round to even
    CHECK_INT(pairs[0], 0x3F803F80);
    CHECK_INT(pairs[1], 0xBF803F82);
    CHECK_INT(pairs[2], 0x80007F80);
    CHECK_INT(pairs[3] >> 16, 0x3DCD);
    CHECK(std::isnan(mr_bf16_to_f32((uint16_t)pairs[3])));
    CHECK_NEAR(powers[0], 2, 0);
    CHECK_NEAR(powers[7], 1.0717734625, 1e-6);
    CHECK_NEAR(parts[3], -0.99610895, 2e-7);
    CHECK_NEAR(parts[7], 10, 2e-6);
}

static void zero_fill(int bytes)
{
    float *x = device_values<float>(128, [](size_t i) { return (float)i + 1; });
    float *y = device_room<float>(128);
    emu::forget_reports();
    MR_LAUNCH(short_copy, dim3(1), dim3(32), 512, NULL, x, y, bytes);
    CHECK_SILENT();
    const auto got = seen(y, 128);
    for (int i = 0; i < 128; i++)
        CHECK_NEAR(got[i], i % 4 * 4 < bytes ? i + 1 : 0, 0);
}

int main(void)
{
    for (emu::Async async : {emu::Async::eager, emu::Async::late}) {
        emu::options.async = async;
        int before = check_failed;
        product<8>();
        product<16>();
        depends(before, "cp.async, ldmatrix, mma.m16n8k16 and m16n8k8",
                "attention_forward, attention_dq, attention_dkv, attention_short, conv_tiles, "
                "conv_dw_tiles");
        before = check_failed;
        zero_fill(0);
        zero_fill(8);
        zero_fill(16);
        depends(before, "cp.async with zeros", "all of these, conv_groups, conv_dw_groups");
    }
    const int before = check_failed;
    rounding();
    depends(before, "cvt.rn.bf16x2, ex2.approx, rcp.approx", "all that stores bf16; attention");
    return check_done();
}
