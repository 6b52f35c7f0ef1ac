/* Operands for the specs of products: values of a seed in f32 or bf16. */
#ifndef MR_PRODUCTCASE_H
#define MR_PRODUCTCASE_H
#include "check.h"
#include "cpu/cpu.h"
#include "cpu/product.h"

#include <stdlib.h>

static inline float value(uint64_t seed, int64_t i)
{
    return mr_random_uniform(seed, 1, 2, 0, (uint64_t)i) * 2 - 1;
}
/* n elements of dtype t, with room for a whole block after them; free() them. */
static inline void *fill(int64_t n, mr_dtype t, uint64_t seed)
{
    void *p = aligned_alloc(64, ((size_t)n * 4 + 127) & ~(size_t)63);
    for (int64_t i = 0; i < n; i++)
        if (t == MR_BF16)
            ((uint16_t *)p)[i] = mr_f32_to_bf16(value(seed, i));
        else
            ((float *)p)[i] = value(seed, i);
    return p;
}
static inline double get(const void *p, int64_t i, mr_dtype t)
{
    return t == MR_BF16 ? mr_bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

#endif
