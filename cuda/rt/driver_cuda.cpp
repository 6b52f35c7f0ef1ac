/* cuda/rt: the driver table for a GPU. It calls the CUDA runtime, which finds the driver itself,
 * and cuBLASLt. It makes no decisions: steps.c and device.c do. Licence: Apache-2.0 */
#include "cuda/rt/driver.h"
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <string.h>

namespace
{

/* The runtime keeps a returned error until cudaGetLastError. Clear it here, so that launched() does
 * not mistake it for the error of a launch. */
int taken(cudaError_t error)
{
    if (error)
        cudaGetLastError();
    return error;
}

// ---- device, memory ----

int facts(int ordinal, mr_cuda_facts *out)
{
    memset(out, 0, sizeof *out);
    // the runtime works with any driver of the same major version
    out->need = CUDART_VERSION < 13000 ? 12040 : CUDART_VERSION / 1000 * 1000;
    int error = taken(cudaDriverGetVersion(&out->driver));
    if (error)
        return error;
    // version 0 means that no driver is installed
    if (out->driver == 0)
        return cudaErrorNoDevice;
    if (out->driver < out->need)
        return cudaErrorInsufficientDriver;
    error = taken(cudaGetDeviceCount(&out->devices));
    if (error)
        return error;
    if (ordinal >= out->devices)
        return cudaErrorInvalidDevice;
    cudaDeviceProp p;
    error = taken(cudaGetDeviceProperties(&p, ordinal));
    snprintf(out->name, sizeof out->name, "%.95s", p.name);
    out->major = p.major;
    out->minor = p.minor;
    return error ? error : taken(cudaDeviceGetPCIBusId(out->bus, sizeof out->bus, ordinal));
}

int use(int ordinal)
{
    return taken(cudaSetDevice(ordinal));
}

int memory(size_t *free_bytes, size_t *total_bytes)
{
    return taken(cudaMemGetInfo(free_bytes, total_bytes));
}

int alloc(size_t bytes, bool pinned, void **out)
{
    return taken(pinned ? cudaHostAlloc(out, bytes, cudaHostAllocPortable)
                        : cudaMalloc(out, bytes));
}

int release(void *p, bool pinned)
{
    return taken(pinned ? cudaFreeHost(p) : cudaFree(p));
}

// ---- streams, events ----

int stream_new(void **out)
{
    return taken(cudaStreamCreateWithFlags((cudaStream_t *)out, cudaStreamNonBlocking));
}

int stream_free(void *stream)
{
    return taken(cudaStreamDestroy((cudaStream_t)stream));
}

int stream_sync(void *stream)
{
    return taken(cudaStreamSynchronize((cudaStream_t)stream));
}

int event_new(bool timed, void **out)
{
    return taken(cudaEventCreateWithFlags((cudaEvent_t *)out,
                                          timed ? cudaEventDefault : cudaEventDisableTiming));
}

int event_free(void *event)
{
    return taken(cudaEventDestroy((cudaEvent_t)event));
}

int event_record(void *event, void *stream)
{
    return taken(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}

int event_wait(void *event, void *stream)
{
    return taken(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
}

int event_reached(void *event, bool block, bool *out)
{
    int error = taken(block ? cudaEventSynchronize((cudaEvent_t)event)
                            : cudaEventQuery((cudaEvent_t)event));
    *out = error == cudaSuccess;
    return error == cudaErrorNotReady ? 0 : error;
}

int event_seconds(void *from, void *to, double *seconds)
{
    float ms = 0;
    int error = taken(cudaEventElapsedTime(&ms, (cudaEvent_t)from, (cudaEvent_t)to));
    *seconds = ms / 1e3;
    return error;
}

// ---- work ----

int copy(void *to, const void *from, size_t bytes, void *stream)
{
    return taken(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream));
}

int fill(void *to, int byte, size_t bytes, void *stream)
{
    return taken(cudaMemsetAsync(to, byte, bytes, (cudaStream_t)stream));
}

int call(void (*fn)(void *), void *user, void *stream)
{
    return taken(cudaLaunchHostFunc((cudaStream_t)stream, fn, user));
}

int launched()
{
    return cudaGetLastError();
}

int capture_begin(void *stream)
{
    return taken(cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal));
}

int capture_end(void *stream, void **graph)
{
    cudaGraph_t captured = NULL;
    *graph = NULL;
    int error = taken(cudaStreamEndCapture((cudaStream_t)stream, &captured));
    if (!error)
        error = taken(cudaGraphInstantiate((cudaGraphExec_t *)graph, captured, 0));
    if (captured)
        cudaGraphDestroy(captured);
    return error;
}

int graph_run(void *graph, void *stream)
{
    return taken(cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream));
}

int graph_free(void *graph)
{
    return taken(cudaGraphExecDestroy((cudaGraphExec_t)graph));
}

// ---- products ----

// error numbers of cuBLASLt start after those of the runtime
enum { LIBRARY = 100000 };

int library(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? 0 : LIBRARY + (int)status;
}

struct Plan {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    bool accumulate, bias, aux, scaled, gradient; // gradient: of a bias
};

cublasLtHandle_t handle;

// by ending; without and with a bias
const cublasLtEpilogue_t epilogues[][2] = {
    {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS},
    {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS},
    {CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
    {CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU},
    {CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_BGRADB},
};

cudaDataType_t type_of(mr_dtype type)
{
    switch (type) {
    case MR_BF16: return CUDA_R_16BF;
    case MR_F8_E4M3: return CUDA_R_8F_E4M3;
    case MR_F8_E5M2: return CUDA_R_8F_E5M2;
    default: return CUDA_R_32F;
    }
}

cublasStatus_t layout(cublasLtMatrixLayout_t *out, mr_dtype type, int64_t rows, int64_t cols,
                      int64_t ld, int64_t batch, int64_t step)
{
    int32_t count = (int32_t)batch;
    cublasStatus_t st =
        cublasLtMatrixLayoutCreate(out, type_of(type), (uint64_t)rows, (uint64_t)cols, ld);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof count);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &step, sizeof step);
    return st;
}

template <typename V>
cublasStatus_t set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t what, V value)
{
    return cublasLtMatmulDescSetAttribute(product, what, &value, sizeof value);
}

template <typename V>
cublasStatus_t prefer(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t what,
                      V value)
{
    return cublasLtMatmulPreferenceSetAttribute(p, what, &value, sizeof value);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        cublasStatus_t status_ = (call);                                                           \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                      \
            return status_;                                                                        \
    } while (0)

cublasStatus_t describe(const mr_cuda_product *p, Plan *x)
{
    // f32 products keep f32: no TF32
    TRY(cublasLtMatmulDescCreate(&x->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    TRY(set(x->product, CUBLASLT_MATMUL_DESC_TRANSA, p->ta ? CUBLAS_OP_T : CUBLAS_OP_N));
    TRY(set(x->product, CUBLASLT_MATMUL_DESC_TRANSB, p->tb ? CUBLAS_OP_T : CUBLAS_OP_N));
    TRY(set(x->product, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogues[p->ending][p->bias]));
    // cuBLASLt chooses the algorithm by the alignment of these addresses: until a run, use an
    // address with just that alignment
    const void *aligned = (const void *)(uintptr_t)p->align;
    if (x->bias || x->gradient) {
        mr_dtype bias = x->scaled ? MR_BF16 : p->out;
        TRY(set(x->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(bias)));
        TRY(set(x->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned));
    }
    if (p->ldaux) {
        TRY(set(x->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p->ldaux));
        TRY(set(x->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned));
    }
    if (x->scaled) {
        TRY(set(x->product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, (int8_t)p->fast));
        TRY(set(x->product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, aligned));
        TRY(set(x->product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, aligned));
    }
    TRY(layout(&x->a, p->in, p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda, p->batch,
               p->step_a));
    TRY(layout(&x->b, p->in_b, p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb, p->batch,
               p->step_b));
    return layout(&x->d, p->out, p->m, p->n, p->ldd, p->batch, p->step_d);
}

// take the first algorithm with a fixed order of sums: none that adds in place with atomics
cublasStatus_t choose(const mr_cuda_product *p, Plan *x, size_t *bytes,
                      cublasLtMatmulPreference_t wish)
{
    const uint32_t align = (uint32_t)p->align;
    const uint32_t schemes =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    TRY(prefer(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (uint64_t)*bytes));
    TRY(prefer(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes));
    TRY(prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align));
    TRY(prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align));
    TRY(prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align));
    TRY(prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align));
    TRY(cublasLtMatmulAlgoGetHeuristic(handle, x->product, x->a, x->b, x->d, x->d, wish, 1, &found,
                                       &n));
    if (n < 1 || found.state != CUBLAS_STATUS_SUCCESS)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    x->algorithm = found.algo;
    *bytes = found.workspaceSize;
    return CUBLAS_STATUS_SUCCESS;
}

int product_free(void *plan)
{
    Plan *x = (Plan *)plan;
    cublasLtMatrixLayout_t layouts[] = {x->a, x->b, x->d};
    for (cublasLtMatrixLayout_t l : layouts)
        if (l)
            cublasLtMatrixLayoutDestroy(l);
    if (x->product)
        cublasLtMatmulDescDestroy(x->product);
    delete x;
    return 0;
}

int product_new(const mr_cuda_product *p, size_t *bytes, void **plan)
{
    cublasStatus_t st = handle ? CUBLAS_STATUS_SUCCESS : cublasLtCreate(&handle);
    if (st != CUBLAS_STATUS_SUCCESS)
        return library(st);
    Plan *x = new Plan();
    x->accumulate = p->accumulate;
    x->bias = p->bias;
    x->aux = p->ldaux != 0;
    x->gradient = p->ending == MR_CUDA_BIAS_GRADIENT;
    x->scaled = p->in == MR_F8_E4M3 || p->in == MR_F8_E5M2;
    cublasLtMatmulPreference_t wish = NULL;
    st = describe(p, x);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = cublasLtMatmulPreferenceCreate(&wish);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = choose(p, x, bytes, wish);
    if (wish)
        cublasLtMatmulPreferenceDestroy(wish);
    if (st == CUBLAS_STATUS_SUCCESS)
        *plan = x;
    else
        product_free(x);
    return library(st);
}

int product_run(void *plan, const void *a, const void *b, const float *const *scales,
                const void *bias, void *aux, void *d, void *workspace, size_t bytes, void *stream)
{
    Plan *x = (Plan *)plan;
    const float one = 1, beta = x->accumulate ? 1.0f : 0.0f;
    cublasStatus_t st = CUBLAS_STATUS_SUCCESS;
    // cuBLASLt has one pointer for a bias and for its gradient
    if (x->bias || x->gradient)
        st = set(x->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, x->bias ? bias : aux);
    if (x->aux && st == CUBLAS_STATUS_SUCCESS)
        st = set(x->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    if (x->scaled && st == CUBLAS_STATUS_SUCCESS)
        st = set(x->product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales[0]);
    if (x->scaled && st == CUBLAS_STATUS_SUCCESS)
        st = set(x->product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales[1]);
    if (st != CUBLAS_STATUS_SUCCESS)
        return library(st);
    return library(cublasLtMatmul(handle, x->product, &one, a, x->a, b, x->b, &beta, d, x->d, d,
                                  x->d, &x->algorithm, workspace, bytes, (cudaStream_t)stream));
}

// ---- tensor maps ----

typedef decltype(&cuTensorMapEncodeTiled) Encode;

// the driver library is not linked, so look up the function
int encoder(Encode *out)
{
    static Encode found;
    cudaDriverEntryPointQueryResult result;
    int error = 0;
    if (!found)
        error = taken(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&found,
                                                       12000, cudaEnableDefault, &result));
    *out = found;
    return error ? error : found ? 0 : (int)cudaErrorSymbolNotFound;
}

int tensor_map(const mr_cuda_tensor *t, void *map)
{
    const cuuint32_t each[MR_CUDA_TENSOR_RANK] = {1, 1, 1, 1, 1};
    cuuint64_t size[MR_CUDA_TENSOR_RANK], step[MR_CUDA_TENSOR_RANK];
    for (int i = 0; i < MR_CUDA_TENSOR_RANK; i++) {
        size[i] = t->size[i];
        step[i] = t->step_bytes[i];
    }
    Encode encode;
    int error = encoder(&encode);
    if (error)
        return error;
    // pass the steps of all dimensions but the innermost; the error numbers equal those of the
    // runtime
    return encode((CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, MR_CUDA_TENSOR_RANK,
                  (void *)t->base, size, step + 1, t->box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  t->swizzle == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_32B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// ---- ranges and texts ----

void range(const char *name)
{
    if (name)
        nvtxRangePushA(name);
    else
        nvtxRangePop();
}

const char *text(int error)
{
    return error >= LIBRARY ? cublasLtGetStatusString((cublasStatus_t)(error - LIBRARY))
                            : cudaGetErrorString((cudaError_t)error);
}

} // namespace

extern const mr_cuda_driver mr_cuda = {
    "cuda",      facts,         use,           memory,    alloc,      release,
    stream_new,  stream_free,   stream_sync,   event_new, event_free, event_record,
    event_wait,  event_reached, event_seconds, copy,      fill,       call,
    launched,    capture_begin, capture_end,   graph_run, graph_free, product_new,
    product_run, product_free,  tensor_map,    range,     text,
};
