/* 8-bit floats as operands of products: conversions in one source for C and CUDA.
 *
 * M is the number of mantissa bits and selects the format. M = 3, e4m3: exponent bias 7, no
 * infinities, all ones is NaN, the largest value is 448; F8_E4M3 of safetensors, float8_e4m3fn of
 * torch. M = 2, e5m2: exponent bias 15, infinities and NaN as in IEEE 754, the largest value is
 * 57344. Ref: Micikevicius et al. 2022, arXiv:2209.05433, table 1.
 *
 * Conversion to 8 bits rounds to nearest even. Values above the largest one, infinities too, become
 * the largest one; NaN becomes 0x7f. This equals cvt.rn.satfinite of PTX, and to_fp8_saturated of
 * torchao except for the sign of NaN.
 *
 * Threads: any; nothing here has state. No operation depends on how the processor treats denormal
 * f32.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_F8_INLINE_H
#define MOONREEL_F8_INLINE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define MR_HD static __host__ __device__ __forceinline__
#else
#define MR_HD static inline
#endif

MR_HD float mr_f8_bits_value(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
MR_HD uint32_t mr_f8_value_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

/* Difference of the exponent biases of f32 and the format. */
MR_HD uint32_t mr_f8_rebias(int M)
{
    return M == 3 ? 127 - 7 : 127 - 15;
}

/* The largest value. */
MR_HD float mr_f8_largest(int M)
{
    return M == 3 ? 448.0f : 57344.0f;
}

MR_HD uint8_t mr_f8_of(float x, int M)
{
    uint32_t bits = mr_f8_value_bits(x), size = bits & 0x7fffffffu, sign = bits >> 24 & 0x80;
    uint32_t rebias = mr_f8_rebias(M), most = M == 3 ? 0x7e : 0x7b, code;
    int drop = 23 - M;
    if (size > 0x7f800000u)
        return 0x7f;
    if (size < (rebias + 1) << 23) {
        // subnormal: the sum with `ruler` rounds an f32 to multiples of the smallest value
        uint32_t ruler = (rebias + 1 + (uint32_t)drop) << 23;
        code = mr_f8_value_bits(mr_f8_bits_value(size) + mr_f8_bits_value(ruler)) - ruler;
    } else {
        code = (size + (1u << (drop - 1)) - 1 + (size >> drop & 1)) >> drop;
        code -= rebias << M;
        code = code < most ? code : most;
    }
    return (uint8_t)(sign | code);
}

MR_HD float mr_f8_value(uint8_t code, int M)
{
    uint32_t size = code & 0x7f, sign = (uint32_t)(code & 0x80) << 24, rebias = mr_f8_rebias(M);
    if (M == 3 ? size == 0x7f : size > 0x7c)
        return mr_f8_bits_value(0x7fc00000u);
    if (M == 2 && size == 0x7c)
        return mr_f8_bits_value(sign | 0x7f800000u);
    if (size >> M)
        return mr_f8_bits_value(sign | ((size << (23 - M)) + (rebias << 23)));
    // a multiple of the smallest value
    float small = (float)size * mr_f8_bits_value((rebias + 1 - (uint32_t)M) << 23);
    return mr_f8_bits_value(sign | mr_f8_value_bits(small));
}

/* Scale of a tensor before conversion to 8 bits: it maps the largest magnitude to the largest
 * value. `size`: the bits of that magnitude as f32, without a sign. Magnitudes below 1e-12, also
 * zero, count as 1e-12. The scale is NaN if the tensor has an element that is not finite: all
 * results are then NaN, and the check of the loss reports it. Ref: torchao v0.9, float8_utils.py:
 * amax_to_scale (in f64, rounded to f32; the bits are equal except for tensors below 1e-12, because
 * f32 cannot represent 1e-12). */
MR_HD float mr_f8_scale(uint32_t size, int M)
{
    float least = 1e-12f, x = mr_f8_bits_value(size);
    if (size >= 0x7f800000u)
        return mr_f8_bits_value(0x7fc00000u);
    return mr_f8_largest(M) / (x < least ? least : x);
}

#endif
