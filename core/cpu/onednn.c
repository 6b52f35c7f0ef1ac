/* onednn: what all users of oneDNN share: the engine, its team of threads, copies between memory
 * formats.
 * Licence: Apache-2.0 */
#ifdef MR_HAVE_ONEDNN
#include "cpu/onednn.h"

#include "cpu/cpu.h"

#include <pthread.h>
#include <omp.h>

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
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
    return before;
}

dnnl_status_t onednn_reorder(dnnl_primitive_t *out, onednn_md from, onednn_md to, bool add)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = dnnl_primitive_attr_create(&attr);
    if (st == dnnl_success && add && (st = dnnl_post_ops_create(&ops)) == dnnl_success &&
        (st = onednn_add_sum(ops)) == dnnl_success)
        st = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (st == dnnl_success)
        st = dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr);
    if (st == dnnl_success)
        st = dnnl_primitive_create(out, pd);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return st;
}

dnnl_status_t onednn_run(dnnl_primitive_t primitive, const onednn_operand *operands, size_t n)
{
    enum { MOST = 5 };
    dnnl_exec_arg_t args[MOST];
    dnnl_stream_t stream = NULL;
    const_dnnl_primitive_desc_t pd;
    int made = 0;
    dnnl_status_t st = dnnl_primitive_get_primitive_desc(primitive, &pd);
    for (size_t i = 0; st == dnnl_success && i < n; i++) {
        if (!operands[i].data)
            continue;
        dnnl_exec_arg_t *a = &args[made];
        a->arg = operands[i].arg;
        st = dnnl_memory_create(&a->memory,
                                dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, a->arg),
                                engine, (void *)(uintptr_t)operands[i].data);
        made += st == dnnl_success;
    }
    if (st == dnnl_success)
        st = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    if (st == dnnl_success)
        st = dnnl_primitive_execute(primitive, stream, made, args);
    if (st == dnnl_success)
        st = dnnl_stream_wait(stream);
    if (stream)
        dnnl_stream_destroy(stream);
    while (made)
        dnnl_memory_destroy(args[--made].memory);
    return st;
}
#else
typedef int mr_onednn_absent; // built without oneDNN: the file must not be empty
#endif
