/* comm: derives keys from a secret. Ref: HMAC of RFC 2104, HKDF of RFC 5869. Licence: Apache-2.0 */
#include "comm/seal.h"

#include <string.h>

enum { BLOCK = MR_SHA256_BLOCK };

static void hash_two(const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                     uint8_t out[SEAL_HASH])
{
    mr_sha256 s;
    mr_sha256_begin(&s);
    mr_sha256_add(&s, a, a_bytes);
    mr_sha256_add(&s, b, b_bytes);
    mr_sha256_finish(&s, out);
}

void seal_hmac(const void *key, size_t key_bytes, const void *data, size_t bytes,
               uint8_t out[SEAL_HASH])
{
    uint8_t pad[2][BLOCK] = {{0}}, inner[SEAL_HASH];
    if (key_bytes > BLOCK)
        hash_two(key, key_bytes, NULL, 0, pad[0]);
    else if (key_bytes)
        memcpy(pad[0], key, key_bytes);
    for (int i = 0; i < BLOCK; i++)
        pad[1][i] = pad[0][i] ^ 0x5c, pad[0][i] ^= 0x36;
    hash_two(pad[0], BLOCK, data, bytes, inner);
    hash_two(pad[1], BLOCK, inner, sizeof inner, out);
}

void seal_expand(const uint8_t key[SEAL_HASH], const char *label, uint8_t *out, size_t bytes)
{
    // T(i - 1) | label | i
    uint8_t text[SEAL_HASH + SEAL_LABEL + 1], block[SEAL_HASH];
    const size_t n = strlen(label);
    size_t before = 0;
    for (size_t at = 0, i = 1; at < bytes; at += sizeof block, i++) {
        memcpy(text, block, before);
        memcpy(text + before, label, n);
        text[before + n] = (uint8_t)i;
        seal_hmac(key, SEAL_HASH, text, before + n + 1, block);
        memcpy(out + at, block, MR_MIN(sizeof block, bytes - at));
        before = sizeof block;
    }
}
