/* cuda/kernels: rows around a model: random numbers, flow, patches, sums, the optimizer.
 * Covers: cuda/kernels/block_sum.cuh, cuda/kernels/patch.cuh, cuda/kernels/random_normal.cu */
#include "contract.h"

int main(void)
{
    // the bits of the CPU, in pieces of four and not
    contract_case("random_normal", "seed=[1] i64 0..99 keys=[2] i64 0..100000 epoch=[1] i32 0..5 "
                                   "purpose=7 dims={4,5,7} rtol=1e-30");
    contract_case("random_normal", "seed=[1] i64 0..99 keys=[3] i64 0..100000 epoch=[1] i32 0..5 "
                                   "dims={1031} rtol=1e-30");
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
    contract_fast("sum_squares", "x=[50000] f32", 0.01);
    contract_fast("adamw",
                  "master=[4096] f32 grad=[4096] f32 m=[4096] f32 v=[4096] f32 0..1 "
                  "ema=[4096] f32 w=[4096] bf16 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 0..9",
                  0.01);
    contract_fast("linear_db", "dy=[130,1152] bf16 acc=[1152] f32", 0.2);
    contract_case("linear_db", "dy=[3,4608] bf16 acc=[4608] f32");
    contract_fast("sum", "x=[512,64] f32 axes={0}", 0.2);
    return contract_done();
}
