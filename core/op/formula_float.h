/* formula_float: formula.h for single elements, with `vf` = float, in C, C++ and CUDA. Define
 * FORMULA before if functions need more than `static inline`, and FORMULA_RECIP(x) if a faster 1 /
 * x with an error within 2 units in the last place exists. The rounding equals that of the AVX2
 * kernels bit for bit. Licence: Apache-2.0 */
#ifndef MR_FORMULA_FLOAT_H
#define MR_FORMULA_FLOAT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef FORMULA
#define FORMULA static inline
#endif
#ifndef FORMULA_RECIP
#define FORMULA_RECIP(x) (1.0f / (x))
#endif

typedef float vf;
FORMULA vf vf_set(float x)
{
    return x;
}
FORMULA vf vf_fma(vf a, vf b, vf c)
{
    return fmaf(a, b, c);
}
FORMULA vf vf_sqrt(vf x)
{
    return sqrtf(x);
}
FORMULA vf vf_min(vf a, vf b)
{
    return a < b ? a : b;
}
FORMULA vf vf_max(vf a, vf b)
{
    return a > b ? a : b;
}
FORMULA vf vf_recip(vf x)
{
    return FORMULA_RECIP(x);
}
FORMULA vf vf_power2(vf p, vf n)
{
    // the low bits of the sum are n; if n is NaN, so is p, and these bits do not matter
    float sum = n + 12582912.0f, power;
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    bits = (bits + 127) << 23;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}
FORMULA vf vf_scale2(vf p, vf n)
{
    // two factors, so that no n overflows the exponent field
    int32_t k = n == n ? (int32_t)n : 0, half = k >> 1;
    return vf_power2(vf_power2(p, (vf)half), (vf)(k - half));
}

#include "op/formula.h"

#endif
