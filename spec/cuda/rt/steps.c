/* cuda/rt: steps made by hand, and captured runs. Consecutive runs on all queues; bytes between
 * elements after a step on the host; a capture that communicates with ranks that left; clocks of a
 * device that was opened long ago; allocations of a run. Covers: cuda/rt/host_step.c,
 * cuda/rt/steps.c, cuda/rt/device.c */
#include "check.h"
#include "cuda/rt/driver.h"
#include "groupcase.h"
#include "moonreel/exec.h"
#include <stdlib.h>

#define OK(call) CHECK_OK(call)
extern const mr_device_plugin *mr_cudaemu_entry(void);
extern int mr_cudaemu_ranges(const char *name);

static mr_device *open_with(const char *setting)
{
    mr_device *dev = NULL;
    setenv("MOONREEL_CUDAEMU", setting, 1);
    OK(mr_cudaemu_entry()->open(0, 1, &dev));
    return dev;
}

// ---- runs ----

// b = a on one queue, then c = b in another run: streams run in every allowed order
static void runs_follow_each_other(mr_queue first, mr_queue second)
{
    enum { SEEDS = 6, RUNS = 3 };
    const mr_desc desc = mr_desc_dense(MR_F32, 1, (int64_t[]){16});
    for (int seed = 0; seed < SEEDS; seed++) {
        char setting[32];
        snprintf(setting, sizeof setting, "seed=%d", seed);
        mr_device *dev = open_with(setting);
        mr_dptr at[3];
        mr_step steps[2];
        mr_arg arg[2][2];
        void *prepared[2];
        for (int i = 0; i < 3; i++)
            OK(dev->ops->alloc(dev, 64, MR_SPACE_DEVICE, &at[i]));
        for (int i = 0; i < 2; i++) {
            arg[i][0] = (mr_arg){&desc, at[i]}, arg[i][1] = (mr_arg){&desc, at[i + 1]};
            steps[i] = (mr_step){.kind = MR_STEP_COPY,
                                 .queue = i ? second : first,
                                 .arg = arg[i],
                                 .n_in = 1,
                                 .n_out = 1,
                                 .bytes = 64};
            OK(dev->ops->prepare(dev, &steps[i], 1, &prepared[i]));
        }
        // enqueued, captured, launched
        for (int run = 0; run < RUNS; run++) {
            float x[16], y[16];
            for (int i = 0; i < 16; i++)
                x[i] = (float)(i + 100 * run);
            OK(dev->ops->copy_in(dev, at[0], x, sizeof x));
            for (int i = 0; i < 2; i++)
                OK(dev->ops->run(dev, &steps[i], 1, prepared[i]));
            OK(dev->ops->copy_out(dev, y, at[2], sizeof y));
            CHECK(memcmp(x, y, sizeof x) == 0);
        }
        for (int i = 0; i < 2; i++)
            dev->ops->forget(dev, &steps[i], 1, prepared[i]);
        mr_device_close(dev);
    }
}

// ---- steps on the host ----

enum { ROWS = 2, COLUMNS = 3, APART = 5, ELEMENTS = ROWS * APART, GAP = 0x5A };

// rows with gaps between them
static mr_desc gapped(mr_dtype dtype)
{
    mr_desc d = mr_desc_dense(dtype, 2, (int64_t[]){ROWS, COLUMNS});
    d.stride[0] = APART;
    return d;
}

static bool between(int i)
{
    return i % APART >= COLUMNS;
}

/* y = clamp(x, -1, 1) by the naive kernel. own: y has its own memory, otherwise that of x. The step
 * is enqueued, captured and launched: each run sees new values, and bytes between elements keep
 * their values. */
static void gaps_stay(bool own)
{
    mr_device *dev = open_with("");
    const mr_desc desc = gapped(MR_F32);
    double limits[2] = {-1, 1};
    mr_node node = {.name = "by_hand", .origin = ""};
    float x[ELEMENTS], y[ELEMENTS];
    mr_dptr at[2];
    void *prepared = NULL;
    memcpy(node.attr, limits, sizeof limits);
    OK(dev->ops->alloc(dev, sizeof x, MR_SPACE_DEVICE, &at[0]));
    OK(dev->ops->alloc(dev, sizeof y, MR_SPACE_DEVICE, &at[1]));
    at[1] = own ? at[1] : at[0];
    mr_arg arg[] = {{&desc, at[0]}, {&desc, at[1]}};
    mr_step step = {.kind = MR_STEP_OP,
                    .op = mr_op_find("clamp"),
                    .node = &node,
                    .arg = arg,
                    .n_in = 1,
                    .n_out = 1,
                    .threads = 1,
                    .naive = true};
    OK(dev->ops->prepare(dev, &step, 1, &prepared));
    for (int run = 0; run < 3; run++) {
        memset(x, GAP, sizeof x);
        for (int i = 0; i < ELEMENTS; i++)
            if (!between(i))
                x[i] = (float)(i + run) / 4 - 1.5f;
        OK(dev->ops->fill(dev, at[1], GAP, sizeof y));
        OK(dev->ops->copy_in(dev, at[0], x, sizeof x));
        OK(dev->ops->run(dev, &step, 1, prepared));
        OK(dev->ops->copy_out(dev, y, at[1], sizeof y));
        for (int i = 0; i < ELEMENTS; i++)
            if (between(i))
                CHECK(memcmp(&y[i], &x[i], sizeof *y) == 0);
            else
                CHECK(y[i] == fminf(fmaxf(x[i], -1), 1));
    }
    dev->ops->forget(dev, &step, 1, prepared);
    mr_device_close(dev);
}

/* A failure on the host is reported with the step's name at the next wait. each: the run waits
 * after each step and enqueues none after the failed one. */
static void failure_on_the_host(bool each)
{
    setenv("MOONREEL_SYNC", each ? "1" : "0", 1);
    mr_device *dev = open_with("");
    mr_node node = {.name = "ids_by_hand", .origin = "model.lua:7"}, next = {.name = "behind_it"};
    const mr_desc ids = mr_desc_dense(MR_I32, 2, (int64_t[]){2, 1}),
                  table = mr_desc_dense(MR_F32, 2, (int64_t[]){3, 2}),
                  out = mr_desc_dense(MR_F32, 2, (int64_t[]){2, 2});
    int32_t bad[2] = {0, 3};
    mr_dptr at[3];
    void *prepared = NULL;
    for (int i = 0; i < 3; i++)
        OK(dev->ops->alloc(dev, 64, MR_SPACE_DEVICE, &at[i]));
    mr_arg arg[] = {{&ids, at[0]}, {&table, at[1]}, {&out, at[2]}};
    mr_step steps[] = {{.kind = MR_STEP_OP,
                        .op = mr_op_find("embedding"),
                        .node = &node,
                        .arg = arg,
                        .n_in = 2,
                        .n_out = 1,
                        .threads = 1,
                        .naive = true},
                       {.kind = MR_STEP_COPY, .node = &next, .arg = arg, .n_in = 1, .n_out = 1}};
    OK(dev->ops->prepare(dev, steps, 2, &prepared));
    OK(dev->ops->copy_in(dev, at[0], bad, sizeof bad));
    const uint64_t lost = dev->lost;
    const int before = mr_cudaemu_ranges("behind_it");
    mr_status st = dev->ops->run(dev, steps, 2, prepared);
    CHECK_INT(st == MR_OK, !each);
    CHECK_INT(mr_cudaemu_ranges("behind_it"), before + !each);
    CHECK_FAILS(each ? st : dev->ops->sync(dev), MR_E_RANGE, "id 3, expected -1 (none) to 2");
    CHECK_STR(mr_error_last()->node, "ids_by_hand");
    CHECK_STR(mr_error_last()->origin, "model.lua:7");
    CHECK_INT(dev->lost, lost + 1);
    // the failure is reported once, and the device still works
    OK(dev->ops->sync(dev));
    // if there is no memory for the message, the code is still reported
    if (!each) {
        OK(dev->ops->run(dev, steps, 2, prepared));
        mr_alloc_fail_at(1);
        CHECK_FAILS(dev->ops->sync(dev), MR_E_RANGE, "no memory for its error report");
        mr_alloc_fail_at(0);
    }
    bad[1] = 2;
    OK(dev->ops->copy_in(dev, at[0], bad, sizeof bad));
    OK(dev->ops->run(dev, steps, 2, prepared));
    OK(dev->ops->sync(dev));
    dev->ops->forget(dev, steps, 2, prepared);
    mr_device_close(dev);
    unsetenv("MOONREEL_SYNC");
}

// ---- captures and ranks ----

// a run that was captured before the communicator closed is not launched again
static void captured_talk(void)
{
    mr_device *dev = open_with("");
    mr_graph *g = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    mr_ref x, y;
    mr_exec_options o = {0};
    int64_t n = 4;
    float in[4] = {1, 2, 3, 4}, out[4];
    mr_view vx = {in, mr_desc_dense(MR_F32, 1, &n)}, vy = {out, vx.desc};
    // a group of one rank; its calls take the same path
    group_case alone = {0};
    const int64_t number = group_case_add(&alone, 0, 1, 5);
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_add(g, "all_gather", MR_ATTRS({"group", .i = number}), &x, 1, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    OK(mr_exec_new(dev, NULL, &o, &e));
    OK(mr_exec_compile(e, g, &p));
    // enqueued, captured, launched
    for (int run = 1; run <= 3; run++) {
        OK(mr_program_set(p, "x", &vx));
        OK(mr_program_run(p));
        OK(mr_program_get(p, "y", &vy));
        CHECK(memcmp(in, out, sizeof in) == 0);
        CHECK_INT(alone.begun, run);
    }
    mr_collective_remove(number);
    OK(mr_program_set(p, "x", &vx));
    CHECK_FAILS(mr_program_run(p), MR_E_NODE, "its communicator is closed");
    CHECK_INT(alone.begun, 3);
    mr_program_free(p);
    mr_exec_free(e);
    mr_device_close(dev);
    mr_graph_free(g);
}

// in a group of two ranks, of which this is the first, an op that cannot run is refused before
// anything runs
static void refused_by_ranks(const char *op, const mr_attr *attr, int n_attr, int64_t n,
                             mr_status code, const char *text)
{
    mr_device *dev = open_with("");
    mr_graph *g = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    mr_ref x, y;
    mr_exec_options o = {0};
    group_case first = {0};
    const int64_t number = group_case_add(&first, 0, 2, 5), dim[] = {n, 4};
    mr_attr all[8] = {{"group", .i = number}};
    for (int i = 0; i < n_attr; i++)
        all[1 + i] = attr[i];
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, strcmp(op, "all_to_all") == 0 ? 2 : 1, dim, &x));
    OK(mr_graph_add(g, op, all, n_attr + 1, &x, 1, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    OK(mr_exec_new(dev, NULL, &o, &e));
    CHECK_FAILS(mr_exec_compile(e, g, &p), code, text);
    CHECK_STR(mr_error_last()->op, op);
    mr_exec_free(e);
    mr_collective_remove(number);
    mr_device_close(dev);
    mr_graph_free(g);
}

static void refusals_by_ranks(void)
{
    static const char *const uneven = "5 elements do not divide into equal chunks for 2 ranks",
                             *const others = "as in group";
    refused_by_ranks("all_gather", NULL, 0, 5, MR_E_SHAPE, uneven);
    refused_by_ranks("reduce_scatter", NULL, 0, 5, MR_E_SHAPE, uneven);
    // ops that were made for another group
    for (int i = 0; i < 3; i++) {
        const int64_t ranks[] = {3, 1, 2}, at[] = {0, 0, 1};
        mr_attr a[] = {{"ranks", .i = ranks[i]}, {"at", .i = at[i]}, {"length", .i = 4}},
                to_all[] = {a[0], a[1], {"length", .i = 4 * ranks[i]}, {"split", .i = 1}};
        refused_by_ranks("gather", a, 2, 4, MR_E_USAGE, others);
        a[2].i = 4 * ranks[i];
        refused_by_ranks("gather_shares", a, 3, 4, MR_E_USAGE, others);
        refused_by_ranks("all_to_all", to_all, 4, 4, MR_E_USAGE, others);
    }
}

// ---- what a run allocates ----

static int allocations;
static mr_device_ops counted, counting;
static mr_status count_alloc(mr_device *dev, size_t bytes, mr_space space, mr_dptr *out)
{
    allocations++;
    return counted.alloc(dev, bytes, space, out);
}

static mr_graph *silu_of(int64_t n)
{
    mr_graph *g = NULL;
    mr_ref x, y;
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    return g;
}

// two shapes alternate: device and pinned memory are allocated only once
static void runs_allocate_nothing(void)
{
    enum { SHAPES = 2, RUNS = 5 };
    mr_device *dev = open_with("");
    mr_exec *e = NULL;
    mr_exec_options o = {0};
    mr_graph *g[SHAPES];
    mr_program *p[SHAPES];
    counted = counting = *dev->ops;
    counting.alloc = count_alloc;
    dev->ops = &counting;
    OK(mr_exec_new(dev, NULL, &o, &e));
    for (int i = 0; i < SHAPES; i++) {
        g[i] = silu_of(1000 << i);
        OK(mr_exec_compile(e, g[i], &p[i]));
    }
    for (int run = 0; run < RUNS; run++) {
        if (run == 1)
            allocations = 0;
        for (int i = 0; i < SHAPES; i++) {
            static float x[1000 << SHAPES];
            int64_t n = 1000 << i;
            mr_view v = {x, mr_desc_dense(MR_F32, 1, &n)};
            OK(mr_program_set(p[i], "x", &v));
            OK(mr_program_run(p[i]));
            OK(mr_program_get(p[i], "y", &v));
        }
    }
    CHECK_INT(allocations, 0);
    for (int i = 0; i < SHAPES; i++)
        mr_program_free(p[i]);
    mr_exec_free(e);
    dev->ops = &counted;
    mr_device_close(dev);
    for (int i = 0; i < SHAPES; i++)
        mr_graph_free(g[i]);
}

// ---- clocks ----

/* Each task takes a thousand seconds, so f32 milliseconds since opening soon lose precision. Still,
 * each step of a run starts where the previous one ended. */
static void clocks_stay_fine(void)
{
    enum { RUNS = 40, STEPS = 4 };
    const double task_s = 1000.001;
    mr_device *dev = open_with("task=1000001");
    mr_desc desc = mr_desc_dense(MR_F32, 1, (int64_t[]){16});
    mr_dptr at[2];
    mr_step steps[STEPS];
    mr_step_clock clock[STEPS], copied;
    void *prepared = NULL;
    for (int i = 0; i < 2; i++)
        OK(dev->ops->alloc(dev, 64, i ? MR_SPACE_PINNED : MR_SPACE_DEVICE, &at[i]));
    mr_arg arg[] = {{&desc, at[0]}, {&desc, at[0]}};
    for (int i = 0; i < STEPS; i++)
        steps[i] = (mr_step){.kind = MR_STEP_COPY,
                             .arg = arg,
                             .n_in = 1,
                             .n_out = 1,
                             .bytes = 64,
                             .clock = &clock[i]};
    OK(dev->ops->prepare(dev, steps, STEPS, &prepared));
    double before = 0;
    for (int run = 0; run < RUNS; run++) {
        mr_copy copy = {at[0], at[1], 64, "in", &copied};
        OK(dev->ops->copy(dev, MR_LANE_IN, &copy));
        OK(dev->ops->run(dev, steps, STEPS, prepared));
        // some runs are never waited for
        if (run % 3)
            continue;
        OK(dev->ops->sync(dev));
        for (int i = 0; i < STEPS; i++) {
            CHECK_NEAR(clock[i].seconds, task_s, 1e-6);
            if (i)
                CHECK_NEAR(clock[i].start_s - clock[i - 1].start_s, task_s, 1e-6);
        }
        CHECK(clock[0].start_s > before);
        before = clock[STEPS - 1].start_s;
        // the copy ran shortly before or after the run
        CHECK(fabs(copied.start_s - clock[0].start_s) < 20 * task_s);
    }
    dev->ops->forget(dev, steps, STEPS, prepared);
    mr_device_close(dev);
}

int main(void)
{
    runs_follow_each_other(MR_Q_COMPUTE, MR_Q_COMM_INTRA);
    runs_follow_each_other(MR_Q_COMM_INTER, MR_Q_COMPUTE);
    runs_follow_each_other(MR_Q_COMM_INTRA, MR_Q_COMM_INTER);
    clocks_stay_fine();
    gaps_stay(true);
    gaps_stay(false);
    failure_on_the_host(false);
    failure_on_the_host(true);
    captured_talk();
    refusals_by_ranks();
    runs_allocate_nothing();
    return check_done();
}
