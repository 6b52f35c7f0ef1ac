/* exec/rates: measured once, usable, and a prediction that is in the right region. */
#include "check.h"
#include "moonreel/exec.h"

#define OK(call) CHECK_OK(call)

/* y = linear(x, w), then gelu: what it takes, predicted and by the clock (best of five). */
static double predict(mr_device *dev, int64_t rows, double *measured)
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
    mr_tensor *x = NULL, *w = NULL;
    OK(mr_tensor_new(MR_F32, 2, x_dim, &x));
    OK(mr_tensor_new(MR_F32, 2, w_dim, &w));
    OK(mr_program_set(p, "x", mr_tensor_view(x)));
    OK(mr_program_set(p, "w", mr_tensor_view(w)));
    double seconds = 0;
    OK(mr_program_seconds(p, &seconds));
    for (int i = 0; i < 5; i++) {
        double t = mr_now_s();
        OK(mr_program_run(p));
        t = mr_now_s() - t;
        if (!i || t < *measured)
            *measured = t;
    }
    mr_tensor_unref(x), mr_tensor_unref(w);
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
    double small_measured = 0, large_measured = 0;
    double small = predict(dev, 64, &small_measured), large = predict(dev, 2048, &large_measured);
    printf("64 rows: %.3g s predicted, %.3g measured; 2048 rows: %.3g predicted, %.3g measured\n",
           small, small_measured, large, large_measured);
    CHECK(large > 8 * small);
    CHECK(large > large_measured / 10 && large < large_measured * 10);
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
