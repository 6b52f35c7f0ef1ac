/* Slow, plain kernels that stand beside those of cuda/kernels at sizes that take a CPU too long:
 * a loop for each formula, no tiles, long sums in double. They run where the others run, and so do
 * the draws of inputs and the comparison: a few numbers come back. */
#ifndef MOONREEL_SPEC_CUDA_PLAIN_H
#define MOONREEL_SPEC_CUDA_PLAIN_H
#include "moonreel/op.h"

#ifdef __cplusplus
extern "C" {
#endif

// got beside want: sums of (got - want)^2 and want^2, the largest difference and where it is
typedef struct plain_sums {
    double off, size, most;
    int64_t place;
} plain_sums;

// n values of lo to hi, f32, f64 or bf16
void plain_draw(void *at, mr_dtype dtype, int64_t n, uint64_t seed, double lo, double hi);
plain_sums plain_differences(const void *got, mr_dtype dtype, const float *want, int64_t n);

/* The outputs of a row, all of them as f32, of dense inputs; pad is a convolution's, whose stride
 * is 1; of other attributes the defaults hold. False: no such row is here. */
bool plain_row(const char *name, const mr_call *call, const int64_t *pad, float *const *want);

#ifdef __cplusplus
}
#endif
#endif
