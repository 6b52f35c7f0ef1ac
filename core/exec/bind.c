/* exec: addresses of a program's steps, and the order between queues. Licence: Apache-2.0 */
#include "exec/room.h"

mr_dptr mr_program_address(const mr_program *p, int storage)
{
    const mr_storage *s = mr_graph_storage(p->graph, storage);
    switch (s->kind) {
    case MR_INPUT: return p->inputs + p->place[storage];
    case MR_CONST: return p->consts + p->place[storage];
    case MR_REGION: return mr_exec_need(p->exec, s->region)->at + (size_t)s->region_offset;
    default: return p->exec->arena + mr_layout_offset(p->layout, storage);
    }
}

static mr_dptr address(const mr_program *p, mr_ref x)
{
    if (x == MR_NONE)
        return 0;
    const mr_value *v = mr_graph_value(p->graph, x);
    return mr_program_address(p, v->storage) + (size_t)v->offset;
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
        s->workspace = s->workspace_bytes
                           ? p->exec->arena + mr_layout_workspace(p->layout, p->step_node[i])
                           : 0;
    }
    for (int i = p->n_setup + p->n_run; i < p->n_setup + p->n_run + p->n_copies; i++) {
        const result *r = &p->outputs[p->step_node[i]];
        p->steps[i].arg[0].at = address(p, r->value);
        p->steps[i].arg[1].at = p->results + r->offset;
    }
    for (int i = 0; i < p->n_spans; i++) {
        const mr_layout_entry *e = mr_layout_at(p->layout, p->span_entry[i]);
        p->spans[i] = (mr_span){p->exec->arena + e->offset, e->bytes};
    }
    if (dev->ops->moved && p->is_prepared)
        dev->ops->moved(dev, p->steps + p->n_setup, p->n_run + p->n_copies, p->prepared);
}

/* Group the entries of the layout by the step where they are born and by the one where they die.
 * What lives to the end is still copied out, so it does not die. */
mr_status mr_program_spans(mr_program *p)
{
    int nodes = mr_graph_nodes(p->graph), n = mr_layout_entries(p->layout);
    int *step_of = mr_alloc((size_t)nodes * sizeof *step_of);
    p->spans = mr_alloc((size_t)n * 2 * sizeof *p->spans);
    p->span_entry = mr_alloc((size_t)n * 2 * sizeof *p->span_entry);
    if (!step_of || !p->spans || !p->span_entry) {
        mr_free(step_of);
        return mr_fail_memory((size_t)n * 2 * sizeof *p->spans);
    }
    for (int i = 0; i < p->n_setup + p->n_run; i++)
        step_of[p->step_node[i]] = i;
    for (int i = 0; i < n; i++) {
        const mr_layout_entry *e = mr_layout_at(p->layout, i);
        p->steps[step_of[e->first]].born_n++;
        if (e->last < nodes - 1)
            p->steps[step_of[e->last]].dead_n++;
    }
    int at = 0;
    for (int i = 0; i < p->n_setup + p->n_run; i++) {
        mr_step *s = &p->steps[i];
        s->born = p->spans + at, at += s->born_n;
        s->dead = p->spans + at, at += s->dead_n;
        s->born_n = s->dead_n = 0;
    }
    for (int i = 0; i < n; i++) {
        const mr_layout_entry *e = mr_layout_at(p->layout, i);
        mr_step *first = &p->steps[step_of[e->first]], *last = &p->steps[step_of[e->last]];
        p->span_entry[first->born - p->spans + first->born_n++] = i;
        if (e->last < nodes - 1)
            p->span_entry[last->dead - p->spans + last->dead_n++] = i;
    }
    p->n_spans = at;
    mr_free(step_of);
    return MR_OK;
}

/* Steps keep the order of the list across queues: at a change of queue a step waits for the newest
 * step of every other queue. */
void mr_program_waits(mr_program *p)
{
    int newest[MR_QUEUE_COUNT], before = -1;
    for (int q = 0; q < MR_QUEUE_COUNT; q++)
        newest[q] = -1;
    for (int i = 0; i < p->n_run + p->n_copies; i++) {
        mr_step *s = &p->steps[p->n_setup + i];
        for (int q = 0; i && q < MR_QUEUE_COUNT && before != (int)s->queue; q++)
            if (q != (int)s->queue && newest[q] >= 0)
                s->wait[s->wait_n++] = newest[q];
        newest[s->queue] = i;
        before = (int)s->queue;
    }
}
