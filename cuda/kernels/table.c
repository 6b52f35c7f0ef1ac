// The table of CUDA kernels. The linker collects a pointer to each in section mr_cuda_kernels.
#include "cuda/kernels/table.h"
#include <string.h>

extern const mr_cuda_kernel *const __start_mr_cuda_kernels[];
extern const mr_cuda_kernel *const __stop_mr_cuda_kernels[];

int mr_cuda_kernel_count(void)
{
    return (int)(__stop_mr_cuda_kernels - __start_mr_cuda_kernels);
}

const mr_cuda_kernel *mr_cuda_kernel_at(int i)
{
    return __start_mr_cuda_kernels[i];
}

const mr_cuda_kernel *mr_cuda_kernel_find(const char *name)
{
    for (int i = 0; i < mr_cuda_kernel_count(); i++)
        if (strcmp(mr_cuda_kernel_at(i)->name, name) == 0)
            return mr_cuda_kernel_at(i);
    return NULL;
}
