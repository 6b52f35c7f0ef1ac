/* muon: the polynomial of an iteration, and the interface of the bf16 kernels.
 * Licence: Apache-2.0 */
#ifndef MR_MUON_H
#define MR_MUON_H

#include <math.h>
#include <stdint.h>

enum { MUON_ROUNDS = 5 };
/* a, b, c of muon.c, and the shift of the diagonal of G */
#define MUON_A 3.4445
#define MUON_B (-4.775)
#define MUON_C 2.0315
static inline float muon_gram_shift(void)
{
    return (float)(MUON_B / sqrt(MUON_C));
}

/* The memory of a round, per worker: Y [rows, cols], the next Y, and squares of the shorter side:
 * G, G with the shifted diagonal, P. own: workspace of the products. */
typedef struct muon_places {
    char *y, *next, *gram, *shifted, *mixed, *own;
} muon_places;

#if defined(MR_ISA_avx512) && defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
#define MUON_AMX 1
#endif
/* Run all rounds of a bf16 block [s, l], multiples of 32, s <= l, if MUON_AMX is defined. amx: on
 * tiles, only after mr_cpu_amx(). dots: by vectors of AVX-512 BF16. own: s x l elements. The result
 * is y. */
typedef void muon_rounds_fn(muon_places *at, int64_t s, int64_t l);
muon_rounds_fn mr_muon_amx_rounds, mr_muon_dots_rounds;

#endif
