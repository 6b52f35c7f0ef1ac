/* tensor: shapes, strides and the algebra of views. Licence: Apache-2.0 */
#include "moonreel/tensor.h"

#include <stdio.h>
#include <string.h>

// an overflow wraps around; mr_desc_check reports such sizes
static int64_t times(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

mr_status mr_desc_check(mr_dtype dtype, int rank, const int64_t *dim)
{
    if (rank < 0 || rank > MR_MAX_RANK)
        return mr_fail(MR_E_SHAPE, "rank %d is not in 0..%d", rank, MR_MAX_RANK);
    size_t bytes = mr_dtype_bytes(dtype);
    if (!bytes)
        return mr_fail(MR_E_SHAPE, "dtype %d does not exist; expected 0 to %d", (int)dtype,
                       MR_DTYPE_COUNT - 1);
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0)
            return mr_fail(MR_E_SHAPE, "dimension %d is %lld, expected 0 or more", i,
                           (long long)dim[i]);
        if ((uint64_t)dim[i] > MR_BYTES_MAX / bytes) {
            mr_desc d = mr_desc_dense(dtype, rank, dim);
            char text[256];
            return mr_fail(MR_E_SHAPE, "%s is too large; expected at most %zu bytes",
                           mr_desc_text(&d, text, sizeof text), MR_BYTES_MAX);
        }
        bytes *= (size_t)MR_MAX(dim[i], (int64_t)1);
    }
    return MR_OK;
}

static void dense_strides(mr_desc *d)
{
    int64_t step = 1;
    for (int i = d->rank - 1; i >= 0; i--)
        d->stride[i] = step, step = times(step, d->dim[i]);
}

mr_desc mr_desc_dense(mr_dtype dtype, int rank, const int64_t *dim)
{
    mr_desc d = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        d.dim[i] = dim[i];
    dense_strides(&d);
    return d;
}

int64_t mr_desc_count(const mr_desc *d)
{
    int64_t n = d->rank >= 0;
    for (int i = 0; i < d->rank; i++)
        n = times(n, d->dim[i]);
    return n;
}

bool mr_desc_is_dense(const mr_desc *d)
{
    int64_t step = 1;
    for (int i = d->rank - 1; i >= 0; i--) {
        if (d->dim[i] != 1 && d->stride[i] != step)
            return false;
        step *= d->dim[i];
    }
    return true;
}

bool mr_desc_is_rows(const mr_desc *d)
{
    return d->rank == 0 || d->dim[d->rank - 1] == 1 || d->stride[d->rank - 1] == 1;
}

bool mr_desc_same_shape(const mr_desc *a, const mr_desc *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

size_t mr_desc_span_bytes(const mr_desc *d)
{
    int64_t last = 0;
    for (int i = 0; i < d->rank; i++) {
        if (d->dim[i] == 0)
            return 0;
        last += (d->dim[i] - 1) * d->stride[i];
    }
    return d->rank < 0 ? 0 : (size_t)(last + 1) * mr_dtype_bytes(d->dtype);
}

const char *mr_desc_text(const mr_desc *d, char *buf, size_t cap)
{
    size_t n = 0;
#define PUT(...) n += (size_t)snprintf(n < cap ? buf + n : NULL, n < cap ? cap - n : 0, __VA_ARGS__)
    if (d->rank < 0)
        PUT("none");
    else {
        PUT("[");
        for (int i = 0; i < d->rank; i++)
            PUT(i ? ", %lld" : "%lld", (long long)d->dim[i]);
        PUT("] %s", mr_dtype_name(d->dtype));
    }
#undef PUT
    return buf;
}

static mr_status misfit(const mr_desc *d, const char *verb, int rank, const int64_t *dim,
                        const char *why)
{
    char a[128], b[128];
    mr_desc want = mr_desc_dense(d->dtype, rank, dim);
    return mr_fail(MR_E_SHAPE, "cannot %s %s to %s: %s", verb, mr_desc_text(d, a, sizeof a),
                   mr_desc_text(&want, b, sizeof b), why);
}

mr_status mr_desc_reshape(const mr_desc *d, int rank, const int64_t *dim, mr_desc *out)
{
    if (rank < 0 || rank > MR_MAX_RANK)
        return mr_fail(MR_E_SHAPE, "cannot reshape to rank %d; expected 0 to %d", rank,
                       MR_MAX_RANK);
    int64_t full[MR_MAX_RANK], known = 1, have = mr_desc_count(d);
    int hole = -1;
    for (int i = 0; i < rank; i++) {
        full[i] = dim[i];
        if (dim[i] == -1 && hole < 0)
            hole = i;
        else if (dim[i] < 0)
            return misfit(d, "reshape", rank, dim, "only one dimension may be -1");
        else if (dim[i] && known > INT64_MAX / dim[i])
            return misfit(d, "reshape", rank, dim, "expected the same number of elements");
        else
            known *= dim[i];
    }
    if (hole >= 0) {
        if (known == 0 || have % known)
            return misfit(d, "reshape", rank, dim,
                          "the number of elements is not a multiple of the other dimensions");
        full[hole] = have / known, known = have;
    }
    if (known != have)
        return misfit(d, "reshape", rank, dim, "expected the same number of elements");
    mr_desc r = mr_desc_dense(d->dtype, rank, full);
    if (have == 0 || mr_desc_is_dense(d)) {
        *out = r;
        return MR_OK;
    }
    // match groups of old and new dimensions with equal products; the old dimensions of a group
    // must be dense
    mr_desc s = {.dtype = d->dtype, .rank = 0};
    for (int i = 0; i < d->rank; i++)
        if (d->dim[i] != 1)
            s.dim[s.rank] = d->dim[i], s.stride[s.rank++] = d->stride[i];
    int i = 0, j = 0;
    while (j < rank) {
        if (r.dim[j] == 1) {
            r.stride[j] = 1;
            j++;
            continue;
        }
        int i0 = i, j0 = j;
        int64_t a = s.dim[i++], b = r.dim[j++];
        while (a != b) {
            if (a < b)
                a *= s.dim[i++];
            else
                b *= r.dim[j++];
        }
        for (int k = i0; k + 1 < i; k++)
            if (s.stride[k] != s.stride[k + 1] * s.dim[k + 1])
                return misfit(d, "view", rank, full,
                              "its strides do not allow it; try: copy it first");
        int64_t step = s.stride[i - 1];
        for (int k = j - 1; k >= j0; k--)
            r.stride[k] = step, step *= r.dim[k];
    }
    *out = r;
    return MR_OK;
}

mr_status mr_desc_slice(const mr_desc *d, int axis, int64_t start, int64_t stop, mr_desc *out,
                        int64_t *offset)
{
    char text[128];
    if (axis < 0 || axis >= d->rank)
        return mr_fail(MR_E_SHAPE, "slice of %s: axis %d is not in 0..%d",
                       mr_desc_text(d, text, sizeof text), axis, d->rank - 1);
    if (start < 0 || stop < start || stop > d->dim[axis])
        return mr_fail(MR_E_SHAPE, "slice of %s: %lld:%lld is not inside 0:%lld of axis %d",
                       mr_desc_text(d, text, sizeof text), (long long)start, (long long)stop,
                       (long long)d->dim[axis], axis);
    *offset += start * d->stride[axis];
    *out = *d;
    out->dim[axis] = stop - start;
    return MR_OK;
}

mr_status mr_desc_permute(const mr_desc *d, const int *order, mr_desc *out)
{
    unsigned seen = 0;
    mr_desc r = *d;
    for (int i = 0; i < d->rank; i++) {
        if (order[i] < 0 || order[i] >= d->rank || seen & 1u << order[i])
            return mr_fail(MR_E_SHAPE, "permute of rank %d: axes must be 0..%d once each", d->rank,
                           d->rank - 1);
        seen |= 1u << order[i];
        r.dim[i] = d->dim[order[i]], r.stride[i] = d->stride[order[i]];
    }
    *out = r;
    return MR_OK;
}

mr_status mr_desc_expand(const mr_desc *d, int rank, const int64_t *dim, mr_desc *out)
{
    if (rank < d->rank || rank > MR_MAX_RANK)
        return misfit(d, "expand", rank > MR_MAX_RANK ? 0 : rank, dim,
                      "expected the same rank or a larger one, up to 8");
    mr_desc r = {.dtype = d->dtype, .rank = rank};
    for (int i = 0; i < rank; i++) {
        int k = i - (rank - d->rank);
        int64_t have = k < 0 ? 1 : d->dim[k];
        if (have != dim[i] && have != 1)
            return misfit(d, "expand", rank, dim, "only dimensions of length 1 can grow");
        r.dim[i] = dim[i];
        r.stride[i] = have == dim[i] && k >= 0 ? d->stride[k] : 0;
    }
    MR_TRY(mr_desc_check(d->dtype, rank, dim));
    *out = r;
    return MR_OK;
}
