// Kernels of the spec rates.cpp. Each runs only the timed operation, `turns` times, and writes the
// cycles of its block. Only the clock needs hardware: the emulator counts the operations of a
// kernel, so that rates are divided by the right number.
#include "cuda/prim/sm80.cuh"
#include "cuda/prim/sm90a.cuh"

enum { GROUPS = 2, PRODUCT_THREADS = 128 * GROUPS, THREADS = 512, CHAINS = 8, L2_BYTES = 64 << 10 };

MR_DEVICE uint64_t cycles_now()
{
#ifdef __CUDACC__
    return (uint64_t)clock64();
#else
    return 0;
#endif
}

// cycles of a block, from the start of its first thread to the end of its last one
MR_DEVICE void took(uint64_t *cycles, uint64_t begin)
{
    __syncthreads();
    if (threadIdx.x == 0)
        cycles[blockIdx.x] = cycles_now() - begin;
}

/* Products m64 nN k16 by two warp groups, each with its own a and a common b; four products of an
 * iteration overlap with the four of the next. a is in registers or in shared memory. */
template <int N, bool REGISTERS>
__global__ void __launch_bounds__(PRODUCT_THREADS)
    rate_of_products(uint64_t *cycles, float *sink, int turns)
{
    MR_SHARED(s);
    for (int i = threadIdx.x; i < (GROUPS * 64 + N) * 64; i += PRODUCT_THREADS)
        ((mr_bf16 *)s)[i] = 0;
    mr_proxy_fence();
    __syncthreads();
    const uint32_t at = mr_shared_address(s);
    const uint64_t a = mr_operand<MR_SWIZZLE_128>(at + (uint32_t)mr_group_number() * 64 * 128, 16,
                                                  1024),
                   b = mr_operand<MR_SWIZZLE_128>(at + GROUPS * 64 * 128, 16, 1024);
    const uint32_t left[4] = {0, 0, 0, 0};
    float d[N / 2];
    for (int i = 0; i < N / 2; i++)
        d[i] = 0;
    const uint64_t begin = cycles_now();
    for (int turn = 0; turn < turns; turn++) {
        mr_group_pin(d);
        mr_group_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint64_t right = mr_operand_behind(b, (uint32_t)k * 32);
            const uint64_t own = mr_operand_behind(a, (uint32_t)k * 32);
            if constexpr (REGISTERS)
                mr_group_product<0>(d, left, right, 1);
            else if constexpr (N == 16)
                mr_group_product<0, 0>(d, own, right, 1);
            else
                mr_group_product<0>(d, own, right, 1);
        }
        mr_group_commit();
        mr_group_wait<1>();
    }
    mr_group_wait<0>();
    mr_group_pin(d);
    took(cycles, begin);
    float sum = 0;
    for (int i = 0; i < N / 2; i++)
        sum += d[i];
    sink[blockIdx.x * PRODUCT_THREADS + threadIdx.x] = sum;
}

// exponentials in independent chains
__global__ void __launch_bounds__(THREADS)
    rate_of_exponentials(uint64_t *cycles, float *sink, int turns)
{
    float x[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        x[i] = (float)(threadIdx.x + i) * 1e-3f;
    __syncthreads();
    const uint64_t begin = cycles_now();
    for (int turn = 0; turn < turns; turn++)
#pragma unroll
        for (int i = 0; i < CHAINS; i++)
            x[i] = mr_exp2(x[i]);
    took(cycles, begin);
    float sum = 0;
    for (int i = 0; i < CHAINS; i++)
        sum += x[i];
    sink[blockIdx.x * THREADS + threadIdx.x] = sum;
}

struct alignas(16) Four {
    float x[4];
};

// 16 bytes of shared memory per lane, without bank conflicts
__global__ void __launch_bounds__(THREADS) rate_of_shared(uint64_t *cycles, float *sink, int turns)
{
    MR_SHARED(s);
    Four *all = (Four *)s;
    for (int i = threadIdx.x; i < 4 * THREADS; i += THREADS)
        all[i] = {{1, 2, 3, (float)i}};
    __syncthreads();
    Four sum = {{0, 0, 0, 0}};
    const uint64_t begin = cycles_now();
    for (int turn = 0; turn < turns; turn++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const Four got = all[((turn + i) % 4) * THREADS + threadIdx.x];
            for (int k = 0; k < 4; k++)
                sum.x[k] += got.x[k];
        }
    took(cycles, begin);
    sink[blockIdx.x * THREADS + threadIdx.x] = sum.x[0] + sum.x[1] + sum.x[2] + sum.x[3];
}

/* 16 bytes per lane from the L2 cache: every block reads the pieces of all blocks in turn, each
 * starting with another piece, and bypasses the L1 cache */
__global__ void __launch_bounds__(THREADS)
    rate_of_l2(uint64_t *cycles, float *sink, const Four *all, int turns)
{
    enum { OF_BLOCK = L2_BYTES / 16 };
    Four sum = {{0, 0, 0, 0}};
    __syncthreads();
    const uint64_t begin = cycles_now();
    for (int turn = 0; turn < turns; turn++) {
        const Four *from = all + (size_t)((blockIdx.x + turn) % gridDim.x) * OF_BLOCK;
#pragma unroll 4
        for (int i = threadIdx.x; i < OF_BLOCK; i += THREADS) {
#ifdef __CUDACC__
            const float4 v = __ldcg((const float4 *)&from[i]);
            const Four got = {{v.x, v.y, v.z, v.w}};
#else
            const Four got = from[i];
#endif
            for (int k = 0; k < 4; k++)
                sum.x[k] += got.x[k];
        }
    }
    took(cycles, begin);
    sink[blockIdx.x * THREADS + threadIdx.x] = sum.x[0] + sum.x[1] + sum.x[2] + sum.x[3];
}

// sums of four floats into memory in the L2 cache, each block into its own memory
__global__ void __launch_bounds__(THREADS) rate_of_sums(uint64_t *cycles, float *all, int turns)
{
    float *own = all + (size_t)blockIdx.x * (L2_BYTES / 4);
    const float x[4] = {1, 1, 1, 1};
    __syncthreads();
    const uint64_t begin = cycles_now();
    for (int turn = 0; turn < turns; turn++)
        for (int i = threadIdx.x; i < L2_BYTES / 16; i += THREADS)
            mr_add_four(own + 4 * i, x);
    took(cycles, begin);
}

__global__ void nothing(int) {}
