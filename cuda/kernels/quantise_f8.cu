/* quantise_f8: q = round(x s) in 8 bits, s = largest value of the format / largest |x|,
 * scale = 1 / s.
 *
 *   x [..., C] f32 or bf16, dense rows, any strides -> q [..., C], scale [1] f32,
 *   q_t [C, rows rounded up to a multiple of 16] (optional)
 *
 * Three launches compute the largest magnitude of ranges of x, that of all x, and the codes. x is
 * read twice, 16 bytes at a time. q and q_t are written once, in whole sectors of 32 bytes: a
 * thread keeps 32 elements, the columns of a 16-byte piece in as many rows as fill a piece of a
 * column. So it can write both orders from its registers. A maximum does not depend on order, so
 * the bits are fixed. Rows that are not dense 16-byte pieces are processed element by element. */
#include "cuda/kernels/rows.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, RANGES_MAX = 1024, ALIGNED = 16 };

// a warp's tile is [32, 32], a block's [TILE_ROWS, TILE_COLUMNS]
enum { ROW_WARPS = 4, TILE_ROWS = 32 * ROW_WARPS, TILE_COLUMNS = 32 * WARPS / ROW_WARPS };

// parameters of all launches: x as rows, in the order of q, and the columns of q_t
struct Matrix {
    Walk<2> walk; // over q and x
    uint32_t rows, columns_t;
    int C;
};

// the thread's part of a tile: R rows of E columns
template <typename T> struct Tile {
    static constexpr int E = 16 / sizeof(T), R = 32 / E;
    uint32_t row;
    int column;
    uint4 piece[R];

    MR_MEMBER Tile(uint32_t tile, int C)
    {
        const uint32_t across = (uint32_t)(C + TILE_COLUMNS - 1) / TILE_COLUMNS;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        row = tile / across * TILE_ROWS + warp % ROW_WARPS * 32 + lane / R * R;
        column = (int)(tile % across) * TILE_COLUMNS + warp / ROW_WARPS * 32 + lane % R * E;
    }

    // zeros outside the matrix
    MR_MEMBER void load(const Matrix &m, const T *x)
    {
#pragma unroll
        for (int i = 0; i < R; i++) {
            piece[i] = {0, 0, 0, 0};
            if (row + i >= m.rows || column >= m.C)
                continue;
            int64_t at[2];
            m.walk.at(row + i, at);
            piece[i] = mr_load16(x + at[1] + column);
        }
    }
};

// ---- the largest magnitude, compared as bits; NaN compares as largest ----

MR_DEVICE uint32_t size_of(float x)
{
    return mr_bits_of(x) & 0x7FFFFFFF;
}

MR_DEVICE uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

// maximum over the block, in thread 0; scratch: a word per warp
MR_DEVICE uint32_t block_largest(uint32_t most, uint32_t *scratch)
{
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2)
        most = larger(most, __shfl_xor_sync(~0u, most, lanes));
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = most;
    __syncthreads();
    for (int w = 0; threadIdx.x == 0 && w < WARPS; w++)
        most = larger(most, scratch[w]);
    return most;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    largest_of_tiles(const __grid_constant__ Matrix m, uint32_t tiles, const T *x, uint32_t *sizes)
{
    MR_SHARED(memory);
    uint32_t most = 0;
    for (uint32_t i = blockIdx.x; i < tiles; i += gridDim.x) {
        Tile<T> tile(i, m.C);
        tile.load(m, x);
#pragma unroll
        for (int r = 0; r < Tile<T>::R; r++) {
            float v[Tile<T>::E];
            mr_unpack(tile.piece[r], v);
#pragma unroll
            for (int e = 0; e < Tile<T>::E; e++)
                most = larger(most, size_of(v[e]));
        }
    }
    most = block_largest(most, (uint32_t *)memory);
    if (threadIdx.x == 0)
        sizes[blockIdx.x] = most;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    largest_of_elements(const __grid_constant__ Matrix m, const T *x, uint32_t *sizes)
{
    MR_SHARED(memory);
    uint32_t most = 0;
    const uint64_t count = (uint64_t)m.rows * m.C;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * THREADS) {
        int64_t at[2];
        m.walk.at((uint32_t)(i / m.C), at);
        most = larger(most, size_of(mr_load1(x + at[1] + i % m.C)));
    }
    most = block_largest(most, (uint32_t *)memory);
    if (threadIdx.x == 0)
        sizes[blockIdx.x] = most;
}

// one block: s for the codes, scale for readers of the codes
template <int M>
__global__ void __launch_bounds__(THREADS)
    scale_of(const uint32_t *sizes, int n, float *s, float *scale)
{
    MR_SHARED(memory);
    uint32_t most = 0;
    for (int i = threadIdx.x; i < n; i += THREADS)
        most = larger(most, sizes[i]);
    most = block_largest(most, (uint32_t *)memory);
    if (threadIdx.x > 0)
        return;
    *s = mr_f8_scale(most, M);
    *scale = 1.0f / *s;
}

// ---- the codes ----

// four codes, the first in the low byte
template <int M> MR_DEVICE uint32_t four_codes(const float *v, float s)
{
    return mr_pack8<M>(v[0] * s, v[1] * s) | mr_pack8<M>(v[2] * s, v[3] * s) << 16;
}

MR_DEVICE void store_words(uint8_t *p, const uint32_t (&word)[1])
{
    *(uint32_t *)p = word[0];
}

MR_DEVICE void store_words(uint8_t *p, const uint32_t (&word)[2])
{
    mr_store8(p, {word[0], word[1]});
}

template <typename T, int M>
__global__ void __launch_bounds__(THREADS)
    codes_of_tiles(const __grid_constant__ Matrix m, const T *x, const float *s_at, uint8_t *q,
                   uint8_t *q_t)
{
    constexpr int E = Tile<T>::E, R = Tile<T>::R;
    Tile<T> tile(blockIdx.x, m.C);
    const float s = *s_at;
    uint32_t codes[R][E / 4] = {};
    tile.load(m, x);
    if (tile.column >= m.C)
        return;
#pragma unroll
    for (int i = 0; i < R; i++) {
        if (tile.row + i >= m.rows)
            break;
        float v[E];
        mr_unpack(tile.piece[i], v);
#pragma unroll
        for (int e = 0; e < E; e += 4)
            codes[i][e / 4] = four_codes<M>(v + e, s);
        store_words(q + (int64_t)(tile.row + i) * m.C + tile.column, codes[i]);
    }
    if (!q_t || tile.row >= m.columns_t)
        return;
        // store R codes of each column, from R rows
#pragma unroll
    for (int e = 0; e < E; e++) {
        uint32_t column[R / 4] = {};
#pragma unroll
        for (int i = 0; i < R; i++)
            column[i / 4] |= (codes[i][e / 4] >> e % 4 * 8 & 255) << i % 4 * 8;
        store_words(q_t + (int64_t)(tile.column + e) * m.columns_t + tile.row, column);
    }
}

// one thread per element of the rows, or of the zeros after them
template <typename T, int M>
__global__ void __launch_bounds__(THREADS)
    codes_of_elements(const __grid_constant__ Matrix m, uint32_t count, const T *x,
                      const float *s_at, uint8_t *q, uint8_t *q_t)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const uint32_t row = i / m.C, column = i % m.C;
    uint8_t code = 0;
    if (row < m.rows) {
        int64_t at[2];
        m.walk.at(row, at);
        code = (uint8_t)mr_pack8<M>(mr_load1(x + at[1] + column) * *s_at, 0);
        q[i] = code;
    }
    if (q_t)
        q_t[(int64_t)column * m.columns_t + row] = code;
}

// ---- host ----

// number of blocks of the first launch
static int64_t ranges_of(int64_t work)
{
    return MR_MIN(work, (int64_t)RANGES_MAX);
}

static int64_t tiles_of(int64_t rows, int64_t C)
{
    return mr_cuda_ceil(rows, TILE_ROWS) * mr_cuda_ceil(C, TILE_COLUMNS);
}

// workspace: s, then a word per range, for either kernel
static size_t workspace(const mr_call *call, const mr_facts *)
{
    const mr_desc *x = &call->in[0].desc;
    int64_t tiles = tiles_of(row_count(x), x->dim[x->rank - 1]);
    int64_t n = MR_MAX(tiles, mr_cuda_ceil(mr_desc_count(x), THREADS));
    return (size_t)(ALIGNED + ranges_of(n) * (int64_t)sizeof(uint32_t));
}

template <typename T, int M> static mr_status run(const mr_call *call, cudaStream_t stream)
{
    const mr_view *x = &call->in[0];
    const mr_desc *views[2] = {&call->out[0].desc, &x->desc};
    RowSpan n = {};
    Matrix m = {};
    MR_TRY(rows_of(views, 1, 0, &m.walk, &n));
    m.rows = n.rows;
    m.C = n.C;
    m.columns_t = (uint32_t)(mr_cuda_ceil(n.rows, ALIGNED) * ALIGNED);
    const T *from = (const T *)x->data;
    uint8_t *q = (uint8_t *)call->out[0].data;
    uint8_t *q_t = call->out[2].desc.rank >= 0 ? (uint8_t *)call->out[2].data : NULL;
    float *s = (float *)call->workspace;
    uint32_t *sizes = (uint32_t *)((char *)call->workspace + ALIGNED);
    const int64_t tiles = tiles_of(m.rows, m.C),
                  plain = mr_cuda_ceil((int64_t)m.rows * m.C, THREADS);
    const int64_t elements = (int64_t)(q_t ? m.columns_t : m.rows) * m.C;
    if (elements > UINT32_MAX || mr_cuda_ceil(m.rows, TILE_ROWS) * TILE_ROWS > UINT32_MAX)
        return walk_too_large(elements);
    const bool pieces = whole_rows(x, m.C) && mr_cuda_aligned(q, 8) && mr_cuda_aligned(q_t, 8);
    const int ranges = (int)ranges_of(pieces ? tiles : plain);
    const dim3 block(THREADS);
    const size_t scratch = WARPS * sizeof(uint32_t);
    if (ranges > 0 && pieces)
        MR_LAUNCH((largest_of_tiles<T>), dim3(ranges), block, scratch, stream, m, (uint32_t)tiles,
                  from, sizes);
    else if (ranges > 0)
        MR_LAUNCH((largest_of_elements<T>), dim3(ranges), block, scratch, stream, m, from, sizes);
    MR_LAUNCH((scale_of<M>), dim3(1), block, scratch, stream, sizes, ranges, s,
              (float *)call->out[1].data);
    if (ranges > 0 && pieces)
        MR_LAUNCH((codes_of_tiles<T, M>), dim3((unsigned)tiles), block, 0, stream, m, from, s, q,
                  q_t);
    else if (ranges > 0)
        MR_LAUNCH((codes_of_elements<T, M>), dim3((unsigned)mr_cuda_ceil(elements, THREADS)), block,
                  0, stream, m, (uint32_t)elements, from, s, q, q_t);
    return MR_OK;
}

template <typename T> static mr_status run_in(const mr_call *call, cudaStream_t stream)
{
    return call->out[0].desc.dtype == MR_F8_E4M3 ? run<T, 3>(call, stream)
                                                 : run<T, 2>(call, stream);
}

MR_CUDA_FLOATS(quantise_f8, 0, run_in, workspace)
