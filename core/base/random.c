/* base: counter-based random numbers. Ref: Salmon et al. 2011, Philox4x32-10. The normal
 * distribution uses its own polynomials and explicit fma, so all devices produce the same bits.
 * Licence: Apache-2.0 */
#include "moonreel/base.h"
#include "moonreel/random_inline.h"

void mr_random_block(uint64_t seed, uint64_t purpose, uint64_t sample_key, uint32_t epoch,
                     uint32_t block, uint32_t out[4])
{
    uint64_t key = MR_MIX(seed, purpose);
    mr_philox_inline(
        (uint32_t[4]){(uint32_t)sample_key, (uint32_t)(sample_key >> 32), epoch, block},
        (uint32_t[2]){(uint32_t)key, (uint32_t)(key >> 32)}, out);
}

void mr_random_fill_uniform(float *out, int64_t n, uint64_t seed, uint64_t purpose,
                            uint64_t sample_key, uint32_t epoch, uint64_t first)
{
    uint32_t w[4];
    for (int64_t i = 0; i < n; i++) {
        uint64_t e = first + (uint64_t)i;
        if (i == 0 || e % 4 == 0)
            mr_random_block(seed, purpose, sample_key, epoch, (uint32_t)(e / 4), w);
        out[i] = mr_word_uniform(w[e % 4]);
    }
}

void mr_random_fill_normal(float *out, int64_t n, uint64_t seed, uint64_t purpose,
                           uint64_t sample_key, uint32_t epoch, uint64_t first)
{
    mr_fill_normal_inline(out, n, MR_MIX(seed, purpose), sample_key, epoch, first);
}

float mr_random_uniform(uint64_t seed, uint64_t purpose, uint64_t sample_key, uint32_t epoch,
                        uint64_t element)
{
    float x;
    mr_random_fill_uniform(&x, 1, seed, purpose, sample_key, epoch, element);
    return x;
}

float mr_random_normal(uint64_t seed, uint64_t purpose, uint64_t sample_key, uint32_t epoch,
                       uint64_t element)
{
    uint32_t w[4];
    mr_random_block(seed, purpose, sample_key, epoch, (uint32_t)(element / 4), w);
    // one pair of words gives element 2i by its cosine and element 2i + 1 by its sine
    const uint32_t *pair = w + (element % 4 & 2);
    return mr_words_normal(pair[0], pair[1], element % 2 == 1);
}
