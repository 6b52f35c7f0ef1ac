/* exec/run: programs that share an arena keep their results; inputs and outputs are checked and
 * converted; failures name op, node and line; times. */
#include "execcase.h"
#include <stdlib.h>

static void sharing(mr_device *dev)
{
    mr_exec *e = NULL;
    mr_program *small = NULL, *large = NULL;
    mr_graph *gs = small_graph(4, 2), *gl = small_graph(100000, 3);
    OK(mr_exec_new(dev, NULL, NULL, &e));
    OK(mr_exec_compile(e, gs, &small));
    float x[4] = {1, 2, 3, 4}, y[4];
    double wide[4] = {5, 6, 7, 8};
    int64_t n = 4;
    mr_view vx = {x, mr_desc_dense(MR_F32, 1, &n)}, vy = {y, mr_desc_dense(MR_F32, 1, &n)},
            vw = {wide, mr_desc_dense(MR_F64, 1, &n)};
    CHECK_FAILS(mr_program_run(small), MR_E_USAGE, "input 'x' was never set");
    OK(mr_program_set(small, "x", &vx));
    OK(mr_program_run(small));
    // the arena moves for a larger program; the earlier one and its result stay valid
    OK(mr_exec_compile(e, gl, &large));
    float *big = calloc(100000, 4);
    mr_view vb = {big, mr_desc_dense(MR_F32, 1, (int64_t[]){100000})};
    for (int i = 0; i < 100000; i++)
        big[i] = 7;
    OK(mr_program_set(large, "x", &vb));
    OK(mr_program_run(large));
    OK(mr_program_get(small, "y", &vy));
    CHECK(y[0] == 3 && y[3] == 12);
    OK(mr_program_get(large, "y", &vb));
    CHECK(big[0] == 28 && big[99999] == 28);
    // other dtypes are converted both ways
    OK(mr_program_set(small, "x", &vw));
    OK(mr_program_run(small));
    OK(mr_program_get(small, "y", &vw));
    CHECK(wide[0] == 15 && wide[3] == 24);
    // so are strided tensors
    float pairs[8] = {1, -1, 2, -1, 3, -1, 4, -1};
    mr_view every_other = {pairs, {MR_F32, 1, {4}, {2}}};
    OK(mr_program_set(small, "x", &every_other));
    OK(mr_program_run(small));
    OK(mr_program_get(small, "y", &every_other));
    CHECK(pairs[0] == 3 && pairs[6] == 12 && pairs[1] == -1 && pairs[7] == -1);
    int64_t three = 3;
    mr_view bad = {x, mr_desc_dense(MR_F32, 1, &three)};
    CHECK_FAILS(mr_program_set(small, "x", &bad), MR_E_SHAPE,
                "input 'x' is [4] f32, the given tensor is [3] f32");
    CHECK_FAILS(mr_program_get(small, "y", &bad), MR_E_SHAPE, "output 'y' is [4] f32");
    CHECK_FAILS(mr_program_set(small, "q", &vx), MR_E_USAGE, "no input 'q'");
    CHECK_FAILS(mr_program_get(small, "q", &vx), MR_E_USAGE, "no output 'q'");
    // a failing op names itself, its node and its line
    mr_graph *gf = NULL;
    mr_program *fails = NULL;
    mr_ref v;
    OK(mr_graph_new(NULL, NULL, &gf));
    mr_graph_set_origin(gf, "model.lua:99");
    OK(mr_graph_input(gf, "x", MR_F32, 1, &n, &v));
    OK(mr_graph_add(gf, "spec_fail", MR_NO_ATTRS, &v, 1, &v));
    OK(mr_graph_output(gf, "y", v));
    OK(mr_graph_finish(gf));
    OK(mr_exec_compile(e, gf, &fails));
    OK(mr_program_set(fails, "x", &vx));
    mr_status st = mr_program_run(fails);
    if (st == MR_OK)
        st = mr_exec_sync(e);
    CHECK_FAILS(st, MR_E_DATA, "model.lua:99: spec_fail");
    OK(mr_program_run(small));
    OK(mr_exec_sync(e));
    // times and trace
    mr_step_time row;
    mr_program_time(small, true);
    OK(mr_program_run(small));
    CHECK_INT(mr_program_times(small, &row, 1), 1);
    CHECK_STR(row.node->op->name, "spec_blend");
    CHECK(row.seconds > 0 && row.seconds < 1);
    CHECK(row.cost.bytes > 0 && mr_program_cost(small).bytes == row.cost.bytes);
    CHECK_FAILS(mr_program_trace(large, "/tmp/none"), MR_E_USAGE, "was not timed");
    mr_exec_free(e); // also frees its programs
    mr_graph_free(gs), mr_graph_free(gl), mr_graph_free(gf);
    free(big);
}

int main(void)
{
    mr_device *both[2];
    open_both(both);
    for (int i = 0; i < 2; i++) {
        sharing(both[i]);
        mr_device_close(both[i]);
    }
    return check_done();
}
