/* Slow, plain kernels, compared with those of cuda/kernels at sizes that take a CPU too long: one
 * loop per formula, no tiles, long sums in double. They run on the same device, which also draws
 * the inputs and compares the results. Only a few numbers come back. */
#ifndef MOONREEL_SPEC_CUDA_PLAIN_H
#define MOONREEL_SPEC_CUDA_PLAIN_H
#include "moonreel/op.h"

#ifdef __cplusplus
extern "C" {
#endif

// compares got with want: sums of (got - want)^2 and want^2, the largest difference and its place
typedef struct plain_sums {
    double off, size, most;
    int64_t place;
} plain_sums;

// n values between lo and hi, f32, f64 or bf16
void plain_draw(void *at, mr_dtype dtype, int64_t n, uint64_t seed, double lo, double hi);
plain_sums plain_differences(const void *got, mr_dtype dtype, const float *want, int64_t n);

/* Compute the outputs of an op, all as f32, from dense inputs. pad is that of a convolution, whose
 * stride is 1; other attributes have their defaults. False: the op has no plain kernel here. */
bool plain_row(const char *name, const mr_call *call, const int64_t *pad, float *const *want);

#ifdef __cplusplus
}
#endif
#endif
