/* A substitute for NVML that plays a scene: MOONREEL_NVML names it, NVML_SCENE holds words.
 *   gpus=N      as many GPUs (2)           init=CODE   the driver does not start
 *   stuck       the driver does not answer
 *   lost=I      GPU I fell off the bus     quiet       reports no power, clocks, errors, processes
 *   slow=MASK   reasons, as NVML has them  crowd       more processes than a table takes
 *   ecc=N       memory errors              alone       no process computes
 * Licence: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAID __attribute__((visibility("default")))
enum { OK = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, LOST = 15 };

static const char *scene(void)
{
    const char *words = getenv("NVML_SCENE");
    return words ? words : "";
}

static long word(const char *name, long otherwise)
{
    const char *at = strstr(scene(), name);
    return at ? strtol(at + strlen(name), NULL, 0) : otherwise;
}

static int report(void)
{
    return strstr(scene(), "quiet") ? NOT_SUPPORTED : OK;
}

// a handle is the number of the GPU, from 1
static int number(void *device)
{
    return (int)(size_t)device - 1;
}

SAID const char *nvmlErrorString(int code)
{
    return code == LOST ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : "Unknown Error";
}
SAID int nvmlInit_v2(void)
{
    while (strstr(scene(), "stuck"))
        pause();
    return (int)word("init=", OK);
}
SAID int nvmlShutdown(void)
{
    return OK;
}
SAID int nvmlSystemGetDriverVersion(char *out, unsigned n)
{
    snprintf(out, n, "580.65.06");
    return OK;
}
SAID int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = (unsigned)word("gpus=", 2);
    return OK;
}
SAID int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out)
{
    *out = (void *)(size_t)(i + 1);
    return (long)i == word("lost=", -1) ? LOST : OK;
}
SAID int nvmlDeviceGetName(void *d, char *out, unsigned n)
{
    (void)d;
    snprintf(out, n, "NVIDIA H100 80GB HBM3");
    return OK;
}
SAID int nvmlDeviceGetPciInfo_v3(void *d, void *out)
{
    memset(out, 0, 68);
    snprintf((char *)out + 36, 32, "00000000:%X:00.0", 0x1B + 0x20 * number(d));
    return OK;
}
SAID int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *out)
{
    (void)d;
    out[0] = 80ull << 30, out[1] = 79ull << 30, out[2] = 1ull << 30;
    return OK;
}
SAID int nvmlDeviceGetPowerUsage(void *d, unsigned *out)
{
    *out = 123456u + (unsigned)number(d) * 1000;
    return report();
}
SAID int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *out)
{
    (void)d;
    *out = 700000;
    return report();
}
SAID int nvmlDeviceGetClockInfo(void *d, int clock, unsigned *out)
{
    (void)d;
    *out = clock == 1 ? 1755 : 2619;
    return report();
}
SAID int nvmlDeviceGetMaxClockInfo(void *d, int clock, unsigned *out)
{
    (void)d;
    *out = clock == 1 ? 1980 : 2619;
    return report();
}
SAID int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out)
{
    (void)d, (void)sensor;
    *out = 61;
    return report();
}
SAID int nvmlDeviceGetUtilizationRates(void *d, unsigned *out)
{
    (void)d;
    out[0] = 97, out[1] = 40;
    return report();
}
SAID int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *out)
{
    (void)d;
    *out = (unsigned long long)word("slow=", 0x1);
    return report();
}
SAID int nvmlDeviceGetTotalEccErrors(void *d, int kind, int counter, unsigned long long *out)
{
    (void)d;
    *out = kind == 1 && counter == 0 ? (unsigned long long)word("ecc=", 0) : 99;
    return report();
}
SAID int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *out)
{
    struct {
        unsigned pid;
        unsigned long long bytes;
        unsigned a, b;
    } one = {4242, 1ull << 30, 0, 0};
    unsigned room = *n;
    (void)d;
    *n = strstr(scene(), "crowd") ? 1000 : strstr(scene(), "alone") ? 0 : 1;
    memcpy(out, &one, sizeof one);
    if (*n > room)
        return INSUFFICIENT_SIZE; // the table has no meaning then
    return report();
}
