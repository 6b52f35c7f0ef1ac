/* Operands of products that a library cannot read in place: copies of them in the workspace.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_GATHER_CUH
#define MOONREEL_CUDA_KERNELS_GATHER_CUH

#include "cuda/gemm/product.h"
#include "cuda/kernels/copy.cuh"

// the workspace of a product, handed out piece by piece
struct Aside {
    char *at;
    size_t bytes;

    // a dense view with the shape of v, in the workspace
    mr_view dense(const mr_view *v)
    {
        mr_view to = {at ? at + bytes : NULL,
                      mr_desc_dense(v->desc.dtype, v->desc.rank, v->desc.dim)};
        bytes += (mr_desc_span_bytes(&to.desc) + 255) & ~(size_t)255;
        return to;
    }
};

// the step from row to row of [..., C]; 0 where leading dimensions do not join into one
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
