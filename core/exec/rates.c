/* exec: measures the rates of a device, predicts the time of a run from them, and compares it with
 * the measured time. A kind is measured when a prediction first needs it, in about 0.5 ms.
 *
 * A step takes flop / rate + bytes / bandwidth plus a fixed part. Both rates belong to its kind. A
 * kind is probed by one shape if bytes are proportional to operations. Otherwise it is probed by
 * two shapes, of which the first has more operations per byte: two equations give two rates. The
 * kind of a step is the longest one with which its op's name begins; a kind for the algorithm of
 * its kernel precedes a general one. Without a kind, a step is elementwise.
 *
 * Probes run on one thread, and rates are scaled up. With a team, another process on one of the
 * cores would delay a probe by a time slice, which is a hundred times its length. Only the start of
 * the team, which is short, is measured with the team. Licence: Apache-2.0 */
#include "exec/rate.h"
#include "exec/room.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A call is an op and the shapes of its inputs. In "8*,256" the first dimension grows from 8 on;
 * "f", "u", "i" and "l" are f32, u8, i32 and i64 for every compute dtype; "-" is absent. Attributes
 * have a name. */
typedef struct probe {
    const char *kind; /* prefix of op names; with " by " and an algorithm: only for that one */
    const char *call[2];
    bool cached; /* the first call finds its data in caches, so it takes only operations */
} probe;

enum { RUNS = 4, TEAM_RUNS = 32, STREAMS = 4 }; /* more threads do not increase the bandwidth */
enum { GROWTH = 4, LARGEST = 4096 };
#define LONG_S 2e-5 /* shortest run to measure, so that starting a kernel is a small part of it */
#define ENOUGH 5e-3 /* seconds of this process after which a call is not run again */
#define TEAM   0.85 /* gain of each further thread */

#define HEADS(n, rows, d)   " " #n "*,1," #rows ",1," #d
#define QKV(n, N, M, d)     HEADS(n, N, d) HEADS(n, M, d) HEADS(n, M, d)
#define FORWARD(n, N, M, d) "attention" QKV(n, N, M, d)
#define BACKWARD(n, N, M, d)                                                                       \
    "attention_grad" QKV(n, N, M, d) " -" HEADS(n, N, d) " f" #n "*,1,1," #N HEADS(n, N, d)
#define PAD    " pad=0,0,1,1,1,1"
#define GROUPS " groups=8"
#define APART  " groups=64"

enum { ELEMENTWISE };
static const probe probes[] = {
    [ELEMENTWISE] = {"elementwise", {"gelu_tanh 32*,512", "add 256*,1024 256*,1024"}},
    {"linear", {"linear 64*,256 256,256", "linear 16,1024 512*,1024"}, true},
    {"linear_gelu", {"linear_gelu 64*,512 256,512", "linear_gelu 64*,32 256,32"}},
    {"linear_dx", {"linear_dx 64*,256 256,256", "linear_dx 16,512* 512*,1024"}, true},
    {"linear_dw",
     {"linear_dw 64*,256 64*,256 f256,256", "linear_dw 16,512* 16,1024 f512*,1024"},
     true},
    {"linear_db", {"linear_db 256*,256 f256"}},
    {"matmul", {"matmul 64*,256 256,256", "matmul 16,256 256,256*"}, true},
    {"attention", {FORWARD(1, 256, 256, 64), FORWARD(8, 16, 64, 32)}, true},
    {"attention_grad", {BACKWARD(1, 256, 256, 64), BACKWARD(8, 16, 64, 32)}, true},
    {"attention by lanes", {FORWARD(32, 16, 16, 32), FORWARD(64, 4, 4, 32)}},
    {"attention_grad by lanes", {BACKWARD(32, 16, 16, 32), BACKWARD(64, 4, 4, 32)}},
    {"conv3d", {"conv3d 1*,1,16,16,32 32,32,1,3,3" PAD, "conv3d 1,1,4,4,64 128*,64,1,3,3" PAD}},
    {"conv3d_dx",
     {"conv3d_dx 1*,1,16,16,32 32,32,1,3,3 dims=1,16,16" PAD,
      "conv3d_dx 1,1,4,4,128* 128*,64,1,3,3 dims=1,4,4" PAD}},
    {"conv3d_dw",
     {"conv3d_dw 1*,1,16,16,32 1*,1,16,16,32 f32,32,1,3,3" PAD,
      "conv3d_dw 1,1,4,4,128* 1,1,4,4,64 f128*,64,1,3,3" PAD}},
    {"conv3d by fewer products",
     {"conv3d 1*,1,16,16,64 64,64,1,3,3" PAD, "conv3d 1,1,4,4,64 128*,64,1,3,3" PAD}},
    {"conv3d_dx by fewer products",
     {"conv3d_dx 1*,1,16,16,64 64,64,1,3,3 dims=1,16,16" PAD,
      "conv3d_dx 1,1,4,4,128* 128*,64,1,3,3 dims=1,4,4" PAD}},
    {"conv3d by channels",
     {"conv3d 1*,6,12,12,64 64,1,5,5,5" APART, "conv3d 1*,4,16,16,64 64,1,1,1,1" APART}},
    {"layer_norm_modulate", {"layer_norm_modulate 8*,1,16,256 8*,1,256 8*,1,256"}},
    {"layer_norm_modulate_grad", {"layer_norm_modulate_grad 8*,1,16,256 8*,1,256 8*,1,16,256"}},
    {"qk_norm", {"qk_norm 8*,1,16,4,64 64"}},
    {"qk_norm_grad", {"qk_norm_grad 8*,1,16,4,64 64 - - 8*,1,16,4,64 f64"}},
    {"group_norm", {"group_norm 2*,16,16,64 64 64" GROUPS}},
    {"group_norm_grad", {"group_norm_grad 2*,16,16,64 64 64 f2*,8,2 2*,16,16,64 - f64 f64" GROUPS}},
    {"rms_norm", {"rms_norm 64*,512 512"}},
    {"random_normal", {"random_normal l1 l1* i1 dims=1024"}},
    {"patchify", {"patchify 1*,4,1,32,32 ph=2 pw=2"}},
    {"unpatchify", {"unpatchify 1*,1,256,16 ph=2 pw=2 dims=4,1,32,32"}},
    {"normalise_u8", {"normalise_u8 u1*,3,64,64"}},
    {"sum_squares", {"sum_squares f65536*"}},
};
_Static_assert(MR_COUNT(probes) == MR_RATED && MR_RATED < 32, "a rate and a bit of each kind");
enum { ALL = (1 << MR_RATED) - 1 };

/* ---- a call as a graph of one node ---- */

/* Read numbers at *at, and advance *at. */
static int numbers(const char **at, int64_t size, int64_t *out)
{
    int n = 0;
    const char *s = *at;
    for (char *end; isdigit((unsigned char)*s); s = end + (*end == ',')) {
        out[n] = strtol(s, &end, 10);
        if (*end == '*')
            out[n] *= size, end++;
        n++;
    }
    *at = s;
    return n;
}

static mr_status add_input(mr_graph *g, const char **at, mr_dtype dtype, int64_t size, int i,
                           mr_ref *out)
{
    static const char letters[] = "fuil";
    static const mr_dtype of[] = {MR_F32, MR_U8, MR_I32, MR_I64};
    char name[2] = {(char)('a' + i), 0};
    int64_t dim[MR_MAX_RANK];
    const char *letter = strchr(letters, **at);
    *out = MR_NONE;
    if (**at == '-')
        return (*at)++, MR_OK;
    *at += letter != NULL;
    int rank = numbers(at, size, dim);
    return mr_graph_input(g, name, letter ? of[letter - letters] : dtype, rank, dim, out);
}

static mr_status graph_of(const char *call, mr_dtype dtype, int64_t size, mr_graph **g)
{
    enum { NAME = 32, ATTRS = 3 };
    mr_ref in[MR_MAX_IN], out[MR_MAX_OUT];
    mr_attr attr[ATTRS];
    mr_ints ints[ATTRS];
    char op[NAME], name[ATTRS][NAME];
    int n_in = 0, n_attr = 0, used = 0;
    MR_TRY(mr_graph_new(NULL, NULL, g));
    sscanf(call, "%31s%n", op, &used);
    for (call += used; *call;) {
        used = 0, call++;
        if (sscanf(call, "%31[a-z]=%n", name[n_attr], &used) == 1 && used) {
            call += used;
            ints[n_attr].n = numbers(&call, 1, ints[n_attr].v);
            attr[n_attr] = (mr_attr){name[n_attr], .i = ints[n_attr].v[0], .ints = &ints[n_attr]};
            n_attr++;
        } else {
            MR_TRY(add_input(*g, &call, dtype, size, n_in, &in[n_in]));
            n_in++;
        }
    }
    MR_TRY(mr_graph_add(*g, op, attr, n_attr, in, n_in, out));
    MR_TRY(mr_graph_output(*g, "y", out[0]));
    return mr_graph_finish(*g);
}

/* ---- measuring ---- */

/* The time of the step that is the call; other steps copy inputs that the op would overwrite. */
static mr_step_time step_of(const mr_program *p, const char *call)
{
    enum { STEPS = MR_MAX_IN + 1 };
    mr_step_time rows[STEPS];
    int n = MR_MIN(mr_program_times(p, rows, STEPS), STEPS), i = 0;
    while (i < n - 1 && strncmp(call, rows[i].node->op->name, strcspn(call, " ")) != 0)
        i++;
    return rows[i];
}

/* Write every input: unwritten memory is one zero page, which every cache contains. */
static mr_status set_zeros(mr_program *p)
{
    mr_status st = MR_OK;
    void *zeros = p->inputs_bytes ? mr_calloc(1, p->inputs_bytes) : NULL;
    if (p->inputs_bytes && !zeros)
        return mr_fail_memory(p->inputs_bytes);
    for (int i = 0; i < p->n_slots; i++) {
        const char *name = p->slots[i].name;
        mr_ref x = mr_graph_input_find(p->graph, name);
        mr_view view = {zeros, mr_graph_value(p->graph, x)->desc};
        MR_TRY_GOTO(mr_program_set(p, name, &view));
    }
out:
    mr_free(zeros);
    return st;
}

/* The fastest of some runs of a call of that size. On an emulated GPU, one run takes as long as all
 * runs elsewhere. The minimum excludes the time of other processes. */
static mr_status time_call(mr_exec *e, const char *call, mr_dtype dtype, int64_t size, int runs,
                           mr_step_time *best)
{
    mr_graph *g = NULL;
    mr_program *p = NULL;
    mr_status st = MR_OK;
    const clock_t began = clock();
    *best = (mr_step_time){0};
    MR_TRY_GOTO(graph_of(call, dtype, size, &g));
    MR_TRY_GOTO(mr_exec_compile(e, g, &p));
    MR_TRY_GOTO(set_zeros(p));
    MR_TRY_GOTO(mr_program_time(p, true));
    for (int run = 0; run < runs && (!run || clock() - began < ENOUGH * CLOCKS_PER_SEC); run++) {
        MR_TRY_GOTO(mr_program_run(p));
        MR_TRY_GOTO(mr_exec_sync(e));
        mr_step_time row = step_of(p, call);
        if (!run || row.seconds < best->seconds)
            *best = row;
    }
    best->node = NULL; // its graph is freed now
out:
    mr_program_free(p);
    mr_graph_free(g);
    return st;
}

/* Measure a call at a size at which it takes long enough, or at the largest size that fits the
 * device. */
static mr_status measure(mr_exec *e, const probe *pr, int i, mr_dtype dtype, mr_step_time *row)
{
    mr_status st = time_call(e, pr->call[i], dtype, 1, RUNS, row);
    for (int64_t size = GROWTH; st == MR_OK && row->seconds < LONG_S && size <= LARGEST;
         size *= GROWTH) {
        mr_step_time larger;
        st = time_call(e, pr->call[i], dtype, size, RUNS, &larger);
        if (st == MR_E_MEMORY)
            return mr_error_clear(), MR_OK;
        *row = larger;
    }
    return st;
}

/* The algorithm of a kind, or NULL; *n: length of the op prefix. */
static const char *way_of(const char *kind, size_t *n)
{
    const char *by = strstr(kind, " by ");
    *n = by ? (size_t)(by - kind) : strlen(kind);
    return by ? by + strlen(" by ") : NULL;
}

/* Compute the rates of a kind. A kind that the device lacks, or that does not fit, gets no
 * rates. */
static mr_status rate(mr_exec *e, const probe *pr, mr_dtype dtype, double step_s, mr_rate *out)
{
    mr_step_time row[2];
    size_t n;
    const char *way = way_of(pr->kind, &n);
    *out = (mr_rate){0};
    for (int i = 0; i < 2 && pr->call[i]; i++) {
        MR_TRY(measure(e, pr, i, dtype, &row[i]));
        row[i].seconds = MR_MAX(row[i].seconds - step_s, step_s);
        if (way && (!row[i].way || strcmp(way, row[i].way) != 0))
            return MR_OK;
    }
    *out = pr->call[1] ? rate_solve(&row[0], &row[1], pr->cached) : rate_halve(&row[0]);
    return MR_OK;
}

/* The time to start a team: how much longer it takes for parts of a copy, one per thread, than one
 * thread for one part. */
static mr_status gather(mr_device *team, mr_exec *one, double *seconds)
{
    enum { PART = 16384 }; // elements that one thread copies at a time
    char call[32];
    mr_step_time row, rows;
    mr_exec *all = NULL;
    *seconds = 0;
    if (team->facts.threads < 2)
        return MR_OK;
    snprintf(call, sizeof call, "copy %d,%d", team->facts.threads, PART);
    mr_status st = mr_exec_new(team, NULL, NULL, &all);
    if (st == MR_OK)
        st = time_call(all, call, MR_U8, 1, TEAM_RUNS, &rows);
    mr_exec_free(all);
    if (st != MR_OK)
        return st;
    snprintf(call, sizeof call, "copy 1,%d", PART);
    MR_TRY(time_call(one, call, MR_U8, 1, TEAM_RUNS, &row));
    *seconds = MR_MAX(rows.seconds - row.seconds, 0);
    return MR_OK;
}

/* The seconds of a step that does nothing, by one thread and by the team. */
static mr_status rate_step(mr_device *dev, mr_exec *one, mr_dtype dtype, double *one_s,
                           double *team_s)
{
    mr_step_time step;
    MR_TRY(time_call(one, "copy 1", dtype, 1, RUNS, &step));
    *one_s = step.seconds;
    if (*team_s > 0) // known since the first kinds
        return MR_OK;
    MR_TRY(gather(dev, one, team_s));
    *team_s += step.seconds;
    return MR_OK;
}

/* Rates of `kinds`, a bit for each. */
static mr_status rate_kinds(mr_device *dev, mr_exec *one, mr_dtype dtype, uint32_t kinds,
                            mr_rates *r)
{
    double step_s, team = 1 + TEAM * (dev->facts.threads - 1),
                   streams = 1 + TEAM * (MR_MIN(dev->facts.threads, STREAMS) - 1);
    MR_TRY(rate_step(dev, one, dtype, &step_s, &r->step_s));
    for (int i = 0; i < MR_RATED; i++) {
        if (!(kinds >> i & 1))
            continue;
        mr_status st = rate(one, &probes[i], dtype, step_s, &r->of[i]);
        if ((st == MR_E_UNSUPPORTED || st == MR_E_MEMORY) && i != ELEMENTWISE)
            mr_error_clear();
        else if (st != MR_OK)
            return st;
        r->of[i].flop_s *= team;
        r->of[i].bytes_s *= i == ELEMENTWISE ? streams : team;
    }
    return MR_OK;
}

const char *mr_rates_kind(int i)
{
    return probes[i].kind;
}

/* Measure those of `kinds` that are not known yet; all of them or none. */
static mr_status need_kinds(mr_device *dev, mr_dtype dtype, uint32_t kinds)
{
    mr_rates *r = &dev->rates[dtype == MR_BF16], found = *r;
    uint32_t *measured = &dev->measured[dtype == MR_BF16];
    kinds = (kinds | (kinds ? 1u << ELEMENTWISE : 0)) & ~*measured;
    if (!kinds)
        return MR_OK;
    mr_device *one = NULL;
    mr_exec *e = NULL;
    // a process has one GPU: run the probes on the same one
    char name[64];
    snprintf(name, sizeof name, "%s:%d", dev->facts.device, dev->ordinal);
    MR_TRY(mr_device_open(name, 1, &one));
    mr_status st = mr_exec_new(one, NULL, NULL, &e);
    if (st == MR_OK)
        st = rate_kinds(dev, e, dtype == MR_BF16 ? MR_BF16 : MR_F32, kinds, &found);
    mr_exec_free(e);
    mr_device_close(one);
    if (st == MR_OK)
        *r = found, *measured |= kinds;
    return st;
}

mr_status mr_device_rates(mr_device *dev, mr_dtype dtype, mr_rates *out)
{
    MR_TRY(need_kinds(dev, dtype, ALL));
    *out = dev->rates[dtype == MR_BF16];
    return MR_OK;
}

/* ---- prediction ---- */

static mr_dtype dtype_of(const mr_step *s)
{
    bool bf16 = s->n_in && s->arg[0].desc && s->arg[0].desc->dtype == MR_BF16;
    return bf16 ? MR_BF16 : MR_F32;
}

/* Whether the rates of kind i are known. `of`: 1 for bf16. */
static bool is_known(const mr_device *dev, int of, int i)
{
    return dev->measured[of] >> i & 1;
}

/* The kind of a step: the longest prefix of its op; one for its algorithm precedes a general one. A
 * measured kind without rates does not count. */
static int kind_of(const mr_device *dev, const mr_step *s, const mr_facts *facts)
{
    const char *took = mr_step_way(s, facts);
    const int of = dtype_of(s) == MR_BF16;
    size_t longest = 0;
    int best = ELEMENTWISE;
    for (int i = 0; i < MR_RATED; i++) {
        size_t n;
        const char *way = way_of(probes[i].kind, &n);
        const bool lacks = is_known(dev, of, i) && !(dev->rates[of].of[i].flop_s > 0);
        if (strncmp(s->op->name, probes[i].kind, n) != 0 || lacks ||
            (way && (!took || strcmp(way, took) != 0)))
            continue;
        if (n > longest || (n == longest && way))
            longest = n, best = i;
    }
    return best;
}

/* Predicted seconds by known rates; 0 without rates. */
static double expected(const mr_exec *e, const mr_step *s)
{
    const mr_device *dev = e->rated_by;
    const int of = dtype_of(s) == MR_BF16, kind = dev ? kind_of(dev, s, &e->facts) : ELEMENTWISE;
    if (!dev || !is_known(dev, of, kind))
        return 0;
    mr_cost c = mr_step_cost(s);
    const mr_rate *rate = &dev->rates[of].of[kind];
    return c.flop / rate->flop_s + c.bytes / rate->bytes_s + dev->rates[of].step_s;
}

/* Finds the step kinds of a program that are not measured yet, by dtype. */
static void open_kinds(const mr_program *p, uint32_t open[2])
{
    const mr_device *dev = p->exec->rated_by;
    open[0] = open[1] = 0;
    for (int i = 0; i < p->n_run; i++) {
        const mr_step *s = &p->steps[p->n_setup + i];
        const int of = dtype_of(s) == MR_BF16;
        open[of] |= (1u << kind_of(dev, s, &p->exec->facts)) & ~dev->measured[of];
    }
}

/* Measures all missing kinds. If a kind turns out to have no rates, its steps change to another
 * kind, which the next pass measures. */
static mr_status need_rates(const mr_program *p)
{
    uint32_t open[2];
    if (!p->exec->rated_by)
        return mr_fail(MR_E_USAGE, "this executor has no rates to predict seconds by; try: "
                                   "exec.plan with rates = a device (C: mr_exec_rates)");
    for (open_kinds(p, open); open[0] || open[1]; open_kinds(p, open)) {
        MR_TRY(need_kinds(p->exec->rated_by, MR_F32, open[0]));
        MR_TRY(need_kinds(p->exec->rated_by, MR_BF16, open[1]));
    }
    return MR_OK;
}

mr_status mr_program_seconds(const mr_program *p, double *seconds)
{
    // on a synchronous device, queues do not overlap. Copies of results take no time there;
    // elsewhere they overlap the next steps
    const mr_schedule *s = mr_layout_schedule(p->layout);
    double sum = 0, *took = mr_calloc(2 * (size_t)mr_schedule_steps(s) + 1, sizeof *took);
    mr_status st = MR_OK;
    if (!took)
        return mr_fail_memory(2 * (size_t)mr_schedule_steps(s) * sizeof *took);
    MR_TRY_GOTO(need_rates(p));
    for (int i = 0; i < p->n_run; i++) {
        const mr_step *step = &p->steps[p->n_setup + i];
        took[i] = expected(p->exec, step);
        sum += took[i];
    }
    *seconds = p->exec->at_once ? sum : mr_schedule_play(s, took, took + mr_schedule_steps(s));
out:
    mr_free(took);
    return st;
}

/* ---- times of a program ---- */

mr_status mr_program_time(mr_program *p, bool on)
{
    MR_TRY(mr_exec_sync(p->exec));
    int n = p->n_run + p->n_copies;
    size_t all = (size_t)(n + 2 * p->n_slots + p->n_outputs);
    if (!p->clocks)
        p->clocks = mr_alloc(all * sizeof *p->clocks);
    if (!p->clocks)
        return mr_fail_memory(all * sizeof *p->clocks);
    memset(p->clocks, 0, all * sizeof *p->clocks);
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
        out[i] = (mr_step_time){
            s->node,  p->clocks ? p->clocks[i].seconds : 0, expected(p->exec, s), mr_step_cost(s),
            s->naive, mr_step_way(s, &p->exec->facts)};
    }
    return p->n_run;
}
