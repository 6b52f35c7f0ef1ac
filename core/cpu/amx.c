/* cpu: finds out whether this process can use AMX tiles for bf16. Licence: Apache-2.0 */
#define _GNU_SOURCE // syscall
#include "cpu/cpu.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool usable;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void ask_processor(void)
{
    unsigned a, b, c, d, lo, hi;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return;
    bool tiles = (d >> 22 & 1) && (d >> 24 & 1); // AMX-BF16, AMX-TILE
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d))
        return;
    bool bf16 = a >> 5 & 1; // AVX512-BF16
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1))
        return;
    // the operating system must save tile configuration and data, and permit this process to use
    // them
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    const long request_permission = 0x1023, tile_data = 18;
    usable = tiles && bf16 && (lo >> 17 & 3) == 3 &&
             syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

bool mr_cpu_amx(void)
{
    pthread_once(&once, ask_processor);
    return usable && mr_cpu_bf16();
}
#else
bool mr_cpu_amx(void)
{
    return false;
}
#endif
