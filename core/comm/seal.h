/* comm, inside: authentication and encryption of the connections between ranks.
 *
 * Each direction of a connection has its own key. Every record is authenticated together with its
 * number, and encrypted if the run asks for it. So changed, repeated, missing, reordered and
 * reflected records are detected. All algorithms are published standards:
 *
 * - SHA-256: FIPS 180-4
 * - HMAC, HKDF: RFC 2104; RFC 5869 (Krawczyk 2010, "Cryptographic Extraction and Key Derivation:
 *   The HKDF Scheme")
 * - ChaCha20-Poly1305: RFC 8439 (Bernstein 2008, "ChaCha, a variant of Salsa20"; Bernstein 2005,
 *   "The Poly1305-AES message-authentication code"; Procter 2014, "A Security Analysis of the
 *   Composition of ChaCha20 and Poly1305")
 * - numbers as nonces: RFC 8446 section 5.3, whose section 5.5 says that this cipher needs no
 *   second key before the numbers end
 *
 * Licence: Apache-2.0 */
#ifndef MR_COMM_SEAL_H
#define MR_COMM_SEAL_H

#include "moonreel/base.h"

enum { SEAL_HASH = 32, SEAL_KEY = 32, SEAL_NONCE = 12, SEAL_TAG = 16, SEAL_LABEL = 64 };

/* ---- keys ---- */

/* HMAC-SHA-256; HKDF-Extract is this with the salt as the key. */
void seal_hmac(const void *key, size_t key_bytes, const void *data, size_t bytes,
               uint8_t out[SEAL_HASH]);
/* HKDF-Expand with `label` as info: at most SEAL_LABEL bytes. */
void seal_expand(const uint8_t key[SEAL_HASH], const char *label, uint8_t *out, size_t bytes);
/* Whether two strings of bytes are equal, in constant time. */
static inline bool seal_equal(const void *a, const void *b, size_t bytes)
{
    const volatile uint8_t *x = a, *y = b;
    uint8_t other = 0;
    for (size_t i = 0; i < bytes; i++)
        other |= x[i] ^ y[i];
    return other == 0;
}

/* ---- ChaCha20-Poly1305 ---- It encrypts a text without associated data, or only authenticates
 * associated data. */

/* Our implementation, which is always available. out [bytes] can be `in`; NULL: only compute the
 * tag. */
void chacha_seal(const uint8_t key[SEAL_KEY], const uint8_t nonce[SEAL_NONCE], const void *in,
                 size_t bytes, void *out, uint8_t tag[SEAL_TAG]);
/* `hidden`: the data is encrypted. False: the tag does not match, and `data` is unchanged. */
bool chacha_open(const uint8_t key[SEAL_KEY], const uint8_t nonce[SEAL_NONCE], void *data,
                 size_t bytes, bool hidden, const uint8_t tag[SEAL_TAG]);

/* The state of the tag, with a key for one text: sums of whole blocks of 16 bytes. */
typedef struct poly1305 {
    uint64_t r[3], h[3]; /* limbs of 44, 44 and 42 bits */
    uint64_t pad[2];
} poly1305;
void poly1305_begin(poly1305 *p, const uint8_t key[SEAL_KEY]);
void poly1305_add(poly1305 *p, const void *data, size_t bytes);
void poly1305_end(poly1305 *p, uint8_t tag[SEAL_TAG]);

/* The implementation of libcrypto, several times faster: a context for one key. NULL: the library
 * is not installed, or fails. MOONREEL_LIBCRYPTO names another file. One thread at a time can use a
 * context. */
typedef struct crypto_key crypto_key;
crypto_key *crypto_new(const uint8_t key[SEAL_KEY], bool seals);
bool crypto_seal(crypto_key *k, const uint8_t nonce[SEAL_NONCE], const void *in, size_t bytes,
                 void *out, uint8_t tag[SEAL_TAG]);
/* False: the tag does not match; `data` is undefined then. */
bool crypto_open(crypto_key *k, const uint8_t nonce[SEAL_NONCE], void *data, size_t bytes,
                 bool hidden, const uint8_t tag[SEAL_TAG]);
void crypto_free(crypto_key *k); /* NULL is fine */

/* ---- one direction of a connection ---- */

typedef struct seal_way {
    uint8_t key[SEAL_KEY], iv[SEAL_NONCE];
    uint64_t number;    /* number of the next record */
    crypto_key *crypto; /* NULL: use our implementation */
    bool on;            /* false: bytes are sent without encryption and tag */
    bool hides;         /* the data is encrypted */
} seal_way;

/* Derive the key from the secret of this direction. Owns: seal_end frees its memory. */
void seal_begin(seal_way *w, const uint8_t secret[SEAL_HASH], bool seals, bool hides);
void seal_end(seal_way *w);
/* Seal the next record: write its tag and, if the direction encrypts, the data to send instead of
 * `in` to out [bytes]; else out is not written. Errors: MR_E_INTERNAL libcrypto fails */
mr_status seal_record(seal_way *w, const void *in, size_t bytes, void *out, void *tag);
/* Open the next record on the other side, in place. Errors: MR_E_NODE the record is not the one
 * that was sealed with this number; `data` is undefined then */
mr_status seal_open(seal_way *w, void *data, size_t bytes, const void *tag);

#endif
