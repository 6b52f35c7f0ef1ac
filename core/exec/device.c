/* exec: devices by name, and what holds for all of them. Licence: Apache-2.0 */
#include "exec/room.h"

#include <stdatomic.h>
#include <string.h>

static const struct {
    const char *name;
    mr_status (*open)(int threads, mr_device **out);
} kinds[] = {
    {"cpu", mr_cpu_open},
    {"shadow", mr_shadow_open},
};

mr_status mr_device_open(const char *name, int threads, mr_device **out)
{
    for (size_t i = 0; i < MR_COUNT(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].open(threads, out);
    return mr_fail(MR_E_USAGE, "unknown device '%s'; expected cpu or shadow", name);
}

void mr_device_close(mr_device *dev)
{
    if (!dev)
        return;
    mr_eager_drop(dev);
    dev->ops->close(dev);
}

void mr_device_guard(mr_device *dev, mr_dptr p, mr_guard guard)
{
    if (p && dev->ops->guard)
        dev->ops->guard(dev, p, guard);
}

mr_dtype mr_device_compute(const mr_device *dev, mr_dtype wish)
{
    static atomic_bool said;
    if (wish != MR_BF16 || dev->facts.bf16)
        return wish;
    if (!atomic_exchange(&said, true))
        mr_log(MR_LOG_WARN, "this processor (%s) has no fast bf16 products; computing in f32",
               dev->facts.isa);
    return MR_F32;
}
