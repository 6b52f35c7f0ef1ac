/* layer_norm_modulate: y = (x - mean) * rsqrt(var + eps) * (1 + scale) + shift, over the last
 * dimension.
 *
 *   x, y [B, T, S, C] dense   shift, scale [B, T, C], any strides
 * One warp holds a row in registers: x is read once and y written once, 2 elements moved per
 * element. Shift and scale of a frame are read once per ROWS rows of it. Sums run over a fixed
 * order of lanes, so the bits do not depend on the order of blocks. f32 inside; tolerance as the
 * row's: 2e-6 of f32, 2^-8 of bf16.
 *
 * Rows of at most 288 pieces of 16 bytes (C a multiple of 8 for bf16, of 4 for f32) with dense rows
 * of shift and scale take the fast form. All others take the plain one, an element at a time. */
#include "cuda/kernels/kernel_call.h"
#include "cuda/prim/sm80.cuh"

enum { WARPS = 4, ROWS = 32 }; // warps of a block; rows of a frame that it takes

struct attr { // as in core/op/layer_norm_modulate.c
    double eps;
};

// [B, T, C]: where row (b, t) of shift or scale begins, and the step along C
struct Modulation {
    const void *data;
    int64_t b, t, c;
};

struct Shape {
    int T, S, C;
    float eps;
};

// the elements of 16 bytes as floats, and back
MR_DEVICE void unpack(uint4 p, float (&v)[8])
{
    const uint32_t pair[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = mr_low(pair[i]);
        v[2 * i + 1] = mr_high(pair[i]);
    }
}

MR_DEVICE void unpack(uint4 p, float (&v)[4])
{
    const uint32_t word[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = mr_f32_of(word[i]);
}

MR_DEVICE uint4 pack(const float (&v)[8])
{
    return {mr_pack(v[0], v[1]), mr_pack(v[2], v[3]), mr_pack(v[4], v[5]), mr_pack(v[6], v[7])};
}

MR_DEVICE uint4 pack(const float (&v)[4])
{
    return {mr_bits_of(v[0]), mr_bits_of(v[1]), mr_bits_of(v[2]), mr_bits_of(v[3])};
}

/* The fast form. T is the storage type, E its elements in 16 bytes, PIECES the most pieces of a
 * lane. Grid: (pieces of ROWS rows of a frame, frames). */
template <typename T, int PIECES>
__global__ void __launch_bounds__(WARPS * 32)
    layer_norm_modulate_rows(const T *x, Modulation shift, Modulation scale, T *y, Shape n)
{
    constexpr int E = 16 / sizeof(T);
    int lane = threadIdx.x % 32, frame = blockIdx.y, b = frame / n.T, t = frame % n.T;
    int first = blockIdx.x * ROWS, last = first + ROWS < n.S ? first + ROWS : n.S;
    const T *shift_row = (const T *)shift.data + b * shift.b + t * shift.t;
    const T *scale_row = (const T *)scale.data + b * scale.b + t * scale.t;

    // the modulation stays packed in registers
    uint4 add[PIECES] = {}, factor[PIECES] = {};
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        int c = (i * 32 + lane) * E;
        if (c < n.C) {
            add[i] = mr_load16(shift_row + c);
            factor[i] = mr_load16(scale_row + c);
        }
    }

    for (int row = first + threadIdx.x / 32; row < last; row += WARPS) {
        const T *in = x + ((int64_t)frame * n.S + row) * n.C;
        T *out = y + ((int64_t)frame * n.S + row) * n.C;
        float v[PIECES][E], sum = 0, squares = 0;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            int c = (i * 32 + lane) * E;
            uint4 piece = {0, 0, 0, 0};
            if (c < n.C)
                piece = mr_load16(in + c);
            unpack(piece, v[i]);
#pragma unroll
            for (int e = 0; e < E; e++)
                sum += v[i][e];
        }
        float mean = mr_warp_sum(sum) / n.C;
        // the variance from differences, so that a large mean does not cancel it
#pragma unroll
        for (int i = 0; i < PIECES; i++)
#pragma unroll
            for (int e = 0; e < E; e++) {
                v[i][e] -= mean;
                if ((i * 32 + lane) * E < n.C)
                    squares += v[i][e] * v[i][e];
            }
        float rstd = 1 / sqrtf(mr_warp_sum(squares) / n.C + n.eps);
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            int c = (i * 32 + lane) * E;
            if (c >= n.C)
                continue;
            float a[E], f[E];
            unpack(add[i], a);
            unpack(factor[i], f);
#pragma unroll
            for (int e = 0; e < E; e++)
                v[i][e] = v[i][e] * rstd * (1 + f[e]) + a[e];
            mr_store16(out + c, pack(v[i]));
        }
    }
}

MR_DEVICE float load1(const float *p)
{
    return *p;
}

MR_DEVICE float load1(const mr_bf16 *p)
{
    return mr_f32(*p);
}

MR_DEVICE void store1(float *p, float v)
{
    *p = v;
}

MR_DEVICE void store1(mr_bf16 *p, float v)
{
    *p = (mr_bf16)mr_pack(v, 0);
}

// The plain form: any C and strides, a warp per row, three passes over the row.
template <typename T>
__global__ void __launch_bounds__(WARPS * 32)
    layer_norm_modulate_plain(const T *x, Modulation shift, Modulation scale, T *y, Shape n)
{
    int lane = threadIdx.x % 32, frame = blockIdx.y, b = frame / n.T, t = frame % n.T;
    int first = blockIdx.x * ROWS, last = first + ROWS < n.S ? first + ROWS : n.S;
    const T *shift_row = (const T *)shift.data + b * shift.b + t * shift.t;
    const T *scale_row = (const T *)scale.data + b * scale.b + t * scale.t;
    for (int row = first + threadIdx.x / 32; row < last; row += WARPS) {
        const T *in = x + ((int64_t)frame * n.S + row) * n.C;
        T *out = y + ((int64_t)frame * n.S + row) * n.C;
        float sum = 0, squares = 0;
        for (int c = lane; c < n.C; c += 32)
            sum += load1(in + c);
        float mean = mr_warp_sum(sum) / n.C;
        for (int c = lane; c < n.C; c += 32) {
            float d = load1(in + c) - mean;
            squares += d * d;
        }
        float rstd = 1 / sqrtf(mr_warp_sum(squares) / n.C + n.eps);
        for (int c = lane; c < n.C; c += 32)
            store1(out + c, (load1(in + c) - mean) * rstd * (1 + load1(scale_row + c * scale.c)) +
                                load1(shift_row + c * shift.c));
    }
}

// ---- host ----

static bool rows_of_pieces(const mr_view *m, int64_t elements)
{
    const int64_t *s = m->desc.stride;
    return s[2] == 1 && s[0] % elements == 0 && s[1] % elements == 0 &&
           (uintptr_t)m->data % 16 == 0;
}

static Modulation modulation(const mr_view *m)
{
    const int64_t *s = m->desc.stride;
    return {m->data, s[0], s[1], s[2]};
}

template <typename T> static mr_status run(const mr_call *call, cudaStream_t stream)
{
    const mr_view *x = &call->in[0];
    const int64_t *d = x->desc.dim, E = 16 / sizeof(T);
    if (d[0] * d[1] > 65535 || d[2] > INT32_MAX || d[3] > INT32_MAX)
        return mr_fail(MR_E_UNSUPPORTED, "B * T is %lld, expected at most 65535",
                       (long long)(d[0] * d[1]));
    if (d[0] * d[1] * d[2] * d[3] == 0)
        return MR_OK;
    Shape n = {(int)d[1], (int)d[2], (int)d[3], (float)((const attr *)call->attr)->eps};
    Modulation shift = modulation(&call->in[1]), scale = modulation(&call->in[2]);
    const T *in = (const T *)x->data;
    T *out = (T *)call->out[0].data;
    dim3 grid((n.S + ROWS - 1) / ROWS, (unsigned)(d[0] * d[1])), block(WARPS * 32);

    bool fast = n.C % E == 0 && rows_of_pieces(&call->in[1], E) &&
                rows_of_pieces(&call->in[2], E) && (uintptr_t)in % 16 == 0 &&
                (uintptr_t)out % 16 == 0;
    int64_t pieces = (n.C / E + 31) / 32;
    if (fast && pieces <= 1)
        MR_LAUNCH((layer_norm_modulate_rows<T, 1>), grid, block, 0, stream, in, shift, scale, out,
                  n);
    else if (fast && pieces <= 2)
        MR_LAUNCH((layer_norm_modulate_rows<T, 2>), grid, block, 0, stream, in, shift, scale, out,
                  n);
    else if (fast && pieces <= 5)
        MR_LAUNCH((layer_norm_modulate_rows<T, 5>), grid, block, 0, stream, in, shift, scale, out,
                  n);
    else if (fast && pieces <= 9)
        MR_LAUNCH((layer_norm_modulate_rows<T, 9>), grid, block, 0, stream, in, shift, scale, out,
                  n);
    else
        MR_LAUNCH((layer_norm_modulate_plain<T>), grid, block, 0, stream, in, shift, scale, out, n);
    return MR_OK;
}

MR_CUDA_KERNEL(layer_norm_modulate)
{
    if (call->in[0].desc.dtype == MR_BF16)
        return run<mr_bf16>(call, stream);
    return run<float>(call, stream);
}
