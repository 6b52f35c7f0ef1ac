/* Shared by ops that communicate between ranks: talks with equal chunks, and zero-fill on a stream.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_TALK_CUH
#define MOONREEL_CUDA_KERNELS_TALK_CUH

#include "cuda/comm/ranks.h"
#include "cuda/kernels/kernel_call.h"
#include "cuda/rt/driver.h"

// fill with zeros on the stream
static inline mr_status talk_fill(void *to, size_t bytes, cudaStream_t stream)
{
    int error = bytes ? mr_cuda.fill(to, 0, bytes, stream) : 0;
    return error ? mr_fail(MR_E_NODE, "filling with zeros: %s (CUDA error %d)", mr_cuda.text(error),
                           error)
                 : MR_OK;
}

/* Create a talk in which x is split into equal chunks, and each chunk goes to or comes from all
 * other ranks. Group 0 is this rank alone: *state is NULL. */
static inline mr_status talk_in_chunks(int64_t group, mr_comm_op op, const mr_desc *x, void **state)
{
    mr_cuda_talk *t = NULL;
    *state = NULL;
    if (!group)
        return MR_OK;
    MR_TRY(mr_cuda_talk_new(group, op, x->dtype, &t));
    t->call.count = mr_desc_count(x);
    t->call.bytes =
        (uint64_t)(t->call.count / t->size) * mr_dtype_bytes(x->dtype) * (uint64_t)(t->size - 1);
    if (t->call.count % t->size) {
        mr_status st =
            mr_fail(MR_E_SHAPE, "%lld elements do not divide into equal chunks for %d ranks",
                    (long long)t->call.count, t->size);
        mr_cuda_talk_free(t);
        return st;
    }
    *state = t;
    return MR_OK;
}

#endif
