/* rows: iterates over the rows (last dimension) of several views of one shape; accesses elements
 * for naive kernels; computes dense strides in the order of another view.
 *
 * Positions are plain data: each chunk of a kernel has its own. Threads: any.
 * Licence: Apache-2.0 */
#ifndef MR_ROWS_H
#define MR_ROWS_H

#include "cpu/cpu.h"

/* A loop over the dimensions before the last, ordered and merged as mr_loop_init does. */
typedef struct mr_rows {
    mr_loop loop;
    int64_t count; /* number of rows */
} mr_rows;
/* `descs` have equal leading dimensions; the last may differ in length. n_args <= MR_LOOP_ARGS. */
void mr_rows_init(mr_rows *rows, const mr_desc *const *descs, int n_args);

/* A position: the index of a row, and its first element in each argument. */
typedef struct mr_rows_pos {
    int64_t index[MR_MAX_RANK], at[MR_LOOP_ARGS];
} mr_rows_pos;
void mr_rows_seek(const mr_rows *rows, int64_t row, mr_rows_pos *pos);
static inline void mr_rows_next(const mr_rows *rows, mr_rows_pos *pos)
{
    const mr_loop *l = &rows->loop;
    for (int k = l->rank - 1; k >= 0; k--) {
        for (int a = 0; a < l->n_args; a++)
            pos->at[a] += l->stride[a][k];
        if (++pos->index[k] < l->dim[k])
            return;
        for (int a = 0; a < l->n_args; a++)
            pos->at[a] -= l->dim[k] * l->stride[a][k];
        pos->index[k] = 0;
    }
}

/* Prefetch the cache lines of n dense elements from `at` on. Processors prefetch consecutive lines
 * themselves, but not heads with a stride. `at` can be past the end: a prefetch never fails. */
enum { MR_ROWS_AHEAD = 16 };
static inline void mr_fetch(const mr_view *v, int64_t at, int64_t n, bool to_write)
{
    uintptr_t size = mr_dtype_bytes(v->desc.dtype), p = (uintptr_t)v->data + (uintptr_t)at * size;
    for (uintptr_t end = p + (uintptr_t)n * size; p < end; p += MR_CACHE_LINE) {
        if (to_write)
            __builtin_prefetch((const void *)p, 1);
        else
            __builtin_prefetch((const void *)p, 0);
    }
}

/* Set the strides of `out` (whose dtype, rank and dims are set): dense, in the order of the strides
 * of `like`; the last dimension stays innermost. For `infer` of ops whose output has the order of
 * x. */
void mr_desc_dense_like(const mr_desc *like, mr_desc *out);

/* An element of an f64 view, for naive kernels; indices beyond the rank are ignored. */
static inline double *mr_el(const mr_view *v, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e)
{
    const int64_t i[5] = {a, b, c, d, e};
    int64_t at = 0;
    for (int k = 0; k < v->desc.rank && k < 5; k++)
        at += i[k] * v->desc.stride[k];
    return (double *)v->data + at;
}

/* Whether an optional argument is given. */
static inline bool mr_given(const mr_view *v)
{
    return v->desc.rank >= 0;
}

#endif
