/* reduce_scatter, all_gather, gather, total between the GPUs of ranks, as in core/op/over_ranks.c.
 *
 * A reduction adds the contributions in the order of ranks, in f32 or f64, and rounds once, so its
 * bits equal those of the CPU. Every rank sends its part of a chunk to the chunk's owner, which
 * adds them. NCCL would add during the transfer, in its own order. Chunks are cut into pieces whose
 * contributions fit into the workspace, one call per piece. The number of bytes sent equals that of
 * a ring.
 *
 * In addition to the transfer, reduce_scatter reads each contribution once and writes the sum once.
 * Licence: Apache-2.0 */
#include "cuda/kernels/copy.cuh"
#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/talk.cuh"

enum { THREADS = 256, MOST_RANKS = 8192 };
#ifdef __CUDACC__
enum { WORKSPACE_MOST = 64 << 20 };
#else
enum { WORKSPACE_MOST = 256 }; // small, so that specs have several pieces
#endif

struct group_attr { // as in core/op/over_ranks.c
    int64_t group;
};
struct gather_attr {
    int64_t group, ranks, at;
};

/* own [count] += theirs: the contributions of the other ranks, `stride` elements each; rank order
 * puts this rank's between them. A thread adds E elements. */
template <int E>
__global__ void __launch_bounds__(THREADS)
    add_in_order(float *own, const float *theirs, int64_t stride, int rank, int size,
                 uint32_t count)
{
    uint32_t i = (blockIdx.x * THREADS + threadIdx.x) * E;
    if (i >= count)
        return;
    float sum[E] = {}, x[E];
    for (int r = 0; r < size; r++) {
        const float *from = r == rank ? own + i : theirs + (r - (r > rank)) * stride + i;
        if constexpr (E == 4)
            mr_load(from, x);
        else
            x[0] = *from;
#pragma unroll
        for (int k = 0; k < E; k++)
            sum[k] = r ? sum[k] + x[k] : x[k];
    }
    if constexpr (E == 4)
        mr_store(own + i, sum);
    else
        own[i] = sum[0];
}

static mr_status add_contributions(float *own, const float *theirs, int64_t stride,
                                   const mr_cuda_talk *t, int64_t count, cudaStream_t stream)
{
    // the stride equals the piece length, or is a multiple of 4
    const bool wide = count % 4 == 0 && mr_cuda_aligned(own, 16);
    const dim3 grid((unsigned)mr_cuda_ceil(count, THREADS * (wide ? 4 : 1)));
    if (wide)
        MR_LAUNCH((add_in_order<4>), grid, dim3(THREADS), 0, stream, own, theirs, stride, t->rank,
                  t->size, (uint32_t)count);
    else
        MR_LAUNCH((add_in_order<1>), grid, dim3(THREADS), 0, stream, own, theirs, stride, t->rank,
                  t->size, (uint32_t)count);
    return MR_OK;
}

// y = the sum of x [n], in order
__global__ void __launch_bounds__(1) add_few(double *y, const double *x, int n)
{
    double sum = x[0];
    for (int i = 1; i < n; i++)
        sum += x[i];
    *y = sum;
}

static int64_t group_of(const mr_call *call)
{
    return ((const group_attr *)call->attr)->group;
}

// ---- reduce_scatter ----

static size_t reduce_workspace(const mr_call *call, const mr_facts *)
{
    const size_t bytes = mr_desc_span_bytes(&call->out[0].desc);
    return group_of(call) ? MR_MIN(bytes, (size_t)WORKSPACE_MOST) : 0;
}

static mr_status reduce_prepare(const mr_call *call, const mr_facts *, void **state)
{
    return talk_in_chunks(group_of(call), MR_COMM_REDUCE_SCATTER, &call->out[0].desc, state);
}

MR_CUDA_KERNEL(reduce_scatter, reduce_workspace, reduce_prepare, mr_cuda_talk_free)
{
    mr_cuda_talk *t = (mr_cuda_talk *)call->state;
    if (!t)
        return MR_OK; // the sum over this rank alone is already in place
    float *x = (float *)call->out[0].data, *theirs = (float *)call->workspace;
    const int64_t chunk = t->call.count / t->size;
    float *own = x + t->rank * chunk;
    const int64_t room = (int64_t)(reduce_workspace(call, NULL) / sizeof(float)),
                  most = room / MR_MAX(t->size - 1, 1),
                  piece = most < chunk ? MR_MAX(most / 4 * 4, (int64_t)1) : chunk;
    MR_TRY(mr_cuda_talk_begins(t, stream));
    for (int64_t at = 0; at < chunk; at += piece) {
        const int64_t some = MR_MIN(piece, chunk - at);
        const size_t bytes = (size_t)some * sizeof(float);
        for (int r = 0; r < t->size; r++)
            if (r != t->rank) {
                mr_cuda_talk_send(t, r, x + r * chunk + at, bytes);
                mr_cuda_talk_receive(t, r, theirs + (r - (r > t->rank)) * piece, bytes);
            }
        MR_TRY(mr_cuda_talk_exchange(t, stream));
        MR_TRY(add_contributions(own + at, theirs, piece, t, some, stream));
    }
    MR_TRY(mr_cuda_talk_ends(t, stream));
    MR_TRY(talk_fill(x, (size_t)(own - x) * sizeof *x, stream));
    return talk_fill(own + chunk, (size_t)(x + t->call.count - own - chunk) * sizeof *x, stream);
}

// ---- all_gather, gather ----

static mr_status all_gather_prepare(const mr_call *call, const mr_facts *, void **state)
{
    return talk_in_chunks(group_of(call), MR_COMM_ALL_GATHER, &call->out[0].desc, state);
}

static mr_status gather_chunks(mr_cuda_talk *t, void *x, cudaStream_t stream)
{
    MR_TRY(mr_cuda_talk_begins(t, stream));
    MR_TRY(mr_cuda_talk_gather(
        t, x, (size_t)(t->call.count / t->size) * mr_dtype_bytes(t->call.dtype), stream));
    return mr_cuda_talk_ends(t, stream);
}

MR_CUDA_KERNEL(all_gather, NULL, all_gather_prepare, mr_cuda_talk_free)
{
    mr_cuda_talk *t = (mr_cuda_talk *)call->state;
    return t ? gather_chunks(t, call->out[0].data, stream) : MR_OK;
}

static mr_status gather_prepare(const mr_call *call, const mr_facts *facts, void **state)
{
    const gather_attr *a = (const gather_attr *)call->attr;
    *state = NULL;
    MR_TRY(mr_collective_ranks(a->group, a->ranks, a->at));
    return all_gather_prepare(call, facts, state);
}

MR_CUDA_KERNEL(gather, NULL, gather_prepare, mr_cuda_talk_free)
{
    mr_cuda_talk *t = (mr_cuda_talk *)call->state;
    const mr_view *x = &call->in[0], *y = &call->out[0];
    const size_t bytes = mr_desc_span_bytes(&x->desc),
                 at = (size_t)((const gather_attr *)call->attr)->at * bytes;
    mr_view own = {(char *)y->data + at, x->desc};
    MR_TRY(copy_view(&own, x, stream));
    if (t)
        return gather_chunks(t, y->data, stream);
    // the parts of other ranks are 0
    MR_TRY(talk_fill(y->data, at, stream));
    return talk_fill((char *)own.data + bytes, mr_desc_span_bytes(&y->desc) - at - bytes, stream);
}

// ---- total ----

static size_t total_workspace(const mr_call *call, const mr_facts *)
{
    return group_of(call) ? MOST_RANKS * sizeof(double) : 0;
}

static mr_status total_prepare(const mr_call *call, const mr_facts *, void **state)
{
    mr_cuda_talk *t = NULL;
    *state = NULL;
    if (!group_of(call))
        return MR_OK;
    MR_TRY(mr_cuda_talk_new(group_of(call), MR_COMM_ALL_REDUCE, MR_F64, &t));
    t->call.count = 1;
    t->call.bytes = (uint64_t)(t->size - 1) * sizeof(double);
    *state = t;
    return t->size <= MOST_RANKS
               ? MR_OK
               : mr_fail(MR_E_UNSUPPORTED, "%d ranks: expected at most %d", t->size, MOST_RANKS);
}

MR_CUDA_KERNEL(total, total_workspace, total_prepare, mr_cuda_talk_free)
{
    mr_cuda_talk *t = (mr_cuda_talk *)call->state;
    double *y = (double *)call->out[0].data, *each = (double *)call->workspace;
    MR_LAUNCH((add_few), dim3(1), dim3(1), 0, stream, t ? each + t->rank : y,
              (const double *)call->in[0].data, (int)call->in[0].desc.dim[0]);
    if (!t)
        return MR_OK;
    MR_TRY(mr_cuda_talk_begins(t, stream));
    MR_TRY(mr_cuda_talk_gather(t, each, sizeof *each, stream));
    MR_TRY(mr_cuda_talk_ends(t, stream));
    MR_LAUNCH((add_few), dim3(1), dim3(1), 0, stream, y, (const double *)each, t->size);
    return MR_OK;
}
