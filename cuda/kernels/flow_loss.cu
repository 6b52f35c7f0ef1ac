/* flow_loss: per_sample[b] = mean over the counted frames of (pred - (x0 - noise))^2, loss = sum of
 * weight[b] per_sample[b], and the gradient 2 weight (pred - (x0 - noise)) / count. Formulas as in
 * core/op/flow_loss.c.
 *
 *   pred, dpred [B, C2, T, H, W]: only the first C channels count   x0, noise [B, C, T, H, W] f32
 *
 * A block processes CHUNK elements of one plane (b, c, t): f32 sums per thread, then doubles. Each
 * element of a counted plane is read once, in pieces of four if a plane divides into them. Partial
 * sums are added in a fixed order, so the bits do not depend on the order of blocks. dpred may
 * overwrite pred. */
#include "cuda/kernels/block_sum.cuh"
#include "cuda/kernels/pieces.cuh"
#include "cuda/kernels/kernel_call.h"

enum { THREADS = 128, PER = 4, CHUNK = THREADS * PER * 4 };

struct Shape {
    int B, C, C2, T, plane, chunks; // plane: elements of H W; chunks: per plane
};

struct Inputs {
    const void *pred;
    const float *x0, *noise, *weight;
    const uint8_t *mask; // NULL: all frames count
};

// number of counted elements of sample b
MR_DEVICE int64_t elements_of(const Inputs &in, const Shape &n, int b)
{
    int frames = 0;
    for (int t = 0; t < n.T; t++)
        frames += !in.mask || in.mask[b * n.T + t];
    return (int64_t)frames * n.C * n.plane;
}

// pred - (x0 - noise) for E elements, at these offsets in pred and in x0
template <typename T, int E>
MR_DEVICE void errors(const Inputs &in, int64_t pred, int64_t at, float (&e)[E])
{
    float x[E], z[E];
    if constexpr (E == 4) {
        mr_load((const T *)in.pred + pred, e);
        mr_load(in.x0 + at, x);
        mr_load(in.noise + at, z);
    } else {
        e[0] = mr_load1((const T *)in.pred + pred);
        x[0] = in.x0[at];
        z[0] = in.noise[at];
    }
#pragma unroll
    for (int i = 0; i < E; i++)
        e[i] -= x[i] - z[i];
}

// grid: (planes of x0, chunks); partials [planes][chunks]
template <typename T, int E>
__global__ void __launch_bounds__(THREADS) flow_loss_chunks(Inputs in, double *partials, Shape n)
{
    MR_SHARED(memory);
    int frame = blockIdx.x % n.T, c = blockIdx.x / n.T % n.C, b = blockIdx.x / n.T / n.C;
    float sum = 0;
    if (!in.mask || in.mask[b * n.T + frame]) {
        int64_t pred = (((int64_t)b * n.C2 + c) * n.T + frame) * n.plane,
                at = (int64_t)blockIdx.x * n.plane;
        int first = blockIdx.y * CHUNK, last = first + CHUNK < n.plane ? first + CHUNK : n.plane;
        for (int p = first + threadIdx.x * E; p < last; p += THREADS * E) {
            float e[E];
            errors<T, E>(in, pred + p, at + p, e);
#pragma unroll
            for (int i = 0; i < E; i++)
                sum = fmaf(e[i], e[i], sum);
        }
    }
    double total = mr_block_sum<THREADS>(sum, (double *)memory);
    if (threadIdx.x == 0)
        partials[(int64_t)blockIdx.x * n.chunks + blockIdx.y] = total;
}

// one block: one thread per sample, then thread 0 adds the samples in order
__global__ void __launch_bounds__(THREADS)
    flow_loss_samples(Inputs in, const double *partials, float *per_sample, float *loss, Shape n)
{
    int64_t each = (int64_t)n.C * n.T * n.chunks;
    for (int b = threadIdx.x; b < n.B; b += THREADS) {
        double sum = 0;
        for (int64_t i = 0; i < each; i++)
            sum += partials[b * each + i];
        int64_t count = elements_of(in, n, b);
        per_sample[b] = count > 0 ? (float)(sum / (double)count) : 0;
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    double total = 0;
    for (int b = 0; b < n.B; b++)
        if (in.weight[b] != 0)
            total += (double)in.weight[b] * (double)per_sample[b];
    *loss = (float)total;
}

// grid: (planes of pred, chunks)
template <typename T, int E>
__global__ void __launch_bounds__(THREADS)
    flow_loss_grad_chunks(Inputs in, const float *dloss, const float *dper_sample, T *dpred,
                          Shape n)
{
    MR_SHARED(memory);
    float *factor = (float *)memory;
    int frame = blockIdx.x % n.T, c = blockIdx.x / n.T % n.C2, b = blockIdx.x / n.T / n.C2;
    if (threadIdx.x == 0) {
        double weight = dloss ? (double)*dloss * (double)in.weight[b] : 0;
        if (dper_sample)
            weight += (double)dper_sample[b];
        bool counts = c < n.C && weight != 0 && (!in.mask || in.mask[b * n.T + frame]);
        *factor = counts ? (float)(2 * weight / (double)elements_of(in, n, b)) : 0;
    }
    __syncthreads();
    float f = *factor;
    int64_t pred = (int64_t)blockIdx.x * n.plane,
            at = (((int64_t)b * n.C + c) * n.T + frame) * n.plane;
    int first = blockIdx.y * CHUNK, last = first + CHUNK < n.plane ? first + CHUNK : n.plane;
    for (int p = first + threadIdx.x * E; p < last; p += THREADS * E) {
        float e[E] = {};
        // a plane that does not count is not read: it may have any contents
        if (f != 0)
            errors<T, E>(in, pred + p, at + p, e);
#pragma unroll
        for (int i = 0; i < E; i++)
            e[i] *= f;
        if constexpr (E == 4)
            mr_store(dpred + pred + p, e);
        else
            mr_store1(dpred + pred + p, e[0]);
    }
}

// ---- host ----

static Shape shape_of(const mr_call *call)
{
    const int64_t *p = call->in[0].desc.dim, *x = call->in[1].desc.dim;
    int64_t plane = x[3] * x[4];
    return {(int)x[0], (int)x[1],  (int)p[1],
            (int)x[2], (int)plane, (int)mr_cuda_ceil(plane, CHUNK)};
}

static Inputs inputs_of(const mr_call *call)
{
    const mr_view *in = call->in;
    return {in[0].data, (const float *)in[1].data, (const float *)in[2].data,
            (const float *)in[3].data, (const uint8_t *)in[4].data};
}

// can planes be read in pieces of four elements?
static bool in_fours(const mr_call *call, const Shape &n)
{
    bool fours = n.plane % 4 == 0;
    for (int i = 0; i < 3; i++)
        fours = fours && mr_cuda_aligned(call->in[i].data, 16);
    return fours;
}

static mr_status fits(const Shape &n)
{
    if (n.chunks <= 65535)
        return MR_OK;
    return mr_fail(MR_E_UNSUPPORTED, "planes of %d elements, expected at most %lld", n.plane,
                   65535LL * CHUNK);
}

static size_t workspace(const mr_call *call, const mr_facts *)
{
    Shape n = shape_of(call);
    return (size_t)n.B * n.C * n.T * n.chunks * sizeof(double);
}

template <typename T> static mr_status forward(const mr_call *call, cudaStream_t stream)
{
    Shape n = shape_of(call);
    Inputs in = inputs_of(call);
    MR_TRY(fits(n));
    double *partials = (double *)call->workspace;
    dim3 grid((unsigned)(n.B * n.C * n.T), n.chunks), block(THREADS);
    size_t shared = THREADS * sizeof(double);
    if (grid.x * grid.y > 0) {
        if (in_fours(call, n))
            MR_LAUNCH((flow_loss_chunks<T, 4>), grid, block, shared, stream, in, partials, n);
        else
            MR_LAUNCH((flow_loss_chunks<T, 1>), grid, block, shared, stream, in, partials, n);
    }
    MR_LAUNCH(flow_loss_samples, dim3(1), block, 0, stream, in, partials,
              (float *)call->out[1].data, (float *)call->out[0].data, n);
    return MR_OK;
}

MR_CUDA_FLOATS(flow_loss, 0, forward, workspace)

template <typename T> static mr_status backward(const mr_call *call, cudaStream_t stream)
{
    Shape n = shape_of(call);
    Inputs in = inputs_of(call);
    MR_TRY(fits(n));
    const float *dloss = (const float *)call->in[5].data,
                *dper_sample = (const float *)call->in[6].data;
    T *dpred = (T *)call->out[0].data;
    dim3 grid((unsigned)(n.B * n.C2 * n.T), n.chunks), block(THREADS);
    if (grid.x * grid.y == 0)
        return MR_OK;
    if (in_fours(call, n) && mr_cuda_aligned(dpred, 16))
        MR_LAUNCH((flow_loss_grad_chunks<T, 4>), grid, block, 16, stream, in, dloss, dper_sample,
                  dpred, n);
    else
        MR_LAUNCH((flow_loss_grad_chunks<T, 1>), grid, block, 16, stream, in, dloss, dper_sample,
                  dpred, n);
    return MR_OK;
}

MR_CUDA_FLOATS(flow_loss_grad, 0, backward)
