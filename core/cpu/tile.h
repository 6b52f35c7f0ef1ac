/* tile: the inner loop of f32 products, for files of isa/. A tile is TILE_ROWS x TILE_COLUMNS
 * elements of a product, whose sums stay in registers. Licence: Apache-2.0 */
#ifndef MR_TILE_H
#define MR_TILE_H

#include "cpu/vec.h"

// the number of rows leaves registers for two vectors of B and one of A
#if defined(__AVX512F__)
enum { TILE_ROWS = 12 };
#elif defined(__AVX2__)
enum { TILE_ROWS = 6 };
#else
enum { TILE_ROWS = 4 };
#endif
// unrolled steps of the sum: with three, the sums would be spilled from registers
enum { TILE_COLUMNS = 2 * VF_LANES, TILE_UNROLL = 2 };

/* Elements of a panel of B to prefetch per turn, if the tiles of `rows` rows prefetch it
 * together. */
#define TILE_FETCH(rows) (TILE_UNROLL * TILE_COLUMNS * TILE_ROWS / (rows) + 1)

/* The operands of a tile: rows of A, and a panel [depth][TILE_COLUMNS] of B. `next` is the share of
 * the next panel to prefetch, since B can come from memory rather than the cache. */
typedef struct tile_operands {
    const float *a, *b, *next;
    int64_t depth;
} tile_operands;

/* sum = A B. Element (i, p) of A is at i * row + p * step; step and fetch are compile-time
 * constants. */
VF_INLINE void tile_sums(vf (*sum)[2], const tile_operands *o, int64_t row, int64_t step,
                         int64_t fetch)
{
    const float *a = o->a, *b = o->b, *next = o->next;
    int64_t depth = o->depth, p = 0;
    for (int i = 0; i < TILE_ROWS; i++)
        sum[i][0] = sum[i][1] = vf_zero();
    for (; p + TILE_UNROLL <= depth; p += TILE_UNROLL, b += TILE_UNROLL * TILE_COLUMNS) {
        __builtin_prefetch(next, 0, 2);
        next += fetch;
#pragma GCC unroll 2
        for (int64_t u = 0; u < TILE_UNROLL; u++, a += step) {
            vf b0 = vf_load(b + u * TILE_COLUMNS), b1 = vf_load(b + u * TILE_COLUMNS + VF_LANES);
#pragma GCC unroll 12
            for (int i = 0; i < TILE_ROWS; i++) {
                vf x = vf_set(a[i * row]);
                sum[i][0] = vf_fma(x, b0, sum[i][0]);
                sum[i][1] = vf_fma(x, b1, sum[i][1]);
            }
        }
    }
    for (; p < depth; p++, a += step, b += TILE_COLUMNS)
        for (int i = 0; i < TILE_ROWS; i++) {
            vf x = vf_set(a[i * row]);
            sum[i][0] = vf_fma(x, vf_load(b), sum[i][0]);
            sum[i][1] = vf_fma(x, vf_load(b + VF_LANES), sum[i][1]);
        }
}

#endif
