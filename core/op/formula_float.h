/* formula_float: formula.h for single elements, `vf` being float: C, C++ and CUDA. Define FORMULA
 * before where functions need more than `static inline`. Rounds as the AVX2 build of the kernels
 * does, bit for bit. Licence: Apache-2.0 */
#ifndef MR_FORMULA_FLOAT_H
#define MR_FORMULA_FLOAT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef FORMULA
#define FORMULA static inline
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
    return 1.0f / x;
}
FORMULA vf vf_power2(vf p, vf n)
{
    // a NaN may stand for n: its bits are shifted out, and p is NaN too
    int32_t bits = (int32_t)((uint32_t)((n == n ? (int32_t)n : 0) + 127) << 23);
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}
FORMULA vf vf_scale2(vf p, vf n)
{
    // two factors, so that neither end of the range overflows the exponent field
    int32_t k = n == n ? (int32_t)n : 0, half = k >> 1;
    return vf_power2(vf_power2(p, (vf)half), (vf)(k - half));
}

#include "op/formula.h"

#endif
