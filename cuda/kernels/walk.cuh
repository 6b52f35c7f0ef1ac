/* Iterates over several views of the same shape: maps an element index to its offset in each view.
 *
 * The host sorts dimensions by the strides of the first view and joins dimensions that are
 * contiguous in all views. If all views are dense, one dimension remains, and no division is
 * needed.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_WALK_CUH
#define MOONREEL_CUDA_KERNELS_WALK_CUH

#include "cuda/kernels/kernel_call.h"

template <int VIEWS> struct Walk {
    int rank; // at least 1
    uint32_t dim[MR_MAX_RANK];
    int64_t stride[VIEWS][MR_MAX_RANK]; // in elements

    // offsets of element i, i < 2^32
    MR_MEMBER void at(uint32_t i, int64_t (&offset)[VIEWS]) const
    {
#pragma unroll
        for (int v = 0; v < VIEWS; v++)
            offset[v] = 0;
        for (int d = rank - 1; d > 0; d--) {
            uint32_t rest = i / dim[d];
#pragma unroll
            for (int v = 0; v < VIEWS; v++)
                offset[v] += (int64_t)(i - rest * dim[d]) * stride[v][d];
            i = rest;
        }
#pragma unroll
        for (int v = 0; v < VIEWS; v++)
            offset[v] += (int64_t)i * stride[v][0];
    }
};

/* Make the walk over the first `dims` dimensions of the views, *count elements. False: a dimension
 * or the product of all does not fit in 32 bits. */
template <int VIEWS>
static bool walk_of(const mr_desc *const (&view)[VIEWS], int dims, Walk<VIEWS> *w, int64_t *count)
{
    int order[MR_MAX_RANK], n = 0;
    *count = 1;
    for (int d = 0; d < dims; d++) {
        *count *= view[0]->dim[d];
        if (view[0]->dim[d] == 1)
            continue;
        // sort by descending stride of the first view; equal strides keep their order
        int at = n++;
        for (; at > 0 && view[0]->stride[order[at - 1]] < view[0]->stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    w->rank = 0;
    for (int k = 0; k < n; k++) {
        int64_t size = view[0]->dim[order[k]];
        bool one = w->rank > 0;
        for (int v = 0; v < VIEWS && one; v++)
            one = w->stride[v][w->rank - 1] == view[v]->stride[order[k]] * size;
        if (one && (int64_t)w->dim[w->rank - 1] * size > UINT32_MAX)
            one = false;
        if (size > UINT32_MAX)
            return false;
        int to = one ? w->rank - 1 : w->rank++;
        w->dim[to] = (uint32_t)(one ? w->dim[to] * size : size);
        for (int v = 0; v < VIEWS; v++)
            w->stride[v][to] = view[v]->stride[order[k]];
    }
    if (w->rank == 0) {
        w->rank = 1;
        w->dim[0] = 1;
        for (int v = 0; v < VIEWS; v++)
            w->stride[v][0] = 1;
    }
    return *count <= UINT32_MAX;
}

static inline mr_status walk_too_large(int64_t count)
{
    return mr_fail(MR_E_UNSUPPORTED, "%lld elements, expected fewer than 2^32", (long long)count);
}

#endif
