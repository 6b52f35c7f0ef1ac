// See plain.h. Nothing of cuda/kernels is used here. The emulator does not watch these kernels, so
// what they write is told to it.
#include "plain.h"
#include "cuda/prim/kernel.cuh"
#include "device.h"
#include <math.h>
#include <string.h>
#include <vector>

enum { THREADS = 128, BLOCKS = 1024 };

MR_DEVICE float value(const void *p, mr_dtype dtype, int64_t i)
{
    return dtype == MR_BF16 ? mr_f32(((const mr_bf16 *)p)[i]) : ((const float *)p)[i];
}

// this thread's first element, and how many all threads take at once
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

// ---- inputs, and what comes back ----

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
        // cut off rather than rounded: any value will do
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
        // what is no number stays
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

// the row of query i, of key j in a head: [B, G, N, h, d], blockIdx.y counts B, G, h
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

// a block a query
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

// a block a key
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

// o and the log-sum of a query, a block each
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

// sets q, k, v and the shapes; returns how many heads all samples and groups have together
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

// element (b, place + shift, c) of a volume, 0 outside
MR_DEVICE float at(const void *p, mr_dtype dtype, const int64_t *dim, int64_t b,
                   const int64_t *place, int64_t c)
{
    for (int i = 0; i < 3; i++)
        if (place[i] < 0 || place[i] >= dim[i + 1])
            return 0;
    return value(p, dtype,
                 (((b * dim[1] + place[0]) * dim[2] + place[1]) * dim[3] + place[2]) * dim[4] + c);
}

// index as one number becomes b, place and c
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

// y of x, or with BACK dx of dy: a thread an element
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

// acc + dw: a thread an element
__global__ void filters(Volume v, int64_t n, float *want)
{
    const int64_t all = v.taps[2] * v.taps[3] * v.taps[4];
    for (int64_t i = first(); i < n; i += all_threads()) {
        // channels go first, for lanes that read side by side
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

// ---- offsets: rows of one element after another ----

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

// of x [samples, places, channels]: a block a sample and group of `wide` channels
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

// ---- the update: all of core/op/adamw.c's terms, with the average and the rounded weights ----

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
    } rows[] = {{"attention", attention},   {"attention_grad", attention_grad},
                {"conv3d", conv3d},         {"conv3d_dx", conv3d_dx},
                {"conv3d_dw", conv3d_dw},   {"silu", silu},
                {"group_norm", group_norm}, {"adamw", adamw}};
    for (const auto &row : rows)
        if (strcmp(row.name, name) == 0) {
            row.run(call, pad, want);
            return true;
        }
    return false;
}
