/* base: MT19937, and PyTorch's normal distribution on top of it. Licence: Apache-2.0 */
#include "base/mersenne.h"
#include <math.h>

enum { N = 624, M = 397, BLOCK = 16 };

typedef struct twister {
    uint32_t word[N];
    int at;
} twister;

static void seed_with(twister *t, uint32_t seed)
{
    t->word[0] = seed, t->at = N;
    for (int i = 1; i < N; i++)
        t->word[i] = 1812433253u * (t->word[i - 1] ^ t->word[i - 1] >> 30) + (uint32_t)i;
}

static void turn(twister *t)
{
    for (int i = 0; i < N; i++) {
        uint32_t y = (t->word[i] & 0x80000000u) | (t->word[(i + 1) % N] & 0x7fffffffu);
        t->word[i] = t->word[(i + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    t->at = 0;
}

static uint32_t next(twister *t)
{
    if (t->at == N)
        turn(t);
    uint32_t y = t->word[t->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* 24 random bits as a number in [0, 1) */
static float uniform(twister *t)
{
    return (float)(next(t) & 0xffffff) * 0x1p-24f;
}

/* Box-Muller transform of 16 uniforms: the first eight give radii, the others angles. */
static void normals(float *x)
{
    for (int i = 0; i < BLOCK / 2; i++) {
        float radius = sqrtf(-2 * logf(1 - x[i])),
              angle = 2 * 3.14159265358979323846f * x[i + BLOCK / 2];
        x[i] = radius * cosf(angle), x[i + BLOCK / 2] = radius * sinf(angle);
    }
}

mr_status mr_torch_normal(float *out, int64_t n, uint32_t seed, int64_t draws)
{
    if (n < BLOCK)
        return mr_fail(MR_E_RANGE, "random numbers of PyTorch: count is %lld; expected at least %d",
                       (long long)n, BLOCK);
    twister t;
    seed_with(&t, seed);
    // if the last block is not full, PyTorch draws the last 16 numbers again
    int64_t used = n + (n % BLOCK ? BLOCK : 0);
    for (int64_t i = 0; i < draws * used; i++)
        next(&t);
    for (int64_t i = 0; i < n; i++)
        out[i] = uniform(&t);
    for (int64_t i = 0; i + BLOCK <= n; i += BLOCK)
        normals(out + i);
    if (n % BLOCK) {
        for (int i = 0; i < BLOCK; i++)
            out[n - BLOCK + i] = uniform(&t);
        normals(out + n - BLOCK);
    }
    return MR_OK;
}
