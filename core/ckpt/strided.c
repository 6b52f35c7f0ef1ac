/* ckpt: gathers the elements of a strided tensor in row-major order. Licence: Apache-2.0 */
#include "ckpt/torch.h"

#include <string.h>

/* Copies n elements at a distance of `stride` elements. */
static void copy_run(const char *from, size_t size, int64_t stride, int64_t n, char *out)
{
    if (stride == 1) {
        memcpy(out, from, size * (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(out + (size_t)i * size, from + i * stride * (int64_t)size, size);
}

void mr_strided_gather(const void *first, size_t size, int rank, const int64_t *shape,
                       const int64_t *stride, int64_t from, int64_t n, void *out)
{
    if (rank == 0) {
        memcpy(out, first, size * (size_t)n);
        return;
    }
    // index of the first requested element, and its offset
    int64_t index[MR_ST_RANK_MAX], at = 0;
    for (int d = rank - 1; d >= 0; d--) {
        index[d] = from % shape[d];
        from /= shape[d];
        at += index[d] * stride[d];
    }
    // copy row by row: the rest of the last dimension, then increment the dimensions before it
    int last = rank - 1;
    for (char *to = out; n > 0;) {
        int64_t run = MR_MIN(shape[last] - index[last], n);
        copy_run((const char *)first + at * (int64_t)size, size, stride[last], run, to);
        to += run * (int64_t)size, n -= run;
        at -= index[last] * stride[last], index[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            at += stride[d];
            if (++index[d] < shape[d])
                break;
            at -= shape[d] * stride[d], index[d] = 0;
        }
    }
}
