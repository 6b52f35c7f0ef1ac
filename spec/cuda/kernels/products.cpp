/* cuda/kernels: products that end in a gelu or its slope, at once and by two kernels.
 * Covers: cuda/kernels/linear_gelu.cu, cuda/gemm/rows.cuh, cuda/gemm/product.cpp,
 * cuda/rt/driver_emu.cpp */
#include "check.h"
#include "contract.h"
#include "cuda/emu/emu.h"
#include "cuda/gemm/product.h"

// other kernels than the library's
static bool launched(void)
{
    return emu::launches().count("elementwise_pieces") + emu::launches().count("elementwise_one");
}

// at once, with and without a bias, with what it was of beside: nothing else is launched
static void at_once(void)
{
    contract_fast("linear_gelu", "x=[70,64] bf16 w=[136,64] bf16 b=[136] bf16", 0);
    contract_fast("linear_gelu", "x=[2,35,64] bf16 w=[136,64] bf16 keep=1", 0);
    contract_fast("linear_gelu", "x=[70,64] bf16 w=[136,64] bf16 b=[136] bf16 keep=1", 0);
    contract_fast("linear_dx_gelu", "dy=[70,48] bf16 w=[48,136] bf16 h=[70,136] bf16 -3..3", 0);
    CHECK(!launched());
}

// what the library does not take goes by two kernels
static void apart(void)
{
    contract_case("linear_gelu", "x=[70,64] f32 w=[136,64] f32 b=[136] f32 keep=1");
    contract_case("linear_gelu", "x=[70,64] bf16 w=[136,64] bf16 b=[136] bf16");
    contract_case("linear_gelu", "x=[70,64] bf16 w=[132,64] bf16 b=[132] bf16 keep=1");
    contract_case("linear_dx_gelu", "dy=[70,48] bf16 w=[48,132] bf16 h=[70,132] bf16 -3..3");
    contract_case("linear_dx_gelu", "dy=[70,48] f32 w=[48,136] f32 h=[70,136] f32 -3..3");
    CHECK(launched());
}

// C [SIDE, SIDE] = A B, with aux in rows of `row` elements, `off` elements from the grid
static mr_status ended(mr_dtype type, mr_cuda_ending kind, int64_t row, int off, int64_t batch)
{
    enum { SIDE = 16, BYTES = 64 * SIDE * sizeof(float) };
    mr_product_spec s = {};
    s.m = s.n = s.k = s.a_row = s.b_row = s.c_row = SIDE;
    s.a_col = s.b_col = 1;
    s.a_batch = s.b_batch = s.c_batch = SIDE * SIDE;
    s.batch = batch;
    s.in = s.out = type;
    char *at[4];
    for (char *&p : at) {
        p = (char *)emu::alloc(BYTES);
        memset(p, 0, BYTES);
        emu::host_wrote(p, BYTES);
    }
    mr_product_ending ending = {kind, kind == MR_CUDA_GELU ? NULL : at[3] + 2 * off, row};
    mr_status st = mr_cuda_product_run(&s, &ending, at[0], at[1], NULL, at[2], NULL, NULL);
    CHECK_INT(emu::reports().size(), 0);
    emu::free_all();
    return st;
}

static void refuses(void)
{
    for (mr_cuda_ending kind : {MR_CUDA_GELU_KEEP, MR_CUDA_GELU_SLOPE}) {
        CHECK_OK(ended(MR_BF16, kind, 16, 0, 1));
        CHECK_OK(ended(MR_BF16, kind, 24, 8, 1));
        CHECK_FAILS(ended(MR_BF16, kind, 20, 0, 1), MR_E_UNSUPPORTED,
                    "a product in bf16 does not end so, aux in rows of 20");
        CHECK_FAILS(ended(MR_BF16, kind, 8, 0, 1), MR_E_UNSUPPORTED, "does not end so");
        CHECK_FAILS(ended(MR_BF16, kind, 16, 4, 1), MR_E_UNSUPPORTED, "does not end so");
        CHECK_FAILS(ended(MR_F32, kind, 16, 0, 1), MR_E_UNSUPPORTED, "does not end so");
        CHECK_FAILS(ended(MR_BF16, kind, 16, 0, 2), MR_E_UNSUPPORTED, "does not end so");
    }
    CHECK_OK(ended(MR_BF16, MR_CUDA_GELU, 0, 0, 1));
    CHECK_FAILS(ended(MR_F32, MR_CUDA_GELU, 0, 0, 1), MR_E_UNSUPPORTED, "a product in f32");
}

// the stand-in takes no matrix beside a result that the library's manual rules out
static void stand_in(void)
{
    mr_cuda_product p = {};
    size_t bytes = 0;
    void *plan = NULL;
    p.m = p.n = p.k = p.lda = p.ldb = p.ldd = 16;
    p.batch = 1;
    p.in = p.out = MR_BF16;
    p.align = 16;
    p.ending = MR_CUDA_GELU_KEEP;
    for (int64_t ld : {0, 8, 20}) {
        p.ldaux = ld;
        CHECK_INT(mr_cuda.product_new(&p, &bytes, &plan), 1);
    }
    p.ldaux = 24;
    CHECK_INT(mr_cuda.product_new(&p, &bytes, &plan), 0);
    mr_cuda.product_free(plan);
    p.batch = 2;
    CHECK_INT(mr_cuda.product_new(&p, &bytes, &plan), 1);
}

int main(void)
{
    at_once();
    apart();
    refuses();
    stand_in();
    return contract_done() | check_done();
}
