/* cuda/bench: times cuDNN's convolutions without PyTorch. It is a peer for sizes.lua and no part of
 * moonreel. The program loads the library and does not link it. cuDNN's declarations are repeated
 * here, and compared with cudnn.h if it is found at build time. MOONREEL_CUDNN names another file
 * than libcudnn.so.9.
 *
 * Use: cudnn_peer RUNS [B T H W C FILTERS PICTURES]..., seven numbers per convolution: with
 * PICTURES 3 x 3, without it 3 x 3 x 3 over T frames and the two before them; bf16, channels last.
 * Prints "cuDNN VERSION", then one line per convolution: seconds of y, dx and dw, by events, the
 * median of RUNS with the fastest of cuDNN's algorithms, "-" if it has none. Licence: Apache-2.0 */
#include "cuda/rt/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the part of cuDNN that is used ----

enum { F32 = 0, BF16 = 9, CHANNELS_LAST = 1, CORRELATION = 1, TENSOR_CORES = 1 };
typedef struct candidate {
    int algorithm, status;
    float ms;
    size_t workspace;
    int determinism, math, reserved[3];
} candidate;

#if defined __has_include
#if __has_include(<cudnn.h>)
#include <cudnn.h>
_Static_assert((int)CUDNN_DATA_FLOAT == F32 && (int)CUDNN_DATA_BFLOAT16 == BF16, "type");
_Static_assert((int)CUDNN_TENSOR_NHWC == CHANNELS_LAST, "format");
_Static_assert((int)CUDNN_CROSS_CORRELATION == CORRELATION, "mode");
_Static_assert((int)CUDNN_TENSOR_OP_MATH == TENSOR_CORES, "math");
_Static_assert(sizeof(cudnnConvolutionFwdAlgoPerf_t) == sizeof(candidate), "candidate");
_Static_assert(offsetof(cudnnConvolutionFwdAlgoPerf_t, memory) == offsetof(candidate, workspace),
               "candidate");
#endif
#endif

// The three directions take the same arguments: two operands, the convolution, a result.
typedef int search(void *, void *, const void *, void *, const void *, void *, void *, void *, int,
                   int *, candidate *, void *, size_t);
typedef int convolve(void *, const void *, void *, const void *, void *, const void *, void *, int,
                     void *, size_t, const void *, void *, void *);

// symbol in the library, field here, result, arguments
#define FUNCTIONS(X)                                                                               \
    X("cudnnGetVersion", version, size_t, (void))                                                  \
    X("cudnnGetErrorString", text, const char *, (int))                                            \
    X("cudnnCreate", create, int, (void **))                                                       \
    X("cudnnSetStream", set_stream, int, (void *, void *))                                         \
    X("cudnnCreateTensorDescriptor", tensor_new, int, (void **))                                   \
    X("cudnnDestroyTensorDescriptor", tensor_free, int, (void *))                                  \
    X("cudnnSetTensorNdDescriptorEx", tensor, int, (void *, int, int, int, const int *))           \
    X("cudnnCreateFilterDescriptor", filter_new, int, (void **))                                   \
    X("cudnnDestroyFilterDescriptor", filter_free, int, (void *))                                  \
    X("cudnnSetFilterNdDescriptor", filter, int, (void *, int, int, int, const int *))             \
    X("cudnnCreateConvolutionDescriptor", conv_new, int, (void **))                                \
    X("cudnnDestroyConvolutionDescriptor", conv_free, int, (void *))                               \
    X("cudnnSetConvolutionNdDescriptor", conv, int,                                                \
      (void *, int, const int *, const int *, const int *, int, int))                              \
    X("cudnnSetConvolutionMathType", math, int, (void *, int))

static struct cudnn {
#define X(symbol, field, result, args) result(*field) args;
    FUNCTIONS(X)
#undef X
    search *search[3];
    convolve *run[3];
} dnn;

static const char *const directions[3] = {"Forward", "BackwardData", "BackwardFilter"};

static void fail(const char *doing, const char *why)
{
    fprintf(stderr, "cudnn_peer: %s: %s\n", doing, why);
    exit(1);
}

static void gpu(int error, const char *doing)
{
    if (error)
        fail(doing, mr_cuda.text(error));
}

static void must(int status, const char *doing)
{
    if (status)
        fail(doing, dnn.text(status));
}

static void find(void *so, const char *path, const char *symbol, void *field)
{
    void *at = dlsym(so, symbol);
    if (!at) {
        char why[128];
        snprintf(why, sizeof why, "has no %s; try: cuDNN 9", symbol);
        fail(path, why);
    }
    memcpy(field, &at, sizeof at);
}

static void open_library(void)
{
    const char *set = getenv("MOONREEL_CUDNN"), *path = set && *set ? set : "libcudnn.so.9";
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    char symbol[64];
    if (!so)
        fail("no cuDNN", dlerror());
#define X(symbol, field, result, args) find(so, path, symbol, &dnn.field);
    FUNCTIONS(X)
#undef X
    for (int i = 0; i < 3; i++) {
        snprintf(symbol, sizeof symbol, "cudnnFindConvolution%sAlgorithmEx", directions[i]);
        find(so, path, symbol, &dnn.search[i]);
        snprintf(symbol, sizeof symbol, "cudnnConvolution%s", directions[i]);
        find(so, path, symbol, &dnn.run[i]);
    }
}

// ---- convolutions ----

enum { X, W, Y, OPERANDS };
// per direction: two inputs and the output
static const int takes[3][3] = {{X, W, Y}, {W, Y, X}, {X, Y, W}};

typedef struct operand {
    void *desc, *at;
    size_t bytes;
} operand;

static void *stream, *handle, *workspace;
static size_t workspace_bytes;

static operand operand_new(bool filter, int rank, const int *dim)
{
    operand o = {.bytes = 2};
    must(filter ? dnn.filter_new(&o.desc) : dnn.tensor_new(&o.desc), "a descriptor");
    must(filter ? dnn.filter(o.desc, BF16, CHANNELS_LAST, rank, dim)
                : dnn.tensor(o.desc, CHANNELS_LAST, BF16, rank, dim),
         "a tensor");
    for (int i = 0; i < rank; i++)
        o.bytes *= (size_t)dim[i];
    // random values: products of zeros use less power, and so take less time
    uint16_t *values = malloc(o.bytes);
    if (!values)
        fail("a tensor", "out of memory");
    for (size_t i = 0; i < o.bytes / 2; i++)
        values[i] = mr_f32_to_bf16((float)(rand() % 2001 - 1000) / 1000);
    gpu(mr_cuda.alloc(o.bytes, false, &o.at), "a tensor");
    gpu(mr_cuda.copy(o.at, values, o.bytes, stream), "a tensor");
    gpu(mr_cuda.stream_sync(stream), "a tensor");
    free(values);
    return o;
}

static void operand_free(operand *o, bool filter)
{
    must(filter ? dnn.filter_free(o->desc) : dnn.tensor_free(o->desc), "a descriptor");
    gpu(mr_cuda.release(o->at, false), "a tensor");
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// the median of the runs; -1 if cuDNN has no algorithm
static double seconds(int direction, const operand *o, void *conv, int runs)
{
    const operand *a = &o[takes[direction][0]], *b = &o[takes[direction][1]],
                  *to = &o[takes[direction][2]];
    const float one = 1, zero = 0;
    candidate best;
    int n = 0;
    int status = dnn.search[direction](handle, a->desc, a->at, b->desc, b->at, conv, to->desc,
                                       to->at, 1, &n, &best, workspace, workspace_bytes);
    if (status || n < 1 || best.status)
        return -1;
    must(dnn.math(conv, best.math), "a convolution");
    double *took = calloc((size_t)runs, sizeof *took);
    void *event[2];
    if (!took)
        fail("a convolution", "out of memory");
    for (int k = 0; k < 2; k++)
        gpu(mr_cuda.event_new(true, &event[k]), "a clock");
    // the first run is a warm-up
    for (int i = -1; i < runs; i++) {
        gpu(mr_cuda.event_record(event[0], stream), "a clock");
        must(dnn.run[direction](handle, &one, a->desc, a->at, b->desc, b->at, conv, best.algorithm,
                                workspace, best.workspace, &zero, to->desc, to->at),
             directions[direction]);
        gpu(mr_cuda.event_record(event[1], stream), "a clock");
        gpu(mr_cuda.stream_sync(stream), directions[direction]);
        if (i >= 0)
            gpu(mr_cuda.event_seconds(event[0], event[1], &took[i]), "a clock");
    }
    for (int k = 0; k < 2; k++)
        mr_cuda.event_free(event[k]);
    qsort(took, (size_t)runs, sizeof *took, by_size);
    double middle = took[runs / 2];
    free(took);
    return middle;
}

static void convolution(const int *row, int runs)
{
    const int B = row[0], T = row[1], H = row[2], W_ = row[3], C = row[4], F = row[5];
    const bool pictures = row[6] != 0;
    // x already includes the two earlier frames, because cuDNN pads both sides equally
    const int x3[] = {B, C, T + 2, H, W_}, w3[] = {F, C, 3, 3, 3}, y3[] = {B, F, T, H, W_};
    const int x2[] = {B * T, C, H, W_}, w2[] = {F, C, 3, 3}, y2[] = {B * T, F, H, W_};
    const int pad[] = {0, 1, 1}, ones[] = {1, 1, 1}, rank = pictures ? 4 : 5;
    void *conv;
    operand o[OPERANDS] = {
        operand_new(false, rank, pictures ? x2 : x3),
        operand_new(true, rank, pictures ? w2 : w3),
        operand_new(false, rank, pictures ? y2 : y3),
    };
    must(dnn.conv_new(&conv), "a descriptor");
    must(dnn.conv(conv, rank - 2, pictures ? pad + 1 : pad, ones, ones, CORRELATION, F32),
         "a convolution");
    must(dnn.math(conv, TENSOR_CORES), "a convolution");
    for (int i = 0; i < 3; i++) {
        double s = seconds(i, o, conv, runs);
        printf(s < 0 ? "-" : "%.9g", s);
        putchar(i < 2 ? ' ' : '\n');
    }
    must(dnn.conv_free(conv), "a descriptor");
    for (int i = 0; i < OPERANDS; i++)
        operand_free(&o[i], i == W);
}

int main(int argc, char **argv)
{
    enum { NUMBERS = 7, MOST = 256 << 20 };
    int runs = argc > 1 ? atoi(argv[1]) : 0;
    if (runs < 1 || (argc - 2) % NUMBERS) {
        fprintf(stderr, "use: cudnn_peer RUNS [B T H W C FILTERS PICTURES]...\n");
        return 2;
    }
    mr_cuda_facts facts;
    size_t free_bytes, total_bytes;
    gpu(mr_cuda.facts(0, &facts), "the GPU");
    gpu(mr_cuda.use(0), "the GPU");
    open_library();
    must(dnn.create(&handle), "cuDNN");
    gpu(mr_cuda.stream_new(&stream), "a stream");
    must(dnn.set_stream(handle, stream), "cuDNN");
    gpu(mr_cuda.memory(&free_bytes, &total_bytes), "free memory");
    workspace_bytes = MR_MIN(free_bytes / 4, (size_t)MOST);
    gpu(mr_cuda.alloc(workspace_bytes, false, &workspace), "a workspace");
    printf("cuDNN %zu\n", dnn.version());
    for (int at = 2; at < argc; at += NUMBERS) {
        int row[NUMBERS];
        for (int i = 0; i < NUMBERS; i++) {
            row[i] = atoi(argv[at + i]);
            if (row[i] < (i == NUMBERS - 1 ? 0 : 1))
                fail(argv[at + i], "expected a number of at least 1");
        }
        convolution(row, runs);
    }
    return 0;
}
