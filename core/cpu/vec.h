/* vec: f32 vectors of the instruction set for which a kernel file is compiled, and bf16 in memory.
 *
 *   vf            VF_LANES floats: 16 (avx512), 8 (avx2), 4 (base); + - * / work on it
 *   vf_load(n)    from f32; `n` lanes only, the others 0       vf_bload(n)   from bf16
 *   vf_store(n)   to f32; `n` lanes only                       vf_bstore(n)  to bf16, nearest even
 *   vf_ld, vf_st  element i of an array of f32 or bf16: give the dtype as a constant, so that the
 *                 branch disappears (write bodies as VF_INLINE with a dtype argument)
 *   vf_fma        a * b + c; rounded once where the processor has it (base: twice)
 *   vf_recip      1 / x for 2^-126 <= |x| <= 2^126, error below 2 units in the last place
 *   vf_scale2     p 2^n for whole n; vf_power2: for n from -126 to 127
 *   vf_sum        always in the same order: halves onto each other
 *   vf_pair       two vectors rounded to bf16, side by side in memory; vf_first, vf_second: back
 *
 * Lane counts are at most VF_LANES. Licence: Apache-2.0 */
#ifndef MR_VEC_H
#define MR_VEC_H

#include "moonreel/tensor.h"

#include <math.h>
#include <string.h>
// the header of all intrinsics would take longer to parse than a kernel takes to compile
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define VF_INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__)

typedef __m512 vf;
enum { VF_LANES = 16 };
VF_INLINE __mmask16 vf_mask(int64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}
VF_INLINE vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}
VF_INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VF_INLINE vf vf_loadn(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(vf_mask(n), p);
}
VF_INLINE void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
VF_INLINE void vf_storen(float *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, vf_mask(n), x);
}
VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
VF_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
VF_INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
VF_INLINE vf vf_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
VF_INLINE vf vf_from_bits(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
// the bits of bf16, in the upper half of each lane; a NaN is not rounded but made quiet, so that it
// stays NaN
VF_INLINE __m512i vf_rounded(vf x)
{
    __m512i u = _mm512_castps_si512(x),
            odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
}
VF_INLINE __m256i vf_to_bits(vf x)
{
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(vf_rounded(x), 16));
}
VF_INLINE vf vf_pair(vf first, vf second)
{
    return _mm512_castsi512_ps(_mm512_mask_blend_epi16(
        0xaaaaaaaau, _mm512_srli_epi32(vf_rounded(first), 16), vf_rounded(second)));
}
VF_INLINE vf vf_first(vf pair)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pair), 16));
}
VF_INLINE vf vf_second(vf pair)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(pair), _mm512_set1_epi32((int)0xffff0000)));
}
VF_INLINE vf vf_bload(const uint16_t *p)
{
    return vf_from_bits(_mm256_loadu_si256((const __m256i *)p));
}
VF_INLINE vf vf_bloadn(const uint16_t *p, int64_t n)
{
    return vf_from_bits(_mm256_maskz_loadu_epi16(vf_mask(n), p));
}
VF_INLINE void vf_bstore(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, vf_to_bits(x));
}
VF_INLINE void vf_bstoren(uint16_t *p, vf x, int64_t n)
{
    _mm256_mask_storeu_epi16(p, vf_mask(n), vf_to_bits(x));
}
VF_INLINE vf vf_scale2(vf p, vf n)
{
    return _mm512_scalef_ps(p, n);
}
VF_INLINE vf vf_power2(vf p, vf n)
{
    return _mm512_scalef_ps(p, n);
}
VF_INLINE vf vf_recip(vf x)
{
    vf r = _mm512_rcp14_ps(x);
    return _mm512_mul_ps(r, _mm512_fnmadd_ps(x, r, _mm512_set1_ps(2.0f)));
}
VF_INLINE float vf_sum(vf x)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

#elif defined(__AVX2__) && defined(__FMA__)

typedef __m256 vf;
enum { VF_LANES = 8 };
VF_INLINE __m256i vf_mask(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VF_INLINE vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}
VF_INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
VF_INLINE vf vf_loadn(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, vf_mask(n));
}
VF_INLINE void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
VF_INLINE void vf_storen(float *p, vf x, int64_t n)
{
    _mm256_maskstore_ps(p, vf_mask(n), x);
}
VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
VF_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
VF_INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
VF_INLINE vf vf_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}
VF_INLINE vf vf_from_bits(__m128i x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
VF_INLINE __m256i vf_rounded(vf x)
{
    __m256i u = _mm256_castps_si256(x),
            odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan);
}
VF_INLINE __m128i vf_to_bits(vf x)
{
    __m256i r = _mm256_srli_epi32(vf_rounded(x), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
VF_INLINE vf vf_pair(vf first, vf second)
{
    return _mm256_castsi256_ps(
        _mm256_blend_epi16(_mm256_srli_epi32(vf_rounded(first), 16), vf_rounded(second), 0xaa));
}
VF_INLINE vf vf_first(vf pair)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pair), 16));
}
VF_INLINE vf vf_second(vf pair)
{
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_castps_si256(pair), _mm256_set1_epi32((int)0xffff0000)));
}
VF_INLINE vf vf_bload(const uint16_t *p)
{
    return vf_from_bits(_mm_loadu_si128((const __m128i *)p));
}
VF_INLINE vf vf_bloadn(const uint16_t *p, int64_t n)
{
    uint16_t t[8] = {0};
    memcpy(t, p, (size_t)n * 2);
    return vf_bload(t);
}
VF_INLINE void vf_bstore(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, vf_to_bits(x));
}
VF_INLINE void vf_bstoren(uint16_t *p, vf x, int64_t n)
{
    uint16_t t[8];
    vf_bstore(t, x);
    memcpy(p, t, (size_t)n * 2);
}
VF_INLINE vf vf_scale2(vf p, vf n)
{
    // two factors, so that no n overflows the exponent field
    __m256i k = _mm256_cvtps_epi32(n), a = _mm256_srai_epi32(k, 1), b = _mm256_sub_epi32(k, a),
            bias = _mm256_set1_epi32(127);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(a, bias), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(b, bias), 23)));
}
VF_INLINE vf vf_power2(vf p, vf n)
{
    __m256i k = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(k, 23)));
}
VF_INLINE float vf_sum(vf x)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

#else

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vf_int __attribute__((vector_size(16)));
enum { VF_LANES = 4 };
VF_INLINE vf vf_set(float x)
{
    return (vf){x, x, x, x};
}
VF_INLINE vf vf_loadn(const float *p, int64_t n)
{
    vf x = {0};
    memcpy(&x, p, (size_t)n * 4);
    return x;
}
VF_INLINE vf vf_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
VF_INLINE void vf_store(float *p, vf x)
{
    memcpy(p, &x, sizeof x);
}
VF_INLINE void vf_storen(float *p, vf x, int64_t n)
{
    memcpy(p, &x, (size_t)n * 4);
}
VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
VF_INLINE vf vf_pick(vf_int mask, vf a, vf b)
{
    return (vf)(((vf_int)a & mask) | ((vf_int)b & ~mask));
}
VF_INLINE vf vf_max(vf a, vf b)
{
    return vf_pick(a > b, a, b);
}
VF_INLINE vf vf_min(vf a, vf b)
{
    return vf_pick(a < b, a, b);
}
VF_INLINE vf vf_sqrt(vf a)
{
#if defined(__SSE2__)
    return _mm_sqrt_ps(a);
#else
    return (vf){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])};
#endif
}
VF_INLINE vf vf_bloadn(const uint16_t *p, int64_t n)
{
    vf x = {0};
    for (int64_t i = 0; i < n; i++)
        x[i] = mr_bf16_to_f32(p[i]);
    return x;
}
VF_INLINE vf vf_bload(const uint16_t *p)
{
    return vf_bloadn(p, 4);
}
VF_INLINE void vf_bstoren(uint16_t *p, vf x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = mr_f32_to_bf16(x[i]);
}
VF_INLINE void vf_bstore(uint16_t *p, vf x)
{
    vf_bstoren(p, x, 4);
}
VF_INLINE vf vf_pair(vf first, vf second)
{
    uint16_t t[8];
    for (int i = 0; i < 4; i++)
        t[2 * i] = mr_f32_to_bf16(first[i]), t[2 * i + 1] = mr_f32_to_bf16(second[i]);
    vf pair;
    memcpy(&pair, t, sizeof pair);
    return pair;
}
VF_INLINE vf vf_first(vf pair)
{
    uint16_t t[8];
    memcpy(t, &pair, sizeof pair);
    return vf_bload((const uint16_t[]){t[0], t[2], t[4], t[6]});
}
VF_INLINE vf vf_second(vf pair)
{
    uint16_t t[8];
    memcpy(t, &pair, sizeof pair);
    return vf_bload((const uint16_t[]){t[1], t[3], t[5], t[7]});
}
VF_INLINE vf vf_scale2(vf p, vf n)
{
    vf_int k = __builtin_convertvector(n, vf_int), a = k >> 1, b = k - a;
    return p * (vf)((a + 127) << 23) * (vf)((b + 127) << 23);
}
VF_INLINE vf vf_power2(vf p, vf n)
{
    return p * (vf)((__builtin_convertvector(n, vf_int) + 127) << 23);
}
VF_INLINE float vf_sum(vf x)
{
    return (x[0] + x[2]) + (x[1] + x[3]);
}

#endif

#if !defined(__AVX512F__)
VF_INLINE vf vf_recip(vf x)
{
    return vf_set(1.0f) / x;
}
#endif
VF_INLINE vf vf_zero(void)
{
    return vf_set(0);
}
VF_INLINE float vf_hmax(vf x)
{
    float t[VF_LANES], m;
    vf_store(t, x);
    m = t[0];
    for (int i = 1; i < VF_LANES; i++)
        m = t[i] > m ? t[i] : m;
    return m;
}

/* ---- arrays of f32 or bf16 ---- */

VF_INLINE vf vf_ld(const void *p, int64_t i, mr_dtype t)
{
    return t == MR_BF16 ? vf_bload((const uint16_t *)p + i) : vf_load((const float *)p + i);
}
VF_INLINE vf vf_ldn(const void *p, int64_t i, int64_t n, mr_dtype t)
{
    return t == MR_BF16 ? vf_bloadn((const uint16_t *)p + i, n) : vf_loadn((const float *)p + i, n);
}
VF_INLINE void vf_st(void *p, int64_t i, vf x, mr_dtype t)
{
    if (t == MR_BF16)
        vf_bstore((uint16_t *)p + i, x);
    else
        vf_store((float *)p + i, x);
}
VF_INLINE void vf_stn(void *p, int64_t i, vf x, int64_t n, mr_dtype t)
{
    if (t == MR_BF16)
        vf_bstoren((uint16_t *)p + i, x, n);
    else
        vf_storen((float *)p + i, x, n);
}
/* One element. */
VF_INLINE float vf_get(const void *p, int64_t i, mr_dtype t)
{
    return t == MR_BF16 ? mr_bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}
VF_INLINE void vf_put(void *p, int64_t i, float x, mr_dtype t)
{
    if (t == MR_BF16)
        ((uint16_t *)p)[i] = mr_f32_to_bf16(x);
    else
        ((float *)p)[i] = x;
}
/* Strided elements are rare: out of line, so that kernels stay small. */
static __attribute__((noinline, unused)) vf vf_ld_apart(const void *p, int64_t i, int64_t step,
                                                        int64_t n, mr_dtype t)
{
#if defined(__AVX512F__)
    enum { FAR = 1 << 26 }; // offsets up to this fit into 32 bits
    if (t == MR_F32 && step > -FAR && step < FAR) {
        __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), vf_mask(n),
                                        _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)step)),
                                        (const float *)p + i, sizeof(float));
    }
#endif
    float x[VF_LANES] = {0};
    for (int64_t k = 0; k < n; k++)
        x[k] = vf_get(p, i + k * step, t);
    return vf_load(x);
}
static __attribute__((noinline, unused)) void vf_st_apart(void *p, int64_t i, int64_t step, vf x,
                                                          int64_t n, mr_dtype t)
{
    float y[VF_LANES];
    vf_store(y, x);
    for (int64_t k = 0; k < n; k++)
        vf_put(p, i + k * step, y[k], t);
}
/* n <= VF_LANES elements with the stride `step` (1: a plain load; 0: one element in all lanes). */
VF_INLINE vf vf_ldx(const void *p, int64_t i, int64_t step, int64_t n, mr_dtype t)
{
    if (step == 1)
        return n == VF_LANES ? vf_ld(p, i, t) : vf_ldn(p, i, n, t);
    return step == 0 ? vf_set(vf_get(p, i, t)) : vf_ld_apart(p, i, step, n, t);
}
VF_INLINE void vf_stx(void *p, int64_t i, int64_t step, vf x, int64_t n, mr_dtype t)
{
    if (step != 1)
        vf_st_apart(p, i, step, x, n, t);
    else if (n == VF_LANES)
        vf_st(p, i, x, t);
    else
        vf_stn(p, i, x, n, t);
}

#endif
