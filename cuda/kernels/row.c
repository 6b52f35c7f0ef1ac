// The table of CUDA kernels: the linker puts a pointer to each row into the section mr_cuda_rows.
#include "cuda/kernels/row.h"
#include <string.h>

extern const mr_cuda_row *const __start_mr_cuda_rows[];
extern const mr_cuda_row *const __stop_mr_cuda_rows[];

const mr_cuda_row *mr_cuda_row_find(const char *name)
{
    for (const mr_cuda_row *const *row = __start_mr_cuda_rows; row < __stop_mr_cuda_rows; row++)
        if (strcmp((*row)->name, name) == 0)
            return *row;
    return NULL;
}
