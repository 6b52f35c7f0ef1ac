/* cuda/rt: error messages of a device that cannot be used, is full, or is lost in the middle of a
 * step, and of values that a kernel cannot use. Covers: cuda/rt/fail.c, cuda/kernels/embedding.cu,
 * cuda/rt/device.c, cuda/rt/driver_emu.cpp */
#include "check.h"
#include "cuda/rt/driver.h"
#include "moonreel/exec.h"
#include <stdlib.h>

#define OK(call) CHECK_OK(call)
extern const mr_device_plugin *mr_cudaemu_entry(void);
extern int mr_cudaemu_ranges(const char *name);
extern int mr_cudaemu_open(void);

static const char *last_text(void)
{
    static char text[4096];
    mr_error_format(mr_error_last(), text, sizeof text);
    return text;
}

static bool says(const char *words)
{
    if (strstr(last_text(), words))
        return true;
    printf("expected '%s' in: %s\n", words, last_text());
    return false;
}

static mr_status open_with(const char *setting, int ordinal, mr_device **dev)
{
    setenv("MOONREEL_CUDAEMU", setting, 1);
    return mr_cudaemu_entry()->open(ordinal, 1, dev);
}

static void refuses(const char *setting, int ordinal, mr_status code, const char *words)
{
    mr_device *dev = NULL;
    CHECK_INT(open_with(setting, ordinal, &dev), code);
    CHECK(says(words));
    CHECK(says("try:"));
    CHECK(dev == NULL);
}

static void one_gpu_of_a_process(void)
{
    mr_device *first = NULL, *again = NULL;
    OK(open_with("devices=2", 1, &first));
    refuses("devices=2", 0, MR_E_UNSUPPORTED,
            "device=cudaemu:0: cudaemu:1 is open in this process");
    OK(open_with("devices=2", 1, &again));
    mr_device_close(again);
    refuses("devices=2", 0, MR_E_UNSUPPORTED, "cudaemu:1 is open");
    mr_device_close(first);
    // a GPU that cannot be opened does not block another one
    refuses("devices=2", 2, MR_E_USAGE, "invalid device ordinal");
    OK(open_with("devices=2", 0, &first));
    mr_device_close(first);
}

/* y = silu(x), z = gelu(y): two steps and a copy of the result */
static mr_graph *two_steps(void)
{
    mr_graph *g = NULL;
    mr_ref x, y;
    int64_t n = 64;
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &y));
    OK(mr_graph_add(g, "gelu_tanh", MR_NO_ATTRS, &y, 1, &y));
    OK(mr_graph_output(g, "z", y));
    OK(mr_graph_finish(g));
    return g;
}

static int fail_at; /* this host allocation fails, counted from the opening on; 0: none */

/* Run the graph until a call fails; returns its status. */
static mr_status run_until_lost(const char *setting, int runs)
{
    mr_device *dev = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    mr_exec_options o = {0};
    float x[64] = {1}, z[64];
    int64_t n = 64;
    mr_view in = {x, mr_desc_dense(MR_F32, 1, &n)}, out = {z, in.desc};
    mr_graph *g = two_steps();
    mr_alloc_fail_at(fail_at);
    mr_status st = open_with(setting, 0, &dev);
    if (st == MR_OK)
        st = mr_exec_new(dev, NULL, &o, &e);
    if (st == MR_OK)
        st = mr_exec_compile(e, g, &p);
    for (int i = 0; i < runs && st == MR_OK; i++) {
        st = mr_program_set(p, "x", &in);
        if (st == MR_OK)
            st = mr_program_run(p);
        if (st == MR_OK)
            st = mr_program_get(p, "z", &out);
    }
    mr_alloc_fail_at(0);
    // everything is freed, whatever happened
    mr_error *first = st == MR_OK ? NULL : mr_error_copy(mr_error_last());
    mr_program_free(p);
    mr_exec_free(e);
    mr_device_close(dev);
    mr_graph_free(g);
    CHECK_INT(mr_cudaemu_open(), 0);
    if (first)
        mr_error_adopt(first);
    mr_error_free(first);
    return st;
}

static void lost_at_each_work(void)
{
    int served = 0, lost = 0;
    char setting[64];
    // copies of alloc and set, then two kernels and a copy: each of them fails once
    for (int n = 0; n < 80; n++) {
        snprintf(setting, sizeof setting, "fail=%d,error=%d", n, n % 2 ? MR_CUDA_ECC : 999);
        mr_status st = run_until_lost(setting, 3);
        if (st == MR_OK) {
            served++;
            continue;
        }
        lost++;
        CHECK_INT(st, MR_E_NODE);
        CHECK_INT(mr_status_exit(st), 6);
        CHECK(says(n % 2 ? "ECC" : "checkpoint is intact"));
    }
    CHECK(served > 0);
    CHECK(lost > 10);
}

// status and remedy of driver errors
static void errors_of_the_driver(void)
{
    static const struct {
        int error;
        mr_status code;
        const char *words;
    } rows[] = {{MR_CUDA_UNAVAILABLE, MR_E_NODE, "this one is busy or lost"},
                {MR_CUDA_NOT_PERMITTED, MR_E_NODE, "this one is in exclusive use"},
                {MR_CUDA_ILLEGAL_ADDRESS, MR_E_NODE, "MOONREEL_SYNC=1 names the step"},
                {MR_CUDA_NO_IMAGE, MR_E_UNSUPPORTED, "a plug-in that is built for this GPU"}};
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        char setting[64];
        snprintf(setting, sizeof setting, "fail=2,error=%d", rows[i].error);
        CHECK_INT(run_until_lost(setting, 3), rows[i].code);
        CHECK(says(rows[i].words));
    }
}

// each host allocation fails once
static void short_of_memory(void)
{
    int failed = 0;
    mr_status st = MR_E_MEMORY;
    for (int n = 1; n < 1000 && st != MR_OK; n++) {
        fail_at = n;
        st = run_until_lost("", 3);
        fail_at = 0;
        CHECK(st == MR_OK || st == MR_E_MEMORY);
        failed += st != MR_OK;
    }
    CHECK(failed > 20 && failed < 999);
}

static void sync_names_the_step(const char *sync, int expected)
{
    int named = 0;
    char setting[64];
    setenv("MOONREEL_SYNC", sync, 1);
    for (int n = 0; n < 80; n++) {
        snprintf(setting, sizeof setting, "fail=%d,error=719", n);
        if (run_until_lost(setting, 1) == MR_OK)
            break;
        named += strstr(last_text(), "gelu_tanh 'gelu_tanh#1'") != NULL;
        named += strstr(last_text(), "silu 'silu#0'") != NULL;
        CHECK(says("MOONREEL_SYNC=1 names the step"));
    }
    unsetenv("MOONREEL_SYNC");
    CHECK_INT(named, expected);
}

// a profiler sees each node's launch: when it is enqueued, when it is captured, and not when a
// captured graph runs
static void profilers_see_names(void)
{
    int before = mr_cudaemu_ranges("silu#0");
    OK(run_until_lost("", 4));
    CHECK_INT(mr_cudaemu_ranges("silu#0"), before + 2);
    // the range is closed even if the step fails
    setenv("MOONREEL_SYNC", "1", 1);
    for (int n = 0; n < 40; n++) {
        char setting[64];
        snprintf(setting, sizeof setting, "fail=%d", n);
        run_until_lost(setting, 1);
        CHECK(mr_cudaemu_ranges("silu#0") >= 0 && mr_cudaemu_ranges("gelu_tanh#1") >= 0);
    }
    unsetenv("MOONREEL_SYNC");
}

static void full(void)
{
    mr_device *dev = NULL;
    mr_dptr p = 0;
    size_t free_bytes = 0, total = 0;
    OK(open_with("memory=1000000", 0, &dev));
    CHECK_INT(dev->ops->alloc(dev, 2000000, MR_SPACE_DEVICE, &p), MR_E_MEMORY);
    CHECK(says("out of memory"));
    CHECK(says("try: a smaller batch"));
    // the device still works
    OK(dev->ops->alloc(dev, 500000, MR_SPACE_DEVICE, &p));
    OK(mr_device_memory(dev, &free_bytes, &total));
    CHECK(free_bytes < 500000);
    CHECK_INT(total, 1000000);
    dev->ops->free(dev, p, 500000, MR_SPACE_DEVICE);
    OK(mr_device_memory(dev, &free_bytes, &total));
    CHECK_INT(free_bytes, 1000000);
    mr_device_close(dev);
}

/* y = rows of a table; runs the ids and returns the status of the device */
static mr_status look_up(mr_program *p, int32_t id)
{
    int32_t ids[3] = {1, id, -1};
    float y[2];
    int64_t three = 3, shape[] = {2};
    mr_view vi = {ids, mr_desc_dense(MR_I32, 1, &three)}, vy = {y, mr_desc_dense(MR_F32, 1, shape)};
    mr_status st = mr_program_set(p, "ids", &vi);
    if (st == MR_OK)
        st = mr_program_run(p);
    return st == MR_OK ? mr_program_get(p, "y", &vy) : st;
}

// with MOONREEL_SYNC, steps after a bad value are not enqueued
static void bad_ids(bool each)
{
    mr_device *dev = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    mr_graph *g = NULL;
    mr_ref in[2], y;
    mr_exec_options o = {0};
    float values[8] = {0};
    int64_t three = 3, shape[] = {4, 2};
    mr_view table = {values, mr_desc_dense(MR_F32, 2, shape)};
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "ids", MR_I32, 1, &three, &in[0]));
    OK(mr_graph_input(g, "table", MR_F32, 2, shape, &in[1]));
    OK(mr_graph_add(g, "embedding", MR_NO_ATTRS, in, 2, &y));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &y, 1, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    if (each)
        setenv("MOONREEL_SYNC", "1", 1);
    OK(open_with("", 0, &dev));
    unsetenv("MOONREEL_SYNC");
    OK(mr_exec_new(dev, NULL, &o, &e));
    OK(mr_exec_compile(e, g, &p));
    OK(mr_program_set(p, "table", &table));
    // enqueued, captured and launched: the run with a bad id fails, the next one does not
    for (int i = 0; i < 3; i++) {
        OK(look_up(p, 3));
        int before = mr_cudaemu_ranges("silu#1");
        CHECK_INT(look_up(p, i ? 4 : -2), MR_E_RANGE);
        CHECK(!each || mr_cudaemu_ranges("silu#1") == before);
        CHECK(says("embedding 'embedding#0'"));
        CHECK(says(i ? "id 4, expected -1 (none) to 3" : "id -2, expected -1 (none) to 3"));
    }
    OK(look_up(p, 0));
    mr_program_free(p);
    mr_exec_free(e);
    mr_device_close(dev);
    mr_graph_free(g);
}

static void ends_of_pinned_memory(void)
{
    enum { BYTES = 100 };
    mr_device *dev = NULL;
    mr_dptr at;
    OK(open_with("", 0, &dev));
    OK(dev->ops->alloc(dev, BYTES, MR_SPACE_PINNED, &at));
    CHECK(dev->ops->host(dev, at) == (void *)at);
    CHECK(dev->ops->host(dev, at + BYTES - 1) == (void *)(at + BYTES - 1));
    CHECK(dev->ops->host(dev, at + BYTES) == NULL);
    CHECK(dev->ops->host(dev, at - 1) == NULL);
    dev->ops->free(dev, at, BYTES, MR_SPACE_PINNED);
    CHECK(dev->ops->host(dev, at) == NULL);
    OK(dev->ops->alloc(dev, BYTES, MR_SPACE_DEVICE, &at));
    CHECK(dev->ops->host(dev, at) == NULL);
    mr_device_close(dev);
}

/* A stream that waits for a record which its own stream never reaches, because that was freed. */
static void streams_that_never_end(void)
{
    for (int sync = 0; sync < 2; sync++) {
        mr_cuda_facts facts;
        void *gone = NULL, *waits = NULL, *event = NULL;
        bool reached = true;
        setenv("MOONREEL_CUDAEMU", "", 1);
        CHECK_INT(mr_cuda.facts(0, &facts), 0);
        CHECK_INT(mr_cuda.stream_new(&gone) | mr_cuda.stream_new(&waits), 0);
        CHECK_INT(mr_cuda.event_new(false, &event), 0);
        CHECK_INT(mr_cuda.event_record(event, gone) | mr_cuda.event_wait(event, waits), 0);
        mr_cuda.stream_free(gone);
        CHECK_INT(sync ? mr_cuda.stream_sync(waits) : mr_cuda.event_reached(event, true, &reached),
                  MR_CUDA_LAUNCH_FAILURE);
        CHECK_INT(reached, sync);
        CHECK(strstr(mr_cuda.text(MR_CUDA_LAUNCH_FAILURE), "streams wait for each other"));
        mr_cuda.stream_free(waits);
        mr_cuda.event_free(event);
    }
}

int main(void)
{
    one_gpu_of_a_process();
    refuses("absent", 0, MR_E_UNSUPPORTED, "no NVIDIA driver is installed");
    refuses("none", 0, MR_E_UNSUPPORTED, "no CUDA-capable device");
    refuses("old", 0, MR_E_UNSUPPORTED, "the driver supports CUDA 11.8, expected 12.4 or newer");
    refuses("arch=75", 0, MR_E_UNSUPPORTED,
            "emulated GPU has compute capability 7.5, expected 8.0 or newer");
    refuses("", 3, MR_E_USAGE, "device=cudaemu:3: invalid device ordinal");
    CHECK_INT(run_until_lost("", 4), MR_OK);
    lost_at_each_work();
    errors_of_the_driver();
    short_of_memory();
    sync_names_the_step("1", 2);
    sync_names_the_step("0", 0);
    sync_names_the_step("", 0);
    profilers_see_names();
    full();
    bad_ids(false);
    bad_ids(true);
    ends_of_pinned_memory();
    streams_that_never_end();
    return check_done();
}
