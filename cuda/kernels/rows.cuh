/* Rows that a group of threads keeps in registers, and sums of columns over many rows.
 *
 * A block has ROW_THREADS threads. LANES threads share a row, so the block processes AT_ONCE rows
 * together. A thread has FLOATS columns in pieces of 16 bytes: piece i begins at column(i). Sums
 * over a row run in a fixed order, so the bits do not depend on the order of blocks.
 *
 * Column sums run in four steps. Each thread adds its columns over the rows of its block. The
 * groups of a block are added in shared memory (fold). Each block writes a partial row to the
 * workspace. add_partials adds the partial rows in a fixed order. A partial row is ordered by
 * slots, not by columns: four columns of a thread, then four of its neighbour, so that accesses are
 * coalesced.
 *
 * All lanes of a warp must call the functions that sum.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_ROWS_CUH
#define MOONREEL_CUDA_KERNELS_ROWS_CUH

#include <initializer_list>

#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/walk.cuh"

enum { ROW_THREADS = 128 };

template <int LANES_, int FLOATS_> struct Form {
    static constexpr int LANES = LANES_, FLOATS = FLOATS_, AT_ONCE = ROW_THREADS / LANES,
                         SLOTS = LANES * FLOATS;
    // bytes of shared memory for row_sum and fold
    static constexpr int SHARED = AT_ONCE > 1 ? AT_ONCE *SLOTS * 4 : 16;
};

// heads of up to 128 columns; rows of up to 1280 by a warp; up to 4096 by a block
typedef Form<16, 8> HeadRows;
typedef Form<32, 40> WarpRows;
typedef Form<128, 32> BlockRows;

// the thread's part of a row of T: N packed pieces
template <typename T, class F> struct Part {
    static constexpr int E = 16 / sizeof(T), N = F::FLOATS / E;
    uint4 piece[N];

    static MR_MEMBER int lane()
    {
        return threadIdx.x % F::LANES;
    }

    static MR_MEMBER int group()
    {
        return threadIdx.x / F::LANES;
    }

    static MR_MEMBER int column(int i)
    {
        return (i * F::LANES + lane()) * E;
    }

    // zeros past column C, and for all columns if `row` is NULL
    MR_MEMBER void load(const T *row, int C)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            piece[i] = {0, 0, 0, 0};
            if (row && column(i) < C)
                piece[i] = mr_load16(row + column(i));
        }
    }

    MR_MEMBER void get(int i, float (&v)[E]) const
    {
        mr_unpack(piece[i], v);
    }
};

// sum over the LANES threads of a row, with the same bits in each; scratch: 4 floats per block
template <class F> MR_DEVICE float row_sum(float v, float *scratch)
{
    if constexpr (F::LANES <= 32)
        return mr_warp_sum<F::LANES>(v);
    v = mr_warp_sum(v);
    __syncthreads(); // the previous sum has been read
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = v;
    __syncthreads();
    return scratch[0] + scratch[1] + scratch[2] + scratch[3];
}

// mean and 1 / deviation of a row; the variance uses differences from the mean, so that a large
// mean does not cancel it
template <typename T, class F>
MR_DEVICE void row_moments(const Part<T, F> &x, int C, float eps, float *scratch, float *mean,
                           float *rstd)
{
    float v[Part<T, F>::E], sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < Part<T, F>::N; i++) {
        x.get(i, v);
#pragma unroll
        for (int e = 0; e < Part<T, F>::E; e++)
            sum += v[e];
    }
    *mean = row_sum<F>(sum, scratch) / C;
#pragma unroll
    for (int i = 0; i < Part<T, F>::N; i++) {
        if (x.column(i) >= C)
            continue;
        x.get(i, v);
#pragma unroll
        for (int e = 0; e < Part<T, F>::E; e++)
            squares += (v[e] - *mean) * (v[e] - *mean);
    }
    *rstd = 1 / sqrtf(row_sum<F>(squares, scratch) / C + eps);
}

// the same for a warp, one element at a time
template <typename T>
MR_DEVICE void plain_moments(const T *x, int C, float eps, float *mean, float *rstd)
{
    float sum = 0, squares = 0;
    for (int c = threadIdx.x % 32; c < C; c += 32)
        sum += mr_load1(x + c);
    *mean = mr_warp_sum(sum) / C;
    for (int c = threadIdx.x % 32; c < C; c += 32) {
        float d = mr_load1(x + c) - *mean;
        squares += d * d;
    }
    *rstd = 1 / sqrtf(mr_warp_sum(squares) / C + eps);
}

// ---- sums of columns ----

// index of column c in a partial row
MR_DEVICE int64_t slot_of(int64_t c, int lanes, int E)
{
    int64_t piece = c / E;
    return ((piece / lanes * (E / 4) + c % E / 4) * lanes + piece % lanes) * 4 + c % 4;
}

/* Add the sums of all groups of the block, in order, and store a partial row. shared: F::SHARED
 * bytes, reusable after the next __syncthreads. */
template <typename T, class F>
MR_DEVICE void fold(const float (&sum)[Part<T, F>::N][Part<T, F>::E], float *shared, float *partial)
{
    typedef Part<T, F> P;
    constexpr int Q = P::E / 4;
    if constexpr (F::AT_ONCE > 1) {
        float *mine = shared + P::group() * F::SLOTS;
#pragma unroll
        for (int i = 0; i < P::N; i++)
#pragma unroll
            for (int q = 0; q < Q; q++) {
                float v[4] = {sum[i][q * 4], sum[i][q * 4 + 1], sum[i][q * 4 + 2],
                              sum[i][q * 4 + 3]};
                mr_store16(mine + ((i * Q + q) * F::LANES + P::lane()) * 4, mr_packed(v));
            }
        __syncthreads();
        for (int s = threadIdx.x * 4; s < F::SLOTS; s += ROW_THREADS * 4) {
            float total[4] = {0, 0, 0, 0};
#pragma unroll
            for (int g = 0; g < F::AT_ONCE; g++) {
                float v[4];
                mr_load(shared + g * F::SLOTS + s, v);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    total[e] += v[e];
            }
            mr_store(partial + s, total);
        }
    } else {
#pragma unroll
        for (int i = 0; i < P::N; i++)
#pragma unroll
            for (int q = 0; q < Q; q++) {
                float v[4] = {sum[i][q * 4], sum[i][q * 4 + 1], sum[i][q * 4 + 2],
                              sum[i][q * 4 + 3]};
                mr_store(partial + ((i * Q + q) * F::LANES + P::lane()) * 4, v);
            }
    }
}

// Partial rows of `slots` floats: `many` rows for each of grid.y outputs of C columns.
struct Partials {
    const float *data;
    int64_t step; // floats between partial rows; between outputs it is many * step
    int many, C, lanes, E;

    // set the slot order of rows of T with form F
    template <typename T, class F> void of()
    {
        lanes = F::LANES;
        E = Part<T, F>::E;
    }
};

enum { ADD_COLUMNS = 32, ADD_GROUPS = 8 };

/* out[o][c] = (acc ? acc[c] : 0) + the partial sums, in an order that depends only on `many`. A
 * block has ADD_COLUMNS * ADD_GROUPS threads. out and acc may be the same. */
template <typename T>
__global__ void __launch_bounds__(ADD_COLUMNS *ADD_GROUPS)
    add_partials(Partials p, const float *acc, T *out)
{
    MR_SHARED(memory);
    float *sums = (float *)memory;
    int column = threadIdx.x % ADD_COLUMNS, group = threadIdx.x / ADD_COLUMNS;
    int64_t c = (int64_t)blockIdx.x * ADD_COLUMNS + column;
    float sum = 0;
    if (c < p.C) {
        const float *from =
            p.data + (int64_t)blockIdx.y * p.many * p.step + slot_of(c, p.lanes, p.E);
        for (int i = group; i < p.many; i += ADD_GROUPS)
            sum += from[i * p.step];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (group > 0 || c >= p.C)
        return;
    float total = acc ? acc[c] : 0;
    for (int g = 0; g < ADD_GROUPS; g++)
        total += sums[g * ADD_COLUMNS + column];
    mr_store1(out + (int64_t)blockIdx.y * p.C + c, total);
}

template <typename T>
static void launch_add(const Partials &p, int outputs, const float *acc, T *out,
                       cudaStream_t stream)
{
    dim3 grid((unsigned)mr_cuda_ceil(p.C, ADD_COLUMNS), (unsigned)outputs);
    MR_LAUNCH((add_partials<T>), grid, dim3(ADD_COLUMNS * ADD_GROUPS),
              ADD_COLUMNS * ADD_GROUPS * sizeof(float), stream, p, acc, out);
}

// ---- host ----

// can rows of C elements of this view be read in 16-byte pieces?
static inline bool whole_rows(const mr_view *v, int64_t C)
{
    int last = v->desc.rank - 1;
    int64_t E = 16 / (int64_t)mr_dtype_bytes(v->desc.dtype);
    if (C % E || v->desc.stride[last] != 1 || !mr_cuda_aligned(v->data, 16))
        return false;
    for (int d = 0; d < last; d++)
        if (v->desc.stride[d] % E && v->desc.dim[d] > 1)
            return false;
    return true;
}

// the same for all views that have data
static inline bool whole_rows(int64_t C, std::initializer_list<const mr_view *> views)
{
    for (const mr_view *v : views)
        if (v->data && !whole_rows(v, C))
            return false;
    return true;
}

// call launch(form) with the form for rows of C columns; false: the rows are too wide
template <class Launch> static bool with_form(int64_t C, Launch launch)
{
    if (C <= HeadRows::SLOTS)
        launch(HeadRows());
    else if (C <= WarpRows::SLOTS)
        launch(WarpRows());
    else if (C <= BlockRows::SLOTS)
        launch(BlockRows());
    else
        return false;
    return true;
}

// floats of a partial row, for any form: a multiple of 4
static inline int64_t partial_floats(int64_t C)
{
    int64_t slots = mr_cuda_ceil(C, 4) * 4;
    with_form(C, [&](auto form) { slots = decltype(form)::SLOTS; });
    return slots;
}

/* Plain kernels keep sums of columns in shared memory. Refuse more than a launch gets by default.
 */
static inline mr_status plain_fits(int64_t C, int sums)
{
    if (C * sums * (int64_t)sizeof(float) <= 48 << 10)
        return MR_OK;
    return mr_fail(MR_E_UNSUPPORTED,
                   "%lld columns that are not dense pieces of 16 bytes, expected at most %d",
                   (long long)C, (48 << 10) / (sums * (int)sizeof(float)));
}

// rows per block when all rows of a tensor are summed: gives at most BLOCKS_MAX partial rows
enum { BLOCK_ROWS = 64, BLOCKS_MAX = 512 };
static inline int64_t rows_of_block(int64_t rows)
{
    int64_t each = mr_cuda_ceil(rows, BLOCKS_MAX);
    return each < BLOCK_ROWS ? (int64_t)BLOCK_ROWS : mr_cuda_ceil(each, 8) * 8;
}

static inline int64_t row_count(const mr_desc *x)
{
    int64_t n = 1;
    for (int i = 0; i < x->rank - 1; i++)
        n *= x->dim[i];
    return n;
}

// workspace bytes for the partial rows of one sum over all rows of x
static inline size_t partial_bytes(const mr_desc *x)
{
    int64_t rows = row_count(x), blocks = mr_cuda_ceil(rows, rows_of_block(rows));
    return (size_t)(blocks * partial_floats(x->dim[x->rank - 1])) * sizeof(float);
}

// rows [rows, C]; a block takes `span` rows
struct RowSpan {
    uint32_t rows, span;
    int C;
    float eps;

    struct Rows {
        uint32_t first, last;
    };
    MR_MEMBER Rows of_block() const
    {
        uint32_t first = blockIdx.x * span;
        return {first, rows - first < span ? rows : first + span};
    }
};

// make the walk over the rows of several views; n->rows is 0 if there are no elements
template <int V>
static mr_status rows_of(const mr_desc *const (&views)[V], int64_t span, double eps, Walk<V> *walk,
                         RowSpan *n)
{
    int64_t rows, C = views[0]->dim[views[0]->rank - 1];
    if (!walk_of(views, views[0]->rank - 1, walk, &rows) || C > INT32_MAX)
        return walk_too_large(rows);
    *n = {(uint32_t)(C ? rows : 0), (uint32_t)span, (int)C, (float)eps};
    return MR_OK;
}

#endif
