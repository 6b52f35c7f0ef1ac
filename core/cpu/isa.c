/* cpu: which instruction set the kernels use. Licence: Apache-2.0 */
#define _GNU_SOURCE // CPU_COUNT
#include "cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef MR_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

static const char *const names[] = {"base", "avx2", "avx512"};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int chosen;

static int best(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 0;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return 2;
    return 1;
#else
    return 0;
#endif
}

static void choose(void)
{
    chosen = best();
    const char *asked = getenv("MOONREEL_ISA");
    if (!asked || !*asked)
        return;
    for (int i = 0; i < (int)MR_COUNT(names); i++) {
        if (strcmp(asked, names[i]) != 0)
            continue;
        if (i <= chosen)
            chosen = i;
        else
            mr_log(MR_LOG_ERROR, "MOONREEL_ISA=%s: this processor has no %s; using %s", asked,
                   asked, names[chosen]);
        return;
    }
    mr_log(MR_LOG_ERROR, "MOONREEL_ISA=%s: expected base, avx2 or avx512; using %s", asked,
           names[chosen]);
}

int mr_isa(void)
{
    pthread_once(&once, choose);
    return chosen;
}

const char *mr_isa_name(int isa)
{
    return isa >= 0 && isa < (int)MR_COUNT(names) ? names[isa] : "?";
}

int mr_isa_index(const char *name)
{
    for (int i = 0; i < (int)MR_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    // of GPUs, sm_90a has forms of its own: its code runs on no other
    return strcmp(name, "9.0") == 0 ? 1 : -1;
}

bool mr_cpu_bf16(void)
{
#if defined(MR_HAVE_ONEDNN) && defined(__x86_64__)
    // asked first: the library's answer freezes its own limit, which product.c may still lower
    if (mr_isa() < 2)
        return false;
    // below this set of instructions oneDNN refuses bf16 or emulates it
    int isa = (int)dnnl_get_effective_cpu_isa();
    return (isa & (int)dnnl_cpu_isa_avx512_core_bf16) == (int)dnnl_cpu_isa_avx512_core_bf16;
#else
    return false;
#endif
}

/* Golden Cove and what came after it: a product of 32 pairs of bf16 takes two cycles, in which two
 * products of 16 f32 each take one. Such an Intel processor has arithmetic of f16 too; the one
 * before it, whose bf16 is the faster, has not. */
static bool slow_bf16(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __builtin_cpu_is("intel") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 23 & 1;
#else
    return false;
#endif
}

/* OMP_NUM_THREADS, which launchers of ranks set, else the processors that this process may use. */
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
