/* comm: the records of one direction of a connection: numbered, authenticated, and encrypted on
 * request. Ref: RFC 8446, sections 5.2 and 5.3, without the record header, because both ends know
 * the lengths.
 * Licence: Apache-2.0 */
#include "comm/seal.h"

#include <string.h>

void seal_begin(seal_way *w, const uint8_t secret[SEAL_HASH], bool seals, bool hides)
{
    *w = (seal_way){.on = true, .hides = hides};
    seal_expand(secret, "key", w->key, sizeof w->key);
    seal_expand(secret, "iv", w->iv, sizeof w->iv);
    w->crypto = crypto_new(w->key, seals);
}

void seal_end(seal_way *w)
{
    crypto_free(w->crypto);
    memset(w, 0, sizeof *w);
}

static void next_nonce(seal_way *w, uint8_t nonce[SEAL_NONCE])
{
    memcpy(nonce, w->iv, SEAL_NONCE);
    for (int i = 0; i < 8; i++)
        nonce[SEAL_NONCE - 1 - i] ^= (uint8_t)(w->number >> 8 * i);
    w->number++;
}

mr_status seal_record(seal_way *w, const void *in, size_t bytes, void *out, void *tag)
{
    uint8_t nonce[SEAL_NONCE];
    out = w->hides ? out : NULL;
    next_nonce(w, nonce);
    if (!w->crypto)
        return chacha_seal(w->key, nonce, in, bytes, out, tag), MR_OK;
    return crypto_seal(w->crypto, nonce, in, bytes, out, tag)
               ? MR_OK
               : mr_fail(MR_E_INTERNAL, "libcrypto cannot seal %zu bytes", bytes);
}

mr_status seal_open(seal_way *w, void *data, size_t bytes, const void *tag)
{
    uint8_t nonce[SEAL_NONCE];
    next_nonce(w, nonce);
    if (w->crypto ? crypto_open(w->crypto, nonce, data, bytes, w->hides, tag)
                  : chacha_open(w->key, nonce, data, bytes, w->hides, tag))
        return MR_OK;
    return mr_fail(MR_E_NODE,
                   "record %llu was changed, dropped, repeated or reordered in transit; try: check "
                   "the network between these hosts",
                   (unsigned long long)w->number - 1);
}
