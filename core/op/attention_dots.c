/* attention_dots: attention_amx.c compiled with vector products, for processors that have AVX-512
 * BF16 but no AMX tiles. Licence: Apache-2.0 */
#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
#include "cpu/dots.h"
#endif
#define mr_attention_amx_forward  mr_attention_dots_forward
#define mr_attention_amx_backward mr_attention_dots_backward
#include "op/attention_amx.c"
