/* attention_dots: the form of attention_amx.c where the processor has AVX-512 BF16 and no tiles:
 * the same text, its products by vectors. Licence: Apache-2.0 */
#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
#include "cpu/dots.h"
#endif
#define mr_attention_amx_forward  mr_attention_dots_forward
#define mr_attention_amx_backward mr_attention_dots_backward
#include "op/attention_amx.c"
