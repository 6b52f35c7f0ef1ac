/* embedding: y[i] = sum over k of table[ids[i, k]]; id -1 adds nothing. The gradient adds rows of
 * dy to acc in the order of the ids, in f32.
 *
 *   ids [..., K] i32   table [R, C]   y, dy [..., C]   acc [R, C] f32
 *
 * An id outside -1 .. R - 1 adds nothing; the kernel records it, and the host then fails the run. A
 * thread processes one column of one row of y. In the gradient it processes one column for all ids,
 * so it adds to acc in order, and the bits are fixed. Tables are small and lookups rare, so the
 * gradient may read the ids once per column. */
#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/kernel_call.h"
#include "cuda/rt/driver.h"

enum { THREADS = 256 };

// in host memory that the device can access: an id out of range
struct Fault {
    int64_t R;
    int32_t id, bad;
};

struct Shape {
    int64_t n, C, R;
    int K;
};

template <typename T>
__global__ void __launch_bounds__(THREADS)
    embedding_rows(const int32_t *ids, const T *table, T *y, Shape n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / n.C, c = i % n.C;
    if (row >= n.n)
        return;
    float sum = 0;
    for (int k = 0; k < n.K; k++) {
        int32_t id = ids[row * n.K + k];
        if (id >= 0 && id < n.R)
            sum += mr_load1(table + id * n.C + c);
    }
    mr_store1(y + i, sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    embedding_grad_columns(const int32_t *ids, const T *dy, float *acc, Shape n)
{
    int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= n.C)
        return;
    for (int64_t i = 0; i < n.n * n.K; i++) {
        int32_t id = ids[i];
        if (id >= 0 && id < n.R)
            acc[id * n.C + c] += mr_load1(dy + i / n.K * n.C + c);
    }
}

// one block finds the first id out of range
static __global__ void __launch_bounds__(THREADS)
    embedding_check(const int32_t *ids, int64_t count, int64_t R, Fault *fault)
{
    MR_SHARED(memory);
    int64_t *first = (int64_t *)memory, mine = count;
    for (int64_t i = threadIdx.x; i < count && mine == count; i += THREADS)
        if (ids[i] < -1 || ids[i] >= R)
            mine = i;
    first[threadIdx.x] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half && first[threadIdx.x + half] < first[threadIdx.x])
            first[threadIdx.x] = first[threadIdx.x + half];
    }
    if (threadIdx.x == 0 && first[0] < count) {
        fault->id = ids[first[0]];
        fault->bad = 1;
    }
}

static mr_status new_fault(int64_t R, void **state)
{
    int error = mr_cuda.alloc(sizeof(Fault), true, state);
    if (error)
        return mr_fail(MR_E_MEMORY, "pinned memory: %s", mr_cuda.text(error));
    *(Fault *)*state = {R, 0, 0};
    return MR_OK;
}

static void release(void *state)
{
    mr_cuda.release(state, true);
}

static mr_status check(void *state)
{
    Fault *f = (Fault *)state;
    if (!f->bad)
        return MR_OK;
    f->bad = 0;
    return mr_fail(MR_E_RANGE, "id %d, expected -1 (none) to %lld", f->id, (long long)f->R - 1);
}

static void launch_check(const mr_call *call, int64_t R, cudaStream_t stream)
{
    int64_t count = mr_desc_count(&call->in[0].desc);
    if (count > 0)
        MR_LAUNCH(embedding_check, dim3(1), dim3(THREADS), THREADS * sizeof(int64_t), stream,
                  (const int32_t *)call->in[0].data, count, R, (Fault *)call->state);
}

static Shape shape_of(const mr_call *call, const mr_desc *table)
{
    const mr_desc *ids = &call->in[0].desc;
    int64_t K = ids->dim[ids->rank - 1];
    return {K ? mr_desc_count(ids) / K : 0, table->dim[1], table->dim[0], (int)K};
}

template <typename T> static mr_status look_up(const mr_call *call, cudaStream_t stream)
{
    Shape n = shape_of(call, &call->in[1].desc);
    launch_check(call, n.R, stream);
    // with no ids per row, the sum of every row of y is 0
    n.n = n.C ? mr_desc_count(&call->out[0].desc) / n.C : 0;
    if (n.n > 0)
        MR_LAUNCH((embedding_rows<T>), dim3((unsigned)mr_cuda_ceil(n.n * n.C, THREADS)),
                  dim3(THREADS), 0, stream, (const int32_t *)call->in[0].data,
                  (const T *)call->in[1].data, (T *)call->out[0].data, n);
    return MR_OK;
}

static mr_status prepare(const mr_call *call, const mr_facts *, void **state)
{
    return new_fault(call->in[1].desc.dim[0], state);
}

MR_CUDA_FLOATS(embedding, 1, look_up, NULL, prepare, release, check)

template <typename T> static mr_status add_rows(const mr_call *call, cudaStream_t stream)
{
    Shape n = shape_of(call, &call->in[2].desc);
    launch_check(call, n.R, stream);
    if (n.n * n.C > 0)
        MR_LAUNCH((embedding_grad_columns<T>), dim3((unsigned)mr_cuda_ceil(n.C, THREADS)),
                  dim3(THREADS), 0, stream, (const int32_t *)call->in[0].data,
                  (const T *)call->in[1].data, (float *)call->out[0].data, n);
    return MR_OK;
}

static mr_status prepare_grad(const mr_call *call, const mr_facts *, void **state)
{
    return new_fault(call->in[2].desc.dim[0], state);
}

MR_CUDA_FLOATS(embedding_grad, 1, add_rows, NULL, prepare_grad, release, check)
