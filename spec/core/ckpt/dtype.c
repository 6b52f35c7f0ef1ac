/* ckpt/dtype: names, sizes and values of the element types. */
#include "check.h"
#include "moonreel/ckpt.h"

static double one(mr_st_dtype d, uint64_t bits)
{
    double out;
    mr_st_to_f64(d, &bits, 1, &out);
    return out;
}

int main(void)
{
    for (int d = 0; d < MR_ST_DTYPE_COUNT; d++) {
        CHECK_INT(mr_st_dtype_from_name(mr_st_dtype_name((mr_st_dtype)d)), d);
        CHECK_INT(mr_st_dtype_from_name(mr_st_dtype_file_name((mr_st_dtype)d)), d);
    }
    CHECK_INT(mr_st_dtype_from_name("f31"), MR_ST_DTYPE_COUNT);
    static const unsigned char bytes_of[] = {
        [MR_ST_F64] = 8,     [MR_ST_F32] = 4,     [MR_ST_F16] = 2, [MR_ST_BF16] = 2,
        [MR_ST_F8_E4M3] = 1, [MR_ST_F8_E5M2] = 1, [MR_ST_I64] = 8, [MR_ST_I32] = 4,
        [MR_ST_I16] = 2,     [MR_ST_I8] = 1,      [MR_ST_U64] = 8, [MR_ST_U32] = 4,
        [MR_ST_U16] = 2,     [MR_ST_U8] = 1,      [MR_ST_BOOL] = 1};
    CHECK_INT(MR_COUNT(bytes_of), MR_ST_DTYPE_COUNT);
    for (int d = 0; d < MR_ST_DTYPE_COUNT; d++)
        CHECK_INT(mr_st_dtype_bytes((mr_st_dtype)d), bytes_of[d]);
    // known bit patterns (IEEE 754 half; OCP 8-bit formats e4m3 and e5m2)
    CHECK(one(MR_ST_F16, 0x3c00) == 1 && one(MR_ST_F16, 0x7bff) == 65504 &&
          one(MR_ST_F16, 0x0001) == 0x1p-24);
    CHECK(isinf(one(MR_ST_F16, 0xfc00)) && isnan(one(MR_ST_F16, 0x7e00)));
    CHECK(one(MR_ST_BF16, 0x3f80) == 1 && one(MR_ST_BF16, 0xc049) == -3.140625 &&
          isinf(one(MR_ST_BF16, 0x7f80)));
    CHECK(one(MR_ST_F8_E4M3, 0x38) == 1 && one(MR_ST_F8_E4M3, 0x7e) == 448 &&
          isnan(one(MR_ST_F8_E4M3, 0x7f)) && one(MR_ST_F8_E4M3, 1) == 0x1p-9);
    CHECK(one(MR_ST_F8_E5M2, 0x3c) == 1 && one(MR_ST_F8_E5M2, 0x7b) == 57344 &&
          isinf(one(MR_ST_F8_E5M2, 0x7c)) && isnan(one(MR_ST_F8_E5M2, 0x7d)));
    CHECK(one(MR_ST_I8, 0xff) == -1 && one(MR_ST_U8, 0xff) == 255 &&
          one(MR_ST_I16, 0x8000) == -32768 && one(MR_ST_BOOL, 2) == 1);
    CHECK(one(MR_ST_I64, (uint64_t)-5) == -5 && one(MR_ST_U32, 0xffffffff) == 4294967295.0 &&
          one(MR_ST_I32, 0xffffffff) == -1);
    // every bf16 equals the f32 with the same upper half
    for (uint32_t x = 0; x < 65536; x++) {
        uint32_t wide = x << 16;
        float f;
        memcpy(&f, &wide, 4);
        double d = one(MR_ST_BF16, x);
        if (!(isnan(f) ? isnan(d) : d == (double)f))
            CHECK(false);
    }
    int64_t bytes;
    CHECK_OK(mr_st_shape_bytes(MR_ST_F32, 3, (int64_t[]){2, 0, 5}, &bytes));
    CHECK_INT(bytes, 0);
    CHECK_OK(mr_st_shape_bytes(MR_ST_I64, 0, NULL, &bytes));
    CHECK_INT(bytes, 8);
    CHECK_FAILS(mr_st_shape_bytes(MR_ST_I64, 1, (int64_t[]){-1}, &bytes), MR_E_FORMAT,
                "dimension 0 is -1");
    CHECK_FAILS(mr_st_shape_bytes(MR_ST_I64, 1, (int64_t[]){INT64_MAX / 4}, &bytes), MR_E_FORMAT,
                "overflows");
    return check_done();
}
