/* cuda/kernels: elementwise ops over full blocks, partial blocks, and elements after the last
 * piece; copies by every unit. Covers: cuda/kernels/elementwise.cuh, cuda/kernels/copy.cuh */
#include "contract.h"

int main(int, char **)
{
    contract_fast("silu", "x=[2,2560] bf16 -4..4", 0);
    contract_fast("silu", "x=[4099] f32 -4..4", 0);
    contract_fast("silu_grad", "x=[3,1152] bf16 -4..4 dy=[3,1152] bf16", 0);
    contract_fast("gelu_tanh", "x=[2,2304] bf16 -4..4", 0);
    contract_fast("gelu_tanh_grad", "x=[3,1152] bf16 -4..4 dy=[3,1152] bf16", 0);
    contract_fast("add", "a=[4,1160] bf16 b=[4,1160] bf16", 0);
    contract_fast("accumulate", "acc=[1152] f32 x=[1152] bf16", 0);
    contract_fast("cast", "x=[9,520] f32 dtype=bf16", 0);
    contract_fast("cast", "x=[9,520] bf16 dtype=f32", 0);
    contract_fast("normalise_u8", "x=[2,3,16,136] u8 0..255 dtype=bf16", 0);
    contract_fast("normalise_u8", "x=[3,1027] u8 0..255 dtype=f32", 0);
    contract_fast("where", "mask=[5,512] bool a=[5,512] bf16 b=[5,512] bf16", 0);
    contract_fast("where", "mask=[5,512] bool a=[5,512] f32 b=[5,512] f32", 0);
    // dense rows with gaps between them are processed in pieces, other layouts element by element
    contract_case("mul", "a=[3,2,64]/rows bf16 b=[3,2,64] bf16");
    contract_case("cast", "x=[6] f32 -1e12..1e12 dtype=i32");
    contract_case("cast", "x=[9] f32 -300..300 dtype=u8");
    contract_case("cast", "x=[9] i64 -5000000000..5000000000 dtype=i32");
    contract_case("cast", "x=[9] u8 0..255 dtype=bf16");
    // layouts that do not allow 16-byte pieces, argument by argument
    contract_singles("copy", "x=[3,4,16] bf16");
    contract_singles("add", "a=[3,4,16] bf16 b=[3,4,16] bf16");
    contract_singles("cast", "x=[3,4,16] bf16 dtype=f32");
    contract_singles("where", "mask=[3,4,16] bool a=[3,4,16] f32 b=[3,4,16] f32");
    contract_singles("zeros", "dims={3,5} dtype=f32");
    // at the ends of ranges, and NaN
    contract_case("cast", "x=[3] f32 nan..nan dtype=i32");
    contract_case("cast", "x=[3] f32 2147483648..2147483648 dtype=i32");
    contract_case("cast", "x=[9] f64 -2..2 dtype=bool");
    contract_case("cast", "x=[9] i32 -2..2 dtype=bool");
    contract_case("clamp", "x=[5] f32 nan..nan low=-1 high=1");
    contract_case("clamp_grad", "x=[5] f32 1..1 dy=[5] f32 low=1 high=2");
    contract_case("clamp_grad", "x=[5] f32 2..2 dy=[5] f32 low=1 high=2");
    // dimensions that join only in the output
    contract_case("copy", "x=[4,2] f32");
    contract_too_large("copy", "x=[65536,65537] u8");
    contract_too_large("cast", "x=[65536,65537] f32 dtype=i32");
    contract_too_large("silu", "x=[65536,65537] bf16");
    contract_too_large("rotary", "x=[65536,65537,1,1,2] bf16 cos=[1,1] f32 sin=[1,1] f32");
    contract_fast("copy", "x=[7,600] bf16", 0);
    contract_case("copy", "x=[3,4,6]/rows bf16");
    contract_case("copy", "x=[5,7,2]/rows f32");
    contract_case("copy", "x=[5,3]/rows u8");
    contract_fast("concat", "x0=[2,3,64] bf16 x1=[2,5,64] bf16 axis=1", 0);
    contract_fast("zeros", "dims={3,1025} dtype=f32", 0);
    return contract_done();
}
