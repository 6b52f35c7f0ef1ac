// Kernels of the spec groups_sm90a.cpp, as `make cuda` compiles them.
#include "cuda/conv/groups_sm90a.cuh"

template __global__ void conv_groups<false>(const mr_bf16 *, const mr_bf16 *, const mr_bf16 *,
                                            mr_bf16 *, Conv);
template __global__ void conv_groups<true>(const mr_bf16 *, const mr_bf16 *, const mr_bf16 *,
                                           mr_bf16 *, Conv);
