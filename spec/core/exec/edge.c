/* exec/edge: inputs and results are copied in parallel with runs, on both devices and in any order
 * of lanes. Each run gets its own inputs and returns its own results, and the host waits once for
 * all of them. Inputs are kept, also after a failure; results are fetched or refused. */
#include "execcase.h"
#include "exec/room.h"

enum { N = 40, RUNS = 10, ORDERS = 12 };

/* y = x + 2 z, and the gradient region is not touched */
static mr_graph *blend_graph(void)
{
    mr_graph *g = NULL;
    mr_ref x, z, y;
    int64_t n = N;
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_input(g, "z", MR_F32, 1, &n, &z));
    OK(mr_graph_add(g, "spec_blend", MR_ATTRS({"k", .f = 2}), (mr_ref[]){x, z}, 2, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    return g;
}

static void set(mr_program *p, const char *name, float value)
{
    float data[N];
    mr_view v = {data, mr_desc_dense(MR_F32, 1, (int64_t[]){N})};
    for (int i = 0; i < N; i++)
        data[i] = value + (float)i;
    OK(mr_program_set(p, name, &v));
    memset(data, 0xff, sizeof data); // it is the caller's again
}

/* The first and last element of a fetched result, without the part that depends on the position. */
static float take(mr_exec *e, uint64_t ticket, float per)
{
    float data[N] = {0};
    mr_view v = {data, mr_desc_dense(MR_F32, 1, (int64_t[]){N})};
    OK(mr_exec_take(e, ticket, &v));
    CHECK(data[N - 1] == data[0] + per * (N - 1));
    return data[0];
}

typedef struct pair {
    mr_exec *exec;
    mr_graph *graph, *other_graph;
    mr_program *p, *other, *last; /* of two inputs, and of one: 5 x, twice */
} pair;

static pair pair_on(mr_device *dev)
{
    pair s = {.graph = blend_graph(), .other_graph = small_graph(N, 4)};
    OK(mr_exec_new(dev, NULL, NULL, &s.exec));
    OK(mr_exec_compile(s.exec, s.graph, &s.p));
    OK(mr_exec_compile(s.exec, s.other_graph, &s.other));
    OK(mr_exec_compile(s.exec, s.other_graph, &s.last));
    return s;
}

static void close_pair(pair *s)
{
    mr_exec_free(s->exec);
    mr_graph_free(s->graph);
    mr_graph_free(s->other_graph);
}

/* Runs of two programs, without a wait of the host. */
static void stream(mr_device *dev, uint64_t order)
{
    pair s = pair_on(dev);
    uint64_t ticket[RUNS], other[RUNS];
    if (dev->checks)
        mr_shadow_order(dev, order);
    mr_waits before = mr_exec_waits(s.exec);
    set(s.p, "z", 100);
    for (int k = 0; k < RUNS; k++) {
        set(s.p, "x", (float)k);
        OK(mr_program_run(s.p));
        OK(mr_program_fetch(s.p, "y", &ticket[k]));
        // every third time the value before
        if (k % 3 == 0)
            set(s.other, "x", (float)(10 * k));
        OK(mr_program_run(s.other));
        OK(mr_program_fetch(s.other, "y", &other[k]));
    }
    mr_waits now = mr_exec_waits(s.exec);
    CHECK_INT(now.all - before.all, 0);
    CHECK_INT(now.results - before.results, 0);
    // the host waits for an input until the one before was copied, and never on a device without
    // edges
    CHECK_INT(now.inputs - before.inputs, dev->host ? 0 : RUNS - 1 + (RUNS - 1) / 3);
    // the newest first: then all others have arrived
    for (int k = RUNS - 1; k >= 0; k--) {
        CHECK(take(s.exec, other[k], 5) == 5 * (float)(10 * (k - k % 3)));
        CHECK(take(s.exec, ticket[k], 3) == (float)k + 200);
    }
    now = mr_exec_waits(s.exec);
    CHECK_INT(now.results - before.results, 1);
    CHECK_INT(now.all - before.all, 0);
    close_pair(&s);
}

/* ---- from run to run ---- */

/* The results of two runs of one program become the halves of another's input; no run waits. */
static void passing(mr_device *dev, uint64_t order)
{
    enum { HALF = N / 2 };
    pair s = pair_on(dev), apart = pair_on(dev); // of other executors, too
    uint64_t ticket[RUNS];
    if (dev->checks)
        mr_shadow_order(dev, order);
    mr_waits before = mr_exec_waits(s.exec);
    set(s.p, "z", 100);
    for (int k = 0; k < RUNS; k++) {
        for (int half = 0; half < 2; half++) {
            set(apart.other, "x", (float)(10 * k + 100 * half));
            OK(mr_program_run(apart.other));
            OK(mr_program_pass(apart.other, "y", HALF * half, HALF, s.p, "x", HALF * half));
        }
        OK(mr_program_run(s.p));
        OK(mr_program_fetch(s.p, "y", &ticket[k]));
    }
    mr_waits now = mr_exec_waits(s.exec);
    CHECK_INT(now.all - before.all, 0);
    CHECK_INT(now.results - before.results, 0);
    CHECK_INT(now.inputs - before.inputs, 0);
    for (int k = RUNS - 1; k >= 0; k--) {
        float y[N];
        mr_view v = {y, mr_desc_dense(MR_F32, 1, (int64_t[]){N})};
        OK(mr_exec_take(s.exec, ticket[k], &v));
        for (int i = 0; i < N; i++)
            CHECK(y[i] == 5 * (float)(10 * k + 100 * (i >= HALF) + i) + 2 * (float)(100 + i));
    }
    // set again, it has the new value; passed again, the passed one
    uint64_t t;
    set(s.p, "x", 7);
    OK(mr_program_pass(apart.other, "y", 0, N, s.p, "x", 0));
    set(s.p, "x", 9);
    OK(mr_program_run(s.p));
    OK(mr_program_fetch(s.p, "y", &t));
    CHECK(take(s.exec, t, 3) == 209);
    set(s.p, "x", 7);
    OK(mr_program_pass(apart.other, "y", 0, N, s.p, "x", 0));
    OK(mr_program_run(s.p));
    OK(mr_program_fetch(s.p, "y", &t));
    CHECK(take(s.exec, t, 7) == 5 * (10 * (RUNS - 1) + 100) + 200);
    // a part that is left out keeps its old contents
    set(apart.other, "x", 1);
    OK(mr_program_run(apart.other));
    OK(mr_program_skip(s.p, "x", 0, 3));
    CHECK_FAILS(mr_program_run(s.p), MR_E_USAGE, "input 'x' was never set");
    OK(mr_program_pass(apart.other, "y", 3, 4, s.p, "x", 3));
    OK(mr_program_skip(s.p, "x", 7, N - 7));
    OK(mr_program_run(s.p));
    OK(mr_program_fetch(s.p, "y", &t));
    float y[N];
    mr_view v = {y, mr_desc_dense(MR_F32, 1, (int64_t[]){N})};
    OK(mr_exec_take(s.exec, t, &v));
    for (int i = 0; i < N; i++) {
        int first = i >= 3 && i < 7 ? 1 : 10 * (RUNS - 1) + 100;
        CHECK(y[i] == 5 * (float)(first + i) + 2 * (float)(100 + i));
    }
    close_pair(&apart);
    close_pair(&s);
}

static void passing_badly(mr_device *dev, mr_device *foreign)
{
    pair s = pair_on(dev), apart = pair_on(foreign);
    set(s.other, "x", 1), set(s.p, "x", 1), set(s.p, "z", 1), set(apart.other, "x", 1);
    OK(mr_program_run(s.other));
    OK(mr_program_run(apart.other));
    CHECK_FAILS(mr_program_pass(s.other, "no", 0, N, s.p, "x", 0), MR_E_USAGE, "no output 'no'");
    CHECK_FAILS(mr_program_pass(s.other, "y", 0, N, s.p, "no", 0), MR_E_USAGE, "no input 'no'");
    CHECK_FAILS(mr_program_pass(s.other, "y", 0, N, s.other, "unread", 0), MR_E_SHAPE,
                "'unread' is i32, the output that is passed to it is f32");
    CHECK_FAILS(mr_program_pass(s.other, "y", 1, N, s.p, "x", 0), MR_E_SHAPE, "there are 40");
    CHECK_FAILS(mr_program_pass(s.other, "y", 0, N, s.p, "x", 1), MR_E_SHAPE, "place for 40");
    CHECK_FAILS(mr_program_pass(s.other, "y", -1, 1, s.p, "x", 0), MR_E_SHAPE, "from -1 on");
    CHECK_FAILS(mr_program_pass(apart.other, "y", 0, N, s.p, "x", 0), MR_E_USAGE,
                "different devices");
    CHECK_FAILS(mr_program_skip(s.p, "no", 0, N), MR_E_USAGE, "no input 'no'");
    CHECK_FAILS(mr_program_skip(s.p, "x", 1, N), MR_E_SHAPE, "40 elements from 1 on are left out");
    CHECK_FAILS(mr_program_skip(s.p, "x", -1, 1), MR_E_SHAPE, "from -1 on");
    OK(mr_program_run(s.p)); // none of this has changed it
    OK(mr_program_pass(s.other, "y", 0, 8, s.p, "x", 0));
    CHECK_FAILS(mr_program_pass(s.other, "y", 0, 8, s.p, "x", 9), MR_E_USAGE,
                "elements from 9 on were passed before those from 8 on");
    CHECK_FAILS(mr_program_skip(s.p, "x", 9, 1), MR_E_USAGE,
                "elements from 9 on were passed before");
    CHECK_FAILS(mr_program_run(s.p), MR_E_USAGE, "input 'x' was never set");
    OK(mr_program_pass(s.other, "y", 0, N - 8, s.p, "x", 8));
    OK(mr_program_pass(s.other, "y", 0, 0, s.p, "x", N));
    OK(mr_program_run(s.p));
    CHECK_FAILS(
        (set(s.p, "x", 1), mr_program_pass(s.other, "y", 0, 1, s.p, "x", 0), mr_program_run(s.p)),
        MR_E_USAGE, "input 'x' was never set");
    close_pair(&apart);
    close_pair(&s);
}

/* ---- the ring ---- */

static void ring(mr_device *dev)
{
    pair s = pair_on(dev);
    uint64_t ticket[MR_FETCHES + 3], more;
    bool ready = false;
    float y[N];
    mr_view v = {y, mr_desc_dense(MR_F32, 1, (int64_t[]){N})},
            wrong = {y, mr_desc_dense(MR_F32, 1, (int64_t[]){N - 1})};
    set(s.p, "z", 0);
    for (int k = 0; k < MR_FETCHES + 3; k++) {
        set(s.p, "x", (float)k);
        OK(mr_program_run(s.p));
        OK(mr_program_fetch(s.p, "y", &ticket[k]));
    }
    CHECK_FAILS(mr_exec_take(s.exec, ticket[2], &v), MR_E_USAGE, "64 more were fetched since");
    CHECK_FAILS(mr_exec_ready(s.exec, 0, &ready), MR_E_USAGE, "the fetched output was overwritten");
    CHECK_FAILS(mr_exec_take(s.exec, ticket[9], &wrong), MR_E_SHAPE, "output 'y' is [40] f32");
    // a program that is freed keeps its fetched results
    mr_program_free(s.p);
    for (int k = MR_FETCHES + 2; k >= 3; k--)
        CHECK(take(s.exec, ticket[k], 3) == (float)k);
    OK(mr_exec_ready(s.exec, ticket[5], &ready));
    CHECK(ready);
    // as one result of another dtype
    double wide[N];
    OK(mr_exec_take(s.exec, ticket[7], &(mr_view){wide, mr_desc_dense(MR_F64, 1, (int64_t[]){N})}));
    CHECK(wide[1] == 7 + 3);
    CHECK_FAILS(mr_program_fetch(s.other, "x", &more), MR_E_USAGE, "no output 'x'");
    mr_graph *large = small_graph(200, 1);
    mr_program *p = NULL;
    OK(mr_exec_compile(s.exec, large, &p));
    CHECK_FAILS(mr_program_fetch(p, "y", &more), MR_E_USAGE, "has 800 bytes, at most 512");
    mr_program_free(p);
    mr_graph_free(large);
    close_pair(&s);
}

/* ---- failures ---- */

/* A run that fails after others also fails the copies in progress. It is reported once; afterwards
 * inputs have the values that were set, and its results cannot be fetched. */
static void failing(mr_device *dev, uint64_t order)
{
    pair s = pair_on(dev);
    mr_graph *gf = NULL;
    mr_program *fails = NULL;
    int64_t n = N;
    mr_ref x;
    uint64_t early, ticket[2], late = 0;
    float y[N];
    mr_view v = {y, mr_desc_dense(MR_F32, 1, &n)};
    OK(mr_graph_new(NULL, NULL, &gf));
    OK(mr_graph_input(gf, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_add(gf, "spec_gate", MR_NO_ATTRS, &x, 1, &x));
    OK(mr_graph_add(gf, "spec_fail", MR_NO_ATTRS, &x, 1, &x));
    OK(mr_graph_output(gf, "y", x));
    OK(mr_graph_finish(gf));
    OK(mr_exec_compile(s.exec, gf, &fails));
    if (dev->checks)
        mr_shadow_order(dev, order);
    set(s.p, "z", 50), set(s.p, "x", 1), set(fails, "x", 0), set(s.other, "x", 3);
    OK(mr_program_run(s.p));
    OK(mr_program_pass(s.p, "y", 0, N, s.last, "x", 0));
    OK(mr_program_fetch(s.p, "y", &early));
    CHECK(take(s.exec, early, 3) == 101);
    atomic_store(&spec_gate_open, dev->host);
    mr_status st = mr_program_run(fails);
    if (st == MR_OK) {
        // copies after it on the way in and back
        set(s.p, "x", 2);
        OK(mr_program_run(s.p));
        OK(mr_program_fetch(s.p, "y", &ticket[0]));
        OK(mr_program_run(s.other));
        OK(mr_program_fetch(s.other, "y", &ticket[1]));
        atomic_store(&spec_gate_open, true);
        CHECK_FAILS(mr_exec_take(s.exec, ticket[1], &v), MR_E_DATA, "this row always fails");
        late = ticket[0];
        CHECK_FAILS(mr_exec_take(s.exec, ticket[0], &v), MR_E_USAGE, "was lost when a step failed");
        CHECK_FAILS(mr_exec_take(s.exec, ticket[1], &v), MR_E_USAGE, "was lost when a step failed");
    } else {
        CHECK_FAILS(st, MR_E_DATA, "this row always fails");
        set(s.p, "x", 2);
    }
    CHECK(take(s.exec, early, 3) == 101); // this one had arrived
    // the result of a run was lost with it
    if (!dev->host) {
        CHECK_FAILS(mr_program_run(s.last), MR_E_USAGE, "input 'x' was never set");
    }
    OK(mr_program_run(s.p));
    OK(mr_program_fetch(s.p, "y", &ticket[0]));
    OK(mr_program_run(s.other));
    OK(mr_program_fetch(s.other, "y", &ticket[1]));
    CHECK(take(s.exec, ticket[1], 5) == 15);
    CHECK(take(s.exec, ticket[0], 3) == 102);
    // the result of a run after the failure is kept: no older one replaces it
    OK(mr_program_pass(s.p, "y", 0, N, s.last, "x", 0));
    OK(mr_program_run(s.last));
    OK(mr_program_fetch(s.last, "y", &ticket[0]));
    CHECK(take(s.exec, ticket[0], 15) == 510);
    if (late)
        CHECK_FAILS(mr_exec_take(s.exec, late, &v), MR_E_USAGE, "was lost when a step failed");
    // a failure that was not queried is not lost with the program
    if (!dev->host) {
        atomic_store(&spec_gate_open, false);
        OK(mr_program_run(fails));
        atomic_store(&spec_gate_open, true);
        mr_program_free(fails);
        CHECK_FAILS(mr_exec_sync(s.exec), MR_E_DATA, "this row always fails");
    }
    mr_graph_free(gf);
    close_pair(&s);
}

/* An input that was being set when Ctrl-C came has no value. */
static void stopped(mr_device *dev)
{
    enum { MANY = 5 << 20 };
    mr_graph *g = small_graph(MANY, 1);
    mr_exec *e = NULL;
    mr_program *p = NULL;
    float *x = mr_calloc(MANY, sizeof *x);
    mr_view v = {x, mr_desc_dense(MR_F32, 1, (int64_t[]){MANY})};
    OK(mr_exec_new(dev, NULL, NULL, &e));
    OK(mr_exec_compile(e, g, &p));
    OK(mr_program_set(p, "x", &v));
    mr_interrupt_set(true);
    CHECK_FAILS(mr_program_set(p, "x", &v), MR_E_STOPPED, "Ctrl-C");
    mr_interrupt_set(false);
    CHECK_FAILS(mr_program_run(p), MR_E_USAGE, "input 'x' was never set");
    OK(mr_program_set(p, "x", &v));
    OK(mr_program_run(p));
    OK(mr_exec_sync(e));
    mr_exec_free(e);
    mr_graph_free(g);
    mr_free(x);
}

/* ---- memory ---- */

static void memory(mr_device *dev)
{
    pair s = pair_on(dev);
    mr_memory a = mr_program_memory(s.p), b = mr_program_memory(s.other);
    CHECK_INT(a.inputs, b.inputs);
    CHECK_INT(a.staged, dev->host ? 0 : a.inputs);
    CHECK_INT(a.landing, dev->host ? 0 : a.inputs);
    CHECK_INT(s.exec->landing.bytes, a.landing); // one for both
    CHECK_INT(a.ring, (size_t)MR_FETCHES * MR_FETCH_BYTES * (dev->host ? 1 : 2));
    CHECK_INT(a.staging, N * 4);
    close_pair(&s);
}

int main(void)
{
    mr_device *both[2];
    open_both(both);
    for (int i = 0; i < 2; i++) {
        for (uint64_t order = 0; order < (both[i]->checks ? ORDERS : 1); order++) {
            stream(both[i], order);
            passing(both[i], order);
            failing(both[i], order);
        }
        passing_badly(both[i], both[1 - i]);
        ring(both[i]);
        stopped(both[i]);
        memory(both[i]);
    }
    for (int i = 0; i < 2; i++)
        mr_device_close(both[i]);
    return check_done();
}
