/* cpu: collects the facts about this processor by which kernels are chosen. Licence: Apache-2.0 */
#define _GNU_SOURCE // CPU_COUNT
#include "cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* On Golden Cove and later Intel processors, a product of 32 bf16 pairs takes two cycles, a product
 * of 16 f32 one cycle on each of two units. These processors have f16 arithmetic, too; Cooper Lake
 * before them, with faster bf16, does not. */
static bool slow_bf16(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __builtin_cpu_is("intel") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 23 & 1;
#else
    return false;
#endif
}

/* OMP_NUM_THREADS, which launchers of ranks set, else the number of processors that this process
 * can use. */
static int all_threads(void)
{
    const char *set = getenv("OMP_NUM_THREADS");
    int n = set ? atoi(set) : 0;
    cpu_set_t may;
    if (n < 1)
        n = sched_getaffinity(0, sizeof may, &may) ? 1 : CPU_COUNT(&may);
    return MR_MIN(n, MR_MOST_THREADS);
}

mr_facts mr_cpu_facts(const char *device, int isa, int threads)
{
    mr_facts f = {.threads = threads > 0 ? threads : all_threads()};
    f.bf16 = isa == 2 && mr_cpu_bf16(), f.amx = isa == 2 && mr_cpu_amx();
    f.bf16_by_f32 = f.bf16 && !f.amx && slow_bf16();
    snprintf(f.device, sizeof f.device, "%s", device);
    snprintf(f.isa, sizeof f.isa, "%s", mr_isa_name(isa));
    return f;
}
