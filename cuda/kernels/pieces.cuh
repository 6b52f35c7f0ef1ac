/* Converts elements in memory to floats and back: one element, or a piece of several with one
 * access.
 *
 * A piece has at most 16 bytes; its address is a multiple of its size. Stores round to nearest
 * even.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_PIECES_CUH
#define MOONREEL_CUDA_KERNELS_PIECES_CUH

#include "cuda/prim/sm80.cuh"

MR_DEVICE float mr_load1(const float *p)
{
    return *p;
}

MR_DEVICE float mr_load1(const mr_bf16 *p)
{
    return mr_f32(*p);
}

MR_DEVICE float mr_load1(const uint8_t *p)
{
    return *p;
}

MR_DEVICE void mr_store1(float *p, float v)
{
    *p = v;
}

MR_DEVICE void mr_store1(mr_bf16 *p, float v)
{
    *p = (mr_bf16)mr_pack(v, 0);
}

// ---- pieces in registers ----

MR_DEVICE void mr_unpack(uint4 p, float (&v)[8])
{
    const uint32_t pair[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = mr_low(pair[i]);
        v[2 * i + 1] = mr_high(pair[i]);
    }
}

MR_DEVICE void mr_unpack(uint4 p, float (&v)[4])
{
    const uint32_t word[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = mr_f32_of(word[i]);
}

MR_DEVICE uint4 mr_packed(const float (&v)[8])
{
    return {mr_pack(v[0], v[1]), mr_pack(v[2], v[3]), mr_pack(v[4], v[5]), mr_pack(v[6], v[7])};
}

MR_DEVICE uint4 mr_packed(const float (&v)[4])
{
    return {mr_bits_of(v[0]), mr_bits_of(v[1]), mr_bits_of(v[2]), mr_bits_of(v[3])};
}

// ---- pieces in memory ----

template <typename T, int E> MR_DEVICE void mr_load(const T *p, float (&v)[E])
{
    static_assert(sizeof(T) * E == 16, "whole pieces of f32 and bf16 have 16 bytes");
    mr_unpack(mr_load16(p), v);
}

template <typename T, int E> MR_DEVICE void mr_store(T *p, const float (&v)[E])
{
    static_assert(sizeof(T) * E == 16, "whole pieces of f32 and bf16 have 16 bytes");
    mr_store16(p, mr_packed(v));
}

// four bf16, to match a piece of four f32
MR_DEVICE void mr_load(const mr_bf16 *p, float (&v)[4])
{
    uint2 x = mr_load8(p);
    v[0] = mr_low(x.x);
    v[1] = mr_high(x.x);
    v[2] = mr_low(x.y);
    v[3] = mr_high(x.y);
}

MR_DEVICE void mr_store(mr_bf16 *p, const float (&v)[4])
{
    mr_store8(p, {mr_pack(v[0], v[1]), mr_pack(v[2], v[3])});
}

// mask bytes, to match a piece of four f32 or eight bf16
MR_DEVICE void mr_load(const uint8_t *p, float (&v)[4])
{
    uint32_t x = *(const uint32_t *)p;
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = (float)(x >> 8 * i & 255);
}

MR_DEVICE void mr_load(const uint8_t *p, float (&v)[8])
{
    uint2 x = mr_load8(p);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = (float)(x.x >> 8 * i & 255);
        v[4 + i] = (float)(x.y >> 8 * i & 255);
    }
}

#endif
