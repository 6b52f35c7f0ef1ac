/* cuda/rt: memory, handles and launches that a host or a GPU refuses. The failing call reports it,
 * leaves nothing behind, and works when it is repeated.
 * Covers: cuda/rt/steps.c, cuda/rt/host_step.c, cuda/rt/device.c, cuda/rt/driver_emu.cpp,
 * cuda/kernels/embedding.cu */
#include "check.h"
#include "cuda/kernels/table.h"
#include "cuda/rt/driver.h"
#include "groupcase.h"
#include "moonreel/exec.h"
#include <stdlib.h>

#define OK(call) CHECK_OK(call)
extern const mr_device_plugin *mr_cudaemu_entry(void);
extern int mr_cudaemu_open(void);

static mr_status open_with(const char *setting, mr_device **dev)
{
    setenv("MOONREEL_CUDAEMU", setting, 1);
    return mr_cudaemu_entry()->open(0, 1, dev);
}

// ---- refused resources ----

enum { STEPS = 3, IDS = 0, TABLE, OUT, LIMITED, BLOCKS };

static int short_times;

/* Call it, and once more if memory was refused. */
#define AGAIN(call)                                                                                \
    do {                                                                                           \
        mr_status st = (call);                                                                     \
        if (st == MR_E_MEMORY)                                                                     \
            short_times++, st = (call);                                                            \
        OK(st);                                                                                    \
    } while (0)

// a block that is refused or cannot be cleared leaves nothing behind
static mr_dptr block(mr_device *dev, mr_space space)
{
    const int before = mr_cudaemu_open();
    mr_dptr at = 0;
    mr_status st = dev->ops->alloc(dev, 64, space, &at);
    if (st == MR_E_MEMORY) {
        short_times++;
        CHECK_INT(mr_cudaemu_open(), before);
        st = dev->ops->alloc(dev, 64, space, &at);
    }
    OK(st);
    return at;
}

// a failed prepare leaves nothing behind, and its error names the step
static void prepare(mr_device *dev, mr_step *steps, void **prepared, bool named)
{
    const int before = mr_cudaemu_open();
    mr_status st = dev->ops->prepare(dev, steps, STEPS, prepared);
    if (st == MR_E_MEMORY) {
        short_times++;
        CHECK_INT(mr_cudaemu_open(), before);
        CHECK(!named || strstr(mr_error_last()->node, "by_hand"));
        st = dev->ops->prepare(dev, steps, STEPS, prepared);
    }
    OK(st);
}

/* Run a copy on a side queue, a kernel with a state and a step on the host: enqueued, captured and
 * timed. The n-th resource of kind `of` (a word for the emulator), or the `host`-th host
 * allocation, is refused. True: it was. */
static bool short_once(const char *of, int n, int host)
{
    const mr_desc ids = mr_desc_dense(MR_I32, 2, (int64_t[]){2, 1}),
                  table = mr_desc_dense(MR_F32, 2, (int64_t[]){3, 2}),
                  out = mr_desc_dense(MR_F32, 2, (int64_t[]){2, 2});
    const mr_cuda_kernel *cuda = mr_cuda_kernel_find("embedding");
    double limits[2] = {-1, 1};
    mr_node looked_up = {.name = "table_by_hand", .origin = ""},
            limited = {.name = "limits_by_hand", .origin = ""};
    mr_step_clock clock[STEPS], copied;
    mr_dptr at[BLOCKS], from;
    mr_device *dev = NULL;
    void *prepared = NULL;
    char setting[32];
    memcpy(limited.attr, limits, sizeof limits);
    snprintf(setting, sizeof setting, "%s=%d,error=%d", of, n, MR_CUDA_MEMORY);
    short_times = 0;
    mr_alloc_fail_at(host);
    if (open_with(setting, &dev) == MR_E_MEMORY) {
        short_times++;
        CHECK_INT(mr_cudaemu_open(), 0);
        OK(open_with("", &dev));
    }
    for (int i = 0; i < BLOCKS; i++)
        at[i] = block(dev, MR_SPACE_DEVICE);
    from = block(dev, MR_SPACE_PINNED);
    mr_arg sent[] = {{&ids, from}, {&ids, at[IDS]}},
           rows[] = {{&ids, at[IDS]}, {&table, at[TABLE]}, {&out, at[OUT]}},
           some[] = {{&out, at[OUT]}, {&out, at[LIMITED]}};
    mr_step steps[STEPS] = {
        {.kind = MR_STEP_COPY,
         .queue = MR_Q_COMM_INTRA,
         .arg = sent,
         .n_in = 1,
         .n_out = 1,
         .bytes = 8},
        {.kind = MR_STEP_OP,
         .op = mr_op_find("embedding"),
         .node = &looked_up,
         .kernel = &cuda->kernel,
         .run = cuda->kernel.run[0],
         .arg = rows,
         .n_in = 2,
         .n_out = 1,
         .wait_n = 1,
         .threads = 1},
        {.kind = MR_STEP_OP,
         .op = mr_op_find("clamp"),
         .node = &limited,
         .arg = some,
         .n_in = 1,
         .n_out = 1,
         .threads = 1,
         .naive = true},
    };
    prepare(dev, steps, &prepared, n >= 0);
    for (int run = 0; run < 5; run++) {
        // enqueued, captured, launched, then timed
        for (int i = 0; i < STEPS; i++)
            steps[i].clock = run < 3 ? NULL : &clock[i];
        float values[6] = {9, -9, 0.25f, 0.5f, (float)run, 0}, y[4];
        int32_t chosen[2] = {run % 2, 2};
        mr_copy in = {from, at[LIMITED], 8, "in", run < 3 ? NULL : &copied};
        AGAIN(dev->ops->copy_in(dev, at[TABLE], values, sizeof values));
        AGAIN(dev->ops->copy_in(dev, from, chosen, sizeof chosen));
        AGAIN(dev->ops->run(dev, steps, STEPS, prepared));
        AGAIN(dev->ops->copy_out(dev, y, at[LIMITED], sizeof y));
        CHECK(y[0] == (run % 2 ? 0.25f : 1) && y[1] == (run % 2 ? 0.5f : -1));
        CHECK(y[2] == fminf((float)run, 1) && y[3] == 0);
        AGAIN(dev->ops->copy(dev, MR_LANE_IN, &in));
        AGAIN(dev->ops->sync(dev));
    }
    dev->ops->forget(dev, steps, STEPS, prepared);
    mr_device_close(dev);
    mr_alloc_fail_at(0);
    CHECK_INT(mr_cudaemu_open(), 0);
    CHECK(short_times <= 1);
    return short_times > 0;
}

/* A group of this rank alone communicates through the GPU until a resource is refused. Then neither
 * the device nor the group has anything left open. True: a resource was refused. */
static bool speaks_short(const char *of, int n, int host)
{
    mr_device *dev = NULL;
    mr_graph *g = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    mr_exec_options o = {0};
    mr_ref x, y;
    int64_t four = 4;
    float in[4] = {1, 2, 3, 4};
    mr_view vx = {in, mr_desc_dense(MR_F32, 1, &four)};
    group_case alone = {0};
    const int64_t number = group_case_add(&alone, 0, 1, 5);
    char setting[32];
    snprintf(setting, sizeof setting, "%s=%d,error=%d", of, n, MR_CUDA_MEMORY);
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &four, &x));
    OK(mr_graph_add(g, "all_gather", MR_ATTRS({"group", .i = number}), &x, 1, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    mr_alloc_fail_at(host);
    mr_status st = open_with(setting, &dev);
    if (st == MR_OK)
        st = mr_exec_new(dev, NULL, &o, &e);
    if (st == MR_OK)
        st = mr_exec_compile(e, g, &p);
    if (st == MR_OK)
        st = mr_program_set(p, "x", &vx);
    for (int run = 0; run < 3 && st == MR_OK; run++)
        st = mr_program_run(p);
    mr_alloc_fail_at(0);
    mr_program_free(p);
    mr_exec_free(e);
    mr_device_close(dev);
    mr_graph_free(g);
    mr_collective_remove(number);
    CHECK_INT(mr_cudaemu_open(), 0);
    return st != MR_OK;
}

// ---- refused launches ----

/* y = silu(x), z = gelu(y); the n-th launch is refused. This run fails and names the step; later
 * runs work. */
static void refused(int n)
{
    mr_device *dev = NULL;
    mr_graph *g = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    mr_exec_options o = {0};
    mr_ref x, y;
    int64_t four = 4;
    float in[4] = {1, 2, 3, 4}, out[4];
    mr_view vx = {in, mr_desc_dense(MR_F32, 1, &four)}, vz = {out, vx.desc};
    char setting[32];
    int failed = 0;
    snprintf(setting, sizeof setting, "refuse=%d", n);
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &four, &x));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &y));
    OK(mr_graph_add(g, "gelu_tanh", MR_NO_ATTRS, &y, 1, &y));
    OK(mr_graph_output(g, "z", y));
    OK(mr_graph_finish(g));
    OK(open_with(setting, &dev));
    OK(mr_exec_new(dev, NULL, &o, &e));
    OK(mr_exec_compile(e, g, &p));
    OK(mr_program_set(p, "x", &vx));
    for (int run = 0; run < 4; run++) {
        mr_status st = mr_program_run(p);
        if (st == MR_OK)
            continue;
        failed++;
        CHECK_INT(run, n / 2);
        CHECK_FAILS(st, MR_E_UNSUPPORTED, "try: a plug-in that is built for this GPU");
        CHECK_STR(mr_error_last()->node, n % 2 ? "gelu_tanh#1" : "silu#0");
    }
    CHECK_INT(failed, 1);
    OK(mr_program_get(p, "z", &vz));
    CHECK(out[3] > 3.9f && out[3] < 4);
    mr_program_free(p);
    mr_exec_free(e);
    mr_device_close(dev);
    mr_graph_free(g);
    CHECK_INT(mr_cudaemu_open(), 0);
}

int main(void)
{
    int device = 0, call = 0, host = 1;
    while (device < 200 && short_once("full", device, 0))
        device++;
    while (call < 2000 && short_once("once", call, 0))
        call++;
    while (host < 200 && short_once("full", -1, host))
        host++;
    printf("%d handles and blocks, %d calls, %d allocations\n", device, call, host - 1);
    CHECK(device > 20 && device < 200);
    CHECK(host > 10 && host < 200);
    for (call = 0; call < 2000 && speaks_short("once", call, 0);)
        call++;
    for (host = 1; host < 500 && speaks_short("full", -1, host);)
        host++;
    printf("with other ranks: %d calls, %d allocations\n", call, host - 1);
    CHECK(call > 20 && call < 2000);
    CHECK(host > 10 && host < 500);
    // enqueued, then captured
    for (int n = 0; n < 4; n++)
        refused(n);
    return check_done();
}
