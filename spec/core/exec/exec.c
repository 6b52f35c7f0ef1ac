/* exec/exec: the regions of an executor, their contents, initial weights and refresh. */
#include "execcase.h"

static size_t bytes_of(const mr_exec *e, const char *region)
{
    return mr_region_bytes(mr_exec_region(e, region));
}

static void regions(mr_device *dev)
{
    model m = model_of(MR_BF16);
    mr_exec *e = NULL;
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){TRAINING_EMA}, &e));
    size_t n = (size_t)mr_params_elements(m.params, false),
           at = (size_t)mr_params_at(m.params, m.w)->offset;
    CHECK_INT(bytes_of(e, "w"), n * 2);
    static const char *const f32[] = {"grad", "master", "adam_m", "adam_v", "ema"};
    for (size_t i = 0; i < MR_COUNT(f32); i++)
        CHECK_INT(bytes_of(e, f32[i]), n * 4);
    CHECK(!mr_exec_region(e, "moments"));
    OK(mr_exec_init_params(e, 3));
    float got[8], near_three = 3.0f + 1.0f / 512;
    uint16_t w[8];
    for (int k = 1; k < 5; k += 3) {
        OK(mr_exec_read(e, f32[k], at * 4, got, sizeof got));
        CHECK(got[0] == 1 && got[7] == 8);
    }
    OK(mr_exec_read(e, "w", at * 2, w, sizeof w));
    CHECK(mr_bf16_to_f32(w[7]) == 8);
    OK(mr_exec_read(e, "adam_v", at * 4, got, sizeof got));
    CHECK(got[0] == 0);
    // w follows master on request
    OK(mr_exec_write(e, "master", at * 4, &near_three, 4));
    OK(mr_exec_refresh(e));
    OK(mr_exec_read(e, "w", at * 2, w, sizeof w));
    CHECK(w[0] == mr_f32_to_bf16(near_three) && mr_bf16_to_f32(w[1]) == 2);
    // host memory is read in place
    const uint16_t *there = mr_exec_host(e, "w");
    CHECK(strcmp(dev->facts.device, "cpu") == 0 ? there && there[at] == w[0] : !there);
    CHECK(!mr_exec_host(e, "q"));
    CHECK_FAILS(mr_exec_read(e, "w", n * 2 - 1, w, 2), MR_E_RANGE, "region 'w'");
    CHECK_FAILS(mr_exec_read(e, "q", 0, w, 2), MR_E_USAGE, "no region 'q'");
    mr_exec_free(e);
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){.regions = adam_rows, .n_regions = 1}, &e));
    CHECK(mr_exec_region(e, "grad") && !mr_exec_region(e, "master"));
    mr_exec_free(e);
    OK(mr_exec_new(dev, m.params, NULL, &e));
    CHECK_INT(mr_exec_regions(e), 2);
    CHECK(mr_exec_region(e, "w") && mr_exec_region(e, "frozen"));
    mr_exec_free(e);
    mr_params_free(m.params);
    // in f32, master and w are one region with two names
    m = model_of(MR_F32);
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){TRAINING}, &e));
    OK(mr_exec_write(e, "master", 0, &near_three, 4));
    OK(mr_exec_read(e, "w", 0, got, 4));
    CHECK(got[0] == near_three);
    mr_exec_free(e);
    mr_params_free(m.params);
    OK(mr_params_new(MR_F32, &m.params));
    CHECK_FAILS(mr_exec_new(dev, m.params, NULL, &e), MR_E_USAGE, "not sealed");
    mr_params_free(m.params);
}

int main(void)
{
    mr_device *both[2];
    open_both(both);
    for (int i = 0; i < 2; i++) {
        regions(both[i]);
        mr_device_close(both[i]);
    }
    return check_done();
}
