/* exec/rates: measured once, usable, and predictions that follow the work. */
#include "check.h"
#include "moonreel/exec.h"

#define OK(call) CHECK_OK(call)

/* y = linear(x, w), then gelu: what it takes, predicted. */
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

/* Two nodes that need not wait for each other, on two queues: the sum where everything is done at
 * once, else as long as the longer one; with a node that needs both, on top of that. */
static void beside(void)
{
    static const mr_rates unit = {{1, 1, 1, 1, 1, 1}, 1, 1};
    for (int shadow = 0; shadow < 2; shadow++) {
        mr_device *dev = NULL;
        mr_exec *e = NULL;
        mr_graph *g = NULL;
        mr_program *p = NULL;
        mr_ref x[2], y[2], sum;
        int64_t few = 10, many = 30;
        OK(mr_device_open(shadow ? "shadow" : "cpu", 1, &dev));
        OK(mr_exec_plan(&dev->facts, NULL, NULL, &e));
        mr_exec_rates(e, MR_F32, &unit);
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

int main(void)
{
    mr_device *dev = NULL;
    beside();
    OK(mr_device_open("cpu", 1, &dev));
    mr_rates first, again;
    OK(mr_device_rates(dev, MR_F32, &first));
    for (size_t i = 0; i < MR_COUNT(first.flop_s); i++)
        CHECK(isfinite(first.flop_s[i]) && first.flop_s[i] > 0);
    CHECK(isfinite(first.bytes_s) && first.bytes_s > 0 && first.step_s > 0);
    int64_t before = mr_alloc_count();
    OK(mr_device_rates(dev, MR_F32, &again));
    CHECK(memcmp(&first, &again, sizeof first) == 0);
    CHECK_INT(mr_alloc_count() - before, 0);
    // both are the same formula of the same rates: more rows take longer, in proportion
    double small = predict(dev, 64), large = predict(dev, 2048);
    CHECK(isfinite(small) && small > 0);
    CHECK(large > 8 * small && large < 64 * small);
    mr_device_close(dev);
    // a device that cannot have memory says so and can be asked again
    OK(mr_device_open("cpu", 1, &dev));
    mr_alloc_fail_at(5);
    CHECK_FAILS(mr_device_rates(dev, MR_F32, &first), MR_E_MEMORY, "cannot allocate");
    mr_alloc_fail_at(0);
    OK(mr_device_rates(dev, MR_F32, &first));
    mr_device_close(dev);
    return check_done();
}
