/* bench: limits of this machine, measured in the same process as the code compared with them.
 *
 * Knows products and memory, no models. Times are wall times of the clock table.
 *
 * Threads: one call at a time, on an otherwise idle process: these functions measure the machine.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_BENCH_H
#define MOONREEL_BENCH_H

#include "moonreel/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The fastest product y = x w' over a fixed list of shapes. */
typedef struct mr_bench_peak {
    double tflops;
    bool own;        /* by own kernels, which pack in each run, rather than oneDNN's */
    int64_t m, n, k; /* of the best shape */
    char how[96];    /* implementation: "onednn brg:avx512_core_amx_bf16", "own avx2" */
} mr_bench_peak;

/* Measure the product peak of `dtype` (MR_F32, MR_BF16): the better of oneDNN, with weights packed
 * beforehand in the layout it chooses, and our own kernels. If a processor multiplies bf16 faster
 * by f32 instructions, the peak of bf16 is that of f32. Each shape runs for `seconds`, at least
 * once, after a warm-up run. Errors: MR_E_MEMORY; MR_E_UNSUPPORTED if the processor has no such
 * products.
 * Threads: one call at a time. */
MR_API mr_status mr_bench_product_peak(mr_dtype dtype, int threads, double seconds,
                                       mr_bench_peak *out);

/* TFLOP/s of the product [m, k] by [n, k]' over `seconds` and at least one run, after a warm-up
 * run. This is the mean, so that other load of the machine counts as it does in a step that is
 * measured in turn with it. own: as in the peak.
 * Errors: MR_E_MEMORY; MR_E_SHAPE for a length below 1; MR_E_UNSUPPORTED as above.
 * Threads: one call at a time. */
MR_API mr_status mr_bench_product_rate(mr_dtype dtype, int threads, int64_t m, int64_t n, int64_t k,
                                       bool own, double seconds, double *tflops);

/* A product of a linear layer of x [m, k] and w [n, k] as a step runs it: y = x w', dx = dy w, or
 * dw += dy' x. */
typedef enum mr_bench_form { MR_BENCH_FORWARD, MR_BENCH_DX, MR_BENCH_DW } mr_bench_form;
typedef struct mr_bench_linear {
    double seconds;   /* of a run, packing included: the least seen */
    double packing_s; /* of packing w alone; 0 if w is not packed, and for dw */
    char how[96];     /* implementation */
} mr_bench_linear;
/* Measured in turn for `seconds`, and at least three times after a warm-up run.
 * Errors: MR_E_MEMORY; MR_E_SHAPE for a length below 1; MR_E_UNSUPPORTED a dtype other than f32 and
 * bf16. Threads: one call at a time. */
MR_API mr_status mr_bench_linear_of(mr_bench_form form, mr_dtype dtype, int threads, int64_t m,
                                    int64_t n, int64_t k, double seconds, mr_bench_linear *out);

/* Bytes per second of y[i] = x[i] + 1 over two f32 buffers of `bytes` together; reads and writes
 * count. The mean over `seconds` and at least one run, after a warm-up run. Small sizes stay in a
 * cache: pass the size of the data to compare with. Errors: MR_E_MEMORY. */
MR_API mr_status mr_bench_memory_rate(int64_t bytes, int threads, double seconds,
                                      double *bytes_per_s);

/* Seconds that n threads (1 to 256; 0: one for each processor, 8 at most, as a loader touches
 * its slabs) take to write `bytes` of fresh memory once.
 * Errors: MR_E_MEMORY. */
MR_API mr_status mr_bench_touch(int64_t bytes, int threads, double *seconds);

/* Resident size of this process now, and the largest since its program began, in bytes; 0 if the
 * kernel does not report it. */
MR_API size_t mr_bench_resident(void);
MR_API size_t mr_bench_max_resident(void);

/* Remove a file from the page cache, so that the next reader reads it from disk; unwritten data is
 * written first. File systems in memory keep their pages. Errors: MR_E_IO.
 * Threads: any. */
MR_API mr_status mr_bench_forget_file(const char *path);

#ifdef __cplusplus
}
#endif
#endif
