/* cuda/prim/sm90a: warp-group products over all operand layouts, and TMA copies, as the emulator
 * runs them, compared with plain products, in every form that kernels use; each line names these
 * kernels. Also sums of blocks in turns, registers of groups, barriers. Covers:
 * cuda/prim/sm90a.cuh, cuda/emu/product.cpp, cuda/emu/copy.cpp, cuda/emu/turn.cpp */
#include "cuda/kernels/kernel_call.h"
#include "sm90a.cu"
#include "support.h"

static mr_bf16 bf16_at(size_t i)
{
    return mr_f32_to_bf16((float)((int)(i * 53 % 97) - 48) / 16);
}

// d [m, n] is `times` * a [m, k] b [n, k]^T; inputs are multiples of 1/16 with small sums, exact in
// f32
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

// a map of rows of `columns` elements; boxes have `box_rows` rows and as many columns as the
// swizzle is wide
static mr_tensor_map map_of(const mr_bf16 *base, unsigned rows, unsigned columns, unsigned box_rows,
                            unsigned width)
{
    const uint64_t row = 2 * columns, all = row * rows;
    const mr_cuda_tensor t = {base,
                              {columns, rows, 1, 1, 1},
                              {2, row, all, all, all},
                              {width / 2, box_rows, 1, 1, 1},
                              (int)width};
    mr_tensor_map map;
    CHECK_INT(mr_cuda.tensor_map(&t, &map), 0);
    return map;
}

// x [rows, columns] transposed
static std::vector<mr_bf16> turned(const std::vector<mr_bf16> &x, int rows, int columns)
{
    std::vector<mr_bf16> out(x.size());
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            out[j * rows + i] = x[i * columns + j];
    return out;
}

template <int N, int K, int A, int A_SWIZZLE, int B_TRANSPOSED, int B_SWIZZLE>
static void product(const char *kernels)
{
    typedef Form<N, K, A, A_SWIZZLE, B_TRANSPOSED, B_SWIZZLE> F;
    const int before = check_failed;
    mr_bf16 *a = device_values<mr_bf16>(F::ROWS * K, bf16_at),
            *b = device_values<mr_bf16>(N * K, bf16_at);
    float *d = device_room<float>(F::ROWS * N);
    mr_cuda_shared(form<N, K, A, A_SWIZZLE, B_TRANSPOSED, B_SWIZZLE>, F::SHARED);
    emu::forget_reports();
    MR_LAUNCH((form<N, K, A, A_SWIZZLE, B_TRANSPOSED, B_SWIZZLE>), dim3(1), dim3(256), F::SHARED,
              NULL, map_of(a, F::A_ROWS, F::A_COLUMNS, F::A_ROWS, F::A_WIDTH),
              map_of(b, F::B_ROWS, F::B_COLUMNS, F::B_ROWS, F::B_WIDTH), a, d);
    CHECK_SILENT();
    auto left = seen(a, F::ROWS * K), right = seen(b, N * K);
    if (A == A_M_MAJOR)
        left = turned(left, K, F::ROWS);
    if (B_TRANSPOSED)
        right = turned(right, K, N);
    compare(seen(d, F::ROWS * N), left, right, F::ROWS, N, K, 2);
    char what[80];
    snprintf(what, sizeof what, "m64n%dk%d, a %s/%d, b %s/%d", N, K,
             A == A_REGISTERS ? "registers"
             : A == A_K_MAJOR ? "K-major"
                              : "M-major",
             F::A_WIDTH, B_TRANSPOSED ? "N-major" : "K-major", F::B_WIDTH);
    depends(before, what, kernels);
}

// on a GPU more blocks than can run at once, so that barriers reuse memory of earlier blocks
static void first_copies(void)
{
#ifdef __CUDACC__
    enum { BLOCKS = 2000, ROWS = 64 };
#else
    enum { BLOCKS = 20, ROWS = 64 };
#endif
    const int before = check_failed;
    mr_bf16 *x = device_values<mr_bf16>(ROWS * 64, [](size_t i) { return (mr_bf16)i; });
    uint32_t *out = device_room<uint32_t>(BLOCKS * 128);
    emu::forget_reports();
    MR_LAUNCH(first_copy, dim3(BLOCKS), dim3(128), 520, NULL, map_of(x, ROWS, 64, 4, 128), out);
    CHECK_SILENT();
    const auto got = seen(out, BLOCKS * 128);
    int wrong = 0;
    for (unsigned i = 0; i < BLOCKS * 128; i++) {
        // rows of 128 bytes, with 16-byte pieces permuted by the swizzle
        unsigned word = i % 128, row = word / 32, piece = word / 4 % 8 ^ row;
        unsigned value = (i / 128 % 16 * 4 + row) * 64 + piece * 8 + word % 4 * 2;
        wrong += got[i] != (value | (value + 1) << 16);
    }
    CHECK_INT(wrong, 0);
    depends(before, "mbarrier.init, fence.proxy.async, a copy",
            "attention_forward_groups, attention_whole_groups, attention_turns_groups");
}

template <int FEWER, int MORE> static void registers_pass(const char *kernels)
{
    const int before = check_failed;
    float *x = device_values<float>(256 * 192, [](size_t i) { return (float)i; });
    float *out = device_room<float>(256 * 192);
    emu::forget_reports();
    MR_LAUNCH((registers<FEWER, MORE>), dim3(1), dim3(384), 0, NULL, x, out);
    CHECK_SILENT();
    const auto got = seen(out, 256 * 192);
    int wrong = 0;
    for (int i = 0; i < 256 * 192; i++)
        wrong += got[i] != (float)((191 - i % 192) * 256 + i / 192);
    CHECK_INT(wrong, 0);
    char what[80];
    snprintf(what, sizeof what, "setmaxnreg.dec %d, setmaxnreg.inc %d", FEWER, MORE);
    depends(before, what, kernels);
}

static void ping_pongs(void)
{
    enum { ROUNDS = 40 };
    const int before = check_failed;
    auto value = [](size_t i) { return (float)(i * 7 % 11); };
    float *x = device_values<float>(2 * ROUNDS, value), *sum = device_room<float>(128);
    emu::forget_reports();
    MR_LAUNCH(ping_pong, dim3(1), dim3(256), 512, NULL, x, sum, (int)ROUNDS);
    CHECK_SILENT();
    float expected = 0;
    for (int i = 0; i < 2 * ROUNDS; i++)
        expected = expected * 0.5f + value(i);
    int wrong = 0;
    for (float got : seen(sum, 128))
        wrong += got != expected;
    CHECK_INT(wrong, 0);
    depends(before, "bar.sync and bar.arrive by name, in turns", "attention_forward_groups");
}

// values whose sum depends on their order, with more blocks than run at once
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

// every bf16, and every midpoint between two of them: all cases of rounding in the code of
// sm80.cuh, and in an instruction from sm_89 on
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
    // the first of a pair is in the low byte
    CHECK_INT(e4m3[0x3F80] >> 8 & 255, mr_f32_to_f8(MR_F8_E4M3, values[0x7F01]));
}

#define MR_PRODUCT(n, k, a, swizzle_a, transposed, swizzle_b, kernels)                             \
    product<n, k, a, swizzle_a, transposed, swizzle_b>(kernels);

int main(void)
{
    int before = check_failed;
    for (unsigned seed = 0; seed < 8; seed++)
        turns(seed);
    depends(before, "atom.add, ld.acquire, st.release, red.add.v4", "attention_turns_groups");
    for (emu::Async async : {emu::Async::eager, emu::Async::late}) {
        emu::options.async = async;
        before = check_failed;
        layout<MR_SWIZZLE_NONE, 0>();
        layout<MR_SWIZZLE_128, 0>();
        layout<MR_SWIZZLE_64, 0>();
        layout<MR_SWIZZLE_32, 0>();
        layout<MR_SWIZZLE_NONE, 1>();
        layout<MR_SWIZZLE_128, 1>();
        layout<MR_SWIZZLE_64, 1>();
        layout<MR_SWIZZLE_32, 1>();
        depends(before, "operands stored by threads, all swizzles",
                "conv_groups, conv_dw_groups; ds of attention_whole_groups, _turns_groups");
        MR_FORMS(MR_PRODUCT)
        first_copies();
        registers_pass<24, 240>("attention_forward_groups; gradients of 128 columns");
        registers_pass<40, 232>("attention_whole_groups, _turns_groups, to 80 columns");
        ping_pongs();
    }
    before = check_failed;
    eight_bits();
    depends(before, "cvt to e4m3x2 and e5m2x2", "quantise_f8, cast");
    return check_done();
}
