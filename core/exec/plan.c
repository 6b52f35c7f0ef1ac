/* exec: plans a finished graph (steps, kernels, offsets, layout) from device facts. It allocates
 * only the plan and calls no device. program.c binds the plan to a device.
 * Licence: Apache-2.0 */
#include "exec/room.h"

enum { OUTPUT_ALIGN = 64 };

/* ---- steps ---- */

static const mr_desc *desc_of(const mr_graph *g, mr_ref x)
{
    return x == MR_NONE ? NULL : &mr_graph_value(g, x)->desc;
}

static bool in_region(const mr_graph *g, mr_ref x)
{
    return x != MR_NONE && mr_graph_storage(g, mr_graph_value(g, x)->storage)->kind == MR_REGION;
}

/* Create one step per node with its kernel, setup nodes first. workspace[i] is that of node i. */
static mr_status make_steps(mr_program *p, size_t *workspace)
{
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
            if (mr_graph_crosses(p->graph, node))
                s->kind = MR_STEP_COPY, s->bytes = mr_desc_span_bytes(s->arg[0].desc);
            else
                MR_TRY(mr_step_choose(s, &p->exec->facts));
            for (int k = 0; k < node->n_out; k++)
                s->placed |= in_region(p->graph, node->out[k]) && !node->op->out[k].must;
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

static mr_status lay_out(mr_program *p)
{
    const mr_exec *e = p->exec;
    size_t *workspace = mr_calloc((size_t)mr_graph_nodes(p->graph), sizeof *workspace);
    const char **shared = mr_alloc((size_t)e->n_regions * sizeof *shared);
    mr_layout_options o = {.workspace = workspace, .no_reuse = e->options.no_reuse};
    mr_status st = MR_OK;
    if (!workspace || !shared) {
        st = mr_fail_memory((size_t)mr_graph_nodes(p->graph) * sizeof *workspace);
        goto out;
    }
    o.shared = shared;
    if (e->transient)
        o.transient = e->transient->def.name, o.transient_bytes = e->transient->bytes;
    for (int i = 0; i < e->n_regions; i++)
        if (e->regions[i].def.shared)
            shared[o.n_shared++] = e->regions[i].def.name;
    MR_TRY_GOTO(make_steps(p, workspace));
    MR_TRY_GOTO(mr_layout_new(p->graph, &o, &p->layout));
out:
    mr_free(workspace), mr_free(shared);
    return st;
}

/* ---- memory blocks: input slots, constants, results ---- */

/* Mark the input on `storage` as read: it must be set before a run. */
static void require(mr_program *p, int storage)
{
    for (int i = 0; i < p->n_slots; i++)
        if (p->slots[i].storage == storage)
            p->slots[i].set = false;
}

/* Mark the inputs that are read; others need not be set. */
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

static const char *where(mr_space space)
{
    return space == MR_SPACE_PINNED ? "in host memory" : "on the device";
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
        } else if (s->kind == MR_CONST) {
            p->place[i] = p->consts_bytes;
            p->consts_bytes += mr_granules(s->bytes);
        } else if (s->kind == MR_REGION) {
            const region *r = mr_exec_need(p->exec, s->region);
            if (!r)
                return mr_fail_note("a graph reads it");
            if (s->space != r->def.space)
                return mr_fail(MR_E_USAGE,
                               "the graph expects region '%s' %s, the executor has it %s; try: "
                               "build the graph with the space of the region's declaration",
                               s->region, where(s->space), where(r->def.space));
            if ((size_t)s->region_offset > r->bytes ||
                s->bytes > r->bytes - (size_t)s->region_offset)
                return mr_fail(MR_E_RANGE,
                               "the graph uses bytes %lld to %lld of region '%s'; expected at most "
                               "its size, %zu bytes",
                               (long long)s->region_offset,
                               (long long)s->region_offset + (long long)s->bytes, s->region,
                               r->bytes);
        }
    }
    return MR_OK;
}

/* Copy results out of the arena at the end of each run, since the next run overwrites it. */
static void place_results(mr_program *p)
{
    const mr_graph *g = p->graph;
    // after the arguments of the nodes
    mr_arg *arg = p->args;
    for (int i = 0; i < p->n_setup + p->n_run; i++)
        arg += p->steps[i].n_in + p->steps[i].n_out;
    for (int i = 0; i < mr_graph_outputs(g); i++) {
        result r = {0};
        r.value = mr_graph_output_at(g, i, &r.name);
        const mr_value *v = mr_graph_value(g, r.value);
        size_t span = mr_desc_span_bytes(&v->desc);
        p->staging_bytes = MR_MAX(p->staging_bytes, span);
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
}

/* ---- plan ---- */

/* Allocate zeroed memory for the plan, and count it. */
static void *room(mr_program *p, size_t n, size_t size)
{
    p->own_bytes += n * size;
    return mr_calloc(n, size);
}

static mr_status room_for(mr_program *p)
{
    const mr_graph *g = p->graph;
    size_t nodes = (size_t)mr_graph_nodes(g), storages = (size_t)mr_graph_storages(g),
           outputs = (size_t)mr_graph_outputs(g), inputs = 0;
    size_t steps = nodes + outputs, args = 2 * outputs;
    for (size_t i = 0; i < nodes; i++)
        args += (size_t)(mr_graph_node(g, (int)i)->n_in + mr_graph_node(g, (int)i)->n_out);
    for (size_t i = 0; i < storages; i++)
        inputs += mr_graph_storage(g, (int)i)->kind == MR_INPUT;
    p->steps = room(p, steps, sizeof *p->steps);
    p->args = room(p, args, sizeof *p->args);
    p->step_node = room(p, steps, sizeof *p->step_node);
    p->place = room(p, storages, sizeof *p->place);
    p->slots = room(p, inputs, sizeof *p->slots);
    p->outputs = room(p, outputs, sizeof *p->outputs);
    if (!p->steps || !p->args || !p->step_node || !p->place || !p->slots || !p->outputs)
        return mr_fail_memory(steps * sizeof *p->steps);
    return MR_OK;
}

/* Whether oneDNN can compute a step: a prepared state is its object, except for AMX tiles and on
 * processors without AVX2. */
static bool by_library(const mr_program *p, const mr_step *s)
{
    const mr_facts *facts = &p->exec->facts;
    const char *way = mr_step_way(s, facts);
    return s->kind == MR_STEP_OP && !s->naive && s->kernel->prepare &&
           strcmp(facts->isa, "base") != 0 && (!way || strcmp(way, "library") == 0);
}

/* Bytes of a oneDNN 2.6 product with its descriptors: the mean of 340 products of the demo. */
enum { PREPARED_BYTES = 9 << 10 };

mr_status mr_program_plan(mr_program *p)
{
    MR_TRY(room_for(p));
    MR_TRY(lay_out(p));
    for (int i = 0; i < p->n_setup + p->n_run; i++)
        p->n_library += by_library(p, &p->steps[i]);
    p->own_bytes +=
        (size_t)p->n_library * PREPARED_BYTES +
        (size_t)mr_layout_entries(p->layout) * sizeof(mr_layout_entry) +
        (size_t)mr_schedule_steps(mr_layout_schedule(p->layout)) * sizeof(mr_schedule_step) +
        mr_graph_bytes(p->graph);
    MR_TRY(place_storages(p));
    require_inputs(p);
    place_results(p);
    return MR_OK;
}

/* ---- facts ---- */

/* Bytes that oneDNN 2.6 needs once: 6 MB of code that is loaded or generated, and 1.4 to 4 MB that
 * some products allocate even with our scratchpad. */
enum { LIBRARY_RESERVE = 10 << 20 };

mr_memory mr_program_memory(const mr_program *p)
{
    const mr_exec *e = p->exec;
    mr_memory m = {.arena = mr_layout_peak(p->layout),
                   .pinned = mr_layout_peak_in(p->layout, MR_SPACE_PINNED),
                   .bound = mr_layout_bound(p->layout),
                   .inputs = p->inputs_bytes,
                   .landing = e->at_once ? 0 : p->inputs_bytes,
                   .staged = e->at_once ? 0 : p->inputs_bytes,
                   .ring = mr_edge_ring_bytes(e),
                   .consts = p->consts_bytes,
                   .results = p->results_bytes,
                   .library = p->n_library ? LIBRARY_RESERVE : 0,
                   .host = p->staging_bytes + p->own_bytes,
                   .staging = p->staging_bytes};
    for (int i = 0; i < e->n_regions; i++) {
        const region *r = &e->regions[i];
        bool weights = r->def.role == MR_ROLE_WEIGHTS || r->def.role == MR_ROLE_FROZEN;
        size_t *kind = r->def.space == MR_SPACE_PINNED ? &m.offloaded
                       : weights                       ? &m.params
                                                       : &m.state;
        if (!r->def.shared && !r->def.transient)
            *kind += r->bytes;
    }
    for (int i = p->n_setup; i < p->n_setup + p->n_run; i++)
        m.workspace = MR_MAX(m.workspace, p->steps[i].workspace_bytes);
    return m;
}

const mr_layout *mr_program_layout(const mr_program *p)
{
    return p->layout;
}

mr_cost mr_program_cost(const mr_program *p)
{
    mr_cost sum = {0};
    for (int i = p->n_setup; i < p->n_setup + p->n_run; i++) {
        mr_cost c = mr_step_cost(&p->steps[i]);
        sum.flop += c.flop, sum.bytes += c.bytes;
    }
    return sum;
}
