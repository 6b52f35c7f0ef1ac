/* exec: writes the schedule and the times of a run as a Chrome trace file. Licence: Apache-2.0 */
#include "exec/room.h"
#include "base/text.h"

#include <string.h>

mr_status mr_program_schedule(const mr_program *p, char **text)
{
    mr_text t = {0};
    char *steps = NULL;
    MR_TRY(mr_schedule_print(mr_layout_schedule(p->layout), &steps));
    mr_text_add(&t, "%s", steps);
    mr_free(steps);
    for (int i = 0; i < p->n_slots && !p->exec->at_once; i++)
        mr_text_add(&t, "   in %-10s  copy in '%s'  during the run before\n", "inputs",
                    p->slots[i].name);
    for (int i = 0; i < p->n_outputs && !p->exec->at_once; i++) {
        const mr_value *v = mr_graph_value(p->graph, p->outputs[i].value);
        if (mr_desc_span_bytes(&v->desc) <= MR_FETCH_BYTES)
            mr_text_add(&t, "  out %-10s  copy back '%s'  during the run after, if it is fetched\n",
                        "results", p->outputs[i].name);
    }
    return mr_text_end(&t, text);
}

/* Write a text. Origins are paths, which can have any bytes: each byte that is not UTF-8 is written
 * as \\xHH. */
static void put_text(mr_text *t, const char *s)
{
    mr_text_add(t, "\"");
    for (size_t left = strlen(s), n; left; s += n, left -= n) {
        uint32_t code = 0;
        const size_t known = mr_utf8(s, left, &code);
        n = known ? known : 1;
        if (!known)
            mr_text_add(t, "\\\\x%02X", (unsigned char)*s);
        else if (code == '"' || code == '\\')
            mr_text_add(t, "\\%c", *s);
        else if (code < 32)
            mr_text_add(t, "\\u%04x", (unsigned)code);
        else
            mr_text_add(t, "%.*s", (int)n, s);
    }
    mr_text_add(t, "\"");
}

/* Rows of copies, below those of the queues. */
enum { ROW_IN = MR_QUEUE_COUNT, ROW_OUT };

/* Write a process with a row per queue. */
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
    for (int row = ROW_IN; row <= ROW_OUT; row++)
        mr_text_add(t,
                    "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{"
                    "\"name\":\"%s\"}},\n",
                    pid, row, row == ROW_IN ? "inputs" : "results");
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

/* ---- copies between runs ---- */

static bool was_in(const mr_program *p, int i)
{
    return mr_edge_clock_in(p, i, false)->start_s > 0;
}

static bool was_out(const mr_program *p, int i)
{
    return mr_edge_clock_out(p, i)->start_s > 0;
}

static bool any_edge(const mr_program *p)
{
    bool any = false;
    for (int i = 0; i < p->n_slots; i++)
        any |= was_in(p, i);
    for (int i = 0; i < p->n_outputs; i++)
        any |= was_out(p, i);
    return any;
}

static void put_copy(mr_text *t, int pid, int row, const char *what, const char *name,
                     double start_s, double seconds)
{
    mr_text_add(t,
                "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\","
                "\"args\":{\"of\":",
                pid, row, start_s * 1e6, seconds * 1e6, what);
    put_text(t, name);
    mr_text_add(t, "}},\n");
}

/* Write the copies at their measured times. */
static void put_edges(mr_text *t, const mr_program *p, double zero)
{
    for (int i = 0; i < p->n_slots; i++) {
        const mr_step_clock *in = mr_edge_clock_in(p, i, false),
                            *take = mr_edge_clock_in(p, i, true);
        if (!was_in(p, i))
            continue;
        put_copy(t, 1, ROW_IN, "copy in", p->slots[i].name, in->start_s - zero, in->seconds);
        put_copy(t, 1, MR_Q_COMPUTE, "take in", p->slots[i].name, take->start_s - zero,
                 take->seconds);
    }
    for (int i = 0; i < p->n_outputs; i++) {
        const mr_step_clock *out = mr_edge_clock_out(p, i);
        if (was_out(p, i))
            put_copy(t, 1, ROW_OUT, "copy back", p->outputs[i].name, out->start_s - zero,
                     out->seconds);
    }
}

/* Write the copies as in a sequence of runs: the inputs of this run, then those of the next run,
 * and the results of the previous run. Returns when the first step begins. */
static double put_copies(mr_text *t, const mr_program *p)
{
    double taken = 0, in = 0, out = 0;
    for (int i = 0; i < p->n_slots; i++) {
        double seconds = mr_edge_clock_in(p, i, true)->seconds;
        if (was_in(p, i))
            put_copy(t, 2, MR_Q_COMPUTE, "take in", p->slots[i].name, taken, seconds);
        taken += seconds;
    }
    for (int i = 0; i < p->n_slots; i++) {
        double seconds = mr_edge_clock_in(p, i, false)->seconds;
        if (was_in(p, i))
            put_copy(t, 2, ROW_IN, "copy in for the run after", p->slots[i].name, taken + in,
                     seconds);
        in += seconds;
    }
    for (int i = 0; i < p->n_outputs; i++) {
        double seconds = mr_edge_clock_out(p, i)->seconds;
        if (was_out(p, i))
            put_copy(t, 2, ROW_OUT, "copy back from the run before", p->outputs[i].name, out,
                     seconds);
        out += seconds;
    }
    return taken;
}

/* If the program uses side queues or transfers: write the same steps with their measured durations,
 * but started as soon as the schedule allows. For a synchronous device, this shows what another
 * device would overlap. */
static mr_status put_overlap(mr_text *t, const mr_program *p)
{
    int n = p->n_run + p->n_copies;
    bool side = any_edge(p);
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
    double taken = put_copies(t, p);
    for (int i = 0; i < n; i++)
        put_step(t, p, i, 2, taken + start[i]);
    mr_free(seconds);
    return MR_OK;
}

/* The earliest start of all timed items: queues do not start in the order of the list. */
static double began(const mr_program *p)
{
    double first = p->clocks[0].start_s;
    const int all = p->n_run + p->n_copies + 2 * p->n_slots + p->n_outputs;
    for (int i = 0; i < all; i++)
        if (p->clocks[i].start_s > 0)
            first = MR_MIN(first, p->clocks[i].start_s);
    return first;
}

mr_status mr_program_trace(const mr_program *p, const char *path)
{
    MR_TRY(mr_exec_works(p->exec));
    MR_TRY(mr_exec_sync(p->exec));
    const bool ran = p->timed && p->n_run + p->n_copies > 0 && p->clocks[0].start_s > 0;
    if (!ran)
        return mr_fail(MR_E_USAGE,
                       "nothing to write: the program was not timed in a run; try: time "
                       "it, run, then write the trace");
    mr_text t = {0};
    mr_text_add(&t, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    put_process(&t, 1, p->exec->facts.device, "");
    const double zero = began(p);
    for (int i = 0; i < p->n_run + p->n_copies; i++)
        put_step(&t, p, i, 1, p->clocks[i].start_s - zero);
    put_edges(&t, p, zero);
    mr_status st = put_overlap(&t, p);
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
