/* base: SHA-256. Ref: FIPS 180-4. Licence: Apache-2.0 */
#include "moonreel/base.h"

#include <string.h>

// FIPS 180-4 section 4.2.2: fractions of the cube roots of the first 64 primes
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void mix_block(mr_sha256 *s, const uint8_t *block)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = big_endian(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
               (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t t1 = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                            ((e & v[5]) ^ (~e & v[6])) + K[i] + w[i];
        const uint32_t t2 =
            (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[0] = t1 + t2, v[4] += t1;
    }
    for (int i = 0; i < 8; i++)
        s->h[i] += v[i];
}

void mr_sha256_begin(mr_sha256 *s)
{
    *s = (mr_sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                           0x1f83d9ab, 0x5be0cd19}};
}

void mr_sha256_add(mr_sha256 *s, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) {
        s->block[s->bytes++ % MR_SHA256_BLOCK] = p[i];
        if (s->bytes % MR_SHA256_BLOCK == 0)
            mix_block(s, s->block);
    }
}

void mr_sha256_finish(mr_sha256 *s, uint8_t out[MR_SHA256_BYTES])
{
    const uint64_t bits = s->bytes * 8;
    const uint8_t one = 0x80, zero = 0;
    mr_sha256_add(s, &one, 1);
    while (s->bytes % MR_SHA256_BLOCK != MR_SHA256_BLOCK - 8)
        mr_sha256_add(s, &zero, 1);
    for (int i = 7; i >= 0; i--)
        mr_sha256_add(s, &(uint8_t){(uint8_t)(bits >> 8 * i)}, 1);
    for (int i = 0; i < MR_SHA256_BYTES; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - i % 4 * 8));
}
