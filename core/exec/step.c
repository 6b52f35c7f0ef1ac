/* exec: runs one step on the CPU. Licence: Apache-2.0 */
#include "exec/room.h"

#include "cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The memory that is available without swapping. It includes cached file pages, which are most of
 * the memory after data was read. 0: unknown. */
static size_t available(void)
{
    static const char line[] = "\nMemAvailable:";
    char *text;
    size_t n, bytes = 0;
    if (mr_file_read_all("/proc/meminfo", &text, &n) != MR_OK) {
        mr_error_clear();
        return 0;
    }
    const char *at = strstr(text, line);
    if (at)
        bytes = (size_t)strtoull(at + sizeof line - 1, NULL, 10) << 10;
    mr_free(text);
    return bytes;
}

/* The memory that this process can still map under its address space limit. */
static size_t allowed(void)
{
    struct rlimit limit;
    char *text;
    size_t n, used = 0;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    if (mr_file_read_all("/proc/self/statm", &text, &n) == MR_OK) {
        used = (size_t)strtoull(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
        mr_free(text);
    } else {
        mr_error_clear();
    }
    return limit.rlim_cur > used ? (size_t)limit.rlim_cur - used : 0;
}

mr_status mr_host_memory(mr_device *dev, size_t *free_bytes, size_t *total_bytes)
{
    (void)dev;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), kept = available();
    *free_bytes = MR_MIN(kept ? kept : (size_t)sysconf(_SC_AVPHYS_PAGES) * page, allowed());
    *total_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * page;
    return MR_OK;
}

static mr_status blame(const mr_step *s, mr_status st)
{
    if (st == MR_OK)
        return st;
    if (s->node)
        mr_fail_where(s->op ? s->op->name : "copy", s->node->name, s->node->origin);
    else if (s->op)
        mr_fail_where(s->op->name, NULL, NULL);
    return st;
}

/* Fill the arguments of a call; those that the node does not have are absent. */
static void put_args(mr_view *to, int most, const mr_arg *arg, int n)
{
    for (int i = 0; i < most; i++) {
        bool given = i < n && arg[i].desc;
        to[i].data = given ? (void *)arg[i].at : NULL;
        if (given)
            to[i].desc = *arg[i].desc;
        else
            to[i].desc.rank = -1;
    }
}

void mr_step_call(const mr_step *s, mr_call *call)
{
    call->n_in = s->n_in, call->n_out = s->n_out;
    put_args(call->in, MR_MAX_IN, s->arg, s->n_in);
    put_args(call->out, MR_MAX_OUT, s->arg + s->n_in, s->n_out);
    call->attr = s->node ? s->node->attr : NULL;
    call->workspace = (void *)s->workspace;
    call->state = s->state;
    call->threads = s->threads;
}

// the error for shapes that no kernel of the device supports, with all shapes of the step
static mr_status fail_no_kernel(const mr_step *s, const mr_facts *facts)
{
    char shapes[700] = "";
    size_t n = 0;
    for (int i = 0; i < s->n_in && n < sizeof shapes - 100; i++) {
        char one[100];
        if (s->arg[i].desc)
            n += (size_t)snprintf(shapes + n, sizeof shapes - n, "%s%s", n ? ", " : "",
                                  mr_desc_text(s->arg[i].desc, one, sizeof one));
    }
    return mr_fail(MR_E_UNSUPPORTED,
                   "%s has no kernel for %s; on the host it would be correct and thousands of "
                   "times slower; try: other sizes or another dtype, or host_steps = \"allow\"",
                   facts->device, shapes);
}

mr_status mr_step_choose(mr_step *s, const mr_facts *facts)
{
    const mr_kernel *k = s->kernel = mr_op_kernel(s->op, facts->device);
    mr_call call;
    s->threads = facts->threads;
    mr_step_call(s, &call);
    s->run =
        k && mr_op_kernel_fits(s->op, &call) ? mr_kernel_run(k, mr_isa_index(facts->isa)) : NULL;
    s->workspace_bytes = s->run && k->workspace ? k->workspace(&call, facts) : 0;
    s->naive = !s->run || s->workspace_bytes == MR_NO_KERNEL;
    if (s->naive && !s->op->naive)
        return blame(s, mr_fail(MR_E_UNSUPPORTED,
                                "no kernel supports these shapes, and the op has no naive kernel"));
    if (s->naive && facts->host_refused)
        return blame(s, fail_no_kernel(s, facts));
    if (s->naive)
        s->workspace_bytes = mr_op_naive_workspace(s->op, &call);
    return MR_OK;
}

static mr_status prepare(mr_step *s, const mr_facts *facts)
{
    mr_call call;
    if (s->kind == MR_STEP_COPY || s->naive || !s->kernel->prepare)
        return MR_OK;
    mr_step_call(s, &call);
    return blame(s, s->kernel->prepare(&call, facts, &s->state));
}

mr_status mr_steps_prepare(mr_step *steps, int n, const mr_facts *facts)
{
    mr_status st = MR_OK;
    for (int i = 0; i < n && st == MR_OK; i++)
        st = prepare(&steps[i], facts);
    if (st != MR_OK)
        mr_steps_forget(steps, n);
    return st;
}

void mr_steps_forget(mr_step *steps, int n)
{
    for (int i = 0; i < n; i++) {
        if (steps[i].state && steps[i].kernel->release)
            steps[i].kernel->release(steps[i].state);
        steps[i].state = NULL;
    }
}

mr_cost mr_step_cost(const mr_step *s)
{
    mr_call call;
    mr_step_call(s, &call);
    return s->op ? mr_op_cost(s->op, &call) : (mr_cost){0, 2.0 * (double)s->bytes};
}

const char *mr_step_way(const mr_step *s, const mr_facts *facts)
{
    mr_call call;
    mr_step_call(s, &call);
    return s->kernel && !s->naive && s->kernel->way ? s->kernel->way(&call, facts) : NULL;
}

mr_status mr_step_run(const mr_step *s, const mr_call *call)
{
    double start = s->clock ? mr_now_s() : 0;
    mr_status st = MR_OK;
    if (s->kind == MR_STEP_COPY) {
        if (s->bytes)
            st = mr_interrupt_copy(call->out[0].data, call->in[0].data, s->bytes);
    } else {
        st = s->naive ? mr_op_run_naive(s->op, call) : s->run(call);
    }
    if (s->clock)
        s->clock->start_s = start, s->clock->seconds = mr_now_s() - start;
    return blame(s, st);
}
