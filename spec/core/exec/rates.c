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

int main(void)
{
    mr_device *dev = NULL;
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
