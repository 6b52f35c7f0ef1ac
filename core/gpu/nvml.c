/* gpu: reads facts about GPUs from NVML. Licence: Apache-2.0 */
#include "moonreel/gpu.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the part of NVML that is used ----

enum { OK = 0, INSUFFICIENT_SIZE = 7 };
enum { CLOCK_SM = 1, SENSOR_GPU = 0, UNCORRECTED = 1, VOLATILE = 0 };
enum {
    SLOW_POWER_CAP = 0x04,
    SLOW_HARDWARE = 0x08,
    SLOW_SOFTWARE_HEAT = 0x20,
    SLOW_HARDWARE_HEAT = 0x40,
    SLOW_BRAKE = 0x80
};

typedef void *device;
typedef unsigned long long u64;
typedef struct memory_info {
    u64 total, free, used;
} memory_info;
typedef struct rates {
    unsigned gpu, memory;
} rates;
typedef struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
} pci_info;
typedef struct process_info {
    unsigned pid;
    u64 bytes; // all ones: not reported
    unsigned instance, compute_instance;
} process_info;

// name in the library, name here, arguments. A driver must have all functions of NEEDED
#define NEEDED(X)                                                                                  \
    X("nvmlInit_v2", init, (void))                                                                 \
    X("nvmlShutdown", shutdown, (void))                                                            \
    X("nvmlSystemGetDriverVersion", driver, (char *, unsigned))                                    \
    X("nvmlDeviceGetCount_v2", count, (unsigned *))                                                \
    X("nvmlDeviceGetHandleByIndex_v2", handle, (unsigned, device *))                               \
    X("nvmlDeviceGetName", name, (device, char *, unsigned))                                       \
    X("nvmlDeviceGetPciInfo_v3", pci, (device, pci_info *))                                        \
    X("nvmlDeviceGetMemoryInfo", memory, (device, memory_info *))
#define OPTIONAL(X)                                                                                \
    X("nvmlDeviceGetPowerUsage", power, (device, unsigned *))                                      \
    X("nvmlDeviceGetEnforcedPowerLimit", limit, (device, unsigned *))                              \
    X("nvmlDeviceGetClockInfo", clock, (device, int, unsigned *))                                  \
    X("nvmlDeviceGetMaxClockInfo", most_clock, (device, int, unsigned *))                          \
    X("nvmlDeviceGetTemperature", temperature, (device, int, unsigned *))                          \
    X("nvmlDeviceGetUtilizationRates", busy, (device, rates *))                                    \
    X("nvmlDeviceGetCurrentClocksThrottleReasons", slow, (device, u64 *))                          \
    X("nvmlDeviceGetTotalEccErrors", errors, (device, int, int, u64 *))                            \
    X("nvmlDeviceGetComputeRunningProcesses_v3", processes, (device, unsigned *, process_info *))

struct mr_gpus {
    void *so;
    unsigned n;
    char version[80];
    const char *(*text)(int); // nvmlErrorString
#define X(symbol, field, args) int(*field) args;
    NEEDED(X)
    OPTIONAL(X)
#undef X
};

static mr_status failed(const mr_gpus *g, int code, const char *doing)
{
    return mr_fail(MR_E_NODE, "NVML: %s: %s (%d); try: nvidia-smi, and the kernel's log for Xid",
                   doing, g->text ? g->text(code) : "an error", code);
}

static void bind(void *so, const char *symbol, void *field)
{
    // ISO C has no cast from object to function pointer; POSIX gives dlsym this meaning
    void *at = dlsym(so, symbol);
    memcpy(field, &at, sizeof at);
}

static mr_status bind_all(mr_gpus *g, const char *path)
{
    bind(g->so, "nvmlErrorString", &g->text);
#define X(symbol, field, args)                                                                     \
    bind(g->so, symbol, &g->field);                                                                \
    if (!g->field)                                                                                 \
        return mr_fail(MR_E_UNSUPPORTED, "%s: has no %s; try: a driver of 450 or newer", path,     \
                       symbol);
    NEEDED(X)
#undef X
#define X(symbol, field, args) bind(g->so, symbol, &g->field);
    OPTIONAL(X)
#undef X
    return MR_OK;
}

static mr_status start(mr_gpus *g)
{
    int code = g->init();
    if (code != OK) {
        g->shutdown = NULL;
        return failed(g, code, "the driver");
    }
    if ((code = g->driver(g->version, sizeof g->version)) != OK)
        return failed(g, code, "the driver's version");
    if ((code = g->count(&g->n)) != OK)
        return failed(g, code, "the number of GPUs");
    return MR_OK;
}

mr_status mr_gpus_open(mr_gpus **out)
{
    const char *set = getenv("MOONREEL_NVML"), *path = set && *set ? set : "libnvidia-ml.so.1";
    mr_gpus *g;
    if (!MR_NEW(g))
        return mr_fail_memory(sizeof *g);
    mr_status st = MR_OK;
    g->so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!g->so)
        st = mr_fail(MR_E_UNSUPPORTED, "no NVIDIA driver found: %s", dlerror());
    if (st == MR_OK)
        st = bind_all(g, path);
    if (st == MR_OK)
        st = start(g);
    else
        g->shutdown = NULL;
    if (st != MR_OK) {
        mr_gpus_close(g);
        return st;
    }
    *out = g;
    return MR_OK;
}

void mr_gpus_close(mr_gpus *g)
{
    if (!g)
        return;
    if (g->shutdown)
        g->shutdown();
    if (g->so)
        dlclose(g->so);
    mr_free(g);
}

int mr_gpus_count(const mr_gpus *g)
{
    return (int)g->n;
}

const char *mr_gpus_driver(const mr_gpus *g)
{
    return g->version;
}

// ---- one GPU ----

static unsigned reasons_of(u64 mask)
{
    unsigned slow = 0;
    if (mask & SLOW_POWER_CAP)
        slow |= MR_GPU_SLOW_POWER;
    if (mask & (SLOW_SOFTWARE_HEAT | SLOW_HARDWARE_HEAT))
        slow |= MR_GPU_SLOW_HEAT;
    if (mask & SLOW_BRAKE)
        slow |= MR_GPU_SLOW_BRAKE;
    if (mask & SLOW_HARDWARE && !(slow & (MR_GPU_SLOW_HEAT | MR_GPU_SLOW_BRAKE)))
        slow |= MR_GPU_SLOW_HARDWARE;
    return slow;
}

// a number that the driver may not report; then -1
#define REPORTED(field, type, ...)                                                                 \
    (g->field && g->field(d, __VA_ARGS__) == OK ? (type)value : (type)-1)

static void read_numbers(const mr_gpus *g, device d, mr_gpu_state *out)
{
    unsigned value;
    out->power_w = REPORTED(power, double, &value);
    out->limit_w = REPORTED(limit, double, &value);
    if (out->power_w >= 0)
        out->power_w /= 1000; // milliwatts
    if (out->limit_w >= 0)
        out->limit_w /= 1000;
    out->clock_mhz = REPORTED(clock, int, CLOCK_SM, &value);
    out->most_mhz = REPORTED(most_clock, int, CLOCK_SM, &value);
    out->temperature_c = REPORTED(temperature, int, SENSOR_GPU, &value);
    rates busy;
    out->busy_percent = g->busy && g->busy(d, &busy) == OK ? (int)busy.gpu : -1;
    u64 mask, errors;
    out->slow = g->slow && g->slow(d, &mask) == OK ? reasons_of(mask) : 0;
    out->memory_errors =
        g->errors && g->errors(d, UNCORRECTED, VOLATILE, &errors) == OK ? (int64_t)errors : -1;
}

static void read_processes(const mr_gpus *g, device d, mr_gpu_state *out)
{
    process_info list[MR_GPU_PROCESSES];
    unsigned n = MR_GPU_PROCESSES;
    int code = g->processes ? g->processes(d, &n, list) : -1;
    out->processes = code == OK || code == INSUFFICIENT_SIZE ? (int)n : -1;
    for (int i = 0; code == OK && i < out->processes; i++) {
        out->pid[i] = (int)list[i].pid;
        out->pid_bytes[i] = list[i].bytes == ~(u64)0 ? -1 : (int64_t)list[i].bytes;
    }
}

static mr_status find(const mr_gpus *g, int i, device *d, char bus[32])
{
    pci_info pci;
    char doing[32];
    snprintf(doing, sizeof doing, "GPU %d", i);
    int code = g->handle((unsigned)i, d);
    if (code == OK)
        code = g->pci(*d, &pci);
    if (code != OK)
        return failed(g, code, doing);
    int k = 0;
    for (; k < 31 && pci.text[k]; k++)
        bus[k] = (char)tolower((unsigned char)pci.text[k]);
    bus[k] = 0;
    return MR_OK;
}

mr_status mr_gpus_read(mr_gpus *g, int i, mr_gpu_state *out)
{
    device d;
    memory_info memory;
    if (i < 0 || i >= (int)g->n)
        return mr_fail(MR_E_RANGE, "GPU %d: expected one of 0 to %d", i, (int)g->n - 1);
    *out = (mr_gpu_state){0};
    MR_TRY(find(g, i, &d, out->bus));
    int code = g->name(d, out->name, sizeof out->name);
    if (code == OK)
        code = g->memory(d, &memory);
    if (code != OK)
        return failed(g, code, out->bus);
    out->memory_bytes = (int64_t)memory.total, out->free_bytes = (int64_t)memory.free;
    read_numbers(g, d, out);
    read_processes(g, d, out);
    return MR_OK;
}

// CUDA writes the PCI domain with four digits, NVML with eight; the rest is equal
static const char *short_bus(const char *bus)
{
    const char *colon = strrchr(bus, ':');
    return colon && colon - bus >= 7 ? colon - 7 : bus;
}

int mr_gpus_find(mr_gpus *g, const char *bus)
{
    char at[32], wanted[32];
    size_t n = 0;
    for (; n < 31 && bus[n]; n++)
        wanted[n] = (char)tolower((unsigned char)bus[n]);
    wanted[n] = 0;
    for (int i = 0; i < (int)g->n; i++) {
        device d;
        if (find(g, i, &d, at) == MR_OK && strcmp(short_bus(at), short_bus(wanted)) == 0)
            return i;
    }
    mr_error_clear();
    return -1;
}
