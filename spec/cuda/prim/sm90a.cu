// Kernels of the spec sm90a.cpp: one tile through the instructions of cuda/prim/sm90a.cuh.
#include "cuda/prim/sm80.cuh"
#include "cuda/prim/sm90a.cuh"

// offset in bytes of element (n, k) of a 16 x 16 operand b, for a swizzle of `width` bytes (16: no
// swizzle)
MR_DEVICE unsigned place_of(int n, int k, int width, bool transposed)
{
    if (width == 16)
        return transposed ? n / 8 * 256 + k / 8 * 128 + k % 8 * 16 + n % 8 * 2
                          : n / 8 * 128 + k / 8 * 256 + n % 8 * 16 + k % 8 * 2;
    unsigned at = transposed ? k / 8 * width * 8 + k % 8 * width + n * 2
                             : n / 8 * width * 8 + n % 8 * width + k * 2;
    return at ^ (at >> 7 & (width / 16 - 1)) << 4;
}

/* d [64, 16] = a [64, 16] by b, given as [16 n][16 k]. One warp group; a comes from registers. */
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

/* How a product takes its operands: a from registers, or K-major or M-major from shared memory; b
 * K-major or N-major. A block of columns is as wide as the swizzle. */
enum { A_REGISTERS, A_K_MAJOR, A_M_MAJOR };
template <int N, int K, int A, int A_SWIZZLE, int B_TRANSPOSED, int B_SWIZZLE> struct Form {
    static constexpr int ROWS = 128; // of a, 64 for each of two groups
    static constexpr int A_WIDTH = 256 >> A_SWIZZLE, B_WIDTH = 256 >> B_SWIZZLE;
    // rows and columns in memory order
    static constexpr int A_ROWS = A == A_M_MAJOR ? K : ROWS, A_COLUMNS = A == A_M_MAJOR ? ROWS : K;
    static constexpr int B_ROWS = B_TRANSPOSED ? K : N, B_COLUMNS = B_TRANSPOSED ? N : K;
    static constexpr int A_BYTES = ROWS * K * 2, B_BYTES = N * K * 2;
    static constexpr int SHARED = A_BYTES + B_BYTES + 8;
};

// TMA copies of all rows, as adjacent blocks of `width` bytes per row
MR_DEVICE void copy_blocks(unsigned char *to, const mr_tensor_map *map, uint64_t *full, int rows,
                           int columns, int width)
{
    for (int i = 0; i < columns * 2 / width; i++)
        mr_tensor_copy5(to + i * rows * width, map, full, i * width / 2, 0, 0, 0, 0);
}

/* The operand of a step, which has depth 16. K-major blocks have width / 2 of K and all rows;
 * others have width / 2 rows and all of K. `first`: byte offset of the rows of the group. */
template <int SWIZZLE>
MR_DEVICE uint64_t operand_of(const unsigned char *tile, unsigned first, bool transposed, int rows,
                              int step)
{
    constexpr int WIDTH = 256 >> SWIZZLE, STEPS = WIDTH / 32;
    unsigned at = transposed ? step * 16 * WIDTH : step / STEPS * rows * WIDTH + step % STEPS * 32;
    return mr_operand<SWIZZLE>(mr_shared_address(tile) + first + at, transposed ? rows * WIDTH : 16,
                               WIDTH * 8);
}

/* d [128, N] = 2 a b; `rows` is a [128, K] for operands in registers. Two warp groups; every
 * product runs twice. */
template <int N, int K, int A, int A_SWIZZLE, int B_TRANSPOSED, int B_SWIZZLE>
__global__ void form(const __grid_constant__ mr_tensor_map map_a,
                     const __grid_constant__ mr_tensor_map map_b, const mr_bf16 *rows, float *d)
{
    typedef Form<N, K, A, A_SWIZZLE, B_TRANSPOSED, B_SWIZZLE> F;
    MR_SHARED(s);
    unsigned char *tile_a = s, *tile_b = s + F::A_BYTES;
    uint64_t *full = (uint64_t *)(tile_b + F::B_BYTES);
    int t = threadIdx.x % 128, me = mr_group_number();
    int row = me * 64 + t / 32 * 16 + t % 32 / 4, col = t % 4 * 2;
    if (threadIdx.x == 0) {
        mr_mbarrier_init(full, 1);
        mr_proxy_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        mr_mbarrier_expect(full, (A == A_REGISTERS ? 0 : F::A_BYTES) + F::B_BYTES);
        if (A != A_REGISTERS)
            copy_blocks(tile_a, &map_a, full, F::A_ROWS, F::A_COLUMNS, F::A_WIDTH);
        copy_blocks(tile_b, &map_b, full, F::B_ROWS, F::B_COLUMNS, F::B_WIDTH);
    }
    uint32_t left[K / 16][4];
    if (A == A_REGISTERS)
#pragma unroll
        for (int i = 0; i < K / 16; i++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                left[i][r] =
                    *(const uint32_t *)(rows + (row + r % 2 * 8) * K + i * 16 + col + r / 2 * 8);
    mr_mbarrier_wait(full, 0);

    float acc[N / 2] = {0};
    mr_group_pin(acc);
    unsigned first = me * 64 * (A == A_M_MAJOR ? F::A_ROWS * 2 : F::A_WIDTH);
    mr_group_fence();
#pragma unroll
    for (int i = 0; i < 2 * (K / 16); i++) {
        const int step = i % (K / 16);
        uint64_t right = operand_of<B_SWIZZLE>(tile_b, 0, B_TRANSPOSED, F::B_ROWS, step);
        if constexpr (A == A_REGISTERS)
            mr_group_product<B_TRANSPOSED>(acc, left[step], right, 1);
        else if constexpr (A == A_M_MAJOR)
            mr_group_product<B_TRANSPOSED, 1>(
                acc, operand_of<A_SWIZZLE>(tile_a, first, true, F::A_ROWS, step), right, 1);
        else
            mr_group_product<B_TRANSPOSED>(
                acc, operand_of<A_SWIZZLE>(tile_a, first, false, F::A_ROWS, step), right, 1);
    }
    mr_group_commit();
    mr_group_wait<0>();
    for (int i = 0; i < N / 2; i++)
        d[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + col + i % 2] = acc[i];
}

/* Every form that kernels use, and these kernels: X(N, K, A, swizzle of a, b N-major, swizzle of b,
 * kernels) */
#define MR_FORMS(X)                                                                                \
    X(128, 128, A_K_MAJOR, 1, 0, 1, "conv_groups; attention_forward_groups, scores")               \
    X(128, 16, A_K_MAJOR, 3, 0, 3, "attention_forward_groups, scores of columns 64 to 80")         \
    X(64, 128, A_K_MAJOR, 1, 0, 1, "attention_whole_groups, _turns_groups, scores to 80 columns")  \
    X(64, 16, A_K_MAJOR, 3, 0, 3, "attention_whole_groups, _turns_groups, scores from 64 to 80")   \
    X(32, 128, A_K_MAJOR, 1, 0, 1, "attention_whole_groups, _turns_groups, scores of 128 columns") \
    X(64, 128, A_REGISTERS, 1, 0, 1, "attention_whole_groups, _turns_groups, kept to 80 columns")  \
    X(64, 16, A_REGISTERS, 3, 0, 3, "attention_whole_groups, _turns_groups, kept from 64 to 80")   \
    X(32, 128, A_REGISTERS, 1, 0, 1, "attention_whole_groups, _turns_groups, kept of 128 columns") \
    X(128, 128, A_REGISTERS, 1, 1, 1, "attention_forward_groups, values of 128 columns")           \
    X(64, 128, A_REGISTERS, 1, 1, 1, "attention_forward_groups, values to 80 columns")             \
    X(16, 128, A_REGISTERS, 1, 1, 3, "attention_forward_groups, values from 64 to 80")             \
    X(128, 32, A_REGISTERS, 1, 1, 1, "attention_whole_groups, _turns_groups, dk of 128 columns")   \
    X(64, 64, A_REGISTERS, 1, 1, 1, "attention_whole_groups, _turns_groups, dk to 80 columns")     \
    X(16, 64, A_REGISTERS, 1, 1, 3, "attention_whole_groups, _turns_groups, dk from 64 to 80")     \
    X(64, 128, A_M_MAJOR, 1, 1, 1, "attention_whole_groups, _turns_groups, dq")                    \
    X(16, 128, A_M_MAJOR, 1, 1, 3, "attention_whole_groups, _turns_groups, dq from 64 to 80")      \
    X(128, 64, A_M_MAJOR, 1, 1, 1, "conv_dw_groups")
#define MR_FORM(n, k, a, swizzle_a, transposed, swizzle_b, kernels)                                \
    template __global__ void form<n, k, a, swizzle_a, transposed, swizzle_b>(                      \
        const __grid_constant__ mr_tensor_map, const __grid_constant__ mr_tensor_map,              \
        const mr_bf16 *, float *);
MR_FORMS(MR_FORM)

/* A TMA copy directly after the init of its barrier: each block writes its four rows of 64 to out
 * [blocks, 256]. */
__global__ void first_copy(const __grid_constant__ mr_tensor_map map, uint32_t *out)
{
    MR_SHARED(s);
    uint64_t *full = (uint64_t *)(s + 512);
    if (threadIdx.x == 0) {
        mr_mbarrier_init(full, 1);
        mr_proxy_fence();
        mr_mbarrier_expect(full, 512);
        mr_tensor_copy5(s, &map, full, 0, blockIdx.x % 16 * 4, 0, 0, 0);
    }
    __syncthreads();
    mr_mbarrier_wait(full, 0);
    out[blockIdx.x * 128 + threadIdx.x] = *(uint32_t *)(s + threadIdx.x * 4);
}

/* Group 0 releases registers for two other groups, which keep 192 floats per thread across a
 * barrier: out [256, 192] = x in reverse order. 384 threads. */
template <int FEWER, int MORE>
__global__ void __launch_bounds__(384, 1) registers(const float *x, float *out)
{
    if (mr_group_number() == 0) {
        mr_registers_fewer<FEWER>();
        return;
    }
    mr_registers_more<MORE>();
    int t = threadIdx.x - 128;
    float held[192];
#pragma unroll
    for (int i = 0; i < 192; i++)
        held[i] = x[i * 256 + t];
    mr_barrier_sync(1, 256);
#pragma unroll
    for (int i = 0; i < 192; i++)
        out[t * 192 + i] = held[191 - i];
}

template __global__ void registers<24, 240>(const float *, float *);
template __global__ void registers<40, 232>(const float *, float *);

/* Two groups alternate as in attention_forward_groups. Each updates the same values; only the
 * barriers order these updates. x [2 rounds] */
__global__ void ping_pong(const float *x, float *sum, int rounds)
{
    MR_SHARED(s);
    float *mine = (float *)s + threadIdx.x % 128;
    int me = mr_group_number();
    if (me == 0)
        *mine = 0;
    else
        mr_barrier_arrive(1, 256);
    for (int i = 0; i < rounds; i++) {
        mr_barrier_sync(1 + me, 256);
        *mine = *mine * 0.5f + x[2 * i + me];
        mr_barrier_arrive(2 - me, 256);
    }
    if (me == 0) {
        mr_barrier_sync(1, 256);
        sum[threadIdx.x] = *mine;
    }
}

// sums [32, 4] += values [gridDim.x, 4], one block after another; words [2] start as 0; one warp
// per block
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

// pairs of x as 8-bit floats, in both formats
__global__ void bytes(const float *x, uint32_t *e4m3, uint32_t *e5m2)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    e4m3[i] = mr_pack8<3>(x[2 * i], x[2 * i + 1]);
    e5m2[i] = mr_pack8<2>(x[2 * i], x[2 * i + 1]);
}
