/* tensor: dtypes, descriptions with strides, and eager host tensors with shared storage.
 *
 * A desc has dtype, shape and strides (in elements); a view adds the address of the first element.
 * A tensor is a counted reference to storage plus a view on it; slices share storage. Everything
 * here is host memory: device memory belongs to exec.
 *
 * Threads: reference counts are atomic, so tensors may be passed between threads; only one thread
 * at a time changes a tensor.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_TENSOR_H
#define MOONREEL_TENSOR_H

#include "moonreel/base.h"
#include "moonreel/f8_inline.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mr_dtype {
    MR_F64,
    MR_F32,
    MR_BF16,
    MR_I64,
    MR_I32,
    MR_U8,
    MR_BOOL,
    MR_F8_E4M3,
    MR_F8_E5M2,
    MR_DTYPE_COUNT
} mr_dtype;

/* "f64" "f32" "bf16" "i64" "i32" "u8" "bool" "f8_e4m3" "f8_e5m2" */
MR_API const char *mr_dtype_name(mr_dtype dtype);
MR_API mr_dtype mr_dtype_from_name(const char *name); /* MR_DTYPE_COUNT when unknown */
MR_API size_t mr_dtype_bytes(mr_dtype dtype);         /* bytes of one element */
static inline bool mr_dtype_is_float(mr_dtype d)
{
    return d <= MR_BF16 || d == MR_F8_E4M3 || d == MR_F8_E5M2;
}

/* bf16 is the upper half of an f32, rounded to nearest even; NaN stays NaN. */
static inline float mr_bf16_to_f32(uint16_t x)
{
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)x << 16};
    return v.f;
}
static inline uint16_t mr_f32_to_bf16(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {x};
    if ((v.u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(v.u >> 16 | 0x40);
    return (uint16_t)((v.u + 0x7fffu + (v.u >> 16 & 1)) >> 16);
}

/* 8-bit floats, MR_F8_E4M3 or MR_F8_E5M2: f8_inline.h describes the rounding. */
static inline int mr_f8_mantissa(mr_dtype f8)
{
    return f8 == MR_F8_E4M3 ? 3 : 2;
}
static inline float mr_f8_to_f32(mr_dtype f8, uint8_t x)
{
    return mr_f8_value(x, mr_f8_mantissa(f8));
}
static inline uint8_t mr_f32_to_f8(mr_dtype f8, float x)
{
    return mr_f8_of(x, mr_f8_mantissa(f8));
}

#define MR_MAX_RANK 8
typedef struct mr_desc {
    mr_dtype dtype;
    int rank;                    /* 0 = scalar; -1 = absent */
    int64_t dim[MR_MAX_RANK];    /* outermost first */
    int64_t stride[MR_MAX_RANK]; /* elements; 0 repeats */
} mr_desc;

typedef struct mr_view {
    void *data;
    mr_desc desc;
} mr_view;

/* No tensor is larger: the address space of a process. Sums of thousands of sizes do not overflow.
 */
#define MR_BYTES_MAX ((size_t)1 << 47)
/* Check that a tensor may have this shape. Errors: MR_E_SHAPE naming the unknown dtype, the rank
 * over MR_MAX_RANK, the negative dimension, or the shape of more than MR_BYTES_MAX bytes (a
 * dimension of 0 counts as 1). */
MR_API mr_status mr_desc_check(mr_dtype dtype, int rank, const int64_t *dim);
/* A desc with dense row-major strides; for a shape that mr_desc_check refuses it is only useful in
 * messages. */
MR_API mr_desc mr_desc_dense(mr_dtype dtype, int rank, const int64_t *dim);
MR_API int64_t mr_desc_count(const mr_desc *d); /* elements */
MR_API bool mr_desc_is_dense(const mr_desc *d); /* strides are row-major without gaps */
/* Rows: the last dimension has stride 1 (or length 1); others are free. */
MR_API bool mr_desc_is_rows(const mr_desc *d);
MR_API bool mr_desc_same_shape(const mr_desc *a, const mr_desc *b);
/* Bytes from the first element to the end of the last one; 0 if empty. */
MR_API size_t mr_desc_span_bytes(const mr_desc *d);
/* "[2,7,64] bf16" into buf; returns buf. */
MR_API const char *mr_desc_text(const mr_desc *d, char *buf, size_t cap);
/* View algebra, shared by tensors and graph values. `offset` is in elements, added to *offset.
 * Errors: MR_E_SHAPE with both shapes in the message. */
/* one dim may be -1; fails if a copy would be needed */
MR_API mr_status mr_desc_reshape(const mr_desc *d, int rank, const int64_t *dim, mr_desc *out);
MR_API mr_status mr_desc_slice(const mr_desc *d, int axis, int64_t start, int64_t stop,
                               mr_desc *out, int64_t *offset);
MR_API mr_status mr_desc_permute(const mr_desc *d, const int *order, mr_desc *out);
/* as numpy broadcast_to */
MR_API mr_status mr_desc_expand(const mr_desc *d, int rank, const int64_t *dim, mr_desc *out);

/* Read or write element at multi-index as double, any dtype. Slow: for oracles, printing, tests. */
MR_API double mr_view_get(const mr_view *v, const int64_t *index);
MR_API void mr_view_set(const mr_view *v, const int64_t *index, double x);
/* out[i] = convert(in[i]) over equal shapes; any dtypes and strides; f64 -> bf16 rounds once via
 * f32. */
MR_API mr_status mr_view_copy(const mr_view *out, const mr_view *in);

/* Eager host tensor: a view on storage that all its views share, with a thread-safe count. */
typedef struct mr_tensor mr_tensor;
/* New dense tensor, 64-byte aligned, cleared. Owns: caller, who releases it with mr_tensor_unref.
 * Errors: MR_E_SHAPE rank over MR_MAX_RANK, negative or overflowing dimension; MR_E_MEMORY */
MR_API mr_status mr_tensor_new(mr_dtype dtype, int rank, const int64_t *dim, mr_tensor **out);
/* A tensor over foreign memory; `release(user)` (may be NULL) runs when the last view is freed, and
 * never after a failure. Errors: MR_E_MEMORY */
MR_API mr_status mr_tensor_wrap(const mr_desc *desc, void *data, void (*release)(void *user),
                                void *user, mr_tensor **out);
/* A view on t's storage: shares memory, keeps it alive. `offset` in elements of desc from t's
 * first; the caller ensures that the view is inside. Errors: MR_E_MEMORY */
MR_API mr_status mr_tensor_view_new(mr_tensor *t, const mr_desc *desc, int64_t offset,
                                    mr_tensor **out);
/* the storage is freed with its last view; NULL is fine */
MR_API void mr_tensor_unref(mr_tensor *t);
MR_API const mr_view *mr_tensor_view(const mr_tensor *t); /* lent */
/* Bytes of all live tensors made by mr_tensor_new; any thread. */
MR_API size_t mr_tensor_held(void);

/* ---- statistics of many values ---- */

/* A running summary; start from {0}. min, max, sum and squares are over the finite values. */
typedef struct mr_summary {
    int64_t n, zeros, nonfinite;
    double min, max;
    long double sum, squares; /* wide enough for sums of f64 */
} mr_summary;
MR_API void mr_summary_add(mr_summary *s, const double *x, int64_t n);
MR_API double mr_summary_mean(const mr_summary *s); /* 0 when no value is finite */
MR_API double mr_summary_rms(const mr_summary *s);
/* Add every value of a view. Errors: MR_E_MEMORY; MR_E_STOPPED at the prompt. */
MR_API mr_status mr_view_summary(const mr_view *v, mr_summary *s);
/* The number of infinite and NaN values among n consecutive ones; for integers and f8: 0.
 *
 * data     [n] of the dtype, aligned as its elements
 * Threads: any */
MR_API int64_t mr_nonfinite(const void *data, mr_dtype dtype, int64_t n);
/* Add to counts[bins] the finite values of a view in [lo, hi]: bin i holds [lo + i w, lo + (i + 1)
 * w), w = (hi - lo) / bins, the last one also hi; with hi <= lo all values equal to lo are in bin
 * 0. Errors as above. */
MR_API mr_status mr_view_histogram(const mr_view *v, double lo, double hi, int bins,
                                   int64_t *counts);

/* ---- reductions ---- */

typedef enum mr_reduction {
    MR_REDUCE_SUM,
    MR_REDUCE_MEAN,
    MR_REDUCE_MAX,
    MR_REDUCE_MIN,
    MR_REDUCE_NORM /* the square root of the sum of squares */
} mr_reduction;
/* For max and min: the dtype of x. For the others: f64 for f64, f32 for other floats; for integers
 * i64 for a sum, otherwise f64. */
MR_API mr_dtype mr_reduction_dtype(mr_reduction kind, mr_dtype x);
/* Reduce x over the axes for which over[axis] is true.
 *
 * x     any dtype and strides; values are added in its order, in long double: an i64 stays exact
 * over  [rank of x]
 * out   dense, of mr_reduction_dtype; one element for each position of the other axes of x
 * A NaN makes the result NaN. The mean of no values is NaN.
 * Errors: MR_E_SHAPE max or min of no values; MR_E_MEMORY; MR_E_STOPPED at the prompt.
 * Threads: any */
MR_API mr_status mr_view_reduce(mr_reduction kind, const mr_view *x, const bool *over,
                                const mr_view *out);

#ifdef __cplusplus
}
#endif
#endif
