/* The ops of core/op that have a CUDA kernel. The linker collects this table, like the table of
 * ops.
 *
 * Threads: entries are constant, any thread may read them.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_TABLE_H
#define MOONREEL_CUDA_KERNELS_TABLE_H

#include "moonreel/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_cuda_kernel {
    const char *name; /* name of the op in core/op */
    /* run[0] launches on call->stream. It neither waits nor allocates. The call has device
     * pointers. Errors: MR_E_UNSUPPORTED for shapes, strides or dtypes that no kernel supports. */
    mr_kernel kernel;
    /* Called after a run: reports bad values that kernels found in the inputs. NULL: nothing to
     * check. */
    mr_status (*check)(void *state);
} mr_cuda_kernel;

/* NULL if the op has no CUDA kernel */
const mr_cuda_kernel *mr_cuda_kernel_find(const char *name);
/* all entries, in linker order */
int mr_cuda_kernel_count(void);
const mr_cuda_kernel *mr_cuda_kernel_at(int i);

#ifdef __cplusplus
}
#endif
#endif
