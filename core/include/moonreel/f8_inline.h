/* Floats of 8 bits, as products take them: conversions in one source for C and CUDA.
 *
 * M is the bits of the mantissa and names the format. 3, e4m3: exponents with a bias of 7, no
 * infinities, all ones is no number, 448 is the largest; safetensors' F8_E4M3, torch's
 * float8_e4m3fn. 2, e5m2: a bias of 15, infinities and no numbers as in IEEE 754, 57344 is the
 * largest. Ref: Micikevicius et al. 2022, arXiv:2209.05433, table 1.
 *
 * To 8 bits: nearest even; what is larger than the largest number becomes that one, infinities too;
 * no number becomes 0x7f. So cvt.rn.satfinite of PTX has it, and torchao's to_fp8_saturated but for
 * the sign of what is no number.
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

/* What is taken off the exponent's field of an f32. */
MR_HD uint32_t mr_f8_rebias(int M)
{
    return M == 3 ? 127 - 7 : 127 - 15;
}

/* The largest number. */
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
        // below the normal numbers: in this sum an f32 counts whole multiples of the smallest one
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
    // a count of the smallest number
    float small = (float)size * mr_f8_bits_value((rebias + 1 - (uint32_t)M) << 23);
    return mr_f8_bits_value(sign | mr_f8_value_bits(small));
}

/* What a tensor is multiplied by before it becomes 8 bits, so that its largest magnitude becomes
 * the largest number; `size`: the bits of that magnitude as f32, without a sign. Magnitudes below
 * 1e-12 count as that, zero among them. No number where the tensor has an element that is not
 * finite: nothing that comes of it is a number then, and whoever looks at the loss sees it. Ref:
 * torchao v0.9, float8_utils.py: amax_to_scale (in f64, rounded to f32; the bits are equal but for
 * tensors below 1e-12, which is no f32). */
MR_HD float mr_f8_scale(uint32_t size, int M)
{
    float least = 1e-12f, x = mr_f8_bits_value(size);
    if (size >= 0x7f800000u)
        return mr_f8_bits_value(0x7fc00000u);
    return mr_f8_largest(M) / (x < least ? least : x);
}

#endif
