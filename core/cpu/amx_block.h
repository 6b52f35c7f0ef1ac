/* amx_block: computes a 32 x 32 block of a product on AMX tiles. dots.h, included before, replaces
 * tiles by vectors. Licence: Apache-2.0 */
#ifndef MR_AMX_BLOCK_H
#define MR_AMX_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum { AMX_TILE = 512 /* elements */ };

#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__) && !defined(AMX_VECTORS)
/* c[16 or 32, 16 or 32] (+)= a b over `steps` of 32. a: row-major, lda; b: tile (s, n) at s * bs +
 * n * bn tiles. */
AMX_INLINE void amx_block(bool r2, bool c2, int64_t steps, const uint16_t *a, int64_t lda,
                          const uint16_t *b, int64_t bs, int64_t bn, float *c, int64_t ldc,
                          bool add)
{
    float *low = c + 16 * ldc;
    if (add) {
        AMX_LOAD(0, c, ldc * 4);
        if (c2)
            AMX_LOAD(1, c + 16, ldc * 4);
        if (r2)
            AMX_LOAD(2, low, ldc * 4);
        if (r2 && c2)
            AMX_LOAD(3, low + 16, ldc * 4);
    } else {
        AMX_CLEAR(0);
        if (c2)
            AMX_CLEAR(1);
        if (r2)
            AMX_CLEAR(2);
        if (r2 && c2)
            AMX_CLEAR(3);
    }
    for (int64_t s = 0; s < steps; s++) {
        AMX_LOAD(6, b + s * bs * AMX_TILE, 64);
        AMX_LOAD(4, a + 32 * s, lda * 2);
        AMX_DOT(0, 4, 6);
        if (c2) {
            AMX_LOAD(7, b + (s * bs + bn) * AMX_TILE, 64);
            AMX_DOT(1, 4, 7);
        }
        if (r2) {
            AMX_LOAD(5, a + 16 * lda + 32 * s, lda * 2);
            AMX_DOT(2, 5, 6);
            if (c2)
                AMX_DOT(3, 5, 7);
        }
    }
    AMX_STORE(0, c, ldc * 4);
    if (c2)
        AMX_STORE(1, c + 16, ldc * 4);
    if (r2)
        AMX_STORE(2, low, ldc * 4);
    if (r2 && c2)
        AMX_STORE(3, low + 16, ldc * 4);
}
#endif

#endif
