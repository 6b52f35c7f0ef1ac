/* cpu: chooses the instruction set of the kernels. Licence: Apache-2.0 */
#include "cpu/cpu.h"

#include <pthread.h>
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
    // sm_90a is a variant of its own: its code runs on no other GPU
    return strcmp(name, "9.0") == 0 ? 1 : -1;
}

bool mr_cpu_bf16(void)
{
#if defined(MR_HAVE_ONEDNN) && defined(__x86_64__)
    // check this first: a query of oneDNN freezes its limit, which MOONREEL_ISA can lower until
    // then
    if (mr_isa() < 2)
        return false;
    // below this instruction set, oneDNN rejects bf16 or emulates it
    int isa = (int)dnnl_get_effective_cpu_isa();
    return (isa & (int)dnnl_cpu_isa_avx512_core_bf16) == (int)dnnl_cpu_isa_avx512_core_bf16;
#else
    return false;
#endif
}
