// A GPU behind the C interface of device.h. cuda/bench/verify runs it.
#include "device.h"
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

static std::vector<void *> blocks;

static void must(cudaError_t error, const char *doing)
{
    if (!error)
        return;
    fprintf(stderr, "%s: %s\n", doing, cudaGetErrorString(error));
    exit(1);
}

// unwritten memory is NaN
void *device_alloc(size_t bytes)
{
    void *p = NULL;
    must(cudaMalloc(&p, bytes ? bytes : 1), "no memory of the GPU");
    must(cudaMemset(p, 0xFF, bytes), "memory of the GPU is filled");
    blocks.push_back(p);
    return p;
}

void device_put(void *to, const void *from, size_t bytes)
{
    must(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "a copy to the GPU");
}

void device_get(void *to, const void *from, size_t bytes)
{
    must(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "a copy from the GPU");
}

void *device_alloc_far(size_t bytes)
{
    void *p = NULL;
    if (cudaMalloc(&p, bytes)) {
        cudaGetLastError();
        return NULL;
    }
    blocks.push_back(p);
    return p;
}

void device_open(void *p, size_t bytes)
{
    must(cudaMemset(p, 0xFF, bytes), "memory of the GPU is filled");
}

void device_free_all(void)
{
    for (void *p : blocks)
        cudaFree(p);
    blocks.clear();
}

void device_wrote(void *, size_t) {}

bool device_written(const void *, size_t)
{
    return true;
}

void device_begin(unsigned, bool, bool) {}

device_counts device_counted(void)
{
    return {};
}

bool device_counts_work(void)
{
    return false;
}

const char *device_reports(void)
{
    // a launch that the GPU refused is reported here
    cudaError_t error = cudaGetLastError(), after = cudaDeviceSynchronize();
    error = error ? error : after;
    return error ? cudaGetErrorString(error) : "";
}

int device_forms(void)
{
    cudaDeviceProp p;
    return cudaGetDeviceProperties(&p, 0) == cudaSuccess && p.major == 9 && p.minor == 0 ? 2 : 1;
}

void device_print_launches(void) {}
