/* cuda/conv/groups_sm90a: against plain doubles, eager and late, in several orders of blocks: 2-D
 * and 3-D, several tiles of places and columns, channels beyond a piece of 64 and short of it,
 * causal and uneven zeros, strides, groups, the gradient of x. Covers: cuda/conv/groups_sm90a.cuh,
 * cuda/conv/geometry.cuh */
#include "groups_sm90a.cu"
#include "support.h"

static mr_bf16 noise(size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + 977;
    x = (x ^ x >> 15) * 2246822519u;
    return (mr_bf16)mr_pack((float)(int32_t)(x ^ x >> 13) / 2147483648.0f, 0);
}

// y of plain loops: every place of x finds the places of y that it feeds
static std::vector<double> truth(const Conv &c, bool adjoint, const mr_bf16 *from,
                                 const mr_bf16 *packed, const mr_bf16 *bias)
{
    int Og = c.O / c.groups, Cg = c.C / c.groups, K = adjoint ? Og : Cg, N = adjoint ? Cg : Og;
    int64_t places = adjoint ? c.in_places() : c.out_places();
    std::vector<double> all((size_t)(places * N * c.groups));
    const int *o = c.out, *k = c.kernel;
    for (int64_t p = 0; p < c.out_places(); p++)
        for (int tap = 0; tap < c.taps; tap++) {
            int t = (int)(p / o[2] / o[1] % o[0]) * c.stride[0] - c.before[0] + tap / k[2] / k[1];
            int h = (int)(p / o[2] % o[1]) * c.stride[1] - c.before[1] + tap / k[2] % k[1];
            int w = (int)(p % o[2]) * c.stride[2] - c.before[2] + tap % k[2];
            if (t < 0 || t >= c.in[0] || h < 0 || h >= c.in[1] || w < 0 || w >= c.in[2])
                continue;
            int64_t b = p / o[2] / o[1] / o[0];
            int64_t x = ((b * c.in[0] + t) * c.in[1] + h) * c.in[2] + w;
            int64_t to = adjoint ? x : p, source = adjoint ? p : x;
            for (int g = 0; g < c.groups; g++)
                for (int n = 0; n < N; n++)
                    for (int i = 0; i < K; i++)
                        all[(size_t)((to * c.groups + g) * N + n)] +=
                            (double)mr_f32(from[(source * c.groups + g) * K + i]) *
                            (double)mr_f32(packed[(((int64_t)g * c.taps + tap) * N + n) * K + i]);
        }
    for (size_t i = 0; bias && i < all.size(); i++)
        all[i] += (double)mr_f32(bias[i % (size_t)(N * c.groups)]);
    return all;
}

template <bool ADJOINT> static void check(const Conv &c, bool with_bias)
{
    int N = (ADJOINT ? c.C : c.O) / c.groups;
    int64_t sources = (ADJOINT ? c.out_places() * c.O : c.in_places() * c.C);
    int64_t places = ADJOINT ? c.in_places() : c.out_places(), count = places * N * c.groups;
    mr_bf16 *from = device_values<mr_bf16>((size_t)sources, noise);
    mr_bf16 *packed = device_values<mr_bf16>((size_t)(c.O * (c.C / c.groups) * c.taps),
                                             [](size_t i) { return noise(i + 77777); });
    mr_bf16 *bias = with_bias ? device_values<mr_bf16>((size_t)(N * c.groups), noise) : NULL;
    std::vector<double> want = truth(c, ADJOINT, from, packed, bias);
    mr_bf16 *first = NULL;
    for (unsigned seed = 0; seed < 3; seed++) {
        mr_bf16 *to = device_room<mr_bf16>((size_t)count);
        emu::options.seed = seed;
        emu::options.async = seed == 1 ? emu::Async::eager : emu::Async::late;
        emu::forget_reports();
        emu::counts = {};
        MR_LAUNCH((conv_groups<ADJOINT>),
                  dim3((unsigned)((places + CONV_ROWS - 1) / CONV_ROWS),
                       (unsigned)((N + CONV_ROWS - 1) / CONV_ROWS), (unsigned)c.groups),
                  dim3(CONV_THREADS), CONV_SHARED, NULL, (const mr_bf16 *)from,
                  (const mr_bf16 *)packed, (const mr_bf16 *)bias, to, c);
        CHECK_SILENT();
        CHECK(emu::all_written(to, (size_t)count * 2));
        double diff = 0, norm = 0;
        for (int64_t i = 0; i < count; i++) {
            double d = (double)mr_f32(to[i]) - want[(size_t)i];
            diff += d * d, norm += want[(size_t)i] * want[(size_t)i];
        }
        // results are rounded to bf16
        CHECK_NEAR(sqrt(diff / norm), 0, 1.0 / 256);
        CHECK(emu::counts.wavefronts <= emu::counts.ideal_wavefronts);
        if (!first)
            first = to;
        CHECK(memcmp(first, to, (size_t)count * 2) == 0);
    }
    emu::free_all();
}

int main(void)
{
    // B, C, O, groups, taps, in, out, kernel, stride, before
    Conv causal = {1, 72, 136, 1, 6, {2, 9, 8}, {2, 9, 8}, {2, 1, 3}, {1, 1, 1}, {1, 0, 1}};
    check<false>(causal, true);
    check<true>(causal, false);
    Conv strided = {2, 32, 16, 2, 27, {3, 7, 9}, {3, 3, 4}, {3, 3, 3}, {1, 2, 2}, {2, 0, 0}};
    check<false>(strided, false);
    check<true>(strided, false);
    Conv flat = {1, 200, 8, 1, 1, {1, 10, 13}, {1, 10, 13}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}};
    check<false>(flat, true);
    return check_done();
}
