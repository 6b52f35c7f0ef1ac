/* cuda/kernels/attention: every number of columns, one and several tiles of queries and keys, key
 * lengths inside, at the border of and before a tile, strides of a joint q, k, v. --launches as in
 * contract.cpp.
 * Covers: cuda/kernels/attention.cu, cuda/attention/tile.cuh, forward.cuh, backward.cuh, short.cuh,
 * plain.cuh, groups.h, group_tile.cuh, forward_sm90a.cuh, backward_sm90a.cuh,
 * backward_turns_sm90a.cuh, backward_whole_sm90a.cuh, forward_wide_sm90a.cuh, attention_sm90a.cu */
#include "contract.h"
#include "device.h"
#include <stdio.h>
#include <string.h>

static void forward(int B, int N, int M, int h, int d, int from, int to)
{
    char text[400];
    snprintf(text, sizeof text,
             "q=[%d,1,%d,%d,%d] bf16 -2..2 k=[%d,1,%d,%d,%d] bf16 -2..2 v=[%d,1,%d,%d,%d] bf16 "
             "len=[%d] i32 %d..%d",
             B, N, h, d, B, M, h, d, B, M, h, d, B, from, to);
    contract_case("attention", text);
}

static void backward(int B, int N, int M, int h, int d, int from, int to)
{
    char text[600];
    snprintf(text, sizeof text,
             "q=[%d,1,%d,%d,%d] bf16 k=[%d,1,%d,%d,%d] bf16 v=[%d,1,%d,%d,%d] bf16 len=[%d] i32 "
             "%d..%d o=[%d,1,%d,%d,%d] bf16 lse=[%d,1,%d,%d] f32 4..5 do=[%d,1,%d,%d,%d] bf16",
             B, N, h, d, B, M, h, d, B, M, h, d, B, from, to, B, N, h, d, B, h, N, B, N, h, d);
    contract_case("attention_grad", text);
}

// a NaN score gives a NaN result and a NaN log-sum, which ring attention then merges
static void no_numbers(int N, int d, const char *type)
{
    char text[400];
    snprintf(text, sizeof text, "q=[1,1,%d,1,%d] %s nan..nan k=[1,1,%d,1,%d] %s v=[1,1,%d,1,%d] %s",
             N, d, type, N, d, type, N, d, type);
    contract_case("attention", text);
    snprintf(text, sizeof text,
             "q=[1,1,%d,1,%d] %s k=[1,1,%d,1,%d] %s nan..nan v=[1,1,%d,1,%d] %s len=[1] i32 0..0",
             N, d, type, N, d, type, N, d, type);
    contract_case("attention", text);
}

/* Both directions of a sequence of `text` keys, of which `from` to `to` exist, followed by an
 * image. The first `before` keys are missing. `most` as in contract_sm90a. */
static void joint(int B, int N, int M, int h, int d, int from, int to, int text, int before,
                  double most)
{
    char common[400], line[800];
    snprintf(common, sizeof common,
             "q=[%d,1,%d,%d,%d] bf16 k=[%d,1,%d,%d,%d] bf16 v=[%d,1,%d,%d,%d] bf16 len=[%d] i32 "
             "%d..%d text=%d before=%d",
             B, N, h, d, B, M, h, d, B, M, h, d, B, from, to, text, before);
    contract_sm90a("attention", common, most);
    snprintf(line, sizeof line,
             "%s o=[%d,1,%d,%d,%d] bf16 lse=[%d,1,%d,%d] f32 5..6 do=[%d,1,%d,%d,%d] bf16", common,
             B, N, h, d, B, h, N, B, N, h, d);
    contract_sm90a("attention_grad", line, most);
}

int main(int argc, char **argv)
{
    no_numbers(5, 16, "f32");
    no_numbers(5, 16, "bf16");
    no_numbers(70, 64, "bf16");
    forward(3, 17, 130, 1, 64, 0, 130);
    forward(1, 17, 190, 1, 64, 190, 190);
    forward(1, 65, 64, 1, 72, 64, 64);
    forward(1, 5, 70, 1, 88, 65, 65);
    forward(1, 66, 70, 1, 256, 33, 33);
    forward(2, 3, 65, 1, 8, 0, 1);
    backward(3, 17, 130, 1, 64, 0, 130);
    backward(1, 65, 64, 1, 72, 64, 64);
    backward(1, 34, 70, 1, 256, 33, 65);
    backward(2, 3, 65, 1, 8, 0, 1);
    // one warp per sequence: fewer sequences than warps in the last block, full and partial tiles
    forward(3, 16, 16, 2, 72, 0, 16);
    forward(1, 1, 9, 3, 128, 9, 9);
    backward(3, 16, 16, 2, 72, 0, 16);
    backward(1, 7, 1, 3, 128, 1, 1);
    backward(1, 16, 9, 1, 256, 9, 9);
    contract_case("attention", "q=[1,3,15,2,72] bf16 k=[1,3,15,2,72] bf16 v=[1,3,15,2,72] bf16 "
                               "bias=[2,15,15] f32 -2..2 frame=4");
    contract_case("attention_grad",
                  "q=[1,3,15,1,64] bf16 k=[1,3,15,1,64] bf16 v=[1,3,15,1,64] bf16 o=[1,3,15,1,64] "
                  "bf16 lse=[1,3,1,15] f32 2..3 do=[1,3,15,1,64] bf16 dlse=[1,3,1,15] f32 frame=1");
    // biases with different numbers of keys and queries, in tiles and with one warp per sequence
    contract_case("attention", "q=[1,1,40,2,72] bf16 k=[1,1,70,2,72] bf16 v=[1,1,70,2,72] bf16 "
                               "bias=[2,40,70] f32 -2..2");
    contract_case("attention", "q=[1,1,5,2,64] bf16 k=[1,1,13,2,64] bf16 v=[1,1,13,2,64] bf16 "
                               "bias=[2,5,13] bf16 -2..2");
    contract_case("attention_grad",
                  "q=[1,1,40,2,64] bf16 k=[1,1,70,2,64] bf16 v=[1,1,70,2,64] bf16 o=[1,1,40,2,64] "
                  "bf16 lse=[1,1,2,40] f32 4..5 do=[1,1,40,2,64] bf16 bias=[2,40,70] bf16 -2..2 "
                  "acc=[2,40,70] f32");
    contract_case("attention_grad",
                  "q=[1,1,13,2,64] bf16 k=[1,1,5,2,64] bf16 v=[1,1,5,2,64] bf16 o=[1,1,13,2,64] "
                  "bf16 lse=[1,1,2,13] f32 2..3 do=[1,1,13,2,64] bf16 bias=[2,13,5] f32 -2..2");
    // biases, frames that end inside a tile, text before an image, values wider than keys
    contract_case("attention", "q=[1,2,70,2,64] bf16 k=[1,2,70,2,64] bf16 v=[1,2,70,2,64] bf16 "
                               "bias=[2,70,70] f32 -2..2 frame=9");
    contract_case("attention", "q=[2,1,5,1,72] bf16 k=[2,1,100,1,72] bf16 v=[2,1,100,1,128] bf16 "
                               "len=[2] i32 0..70 text=70");
    contract_case("attention_grad",
                  "q=[1,2,70,1,64] bf16 k=[1,2,70,1,64] bf16 v=[1,2,70,1,64] bf16 o=[1,2,70,1,64] "
                  "bf16 lse=[1,2,1,70] f32 4..5 do=[1,2,70,1,64] bf16 dlse=[1,2,1,70] f32 "
                  "bias=[1,70,70] bf16 -2..2 frame=1");
    contract_case(
        "attention_grad",
        "q=[2,1,5,1,72] bf16 k=[2,1,100,1,72] bf16 v=[2,1,100,1,128] bf16 len=[2] i32 "
        "0..70 o=[2,1,5,1,128] bf16 lse=[2,1,1,5] f32 4..5 do=[2,1,5,1,128] bf16 text=70");
    // one tile of queries: q, k, v are read once and o is written once
    contract_fast("attention",
                  "q=[1,2,64,2,64] bf16 k=[1,2,128,2,64] bf16 v=[1,2,128,2,64] bf16 scale=0.2",
                  0.05);
    // warp groups on sm_90a: one and several tiles of queries and keys, lengths of 0, inside a tile
    // and at its end, each number of columns, strides of samples and groups that do not join
    contract_case("attention", "q=[1,1,128,1,64] bf16 k=[1,1,128,1,64] bf16 v=[1,1,128,1,64] bf16");
    contract_orders("attention", "q=[3,1,70,1,72] bf16 k=[3,1,300,1,72] bf16 -2..2 "
                                 "v=[3,1,300,1,72] bf16 len=[3] i32 0..300");
    contract_orders("attention", "q=[2,2,130,1,24] bf16 k=[2,2,33,1,24] bf16 "
                                 "v=[2,2,33,1,80] bf16 scale=0.3 len=[2] i32 33..33");
    forward(1, 65, 520, 1, 128, 512, 512);
    forward(1, 65, 520, 1, 128, 515, 515);
    // calls that the warp-group kernels do not support: frames, a negative scale
    const char *const others[] = {"frame=9", "scale=-0.3"};
    for (const char *attr : others) {
        char text[400];
        snprintf(text, sizeof text,
                 "q=[1,1,66,1,8] bf16 -4..4 k=[1,1,70,1,8] bf16 -4..4 v=[1,1,70,1,8] bf16 len=[1] "
                 "i32 20..20 %s",
                 attr);
        contract_case("attention", text);
        snprintf(text, sizeof text,
                 "q=[1,1,66,1,8] bf16 -4..4 k=[1,1,70,1,8] bf16 -4..4 v=[1,1,70,1,8] bf16 len=[1] "
                 "i32 20..20 o=[1,1,66,1,8] bf16 lse=[1,1,1,66] f32 9..10 do=[1,1,66,1,8] bf16 %s",
                 attr);
        contract_case("attention_grad", text);
    }
    // the same backward: several resident and streamed tiles, rows without keys
    contract_sm90a("attention_grad",
                   "q=[1,1,65,1,64] bf16 k=[1,1,65,1,64] bf16 v=[1,1,65,1,64] bf16 "
                   "o=[1,1,65,1,64] bf16 lse=[1,1,1,65] f32 4..5 do=[1,1,65,1,64] bf16",
                   0);
    contract_sm90a("attention_grad",
                   "q=[2,1,140,1,72] bf16 k=[2,1,70,1,72] bf16 v=[2,1,70,1,72] bf16 len=[2] i32 "
                   "0..70 o=[2,1,140,1,72] bf16 lse=[2,1,1,140] f32 4..5 do=[2,1,140,1,72] bf16 "
                   "dlse=[2,1,1,140] f32",
                   0);
    backward(1, 260, 130, 1, 72, 129, 129);
    backward(1, 70, 200, 1, 128, 127, 127);
    /* sums in turns: several tiles of keys per head, lengths that end in the first tile or before
     * it, heads after each other in a slot and in parallel slots, a slot without a head, an odd
     * number of half tiles of queries, each number of columns */
    contract_sm90a("attention_grad",
                   "q=[3,1,66,1,24] bf16 k=[3,1,260,1,24] bf16 v=[3,1,260,1,24] bf16 len=[3] i32 "
                   "0..260 o=[3,1,66,1,24] bf16 lse=[3,1,1,66] f32 4..5 do=[3,1,66,1,24] bf16",
                   0);
    contract_sm90a("attention_grad",
                   "q=[2,1,140,1,72] bf16 k=[2,1,140,1,72] bf16 v=[2,1,140,1,72] bf16 "
                   "o=[2,1,140,1,72] bf16 lse=[2,1,1,140] f32 4..5 do=[2,1,140,1,72] bf16 "
                   "dlse=[2,1,1,140] f32",
                   0);
    contract_case("attention_grad",
                  "q=[1,1,66,2,128] bf16 k=[1,1,258,2,128] bf16 v=[1,1,258,2,128] bf16 len=[1] i32 "
                  "257..257 o=[1,1,66,2,128] bf16 lse=[1,1,2,66] f32 4..5 do=[1,1,66,2,128] bf16");
    // heads with no key, or with one, after each other in a slot
    contract_sm90a("attention_grad",
                   "q=[5,1,130,1,24] bf16 k=[5,1,130,1,24] bf16 v=[5,1,130,1,24] bf16 len=[5] i32 "
                   "0..1 o=[5,1,130,1,24] bf16 lse=[5,1,1,130] f32 4..5 do=[5,1,130,1,24] bf16",
                   0);
    // exactly five products
    contract_sm90a("attention_grad",
                   "q=[1,1,128,1,64] bf16 k=[1,1,256,1,64] bf16 v=[1,1,256,1,64] bf16 "
                   "o=[1,1,128,1,64] bf16 lse=[1,1,1,128] f32 4..5 do=[1,1,128,1,64] bf16",
                   1);
    contract_case("attention_grad",
                  "q=[2,2,66,1,24] bf16 k=[2,2,33,1,24] bf16 v=[2,2,33,1,112] bf16 "
                  "o=[2,2,66,1,112] bf16 lse=[2,2,1,66] f32 4..5 do=[2,2,66,1,112] bf16 scale=0.3");
    /* whole problems: one and several tiles of keys, an odd number of half tiles of queries, each
     * number of columns, blocks with several problems and with fewer than others, samples without
     * keys, a tile with a single key */
    contract_sm90a("attention_grad",
                   "q=[7,1,66,1,72] bf16 k=[7,1,9,1,72] bf16 v=[7,1,9,1,72] bf16 len=[7] i32 "
                   "0..2 o=[7,1,66,1,72] bf16 lse=[7,1,1,66] f32 4..5 do=[7,1,66,1,72] bf16 "
                   "dlse=[7,1,1,66] f32",
                   0);
    contract_sm90a("attention_grad",
                   "q=[3,1,140,2,24] bf16 k=[3,1,260,2,24] bf16 v=[3,1,260,2,24] bf16 len=[3] i32 "
                   "0..260 o=[3,1,140,2,24] bf16 lse=[3,1,2,140] f32 4..5 do=[3,1,140,2,24] bf16",
                   0);
    contract_case("attention_grad",
                  "q=[1,6,66,1,72] bf16 k=[1,6,130,1,72] bf16 v=[1,6,130,1,80] bf16 "
                  "o=[1,6,66,1,80] bf16 lse=[1,6,1,66] f32 4..5 do=[1,6,66,1,80] bf16 scale=0.3");
    contract_case("attention_grad",
                  "q=[1,1,70,6,128] bf16 k=[1,1,256,6,128] bf16 v=[1,1,256,6,128] bf16 "
                  "len=[1] i32 256..256 o=[1,1,70,6,128] bf16 lse=[1,1,6,70] f32 4..5 "
                  "do=[1,1,70,6,128] bf16");
    // the rows before the slices of dq do not fill a multiple of 16 bytes
    contract_case("attention_grad",
                  "q=[7,1,67,1,24] bf16 k=[7,1,130,1,24] bf16 v=[7,1,130,1,24] bf16 "
                  "o=[7,1,67,1,24] bf16 lse=[7,1,1,67] f32 4..5 do=[7,1,67,1,24] bf16");
    /* text before an image, the joint attention of MMDiT: a text whose length and end are in
     * separate tiles, one without a token, one that ends with its tile, a later part of the keys
     * that includes some of a text or none of it. Only these kernels skip tiles between length and
     * end: two of three remain in the first case */
    joint(1, 128, 384, 1, 128, 100, 100, 256, 0, 0.67);
    joint(3, 70, 330, 1, 128, 0, 300, 300, 0, 0);
    joint(2, 65, 520, 3, 128, 0, 0, 300, 0, 0);
    joint(1, 66, 520, 6, 128, 130, 130, 300, 0, 0);
    joint(2, 66, 260, 1, 72, 60, 160, 100, 50, 0);
    joint(1, 66, 140, 1, 24, 20, 20, 40, 40, 0);
    /* heads from the middle of an autoencoder, of 264 to 512 columns: one half of the columns and
     * both, a rest in each, several heads, frames that end inside a tile, in its first half and at
     * its end, queries that see keys of only one tile, more keys than a tile, scores computed once
     * per half */
    contract_sm90a("attention",
                   "q=[1,1,128,1,512] bf16 k=[1,1,96,1,512] bf16 v=[1,1,96,1,512] bf16 scale=0.2",
                   1.5);
    contract_sm90a("attention",
                   "q=[1,1,150,1,512] bf16 -2..2 k=[1,1,150,1,512] bf16 v=[1,1,150,1,512] bf16 "
                   "frame=50",
                   0);
    contract_sm90a("attention",
                   "q=[2,1,270,1,264] bf16 k=[2,1,270,1,264] bf16 v=[2,1,270,1,264] bf16 frame=1",
                   0);
    contract_sm90a("attention",
                   "q=[1,2,66,2,72] bf16 -2..2 k=[1,2,35,2,72] bf16 v=[1,2,35,2,392] bf16", 0);
    contract_sm90a("attention",
                   "q=[1,1,129,1,512] bf16 k=[1,1,70,1,512] bf16 v=[1,1,70,1,256] bf16 frame=64",
                   0);
    no_numbers(70, 264, "bf16");
    // plain kernels: heads that do not divide into pieces, and more columns than a chunk
    contract_case("attention", "q=[1,1,3,1,12] bf16 k=[1,1,3,1,12] bf16 v=[1,1,3,1,12] bf16");
    contract_case("attention", "q=[1,1,3,1,264] bf16 k=[1,1,3,1,264] bf16 v=[1,1,3,1,264] bf16");
    if (argc > 1 && strcmp(argv[1], "--launches") == 0)
        device_print_launches();
    return contract_done();
}
