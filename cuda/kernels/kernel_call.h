/* The host side of a kernel file: one function per row of core/op, of the same name.
 *
 *     MR_CUDA_KERNEL(silu) { ... call, stream ... return MR_OK; }
 *     MR_CUDA_KERNEL(sum, workspace) { ... }
 *
 * See row.h for what a kernel may do.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_KERNEL_CALL_H
#define MOONREEL_CUDA_KERNELS_KERNEL_CALL_H

#include "cuda/kernels/row.h"
#include "cuda/prim/sm80.cuh"

// the optional second argument is the function that says the workspace
#define MR_CUDA_KERNEL(id, ...)                                                                    \
    static mr_status mr_cuda_##id(const mr_call *call, cudaStream_t stream);                       \
    static const mr_cuda_row mr_cuda_row_##id = {#id, mr_cuda_##id,                                \
                                                 mr_cuda_workspace_or_none(__VA_ARGS__)};          \
    static const mr_cuda_row *const mr_cuda_row_at_##id                                            \
        __attribute__((used, section("mr_cuda_rows"))) = &mr_cuda_row_##id;                        \
    static mr_status mr_cuda_##id(const mr_call *call, cudaStream_t stream)

typedef size_t mr_cuda_workspace_fn(const mr_call *call);
static inline constexpr mr_cuda_workspace_fn *mr_cuda_workspace_or_none(
    mr_cuda_workspace_fn *f = NULL)
{
    return f;
}

static inline int64_t mr_cuda_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// more than 48 KB of shared memory is asked for before the launch
template <class Kernel> static void mr_cuda_shared(Kernel *kernel, int bytes)
{
#ifdef __CUDACC__
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
#else
    (void)kernel;
    (void)bytes;
#endif
}

static inline bool mr_cuda_aligned(const void *p, size_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

#endif
