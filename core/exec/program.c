/* exec: binds a planned program to a device: constant blocks, arena, kernel states, setup.
 * Licence: Apache-2.0 */
#include "exec/room.h"

#include <string.h>

static mr_status get_blocks(mr_program *p)
{
    mr_device *dev = p->exec->dev;
    if (p->inputs_bytes)
        MR_TRY(dev->ops->alloc(dev, p->inputs_bytes, MR_SPACE_DEVICE, &p->inputs));
    mr_device_guard(dev, p->inputs, MR_GUARD_NAMED);
    if (p->consts_bytes)
        MR_TRY(dev->ops->alloc(dev, p->consts_bytes, MR_SPACE_DEVICE, &p->consts));
    if (p->results_bytes)
        MR_TRY(dev->ops->alloc(dev, p->results_bytes, MR_SPACE_DEVICE, &p->results));
    for (int i = 0; i < mr_graph_storages(p->graph); i++) {
        const mr_storage *s = mr_graph_storage(p->graph, i);
        if (s->kind == MR_CONST && s->data && s->bytes)
            MR_TRY(dev->ops->copy_in(dev, p->consts + p->place[i], s->data, s->bytes));
    }
    return mr_edge_add(p);
}

/* ---- the arena and the staging buffer ---- */

/* Grow an arena to the size that this program needs. */
static mr_status grow(mr_program *p, arena *arena, mr_space space, size_t need, const char *what)
{
    mr_exec *e = p->exec;
    if (need <= arena->bytes)
        return MR_OK;
    MR_TRY(e->dev->ops->sync(e->dev));
    // free the old one first, so that peak memory never includes both
    if (arena->at)
        e->dev->ops->free(e->dev, arena->at, arena->bytes, space);
    size_t before = arena->bytes;
    arena->at = 0, arena->bytes = 0;
    bool region = e->transient && arena == &e->arena[MR_SPACE_DEVICE];
    mr_status st = e->dev->ops->alloc(e->dev, need, space, &arena->at);
    if (st == MR_OK) {
        arena->bytes = need;
    } else {
        size_t free = 0, total = 0;
        e->dev->ops->memory(e->dev, &free, &total);
        mr_fail_note("%s of %.1f MiB for this graph, %.1f MiB are free on the device; try: "
                     "a smaller batch or size, recomputation",
                     what, (double)need / (1 << 20), (double)free / (1 << 20));
        // keep earlier programs usable
        mr_error *first = mr_error_copy(mr_error_last());
        if (before && e->dev->ops->alloc(e->dev, before, space, &arena->at) == MR_OK)
            arena->bytes = before;
        mr_error_adopt(first);
        mr_error_free(first);
    }
    if (region)
        e->transient->at = arena->at, e->lost = e->used;
    // steps have addresses in the arena, but not in the staging buffer
    for (mr_program *q = e->programs; q && arena != &e->landing; q = q->next)
        mr_program_bind(q);
    return st;
}

/* ---- binding ---- */

static mr_status run_setup(mr_program *p)
{
    mr_device *dev = p->exec->dev;
    void *prepared = NULL;
    MR_TRY(dev->ops->prepare(dev, p->steps, p->n_setup, &prepared));
    mr_status st = dev->ops->run(dev, p->steps, p->n_setup, prepared);
    if (st == MR_OK)
        st = dev->ops->sync(dev);
    dev->ops->forget(dev, p->steps, p->n_setup, prepared);
    return st;
}

/* Allocate memory, and set addresses and kernels of a planned program. */
static mr_status bind(mr_program *p)
{
    mr_device *dev = p->exec->dev;
    MR_TRY(dev->ops->prepare(dev, p->steps + p->n_setup, p->n_run + p->n_copies, &p->prepared));
    p->is_prepared = true;
    MR_TRY(mr_exec_staging(p->exec, p->staging_bytes));
    MR_TRY(get_blocks(p));
    for (int i = 0; i < MR_SPACE_COUNT; i++)
        MR_TRY(grow(p, &p->exec->arena[i], (mr_space)i, mr_layout_peak_in(p->layout, (mr_space)i),
                    "arena"));
    if (!p->exec->at_once)
        MR_TRY(grow(p, &p->exec->landing, MR_SPACE_DEVICE, p->inputs_bytes,
                    "a staging buffer for inputs"));
    if (dev->checks && !p->exec->options.poison)
        MR_TRY(mr_program_spans(p));
    mr_program_waits(p);
    mr_program_bind(p);
    if (p->n_setup)
        MR_TRY(run_setup(p));
    mr_device_guard(dev, p->consts, MR_GUARD_ALL);
    return MR_OK;
}

static mr_status build(mr_program *p)
{
    MR_TRY(mr_program_plan(p));
    return p->exec->dev ? bind(p) : MR_OK;
}

mr_status mr_exec_compile(mr_exec *e, const mr_graph *g, mr_program **out)
{
    if (!mr_graph_finished(g))
        return mr_fail(MR_E_USAGE, "the graph is not finished; try: finish it, then compile");
    if (mr_graph_params(g) && mr_graph_params(g) != e->params)
        return mr_fail(
            MR_E_USAGE,
            "the graph was built with another parameter table; expected that of this executor");
    mr_program *p;
    if (!MR_NEW(p))
        return mr_fail_memory(sizeof *p);
    p->exec = e, p->graph = g;
    mr_status st = build(p);
    p->next = e->programs, e->programs = p;
    if (st != MR_OK) {
        mr_error *first = mr_error_copy(mr_error_last());
        mr_program_free(p);
        mr_error_adopt(first);
        mr_error_free(first);
        return st;
    }
    *out = p;
    return MR_OK;
}

void mr_program_free(mr_program *p)
{
    if (!p)
        return;
    mr_device *dev = p->exec->dev;
    mr_program **at = &p->exec->programs;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
    if (p->is_prepared)
        dev->ops->forget(dev, p->steps + p->n_setup, p->n_run + p->n_copies, p->prepared);
    if (dev)
        mr_edge_remove(p);
    if (p->inputs)
        dev->ops->free(dev, p->inputs, p->inputs_bytes, MR_SPACE_DEVICE);
    if (p->consts)
        dev->ops->free(dev, p->consts, p->consts_bytes, MR_SPACE_DEVICE);
    if (p->results)
        dev->ops->free(dev, p->results, p->results_bytes, MR_SPACE_DEVICE);
    mr_layout_free(p->layout);
    mr_free(p->steps);
    mr_free(p->args);
    mr_free(p->clocks);
    mr_free(p->step_node);
    mr_free(p->place);
    mr_free(p->slots);
    mr_free(p->outputs);
    mr_free(p->spans);
    mr_free(p->used);
    mr_free(p);
}
