/* ckpt: the closed list of element types of safetensors files. Licence: Apache-2.0 */
#include "moonreel/ckpt.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name, *file_name;
    int bytes;
} rows[MR_ST_DTYPE_COUNT] = {
    [MR_ST_F64] = {"f64", "F64", 8},
    [MR_ST_F32] = {"f32", "F32", 4},
    [MR_ST_F16] = {"f16", "F16", 2},
    [MR_ST_BF16] = {"bf16", "BF16", 2},
    [MR_ST_F8_E4M3] = {"f8_e4m3", "F8_E4M3", 1},
    [MR_ST_F8_E5M2] = {"f8_e5m2", "F8_E5M2", 1},
    [MR_ST_I64] = {"i64", "I64", 8},
    [MR_ST_I32] = {"i32", "I32", 4},
    [MR_ST_I16] = {"i16", "I16", 2},
    [MR_ST_I8] = {"i8", "I8", 1},
    [MR_ST_U64] = {"u64", "U64", 8},
    [MR_ST_U32] = {"u32", "U32", 4},
    [MR_ST_U16] = {"u16", "U16", 2},
    [MR_ST_U8] = {"u8", "U8", 1},
    [MR_ST_BOOL] = {"bool", "BOOL", 1},
};

const char *mr_st_dtype_name(mr_st_dtype d)
{
    return d < MR_ST_DTYPE_COUNT ? rows[d].name : "?";
}
const char *mr_st_dtype_file_name(mr_st_dtype d)
{
    return d < MR_ST_DTYPE_COUNT ? rows[d].file_name : "?";
}
size_t mr_st_dtype_bytes(mr_st_dtype d)
{
    return (size_t)rows[d].bytes;
}

mr_st_dtype mr_st_dtype_from_name(const char *name)
{
    for (int i = 0; i < MR_ST_DTYPE_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0 || strcmp(rows[i].file_name, name) == 0)
            return (mr_st_dtype)i;
    return MR_ST_DTYPE_COUNT;
}

mr_status mr_st_shape_bytes(mr_st_dtype dtype, int rank, const int64_t *shape, int64_t *bytes)
{
    int64_t total = 1;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return mr_fail(MR_E_FORMAT, "dimension %d is %lld; expected 0 or more", i,
                           (long long)shape[i]);
        if (__builtin_mul_overflow(total, shape[i], &total))
            return mr_fail(MR_E_FORMAT,
                           "the size of the shape overflows; expected less than 2^63 bytes");
    }
    if (__builtin_mul_overflow(total, rows[dtype].bytes, &total))
        return mr_fail(MR_E_FORMAT,
                       "the size of the shape overflows; expected less than 2^63 bytes");
    *bytes = total;
    return MR_OK;
}

/* Decodes a small float: sign, `e` exponent bits and `m` mantissa bits, in the low bits of x. With
 * `finite_top` the highest exponent also encodes numbers, and only the all-ones pattern is NaN
 * (f8_e4m3). */
static double small_float(unsigned x, int e, int m, bool finite_top)
{
    unsigned mant = x & ((1u << m) - 1), expo = x >> m & ((1u << e) - 1);
    int bias = (1 << (e - 1)) - 1;
    double sign = x >> (e + m) & 1 ? -1 : 1;
    if (expo == (1u << e) - 1) {
        if (!finite_top)
            return mant ? NAN : sign * INFINITY;
        if (mant == (1u << m) - 1)
            return NAN;
    }
    if (!expo)
        return sign * ldexp(mant, 1 - bias - m);
    return sign * ldexp((double)(mant | 1u << m), (int)expo - bias - m);
}

void mr_st_to_f64(mr_st_dtype dtype, const void *src, int64_t n, double *out)
{
#define EACH(type, value)                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                              \
        type x;                                                                                    \
        memcpy(&x, (const char *)src + i * (int64_t)sizeof x, sizeof x);                           \
        out[i] = (value);                                                                          \
    }                                                                                              \
    return
    switch (dtype) {
    case MR_ST_F64: EACH(double, x);
    case MR_ST_F32: EACH(float, (double)x);
    case MR_ST_F16: EACH(uint16_t, small_float(x, 5, 10, false));
    case MR_ST_BF16: EACH(uint16_t, small_float(x, 8, 7, false));
    case MR_ST_F8_E4M3: EACH(uint8_t, small_float(x, 4, 3, true));
    case MR_ST_F8_E5M2: EACH(uint8_t, small_float(x, 5, 2, false));
    case MR_ST_I64: EACH(int64_t, (double)x);
    case MR_ST_I32: EACH(int32_t, x);
    case MR_ST_I16: EACH(int16_t, x);
    case MR_ST_I8: EACH(int8_t, x);
    case MR_ST_U64: EACH(uint64_t, (double)x);
    case MR_ST_U32: EACH(uint32_t, x);
    case MR_ST_U16: EACH(uint16_t, x);
    case MR_ST_U8: EACH(uint8_t, x);
    case MR_ST_BOOL: EACH(uint8_t, x != 0);
    case MR_ST_DTYPE_COUNT: return;
    }
#undef EACH
}
