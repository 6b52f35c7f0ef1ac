// Kernels of the spec forward_sm90a.cpp, as `make cuda` compiles them.
#include "cuda/attention/forward_sm90a.cuh"

template __global__ void attention_forward_groups<64>(const __grid_constant__ HeadMaps,
                                                      const __grid_constant__ HeadMaps,
                                                      const __grid_constant__ HeadMaps,
                                                      GroupAttention);
template __global__ void attention_forward_groups<80>(const __grid_constant__ HeadMaps,
                                                      const __grid_constant__ HeadMaps,
                                                      const __grid_constant__ HeadMaps,
                                                      GroupAttention);
template __global__ void attention_forward_groups<128>(const __grid_constant__ HeadMaps,
                                                       const __grid_constant__ HeadMaps,
                                                       const __grid_constant__ HeadMaps,
                                                       GroupAttention);
