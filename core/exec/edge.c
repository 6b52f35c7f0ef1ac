/* exec: transfers inputs to the device and results back, both in parallel with runs.
 *
 * An input passes through three buffers. `set` converts it into pinned memory of its program
 * (staged). The next run copies it from there to the staging buffer on the device (landing), which
 * all programs share, on lane IN in parallel with the run before. The run begins by copying it from
 * there into its slot, on lane RUN. The staging buffer is free after this copy, the pinned memory
 * after the copy on lane IN. The host waits only for the copy on lane IN, so it is at most two runs
 * ahead. Slots and pinned memory keep their values until they are set again.
 *
 *     set k+1 -> staged --IN--> landing --RUN--> slot -> run k+1
 *
 * A value that one run passes to another is copied from output to slot, on lane RUN.
 *
 * A result of at most MR_FETCH_BYTES takes the reverse path when it is fetched: lane RUN copies it
 * to the take-off buffer, and lane OUT from there to a ring buffer on the host. An entry of the
 * ring serves every MR_FETCHES-th fetch.
 *
 * On a synchronous device the three buffers of an input are one, and so are take-off and ring.
 * After a failure (mr_device.lost) all transfers in flight are lost: inputs are sent again from
 * pinned memory, results are not available. Licence: Apache-2.0 */
#include "exec/room.h"

#include <stdio.h>

enum { RING_BYTES = MR_FETCHES * MR_FETCH_BYTES };

/* ---- memory of inputs and results ---- */

size_t mr_edge_ring_bytes(const mr_exec *e)
{
    return e->at_once ? RING_BYTES : 2 * RING_BYTES;
}

mr_status mr_edge_open(mr_exec *e)
{
    const mr_device_ops *ops = e->dev->ops;
    MR_TRY(ops->event(e->dev, &e->taken));
    MR_TRY(ops->event(e->dev, &e->left));
    for (int i = 0; i < MR_FETCHES; i++)
        MR_TRY(ops->event(e->dev, &e->fetches[i].there));
    MR_TRY(ops->alloc(e->dev, RING_BYTES, MR_SPACE_PINNED, &e->ring));
    e->takeoff = e->ring;
    return e->at_once ? MR_OK : ops->alloc(e->dev, RING_BYTES, MR_SPACE_DEVICE, &e->takeoff);
}

static void free_event(mr_exec *e, mr_event *event)
{
    if (event)
        e->dev->ops->event_free(e->dev, event);
}

void mr_edge_close(mr_exec *e)
{
    const mr_device_ops *ops = e->dev->ops;
    if (e->takeoff && e->takeoff != e->ring)
        ops->free(e->dev, e->takeoff, RING_BYTES, MR_SPACE_DEVICE);
    if (e->ring)
        ops->free(e->dev, e->ring, RING_BYTES, MR_SPACE_PINNED);
    free_event(e, e->taken), free_event(e, e->left);
    for (int i = 0; i < MR_FETCHES; i++)
        free_event(e, e->fetches[i].there);
}

mr_status mr_edge_add(mr_program *p)
{
    mr_exec *e = p->exec;
    MR_TRY(e->dev->ops->event(e->dev, &p->sent));
    p->staged = p->inputs;
    if (p->inputs_bytes && !e->at_once)
        MR_TRY(e->dev->ops->alloc(e->dev, p->inputs_bytes, MR_SPACE_PINNED, &p->staged));
    p->lost = e->dev->lost;
    return MR_OK;
}

void mr_edge_remove(mr_program *p)
{
    mr_exec *e = p->exec;
    if (p->staged && p->staged != p->inputs)
        e->dev->ops->free(e->dev, p->staged, p->inputs_bytes, MR_SPACE_PINNED);
    free_event(e, p->sent);
}

mr_step_clock *mr_edge_clock_in(const mr_program *p, int i, bool take)
{
    return p->clocks ? p->clocks + p->n_run + p->n_copies + (take ? p->n_slots : 0) + i : NULL;
}

mr_step_clock *mr_edge_clock_out(const mr_program *p, int i)
{
    return p->clocks ? p->clocks + p->n_run + p->n_copies + 2 * p->n_slots + i : NULL;
}

/* ---- inputs ---- */

// a value that was passed only partly does not count
static void take_value(mr_program *p, slot *s)
{
    p->n_unset += s->set, s->set = s->fresh = false, s->passed = 0;
}

static mr_status find_input(mr_program *p, const char *input, const mr_value **v, slot **s)
{
    mr_ref x = mr_graph_input_find(p->graph, input);
    if (x == MR_NONE)
        return mr_fail(MR_E_USAGE, "the graph has no input '%s'", input);
    *v = mr_graph_value(p->graph, x);
    for (*s = p->slots; (*s)->storage != (*v)->storage;)
        (*s)++;
    return MR_OK;
}

mr_status mr_program_set(mr_program *p, const char *input, const mr_view *data)
{
    mr_exec *e = p->exec;
    MR_TRY(mr_exec_works(e));
    const mr_value *v;
    slot *s;
    MR_TRY(find_input(p, input, &v, &s));
    if (!mr_desc_same_shape(&data->desc, &v->desc))
        return mr_shapes_differ("input", input, &data->desc, &v->desc);
    if (p->sending) {
        // wait until the previous run has read the buffer
        bool done;
        e->waits.inputs++;
        MR_TRY(e->dev->ops->reached(e->dev, p->sent, true, &done));
        p->sending = false;
    }
    size_t bytes = mr_graph_storage(p->graph, v->storage)->bytes;
    if (!bytes)
        return s->fresh = s->set = true, MR_OK;
    mr_view to = {e->dev->ops->host(e->dev, p->staged + p->place[s->storage]), v->desc};
    take_value(p, s);
    if (data->desc.dtype != v->desc.dtype || !mr_desc_is_dense(&data->desc))
        MR_TRY(mr_view_copy(&to, data));
    else
        MR_TRY(mr_interrupt_copy(to.data, data->data, bytes));
    p->n_unset--, s->set = s->fresh = true;
    return MR_OK;
}

// elements must be passed in order, from the first on
static mr_status check_order(const slot *s, int64_t at)
{
    if (at && at != s->passed)
        return mr_fail(MR_E_USAGE,
                       "input '%s': elements from %lld on were passed before those from %lld on; "
                       "try: pass them in order",
                       s->name, (long long)at, (long long)s->passed);
    return MR_OK;
}

static mr_status check_pass(const mr_program *from, const mr_value *out, int64_t first,
                            int64_t count, const mr_program *to, const slot *s, const mr_value *in,
                            int64_t at)
{
    int64_t there = mr_desc_count(&out->desc), room = mr_desc_count(&in->desc);
    if (from->exec->dev != to->exec->dev)
        return mr_fail(MR_E_USAGE,
                       "input '%s' and the output that is passed to it are on different devices",
                       s->name);
    if (!mr_desc_is_dense(&out->desc))
        return mr_fail(MR_E_USAGE,
                       "input '%s': the output that is passed to it is not dense; try: ops.copy",
                       s->name);
    if (out->desc.dtype != in->desc.dtype)
        return mr_fail(MR_E_SHAPE, "input '%s' is %s, the output that is passed to it is %s",
                       s->name, mr_dtype_name(in->desc.dtype), mr_dtype_name(out->desc.dtype));
    if (first < 0 || count < 0 || first > there || count > there - first || at < 0 || at > room ||
        count > room - at)
        return mr_fail(MR_E_SHAPE,
                       "input '%s': elements from %lld on are passed to %lld others from %lld on; "
                       "there are %lld, and place for %lld",
                       s->name, (long long)first, (long long)count, (long long)at, (long long)there,
                       (long long)room);
    return check_order(s, at);
}

// `count` more elements of an input were passed; with the last one it is set
static void add_passed(mr_program *p, slot *s, const mr_value *in, int64_t count)
{
    s->passed += count;
    if (!s->set && s->passed == mr_desc_count(&in->desc))
        s->set = true, p->n_unset--;
}

mr_status mr_program_pass(mr_program *from, const char *output, int64_t first, int64_t count,
                          mr_program *to, const char *input, int64_t at)
{
    mr_device *dev = to->exec->dev;
    const mr_value *in;
    slot *s;
    MR_TRY(mr_exec_works(from->exec));
    MR_TRY(mr_exec_works(to->exec));
    MR_TRY(find_input(to, input, &in, &s));
    const result *r = mr_program_result(from, output);
    if (!r)
        return MR_E_USAGE;
    const mr_value *out = mr_graph_value(from->graph, r->value);
    MR_TRY(check_pass(from, out, first, count, to, s, in, at));
    size_t bytes = mr_dtype_bytes(in->desc.dtype);
    mr_copy copy = {.to = to->inputs + to->place[s->storage] + (size_t)at * bytes,
                    .from = mr_program_result_at(from, r) + (size_t)first * bytes,
                    .bytes = (size_t)count * bytes,
                    .name = s->name};
    if (!at)
        take_value(to, s), s->lost = dev->lost;
    if (count)
        MR_TRY(dev->ops->copy(dev, MR_LANE_RUN, &copy));
    add_passed(to, s, in, count);
    return MR_OK;
}

mr_status mr_program_skip(mr_program *p, const char *input, int64_t at, int64_t count)
{
    const mr_value *in;
    slot *s;
    MR_TRY(mr_exec_works(p->exec));
    MR_TRY(find_input(p, input, &in, &s));
    int64_t room = mr_desc_count(&in->desc);
    if (count < 0 || at < 0 || at > room || count > room - at)
        return mr_fail(MR_E_SHAPE,
                       "input '%s': %lld elements from %lld on are left out; there are %lld",
                       s->name, (long long)count, (long long)at, (long long)room);
    MR_TRY(check_order(s, at));
    if (!at)
        take_value(p, s), s->lost = p->exec->dev->lost;
    add_passed(p, s, in, count);
    return MR_OK;
}

/* Copy all fresh inputs from one of their buffers to the next. */
static mr_status copy_fresh(mr_program *p, mr_lane lane, mr_dptr to, mr_dptr from)
{
    const mr_device *dev = p->exec->dev;
    for (int i = 0; i < p->n_slots; i++) {
        const slot *s = &p->slots[i];
        size_t at = p->place[s->storage];
        mr_copy copy = {.to = to + at,
                        .from = from + at,
                        .bytes = mr_graph_storage(p->graph, s->storage)->bytes,
                        .name = s->name,
                        .clock = p->timed ? mr_edge_clock_in(p, i, lane == MR_LANE_RUN) : NULL};
        if (s->fresh)
            MR_TRY(dev->ops->copy(p->exec->dev, lane, &copy));
    }
    return MR_OK;
}

static mr_status send(mr_program *p)
{
    mr_exec *e = p->exec;
    mr_device *dev = e->dev;
    const mr_device_ops *ops = dev->ops;
    MR_TRY(ops->wait(dev, MR_LANE_IN, e->taken));
    p->sending = true;
    MR_TRY(copy_fresh(p, MR_LANE_IN, e->landing.at, p->staged));
    MR_TRY(ops->mark(dev, MR_LANE_IN, p->sent));
    MR_TRY(ops->wait(dev, MR_LANE_RUN, p->sent));
    MR_TRY(copy_fresh(p, MR_LANE_RUN, p->inputs, e->landing.at));
    return ops->mark(dev, MR_LANE_RUN, e->taken);
}

mr_status mr_edge_send(mr_program *p)
{
    mr_device *dev = p->exec->dev;
    bool any = false, lost = !p->exec->at_once && p->lost != dev->lost;
    for (int i = 0; i < p->n_slots; i++) {
        slot *s = &p->slots[i];
        // a value passed from a run exists nowhere else: mark it as lost
        if (s->passed && s->lost != dev->lost && !p->exec->at_once)
            take_value(p, s);
        if (p->n_unset && !s->set)
            return mr_fail(MR_E_USAGE, "input '%s' was never set; try: set it before the first run",
                           s->name);
        s->fresh |= lost && !s->passed;
        any |= s->fresh;
    }
    if (p->exec->at_once)
        return MR_OK;
    p->lost = dev->lost;
    if (!any)
        return MR_OK;
    mr_status st = send(p);
    if (st != MR_OK) {
        // some copies are in flight: wait until they end before the buffers are used again
        mr_error *first = mr_error_copy(mr_error_last());
        dev->ops->sync(dev);
        mr_error_adopt(first);
        mr_error_free(first);
        return st;
    }
    for (int i = 0; i < p->n_slots; i++)
        p->slots[i].fresh = false;
    return MR_OK;
}

/* ---- results ---- */

mr_status mr_program_fetch(mr_program *p, const char *output, uint64_t *ticket)
{
    mr_exec *e = p->exec;
    mr_device *dev = e->dev;
    MR_TRY(mr_exec_works(e));
    const result *r = mr_program_result(p, output);
    if (!r)
        return MR_E_USAGE;
    const mr_desc *d = &mr_graph_value(p->graph, r->value)->desc;
    size_t bytes = mr_desc_span_bytes(d);
    if (bytes > MR_FETCH_BYTES)
        return mr_fail(MR_E_USAGE,
                       "output '%s' has %zu bytes, at most %d are fetched in parallel with runs; "
                       "try: get, which waits",
                       output, bytes, MR_FETCH_BYTES);
    size_t place = e->n_fetched % MR_FETCHES;
    fetch *f = &e->fetches[place];
    mr_dptr takeoff = e->takeoff + place * MR_FETCH_BYTES;
    mr_copy leave = {takeoff, mr_program_result_at(p, r), bytes, r->name, NULL},
            back = {e->ring + place * MR_FETCH_BYTES, takeoff, bytes, r->name,
                    p->timed ? mr_edge_clock_out(p, (int)(r - p->outputs)) : NULL};
    const mr_device_ops *ops = dev->ops;
    *f = (fetch){.there = f->there, .number = ++e->n_fetched, .lost = dev->lost, .desc = *d};
    snprintf(f->name, sizeof f->name, "%s", output);
    // an older result in this entry of the ring is overwritten
    MR_TRY(ops->copy(dev, MR_LANE_RUN, &leave));
    if (!e->at_once) {
        MR_TRY(ops->mark(dev, MR_LANE_RUN, e->left));
        MR_TRY(ops->wait(dev, MR_LANE_OUT, e->left));
        MR_TRY(ops->copy(dev, MR_LANE_OUT, &back));
        MR_TRY(ops->mark(dev, MR_LANE_OUT, f->there));
    }
    *ticket = f->number;
    return MR_OK;
}

static mr_status find_fetch(mr_exec *e, uint64_t ticket, fetch **out)
{
    MR_TRY(mr_exec_works(e));
    fetch *f = &e->fetches[(ticket - 1) % MR_FETCHES];
    if (!ticket || f->number != ticket)
        return mr_fail(
            MR_E_USAGE,
            "the fetched output was overwritten: %d more were fetched since; try: take it earlier",
            MR_FETCHES);
    *out = f;
    return MR_OK;
}

/* Whether a result has arrived. Lane OUT is in order: if one has arrived, all before it have, back
 * to the last failure. */
static bool is_there(const mr_exec *e, const fetch *f)
{
    return f->number <= e->there.number && f->lost == e->there.lost;
}

static mr_status ask(mr_exec *e, const fetch *f, bool block)
{
    bool there;
    if (is_there(e, f))
        return MR_OK;
    MR_TRY(e->dev->ops->reached(e->dev, f->there, block, &there));
    if (f->lost != e->dev->lost)
        return mr_fail(MR_E_USAGE,
                       "the fetched output was lost when a step failed; try: run again");
    if (there)
        e->there = *f;
    return MR_OK;
}

mr_status mr_exec_ready(mr_exec *e, uint64_t ticket, bool *ready)
{
    fetch *f = NULL;
    MR_TRY(find_fetch(e, ticket, &f));
    MR_TRY(ask(e, f, false));
    *ready = is_there(e, f);
    return MR_OK;
}

mr_status mr_exec_take(mr_exec *e, uint64_t ticket, const mr_view *out)
{
    fetch *f = NULL;
    MR_TRY(find_fetch(e, ticket, &f));
    if (!mr_desc_same_shape(&out->desc, &f->desc))
        return mr_shapes_differ("output", f->name, &out->desc, &f->desc);
    e->waits.results += !is_there(e, f);
    MR_TRY(ask(e, f, true));
    size_t place = (size_t)(ticket - 1) % MR_FETCHES;
    void *at = e->dev->ops->host(e->dev, e->ring + place * MR_FETCH_BYTES);
    return mr_view_copy(out, &(mr_view){at, f->desc});
}

mr_waits mr_exec_waits(const mr_exec *e)
{
    return e->waits;
}
