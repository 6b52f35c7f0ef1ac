/* cuda/kernels at real sizes, compared with slow, plain kernels (plain.h) on the device: attention
 * forward, heads processed whole and in turns, convolutions and norms of an autoencoder, gradients
 * of norms of a transformer, 8-bit products, an update, offsets past 2^16 rows and 2^31 elements.
 * Without an argument, the same at sizes for the emulator; `real` is for a GPU.
 * Covers: spec/cuda/plain.cu, cuda/attention/forward_sm90a.cuh, backward_whole_sm90a.cuh,
 * backward_turns_sm90a.cuh, cuda/conv/groups_sm90a.cuh */
#include "contract.h"
#include <stdio.h>
#include <string.h>

static void forward(int B, int N, int h, int d)
{
    char text[300];
    snprintf(text, sizeof text,
             "q=[%d,1,%d,%d,%d] bf16 -2..2 k=[%d,1,%d,%d,%d] bf16 -2..2 v=[%d,1,%d,%d,%d] bf16", B,
             N, h, d, B, N, h, d, B, N, h, d);
    contract_real("attention", text);
}

static void backward(int B, int N, int h, int d)
{
    char text[600];
    snprintf(text, sizeof text,
             "q=[%d,1,%d,%d,%d] bf16 k=[%d,1,%d,%d,%d] bf16 v=[%d,1,%d,%d,%d] bf16 "
             "o=[%d,1,%d,%d,%d] bf16 lse=[%d,1,%d,%d] f32 5..7 do=[%d,1,%d,%d,%d] bf16",
             B, N, h, d, B, N, h, d, B, N, h, d, B, N, h, d, B, h, N, B, N, h, d);
    contract_real("attention_grad", text);
}

// a causal convolution of 3 x 3 x 3 over frames, and both gradients
static void frames(int T, int H, int W, int C, int O)
{
    char text[400];
    snprintf(text, sizeof text,
             "x=[1,%d,%d,%d,%d] bf16 w=[%d,%d,3,3,3] bf16 bias=[%d] bf16 "
             "pad={2,0,1,1,1,1}",
             T, H, W, C, O, C, O);
    contract_real("conv3d", text);
    snprintf(text, sizeof text,
             "dy=[1,%d,%d,%d,%d] bf16 w=[%d,%d,3,3,3] bf16 "
             "pad={2,0,1,1,1,1} dims={%d,%d,%d}",
             T, H, W, O, O, C, T, H, W);
    contract_real("conv3d_dx", text);
    // long f32 sums, which tensor cores truncate
    snprintf(text, sizeof text,
             "dy=[1,%d,%d,%d,%d] bf16 x=[1,%d,%d,%d,%d] bf16 "
             "acc=[%d,%d,3,3,3] f32 rtol=1e-4 pad={2,0,1,1,1,1}",
             T, H, W, O, T, H, W, C, O, C);
    contract_real("conv3d_dw", text);
}

// a norm over frames of C channels, and its gradient
static void norms(int T, int H, int W, int C)
{
    char text[300];
    snprintf(text, sizeof text, "x=[1,%d,%d,%d,%d] bf16 -2..3 w=[%d] bf16 b=[%d] bf16", T, H, W, C,
             C, C);
    contract_real("group_norm", text);
    snprintf(text, sizeof text,
             "x=[1,%d,%d,%d,%d] bf16 w=[%d] bf16 b=[%d] bf16 stats=[1,32,2] f32 0.5..2 "
             "dy=[1,%d,%d,%d,%d] bf16 dw=[%d] f32 db=[%d] f32",
             T, H, W, C, C, C, T, H, W, C, C, C);
    contract_real("group_norm_grad", text);
}

// T frames of S tokens, h heads of d channels
static void gradients_of_norms(int T, int S, int h, int d)
{
    char text[300];
    snprintf(text, sizeof text,
             "x=[1,%d,%d,%d] bf16 -2..3 scale=[1,%d,%d] bf16 dy=[1,%d,%d,%d] bf16", T, S, h * d, T,
             h * d, T, S, h * d);
    contract_real("layer_norm_modulate_grad", text);
    snprintf(text, sizeof text,
             "x=[1,%d,%d,%d,%d] bf16 -2..3 w=[%d] bf16 0.5..2 dy=[1,%d,%d,%d,%d] bf16 acc=[%d] f32",
             T, S, h, d, d, T, S, h, d, d);
    contract_real("qk_norm_grad", text);
}

// m tokens from k channels to n: forward, and the gradient of the weight
static void products_of_8_bits(int m, int n, int k)
{
    char text[300];
    snprintf(text, sizeof text,
             "x=[%d,%d] f8_e4m3 -4..4 x_scale=[1] f32 0.5..2 w=[%d,%d] f8_e4m3 -4..4 w_scale=[1] "
             "f32 0.5..2 b=[%d] bf16",
             m, k, n, k, n);
    contract_real("linear_f8", text);
    snprintf(text, sizeof text,
             "dy_t=[%d,%d] f8_e5m2 -4..4 dy_scale=[1] f32 0.5..2 x_t=[%d,%d] f8_e4m3 -4..4 "
             "x_scale=[1] f32 0.5..2 acc=[%d,%d] f32",
             n, m, k, m, n, k);
    contract_real("linear_dw_f8", text);
}

static void update(int n)
{
    char text[300];
    snprintf(text, sizeof text,
             "master=[%d] f32 grad=[%d] f32 m=[%d] f32 v=[%d] f32 0..1 ema=[%d] f32 w=[%d] bf16 "
             "hyper=[12] f64 0.2..0.9 sumsq=[1] f64 0.5..1.2",
             n, n, n, n, n, n);
    contract_real("adamw", text);
}

static void real(void)
{
    forward(2, 4096, 16, 72);
    forward(2, 4096, 16, 64);
    forward(2, 4096, 16, 128);
    // whole: three problems for each of 132 multiprocessors and more; the longest heads of this
    // form
    backward(25, 1024, 16, 72);
    backward(25, 1280, 16, 64);
    backward(25, 640, 16, 128);
    // in turns: more heads than slots
    backward(3, 2048, 16, 72);
    backward(2, 2048, 16, 64);
    backward(2, 2048, 24, 128);
    frames(20, 18, 32, 128, 128);
    frames(10, 18, 32, 256, 256);
    frames(5, 18, 32, 512, 512);
    norms(17, 256, 256, 128);
    norms(5, 32, 32, 512);
    gradients_of_norms(16, 4096, 16, 72);
    gradients_of_norms(1, 8192, 24, 128);
    products_of_8_bits(8192, 4608, 1152);
    products_of_8_bits(4096, 3072, 12288);
    update(150000007);
    // 65544 rows and 2^31 + 2^18 elements
    contract_real("silu", "x=[65544,32768] bf16 -4..4");
}

// the emulator has two multiprocessors: the same forms with few problems
static void reduced(void)
{
    forward(1, 130, 3, 72);
    backward(1, 130, 7, 72);
    backward(1, 130, 6, 128);
    backward(1, 130, 4, 64);
    frames(3, 4, 5, 72, 72);
    norms(3, 5, 7, 64);
    gradients_of_norms(2, 9, 2, 72);
    products_of_8_bits(48, 32, 160);
    update(9001);
    contract_real("silu", "x=[65544,9] bf16 -4..4");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "real") == 0)
        real();
    else
        reduced();
    return contract_done();
}
