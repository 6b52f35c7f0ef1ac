/* cuda/kernels: tensors as floats of 8 bits with a scale, in both orders, and products of them.
 * Covers: cuda/kernels/quantise_f8.cu, cuda/kernels/linear_f8.cu, cuda/gemm/product.cpp,
 * cuda/rt/driver_emu.cpp */
#include "check.h"
#include "contract.h"
#include "cuda/emu/emu.h"
#include "cuda/gemm/product.h"

// x is read twice, and a scale by every thread: of 6 bytes an element, 2 are not declared
static void pieces(void)
{
    contract_fast("quantise_f8", "x=[256,128] bf16 -3..2 transposed=1", 0.54);
    contract_fast("quantise_f8", "x=[2,128,128] f32 -3..2 transposed=1", 0.7);
    contract_fast("quantise_f8", "x=[256,128] bf16 -3..2 dtype=f8_e5m2", 0.72);
    contract_fast("quantise_f8", "x=[256,128] f32 -3..2 dtype=f8_e5m2", 0.83);
    CHECK_INT(emu::launches().count("codes_of_elements"), 0);
    // tiles that end inside of x, rows that lie apart, more ranges than one
    contract_orders("quantise_f8", "x=[139,72] bf16 -3..2 transposed=1");
    contract_orders("quantise_f8", "x=[3,57,68]/rows f32 -3..2 transposed=1");
    contract_case("quantise_f8", "x=[1,72] bf16 -3..2 transposed=1");
    contract_orders("quantise_f8", "x=[400,136] f32 -9..2 dtype=f8_e5m2 transposed=1");
    contract_singles("quantise_f8", "x=[3,16,32] bf16 -3..2 transposed=1");
    contract_singles("quantise_f8", "x=[3,16,32] f32 -3..2 transposed=1");
}

// what a launch may not know: no element, none that counts, some that are no numbers
static void values(void)
{
    contract_case("quantise_f8", "x=[0,64] bf16 transposed=1");
    contract_case("quantise_f8", "x=[16,0] bf16 transposed=1");
    contract_case("quantise_f8", "x=[20,64] bf16 0..0 transposed=1");
    contract_case("quantise_f8", "x=[20,64] f32 1e-38..1e-38 transposed=1");
    contract_case("quantise_f8", "x=[20,64] bf16 nan..nan transposed=1");
    contract_case("quantise_f8", "x=[20,64] f32 inf..inf transposed=1");
    contract_case("quantise_f8", "x=[20,64] f32 -3e38..3e38 transposed=1");
    // half a step of a mantissa
    contract_case("cast", "x=[90] f32 -440..440 dtype=f8_e4m3 rtol=0.0625");
    contract_case("cast", "x=[90] bf16 -5e4..5e4 dtype=f8_e5m2 rtol=0.125");
    contract_case("cast", "x=[9] f32 nan..nan dtype=f8_e4m3");
    contract_case("cast", "x=[9,3]/any f8_e4m3 -600..600 dtype=f32");
    contract_case("cast", "x=[9] f8_e5m2 -600..600 dtype=bf16");
    contract_too_large("quantise_f8", "x=[65536,65537] bf16");
}

static void products(void)
{
    contract_fast("linear_f8",
                  "x=[70,64] f8_e4m3 x_scale=[1] f32 1..2 w=[144,64] f8_e4m3 w_scale=[1] f32 1..2 "
                  "b=[144] bf16",
                  0);
    contract_fast("linear_dw_f8",
                  "dy_t=[48,64] f8_e5m2 dy_scale=[1] f32 1..2 x_t=[80,64] f8_e4m3 "
                  "x_scale=[1] f32 1..2 acc=[48,80] f32",
                  0);
}

// C [16, 16] of 8 bits, with one thing that the library does not take
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
    mr_status st = mr_cuda_product_f8_run(&p, NULL, at[4], NULL, NULL);
    CHECK_INT(emu::reports().size(), 0);
    emu::free_all();
    return st;
}

static void refuses(void)
{
    CHECK_OK(product(NONE));
    for (odd what : {LENGTH, COLUMNS, ADDRESS, FORMATS})
        CHECK_FAILS(product(what), MR_E_UNSUPPORTED, "multiples of 16; try: operands");
}

// the stand-in takes what the library's manual says of 8 bits, and no more
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

int main(void)
{
    pieces();
    values();
    products();
    refuses();
    stand_in();
    return contract_done() | check_done();
}
