/* muon_dots: muon_amx.c compiled with vector products, for processors that have AVX-512 BF16 but no
 * AMX tiles. Licence: Apache-2.0 */
#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
#include "cpu/dots.h"
#endif
#define mr_muon_amx_rounds mr_muon_dots_rounds
#include "op/muon_amx.c"
