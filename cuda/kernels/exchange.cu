/* all_to_all, gather_shares, shift, shared between the GPUs of ranks, as in core/op/exchange.c.
 *
 * Parts that are dense in x or y are sent and received in place. Other parts are packed into the
 * workspace before the exchange, and unpacked after it. No byte changes; each pass reads and writes
 * every byte once.
 * Licence: Apache-2.0 */
#include "cuda/kernels/copy.cuh"
#include "cuda/kernels/talk.cuh"

struct attrs { // as in core/op/exchange.c
    int64_t group, ranks, at, split, join, length;
};
struct one_attrs {
    int64_t group, ranks, at, axis, length, hops;
};

// ---- parts along an axis ----

static size_t dense_bytes(const mr_desc *d)
{
    return ((size_t)mr_desc_count(d) * mr_dtype_bytes(d->dtype) + 63) / 64 * 64;
}

// the share of a rank as in core/op/share.h, and a dense place for it: in v, or at `line`
struct Part {
    mr_view view, dense;
    size_t bytes;
    bool packed; // the two differ
};

// advances *line by the bytes that the part uses there
static mr_status part_of(const mr_view *v, int64_t axis, int64_t ranks, int64_t rank, char **line,
                         Part *p)
{
    const int64_t n = v->desc.dim[axis], first = rank * (n / ranks) + MR_MIN(rank, n % ranks);
    int64_t offset = 0;
    MR_TRY(mr_desc_slice(&v->desc, (int)axis, first, first + n / ranks + (rank < n % ranks),
                         &p->view.desc, &offset));
    p->view.data = (char *)v->data + (size_t)offset * mr_dtype_bytes(v->desc.dtype);
    p->bytes = (size_t)mr_desc_count(&p->view.desc) * mr_dtype_bytes(v->desc.dtype);
    p->packed = !mr_desc_is_dense(&p->view.desc);
    p->dense =
        p->packed
            ? mr_view{*line, mr_desc_dense(v->desc.dtype, p->view.desc.rank, p->view.desc.dim)}
            : p->view;
    *line += p->packed ? p->bytes : 0;
    return MR_OK;
}

// ---- all_to_all ----

static size_t all_to_all_workspace(const mr_call *call, const mr_facts *)
{
    const attrs *a = (const attrs *)call->attr;
    return a->ranks == 1 ? 0 : dense_bytes(&call->in[0].desc) + dense_bytes(&call->out[0].desc);
}

static mr_status all_to_all_prepare(const mr_call *call, const mr_facts *, void **state)
{
    const attrs *a = (const attrs *)call->attr;
    mr_cuda_talk *t = NULL;
    *state = NULL;
    MR_TRY(mr_collective_ranks(a->group, a->ranks, a->at));
    if (a->ranks == 1)
        return MR_OK;
    MR_TRY(mr_cuda_talk_new(a->group, MR_COMM_ALL_TO_ALL, call->in[0].desc.dtype, &t));
    const mr_desc *x = &call->in[0].desc;
    const int64_t n = x->dim[a->split], own = n / a->ranks + (a->at < n % a->ranks);
    // all shares but this rank's own
    t->call.bytes = n ? (uint64_t)(mr_desc_count(x) / n * (n - own)) * mr_dtype_bytes(x->dtype) : 0;
    *state = t;
    return MR_OK;
}

MR_CUDA_KERNEL(all_to_all, all_to_all_workspace, all_to_all_prepare, mr_cuda_talk_free)
{
    const attrs *a = (const attrs *)call->attr;
    mr_cuda_talk *t = (mr_cuda_talk *)call->state;
    const mr_view *x = &call->in[0], *y = &call->out[0];
    if (!t)
        return copy_view(y, x, stream);
    char *line = (char *)call->workspace;
    Part part, own = {};
    MR_TRY(mr_cuda_talk_begins(t, stream));
    for (int r = 0; r < t->size; r++) {
        MR_TRY(part_of(x, a->split, t->size, r, &line, &part));
        if (part.packed && r != t->rank)
            MR_TRY(copy_view(&part.dense, &part.view, stream));
        if (r == t->rank)
            own = part;
        else
            mr_cuda_talk_send(t, r, part.dense.data, part.bytes);
    }
    char *arrived = line = (char *)call->workspace + dense_bytes(&x->desc);
    for (int r = 0; r < t->size; r++) {
        MR_TRY(part_of(y, a->join, t->size, r, &line, &part));
        if (r == t->rank)
            MR_TRY(copy_view(&part.view, &own.view, stream));
        else
            mr_cuda_talk_receive(t, r, part.dense.data, part.bytes);
    }
    MR_TRY(mr_cuda_talk_exchange(t, stream));
    MR_TRY(mr_cuda_talk_ends(t, stream));
    for (int r = 0; r < t->size; r++) {
        MR_TRY(part_of(y, a->join, t->size, r, &arrived, &part));
        if (part.packed && r != t->rank)
            MR_TRY(copy_view(&part.view, &part.dense, stream));
    }
    return MR_OK;
}

// ---- gather_shares ----

static size_t gather_workspace(const mr_call *call, const mr_facts *)
{
    const one_attrs *a = (const one_attrs *)call->attr;
    return a->ranks == 1 ? 0 : dense_bytes(&call->out[0].desc);
}

static mr_status gather_prepare(const mr_call *call, const mr_facts *, void **state)
{
    const one_attrs *a = (const one_attrs *)call->attr;
    mr_cuda_talk *t = NULL;
    *state = NULL;
    MR_TRY(mr_collective_ranks(a->group, a->ranks, a->at));
    if (a->ranks == 1)
        return MR_OK;
    MR_TRY(mr_cuda_talk_new(a->group, MR_COMM_ALL_GATHER, call->in[0].desc.dtype, &t));
    t->call.count = mr_desc_count(&call->out[0].desc);
    t->call.bytes = (uint64_t)mr_desc_count(&call->in[0].desc) *
                    mr_dtype_bytes(call->in[0].desc.dtype) * (uint64_t)(t->size - 1);
    *state = t;
    return MR_OK;
}

MR_CUDA_KERNEL(gather_shares, gather_workspace, gather_prepare, mr_cuda_talk_free)
{
    const one_attrs *a = (const one_attrs *)call->attr;
    mr_cuda_talk *t = (mr_cuda_talk *)call->state;
    const mr_view *x = &call->in[0], *y = &call->out[0];
    if (!t)
        return copy_view(y, x, stream);
    char *line = (char *)call->workspace;
    Part part;
    MR_TRY(mr_cuda_talk_begins(t, stream));
    for (int r = 0; r < t->size; r++) {
        MR_TRY(part_of(y, a->axis, t->size, r, &line, &part));
        if (r == t->rank) {
            MR_TRY(copy_view(&part.view, x, stream));
            continue;
        }
        mr_cuda_talk_send(t, r, x->data, mr_desc_span_bytes(&x->desc));
        mr_cuda_talk_receive(t, r, part.dense.data, part.bytes);
    }
    MR_TRY(mr_cuda_talk_exchange(t, stream));
    MR_TRY(mr_cuda_talk_ends(t, stream));
    line = (char *)call->workspace;
    for (int r = 0; r < t->size; r++) {
        MR_TRY(part_of(y, a->axis, t->size, r, &line, &part));
        if (part.packed && r != t->rank)
            MR_TRY(copy_view(&part.view, &part.dense, stream));
    }
    return MR_OK;
}

// ---- shift ----

// distance in the ring of ranks, 0 to size - 1
static int hops_of(const mr_call *call, int size)
{
    const int hops = (int)((const one_attrs *)call->attr)->hops % size;
    return hops < 0 ? hops + size : hops;
}

static mr_status shift_prepare(const mr_call *call, const mr_facts *, void **state)
{
    const one_attrs *a = (const one_attrs *)call->attr;
    const mr_desc *x = &call->in[0].desc;
    mr_cuda_talk *t = NULL;
    *state = NULL;
    if (!a->hops)
        return MR_OK;
    MR_TRY(mr_cuda_talk_new(a->group, MR_COMM_SHIFT, x->dtype, &t));
    t->call.bytes = hops_of(call, t->size) ? mr_desc_span_bytes(x) : 0;
    *state = t;
    return MR_OK;
}

MR_CUDA_KERNEL(shift, NULL, shift_prepare, mr_cuda_talk_free)
{
    mr_cuda_talk *t = (mr_cuda_talk *)call->state;
    const mr_view *x = &call->in[0], *y = &call->out[0];
    const int hops = t ? hops_of(call, t->size) : 0;
    if (!hops && !mr_desc_same_shape(&x->desc, &y->desc))
        return mr_fail(MR_E_SHAPE,
                       "this rank keeps its own tensor, but x and y have different shapes");
    if (!t)
        return copy_view(y, x, stream);
    MR_TRY(mr_cuda_talk_begins(t, stream));
    if (hops) {
        mr_cuda_talk_send(t, (t->rank + hops) % t->size, x->data, mr_desc_span_bytes(&x->desc));
        mr_cuda_talk_receive(t, (t->rank + t->size - hops) % t->size, y->data,
                             mr_desc_span_bytes(&y->desc));
        MR_TRY(mr_cuda_talk_exchange(t, stream));
    } else {
        MR_TRY(copy_view(y, x, stream));
    }
    return mr_cuda_talk_ends(t, stream);
}

// ---- shared ----

MR_CUDA_KERNEL(shared)
{
    return copy_view(&call->out[0], &call->in[0], stream);
}
