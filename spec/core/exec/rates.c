/* exec/rates: rates are measured once and usable, and predictions are proportional to the work;
 * rates from times.
 * Covers: core/exec/rate.h core/exec/rates.c */
#include "check.h"
#include "exec/rate.h"

#define OK(call) CHECK_OK(call)

/* y = linear(x, w), then gelu: its predicted time. */
static double predict(mr_device *dev, int64_t rows)
{
    enum { K = 256 };
    mr_exec *e = NULL;
    mr_graph *g = NULL;
    mr_program *p = NULL;
    mr_ref in[3] = {MR_NONE, MR_NONE, MR_NONE}, y;
    int64_t x_dim[] = {rows, K}, w_dim[] = {K, K};
    OK(mr_exec_new(dev, NULL, NULL, &e));
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 2, x_dim, &in[0]));
    OK(mr_graph_input(g, "w", MR_F32, 2, w_dim, &in[1]));
    OK(mr_graph_add(g, "linear", MR_NO_ATTRS, in, 3, &y));
    OK(mr_graph_add(g, "gelu_tanh", MR_NO_ATTRS, &y, 1, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    OK(mr_exec_compile(e, g, &p));
    double seconds = 0;
    OK(mr_program_seconds(p, &seconds));
    mr_exec_free(e);
    mr_graph_free(g);
    return seconds;
}

/* A step that takes as long as these rates say. */
static mr_step_time step_of(double flop, double bytes, double flop_s, double bytes_s)
{
    return (mr_step_time){.cost = {flop, bytes}, .seconds = flop / flop_s + bytes / bytes_s};
}

/* From the times of two steps the rates by which they were made, and the limits between them. */
static void arithmetic(void)
{
    mr_step_time a = step_of(8000, 100, 1000, 50), b = step_of(3000, 700, 1000, 50);
    mr_rate r = rate_solve(&a, &b, false);
    CHECK_NEAR(r.flop_s, 1000, 1e-9);
    CHECK_NEAR(r.bytes_s, 50, 1e-9);
    // caches: operations count fully in the first, bytes take the rest of the second
    a = step_of(8000, 0, 1000, 50), a.cost.bytes = 100;
    r = rate_solve(&a, &b, true);
    CHECK_NEAR(r.flop_s, 1000, 1e-9);
    CHECK_NEAR(r.bytes_s, 50, 1e-9);
    // at least half of the first is for operations
    a = step_of(8000, 100, 1000, 5), b = step_of(3000, 700, 1000, 5);
    r = rate_solve(&a, &b, false);
    CHECK_NEAR(r.flop_s, 2 * 8000 / a.seconds, 1e-9);
    CHECK_NEAR(r.bytes_s, 700 / (b.seconds - 3000 / r.flop_s), 1e-9);
    // and not more than all; bytes have at least a twentieth of the second
    a = step_of(8000, 100, 1000, 50), b = step_of(3000, 700, 1000, 5000), b.seconds /= 2;
    r = rate_solve(&a, &b, false);
    CHECK_NEAR(r.flop_s, 8000 / a.seconds, 1e-9);
    CHECK_NEAR(r.bytes_s, 20 * 700 / b.seconds, 1e-9);
    // one step: half of its time for each, or bytes for all of it
    a = step_of(8000, 100, 1000, 50), r = rate_halve(&a);
    CHECK_NEAR(r.flop_s, 8000 / (a.seconds / 2), 1e-9);
    CHECK_NEAR(r.bytes_s, 100 / (a.seconds / 2), 1e-9);
    a = step_of(0, 100, 1000, 50), r = rate_halve(&a);
    CHECK_NEAR(r.flop_s, 50, 1e-9);
    CHECK_NEAR(r.bytes_s, 50, 1e-9);
}

static int kind(const char *name)
{
    int i = 0;
    while (i < MR_RATED && strcmp(mr_rates_kind(i), name) != 0)
        i++;
    CHECK(i < MR_RATED);
    return i;
}

typedef struct step {
    const char *op;
    int n_in, rank[3];
    int64_t dim[3][5];
} step;
static const step steps[] = {
    {"linear", 2, {2, 2}, {{8, 16}, {4, 16}}},
    {"linear_db", 2, {2, 1}, {{8, 16}, {16}}},
    {"attention", 3, {5, 5, 5}, {{2, 1, 4, 2, 8}, {2, 1, 4, 2, 8}, {2, 1, 4, 2, 8}}},
    {"attention", 3, {5, 5, 5}, {{2, 1, 40, 2, 8}, {2, 1, 40, 2, 8}, {2, 1, 40, 2, 8}}},
    {"conv3d", 2, {5, 5}, {{1, 1, 8, 8, 64}, {64, 64, 1, 3, 3}}},
    {"conv3d", 2, {5, 5}, {{1, 1, 8, 8, 8}, {8, 8, 1, 3, 3}}},
    {"patchify", 1, {5}, {{1, 4, 1, 8, 8}}},
    {"exp", 1, {1}, {{100}}},
};

/* Is a step rated as that kind? Its rates differ from those of all others by a factor of a
 * thousand. */
static bool rated_as(const mr_facts *facts, const step *s, mr_rates rates, int which)
{
    mr_exec *e = NULL;
    mr_graph *g = NULL;
    mr_program *p = NULL;
    mr_ref in[3], out[MR_MAX_OUT];
    mr_step_time rows[4];
    OK(mr_exec_plan(facts, NULL, NULL, &e));
    rates.of[which].flop_s /= 1000, rates.of[which].bytes_s /= 500;
    mr_device rated = {.rates = {rates}, .measured = {UINT32_MAX}};
    mr_exec_rates(e, &rated);
    OK(mr_graph_new(NULL, NULL, &g));
    for (int i = 0; i < s->n_in; i++)
        OK(mr_graph_input(g, (char[]){(char)('a' + i), 0}, MR_F32, s->rank[i], s->dim[i], &in[i]));
    OK(mr_graph_add(g, s->op, MR_NO_ATTRS, in, s->n_in, out));
    OK(mr_graph_output(g, "y", out[0]));
    OK(mr_graph_finish(g));
    OK(mr_exec_compile(e, g, &p));
    int n = mr_program_times(p, rows, 4), at = 0;
    while (at < n && strcmp(rows[at].node->op->name, s->op) != 0)
        at++;
    CHECK(at < n);
    mr_cost c = rows[at].cost;
    double expected = 1000 * c.flop + 500 * c.bytes + 0.25;
    bool is = fabs(rows[at].expected - expected) < 1e-9 * expected;
    CHECK(is || fabs(rows[at].expected - (c.flop + c.bytes + 0.25)) < 1e-9 * expected);
    mr_program_free(p);
    mr_graph_free(g);
    mr_exec_free(e);
    return is;
}

/* The longest kind that is a prefix of the op rates it, with its own variant if there is one. */
static void kinds(void)
{
    static const char *const of[] = {
        "linear", "linear_db", "attention by lanes", "attention", "conv3d by fewer products",
        "conv3d", "patchify",  "elementwise"};
    mr_rates all = {.step_s = 0.25};
    mr_device *dev = NULL;
    OK(mr_device_open("cpu", 1, &dev));
    for (int i = 0; i < MR_RATED; i++)
        all.of[i] = (mr_rate){1, 1};
    for (size_t i = 0; i < MR_COUNT(steps); i++)
        for (size_t k = 0; k < MR_COUNT(of); k++)
            CHECK_INT(rated_as(&dev->facts, &steps[i], all, kind(of[k])), i == k);
    // a kind that a device lacks: as another variant of the op, at last as elementwise
    all.of[kind("attention by lanes")] = (mr_rate){0};
    CHECK(rated_as(&dev->facts, &steps[2], all, kind("attention")));
    all.of[kind("attention")] = (mr_rate){0};
    CHECK(rated_as(&dev->facts, &steps[2], all, kind("elementwise")));
    mr_device_close(dev);
}

/* Two independent nodes on two queues: the sum when queues do not overlap, else the longer one;
 * with a node that needs both, added to that. */
static void two_queues(void)
{
    mr_device unit = {.rates = {{.of = {{1, 1}}, .step_s = 1}}, .measured = {UINT32_MAX}};
    for (int shadow = 0; shadow < 2; shadow++) {
        mr_device *dev = NULL;
        mr_exec *e = NULL;
        mr_graph *g = NULL;
        mr_program *p = NULL;
        mr_ref x[2], y[2], sum;
        int64_t few = 10, many = 30;
        OK(mr_device_open(shadow ? "shadow" : "cpu", 1, &dev));
        OK(mr_exec_plan(&dev->facts, NULL, NULL, &e));
        mr_exec_rates(e, &unit);
        OK(mr_graph_new(NULL, NULL, &g));
        OK(mr_graph_input(g, "few", MR_F32, 1, &few, &x[0]));
        OK(mr_graph_input(g, "many", MR_F32, 1, &many, &x[1]));
        OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &x[0], 1, &y[0]));
        OK(mr_graph_set_queue(g, MR_Q_COMM_INTRA, NULL));
        OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &x[1], 1, &y[1]));
        OK(mr_graph_set_queue(g, MR_Q_COMPUTE, NULL));
        OK(mr_graph_slice(g, y[1], 0, 0, few, &y[1]));
        OK(mr_graph_add(g, "add", MR_NO_ATTRS, y, 2, &sum));
        OK(mr_graph_output(g, "y", sum));
        OK(mr_graph_finish(g));
        OK(mr_exec_compile(e, g, &p));
        mr_step_time t[3];
        double seconds = 0;
        CHECK_INT(mr_program_times(p, t, 3), 3);
        OK(mr_program_seconds(p, &seconds));
        CHECK(t[0].expected > 0 && t[1].expected > 2 * t[0].expected);
        double first = shadow ? t[1].expected : t[0].expected + t[1].expected;
        CHECK_NEAR(seconds, first + t[2].expected, 1e-9);
        mr_alloc_fail_at(1);
        CHECK_FAILS(mr_program_seconds(p, &seconds), MR_E_MEMORY, "cannot allocate");
        mr_alloc_fail_at(0);
        mr_exec_free(e);
        mr_graph_free(g);
        mr_device_close(dev);
    }
}

/* Any allocation may fail while kinds are measured: no kind is half measured, and the next
 * prediction measures what is missing. */
static void short_of_memory(void)
{
    enum { ROWS = 8, K = 16, STEP = 7 };
    int64_t x_dim[] = {ROWS, K}, w_dim[] = {K, K}, used;
    int64_t n = 1;
    int refused = 0;
    do {
        mr_device *dev = NULL;
        mr_exec *e = NULL;
        mr_graph *g = NULL;
        mr_program *p = NULL;
        mr_ref in[3] = {MR_NONE, MR_NONE, MR_NONE}, y;
        double seconds = 0;
        OK(mr_device_open("cpu", 1, &dev));
        OK(mr_exec_plan(&dev->facts, NULL, NULL, &e));
        mr_exec_rates(e, dev);
        OK(mr_graph_new(NULL, NULL, &g));
        OK(mr_graph_input(g, "x", MR_F32, 2, x_dim, &in[0]));
        OK(mr_graph_input(g, "w", MR_F32, 2, w_dim, &in[1]));
        OK(mr_graph_add(g, "linear", MR_NO_ATTRS, in, 3, &y));
        OK(mr_graph_output(g, "y", y));
        OK(mr_graph_finish(g));
        OK(mr_exec_compile(e, g, &p));
        used = mr_alloc_count();
        mr_alloc_fail_at(n);
        mr_status st = mr_program_seconds(p, &seconds);
        mr_alloc_fail_at(0);
        used = mr_alloc_count() - used;
        CHECK(st == MR_OK || st == MR_E_MEMORY);
        CHECK(st == MR_OK || !dev->measured[0]);
        refused += st != MR_OK;
        OK(mr_program_seconds(p, &seconds));
        CHECK(seconds > 0 && seconds < 1);
        mr_exec_free(e);
        mr_graph_free(g);
        mr_device_close(dev);
        n += STEP;
    } while (used >= n - STEP); // the last failure came after the prediction
    CHECK(refused > 10);
}

int main(void)
{
    mr_device *dev = NULL;
    arithmetic();
    short_of_memory();
    two_queues();
    kinds();
    OK(mr_device_open("cpu", 1, &dev));
    mr_rates first, again;
    // a prediction measures the kinds of its steps and the first one, each of them once
    CHECK(isfinite(predict(dev, 64)) && dev->rates[0].step_s > 0);
    CHECK_INT(dev->measured[0], 1u << kind("linear_gelu") | 1u << kind("elementwise"));
    CHECK_INT(dev->measured[1], 0);
    again = dev->rates[0];
    CHECK(again.of[kind("linear_gelu")].flop_s > 0 && again.of[kind("attention")].flop_s == 0);
    OK(mr_device_rates(dev, MR_F32, &first));
    CHECK(first.step_s == again.step_s);
    CHECK(first.of[kind("linear_gelu")].flop_s == again.of[kind("linear_gelu")].flop_s);
    // in f32 a processor has them all
    for (int i = 0; i < MR_RATED; i++) {
        CHECK(isfinite(first.of[i].flop_s) && first.of[i].flop_s > 0);
        CHECK(isfinite(first.of[i].bytes_s) && first.of[i].bytes_s > 0);
    }
    CHECK(isfinite(first.step_s) && first.step_s > 0);
    int64_t before = mr_alloc_count();
    OK(mr_device_rates(dev, MR_F32, &again));
    CHECK(memcmp(&first, &again, sizeof first) == 0);
    CHECK_INT(mr_alloc_count() - before, 0);
    // both use the same formula with the same rates: more rows take proportionally longer
    double small = predict(dev, 64), large = predict(dev, 2048);
    CHECK(isfinite(small) && small > 0);
    CHECK(large > 8 * small && large < 64 * small);
    mr_device_close(dev);
    // with a team of its own, which is started, and in bf16
    OK(mr_device_open("cpu", 2, &dev));
    OK(mr_device_rates(dev, MR_BF16, &first));
    CHECK(isfinite(first.step_s) && first.step_s > 0 && first.of[0].flop_s > 0);
    mr_device_close(dev);
    // a device that cannot allocate memory reports this and can be asked again
    OK(mr_device_open("cpu", 1, &dev));
    mr_alloc_fail_at(5);
    CHECK_FAILS(mr_device_rates(dev, MR_F32, &first), MR_E_MEMORY, "cannot allocate");
    mr_alloc_fail_at(0);
    OK(mr_device_rates(dev, MR_F32, &first));
    mr_device_close(dev);
    return check_done();
}
