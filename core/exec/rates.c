/* exec: how fast a device is, measured in a few milliseconds, and what a run will take by it.
 *
 * A step takes flop / rate + bytes / bandwidth plus a fixed part: probes run on warm data, steps do
 * not. Products, attention and an elementwise formula are probed; a row is rated like the longest
 * probe its name begins with, any other like the elementwise one. Probes run on one thread and are
 * scaled up: with a team, another process on one of the cores makes a probe wait for its time
 * slice, a hundred times its own length. Licence: Apache-2.0 */
#include "exec/room.h"

#include <stdio.h>
#include <string.h>

typedef struct probe {
    const char *op;
    int n_in;
    unsigned f32; /* bit i: input i is f32 whatever the compute dtype */
    int rank[3];
    int64_t dim[3][5]; /* -1: the size that grows */
} probe;

enum { RUNS = 4, STREAMS = 4 }; /* more threads than STREAMS do not move more bytes */
#define SPEND_S 4e-3            /* seconds of runs per probe */
#define TEAM    0.85            /* what each further thread adds */
#define FORK_S  3e-6            /* to gather a team */

enum { LINEAR, LINEAR_DX, LINEAR_DW, MATMUL, ATTENTION, VECTOR, MEMORY, STEP, PROBES };
static const probe probes[PROBES] = {
    [LINEAR] = {"linear", 2, 0, {2, 2}, {{-1, 256}, {256, 256}}},
    [LINEAR_DX] = {"linear_dx", 2, 0, {2, 2}, {{-1, 256}, {256, 256}}},
    [LINEAR_DW] = {"linear_dw", 3, 1 << 2, {2, 2, 2}, {{-1, 256}, {-1, 256}, {256, 256}}},
    [MATMUL] = {"matmul", 2, 0, {2, 2}, {{-1, 256}, {256, 256}}},
    [ATTENTION] =
        {"attention", 3, 0, {5, 5, 5}, {{1, 1, -1, 4, 64}, {1, 1, -1, 4, 64}, {1, 1, -1, 4, 64}}},
    [VECTOR] = {"gelu_tanh", 1, 0, {2}, {{-1, 64}}},
    [MEMORY] = {"copy", 1, 0, {2}, {{-1, 4096}}},
    [STEP] = {"copy", 1, 0, {1}, {{1}}},
};

/* Seconds and cost of one probe of that size: the best of RUNS; *spent grows by all of them. */
static mr_status time_probe(mr_exec *e, const probe *pr, mr_dtype dtype, int64_t size,
                            double *seconds, mr_cost *cost, double *spent)
{
    mr_graph *g = NULL;
    mr_program *p = NULL;
    mr_ref in[MR_MAX_IN], out[MR_MAX_OUT];
    mr_status st = mr_graph_new(NULL, NULL, &g);
    if (st != MR_OK)
        return st;
    for (int i = 0; i < mr_op_n_in(mr_op_find(pr->op)); i++)
        in[i] = MR_NONE;
    for (int i = 0; i < pr->n_in; i++) {
        char name[2] = {(char)('a' + i), 0};
        int64_t dim[5];
        for (int k = 0; k < pr->rank[i]; k++)
            dim[k] = pr->dim[i][k] < 0 ? size : pr->dim[i][k];
        MR_TRY_GOTO(
            mr_graph_input(g, name, pr->f32 >> i & 1 ? MR_F32 : dtype, pr->rank[i], dim, &in[i]));
    }
    MR_TRY_GOTO(mr_graph_add(g, pr->op, MR_NO_ATTRS, in, mr_op_n_in(mr_op_find(pr->op)), out));
    MR_TRY_GOTO(mr_graph_output(g, "y", out[0]));
    MR_TRY_GOTO(mr_graph_finish(g));
    MR_TRY_GOTO(mr_exec_compile(e, g, &p));
    // slots are cleared memory: zeros will do
    for (int i = 0; i < p->n_slots; i++)
        p->slots[i].set = true;
    p->n_unset = 0;
    MR_TRY_GOTO(mr_program_time(p, true));
    for (int run = 0; run < RUNS; run++) {
        mr_step_time row;
        MR_TRY_GOTO(mr_program_run(p));
        MR_TRY_GOTO(mr_exec_sync(e));
        mr_program_times(p, &row, 1);
        if (!run || row.seconds < *seconds)
            *seconds = row.seconds;
        *spent += row.seconds, *cost = row.cost;
    }
out:
    mr_program_free(p);
    mr_graph_free(g);
    return st;
}

/* The best rate over growing sizes, for memory the one of the largest (it should not fit a
 * cache). */
static mr_status measure(mr_exec *e, int which, mr_dtype dtype, double *rate)
{
    double spent = 0, seconds = 0;
    mr_cost cost = {0};
    *rate = 0;
    for (int64_t size = 64; spent < SPEND_S && size <= 2048; size *= 2) {
        MR_TRY(time_probe(e, &probes[which], dtype, size, &seconds, &cost, &spent));
        double now = which == STEP     ? 1 / seconds
                     : which == MEMORY ? cost.bytes / seconds
                                       : cost.flop / seconds;
        *rate = which == MEMORY ? now : MR_MAX(*rate, now);
    }
    return MR_OK;
}

mr_status mr_device_rates(mr_device *dev, mr_dtype dtype, mr_rates *out)
{
    mr_rates *r = &dev->rates[dtype == MR_BF16];
    if (r->step_s > 0)
        return *out = *r, MR_OK;
    mr_device *one = NULL;
    mr_exec *e = NULL;
    double rate[PROBES];
    // a process has one GPU, so the probes run on the same
    char name[64];
    snprintf(name, sizeof name, "%s:%d", dev->facts.device, dev->ordinal);
    MR_TRY(mr_device_open(name, 1, &one));
    mr_status st = mr_exec_new(one, NULL, NULL, &e);
    for (int i = 0; i < PROBES && st == MR_OK; i++)
        st = measure(e, i, dtype == MR_BF16 ? MR_BF16 : MR_F32, &rate[i]);
    mr_exec_free(e);
    mr_device_close(one);
    if (st != MR_OK)
        return st;
    double team = 1 + TEAM * (dev->facts.threads - 1),
           streams = 1 + TEAM * (MR_MIN(dev->facts.threads, STREAMS) - 1);
    for (int i = 0; i <= VECTOR; i++)
        r->flop_s[i] = rate[i] * team;
    r->bytes_s = rate[MEMORY] * streams;
    r->step_s = 1 / rate[STEP] + (dev->facts.threads > 1 ? FORK_S : 0);
    return *out = *r, MR_OK;
}

static double rate_of(const mr_rates *r, const char *op)
{
    size_t longest = 0;
    double rate = r->flop_s[VECTOR];
    for (int i = 0; i < VECTOR; i++) {
        size_t n = strlen(probes[i].op);
        if (n > longest && strncmp(op, probes[i].op, n) == 0)
            longest = n, rate = r->flop_s[i];
    }
    return rate;
}

static mr_dtype dtype_of(const mr_step *s)
{
    bool bf16 = s->n_in && s->arg[0].desc && s->arg[0].desc->dtype == MR_BF16;
    return bf16 ? MR_BF16 : MR_F32;
}

/* What its device has measured, or what was given to an executor that plans; step_s == 0: nothing
 * yet. */
static const mr_rates *rates_of(const mr_exec *e, mr_dtype dtype)
{
    return &(e->dev ? e->dev->rates : e->rates)[dtype == MR_BF16];
}

double mr_step_expected(const mr_exec *e, const mr_step *s)
{
    const mr_rates *r = rates_of(e, dtype_of(s));
    if (!(r->step_s > 0))
        return 0;
    mr_cost c = mr_step_cost(s);
    return c.flop / rate_of(r, s->op->name) + c.bytes / r->bytes_s + r->step_s;
}

static mr_status need_rates(const mr_exec *e, mr_dtype dtype)
{
    mr_rates measured;
    if (e->dev)
        return mr_device_rates(e->dev, dtype, &measured);
    if (!(rates_of(e, dtype)->step_s > 0))
        return mr_fail(MR_E_USAGE,
                       "no rates for %s were given; try: those of a device, or mr_exec_rates",
                       mr_dtype_name(dtype));
    return MR_OK;
}

mr_status mr_program_seconds(const mr_program *p, double *seconds)
{
    // queues of a device that does everything at once do not overlap; copies of results count there
    // as nothing, elsewhere they run beside what follows
    const mr_schedule *s = mr_layout_schedule(p->layout);
    double sum = 0, *took = mr_calloc(2 * (size_t)mr_schedule_steps(s) + 1, sizeof *took);
    mr_status st = MR_OK;
    if (!took)
        return mr_fail_memory(2 * (size_t)mr_schedule_steps(s) * sizeof *took);
    for (int i = 0; i < p->n_run; i++) {
        const mr_step *step = &p->steps[p->n_setup + i];
        MR_TRY_GOTO(need_rates(p->exec, dtype_of(step)));
        took[i] = mr_step_expected(p->exec, step);
        sum += took[i];
    }
    *seconds = p->exec->at_once ? sum : mr_schedule_play(s, took, took + mr_schedule_steps(s));
out:
    mr_free(took);
    return st;
}
