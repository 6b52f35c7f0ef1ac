/* cuda/gemm: C = A B (+ C) (+ bias) on a stream, through cuBLASLt behind cuda/rt/driver.h.
 *
 * Threads: one at a time per device.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_GEMM_PRODUCT_H
#define MOONREEL_CUDA_GEMM_PRODUCT_H

#include "cpu/product.h"
#include "cuda/rt/driver.h"

/* The epilogue: what happens to the sums of C before they are stored, or is computed along with
 * them. */
typedef struct mr_product_ending {
    mr_cuda_ending kind;
    /* [m, n] bf16 with dense rows; for MR_CUDA_BIAS_GRADIENT [m] f32, which the sums of A over k
     * overwrite; NULL if the kind has no aux */
    void *aux;
    int64_t aux_row; /* elements from row to row of [m, n]; otherwise 0 */
} mr_product_ending;

/* Does each operand have a dense dimension? If not, the caller must make it dense. */
bool mr_cuda_product_fits(const mr_product_spec *spec);
/* Bytes of workspace that a run may need; depends only on shapes. */
size_t mr_cuda_product_workspace(const mr_product_spec *spec);
/* Enqueue the product. Pointers are device pointers. bias is NULL if spec has none; ending is NULL
 * for plain sums. The first run of a shape makes a plan, which is kept. Errors: MR_E_UNSUPPORTED if
 * cuBLASLt has no algorithm. With an ending also for a batch, for dtypes other than bf16 (bias
 * gradient: other than bf16 to f32), and for an aux with an address or rows that are not multiples
 * of 16 bytes. */
mr_status mr_cuda_product_run(const mr_product_spec *spec, const mr_product_ending *ending,
                              const void *a, const void *b, const void *bias, void *c,
                              void *workspace, void *stream);

/* C [m, n] = a_scale b_scale A B^T (+ C) (+ bias), all dense: A [m, k] and B [n, k] in 8 bits, at
 * least one in e4m3; C in bf16 or f32; bias [n] in bf16. n, k and addresses are multiples of 16. On
 * sm_89 and sm_90 cuBLASLt supports 8-bit products only over the innermost dimension of both
 * operands. Ref: cuBLAS, cublasLtMatmul(): "To use FP8 kernels".
 *
 * Products of two e4m3 operands (forward) use fast accumulation, which keeps 14 bits of a sum.
 * Products with an e5m2 operand (gradients) add to a sum in f32 every 128 elements. Ref: torchao
 * v0.9, Float8LinearConfig: use_fast_accum. */
typedef struct mr_product_f8 {
    int64_t m, n, k;
    mr_dtype a_type, b_type, out;
    bool accumulate; /* only if out is f32 */
    const void *a, *b;
    const float *a_scale, *b_scale; /* [1], device memory */
} mr_product_f8;

/* Bytes of workspace that a run may need; depends only on shapes. */
size_t mr_cuda_product_f8_workspace(const mr_product_f8 *product);
/* Enqueue like mr_cuda_product_run; bias may be NULL. Errors: MR_E_UNSUPPORTED if cuBLASLt has no
 * algorithm, as on GPUs before sm_89. */
mr_status mr_cuda_product_f8_run(const mr_product_f8 *product, const void *bias, void *c,
                                 void *workspace, void *stream);

#endif
