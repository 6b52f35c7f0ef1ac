// See plain.h. These kernels use nothing of cuda/kernels. The emulator does not instrument them, so
// they report their writes to it.
#include "plain.h"
#include "cuda/prim/kernel.cuh"
#include "moonreel/f8_inline.h"
#include "device.h"
#include <math.h>
#include <string.h>
#include <vector>

enum { THREADS = 128, BLOCKS = 1024 };

MR_DEVICE float value(const void *p, mr_dtype dtype, int64_t i)
{
    if (dtype == MR_F8_E4M3 || dtype == MR_F8_E5M2)
        return mr_f8_value(((const uint8_t *)p)[i], dtype == MR_F8_E4M3 ? 3 : 2);
    return dtype == MR_BF16 ? mr_f32(((const mr_bf16 *)p)[i]) : ((const float *)p)[i];
}

// this thread's first element, and the number of all threads
MR_DEVICE int64_t first()
{
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

MR_DEVICE int64_t all_threads()
{
    return (int64_t)gridDim.x * THREADS;
}

static dim3 blocks_of(int64_t n)
{
    int64_t blocks = (n + THREADS - 1) / THREADS, most = BLOCKS;
    return dim3((unsigned)(blocks < most ? blocks : most));
}

// ---- inputs and comparison ----

__global__ void draw(void *at, mr_dtype dtype, int64_t n, uint64_t seed, float lo, float hi)
{
    for (int64_t i = first(); i < n; i += all_threads()) {
        uint64_t z = seed + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        float x = lo + (hi - lo) * (float)(z >> 40) / 16777216.0f;
        if (dtype == MR_F32) {
            ((float *)at)[i] = x;
            continue;
        }
        if (dtype == MR_F64) {
            ((double *)at)[i] = x;
            continue;
        }
        if (dtype != MR_BF16) {
            ((uint8_t *)at)[i] = mr_f8_of(x, dtype == MR_F8_E4M3 ? 3 : 2);
            continue;
        }
        // truncated, not rounded: any value will do
        uint32_t bits;
        memcpy(&bits, &x, 4);
        ((mr_bf16 *)at)[i] = (mr_bf16)(bits >> 16);
    }
}

__global__ void differences(const void *got, mr_dtype dtype, const float *want, int64_t n,
                            plain_sums *sums)
{
    plain_sums s = {0, 0, 0, -1};
    for (int64_t i = first(); i < n; i += all_threads()) {
        double w = want[i], e = value(got, dtype, i) - w;
        s.off += e * e;
        s.size += w * w;
        // NaN stays
        if (!(fabs(e) <= s.most) && s.most == s.most) {
            s.most = fabs(e);
            s.place = i;
        }
    }
    sums[first()] = s;
}

void plain_draw(void *at, mr_dtype dtype, int64_t n, uint64_t seed, double lo, double hi)
{
    MR_LAUNCH(draw, blocks_of(n), dim3(THREADS), 0, NULL, at, dtype, n, seed, (float)lo, (float)hi);
    device_wrote(at, (size_t)n * mr_dtype_bytes(dtype));
}

plain_sums plain_differences(const void *got, mr_dtype dtype, const float *want, int64_t n)
{
    dim3 grid = blocks_of(n);
    std::vector<plain_sums> each((size_t)grid.x * THREADS);
    plain_sums *there = (plain_sums *)device_alloc(each.size() * sizeof(plain_sums));
    MR_LAUNCH(differences, grid, dim3(THREADS), 0, NULL, got, dtype, want, n, there);
    device_get(each.data(), there, each.size() * sizeof(plain_sums));
    plain_sums all = {0, 0, 0, -1};
    for (const plain_sums &s : each) {
        all.off += s.off;
        all.size += s.size;
        if (!(s.most <= all.most) && all.most == all.most) {
            all.most = s.most;
            all.place = s.place;
        }
    }
    return all;
}

// ---- attention: scale 1 / sqrt(d), every key exists, heads of one width ----

struct Heads {
    const void *q, *k, *v, *o, *dy;
    const float *lse;
    mr_dtype dtype;
    int N, M, h, d;
};

MR_DEVICE float dot(const Heads &x, const void *a, int64_t row, const void *b, int64_t other)
{
    float sum = 0;
    for (int c = 0; c < x.d; c++)
        sum += value(a, x.dtype, row * x.d + c) * value(b, x.dtype, other * x.d + c);
    return sum;
}

// index of the row of query i or key j of a head in [B, G, N, h, d]; blockIdx.y counts B, G, h
MR_DEVICE int64_t query(const Heads &x, int i)
{
    return ((int64_t)(blockIdx.y / x.h) * x.N + i) * x.h + blockIdx.y % x.h;
}

MR_DEVICE int64_t key(const Heads &x, int j)
{
    return ((int64_t)(blockIdx.y / x.h) * x.M + j) * x.h + blockIdx.y % x.h;
}

// p and ds of a query and a key
MR_DEVICE void slope(const Heads &x, int i, int j, float dots, float *p, float *ds)
{
    float scale = 1 / sqrtf((float)x.d);
    *p = expf(dot(x, x.q, query(x, i), x.k, key(x, j)) * scale -
              x.lse[(int64_t)blockIdx.y * x.N + i]);
    *ds = *p * (dot(x, x.dy, query(x, i), x.v, key(x, j)) - dots) * scale;
}

// one block per query
__global__ void slopes_of_queries(Heads x, float *dq)
{
    MR_SHARED(memory);
    float *ds = (float *)memory, p;
    int i = (int)blockIdx.x;
    float dots = dot(x, x.dy, query(x, i), x.o, query(x, i));
    for (int j = (int)threadIdx.x; j < x.M; j += THREADS)
        slope(x, i, j, dots, &p, &ds[j]);
    __syncthreads();
    for (int c = (int)threadIdx.x; c < x.d; c += THREADS) {
        double sum = 0;
        for (int j = 0; j < x.M; j++)
            sum += (double)ds[j] * value(x.k, x.dtype, key(x, j) * x.d + c);
        dq[query(x, i) * x.d + c] = (float)sum;
    }
}

// one block per key
__global__ void slopes_of_keys(Heads x, float *dk, float *dv)
{
    MR_SHARED(memory);
    float *ds = (float *)memory, *p = ds + x.N;
    int j = (int)blockIdx.x;
    for (int i = (int)threadIdx.x; i < x.N; i += THREADS)
        slope(x, i, j, dot(x, x.dy, query(x, i), x.o, query(x, i)), &p[i], &ds[i]);
    __syncthreads();
    for (int c = (int)threadIdx.x; c < x.d; c += THREADS) {
        double of_key = 0, of_value = 0;
        for (int i = 0; i < x.N; i++) {
            of_key += (double)ds[i] * value(x.q, x.dtype, query(x, i) * x.d + c);
            of_value += (double)p[i] * value(x.dy, x.dtype, query(x, i) * x.d + c);
        }
        dk[key(x, j) * x.d + c] = (float)of_key;
        dv[key(x, j) * x.d + c] = (float)of_value;
    }
}

// o and log-sum; one block per query
__global__ void averages(Heads x, float *o, float *lse)
{
    MR_SHARED(memory);
    float *score = (float *)memory, scale = 1 / sqrtf((float)x.d), most = -INFINITY;
    int i = (int)blockIdx.x;
    for (int j = (int)threadIdx.x; j < x.M; j += THREADS)
        score[j] = dot(x, x.q, query(x, i), x.k, key(x, j)) * scale;
    __syncthreads();
    for (int j = 0; j < x.M; j++)
        most = fmaxf(most, score[j]);
    double all = 0;
    for (int j = 0; j < x.M; j++)
        all += expf(score[j] - most);
    for (int c = (int)threadIdx.x; c < x.d; c += THREADS) {
        double sum = 0;
        for (int j = 0; j < x.M; j++)
            sum += (double)expf(score[j] - most) * value(x.v, x.dtype, key(x, j) * x.d + c);
        o[query(x, i) * x.d + c] = (float)(sum / all);
    }
    if (threadIdx.x == 0)
        lse[(int64_t)blockIdx.y * x.N + i] = (float)(most + log(all));
}

// set q, k, v and the shapes; returns the number of heads over all samples and groups
static unsigned heads_of(const mr_call *call, Heads *heads)
{
    const mr_desc *q = &call->in[0].desc;
    Heads &x = *heads;
    x = {};
    x.q = call->in[0].data;
    x.k = call->in[1].data;
    x.v = call->in[2].data;
    x.dtype = q->dtype;
    x.N = (int)q->dim[2];
    x.M = (int)call->in[1].desc.dim[2];
    x.h = (int)q->dim[3];
    x.d = (int)q->dim[4];
    return (unsigned)(q->dim[0] * q->dim[1] * q->dim[3]);
}

static void attention(const mr_call *call, const int64_t *, float *const *want)
{
    Heads x;
    unsigned heads = heads_of(call, &x);
    MR_LAUNCH(averages, dim3((unsigned)x.N, heads), dim3(THREADS), sizeof(float) * (size_t)x.M,
              NULL, x, want[0], want[1]);
}

static void attention_grad(const mr_call *call, const int64_t *, float *const *want)
{
    Heads x;
    unsigned heads = heads_of(call, &x);
    x.o = call->in[4].data;
    x.lse = (const float *)call->in[5].data;
    x.dy = call->in[6].data;
    MR_LAUNCH(slopes_of_queries, dim3((unsigned)x.N, heads), dim3(THREADS),
              sizeof(float) * (size_t)x.M, NULL, x, want[0]);
    MR_LAUNCH(slopes_of_keys, dim3((unsigned)x.M, heads), dim3(THREADS),
              2 * sizeof(float) * (size_t)x.N, NULL, x, want[1], want[2]);
}

// ---- convolutions: stride 1, one group ----

struct Volume {
    const void *x, *y, *w;
    const float *acc;
    const void *bias;
    mr_dtype dtype;
    int64_t in[5], out[5], taps[5], before[3]; // [B, T, H, W, C], w [O, C, kt, kh, kw]
};

// element (b, place, c) of a volume, 0 outside
MR_DEVICE float at(const void *p, mr_dtype dtype, const int64_t *dim, int64_t b,
                   const int64_t *place, int64_t c)
{
    for (int i = 0; i < 3; i++)
        if (place[i] < 0 || place[i] >= dim[i + 1])
            return 0;
    return value(p, dtype,
                 (((b * dim[1] + place[0]) * dim[2] + place[1]) * dim[3] + place[2]) * dim[4] + c);
}

// split an index into b, place and c
MR_DEVICE void split(int64_t index, const int64_t *dim, int64_t *b, int64_t *place, int64_t *c)
{
    *c = index % dim[4];
    index /= dim[4];
    for (int i = 2; i >= 0; i--) {
        place[i] = index % dim[i + 1];
        index /= dim[i + 1];
    }
    *b = index;
}

MR_DEVICE void tap_of(int64_t k, const int64_t *taps, int64_t *tap)
{
    tap[2] = k % taps[4];
    tap[1] = k / taps[4] % taps[3];
    tap[0] = k / taps[4] / taps[3];
}

// y of x, or with BACK dx of dy; one thread per element
template <bool BACK> __global__ void convolve(Volume v, int64_t n, float *want)
{
    const int64_t *own = BACK ? v.in : v.out, *other = BACK ? v.out : v.in;
    const int64_t all = v.taps[2] * v.taps[3] * v.taps[4];
    for (int64_t i = first(); i < n; i += all_threads()) {
        int64_t b, place[3], c, tap[3], there[3];
        split(i, own, &b, place, &c);
        double sum = v.bias ? value(v.bias, v.dtype, c) : 0;
        for (int64_t k = 0; k < all; k++) {
            tap_of(k, v.taps, tap);
            for (int a = 0; a < 3; a++)
                there[a] = BACK ? place[a] + v.before[a] - tap[a] : place[a] - v.before[a] + tap[a];
            float part = 0;
            for (int64_t o = 0; o < other[4]; o++) {
                int64_t filter = BACK ? o * v.taps[1] + c : c * v.taps[1] + o;
                part += at(BACK ? v.y : v.x, v.dtype, other, b, there, o) *
                        value(v.w, v.dtype, filter * all + k);
            }
            sum += part;
        }
        want[i] = (float)sum;
    }
}

// acc + dw; one thread per element
__global__ void filters(Volume v, int64_t n, float *want)
{
    const int64_t all = v.taps[2] * v.taps[3] * v.taps[4];
    for (int64_t i = first(); i < n; i += all_threads()) {
        // channels change fastest, so that neighbouring lanes read neighbouring elements
        int64_t c = i % v.taps[1], k = i / v.taps[1] % all, o = i / v.taps[1] / all;
        int64_t tap[3], place[3], there[3];
        tap_of(k, v.taps, tap);
        double sum = v.acc[(o * v.taps[1] + c) * all + k];
        for (int64_t b = 0; b < v.out[0]; b++)
            for (place[0] = 0; place[0] < v.out[1]; place[0]++)
                for (place[1] = 0; place[1] < v.out[2]; place[1]++) {
                    float part = 0;
                    for (place[2] = 0; place[2] < v.out[3]; place[2]++) {
                        for (int a = 0; a < 3; a++)
                            there[a] = place[a] - v.before[a] + tap[a];
                        part += at(v.y, v.dtype, v.out, b, place, o) *
                                at(v.x, v.dtype, v.in, b, there, c);
                    }
                    sum += part;
                }
        want[(o * v.taps[1] + c) * all + k] = (float)sum;
    }
}

static Volume volume(const mr_view *x, const mr_view *y, const mr_view *w, const int64_t *pad)
{
    Volume v = {};
    v.x = x->data;
    v.y = y->data;
    v.w = w->data;
    v.dtype = x->desc.dtype;
    memcpy(v.in, x->desc.dim, sizeof v.in);
    memcpy(v.out, y->desc.dim, sizeof v.out);
    memcpy(v.taps, w->desc.dim, sizeof v.taps);
    for (int i = 0; i < 3; i++)
        v.before[i] = pad[2 * i];
    return v;
}

static void conv3d(const mr_call *call, const int64_t *pad, float *const *want)
{
    Volume v = volume(&call->in[0], &call->out[0], &call->in[1], pad);
    v.bias = call->in[2].desc.rank < 0 ? NULL : call->in[2].data;
    int64_t n = mr_desc_count(&call->out[0].desc);
    MR_LAUNCH((convolve<false>), blocks_of(n), dim3(THREADS), 0, NULL, v, n, want[0]);
}

static void conv3d_dx(const mr_call *call, const int64_t *pad, float *const *want)
{
    Volume v = volume(&call->out[0], &call->in[0], &call->in[1], pad);
    int64_t n = mr_desc_count(&call->out[0].desc);
    MR_LAUNCH((convolve<true>), blocks_of(n), dim3(THREADS), 0, NULL, v, n, want[0]);
}

static void conv3d_dw(const mr_call *call, const int64_t *pad, float *const *want)
{
    Volume v = volume(&call->in[1], &call->in[0], &call->in[2], pad);
    v.acc = (const float *)call->in[2].data;
    int64_t n = mr_desc_count(&call->in[2].desc);
    MR_LAUNCH(filters, blocks_of(n), dim3(THREADS), 0, NULL, v, n, want[0]);
}

// ---- offsets: elementwise over very many elements ----

__global__ void sigmoids(const void *x, mr_dtype dtype, int64_t n, float *want)
{
    for (int64_t i = first(); i < n; i += all_threads()) {
        float a = value(x, dtype, i);
        want[i] = a / (1 + expf(-a));
    }
}

static void silu(const mr_call *call, const int64_t *, float *const *want)
{
    int64_t n = mr_desc_count(&call->in[0].desc);
    MR_LAUNCH(sigmoids, blocks_of(n), dim3(THREADS), 0, NULL, call->in[0].data,
              call->in[0].desc.dtype, n, want[0]);
}

// ---- norms over groups of channels: epsilon 1e-6, no SiLU ----

// x [samples, places, channels]; one block per sample and group of `wide` channels
__global__ void normalise(const void *x, const void *w, const void *b, mr_dtype dtype,
                          int64_t places, int64_t channels, int64_t wide, float *y, float *stats)
{
    MR_SHARED(memory);
    double *part = (double *)memory, mean = 0, square = 0;
    const int64_t groups = channels / wide, from = (int64_t)(blockIdx.x % groups) * wide;
    const int64_t begin = (int64_t)(blockIdx.x / groups) * places * channels + from;
    for (int pass = 0; pass < 2; pass++) {
        double sum = 0;
        for (int64_t p = threadIdx.x; p < places; p += THREADS)
            for (int64_t c = 0; c < wide; c++) {
                double v = value(x, dtype, begin + p * channels + c) - mean;
                sum += pass ? v * v : v;
            }
        part[threadIdx.x] = sum;
        __syncthreads();
        sum = 0;
        for (int i = 0; i < THREADS; i++)
            sum += part[i];
        __syncthreads();
        (pass ? square : mean) = sum / ((double)places * wide);
    }
    const double r = 1 / sqrt(square + 1e-6);
    for (int64_t p = threadIdx.x; p < places; p += THREADS)
        for (int64_t c = 0; c < wide; c++) {
            double u = (value(x, dtype, begin + p * channels + c) - mean) * r;
            y[begin + p * channels + c] =
                (float)(u * value(w, dtype, from + c) + value(b, dtype, from + c));
        }
    if (threadIdx.x == 0) {
        stats[2 * blockIdx.x] = (float)mean;
        stats[2 * blockIdx.x + 1] = (float)r;
    }
}

static void group_norm(const mr_call *call, const int64_t *, float *const *want)
{
    const mr_desc *x = &call->in[0].desc, *stats = &call->out[1].desc;
    const int64_t channels = x->dim[x->rank - 1], groups = stats->dim[1];
    MR_LAUNCH(normalise, dim3((unsigned)(x->dim[0] * groups)), dim3(THREADS),
              THREADS * sizeof(double), NULL, call->in[0].data, call->in[1].data, call->in[2].data,
              x->dtype, mr_desc_count(x) / (x->dim[0] * channels), channels, channels / groups,
              want[0], want[1]);
}

// ---- gradients of norms ----

// sum both numbers over a block; every thread gets the sums
MR_DEVICE void sum_over_block(double *part, double *a, double *b)
{
    part[2 * threadIdx.x] = *a;
    part[2 * threadIdx.x + 1] = *b;
    __syncthreads();
    *a = *b = 0;
    for (int i = 0; i < THREADS; i++) {
        *a += part[2 * i];
        *b += part[2 * i + 1];
    }
    __syncthreads();
}

struct Slopes {
    const void *x, *w, *dy;
    const float *stats;
    mr_dtype dtype;
    int64_t places, channels, wide;
};

// one block per sample and group of `wide` channels
__global__ void slopes_of_groups(Slopes s, float *dx)
{
    MR_SHARED(memory);
    const int64_t groups = s.channels / s.wide, from = (int64_t)(blockIdx.x % groups) * s.wide;
    const int64_t begin = (int64_t)(blockIdx.x / groups) * s.places * s.channels + from;
    const double mean = s.stats[2 * blockIdx.x], r = s.stats[2 * blockIdx.x + 1];
    double one = 0, two = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t p = threadIdx.x; p < s.places; p += THREADS)
            for (int64_t c = 0; c < s.wide; c++) {
                const int64_t i = begin + p * s.channels + c;
                const double u = (value(s.x, s.dtype, i) - mean) * r;
                const double g = (double)value(s.dy, s.dtype, i) * value(s.w, s.dtype, from + c);
                if (pass) {
                    dx[i] = (float)(r * (g - one - u * two));
                    continue;
                }
                one += g;
                two += g * u;
            }
        if (pass == 0) {
            sum_over_block((double *)memory, &one, &two);
            one /= (double)s.places * s.wide;
            two /= (double)s.places * s.wide;
        }
    }
}

// one block per channel, over all samples
__global__ void slopes_of_channels(Slopes s, int64_t samples, const float *dw, const float *db,
                                   float *want_w, float *want_b)
{
    MR_SHARED(memory);
    const int64_t c = blockIdx.x, groups = s.channels / s.wide;
    double one = 0, two = 0;
    for (int64_t row = threadIdx.x; row < samples * s.places; row += THREADS) {
        const float *stats = s.stats + 2 * (row / s.places * groups + c / s.wide);
        const double g = value(s.dy, s.dtype, row * s.channels + c);
        one += g * (value(s.x, s.dtype, row * s.channels + c) - (double)stats[0]) * stats[1];
        two += g;
    }
    sum_over_block((double *)memory, &one, &two);
    if (threadIdx.x == 0) {
        want_w[c] = (float)(dw[c] + one);
        want_b[c] = (float)(db[c] + two);
    }
}

static void group_norm_grad(const mr_call *call, const int64_t *, float *const *want)
{
    const mr_desc *x = &call->in[0].desc;
    const int64_t channels = x->dim[x->rank - 1], groups = call->in[3].desc.dim[1],
                  places = mr_desc_count(x) / (x->dim[0] * channels);
    const Slopes s = {
        call->in[0].data, call->in[1].data, call->in[4].data, (const float *)call->in[3].data,
        x->dtype,         places,           channels,         channels / groups};
    const size_t shared = 2 * THREADS * sizeof(double);
    MR_LAUNCH(slopes_of_groups, dim3((unsigned)(x->dim[0] * groups)), dim3(THREADS), shared, NULL,
              s, want[0]);
    MR_LAUNCH(slopes_of_channels, dim3((unsigned)channels), dim3(THREADS), shared, NULL, s,
              x->dim[0], (const float *)call->in[6].data, (const float *)call->in[7].data, want[1],
              want[2]);
}

// rows of d elements, one block each: u = (x - mean) r, where mean = 0 unless `centred`, and dx of
// g = dy (add + w)
struct Rows {
    const void *x, *w, *dy;
    mr_dtype dtype;
    int64_t d, shared_by; // number of consecutive rows with the same w
    float add;
    bool centred;
};

__global__ void slopes_of_rows(Rows s, float *stats, float *dx)
{
    MR_SHARED(memory);
    const int64_t row = blockIdx.x, begin = row * s.d, w = row / s.shared_by * s.d;
    double *part = (double *)memory, mean = 0, square = 0, one = 0, two = 0, none = 0;
    for (int64_t c = threadIdx.x; s.centred && c < s.d; c += THREADS)
        mean += value(s.x, s.dtype, begin + c);
    sum_over_block(part, &mean, &none);
    mean /= (double)s.d;
    for (int64_t c = threadIdx.x; c < s.d; c += THREADS) {
        const double v = value(s.x, s.dtype, begin + c) - mean;
        square += v * v;
    }
    sum_over_block(part, &square, &none);
    const double r = 1 / sqrt(square / (double)s.d + 1e-6);
    for (int64_t c = threadIdx.x; c < s.d; c += THREADS) {
        const double g =
            value(s.dy, s.dtype, begin + c) * (double)(s.add + value(s.w, s.dtype, w + c));
        one += s.centred ? g : 0;
        two += g * (value(s.x, s.dtype, begin + c) - mean) * r;
    }
    sum_over_block(part, &one, &two);
    for (int64_t c = threadIdx.x; c < s.d; c += THREADS) {
        const double g =
            value(s.dy, s.dtype, begin + c) * (double)(s.add + value(s.w, s.dtype, w + c));
        const double u = (value(s.x, s.dtype, begin + c) - mean) * r;
        dx[begin + c] = (float)(r * (g - one / (double)s.d - u * two / (double)s.d));
    }
    if (threadIdx.x == 0) {
        stats[2 * row] = (float)mean;
        stats[2 * row + 1] = (float)r;
    }
}

// the gradient of each w over the rows that share it; one block per 128 channels of a w
__global__ void slopes_of_shares(Rows s, const float *stats, const float *acc, float *dw, float *db)
{
    const int64_t parts = (s.d + THREADS - 1) / THREADS, group = blockIdx.x / parts,
                  c = (int64_t)(blockIdx.x % parts) * THREADS + threadIdx.x;
    if (c >= s.d)
        return;
    double one = acc ? acc[group * s.d + c] : 0, two = 0;
    for (int64_t row = group * s.shared_by; row < (group + 1) * s.shared_by; row++) {
        const double g = value(s.dy, s.dtype, row * s.d + c);
        one +=
            g * (value(s.x, s.dtype, row * s.d + c) - (double)stats[2 * row]) * stats[2 * row + 1];
        two += g;
    }
    dw[group * s.d + c] = (float)one;
    if (db)
        db[group * s.d + c] = (float)two;
}

static void rows_grad(const Rows &s, int64_t rows, const float *acc, float *dx, float *dw,
                      float *db)
{
    float *stats = (float *)device_alloc((size_t)rows * 2 * sizeof *stats);
    const int64_t blocks = rows / s.shared_by * ((s.d + THREADS - 1) / THREADS);
    MR_LAUNCH(slopes_of_rows, dim3((unsigned)rows), dim3(THREADS), 2 * THREADS * sizeof(double),
              NULL, s, stats, dx);
    MR_LAUNCH(slopes_of_shares, dim3((unsigned)blocks), dim3(THREADS), 0, NULL, s, stats, acc, dw,
              db);
}

static void layer_norm_modulate_grad(const mr_call *call, const int64_t *, float *const *want)
{
    const mr_desc *x = &call->in[0].desc; // [B, T, S, C], scale [B, T, C]
    const Rows s = {call->in[0].data,
                    call->in[1].data,
                    call->in[2].data,
                    x->dtype,
                    x->dim[3],
                    x->dim[2],
                    1,
                    true};
    rows_grad(s, x->dim[0] * x->dim[1] * x->dim[2], NULL, want[0], want[2], want[1]);
}

static void qk_norm_grad(const mr_call *call, const int64_t *, float *const *want)
{
    const mr_desc *x = &call->in[0].desc; // [B, G, N, h, d], no rotation
    const int64_t rows = mr_desc_count(x) / x->dim[4];
    const Rows s = {
        call->in[0].data, call->in[1].data, call->in[4].data, x->dtype, x->dim[4], rows, 0, false};
    rows_grad(s, rows, (const float *)call->in[5].data, want[0], want[1], NULL);
}

// ---- 8-bit products: sums over the last dimension of both operands ----

struct Product {
    const void *a, *b, *bias;
    const float *a_scale, *b_scale, *acc;
    mr_dtype a_dtype, b_dtype;
    int64_t columns, k;
};

__global__ void products(Product p, int64_t n, float *want)
{
    for (int64_t i = first(); i < n; i += all_threads()) {
        const int64_t row = i / p.columns, column = i % p.columns;
        double sum = 0;
        // partial sums in f32: a sum of 64 8-bit products has little rounding error
        for (int64_t from = 0; from < p.k; from += 64) {
            float part = 0;
            for (int64_t c = from; c < p.k && c < from + 64; c++)
                part +=
                    value(p.a, p.a_dtype, row * p.k + c) * value(p.b, p.b_dtype, column * p.k + c);
            sum += part;
        }
        sum *= (double)p.a_scale[0] * p.b_scale[0];
        if (p.bias)
            sum += value(p.bias, MR_BF16, column);
        want[i] = (float)(p.acc ? p.acc[i] + sum : sum);
    }
}

static Product product_of(const mr_view *a, const mr_view *a_scale, const mr_view *b,
                          const mr_view *b_scale)
{
    Product p = {};
    p.a = a->data;
    p.b = b->data;
    p.a_scale = (const float *)a_scale->data;
    p.b_scale = (const float *)b_scale->data;
    p.a_dtype = a->desc.dtype;
    p.b_dtype = b->desc.dtype;
    p.columns = b->desc.dim[0];
    p.k = b->desc.dim[1];
    return p;
}

static void linear_f8(const mr_call *call, const int64_t *, float *const *want)
{
    Product p = product_of(&call->in[0], &call->in[1], &call->in[2], &call->in[3]);
    p.bias = call->in[4].desc.rank < 0 ? NULL : call->in[4].data;
    int64_t n = mr_desc_count(&call->out[0].desc);
    MR_LAUNCH(products, blocks_of(n), dim3(THREADS), 0, NULL, p, n, want[0]);
}

static void linear_dw_f8(const mr_call *call, const int64_t *, float *const *want)
{
    Product p = product_of(&call->in[0], &call->in[1], &call->in[2], &call->in[3]);
    p.acc = (const float *)call->in[4].data;
    int64_t n = mr_desc_count(&call->in[4].desc);
    MR_LAUNCH(products, blocks_of(n), dim3(THREADS), 0, NULL, p, n, want[0]);
}

// ---- the update: all terms of core/op/adamw.c, with the average and the rounded weights ----

struct Masters {
    const float *master, *grad, *m, *v, *ema;
    const double *hyper, *sum_of_squares;
};

__global__ void updates(Masters x, int64_t n, float *master, float *grad, float *m, float *v,
                        float *ema, float *w)
{
    const double *h = x.hyper, norm = sqrt(x.sum_of_squares[0]) * h[8];
    const double over = (norm + 1e-6) / h[5], scale = over > 1 ? h[8] / over : h[8];
    const double b1 = (float)h[1], b2 = (float)h[2];
    for (int64_t i = first(); i < n; i += all_threads()) {
        const double g = x.grad[i] * scale, p = x.master[i];
        const double mean = b1 * x.m[i] + (1 - b1) * g, square = b2 * x.v[i] + (1 - b2) * g * g;
        const double root = sqrt(square / (1 - pow(b2, h[7])));
        const double now = p - h[0] * (mean / (1 - pow(b1, h[7])) / (root + h[3]) + h[4] * p);
        master[i] = w[i] = (float)now;
        grad[i] = 0;
        m[i] = (float)mean;
        v[i] = (float)square;
        ema[i] = (float)(h[6] * x.ema[i] + (1 - h[6]) * now);
    }
}

static void adamw(const mr_call *call, const int64_t *, float *const *want)
{
    const Masters x = {(const float *)call->in[0].data, (const float *)call->in[1].data,
                       (const float *)call->in[2].data, (const float *)call->in[3].data,
                       (const float *)call->in[4].data, (const double *)call->in[6].data,
                       (const double *)call->in[7].data};
    const int64_t n = mr_desc_count(&call->in[0].desc);
    MR_LAUNCH(updates, blocks_of(n), dim3(THREADS), 0, NULL, x, n, want[0], want[1], want[2],
              want[3], want[4], want[5]);
}

bool plain_row(const char *name, const mr_call *call, const int64_t *pad, float *const *want)
{
    static const struct {
        const char *name;
        void (*run)(const mr_call *call, const int64_t *pad, float *const *want);
    } rows[] = {{"attention", attention},
                {"attention_grad", attention_grad},
                {"conv3d", conv3d},
                {"conv3d_dx", conv3d_dx},
                {"conv3d_dw", conv3d_dw},
                {"silu", silu},
                {"group_norm", group_norm},
                {"group_norm_grad", group_norm_grad},
                {"adamw", adamw},
                {"qk_norm_grad", qk_norm_grad},
                {"linear_f8", linear_f8},
                {"linear_dw_f8", linear_dw_f8},
                {"layer_norm_modulate_grad", layer_norm_modulate_grad}};
    for (const auto &row : rows)
        if (strcmp(row.name, name) == 0) {
            row.run(call, pad, want);
            return true;
        }
    return false;
}
