/* cuda/kernels: rows that a group of threads keeps in registers, in each form: part of a warp, a
 * warp, a block, and element by element. Covers: cuda/kernels/rows.cuh, cuda/kernels/modulation.cuh
 */
#include "contract.h"

int main(int, char **)
{
    // the width of STDiT3-XL/2, a full block and remaining rows
    contract_fast("layer_norm_modulate",
                  "x=[1,2,37,1152] bf16 shift=[1,2,1152] bf16 scale=[1,2,1152] bf16", 0.3);
    contract_fast("layer_norm_modulate",
                  "x=[1,1,32,1152] f32 shift=[1,1,1152] f32 scale=[1,1,1152] f32", 0.3);
    contract_fast("layer_norm_modulate",
                  "x=[1,1,35,72] bf16 3..5 shift=[1,1,72] bf16 scale=[1,1,72] bf16", 0.8);
    contract_fast("layer_norm_modulate",
                  "x=[1,1,30,2304] bf16 shift=[1,1,2304] bf16 scale=[1,1,2304] bf16", 0.3);
    contract_case("layer_norm_modulate",
                  "x=[1,1,2,4104] bf16 shift=[1,1,4104] bf16 scale=[1,1,4104] bf16");
    contract_fast("layer_norm_modulate_grad",
                  "x=[1,1,70,1152] bf16 scale=[1,1,1152] bf16 dy=[1,1,70,1152] bf16", 0.3);
    contract_fast("layer_norm_modulate_grad",
                  "x=[1,1,66,72] bf16 scale=[1,1,72] bf16 dy=[1,1,66,72] bf16", 0.3);
    contract_fast("layer_norm_modulate_grad",
                  "x=[1,1,66,2304] bf16 scale=[1,1,2304] bf16 dy=[1,1,66,2304] bf16", 0.3);
    contract_fast("gated_residual",
                  "x=[1,2,37,1152] bf16 gate=[1,2,1152] bf16 a=[1,2,37,1152] bf16", 0.3);
    contract_fast("gated_residual_grad",
                  "gate=[1,1,1152] bf16 a=[1,1,70,1152] bf16 dy=[1,1,70,1152] bf16", 0.3);
    contract_fast("gated_residual_grad",
                  "gate=[1,1,2304] f32 a=[1,1,66,2304] f32 dy=[1,1,66,2304] f32", 0.3);
    contract_fast("layer_norm", "x=[40,1152] bf16 w=[1152] bf16 b=[1152] bf16", 0.3);
    contract_fast("layer_norm_grad", "x=[40,1152] bf16 w=[1152] bf16 dy=[40,1152] bf16", 0.2);
    contract_fast("layer_norm_dw", "x=[70,1152] bf16 dy=[70,1152] bf16 acc=[1152] f32", 0.3);
    // more partial rows than groups that add them
    contract_case("layer_norm_dw", "x=[600,8] bf16 dy=[600,8] bf16 acc=[8] f32");
    // one piece more than fits in part of a warp, and than fits in a warp
    contract_case("layer_norm", "x=[3,136] bf16 w=[136] bf16 b=[136] bf16");
    contract_case("layer_norm", "x=[3,1288] bf16 w=[1288] bf16 b=[1288] bf16");
    // heads of 72 columns use 9 of 16 lanes; the heads of a position share their angles
    contract_fast("qk_norm", "x=[1,1,10,16,72] bf16 w=[72] bf16 cos=[10,36] f32 sin=[10,36] f32",
                  0.9);
    contract_fast("qk_norm_grad",
                  "x=[1,1,10,16,72] bf16 w=[72] bf16 cos=[10,36] f32 sin=[10,36] f32 "
                  "dy=[1,1,10,16,72] bf16 acc=[72] f32",
                  0.9);
    contract_fast("rms_norm", "x=[70,2304] bf16 w=[2304] bf16", 0.1);
    contract_fast("rms_norm_grad", "x=[70,1152] f32 w=[1152] f32 dy=[70,1152] f32 acc=[1152] f32",
                  0.2);
    contract_fast("rotary", "x=[2,2,5,8,64] bf16 cos=[5,32] f32 sin=[5,32] f32", 2.1);
    // layouts that do not allow 16-byte pieces, argument by argument
    contract_singles("layer_norm", "x=[2,3,64] bf16 w=[64] bf16 b=[64] bf16");
    contract_singles("layer_norm", "x=[2,3,64] bf16");
    contract_singles("layer_norm_grad", "x=[2,3,64] bf16 w=[64] bf16 dy=[2,3,64] bf16");
    contract_singles("layer_norm_grad", "x=[2,3,64] bf16 dy=[2,3,64] bf16");
    contract_singles("layer_norm_dw", "x=[2,3,64] bf16 dy=[2,3,64] bf16 acc=[64] f32");
    contract_singles("layer_norm_modulate",
                     "x=[2,2,3,64] bf16 shift=[2,2,64] bf16 scale=[2,2,64] bf16");
    contract_singles("layer_norm_modulate_grad",
                     "x=[2,2,3,64] bf16 scale=[2,2,64] bf16 dy=[2,2,3,64] bf16");
    contract_singles("gated_residual", "x=[2,2,3,64] bf16 gate=[2,2,64] bf16 a=[2,2,3,64] bf16");
    contract_singles("gated_residual_grad",
                     "gate=[2,2,64] bf16 a=[2,2,3,64] bf16 dy=[2,2,3,64] bf16");
    contract_singles("qk_norm", "x=[2,2,3,2,64] bf16 w=[64] bf16 cos=[3,32] f32 sin=[3,32] f32");
    contract_singles("qk_norm_grad", "x=[2,2,3,2,64] bf16 w=[64] bf16 cos=[3,32] f32 sin=[3,32] "
                                     "f32 dy=[2,2,3,2,64] bf16 acc=[64] f32");
    contract_singles("rotary", "x=[2,2,3,2,64] bf16 cos=[3,32] f32 sin=[3,32] f32");
    // frames without rows: their sums are 0
    contract_case("layer_norm_modulate_grad",
                  "x=[1,2,0,8] bf16 scale=[1,2,8] bf16 dy=[1,2,0,8] bf16");
    contract_case("gated_residual_grad", "gate=[1,2,8] bf16 a=[1,2,0,8] bf16 dy=[1,2,0,8] bf16");
    // more frames than a grid allows, sums of more columns than shared memory has
    contract_refuses("layer_norm_modulate",
                     "x=[300,300,1,1] f32 shift=[300,300,1] f32 scale=[300,300,1] f32");
    contract_too_large("gated_residual", "x=[300,300,1,1] f32 gate=[300,300,1] f32 "
                                         "a=[300,300,1,1] f32");
    contract_too_large("layer_norm", "x=[65536,65537,1] f32");
    contract_refuses("rms_norm_grad",
                     "x=[1,12297] f32 w=[12297] f32 dy=[1,12297] f32 acc=[12297] f32");
    contract_refuses("layer_norm_modulate_grad",
                     "x=[1,1,1,6151] f32 scale=[1,1,6151] f32 dy=[1,1,1,6151] f32");
    contract_refuses("layer_norm_dw", "x=[1,12297] f32 dy=[1,12297] f32 acc=[12297] f32");
    return contract_done();
}
