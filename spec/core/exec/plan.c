/* exec/plan: an executor without a device. Its programs have the steps, layout, cost and bytes of
 * those that run, for all devices; it allocates none of the planned memory and runs nothing. */
#include "execcase.h"
#include "exec/room.h"

/* ---- requests to a device ---- */

static const mr_device_ops *real;
static size_t asked;
static mr_status counting_alloc(mr_device *dev, size_t bytes, mr_space space, mr_dptr *out)
{
    asked += bytes;
    return real->alloc(dev, bytes, space, out);
}

/* ---- graphs ---- */

/* Two layers, a constant through a setup node, a loss, gradients of all weights. */
static mr_graph *trained(mr_params *params, const int *w, mr_dtype compute, int64_t rows)
{
    mr_graph *g = NULL;
    mr_ref x, y[3], c;
    int64_t dim[] = {rows, 64}, n = 64;
    float one[64] = {1};
    OK(mr_graph_new(params, NULL, &g));
    OK(mr_graph_input(g, "x", compute, 2, dim, &x));
    OK(mr_graph_const(g, &(mr_view){one, mr_desc_dense(MR_F32, 1, &n)}, &c));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &c, 1, &c));
    for (int i = 0; i < 2; i++) {
        y[0] = x, y[2] = MR_NONE;
        OK(mr_graph_param(g, w[i], &y[1]));
        OK(mr_graph_add(g, "linear", MR_NO_ATTRS, y, 3, &x));
        OK(mr_graph_add(g, "gelu_tanh", MR_NO_ATTRS, &x, 1, &x));
    }
    OK(mr_graph_add(g, "cast", MR_ATTRS({"dtype", .i = MR_F32}), &x, 1, &x));
    OK(mr_graph_output(g, "last", x));
    OK(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &(mr_ints){1, {0}}}), &x, 1, &x));
    OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){x, c}, 2, &x));
    OK(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &(mr_ints){1, {0}}}), &x, 1, &x));
    OK(mr_graph_output(g, "loss", x));
    OK(mr_graph_backward(g, x, NULL, 0, NULL));
    OK(mr_graph_finish(g));
    return g;
}

static mr_params *table(mr_dtype compute, int64_t width, int *w)
{
    mr_params *params = NULL;
    OK(mr_params_new(compute, &params));
    for (int i = 0; i < 2; i++) {
        char name[] = "w0";
        name[1] = (char)('0' + i);
        OK(mr_params_add(params,
                         &(mr_param){.name = name,
                                     .desc = mr_desc_dense(compute, 2, (int64_t[]){width, width}),
                                     .init = {.kind = MR_INIT_ZEROS}},
                         &w[i]));
    }
    OK(mr_params_seal(params, NULL));
    return params;
}

/* ---- the same figures ---- */

static void same(mr_device *dev, mr_params *params, const mr_exec_options *o, const mr_graph *g)
{
    mr_device_ops counted = *dev->ops;
    real = dev->ops, counted.alloc = counting_alloc, asked = 0;
    mr_exec *runs = NULL, *plans = NULL;
    mr_program *p = NULL, *q = NULL;
    OK(mr_exec_plan(&dev->facts, params, o, &plans));
    OK(mr_exec_compile(plans, g, &q));
    dev->ops = &counted;
    OK(mr_exec_new(dev, params, o, &runs));
    OK(mr_exec_compile(runs, g, &p));
    dev->ops = real;
    mr_memory m = mr_program_memory(p), n = mr_program_memory(q);
    CHECK(memcmp(&m, &n, sizeof m) == 0);
    CHECK_INT(asked, n.arena + n.params + n.state + n.inputs + n.landing + n.staged + n.ring +
                         n.results + n.consts);
    CHECK(n.workspace <= n.arena && n.bound <= n.arena && n.host > 0);
    const mr_layout *a = mr_program_layout(p), *b = mr_program_layout(q);
    CHECK_INT(mr_layout_entries(a), mr_layout_entries(b));
    for (int i = 0; i < mr_layout_entries(a) && i < mr_layout_entries(b); i++)
        CHECK_INT(mr_layout_at(a, i)->offset, mr_layout_at(b, i)->offset);
    mr_cost c = mr_program_cost(p), d = mr_program_cost(q);
    CHECK(c.flop == d.flop && c.bytes == d.bytes && c.bytes > 0);
    int steps = mr_program_times(p, NULL, 0);
    CHECK_INT(mr_program_times(q, NULL, 0), steps);
    mr_step_time *s = mr_calloc((size_t)steps * 2, sizeof *s);
    mr_program_times(p, s, steps), mr_program_times(q, s + steps, steps);
    for (int i = 0; i < steps; i++)
        CHECK(s[i].node == s[steps + i].node && s[i].naive == s[steps + i].naive &&
              s[steps + i].seconds == 0);
    mr_free(s);
    mr_exec_free(runs);
    mr_exec_free(plans);
}

static void figures(mr_device *dev)
{
    mr_graph *g = small_graph(1000, 2);
    same(dev, NULL, NULL, g);
    mr_graph_free(g);
    for (int half = 0; half < 2; half++) {
        int w[2];
        mr_dtype compute = half ? MR_BF16 : MR_F32;
        mr_params *params = table(compute, 64, w);
        mr_exec_options o = {TRAINING_EMA}, apart = {TRAINING, .no_reuse = true};
        g = trained(params, w, compute, 70);
        same(dev, params, &o, g);
        same(dev, params, &apart, g);
        mr_graph_free(g);
        mr_params_free(params);
    }
}

/* ---- more than any memory here ---- */

static void large(const mr_facts *facts)
{
    enum { WIDTH = 1 << 18 };
    mr_params *params = NULL;
    int w = 0;
    mr_ref x[3] = {MR_NONE, MR_NONE, MR_NONE};
    mr_graph *g = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    const size_t elements = (size_t)WIDTH * WIDTH;
    OK(mr_params_new(MR_BF16, &params));
    OK(mr_params_add(params,
                     &(mr_param){.name = "w",
                                 .desc = mr_desc_dense(MR_BF16, 2, (int64_t[]){WIDTH, WIDTH}),
                                 .init = {.kind = MR_INIT_NORMAL, .scale = 1}},
                     &w));
    OK(mr_params_seal(params, NULL));
    OK(mr_graph_new(params, NULL, &g));
    OK(mr_graph_input(g, "x", MR_BF16, 2, (int64_t[]){1 << 20, WIDTH}, &x[0]));
    OK(mr_graph_param(g, w, &x[1]));
    OK(mr_graph_add(g, "linear", MR_NO_ATTRS, x, 3, &x[0]));
    OK(mr_graph_output(g, "y", x[0]));
    OK(mr_graph_finish(g));
    OK(mr_exec_plan(facts, params, &(mr_exec_options){TRAINING}, &e));
    OK(mr_exec_compile(e, g, &p));
    mr_memory m = mr_program_memory(p);
    CHECK_INT(m.params, 2 * elements);
    CHECK_INT(m.state, 16 * elements);
    CHECK_INT(m.inputs, (size_t)2 * WIDTH << 20);
    CHECK_INT(m.results, (size_t)2 * WIDTH << 20);
    CHECK(m.arena >= m.results);
    CHECK_INT(p->own_bytes < 1 << 16, 1);
    mr_exec_free(e);
    mr_graph_free(g);
    mr_params_free(params);
}

/* ---- a device that this machine lacks ---- */

static size_t by_count(const mr_call *call, const mr_facts *facts)
{
    return (size_t)(mr_desc_count(&call->in[0].desc) * facts->threads);
}
static mr_status never(const mr_call *call)
{
    (void)call;
    return mr_fail(MR_E_INTERNAL, "ran while planning");
}

/* Kernels of a plug-in are enough: neither its device nor this processor is queried. */
static void elsewhere(void)
{
    static const mr_kernel kernel = {.run = {never}, .workspace = by_count};
    mr_facts facts = {.device = "spec_far", .isa = "9.0", .threads = 3};
    mr_exec *e = NULL;
    mr_program *p = NULL;
    mr_graph *g = small_graph(4000, 2);
    CHECK_FAILS(mr_exec_plan(&facts, NULL, NULL, &e), MR_E_UNSUPPORTED, "'spec_far'");
    OK(mr_op_add_kernel("spec_far", "spec_blend", &kernel));
    OK(mr_exec_plan(&facts, NULL, NULL, &e));
    OK(mr_exec_compile(e, g, &p));
    CHECK_INT(mr_program_memory(p).workspace, 12000);
    mr_step_time row;
    CHECK_INT(mr_program_times(p, &row, 1), 1);
    CHECK(!row.naive);
    mr_exec_free(e);
    mr_graph_free(g);
}

/* ---- errors ---- */

static void refusals(mr_device *dev)
{
    static const char plans[] = "only plans and has no device";
    mr_exec *e = NULL;
    mr_program *p = NULL;
    model m = model_of(MR_F32);
    mr_graph *g = scale_graph(&m);
    float x[8] = {0};
    int64_t n = 8;
    double seconds = 0, expected = 0;
    mr_view v = {x, mr_desc_dense(MR_F32, 1, &n)};
    OK(mr_exec_plan(&dev->facts, m.params, NULL, &e));
    OK(mr_exec_compile(e, g, &p));
    CHECK_FAILS(mr_program_set(p, "x", &v), MR_E_USAGE, plans);
    CHECK_FAILS(mr_program_run(p), MR_E_USAGE, plans);
    CHECK_FAILS(mr_program_get(p, "y", &v), MR_E_USAGE, plans);
    CHECK_FAILS(mr_program_time(p, true), MR_E_USAGE, plans);
    CHECK_FAILS(mr_program_trace(p, "trace.json"), MR_E_USAGE, plans);
    CHECK_FAILS(mr_exec_sync(e), MR_E_USAGE, plans);
    CHECK_FAILS(mr_exec_read(e, "w", 0, x, 4), MR_E_USAGE, plans);
    CHECK_FAILS(mr_exec_write(e, "w", 0, x, 4), MR_E_USAGE, plans);
    CHECK_FAILS(mr_exec_init_params(e, 1), MR_E_USAGE, plans);
    CHECK(mr_exec_host(e, "w") == NULL);
    CHECK_INT(mr_program_measured(p), 0);
    CHECK_FAILS(mr_program_seconds(p, &seconds), MR_E_USAGE, "no rates to predict seconds by");
    mr_step_time unknown;
    mr_program_times(p, &unknown, 1);
    CHECK(unknown.expected == 0);
    mr_device rated = {.rates = {{.of = {{1e9, 1e9}}, .step_s = 1e-3}}, .measured = {UINT32_MAX}};
    mr_exec_rates(e, &rated);
    OK(mr_program_seconds(p, &seconds));
    mr_cost c = mr_program_cost(p);
    expected = (c.flop + c.bytes) / 1e9 + 2e-3;
    CHECK_NEAR(seconds, expected, 1e-9);
    mr_step_time rows[2];
    CHECK_INT(mr_program_times(p, rows, 2), 2);
    CHECK_NEAR(rows[0].expected + rows[1].expected, seconds, 1e-12);
    CHECK(rows[0].expected > 1e-3 && rows[0].seconds == 0);
    mr_exec_free(e);
    mr_facts wrong = dev->facts;
    snprintf(wrong.isa, sizeof wrong.isa, "sse");
    CHECK_FAILS(mr_exec_plan(&wrong, NULL, NULL, &e), MR_E_USAGE, "'sse'");
    wrong = dev->facts, wrong.threads = 0;
    CHECK_FAILS(mr_exec_plan(&wrong, NULL, NULL, &e), MR_E_USAGE, "0 threads");
    snprintf(wrong.device, sizeof wrong.device, "tpu");
    CHECK_FAILS(mr_exec_plan(&wrong, NULL, NULL, &e), MR_E_UNSUPPORTED, "'tpu'");
    mr_graph_free(g);
    mr_params_free(m.params);
}

int main(void)
{
    mr_device *both[2];
    open_both(both);
    for (int i = 0; i < 2; i++)
        figures(both[i]);
    large(&both[0]->facts);
    refusals(both[0]);
    elsewhere();
    // an argument is an address and a borrowed shape: a step does not hold its call
    CHECK(sizeof(mr_step) + 6 * sizeof(mr_arg) <= 320);
    for (int i = 0; i < 2; i++)
        mr_device_close(both[i]);
    return check_done();
}
