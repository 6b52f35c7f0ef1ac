/* ckpt: parts of tensors. A box, a range of elements and a requested part of a tensor are all runs
 * of consecutive bytes, counted in row-major order from the first byte of the tensor.
 * Licence: Apache-2.0 */
#include "ckpt/span.h"

#include <stdio.h>
#include <string.h>

static mr_status fail_outside(const char *name, const char *what, int64_t from, int64_t to,
                              int64_t n)
{
    return mr_fail(MR_E_RANGE, "tensor '%s': %s %lld to %lld: expected 0 <= from <= to <= %lld",
                   name, what, (long long)from, (long long)to, (long long)n);
}

mr_span mr_span_stretch(int64_t from, int64_t n)
{
    return (mr_span){.first = from, .end = from + n, .run = n, .runs = n > 0};
}

static mr_status check_box(const mr_st_tensor *t, const mr_ckpt_slice *box, int64_t *elements)
{
    *elements = 1;
    for (int d = 0; d < t->rank; d++) {
        if (box->from[d] < 0 || box->from[d] > box->to[d] || box->to[d] > t->shape[d])
            return fail_outside(t->name, "box", box->from[d], box->to[d], t->shape[d]);
        // no overflow: the element count of the whole tensor has none
        *elements *= box->to[d] - box->from[d];
    }
    return MR_OK;
}

static mr_span box_span(const mr_st_tensor *t, const mr_ckpt_slice *box, int64_t size)
{
    mr_span r = {.run = size, .runs = 1};
    int d = t->rank;
    int64_t stride = size;
    // a run is formed by the last dimensions that are taken whole, and one more
    for (bool whole = true; d > 0 && whole; d--) {
        whole = box->from[d - 1] == 0 && box->to[d - 1] == t->shape[d - 1];
        r.first += box->from[d - 1] * stride;
        r.run = (box->to[d - 1] - box->from[d - 1]) * stride;
        stride *= t->shape[d - 1];
    }
    r.outer = d;
    r.end = r.first + r.run;
    while (d-- > 0) {
        r.extent[d] = box->to[d] - box->from[d];
        r.stride[d] = stride;
        r.runs *= r.extent[d];
        r.first += box->from[d] * stride;
        r.end += (box->to[d] - 1) * stride;
        stride *= t->shape[d];
    }
    return r;
}

mr_status mr_span_of(const mr_st_tensor *t, const mr_ckpt_slice *slice, mr_span *out)
{
    int64_t size = (int64_t)mr_st_dtype_bytes(t->dtype), all = t->bytes / size, n;
    switch (slice->cut) {
    case MR_CKPT_ALL: *out = mr_span_stretch(0, t->bytes); return MR_OK;
    case MR_CKPT_RANGE:
        if (slice->from[0] < 0 || slice->from[0] > slice->to[0] || slice->to[0] > all)
            return fail_outside(t->name, "range", slice->from[0], slice->to[0], all);
        *out = mr_span_stretch(slice->from[0] * size, (slice->to[0] - slice->from[0]) * size);
        return MR_OK;
    case MR_CKPT_BOX:
        MR_TRY(check_box(t, slice, &n));
        *out = n ? box_span(t, slice, size) : mr_span_stretch(0, 0);
        return MR_OK;
    }
    return mr_fail(MR_E_USAGE, "tensor '%s': cut %d: expected all, a box or a range", t->name,
                   (int)slice->cut);
}

int64_t mr_span_bytes(const mr_span *r)
{
    return r->run * r->runs;
}

int64_t mr_span_start(const mr_span *r, int64_t i)
{
    int64_t at = r->first;
    for (int d = r->outer - 1; d >= 0; d--) {
        at += i % r->extent[d] * r->stride[d];
        i /= r->extent[d];
    }
    return at;
}

/* The first run that ends after byte `at`; r->runs if none does. */
static int64_t find_run(const mr_span *r, int64_t at)
{
    int64_t lo = 0, hi = r->runs;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (mr_span_start(r, mid) + r->run > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

mr_status mr_span_intersect(const mr_span *a, const mr_span *b, mr_span_both *each, void *user)
{
    if (a->first >= b->end || b->first >= a->end)
        return MR_OK;
    int64_t i = find_run(a, b->first), k = find_run(b, a->first);
    while (i < a->runs && k < b->runs) {
        int64_t at_a = mr_span_start(a, i), end_a = at_a + a->run, at_b = mr_span_start(b, k),
                end_b = at_b + b->run, from = MR_MAX(at_a, at_b), to = MR_MIN(end_a, end_b);
        if (from < to)
            MR_TRY(each(user, i * a->run + from - at_a, k * b->run + from - at_b, to - from));
        if (end_a <= at_b)
            i = find_run(a, at_b);
        else if (end_b <= at_a)
            k = find_run(b, at_a);
        else if (end_a <= end_b)
            i++;
        else
            k++;
    }
    return MR_OK;
}

/* ---- items ---- */

static mr_status item_span(const mr_ckpt_item *item, mr_span *out)
{
    mr_st_tensor t = {.name = item->name, .dtype = item->dtype, .rank = item->rank};
    if (t.rank < 0 || t.rank > MR_ST_RANK_MAX || (unsigned)t.dtype >= MR_ST_DTYPE_COUNT)
        return mr_fail(MR_E_USAGE, "tensor '%s': rank %d or dtype is out of range", t.name, t.rank);
    memcpy(t.shape, item->shape, sizeof t.shape);
    if (mr_st_shape_bytes(t.dtype, t.rank, t.shape, &t.bytes) != MR_OK)
        return mr_fail_note("tensor '%s'", item->name);
    return mr_span_of(&t, &item->slice, out);
}

mr_status mr_ckpt_item_bytes(const mr_ckpt_item *item, int64_t *bytes)
{
    mr_span r;
    MR_TRY(item_span(item, &r));
    *bytes = mr_span_bytes(&r);
    return MR_OK;
}

mr_status mr_ckpt_slice_item(const mr_ckpt_item *item, char *name, size_t cap, mr_ckpt_item *out)
{
    const mr_ckpt_slice *s = &item->slice;
    mr_span span;
    *out = *item;
    out->slice = (mr_ckpt_slice){0};
    out->name = name;
    size_t at = (size_t)snprintf(name, cap, "%s", item->name);
    // a whole tensor keeps its name and shape; the layout of the file checks them
    if (s->cut == MR_CKPT_ALL)
        return MR_OK;
    MR_TRY(item_span(item, &span));
    out->rank = s->cut == MR_CKPT_RANGE ? 1 : item->rank;
    for (int d = 0; d < out->rank && at < cap; d++) {
        out->shape[d] = s->to[d] - s->from[d];
        at += (size_t)snprintf(name + at, cap - at, "%c%lld:%lld", d ? ',' : '[',
                               (long long)s->from[d], (long long)s->to[d]);
    }
    // a box of a scalar is the whole scalar
    if (out->rank && at < cap)
        snprintf(name + at, cap - at, "]");
    return MR_OK;
}
