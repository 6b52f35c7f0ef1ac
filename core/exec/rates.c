/* exec: how fast a device is, measured in a few milliseconds, and what a run will take by it.
 *
 * A step takes max(flop / rate, bytes / bandwidth) plus a fixed part. Three rows are probed: products,
 * attention and an elementwise formula; a row is rated like the probe its name begins with, any
 * other like the elementwise one. Probes run on one thread and are scaled up: with a team, another
 * process on one of the cores makes a probe wait for its time slice, a hundred times its own length.
 * Licence: Apache-2.0 */
#include "exec/room.h"

#include <string.h>

typedef struct probe {
    const char *op;
    int n_in, rank[4];
    int64_t dim[4][5];           /* -1: the size that grows */
    const mr_attr *attrs;
    int n_attrs;
} probe;

enum { RUNS = 4, STREAMS = 4 };  /* more threads than STREAMS do not move more bytes */
#define SPEND_S 6e-3             /* seconds of runs per probe */
#define TEAM 0.85                /* what each further thread adds */
#define FORK_S 3e-6              /* to gather a team */

enum { LINEAR, ATTENTION, VECTOR, MEMORY, STEP, PROBES };
static const probe probes[PROBES] = {
    [LINEAR] = {"linear", 2, {2, 2}, {{-1, 512}, {512, 512}}, MR_NO_ATTRS},
    [ATTENTION] = {"attention", 3, {5, 5, 5}, {{1, 1, -1, 4, 64}, {1, 1, -1, 4, 64}, {1, 1, -1, 4, 64}}, MR_NO_ATTRS},
    [VECTOR] = {"gelu_tanh", 1, {2}, {{-1, 64}}, MR_NO_ATTRS},
    [MEMORY] = {"copy", 1, {2}, {{-1, 4096}}, MR_NO_ATTRS},
    [STEP] = {"copy", 1, {1}, {{1}}, MR_NO_ATTRS},
};

/* Seconds and cost of one probe of that size: the best of RUNS; *spent grows by all of them. */
static mr_status time_probe(mr_exec *e, const probe *pr, mr_dtype dtype, int64_t size, double *seconds, mr_cost *cost, double *spent)
{
    mr_graph *g = NULL;
    mr_program *p = NULL;
    mr_ref in[MR_MAX_IN], out[MR_MAX_OUT];
    mr_status st = mr_graph_new(NULL, NULL, &g);
    if (st != MR_OK) return st;
    for (int i = 0; i < mr_op_n_in(mr_op_find(pr->op)); i++) in[i] = MR_NONE;
    for (int i = 0; i < pr->n_in; i++) {
        char name[2] = {(char)('a' + i), 0};
        int64_t dim[5];
        for (int k = 0; k < pr->rank[i]; k++) dim[k] = pr->dim[i][k] < 0 ? size : pr->dim[i][k];
        MR_TRY_GOTO(mr_graph_input(g, name, dtype, pr->rank[i], dim, &in[i]));
    }
    MR_TRY_GOTO(mr_graph_add(g, pr->op, pr->attrs, pr->n_attrs, in, mr_op_n_in(mr_op_find(pr->op)), out));
    MR_TRY_GOTO(mr_graph_output(g, "y", out[0]));
    MR_TRY_GOTO(mr_graph_finish(g));
    MR_TRY_GOTO(mr_exec_compile(e, g, &p));
    // slots are cleared memory: zeros will do
    for (int i = 0; i < p->n_slots; i++) p->slots[i].set = true;
    p->n_unset = 0;
    mr_program_time(p, true);
    for (int run = 0; run < RUNS; run++) {
        mr_step_time row;
        MR_TRY_GOTO(mr_program_run(p));
        MR_TRY_GOTO(mr_exec_sync(e));
        mr_program_times(p, &row, 1);
        if (!run || row.seconds < *seconds) *seconds = row.seconds;
        *spent += row.seconds, *cost = row.cost;
    }
out:
    mr_program_free(p);
    mr_graph_free(g);
    return st;
}

/* The best rate over growing sizes, for memory the one of the largest (it should not fit a cache). */
static mr_status measure(mr_exec *e, int which, mr_dtype dtype, double *rate)
{
    double spent = 0, seconds = 0;
    mr_cost cost = {0};
    *rate = 0;
    for (int64_t size = 64; spent < SPEND_S && size <= 2048; size *= 2) {
        MR_TRY(time_probe(e, &probes[which], dtype, size, &seconds, &cost, &spent));
        double now = which == STEP ? 1 / seconds : which == MEMORY ? cost.bytes / seconds : cost.flop / seconds;
        *rate = which == MEMORY ? now : MR_MAX(*rate, now);
    }
    return MR_OK;
}

mr_status mr_device_rates(mr_device *dev, mr_dtype dtype, mr_rates *out)
{
    mr_rates *r = &dev->rates[dtype == MR_BF16];
    if (r->step_s > 0) return *out = *r, MR_OK;
    mr_device *one = NULL;
    mr_exec *e = NULL;
    double rate[PROBES];
    MR_TRY(mr_device_open(dev->facts.device, 1, &one));
    mr_status st = mr_exec_new(one, NULL, NULL, &e);
    for (int i = 0; i < PROBES && st == MR_OK; i++) st = measure(e, i, dtype == MR_BF16 ? MR_BF16 : MR_F32, &rate[i]);
    mr_exec_free(e);
    mr_device_close(one);
    if (st != MR_OK) return st;
    double team = 1 + TEAM * (dev->facts.threads - 1), streams = 1 + TEAM * (MR_MIN(dev->facts.threads, STREAMS) - 1);
    *r = (mr_rates){rate[LINEAR] * team, rate[ATTENTION] * team, rate[VECTOR] * team, rate[MEMORY] * streams,
                    1 / rate[STEP] + (dev->facts.threads > 1 ? FORK_S : 0)};
    return *out = *r, MR_OK;
}

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

mr_status mr_program_seconds(const mr_program *p, double *seconds)
{
    double sum = 0;
    for (int i = p->n_setup; i < p->n_setup + p->n_run; i++) {
        const mr_step *s = &p->steps[i];
        bool bf16 = s->call.n_in && s->call.in[0].desc.rank >= 0 && s->call.in[0].desc.dtype == MR_BF16;
        mr_rates r;
        MR_TRY(mr_device_rates(p->exec->dev, bf16 ? MR_BF16 : MR_F32, &r));
        mr_cost c = mr_op_cost(s->op, &s->call);
        double rate = begins(s->op->name, "linear") || begins(s->op->name, "matmul") ? r.linear
                    : begins(s->op->name, "attention") ? r.attention : r.vector;
        sum += MR_MAX(c.flop / rate, c.bytes / r.bytes) + r.step_s;
    }
    *seconds = sum;
    return MR_OK;
}
