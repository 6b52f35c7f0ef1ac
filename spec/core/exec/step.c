/* exec/step: the kernel that serves a node, on both devices: that of the processor, or the naive op
 * if the processor has none or its workspace function declines the call. */
#include "execcase.h"

/* An op without a kernel, one whose kernel declines odd sizes, one whose prepare fails. */
static mr_status triple_naive(const mr_call *c)
{
    const double *x = c->in[0].data;
    double *y = c->out[0].data;
    for (int64_t i = 0, n = spec_count(c); i < n; i++)
        y[i] = 3 * x[i];
    return MR_OK;
}
MR_OP(spec_triple) = {
    .name = "spec_triple",
    .doc = "y = 3 x",
    .hidden = true,
    .in = {{"x", "[...] f32|bf16", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_CONTIG}},
    .infer = spec_like,
    .naive = triple_naive,
};
static int prepared, released;
static mr_status choosy_prepare(const mr_call *c, const mr_facts *f, void **state)
{
    CHECK(f->threads >= 1 && c->in[0].data == NULL);
    if (spec_count(c) == 13)
        return mr_fail(MR_E_DATA, "thirteen is refused");
    *state = &prepared;
    prepared++;
    return MR_OK;
}
static size_t choosy_workspace(const mr_call *c, const mr_facts *f)
{
    CHECK(f->threads >= 1 && c->state == NULL);
    return spec_count(c) % 2 && spec_count(c) != 13 ? MR_NO_KERNEL : 0;
}
static void choosy_release(void *state)
{
    CHECK(state == &prepared);
    released++;
}
static mr_status choosy_run(const mr_call *c)
{
    float *y = c->out[0].data;
    for (int64_t i = 0, n = spec_count(c); i < n; i++)
        y[i] = c->state == &prepared ? -1 : -2;
    return MR_OK;
}
MR_OP(spec_choosy) = {
    .name = "spec_choosy",
    .doc = "y = 3 x, or -1 by its kernel",
    .hidden = true,
    .in = {{"x", "[...] f32|bf16", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_CONTIG}},
    .infer = spec_like,
    .naive = triple_naive,
    .cpu = {.run = {choosy_run},
            .prepare = choosy_prepare,
            .release = choosy_release,
            .workspace = choosy_workspace},
};

/* First element of op(x = 2 ...), n elements of dtype; *naive from the step. */
static mr_status first_of(mr_device *dev, const char *op, mr_dtype dtype, int64_t n, float *out,
                          bool *naive)
{
    mr_graph *g = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    mr_ref x;
    float two[64], y[64] = {0};
    for (int i = 0; i < 64; i++)
        two[i] = 2;
    mr_view vx = {two, mr_desc_dense(MR_F32, 1, &n)}, vy = {y, mr_desc_dense(MR_F32, 1, &n)};
    OK(mr_graph_new(NULL, NULL, &g));
    mr_graph_set_origin(g, "model.lua:5");
    OK(mr_graph_input(g, "x", dtype, 1, &n, &x));
    OK(mr_graph_add(g, op, MR_NO_ATTRS, &x, 1, &x));
    OK(mr_graph_output(g, "y", x));
    OK(mr_graph_finish(g));
    OK(mr_exec_new(dev, NULL, NULL, &e));
    mr_status st = mr_exec_compile(e, g, &p);
    if (st == MR_OK) {
        OK(mr_program_set(p, "x", &vx));
        OK(mr_program_run(p));
        OK(mr_program_get(p, "y", &vy));
        mr_step_time row;
        CHECK_INT(mr_program_times(p, &row, 1), 1);
        *naive = row.naive, *out = y[0];
    }
    mr_exec_free(e);
    mr_graph_free(g);
    return st;
}

/* A call has all arguments that an op may read, whatever was in its memory before. */
static void calls(void)
{
    int64_t n = 8;
    mr_desc d = mr_desc_dense(MR_F32, 1, &n);
    mr_arg arg[3] = {{&d, 64}, {NULL, 0}, {&d, 128}};
    mr_step s = {.op = mr_op_find("silu"), .arg = arg, .n_in = 2, .n_out = 1, .threads = 3};
    mr_call call;
    memset(&call, 2, sizeof call);
    mr_step_call(&s, &call);
    CHECK(call.in[0].data == (void *)64 && call.in[0].desc.rank == 1);
    CHECK(call.out[0].data == (void *)128 && call.out[0].desc.dim[0] == 8);
    for (int i = 1; i < MR_MAX_IN; i++)
        CHECK(call.in[i].data == NULL && call.in[i].desc.rank == -1);
    for (int i = 1; i < MR_MAX_OUT; i++)
        CHECK(call.out[i].data == NULL && call.out[i].desc.rank == -1);
    CHECK(!call.workspace && !call.state && !call.attr && call.threads == 3);
}

int main(void)
{
    calls();
    mr_device *both[2];
    open_both(both);
    for (int i = 0; i < 2; i++) {
        float y = 0;
        bool naive = false;
        OK(first_of(both[i], "spec_triple", MR_F32, 7, &y, &naive));
        CHECK(naive && y == 6);
        OK(first_of(both[i], "spec_triple", MR_BF16, 7, &y, &naive));
        CHECK(naive && y == 6);
        int before = prepared;
        OK(first_of(both[i], "spec_choosy", MR_F32, 8, &y, &naive));
        CHECK(!naive && y == -1);
        CHECK_INT(prepared - before, 1);
        OK(first_of(both[i], "spec_choosy", MR_F32, 9, &y, &naive));
        CHECK(naive && y == 6);
        CHECK_FAILS(first_of(both[i], "spec_choosy", MR_F32, 13, &y, &naive), MR_E_DATA,
                    "model.lua:5: spec_choosy");
        CHECK_FAILS(first_of(both[i], "spec_choosy", MR_F32, 13, &y, &naive), MR_E_DATA,
                    "thirteen is refused");
        // a real op in f64 is the reference itself
        OK(first_of(both[i], "silu", MR_F64, 8, &y, &naive));
        CHECK(naive);
        CHECK_NEAR(y, 2 / (1 + exp(-2)), 1e-6);
        OK(first_of(both[i], "silu", MR_F32, 8, &y, &naive));
        CHECK(!naive);
        mr_device_close(both[i]);
    }
    CHECK_INT(prepared, released);
    return check_done();
}
