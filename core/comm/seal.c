/* comm: a keyed hash by which ranks prove that they know the secret of their run, which never
 * travels. Ref: Aumasson & Bernstein 2012, "SipHash: a fast short-input PRF", SipHash-2-4.
 * Licence: Apache-2.0 */
#include "comm/room.h"

#include <string.h>

static uint64_t turn(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static void mix(uint64_t v[4], int rounds)
{
    while (rounds--) {
        v[0] += v[1], v[2] += v[3];
        v[1] = turn(v[1], 13) ^ v[0], v[3] = turn(v[3], 16) ^ v[2];
        v[0] = turn(v[0], 32);
        v[2] += v[1], v[0] += v[3];
        v[1] = turn(v[1], 17) ^ v[2], v[3] = turn(v[3], 21) ^ v[0];
        v[2] = turn(v[2], 32);
    }
}

uint64_t comm_seal(const uint64_t key[2], const void *data, size_t bytes)
{
    // what it starts from is "somepseudorandomlygeneratedbytes"
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                     key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
    for (size_t at = 0;; at += 8) {
        size_t n = MR_MIN(bytes - at, (size_t)8);
        uint64_t word = n < 8 ? (uint64_t)bytes << 56 : 0;
        memcpy(&word, (const char *)data + at, n);
        v[3] ^= word;
        mix(v, 2);
        v[0] ^= word;
        if (n < 8)
            break;
    }
    v[2] ^= 0xff;
    mix(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
