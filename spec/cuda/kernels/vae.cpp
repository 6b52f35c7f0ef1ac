/* cuda/kernels: ops of video autoencoders: convolutions over several tiles of positions and
 * channels, with groups, strides and zeros on one side, and gradients over several ranges; group
 * norms. --launches as in contract.cpp. Covers: cuda/kernels/conv3d.cu, cuda/conv/groups_sm90a.cuh,
 * conv_sm90a.cu, geometry.cuh, tiles.cuh, plain.cuh, depthwise.cuh, cuda/kernels/group_norm.cu */
#include "contract.h"
#include "device.h"
#include <string.h>

int main(int argc, char **argv)
{
    // more channels than a piece of 64 on both sides, more positions than a tile, a causal axis
    contract_case("conv3d", "x=[1,2,9,8,72] bf16 w=[136,72,2,1,3] bf16 bias=[136] bf16 "
                            "pad={1,0,0,0,1,1}");
    contract_case("conv3d_dx", "dy=[1,2,9,8,136] bf16 w=[136,72,2,1,3] bf16 pad={1,0,0,0,1,1} "
                               "dims={2,9,8}");
    contract_case("conv3d_dw", "dy=[1,2,9,8,136] bf16 x=[1,2,9,8,72] bf16 acc=[136,72,2,1,3] f32 "
                               "pad={1,0,0,0,1,1}");
    // warp groups on sm_90a: strides and groups, one position with many channels
    contract_case("conv3d", "x=[1,2,5,7,144] bf16 w=[144,72,1,3,2] bf16 bias=[144] bf16 groups=2 "
                            "stride={1,2,2} pad={0,0,0,1,0,1}");
    contract_case("conv3d_dx", "dy=[1,2,2,4,144] bf16 w=[144,72,1,3,2] bf16 groups=2 "
                               "stride={1,2,2} pad={0,0,0,1,0,1} dims={2,5,7}");
    contract_case("conv3d", "x=[1,1,10,13,200] bf16 w=[72,200,1,1,1] bf16 bias=[72] bf16");
    contract_orders("conv3d", "x=[1,1,9,16,64] bf16 w=[136,64,1,1,3] bf16 pad={0,0,0,0,2,0}");
    // strides of dx: positions with different remainders meet different taps, and no product is
    // with zeros
    contract_lean("conv3d_dx",
                  "dy=[1,2,8,8,64] bf16 w=[64,64,2,2,4] bf16 stride={2,2,2} "
                  "pad={0,0,0,0,1,1} dims={4,16,16}",
                  1.15);
    contract_lean("conv3d_dx",
                  "dy=[1,1,16,16,128] bf16 w=[128,128,1,2,2] bf16 stride={1,2,2} "
                  "dims={1,32,32}",
                  1);
    // a stride larger than the kernel: some positions meet no tap
    contract_case("conv3d_dx", "dy=[1,3,3,3,16] bf16 w=[16,8,1,2,1] bf16 stride={2,3,2} "
                               "pad={0,0,1,0,0,0} dims={5,7,6}");
    contract_case("conv3d_dx", "dy=[2,1,3,3,72] bf16 w=[72,72,1,1,2] bf16 stride={1,2,3} "
                               "dims={1,6,9}");
    // one position more than a tile of one remainder, for both forms
    contract_case("conv3d_dx", "dy=[1,1,1,65,8] bf16 w=[8,8,1,1,1] bf16 stride={1,1,2} "
                               "dims={1,1,129}");
    contract_case("conv3d_dx", "dy=[1,1,1,129,8] bf16 w=[8,72,1,1,1] bf16 stride={1,1,2} "
                               "dims={1,1,257}");
    // groups, and a stride that skips positions of x
    contract_case("conv3d", "x=[2,3,7,9,32] bf16 w=[16,16,3,3,3] bf16 groups=2 stride={1,2,2} "
                            "pad={2,0,0,1,0,1}");
    contract_case("conv3d_dx", "dy=[2,3,3,4,16] bf16 w=[16,16,3,3,3] bf16 groups=2 "
                               "stride={1,2,2} pad={2,0,0,1,0,1} dims={3,7,9}");
    contract_case("conv3d_dw", "dy=[3,3,3,4,16] bf16 x=[3,3,7,9,32] bf16 acc=[16,16,3,3,3] f32 "
                               "groups=2 stride={1,2,2} pad={2,0,0,1,0,1}");
    // depthwise: full runs of positions and a rest, zeros on one side, strides
    contract_case("conv3d", "x=[2,3,4,9,24] bf16 w=[24,1,3,2,5] bf16 bias=[24] bf16 groups=24 "
                            "pad={2,1,0,1,2,2}");
    contract_case("conv3d", "x=[1,5,4,7,12] f32 w=[12,1,2,3,3] f32 groups=12 stride={2,1,2} "
                            "pad={0,1,1,1,1,0}");
    contract_case("conv3d_dx", "dy=[2,3,5,8,24] bf16 w=[24,1,4,3,2] bf16 groups=24 "
                               "pad={1,1,0,1,2,0} dims={4,6,7}");
    contract_case("conv3d_dx", "dy=[1,2,3,4,8] bf16 w=[8,1,3,3,3] bf16 groups=8 stride={2,1,2} "
                               "pad={1,0,1,1,1,0} dims={4,3,8}");
    // two ranges of positions
    contract_case("conv3d_dw", "dy=[1,1,66,65,8] bf16 x=[1,1,66,65,8] bf16 acc=[8,8,1,1,1] f32");
    contract_case("conv3d_dw",
                  "dy=[1,1,66,65,72] bf16 x=[1,1,66,65,72] bf16 acc=[72,72,1,1,1] f32");
    // warp groups, with groups and strides
    contract_case("conv3d_dw", "dy=[1,2,2,4,144] bf16 x=[1,2,5,7,144] bf16 acc=[144,72,1,3,2] f32 "
                               "groups=2 stride={1,2,2} pad={0,0,0,1,0,1}");
    contract_orders("conv3d_dw", "dy=[1,1,9,16,136] bf16 x=[1,1,9,16,72] bf16 "
                                 "acc=[136,72,1,1,3] f32 pad={0,0,0,0,2,0}");
    // channels that do not divide into 16-byte pieces, on either side and on both: padded, for both
    // forms
    contract_case("conv3d", "x=[1,1,5,6,16] bf16 w=[3,16,1,3,3] bf16 bias=[3] bf16 "
                            "pad={0,0,1,1,1,1}");
    contract_orders("conv3d", "x=[1,3,7,9,3] bf16 w=[72,3,3,3,3] bf16 bias=[72] bf16 "
                              "pad={2,0,1,1,1,1}");
    contract_case("conv3d", "x=[2,1,9,8,13] bf16 w=[71,13,1,3,3] bf16 bias=[71] bf16 "
                            "pad={0,0,1,1,1,1} stride={1,2,1}");
    contract_case("conv3d_dx", "dy=[1,3,7,9,72] bf16 w=[72,3,3,3,3] bf16 pad={2,0,1,1,1,1} "
                               "dims={3,7,9}");
    contract_case("conv3d_dx", "dy=[1,1,5,8,3] bf16 w=[3,72,1,3,2] bf16 stride={1,2,1} "
                               "pad={0,0,1,1,1,0} dims={1,9,8}");
    contract_case("conv3d_dw", "dy=[1,3,7,9,72] bf16 x=[1,3,7,9,3] bf16 acc=[72,3,3,3,3] f32 "
                               "pad={2,0,1,1,1,1}");
    contract_case("conv3d_dw", "dy=[1,1,5,8,3] bf16 x=[1,1,9,8,13] bf16 acc=[3,13,1,3,2] f32 "
                               "stride={1,2,1} pad={0,0,1,1,1,0}");
    contract_lean("conv3d",
                  "x=[1,4,4,8,8] bf16 w=[128,8,2,2,2] bf16 bias=[128] bf16 "
                  "pad={1,0,1,0,1,0}",
                  1);
    contract_lean("conv3d",
                  "x=[1,1,8,8,64] bf16 w=[16,64,1,3,3] bf16 bias=[16] bf16 "
                  "pad={0,0,1,1,1,1}",
                  1);
    contract_lean("conv3d_dw",
                  "dy=[1,1,8,8,128] bf16 x=[1,1,8,8,16] bf16 acc=[128,16,1,2,4] f32 "
                  "pad={0,0,1,0,2,1}",
                  1);
    // several groups with such channels use the plain kernels
    contract_case("conv3d", "x=[1,1,5,6,6] bf16 w=[4,3,1,3,3] bf16 bias=[4] bf16 groups=2 "
                            "pad={0,0,1,1,1,1} stride={1,2,2}");
    contract_case("conv3d_dx", "dy=[1,1,3,3,4] bf16 w=[4,3,1,3,3] bf16 groups=2 "
                               "pad={0,0,1,1,1,1} stride={1,2,2} dims={1,5,6}");
    contract_case("conv3d_dw", "dy=[1,1,3,3,4] bf16 x=[1,1,5,6,6] bf16 acc=[4,3,1,3,3] f32 "
                               "groups=2 pad={0,0,1,1,1,1} stride={1,2,2}");
    // edges: by warp groups and by mma.sync, with positions that do not exist, with strides
    contract_orders("conv3d", "x=[1,3,5,7,72] bf16 w=[136,72,3,3,3] bf16 bias=[136] bf16 "
                              "pad={2,0,1,1,1,1} edge=1");
    contract_case("conv3d", "x=[2,2,5,6,3] bf16 w=[72,3,3,3,3] bf16 bias=[72] bf16 "
                            "stride={2,2,1} pad={2,1,1,0,3,2} edge=1");
    contract_case("conv3d", "x=[1,2,3,9,16] bf16 w=[3,16,3,3,3] bf16 pad={2,0,1,1,1,1} edge=1");
    contract_case("conv3d_dx", "dy=[1,3,5,7,136] bf16 w=[136,72,3,3,3] bf16 pad={2,0,1,1,1,1} "
                               "edge=1 dims={3,5,7}");
    contract_orders("conv3d_dw", "dy=[1,3,5,7,136] bf16 x=[1,3,5,7,72] bf16 acc=[136,72,3,3,3] f32 "
                                 "pad={2,0,1,1,1,1} edge=1");
    contract_case("conv3d_dw", "dy=[2,2,2,9,72] bf16 x=[2,2,5,6,3] bf16 acc=[72,3,3,3,3] f32 "
                               "stride={2,2,1} pad={2,1,1,0,3,2} edge=1");
    // no positions to pad
    contract_case("conv3d", "x=[1,0,2,2,3] bf16 w=[8,3,1,1,1] bf16 pad={1,0,0,0,0,0}");
    contract_case("conv3d_dw", "dy=[1,1,2,2,8] bf16 x=[1,0,2,2,3] bf16 acc=[8,3,1,1,1] f32 "
                               "pad={1,0,0,0,0,0}");
    // several pieces of positions
    contract_case("group_norm", "x=[1,512,128] bf16 -1..3 w=[128] bf16 b=[128] bf16 groups=32 "
                                "silu=1");
    contract_case("group_norm_grad",
                  "x=[1,512,128] bf16 w=[128] bf16 b=[128] bf16 stats=[1,32,2] f32 0.5..2 "
                  "dy=[1,512,128] bf16 dw=[128] f32 db=[128] f32 groups=32 silu=1");
    contract_passes("group_norm", "x=[2,1024,128] bf16 w=[128] bf16 b=[128] bf16 groups=32 silu=1",
                    1.5, 0.08, 1.04);
    contract_passes("group_moments", "x=[2,1024,128] bf16 before=[2,32,3] f32 1..3 groups=32", 1.0,
                    0.12, 1.06);
    contract_passes("group_norm_by",
                    "x=[2,1024,128] bf16 w=[128] bf16 b=[128] bf16 moments=[2,32,3] f32 1..3 "
                    "groups=32 silu=1",
                    1.0, 0.12, 1.06);
    contract_passes("group_norm_grad",
                    "x=[2,1024,128] bf16 w=[128] bf16 b=[128] bf16 stats=[2,32,2] f32 0.5..2 "
                    "dy=[2,1024,128] bf16 dw=[128] f32 db=[128] f32 groups=32 silu=1",
                    5 / 3.0, 0.11, 1.04);
    // layouts that do not allow 16-byte pieces, argument by argument
    contract_singles("group_norm", "x=[2,3,64] bf16 w=[64] bf16 b=[64] bf16 groups=4");
    contract_singles("group_norm_grad",
                     "x=[2,3,64] bf16 w=[64] bf16 b=[64] bf16 stats=[2,4,2] f32 0.5..2 "
                     "dy=[2,3,64] bf16 dw=[64] f32 db=[64] f32 groups=4");
    contract_singles("conv3d", "x=[1,1,2,3,16] bf16 w=[16,16,1,1,2] bf16 bias=[16] bf16");
    contract_singles("conv3d_dx", "dy=[1,1,2,2,16] bf16 w=[16,16,1,1,2] bf16 dims={1,2,3}");
    contract_singles("conv3d_dw", "dy=[1,1,2,2,16] bf16 x=[1,1,2,3,16] bf16 acc=[16,16,1,1,2] f32");
    // a mean that is large compared with the deviation
    contract_case("group_norm", "x=[1,700,32] f32 1000..1001 w=[32] f32 b=[32] f32 groups=4 "
                                "rtol=2e-4");
    contract_case("group_moments", "x=[1,700,32] f32 1000..1001 before=[1,4,3] f32 1000..1001 "
                                   "groups=4 rtol=2e-4");
    // without channels or positions
    contract_case("conv3d", "x=[1,1,2,2,0] bf16 w=[8,0,1,1,1] bf16 bias=[8] bf16");
    contract_case("conv3d", "x=[1,0,2,2,8] bf16 w=[8,8,1,1,1] bf16 pad={1,0,0,0,0,0}");
    contract_case("conv3d_dx", "dy=[1,1,2,2,0] bf16 w=[0,8,1,1,1] bf16 dims={1,2,2}");
    contract_case("conv3d_dw", "dy=[1,1,2,2,8] bf16 x=[1,0,2,2,8] bf16 acc=[8,8,1,1,1] f32 "
                               "pad={1,0,0,0,0,0}");
    contract_too_large("group_norm", "x=[65536,1,8] f32 w=[8] f32 b=[8] f32 groups=1");
    contract_too_large("conv3d", "x=[1,1,46341,46341,1] f32 w=[1,1,1,1,1] f32");
    contract_refuses("group_norm", "x=[1,1,6020] f32 w=[6020] f32 b=[6020] f32 groups=1");
    if (argc > 1 && strcmp(argv[1], "--launches") == 0)
        device_print_launches();
    return contract_done();
}
