/* cuda: every op has a CUDA kernel, which must pass the op's own cases; an op without one fails by
 * name. Use: contract [NAME...] for these ops only; contract --rows prints their names; contract
 * --launches prints blocks and shared memory of the kernels that ran, for `make cuda`. Covers:
 * cuda/kernels/NAME.cu, cuda/kernels/table.c */
#include "check.h"
#include "contract.h"
#include "cuda/kernels/table.h"
#include "device.h"

int main(int argc, char **argv)
{
    bool launches = argc > 1 && strcmp(argv[1], "--launches") == 0;
    if (launches)
        argc = 1;
    if (argc > 1 && strcmp(argv[1], "--rows") == 0) {
        for (int i = 0; i < mr_op_count(); i++)
            printf("%s\n", mr_op_at(i)->name);
        return 0;
    }
    for (int i = 1; i < argc; i++)
        contract_row(argv[i]);
    if (argc > 1)
        return contract_done();
    // an op without a kernel fails here, by its name: cuda/kernels/README.md says how to add one
    for (int i = 0; i < mr_op_count(); i++) {
        // if a kernel hangs or kills the process, the last printed name is its op
        printf("%s\n", mr_op_at(i)->name);
        contract_row(mr_op_at(i)->name);
    }
    // no op was lost
    CHECK(mr_op_count() >= 69);
    CHECK(mr_cuda_kernel_find("no_such_row") == NULL);
    printf("%d rows have a CUDA kernel\n", mr_cuda_kernel_count());
    if (launches)
        device_print_launches();
    return contract_done() | check_done();
}
