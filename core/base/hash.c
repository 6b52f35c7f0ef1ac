/* base: XXH3 hashes and the one mixing function (reference: dataplane 4.1). Licence: Apache-2.0 */
#include "moonreel/base.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "file formats and mix() are little endian");

uint64_t mr_hash64(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

mr_hash128 mr_hash128_of(const void *data, size_t bytes)
{
    XXH128_hash_t h = XXH3_128bits(data, bytes);
    return (mr_hash128){h.low64, h.high64};
}

void mr_hash128_hex(mr_hash128 h, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

struct mr_hasher {
    XXH3_state_t *state;
};

mr_hasher *mr_hasher_new(void)
{
    mr_hasher *h = mr_alloc(sizeof *h);
    if (!h)
        return NULL;
    h->state = XXH3_createState();
    if (!h->state) {
        mr_free(h);
        return NULL;
    }
    XXH3_128bits_reset(h->state);
    return h;
}

void mr_hasher_add(mr_hasher *h, const void *data, size_t bytes)
{
    XXH3_128bits_update(h->state, data, bytes);
}

mr_hash128 mr_hasher_digest(const mr_hasher *h)
{
    XXH128_hash_t d = XXH3_128bits_digest(h->state);
    return (mr_hash128){d.low64, d.high64};
}

void mr_hasher_free(mr_hasher *h)
{
    if (!h)
        return;
    XXH3_freeState(h->state);
    mr_free(h);
}

uint64_t mr_mix(const uint64_t *words, size_t n)
{
    return XXH3_64bits(words, n * sizeof *words);
}

uint64_t mr_name_word(const char *name)
{
    return XXH3_64bits(name, strlen(name));
}
