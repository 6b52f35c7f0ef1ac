/* cuda/kernels: products with a gelu epilogue or its slope, and weight gradients that also give a
 * bias gradient: by the library alone, and by two kernels. Covers: cuda/kernels/linear.cu,
 * cuda/kernels/linear_gelu.cu, cuda/kernels/product_rows.cuh */
#include "contract.h"

// with and without a bias, with and without aux: no kernel of ours runs
static void by_the_library(void)
{
    const double nothing = -1;
    contract_fast("linear_gelu", "x=[70,64] bf16 w=[136,64] bf16 b=[136] bf16", nothing);
    contract_fast("linear_gelu", "x=[2,35,64] bf16 w=[136,64] bf16 keep=1", nothing);
    contract_fast("linear_gelu", "x=[70,64] bf16 w=[136,64] bf16 b=[136] bf16 keep=1", nothing);
    contract_fast("linear_dx_gelu", "dy=[70,48] bf16 w=[48,136] bf16 h=[70,136] bf16 -3..3",
                  nothing);
    // a kernel adds sums of columns to the accumulated gradient: 12 bytes per column, and none of
    // dy
    contract_fast("linear_dw", "dy=[70,64] bf16 x=[70,48] bf16 acc=[64,48] f32 db=[64] f32", -0.97);
    contract_fast("linear_dw", "dy=[2,35,136] bf16 x=[2,35,48] bf16 acc=[136,48] f32 db=[136] f32",
                  -0.97);
}

// cases that the library does not support
static void by_two_kernels(void)
{
    contract_case("linear_gelu", "x=[70,64] f32 w=[136,64] f32 b=[136] f32 keep=1");
    contract_case("linear_gelu", "x=[70,64] bf16 w=[136,64] bf16 b=[136] bf16");
    contract_case("linear_gelu", "x=[70,64] bf16 w=[132,64] bf16 b=[132] bf16 keep=1");
    contract_case("linear_dx_gelu", "dy=[70,48] bf16 w=[48,132] bf16 h=[70,132] bf16 -3..3");
    contract_case("linear_dx_gelu", "dy=[70,48] f32 w=[48,136] f32 h=[70,136] f32 -3..3");
    contract_case("linear_dw", "dy=[70,64] f32 x=[70,48] f32 acc=[64,48] f32 db=[64] f32");
    // partial rows need more workspace than a small product
    contract_case("linear_dw", "dy=[900,8] f32 x=[900,4] f32 acc=[8,4] f32 db=[8] f32");
    contract_case("linear_dw", "dy=[0,64] bf16 x=[0,48] bf16 acc=[64,48] f32 db=[64] f32");
}

int main(int, char **)
{
    by_the_library();
    by_two_kernels();
    return contract_done();
}
