/* data: the random generators of the references.
 *
 * Threads: a generator belongs to one thread at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_GENERATOR_H
#define MOONREEL_GENERATOR_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The Mersenne twister; plain data. Seeded as torch seeds it, or by an array as Python does (the
 * words of a seed, least significant first). Threads: one at a time. */
enum { MR_TWISTER_WORDS = 624 };
typedef struct mr_twister {
    uint32_t words[MR_TWISTER_WORDS];
    int32_t at;
} mr_twister;
MR_API void mr_twister_seed(mr_twister *t, uint32_t seed);
MR_API void mr_twister_seed_words(mr_twister *t, const uint32_t *words, int32_t n);
MR_API uint32_t mr_twister_next(mr_twister *t);

/* numpy.random.default_rng(seed); plain data. */
typedef struct mr_pcg64 {
    uint64_t high, low, add_high, add_low;
} mr_pcg64;
MR_API void mr_pcg64_seed(mr_pcg64 *p, uint64_t seed);
MR_API double mr_pcg64_next(mr_pcg64 *p); /* in [0, 1), of 53 bits */

#ifdef __cplusplus
}
#endif
#endif
