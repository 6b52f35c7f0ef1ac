/* cpu: chunks over an OpenMP team. Licence: Apache-2.0 */
#include "cpu/cpu.h"

#ifdef _OPENMP
#include <omp.h>
#endif

void mr_cpu_for(int64_t n, int64_t grain, int threads, mr_cpu_body *body, void *user)
{
    int64_t chunks = (n + grain - 1) / grain;
#ifdef _OPENMP
    if (chunks > 1 && threads > 1 && !omp_in_parallel()) {
        int team = (int)MR_MIN((int64_t)threads, chunks);
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
        for (int64_t i = 0; i < chunks; i++)
            if (!mr_interrupt_get())
                body(user, i * grain, MR_MIN(n, (i + 1) * grain), omp_get_thread_num());
        return;
    }
#else
    (void)threads;
#endif
    for (int64_t i = 0; i < chunks && !mr_interrupt_get(); i++)
        body(user, i * grain, MR_MIN(n, (i + 1) * grain), 0);
}
