/* data: the random generators of the reference implementations, with equal bits: the Mersenne
 * twister with the seeding of torch and of Python, PCG64 with the seeding of numpy. Our own draws
 * are hashes of integers (mix.h). Ref: Matsumoto & Nishimura 1998; O'Neill 2014; numpy
 * SeedSequence.
 * Licence: Apache-2.0 */
#include "moonreel/generator.h"

enum { WORDS = MR_TWISTER_WORDS, SHIFT = 397 };

/* ---- Mersenne twister ---- */

void mr_twister_seed(mr_twister *t, uint32_t seed)
{
    t->words[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        t->words[i] = 1812433253u * (t->words[i - 1] ^ t->words[i - 1] >> 30) + i;
    t->at = WORDS;
}

// the next word for the mix of an array; the index wraps around and skips word 0
static uint32_t next_word(mr_twister *t, uint32_t i)
{
    if (++i < WORDS)
        return i;
    t->words[0] = t->words[WORDS - 1];
    return 1;
}

void mr_twister_seed_words(mr_twister *t, const uint32_t *words, int32_t n)
{
    uint32_t *w = t->words, i = 1;
    mr_twister_seed(t, 19650218);
    for (int32_t k = 0; k < MR_MAX(WORDS, n); k++) {
        w[i] = (w[i] ^ (w[i - 1] ^ w[i - 1] >> 30) * 1664525u) + words[k % n] + (uint32_t)(k % n);
        i = next_word(t, i);
    }
    for (int32_t k = 1; k < WORDS; k++) {
        w[i] = (w[i] ^ (w[i - 1] ^ w[i - 1] >> 30) * 1566083941u) - i;
        i = next_word(t, i);
    }
    w[0] = 0x80000000;
}

static void turn_over(mr_twister *t)
{
    uint32_t *w = t->words;
    for (int32_t k = 0; k < WORDS; k++) {
        uint32_t y = (w[k] & 0x80000000) | (w[(k + 1) % WORDS] & 0x7fffffff);
        w[k] = w[(k + SHIFT) % WORDS] ^ y >> 1 ^ (y & 1) * 0x9908b0df;
    }
    t->at = 0;
}

uint32_t mr_twister_next(mr_twister *t)
{
    if (t->at == WORDS)
        turn_over(t);
    uint32_t y = t->words[t->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680;
    y ^= y << 15 & 0xefc60000;
    return y ^ y >> 18;
}

/* ---- PCG64 ---- */

__extension__ typedef unsigned __int128 wide;

static wide wide_of(uint64_t high, uint64_t low)
{
    return (wide)high << 64 | low;
}

static void step(mr_pcg64 *p)
{
    wide state = wide_of(p->high, p->low) * wide_of(0x2360ed051fc65da4, 0x4385df649fccf645) +
                 wide_of(p->add_high, p->add_low);
    p->high = (uint64_t)(state >> 64), p->low = (uint64_t)state;
}

static uint32_t hashed(uint32_t v, uint32_t *h, uint32_t factor)
{
    v ^= *h;
    *h *= factor;
    v *= *h;
    return v ^ v >> 16;
}

// expand a seed of two words to eight words
static void spread_seed(uint64_t seed, uint32_t out[8])
{
    uint32_t pool[4], h = 0x43b0d7e5;
    const uint32_t words[4] = {(uint32_t)seed, (uint32_t)(seed >> 32), 0, 0};
    for (int i = 0; i < 4; i++)
        pool[i] = hashed(words[i], &h, 0x931e8875);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (i != j) {
                uint32_t r = 0xca01f9dd * pool[j] - 0x4973f715 * hashed(pool[i], &h, 0x931e8875);
                pool[j] = r ^ r >> 16;
            }
    h = 0x8b51f9dd;
    for (int i = 0; i < 8; i++)
        out[i] = hashed(pool[i % 4], &h, 0x58f38ded);
}

void mr_pcg64_seed(mr_pcg64 *p, uint64_t seed)
{
    uint32_t w[8];
    uint64_t s[4];
    spread_seed(seed, w);
    for (int i = 0; i < 4; i++)
        s[i] = (uint64_t)w[2 * i + 1] << 32 | w[2 * i];
    *p = (mr_pcg64){.add_high = s[2] << 1 | s[3] >> 63, .add_low = s[3] << 1 | 1};
    step(p);
    wide state = wide_of(p->high, p->low) + wide_of(s[0], s[1]);
    p->high = (uint64_t)(state >> 64), p->low = (uint64_t)state;
    step(p);
}

double mr_pcg64_next(mr_pcg64 *p)
{
    step(p);
    uint64_t word = p->high ^ p->low;
    int turn = (int)(p->high >> 58);
    word = word >> turn | word << (-turn & 63);
    return (double)(word >> 11) * 0x1p-53;
}
