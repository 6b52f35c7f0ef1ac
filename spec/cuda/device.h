/* The emulator (device.cpp) or a GPU (device_gpu.cu) for C: memory of the device, what a launch
 * reported and counted; a GPU counts nothing. */
#ifndef MOONREEL_SPEC_CUDA_DEVICE_H
#define MOONREEL_SPEC_CUDA_DEVICE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct device_counts {
    uint64_t read, written; // bytes asked for by threads
    uint64_t sectors, ideal_sectors, wavefronts, ideal_wavefronts, launches;
    uint64_t product_flop; // of tensor cores
} device_counts;

/* The host touches memory of the device by these two alone: on a GPU it lies where only kernels
 * reach it. device_put does not make bytes count as written, device_wrote does. */
void *device_alloc(size_t bytes);
/* Memory for a view whose strides are larger than there is memory: only ranges that are opened
 * exist on the emulator. NULL where there is no room. */
void *device_alloc_far(size_t bytes);
void device_open(void *p, size_t bytes);
void device_free_all(void);
void device_put(void *to, const void *from, size_t bytes);
void device_get(void *to, const void *from, size_t bytes);
void device_wrote(void *p, size_t bytes);
bool device_written(const void *p, size_t bytes);

/* Before a launch: the order of blocks and threads, whether copies land late, whether accesses are
 * counted; forgets the counts. */
void device_begin(unsigned seed, bool late, bool counts);
device_counts device_counted(void);
// whether it counts: the emulator does, a GPU does not
bool device_counts_work(void);
// what was reported since device_begin, one line each; "" for nothing
const char *device_reports(void);
// how many forms of a kernel it can run: 1, or 2 with that for sm_90a
int device_forms(void);
// "launched NAME THREADS BYTES" of each kernel so far: the largest block, the most shared memory
void device_print_launches(void);

#ifdef __cplusplus
}
#endif
#endif
