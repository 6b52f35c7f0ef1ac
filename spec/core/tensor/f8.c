/* tensor/f8: floats of 8 bits compared with the tables of their definition, for all codes; rounding
 * of each bf16 value and at each rounding boundary; scales.
 * Covers: core/include/moonreel/f8_inline.h core/tensor/convert.c core/tensor/reduce.c */
#include "check.h"
#include "moonreel/tensor.h"

#include <math.h>

static const mr_dtype formats[] = {MR_F8_E4M3, MR_F8_E5M2};

/* The value of a code by the definition: sign, exponent, mantissa. */
static double value_of(mr_dtype f8, int code)
{
    bool e4m3 = f8 == MR_F8_E4M3;
    int m = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15, top = e4m3 ? 15 : 31;
    int mantissa = code & ((1 << m) - 1), exponent = code >> m & top;
    double sign = code & 0x80 ? -1 : 1;
    if (e4m3 ? (code & 0x7f) == 0x7f : exponent == top && mantissa)
        return NAN;
    if (!e4m3 && exponent == top)
        return sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - m);
    return sign * ldexp((1 << m) + mantissa, exponent - bias - m);
}

static bool same(double a, double b)
{
    return isnan(b) ? isnan(a) : a == b && signbit(a) == signbit(b);
}

static void codes(mr_dtype f8)
{
    for (int code = 0; code < 256; code++) {
        double want = value_of(f8, code), got = mr_f8_to_f32(f8, (uint8_t)code);
        CHECK(same(got, want));
        // infinite values are saturated, nan has one code
        int back = isnan(want) ? 0x7f : isinf(want) ? (code & 0x80) | 0x7b : code;
        CHECK_INT(mr_f32_to_f8(f8, (float)want), back);
    }
    CHECK_NEAR(mr_f8_to_f32(f8, 1), f8 == MR_F8_E4M3 ? 0x1p-9 : 0x1p-16, 0);
    CHECK_NEAR(mr_f8_to_f32(f8, f8 == MR_F8_E4M3 ? 0x7e : 0x7b), f8 == MR_F8_E4M3 ? 448 : 57344, 0);
}

/* The nearest code of a finite x >= 0, found by looking at all of them; of two the even one. */
static int nearest(mr_dtype f8, double x)
{
    int best = 0, end = f8 == MR_F8_E4M3 ? 0x7e : 0x7b;
    if (x >= value_of(f8, end))
        return end;
    for (int code = 1; code <= end; code++) {
        double d = fabs(value_of(f8, code) - x), least = fabs(value_of(f8, best) - x);
        if (d < least || (d == least && code % 2 == 0))
            best = code;
    }
    return best;
}

static int expected(mr_dtype f8, float x)
{
    if (isnan(x))
        return 0x7f;
    int code = isinf(x) ? (f8 == MR_F8_E4M3 ? 0x7e : 0x7b) : nearest(f8, fabs((double)x));
    return (signbit(x) ? 0x80 : 0) | code;
}

static void every_bf16(mr_dtype f8)
{
    int wrong = 0;
    for (int bits = 0; bits < 1 << 16; bits++) {
        float x = mr_bf16_to_f32((uint16_t)bits);
        wrong += mr_f32_to_f8(f8, x) != expected(f8, x);
    }
    CHECK_INT(wrong, 0);
}

/* f32 halfway between two codes, and the floats next to it. */
static void halves(mr_dtype f8)
{
    int end = f8 == MR_F8_E4M3 ? 0x7e : 0x7b, wrong = 0;
    for (int code = 0; code < end; code++) {
        float x = (float)((value_of(f8, code) + value_of(f8, code + 1)) / 2);
        const float around[] = {nextafterf(x, 0), x, nextafterf(x, INFINITY)};
        for (int i = 0; i < 3; i++) {
            wrong += mr_f32_to_f8(f8, around[i]) != expected(f8, around[i]);
            wrong += mr_f32_to_f8(f8, -around[i]) != expected(f8, -around[i]);
        }
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(mr_f32_to_f8(f8, 1e30f), end);
    CHECK_INT(mr_f32_to_f8(f8, -1e30f), end | 0x80);
    CHECK_INT(mr_f32_to_f8(f8, 1e-40f), 0);
    CHECK_INT(mr_f32_to_f8(f8, -NAN), 0x7f);
}

static uint32_t bits_of(float x)
{
    return mr_f8_value_bits(x);
}

static void scales(void)
{
    CHECK_NEAR(mr_f8_scale(bits_of(448), 3), 1, 0);
    CHECK_NEAR(mr_f8_scale(bits_of(3), 3), 448.0f / 3, 0);
    CHECK_NEAR(mr_f8_scale(bits_of(3), 2), 57344.0f / 3, 0);
    // zero, and almost zero: no infinite scale
    CHECK_NEAR(mr_f8_scale(0, 3), 448.0f / 1e-12f, 0);
    CHECK_NEAR(mr_f8_scale(bits_of(1e-30f), 2), 57344.0f / 1e-12f, 0);
    CHECK(isnan(mr_f8_scale(bits_of(INFINITY), 3)));
    CHECK(isnan(mr_f8_scale(bits_of(NAN) & 0x7fffffff, 3)));
    CHECK(isfinite(mr_f8_scale(bits_of(3.4e38f), 3)) && mr_f8_scale(bits_of(3.4e38f), 3) > 0);
}

/* As elements of tensors: read, written, converted in one copy, reduced. */
static void elements(mr_dtype f8)
{
    float x[5] = {0.3f, -2, 1e9f, NAN, 0}, back[5];
    uint8_t q[5];
    int64_t five = 5;
    mr_view from = {x, mr_desc_dense(MR_F32, 1, &five)}, codes = {q, mr_desc_dense(f8, 1, &five)},
            to = {back, from.desc};
    CHECK_OK(mr_view_copy(&codes, &from));
    CHECK_OK(mr_view_copy(&to, &codes));
    for (int i = 0; i < 5; i++) {
        CHECK_INT(q[i], expected(f8, x[i]));
        CHECK(same(back[i], value_of(f8, q[i])));
    }
    int64_t one = 1;
    CHECK_NEAR(mr_view_get(&codes, &one), -2, 0);
    mr_view_set(&codes, &one, 1.5);
    CHECK_NEAR(mr_view_get(&codes, &one), 1.5, 0);
    CHECK_INT(mr_reduction_dtype(MR_REDUCE_SUM, f8), MR_F32);
    CHECK_INT(mr_dtype_bytes(f8), 1);
    CHECK(mr_dtype_is_float(f8) && !mr_dtype_is_float(MR_BOOL));
}

int main(void)
{
    for (int i = 0; i < 2; i++) {
        codes(formats[i]);
        every_bf16(formats[i]);
        halves(formats[i]);
        elements(formats[i]);
    }
    CHECK_STR(mr_dtype_name(MR_F8_E4M3), "f8_e4m3");
    CHECK_INT(mr_dtype_from_name("f8_e5m2"), MR_F8_E5M2);
    scales();
    return check_done();
}
