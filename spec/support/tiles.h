/* The eight tile registers in plain C, in place of core/cpu/amx.h: kernels written for AMX run on
 * any processor with AVX-512 BF16, so that all but the tile instructions themselves is tested
 * there. Include before each other header, in a spec that CMakeLists.txt compiles for that
 * processor; SPEC_TILES is defined on such processors, and main() calls tiles_usable() first. */
#ifndef MR_AMX_H
#define MR_AMX_H
#if defined(__AVX512BF16__) && defined(__linux__)
#define SPEC_TILES 1

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static _Thread_local union tile {
    uint16_t pairs[16][32]; /* operands */
    float sums[16][16];
} tiles[8];

static inline void tile_load(int t, const void *p, int64_t stride)
{
    for (int r = 0; r < 16; r++)
        memcpy(tiles[t].pairs[r], (const char *)p + r * stride, 64);
}
static inline void tile_store(int t, void *p, int64_t stride)
{
    for (int r = 0; r < 16; r++)
        memcpy((char *)p + r * stride, tiles[t].pairs[r], 64);
}
static inline float tile_number(uint16_t bf16)
{
    uint32_t bits = (uint32_t)bf16 << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
/* c += a b: row r of `a` holds 16 pairs, row k of `b` the k-th pair of each of 16 columns. */
static void tile_dot(int c, int a, int b)
{
    for (int r = 0; r < 16; r++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 16; n++)
                for (int i = 0; i < 2; i++)
                    tiles[c].sums[r][n] += tile_number(tiles[a].pairs[r][2 * k + i]) *
                                           tile_number(tiles[b].pairs[k][2 * n + i]);
}

#define AMX_FN __attribute__((unused)) static
#define AMX_ENTRY
#define AMX_INLINE              __attribute__((always_inline, unused)) static inline
#define AMX_LOAD(t, p, stride)  tile_load(t, p, (int64_t)(stride))
#define AMX_STORE(t, p, stride) tile_store(t, p, (int64_t)(stride))
#define AMX_CLEAR(t)            memset(&tiles[t], 0, sizeof tiles[t])
#define AMX_DOT(c, a, b)        tile_dot(c, a, b)

/* A kernel that uses tiles outside of begin and end works on unwritten memory. */
AMX_FN void amx_begin(void)
{
    memset(tiles, 0xff, sizeof tiles);
}
AMX_FN void amx_end(void)
{
    memset(tiles, 0xff, sizeof tiles);
}
static bool tiles_usable(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
}
#endif
#endif
