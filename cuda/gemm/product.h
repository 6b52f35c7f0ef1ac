/* cuda/gemm: C = A B (+ C) (+ bias) on a stream, by the library behind cuda/rt/driver.h.
 *
 * Threads: one at a time per device.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_GEMM_PRODUCT_H
#define MOONREEL_CUDA_GEMM_PRODUCT_H

#include "cpu/product.h"
#include "cuda/rt/driver.h"

/* What becomes of the sums of C before they are stored, or is formed along with them. */
typedef struct mr_product_ending {
    mr_cuda_ending kind;
    /* [m, n] bf16, rows dense; of MR_CUDA_BIAS_GRADIENT [m] f32, written over with the sums of A
     * over k; NULL for those that have none */
    void *aux;
    int64_t aux_row; /* elements, of [m, n]; 0 without rows */
} mr_product_ending;

/* Does each operand have a dense dimension? If not, the caller makes it dense. */
bool mr_cuda_product_fits(const mr_product_spec *spec);
/* Bytes that a run may take, from shapes alone. */
size_t mr_cuda_product_workspace(const mr_product_spec *spec);
/* Enqueue. Pointers of the device; bias NULL where spec has none; ending NULL: the sums as they
 * are. The plan is made at the first run of a shape and kept for good. Errors: MR_E_UNSUPPORTED
 * where no algorithm serves, and for an ending of other products than single ones in bf16 (the
 * gradient of a bias: of bf16 in f32), or whose aux has addresses or rows that are no multiples of
 * 16 bytes. */
mr_status mr_cuda_product_run(const mr_product_spec *spec, const mr_product_ending *ending,
                              const void *a, const void *b, const void *bias, void *c,
                              void *workspace, void *stream);

/* C [m, n] = a_scale b_scale A B^T (+ C) (+ bias), all dense: A [m, k] and B [n, k] in 8 bits, one
 * of them in e4m3, C in bf16 or f32, bias [n] in bf16. n and k are multiples of 16 and addresses
 * are: on sm_89 and sm_90 the library has products of 8 bits over the innermost dimension of both
 * operands alone. Ref: cuBLAS, cublasLtMatmul(): "To use FP8 kernels".
 *
 * Products of two e4m3 (forward) are added up fast, with 14 bits of a sum; those with an
 * e5m2 (gradients) go to a sum in f32 every 128 elements. Ref: torchao v0.9, Float8LinearConfig:
 * use_fast_accum. */
typedef struct mr_product_f8 {
    int64_t m, n, k;
    mr_dtype a_type, b_type, out;
    bool accumulate; /* out is f32 */
    const void *a, *b;
    const float *a_scale, *b_scale; /* [1], of the device */
} mr_product_f8;

/* Bytes that a run may take, from shapes alone. */
size_t mr_cuda_product_f8_workspace(const mr_product_f8 *product);
/* Enqueue, as mr_cuda_product_run; bias may be NULL. Errors: MR_E_UNSUPPORTED where no algorithm
 * serves: on GPUs before sm_89. */
mr_status mr_cuda_product_f8_run(const mr_product_f8 *product, const void *bias, void *c,
                                 void *workspace, void *stream);

#endif
