// Kernels of the spec sm90a.cpp: one tile through the instructions of cuda/prim/sm90a.cuh.
#include "cuda/prim/sm80.cuh"
#include "cuda/prim/sm90a.cuh"

// where element (n, k) of a 16 x 16 operand b lies, in bytes, for a swizzle of `width` bytes (16:
// none)
MR_DEVICE unsigned place_of(int n, int k, int width, bool transposed)
{
    if (width == 16)
        return transposed ? n / 8 * 256 + k / 8 * 128 + k % 8 * 16 + n % 8 * 2
                          : n / 8 * 128 + k / 8 * 256 + n % 8 * 16 + k % 8 * 2;
    unsigned at = transposed ? k / 8 * width * 8 + k % 8 * width + n * 2
                             : n / 8 * width * 8 + n % 8 * width + k * 2;
    return at ^ (at >> 7 & (width / 16 - 1)) << 4;
}

/* d [64, 16] = a [64, 16] by b, given as [16 n][16 k]. One warp group, a from registers. */
template <int SWIZZLE, int TRANSPOSED>
__global__ void one_group_product(const mr_bf16 *a, const mr_bf16 *b, float *d)
{
    MR_SHARED(s);
    constexpr int WIDTH = SWIZZLE ? 256 >> SWIZZLE : 16;
    int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4, col = t % 4 * 2;
    for (int i = t; i < 256; i += 128)
        *(mr_bf16 *)(s + place_of(i / 16, i % 16, WIDTH, TRANSPOSED)) = b[i];
    mr_proxy_fence();
    __syncthreads();

    uint32_t left[4];
    for (int r = 0; r < 4; r++) {
        const mr_bf16 *p = a + (row + r % 2 * 8) * 16 + col + r / 2 * 8;
        left[r] = p[0] | (uint32_t)p[1] << 16;
    }
    unsigned lead = SWIZZLE ? 16 : TRANSPOSED ? 128 : 256;
    unsigned stride = SWIZZLE ? WIDTH * 8 : TRANSPOSED ? 256 : 128;
    uint64_t right = mr_operand<SWIZZLE>(mr_shared_address(s), lead, stride);
    float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    mr_group_fence();
    mr_group_product<TRANSPOSED>(acc, left, right, 1);
    mr_group_commit();
    mr_group_wait<0>();
    for (int i = 0; i < 8; i++)
        d[(row + i / 2 % 2 * 8) * 16 + i / 4 * 8 + col + i % 2] = acc[i];
}

template __global__ void one_group_product<0, 0>(const mr_bf16 *, const mr_bf16 *, float *);
template __global__ void one_group_product<1, 0>(const mr_bf16 *, const mr_bf16 *, float *);
template __global__ void one_group_product<2, 0>(const mr_bf16 *, const mr_bf16 *, float *);
template __global__ void one_group_product<3, 0>(const mr_bf16 *, const mr_bf16 *, float *);
template __global__ void one_group_product<0, 1>(const mr_bf16 *, const mr_bf16 *, float *);
template __global__ void one_group_product<1, 1>(const mr_bf16 *, const mr_bf16 *, float *);
template __global__ void one_group_product<2, 1>(const mr_bf16 *, const mr_bf16 *, float *);
template __global__ void one_group_product<3, 1>(const mr_bf16 *, const mr_bf16 *, float *);

/* d [64, N] = 2 a b^T, or with TRANSPOSED 2 a^T b^T, a [64, 64] and b [N, 64] brought by tensor
 * copies with the 128-byte swizzle; every product runs twice. One warp group; thread 0 starts the
 * copies. */
template <int TRANSPOSED, int N>
__global__ void tiles(const __grid_constant__ mr_tensor_map map_a,
                      const __grid_constant__ mr_tensor_map map_b, float *d)
{
    MR_SHARED(s);
    unsigned char *tile_a = s, *tile_b = s + 8192;
    uint64_t *full = (uint64_t *)(s + 8192 + N * 128);
    int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4, col = t % 4 * 2;
    if (t == 0) {
        mr_mbarrier_init(full, 1);
        mr_proxy_fence();
    }
    __syncthreads();
    if (t == 0) {
        mr_mbarrier_expect(full, 8192 + N * 128);
        mr_tensor_copy5(tile_a, &map_a, full, 0, 0, 0, 0, 0);
        mr_tensor_copy5(tile_b, &map_b, full, 0, 0, 0, 0, 0);
    }
    mr_mbarrier_wait(full, 0);

    float acc[N / 2];
    mr_group_fence();
    for (int round = 0; round < 2; round++)
        for (int k = 0; k < 4; k++) {
            // rows of 16 columns, or 16 rows of the tile
            uint32_t at = mr_shared_address(tile_a) + k * (TRANSPOSED ? 2048 : 32);
            uint64_t left = mr_operand<MR_SWIZZLE_128>(at, TRANSPOSED ? 8192 : 16, 1024);
            uint64_t right =
                mr_operand<MR_SWIZZLE_128>(mr_shared_address(tile_b) + k * 32, 16, 1024);
            mr_group_product<0, TRANSPOSED>(acc, left, right, round + k > 0);
        }
    mr_group_commit();
    mr_group_wait<0>();
    for (int i = 0; i < N / 2; i++)
        d[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + col + i % 2] = acc[i];
}

template __global__ void tiles<0, 128>(const __grid_constant__ mr_tensor_map,
                                       const __grid_constant__ mr_tensor_map, float *);
template __global__ void tiles<1, 128>(const __grid_constant__ mr_tensor_map,
                                       const __grid_constant__ mr_tensor_map, float *);
template __global__ void tiles<1, 64>(const __grid_constant__ mr_tensor_map,
                                      const __grid_constant__ mr_tensor_map, float *);
template __global__ void tiles<1, 16>(const __grid_constant__ mr_tensor_map,
                                      const __grid_constant__ mr_tensor_map, float *);

// sums [32, 4] += values [gridDim.x, 4] of one block after the other; words [2] begin as 0. A warp.
__global__ void sum_in_turns(uint32_t *words, const float *values, float *sums)
{
    MR_SHARED(s);
    uint32_t *turn = (uint32_t *)s;
    if (threadIdx.x == 0) {
        *turn = mr_take_ticket(words);
        mr_turn_wait(words + 1, *turn);
    }
    __syncwarp();
    float x[4];
    for (int i = 0; i < 4; i++)
        x[i] = values[*turn * 4 + i];
    mr_add_four(sums + threadIdx.x * 4, x);
    __syncwarp();
    if (threadIdx.x == 0)
        mr_turn_pass(words + 1, *turn + 1);
}

// pairs of x in 8 bits, either format
__global__ void bytes(const float *x, uint32_t *e4m3, uint32_t *e5m2)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    e4m3[i] = mr_pack8<3>(x[2 * i], x[2 * i + 1]);
    e5m2[i] = mr_pack8<2>(x[2 * i], x[2 * i + 1]);
}
