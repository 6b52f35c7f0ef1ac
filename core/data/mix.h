/* data: an inline mr_mix: a function call per row would cost as much as the hash.
 * Licence: Apache-2.0 */
#ifndef MR_DATA_MIX_H
#define MR_DATA_MIX_H

#include <stddef.h>
#include <stdint.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static inline uint64_t mix_inline(const uint64_t *words, size_t n)
{
    return XXH3_64bits(words, n * sizeof *words);
}
#define MIX_INLINE(...)                                                                            \
    mix_inline((const uint64_t[]){__VA_ARGS__},                                                    \
               sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

#endif
