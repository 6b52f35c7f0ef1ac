/* cuda/rt: driver errors as messages: what happened and what to try. Licence: Apache-2.0 */
#include "room.h"

#include <pthread.h>

typedef struct advice {
    int error;
    mr_status code;
    const char *try;
} advice;

static const advice advices[] = {
    {MR_CUDA_MEMORY, MR_E_MEMORY,
     "a smaller batch, or recomputation; other processes on this GPU use memory too"},
    {MR_CUDA_OLD_DRIVER, MR_E_UNSUPPORTED, "a newer driver, or device=cpu"},
    {MR_CUDA_UNAVAILABLE, MR_E_NODE, "another GPU, as in device=cuda:1; this one is busy or lost"},
    {MR_CUDA_NO_DEVICE, MR_E_UNSUPPORTED,
     "nvidia-smi lists the GPUs that the driver sees; CUDA_VISIBLE_DEVICES may hide it; or "
     "device=cpu"},
    {MR_CUDA_BAD_ORDINAL, MR_E_USAGE, "nvidia-smi lists the GPUs, the first is cuda:0"},
    {MR_CUDA_NO_IMAGE, MR_E_UNSUPPORTED, "a plug-in that is built for this GPU, see make cuda"},
    {MR_CUDA_ECC, MR_E_NODE,
     "another GPU; a memory error that cannot be corrected needs a reset of this one"},
    {MR_CUDA_ILLEGAL_ADDRESS, MR_E_NODE, "MOONREEL_SYNC=1 names the step"},
    {MR_CUDA_LAUNCH_FAILURE, MR_E_NODE, "MOONREEL_SYNC=1 names the step"},
    {MR_CUDA_NOT_PERMITTED, MR_E_NODE, "another GPU; this one is in exclusive use"},
};

mr_status cuda_fail(int error, const char *doing)
{
    if (!error)
        return MR_OK;
    for (size_t i = 0; i < MR_COUNT(advices); i++)
        if (advices[i].error == error)
            return mr_fail(advices[i].code, "%s: %s (CUDA error %d); try: %s", doing,
                           mr_cuda.text(error), error, advices[i].try);
    return mr_fail(MR_E_NODE,
                   "%s: %s (CUDA error %d); try: dmesg shows Xid errors of the GPU; the newest "
                   "checkpoint is intact",
                   doing, mr_cuda.text(error), error);
}

mr_status blame(const mr_step *s, mr_status st)
{
    if (st != MR_OK && s->node)
        mr_fail_where(s->op ? s->op->name : "copy", s->node->name, s->node->origin);
    else if (st != MR_OK && s->op)
        mr_fail_where(s->op->name, NULL, NULL);
    return st;
}

// ---- failures of a device ----

/* Keep the newest error for the next report, unless an earlier failure is kept. Host functions call
 * this from threads of the driver. */
static pthread_mutex_t failing = PTHREAD_MUTEX_INITIALIZER;
void rt_failed(rt *rt, mr_status st)
{
    if (st == MR_OK)
        return;
    pthread_mutex_lock(&failing);
    if (rt->failed == MR_OK)
        rt->failed = st, rt->error = mr_error_copy(mr_error_last());
    pthread_mutex_unlock(&failing);
}

mr_status rt_report_failure(rt *rt)
{
    if (rt->error)
        mr_error_adopt(rt->error);
    else if (rt->failed != MR_OK)
        mr_fail(rt->failed, "a step failed, and there was no memory for its error report");
    return rt->failed;
}
