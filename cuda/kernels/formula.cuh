/* The formulas of core/op/formula.h for single elements, on the device. The CPU kernels compile the
 * same source for vectors. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_FORMULA_CUH
#define MOONREEL_CUDA_KERNELS_FORMULA_CUH

#include "cuda/prim/sm80.cuh"

#define FORMULA       MR_DEVICE
#define FORMULA_RECIP mr_recip
#include "op/formula_float.h"

#endif
