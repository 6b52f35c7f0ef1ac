/* Maps elements of tokens to cells and back, for patchify and unpatchify.
 *
 * Token (t', h' W' + w') has the C pt ph pw values of its patch, channel first or last. Cells are
 * [B, C, T, H, W]. Latents are small compared with the activations of a model, so the kernel is
 * simple: a thread moves one element, stores are dense, and the cache serves partly used loads.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_PATCH_CUH
#define MOONREEL_CUDA_KERNELS_PATCH_CUH

#include "cuda/kernels/kernel_call.h"

enum { PATCH_THREADS = 256 };

struct PatchAttrs { // as in core/op/patch.h
    int64_t pt, ph, pw;
    bool channel_last;
    mr_ints dims;
};

struct Patches {
    uint32_t C, T, H, W, pt, ph, pw, nt, nh, nw; // nt, nh, nw: patches along T, H, W
    uint32_t count;                              // elements of the output
    bool channel_last;
};

struct Cell {
    uint32_t b, c, t, h, w;
};

MR_DEVICE int64_t cell_at(const Patches &p, const Cell &x)
{
    return ((((int64_t)x.b * p.C + x.c) * p.T + x.t) * p.H + x.h) * p.W + x.w;
}

MR_DEVICE int64_t token_at(const Patches &p, const Cell &x)
{
    uint32_t volume = p.pt * p.ph * p.pw;
    uint32_t k = (x.t % p.pt * p.ph + x.h % p.ph) * p.pw + x.w % p.pw;
    uint32_t inner = p.channel_last ? k * p.C + x.c : x.c * volume + k;
    int64_t token = (((int64_t)x.b * p.nt + x.t / p.pt) * p.nh + x.h / p.ph) * p.nw + x.w / p.pw;
    return token * p.C * volume + inner;
}

// the cell of element i of the tokens; it may be past the end of T, H or W
MR_DEVICE Cell cell_of_token(const Patches &p, uint32_t i)
{
    uint32_t volume = p.pt * p.ph * p.pw, inner = i % (p.C * volume), token = i / (p.C * volume);
    uint32_t c = p.channel_last ? inner % p.C : inner / volume;
    uint32_t k = p.channel_last ? inner / p.C : inner % volume;
    uint32_t w = token % p.nw, h = token / p.nw % p.nh, t = token / p.nw / p.nh % p.nt;
    return {token / p.nw / p.nh / p.nt, c, t * p.pt + k / p.pw / p.ph, h * p.ph + k / p.pw % p.ph,
            w * p.pw + k % p.pw};
}

template <typename U, bool TO_TOKENS>
__global__ void __launch_bounds__(PATCH_THREADS) patch_move(const U *x, U *y, Patches p)
{
    uint32_t i = blockIdx.x * PATCH_THREADS + threadIdx.x;
    if (i >= p.count)
        return;
    if (TO_TOKENS) {
        Cell cell = cell_of_token(p, i);
        bool inside = cell.t < p.T && cell.h < p.H && cell.w < p.W;
        y[i] = inside ? x[cell_at(p, cell)] : U();
    } else {
        uint32_t w = i % p.W, h = i / p.W % p.H, t = i / p.W / p.H % p.T;
        uint32_t c = i / p.W / p.H / p.T % p.C, b = i / p.W / p.H / p.T / p.C;
        y[i] = x[token_at(p, {b, c, t, h, w})];
    }
}

template <bool TO_TOKENS>
static mr_status patch_run(const mr_call *call, const mr_view *cells, cudaStream_t stream)
{
    const PatchAttrs *a = (const PatchAttrs *)call->attr;
    const mr_view *x = &call->in[0], *y = &call->out[0];
    const int64_t *d = cells->desc.dim;
    int64_t count = mr_desc_count(&y->desc), most = mr_desc_count(&x->desc);
    most = most > count ? most : count;
    if (most > (int64_t)UINT32_MAX)
        return mr_fail(MR_E_UNSUPPORTED, "%lld elements, expected fewer than 2^32",
                       (long long)most);
    if (count == 0)
        return MR_OK;
    Patches p = {(uint32_t)d[1],
                 (uint32_t)d[2],
                 (uint32_t)d[3],
                 (uint32_t)d[4],
                 (uint32_t)a->pt,
                 (uint32_t)a->ph,
                 (uint32_t)a->pw,
                 (uint32_t)mr_cuda_ceil(d[2], a->pt),
                 (uint32_t)mr_cuda_ceil(d[3], a->ph),
                 (uint32_t)mr_cuda_ceil(d[4], a->pw),
                 (uint32_t)count,
                 a->channel_last};
    dim3 grid((unsigned)mr_cuda_ceil(count, PATCH_THREADS)), block(PATCH_THREADS);
    size_t bytes = mr_dtype_bytes(y->desc.dtype);
    if (bytes == 2)
        MR_LAUNCH((patch_move<uint16_t, TO_TOKENS>), grid, block, 0, stream,
                  (const uint16_t *)x->data, (uint16_t *)y->data, p);
    else if (bytes == 4)
        MR_LAUNCH((patch_move<uint32_t, TO_TOKENS>), grid, block, 0, stream,
                  (const uint32_t *)x->data, (uint32_t *)y->data, p);
    else if (bytes == 8)
        MR_LAUNCH((patch_move<uint64_t, TO_TOKENS>), grid, block, 0, stream,
                  (const uint64_t *)x->data, (uint64_t *)y->data, p);
    else
        MR_LAUNCH((patch_move<uint8_t, TO_TOKENS>), grid, block, 0, stream,
                  (const uint8_t *)x->data, (uint8_t *)y->data, p);
    return MR_OK;
}

#endif
