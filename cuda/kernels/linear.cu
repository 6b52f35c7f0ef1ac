/* linear: y = x w^T + b, and its three gradients
 *
 *   linear_dx   dx = dy w                       linear_dw   acc += dy^T x   (f32, also from bf16)
 *   linear_db   acc += sum of the rows of dy    linear_dw computes this too if both are wanted
 *
 *   x, dx [..., K], y, dy [..., N]: dense rows, any strides between them
 *   w [N, K]   b, acc of db [N]
 *
 * The first three are products of cuda/gemm. If the leading dimensions of an operand do not join
 * into one step, it is copied to the workspace. Sums are f32. One algorithm per shape makes runs
 * reproducible.
 *
 * linear_db reads dy once. A block takes a range of rows and of columns; partial rows are added in
 * a fixed order, so the bits do not depend on the order of blocks. It uses 16-byte pieces as in
 * rows.cuh, for any width that allows them, otherwise single elements. With linear_dw in bf16,
 * cuBLASLt computes these sums from operands that it reads anyway; if it does not support a case,
 * both kernels run. */
#include "cuda/kernels/product_rows.cuh"
#include "cuda/kernels/rows.cuh"

// ---- products ----

static Plan dw_plan(const mr_call *call)
{
    Aside aside = {(char *)call->workspace, 0};
    Plan p = {};
    for (int i = 0; i < 2; i++)
        p.in[i] = rows_aside(&call->in[i], &aside, &p.copy[i]);
    p.out = call->out[0];
    p.copy[2].desc.rank = -1;
    p.bytes = aside.bytes;
    mr_product_spec &s = p.spec;
    s.batch = 1;
    s.m = columns(&p.in[0]);
    s.n = columns(&p.in[1]);
    s.k = row_count(&p.in[0].desc);
    s.a_row = 1;
    s.a_col = row_step(&p.in[0].desc);
    s.b_row = row_step(&p.in[1].desc);
    s.b_col = 1;
    s.c_row = s.n;
    s.in = call->in[0].desc.dtype;
    s.out = MR_F32;
    s.accumulate = true;
    return p;
}

static size_t linear_workspace(const mr_call *call, const mr_facts *)
{
    return workspace_of(rows_plan(call, true));
}

MR_CUDA_KERNEL(linear, linear_workspace)
{
    return run_plan(rows_plan(call, true), call, NULL, stream);
}

static size_t dx_workspace(const mr_call *call, const mr_facts *)
{
    return workspace_of(rows_plan(call, false));
}

MR_CUDA_KERNEL(linear_dx, dx_workspace)
{
    return run_plan(rows_plan(call, false), call, NULL, stream);
}

// ---- sums of rows ----

typedef WarpRows F; // columns per block

template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    column_sums(const __grid_constant__ Walk<1> walk, const T *dy, float *partials, int step,
                RowSpan n)
{
    typedef Part<T, F> P;
    MR_SHARED(memory);
    auto [first, last] = n.of_block();
    int from = blockIdx.y * F::SLOTS;
    float sum[P::N][P::E] = {};
    for (uint32_t row = first + P::group(); row < last; row += F::AT_ONCE) {
        int64_t at[1];
        walk.at(row, at);
        P up;
        up.load(dy + at[0] + from, n.C - from);
#pragma unroll
        for (int i = 0; i < P::N; i++) {
            float d[P::E];
            up.get(i, d);
#pragma unroll
            for (int e = 0; e < P::E; e++)
                sum[i][e] += d[e];
        }
    }
    fold<T, F>(sum, (float *)memory, partials + (int64_t)blockIdx.x * step + from);
}

// grid: (ranges of rows, columns / ROW_THREADS); one thread per column
template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    column_sums_plain(const __grid_constant__ Walk<1> walk, const T *dy, float *partials, int step,
                      RowSpan n)
{
    auto [first, last] = n.of_block();
    int c = blockIdx.y * ROW_THREADS + threadIdx.x;
    if (c >= n.C)
        return;
    float sum = 0;
    for (uint32_t row = first; row < last; row++) {
        int64_t at[1];
        walk.at(row, at);
        sum += mr_load1(dy + at[0] + c);
    }
    partials[(int64_t)blockIdx.x * step + c] = sum;
}

// floats of a partial row: whole tiles of columns
static int64_t step_of(int64_t N)
{
    return mr_cuda_ceil(N, F::SLOTS) * F::SLOTS;
}

static size_t db_workspace(const mr_call *call, const mr_facts *)
{
    const mr_desc *dy = &call->in[0].desc;
    int64_t rows = row_count(dy);
    return (size_t)(mr_cuda_ceil(rows, rows_of_block(rows)) * step_of(dy->dim[dy->rank - 1])) *
           sizeof(float);
}

// add the rows of in[0] to acc
template <typename T>
static mr_status add_rows_of(const mr_call *call, float *acc, cudaStream_t stream)
{
    const mr_view *dy = &call->in[0];
    const mr_desc *views[1] = {&dy->desc};
    Walk<1> walk;
    RowSpan n = {};
    MR_TRY(rows_of(views, rows_of_block(row_count(&dy->desc)), 0, &walk, &n));
    if (n.rows == 0)
        return MR_OK;
    const T *up = (const T *)dy->data;
    float *partials = (float *)call->workspace;
    int blocks = (int)mr_cuda_ceil(n.rows, n.span), step = (int)step_of(n.C);
    Partials sums = {partials, step, blocks, n.C, step, 4};
    if (whole_rows(dy, n.C)) {
        sums.of<T, F>();
        MR_LAUNCH((column_sums<T>), dim3(blocks, step / F::SLOTS), dim3(ROW_THREADS), F::SHARED,
                  stream, walk, up, partials, step, n);
    } else {
        MR_LAUNCH((column_sums_plain<T>), dim3(blocks, (unsigned)mr_cuda_ceil(n.C, ROW_THREADS)),
                  dim3(ROW_THREADS), 0, stream, walk, up, partials, step, n);
    }
    launch_add(sums, 1, acc, acc, stream);
    return MR_OK;
}

static mr_status add_rows(const mr_call *call, float *acc, cudaStream_t stream)
{
    if (call->in[0].desc.dtype == MR_BF16)
        return add_rows_of<mr_bf16>(call, acc, stream);
    return add_rows_of<float>(call, acc, stream);
}

MR_CUDA_KERNEL(linear_db, db_workspace)
{
    return add_rows(call, (float *)call->out[0].data, stream);
}

// ---- the gradient of a weight, and of a bias with it ----

static size_t dw_workspace(const mr_call *call, const mr_facts *facts)
{
    size_t product = workspace_of(dw_plan(call));
    if (call->in[3].desc.rank < 0)
        return product;
    size_t at_once = product + (size_t)columns(&call->in[0]) * sizeof(float),
           apart = db_workspace(call, facts);
    return at_once > apart ? at_once : apart;
}

MR_CUDA_KERNEL(linear_dw, dw_workspace)
{
    Plan p = dw_plan(call);
    if (call->in[3].desc.rank < 0)
        return run_plan(p, call, NULL, stream);
    // cuBLASLt overwrites its sums, so they go to the workspace and are then added
    int N = (int)columns(&call->in[0]);
    float *sums = (float *)((char *)call->workspace + workspace_of(p)),
          *db = (float *)call->out[1].data;
    mr_product_ending ending = {MR_CUDA_BIAS_GRADIENT, sums, 0};
    bool done;
    MR_TRY(run_ended(p, call, &ending, stream, &done));
    if (done) {
        launch_add(Partials{sums, N, 1, N, 1, 4}, 1, db, db, stream);
        return MR_OK;
    }
    MR_TRY(run_plan(p, call, NULL, stream));
    return add_rows(call, db, stream);
}
