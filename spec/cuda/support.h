/* Shared by specs of kernels: memory with values, and the reports of a launch, on the emulator.
 * With nvcc they run on a GPU, which has no choice of orders. */
#ifndef MOONREEL_SPEC_CUDA_SUPPORT_H
#define MOONREEL_SPEC_CUDA_SUPPORT_H
#include "check.h"
#include "cuda/rt/driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

#ifdef __CUDACC__

namespace emu
{
enum class Async { eager, late };
struct Options {
    unsigned seed;
    Async async;
};
static Options options;

// unwritten memory is NaN
static void *alloc(size_t bytes)
{
    void *p = NULL;
    cudaError_t error = cudaMalloc(&p, bytes);
    if (!error)
        error = cudaMemset(p, 0xFF, bytes);
    if (error) {
        fprintf(stderr, "no memory of the GPU: %s\n", cudaGetErrorString(error));
        exit(1);
    }
    return p;
}
static void host_wrote(void *, size_t) {}
static void forget_reports() {}
} // namespace emu

// wait for the launches and return the runtime's errors
static inline std::string all_reports()
{
    cudaError_t error = cudaDeviceSynchronize();
    return error ? cudaGetErrorString(error) : "";
}

static inline void give(void *to, const void *from, size_t bytes)
{
    CHECK_INT(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
}

static inline void take(void *to, const void *from, size_t bytes)
{
    CHECK_INT(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
}

#else

#include "cuda/emu/emu.h"

// reports of the emulator since forget_reports, one line each
static inline std::string all_reports()
{
    std::string all;
    for (const std::string &r : emu::reports())
        all += r + "\n";
    return all;
}

static inline void give(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static inline void take(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

#endif

// device memory of n values, set to value(i)
template <typename T, typename F> static T *device_values(size_t n, F value)
{
    std::vector<T> all(n);
    for (size_t i = 0; i < n; i++)
        all[i] = value(i);
    T *p = (T *)emu::alloc(n * sizeof(T));
    give(p, all.data(), n * sizeof(T));
    emu::host_wrote(p, n * sizeof(T));
    return p;
}

// n values of device memory, copied to the host
template <typename T> static std::vector<T> seen(const T *p, size_t n)
{
    std::vector<T> all(n);
    take(all.data(), p, n * sizeof(T));
    return all;
}

template <typename T> static T *device_room(size_t n)
{
    return (T *)emu::alloc(n * sizeof(T));
}

// print whether `what` passed since `failed_before` was read, and which kernels depend on it
static inline void depends(int failed_before, const char *what, const char *kernels)
{
    const bool passed = check_failed == failed_before;
    printf("%-44s %s\n", what, passed ? "passed" : "FAILED, needed by:");
    if (!passed)
        printf("    %s\n", kernels);
}

#define CHECK_SILENT() check_str(all_reports().c_str(), "", "the reports", __FILE__, __LINE__)

#endif
