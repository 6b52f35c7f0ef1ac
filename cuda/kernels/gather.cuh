/* Makes dense copies in the workspace of product operands that cuBLASLt cannot read in place.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_GATHER_CUH
#define MOONREEL_CUDA_KERNELS_GATHER_CUH

#include "cuda/gemm/product.h"
#include "cuda/kernels/copy.cuh"

// allocates parts of a product's workspace
struct Aside {
    char *at;
    size_t bytes;

    // a dense view in the workspace with the shape of v
    mr_view dense(const mr_view *v)
    {
        mr_view to = {at ? at + bytes : NULL,
                      mr_desc_dense(v->desc.dtype, v->desc.rank, v->desc.dim)};
        bytes += (mr_desc_span_bytes(&to.desc) + 255) & ~(size_t)255;
        return to;
    }
};

// the step between rows of [..., C]; 0 if the leading dimensions do not join into one
static inline int64_t row_step(const mr_desc *d)
{
    int64_t C = d->dim[d->rank - 1], step = C, rows = 1;
    for (int i = 0; i < d->rank - 1; i++) {
        if (d->dim[i] == 1)
            continue;
        if (rows > 1 && step != d->stride[i] * d->dim[i])
            return 0;
        step = d->stride[i];
        rows *= d->dim[i];
    }
    if (rows == 1)
        return C;
    return step < C || (C > 1 && d->stride[d->rank - 1] != 1) ? 0 : step;
}

#endif
