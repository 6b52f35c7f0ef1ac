/* The host side of a kernel file: one function per op of core/op, of the same name.
 *
 *     MR_CUDA_KERNEL(silu) { ... call, stream ... return MR_OK; }
 *     MR_CUDA_KERNEL(sum, workspace) { ... }
 *     MR_CUDA_KERNEL(embedding, NULL, prepare, release, check) { ... }
 *     MR_CUDA_KERNEL(attention, workspace, NULL, NULL, NULL, sm90a) { ... }
 *     MR_CUDA_FLOATS(rotary, 0, run)    calls run<T>(call, stream); T is the dtype of input 0
 *     MR_CUDA_FLOATS(group_norm, 0, run, workspace)
 *
 * table.h says what a kernel may do.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_KERNEL_CALL_H
#define MOONREEL_CUDA_KERNELS_KERNEL_CALL_H

#include "cuda/kernels/table.h"
#include "cuda/prim/sm80.cuh"

// optional functions of a kernel, in this order
struct mr_cuda_more {
    size_t (*workspace)(const mr_call *call, const mr_facts *facts) = NULL;
    mr_status (*prepare)(const mr_call *call, const mr_facts *facts, void **state) = NULL;
    void (*release)(void *state) = NULL;
    mr_status (*check)(void *state) = NULL;
    mr_kernel_fn *sm90a = NULL; // the function for sm_90a; NULL: `run` for all GPUs
};

static constexpr mr_cuda_kernel mr_cuda_kernel_of(const char *name, mr_kernel_fn *run,
                                                  mr_cuda_more more)
{
    return {
        name, {{run, more.sm90a}, more.prepare, more.release, more.workspace, NULL}, more.check};
}

#define MR_CUDA_KERNEL(id, ...)                                                                    \
    static mr_status mr_cuda_##id(const mr_call *call, cudaStream_t stream);                       \
    static mr_status mr_cuda_run_##id(const mr_call *call)                                         \
    {                                                                                              \
        return mr_cuda_##id(call, (cudaStream_t)call->stream);                                     \
    }                                                                                              \
    static const mr_cuda_kernel mr_cuda_kernel_##id =                                              \
        mr_cuda_kernel_of(#id, mr_cuda_run_##id, {__VA_ARGS__});                                   \
    static const mr_cuda_kernel *const mr_cuda_kernel_at_##id                                      \
        __attribute__((used, section("mr_cuda_kernels"))) = &mr_cuda_kernel_##id;                  \
    static mr_status mr_cuda_##id(const mr_call *call, cudaStream_t stream)

#define MR_CUDA_FLOATS(id, i, launch, ...)                                                         \
    MR_CUDA_KERNEL(id, __VA_ARGS__)                                                                \
    {                                                                                              \
        return call->in[i].desc.dtype == MR_BF16 ? launch<mr_bf16>(call, stream)                   \
                                                 : launch<float>(call, stream);                    \
    }

static inline int64_t mr_cuda_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// a kernel must request more than 48 KB of shared memory before its launch
template <class Kernel> static void mr_cuda_shared(Kernel *kernel, int bytes)
{
#ifdef __CUDACC__
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
#else
    emu::allow_shared((const void *)kernel, (size_t)bytes);
#endif
}

static inline bool mr_cuda_aligned(const void *p, size_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

#endif
