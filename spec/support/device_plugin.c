/* A plug-in for specs, libmoonreel_cuda.so: a device that only reports its name. Licence:
 * Apache-2.0 */
#include "moonreel/exec.h"

static mr_status memory(mr_device *dev, size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = (size_t)dev->facts.threads, *total_bytes = 1000;
    return MR_OK;
}
static void close_device(mr_device *dev)
{
    dev->facts.threads = 0;
}
static const mr_device_ops ops = {.memory = memory, .close = close_device};
static mr_device device = {.ops = &ops};

static mr_status open_device(int ordinal, int threads, mr_device **out)
{
    device.facts = (mr_facts){.device = "cuda", .isa = "9.0", .threads = 10 * ordinal + threads};
    *out = &device;
    return MR_OK;
}

MR_API const mr_device_plugin *mr_cuda_entry(void);
const mr_device_plugin *mr_cuda_entry(void)
{
    static const mr_device_plugin table = {MR_DEVICE_VERSION, open_device};
    return &table;
}
