// Kernels of the spec sm80.cpp: one tile through the instructions of cuda/prim/sm80.cuh.
#include "cuda/prim/sm80.cuh"

/* d [16, 8] = a [16, K] by b [K, 8]: asynchronous copies of a and b, fragments by ldmatrix
 * (transposed for b, which is row-major), one product. One warp; K is 8 or 16. */
template <int K> __global__ void one_product(const mr_bf16 *a, const mr_bf16 *b, float *d)
{
    MR_SHARED(s);
    unsigned lane = threadIdx.x;
    unsigned char *tile_a = s, *tile_b = s + 16 * K * 2;
    for (unsigned i = lane; i < 16 * K / 8; i += 32)
        mr_copy16(tile_a + i * 16, a + i * 8, 16);
    if (lane < K)
        mr_copy16(tile_b + lane * 16, b + lane * 8, 16);
    mr_copy_commit();
    mr_copy_wait<0>();
    __syncthreads();

    float acc[4] = {0, 0, 0, 0};
    uint32_t right[2];
    mr_load_matrix2<true>(right, tile_b + lane % K * 16);
    if (K == 16) {
        uint32_t left[4];
        mr_load_matrix4<false>(left, tile_a + lane % 16 * 32 + lane / 16 * 16);
        mr_product16(acc, left, right[0], right[1]);
    } else {
        uint32_t left[2];
        mr_load_matrix2<false>(left, tile_a + lane % 16 * 16);
        mr_product8(acc, left[0], left[1], right[0]);
    }
    for (int i = 0; i < 4; i++)
        d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = acc[i];
}

template __global__ void one_product<8>(const mr_bf16 *, const mr_bf16 *, float *);
template __global__ void one_product<16>(const mr_bf16 *, const mr_bf16 *, float *);

// pairs of x as bf16, 2^x and 1 / x; and a 16-byte copy with `bytes` valid bytes
__global__ void conversions(const float *x, uint32_t *pairs, float *powers, float *parts)
{
    unsigned i = threadIdx.x;
    pairs[i] = mr_pack(x[2 * i], x[2 * i + 1]);
    powers[i] = mr_exp2(x[i]);
    parts[i] = mr_recip(x[i]);
}

__global__ void short_copy(const float *x, float *y, int bytes)
{
    MR_SHARED(s);
    unsigned i = threadIdx.x;
    mr_copy16(s + i * 16, x + i * 4, bytes);
    mr_copy_commit();
    mr_copy_wait<0>();
    mr_store16(y + i * 4, mr_load16(s + i * 16));
}
