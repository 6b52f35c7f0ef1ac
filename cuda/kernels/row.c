// The table of CUDA kernels. The linker collects a pointer to each entry in section mr_cuda_rows.
#include "cuda/kernels/row.h"
#include <string.h>

extern const mr_cuda_row *const __start_mr_cuda_rows[];
extern const mr_cuda_row *const __stop_mr_cuda_rows[];

int mr_cuda_row_count(void)
{
    return (int)(__stop_mr_cuda_rows - __start_mr_cuda_rows);
}

const mr_cuda_row *mr_cuda_row_at(int i)
{
    return __start_mr_cuda_rows[i];
}

const mr_cuda_row *mr_cuda_row_find(const char *name)
{
    for (int i = 0; i < mr_cuda_row_count(); i++)
        if (strcmp(mr_cuda_row_at(i)->name, name) == 0)
            return mr_cuda_row_at(i);
    return NULL;
}
