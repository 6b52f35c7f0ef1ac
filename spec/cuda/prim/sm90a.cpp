/* cuda/prim/sm90a: products of a warp group over all layouts of an operand, and tensor copies, as
 * the emulator has them, against plain products; sums of blocks in turns. Covers:
 * cuda/prim/sm90a.cuh, cuda/emu/product.cpp, cuda/emu/copy.cpp, cuda/emu/turn.cpp */
#include "sm90a.cu"
#include "support.h"

static mr_bf16 bf16_at(size_t i)
{
    return mr_f32_to_bf16((float)((int)(i * 53 % 97) - 48) / 16);
}

// d [m, n] is `times` a [m, k] b [n, k]^T; sums of multiples of 1/256 below 2^15 are exact in f32
static void compare(const std::vector<float> &d, const std::vector<mr_bf16> &a,
                    const std::vector<mr_bf16> &b, int m, int n, int k, int times)
{
    int wrong = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int l = 0; l < k; l++)
                sum += mr_bf16_to_f32(a[i * k + l]) * mr_bf16_to_f32(b[j * k + l]);
            wrong += d[i * n + j] != times * sum;
        }
    CHECK_INT(wrong, 0);
}

template <int SWIZZLE, int TRANSPOSED> static void layout(void)
{
    mr_bf16 *a = device_values<mr_bf16>(64 * 16, bf16_at),
            *b = device_values<mr_bf16>(16 * 16, bf16_at);
    float *d = device_room<float>(64 * 16);
    emu::forget_reports();
    MR_LAUNCH((one_group_product<SWIZZLE, TRANSPOSED>), dim3(1), dim3(128), 4096, NULL, a, b, d);
    CHECK_SILENT();
    compare(seen(d, 64 * 16), seen(a, 64 * 16), seen(b, 16 * 16), 64, 16, 16, 1);
}

static mr_tensor_map map_of(const mr_bf16 *base, unsigned rows)
{
    const uint64_t all = 128 * rows;
    const mr_cuda_tensor t = {
        base, {64, rows, 1, 1, 1}, {2, 128, all, all, all}, {64, rows, 1, 1, 1}, 128};
    mr_tensor_map map;
    CHECK_INT(mr_cuda.tensor_map(&t, &map), 0);
    return map;
}

template <int TRANSPOSED, int N> static void copies(void)
{
    mr_bf16 *a = device_values<mr_bf16>(64 * 64, bf16_at),
            *b = device_values<mr_bf16>(N * 64, bf16_at);
    // what the products see
    const auto given = seen(a, 64 * 64);
    auto left = given;
    for (int i = 0; i < 64 * 64; i++)
        left[i] = given[TRANSPOSED ? i % 64 * 64 + i / 64 : i];
    float *d = device_room<float>(64 * N);
    emu::forget_reports();
    MR_LAUNCH((tiles<TRANSPOSED, N>), dim3(1), dim3(128), 8192 + N * 128 + 8, NULL, map_of(a, 64),
              map_of(b, N), d);
    CHECK_SILENT();
    compare(seen(d, 64 * N), left, seen(b, N * 64), 64, N, 64, 2);
}

// numbers whose sum depends on their order, by more blocks than are there at once
static void turns(unsigned seed)
{
    enum { BLOCKS = 9 };
    uint32_t *words = device_values<uint32_t>(2, [](size_t) { return 0u; });
    float *values = device_values<float>(BLOCKS * 4, [](size_t i) {
        return ldexpf(1 + (float)(i % 5) / 8, (int)(i * 11 % 31)) * (i % 3 ? 1 : -1);
    });
    float *sums = device_values<float>(32 * 4, [](size_t) { return 0.0f; });
    emu::options.seed = seed;
    emu::forget_reports();
    MR_LAUNCH(sum_in_turns, dim3(BLOCKS), dim3(32), 16, NULL, words, values, sums);
    CHECK_SILENT();
    const auto given = seen(values, BLOCKS * 4), got = seen(sums, 32 * 4);
    CHECK_INT(seen(words, 2)[0], BLOCKS);
    int wrong = 0;
    for (int i = 0; i < 32 * 4; i++) {
        float sum = 0;
        for (int b = 0; b < BLOCKS; b++)
            sum += given[b * 4 + i % 4];
        wrong += got[i] != sum;
    }
    CHECK_INT(wrong, 0);
}

// every bf16, and what is halfway between two of them: all there is to round
// of sm80.cuh, and an instruction from sm_89 on
static void eight_bits(void)
{
    enum { N = 1 << 17 };
    float *x = device_values<float>(N, [](size_t i) {
        uint32_t bits = (uint32_t)i << 15;
        float v;
        memcpy(&v, &bits, sizeof v);
        return v;
    });
    uint32_t *e4m3_at = device_room<uint32_t>(N / 2), *e5m2_at = device_room<uint32_t>(N / 2);
    emu::forget_reports();
    MR_LAUNCH(bytes, dim3(N / 512), dim3(256), 0, NULL, x, e4m3_at, e5m2_at);
    CHECK_SILENT();
    const auto values = seen(x, N);
    const auto e4m3 = seen(e4m3_at, N / 2), e5m2 = seen(e5m2_at, N / 2);
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        int at = i % 2 * 8;
        wrong += (e4m3[i / 2] >> at & 255) != mr_f32_to_f8(MR_F8_E4M3, values[i]);
        wrong += (e5m2[i / 2] >> at & 255) != mr_f32_to_f8(MR_F8_E5M2, values[i]);
    }
    CHECK_INT(wrong, 0);
    // the first of a pair is the low byte
    CHECK_INT(e4m3[0x3F80] >> 8 & 255, mr_f32_to_f8(MR_F8_E4M3, values[0x7F01]));
}

int main(void)
{
    for (unsigned seed = 0; seed < 8; seed++)
        turns(seed);
    for (emu::Async async : {emu::Async::eager, emu::Async::late}) {
        emu::options.async = async;
        layout<MR_SWIZZLE_NONE, 0>();
        layout<MR_SWIZZLE_128, 0>();
        layout<MR_SWIZZLE_64, 0>();
        layout<MR_SWIZZLE_32, 0>();
        layout<MR_SWIZZLE_NONE, 1>();
        layout<MR_SWIZZLE_128, 1>();
        layout<MR_SWIZZLE_64, 1>();
        layout<MR_SWIZZLE_32, 1>();
        copies<0, 128>();
        copies<1, 128>();
        copies<1, 64>();
        copies<1, 16>();
    }
    eight_bits();
    return check_done();
}
