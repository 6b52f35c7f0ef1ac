/* cuda/rt: the functions that the runtime calls on a GPU, as one table with two implementations.
 * driver_cuda.cpp calls the CUDA runtime and cuBLASLt. driver_emu.cpp calls the emulator, whose
 * streams run as late as they may, in an order that depends on a seed. A shared object contains one
 * of the two.
 *
 * Every function returns 0 or an error number of the CUDA runtime. Some errors are permanent: every
 * later call returns them too. Streams, events, graphs and plans are opaque handles of the
 * implementation.
 *
 * Threads: one thread at a time per device.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_RT_DRIVER_H
#define MOONREEL_CUDA_RT_DRIVER_H

#include "moonreel/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Error numbers for which fail.c suggests a remedy, as in driver_types.h. */
enum {
    MR_CUDA_MEMORY = 2,
    MR_CUDA_OLD_DRIVER = 35,
    MR_CUDA_UNAVAILABLE = 46,
    MR_CUDA_NO_DEVICE = 100,
    MR_CUDA_BAD_ORDINAL = 101,
    MR_CUDA_NO_IMAGE = 209,
    MR_CUDA_ECC = 214,
    MR_CUDA_ILLEGAL_ADDRESS = 700,
    MR_CUDA_LAUNCH_FAILURE = 719,
    MR_CUDA_NOT_PERMITTED = 800,
    MR_CUDA_CAPTURE = 900, /* not possible while a stream is captured; so are 901 to 907 */
    MR_CUDA_UNKNOWN = 999
};

typedef struct mr_cuda_facts {
    char name[96];
    char bus[32];     /* PCI address, "0000:3b:00.0" */
    int major, minor; /* compute capability */
    int driver, need; /* versions as 12040: of the driver, and the oldest that works */
    int devices;
    double task_s; /* seconds of each task on any device; 0: must be measured */
} mr_cuda_facts;

/* The epilogue: what happens to a sum before it is stored. SUMS: nothing. GELU: gelu_tanh of the
 * sum. GELU_KEEP: the same, and the sum goes to `aux`. GELU_SLOPE: the sum times the slope of
 * gelu_tanh at `aux`. BIAS_GRADIENT: nothing, and `aux` gets the sum of op(B) over k. This is the
 * gradient of a bias, computed with that of the weight. */
typedef enum mr_cuda_ending {
    MR_CUDA_SUMS,
    MR_CUDA_GELU,
    MR_CUDA_GELU_KEEP,
    MR_CUDA_GELU_SLOPE,
    MR_CUDA_BIAS_GRADIENT
} mr_cuda_ending;

/* D = ending(op(A) op(B) + D if `accumulate` + `bias` in each column). Matrices are column-major as
 * in BLAS: op(A) [m, k], op(B) [k, n], D [m, n]. Steps are in elements. For 8-bit inputs A is
 * transposed and B is not; m, k and the steps are multiples of 16; A or B is e4m3; the product is
 * multiplied by one scale of A and one of B. */
typedef struct mr_cuda_product {
    bool ta, tb, accumulate, bias; /* bias [m], dtype of D; bf16 for 8-bit inputs */
    bool fast;                     /* 8-bit inputs: sums may lose bits of f32 */
    int64_t m, n, k, lda, ldb, ldd;
    int64_t batch, step_a, step_b, step_d;
    mr_dtype in, in_b, out; /* dtypes of A and B; they differ only for 8-bit inputs */
    int64_t align;          /* bytes, at most 16: alignment of addresses and steps */
    mr_cuda_ending ending;
    /* leading dimension of aux [m, n], which has the dtype of D: a multiple of 8, at least m; 0 if
     * aux is [n] or absent */
    int64_t ldaux;
} mr_cuda_product;

/* A bf16 tensor in device memory as TMA sees it: dimension 0 is innermost and dense. A copy takes
 * one box, fills elements outside the tensor with zeros, and stores it swizzled. */
enum { MR_CUDA_TENSOR_RANK = 5 };
typedef struct mr_cuda_tensor {
    const void *base;                         /* a multiple of 16, like the steps */
    uint64_t size[MR_CUDA_TENSOR_RANK];       /* elements, at least 1 */
    uint64_t step_bytes[MR_CUDA_TENSOR_RANK]; /* [0] is the element size, 2 */
    uint32_t box[MR_CUDA_TENSOR_RANK];        /* elements, at most 256 */
    int swizzle;                              /* 32 or 128 bytes; the box is at most this wide */
} mr_cuda_tensor;

typedef struct mr_cuda_driver {
    const char *device; /* name for mr_device_open: "cuda", "cudaemu" */
    /* Facts of a GPU, read before it is used. */
    int (*facts)(int ordinal, mr_cuda_facts *out);
    /* Later calls of this thread use this GPU. */
    int (*use)(int ordinal);
    int (*memory)(size_t *free_bytes, size_t *total_bytes);
    /* pinned: host memory that the device can access and copy fast; otherwise device memory */
    int (*alloc)(size_t bytes, bool pinned, void **out);
    int (*release)(void *p, bool pinned);

    int (*stream_new)(void **out);
    int (*stream_free)(void *stream);
    int (*stream_sync)(void *stream);
    int (*event_new)(bool timed, void **out);
    int (*event_free)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_wait)(void *event, void *stream); /* later work on the stream waits */
    /* Has the last record completed? block: wait for it. An event that was never recorded has
     * completed. */
    int (*event_reached)(void *event, bool block, bool *out);
    int (*event_seconds)(void *from, void *to, double *seconds);

    /* These enqueue work. A copy may go between any two memories. */
    int (*copy)(void *to, const void *from, size_t bytes, void *stream);
    int (*fill)(void *to, int byte, size_t bytes, void *stream);
    int (*call)(void (*fn)(void *user), void *user, void *stream); /* fn runs on the host */

    /* Did the GPU accept all launches of this thread since the last call? If the GPU has no code or
     * not enough resources for a launch, only this call reports it; other calls succeed. */
    int (*launched)(void);

    /* Between the two calls, work on this stream, and on streams that wait for it, goes into a
     * graph instead of being enqueued. */
    int (*capture_begin)(void *stream);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_run)(void *graph, void *stream);
    int (*graph_free)(void *graph);

    /* scales: one f32 each for 8-bit A and B, otherwise NULL.
     * bytes: in: limit of the workspace; out: bytes that product_run needs. The same shapes always
     * select the same algorithm, and no algorithm adds in an order that can vary. */
    int (*product_new)(const mr_cuda_product *p, size_t *bytes, void **plan);
    int (*product_run)(void *plan, const void *a, const void *b, const float *const *scales,
                       const void *bias, void *aux, void *d, void *workspace, size_t bytes,
                       void *stream);
    int (*product_free)(void *plan);

    /* Make the parameter of an sm_90a kernel, an mr_tensor_map of cuda/prim. */
    int (*tensor_map)(const mr_cuda_tensor *t, void *map);

    /* Open a profiler range in the calling thread, or close the innermost one (NULL). */
    void (*range)(const char *name);

    const char *(*text)(int error);
} mr_cuda_driver;

/* the implementation in this shared object */
extern const mr_cuda_driver mr_cuda;

#ifdef __cplusplus
}
#endif
#endif
