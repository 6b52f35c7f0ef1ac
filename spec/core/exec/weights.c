/* exec/bind: programs read weights in place, with the values at the begin of a run.
 * Covers: core/exec/bind.c */
#include "execcase.h"

static void weights(mr_device *dev)
{
    model m = model_of(MR_F32);
    mr_exec *e = NULL;
    mr_program *a = NULL, *b = NULL, *update = NULL;
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){TRAINING}, &e));
    OK(mr_exec_init_params(e, 1));
    mr_graph *g = scale_graph(&m), *g2 = scale_graph(&m), *gu = NULL;
    OK(mr_exec_compile(e, g, &a));
    OK(mr_exec_compile(e, g2, &b));
    float x[8] = {1, 1, 1, 1, 1, 1, 1, 1}, y[8];
    int64_t n = 8;
    mr_view vx = {x, mr_desc_dense(MR_F32, 1, &n)}, vy = {y, mr_desc_dense(MR_F32, 1, &n)};
    OK(mr_program_set(a, "x", &vx));
    OK(mr_program_set(b, "x", &vx));
    OK(mr_program_run(b));
    OK(mr_program_get(b, "y", &vy));
    for (int i = 0; i < 8; i++)
        CHECK_NEAR(y[i], (i + 1) * (i + 1), 0);
    // after an update program
    mr_ref w, dw;
    OK(mr_graph_new(NULL, NULL, &gu));
    OK(mr_graph_input(gu, "g", MR_F32, 1, &n, &dw));
    OK(mr_graph_region(gu, "master", MR_SPACE_DEVICE, MR_F32, mr_params_at(m.params, m.w)->offset,
                       1, &n, &w));
    OK(mr_graph_add(gu, "spec_update", MR_NO_ATTRS, (mr_ref[]){w, dw}, 2, &w));
    OK(mr_graph_finish(gu));
    OK(mr_exec_compile(e, gu, &update));
    OK(mr_program_set(update, "g", &vx));
    for (int round = 1; round <= 3; round++) {
        OK(mr_program_run(update));
        OK(mr_program_run(a));
        OK(mr_program_get(a, "y", &vy));
        for (int i = 0; i < 8; i++)
            CHECK_NEAR(y[i], (i + 1 + round) * (i + 1), 0);
    }
    // after a write from the host
    float zero[8] = {0};
    OK(mr_exec_write(e, "frozen", (size_t)mr_params_at(m.params, m.frozen)->offset * 4, zero,
                     sizeof zero));
    OK(mr_program_run(b));
    OK(mr_program_get(b, "y", &vy));
    CHECK(y[0] == 0 && y[7] == 0);
    mr_exec_free(e);
    // regions that do not exist, or are too short
    OK(mr_exec_new(dev, m.params, NULL, &e));
    mr_graph *bad[2] = {0};
    for (int i = 0; i < 2; i++) {
        int64_t far = i ? mr_params_elements(m.params, false) - 7 : 0;
        OK(mr_graph_new(NULL, NULL, &bad[i]));
        OK(mr_graph_region(bad[i], i ? "w" : "grad", MR_SPACE_DEVICE, MR_F32, far, 1, &n, &w));
        OK(mr_graph_output(bad[i], "w", w));
        OK(mr_graph_finish(bad[i]));
    }
    CHECK_FAILS(mr_exec_compile(e, bad[0], &update), MR_E_USAGE,
                "no region 'grad'; it has w, frozen");
    CHECK_FAILS(mr_exec_compile(e, bad[1], &update), MR_E_RANGE,
                "of region 'w'; expected at most its size");
    mr_exec_free(e);
    for (int i = 0; i < 2; i++)
        mr_graph_free(bad[i]);
    mr_graph_free(g), mr_graph_free(g2), mr_graph_free(gu);
    mr_params_free(m.params);
}

int main(void)
{
    mr_device *both[2];
    open_both(both);
    for (int i = 0; i < 2; i++) {
        weights(both[i]);
        mr_device_close(both[i]);
    }
    return check_done();
}
