/* cuda/rt: steps of a small transformer, forward, backward and update, on the emulated GPU: results
 * near the CPU's, with the same bits for every order of streams, blocks and threads, captured or
 * not. Covers: cuda/rt/device.c, cuda/rt/steps.c, cuda/rt/host_step.c, cuda/emu/stream.cpp */
#define BLOCK_D      40
#define BLOCK_LAYERS 1
#include "blockmodel.h"
#include "cuda/rt/driver.h"
#include <stdlib.h>

extern const mr_device_plugin *mr_cudaemu_entry(void);

enum { RUNS = 3 };
typedef struct result {
    float loss[RUNS];
    double sumsq[RUNS];
    void *master;
    size_t bytes;
} result;

static mr_device *open_cuda(const char *setting)
{
    mr_device *dev = NULL;
    setenv("MOONREEL_CUDAEMU", setting, 1);
    OK(mr_cudaemu_entry()->open(0, 1, &dev));
    return dev;
}

static result train(mr_device *dev, const model *m)
{
    result r = {0};
    mr_graph *gs = step_graph(m, true), *gu = update_graph(m);
    mr_exec *e = NULL;
    mr_program *step = NULL, *update = NULL;
    mr_exec_options o = {.regions = adam_rows, .n_regions = MR_COUNT(adam_rows), .poison = true};
    OK(mr_exec_new(dev, m->params, &o, &e));
    OK(mr_exec_init_params(e, 5));
    OK(mr_exec_compile(e, gs, &step));
    OK(mr_exec_compile(e, gu, &update));
    set(step, "x", 1, 1, 4, (int64_t[]){B, T, S, C});
    set(step, "shift", 2, 0.3, 3, (int64_t[]){B, T, C});
    set(step, "scale", 3, 0.3, 3, (int64_t[]){B, T, C});
    set(step, "gate", 4, 0.5, 3, (int64_t[]){B, T, C});
    double hyper[12] = {1e-3, 0.9, 0.999, 1e-8, 0.01, 1.0, 0.99, 0, 1};
    int64_t twelve = 12, one = 1;
    mr_view vh = {hyper, mr_desc_dense(MR_F64, 1, &twelve)};
    for (int i = 0; i < RUNS; i++) {
        mr_view vl = {&r.loss[i], mr_desc_dense(MR_F32, 0, NULL)},
                vs = {&r.sumsq[i], mr_desc_dense(MR_F64, 1, &one)};
        // the last step is not clipped
        hyper[5] = i < RUNS - 1, hyper[7] = i + 1;
        OK(mr_program_set(update, "hyper", &vh));
        OK(mr_program_run(step));
        OK(mr_program_run(update));
        OK(mr_program_get(step, "loss", &vl));
        OK(mr_program_get(update, "sumsq", &vs));
    }
    r.bytes = mr_region_bytes(mr_exec_region(e, "master"));
    r.master = mr_alloc(r.bytes);
    OK(mr_exec_read(e, "master", 0, r.master, r.bytes));
    mr_program_free(step);
    mr_program_free(update);
    mr_exec_free(e);
    mr_graph_free(gs);
    mr_graph_free(gu);
    mr_device_close(dev);
    return r;
}

static double distance(const float *a, const float *b, size_t n)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++)
        diff += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
    return sqrt(diff / norm);
}

int main(void)
{
    model m = model_new(MR_BF16);
    mr_device *cpu = NULL;
    OK(mr_device_open("cpu", 2, &cpu));
    result want = train(cpu, &m), first = {0};
    static const char *const settings[] = {"seed=0", "seed=1,eager", "seed=2"};
    for (size_t i = 0; i < MR_COUNT(settings); i++) {
        result r = train(open_cuda(settings[i]), &m);
        for (int k = 0; k < RUNS; k++)
            printf("%s: loss %.9g, %.9g on the CPU\n", settings[i], r.loss[k], want.loss[k]);
        if (i == 0)
            first = r;
        CHECK(memcmp(r.loss, first.loss, sizeof r.loss) == 0);
        CHECK(memcmp(r.sumsq, first.sumsq, sizeof r.sumsq) == 0);
        CHECK(memcmp(r.master, first.master, r.bytes) == 0);
        if (i)
            mr_free(r.master);
    }
    for (int k = 0; k < RUNS; k++) {
        // sums of thousands of bf16 values, rounded in other places
        CHECK(fabs(first.loss[k] - want.loss[k]) <= 4e-3 * fabs(want.loss[k]));
        CHECK(fabs(first.sumsq[k] - want.sumsq[k]) <= 2e-2 * want.sumsq[k]);
    }
    // compares the change of three steps of 1e-3 with weights of 0.1
    double off = distance(first.master, want.master, want.bytes / sizeof(float));
    printf("master is off by %.3g\n", off);
    CHECK(off <= 4e-3);
    mr_free(first.master);
    mr_free(want.master);
    mr_params_free(m.params);
    return check_done();
}
