/* amx: instructions for the AMX tile registers: eight tiles of 16 rows of 64 bytes, and products of
 * bf16 pairs into f32.
 *
 * It is inline assembly with memory clobbers, since the tile built-ins of compilers do not declare
 * memory accesses. Functions that use it are AMX_FN, AMX_INLINE or, if other files call them,
 * AMX_ENTRY. A thread calls amx_begin before and amx_end after. Only for files compiled for avx512,
 * and only after mr_cpu_amx().
 * Licence: Apache-2.0 */
#ifndef MR_AMX_H
#define MR_AMX_H

#include <stdint.h>

#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
#define AMX_FN    __attribute__((target("amx-tile,amx-bf16,avx512bf16"), unused)) static
#define AMX_ENTRY __attribute__((target("amx-tile,amx-bf16,avx512bf16")))
#define AMX_INLINE                                                                                 \
    __attribute__((target("amx-tile,amx-bf16,avx512bf16"), always_inline, unused)) static inline
#define AMX_LOAD(t, p, stride)                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t                                               \
                     :                                                                             \
                     : "r"(p), "r"((int64_t)(stride))                                              \
                     : "memor"                                                                     \
                       "y")
#define AMX_STORE(t, p, stride)                                                                    \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"                                           \
                     :                                                                             \
                     : "r"(p), "r"((int64_t)(stride))                                              \
                     : "memory")
#define AMX_CLEAR(t)     __asm__ volatile("tilezero %%tmm" #t : :)
#define AMX_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

AMX_FN void amx_begin(void)
{
    // eight tiles of 16 rows of 64 bytes
    struct {
        uint8_t palette, start, zero[14];
        uint16_t width[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++)
        config.width[i] = 64, config.rows[i] = 16;
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}
AMX_FN void amx_end(void)
{
    __asm__ volatile("tilerelease" : :);
}
#endif

#endif
