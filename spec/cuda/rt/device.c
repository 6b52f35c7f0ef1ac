/* cuda/rt: the device through its interface: what each call waits for, what it reports and when,
 * and that freed objects are not used any more. On the emulator device memory is host memory, so a
 * spec can read it without waiting. Covers: cuda/rt/device.c, cuda/rt/steps.c */
#include "check.h"
#include "cuda/rt/driver.h"
#include "groupcase.h"
#include "moonreel/exec.h"
#include <stdlib.h>

#define OK(call) CHECK_OK(call)
extern const mr_device_plugin *mr_cudaemu_entry(void);
extern int mr_cudaemu_ranges(const char *name);
extern int mr_cudaemu_open(void);

enum { BYTES = 64 };

static mr_device *open_with(const char *setting)
{
    mr_device *dev = NULL;
    setenv("MOONREEL_CUDAEMU", setting, 1);
    OK(mr_cudaemu_entry()->open(0, 1, &dev));
    return dev;
}

static mr_dptr block(mr_device *dev, mr_space space, int byte)
{
    mr_dptr at = 0;
    OK(dev->ops->alloc(dev, BYTES, space, &at));
    OK(dev->ops->fill(dev, at, byte, BYTES));
    return at;
}

static bool holds(mr_dptr at, int byte)
{
    for (int i = 0; i < BYTES; i++)
        if (((const unsigned char *)at)[i] != byte)
            return false;
    return true;
}

static mr_step copy_step(mr_arg *arg, mr_queue queue, const mr_node *node)
{
    return (mr_step){.kind = MR_STEP_COPY,
                     .queue = queue,
                     .node = node,
                     .arg = arg,
                     .n_in = 1,
                     .n_out = 1,
                     .bytes = BYTES};
}

static void memory(void)
{
    mr_device *dev = open_with("");
    mr_dptr at;
    for (int i = 0; i < 3; i++) {
        at = block(dev, i % 2 ? MR_SPACE_PINNED : MR_SPACE_DEVICE, i);
        CHECK_INT(at % 4096, 0);
    }
    CHECK_FAILS(dev->ops->alloc(dev, SIZE_MAX - 9, MR_SPACE_DEVICE, &at), MR_E_MEMORY, "");
    // each memory is freed as its own kind, at once or when the device closes
    dev->ops->free(dev, at, BYTES, MR_SPACE_DEVICE);
    at = block(dev, MR_SPACE_PINNED, 3);
    dev->ops->free(dev, at, BYTES, MR_SPACE_PINNED);
    // a run without steps does nothing
    OK(dev->ops->run(dev, NULL, 0, NULL));
    mr_device_close(dev);
    CHECK_INT(mr_cudaemu_open(), 0);
}

// the clock of a copy reports its start and its duration: one turn of the emulator
static void clocks(void)
{
    const double before = mr_now_s();
    mr_device *dev = open_with("task=5,arch=86");
    CHECK_STR(dev->facts.isa, "8.6");
    mr_step_clock first = {0}, second = {0};
    mr_dptr from = block(dev, MR_SPACE_PINNED, 1), at = block(dev, MR_SPACE_DEVICE, 0);
    mr_copy one = {at, from, BYTES, "in", &first}, two = {at, from, BYTES, "in", &second};
    OK(dev->ops->copy(dev, MR_LANE_IN, &one));
    OK(dev->ops->copy(dev, MR_LANE_IN, &two));
    OK(dev->ops->sync(dev));
    CHECK_NEAR(first.seconds, 5e-3, 1e-9);
    CHECK_NEAR(second.seconds, 5e-3, 1e-9);
    CHECK_NEAR(second.start_s - first.start_s, 5e-3, 1e-9);
    CHECK(first.start_s >= before);
    mr_device_close(dev);
}

// if the time of each task is known, nothing is probed, for either dtype
static void rates(void)
{
    mr_device *dev = open_with("rated,task=5");
    for (int bf16 = 0; bf16 < 2; bf16++) {
        mr_rates known = {.step_s = 0};
        OK(mr_device_rates(dev, bf16 ? MR_BF16 : MR_F32, &known));
        CHECK_NEAR(known.step_s, 5e-3, 1e-12);
        CHECK(known.of[0].flop_s > 1e15 && known.of[0].bytes_s > 1e15);
    }
    mr_device_close(dev);
}

// copies on all lanes, some ordered by events: a wait returns when the copies have completed
static void lanes(int seed)
{
    char setting[16];
    snprintf(setting, sizeof setting, "seed=%d", seed);
    mr_device *dev = open_with(setting);
    mr_event *event = NULL;
    bool reached = false;
    mr_dptr from = block(dev, MR_SPACE_PINNED, 1), at = block(dev, MR_SPACE_DEVICE, 0),
            back = block(dev, MR_SPACE_PINNED, 0);
    mr_copy in = {at, from, BYTES, "in", NULL}, out = {back, at, BYTES, "out", NULL};
    OK(dev->ops->event(dev, &event));
    for (int i = 0; i < 4; i++)
        OK(dev->ops->copy(dev, MR_LANE_IN, &in));
    OK(dev->ops->mark(dev, MR_LANE_IN, event));
    OK(dev->ops->reached(dev, event, true, &reached));
    CHECK(reached && holds(at, 1));
    OK(dev->ops->copy(dev, MR_LANE_OUT, &out));
    OK(dev->ops->sync(dev));
    CHECK(holds(back, 1));
    // a lane waits for another lane; the host waits for neither
    OK(dev->ops->fill(dev, at, 0, BYTES));
    OK(dev->ops->fill(dev, back, 0, BYTES));
    for (int i = 0; i < 4; i++)
        OK(dev->ops->copy(dev, MR_LANE_IN, &in));
    OK(dev->ops->mark(dev, MR_LANE_IN, event));
    OK(dev->ops->wait(dev, MR_LANE_OUT, event));
    OK(dev->ops->copy(dev, MR_LANE_OUT, &out));
    OK(dev->ops->sync(dev));
    CHECK(holds(back, 1));
    // copies in flight complete before their memory is freed
    OK(dev->ops->fill(dev, from, 2, BYTES));
    OK(dev->ops->copy(dev, MR_LANE_IN, &in));
    dev->ops->free(dev, from, BYTES, MR_SPACE_PINNED);
    CHECK(holds(at, 2));
    // and before the device closes
    static unsigned char last[BYTES];
    memset(last, 0, BYTES);
    out.to = (mr_dptr)last;
    OK(dev->ops->copy(dev, MR_LANE_OUT, &out));
    dev->ops->event_free(dev, event);
    mr_device_close(dev);
    CHECK(holds((mr_dptr)last, 2));
}

// After a run's arguments move, it uses the new addresses and runs twice more before it is repeated
// from a capture: initialisation in the first run must not be captured. Forgotten steps have run.
static void moved(void)
{
    mr_device *dev = open_with("");
    const mr_desc desc = mr_desc_dense(MR_F32, 1, (int64_t[]){BYTES / 4});
    mr_dptr from = block(dev, MR_SPACE_DEVICE, 3), to = block(dev, MR_SPACE_DEVICE, 0),
            other = block(dev, MR_SPACE_DEVICE, 0);
    mr_arg arg[] = {{&desc, from}, {&desc, to}};
    mr_step step = copy_step(arg, MR_Q_COMPUTE, NULL);
    void *prepared = NULL;
    const int before = mr_cudaemu_ranges("result");
    OK(dev->ops->prepare(dev, &step, 1, &prepared));
    for (int run = 0; run < 3; run++)
        OK(dev->ops->run(dev, &step, 1, prepared));
    OK(dev->ops->sync(dev));
    CHECK_INT(mr_cudaemu_ranges("result") - before, 2);
    CHECK(holds(to, 3) && holds(other, 0));
    arg[1].at = other;
    dev->ops->moved(dev, &step, 1, prepared);
    for (int run = 0; run < 3; run++) {
        OK(dev->ops->fill(dev, other, 0, BYTES));
        OK(dev->ops->run(dev, &step, 1, prepared));
        OK(dev->ops->sync(dev));
        CHECK(holds(other, 3));
    }
    CHECK_INT(mr_cudaemu_ranges("result") - before, 4);
    OK(dev->ops->fill(dev, from, 4, BYTES));
    OK(dev->ops->run(dev, &step, 1, prepared));
    dev->ops->forget(dev, &step, 1, prepared);
    CHECK(holds(other, 4));
    mr_device_close(dev);
}

enum { RUN, COPY, COPY_IN, FILL, ALLOC, MARK, WAIT, REACHED, CALLS };

/* Two timed runs fail on the host. The next call, whichever it is, reports the first failure once,
 * before it begins anything else. */
static void first_failure(int call)
{
    mr_device *dev = open_with("");
    mr_node look_up = {.name = "ids_by_hand", .origin = ""}, next = {.name = "next_by_hand"};
    const mr_desc ids = mr_desc_dense(MR_I32, 2, (int64_t[]){1, 1}),
                  table = mr_desc_dense(MR_F32, 2, (int64_t[]){3, 2}),
                  out = mr_desc_dense(MR_F32, 2, (int64_t[]){1, 2});
    mr_dptr id[2], rows = block(dev, MR_SPACE_DEVICE, 0), to = block(dev, MR_SPACE_DEVICE, 0),
                   any = block(dev, MR_SPACE_DEVICE, 7);
    mr_arg arg[2][3], copied[] = {{&out, any}, {&out, to}};
    mr_step steps[2], behind = copy_step(copied, MR_Q_COMPUTE, &next);
    mr_step_clock clock[2];
    void *prepared[3];
    for (int i = 0; i < 2; i++) {
        const int32_t bad = 3 + i;
        id[i] = block(dev, MR_SPACE_DEVICE, 0);
        OK(dev->ops->copy_in(dev, id[i], &bad, sizeof bad));
        arg[i][0] = (mr_arg){&ids, id[i]}, arg[i][1] = (mr_arg){&table, rows};
        arg[i][2] = (mr_arg){&out, to};
        steps[i] = (mr_step){.kind = MR_STEP_OP,
                             .op = mr_op_find("embedding"),
                             .node = &look_up,
                             .arg = arg[i],
                             .n_in = 2,
                             .n_out = 1,
                             .threads = 1,
                             .naive = true,
                             .clock = &clock[i]};
        OK(dev->ops->prepare(dev, &steps[i], 1, &prepared[i]));
    }
    OK(dev->ops->prepare(dev, &behind, 1, &prepared[2]));
    const mr_dptr spare = block(dev, MR_SPACE_DEVICE, 0);
    mr_event *event = NULL;
    OK(dev->ops->event(dev, &event));
    OK(dev->ops->mark(dev, MR_LANE_IN, event));
    for (int i = 0; i < 2; i++)
        OK(dev->ops->run(dev, &steps[i], 1, prepared[i]));
    // this call waits but cannot report the failure
    dev->ops->free(dev, spare, BYTES, MR_SPACE_DEVICE);
    const int before = mr_cudaemu_ranges("next_by_hand");
    const uint64_t lost = dev->lost;
    mr_copy copy = {to, any, BYTES, "copy", NULL};
    mr_dptr none = 0;
    bool reached = false;
    mr_status st = call == RUN       ? dev->ops->run(dev, &behind, 1, prepared[2])
                   : call == COPY    ? dev->ops->copy(dev, MR_LANE_RUN, &copy)
                   : call == COPY_IN ? dev->ops->copy_in(dev, to, (void *)any, BYTES)
                   : call == FILL    ? dev->ops->fill(dev, to, 7, BYTES)
                   : call == ALLOC   ? dev->ops->alloc(dev, BYTES, MR_SPACE_DEVICE, &none)
                   : call == MARK    ? dev->ops->mark(dev, MR_LANE_OUT, event)
                   : call == WAIT    ? dev->ops->wait(dev, MR_LANE_OUT, event)
                                     : dev->ops->reached(dev, event, true, &reached);
    CHECK_FAILS(st, MR_E_RANGE, "id 3, expected");
    CHECK_INT(dev->lost, lost + 1);
    CHECK_INT(none, 0);
    OK(dev->ops->sync(dev));
    CHECK_INT(mr_cudaemu_ranges("next_by_hand"), before);
    CHECK(!holds(to, 7));
    OK(dev->ops->run(dev, &behind, 1, prepared[2]));
    OK(dev->ops->sync(dev));
    CHECK(holds(to, 7));
    for (int i = 0; i < 3; i++)
        dev->ops->forget(dev, i < 2 ? &steps[i] : &behind, 1, prepared[i]);
    dev->ops->event_free(dev, event);
    dev->ops->event_free(dev, NULL);
    mr_device_close(dev);
    CHECK_INT(mr_cudaemu_open(), 0);
}

// if a run cannot be enqueued completely, work on a side queue has completed when it returns
static void half_a_run(void)
{
    mr_device *dev = open_with("seed=0,refuse=0");
    const mr_desc desc = mr_desc_dense(MR_F32, 1, (int64_t[]){BYTES / 4});
    const mr_kernel *kernel = mr_op_kernel(mr_op_find("silu"), "cudaemu");
    mr_dptr from = block(dev, MR_SPACE_DEVICE, 5), to = block(dev, MR_SPACE_DEVICE, 0);
    mr_arg arg[] = {{&desc, from}, {&desc, to}};
    mr_step steps[] = {copy_step(arg, MR_Q_COMM_INTRA, NULL),
                       {.kind = MR_STEP_OP,
                        .op = mr_op_find("silu"),
                        .kernel = kernel,
                        .run = kernel->run[0],
                        .arg = arg,
                        .n_in = 1,
                        .n_out = 1,
                        .threads = 1}};
    void *prepared = NULL;
    steps[1].arg = (mr_arg[]){{&desc, from}, {&desc, block(dev, MR_SPACE_DEVICE, 0)}};
    OK(dev->ops->prepare(dev, steps, 2, &prepared));
    CHECK_FAILS(dev->ops->run(dev, steps, 2, prepared), MR_E_UNSUPPORTED,
                "the launch of this step");
    CHECK_STR(mr_error_last()->op, "silu");
    CHECK(holds(to, 5));
    dev->ops->forget(dev, steps, 2, prepared);
    mr_device_close(dev);
}

// other ranks do not wait for a rank whose run failed
static void ranks_hear(void)
{
    mr_device *dev = open_with("refuse=1");
    mr_graph *g = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    mr_exec_options o = {0};
    mr_ref x, y;
    int64_t n = 4;
    float in[4] = {1, 2, 3, 4};
    mr_view vx = {in, mr_desc_dense(MR_F32, 1, &n)};
    group_case alone = {0};
    const int64_t number = group_case_add(&alone, 0, 1, 5);
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_add(g, "all_gather", MR_ATTRS({"group", .i = number}), &x, 1, &y));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &y, 1, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    OK(mr_exec_new(dev, NULL, &o, &e));
    OK(mr_exec_compile(e, g, &p));
    OK(mr_program_set(p, "x", &vx));
    CHECK_FAILS(mr_program_run(p), MR_E_UNSUPPORTED, "the launch of this step");
    CHECK_INT(alone.given_up, 1);
    CHECK_FAILS(mr_program_run(p), MR_E_NODE, "its communicator is closed");
    mr_collective_remove(number);
    mr_program_free(p);
    mr_exec_free(e);
    mr_device_close(dev);
    mr_graph_free(g);
}

int main(void)
{
    memory();
    clocks();
    rates();
    for (int seed = 0; seed < 6; seed++)
        lanes(seed);
    moved();
    for (int call = RUN; call < CALLS; call++)
        first_failure(call);
    half_a_run();
    ranks_hear();
    return check_done();
}
