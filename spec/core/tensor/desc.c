/* tensor/desc and dtype: view algebra, conversions, counted storage.
 * Covers: core/tensor/dtype.c core/tensor/convert.c core/tensor/tensor.c */
#include "check.h"
#include "moonreel/tensor.h"

#include <stdlib.h>

static void views(void)
{
    mr_desc d = mr_desc_dense(MR_F32, 3, (int64_t[]){2, 3, 4}), v, w;
    int64_t at = 0;
    CHECK_OK(mr_desc_permute(&d, (int[]){2, 0, 1}, &v));
    CHECK_INT(v.dim[0], 4);
    CHECK_INT(v.stride[0], 1);
    CHECK(!mr_desc_is_dense(&v));
    CHECK_OK(mr_desc_slice(&d, 1, 1, 3, &v, &at));
    CHECK_INT(at, 4);
    CHECK(mr_desc_is_rows(&v));
    CHECK_OK(mr_desc_reshape(&v, 4, (int64_t[]){2, 2, 2, -1}, &w));
    CHECK_INT(w.dim[3], 2);
    CHECK_INT(w.stride[0], 12);
    CHECK_INT(w.stride[1], 4);
    CHECK_FAILS(mr_desc_reshape(&v, 1, (int64_t[]){16}, &w), MR_E_SHAPE,
                "its strides do not allow it");
    CHECK_FAILS(mr_desc_reshape(&d, 2, (int64_t[]){5, 5}, &w), MR_E_SHAPE, "[2, 3, 4] f32");
    CHECK_OK(mr_desc_expand(&d, 4, (int64_t[]){7, 2, 3, 4}, &w));
    CHECK_INT(w.stride[0], 0);
    CHECK_FAILS(mr_desc_expand(&d, 3, (int64_t[]){2, 6, 4}, &w), MR_E_SHAPE, "length 1");
    CHECK_FAILS(mr_desc_slice(&d, 1, 2, 9, &v, &at), MR_E_SHAPE, "2:9");
    CHECK_INT(mr_desc_span_bytes(&d), 96);
}

static void conversions(void)
{
    float src[6] = {0, 1.0f, -2.5f, 3.14159f, INFINITY, NAN};
    uint16_t half[6];
    float back[6];
    mr_desc f = mr_desc_dense(MR_F32, 2, (int64_t[]){2, 3}), b = f;
    b.dtype = MR_BF16;
    CHECK_OK(mr_view_copy(&(mr_view){half, b}, &(mr_view){src, f}));
    CHECK_OK(mr_view_copy(&(mr_view){back, f}, &(mr_view){half, b}));
    CHECK_NEAR(back[3], 3.140625, 0);
    CHECK(isinf(back[4]) && isnan(back[5]));
    // transpose while converting to i32
    int32_t ints[6];
    float vals[6] = {1, 2, 3, 4, 5, 6};
    mr_desc t = mr_desc_dense(MR_I32, 2, (int64_t[]){3, 2}), p;
    CHECK_OK(mr_desc_permute(&f, (int[]){1, 0}, &p));
    CHECK_OK(mr_view_copy(&(mr_view){ints, t}, &(mr_view){vals, p}));
    CHECK_INT(ints[1], 4);
    CHECK_INT(ints[4], 3);
    // values that do not fit are clamped, and nothing is written after the last element
    float far[4] = {-1, 255.5f, 256, 1};
    unsigned char bytes[5] = {9, 9, 9, 9, 9};
    mr_desc four = mr_desc_dense(MR_F32, 1, (int64_t[]){4}), small = four;
    small.dtype = MR_U8;
    CHECK_OK(mr_view_copy(&(mr_view){bytes, small}, &(mr_view){far, four}));
    CHECK(!memcmp(bytes, (unsigned char[]){0, 255, 255, 1, 9}, 5));
    half[4] = 0x1234;
    mr_desc two = mr_desc_dense(MR_F32, 2, (int64_t[]){2, 2}), turned;
    CHECK_OK(mr_desc_permute(&two, (int[]){1, 0}, &turned));
    two.dtype = MR_BF16;
    CHECK_OK(mr_view_copy(&(mr_view){half, two}, &(mr_view){far, turned}));
    CHECK(half[1] == 0x4380 && half[3] == 0x3f80 && half[4] == 0x1234);
    // round to nearest even at the half-way point
    CHECK_INT(mr_f32_to_bf16(1.00390625f), 0x3f80);
    CHECK_INT(mr_f32_to_bf16(1.01171875f), 0x3f82);
    for (int i = 0; i < MR_DTYPE_COUNT; i++)
        CHECK_INT(mr_dtype_from_name(mr_dtype_name((mr_dtype)i)), i);
}

static int released;
static void release(void *user)
{
    released += *(int *)user;
}

static void sharing(void)
{
    int one = 1;
    float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    mr_desc d = mr_desc_dense(MR_F32, 1, (int64_t[]){8}), s;
    mr_tensor *t, *v;
    int64_t at = 0;
    const size_t held = mr_tensor_held();
    CHECK_OK(mr_tensor_wrap(&d, data, release, &one, &t));
    CHECK_OK(mr_desc_slice(&d, 0, 3, 5, &s, &at));
    CHECK_OK(mr_tensor_view_new(t, &s, at, &v));
    mr_tensor_unref(t);
    CHECK_INT(released, 0);
    CHECK_NEAR(mr_view_get(mr_tensor_view(v), (int64_t[]){1}), 4, 0);
    mr_tensor_unref(v);
    CHECK_INT(released, 1);
    // borrowed memory is not counted
    CHECK_INT(mr_tensor_held(), held);
    // each allocation on the way may fail, without a leak or an incomplete tensor
    for (int i = 1; i < 4; i++) {
        mr_alloc_fail_at(i);
        mr_tensor *x = NULL;
        mr_status st = mr_tensor_new(MR_BF16, 2, (int64_t[]){4, 4}, &x);
        mr_alloc_fail_at(0);
        CHECK(st == MR_OK ? x != NULL : st == MR_E_MEMORY);
        if (st == MR_OK)
            mr_tensor_unref(x);
    }
    CHECK_FAILS(mr_tensor_new(MR_F32, 1, (int64_t[]){-1}, &t), MR_E_SHAPE, "-1");
}

/* Sizes that no tensor may have, and text about them. */
static void sizes(void)
{
    const int64_t half = (int64_t)1 << 32, most = (int64_t)1 << 45;
    mr_desc d = mr_desc_dense(MR_F32, 1, (int64_t[]){1}), v;
    CHECK_OK(mr_desc_check(MR_F32, 1, &most));
    CHECK_OK(mr_desc_check(MR_F32, 2, (int64_t[]){0, most}));
    CHECK_FAILS(mr_desc_check(MR_F32, 1, (int64_t[]){most + 1}), MR_E_SHAPE,
                "[35184372088833] f32 is too large");
    CHECK_FAILS(mr_desc_check(MR_U8, 3, (int64_t[]){0, most, most}), MR_E_SHAPE, "too large");
    CHECK_FAILS(mr_desc_check(MR_DTYPE_COUNT, 1, &most), MR_E_SHAPE,
                "dtype 9 does not exist; expected 0 to 8");
    CHECK_FAILS(mr_desc_check(MR_F32, -1, &most), MR_E_SHAPE, "rank -1");
    CHECK_FAILS(mr_desc_check(MR_F32, 2, (int64_t[]){2, -3}), MR_E_SHAPE, "dimension 1 is -3");
    // products that are 0 or 1 in 64 bits
    CHECK_FAILS(mr_desc_expand(&d, 2, (int64_t[]){half, half}, &v), MR_E_SHAPE, "too large");
    CHECK_FAILS(mr_desc_reshape(&d, 3, (int64_t[]){half, half, 1}, &v), MR_E_SHAPE,
                "expected the same number of elements");
    CHECK_FAILS(mr_desc_reshape(&d, 3, (int64_t[]){half, half, -1}, &v), MR_E_SHAPE,
                "expected the same number of elements");
    mr_tensor *t;
    CHECK_FAILS(mr_tensor_new(MR_F32, 2, (int64_t[]){half, half}, &t), MR_E_SHAPE, "too large");
}

// all kinds of copies stop on Ctrl-C, and give the same in pieces as at once
static void long_copies(void)
{
    enum { N = (1 << 21) + 5 };
    int64_t n = N, grid[2] = {3, N / 3};
    float *from = malloc(sizeof *from * N);
    double *to = malloc(sizeof *to * N);
    for (int64_t i = 0; i < N; i++)
        from[i] = (float)i, to[i] = 0;
    mr_view x = {from, mr_desc_dense(MR_F32, 1, &n)}, y = {to, mr_desc_dense(MR_F64, 1, &n)};
    CHECK_OK(mr_view_copy(&y, &x));
    int64_t wrong = 0;
    for (int64_t i = 0; i < N; i++)
        wrong += to[i] != (double)i;
    CHECK_INT(wrong, 0);
    // a transposed view, line by line
    mr_view two = {from, mr_desc_dense(MR_F32, 2, grid)}, turned = two, out;
    int order[2] = {1, 0};
    CHECK_OK(mr_desc_permute(&two.desc, order, &turned.desc));
    out = (mr_view){to, mr_desc_dense(MR_F32, 2, turned.desc.dim)};
    CHECK_OK(mr_view_copy(&out, &turned));
    for (int64_t i = 0; i < grid[1]; i++)
        for (int64_t k = 0; k < 3; k++)
            wrong += ((float *)to)[i * 3 + k] != from[k * grid[1] + i];
    CHECK_INT(wrong, 0);
    mr_interrupt_set(true);
    CHECK_FAILS(mr_view_copy(&y, &x), MR_E_STOPPED, "stopped");
    CHECK_FAILS(mr_view_copy(&out, &turned), MR_E_STOPPED, "stopped");
    mr_interrupt_set(false);
    free(from), free(to);
}

int main(void)
{
    long_copies();
    sizes();
    views();
    conversions();
    sharing();
    return check_done();
}
