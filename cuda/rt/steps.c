/* cuda/rt: steps that run together. Each queue is a stream, each edge between queues an event. The
 * first run enqueues the steps, the second captures them, and later runs launch the captured graph.
 *
 * A run forks from the first stream and joins it again. So all work that was enqueued earlier
 * completes before the run begins on any stream, and waiting for the first stream waits for all of
 * them.
 * Licence: Apache-2.0 */
#include "room.h"

#include <string.h>

// ---- setup ----

// keeps an event that exists already: from an earlier run, or from a call that failed later
static mr_status new_event(bool timed, void **event)
{
    return *event ? MR_OK
                  : cuda_fail(mr_cuda.event_new(timed, event), timed ? "a clock" : "an event");
}

// before the first run: the waits between steps are known when the program is bound
static mr_status new_events(prepared *p, const mr_step *steps)
{
    for (int i = 0; i < p->n; i++)
        p->used[steps[i].queue] = true;
    for (int q = 1; q < MR_QUEUE_COUNT; q++)
        if (p->used[q])
            MR_TRY(new_event(false, &p->end[q]));
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < steps[i].wait_n; k++)
            MR_TRY(new_event(false, &p->event[steps[i].wait[k]]));
    p->has_events = true;
    return MR_OK;
}

static mr_status make_state(rt *rt, prepared *p, mr_step *s, int i)
{
    mr_call call;
    if (s->kind != MR_STEP_OP)
        return MR_OK;
    if (s->naive)
        return blame(s, host_step_new(rt, s, &p->host[i]));
    const mr_cuda_kernel *found = mr_cuda_kernel_find(s->op->name);
    p->checks |= found && found->check;
    if (!s->kernel->prepare)
        return MR_OK;
    mr_step_call(s, &call);
    return blame(s, s->kernel->prepare(&call, &rt->dev.facts, &s->state));
}

mr_status prepared_new(rt *rt, mr_step *steps, int n, prepared **out)
{
    prepared *p;
    if (!MR_NEW(p))
        return mr_fail_memory(sizeof *p);
    p->steps = steps, p->n = n;
    p->event = mr_calloc((size_t)n, sizeof *p->event);
    p->host = mr_calloc((size_t)n, sizeof *p->host);
    mr_status st = p->event && p->host ? MR_OK : mr_fail_memory((size_t)n * sizeof *p->event);
    for (int i = 0; i < n && st == MR_OK; i++)
        st = make_state(rt, p, &steps[i], i);
    if (st == MR_OK)
        *out = p;
    else
        prepared_free(p, steps);
    return st;
}

static void free_events(void **event, int n)
{
    for (int i = 0; event && i < n; i++)
        if (event[i])
            mr_cuda.event_free(event[i]);
}

void prepared_free(prepared *p, mr_step *steps)
{
    prepared_moved(p);
    free_events(p->event, p->n);
    free_events(p->end, MR_QUEUE_COUNT);
    for (int k = 0; k < 2; k++) {
        free_events(p->clock[k], p->n);
        mr_free(p->clock[k]);
    }
    for (int i = 0; i < p->n; i++) {
        if (p->host)
            host_step_free(p->host[i]);
        if (steps[i].state && steps[i].kernel->release)
            steps[i].kernel->release(steps[i].state);
        steps[i].state = NULL;
    }
    mr_free(p->event);
    mr_free(p->host);
    mr_free(p);
}

void prepared_moved(prepared *p)
{
    if (p->graph)
        mr_cuda.graph_free(p->graph);
    p->graph = NULL, p->runs = 0;
}

// ---- running ----

static mr_status run_step(rt *rt, prepared *p, const mr_step *s, int i)
{
    void *stream = rt->stream[s->queue];
    mr_call call;
    for (int k = 0; k < s->wait_n; k++)
        CUDA_TRY(mr_cuda.event_wait(p->event[s->wait[k]], stream), "a wait between queues");
    if (s->clock)
        CUDA_TRY(mr_cuda.event_record(p->clock[0][i], stream), "a clock");
    if (s->kind == MR_STEP_COPY) {
        if (s->bytes)
            CUDA_TRY(mr_cuda.copy((void *)s->arg[1].at, (void *)s->arg[0].at, s->bytes, stream),
                     "a copy");
    } else if (p->host[i]) {
        MR_TRY(host_step_enqueue(p->host[i], stream));
    } else {
        mr_step_call(s, &call);
        call.stream = stream;
        MR_TRY(s->run(&call));
        CUDA_TRY(mr_cuda.launched(), "the launch of this step, or an earlier one");
    }
    if (s->clock)
        CUDA_TRY(mr_cuda.event_record(p->clock[1][i], stream), "a clock");
    if (p->event[i])
        CUDA_TRY(mr_cuda.event_record(p->event[i], stream), "an event");
    return MR_OK;
}

// wait for the step and check the values that it wrote
static mr_status wait_for(rt *rt, const mr_step *s)
{
    MR_TRY(rt_wait(rt, rt->stream[s->queue]));
    MR_TRY(rt_report_failure(rt));
    const mr_cuda_kernel *found = s->op && !s->naive ? mr_cuda_kernel_find(s->op->name) : NULL;
    return found && found->check ? found->check(s->state) : MR_OK;
}

static mr_status fork(rt *rt, prepared *p)
{
    CUDA_TRY(mr_cuda.event_record(rt->begun, rt->stream[0]), "an event");
    for (int q = 1; q < MR_QUEUE_COUNT; q++)
        if (p->used[q])
            CUDA_TRY(mr_cuda.event_wait(rt->begun, rt->stream[q]), "a wait between queues");
    return MR_OK;
}

static mr_status join(rt *rt, prepared *p)
{
    for (int q = 1; q < MR_QUEUE_COUNT; q++)
        if (p->used[q]) {
            CUDA_TRY(mr_cuda.event_record(p->end[q], rt->stream[q]), "an event");
            CUDA_TRY(mr_cuda.event_wait(p->end[q], rt->stream[0]), "a wait between queues");
        }
    return MR_OK;
}

static mr_status enqueue(rt *rt, prepared *p, const mr_step *steps)
{
    // errors of earlier work must not blame the first step
    if (rt->each)
        MR_TRY(rt_wait(rt, rt->stream[0]));
    MR_TRY(fork(rt, p));
    for (int i = 0; i < p->n; i++) {
        mr_cuda.range(steps[i].node ? steps[i].node->name : "result");
        mr_status st = run_step(rt, p, &steps[i], i);
        if (st == MR_OK && rt->each)
            st = wait_for(rt, &steps[i]);
        mr_cuda.range(NULL);
        MR_TRY(blame(&steps[i], st));
    }
    return join(rt, p);
}

static mr_status capture(rt *rt, prepared *p, const mr_step *steps)
{
    CUDA_TRY(mr_cuda.capture_begin(rt->stream[0]), "a capture");
    mr_status st = enqueue(rt, p, steps);
    mr_error *first = st == MR_OK ? NULL : mr_error_copy(mr_error_last());
    int error = mr_cuda.capture_end(rt->stream[0], &p->graph);
    if (st != MR_OK) {
        if (p->graph)
            mr_cuda.graph_free(p->graph);
        p->graph = NULL;
        mr_error_adopt(first);
        mr_error_free(first);
        return st;
    }
    return cuda_fail(error, "a capture");
}

static mr_status new_clocks(prepared *p)
{
    for (int k = 0; k < 2; k++) {
        if (!p->clock[k])
            p->clock[k] = mr_calloc((size_t)p->n, sizeof *p->clock[k]);
        if (!p->clock[k])
            return mr_fail_memory((size_t)p->n * sizeof *p->clock[k]);
        for (int i = 0; i < p->n; i++)
            MR_TRY(new_event(true, &p->clock[k][i]));
    }
    return MR_OK;
}

mr_status prepared_run(rt *rt, prepared *p, const mr_step *steps)
{
    mr_status st;
    if (!p->has_events)
        MR_TRY(new_events(p, steps));
    p->timed = steps[0].clock != NULL;
    if (p->timed) {
        MR_TRY(new_clocks(p));
        MR_TRY(clocks_begin(rt));
    }
    if (p->left != mr_cuda_ranks_left())
        prepared_moved(p);
    p->left = mr_cuda_ranks_left();
    bool direct = rt->each || p->timed || p->runs++ == 0;
    if (direct) {
        st = enqueue(rt, p, steps);
    } else {
        st = p->graph ? MR_OK : capture(rt, p, steps);
        if (st == MR_OK)
            st = cuda_fail(mr_cuda.graph_run(p->graph, rt->stream[0]), "a captured run");
    }
    if (st == MR_OK && !p->waits && (p->checks || p->timed))
        p->next = rt->waiting, rt->waiting = p, p->waits = true;
    return st;
}

mr_status clocks_begin(rt *rt)
{
    CUDA_TRY(mr_cuda.event_record(rt->later, rt->stream[0]), "a clock");
    rt->moves = true;
    return MR_OK;
}

static mr_status move_zero(rt *rt)
{
    double since = 0;
    void *zero = rt->zero;
    if (!rt->moves)
        return MR_OK;
    CUDA_TRY(mr_cuda.event_seconds(zero, rt->later, &since), "a clock");
    rt->zero = rt->later, rt->later = zero, rt->zero_s += since, rt->moves = false;
    return MR_OK;
}

mr_status read_clock(rt *rt, void *from, void *to, mr_step_clock *clock)
{
    double since = 0;
    MR_TRY(move_zero(rt));
    CUDA_TRY(mr_cuda.event_seconds(rt->zero, from, &since), "a clock");
    CUDA_TRY(mr_cuda.event_seconds(from, to, &clock->seconds), "a clock");
    clock->start_s = rt->zero_s + since;
    return MR_OK;
}

mr_status prepared_check(rt *rt, prepared *p)
{
    for (int i = 0; i < p->n; i++) {
        const mr_step *s = &p->steps[i];
        const mr_cuda_kernel *found = s->op && !s->naive ? mr_cuda_kernel_find(s->op->name) : NULL;
        if (found && found->check)
            MR_TRY(blame(s, found->check(s->state)));
        if (s->clock && p->timed)
            MR_TRY(read_clock(rt, p->clock[0][i], p->clock[1][i], s->clock));
    }
    return MR_OK;
}
