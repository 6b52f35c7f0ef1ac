/* muon_dots: the rounds of muon_amx.c where the processor has AVX-512 BF16 and no tiles: the same
 * text, its products by vectors. Licence: Apache-2.0 */
#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
#include "cpu/dots.h"
#endif
#define mr_muon_amx_rounds mr_muon_dots_rounds
#include "op/muon_amx.c"
