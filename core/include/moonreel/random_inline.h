/* The arithmetic of mr_random_*, in one source for C and CUDA.
 *
 * Everything is integers, additions, multiplications and fmaf: no libm, and no contraction by the
 * compiler, so the bits are equal on every device and instruction set.
 *
 * Threads: any; nothing here has state.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_RANDOM_INLINE_H
#define MOONREEL_RANDOM_INLINE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define MR_HD static __host__ __device__ __forceinline__
#else
#define MR_HD static inline
#endif

/* Ref: Salmon et al. 2011, Philox4x32: one round, then 10 of them. */
MR_HD void mr_philox_round(uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3, uint32_t k0,
                           uint32_t k1)
{
    uint64_t p0 = (uint64_t)0xD2511F53u * *c0, p1 = (uint64_t)0xCD9E8D57u * *c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ *c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ *c3 ^ k1;
    *c1 = (uint32_t)p1, *c3 = (uint32_t)p0, *c0 = n0, *c2 = n2;
}
MR_HD void mr_philox_inline(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0],
             k1 = key[1];
    for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        mr_philox_round(&c0, &c1, &c2, &c3, k0, k1);
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* (0, 1): the centre of one of 2^23 equal cells, so neither end is reached. */
MR_HD float mr_word_uniform(uint32_t w)
{
    return fmaf((float)(int32_t)(w >> 9), 0x1.0p-23f, 0x1.0p-24f);
}

/* Natural logarithm of u in (0, 1]; error below 2 units in the last place. u = m * 2^e with m in
 * [sqrt(1/2), sqrt(2)); log m by the series of 2 artanh(s), s = (m-1)/(m+1), |s| < 0.1716. */
MR_HD float mr_log_poly(float u)
{
    uint32_t bits;
    memcpy(&bits, &u, 4);
    int e = (int)((int32_t)(bits - 0x3F3504F3u) >> 23);
    bits -= (uint32_t)e << 23;
    float m;
    memcpy(&m, &bits, 4);
    float s = (m - 1.0f) / (m + 1.0f), z = s * s;
    float p = fmaf(z, 1.0f / 9, 1.0f / 7);
    p = fmaf(z, p, 1.0f / 5);
    p = fmaf(z, p, 1.0f / 3);
    p = fmaf(z * p, s, s);
    return fmaf((float)e, 0.693147180559945f, 2.0f * p);
}

/* cos and sin of 2 pi x for x in [0, 1), by quadrant and polynomials on [-1/8, 1/8] turns. */
MR_HD void mr_cos_sin_turns(float x, float *c, float *s)
{
    float q = floorf(fmaf(x, 4.0f, 0.5f)), r = fmaf(q, -0.25f, x) * 6.283185307179586f, z = r * r;
    float sp = fmaf(z, 2.7557319e-6f, -1.9841270e-4f);
    sp = fmaf(z, sp, 8.3333333e-3f);
    sp = fmaf(z, sp, -1.6666667e-1f);
    sp = fmaf(z * sp, r, r);
    float cp = fmaf(z, 2.4801587e-5f, -1.3888889e-3f);
    cp = fmaf(z, cp, 4.1666667e-2f);
    cp = fmaf(z, cp, -0.5f);
    cp = fmaf(z, cp, 1.0f);
    int quadrant = (int)q & 3;
    *c = quadrant == 0 ? cp : quadrant == 1 ? -sp : quadrant == 2 ? -cp : sp;
    *s = quadrant == 0 ? sp : quadrant == 1 ? cp : quadrant == 2 ? -sp : -cp;
}

/* Box and Muller 1958: the cosine (second = 0) or sine (1) normal of the word pair. */
MR_HD float mr_words_normal(uint32_t a, uint32_t b, int second)
{
    float c, s, r = sqrtf(-2.0f * mr_log_poly(mr_word_uniform(a)));
    mr_cos_sin_turns((float)(int32_t)(b >> 8) * 0x1.0p-24f, &c, &s);
    return r * (second ? s : c);
}

#ifndef __CUDACC__
/* Normals of MR_RANDOM_BLOCKS consecutive counters from `block` on: loops that a compiler
 * vectorizes to any width, if fmaf is an instruction. */
enum { MR_RANDOM_BLOCKS = 32 };
MR_HD void mr_normals_of_blocks(const uint32_t counter[3], const uint32_t key[2], uint32_t block,
                                float out[4 * MR_RANDOM_BLOCKS])
{
    enum { N = MR_RANDOM_BLOCKS };
    uint32_t c[4][N], k0 = key[0], k1 = key[1];
    float normal[4][N];
    for (int i = 0; i < N; i++)
        c[0][i] = counter[0], c[1][i] = counter[1], c[2][i] = counter[2],
        c[3][i] = block + (uint32_t)i;
    for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int i = 0; i < N; i++)
            mr_philox_round(&c[0][i], &c[1][i], &c[2][i], &c[3][i], k0, k1);
    for (int pair = 0; pair < 4; pair += 2)
        for (int i = 0; i < N; i++) {
            float co, si, r = sqrtf(-2.0f * mr_log_poly(mr_word_uniform(c[pair][i])));
            mr_cos_sin_turns((float)(int32_t)(c[pair + 1][i] >> 8) * 0x1.0p-24f, &co, &si);
            normal[pair][i] = r * co, normal[pair + 1][i] = r * si;
        }
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 4; k++)
            out[4 * i + k] = normal[k][i];
}

/* mr_random_fill_normal, with key = MR_MIX(seed, purpose), for the instruction set of its caller.
 */
MR_HD void mr_fill_normal_inline(float *out, int64_t n, uint64_t key, uint64_t sample_key,
                                 uint32_t epoch, uint64_t first)
{
    enum { N = 4 * MR_RANDOM_BLOCKS };
    const uint32_t counter[] = {(uint32_t)sample_key, (uint32_t)(sample_key >> 32), epoch},
                   keys[] = {(uint32_t)key, (uint32_t)(key >> 32)};
    float some[N];
    for (int64_t at = 0, took; at < n; at += took) {
        uint64_t e = first + (uint64_t)at;
        int64_t skip = (int64_t)(e % 4);
        took = N - skip < n - at ? N - skip : n - at;
        mr_normals_of_blocks(counter, keys, (uint32_t)(e / 4), some);
        memcpy(out + at, some + skip, (size_t)took * sizeof *out);
    }
}
#endif

#endif
