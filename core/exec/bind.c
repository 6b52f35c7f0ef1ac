/* exec: sets the addresses of a program's steps, and the waits between queues.
 * Licence: Apache-2.0 */
#include "exec/room.h"

#include <string.h>

mr_dptr mr_program_address(const mr_program *p, int storage)
{
    const mr_storage *s = mr_graph_storage(p->graph, storage);
    switch (s->kind) {
    case MR_INPUT: return p->inputs + p->place[storage];
    case MR_CONST: return p->consts + p->place[storage];
    case MR_REGION: return mr_exec_need(p->exec, s->region)->at + (size_t)s->region_offset;
    default: return p->exec->arena[s->space].at + mr_layout_offset(p->layout, storage);
    }
}

static mr_dptr address(const mr_program *p, mr_ref x)
{
    if (x == MR_NONE)
        return 0;
    const mr_value *v = mr_graph_value(p->graph, x);
    return mr_program_address(p, v->storage) + (size_t)v->offset;
}

mr_dptr mr_program_result_at(const mr_program *p, const result *r)
{
    const mr_value *v = mr_graph_value(p->graph, r->value);
    bool arena = mr_graph_storage(p->graph, v->storage)->kind == MR_ARENA;
    return arena ? p->results + r->offset : mr_program_address(p, v->storage) + (size_t)v->offset;
}

void mr_program_bind(mr_program *p)
{
    mr_device *dev = p->exec->dev;
    for (int i = 0; i < p->n_setup + p->n_run; i++) {
        mr_step *s = &p->steps[i];
        for (int k = 0; k < s->n_in; k++)
            s->arg[k].at = address(p, s->node->in[k]);
        for (int k = 0; k < s->n_out; k++)
            s->arg[s->n_in + k].at = address(p, s->node->out[k]);
        s->workspace = s->workspace_bytes ? p->exec->arena[MR_SPACE_DEVICE].at +
                                                mr_layout_workspace(p->layout, p->step_node[i])
                                          : 0;
    }
    for (int i = p->n_setup + p->n_run; i < p->n_setup + p->n_run + p->n_copies; i++) {
        const result *r = &p->outputs[p->step_node[i]];
        p->steps[i].arg[0].at = address(p, r->value);
        p->steps[i].arg[1].at = p->results + r->offset;
    }
    for (int i = 0; i < p->n_spans; i++) {
        const mr_layout_entry *e = mr_layout_at(p->layout, i);
        p->spans[i].at = p->exec->arena[e->space].at + e->offset, p->spans[i].bytes = e->bytes;
    }
    if (dev->ops->moved && p->is_prepared)
        dev->ops->moved(dev, p->steps + p->n_setup, p->n_run + p->n_copies, p->prepared);
}

/* ---- the arena ranges of a step ---- */

enum { USES = MR_MAX_IN + MR_MAX_OUT + 1 };

/* Add an entry of the layout to a list without duplicates. Returns the new length. */
static int add_entry(int entry, int *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == entry)
            return n;
    if (entry >= 0)
        list[n++] = entry;
    return n;
}

static int add_value(const mr_program *p, mr_ref x, int *list, int n)
{
    if (x == MR_NONE)
        return n;
    return add_entry(mr_layout_storage_entry(p->layout, mr_graph_value(p->graph, x)->storage), list,
                     n);
}

static int entries_of(const mr_program *p, int step, int list[USES])
{
    if (step >= p->n_setup + p->n_run)
        return add_value(p, p->outputs[p->step_node[step]].value, list, 0);
    const mr_node *node = mr_graph_node(p->graph, p->step_node[step]);
    int n = add_entry(mr_layout_workspace_entry(p->layout, p->step_node[step]), list, 0);
    for (int k = 0; k < node->n_in; k++)
        n = add_value(p, node->in[k], list, n);
    for (int k = 0; k < node->n_out; k++)
        n = add_value(p, node->out[k], list, n);
    return n;
}

mr_status mr_program_spans(mr_program *p)
{
    int steps = p->n_setup + p->n_run + p->n_copies, uses = 0, list[USES];
    for (int i = p->n_setup; i < steps; i++)
        uses += entries_of(p, i, list);
    p->n_spans = mr_layout_entries(p->layout);
    p->spans = mr_calloc((size_t)p->n_spans, sizeof *p->spans);
    p->used = mr_alloc((size_t)uses * sizeof *p->used);
    if (!p->spans || !p->used) {
        p->n_spans = 0;
        return mr_fail_memory((size_t)uses * sizeof *p->used);
    }
    mr_span **at = p->used;
    for (int i = p->n_setup; i < steps; i++) {
        mr_step *s = &p->steps[i];
        s->spans = at, s->n_spans = entries_of(p, i, list);
        for (int k = 0; k < s->n_spans; k++, at++)
            *at = &p->spans[list[k]], (*at)->users++;
    }
    return MR_OK;
}

/* ---- the order between queues ---- */

void mr_program_waits(mr_program *p)
{
    const mr_schedule *s = mr_layout_schedule(p->layout);
    for (int i = 0; i < mr_schedule_steps(s); i++) {
        const mr_schedule_step *t = mr_schedule_at(s, i);
        mr_step *step = &p->steps[p->n_setup + i];
        step->wait_n = t->wait_n;
        memcpy(step->wait, t->wait, sizeof step->wait);
    }
}
