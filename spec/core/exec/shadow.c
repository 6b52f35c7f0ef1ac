/* exec/shadow: errors that the test device detects - host access, unwritten reads, unfinished and
 * overlong writes, writes to inputs, constants and regions, missing waits between queues - and that
 * work runs late but in order.
 * Covers: core/exec/shadow_memory.c core/exec/shadow_step.c */
#include "specops.h"
#include "check.h"
#include "exec/room.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 24 };

/* One hand-made step y = op(x) of N elements. */
static mr_node node_x = {.origin = "model.lua:7", .name = "blocks.3/odd"};
static mr_step step_with(mr_device *dev, const char *op, mr_dtype dtype, int n_in,
                         const mr_dptr *at)
{
    static mr_arg args[64][4];
    static mr_desc descs[64];
    static int made;
    int64_t n = N;
    int i = made++ % 64;
    descs[i] = mr_desc_dense(dtype, 1, &n);
    mr_step s = {.op = mr_op_find(op), .node = &node_x, .arg = args[i], .n_in = n_in, .n_out = 1};
    for (int k = 0; k <= n_in; k++)
        args[i][k] = (mr_arg){&descs[i], 0};
    void *prepared = NULL;
    CHECK_OK(mr_step_choose(&s, &dev->facts));
    CHECK_OK(dev->ops->prepare(dev, &s, 1, &prepared));
    for (int k = 0; k <= n_in; k++)
        args[i][k].at = at[k];
    return s;
}
static mr_step step_of(mr_device *dev, const char *op, mr_dtype dtype, mr_dptr x, mr_dptr y)
{
    return step_with(dev, op, dtype, 1, (mr_dptr[]){x, y});
}

static mr_dptr block(mr_device *dev, size_t bytes)
{
    mr_dptr p = 0;
    CHECK_OK(dev->ops->alloc(dev, bytes, MR_SPACE_DEVICE, &p));
    CHECK_INT(p % 4096, 0);
    return p;
}

static mr_status run(mr_device *dev, const mr_step *steps, int n)
{
    MR_TRY(dev->ops->run(dev, steps, n, NULL));
    return dev->ops->sync(dev);
}

/* A child that touches a device address dies of SIGSEGV. */
static void host_access(void)
{
    for (int write = 0; write < 2; write++) {
        pid_t pid = fork();
        if (pid == 0) {
            mr_device *dev;
            mr_dptr p = 0;
            if (mr_device_open("shadow", 1, &dev) != MR_OK)
                _exit(1);
            if (dev->ops->alloc(dev, 4096, MR_SPACE_DEVICE, &p) != MR_OK)
                _exit(2);
            signal(SIGSEGV, SIG_DFL);
            if (write)
                *(volatile char *)p = 1;
            else
                write = *(volatile char *)p;
            _exit(3);
        }
        int status = 0;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
}

/* The contents of a range are lost before its first user and after its last one. */
static void ranges(mr_device *dev, mr_dptr x, mr_dptr y)
{
    float values[N] = {1};
    mr_span span = {x, 64, 2, 0}, *used = &span;
    mr_step steps[3] = {step_of(dev, "spec_move", MR_F32, y, x),
                        step_of(dev, "spec_move", MR_F32, x, y),
                        step_of(dev, "spec_move", MR_F32, x, y)};
    steps[0].spans = steps[1].spans = steps[2].spans = &used;
    CHECK_OK(dev->ops->copy_in(dev, y, values, sizeof values));
    steps[1].n_spans = 1;
    CHECK_FAILS(run(dev, steps + 1, 1), MR_E_INTERNAL, "byte 0 was not written");
    steps[0].n_spans = 1;
    CHECK_OK(run(dev, steps, 2)); // the run that failed does not count
    CHECK_OK(run(dev, steps, 2));
    CHECK_INT(span.seen, 0);
    CHECK_FAILS(run(dev, steps, 3), MR_E_INTERNAL, "byte 0 was not written");
    span.users = 3, steps[2].n_spans = 1;
    CHECK_OK(run(dev, steps, 3));
    CHECK_OK(dev->ops->copy_in(dev, x, values, sizeof values));
}

static void unwritten_read(mr_device *dev)
{
    mr_dptr x = block(dev, N * 4), y = block(dev, N * 4);
    mr_step s = step_of(dev, "spec_move", MR_F32, x, y);
    CHECK_OK(run(dev, &s, 1)); // memory from alloc is cleared: it counts as written
    CHECK_OK(dev->ops->fill(dev, x + 16, 0, 4));
    CHECK_FAILS(
        run(dev, &s, 1), MR_E_INTERNAL,
        "model.lua:7: spec_move 'blocks.3/odd': reads 'x' [24] f32, whose byte 16 was not written");
    float one = 1;
    CHECK_OK(dev->ops->copy_in(dev, x + 16, &one, 4));
    CHECK_OK(run(dev, &s, 1));
    float got[N];
    CHECK_OK(dev->ops->copy_out(dev, got, y, sizeof got));
    CHECK(got[4] == 1 && got[5] == 0);
    ranges(dev, x, y);
    dev->ops->free(dev, x, N * 4, MR_SPACE_DEVICE);
    CHECK_FAILS(run(dev, &s, 1), MR_E_INTERNAL, "lie in no allocation");
    dev->ops->free(dev, y, N * 4, MR_SPACE_DEVICE);
}

static void unfinished_write(mr_device *dev)
{
    static const mr_dtype dtypes[] = {MR_F64, MR_F32,  MR_BF16,    MR_I64,    MR_I32,
                                      MR_U8,  MR_BOOL, MR_F8_E4M3, MR_F8_E5M2};
    for (size_t i = 0; i < MR_COUNT(dtypes); i++) {
        size_t bytes = N * mr_dtype_bytes(dtypes[i]);
        mr_dptr x = block(dev, bytes), y = block(dev, bytes);
        mr_step bad = step_of(dev, "spec_partial", dtypes[i], x, y),
                good = step_of(dev, "spec_move", dtypes[i], x, y);
        char want[64];
        snprintf(want, sizeof want, "unwritten from byte %zu on",
                 (N - 1) * mr_dtype_bytes(dtypes[i]));
        CHECK_FAILS(run(dev, &bad, 1), MR_E_INTERNAL, want);
        // values that look like poison are accepted: all bits set in an integer
        unsigned char ones[N * 8];
        memset(ones, 0xff, sizeof ones);
        CHECK_OK(dev->ops->copy_in(dev, x, ones, bytes));
        CHECK_OK(run(dev, &good, 1));
        // and both poisons in one value
        memset(ones + bytes - mr_dtype_bytes(dtypes[i]), 0x5a, mr_dtype_bytes(dtypes[i]));
        CHECK_OK(dev->ops->copy_in(dev, x, ones, bytes));
        CHECK_OK(run(dev, &good, 1));
        mr_step over = step_of(dev, "spec_overrun", dtypes[i], x, y);
        CHECK_FAILS(run(dev, &over, 1), MR_E_INTERNAL, "writes beyond the end of 'y'");
        dev->ops->free(dev, x, bytes, MR_SPACE_DEVICE);
        dev->ops->free(dev, y, bytes, MR_SPACE_DEVICE);
    }
}

static mr_status scribble_run(const mr_call *c)
{
    memset(c->in[0].data, 7, 4);
    memset(c->out[0].data, 0, mr_desc_span_bytes(&c->out[0].desc));
    return MR_OK;
}
MR_OP(spec_scribble) = {
    .name = "spec_scribble",
    .doc = "writes into its input",
    .hidden = true,
    .in = {{"x", "[...] f32", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_CONTIG}},
    .infer = spec_like,
    .cpu = {.run = {scribble_run}},
};

/* Inputs and regions change only where an op declares it, constants never. */
static void guards(mr_device *dev)
{
    mr_dptr x = block(dev, N * 4), y = block(dev, N * 4);
    mr_step move = step_of(dev, "spec_move", MR_F32, x, y),
            scribble = step_of(dev, "spec_scribble", MR_F32, x, y);
    mr_step update = step_with(dev, "spec_update", MR_F32, 2, (mr_dptr[]){y, x, y});
    float values[N] = {1}, got[N];
    CHECK_OK(dev->ops->copy_in(dev, x, values, sizeof values));
    CHECK_OK(run(dev, &move, 1));
    dev->ops->guard(dev, y, MR_GUARD_NAMED);
    CHECK_FAILS(run(dev, &move, 1), MR_E_INTERNAL,
                "spec_move 'blocks.3/odd': writes 'y' [24] f32 into an input or a region");
    CHECK_OK(run(dev, &update, 1));
    dev->ops->guard(dev, y, MR_GUARD_ALL);
    CHECK_FAILS(run(dev, &update, 1), MR_E_INTERNAL, "writes 'w' [24] f32 into constants");
    CHECK_OK(dev->ops->copy_out(dev, got, y, sizeof got));
    CHECK(got[0] == 2); // neither refused step wrote
    CHECK_OK(dev->ops->copy_in(dev, y, values, sizeof values));
    dev->ops->guard(dev, y, MR_GUARD_NONE);
    CHECK_FAILS(run(dev, &scribble, 1), MR_E_INTERNAL, "changes its input 'x'");
    dev->ops->free(dev, x, N * 4, MR_SPACE_DEVICE);
    dev->ops->free(dev, y, N * 4, MR_SPACE_DEVICE);
}

/* y = x on the compute queue, z = y on another: without a wait it runs too early, each time. */
static void queues(mr_device *dev)
{
    mr_dptr x = block(dev, N * 4), y = block(dev, N * 4), z = block(dev, N * 4);
    for (int other = MR_Q_COMM_INTRA; other < MR_QUEUE_COUNT; other++) {
        float values[N] = {(float)other}, got[N];
        mr_step s[2] = {step_of(dev, "spec_move", MR_F32, x, y),
                        step_of(dev, "spec_move", MR_F32, y, z)};
        s[1].queue = (mr_queue)other;
        CHECK_OK(dev->ops->copy_in(dev, x, values, sizeof values));
        CHECK_OK(dev->ops->fill(dev, y, 0xff, N * 4));
        mr_shadow_order(dev, 0);
        CHECK_FAILS(run(dev, s, 2), MR_E_INTERNAL, "was not written");
        s[1].wait_n = 1, s[1].wait[0] = 0;
        CHECK_OK(run(dev, s, 2));
        CHECK_OK(dev->ops->copy_out(dev, got, z, sizeof got));
        CHECK(got[0] == (float)other);
        s[0].wait_n = 1, s[0].wait[0] = 1;
        CHECK_FAILS(run(dev, s, 2), MR_E_INTERNAL, "wait for each other");
    }
    dev->ops->free(dev, x, N * 4, MR_SPACE_DEVICE);
    dev->ops->free(dev, y, N * 4, MR_SPACE_DEVICE);
    dev->ops->free(dev, z, N * 4, MR_SPACE_DEVICE);
}

/* Each order takes other queues first; equal numbers are equal orders. No queue waits here, so each
 * order is right: the clocks show which one it was. */
static void orders(mr_device *dev)
{
    enum { STEPS = 3 * MR_QUEUE_COUNT, ORDERS = 12 };
    mr_dptr x = block(dev, N * 4), y[STEPS];
    mr_step s[STEPS];
    mr_step_clock clock[STEPS];
    int seen[2][ORDERS][STEPS], first[MR_QUEUE_COUNT] = {0}, changed = 0;
    for (int i = 0; i < STEPS; i++) {
        y[i] = block(dev, N * 4);
        s[i] = step_of(dev, "spec_move", MR_F32, x, y[i]);
        s[i].queue = (mr_queue)(i % MR_QUEUE_COUNT), s[i].clock = &clock[i];
    }
    for (int round = 0; round < 2; round++) {
        mr_shadow_order(dev, 0);
        for (int k = 0; k < ORDERS; k++) {
            CHECK_OK(run(dev, s, STEPS));
            for (int i = 0; i < STEPS; i++) {
                int place = 0;
                for (int j = 0; j < STEPS; j++)
                    place += clock[j].start_s < clock[i].start_s;
                seen[round][k][place] = (int)s[i].queue;
            }
        }
    }
    for (int k = 0; k < ORDERS; k++) {
        CHECK(memcmp(seen[0][k], seen[1][k], sizeof *seen[0]) == 0);
        first[seen[0][k][0]]++;
        for (int i = 1; i < STEPS; i++)
            changed += k % 2 == 0 && seen[0][k][i] != seen[0][k][i - 1];
        for (int i = 0; i < STEPS && k < 2; i++)
            CHECK_INT(seen[0][k][i], k ? i / 3 : MR_QUEUE_COUNT - 1 - i / 3);
    }
    for (int q = 0; q < MR_QUEUE_COUNT; q++)
        CHECK(first[q] > 0); // each queue was the first to run
    CHECK(changed > 30);     // four in each order that is not drawn step by step
    for (int i = 0; i < STEPS; i++)
        dev->ops->free(dev, y[i], N * 4, MR_SPACE_DEVICE);
    dev->ops->free(dev, x, N * 4, MR_SPACE_DEVICE);
}

/* Enqueued work starts late, but it starts; a failure is reported once, by the next call. */
static void late(mr_device *dev)
{
    mr_dptr x = block(dev, N * 4), y = block(dev, N * 4);
    mr_step s = step_of(dev, "spec_move", MR_F32, x, y),
            bad = step_of(dev, "spec_fail", MR_F32, x, y);
    mr_step_clock clock = {0};
    s.clock = &clock;
    int before = spec_moves;
    double asked = mr_now_s();
    CHECK_OK(dev->ops->run(dev, &s, 1, NULL));
    for (int i = 0; i < 3000 && spec_moves == before; i++)
        mr_clock_table()->sleep_ns(20000000);
    CHECK_INT(spec_moves - before, 1); // by itself
    CHECK_OK(dev->ops->sync(dev));
    CHECK(clock.start_s >= asked + 0.015); // and late
    asked = mr_now_s();
    CHECK_OK(dev->ops->run(dev, &s, 1, NULL));
    CHECK_OK(dev->ops->sync(dev));
    CHECK(clock.start_s >= asked);

    mr_step order[2] = {bad, s};
    clock.start_s = 0;
    CHECK_OK(dev->ops->run(dev, order, 2, NULL));
    CHECK_FAILS(dev->ops->sync(dev), MR_E_DATA, "this row always fails");
    CHECK(clock.start_s == 0); // nothing ran after the failure
    CHECK_OK(dev->ops->sync(dev));
    CHECK_OK(run(dev, &s, 1));
    dev->ops->free(dev, x, N * 4, MR_SPACE_DEVICE);
    dev->ops->free(dev, y, N * 4, MR_SPACE_DEVICE);
}

int main(void)
{
    host_access();
    mr_device *dev;
    if (mr_device_open("shadow", 1, &dev) != MR_OK)
        return 1;
    unwritten_read(dev);
    unfinished_write(dev);
    guards(dev);
    queues(dev);
    orders(dev);
    late(dev);
    mr_device_close(dev);
    CHECK_FAILS(mr_device_open("cuba", 1, &dev), MR_E_USAGE, "expected cpu, shadow or cuda");
    for (int64_t n = 1; n < 10; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_device_open("shadow", 1, &dev);
        mr_alloc_fail_at(0);
        if (st == MR_OK) {
            CHECK(n > 1);
            mr_device_close(dev);
            break;
        }
        CHECK_INT(st, MR_E_MEMORY);
    }
    return check_done();
}
