/* comm: ChaCha20-Poly1305 in plain C, for hosts without libcrypto. Ref: RFC 8439; limbs of 44 bits
 * as in Moon's poly1305-donna. The time depends on lengths only. Licence: Apache-2.0 */
#include "comm/seal.h"

#include <string.h>

enum { BLOCK = 64, AT_ONCE = 4, PIECE = BLOCK * AT_ONCE };

/* ---- ChaCha20 ---- */

typedef uint32_t vec __attribute__((vector_size(4 * AT_ONCE))); /* one word of each block */

static vec turn(vec x, int by)
{
    return x << by | x >> (32 - by);
}

static void quarter(vec *x, int a, int b, int c, int d)
{
    x[a] += x[b], x[d] = turn(x[d] ^ x[a], 16);
    x[c] += x[d], x[b] = turn(x[b] ^ x[c], 12);
    x[a] += x[b], x[d] = turn(x[d] ^ x[a], 8);
    x[c] += x[d], x[b] = turn(x[b] ^ x[c], 7);
}

/* The key stream of the blocks from `counter` on. */
static void stream(const uint8_t *key, const uint8_t *nonce, uint32_t counter, uint8_t out[PIECE])
{
    uint32_t words[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    memcpy(words + 4, key, SEAL_KEY);
    words[12] = counter;
    memcpy(words + 13, nonce, SEAL_NONCE);
    vec from[16], x[16];
    for (int i = 0; i < 16; i++)
        from[i] = words[i] - (vec){0};
    from[12] += (vec){0, 1, 2, 3};
    memcpy(x, from, sizeof x);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 4; i++)
            quarter(x, i, 4 + i, 8 + i, 12 + i);
        for (int i = 0; i < 4; i++)
            quarter(x, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
    }
    // four words of each block at a time
    for (int i = 0; i < 16; i += 4) {
        const vec a = x[i] + from[i], b = x[i + 1] + from[i + 1];
        const vec c = x[i + 2] + from[i + 2], d = x[i + 3] + from[i + 3];
        const vec ab = __builtin_shuffle(a, b, (vec){0, 4, 1, 5});
        const vec cd = __builtin_shuffle(c, d, (vec){0, 4, 1, 5});
        const vec ab2 = __builtin_shuffle(a, b, (vec){2, 6, 3, 7});
        const vec cd2 = __builtin_shuffle(c, d, (vec){2, 6, 3, 7});
        const vec rows[AT_ONCE] = {__builtin_shuffle(ab, cd, (vec){0, 1, 4, 5}),
                                   __builtin_shuffle(ab, cd, (vec){2, 3, 6, 7}),
                                   __builtin_shuffle(ab2, cd2, (vec){0, 1, 4, 5}),
                                   __builtin_shuffle(ab2, cd2, (vec){2, 3, 6, 7})};
        for (int block = 0; block < AT_ONCE; block++)
            memcpy(out + block * BLOCK + 4 * i, &rows[block], sizeof rows[block]);
    }
}

/* Block 0 is the key of the tag, so the text starts with block 1. */
static void encrypt(const uint8_t *key, const uint8_t *nonce, const uint8_t *in, size_t bytes,
                    uint8_t *out)
{
    uint64_t pad[PIECE / 8], text[PIECE / 8] = {0};
    uint32_t counter = 1;
    for (size_t at = 0; at < bytes; at += PIECE, counter += AT_ONCE) {
        const size_t n = MR_MIN(bytes - at, (size_t)PIECE);
        stream(key, nonce, counter, (uint8_t *)pad);
        memcpy(text, in + at, n);
        for (size_t i = 0; i < MR_COUNT(pad); i++)
            text[i] ^= pad[i];
        memcpy(out + at, text, n);
    }
}

/* ---- Poly1305 ---- */

__extension__ typedef unsigned __int128 wide;
static const uint64_t LOW44 = (1ull << 44) - 1, LOW42 = (1ull << 42) - 1;

// a number of 128 bits, as limbs
static void split(const uint8_t *from, uint64_t limbs[3])
{
    uint64_t t[2];
    memcpy(t, from, sizeof t);
    limbs[0] = t[0] & LOW44;
    limbs[1] = (t[0] >> 44 | t[1] << 20) & LOW44;
    limbs[2] = t[1] >> 24;
}

void poly1305_begin(poly1305 *p, const uint8_t key[SEAL_KEY])
{
    *p = (poly1305){.h = {0}};
    split(key, p->r);
    // section 2.5: some bits of r are clear
    p->r[0] &= 0xffc0fffffff, p->r[1] &= 0xfffffc0ffff, p->r[2] &= 0x00ffffffc0f;
    memcpy(p->pad, key + 16, sizeof p->pad);
}

void poly1305_add(poly1305 *p, const void *data, size_t bytes)
{
    const uint64_t r0 = p->r[0], r1 = p->r[1], r2 = p->r[2], s1 = r1 * 20, s2 = r2 * 20;
    uint64_t h0 = p->h[0], h1 = p->h[1], h2 = p->h[2];
    for (const uint8_t *at = data, *end = at + bytes / 16 * 16; at < end; at += 16) {
        uint64_t m[3];
        split(at, m);
        h0 += m[0], h1 += m[1], h2 += m[2] | 1ull << 40;
        // h * r modulo 2^130 - 5
        const wide d0 = (wide)h0 * r0 + (wide)h1 * s2 + (wide)h2 * s1;
        const wide d1 = (wide)h0 * r1 + (wide)h1 * r0 + (wide)h2 * s2 + (uint64_t)(d0 >> 44);
        const wide d2 = (wide)h0 * r2 + (wide)h1 * r1 + (wide)h2 * r0 + (uint64_t)(d1 >> 44);
        h0 = ((uint64_t)d0 & LOW44) + (uint64_t)(d2 >> 42) * 5;
        h1 = ((uint64_t)d1 & LOW44) + (h0 >> 44);
        h0 &= LOW44, h2 = (uint64_t)d2 & LOW42;
    }
    p->h[0] = h0, p->h[1] = h1, p->h[2] = h2;
}

static void carry(uint64_t h[3])
{
    h[1] += h[0] >> 44, h[0] &= LOW44;
    h[2] += h[1] >> 44, h[1] &= LOW44;
    h[0] += (h[2] >> 42) * 5, h[2] &= LOW42;
}

void poly1305_end(poly1305 *p, uint8_t tag[SEAL_TAG])
{
    uint64_t *h = p->h, g[3], sum[2];
    carry(h), carry(h);
    // h - (2^130 - 5) if that is not negative
    g[0] = h[0] + 5, g[1] = h[1] + (g[0] >> 44), g[2] = h[2] + (g[1] >> 44);
    const uint64_t over = -(g[2] >> 42);
    for (int i = 0; i < 3; i++)
        h[i] = (h[i] & ~over) | (g[i] & over);
    h[0] &= LOW44, h[1] &= LOW44;
    sum[0] = (h[0] | h[1] << 44) + p->pad[0];
    sum[1] = (h[1] >> 20 | h[2] << 24) + p->pad[1] + (sum[0] < p->pad[0]);
    memcpy(tag, sum, SEAL_TAG);
}

/* ---- both: section 2.8, for a text without associated data, or associated data only ---- */

static void tag_of(const uint8_t *key, const uint8_t *nonce, const uint8_t *text, size_t bytes,
                   bool hidden, uint8_t tag[SEAL_TAG])
{
    uint8_t once[PIECE], last[16] = {0};
    const uint64_t sizes[2] = {hidden ? 0 : bytes, hidden ? bytes : 0};
    poly1305 p;
    stream(key, nonce, 0, once);
    poly1305_begin(&p, once);
    poly1305_add(&p, text, bytes);
    if (bytes % 16) {
        memcpy(last, text + bytes / 16 * 16, bytes % 16);
        poly1305_add(&p, last, sizeof last);
    }
    poly1305_add(&p, sizes, sizeof sizes);
    poly1305_end(&p, tag);
}

void chacha_seal(const uint8_t key[SEAL_KEY], const uint8_t nonce[SEAL_NONCE], const void *in,
                 size_t bytes, void *out, uint8_t tag[SEAL_TAG])
{
    if (out)
        encrypt(key, nonce, in, bytes, out);
    tag_of(key, nonce, out ? out : in, bytes, out != NULL, tag);
}

bool chacha_open(const uint8_t key[SEAL_KEY], const uint8_t nonce[SEAL_NONCE], void *data,
                 size_t bytes, bool hidden, const uint8_t tag[SEAL_TAG])
{
    uint8_t own[SEAL_TAG];
    tag_of(key, nonce, data, bytes, hidden, own);
    if (!seal_equal(own, tag, SEAL_TAG))
        return false;
    if (hidden)
        encrypt(key, nonce, data, bytes, data);
    return true;
}
