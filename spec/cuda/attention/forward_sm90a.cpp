/* cuda/attention/forward_sm90a: against plain doubles, eager and late, in several orders of blocks:
 * one and several tiles of queries and keys, tails, key lengths of 0, in a tile and at its end,
 * each number of columns, q, k and v that lie in one tensor. Covers:
 * cuda/attention/forward_sm90a.cuh */
#include "forward_sm90a.cu"
#include "support.h"
#include <initializer_list>

struct Shape {
    int B, G, N, M, h, d;
    std::vector<int> len;
};

static mr_bf16 noise(size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + 12345;
    x = (x ^ x >> 15) * 2246822519u;
    return (mr_bf16)mr_pack((float)(int32_t)(x ^ x >> 13) / 2147483648.0f * 2, 0);
}

// tokens lie `step` elements apart
static HeadMaps maps_of(const mr_bf16 *p, const Shape &n, int tokens, int64_t step)
{
    HeadMaps m;
    m.wide = {p,
              4,
              {(uint64_t)n.d, (uint64_t)n.h, (uint64_t)tokens, (uint64_t)(n.B * n.G)},
              {2, (uint64_t)n.d * 2, (uint64_t)step * 2, (uint64_t)(step * tokens) * 2},
              {64, 1, 128, 1},
              128,
              2};
    m.rest = m.wide;
    m.rest.box[0] = 16;
    m.rest.swizzle = 32;
    return m;
}

struct Case {
    const mr_bf16 *q, *k, *v;
    int64_t step;
    std::vector<double> o, lse; // the truth
};

static double dot(const mr_bf16 *a, const mr_bf16 *b, int d)
{
    double sum = 0;
    for (int i = 0; i < d; i++)
        sum += (double)mr_f32(a[i]) * (double)mr_f32(b[i]);
    return sum;
}

static void truth(const Shape &n, Case &c, double scale)
{
    std::vector<double> p(n.M);
    for (int s = 0; s < n.B * n.G; s++)
        for (int h = 0; h < n.h; h++)
            for (int i = 0; i < n.N; i++) {
                int keys = n.len.empty() ? n.M : n.len[s / n.G];
                double most = -INFINITY, sum = 0;
                for (int j = 0; j < keys; j++) {
                    p[j] = scale * dot(c.q + ((int64_t)s * n.N + i) * c.step + h * n.d,
                                       c.k + ((int64_t)s * n.M + j) * c.step + h * n.d, n.d);
                    most = fmax(most, p[j]);
                }
                for (int j = 0; j < keys; j++)
                    sum += p[j] = exp(p[j] - most);
                for (int e = 0; e < n.d; e++) {
                    double o = 0;
                    for (int j = 0; j < keys; j++)
                        o += p[j] *
                             (double)mr_f32(c.v[((int64_t)s * n.M + j) * c.step + h * n.d + e]);
                    c.o[(((int64_t)s * n.N + i) * n.h + h) * n.d + e] = keys ? o / sum : 0;
                }
                c.lse[((int64_t)s * n.h + h) * n.N + i] = keys ? most + log(sum) : -INFINITY;
            }
}

static double error(const std::vector<double> &want, const double *got)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < want.size(); i++) {
        if (isinf(want[i]) && want[i] == got[i])
            continue;
        diff += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return diff == 0 ? 0 : sqrt(diff / fmax(norm, 1e-30));
}

template <int D> static void check(const Shape &n)
{
    size_t outputs = (size_t)n.B * n.G * n.N * n.h * n.d, rows = (size_t)n.B * n.G * n.N * n.h;
    int S = n.N > n.M ? n.N : n.M;
    Case c;
    c.step = 3 * n.h * n.d;
    mr_bf16 *joint = device_values<mr_bf16>((size_t)n.B * n.G * S * c.step, noise);
    c.q = joint;
    c.k = joint + n.h * n.d;
    c.v = joint + 2 * n.h * n.d;
    c.o.resize(outputs);
    c.lse.resize(rows);
    double scale = 1 / sqrt((double)n.d);
    truth(n, c, scale);
    int32_t *len = NULL;
    if (!n.len.empty())
        len = device_values<int32_t>(n.len.size(), [&](size_t i) { return n.len[i]; });

    const mr_bf16 *first = NULL;
    for (unsigned seed = 0; seed < 2; seed++)
        for (emu::Async async : {emu::Async::eager, emu::Async::late}) {
            if (seed == 0 && async == emu::Async::late)
                continue;
            mr_bf16 *o = device_room<mr_bf16>(outputs);
            float *lse = device_room<float>(rows);
            GroupAttention p = {
                n.G,       n.N, n.M, n.h, n.d, (float)scale, len, o, (int64_t)n.N * n.h * n.d,
                n.h * n.d, n.d, lse};
            HeadMaps q = maps_of(c.q, n, n.N, c.step), k = maps_of(c.k, n, n.M, c.step),
                     v = maps_of(c.v, n, n.M, c.step);
            emu::options.seed = seed;
            emu::options.async = async;
            emu::forget_reports();
            MR_LAUNCH((attention_forward_groups<D>),
                      dim3((n.N + GROUP_ROWS - 1) / GROUP_ROWS, n.h, n.B * n.G),
                      dim3(GROUP_THREADS), GroupForward<D>::SHARED, NULL, q, k, v, p);
            CHECK_SILENT();
            CHECK(emu::all_written(o, outputs * 2));
            CHECK(emu::all_written(lse, rows * 4));
            std::vector<double> got_o(outputs), got_lse(rows);
            for (size_t i = 0; i < outputs; i++)
                got_o[i] = mr_f32(o[i]);
            for (size_t i = 0; i < rows; i++)
                got_lse[i] = lse[i];
            // probabilities and results are rounded to bf16
            CHECK_NEAR(error(c.o, got_o.data()), 0, 1.0 / 256);
            CHECK_NEAR(error(c.lse, got_lse.data()), 0, 2e-6);
            if (!first)
                first = o;
            CHECK(memcmp(first, o, outputs * 2) == 0);
        }
    emu::free_all();
}

int main(void)
{
    check<64>({1, 1, 128, 128, 1, 64, {}});
    check<80>({3, 1, 70, 300, 1, 72, {300, 0, 129}});
    check<80>({1, 2, 130, 40, 2, 80, {33}});
    check<128>({1, 1, 65, 520, 1, 128, {512}});
    return check_done();
}
