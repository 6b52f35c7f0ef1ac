/* C interface of the emulator (device.cpp) or a GPU (device_gpu.cu): device memory, and the reports
 * and counts of launches. A GPU counts nothing. */
#ifndef MOONREEL_SPEC_CUDA_DEVICE_H
#define MOONREEL_SPEC_CUDA_DEVICE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct device_counts {
    uint64_t read, written; // bytes that threads accessed
    uint64_t sectors, ideal_sectors, wavefronts, ideal_wavefronts, launches;
    uint64_t product_flop; // on tensor cores
} device_counts;

/* The host accesses device memory only through these two functions, because on a GPU only kernels
 * can reach it. device_put does not mark bytes as written, device_wrote does. */
void *device_alloc(size_t bytes);
/* Memory for a view whose strides exceed the existing memory. On the emulator only opened ranges
 * exist. NULL if there is not enough memory. */
void *device_alloc_far(size_t bytes);
void device_open(void *p, size_t bytes);
void device_free_all(void);
void device_put(void *to, const void *from, size_t bytes);
void device_get(void *to, const void *from, size_t bytes);
void device_wrote(void *p, size_t bytes);
bool device_written(const void *p, size_t bytes);

/* Before a launch: set the order of blocks and threads, whether copies land late, and whether
 * accesses are counted; resets the counts. */
void device_begin(unsigned seed, bool late, bool counts);
device_counts device_counted(void);
// does it count? The emulator does, a GPU does not
bool device_counts_work(void);
// reports since device_begin, one line each; "" for none
const char *device_reports(void);
// number of kernel forms that it can run: 1, or 2 with that for sm_90a
int device_forms(void);
// "launched NAME THREADS BYTES" for each kernel so far: the largest block, the most shared memory
void device_print_launches(void);

#ifdef __cplusplus
}
#endif
#endif
