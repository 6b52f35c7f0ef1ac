/* onednn: the engine that all users of the library share, and its team. Licence: Apache-2.0 */
#ifdef MR_HAVE_ONEDNN
#include "cpu/onednn.h"

#include "cpu/cpu.h"

#include <pthread.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static dnnl_engine_t engine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void)
{
    if (mr_isa() == 1)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
}

dnnl_engine_t onednn_engine(void)
{
    pthread_once(&once, start);
    return engine;
}

int onednn_team(int threads)
{
#ifdef _OPENMP
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
    return before;
#else
    return threads;
#endif
}
#else
typedef int mr_onednn_absent; // built without the library: nothing to share
#endif
