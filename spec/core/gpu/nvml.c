/* spec: the state of GPUs, read from a substitute for NVML. Licence: Apache-2.0 */
#include "check.h"
#include "moonreel/gpu.h"

#include <stdlib.h>
#include <string.h>

static mr_gpus *open_scene(const char *words)
{
    mr_gpus *gpus = NULL;
    setenv("MOONREEL_NVML", SPEC_NVML, 1);
    setenv("NVML_SCENE", words, 1);
    CHECK_OK(mr_gpus_open(&gpus));
    return gpus;
}

static void every_number_is_told(void)
{
    mr_gpus *gpus = open_scene("ecc=3");
    mr_gpu_state s;
    CHECK(mr_gpus_count(gpus) == 2);
    CHECK_STR(mr_gpus_driver(gpus), "580.65.06");
    CHECK_OK(mr_gpus_read(gpus, 1, &s));
    CHECK_STR(s.name, "NVIDIA H100 80GB HBM3");
    CHECK_STR(s.bus, "00000000:3b:00.0");
    CHECK(s.memory_bytes == 80ll << 30 && s.free_bytes == 79ll << 30);
    CHECK_NEAR(s.power_w, 124.456, 1e-9);
    CHECK_NEAR(s.limit_w, 700, 1e-9);
    CHECK(s.clock_mhz == 1755 && s.most_mhz == 1980);
    CHECK(s.temperature_c == 61 && s.busy_percent == 97);
    CHECK(s.memory_errors == 3);
    CHECK(s.slow == 0); // idle is no reason
    CHECK(s.processes == 1 && s.pid[0] == 4242 && s.pid_bytes[0] == 1ll << 30);
    CHECK_FAILS(mr_gpus_read(gpus, 2, &s), MR_E_RANGE, "GPU 2: expected one of 0 to 1");
    CHECK_FAILS(mr_gpus_read(gpus, -1, &s), MR_E_RANGE, "GPU -1");
    mr_gpus_close(gpus);
}

static void reasons_to_be_slow(void)
{
    static const struct {
        const char *scene;
        unsigned slow;
    } cases[] = {{"slow=0x4", MR_GPU_SLOW_POWER},
                 {"slow=0x20", MR_GPU_SLOW_HEAT},
                 {"slow=0x48", MR_GPU_SLOW_HEAT}, // the bit of any hardware reason, and which one
                 {"slow=0x88", MR_GPU_SLOW_BRAKE},
                 {"slow=0x8", MR_GPU_SLOW_HARDWARE},
                 {"slow=0x24", MR_GPU_SLOW_POWER | MR_GPU_SLOW_HEAT},
                 {"slow=0x112", 0}}; // clocks set by a user, sync boost, display
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        mr_gpus *gpus = open_scene(cases[i].scene);
        mr_gpu_state s;
        CHECK_OK(mr_gpus_read(gpus, 0, &s));
        CHECK_INT(s.slow, cases[i].slow);
        mr_gpus_close(gpus);
    }
}

static void what_is_not_told_is_absent(void)
{
    mr_gpus *gpus = open_scene("quiet slow=0x4");
    mr_gpu_state s;
    CHECK_OK(mr_gpus_read(gpus, 0, &s));
    CHECK(s.power_w == -1 && s.limit_w == -1 && s.clock_mhz == -1 && s.most_mhz == -1);
    CHECK(s.temperature_c == -1 && s.busy_percent == -1 && s.memory_errors == -1);
    CHECK(s.slow == 0 && s.processes == -1);
    CHECK(s.free_bytes == 79ll << 30);
    mr_gpus_close(gpus);

    gpus = open_scene("crowd");
    CHECK_OK(mr_gpus_read(gpus, 0, &s));
    CHECK(s.processes == 1000 && s.pid[0] == 0); // counted, not listed
    mr_gpus_close(gpus);
}

static void found_by_its_address(void)
{
    mr_gpus *gpus = open_scene("");
    CHECK_INT(mr_gpus_find(gpus, "0000:3b:00.0"), 1); // as CUDA writes it
    CHECK_INT(mr_gpus_find(gpus, "0000:3B:00.0"), 1);
    CHECK_INT(mr_gpus_find(gpus, "00000000:1B:00.0"), 0);
    CHECK_INT(mr_gpus_find(gpus, "0000:4b:00.0"), -1);
    CHECK_INT(mr_gpus_find(gpus, ""), -1);
    mr_gpus_close(gpus);
}

static void drivers_that_fail(void)
{
    mr_gpus *gpus = open_scene("lost=1");
    mr_gpu_state s;
    CHECK_OK(mr_gpus_read(gpus, 0, &s));
    CHECK_FAILS(mr_gpus_read(gpus, 1, &s), MR_E_NODE, "GPU 1: GPU is lost");
    CHECK_INT(mr_gpus_find(gpus, "0000:3b:00.0"), -1);
    mr_gpus_close(gpus);

    setenv("NVML_SCENE", "init=9", 1);
    CHECK_FAILS(mr_gpus_open(&gpus), MR_E_NODE, "Driver Not Loaded");
    setenv("MOONREEL_NVML", "/nowhere/libnvidia-ml.so.1", 1);
    CHECK_FAILS(mr_gpus_open(&gpus), MR_E_UNSUPPORTED, "/nowhere/libnvidia-ml.so.1");
    setenv("MOONREEL_NVML", "libm.so.6", 1);
    CHECK_FAILS(mr_gpus_open(&gpus), MR_E_UNSUPPORTED, "nvmlInit_v2");
    mr_error_clear();
}

int main(void)
{
    every_number_is_told();
    reasons_to_be_slow();
    what_is_not_told_is_absent();
    found_by_its_address();
    drivers_that_fail();
    return check_done();
}
