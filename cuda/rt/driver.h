/* cuda/rt: what the runtime asks of a GPU, one table with two bodies: driver_cuda.cpp goes to the
 * CUDA runtime and cuBLASLt, driver_emu.cpp to the emulator, whose streams run as late as they may
 * and in another order each time. A shared object holds one of the two.
 *
 * Every function returns 0 or an error number of the CUDA runtime; some errors stay, and every
 * later call returns them too. Streams, events, graphs and plans are handles of the body.
 *
 * Threads: one at a time per device.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_RT_DRIVER_H
#define MOONREEL_CUDA_RT_DRIVER_H

#include "moonreel/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Error numbers that say what to try, as in driver_types.h; the body has a text for each. */
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
    MR_CUDA_CAPTURE = 900, /* not possible while a stream is captured; 901 to 907 as well */
    MR_CUDA_UNKNOWN = 999
};

typedef struct mr_cuda_facts {
    char name[96];
    char bus[32];     /* PCI address, "0000:3b:00.0" */
    int major, minor; /* compute capability */
    int driver, need; /* versions as 12040: the driver's, and the least that the runtime takes */
    int devices;
    double task_s; /* that each work takes, whatever it is; 0: that has to be measured */
} mr_cuda_facts;

/* What becomes of sums before they are stored: nothing; gelu_tanh of them; the same, and `aux` is
 * what it was taken of; their product with the slope of gelu_tanh at `aux`. Or nothing, and `aux`
 * is the sum of op(B) over k: the gradient of a bias, along with that of a weight. */
typedef enum mr_cuda_ending {
    MR_CUDA_SUMS,
    MR_CUDA_GELU,
    MR_CUDA_GELU_KEEP,
    MR_CUDA_GELU_SLOPE,
    MR_CUDA_BIAS_GRADIENT
} mr_cuda_ending;

/* D = op(A) op(B), plus D with `accumulate`, plus `bias` to each column, and its ending; matrices
 * by columns, as BLAS has them: op(A) [m, k], op(B) [k, n], D [m, n]. Steps in elements. Of 8 bits
 * A is transposed and B is not, m, k and steps are multiples of 16, one of A and B is e4m3; the
 * product is multiplied by a scale of A and one of B. */
typedef struct mr_cuda_product {
    bool ta, tb, accumulate, bias; /* bias [m], dtype of D; of 8 bits bf16 */
    bool fast;                     /* of 8 bits: sums may lose bits of f32 */
    int64_t m, n, k, lda, ldb, ldd;
    int64_t batch, step_a, step_b, step_d;
    mr_dtype in, in_b, out; /* in: of A; in_b: of B, another one among 8 bits alone */
    int64_t align;          /* bytes, at most 16, that addresses and steps are multiples of */
    mr_cuda_ending ending;
    /* of aux [m, n], dtype of D: a multiple of 8, at least m; 0 where it is [n] or there is none */
    int64_t ldaux;
} mr_cuda_product;

/* bf16 in device memory as the copy engine of sm_90 sees them, dimension 0 innermost and dense: a
 * copy takes a box, with zeros for what lies outside, to where the swizzle has it. */
enum { MR_CUDA_TENSOR_RANK = 5 };
typedef struct mr_cuda_tensor {
    const void *base;                         /* a multiple of 16, as the steps are */
    uint64_t size[MR_CUDA_TENSOR_RANK];       /* elements, at least 1 */
    uint64_t step_bytes[MR_CUDA_TENSOR_RANK]; /* [0] is that of an element, 2 */
    uint32_t box[MR_CUDA_TENSOR_RANK];        /* elements, at most 256 */
    int swizzle;                              /* 32 or 128 bytes, which the box is wide at most */
} mr_cuda_tensor;

typedef struct mr_cuda_driver {
    const char *device; /* of mr_device_open: "cuda", "cudaemu" */
    /* What there is, before a device is used. */
    int (*facts)(int ordinal, mr_cuda_facts *out);
    /* The calling thread's calls go to this device from now on. */
    int (*use)(int ordinal);
    int (*memory)(size_t *free_bytes, size_t *total_bytes);
    /* device memory, or host memory that the device reaches and copies fast */
    int (*alloc)(size_t bytes, bool pinned, void **out);
    int (*release)(void *p, bool pinned);

    int (*stream_new)(void **out);
    int (*stream_free)(void *stream);
    int (*stream_sync)(void *stream);
    int (*event_new)(bool timed, void **out);
    int (*event_free)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_wait)(void *event, void *stream); /* what follows on the stream waits */
    /* Did its last record come by? block: wait for it. One that was never recorded did. */
    int (*event_reached)(void *event, bool block, bool *out);
    int (*event_seconds)(void *from, void *to, double *seconds);

    /* Enqueued. A copy goes between any two memories. */
    int (*copy)(void *to, const void *from, size_t bytes, void *stream);
    int (*fill)(void *to, int byte, size_t bytes, void *stream);
    int (*call)(void (*fn)(void *user), void *user, void *stream); /* on the host */

    /* Were all launches taken that this thread made since it asked last? One that a GPU has no code
     * for, or no room, tells it here alone, and other calls go on. */
    int (*launched)(void);

    /* What is enqueued between the two becomes a graph instead, on this stream and on those that
     * wait for it. */
    int (*capture_begin)(void *stream);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_run)(void *graph, void *stream);
    int (*graph_free)(void *graph);

    /* scales: of A and B, an f32 each, where they have 8 bits, else NULL.
     * workspace: at most *bytes when called, what a run takes afterwards. The same shapes give the
     * same algorithm, and no algorithm adds in an order that may change. */
    int (*product_new)(const mr_cuda_product *p, size_t *bytes, void **plan);
    int (*product_run)(void *plan, const void *a, const void *b, const float *const *scales,
                       const void *bias, void *aux, void *d, void *workspace, size_t bytes,
                       void *stream);
    int (*product_free)(void *plan);

    /* The map that a kernel of sm_90a takes as a parameter, an mr_tensor_map of cuda/prim. */
    int (*tensor_map)(const mr_cuda_tensor *t, void *map);

    /* The calling thread enters a range for profilers, or leaves the innermost one (NULL). */
    void (*range)(const char *name);

    const char *(*text)(int error);
} mr_cuda_driver;

/* the body of this object */
extern const mr_cuda_driver mr_cuda;

#ifdef __cplusplus
}
#endif
#endif
