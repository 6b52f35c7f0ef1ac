/* group_norm: y = f((x - mean) rstd w + b), mean and rstd over all positions of a sample and the
 * channels of a group, f the identity or SiLU; backward, with n = (x - mean) rstd, g = dy f'(n w +
 * b) and N elements in a group:
 *
 *   dx = rstd (g w - (sum(g w) - dmean / rstd) / N - n (sum(g w n) + drstd rstd) / N)
 *   dw += sum of g n    db += sum of g
 *
 *   x, y, dy, dx [B, ..., C] dense   w, b [C]   stats, dstats [B, groups, 2] f32: mean, rstd
 *   moments [B, groups, 3] f32: mean, sum of squared differences from it, count
 *
 * A sample is cut into pieces of rows; their size depends only on its shape. A block processes a
 * piece: each thread has its own columns. The sums of blocks are added in order, the moments in
 * double by Chan's formula, so the bits do not depend on the order of blocks. x is read twice and y
 * written once; backward x and dy are read twice and dx written once. Squares are taken of the
 * difference to an element of the piece, so that a large mean does not cancel them.
 *
 * A thread processes four channels at a time if groups and addresses are multiples of four
 * elements, otherwise one.
 */
#include "cuda/kernels/formula.cuh"
#include "cuda/kernels/kernel_call.h"
#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/walk.cuh"

// CHANNELS_MOST: two sums per channel and the gap between them must fit into shared memory
enum { THREADS = 256, PIECE_ELEMENTS = 16384, PIECES = 256, CHANNELS_MOST = 6016 };

struct attr { // as in core/op/group_norm.c
    int64_t groups;
    double eps;
    bool silu;
};

struct Groups {
    int batch, places, C, groups, wide; // wide: channels per group
    int length, pieces;                 // rows per piece, pieces per sample
    float eps;
    bool silu;

    // first row of the block's piece, counted over all samples, and its number of rows
    MR_MEMBER int64_t first_row() const
    {
        return (int64_t)blockIdx.y * places + (int64_t)blockIdx.x * length;
    }

    MR_MEMBER int rows() const
    {
        return piece_rows(blockIdx.x);
    }

    MR_MEMBER int piece_rows(int piece) const
    {
        int left = places - piece * length;
        return left < length ? left : length;
    }
};

template <typename T> MR_DEVICE void load_some(const T *p, float (&v)[1])
{
    v[0] = mr_load1(p);
}

template <typename T> MR_DEVICE void load_some(const T *p, float (&v)[4])
{
    mr_load(p, v);
}

template <typename T> MR_DEVICE void store_some(T *p, const float (&v)[1])
{
    mr_store1(p, v[0]);
}

template <typename T> MR_DEVICE void store_some(T *p, const float (&v)[4])
{
    mr_store(p, v);
}

/* Assigns threads to a row of Q units. `lanes` neighbouring threads share a row, and at_once rows
 * are processed together; a thread whose row is at_once or more is idle. Shared memory has two sums
 * per unit as [row, unit]. The second sums start `apart` units after the first, chosen so that
 * consecutive units use consecutive banks. */
struct Places {
    int lanes, at_once, apart, lane, row;
};

static inline __host__ __device__ int units_apart(int Q, int at_once)
{
    return (at_once * Q + 31) / 32 * 32 + Q % 32;
}

MR_DEVICE Places places_of(int Q)
{
    int lanes = Q < THREADS ? Q : (int)THREADS, at_once = THREADS / lanes;
    return {lanes, at_once, units_apart(Q, at_once), (int)threadIdx.x % lanes,
            (int)threadIdx.x / lanes};
}

/* Add both sums over the rows that were processed together, in order, from shared memory to `to`,
 * [2, Q] units of E columns. All threads of the block must call this. */
template <int E> MR_DEVICE void add_rows(const float *sums, int Q, const Places &at, float *to)
{
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * Q; i += THREADS) {
        float total[E] = {}, v[E];
        for (int row = 0; row < at.at_once; row++) {
            load_some(sums + (i / Q * at.apart + row * Q + i % Q) * E, v);
#pragma unroll
            for (int e = 0; e < E; e++)
                total[e] += v[e];
        }
        store_some(to + i * E, total);
    }
}

// ---- forward ----

// squares of a group in a piece are taken of differences to this element
template <typename T> MR_DEVICE float middle(const T *x, const Groups &n, int64_t row, int group)
{
    return mr_load1(x + row * n.C + group * n.wide);
}

// grid: (pieces, B). partials [B, pieces, 2, C / E]: sum of each unit, and of its squares
template <typename T, int E>
__global__ void __launch_bounds__(THREADS) group_moments(const T *x, float *partials, Groups n)
{
    MR_SHARED(memory);
    float *sums = (float *)memory;
    int Q = n.C / E;
    Places at = places_of(Q);
    int64_t row = n.first_row();
    for (int q = at.lane; q < Q && at.row < at.at_once; q += at.lanes) {
        float one = 0, two = 0, v[E], mid = middle(x, n, row, q * E / n.wide);
        for (int r = at.row; r < n.rows(); r += at.at_once) {
            load_some(x + (row + r) * n.C + q * E, v);
#pragma unroll
            for (int e = 0; e < E; e++) {
                float d = v[e] - mid;
                one += d;
                two += d * d;
            }
        }
        sums[at.row * Q + q] = one;
        sums[at.apart + at.row * Q + q] = two;
    }
    add_rows<1>(sums, Q, at, partials + ((int64_t)blockIdx.y * n.pieces + blockIdx.x) * 2 * Q);
}

// merged moments of one group. Ref: Chan, Golub & LeVeque 1979
struct Joined {
    double mean, squares, count;

    MR_MEMBER void join(double other_mean, double other_squares, double more)
    {
        double off = other_mean - mean;
        if (more == 0)
            return;
        squares += other_squares + off * off * count * more / (count + more);
        mean += off * more / (count + more);
        count += more;
    }

    // writes mean and rstd
    MR_MEMBER void store_stats(float *stats, float eps) const
    {
        stats[0] = (float)mean;
        stats[1] = (float)(1 / sqrt(squares / (count > 0 ? count : 1) + (double)eps));
    }
};

// merge the moments of group g of sample b into `to`, piece by piece
template <typename T>
MR_DEVICE void join_pieces(const T *x, const float *partials, int E, int b, int g, const Groups &n,
                           Joined *to)
{
    int Q = n.C / E, units = n.wide / E;
    for (int p = 0; p < n.pieces; p++) {
        const float *sums = partials + ((int64_t)b * n.pieces + p) * 2 * Q + g * units;
        double one = 0, two = 0, more = (double)n.piece_rows(p) * n.wide;
        for (int u = 0; u < units; u++) {
            one += sums[u];
            two += sums[Q + u];
        }
        double here = one / more + middle(x, n, (int64_t)b * n.places + (int64_t)p * n.length, g);
        double spread = two - one * one / more;
        to->join(here, spread > 0 ? spread : 0, more);
    }
}

// one thread per group of each sample
template <typename T>
__global__ void __launch_bounds__(THREADS)
    group_join(const T *x, const float *partials, int E, float *stats, Groups n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n.batch * n.groups)
        return;
    Joined all = {0, 0, 0};
    join_pieces(x, partials, E, i / n.groups, i % n.groups, n, &all);
    all.store_stats(stats + 2 * i, n.eps);
}

// the same, but writes moments, merged with those of earlier positions in `before` (or NULL)
template <typename T>
__global__ void __launch_bounds__(THREADS)
    group_join_moments(const T *x, const float *partials, int E, const float *before,
                       float *moments, Groups n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n.batch * n.groups)
        return;
    Joined all = {0, 0, 0};
    if (before)
        all = {before[3 * i], before[3 * i + 1], before[3 * i + 2]};
    join_pieces(x, partials, E, i / n.groups, i % n.groups, n, &all);
    moments[3 * i] = (float)all.mean;
    moments[3 * i + 1] = (float)all.squares;
    moments[3 * i + 2] = (float)all.count;
}

// one thread per group of each sample: mean and rstd from moments
static __global__ void __launch_bounds__(THREADS)
    group_stats(const float *moments, float *stats, Groups n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n.batch * n.groups)
        return;
    Joined all = {moments[3 * i], moments[3 * i + 1], moments[3 * i + 2]};
    all.store_stats(stats + 2 * i, n.eps);
}

// grid: (pieces, B). rows: of x and y, whose rows may have gaps
template <typename T, int E>
__global__ void __launch_bounds__(THREADS)
    group_apply(const T *x, const T *w, const T *b, const float *stats, T *y, Groups n,
                const __grid_constant__ Walk<2> rows)
{
    int Q = n.C / E;
    Places at = places_of(Q);
    for (int q = at.lane; q < Q && at.row < at.at_once; q += at.lanes) {
        const float *of = stats + 2 * ((int64_t)blockIdx.y * n.groups + q * E / n.wide);
        float mean = of[0], rstd = of[1], factor[E], shift[E], v[E];
        load_some(w + q * E, factor);
        load_some(b + q * E, shift);
        for (int r = at.row; r < n.rows(); r += at.at_once) {
            int64_t place[2];
            rows.at((uint32_t)(n.first_row() + r), place);
            load_some(x + place[0] + q * E, v);
#pragma unroll
            for (int e = 0; e < E; e++) {
                float u = (v[e] - mean) * rstd * factor[e] + shift[e];
                v[e] = n.silu ? formula_silu(u) : u;
            }
            store_some(y + place[1] + q * E, v);
        }
    }
}

// ---- backward ----

// n and g of one element
struct Terms {
    float n, g;
};

MR_DEVICE Terms terms_of(float x, float dy, float mean, float rstd, float w, float b, bool silu)
{
    float n = (x - mean) * rstd;
    return {n, silu ? dy * formula_silu_slope(n * w + b) : dy};
}

// grid: (pieces, B). partials [B, pieces, 2, C]: sums of g n and of g
template <typename T, int E>
__global__ void __launch_bounds__(THREADS)
    group_grad_sums(const T *x, const T *w, const T *b, const float *stats, const T *dy,
                    float *partials, Groups n)
{
    MR_SHARED(memory);
    float *sums = (float *)memory;
    int Q = n.C / E;
    Places at = places_of(Q);
    for (int q = at.lane; q < Q && at.row < at.at_once; q += at.lanes) {
        const float *of = stats + 2 * ((int64_t)blockIdx.y * n.groups + q * E / n.wide);
        float mean = of[0], rstd = of[1], factor[E], shift[E], v[E], up[E], gn[E] = {}, g[E] = {};
        load_some(w + q * E, factor);
        load_some(b + q * E, shift);
        for (int r = at.row; r < n.rows(); r += at.at_once) {
            int64_t place = (n.first_row() + r) * n.C + q * E;
            load_some(x + place, v);
            load_some(dy + place, up);
#pragma unroll
            for (int e = 0; e < E; e++) {
                Terms t = terms_of(v[e], up[e], mean, rstd, factor[e], shift[e], n.silu);
                gn[e] += t.g * t.n;
                g[e] += t.g;
            }
        }
        store_some(sums + (at.row * Q + q) * E, gn);
        store_some(sums + (at.apart + at.row * Q + q) * E, g);
    }
    add_rows<E>(sums, Q, at, partials + ((int64_t)blockIdx.y * n.pieces + blockIdx.x) * 2 * n.C);
}

// one thread per element of totals [B, 2, C]: adds the pieces in order
static __global__ void __launch_bounds__(THREADS)
    group_grad_totals(const float *partials, float *totals, Groups n)
{
    int i = blockIdx.x * THREADS + threadIdx.x, b = i / (2 * n.C), c = i % (2 * n.C);
    if (i >= n.batch * 2 * n.C)
        return;
    float sum = 0;
    for (int p = 0; p < n.pieces; p++)
        sum += partials[((int64_t)b * n.pieces + p) * 2 * n.C + c];
    totals[i] = sum;
}

// one thread per group: means [B, groups, 2] that dx needs
template <typename T>
__global__ void __launch_bounds__(THREADS)
    group_grad_means(const float *totals, const T *w, const float *stats, const float *dstats,
                     float *means, Groups n)
{
    int i = blockIdx.x * THREADS + threadIdx.x, b = i / n.groups, g = i % n.groups;
    if (i >= n.batch * n.groups)
        return;
    float rstd = stats[2 * i + 1], one = 0, two = 0;
    for (int c = g * n.wide; c < (g + 1) * n.wide; c++) {
        two += mr_load1(w + c) * totals[(int64_t)b * 2 * n.C + c];
        one += mr_load1(w + c) * totals[(int64_t)b * 2 * n.C + n.C + c];
    }
    if (dstats) {
        one -= dstats[2 * i] / rstd;
        two += dstats[2 * i + 1] * rstd;
    }
    float count = (float)n.places * n.wide;
    means[2 * i] = one / count;
    means[2 * i + 1] = two / count;
}

// one thread per channel: acc += the totals of all samples, in order
static __global__ void __launch_bounds__(THREADS)
    group_grad_weights(const float *totals, float *acc, Groups n)
{
    int c = blockIdx.x * THREADS + threadIdx.x;
    if (c >= n.C)
        return;
    float sum = acc[c];
    for (int b = 0; b < n.batch; b++)
        sum += totals[(int64_t)b * 2 * n.C + c];
    acc[c] = sum;
}

// grid: (pieces, B)
template <typename T, int E>
__global__ void __launch_bounds__(THREADS)
    group_grad_apply(const T *x, const T *w, const T *b, const float *stats, const float *means,
                     const T *dy, T *dx, Groups n)
{
    int Q = n.C / E;
    Places at = places_of(Q);
    for (int q = at.lane; q < Q && at.row < at.at_once; q += at.lanes) {
        int64_t group = 2 * ((int64_t)blockIdx.y * n.groups + q * E / n.wide);
        float mean = stats[group], rstd = stats[group + 1], one = means[group],
              two = means[group + 1], factor[E], shift[E], v[E], up[E];
        load_some(w + q * E, factor);
        load_some(b + q * E, shift);
        for (int r = at.row; r < n.rows(); r += at.at_once) {
            int64_t place = (n.first_row() + r) * n.C + q * E;
            load_some(x + place, v);
            load_some(dy + place, up);
#pragma unroll
            for (int e = 0; e < E; e++) {
                Terms t = terms_of(v[e], up[e], mean, rstd, factor[e], shift[e], n.silu);
                v[e] = rstd * (t.g * factor[e] - one - t.n * two);
            }
            store_some(dx + place, v);
        }
    }
}

// ---- host ----

static mr_status groups_of(const mr_call *call, Groups *n)
{
    const attr *a = (const attr *)call->attr;
    const mr_desc *x = &call->in[0].desc;
    int64_t C = x->dim[x->rank - 1], batch = x->dim[0],
            places = batch > 0 && C > 0 ? mr_desc_count(x) / batch / C : 0;
    if (batch > 65535 || C > CHANNELS_MOST || places > INT32_MAX)
        return mr_fail(MR_E_UNSUPPORTED,
                       "%lld samples of %lld positions and %lld channels, expected at most 65535, "
                       "2^31 and 6016",
                       (long long)batch, (long long)places, (long long)C);
    int64_t length = mr_cuda_ceil(PIECE_ELEMENTS, C ? C : 1), most = mr_cuda_ceil(places, PIECES);
    length = length < most ? most : length;
    *n = {(int)batch,
          (int)places,
          (int)C,
          (int)a->groups,
          (int)(C / a->groups),
          (int)length,
          (int)mr_cuda_ceil(places, length),
          (float)a->eps,
          a->silu};
    return MR_OK;
}

// process four channels at a time? y: its rows may have gaps; or NULL
static bool in_fours(const Groups &n, const void *const *data, int count, mr_dtype type,
                     const mr_desc *y)
{
    bool fours = n.wide % 4 == 0;
    for (int d = 0; y && d < y->rank - 1; d++)
        fours = fours && (y->dim[d] == 1 || y->stride[d] % 4 == 0);
    for (int i = 0; i < count; i++)
        fours = fours && mr_cuda_aligned(data[i], 4 * mr_dtype_bytes(type));
    return fours;
}

// bytes of shared memory for the sums of Q units of `width` floats
static size_t shared_for(int Q, int width)
{
    int at_once = Q < THREADS ? THREADS / Q : 1;
    return (size_t)((units_apart(Q, at_once) + at_once * Q) * width) * sizeof(float);
}

static unsigned blocks_of(int64_t threads)
{
    return (unsigned)mr_cuda_ceil(threads, THREADS);
}

// size of the workspace in floats: `each` partial sums per piece, plus `more` totals and means
static int64_t floats_of(const Groups &n, int64_t each, int64_t more)
{
    return (int64_t)n.batch * (n.pieces * each + more);
}

static size_t workspace(const mr_call *call, const mr_facts *)
{
    Groups n = {};
    if (groups_of(call, &n) != MR_OK)
        return MR_NO_KERNEL;
    return (size_t)floats_of(n, 2 * n.C, 0) * sizeof(float);
}

static mr_status rows_of(const mr_call *call, Walk<2> *rows)
{
    const mr_desc *views[2] = {&call->in[0].desc, &call->out[0].desc};
    int64_t count;
    return walk_of(views, views[0]->rank - 1, rows, &count) ? MR_OK : walk_too_large(count);
}

// compute y from statistics
template <typename T, int E>
static mr_status apply(const mr_call *call, const float *stats, const Groups &n,
                       cudaStream_t stream)
{
    Walk<2> rows;
    MR_TRY(rows_of(call, &rows));
    if (n.pieces > 0)
        MR_LAUNCH((group_apply<T, E>), dim3(n.pieces, n.batch), dim3(THREADS), 0, stream,
                  (const T *)call->in[0].data, (const T *)call->in[1].data,
                  (const T *)call->in[2].data, stats, (T *)call->out[0].data, n, rows);
    return MR_OK;
}

template <typename T, int E>
static mr_status forward(const mr_call *call, const Groups &n, cudaStream_t stream)
{
    const T *x = (const T *)call->in[0].data;
    float *partials = (float *)call->workspace, *stats = (float *)call->out[1].data;
    dim3 grid(n.pieces, n.batch), block(THREADS);
    if (n.pieces > 0)
        MR_LAUNCH((group_moments<T, E>), grid, block, shared_for(n.C / E, 1), stream, x, partials,
                  n);
    MR_LAUNCH((group_join<T>), dim3(blocks_of((int64_t)n.batch * n.groups)), block, 0, stream, x,
              partials, E, stats, n);
    return apply<T, E>(call, stats, n, stream);
}

template <typename T> static mr_status run(const mr_call *call, cudaStream_t stream)
{
    Groups n = {};
    MR_TRY(groups_of(call, &n));
    if (n.batch == 0)
        return MR_OK;
    const void *data[] = {call->in[0].data, call->in[1].data, call->in[2].data, call->out[0].data};
    return in_fours(n, data, 4, call->in[0].desc.dtype, &call->out[0].desc)
               ? forward<T, 4>(call, n, stream)
               : forward<T, 1>(call, n, stream);
}

MR_CUDA_FLOATS(group_norm, 0, run, workspace)

template <typename T, int E>
static mr_status moments_of(const mr_call *call, const Groups &n, cudaStream_t stream)
{
    const T *x = (const T *)call->in[0].data;
    float *partials = (float *)call->workspace;
    dim3 block(THREADS);
    if (n.pieces > 0)
        MR_LAUNCH((group_moments<T, E>), dim3(n.pieces, n.batch), block, shared_for(n.C / E, 1),
                  stream, x, partials, n);
    MR_LAUNCH((group_join_moments<T>), dim3(blocks_of((int64_t)n.batch * n.groups)), block, 0,
              stream, x, partials, E, (const float *)call->in[1].data, (float *)call->out[0].data,
              n);
    return MR_OK;
}

template <typename T> static mr_status run_moments(const mr_call *call, cudaStream_t stream)
{
    Groups n = {};
    MR_TRY(groups_of(call, &n));
    if (n.batch == 0)
        return MR_OK;
    const void *data[] = {call->in[0].data};
    return in_fours(n, data, 1, call->in[0].desc.dtype, NULL) ? moments_of<T, 4>(call, n, stream)
                                                              : moments_of<T, 1>(call, n, stream);
}

MR_CUDA_FLOATS(group_moments, 0, run_moments, workspace)

static size_t by_workspace(const mr_call *call, const mr_facts *)
{
    Groups n = {};
    if (groups_of(call, &n) != MR_OK)
        return MR_NO_KERNEL;
    return (size_t)n.batch * n.groups * 2 * sizeof(float);
}

template <typename T, int E>
static mr_status apply_by(const mr_call *call, const Groups &n, cudaStream_t stream)
{
    float *stats = (float *)call->workspace;
    MR_LAUNCH(group_stats, dim3(blocks_of((int64_t)n.batch * n.groups)), dim3(THREADS), 0, stream,
              (const float *)call->in[3].data, stats, n);
    return apply<T, E>(call, stats, n, stream);
}

template <typename T> static mr_status run_by(const mr_call *call, cudaStream_t stream)
{
    Groups n = {};
    MR_TRY(groups_of(call, &n));
    if (mr_desc_count(&call->in[0].desc) == 0)
        return MR_OK;
    const void *data[] = {call->in[0].data, call->in[1].data, call->in[2].data, call->out[0].data};
    return in_fours(n, data, 4, call->in[0].desc.dtype, &call->out[0].desc)
               ? apply_by<T, 4>(call, n, stream)
               : apply_by<T, 1>(call, n, stream);
}

MR_CUDA_FLOATS(group_norm_by, 0, run_by, by_workspace)

static size_t grad_workspace(const mr_call *call, const mr_facts *)
{
    Groups n = {};
    if (groups_of(call, &n) != MR_OK)
        return MR_NO_KERNEL;
    return (size_t)floats_of(n, 2 * n.C, 2 * n.C + 2 * n.groups) * sizeof(float);
}

template <typename T, int E>
static mr_status backward(const mr_call *call, const Groups &n, cudaStream_t stream)
{
    const T *x = (const T *)call->in[0].data, *w = (const T *)call->in[1].data,
            *b = (const T *)call->in[2].data, *dy = (const T *)call->in[4].data;
    const float *stats = (const float *)call->in[3].data, *dstats = (const float *)call->in[5].data;
    float *partials = (float *)call->workspace,
          *totals = partials + (int64_t)n.batch * n.pieces * 2 * n.C,
          *means = totals + (int64_t)n.batch * 2 * n.C;
    dim3 grid(n.pieces, n.batch), block(THREADS);
    MR_LAUNCH((group_grad_sums<T, E>), grid, block, shared_for(n.C / E, E), stream, x, w, b, stats,
              dy, partials, n);
    MR_LAUNCH(group_grad_totals, dim3(blocks_of((int64_t)n.batch * 2 * n.C)), block, 0, stream,
              partials, totals, n);
    MR_LAUNCH((group_grad_means<T>), dim3(blocks_of((int64_t)n.batch * n.groups)), block, 0, stream,
              totals, w, stats, dstats, means, n);
    for (int i = 0; i < 2; i++)
        if (call->out[1 + i].data)
            MR_LAUNCH(group_grad_weights, dim3(blocks_of(n.C)), block, 0, stream, totals + i * n.C,
                      (float *)call->out[1 + i].data, n);
    MR_LAUNCH((group_grad_apply<T, E>), grid, block, 0, stream, x, w, b, stats, means, dy,
              (T *)call->out[0].data, n);
    return MR_OK;
}

template <typename T> static mr_status run_grad(const mr_call *call, cudaStream_t stream)
{
    Groups n = {};
    MR_TRY(groups_of(call, &n));
    if (mr_desc_count(&call->in[0].desc) == 0)
        return MR_OK;
    const void *data[] = {call->in[0].data, call->in[1].data, call->in[2].data, call->in[4].data,
                          call->out[0].data};
    return in_fours(n, data, 5, call->in[0].desc.dtype, NULL) ? backward<T, 4>(call, n, stream)
                                                              : backward<T, 1>(call, n, stream);
}

MR_CUDA_FLOATS(group_norm_grad, 0, run_grad, grad_workspace)
