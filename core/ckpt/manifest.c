/* ckpt: the contents of a checkpoint as lists: files with the hashes of their blocks, tensors, and
 * the parts of each tensor. The lists are built from the items of one rank or of several. They are
 * checked: the parts of a tensor cover all of it, and none overlap. Licence: Apache-2.0 */
#include "ckpt/manifest.h"

#include <stdlib.h>
#include <string.h>

/* Boxes of one tensor are compared each with each. */
enum { BOXES_MAX = 1024 };

void mr_manifest_init(mr_manifest *m)
{
    *m = (mr_manifest){0};
    mr_arena_init(&m->arena);
}

void mr_manifest_fini(mr_manifest *m)
{
    mr_free(m->facts);
    mr_free(m->files);
    mr_free(m->tensors);
    mr_free(m->pieces);
    mr_arena_fini(&m->arena);
    *m = (mr_manifest){0};
}

/* ---- lists ---- */

/* Room for one more of `size` bytes; false: out of memory. */
static bool grow(void *list_of, int n, int *cap, size_t size)
{
    void *list = *(void **)list_of;
    if (n < *cap)
        return true;
    int more = *cap ? *cap * 2 : 16;
    if (!(list = mr_realloc(list, size * (size_t)more)))
        return false;
    *(void **)list_of = list;
    *cap = more;
    return true;
}

mr_ckpt_file *mr_manifest_add_file(mr_manifest *m, const char *name, int64_t bytes)
{
    if (!grow(&m->files, m->n_files, &m->cap_files, sizeof *m->files))
        return NULL;
    mr_ckpt_file *f = &m->files[m->n_files];
    *f = (mr_ckpt_file){.name = mr_arena_strdup(&m->arena, name), .bytes = bytes};
    f->blocks = mr_arena_alloc(&m->arena, sizeof *f->blocks * (size_t)(mr_ckpt_blocks(bytes) + 1));
    if (!f->name || !f->blocks)
        return NULL;
    m->n_files++;
    return f;
}

mr_manifest_tensor *mr_manifest_add_tensor(mr_manifest *m, const mr_st_tensor *is, mr_ckpt_cut cut)
{
    if (!grow(&m->tensors, m->n_tensors, &m->cap_tensors, sizeof *m->tensors))
        return NULL;
    mr_manifest_tensor *t = &m->tensors[m->n_tensors];
    *t = (mr_manifest_tensor){.is = *is, .cut = cut, .first = m->n_pieces};
    if (!(t->is.name = mr_arena_strdup(&m->arena, is->name)))
        return NULL;
    m->n_tensors++;
    return t;
}

mr_piece *mr_manifest_add_piece(mr_manifest *m, int n_bounds)
{
    if (!grow(&m->pieces, m->n_pieces, &m->cap_pieces, sizeof *m->pieces))
        return NULL;
    mr_piece *p = &m->pieces[m->n_pieces];
    // a scalar's box has no bounds
    *p = (mr_piece){.bounds =
                        mr_arena_alloc(&m->arena, sizeof *p->bounds * (size_t)MR_MAX(n_bounds, 1))};
    if (!p->bounds)
        return NULL;
    m->n_pieces++, m->tensors[m->n_tensors - 1].n++;
    return p;
}

mr_ckpt_slice mr_piece_slice(const mr_manifest_tensor *t, const mr_piece *p)
{
    mr_ckpt_slice s = {.cut = t->cut};
    int n = t->cut == MR_CKPT_BOX ? t->is.rank : 1;
    for (int d = 0; d < n; d++)
        s.from[d] = p->bounds[2 * d], s.to[d] = p->bounds[2 * d + 1];
    return s;
}

mr_span mr_piece_span(const mr_manifest_tensor *t, const mr_piece *p)
{
    mr_ckpt_slice slice = mr_piece_slice(t, p);
    mr_span span = {0};
    // pieces are inside their tensor: the caller that adds one checks that
    (void)mr_span_of(&t->is, &slice, &span);
    return span;
}

static void set_bounds(mr_piece *p, const mr_ckpt_slice *s, int n)
{
    int64_t *bounds = (int64_t *)p->bounds;
    for (int d = 0; d < n; d++)
        bounds[2 * d] = s->from[d], bounds[2 * d + 1] = s->to[d];
}

mr_status mr_manifest_add(mr_manifest *m, const mr_ckpt_file *file, const mr_ckpt_item *items,
                          const int64_t *offsets, int n)
{
    mr_ckpt_file *f = mr_manifest_add_file(m, file->name, file->bytes);
    if (!f)
        return mr_fail_memory(4096);
    memcpy(f->blocks, file->blocks, sizeof *f->blocks * (size_t)mr_ckpt_blocks(file->bytes));
    for (int i = 0; i < n; i++) {
        const mr_ckpt_item *item = &items[i];
        mr_st_tensor is = {.name = item->name,
                           .dtype = item->dtype,
                           .rank = item->rank,
                           .offset = offsets[i],
                           .file = m->n_files - 1};
        memcpy(is.shape, item->shape, sizeof is.shape);
        MR_TRY(mr_st_shape_bytes(is.dtype, is.rank, is.shape, &is.bytes));
        // all of a tensor is one range
        mr_ckpt_slice slice = item->slice;
        if (slice.cut == MR_CKPT_ALL) {
            slice.cut = MR_CKPT_RANGE;
            slice.to[0] = is.bytes / (int64_t)mr_st_dtype_bytes(is.dtype);
        }
        int bounds = slice.cut == MR_CKPT_BOX ? item->rank : 1;
        mr_piece *p = NULL;
        if (mr_manifest_add_tensor(m, &is, slice.cut))
            p = mr_manifest_add_piece(m, 2 * bounds);
        if (!p)
            return mr_fail_memory(4096);
        p->file = is.file, p->offset = is.offset;
        set_bounds(p, &slice, bounds);
    }
    return MR_OK;
}

/* ---- the parts of several ranks ---- */

/* A tensor as one part has it. */
typedef struct share {
    const mr_manifest *part;
    const mr_manifest_tensor *tensor;
    int file, order; // the part's file in the whole; place in the row of all shares
    int whole;       // order of the first share of its tensor
} share;

static int by_name(const void *pa, const void *pb)
{
    const share *a = pa, *b = pb;
    int c = strcmp(a->tensor->is.name, b->tensor->is.name);
    return c ? c : a->order - b->order;
}

static int by_whole(const void *pa, const void *pb)
{
    const share *a = pa, *b = pb;
    return a->whole != b->whole ? a->whole - b->whole : a->order - b->order;
}

static mr_status check_alike(const share *a, const share *b)
{
    const mr_st_tensor *x = &a->tensor->is, *y = &b->tensor->is;
    if (x->dtype == y->dtype && x->rank == y->rank && a->tensor->cut == b->tensor->cut &&
        memcmp(x->shape, y->shape, sizeof x->shape[0] * (size_t)x->rank) == 0)
        return MR_OK;
    return mr_fail(MR_E_CKPT,
                   "tensor '%s' has another dtype, shape or partition in %s than in %s; expected "
                   "the same on all ranks",
                   x->name, b->part->files[0].name, a->part->files[0].name);
}

static mr_status add_share(mr_manifest *m, const share *s, bool first)
{
    const mr_manifest_tensor *t = s->tensor;
    int bounds = t->cut == MR_CKPT_BOX ? t->is.rank : 1;
    if (first) {
        mr_st_tensor is = t->is;
        is.file = s->file;
        if (!mr_manifest_add_tensor(m, &is, t->cut))
            return mr_fail_memory(4096);
    }
    for (int i = 0; i < t->n; i++) {
        const mr_piece *from = &s->part->pieces[t->first + i];
        mr_piece *p = mr_manifest_add_piece(m, 2 * bounds);
        if (!p)
            return mr_fail_memory(4096);
        p->file = s->file, p->offset = from->offset;
        memcpy((int64_t *)p->bounds, from->bounds, sizeof *p->bounds * 2 * (size_t)bounds);
    }
    return MR_OK;
}

mr_status mr_manifest_merge(mr_manifest *m, const mr_manifest *parts, int n_parts)
{
    int n = 0, at = 0;
    for (int i = 0; i < n_parts; i++)
        n += parts[i].n_tensors;
    share *shares = mr_calloc((size_t)n + 1, sizeof *shares);
    if (!shares)
        return mr_fail_memory(sizeof *shares * (size_t)n);
    mr_status st = MR_OK;
    for (int i = 0; i < n_parts && st == MR_OK; i++) {
        const mr_ckpt_file *from = &parts[i].files[0];
        mr_ckpt_file *f = mr_manifest_add_file(m, from->name, from->bytes);
        if (!f) {
            st = mr_fail_memory(4096);
            break;
        }
        memcpy(f->blocks, from->blocks, sizeof *f->blocks * (size_t)mr_ckpt_blocks(from->bytes));
        for (int k = 0; k < parts[i].n_tensors; k++, at++)
            shares[at] = (share){&parts[i], &parts[i].tensors[k], i, at, at};
    }
    if (st == MR_OK && n) {
        qsort(shares, (size_t)n, sizeof *shares, by_name);
        for (int i = 1; i < n && st == MR_OK; i++)
            if (strcmp(shares[i - 1].tensor->is.name, shares[i].tensor->is.name) == 0) {
                shares[i].whole = shares[i - 1].whole;
                st = check_alike(&shares[i - 1], &shares[i]);
            }
        qsort(shares, (size_t)n, sizeof *shares, by_whole);
    }
    for (int i = 0; i < n && st == MR_OK; i++)
        st = add_share(m, &shares[i], i == 0 || shares[i].whole != shares[i - 1].whole);
    mr_free(shares);
    return st;
}

/* ---- is every element there once? ---- */

static int by_bounds(const void *pa, const void *pb)
{
    const mr_piece *a = pa, *b = pb;
    int64_t x = a->bounds[0], y = b->bounds[0];
    return x != y ? (x > y) - (x < y)
                  : (a->bounds[1] > b->bounds[1]) - (a->bounds[1] < b->bounds[1]);
}

static mr_status fail_twice(const char *path, const mr_manifest *m, const mr_manifest_tensor *t,
                            const mr_piece *a, const mr_piece *b, const char *what, int64_t from,
                            int64_t to)
{
    return mr_fail(MR_E_CKPT, "%s: tensor '%s': %s %lld to %lld are in both %s and %s", path,
                   t->is.name, what, (long long)from, (long long)to, m->files[a->file].name,
                   m->files[b->file].name);
}

static mr_status check_ranges(const char *path, const mr_manifest *m, const mr_manifest_tensor *t)
{
    const mr_piece *p = m->pieces + t->first;
    const mr_piece *before = NULL;
    int64_t at = 0, all = t->is.bytes / (int64_t)mr_st_dtype_bytes(t->is.dtype);
    for (int i = 0; i <= t->n; i++) {
        int64_t from = i < t->n ? p[i].bounds[0] : all, to = i < t->n ? p[i].bounds[1] : all;
        if (i < t->n && from == to)
            continue;
        if (from > at)
            return mr_fail(MR_E_CKPT, "%s: tensor '%s': elements %lld to %lld are in no file", path,
                           t->is.name, (long long)at, (long long)from);
        if (from < at)
            return fail_twice(path, m, t, before, &p[i], "elements", from, MR_MIN(at, to));
        at = to, before = &p[i];
    }
    return MR_OK;
}

/* Do two boxes overlap? If so, *from and *to are where, along the first dimension. */
static bool boxes_overlap(int rank, const int64_t *a, const int64_t *b, int64_t *from, int64_t *to)
{
    *from = *to = 0;
    for (int d = 0; d < rank; d++) {
        int64_t lo = MR_MAX(a[2 * d], b[2 * d]), hi = MR_MIN(a[2 * d + 1], b[2 * d + 1]);
        if (lo >= hi)
            return false;
        if (d == 0)
            *from = lo, *to = hi;
    }
    return true;
}

static mr_status check_boxes(const char *path, const mr_manifest *m, const mr_manifest_tensor *t)
{
    const mr_piece *p = m->pieces + t->first;
    int64_t bytes = 0, from, to;
    if (t->n > BOXES_MAX)
        return mr_fail(MR_E_CKPT, "%s: tensor '%s' is cut into %d boxes; expected at most %d", path,
                       t->is.name, t->n, BOXES_MAX);
    for (int i = 0; i < t->n; i++) {
        mr_span r = mr_piece_span(t, &p[i]);
        // boxes without overlap are never more than the tensor, so this stops before it overflows
        for (int k = 0; k < i; k++)
            if (boxes_overlap(t->is.rank, p[k].bounds, p[i].bounds, &from, &to))
                return fail_twice(path, m, t, &p[k], &p[i], "rows", from, to);
        bytes += mr_span_bytes(&r);
    }
    if (bytes == t->is.bytes)
        return MR_OK;
    int64_t size = (int64_t)mr_st_dtype_bytes(t->is.dtype);
    return mr_fail(MR_E_CKPT, "%s: tensor '%s': %lld of its %lld elements are in no file", path,
                   t->is.name, (long long)((t->is.bytes - bytes) / size),
                   (long long)(t->is.bytes / size));
}

mr_status mr_manifest_check(const char *path, mr_manifest *m)
{
    for (int i = 0; i < m->n_tensors; i++) {
        mr_manifest_tensor *t = &m->tensors[i];
        if (t->cut == MR_CKPT_RANGE) {
            qsort(m->pieces + t->first, (size_t)t->n, sizeof *m->pieces, by_bounds);
            MR_TRY(check_ranges(path, m, t));
        } else
            MR_TRY(check_boxes(path, m, t));
    }
    return MR_OK;
}

mr_hash128 mr_ckpt_file_hash(const mr_ckpt_file *file, char **text)
{
    int64_t n = mr_ckpt_blocks(file->bytes);
    *text = mr_alloc((size_t)n * 32 + 1);
    if (!*text)
        return (mr_hash128){0};
    **text = 0;
    for (int64_t i = 0; i < n; i++)
        mr_hash128_hex(file->blocks[i], *text + 32 * i);
    return mr_hash128_of(*text, (size_t)n * 32);
}
