/* cuda/kernels: tensors as 8-bit floats with a scale, in both orders, and products of them.
 * Covers: cuda/kernels/quantise_f8.cu, cuda/kernels/linear_f8.cu, cuda/gemm/product.cpp */
#include "contract.h"

// x is read twice, and a scale by every thread: 2 of 6 bytes per element are not declared
static void pieces(void)
{
    contract_fast("quantise_f8", "x=[256,128] bf16 -3..2 transposed=1", 0.54);
    contract_fast("quantise_f8", "x=[2,128,128] f32 -3..2 transposed=1", 0.7);
    contract_fast("quantise_f8", "x=[256,128] bf16 -3..2 dtype=f8_e5m2", 0.72);
    contract_fast("quantise_f8", "x=[256,128] f32 -3..2 dtype=f8_e5m2", 0.83);
    // tiles that end inside x, rows with gaps, several ranges
    contract_orders("quantise_f8", "x=[139,72] bf16 -3..2 transposed=1");
    contract_orders("quantise_f8", "x=[3,57,68]/rows f32 -3..2 transposed=1");
    contract_case("quantise_f8", "x=[1,72] bf16 -3..2 transposed=1");
    contract_orders("quantise_f8", "x=[400,136] f32 -9..2 dtype=f8_e5m2 transposed=1");
    contract_singles("quantise_f8", "x=[3,16,32] bf16 -3..2 transposed=1");
    contract_singles("quantise_f8", "x=[3,16,32] f32 -3..2 transposed=1");
}

// values that a launch cannot know: no element, only zeros, some NaN
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

int main(int, char **)
{
    pieces();
    values();
    products();
    return contract_done();
}
