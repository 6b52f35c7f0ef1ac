/* tensor: computes sums, means, extremes and norms over some of the axes. Licence: Apache-2.0 */
#include "moonreel/tensor.h"

#include <math.h>

/* Precise enough for sums of f64, and exact for every i64. */
typedef long double wide;
enum { LINE = 1024, LOOK_EVERY = 1 << 18 };

/* Some axes of a view: their lengths and strides, in elements. */
typedef struct axes {
    int n;
    int64_t dim[MR_MAX_RANK], stride[MR_MAX_RANK];
} axes;

static void add_axis(axes *a, const mr_desc *d, int axis)
{
    a->dim[a->n] = d->dim[axis], a->stride[a->n++] = d->stride[axis];
}

static int64_t positions(const axes *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->n; i++)
        n *= a->dim[i];
    return n;
}

/* The offset, in elements, of position `at`; the last axis varies fastest. */
static int64_t offset_of(const axes *a, int64_t at)
{
    int64_t offset = 0;
    for (int i = a->n - 1; i >= 0; i--) {
        offset += at % a->dim[i] * a->stride[i];
        at /= a->dim[i];
    }
    return offset;
}

/* Load n values from `offset` on, with `stride`. */
static void load(const mr_view *v, int64_t offset, int64_t stride, int64_t n, wide *x)
{
#define LOAD(type, value)                                                                          \
    do {                                                                                           \
        const type *p = (const type *)v->data + offset;                                            \
        for (int64_t i = 0; i < n; i++, p += stride)                                               \
            x[i] = (wide)(value);                                                                  \
    } while (0)
    switch (v->desc.dtype) {
    case MR_F64: LOAD(double, *p); break;
    case MR_F32: LOAD(float, *p); break;
    case MR_BF16: LOAD(uint16_t, mr_bf16_to_f32(*p)); break;
    case MR_I64: LOAD(int64_t, *p); break;
    case MR_I32: LOAD(int32_t, *p); break;
    case MR_U8: LOAD(uint8_t, *p); break;
    case MR_BOOL: LOAD(uint8_t, *p != 0); break;
    case MR_F8_E4M3:
    case MR_F8_E5M2: LOAD(uint8_t, mr_f8_to_f32(v->desc.dtype, *p)); break;
    case MR_DTYPE_COUNT: break;
    }
#undef LOAD
}

/* Accumulate n values. With step 0 all go into one sum, with step 1 value i goes into sum i. */
static void fold(mr_reduction kind, const wide *x, int64_t n, wide *sum, int64_t step)
{
    switch (kind) {
    case MR_REDUCE_SUM:
    case MR_REDUCE_MEAN:
        for (int64_t i = 0; i < n; i++)
            sum[i * step] += x[i];
        break;
    case MR_REDUCE_NORM:
        for (int64_t i = 0; i < n; i++)
            sum[i * step] += x[i] * x[i];
        break;
    // NaN replaces any other value, and stays
    case MR_REDUCE_MAX:
        for (int64_t i = 0; i < n; i++)
            if (!isnan(sum[i * step]) && !(x[i] <= sum[i * step]))
                sum[i * step] = x[i];
        break;
    case MR_REDUCE_MIN:
        for (int64_t i = 0; i < n; i++)
            if (!isnan(sum[i * step]) && !(x[i] >= sum[i * step]))
                sum[i * step] = x[i];
        break;
    }
}

static wide first_of(mr_reduction kind)
{
    return kind == MR_REDUCE_MAX ? -INFINITY : kind == MR_REDUCE_MIN ? INFINITY : 0;
}

static wide last_of(mr_reduction kind, wide sum, int64_t n)
{
    return kind == MR_REDUCE_MEAN ? sum / (wide)n : kind == MR_REDUCE_NORM ? sqrtl(sum) : sum;
}

/* Store element `at` of the dense `out`. */
static void store(const mr_view *out, int64_t at, wide x)
{
    if (out->desc.dtype == MR_I64) {
        ((int64_t *)out->data)[at] = (int64_t)x;
        return;
    }
    int64_t n = mr_desc_count(&out->desc);
    mr_view flat = {out->data, mr_desc_dense(out->desc.dtype, 1, &n)};
    mr_view_set(&flat, &at, (double)x);
}

mr_dtype mr_reduction_dtype(mr_reduction kind, mr_dtype x)
{
    if (kind == MR_REDUCE_MAX || kind == MR_REDUCE_MIN)
        return x;
    if (mr_dtype_is_float(x))
        return x == MR_F64 ? MR_F64 : MR_F32;
    return kind == MR_REDUCE_SUM ? MR_I64 : MR_F64;
}

/* One call. `across` computes many results at once, along the last kept axis; `along` computes one
 * result at a time, along the last reduced axis. The axis with the smaller stride decides, so that
 * reads are as contiguous as possible. */
typedef struct job {
    mr_reduction kind;
    const mr_view *x, *out;
    axes keep, drop;
    wide line[LINE], sum[LINE];
    int64_t seen; /* values since the last check for Ctrl-C */
} job;

static mr_status look(job *j, int64_t n)
{
    if ((j->seen += n) < LOOK_EVERY)
        return MR_OK;
    j->seen = 0;
    return mr_interrupt_check();
}

/* Compute `n` results from number `at` on. In x they are `stride` apart, from `offset` on. */
static mr_status line_of_results(job *j, int64_t at, int64_t n, int64_t offset, int64_t stride)
{
    int64_t each = positions(&j->drop);
    for (int64_t i = 0; i < n; i++)
        j->sum[i] = first_of(j->kind);
    for (int64_t r = 0; r < each; r++) {
        load(j->x, offset + offset_of(&j->drop, r), stride, n, j->line);
        fold(j->kind, j->line, n, j->sum, 1);
        MR_TRY(look(j, n));
    }
    for (int64_t i = 0; i < n; i++)
        store(j->out, at + i, last_of(j->kind, j->sum[i], each));
    return MR_OK;
}

static mr_status across(job *j)
{
    int last = j->keep.n - 1;
    int64_t length = j->keep.dim[last], stride = j->keep.stride[last], n = positions(&j->keep);
    for (int64_t at = 0; at < n;) {
        int64_t in_row = at % length, part = MR_MIN(length - in_row, (int64_t)LINE);
        MR_TRY(line_of_results(j, at, part, offset_of(&j->keep, at), stride));
        at += part;
    }
    return MR_OK;
}

static mr_status along(job *j)
{
    axes outer = j->drop;
    int64_t each = positions(&j->drop), length = 1, stride = 1;
    if (outer.n)
        outer.n--, length = outer.dim[outer.n], stride = outer.stride[outer.n];
    int64_t rows = each ? positions(&outer) : 0;
    for (int64_t at = 0; at < positions(&j->keep); at++) {
        wide sum = first_of(j->kind);
        int64_t first = offset_of(&j->keep, at);
        for (int64_t r = 0; r < rows; r++) {
            int64_t row = first + offset_of(&outer, r);
            for (int64_t i = 0; i < length; i += LINE) {
                int64_t part = MR_MIN(length - i, (int64_t)LINE);
                load(j->x, row + i * stride, stride, part, j->line);
                fold(j->kind, j->line, part, &sum, 0);
                MR_TRY(look(j, part));
            }
        }
        store(j->out, at, last_of(j->kind, sum, each));
    }
    return MR_OK;
}

mr_status mr_view_reduce(mr_reduction kind, const mr_view *x, const bool *over, const mr_view *out)
{
    job *j;
    if (!MR_NEW(j))
        return mr_fail_memory(sizeof *j);
    j->kind = kind, j->x = x, j->out = out;
    for (int i = 0; i < x->desc.rank; i++)
        add_axis(over[i] ? &j->drop : &j->keep, &x->desc, i);
    bool extreme = kind == MR_REDUCE_MAX || kind == MR_REDUCE_MIN;
    mr_status st = MR_OK;
    if (extreme && positions(&j->drop) == 0 && positions(&j->keep) > 0)
        st = mr_fail(MR_E_SHAPE,
                     "cannot take max or min of no values; expected axes of length 1 or more");
    else if (j->keep.n && j->drop.n &&
             j->keep.stride[j->keep.n - 1] < j->drop.stride[j->drop.n - 1])
        st = across(j);
    else
        st = along(j);
    mr_free(j);
    return st;
}
