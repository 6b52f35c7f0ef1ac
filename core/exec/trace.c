/* exec: where the time of a run goes - a table and a Chrome trace file. Licence: Apache-2.0 */
#include "exec/room.h"
#include "base/text.h"

#include <string.h>

mr_status mr_program_time(mr_program *p, bool on)
{
    MR_TRY(mr_exec_sync(p->exec));
    int n = p->n_run + p->n_copies;
    if (!p->clocks)
        p->clocks = mr_alloc((size_t)n * sizeof *p->clocks);
    if (!p->clocks)
        return mr_fail_memory((size_t)n * sizeof *p->clocks);
    memset(p->clocks, 0, (size_t)n * sizeof *p->clocks);
    for (int i = 0; i < n; i++)
        p->steps[p->n_setup + i].clock = on ? &p->clocks[i] : NULL;
    p->timed = on;
    return MR_OK;
}

int mr_program_times(const mr_program *p, mr_step_time *out, int cap)
{
    if (p->exec->dev)
        p->exec->dev->ops->sync(p->exec->dev);
    for (int i = 0; i < p->n_run && i < cap; i++) {
        const mr_step *s = &p->steps[p->n_setup + i];
        out[i] = (mr_step_time){s->node, p->clocks ? p->clocks[i].seconds : 0,
                                mr_step_expected(p->exec, s), mr_step_cost(s), s->naive};
    }
    return p->n_run;
}

static void put_text(mr_text *t, const char *s)
{
    mr_text_add(t, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            mr_text_add(t, "\\%c", *s);
        else if ((unsigned char)*s < 32)
            mr_text_add(t, "\\u%04x", *s);
        else
            mr_text_add(t, "%c", *s);
    }
    mr_text_add(t, "\"");
}

/* A process with a row per queue. */
static void put_process(mr_text *t, int pid, const char *device, const char *what)
{
    mr_text_add(t,
                "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"moonreel "
                "%s%s\"}},\n",
                pid, device, what);
    for (int q = 0; q < MR_QUEUE_COUNT; q++)
        mr_text_add(t,
                    "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{"
                    "\"name\":\"%s\"}},\n",
                    pid, q, mr_queue_name((mr_queue)q));
}

static void put_step(mr_text *t, const mr_program *p, int i, int pid, double start_s)
{
    const mr_step *s = &p->steps[p->n_setup + i];
    const mr_node *node = s->node;
    mr_text_add(t, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":", pid,
                (int)s->queue, start_s * 1e6, p->clocks[i].seconds * 1e6);
    put_text(t, s->op ? s->op->name : "copy out");
    mr_text_add(t, ",\"cat\":");
    put_text(t, node && node->block >= 0 ? mr_graph_block_name(p->graph, node->block) : "");
    mr_text_add(t, ",\"args\":{\"node\":");
    put_text(t, node && node->name ? node->name : "");
    mr_text_add(t, ",\"origin\":");
    put_text(t, node && node->origin ? node->origin : "");
    mr_cost c = mr_step_cost(s);
    mr_text_add(t, ",\"flop\":%.0f,\"bytes\":%.0f,\"naive\":%s}},\n", c.flop, c.bytes,
                s->naive ? "true" : "false");
}

/* Where nodes name side queues: the same steps, each as long as it took, begun as soon as the
 * schedule lets them. A device that runs one step at a time shows by it what would be hidden. */
static mr_status put_beside(mr_text *t, const mr_program *p)
{
    int n = p->n_run + p->n_copies;
    bool side = false;
    for (int i = 0; i < p->n_run; i++)
        side |= p->steps[p->n_setup + i].queue != MR_Q_COMPUTE;
    if (!side)
        return MR_OK;
    double *seconds = mr_alloc((size_t)n * 2 * sizeof *seconds), *start = seconds + n;
    if (!seconds)
        return mr_fail_memory((size_t)n * 2 * sizeof *seconds);
    for (int i = 0; i < n; i++)
        seconds[i] = p->clocks[i].seconds;
    mr_schedule_play(mr_layout_schedule(p->layout), seconds, start);
    put_process(t, 2, p->exec->facts.device, ", queues side by side");
    for (int i = 0; i < n; i++)
        put_step(t, p, i, 2, start[i]);
    mr_free(seconds);
    return MR_OK;
}

mr_status mr_program_trace(const mr_program *p, const char *path)
{
    MR_TRY(mr_exec_works(p->exec));
    if (!p->timed)
        return mr_fail(
            MR_E_USAGE,
            "nothing to write: the program was not timed; try: time it, run, then write the trace");
    MR_TRY(mr_exec_sync(p->exec));
    mr_text t = {0};
    mr_text_add(&t, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    put_process(&t, 1, p->exec->facts.device, "");
    double zero = p->n_run + p->n_copies ? p->clocks[0].start_s : 0;
    for (int i = 0; i < p->n_run + p->n_copies; i++)
        put_step(&t, p, i, 1, p->clocks[i].start_s - zero);
    mr_status st = put_beside(&t, p);
    // the last event has no comma
    mr_text_add(&t, "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_sort_index\",\"args\":{"
                    "\"sort_index\":0}}\n]}\n");
    char *text = NULL;
    mr_status end = mr_text_end(&t, &text);
    if (st == MR_OK)
        st = end;
    if (st == MR_OK)
        st = mr_file_replace(path, text, strlen(text));
    if (end == MR_OK)
        mr_free(text);
    return st;
}
