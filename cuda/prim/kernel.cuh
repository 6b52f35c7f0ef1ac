/* Every kernel file includes this header first. It selects CUDA or the emulator, and defines
 * launches, shared memory and bf16 storage.
 *
 * spec/cuda/prim/rules.cpp checks the rules: shared memory is dynamic (MR_SHARED), a launch is
 * MR_LAUNCH, and only sm80.cuh and sm90a.cuh contain asm.
 *
 * Threads: any thread may call the device functions.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_PRIM_KERNEL_CUH
#define MOONREEL_CUDA_PRIM_KERNEL_CUH

#ifdef __CUDACC__

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>
// kernel, grid, block, bytes of shared memory, stream, arguments
#define MR_LAUNCH(kernel, grid, block, shared, stream, ...)                                        \
    (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#define MR_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
// device functions: MR_INSTRUCTION has two bodies, MR_DEVICE has one; MR_MEMBER is a member
// function of a struct, MR_BOTH_MEMBER is one that the host calls too
#define MR_DEVICE      static __device__ __forceinline__
#define MR_MEMBER      __device__ __forceinline__
#define MR_BOTH_MEMBER __host__ __device__ __forceinline__
#define MR_INSTRUCTION static __device__ __forceinline__
#define MR_PTX(...)    asm volatile(__VA_ARGS__)
typedef CUtensorMap mr_tensor_map;

#else

#include "cuda/emu/emu.h"
// copies the arguments now; the kernel runs when the stream reaches the launch
#define MR_LAUNCH(kernel, grid, block, shared, stream, ...)                                        \
    emu::launch(#kernel, (const void *)(kernel), grid, block, shared, stream,                      \
                emu::bound([](auto... args) { (kernel)(args...); }, __VA_ARGS__))
#define MR_SHARED(name) unsigned char *name = emu::shared_memory
#define MR_DEVICE       static __forceinline__
#define MR_MEMBER       __forceinline__
#define MR_BOTH_MEMBER  __forceinline__
#define MR_INSTRUCTION  static inline EMU_UNWATCHED
typedef emu::TensorMap mr_tensor_map;

#endif

typedef uint16_t mr_bf16; // storage only; arithmetic is f32

MR_DEVICE float mr_f32_of(uint32_t bits)
{
    union {
        uint32_t bits;
        float f;
    } x;
    x.bits = bits;
    return x.f;
}

MR_DEVICE uint32_t mr_bits_of(float f)
{
    union {
        float f;
        uint32_t bits;
    } x;
    x.f = f;
    return x.bits;
}

MR_DEVICE float mr_f32(mr_bf16 h)
{
    return mr_f32_of((uint32_t)h << 16);
}

// the two bf16 values in a register
MR_DEVICE float mr_low(uint32_t pair)
{
    return mr_f32((mr_bf16)pair);
}

MR_DEVICE float mr_high(uint32_t pair)
{
    return mr_f32((mr_bf16)(pair >> 16));
}

// one access of 16 bytes; p is a multiple of 16
MR_DEVICE uint4 mr_load16(const void *p)
{
#ifdef __CUDACC__
    return *(const uint4 *)p;
#else
    typedef unsigned word4 __attribute__((vector_size(16), aligned(1)));
    word4 v = *(const word4 *)p;
    return {v[0], v[1], v[2], v[3]};
#endif
}

MR_DEVICE void mr_store16(void *p, uint4 x)
{
#ifdef __CUDACC__
    *(uint4 *)p = x;
#else
    typedef unsigned word4 __attribute__((vector_size(16), aligned(1)));
    *(word4 *)p = word4{x.x, x.y, x.z, x.w};
#endif
}

// one access of 8 bytes; p is a multiple of 8
MR_DEVICE uint2 mr_load8(const void *p)
{
#ifdef __CUDACC__
    return *(const uint2 *)p;
#else
    typedef unsigned word2 __attribute__((vector_size(8), aligned(1)));
    word2 v = *(const word2 *)p;
    return {v[0], v[1]};
#endif
}

MR_DEVICE void mr_store8(void *p, uint2 x)
{
#ifdef __CUDACC__
    *(uint2 *)p = x;
#else
    typedef unsigned word2 __attribute__((vector_size(8), aligned(1)));
    *(word2 *)p = word2{x.x, x.y};
#endif
}

// sum over each LANES neighbouring lanes, with the same bits in every lane; all lanes of the warp
// call this
template <int LANES = 32> MR_DEVICE float mr_warp_sum(float v)
{
#pragma unroll
    for (int lanes = LANES / 2; lanes; lanes /= 2)
        v += __shfl_xor_sync(~0u, v, lanes);
    return v;
}

#endif
