// A GPU behind the C face of device.h: memory that both sides reach. cuda/bench/verify runs it.
#include "device.h"
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

static std::vector<void *> blocks;

// unwritten memory is NaN
void *device_alloc(size_t bytes)
{
    void *p = NULL;
    cudaError_t error = cudaMallocManaged(&p, bytes ? bytes : 1);
    if (error) {
        fprintf(stderr, "no memory of the GPU: %s\n", cudaGetErrorString(error));
        exit(1);
    }
    blocks.push_back(p);
    memset(p, 0xFF, bytes);
    return p;
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

void device_begin(unsigned, bool) {}

device_counts device_counted(void)
{
    return {};
}

const char *device_reports(void)
{
    cudaError_t error = cudaDeviceSynchronize();
    return error ? cudaGetErrorString(error) : "";
}

int device_forms(void)
{
    cudaDeviceProp p;
    return cudaGetDeviceProperties(&p, 0) == cudaSuccess && p.major == 9 && p.minor == 0 ? 2 : 1;
}

void device_print_launches(void) {}
