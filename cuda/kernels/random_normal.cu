/* random_normal: standard normals keyed by (seed, purpose, sample key, epoch), with the same bits
 * as on the CPU.
 *
 *   seed [1] i64, keys [B] i64, epoch [1] i32, in device memory -> y [B, dims] f32
 *
 * A thread computes the four normals of one Philox counter with moonreel/random_inline.h, which the
 * CPU compiles too. It stores them with one access if the sample size is a multiple of four. */
#include "cuda/kernels/kernel_call.h"
#include "moonreel/random_inline.h"

enum { THREADS = 256 };

struct attrs { // as in core/op/random_normal.c
    int64_t purpose;
    mr_ints dims;
};

MR_DEVICE uint64_t swapped(uint64_t x)
{
    x = (x & 0x00FF00FF00FF00FFull) << 8 | (x >> 8 & 0x00FF00FF00FF00FFull);
    x = (x & 0x0000FFFF0000FFFFull) << 16 | (x >> 16 & 0x0000FFFF0000FFFFull);
    return x << 32 | x >> 32;
}

/* The same as mr_mix of two words: XXH3-64 of 16 bytes without a seed. Ref: Collet, XXH3, xxHash
 * 0.8, XXH3_len_9to16_64b. */
MR_DEVICE uint64_t mix(uint64_t a, uint64_t b)
{
    a ^= 0x1F67B3B7A4A44072ull ^ 0x78E5C0CC4EE679CBull;
    b ^= 0x2172FFCC7DD05A82ull ^ 0x8E2443F7744608B8ull;
    unsigned __int128 product = (unsigned __int128)a * b;
    uint64_t h = 16 + swapped(a) + b + ((uint64_t)product ^ (uint64_t)(product >> 64));
    h = (h ^ h >> 37) * 0x165667919E3779F9ull;
    return h ^ h >> 32;
}

// grid: (groups of four per sample, samples)
__global__ void __launch_bounds__(THREADS)
    normals(const int64_t *seed, uint64_t purpose, const int64_t *keys, const int32_t *epoch,
            int64_t each, bool fours, float *y)
{
    uint32_t counter = blockIdx.x * THREADS + threadIdx.x;
    int64_t first = (int64_t)counter * 4;
    if (first >= each)
        return;
    uint64_t key = mix((uint64_t)*seed, purpose), sample = (uint64_t)keys[blockIdx.y];
    const uint32_t c[4] = {(uint32_t)sample, (uint32_t)(sample >> 32), (uint32_t)*epoch, counter};
    const uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    uint32_t w[4];
    mr_philox_inline(c, k, w);
    float v[4];
#pragma unroll
    for (int e = 0; e < 4; e++)
        v[e] = mr_words_normal(w[e & 2], w[(e & 2) + 1], e % 2);
    float *to = y + blockIdx.y * each + first;
    if (fours) {
        mr_store16(to, {mr_bits_of(v[0]), mr_bits_of(v[1]), mr_bits_of(v[2]), mr_bits_of(v[3])});
        return;
    }
    for (int e = 0; e < 4; e++)
        if (first + e < each)
            to[e] = v[e];
}

MR_CUDA_KERNEL(random_normal)
{
    const mr_view *y = &call->out[0];
    int64_t B = call->in[1].desc.dim[0], n = mr_desc_count(&y->desc), each = B ? n / B : 0;
    if (B > 65535 || each > (int64_t)UINT32_MAX)
        return mr_fail(MR_E_UNSUPPORTED, "%lld samples of %lld numbers, expected at most 65535",
                       (long long)B, (long long)each);
    bool fours = each % 4 == 0 && mr_cuda_aligned(y->data, 16);
    if (n > 0)
        MR_LAUNCH(normals, dim3((unsigned)mr_cuda_ceil(each, THREADS * 4), (unsigned)B),
                  dim3(THREADS), 0, stream, (const int64_t *)call->in[0].data,
                  (uint64_t)((const attrs *)call->attr)->purpose, (const int64_t *)call->in[1].data,
                  (const int32_t *)call->in[2].data, each, fours, (float *)y->data);
    return MR_OK;
}
