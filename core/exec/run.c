/* exec: runs programs, and returns their outputs and facts. Licence: Apache-2.0 */
#include "exec/room.h"

mr_status mr_program_get(mr_program *p, const char *output, const mr_view *out)
{
    MR_TRY(mr_exec_works(p->exec));
    const result *r = mr_program_result(p, output);
    if (!r)
        return MR_E_USAGE;
    const mr_value *v = mr_graph_value(p->graph, r->value);
    if (!mr_desc_same_shape(&out->desc, &v->desc))
        return mr_shapes_differ("output", output, &out->desc, &v->desc);
    mr_dptr at = mr_program_result_at(p, r);
    size_t span = mr_desc_span_bytes(&v->desc);
    if (!span)
        return MR_OK;
    mr_device *dev = p->exec->dev;
    p->exec->waits.all++;
    if (out->desc.dtype == v->desc.dtype && mr_desc_is_dense(&out->desc) &&
        mr_desc_is_dense(&v->desc))
        return dev->ops->copy_out(dev, out->data, at, span);
    MR_TRY(dev->ops->copy_out(dev, p->exec->staging, at, span));
    return mr_view_copy(out, &(mr_view){p->exec->staging, v->desc});
}

/* Fill the arena with poison, except for its first `kept` bytes on the device. */
static mr_status poison(mr_exec *e, size_t kept)
{
    for (int i = 0; i < MR_SPACE_COUNT; i++) {
        size_t from = i == MR_SPACE_DEVICE ? kept : 0;
        if (e->arena[i].bytes > from)
            MR_TRY(e->dev->ops->fill(e->dev, e->arena[i].at + from, MR_POISON,
                                     e->arena[i].bytes - from));
    }
    return MR_OK;
}

mr_status mr_program_run(mr_program *p)
{
    mr_exec *e = p->exec;
    MR_TRY(mr_exec_works(e));
    mr_hold hold = mr_layout_hold(p->layout);
    if (hold == MR_HOLD_KEPT)
        MR_TRY(mr_exec_transient(e));
    MR_TRY(mr_edge_send(p));
    if (e->options.poison)
        MR_TRY(poison(e, hold == MR_HOLD_KEPT ? e->transient->bytes : 0));
    if (e->transient)
        e->used = true, e->lost = hold == MR_HOLD_NOTHING;
    return e->dev->ops->run(e->dev, p->steps + p->n_setup, p->n_run + p->n_copies, p->prepared);
}

size_t mr_program_measured(mr_program *p)
{
    mr_exec *e = p->exec;
    unsigned char piece[4096];
    // search down from the top to the first byte that is not poison
    arena arena = e->arena[MR_SPACE_DEVICE];
    for (size_t end = arena.bytes; end > 0;) {
        size_t n = MR_MIN(end, sizeof piece);
        if (e->dev->ops->copy_out(e->dev, piece, arena.at + end - n, n) != MR_OK)
            return 0;
        for (size_t i = n; i-- > 0;)
            if (piece[i] != MR_POISON)
                return end - n + i + 1;
        end -= n;
    }
    return 0;
}
