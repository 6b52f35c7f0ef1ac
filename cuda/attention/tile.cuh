/* Tiles of heads in shared memory, and warp products on them by mma.sync.
 *
 * A tile has rows of D columns, D a multiple of 16. The pitch is D + 8 elements, an odd number of
 * 16-byte units, so ldmatrix has no bank conflicts. A head of d < D columns is padded with zeros. A
 * warp processes a strip of 16 rows. Accumulators and operands are fragments of mma.sync: of each 8
 * columns, a thread has columns lane % 4 * 2 and the next, in rows lane / 4 and lane / 4 + 8.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_TILE_CUH
#define MOONREEL_CUDA_ATTENTION_TILE_CUH

#include "cuda/prim/sm80.cuh"

enum { ATTENTION_THREADS = 128, STRIP = 16, ROWS = 64 }; // four warps, one strip each

#define LOG2E 1.4426950408889634f

// heads [B, G, N, h, d] with dense d; b, g, n, h are strides in elements
struct Heads {
    mr_bf16 *data;
    int64_t b, g, n, h;

    MR_MEMBER mr_bf16 *of(int at_b, int at_g, int at_h) const
    {
        return data + at_b * b + at_g * g + at_h * h;
    }
};

struct Attention {
    int B, G, N, M, h, d, e; // e: columns of v and o
    float scale;
    int frame;          // tokens per frame; 0: every query sees every key
    bool part;          // backward: o and lse also cover other keys
    int counted;        // len counts within this many keys; the keys after them all exist
    int before;         // keys before these that len counts too
    const int32_t *len; // NULL: all keys exist
    const void *bias;   // [h, N, M] f32 or bf16, or NULL
    bool bias_half;
};

// the sequence and the tile that a block or a warp processes
struct Place {
    int b, g, h, tile;
    int len, keys; // the first `len` of the counted keys exist; no key from `keys` on exists
    int64_t row;   // index of query 0 in [B, G, h, N]
};

MR_DEVICE Place place_at(const Attention &p, int sequence, int tile)
{
    Place x;
    x.tile = tile;
    x.h = sequence % p.h;
    x.g = sequence / p.h % p.G;
    x.b = sequence / p.h / p.G;
    // both factors are nonnegative; unsigned arithmetic saves registers
    x.row = (int64_t)((uint64_t)(uint32_t)sequence * (uint32_t)p.N);
    x.len = p.len ? p.len[x.b] - p.before : p.counted;
    x.len = x.len < 0 ? 0 : x.len > p.counted ? p.counted : x.len;
    x.keys = p.counted < p.M ? p.M : x.len;
    return x;
}

// consecutive blocks take consecutive tiles of a sequence
MR_DEVICE Place place_of(const Attention &p, int tiles)
{
    return place_at(p, blockIdx.x / tiles, blockIdx.x % tiles);
}

// end of the range of keys that query i may see; 0 if the query does not exist
MR_DEVICE int keys_seen(const Attention &p, const Place &at, int i)
{
    int end = p.frame ? (i / p.frame + 1) * p.frame : at.keys;
    return i >= p.N ? 0 : end < at.keys ? end : at.keys;
}

// does query i see exactly one key?
MR_DEVICE bool sees_one(const Attention &p, const Place &at, int i)
{
    return (p.counted < p.M ? at.len + p.M - p.counted : keys_seen(p, at, i)) == 1;
}

MR_DEVICE bool key_exists(const Attention &p, const Place &at, int j)
{
    return j < at.len || (j >= p.counted && j < p.M);
}

// the score in units of log 2; -inf if query i does not see the key
MR_DEVICE float masked(const Attention &p, const Place &at, bool seen, int i, int j, float s)
{
    if (!seen)
        return -INFINITY;
    s *= p.scale * LOG2E;
    if (!p.bias)
        return s;
    int64_t where = ((int64_t)at.h * p.N + i) * p.M + j;
    float bias =
        p.bias_half ? mr_f32(((const mr_bf16 *)p.bias)[where]) : ((const float *)p.bias)[where];
    return s + bias * LOG2E;
}

template <int D> struct Tile {
    static constexpr int PITCH = (D + 8) * 2;
    static constexpr int bytes(int rows)
    {
        return rows * PITCH;
    }
};

/* Row and 16-byte piece of the i-th copy of a tile. Eight consecutive lanes write to eight
 * different bank groups: they copy eight pieces of one row. If rows have ten pieces, they copy the
 * last two pieces of four even or four odd rows. */
template <int D> MR_DEVICE void piece_of(int i, int *row, int *piece)
{
    constexpr int PIECES = D / 8, EIGHTS = PIECES / 8, LEFT = PIECES % 8;
    static_assert(LEFT == 0 || LEFT == 2, "columns are a multiple of 64, or 16 more");
    int rows8 = i / (8 * PIECES), j = i % (8 * PIECES), left = (j - EIGHTS * 64) / 2;
    bool whole = LEFT == 0 || j < EIGHTS * 64;
    *row = rows8 * 8 + (whole ? j / 8 % 8 : left % 4 * 2 + left / 4);
    *piece = whole ? j / 64 * 8 + j % 8 : EIGHTS * 8 + j % 2;
}

/* Start copies of TILE_ROWS rows of a head into a tile. Rows without exist(row) and columns from d
 * on become zeros. All threads of the block call this or, with THREADS = 32, all lanes of a warp.
 */
template <int D, int TILE_ROWS, int THREADS, class Exist>
MR_DEVICE void tile_copy_rows(unsigned char *tile, const mr_bf16 *head, int64_t step, Exist exist,
                              int d)
{
    for (int i = threadIdx.x % THREADS; i < TILE_ROWS * (D / 8); i += THREADS) {
        int r, c;
        piece_of<D>(i, &r, &c);
        c *= 8;
        bool inside = exist(r) && c < d;
        mr_copy16(tile + r * Tile<D>::PITCH + c * 2, inside ? head + r * step + c : head,
                  inside ? 16 : 0);
    }
}

// copies the first `rows` rows; the others become zeros
template <int D, int TILE_ROWS, int THREADS = ATTENTION_THREADS>
MR_DEVICE void tile_copy(unsigned char *tile, const mr_bf16 *head, int64_t step, int rows, int d)
{
    tile_copy_rows<D, TILE_ROWS, THREADS>(
        tile, head, step, [&](int r) { return r < rows; }, d);
}

// copies keys from `first` on; keys that do not exist become zeros, whatever their memory contains
template <int D, int TILE_ROWS, int THREADS = ATTENTION_THREADS>
MR_DEVICE void tile_copy_keys(unsigned char *tile, const Heads &x, const Attention &p,
                              const Place &at, int first, int d)
{
    tile_copy_rows<D, TILE_ROWS, THREADS>(
        tile, x.of(at.b, at.g, at.h) + first * x.n, x.n,
        [&](int r) { return key_exists(p, at, first + r); }, d);
}

template <int D> MR_DEVICE void clear(float (&acc)[D / 8][4])
{
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0;
}

// s [16, COLUMNS] += strip a times rows of b, transposed
template <int D, int COLUMNS>
MR_DEVICE void add_scores(float (&s)[COLUMNS / 8][4], const unsigned char *a,
                          const unsigned char *b)
{
    int lane = threadIdx.x % 32;
    const unsigned char *left = a + lane % 16 * Tile<D>::PITCH + lane / 16 * 16;
    const unsigned char *right =
        b + (lane % 8 + lane / 16 * 8) * Tile<D>::PITCH + lane / 8 % 2 * 16;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t x[4];
        mr_load_matrix4<false>(x, left + k * 32);
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n += 2) {
            uint32_t y[4];
            mr_load_matrix4<false>(y, right + n * 8 * Tile<D>::PITCH + k * 32);
            mr_product16(s[n], x, y[0], y[1]);
            mr_product16(s[n + 1], x, y[2], y[3]);
        }
    }
}

template <int D, int COLUMNS>
MR_DEVICE void scores(float (&s)[COLUMNS / 8][4], const unsigned char *a, const unsigned char *b)
{
    clear<COLUMNS>(s);
    add_scores<D, COLUMNS>(s, a, b);
}

// acc [16, D] += s [16, COLUMNS], rounded to bf16, times rows of b
template <int D, int COLUMNS>
MR_DEVICE void add_product(float (&acc)[D / 8][4], const float (&s)[COLUMNS / 8][4],
                           const unsigned char *b)
{
    int lane = threadIdx.x % 32;
    const unsigned char *right = b + lane % 16 * Tile<D>::PITCH + lane / 16 * 16;
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; k++) {
        const float(&low)[4] = s[2 * k], (&high)[4] = s[2 * k + 1];
        uint32_t x[4] = {mr_pack(low[0], low[1]), mr_pack(low[2], low[3]),
                         mr_pack(high[0], high[1]), mr_pack(high[2], high[3])};
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t y[4];
            mr_load_matrix4<true>(y, right + k * 16 * Tile<D>::PITCH + n * 16);
            mr_product16(acc[n], x, y[0], y[1]);
            mr_product16(acc[n + 1], x, y[2], y[3]);
        }
    }
}

/* Store the rows of a strip: the thread's two rows times factor[0] and factor[1]. Row r goes to
 * to(r), or nowhere if to(r) is NULL. `strip` is the warp's 16 rows of a tile that is no longer
 * needed; the rows are staged there, so that the warp stores whole 16-byte pieces. */
template <int D, class To>
MR_DEVICE void store_strip_rows(const float (&acc)[D / 8][4], const float (&factor)[2],
                                unsigned char *strip, To to, int d)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *(uint32_t *)(strip + (lane / 4 + r * 8) * Tile<D>::PITCH + n * 16 + lane % 4 * 4) =
                mr_pack(acc[n][2 * r] * factor[r], acc[n][2 * r + 1] * factor[r]);
    __syncwarp();
#pragma unroll
    for (int i = lane; i < STRIP * (D / 8); i += 32) {
        int r, c;
        piece_of<D>(i, &r, &c);
        uint4 piece = mr_load16(strip + r * Tile<D>::PITCH + c * 16);
        mr_bf16 *row = to(r);
        if (row && c * 8 < d)
            mr_store16(row + c * 8, piece);
    }
}

// the same to the first `rows` rows, `step` elements apart
template <int D>
MR_DEVICE void store_strip(const float (&acc)[D / 8][4], const float (&factor)[2],
                           unsigned char *strip, mr_bf16 *head, int64_t step, int rows, int d)
{
    store_strip_rows<D>(
        acc, factor, strip, [&](int r) { return r < rows ? head + r * step : NULL; }, d);
}

// reductions over the four lanes that share a row
MR_DEVICE float row_max4(float v)
{
    v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
    return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}

MR_DEVICE float row_sum4(float v)
{
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

/* Finish a softmax. The thread's two rows start at `row`, and `rows` rows exist. Writes the log-sum
 * of each row to lse (row 0 of the sequence) and 1 / sum to `inverse`; a row that saw no key gets
 * -inf and 0; a NaN sum stays NaN. most: the maximum in units of log 2; sum: the part of this
 * thread. */
MR_DEVICE void softmax_end(const float (&most)[2], const float (&sum)[2], int row, int rows,
                           float *lse, float (&inverse)[2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float total = row_sum4(sum[r]);
        inverse[r] = total == 0 ? 0 : 1 / total;
        if (threadIdx.x % 4 == 0 && row + r * 8 < rows)
            lse[row + r * 8] = total == 0 ? -INFINITY : most[r] / LOG2E + logf(total);
    }
}

// Statistics of a query for the gradient: p = exp2(score - log_sum), ds = p (weight do v - dot).
struct Statistics {
    float log_sum, dot, weight;
};

// p = 0 for a query that does not exist or sees no key
MR_DEVICE Statistics statistics(const Attention &p, const Place &at, int i, const float *lse,
                                const float *dots, const float *dlse)
{
    if (i >= p.N || lse[at.row + i] == -INFINITY)
        return {INFINITY, 0, 0};
    float log_sum = lse[at.row + i] * LOG2E;
    if (!p.part && sees_one(p, at, i))
        return {log_sum, dlse ? -dlse[at.row + i] : 0, 0};
    return {log_sum, dots[at.row + i], 1};
}

#endif
