/* What specs of kernels share: memory with values, the reports of a launch; on the emulator, or
 * compiled by nvcc on a GPU, where there is no other order to ask for. */
#ifndef MOONREEL_SPEC_CUDA_SUPPORT_H
#define MOONREEL_SPEC_CUDA_SUPPORT_H
#include "check.h"
#include "cuda/rt/driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string>

#ifdef __CUDACC__

namespace emu
{
enum class Async { eager, late };
struct Options {
    unsigned seed;
    Async async;
};
static Options options;

// memory that both sides reach, unwritten: NaN
static void *alloc(size_t bytes)
{
    void *p = NULL;
    cudaError_t error = cudaMallocManaged(&p, bytes);
    if (error) {
        fprintf(stderr, "no memory of the GPU: %s\n", cudaGetErrorString(error));
        exit(1);
    }
    memset(p, 0xFF, bytes);
    return p;
}
static void host_wrote(void *, size_t) {}
static void forget_reports() {}
} // namespace emu

// the launches are over; what the runtime says of them
static inline std::string all_reports()
{
    cudaError_t error = cudaDeviceSynchronize();
    return error ? cudaGetErrorString(error) : "";
}

#else

#include "cuda/emu/emu.h"

// what the emulator said since forget_reports, one line each
static inline std::string all_reports()
{
    std::string all;
    for (const std::string &r : emu::reports())
        all += r + "\n";
    return all;
}

#endif

// device memory of n values, value(i) each
template <typename T, typename F> static T *device_values(size_t n, F value)
{
    T *p = (T *)emu::alloc(n * sizeof(T));
    for (size_t i = 0; i < n; i++)
        p[i] = value(i);
    emu::host_wrote(p, n * sizeof(T));
    return p;
}

template <typename T> static T *device_room(size_t n)
{
    return (T *)emu::alloc(n * sizeof(T));
}

#define CHECK_SILENT() check_str(all_reports().c_str(), "", "the reports", __FILE__, __LINE__)

#endif
