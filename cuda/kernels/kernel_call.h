/* The host side of a kernel file: one function per row of core/op, of the same name.
 *
 *     MR_CUDA_KERNEL(layer_norm_modulate) { ... call, stream ... return MR_OK; }
 *
 * call     as the CPU's kernels get it, with pointers of the device
 * stream   where it launches; it neither waits nor allocates
 * Errors:  MR_E_UNSUPPORTED for a shape that no launch can take
 * Threads: any; a stream serves one call at a time
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_KERNEL_CALL_H
#define MOONREEL_CUDA_KERNELS_KERNEL_CALL_H

#include "cuda/prim/kernel.cuh"
#include "moonreel/op.h"

typedef mr_status mr_cuda_kernel_fn(const mr_call *call, cudaStream_t stream);
#define MR_CUDA_KERNEL(id)                                                                         \
    extern "C" mr_status mr_cuda_##id(const mr_call *call, cudaStream_t stream)

#endif
