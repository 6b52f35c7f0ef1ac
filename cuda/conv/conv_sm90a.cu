// Launches the sm_90a convolution kernels. Licence: Apache-2.0
#include "cuda/conv/groups.h"
#include "cuda/conv/groups_sm90a.cuh"
#include "cuda/kernels/kernel_call.h"

template <bool ADJOINT>
void mr_conv_groups(const Conv &c, const mr_bf16 *from, const mr_bf16 *packed, const mr_bf16 *bias,
                    mr_bf16 *to, cudaStream_t stream)
{
    int phases, columns = (ADJOINT ? c.C : c.O) / c.groups;
    int64_t tiles = phase_tiles<ADJOINT>(c, CONV_ROWS, &phases);
    dim3 grid((unsigned)tiles, (unsigned)mr_cuda_ceil(columns, CONV_ROWS),
              (unsigned)(phases * c.groups));
    mr_cuda_shared(conv_groups<ADJOINT>, CONV_SHARED);
    MR_LAUNCH((conv_groups<ADJOINT>), grid, dim3(CONV_THREADS), CONV_SHARED, stream, from, packed,
              bias, to, c);
}

template void mr_conv_groups<false>(const Conv &, const mr_bf16 *, const mr_bf16 *, const mr_bf16 *,
                                    mr_bf16 *, cudaStream_t);
template void mr_conv_groups<true>(const Conv &, const mr_bf16 *, const mr_bf16 *, const mr_bf16 *,
                                   mr_bf16 *, cudaStream_t);

void mr_conv_dw_groups(const Conv &c, const mr_bf16 *dy, const mr_bf16 *x, float *partials,
                       int range, int ranges, cudaStream_t stream)
{
    int64_t tiles = mr_cuda_ceil(c.O / c.groups, CONV_ROWS) *
                    mr_cuda_ceil((int64_t)c.taps * (c.C / c.groups), CONV_ROWS);
    dim3 grid((unsigned)tiles, (unsigned)(c.groups * ranges));
    mr_cuda_shared(conv_dw_groups, CONV_SHARED);
    MR_LAUNCH(conv_dw_groups, grid, dim3(CONV_THREADS), CONV_SHARED, stream, dy, x, partials, range,
              c);
}
