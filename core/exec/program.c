/* exec: compiling a finished graph into steps with fixed addresses. Licence: Apache-2.0 */
#include "exec/room.h"
#include "layout/room.h"

#include <string.h>

enum { OUTPUT_ALIGN = 64 };

/* ---- steps ---- */

static const mr_desc *desc_of(const mr_graph *g, mr_ref x)
{
    return x == MR_NONE ? NULL : &mr_graph_value(g, x)->desc;
}

/* One step per node, setup nodes first; kernels chosen by the device. workspace[i] is of node i. */
static mr_status make_steps(mr_program *p, size_t *workspace)
{
    mr_device *dev = p->exec->dev;
    mr_arg *arg = p->args;
    int nodes = mr_graph_nodes(p->graph), n = 0;
    for (int setup = 1; setup >= 0; setup--) {
        for (int i = 0; i < nodes; i++) {
            const mr_node *node = mr_graph_node(p->graph, i);
            if (node->setup != setup)
                continue;
            mr_step *s = &p->steps[n];
            s->op = node->op, s->node = node, s->queue = node->queue;
            s->arg = arg, s->n_in = node->n_in, s->n_out = node->n_out;
            for (int k = 0; k < node->n_in; k++)
                arg++->desc = desc_of(p->graph, node->in[k]);
            for (int k = 0; k < node->n_out; k++)
                arg++->desc = desc_of(p->graph, node->out[k]);
            MR_TRY(dev->ops->resolve(dev, s));
            workspace[i] = s->workspace_bytes;
            p->step_node[n++] = i;
            if (setup)
                p->n_setup++;
            else
                p->n_run++;
        }
    }
    return MR_OK;
}

/* ---- blocks of the program: input slots, constants, results ---- */

/* The input on `storage` is read, so it must be set before a run. */
static void require(mr_program *p, int storage)
{
    for (int i = 0; i < p->n_slots; i++)
        if (p->slots[i].storage == storage)
            p->slots[i].set = false;
}

/* An input nobody reads need not be set. */
static void require_inputs(mr_program *p)
{
    for (int i = 0; i < mr_graph_nodes(p->graph); i++) {
        const mr_node *node = mr_graph_node(p->graph, i);
        for (int k = 0; k < node->n_in; k++) {
            int s = node->in[k] == MR_NONE ? -1 : mr_graph_value(p->graph, node->in[k])->storage;
            if (s >= 0 && mr_graph_storage(p->graph, s)->kind == MR_INPUT)
                require(p, s);
        }
    }
    for (int i = 0; i < p->n_slots; i++)
        p->n_unset += !p->slots[i].set;
}

static mr_status place_storages(mr_program *p)
{
    const mr_graph *g = p->graph;
    for (int i = 0; i < mr_graph_storages(g); i++) {
        const mr_storage *s = mr_graph_storage(g, i);
        if (s->kind == MR_INPUT) {
            p->place[i] = p->inputs_bytes;
            p->inputs_bytes += mr_granules(s->bytes);
            p->slots[p->n_slots++] = (slot){.storage = i, .name = s->name, .set = true};
            MR_TRY(mr_exec_staging(p->exec, s->bytes));
        } else if (s->kind == MR_CONST) {
            p->place[i] = p->consts_bytes;
            p->consts_bytes += mr_granules(s->bytes);
        } else if (s->kind == MR_REGION) {
            const region *r = mr_exec_need(p->exec, s->region);
            if (!r)
                return mr_fail_note("a graph reads it");
            if ((size_t)s->region_offset > r->bytes ||
                s->bytes > r->bytes - (size_t)s->region_offset)
                return mr_fail(
                    MR_E_RANGE, "the graph uses bytes %lld to %lld of region '%s', which has %zu",
                    (long long)s->region_offset, (long long)s->region_offset + (long long)s->bytes,
                    s->region, r->bytes);
        }
    }
    return MR_OK;
}

/* Results of the arena are copied out at the end of each run, so that they outlive the next one. */
static mr_status place_results(mr_program *p)
{
    const mr_graph *g = p->graph;
    // behind those of the nodes
    mr_arg *arg = p->args;
    for (int i = 0; i < p->n_setup + p->n_run; i++)
        arg += p->steps[i].n_in + p->steps[i].n_out;
    for (int i = 0; i < mr_graph_outputs(g); i++) {
        result r = {0};
        r.value = mr_graph_output_at(g, i, &r.name);
        const mr_value *v = mr_graph_value(g, r.value);
        size_t span = mr_desc_span_bytes(&v->desc);
        MR_TRY(mr_exec_staging(p->exec, span));
        if (mr_graph_storage(g, v->storage)->kind == MR_ARENA) {
            int n = p->n_setup + p->n_run + p->n_copies++;
            p->steps[n] = (mr_step){.kind = MR_STEP_COPY,
                                    .bytes = span,
                                    .queue = MR_Q_D2H,
                                    .arg = arg,
                                    .n_in = 1,
                                    .n_out = 1,
                                    .node = v->node >= 0 ? mr_graph_node(g, v->node) : NULL};
            arg[0].desc = arg[1].desc = &v->desc, arg += 2;
            p->step_node[n] = i;
            r.offset = p->results_bytes;
            p->results_bytes += (span + OUTPUT_ALIGN - 1) / OUTPUT_ALIGN * OUTPUT_ALIGN;
        }
        p->outputs[p->n_outputs++] = r;
    }
    return MR_OK;
}

static mr_status get_blocks(mr_program *p)
{
    mr_device *dev = p->exec->dev;
    if (p->inputs_bytes)
        MR_TRY(dev->ops->alloc(dev, p->inputs_bytes, MR_SPACE_DEVICE, &p->inputs));
    mr_device_guard(dev, p->inputs, MR_GUARD_NAMED);
    if (p->consts_bytes)
        MR_TRY(dev->ops->alloc(dev, p->consts_bytes, MR_SPACE_DEVICE, &p->consts));
    if (p->results_bytes)
        MR_TRY(dev->ops->alloc(dev, p->results_bytes, MR_SPACE_PINNED, &p->results));
    for (int i = 0; i < mr_graph_storages(p->graph); i++) {
        const mr_storage *s = mr_graph_storage(p->graph, i);
        if (s->kind == MR_CONST && s->data && s->bytes)
            MR_TRY(dev->ops->copy_in(dev, p->consts + p->place[i], s->data, s->bytes));
    }
    return MR_OK;
}

/* ---- the arena ---- */

static mr_status grow_arena(mr_program *p)
{
    mr_exec *e = p->exec;
    size_t need = mr_layout_peak(p->layout);
    if (need <= e->arena_bytes)
        return MR_OK;
    MR_TRY(e->dev->ops->sync(e->dev));
    // the old one goes first: never both at once, for the peak's sake
    if (e->arena)
        e->dev->ops->free(e->dev, e->arena, e->arena_bytes, MR_SPACE_DEVICE);
    size_t before = e->arena_bytes;
    e->arena = 0, e->arena_bytes = 0;
    mr_status st = e->dev->ops->alloc(e->dev, need, MR_SPACE_DEVICE, &e->arena);
    if (st == MR_OK) {
        e->arena_bytes = need;
    } else {
        mr_fail_note(
            "arena of %.1f MiB for this graph; try: mr_layout_report names what lives at its peak",
            (double)need / (1 << 20));
        // earlier programs stay usable
        mr_error *first = mr_error_copy(mr_error_last());
        if (before && e->dev->ops->alloc(e->dev, before, MR_SPACE_DEVICE, &e->arena) == MR_OK)
            e->arena_bytes = before;
        mr_error_adopt(first);
        mr_error_free(first);
    }
    for (mr_program *q = e->programs; q; q = q->next)
        mr_program_bind(q);
    return st;
}

/* ---- the whole ---- */

static mr_status room_for(mr_program *p)
{
    const mr_graph *g = p->graph;
    size_t nodes = (size_t)mr_graph_nodes(g), storages = (size_t)mr_graph_storages(g),
           outputs = (size_t)mr_graph_outputs(g);
    size_t steps = nodes + outputs, args = 2 * outputs;
    for (size_t i = 0; i < nodes; i++)
        args += (size_t)(mr_graph_node(g, (int)i)->n_in + mr_graph_node(g, (int)i)->n_out);
    p->steps = mr_calloc(steps, sizeof *p->steps);
    p->args = mr_calloc(args, sizeof *p->args);
    p->clocks = mr_calloc(steps, sizeof *p->clocks);
    p->step_node = mr_calloc(steps, sizeof *p->step_node);
    p->place = mr_calloc(storages, sizeof *p->place);
    p->slots = mr_calloc(storages, sizeof *p->slots);
    p->outputs = mr_calloc(outputs, sizeof *p->outputs);
    if (!p->steps || !p->args || !p->clocks || !p->step_node || !p->place || !p->slots ||
        !p->outputs)
        return mr_fail_memory(steps * sizeof *p->steps);
    return MR_OK;
}

static mr_status lay_out(mr_program *p)
{
    size_t *workspace = mr_calloc((size_t)mr_graph_nodes(p->graph), sizeof *workspace);
    if (!workspace)
        return mr_fail_memory((size_t)mr_graph_nodes(p->graph) * sizeof *workspace);
    mr_status st = make_steps(p, workspace);
    if (st == MR_OK)
        st = mr_layout_new(
            p->graph,
            &(mr_layout_options){.workspace = workspace, .no_reuse = p->exec->options.no_reuse},
            &p->layout);
    mr_free(workspace);
    return st;
}

static mr_status build(mr_program *p)
{
    MR_TRY(room_for(p));
    MR_TRY(lay_out(p));
    MR_TRY(place_storages(p));
    require_inputs(p);
    MR_TRY(place_results(p));
    MR_TRY(get_blocks(p));
    MR_TRY(grow_arena(p));
    if (p->exec->dev->checks && !p->exec->options.poison)
        MR_TRY(mr_program_spans(p));
    mr_program_waits(p);
    mr_program_bind(p);
    // setup nodes once, then their kernels' states are not needed any more
    mr_device *dev = p->exec->dev;
    if (p->n_setup)
        MR_TRY(dev->ops->run(dev, p->steps, p->n_setup));
    MR_TRY(dev->ops->sync(dev));
    for (int i = 0; i < p->n_setup; i++)
        dev->ops->release(dev, &p->steps[i]);
    mr_device_guard(dev, p->consts, MR_GUARD_ALL);
    return MR_OK;
}

mr_status mr_exec_compile(mr_exec *e, const mr_graph *g, mr_program **out)
{
    if (!mr_graph_finished(g))
        return mr_fail(MR_E_USAGE, "the graph is not finished; try: finish it, then compile");
    if (mr_graph_params(g) && mr_graph_params(g) != e->params)
        return mr_fail(MR_E_USAGE,
                       "the graph was built over another parameter table than this executor's");
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
    dev->ops->sync(dev);
    mr_program **at = &p->exec->programs;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
    for (int i = 0; p->steps && i < p->n_setup + p->n_run; i++)
        dev->ops->release(dev, &p->steps[i]);
    if (p->inputs)
        dev->ops->free(dev, p->inputs, p->inputs_bytes, MR_SPACE_DEVICE);
    if (p->consts)
        dev->ops->free(dev, p->consts, p->consts_bytes, MR_SPACE_DEVICE);
    if (p->results)
        dev->ops->free(dev, p->results, p->results_bytes, MR_SPACE_PINNED);
    mr_layout_free(p->layout);
    mr_free(p->steps);
    mr_free(p->args);
    mr_free(p->clocks);
    mr_free(p->step_node);
    mr_free(p->place);
    mr_free(p->slots);
    mr_free(p->outputs);
    mr_free(p->spans);
    mr_free(p->span_entry);
    mr_free(p);
}
