/* cuda/kernels: ops around a model: random numbers, flow, patches, sums, the optimizer.
 * Covers: cuda/kernels/block_sum.cuh, cuda/kernels/patch.cuh, cuda/kernels/random_normal.cu */
#include "contract.h"

int main(int, char **)
{
    // the bits of the CPU, for sizes that are multiples of four and others
    contract_case("random_normal", "seed=[1] i64 0..99 keys=[2] i64 0..100000 epoch=[1] i32 0..5 "
                                   "purpose=7 dims={4,5,7} rtol=1e-30");
    contract_case("random_normal", "seed=[1] i64 0..99 keys=[3] i64 0..100000 epoch=[1] i32 0..5 "
                                   "dims={1031} rtol=1e-30");
    // keys with more than 32 bits
    contract_case("random_normal", "seed=[1] i64 0..99 keys=[3] i64 1e12..4e15 epoch=[1] i32 0..5 "
                                   "dims={9} rtol=1e-30");
    contract_too_large("random_normal", "seed=[1] i64 keys=[65536] i64 epoch=[1] i32 dims={1}");
    contract_case("flow_mix", "x0=[5,2,3,2,2] f32 noise=[5,2,3,2,2] f32 t=[5] f32 500..1000 "
                              "mask=[5,3] bool");
    contract_too_large("flow_mix", "x0=[65536,65537,1,1,1] f32 noise=[65536,65537,1,1,1] f32 "
                                   "t=[65536] f32");
    contract_too_large("flow_loss", "pred=[1,1,1,16384,8200] f32 x0=[1,1,1,16384,8200] f32 "
                                    "noise=[1,1,1,16384,8200] f32 weight=[1] f32");
    contract_fast("flow_mix", "x0=[2,4,2,16,16] f32 noise=[2,4,2,16,16] f32 t=[2] f32 0..1000",
                  0.3);
    contract_fast("flow_loss",
                  "pred=[2,4,2,48,48] bf16 x0=[2,4,2,48,48] f32 noise=[2,4,2,48,48] f32 "
                  "weight=[2] f32 0.5..2",
                  0.01);
    contract_fast("flow_loss_grad",
                  "pred=[1,4,2,48,48] bf16 x0=[1,4,2,48,48] f32 noise=[1,4,2,48,48] f32 "
                  "weight=[1] f32 0.5..2 dloss=[] f32 1..1",
                  0.01);
    // a sample with weight 0 may have any values
    contract_case("flow_loss", "pred=[1,2,1,2,3] f32 nan..nan x0=[1,2,1,2,3] f32 "
                               "noise=[1,2,1,2,3] f32 weight=[1] f32 0..0");
    // every byte once; consecutive requests touch parts of a sector
    contract_passes("patchify", "x=[2,4,4,16,32] f32 pt=1 ph=2 pw=2", 1, 0, 1.5);
    contract_passes("unpatchify", "x=[2,4,128,16] f32 pt=1 ph=2 pw=2 dims={4,4,16,32}", 1, 0, 2.5);
    // one thread per element, and each reads its id
    contract_passes("embedding", "ids=[64,1] i32 0..63 table=[64,512] bf16", 1, 1, 1.01);
    // all sides of a patch differ, and tensors end inside patches
    contract_case("patchify", "x=[2,3,5,7,5] f32 pt=2 ph=3 pw=4");
    contract_case("patchify", "x=[2,3,5,7,5] f32 pt=2 ph=3 pw=4 channel_last=1");
    contract_case("unpatchify", "x=[2,3,6,72] f32 pt=2 ph=3 pw=4 dims={3,5,7,5}");
    contract_too_large("patchify", "x=[65536,65537,1,1,1] u8 pt=1 ph=1 pw=1");
    contract_fast("sum_squares", "x=[50000] f32", 0.01);
    contract_fast("adamw",
                  "master=[4096] f32 grad=[4096] f32 m=[4096] f32 v=[4096] f32 0..1 "
                  "ema=[4096] f32 w=[4096] bf16 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 0..9",
                  0.01);
    // elements after the last piece, in a separate block
    contract_case("adamw", "master=[4099] f32 grad=[4099] f32 m=[4099] f32 v=[4099] f32 0..1 "
                           "ema=[4099] f32 w=[4099] bf16 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 "
                           "0..9");
    // more ranges than a block has threads
    contract_case("sum_squares", "x=[1052673] f32");
    // groups of many rows, of long rows, and more groups than a block has threads
    contract_case("weight_sums", "w=[70000] f32 ema=[70000] f32 m=[70000] f32 v=[70000] f32 "
                                 "0..0.3 hyper=[12] f64 0.6..0.9 cols=1152 before=5");
    contract_case("weight_sums", "w=[4300000] f32 hyper=[12] f64 0.6..0.9");
    contract_fast("linear_db", "dy=[130,1152] bf16 acc=[1152] f32", 0.2);
    contract_case("linear_db", "dy=[3,4608] bf16 acc=[4608] f32");
    contract_fast("sum", "x=[512,64] f32 axes={0}", 0.2);
    contract_fast("sum", "x=[8,4096] f32 axes={1}", 0.2);
    contract_too_large("sum", "x=[65536,65537,1] f32 axes={2}");
    // layouts that do not allow 16-byte pieces, argument by argument
    contract_singles("random_normal", "seed=[1] i64 keys=[2] i64 epoch=[1] i32 dims={8}");
    contract_singles("flow_mix", "x0=[2,2,3,4,4] f32 noise=[2,2,3,4,4] f32 t=[2] f32 0..1000");
    contract_singles("flow_loss", "pred=[1,2,1,4,4] bf16 x0=[1,2,1,4,4] f32 noise=[1,2,1,4,4] f32 "
                                  "weight=[1] f32");
    contract_singles("flow_loss_grad", "pred=[1,2,1,4,4] bf16 x0=[1,2,1,4,4] f32 "
                                       "noise=[1,2,1,4,4] f32 weight=[1] f32 dloss=[] f32");
    contract_singles("adamw", "master=[40] f32 grad=[40] f32 m=[40] f32 v=[40] f32 0..1 "
                              "ema=[40] f32 w=[40] bf16 hyper=[12] f64 0.2..0.9 sumsq=[1] f64");
    contract_singles("sum_squares", "x=[40] f32");
    // ids out of range add nothing, but the run fails
    contract_fails("embedding", "ids=[4,1] i32 7..7 table=[7,5] f32", MR_E_RANGE);
    contract_fails("embedding_grad", "ids=[4,1] i32 7..7 dy=[4,5] f32 acc=[7,5] f32", MR_E_RANGE);
    return contract_done();
}
