/* The emulator behind the C interface of device.h. MOONREEL_CUDAEMU makes it as limited as a GPU,
 * with words separated by commas: "uncounted" (no counts), "arch=80" (no sm_90a forms).
 * cuda/rt/driver_emu.cpp lists the other words. */
#include "device.h"
#include "cuda/emu/emu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <string.h>

void *device_alloc(size_t bytes)
{
    return emu::alloc(bytes);
}

void *device_alloc_far(size_t bytes)
{
    return emu::alloc_sparse(bytes);
}

void device_open(void *p, size_t bytes)
{
    emu::open(p, bytes);
}

void device_free_all(void)
{
    emu::free_all();
}

void device_put(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void device_get(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void device_wrote(void *p, size_t bytes)
{
    emu::host_wrote(p, bytes);
}

bool device_written(const void *p, size_t bytes)
{
    return emu::all_written(p, bytes);
}

void device_begin(unsigned seed, bool late, bool counts)
{
    emu::options.seed = seed;
    emu::options.async = late ? emu::Async::late : emu::Async::eager;
    emu::options.counting = counts && device_counts_work();
    emu::forget_reports();
    emu::counts = {};
}

device_counts device_counted(void)
{
    if (!device_counts_work())
        return {};
    const emu::Counts &c = emu::counts;
    return {c.global_read, c.global_written,   c.sectors,  c.ideal_sectors,
            c.wavefronts,  c.ideal_wavefronts, c.launches, c.product_flop};
}

const char *device_reports(void)
{
    static std::string all;
    all.clear();
    for (const std::string &r : emu::reports())
        all += r + "\n";
    return all.c_str();
}

// does MOONREEL_CUDAEMU contain this word?
static bool limited(const char *word)
{
    const char *words = getenv("MOONREEL_CUDAEMU");
    return words && (',' + std::string(words) + ',').find(',' + std::string(word) + ',') !=
                        std::string::npos;
}

bool device_counts_work(void)
{
    return !limited("uncounted");
}

int device_forms(void)
{
    return limited("arch=80") ? 1 : 2;
}

void device_print_launches(void)
{
    for (const auto &kernel : emu::launches())
        printf("launched %s %u %zu\n", kernel.first.c_str(), kernel.second.threads,
               kernel.second.shared);
}
