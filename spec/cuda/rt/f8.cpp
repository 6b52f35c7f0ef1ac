/* cuda/rt: which 8-bit products moonreel and the replacement of the library refuse, and that the
 * scale of a tensor covers every element. Covers: cuda/kernels/quantise_f8.cu,
 * cuda/gemm/product.cpp, cuda/rt/driver_emu.cpp */
#include "check.h"
#include "cuda/emu/emu.h"
#include "cuda/gemm/product.h"
#include "cuda/kernels/table.h"
#include <algorithm>
#include <cmath>

// device memory with n equal values
template <typename T> static T *numbers(size_t n, T value)
{
    T *p = (T *)emu::alloc(n * sizeof *p);
    std::fill(p, p + n, value);
    emu::host_wrote(p, n * sizeof *p);
    return p;
}

// a matrix of ones with `odd` in one place and rows of C elements; returns its scale
static float scale_with(int64_t C, int64_t place, float odd)
{
    const int64_t dim[2] = {300, C}, one = 1;
    float *x = numbers(300 * C, 1.0f), *scale = numbers(1, 0.0f);
    x[place] = odd;
    mr_call call = {};
    call.n_in = 1;
    call.n_out = 3;
    call.in[0] = {x, mr_desc_dense(MR_F32, 2, dim)};
    call.out[0] = {numbers(300 * C, (uint8_t)0), mr_desc_dense(MR_F8_E4M3, 2, dim)};
    call.out[1] = {scale, mr_desc_dense(MR_F32, 1, &one)};
    call.out[2].desc.rank = -1;
    const mr_kernel *kernel = &mr_cuda_kernel_find("quantise_f8")->kernel;
    call.workspace = emu::alloc(kernel->workspace(&call, NULL));
    CHECK_OK(kernel->run[0](&call));
    CHECK_INT(emu::reports().size(), 0);
    float got = *scale;
    emu::free_all();
    return got;
}

// one element determines the scale, wherever it is: in the last range of more ranges than a block
// has threads, in the last warp of a block that scans elements, and of the block that scans ranges
static void one_element(void)
{
    for (int64_t place : {300 * 255 - 1, 255, 250 * 256})
        CHECK_NEAR(scale_with(255, place, -1000), 1 / (448.0f / 1000), 0);
    for (int64_t place : {300 * 256 - 1, 127 * 256 + 63, 299 * 256})
        CHECK_NEAR(scale_with(256, place, 1000), 1 / (448.0f / 1000), 0);
    CHECK(std::isnan(scale_with(256, 7, -INFINITY)) && std::isnan(scale_with(255, 7, NAN)));
}

// an 8-bit product C [16, 16] with one property that the library does not support
enum odd { NONE, LENGTH, COLUMNS, ADDRESS, FORMATS };
static mr_status product(odd what)
{
    enum { SIDE = 16, BYTES = 4 * SIDE * SIDE };
    char *at[5];
    for (char *&p : at) {
        p = (char *)emu::alloc(BYTES);
        memset(p, 0, BYTES);
        emu::host_wrote(p, BYTES);
    }
    mr_product_f8 p = {};
    p.m = 5;
    p.n = what == COLUMNS ? 8 : SIDE;
    p.k = what == LENGTH ? 8 : SIDE;
    p.a_type = what == FORMATS ? MR_F8_E5M2 : MR_F8_E4M3;
    p.b_type = MR_F8_E5M2;
    p.out = MR_BF16;
    p.a = at[0] + (what == ADDRESS ? 8 : 0);
    p.b = at[1];
    p.a_scale = (const float *)at[2];
    p.b_scale = (const float *)at[3];
    void *workspace = emu::alloc(mr_cuda_product_f8_workspace(&p));
    mr_status st = mr_cuda_product_f8_run(&p, NULL, at[4], workspace, NULL);
    CHECK_INT(emu::reports().size(), 0);
    emu::free_all();
    return st;
}

static void refuses(void)
{
    CHECK_OK(product(NONE));
    for (odd what : {LENGTH, COLUMNS, ADDRESS, FORMATS})
        CHECK_FAILS(product(what), MR_E_UNSUPPORTED, "multiples of 16; try: operands");
    CHECK_FAILS(product(LENGTH), MR_E_UNSUPPORTED, "a product [5, 8] by [8, 16] in f8_e5m2: ");
    CHECK_FAILS(product(COLUMNS), MR_E_UNSUPPORTED, "a product [5, 16] by [16, 8] in f8_e5m2: ");
}

// the replacement accepts the 8-bit products of the library's manual, and no others
static void stand_in(void)
{
    mr_cuda_product good = {};
    good.ta = true;
    good.m = good.k = good.lda = good.ldb = good.ldd = 16;
    good.n = 3;
    good.batch = 1;
    good.in = good.in_b = MR_F8_E4M3;
    good.out = MR_BF16;
    good.align = 16;
    size_t bytes = 0;
    void *plan = NULL;
    CHECK_INT(mr_cuda.product_new(&good, &bytes, &plan), 0);
    mr_cuda.product_free(plan);
    for (int i = 0; i < 6; i++) {
        mr_cuda_product p = good;
        p.ta = i != 0;
        p.tb = i == 1;
        p.batch = i == 2 ? 2 : 1;
        p.in_b = i == 3 ? MR_BF16 : MR_F8_E4M3;
        p.ldb = i == 4 ? 24 : 16;
        p.ending = i == 5 ? MR_CUDA_GELU : MR_CUDA_SUMS;
        CHECK_INT(mr_cuda.product_new(&p, &bytes, &plan), 1);
    }
}

/* One element of C [16, 16]: of 4,096 products, the first 128 are 32 each, the others 1/128. With
 * fast accumulation these are too small for the 14 bits of a sum; with an f32 sum every 128, they
 * count. */
static float long_sum(mr_dtype a_type)
{
    enum { SIDE = 16, K = 4096 };
    const bool wide = a_type == MR_F8_E5M2;
    const uint8_t large = wide ? 0x50 : 0x60, small = wide ? 0x20 : 0x04, one = 0x38;
    uint8_t *a = numbers(SIDE * K, small), *b = numbers(SIDE * K, one);
    float *scale = numbers(1, 1.0f), *c = numbers(SIDE * SIDE, 0.0f);
    for (int i = 0; i < SIDE; i++)
        std::fill(a + i * K, a + i * K + 128, large);
    mr_product_f8 p = {};
    p.m = p.n = SIDE;
    p.k = K;
    p.a_type = a_type;
    p.b_type = MR_F8_E4M3;
    p.out = MR_F32;
    p.accumulate = true;
    p.a = a;
    p.b = b;
    p.a_scale = p.b_scale = scale;
    void *workspace = emu::alloc(mr_cuda_product_f8_workspace(&p));
    CHECK_OK(mr_cuda_product_f8_run(&p, NULL, c, workspace, NULL));
    CHECK_INT(emu::reports().size(), 0);
    const float got = c[SIDE + 1];
    emu::free_all();
    return got;
}

// forward products use fast accumulation, gradients do not
static void long_sums(void)
{
    CHECK_NEAR(long_sum(MR_F8_E5M2), 4096 + 3968 / 128.0, 0);
    CHECK_NEAR(long_sum(MR_F8_E4M3), 4096, 0);
}

int main(void)
{
    one_element();
    long_sums();
    refuses();
    stand_in();
    return check_done();
}
