/* cuda/rt: steps without a kernel. Their arguments are copied to pinned memory, the host runs the
 * naive kernel in stream order, and the outputs are copied back. This is slow but correct, and can
 * be captured like any launch. Licence: Apache-2.0 */
#include "room.h"

#include <string.h>

static size_t room_of(const mr_arg *a)
{
    return a->desc ? (mr_desc_span_bytes(a->desc) + 63) & ~(size_t)63 : 0;
}

// the call with addresses in host memory
static void host_call(const host_step *h, mr_call *call)
{
    mr_step_call(h->step, call);
    for (int i = 0; i < h->step->n_in; i++)
        call->in[i].data = h->step->arg[i].desc ? h->at[i] : NULL;
    for (int k = 0; k < h->step->n_out; k++)
        call->out[k].data = h->step->arg[h->step->n_in + k].desc ? h->at[h->step->n_in + k] : NULL;
    call->workspace = h->workspace;
}

mr_status host_step_new(rt *rt, const mr_step *step, host_step **out)
{
    host_step *h;
    if (!MR_NEW(h))
        return mr_fail_memory(sizeof *h);
    h->step = step, h->rt = rt;
    mr_call call;
    mr_step_call(step, &call);
    size_t bytes = mr_op_naive_workspace(step->op, &call), at = (bytes + 63) & ~(size_t)63;
    size_t offset[MR_MAX_IN + MR_MAX_OUT];
    for (int i = 0; i < step->n_in + step->n_out; i++)
        offset[i] = at, at += room_of(&step->arg[i]);
    mr_status st = cuda_fail(mr_cuda.alloc(MR_MAX(at, 64), true, &h->memory),
                             "pinned memory for a step without a CUDA kernel");
    if (st != MR_OK) {
        mr_free(h);
        return st;
    }
    h->workspace = h->memory;
    for (int i = 0; i < step->n_in + step->n_out; i++)
        h->at[i] = (char *)h->memory + offset[i];
    *out = h;
    return MR_OK;
}

void host_step_free(host_step *h)
{
    if (!h)
        return;
    mr_cuda.release(h->memory, true);
    mr_free(h);
}

static void run(void *user)
{
    host_step *h = user;
    mr_call call;
    host_call(h, &call);
    rt_failed(h->rt, blame(h->step, mr_op_run_naive(h->step->op, &call)));
}

mr_status host_step_enqueue(host_step *h, void *stream)
{
    const mr_step *s = h->step;
    // outputs are copied in too, so that bytes between their elements keep their values
    for (int i = 0; i < s->n_in + s->n_out; i++)
        if (s->arg[i].desc)
            CUDA_TRY(mr_cuda.copy(h->at[i], (void *)s->arg[i].at,
                                  mr_desc_span_bytes(s->arg[i].desc), stream),
                     "copy to the host");
    CUDA_TRY(mr_cuda.call(run, h, stream), "a step on the host");
    for (int k = s->n_in; k < s->n_in + s->n_out; k++)
        if (s->arg[k].desc)
            CUDA_TRY(mr_cuda.copy((void *)s->arg[k].at, h->at[k],
                                  mr_desc_span_bytes(s->arg[k].desc), stream),
                     "copy from the host");
    return MR_OK;
}
