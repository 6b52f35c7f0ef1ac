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

struct CUstream_st;

typedef struct mr_cuda_row {
    const char *name; /* of the row in core/op */
    /* Launch on the stream: neither waits nor allocates. The call has pointers of the device.
     * Errors: MR_E_UNSUPPORTED for shapes, strides or dtypes that no launch takes. */
    mr_status (*run)(const mr_call *call, struct CUstream_st *stream);
    /* bytes of call->workspace, from shapes alone; NULL: none */
    size_t (*workspace)(const mr_call *call);
} mr_cuda_row;

/* NULL where the row has no CUDA kernel */
const mr_cuda_row *mr_cuda_row_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
