/* A substitute for cuDNN: it knows shapes, and refuses a convolution whose operands, workspace or
 * factors cuDNN would not accept. Eleven filters: it has no algorithm.
 * Licence: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

typedef struct thing {
    int rank, dim[5], pad[3];
} thing;

typedef struct candidate {
    int algorithm, status;
    float ms;
    size_t workspace;
    int determinism, math, reserved[3];
} candidate;

enum { BAD = 2000, ALGORITHM = 5, MATH = 1, WORKSPACE = 1000 };

SHOWN size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void)
{
    return 91900;
}

SHOWN const char *cudnnGetErrorString(int status);
const char *cudnnGetErrorString(int status)
{
    return status == BAD ? "CUDNN_STATUS_BAD_PARAM" : "unknown";
}

#define NEW(name)                                                                                  \
    SHOWN int name(void **);                                                                       \
    int name(void **out)                                                                           \
    {                                                                                              \
        return (*out = calloc(1, sizeof(thing))) ? 0 : BAD;                                        \
    }
NEW(cudnnCreate)
NEW(cudnnCreateTensorDescriptor)
NEW(cudnnCreateFilterDescriptor)
NEW(cudnnCreateConvolutionDescriptor)

#define FREE(name)                                                                                 \
    SHOWN int name(void *);                                                                        \
    int name(void *p)                                                                              \
    {                                                                                              \
        return free(p), 0;                                                                         \
    }
FREE(cudnnDestroyTensorDescriptor)
FREE(cudnnDestroyFilterDescriptor)
FREE(cudnnDestroyConvolutionDescriptor)

SHOWN int cudnnSetStream(void *, void *);
int cudnnSetStream(void *handle, void *stream)
{
    return handle && stream ? 0 : BAD;
}

static int set(thing *t, int format, int type, int rank, const int *dim)
{
    t->rank = rank;
    memcpy(t->dim, dim, (size_t)rank * sizeof *dim);
    return format == 1 && type == 9 ? 0 : BAD;
}

SHOWN int cudnnSetTensorNdDescriptorEx(void *, int, int, int, const int *);
int cudnnSetTensorNdDescriptorEx(void *t, int format, int type, int rank, const int *dim)
{
    return set(t, format, type, rank, dim);
}

SHOWN int cudnnSetFilterNdDescriptor(void *, int, int, int, const int *);
int cudnnSetFilterNdDescriptor(void *t, int type, int format, int rank, const int *dim)
{
    return set(t, format, type, rank, dim);
}

SHOWN int cudnnSetConvolutionNdDescriptor(void *, int, const int *, const int *, const int *, int,
                                          int);
int cudnnSetConvolutionNdDescriptor(void *conv, int rank, const int *pad, const int *stride,
                                    const int *dilation, int mode, int type)
{
    thing *t = conv;
    t->rank = rank;
    memcpy(t->pad, pad, (size_t)rank * sizeof *pad);
    for (int i = 0; i < rank; i++)
        if (stride[i] != 1 || dilation[i] != 1)
            return BAD;
    return mode == 1 && type == 0 ? 0 : BAD;
}

SHOWN int cudnnSetConvolutionMathType(void *, int);
int cudnnSetConvolutionMathType(void *conv, int math)
{
    return conv && math == MATH ? 0 : BAD;
}

// do y, of x and w, have matching shapes?
static int fits(const thing *x, const thing *w, const thing *y, const thing *conv)
{
    if (x->rank != w->rank || x->rank != y->rank || x->rank != conv->rank + 2)
        return 0;
    for (int i = 0; i < conv->rank; i++)
        if (y->dim[i + 2] != x->dim[i + 2] + 2 * conv->pad[i] - w->dim[i + 2] + 1)
            return 0;
    return x->dim[0] == y->dim[0] && x->dim[1] == w->dim[1] && y->dim[1] == w->dim[0];
}

static int search(int good, const thing *w, const void *a, const void *b, void *to, int wanted,
                  int *n, candidate *found, void *workspace, size_t bytes)
{
    if (!good || !a || !b || !to || wanted != 1 || !workspace || bytes < WORKSPACE)
        return BAD;
    *n = w->dim[0] != 11;
    if (*n)
        *found = (candidate){.algorithm = ALGORITHM, .workspace = WORKSPACE, .math = MATH};
    return 0;
}

static int run(int good, const void *one, const void *zero, int algorithm, const void *workspace,
               size_t bytes)
{
    return good && *(const float *)one == 1 && *(const float *)zero == 0 &&
                   algorithm == ALGORITHM && workspace && bytes == WORKSPACE
               ? 0
               : BAD;
}

// the direction's name, and which of its operands a, b and its result are x, w and y
#define DIRECTION(name, x, w, y)                                                                   \
    SHOWN int cudnnFindConvolution##name##AlgorithmEx(void *, void *, const void *, void *,        \
                                                      const void *, void *, void *, void *, int,   \
                                                      int *, candidate *, void *, size_t);         \
    int cudnnFindConvolution##name##AlgorithmEx(                                                   \
        void *handle, void *a, const void *a_at, void *b, const void *b_at, void *conv, void *to,  \
        void *to_at, int wanted, int *n, candidate *found, void *workspace, size_t bytes)          \
    {                                                                                              \
        return search(handle && fits(x, w, y, conv), w, a_at, b_at, to_at, wanted, n, found,       \
                      workspace, bytes);                                                           \
    }                                                                                              \
    SHOWN int cudnnConvolution##name(void *, const void *, void *, const void *, void *,           \
                                     const void *, void *, int, void *, size_t, const void *,      \
                                     void *, void *);                                              \
    int cudnnConvolution##name(void *handle, const void *one, void *a, const void *a_at, void *b,  \
                               const void *b_at, void *conv, int algorithm, void *workspace,       \
                               size_t bytes, const void *zero, void *to, void *to_at)              \
    {                                                                                              \
        return run(handle && a_at && b_at && to_at && fits(x, w, y, conv), one, zero, algorithm,   \
                   workspace, bytes);                                                              \
    }
DIRECTION(Forward, a, b, to)
DIRECTION(BackwardData, to, a, b)
DIRECTION(BackwardFilter, a, to, b)
