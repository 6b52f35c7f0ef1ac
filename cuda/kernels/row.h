/* The rows of core/op that have a CUDA kernel, gathered by the linker like the rows themselves.
 *
 * Threads: rows are constant and may be read by any.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_ROW_H
#define MOONREEL_CUDA_KERNELS_ROW_H

#include "moonreel/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_cuda_row {
    const char *name; /* of the row in core/op */
    /* run[0] launches on call->stream: neither waits nor allocates; the call has pointers of the
     * device. Errors: MR_E_UNSUPPORTED for shapes, strides or dtypes that no launch takes. */
    mr_kernel kernel;
    /* What kernels found in the values of a call, asked when they have run; NULL: nothing. */
    mr_status (*check)(void *state);
} mr_cuda_row;

/* NULL where the row has no CUDA kernel */
const mr_cuda_row *mr_cuda_row_find(const char *name);
/* all of them, in the order of the linker */
int mr_cuda_row_count(void);
const mr_cuda_row *mr_cuda_row_at(int i);

#ifdef __cplusplus
}
#endif
#endif
