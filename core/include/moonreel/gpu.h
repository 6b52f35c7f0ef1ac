/* gpu: the state of GPUs: memory, power, clocks, reasons for low clocks, errors.
 *
 * The source is NVML, the library that comes with NVIDIA's driver. It is opened on first use, from
 * MOONREEL_NVML if that is set. Nothing is computed on a GPU here, and no CUDA is needed.
 *
 * Threads: one at a time per mr_gpus.
 * Source: NVML API reference, driver 450 and newer; structures are those of the functions named _v2
 * and _v3. Licence: Apache-2.0 */
#ifndef MOONREEL_GPU_H
#define MOONREEL_GPU_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_gpus mr_gpus;

/* Why a GPU runs below its clocks; idling and clocks set by a user do not count. */
typedef enum mr_gpu_slow {
    MR_GPU_SLOW_POWER = 1,   /* its power limit */
    MR_GPU_SLOW_HEAT = 2,    /* too hot */
    MR_GPU_SLOW_BRAKE = 4,   /* the host's power supply limits it */
    MR_GPU_SLOW_HARDWARE = 8 /* one of the last two; the driver does not say which */
} mr_gpu_slow;

enum { MR_GPU_PROCESSES = 64 };

/* One GPU now. Values that its driver does not report are -1 (slow: 0). */
typedef struct mr_gpu_state {
    char name[96];
    char bus[32]; /* PCI address, "00000000:3b:00.0", in lower case: the same in every process */
    int64_t memory_bytes, free_bytes;
    double power_w, limit_w;
    int clock_mhz, most_mhz; /* of the multiprocessors */
    int temperature_c, busy_percent;
    unsigned slow;         /* of mr_gpu_slow */
    int64_t memory_errors; /* uncorrected, since the driver was loaded */
    int processes;         /* that compute; pid and bytes of the first MR_GPU_PROCESSES */
    int pid[MR_GPU_PROCESSES];
    int64_t pid_bytes[MR_GPU_PROCESSES];
} mr_gpu_state;

/* Owns: caller closes. Errors: MR_E_UNSUPPORTED the library is missing, or the file is not a
 * library; MR_E_NODE the driver does not answer. */
MR_API mr_status mr_gpus_open(mr_gpus **out);
MR_API void mr_gpus_close(mr_gpus *gpus);
MR_API int mr_gpus_count(const mr_gpus *gpus);
/* The driver's version, "580.65.06"; lent. */
MR_API const char *mr_gpus_driver(const mr_gpus *gpus);
/* i from 0. Errors: MR_E_RANGE; MR_E_NODE a GPU that fell off the bus or does not answer. */
MR_API mr_status mr_gpus_read(mr_gpus *gpus, int i, mr_gpu_state *out);
/* The number of the GPU at a PCI address, in the format of CUDA or NVML; -1: no such GPU. */
MR_API int mr_gpus_find(mr_gpus *gpus, const char *bus);

#ifdef __cplusplus
}
#endif
#endif
