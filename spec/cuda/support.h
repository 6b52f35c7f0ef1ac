/* What specs of kernels share: memory with values, the reports of a launch. */
#ifndef MOONREEL_SPEC_CUDA_SUPPORT_H
#define MOONREEL_SPEC_CUDA_SUPPORT_H
#include "check.h"
#include "cuda/emu/emu.h"

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

// what the emulator said since forget_reports, one line each
static inline std::string all_reports()
{
    std::string all;
    for (const std::string &r : emu::reports())
        all += r + "\n";
    return all;
}

#define CHECK_SILENT() check_str(all_reports().c_str(), "", "the reports", __FILE__, __LINE__)

#endif
