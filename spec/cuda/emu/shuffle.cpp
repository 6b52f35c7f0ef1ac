/* cuda/emu: lanes exchange 4-byte words unchanged: floats, signed and unsigned integers.
 * Covers: cuda/emu/emu.h, cuda/emu/collective.cpp */
#include "cuda/prim/sm80.cuh"
#include "support.h"

// exchange with the neighbouring lane and with lane 5
template <class Word> __global__ void exchange(const Word *x, Word *neighbour, Word *fifth)
{
    Word v = x[threadIdx.x];
    neighbour[threadIdx.x] = __shfl_xor_sync(~0u, v, 1);
    fifth[threadIdx.x] = __shfl_sync(~0u, v, 5);
}

template <class Word> static void exchanged(Word (*value)(size_t))
{
    Word *x = device_values<Word>(32, value), *neighbour = device_room<Word>(32),
         *fifth = device_room<Word>(32);
    MR_LAUNCH((exchange<Word>), dim3(1), dim3(32), 0, NULL, x, neighbour, fifth);
    CHECK_SILENT();
    for (int i = 0; i < 32; i++) {
        CHECK(memcmp(&neighbour[i], &x[i ^ 1], sizeof *x) == 0);
        CHECK(memcmp(&fifth[i], &x[5], sizeof *x) == 0);
    }
}

int main(void)
{
    // integers with more bits than a float has, and NaNs
    exchanged<uint32_t>([](size_t i) { return 0xFF800001u + (uint32_t)i; });
    exchanged<int>([](size_t i) { return -16777217 - (int)i; });
    exchanged<float>([](size_t i) { return 1.0f / (float)(i + 1); });
    return check_done();
}
