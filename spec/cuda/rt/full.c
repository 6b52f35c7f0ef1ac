/* cuda/rt: launches that a GPU does not take. Covers: cuda/rt/steps.c, cuda/rt/driver_emu.cpp */
#include "check.h"
#include "cuda/rt/driver.h"
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

// ---- launches that are not taken ----

/* y = silu(x), z = gelu(y), of which the n-th launch is not taken: that run fails and says which
 * step it was, those behind it serve. */
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
    // enqueued, then captured
    for (int n = 0; n < 4; n++)
        refused(n);
    return check_done();
}
