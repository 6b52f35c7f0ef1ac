/* base, inside: the random numbers that PyTorch draws on a CPU, for runs that are compared with
 * PyTorch bit by bit. All other code uses random_inline.h. Licence: Apache-2.0 */
#ifndef MR_BASE_MERSENNE_H
#define MR_BASE_MERSENNE_H

#include "moonreel/base.h"

/* Writes the n numbers that torch.randn(n) returns after torch.manual_seed(seed) and `draws`
 * earlier calls of torch.randn(n). n is at least 16, where PyTorch fills in blocks. The results
 * differ by a few units in the last place, because PyTorch uses another vector logarithm.
 *
 * out      [n] f32; written only on MR_OK
 * Ref:     PyTorch 2.2, aten/src/ATen/native/cpu/DistributionTemplates.h; Matsumoto & Nishimura
 *          1998 (MT19937)
 * Errors:  MR_E_RANGE n below 16
 * Threads: any */
MR_API mr_status mr_torch_normal(float *out, int64_t n, uint32_t seed, int64_t draws);

#endif
