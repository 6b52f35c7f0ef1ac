/* exec: opens devices by name, and implements the functions that all devices share.
 * Licence: Apache-2.0 */
#include "exec/room.h"
#include "base/plugin.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// open NULL: the device is in a plug-in of this name
static const struct {
    const char *name;
    mr_status (*open)(int threads, mr_device **out);
    bool at_once;
} kinds[] = {
    {"cpu", mr_cpu_open, true},
    {"shadow", mr_shadow_open, false},
    {"cuda", NULL, false},
    {"cudaemu", NULL, false}, // the CUDA runtime and kernels on an emulated GPU, for specs
};

/* The number after the colon of "cuda:1"; 0 without a colon. *end: the end of the kind's name. */
static mr_status read_ordinal(const char *name, const char **end, int *ordinal)
{
    const char *colon = strchr(name, ':');
    *end = colon ? colon : name + strlen(name), *ordinal = 0;
    if (!colon)
        return MR_OK;
    char *rest;
    long n = strtol(colon + 1, &rest, 10);
    if (!isdigit((unsigned char)colon[1]) || *rest || n > 4095)
        return mr_fail(MR_E_USAGE, "device '%s': expected a number behind the colon, as in cuda:1",
                       name);
    *ordinal = (int)n;
    return MR_OK;
}

static mr_status open_plugin(const char *kind, int ordinal, int threads, mr_device **out)
{
    const void *table = NULL;
    MR_TRY(mr_plugin_open(kind, MR_DEVICE_VERSION, &table));
    return ((const mr_device_plugin *)table)->open(ordinal, threads, out);
}

mr_status mr_device_open(const char *name, int threads, mr_device **out)
{
    const char *end;
    int ordinal;
    MR_TRY(read_ordinal(name, &end, &ordinal));
    if (threads < 0 || threads > MR_MOST_THREADS)
        return mr_fail(MR_E_USAGE, "device '%s': %d threads; expected 1 to %d, or 0 for all", name,
                       threads, MR_MOST_THREADS);
    for (size_t i = 0; i < MR_COUNT(kinds); i++) {
        if (strlen(kinds[i].name) != (size_t)(end - name) ||
            memcmp(kinds[i].name, name, (size_t)(end - name)) != 0)
            continue;
        if (kinds[i].open && ordinal)
            return mr_fail(MR_E_USAGE, "device '%s': there is one %s; try: %s", name, kinds[i].name,
                           kinds[i].name);
        MR_TRY(kinds[i].open ? kinds[i].open(threads, out)
                             : open_plugin(kinds[i].name, ordinal, threads, out));
        (*out)->ordinal = ordinal;
        return MR_OK;
    }
    return mr_fail(MR_E_USAGE, "unknown device '%s'; expected cpu, shadow or cuda", name);
}

bool mr_device_at_once(const char *device)
{
    for (size_t i = 0; i < MR_COUNT(kinds); i++)
        if (strcmp(kinds[i].name, device) == 0)
            return kinds[i].at_once;
    return false;
}

mr_status mr_device_memory(mr_device *dev, size_t *free_bytes, size_t *total_bytes)
{
    return dev->ops->memory(dev, free_bytes, total_bytes);
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
