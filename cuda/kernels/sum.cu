/* sum, mean: over the listed axes (none listed: all), x with any strides, sums in f32.
 *
 * The reduced elements are cut into at most PIECES pieces whose size depends only on the shape. If
 * the last kept dimension is dense, a warp processes neighbouring kept elements. Otherwise a block
 * processes the reduced elements of one kept element. Partial sums [pieces, kept] go to the
 * workspace and are added in order, in double. So the bits do not depend on the order of blocks. x
 * is read once. */
#include "cuda/kernels/block_sum.cuh"
#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/walk.cuh"

enum { PIECES = 64, PIECE_MIN = 256, COLUMNS = 32, GROUPS = 8, THREADS = COLUMNS * GROUPS };

struct attr { // as in core/op/sum.c
    mr_ints axes;
    bool keep;
};

struct Reduction {
    Walk<1> kept, reduced;
    uint32_t k, r, piece, pieces; // kept elements, reduced elements, size and number of pieces
};

/* grid: (kept / COLUMNS, pieces). Each column of the block is a kept element; each of its groups
 * adds every GROUPS-th reduced element. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    sum_columns(const T *x, const __grid_constant__ Reduction n, float *partials)
{
    MR_SHARED(memory);
    float *sums = (float *)memory;
    uint32_t column = threadIdx.x % COLUMNS, k = blockIdx.x * COLUMNS + column;
    uint32_t first = blockIdx.y * n.piece, last = first + n.piece < n.r ? first + n.piece : n.r;
    float sum = 0;
    if (k < n.k) {
        int64_t at[1], off[1];
        n.kept.at(k, at);
        for (uint32_t r = first + threadIdx.x / COLUMNS; r < last; r += GROUPS) {
            n.reduced.at(r, off);
            sum += mr_load1(x + at[0] + off[0]);
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= COLUMNS || k >= n.k)
        return;
    for (int g = 1; g < GROUPS; g++)
        sum += sums[g * COLUMNS + column];
    partials[(int64_t)blockIdx.y * n.k + k] = sum;
}

// grid: (kept, pieces). The block adds the reduced elements of one kept element.
template <typename T>
__global__ void __launch_bounds__(THREADS)
    sum_rows(const T *x, const __grid_constant__ Reduction n, float *partials)
{
    MR_SHARED(memory);
    uint32_t first = blockIdx.y * n.piece, last = first + n.piece < n.r ? first + n.piece : n.r;
    int64_t at[1], off[1];
    n.kept.at(blockIdx.x, at);
    float sum = 0;
    for (uint32_t r = first + threadIdx.x; r < last; r += THREADS) {
        n.reduced.at(r, off);
        sum += mr_load1(x + at[0] + off[0]);
    }
    double total = mr_block_sum<THREADS>(sum, (double *)memory);
    if (threadIdx.x == 0)
        partials[(int64_t)blockIdx.y * n.k + blockIdx.x] = (float)total;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    add_pieces(const float *partials, uint32_t k, uint32_t pieces, double scale, T *y)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= k)
        return;
    double sum = 0;
    for (uint32_t p = 0; p < pieces; p++)
        sum += (double)partials[(int64_t)p * k + i];
    mr_store1(y + i, (float)(sum * scale));
}

// ---- host ----

static bool is_reduced(const attr *a, int axis)
{
    for (int i = 0; i < a->axes.n; i++)
        if (a->axes.v[i] == axis)
            return true;
    return a->axes.n == 0;
}

// the kept dimensions keep the order of the dense output
static mr_status reduction_of(const mr_call *call, Reduction *n, int64_t *kept, int64_t *reduced)
{
    const mr_desc *x = &call->in[0].desc;
    mr_desc part[2] = {*x, *x};
    part[0].rank = part[1].rank = 0;
    for (int d = 0; d < x->rank; d++) {
        mr_desc *to = &part[is_reduced((const attr *)call->attr, d)];
        to->dim[to->rank] = x->dim[d];
        to->stride[to->rank++] = x->stride[d];
    }
    // a first view with descending strides keeps the order of dimensions
    mr_desc dense[2];
    Walk<2> walk[2];
    int64_t count[2];
    for (int i = 0; i < 2; i++) {
        dense[i] = mr_desc_dense(x->dtype, part[i].rank, part[i].dim);
        const mr_desc *views[2] = {&dense[i], &part[i]};
        if (!walk_of(views, part[i].rank, &walk[i], &count[i]))
            return walk_too_large(count[i]);
        Walk<1> *w = i ? &n->reduced : &n->kept;
        w->rank = walk[i].rank;
        memcpy(w->dim, walk[i].dim, sizeof w->dim);
        memcpy(w->stride[0], walk[i].stride[1], sizeof w->stride[0]);
    }
    int64_t piece = mr_cuda_ceil(count[1], PIECES);
    piece = piece < PIECE_MIN ? (int64_t)PIECE_MIN : piece;
    n->k = (uint32_t)count[0];
    n->r = (uint32_t)count[1];
    n->piece = (uint32_t)piece;
    n->pieces = (uint32_t)mr_cuda_ceil(count[1], piece);
    *kept = count[0];
    *reduced = count[1];
    return MR_OK;
}

static size_t workspace(const mr_call *call, const mr_facts *)
{
    Reduction n = {};
    int64_t kept, reduced;
    if (reduction_of(call, &n, &kept, &reduced) != MR_OK)
        return 0;
    return (size_t)n.k * n.pieces * sizeof(float);
}

template <typename T> static mr_status run(const mr_call *call, bool mean, cudaStream_t stream)
{
    Reduction n = {};
    int64_t kept, reduced;
    MR_TRY(reduction_of(call, &n, &kept, &reduced));
    if (kept == 0)
        return MR_OK;
    const T *x = (const T *)call->in[0].data;
    T *y = (T *)call->out[0].data;
    float *partials = (float *)call->workspace;
    bool columns = n.kept.stride[0][n.kept.rank - 1] == 1 && n.k > 1;
    if (reduced > 0 && columns)
        MR_LAUNCH((sum_columns<T>), dim3((unsigned)mr_cuda_ceil(kept, COLUMNS), n.pieces),
                  dim3(THREADS), THREADS * sizeof(float), stream, x, n, partials);
    else if (reduced > 0)
        MR_LAUNCH((sum_rows<T>), dim3(n.k, n.pieces), dim3(THREADS), THREADS * sizeof(double),
                  stream, x, n, partials);
    double scale = mean && reduced ? 1 / (double)reduced : 1;
    MR_LAUNCH((add_pieces<T>), dim3((unsigned)mr_cuda_ceil(kept, THREADS)), dim3(THREADS), 0,
              stream, partials, n.k, n.pieces, scale, y);
    return MR_OK;
}

static mr_status reduce(const mr_call *call, bool mean, cudaStream_t stream)
{
    if (call->in[0].desc.dtype == MR_BF16)
        return run<mr_bf16>(call, mean, stream);
    return run<float>(call, mean, stream);
}

MR_CUDA_KERNEL(sum, workspace)
{
    return reduce(call, false, stream);
}

MR_CUDA_KERNEL(mean, workspace)
{
    return reduce(call, true, stream);
}
